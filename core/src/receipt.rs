//! Receipts: what became of what was published.

use crate::error::PublishError;
use crate::message_id::MessageId;
use crate::outcome::Appended;
use std::fmt;

/// What became of a published message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// Number of the partition, unique in the broker.
    pub partition: u32,
    /// Position in the partition.
    pub offset: u64,
    /// Whether it would survive a power cut: see [`SyncPolicy`](crate::store::SyncPolicy). A broker
    /// in memory says `false`.
    pub durable: bool,
    /// Whether it was published before, within the topic's
    /// [window](crate::TopicConfig::dedup_window), and so was not stored again. Then this is where the
    /// first one is, and nothing came to any subscription.
    pub duplicate: bool,
    /// Subscriptions that it was for.
    pub matched: u64,
    /// Of those, how many it was queued for.
    pub enqueued: u64,
    /// Messages that were dropped to the account of this publish: this one where a queue was full,
    /// or older ones that it displaced.
    pub dropped: u64,
    pub(crate) store: u64,
}

impl Receipt {
    /// The id derived from the message's place. A message that was given an id of its own has that
    /// one instead.
    pub fn id(&self) -> MessageId<'static> {
        MessageId::derived(self.store, self.partition, self.offset)
    }
}

/// What became of a batch. Messages of a batch to one partition have consecutive offsets unless
/// others published between them while the batch waited for a full queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchReceipt {
    /// Messages published: always the first ones of the batch.
    pub published: usize,
    /// Of those, how many were not stored because they were published before, in an earlier call or in
    /// this one: see [`Receipt::duplicate`].
    pub duplicates: usize,
    /// Partition and offset of the first that was stored, if any was.
    pub first: Option<(u32, u64)>,
    /// Sum over the messages of the subscriptions that each was for.
    pub matched: u64,
    /// Of those, how often one was queued.
    pub enqueued: u64,
    /// Messages dropped to the account of this batch.
    pub dropped: u64,
    /// Whether all that was published would survive a power cut.
    pub durable: bool,
}

impl BatchReceipt {
    pub(crate) fn add(&mut self, partition: u32, appended: &Appended) {
        if appended.count > 0 && self.first.is_none() {
            self.first = Some((partition, appended.first_offset));
        }
        self.published += appended.count;
        self.matched += appended.outcome.matched;
        self.enqueued += appended.outcome.enqueued;
        self.dropped += appended.outcome.dropped;
    }

    /// One more, which was published before.
    pub(crate) fn add_duplicate(&mut self) {
        self.published += 1;
        self.duplicates += 1;
    }
}

/// A batch that ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchError {
    /// What was published before: the first `receipt.published` messages.
    pub receipt: BatchReceipt,
    /// Why the next one was not.
    pub reason: PublishError,
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {} messages: {}", self.receipt.published, self.reason)
    }
}

impl std::error::Error for BatchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}
