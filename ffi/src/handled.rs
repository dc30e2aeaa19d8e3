//! What a handler makes of messages, and why.
#![expect(unsafe_code, reason = "exported names")]

use crate::last_error::Failure;
use crate::panic::entry;
use crate::status::slipring_status;
use slipring_core::Handled;
use slipring_core::internals::Block;
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

/// For a batch handler, of one of its messages: what the handler returns for all.
pub(crate) const SLIPRING_AS_RETURNED: i32 = i32::MIN;

/// What this thread is doing. A handler that succeeds costs no more than to note that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Doing {
    /// With how many messages it is in a handler: 0 if it is in none.
    messages: u32,
    /// Whether that has given a reason.
    has_reason: bool,
}

/// Why a handler is about to fail.
#[derive(Debug, Default)]
struct Reasons {
    /// For the messages that have none of their own.
    of_all: Option<String>,
    of_each: Vec<(usize, String)>,
}

thread_local! {
    static DOING: Cell<Doing> = const { Cell::new(Doing { messages: 0, has_reason: false }) };
    /// Of the handlers that are running and have given some; the last one is the innermost.
    static REASONS: RefCell<Vec<Reasons>> = const { RefCell::new(Vec::new()) };
}

/// Calls a handler of so many messages; what it returned, and the reasons that it has given.
#[inline(always)]
fn during(messages: u32, handler: impl FnOnce() -> i32) -> (i32, Option<Reasons>) {
    let before = DOING.replace(Doing { messages, has_reason: false });
    let returned = handler();
    let has_reason = DOING.replace(before).has_reason;
    (returned, if has_reason { REASONS.with_borrow_mut(Vec::pop) } else { None })
}

/// Calls a handler, and makes of what it returned, and of the reason that it has given, what the
/// broker wants.
#[inline(always)]
pub(crate) fn handled(handler: impl FnOnce() -> i32) -> (i32, Handled) {
    let (returned, reasons) = during(1, handler);
    if returned == 0 {
        return (0, Handled::Success);
    }
    (returned, failed(returned, 0, &reasons.unwrap_or_default()))
}

#[cold]
#[inline(never)]
fn failed(returned: i32, at: usize, reasons: &Reasons) -> Handled {
    // The last one that was given counts.
    let own = reasons.of_each.iter().rfind(|&&(index, _)| index == at);
    let reason = own.map(|(_, reason)| reason).or(reasons.of_all.as_ref()).cloned();
    let reason = reason.unwrap_or_else(|| format!("the handler returned {returned}"));
    if returned == 2 { Handled::DeadLetter { reason } } else { Handled::Retry { reason } }
}

/// Calls a handler of several messages, whose answers it writes; those that it has failed with, and what
/// it has answered to each.
#[inline(always)]
pub(crate) fn handled_all(
    messages: usize,
    handler: impl FnOnce(&mut [i32]) -> i32,
) -> (Vec<i32>, Vec<(usize, Handled)>) {
    let mut answers = [SLIPRING_AS_RETURNED; Block::MOST];
    let answers = &mut answers[..messages];
    let (returned, reasons) = during(messages as u32, || handler(answers));
    // All of them are looked at, without a branch for each.
    let is_other = |other, &answer: &i32| other | (answer != SLIPRING_AS_RETURNED && answer != 0);
    if returned == 0 && !answers.iter().fold(false, is_other) {
        return (Vec::new(), Vec::new());
    }
    failed_with(answers, returned, &reasons.unwrap_or_default())
}

#[cold]
#[inline(never)]
fn failed_with(
    answers: &[i32],
    returned: i32,
    reasons: &Reasons,
) -> (Vec<i32>, Vec<(usize, Handled)>) {
    let answers = answers.iter().enumerate().map(|(at, &answer)| {
        if answer == SLIPRING_AS_RETURNED { (at, returned) } else { (at, answer) }
    });
    let failures = answers.filter(|&(_, answer)| answer != 0);
    failures.map(|(at, answer)| (answer, (at, failed(answer, at, reasons)))).unzip()
}

/// Notes why the handler of this thread is about to fail.
fn because(note: impl FnOnce(&mut Reasons, u32) -> Result<(), Failure>) -> Result<(), Failure> {
    let Doing { messages, has_reason } = DOING.get();
    if messages == 0 {
        return Err(Failure::invalid("no handler is running in this thread"));
    }
    REASONS.with_borrow_mut(|all| {
        if !has_reason {
            all.push(Reasons::default());
            DOING.set(Doing { messages, has_reason: true });
        }
        let Some(reasons) = all.last_mut() else { return Ok(()) };
        note(reasons, messages)
    })
}

/// Says why the handler that is running in this thread is about to fail: what a dead letter of the
/// message, `failed` and the log are told; for a batch handler, of all messages that it fails with and
/// that have no reason of their own. The text is copied; the last one counts. To be called from inside
/// a handler, before it returns. Errors: EINVAL, also outside of a handler, EUTF8. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_handler_reason(
    reason: *const c_char,
    reason_len: usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let text = c.text(reason, reason_len, "reason")?;
            because(|reasons, _| {
                reasons.of_all = Some(text.to_owned());
                Ok(())
            })
        })
    }
}

/// The same of one message of those that a batch handler was called with: the one at `index`. Errors:
/// those, and ERANGE if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_handler_reason_at(
    index: usize,
    reason: *const c_char,
    reason_len: usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let text = c.text(reason, reason_len, "reason")?;
            because(|reasons, messages| {
                if index >= messages as usize {
                    return Err(Failure::error(
                        slipring_status::SLIPRING_ERANGE,
                        format_args!("{index} is not below {messages}, the number of messages"),
                    ));
                }
                reasons.of_each.push((index, text.to_owned()));
                Ok(())
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

    fn because_at(index: usize, text: &str) -> slipring_status {
        // SAFETY: the text is as long as said.
        unsafe { slipring_handler_reason_at(index, text.as_ptr().cast(), text.len()) }
    }

    #[test]
    fn a_reason_counts_for_the_handler_that_has_given_it() {
        assert_eq!(because("nobody asks"), slipring_status::SLIPRING_EINVAL);
        let outer = handled(|| {
            assert_eq!(because("first"), slipring_status::SLIPRING_OK);
            assert_eq!(because("second"), slipring_status::SLIPRING_OK);
            assert_eq!(handled(|| 2), (2, Handled::dead_letter("the handler returned 2")));
            let inner = handled(|| {
                assert_eq!(because("inner"), slipring_status::SLIPRING_OK);
                1
            });
            assert_eq!(inner, (1, Handled::retry("inner")));
            -5
        });
        assert_eq!(outer, (-5, Handled::retry("second")));
        let changed_its_mind = || {
            assert_eq!(because("third"), slipring_status::SLIPRING_OK);
            0
        };
        assert_eq!(handled(changed_its_mind), (0, Handled::Success));
        assert_eq!(handled(|| 1), (1, Handled::retry("the handler returned 1")));
        assert_eq!(because("nobody asks"), slipring_status::SLIPRING_EINVAL);
    }

    #[test]
    fn a_batch_handler_answers_for_each_or_for_all() {
        assert_eq!(handled_all(3, |_| 0), (vec![], vec![]));
        let explicit = |answers: &mut [i32]| {
            assert_eq!(answers, [SLIPRING_AS_RETURNED; 3]);
            answers.fill(0);
            7
        };
        assert_eq!(handled_all(3, explicit), (vec![], vec![]));
        let mixed = |answers: &mut [i32]| {
            (answers[0], answers[2]) = (0, 2);
            assert_eq!(because_at(2, "early"), slipring_status::SLIPRING_OK);
            assert_eq!(because("all"), slipring_status::SLIPRING_OK);
            assert_eq!(because_at(2, "own"), slipring_status::SLIPRING_OK);
            assert_eq!(because_at(4, "none"), slipring_status::SLIPRING_ERANGE);
            -1
        };
        let failures = vec![
            (1, Handled::retry("all")),
            (2, Handled::dead_letter("own")),
            (3, Handled::retry("all")),
        ];
        assert_eq!(handled_all(4, mixed), (vec![-1, 2, -1], failures));
        let all_twice = |answers: &mut [i32]| {
            for at in 0..answers.len() {
                assert_eq!(because_at(at, "first"), slipring_status::SLIPRING_OK);
                assert_eq!(because_at(at, &at.to_string()), slipring_status::SLIPRING_OK);
            }
            1
        };
        let numbered = (0..5).map(|at| (at, Handled::retry(at))).collect();
        assert_eq!(handled_all(5, all_twice), (vec![1; 5], numbered));
        let one = |answers: &mut [i32]| {
            answers[1] = 9;
            0
        };
        let failure = (1, Handled::retry("the handler returned 9"));
        assert_eq!(handled_all(2, one), (vec![9], vec![failure]));
        assert_eq!(because_at(0, "nobody asks"), slipring_status::SLIPRING_EINVAL);
    }
}
