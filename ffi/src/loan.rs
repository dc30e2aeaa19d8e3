//! Loans: payloads that are written in place.
#![expect(unsafe_code, reason = "exported names")]

use crate::last_error::Failure;
use crate::log::Log;
use crate::message::slipring_new_message;
use crate::options::time;
use crate::panic::{entry, free};
use crate::status::slipring_status;
use crate::topic::{slipring_receipt, slipring_topic};
use slipring_core::{CommitError, Loan, NewMessage, Receipt};

/// Space for a payload in the memory of the broker. It may move between threads; one uses it at a
/// time. Ends with `slipring_loan_commit` or `slipring_loan_abort`.
#[derive(Debug)]
pub struct slipring_loan {
    loan: Loan,
    log: Log,
}

/// Space for a payload of `payload_len` bytes, to be written to `*payload` and then committed. What
/// it holds at first is unspecified. `head` may be NULL, or has the key, the id and the attributes;
/// its payload is ignored.
///
/// The message gets its place in the order when it is committed; until then the loan delays nobody.
/// `*payload` is valid until the loan is committed or aborted. Errors: CLOSED, EINVAL, EUTF8,
/// EMESSAGE, EFULL (loans and kept messages take too much), ENOMEM, EFILTERING, EFORKED. Does not
/// wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_topic_loan(
    topic: *const slipring_topic,
    head: *const slipring_new_message,
    payload_len: usize,
    loan: *mut *mut slipring_loan,
    payload: *mut *mut u8,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let topic = c.get(topic, "topic")?;
            let head = c.optional(head, "head")?;
            let (out, payload) = (c.out(loan, "loan")?, c.out(payload, "payload")?);
            let mut room = Vec::new();
            let head = match head {
                Some(head) => {
                    let head = slipring_new_message { payload_len: 0, ..*head };
                    c.new_message(&head, &mut room)?
                }
                None => NewMessage::default(),
            };
            let mut loan = topic.topic.loan_for(&head, payload_len)?;
            payload.write(loan.as_mut_ptr());
            out.give(slipring_loan { loan, log: topic.log.clone() });
            Ok(())
        })
    }
}

/// Publishes the message, which is read where it was written, frees the loan and sets the pointer
/// to NULL. `receipt` may be NULL. Waits as `slipring_topic_publish` does.
///
/// Errors as `slipring_topic_publish`: where nothing was published the loan then stays as it was, to
/// be committed again or aborted. Otherwise it is freed, as after a success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_loan_commit(
    loan: *mut *mut slipring_loan,
    receipt: *mut slipring_receipt,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { commit_with(loan, receipt, Loan::commit) }
}

/// The same, waiting for at most `timeout_ns` for subscriptions that block: TIMEOUT if there still was
/// no room, and the loan stays as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_loan_commit_timeout(
    loan: *mut *mut slipring_loan,
    timeout_ns: u64,
    receipt: *mut slipring_receipt,
) -> slipring_status {
    let commit = |loan: Loan| loan.commit_while(time(timeout_ns), &|| true);
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { commit_with(loan, receipt, commit) }
}

/// # Safety
/// As for [`entry`].
unsafe fn commit_with(
    loan: *mut *mut slipring_loan,
    receipt: *mut slipring_receipt,
    commit: impl FnOnce(Loan) -> Result<Receipt, CommitError>,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let receipt = c.optional_out(receipt, "receipt")?;
            let back = c.out(loan, "loan")?;
            let mut handle = c.take(loan).ok_or_else(|| Failure::invalid("loan is NULL"))?;
            let loan = handle.loan;
            match handle.log.during(|| commit(loan)) {
                Ok(published) => receipt.write(published.into()),
                Err(CommitError { reason, loan }) => {
                    if let Some(loan) = loan {
                        handle.loan = loan;
                        back.give_box(handle);
                    }
                    return Err(reason.into());
                }
            }
            Ok(())
        })
    }
}

/// Gives the space back, publishes nothing and sets the pointer to NULL. NULL, or a pointer to
/// NULL, is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_loan_abort(loan: *mut *mut slipring_loan) {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { free(loan) }
}
