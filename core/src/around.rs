//! What goes around the waits of calls that do not wait for messages, and around handlers.

use crate::contain::contain;
use crate::sync::PlainArc;
use std::fmt;

/// A function that is called around such a wait, and calls what it is given.
pub(crate) type AroundWait = dyn Fn(&mut dyn FnMut()) + Send + Sync;

/// What a broker was told to do around its waits: nothing, or to call a function.
#[derive(Clone, Default)]
pub(crate) struct AroundWaits(Option<PlainArc<AroundWait>>);

impl fmt::Debug for AroundWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AroundWaits").field(&self.0.is_some()).finish()
    }
}

impl AroundWaits {
    pub(crate) fn new(around: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> Self {
        Self(Some(PlainArc::new(around)))
    }

    /// Does `work`, which can wait. Not to be called with a lock that a thread takes which holds
    /// what `around` takes.
    pub(crate) fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        let Some(around) = &self.0 else { return work() };
        let (mut work, mut result) = (Some(work), None);
        around(&mut || {
            if let Some(work) = work.take() {
                result = Some(work());
            }
        });
        match (result, work) {
            (Some(result), _) => result,
            (None, Some(work)) => work(),
            (None, None) => unreachable!("what goes around a wait has caught a panic"),
        }
    }
}

/// A function that workers call around runs of handlers: see
/// [`SubscriptionBuilder::around`](crate::SubscriptionBuilder::around).
#[derive(Clone)]
pub struct Around(PlainArc<Captured>);

/// What such a function has captured, which harms nobody where it panics as it is dropped.
struct Captured(Option<Box<AroundWait>>);

impl Drop for Captured {
    fn drop(&mut self) {
        let function = self.0.take();
        if !contain(|| drop(function)) {
            tracing::error!("what goes around handlers panicked as it was dropped");
        }
    }
}

impl Around {
    /// Of a function that calls what it is given, once.
    pub fn new(around: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> Self {
        Self(PlainArc::new(Captured(Some(Box::new(around)))))
    }

    /// Does `work`, which is about `subscription`, inside a call; false if that panicked, or did not
    /// do it.
    pub(crate) fn call(&self, subscription: u64, work: &mut dyn FnMut()) -> bool {
        let Some(around) = &self.0.0 else { return false };
        let mut is_done = false;
        let quiet = contain(|| {
            around(&mut || {
                work();
                is_done = true;
            });
        });
        if !quiet {
            tracing::error!(subscription, "what goes around a handler panicked");
        }
        quiet && is_done
    }

    /// Whether both are clones of one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        PlainArc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Around {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Around").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_is_done_once_however_often_it_is_called() {
        for times in [0, 1, 3] {
            let around = AroundWaits::new(move |work| (0..times).for_each(|_| work()));
            let mut done = 0;
            assert_eq!(around.run(|| done += 1), ());
            assert_eq!(done, 1);
        }
        assert_eq!(AroundWaits::default().run(|| 7), 7);
    }
}
