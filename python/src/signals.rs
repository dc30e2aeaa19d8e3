//! Waiting so that a signal, such as that of Ctrl-C, ends it.
//!
//! A signal interrupts system calls of the main thread, and its handler in Python runs when that
//! thread asks for it. So waits of the main thread are system calls; as a signal that comes just
//! before one interrupts nothing, they also end by themselves now and then.
#![expect(unsafe_code, reason = "system calls")]

use pyo3::prelude::*;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the main thread waits before it asks for signals again.
const ASK_EVERY: Duration = Duration::from_millis(500);

fn is_main_thread() -> bool {
    // SAFETY: neither call takes anything, nor can fail.
    unsafe { libc::getpid() == libc::gettid() }
}

/// Waits until `event` is readable; false if it is not by `deadline`.
pub(crate) fn wait_readable(
    py: Python<'_>,
    event: BorrowedFd<'_>,
    deadline: Option<Instant>,
) -> PyResult<bool> {
    let most = is_main_thread().then_some(ASK_EVERY);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let readable = py.detach(|| poll(event, [left, most].into_iter().flatten().min()));
        py.check_signals()?;
        if readable {
            return Ok(true);
        }
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(false);
        }
    }
}

/// Waits for at most `most`, or until a signal comes; whether `event` is readable.
fn poll(event: BorrowedFd<'_>, most: Option<Duration>) -> bool {
    let mut polled = libc::pollfd { fd: event.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // Rounded up, so that the deadline has passed when it returns.
    let ms = most.map_or(-1, |most| most.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32);
    // SAFETY: one descriptor, which is open as long as it is borrowed.
    unsafe { libc::poll(&raw mut polled, 1, ms) > 0 }
}

/// What asks for signals while the core waits.
#[derive(Debug, Default)]
pub(crate) struct Signals(Mutex<Option<PyErr>>);

impl Signals {
    /// Whether to go on waiting.
    pub(crate) fn go_on(&self) -> bool {
        if !is_main_thread() {
            return true;
        }
        match Python::attach(|py| py.check_signals()) {
            Ok(()) => true,
            Err(error) => {
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                false
            }
        }
    }

    /// Raises what a signal's handler has raised.
    pub(crate) fn check(self) -> PyResult<()> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// Does `work`, which can wait for long, detached. On the main thread a signal ends the wait; the
/// work itself then goes on by itself.
pub(crate) fn interruptible<R: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> R + Send + 'static,
) -> PyResult<R> {
    if !is_main_thread() {
        return Ok(py.detach(work));
    }
    let (mut done, ended) = std::io::pipe()?;
    let worker =
        std::thread::Builder::new().name("slipring-close".to_owned()).spawn(move || {
            // Closed when the work is done, or has panicked.
            let _ended = ended;
            work()
        })?;
    wait_readable(py, done.as_fd(), None)?;
    // A pipe whose other end is closed is readable for good.
    let _ = std::io::Read::read(&mut done, &mut [0]);
    py.detach(|| worker.join()).or_else(|panic| std::panic::resume_unwind(panic))
}
