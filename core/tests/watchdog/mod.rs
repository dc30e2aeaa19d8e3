//! Bounds every wait of a test: a test that hangs aborts the run and says which it was.

use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Guards the test that holds it.
pub(crate) struct Watchdog {
    _alive: Sender<()>,
    deadline: Instant,
}

/// Aborts the process if the calling test holds the result for longer than `seconds`.
#[must_use = "it guards as long as it is held"]
pub(crate) fn watch(seconds: u64) -> Watchdog {
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let (alive, gone) = channel::<()>();
    let limit = Duration::from_secs(seconds);
    thread::spawn(move || {
        if gone.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            // Not by `eprintln`, whose output the harness keeps for the end of the test.
            let text = format!("watchdog: {name} hangs: not done within {seconds} s\n");
            let _ = std::io::stderr().write_all(text.as_bytes());
            std::process::abort();
        }
    });
    Watchdog { _alive: alive, deadline: Instant::now() + limit }
}

impl Watchdog {
    /// Waits until `condition` holds; panics with `what` shortly before the watchdog aborts.
    pub(crate) fn until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let give_up = self.deadline - Duration::from_millis(500);
        while !condition() {
            assert!(Instant::now() < give_up, "waited in vain until {what}");
            thread::yield_now();
        }
    }
}
