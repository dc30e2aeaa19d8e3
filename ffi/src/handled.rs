//! What a handler makes of a message, and why.
#![expect(unsafe_code, reason = "exported names")]

use crate::last_error::Failure;
use crate::panic::entry;
use crate::status::slipring_status;
use slipring_core::Handled;
use std::cell::{Cell, RefCell};
use std::ffi::c_char;

/// What a handler makes of a message. All but success counts as a failure; where messages are
/// delivered at most once, that is all it does.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_enums, reason = "C has no others")]
#[repr(i32)]
pub enum slipring_handled {
    /// It is done with.
    SLIPRING_SUCCESS = 0,
    /// It is to be delivered again after the subscription's backoff, unless this was its last
    /// attempt; then it goes to the dead letters. Any number that is not listed here is the same.
    SLIPRING_RETRY = 1,
    /// It goes to the dead letters.
    SLIPRING_DEAD_LETTER = 2,
}

/// What this thread is doing. A handler that succeeds costs no more than to note that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It is in no handler.
    Other,
    Handling,
    /// It is in a handler that has given a reason.
    Failing,
}

thread_local! {
    static DOING: Cell<Doing> = const { Cell::new(Doing::Other) };
    /// The last reason that was given.
    static REASON: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Calls a handler, and makes of what it returned, and of the reason that it has given, what the
/// broker wants.
#[inline(always)]
pub(crate) fn handled(handler: impl FnOnce() -> i32) -> (i32, Handled) {
    let before = DOING.replace(Doing::Handling);
    let returned = handler();
    let has_reason = DOING.replace(before) == Doing::Failing;
    if returned == 0 { (0, Handled::Success) } else { (returned, failed(returned, has_reason)) }
}

#[cold]
#[inline(never)]
fn failed(returned: i32, has_reason: bool) -> Handled {
    let reason =
        if has_reason { REASON.take() } else { format!("the handler returned {returned}") };
    if returned == 2 { Handled::DeadLetter { reason } } else { Handled::Retry { reason } }
}

/// Says why the handler that is running in this thread is about to fail: what a dead letter of the
/// message, `failed` and the log are told. The text is copied; the last one counts. To be called
/// from inside a handler, before it returns. Errors: EINVAL, also outside of a handler, EUTF8. Does
/// not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_handler_reason(
    reason: *const c_char,
    reason_len: usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let text = c.text(reason, reason_len, "reason")?;
            if DOING.replace(Doing::Failing) == Doing::Other {
                DOING.set(Doing::Other);
                return Err(Failure::invalid("no handler is running in this thread"));
            }
            REASON.with_borrow_mut(|reason| text.clone_into(reason));
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn because(text: &str) -> slipring_status {
        // SAFETY: the text is as long as said.
        unsafe { slipring_handler_reason(text.as_ptr().cast(), text.len()) }
    }

    #[test]
    fn a_reason_counts_for_the_handler_that_has_given_it() {
        assert_eq!(because("nobody asks"), slipring_status::SLIPRING_EINVAL);
        let outer = handled(|| {
            assert_eq!(because("first"), slipring_status::SLIPRING_OK);
            assert_eq!(because("second"), slipring_status::SLIPRING_OK);
            assert_eq!(handled(|| 2), (2, Handled::dead_letter("the handler returned 2")));
            -5
        });
        assert_eq!(outer, (-5, Handled::retry("second")));
        let changed_its_mind = || {
            assert_eq!(because("third"), slipring_status::SLIPRING_OK);
            0
        };
        assert_eq!(handled(changed_its_mind), (0, Handled::Success));
        assert_eq!(handled(|| 1), (1, Handled::retry("the handler returned 1")));
    }
}
