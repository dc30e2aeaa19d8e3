//! The one enum of outcomes, and how the broker's errors map to it.
#![expect(unsafe_code, reason = "exported names")]

use crate::last_error::Failure;
use slipring_core::internals::{ErrorKind, Kind};
use std::ffi::c_char;
use std::fmt::Display;

/// What a function returns that can fail: 0 for success, positive for an outcome that is no error,
/// negative for an error, which also sets the thread's last error. Numbers are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "C has no others")]
#[repr(i32)]
pub enum slipring_status {
    /// Done.
    SLIPRING_OK = 0,
    /// There is none now: no message queued, no such attribute, no receipt yet.
    SLIPRING_EMPTY = 1,
    /// Messages were lost at this place of the stream; `slipring_subscription_lost` has the number.
    /// The next call goes on behind them.
    SLIPRING_LAGGED = 2,
    /// The time given is over.
    SLIPRING_TIMEOUT = 3,
    /// The broker is closed; when receiving, everything queued was delivered.
    SLIPRING_CLOSED = 4,
    /// It would have to wait.
    SLIPRING_WOULD_BLOCK = 5,
    /// The subscription's queue stayed full for longer than it allows (`SLIPRING_DISCONNECT`), and
    /// everything queued was delivered.
    SLIPRING_DISCONNECTED = 6,
    /// An argument is NULL, not aligned, or a length that cannot be.
    SLIPRING_EINVAL = -1,
    /// A text is not UTF-8.
    SLIPRING_EUTF8 = -2,
    /// A topic name or pattern breaks the rules.
    SLIPRING_ENAME = -3,
    /// A filter expression cannot be read.
    SLIPRING_EFILTER = -4,
    /// A message breaks a limit.
    SLIPRING_EMESSAGE = -5,
    /// There is no such topic.
    SLIPRING_ENOTOPIC = -6,
    /// The topic was deleted.
    SLIPRING_EDELETED = -7,
    /// The topic exists.
    SLIPRING_EEXIST = -8,
    /// The memory budget is used up by messages that are still queued.
    SLIPRING_EFULL = -9,
    /// The system has no memory left.
    SLIPRING_ENOMEM = -10,
    /// The call came from inside a filter function.
    SLIPRING_EFILTERING = -11,
    /// The process has forked since the broker was opened, and this is the child.
    SLIPRING_EFORKED = -12,
    /// A subscription of this name exists.
    SLIPRING_EINUSE = -13,
    /// A setting or number is out of its range.
    SLIPRING_ERANGE = -14,
    /// A thread could not be started.
    SLIPRING_ETHREAD = -15,
    /// The system has no descriptor left.
    SLIPRING_ESYSTEM = -16,
    /// Another call on this handle is running: in another thread, or around this one.
    SLIPRING_EBUSY = -17,
    /// There is no such subscription.
    SLIPRING_ENOSUBSCRIPTION = -18,
    /// A bug in the library: it panicked, and the panic was caught.
    SLIPRING_EPANIC = -19,
    /// Only a subscription that delivers at least once can do that.
    SLIPRING_EATMOSTONCE = -20,
}

use slipring_status::*;

/// The number of a kind of error. Complete: a new kind does not compile without one.
fn status_of(kind: ErrorKind) -> slipring_status {
    match kind {
        ErrorKind::AtMostOnce => SLIPRING_EATMOSTONCE,
        ErrorKind::Closed => SLIPRING_CLOSED,
        ErrorKind::Disconnected => SLIPRING_DISCONNECTED,
        ErrorKind::Empty => SLIPRING_EMPTY,
        ErrorKind::Forked => SLIPRING_EFORKED,
        ErrorKind::Full => SLIPRING_EFULL,
        ErrorKind::InsideFilter => SLIPRING_EFILTERING,
        ErrorKind::InvalidFilter => SLIPRING_EFILTER,
        ErrorKind::InvalidMessage => SLIPRING_EMESSAGE,
        ErrorKind::InvalidName | ErrorKind::InvalidSubscriptionName => SLIPRING_ENAME,
        ErrorKind::Lagged => SLIPRING_LAGGED,
        ErrorKind::NameInUse => SLIPRING_EINUSE,
        ErrorKind::NoMemory => SLIPRING_ENOMEM,
        ErrorKind::NoThread => SLIPRING_ETHREAD,
        ErrorKind::OutOfRange => SLIPRING_ERANGE,
        ErrorKind::Timeout => SLIPRING_TIMEOUT,
        ErrorKind::TopicDeleted => SLIPRING_EDELETED,
        ErrorKind::TopicExists => SLIPRING_EEXIST,
        ErrorKind::UnknownSubscription => SLIPRING_ENOSUBSCRIPTION,
        ErrorKind::UnknownTopic => SLIPRING_ENOTOPIC,
        ErrorKind::WouldBlock => SLIPRING_WOULD_BLOCK,
    }
}

impl<E: Kind + Display> From<E> for Failure {
    fn from(error: E) -> Self {
        let status = status_of(error.kind());
        if status as i32 >= 0 {
            return Self::outcome(status);
        }
        Self::error_at(status, error.position(), error)
    }
}

fn words(status: i32) -> &'static std::ffi::CStr {
    const STATUSES: [(slipring_status, &std::ffi::CStr); 27] = [
        (SLIPRING_OK, c"ok"),
        (SLIPRING_EMPTY, c"there is none now"),
        (SLIPRING_LAGGED, c"messages were lost"),
        (SLIPRING_TIMEOUT, c"timed out"),
        (SLIPRING_CLOSED, c"the broker is closed"),
        (SLIPRING_WOULD_BLOCK, c"it would have to wait"),
        (SLIPRING_DISCONNECTED, c"disconnected: the queue stayed full for too long"),
        (SLIPRING_EINVAL, c"invalid argument"),
        (SLIPRING_EUTF8, c"not UTF-8"),
        (SLIPRING_ENAME, c"invalid name"),
        (SLIPRING_EFILTER, c"invalid filter expression"),
        (SLIPRING_EMESSAGE, c"the message breaks a limit"),
        (SLIPRING_ENOTOPIC, c"no such topic"),
        (SLIPRING_EDELETED, c"the topic was deleted"),
        (SLIPRING_EEXIST, c"the topic exists"),
        (SLIPRING_EFULL, c"the memory budget is used up"),
        (SLIPRING_ENOMEM, c"the system has no memory left"),
        (SLIPRING_EFILTERING, c"a filter function may not call the broker"),
        (SLIPRING_EFORKED, c"the broker was opened before this process was forked"),
        (SLIPRING_EINUSE, c"a subscription of this name exists"),
        (SLIPRING_ERANGE, c"out of range"),
        (SLIPRING_ETHREAD, c"a thread could not be started"),
        (SLIPRING_ESYSTEM, c"the system refused"),
        (SLIPRING_EBUSY, c"another call on this handle is running"),
        (SLIPRING_ENOSUBSCRIPTION, c"no such subscription"),
        (SLIPRING_EPANIC, c"a bug in slipring: it panicked"),
        (SLIPRING_EATMOSTONCE, c"the subscription delivers at most once"),
    ];
    let known = STATUSES.iter().find(|(known, _)| *known as i32 == status);
    known.map_or(c"unknown status", |(_, words)| words)
}

/// A status in words: static text that ends in NUL, also for a number that is no status. Never
/// fails; does not wait.
#[unsafe(no_mangle)]
pub extern "C" fn slipring_status_str(status: i32) -> *const c_char {
    words(status).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_words_and_no_other() {
        for status in -20..=6 {
            assert_ne!(words(status), c"unknown status", "{status}");
        }
        for status in [i32::MIN, -21, 7, i32::MAX] {
            assert_eq!(words(status), c"unknown status", "{status}");
        }
    }
}
