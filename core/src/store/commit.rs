//! Group commit: who needs its bytes durable waits here, one of them syncs for all, and the next
//! group forms meanwhile.
//!
//! A sync that fails once poisons for ever: the kernel may have dropped the pages and marked them
//! clean, so that a later sync would succeed and mean nothing. A mutex and a condition variable,
//! because a sync takes a hundred microseconds or more.

use crate::sync::{Condvar, Mutex, MutexGuard};
use std::io;
use std::sync::Arc;

/// How far a log has come: three names of one place, the coarsest first, so that marks compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mark {
    /// The sequence behind the last record.
    pub sequence: u64,
    /// The base sequence of the segment.
    pub segment: u64,
    /// The position in that segment's file.
    pub position: u64,
}

/// The state that waiters share.
#[derive(Debug)]
pub struct Commit {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Everything before it was given to the operating system.
    written: Mark,
    /// Everything before it survives a power cut.
    durable: Mark,
    /// Whether somebody syncs at the moment.
    syncing: bool,
    poison: Option<Arc<str>>,
}

impl Mark {
    /// Behind the last record below `sequence`, wherever that is.
    pub fn sequence(sequence: u64) -> Self {
        Self { sequence, segment: 0, position: 0 }
    }
}

impl Commit {
    /// A log that is durable up to `durable`.
    pub fn new(durable: Mark) -> Self {
        let state = State { written: durable, durable, syncing: false, poison: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Tells that everything before `mark` was written. The writer calls it in order.
    pub fn written(&self, mark: Mark) {
        self.lock().written = mark;
    }

    /// What was written, and what is durable.
    pub fn marks(&self) -> (Mark, Mark) {
        let state = self.lock();
        (state.written, state.durable)
    }

    /// What is durable.
    ///
    /// # Errors
    ///
    /// Why the log is poisoned.
    pub fn durable(&self) -> Result<Mark, Arc<str>> {
        let state = self.lock();
        match &state.poison {
            Some(why) => Err(Arc::clone(why)),
            None => Ok(state.durable),
        }
    }

    /// Blocks until everything before `upto` is durable (all that is written, if that is less), and
    /// says how far it is. `sync` makes everything durable that was written before it was called;
    /// it runs on one thread at a time.
    ///
    /// # Errors
    ///
    /// Why the log is poisoned.
    pub fn sync(
        &self,
        upto: Mark,
        sync: impl FnOnce() -> io::Result<()>,
    ) -> Result<Mark, Arc<str>> {
        let mut state = self.lock();
        loop {
            if state.durable >= upto.min(state.written) {
                return Ok(state.durable);
            }
            if let Some(why) = &state.poison {
                return Err(Arc::clone(why));
            }
            if !state.syncing {
                break;
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.syncing = true;
        let target = state.written;
        drop(state);
        Turn { commit: self, target, is_over: false }.end(sync)
    }

    /// Refuses everything from now on, and fails who waits.
    pub fn poison(&self, why: &str) -> Arc<str> {
        let why = self.lock().poison(why);
        self.changed.notify_all();
        why
    }

    /// Why the log is poisoned, if it is.
    pub fn is_poisoned(&self) -> Option<Arc<str>> {
        self.lock().poison.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The turn of the one who syncs for all.
struct Turn<'a> {
    commit: &'a Commit,
    /// What was written when it began.
    target: Mark,
    is_over: bool,
}

impl Turn<'_> {
    fn end(mut self, sync: impl FnOnce() -> io::Result<()>) -> Result<Mark, Arc<str>> {
        let outcome = sync();
        self.is_over = true;
        let mut state = self.commit.lock();
        state.syncing = false;
        if let Err(error) = outcome {
            state.poison(&format!("sync failed: {error}"));
        }
        // A write may have failed meanwhile, with nobody knowing what that did to the file.
        let outcome = match &state.poison {
            Some(why) => Err(Arc::clone(why)),
            None => {
                state.durable = self.target;
                Ok(self.target)
            }
        };
        drop(state);
        self.commit.changed.notify_all();
        outcome
    }
}

impl Drop for Turn<'_> {
    /// Nobody may wait for ever for one who panicked.
    fn drop(&mut self) {
        if !self.is_over {
            let mut state = self.commit.lock();
            state.syncing = false;
            state.poison("the sync panicked");
            drop(state);
            self.commit.changed.notify_all();
        }
    }
}

impl State {
    /// The first reason stays.
    fn poison(&mut self, why: &str) -> Arc<str> {
        Arc::clone(self.poison.get_or_insert_with(|| why.into()))
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_sync_that_panics_poisons_and_nobody_waits_for_it() {
        let commit = Commit::new(Mark::default());
        commit.written(Mark::sequence(1));
        let panics = || commit.sync(Mark::sequence(1), || panic!("the disk's driver"));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).unwrap_err();
        let why = commit.sync(Mark::sequence(1), || Ok(())).unwrap_err();
        assert!(why.contains("panicked"), "{why}");
    }
}
