//! The keeper: the thread of a broker with a directory that writes down what subscriptions have
//! settled, and lets go what is older than its topic wants it.
//!
//! It does not keep the broker: what it calls at every turn says whether it is still there.

use crate::contain::contain;
use crate::fork::Generation;
use crate::sync::Arc;
use crate::threads;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How much of what was settled a killed process may forget, and deliver again. Real time, not the
/// broker's clock: it does not matter to what is promised.
const TURN: Duration = Duration::from_millis(50);

/// Turns after which what was written is synced, and subscriptions that nothing has come for are
/// moved on as well.
const SYNC_TURNS: u32 = 20;

#[derive(Debug, Default)]
struct Stop {
    asked: Mutex<bool>,
    told: Condvar,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Keeper {
    stop: Arc<Stop>,
    thread: Mutex<Option<JoinHandle<()>>>,
    generation: Generation,
}

impl Keeper {
    /// Starts it: it calls `turn` again and again, now and then with true for what is to be durable,
    /// until that returns false.
    ///
    /// # Errors
    /// What the system says when it has no thread left.
    pub(crate) fn start(turn: impl FnMut(bool) -> bool + Send + 'static) -> std::io::Result<Self> {
        let stop = Arc::new(Stop::default());
        let asked = Arc::clone(&stop);
        let thread = threads::spawn("slipring-keeper".into(), move || asked.work(turn))?;
        let generation = Generation::current();
        Ok(Self { stop, thread: Mutex::new(Some(thread)), generation })
    }

    /// Ends it, and waits for that unless it is the caller itself.
    pub(crate) fn stop(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        if self.generation.is_over() {
            // It does not exist in the child of a fork.
            return std::mem::forget(thread);
        }
        *self.stop.asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.told.notify_all();
        if thread.thread().id() != thread::current().id() {
            // A panic has been told by the thread's own hook.
            let _ = thread.join();
        }
    }
}

impl Stop {
    fn work(&self, mut turn: impl FnMut(bool) -> bool) {
        let mut turns = 0;
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        while !*asked {
            let waited = self.told.wait_timeout(asked, TURN);
            asked = waited.unwrap_or_else(PoisonError::into_inner).0;
            if *asked {
                return;
            }
            drop(asked);
            turns = (turns + 1) % SYNC_TURNS;
            let mut goes_on = true;
            // What is settled is noted also where letting go fails so: the store may be the user's.
            if !contain(|| goes_on = turn(turns == 0)) {
                tracing::error!("a turn of the keeper panicked");
            }
            if !goes_on {
                return;
            }
            asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
    }
}
