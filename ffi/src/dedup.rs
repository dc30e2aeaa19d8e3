//! Knowing a message again.
#![expect(unsafe_code, reason = "exported names")]

use crate::handle::{Exclusive, Handle};
use crate::message::slipring_message;
use crate::panic::entry;
use crate::status::slipring_status;
use slipring_core::Deduplicator;

/// Knows the last messages again by their ids: for consumers that get messages at least once and want
/// to act on each but once. 25 bytes or so a message; every call is O(1). One call at a time may use
/// it, and another gets EBUSY. Free it with `slipring_deduplicator_free`.
#[derive(Debug)]
pub struct slipring_deduplicator {
    known: Exclusive<Deduplicator>,
}

impl Handle for slipring_deduplicator {
    type Value = Deduplicator;

    fn exclusive(&self) -> &Exclusive<Deduplicator> {
        &self.known
    }
}

/// Knows no message yet, and from now on the last `capacity` ones, at least one. Errors: EINVAL. Does
/// not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_deduplicator_new(
    capacity: usize,
    deduplicator: *mut *mut slipring_deduplicator,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let known = Exclusive::new(Deduplicator::new(capacity));
            c.out(deduplicator, "deduplicator")?.give(slipring_deduplicator { known });
            Ok(())
        })
    }
}

/// Sets `*is_new` to 1 if the message is none of those it knows, and to 0 if it is; it knows it from
/// now on. To be asked before acting; a message that could not be acted on is to be forgotten, so that
/// it is new when it comes again. Errors: EINVAL, EBUSY. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_deduplicator_is_new(
    deduplicator: *mut slipring_deduplicator,
    message: *const slipring_message,
    is_new: *mut i32,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let (message, out) = (c.message(message)?, c.out(is_new, "is_new")?);
            let is_new = c.exclusive(deduplicator, "deduplicator")?.is_new(&message);
            out.write(i32::from(is_new));
            Ok(())
        })
    }
}

/// Forgets the message, so that it is new again. Errors: EINVAL, EBUSY. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_deduplicator_forget(
    deduplicator: *mut slipring_deduplicator,
    message: *const slipring_message,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let message = c.message(message)?;
            c.exclusive(deduplicator, "deduplicator")?.forget(&message);
            Ok(())
        })
    }
}

/// How many messages it knows. Errors: EINVAL, EBUSY. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_deduplicator_len(
    deduplicator: *mut slipring_deduplicator,
    len: *mut usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let out = c.out(len, "len")?;
            out.write(c.exclusive(deduplicator, "deduplicator")?.len());
            Ok(())
        })
    }
}

/// Frees it and sets the pointer to NULL. NULL, or a pointer to NULL, is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_deduplicator_free(deduplicator: *mut *mut slipring_deduplicator) {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            c.free_exclusive(deduplicator);
            Ok(())
        })
    };
}
