//! What goes around the waits of calls that do not wait for messages.

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
