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
    /// everything queued was delivered; or another consumer has taken its place, or it was deleted.
    SLIPRING_DISCONNECTED = 6,
    /// The lease on a message is over, and nothing was done: its time has passed, the message was
    /// settled, given back or delivered anew, it has expired, or its subscription has ended.
    SLIPRING_STALE = 7,
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
    /// A subscription of this name exists, and has a consumer, or other patterns, or another way of
    /// delivery.
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
    /// There is no lease on the message: it was delivered at most once, or went to a handler, whose
    /// result settles it.
    SLIPRING_ENOTLEASED = -21,
    /// It is no ack id, or one of another subscription.
    SLIPRING_EACKID = -22,
    /// The store did not do its part: the disk refused, or a write failed before. The last error
    /// says more. After a failed write the broker takes no more until it is opened anew.
    SLIPRING_ESTORE = -23,
    /// The directory belongs to another broker, of this process or another.
    SLIPRING_ELOCKED = -24,
    /// The directory is no broker's, or that of a later version, or a part of it is missing.
    SLIPRING_EINCOMPATIBLE = -25,
    /// The directory has other bytes than were written.
    SLIPRING_EDAMAGED = -26,
}

use slipring_status::*;

/// The number of a kind of error. Complete: a new kind does not compile without one.
fn status_of(kind: ErrorKind) -> slipring_status {
    match kind {
        ErrorKind::AtMostOnce => SLIPRING_EATMOSTONCE,
        ErrorKind::Closed => SLIPRING_CLOSED,
        ErrorKind::Damaged => SLIPRING_EDAMAGED,
        ErrorKind::Disconnected => SLIPRING_DISCONNECTED,
        ErrorKind::Empty => SLIPRING_EMPTY,
        ErrorKind::Forked => SLIPRING_EFORKED,
        ErrorKind::Full => SLIPRING_EFULL,
        ErrorKind::Incompatible => SLIPRING_EINCOMPATIBLE,
        ErrorKind::InsideFilter => SLIPRING_EFILTERING,
        ErrorKind::InvalidFilter => SLIPRING_EFILTER,
        ErrorKind::InvalidMessage => SLIPRING_EMESSAGE,
        ErrorKind::InvalidName | ErrorKind::InvalidSubscriptionName => SLIPRING_ENAME,
        ErrorKind::Lagged => SLIPRING_LAGGED,
        ErrorKind::Locked => SLIPRING_ELOCKED,
        ErrorKind::NameInUse => SLIPRING_EINUSE,
        ErrorKind::NoMemory => SLIPRING_ENOMEM,
        ErrorKind::NoThread => SLIPRING_ETHREAD,
        ErrorKind::NotLeased => SLIPRING_ENOTLEASED,
        ErrorKind::OutOfRange => SLIPRING_ERANGE,
        ErrorKind::Stale => SLIPRING_STALE,
        ErrorKind::Store => SLIPRING_ESTORE,
        ErrorKind::Timeout => SLIPRING_TIMEOUT,
        ErrorKind::TopicDeleted => SLIPRING_EDELETED,
        ErrorKind::TopicExists => SLIPRING_EEXIST,
        ErrorKind::UnknownAckId => SLIPRING_EACKID,
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
    const STATUSES: [(slipring_status, &std::ffi::CStr); 34] = [
        (SLIPRING_OK, c"ok"),
        (SLIPRING_EMPTY, c"there is none now"),
        (SLIPRING_LAGGED, c"messages were lost"),
        (SLIPRING_TIMEOUT, c"timed out"),
        (SLIPRING_CLOSED, c"the broker is closed"),
        (SLIPRING_WOULD_BLOCK, c"it would have to wait"),
        (SLIPRING_DISCONNECTED, c"disconnected: the queue stayed full, or another took over"),
        (SLIPRING_STALE, c"the lease on the message is over"),
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
        (SLIPRING_EINUSE, c"a subscription of this name exists, or has a consumer"),
        (SLIPRING_ERANGE, c"out of range"),
        (SLIPRING_ETHREAD, c"a thread could not be started"),
        (SLIPRING_ESYSTEM, c"the system refused"),
        (SLIPRING_EBUSY, c"another call on this handle is running"),
        (SLIPRING_ENOSUBSCRIPTION, c"no such subscription"),
        (SLIPRING_EPANIC, c"a bug in slipring: it panicked"),
        (SLIPRING_EATMOSTONCE, c"the subscription delivers at most once"),
        (SLIPRING_ENOTLEASED, c"there is no lease on the message"),
        (SLIPRING_EACKID, c"no ack id, or one of another subscription"),
        (SLIPRING_ESTORE, c"the store did not do its part"),
        (SLIPRING_ELOCKED, c"the directory belongs to another broker"),
        (SLIPRING_EINCOMPATIBLE, c"the directory cannot be opened"),
        (SLIPRING_EDAMAGED, c"the directory is damaged"),
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
        for status in -26..=7 {
            assert_ne!(words(status), c"unknown status", "{status}");
        }
        for status in [i32::MIN, -27, 8, i32::MAX] {
            assert_eq!(words(status), c"unknown status", "{status}");
        }
    }
}
