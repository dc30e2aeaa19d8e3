//! Settling messages where they lie, one or many at a time.
#![expect(unsafe_code, reason = "exported names")]

use crate::handle::Caller;
use crate::last_error::Failure;
use crate::message::slipring_message;
use crate::options::time;
use crate::panic::entry;
use crate::status::slipring_status;
use slipring_core::Message;
use std::ffi::c_char;

impl<'c> Caller<'c> {
    /// Settles each of `items` with `settle`, and writes what became of it to `outcomes`. What has
    /// failed counts for more than a lease that is over, and the last failure for all.
    pub(crate) fn settle_each<T>(
        self,
        items: &'c [T],
        outcomes: *mut slipring_status,
        mut settle: impl FnMut(&'c T) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let outcomes = self.optional_out_array(outcomes, items.len(), "outcomes")?;
        let mut all = Ok(());
        outcomes.fill(items.iter().map(|item| {
            let settled = settle(item);
            let outcome = settled.map_or_else(Failure::status, |()| slipring_status::SLIPRING_OK);
            if outcome != slipring_status::SLIPRING_OK
                && (all.is_ok() || outcome != slipring_status::SLIPRING_STALE)
            {
                all = settled;
            }
            outcome
        }));
        all
    }

    /// Why something is given up.
    pub(crate) fn reason(self, reason: *const c_char, len: usize) -> Result<&'c str, Failure> {
        Ok(self.optional_text(reason, len, "reason")?.unwrap_or_default())
    }
}

/// What an acknowledgement says.
pub(crate) fn acked(had_effect: bool) -> Result<(), Failure> {
    if had_effect { Ok(()) } else { Err(Failure::outcome(slipring_status::SLIPRING_STALE)) }
}

/// # Safety
/// As for [`entry`].
unsafe fn settle(
    messages: *const slipring_message,
    messages_len: usize,
    outcomes: *mut slipring_status,
    settle: impl FnMut(Message<'_>) -> Result<(), Failure>,
) -> slipring_status {
    let mut settle = settle;
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let messages = c.array(messages, messages_len, "messages")?;
            c.settle_each(messages, outcomes, |view| settle(c.message(view)?))
        })
    }
}

/// Acknowledges an array of messages, or one, in one call: their subscription does not get them
/// again. For messages that were received, and those that were kept, from any thread; what a handler
/// has got is settled by what that returns.
///
/// All of them are tried. `outcomes` may be NULL, or has room for as many, and gets what became of
/// each, whatever is returned for all; only an array that cannot be is refused before that. OK if all
/// were settled. Otherwise the last failure, or STALE if leases were over and nothing worse: that is
/// harmless. CLOSED in a directory whose broker has closed: nobody could note it any more. Errors:
/// EINVAL, ENOTLEASED, EFILTERING, EFORKED. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_ack(
    messages: *const slipring_message,
    messages_len: usize,
    outcomes: *mut slipring_status,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { settle(messages, messages_len, outcomes, |message| acked(message.ack()?)) }
}

/// Gives messages back that have failed: they are delivered again after `delay_ns`, at most 24
/// hours, or after the subscription's backoff if it is SLIPRING_BACKOFF; or go to the dead letters,
/// if this was their last attempt. Otherwise as `slipring_ack`. Errors: those, ERANGE, and those of
/// `slipring_dead_letter`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_nack(
    messages: *const slipring_message,
    messages_len: usize,
    delay_ns: u64,
    outcomes: *mut slipring_status,
) -> slipring_status {
    let delay = time(delay_ns);
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { settle(messages, messages_len, outcomes, |message| Ok(message.nack(delay)?)) }
}

/// Lets the leases on messages end `by_ns` from now, 10 ms to 600 s, instead of when they would
/// have. Otherwise as `slipring_ack`. Errors: those, and ERANGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_extend(
    messages: *const slipring_message,
    messages_len: usize,
    by_ns: u64,
    outcomes: *mut slipring_status,
) -> slipring_status {
    let by = std::time::Duration::from_nanos(by_ns);
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        settle(messages, messages_len, outcomes, |message| Ok(message.modify_ack_deadline(by)?))
    }
}

/// Gives up on messages: they go to the dead letters, with a reason, of which the first 1024 bytes
/// are kept, and are settled. `reason` may be NULL. Otherwise as `slipring_ack`. Errors: those,
/// EUTF8; CLOSED, EFULL, ENOMEM and EDELETED if the dead letter could not be stored: then the message
/// is not settled, and delivered again. Waits for a subscription to dead letters that blocks, at
/// most 100 ms each: TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_dead_letter(
    messages: *const slipring_message,
    messages_len: usize,
    reason: *const c_char,
    reason_len: usize,
    outcomes: *mut slipring_status,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let reason = c.reason(reason, reason_len)?;
            let messages = c.array(messages, messages_len, "messages")?;
            c.settle_each(messages, outcomes, |view| Ok(c.message(view)?.dead_letter(reason)?))
        })
    }
}
