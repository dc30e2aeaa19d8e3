//! Alarms: what becomes due by itself, with nobody there to see it, wakes its consumer.
//!
//! A consumer that waits on a thread of its own looks at the clock. One that is a task of a
//! runtime, an event loop or a handler sets an alarm for the time at which a message will be due
//! again. One thread for a broker, started with the first alarm.

use crate::agenda::Agenda;
use crate::clock::Clock;
use crate::inbox::Inbox;
use crate::sync::{AtomicBool, Ordering};
use crate::threads;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[derive(Debug)]
struct Shared {
    clock: Clock,
    alarms: Mutex<Agenda<Weak<Inbox>>>,
    stopping: AtomicBool,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Alarms {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Alarms {
    pub(crate) fn new(clock: Clock) -> Self {
        let (alarms, stopping) = (Mutex::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { clock, alarms, stopping });
        Self { shared, thread: Mutex::default() }
    }

    /// Wakes the consumer of `inbox` at `at`.
    pub(crate) fn set(&self, at: Duration, inbox: &Arc<Inbox>) {
        self.shared.lock().add(at, Arc::downgrade(inbox));
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = &*thread {
            thread.thread().unpark();
            return;
        }
        let shared = Arc::clone(&self.shared);
        match threads::spawn("slipring-alarms".into(), move || shared.run()) {
            Ok(started) => *thread = Some(started),
            // The next alarm tries again.
            Err(error) => tracing::error!(%error, "no thread for alarms: redelivery is late"),
        }
    }

    /// In the child of a fork the thread does not exist.
    pub(crate) fn forget_thread(&mut self) {
        std::mem::forget(self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Drop for Alarms {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            thread.thread().unpark();
            // What it has woken may have dropped the last handle.
            if thread.thread().id() != thread::current().id() {
                drop(thread.join());
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Agenda<Weak<Inbox>>> {
        // No foreign code runs under this lock.
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            let (due, next) = {
                let mut alarms = self.lock();
                (alarms.take_due(self.clock.now()), alarms.next())
            };
            match due {
                Some(inbox) => {
                    if let Some(inbox) = inbox.upgrade() {
                        inbox.arrivals.wake();
                    }
                }
                None => self.clock.park_until(next),
            }
        }
    }
}
