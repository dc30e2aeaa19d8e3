//! Tickets: receipts of messages whose turn has not come yet.

use crate::error::PublishError;
use crate::message::NewMessage;
use crate::publisher::{Loan, Topic};
use crate::receipt::Receipt;
use crate::shard::Waits;
use crate::sync::Arc;
use crate::wait::{WaitCell, Waiter};
use std::fmt;
use std::sync::Mutex;

impl Topic {
    /// Publishes one message without waiting for its turn: the receipt can be had from the
    /// [`Ticket`] later. Meant for a [pinned sequencer](crate::Sequencer::Pinned), where it makes
    /// publishing cost a copy; elsewhere the publisher does most of the work itself as ever.
    /// Tickets of one thread are published in order. Allocates.
    ///
    /// # Errors
    /// As [`loan`](Self::loan); other reasons are told by the ticket, where a subscription that
    /// blocks counts as [`PublishError::WouldBlock`], and so does a message with the same id that is
    /// being published to a topic with a [window](crate::TopicConfig::dedup_window).
    pub fn publish_ticket<'m>(
        &self,
        message: impl Into<NewMessage<'m>>,
    ) -> Result<Ticket, PublishError> {
        let message = message.into();
        let mut loan = self.loan_for(&message, message.payload.len())?;
        loan.copy_from_slice(message.payload);
        let Loan { topic, index, claim, .. } = loan;
        let slot = Arc::new(TicketSlot::default());
        let promise = Promise(Arc::clone(&slot));
        let shard = topic.entry.partitions[index].shard;
        self.engine.shards[shard].baton.leave(move |core| {
            let partition = &topic.entry.partitions[index];
            let appended = core.append_claim_once(partition, &claim, &mut Waits::default());
            promise.keep(topic.receipt_of(partition, appended));
        });
        Ok(Ticket { slot, topic: self.clone() })
    }
}

#[derive(Debug, Default)]
struct TicketSlot {
    result: Mutex<Option<Result<Receipt, PublishError>>>,
    ready: WaitCell,
}

impl TicketSlot {
    fn result(&self) -> Option<Result<Receipt, PublishError>> {
        *self.result.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The publishing side of a ticket: answers it also when it is dropped with the job undone.
struct Promise(Arc<TicketSlot>);

impl Promise {
    fn keep(&self, result: Result<Receipt, PublishError>) {
        self.0.result.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(result);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.keep(Err(PublishError::Closed));
        if self.0.ready.is_armed_after_fence() {
            self.0.ready.wake();
        }
    }
}

/// The receipt of a message that is being published. See [`Topic::publish_ticket`].
pub struct Ticket {
    slot: Arc<TicketSlot>,
    topic: Topic,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("receipt", &self.slot.result()).finish_non_exhaustive()
    }
}

impl Ticket {
    /// The receipt, if the message has been published; it does not say that it is durable.
    ///
    /// # Errors
    /// Why it was not published.
    pub fn try_receipt(&self) -> Result<Option<Receipt>, PublishError> {
        self.slot.result().transpose()
    }

    /// Waits for the receipt.
    ///
    /// # Errors
    /// Why it was not published.
    pub fn wait(self) -> Result<Receipt, PublishError> {
        loop {
            if let Some(result) = self.slot.result() {
                let receipt = result?;
                let durable = self.topic.engine.commit(self.topic.shard_of(&receipt))?;
                return Ok(Receipt { durable, ..receipt });
            }
            self.topic.engine.check()?;
            self.slot.ready.prepare(Waiter::this_thread());
            if self.slot.result().is_none() {
                self.topic.engine.clock.park_until(None);
            }
        }
    }
}
