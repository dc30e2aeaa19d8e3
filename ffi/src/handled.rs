//! What a handler makes of a message, and why.
#![expect(unsafe_code, reason = "exported names")]

use crate::last_error::Failure;
use crate::panic::entry;
use crate::status::slipring_status;
use slipring_core::Handled;
use std::cell::RefCell;
use std::ffi::c_char;

/// What a handler makes of a message. All but success counts as a failure; where messages are
/// delivered at most once, that is all it does.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_enums, reason = "C has no others")]
#[repr(i32)]
pub enum slipring_handled {
    /// It is done with.
    SLIPRING_HANDLED = 0,
    /// It is to be delivered again after the subscription's backoff, unless this was its last
    /// attempt; then it goes to the dead letters. Any number that is not listed here is the same.
    SLIPRING_RETRY = 1,
    /// It goes to the dead letters.
    SLIPRING_DEAD_LETTER = 2,
}

thread_local! {
    /// Why the handler that runs in this thread fails; `None` while none runs.
    static REASON: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls a handler, and makes of what it returned, and of the reason that it has given, what the
/// broker wants.
pub(crate) fn handled(handler: impl FnOnce() -> i32) -> (i32, Handled) {
    let before = REASON.replace(Some(String::new()));
    let returned = handler();
    let reason = || match REASON.take() {
        Some(reason) if !reason.is_empty() => reason,
        _ => format!("the handler returned {returned}"),
    };
    let handled = match returned {
        0 => Handled::Success,
        2 => Handled::DeadLetter { reason: reason() },
        _ => Handled::Retry { reason: reason() },
    };
    REASON.set(before);
    (returned, handled)
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
            REASON.with_borrow_mut(|reason| match reason {
                Some(reason) => {
                    text.clone_into(reason);
                    Ok(())
                }
                None => Err(Failure::invalid("no handler is running in this thread")),
            })
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
        assert_eq!(handled(|| 0), (0, Handled::Success));
        assert_eq!(handled(|| 1), (1, Handled::retry("the handler returned 1")));
    }
}
