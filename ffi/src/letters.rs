//! Dead letters: listed, looked at, sent back, thrown away.
#![expect(unsafe_code, reason = "exported names, and views that lie beside what they are views of")]

use crate::broker::{slipring_broker, with_name};
use crate::handle::Caller;
use crate::last_error::Failure;
use crate::message::{extend, keep, slipring_kept, slipring_message, view};
use crate::panic::{entry, free};
use crate::status::slipring_status;
use slipring_core::{ConfigError, DeadLetters, Filter, Message, OwnedMessage};
use std::ffi::c_char;

/// Dead letters that were listed together: messages that are kept. They outlive the broker. Usable
/// from all threads at once. Free them with `slipring_letters_free`.
#[derive(Debug)]
pub struct slipring_letters {
    /// Views of `_messages`.
    views: Box<[slipring_message]>,
    /// Borrow from `_kept`.
    _messages: Box<[Message<'static>]>,
    _kept: Box<[OwnedMessage]>,
}

// SAFETY: what the views point to is in the handle, and is only read.
unsafe impl Send for slipring_letters {}
// SAFETY: the same.
unsafe impl Sync for slipring_letters {}

impl From<Vec<OwnedMessage>> for slipring_letters {
    fn from(kept: Vec<OwnedMessage>) -> Self {
        let kept = kept.into_boxed_slice();
        // SAFETY: they are used as long as the handle lives, whose box has what they borrow from.
        let messages: Box<[_]> =
            kept.iter().map(|letter| unsafe { extend(letter.view()) }).collect();
        Self { views: messages.iter().map(view).collect(), _messages: messages, _kept: kept }
    }
}

impl Caller<'_> {
    fn filter(self, filter: *const c_char, len: usize) -> Result<Option<Filter>, Failure> {
        let expression = self.optional_text(filter, len, "filter")?;
        Ok(expression.map(Filter::parse).transpose()?)
    }
}

/// The dead letters in `topic`, if the broker can be called at all, which they do not tell.
fn letters_in(broker: &slipring_broker, topic: &str) -> Result<DeadLetters, Failure> {
    match broker.broker.describe_topic(topic) {
        Err(ConfigError::Unavailable(error)) => Err(error.into()),
        _ => Ok(broker.broker.dead_letters(topic)),
    }
}

/// The dead letters in `topic`, which is `$dlq/` and a subscription's name where that did not ask
/// for another: the first `most` that are retained and were neither sent back nor thrown away, in
/// order by partition and offset. `filter` may be NULL; otherwise those whose attributes match it.
///
/// A dead letter is the message as it was, with attributes that say where it is from and why: the
/// SLIPRING_DEAD_LETTER_ ones. Listing reads through the logs of the topic's shards. Errors: EINVAL,
/// EUTF8, EFILTER, EFILTERING, EFORKED. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_dead_letters(
    broker: *const slipring_broker,
    topic: *const c_char,
    topic_len: usize,
    filter: *const c_char,
    filter_len: usize,
    most: usize,
    letters: *mut *mut slipring_letters,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (topic, topic_len), |c, broker, topic| {
            let filter = c.filter(filter, filter_len)?;
            let out = c.out(letters, "letters")?;
            let topic = letters_in(broker, topic)?;
            let listed = match filter {
                Some(filter) => topic.list_by(&filter, most),
                None => topic.list(most),
            };
            out.give(slipring_letters::from(listed));
            Ok(())
        })
    }
}

/// How many dead letters `topic` has. Reads through the logs of the topic's shards. Errors: EINVAL,
/// EUTF8, EFILTERING, EFORKED. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_dead_letters_count(
    broker: *const slipring_broker,
    topic: *const c_char,
    topic_len: usize,
    count: *mut u64,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (topic, topic_len), |c, broker, topic| {
            let out = c.out(count, "count")?;
            out.write(letters_in(broker, topic)?.count() as u64);
            Ok(())
        })
    }
}

/// The letters: sets `*messages` to an array of `*count` of them, which lives as long as the handle.
/// Errors: EINVAL. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_letters_get(
    letters: *const slipring_letters,
    messages: *mut *const slipring_message,
    count: *mut usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let letters = c.get(letters, "letters")?;
            let (messages, count) = (c.out(messages, "messages")?, c.out(count, "count")?);
            messages.write(letters.views.as_ptr());
            count.write(letters.views.len());
            Ok(())
        })
    }
}

/// Frees the handle and sets the pointer to NULL; the letters stay in their topic. NULL, or a
/// pointer to NULL, is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_letters_free(letters: *mut *mut slipring_letters) {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { free(letters) }
}

/// The dead letter at `offset` of `partition` of `topic`; EMPTY if it is not in the list. Errors:
/// EINVAL, EUTF8, EFILTERING, EFORKED. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_dead_letter(
    broker: *const slipring_broker,
    topic: *const c_char,
    topic_len: usize,
    partition: u32,
    offset: u64,
    letter: *mut *mut slipring_kept,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (topic, topic_len), |c, broker, topic| {
            let out = c.out(letter, "letter")?;
            let letter = letters_in(broker, topic)?.peek(partition, offset);
            let letter = letter.ok_or(Failure::outcome(slipring_status::SLIPRING_EMPTY))?;
            out.give_box(keep(letter));
            Ok(())
        })
    }
}

/// Sends dead letters of `topic` back, in one call: publishes each to the topic that its message was
/// from, as it was, and takes it out of the list. What is not in the list any more is left out.
/// `sent` may be NULL, or gets how many were sent, also if that ends with an error.
///
/// Errors: EINVAL, EUTF8, and those of `slipring_topic_publish`: with the first that could not be
/// sent, which stays in the list; those before it were. Waits as that does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_redrive(
    broker: *const slipring_broker,
    topic: *const c_char,
    topic_len: usize,
    letters: *const slipring_message,
    letters_len: usize,
    sent: *mut u64,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (topic, topic_len), |c, broker, topic| {
            let letters = c.array(letters, letters_len, "letters")?;
            let out = c.optional_out(sent, "sent")?;
            let topic = letters_in(broker, topic)?;
            let mut sent = 0;
            let result = broker.log.during(|| {
                letters.iter().try_for_each(|letter| -> Result<(), Failure> {
                    sent += u64::from(topic.redrive(&c.message(letter)?)?);
                    Ok(())
                })
            });
            out.write(sent);
            result
        })
    }
}

/// The same for all letters in the list, or, if `filter` is not NULL, those whose attributes match
/// it. `sent` is written on success only. Errors: those, and EFILTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_redrive_all(
    broker: *const slipring_broker,
    topic: *const c_char,
    topic_len: usize,
    filter: *const c_char,
    filter_len: usize,
    sent: *mut u64,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (topic, topic_len), |c, broker, topic| {
            let filter = c.filter(filter, filter_len)?;
            let out = c.optional_out(sent, "sent")?;
            let topic = letters_in(broker, topic)?;
            out.write(broker.log.during(|| match filter {
                Some(filter) => topic.redrive_by(&filter),
                None => topic.redrive_all(),
            })?);
            Ok(())
        })
    }
}

/// Throws all dead letters of `topic` away. `purged` may be NULL, or gets how many. Errors: EINVAL,
/// EUTF8, EFILTERING, EFORKED. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_purge_dead_letters(
    broker: *const slipring_broker,
    topic: *const c_char,
    topic_len: usize,
    purged: *mut u64,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (topic, topic_len), |c, broker, topic| {
            c.optional_out(purged, "purged")?.write(letters_in(broker, topic)?.purge()?);
            Ok(())
        })
    }
}
