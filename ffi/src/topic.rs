//! Publishing to a topic: one message, a batch, a ticket. Loans have a file of their own.
#![expect(unsafe_code, reason = "exported names")]

use crate::handle::copy_text;
use crate::last_error::Failure;
use crate::log::Log;
use crate::message::{slipring_new_message, slipring_text_view, text_view};
use crate::options::time;
use crate::panic::{entry, free};
use crate::status::slipring_status;
use slipring_core::{BatchReceipt, NewMessage, PublishError, Receipt, Ticket, Topic};
use std::ffi::c_char;
use std::time::Duration;

/// A topic to publish to. Usable from all threads at once, and from inside handlers. Free it with
/// `slipring_topic_free`, which leaves the topic itself as it is.
#[derive(Debug)]
pub struct slipring_topic {
    pub(crate) topic: Topic,
    pub(crate) log: Log,
}

/// What became of a published message. It will not grow.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct slipring_receipt {
    /// Position in the partition.
    pub offset: u64,
    /// Subscriptions that it was for.
    pub matched: u64,
    /// Of those, how many it was queued for.
    pub enqueued: u64,
    /// Messages dropped to the account of this publish: this one where a queue was full, or older
    /// ones that it displaced.
    pub dropped: u64,
    /// Number of the partition, unique in the broker.
    pub partition: u32,
    /// 1 if it would survive a power cut. A broker in memory says 0.
    pub durable: u16,
    /// 1 if a message with its id was published within the topic's dedup window before, so that it was
    /// not stored again: see `slipring_broker_set_dedup_window`. Then this is where that one is, and
    /// nothing came to any subscription.
    pub duplicate: u16,
}

impl From<Receipt> for slipring_receipt {
    #[inline]
    fn from(receipt: Receipt) -> Self {
        Self {
            offset: receipt.offset,
            matched: receipt.matched,
            enqueued: receipt.enqueued,
            dropped: receipt.dropped,
            partition: receipt.partition,
            durable: u16::from(receipt.durable),
            duplicate: u16::from(receipt.duplicate),
        }
    }
}

/// What became of a batch. It will not grow.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct slipring_batch_receipt {
    /// Messages published: always the first ones of the batch.
    pub published: usize,
    /// Offset of the first that was stored, if any was.
    pub first_offset: u64,
    /// Sum over the messages of the subscriptions that each was for.
    pub matched: u64,
    /// Of those, how often one was queued.
    pub enqueued: u64,
    /// Messages dropped to the account of this batch.
    pub dropped: u64,
    /// Partition of the first that was stored, if any was.
    pub first_partition: u32,
    /// 1 if all that was published would survive a power cut. A broker in memory says 0.
    pub durable: u16,
    /// How many of those published were not stored because they were published before, in an earlier
    /// call or in this one. UINT16_MAX stands for that many or more.
    pub duplicates: u16,
}

impl From<BatchReceipt> for slipring_batch_receipt {
    fn from(receipt: BatchReceipt) -> Self {
        let (first_partition, first_offset) = receipt.first.unwrap_or_default();
        Self {
            published: receipt.published,
            first_offset,
            matched: receipt.matched,
            enqueued: receipt.enqueued,
            dropped: receipt.dropped,
            first_partition,
            durable: u16::from(receipt.durable),
            duplicates: u16::try_from(receipt.duplicates).unwrap_or(u16::MAX),
        }
    }
}

/// The topic's name; it lives as long as the handle. Errors: EINVAL. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_topic_name(
    topic: *const slipring_topic,
    name: *mut slipring_text_view,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let topic = c.get(topic, "topic")?;
            c.out(name, "name")?.write(text_view(topic.topic.name()));
            Ok(())
        })
    }
}

/// Publishes one message of bytes alone, which are copied. `receipt` may be NULL.
///
/// Waits only if a subscription with SLIPRING_BLOCK has no room, and, for the time of another
/// publish, if somebody else publishes to the same shard. Errors: CLOSED, EINVAL, EMESSAGE (too
/// large), EDELETED, EFULL, ENOMEM, EFILTERING, EFORKED; nothing was published then. In a directory also
/// ESTORE, after which the message may have been published, if a write failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_topic_publish(
    topic: *const slipring_topic,
    payload: *const u8,
    payload_len: usize,
    receipt: *mut slipring_receipt,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let topic = c.get(topic, "topic")?;
            let payload = c.array(payload, payload_len, "payload")?;
            let receipt = c.optional_out(receipt, "receipt")?;
            let published = topic.log.during(|| topic.topic.publish(payload))?;
            receipt.write(published.into());
            Ok(())
        })
    }
}

/// # Safety
/// As for [`entry`].
unsafe fn publish_with(
    topic: *const slipring_topic,
    message: *const slipring_new_message,
    receipt: *mut slipring_receipt,
    publish: impl FnOnce(&Topic, NewMessage<'_>) -> Result<Receipt, PublishError>,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let topic = c.get(topic, "topic")?;
            let message = c.get(message, "message")?;
            let receipt = c.optional_out(receipt, "receipt")?;
            let mut room = Vec::new();
            let message = c.new_message(message, &mut room)?;
            let published = topic.log.during(|| publish(&topic.topic, message))?;
            receipt.write(published.into());
            Ok(())
        })
    }
}

/// The same for a message with a key, an id or attributes. Errors: those, and EUTF8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_topic_publish_message(
    topic: *const slipring_topic,
    message: *const slipring_new_message,
    receipt: *mut slipring_receipt,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { publish_with(topic, message, receipt, |topic, message| topic.publish(message)) }
}

/// The same without ever waiting: WOULD_BLOCK if it had to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_topic_try_publish(
    topic: *const slipring_topic,
    message: *const slipring_new_message,
    receipt: *mut slipring_receipt,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { publish_with(topic, message, receipt, |topic, message| topic.try_publish(message)) }
}

/// The same, waiting for at most `timeout_ns` for subscriptions that block: TIMEOUT if there still
/// was no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_topic_publish_timeout(
    topic: *const slipring_topic,
    message: *const slipring_new_message,
    timeout_ns: u64,
    receipt: *mut slipring_receipt,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        publish_with(topic, message, receipt, |topic, message| match time(timeout_ns) {
            Some(timeout) => topic.publish_timeout(message, timeout),
            None => topic.publish(message),
        })
    }
}

/// The same, waiting until the message survives a power cut, whatever `slipring_broker_options.sync`
/// says. In memory that is at once, and the receipt says that it does not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_topic_publish_sync(
    topic: *const slipring_topic,
    message: *const slipring_new_message,
    receipt: *mut slipring_receipt,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { publish_with(topic, message, receipt, |topic, message| topic.publish_sync(message)) }
}

/// How long a batch may wait.
#[derive(Clone, Copy)]
enum Patience {
    None,
    /// For each of its messages.
    Within(Duration),
    Forever,
}

/// # Safety
/// As for [`entry`].
unsafe fn publish_batch_with(
    topic: *const slipring_topic,
    messages: *const slipring_new_message,
    messages_len: usize,
    receipt: *mut slipring_batch_receipt,
    patience: Patience,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let topic = c.get(topic, "topic")?;
            let messages = c.array(messages, messages_len, "messages")?;
            let receipt = c.optional_out(receipt, "receipt")?;
            let waits = matches!(patience, Patience::Forever);
            let plain =
                if let Patience::Within(_) = patience { None } else { c.payloads(messages) };
            let published = if let Some((payloads, longest)) = plain {
                topic.log.during(|| topic.topic.publish_payloads(payloads, longest, waits))
            } else {
                let mut room = Vec::new();
                let messages = c.new_messages(messages, &mut room)?;
                topic.log.during(|| {
                    let topic = &topic.topic;
                    match patience {
                        Patience::None => topic.try_publish_batch(&messages),
                        Patience::Within(timeout) => {
                            topic.publish_batch_while(&messages, Some(timeout), &|| true)
                        }
                        Patience::Forever => topic.publish_batch(&messages),
                    }
                })
            };
            match published {
                Ok(published) => receipt.write(published.into()),
                Err(error) => {
                    receipt.write(error.receipt.into());
                    return Err(error.reason.into());
                }
            }
            Ok(())
        })
    }
}

/// Publishes an array of messages in order, in one call. All of them are checked before the first
/// is published. Waits as `slipring_topic_publish` does.
///
/// Errors as `slipring_topic_publish_message`: the batch ended early, and `receipt`, which may be
/// NULL, says how many were published. It is written in these cases too, but not where an argument
/// was wrong (EINVAL, EUTF8): nothing was published then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_topic_publish_batch(
    topic: *const slipring_topic,
    messages: *const slipring_new_message,
    messages_len: usize,
    receipt: *mut slipring_batch_receipt,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { publish_batch_with(topic, messages, messages_len, receipt, Patience::Forever) }
}

/// The same without ever waiting: WOULD_BLOCK if it had to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_topic_try_publish_batch(
    topic: *const slipring_topic,
    messages: *const slipring_new_message,
    messages_len: usize,
    receipt: *mut slipring_batch_receipt,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { publish_batch_with(topic, messages, messages_len, receipt, Patience::None) }
}

/// The same, waiting for at most `timeout_ns` for subscriptions that block, for each message: TIMEOUT
/// if there still was no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_topic_publish_batch_timeout(
    topic: *const slipring_topic,
    messages: *const slipring_new_message,
    messages_len: usize,
    timeout_ns: u64,
    receipt: *mut slipring_batch_receipt,
) -> slipring_status {
    let patience = time(timeout_ns).map_or(Patience::Forever, Patience::Within);
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { publish_batch_with(topic, messages, messages_len, receipt, patience) }
}

/// 1 if the topic's messages go into a directory, so that publishing may wait for the disk; 0 if not,
/// or if `topic` is NULL. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_topic_is_durable(topic: *const slipring_topic) -> i32 {
    let mut is_durable = 0;
    // SAFETY: the caller's pointer, used as the header says.
    unsafe {
        entry(|c| {
            is_durable = i32::from(c.get(topic, "topic")?.topic.is_durable());
            Ok(())
        })
    };
    is_durable
}

/// Copies the id of the topic's message at `offset` of `partition`, as its receipt has them, to
/// `buffer`, ending in NUL, and returns its length without the NUL, which may be more than fits: a
/// UUID made of that place, of 36 characters. A message that was given an id of its own has that one
/// instead. 0 if `topic` is NULL. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_topic_message_id(
    topic: *const slipring_topic,
    partition: u32,
    offset: u64,
    buffer: *mut c_char,
    buffer_len: usize,
) -> usize {
    let mut len = 0;
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let id = c.get(topic, "topic")?.topic.id_at(partition, offset).to_string();
            len = copy_text(&id, buffer, buffer_len);
            Ok(())
        })
    };
    len
}

/// Frees the handle and sets the pointer to NULL. NULL, or a pointer to NULL, is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_topic_free(topic: *mut *mut slipring_topic) {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { free(topic) }
}

/// The receipt of a message that is being published. Usable from one thread at a time. Free it with
/// `slipring_ticket_free`, or let `slipring_ticket_wait` do that.
#[derive(Debug)]
pub struct slipring_ticket {
    ticket: Ticket,
    log: Log,
}

/// Publishes one message without waiting for its turn: the receipt can be had from the ticket
/// later. Meant for SLIPRING_PINNED, where it makes publishing cost a copy. Tickets of one thread
/// are published in order. Errors as `slipring_topic_loan`; other reasons are told by the ticket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_topic_publish_ticket(
    topic: *const slipring_topic,
    message: *const slipring_new_message,
    ticket: *mut *mut slipring_ticket,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let topic = c.get(topic, "topic")?;
            let message = c.get(message, "message")?;
            let out = c.out(ticket, "ticket")?;
            let mut room = Vec::new();
            let message = c.new_message(message, &mut room)?;
            let ticket = topic.log.during(|| topic.topic.publish_ticket(message))?;
            out.give(slipring_ticket { ticket, log: topic.log.clone() });
            Ok(())
        })
    }
}

/// The receipt, if the message has been published; EMPTY if not yet. `receipt` may be NULL. Errors:
/// why it was not published, a subscription that blocks being WOULD_BLOCK. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_ticket_try(
    ticket: *const slipring_ticket,
    receipt: *mut slipring_receipt,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let ticket = c.get(ticket, "ticket")?;
            let out = c.optional_out(receipt, "receipt")?;
            let receipt = ticket.log.during(|| ticket.ticket.try_receipt())?;
            out.write(receipt.ok_or(Failure::outcome(slipring_status::SLIPRING_EMPTY))?.into());
            Ok(())
        })
    }
}

/// Waits for the receipt, frees the ticket and sets the pointer to NULL, also in case of an error,
/// which is why the message was not published. `receipt` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_ticket_wait(
    ticket: *mut *mut slipring_ticket,
    receipt: *mut slipring_receipt,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let out = c.optional_out(receipt, "receipt")?;
            let ticket = c.take(ticket).ok_or_else(|| Failure::invalid("ticket is NULL"))?;
            let slipring_ticket { ticket, log } = *ticket;
            out.write(log.during(|| ticket.wait())?.into());
            Ok(())
        })
    }
}

/// Frees a ticket, whose message is published all the same, and sets the pointer to NULL. NULL, or
/// a pointer to NULL, is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_ticket_free(ticket: *mut *mut slipring_ticket) {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { free(ticket) }
}
