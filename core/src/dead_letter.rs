//! Dead letters: messages that a subscription has given up on, with the reason, in a topic of
//! their own.

use crate::error::PublishError;
use crate::inbox::Inbox;
use crate::ledger::Position;
use crate::message::{Message, NewMessage};
use crate::publisher::Topic;
use crate::settled::Settled;
use crate::sync::Arc;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Attribute of a dead letter: the subscription that gave up on it.
pub const DEAD_LETTER_SUBSCRIPTION: &str = "dead-letter-subscription";
/// Attribute of a dead letter: the topic that the message was published to.
pub const DEAD_LETTER_TOPIC: &str = "dead-letter-topic";
/// Attribute of a dead letter: the number of the message's partition.
pub const DEAD_LETTER_PARTITION: &str = "dead-letter-partition";
/// Attribute of a dead letter: the message's offset in it.
pub const DEAD_LETTER_OFFSET: &str = "dead-letter-offset";
/// Attribute of a dead letter: how often the message was delivered.
pub const DEAD_LETTER_ATTEMPTS: &str = "dead-letter-attempts";
/// Attribute of a dead letter: why it is one.
pub const DEAD_LETTER_REASON: &str = "dead-letter-reason";

const ALL: [&str; 6] = [
    DEAD_LETTER_SUBSCRIPTION,
    DEAD_LETTER_TOPIC,
    DEAD_LETTER_PARTITION,
    DEAD_LETTER_OFFSET,
    DEAD_LETTER_ATTEMPTS,
    DEAD_LETTER_REASON,
];

/// How long storing a dead letter waits for a subscriber to dead letters that blocks; or, where nobody
/// is to wait, until that is tried again.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// Where dead letters go.
#[derive(Clone)]
pub(crate) struct DeadLetterTopic {
    pub(crate) name: Arc<str>,
    /// Gives the topic, created if need be.
    pub(crate) open: Arc<dyn Fn() -> Result<Topic, PublishError> + Send + Sync>,
}

/// Where a dead letter comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) subscription: &'a str,
    pub(crate) attempts: u32,
    pub(crate) reason: &'a str,
}

/// Which dead letters have been sent back or thrown away: by partition.
#[derive(Debug, Default)]
pub(crate) struct Cleared(Mutex<HashMap<u32, ClearedOffsets>>);

#[derive(Debug, Default)]
struct ClearedOffsets {
    settled: Settled,
    /// Being sent back at the moment.
    busy: HashSet<u64>,
}

impl Cleared {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, ClearedOffsets>> {
        // No foreign code runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was cleared of `partition` before this process.
    pub(crate) fn restore(&self, partition: u32, cleared: Position) {
        let settled = Settled::with(cleared.floor, cleared.settled);
        self.lock().entry(partition).or_default().settled = settled;
    }

    /// Whether the letter at this partition and offset has been sent back or thrown away.
    pub(crate) fn has(&self, (partition, offset): (u32, u64)) -> bool {
        self.lock().get(&partition).is_some_and(|cleared| cleared.settled.contains(offset))
    }

    /// Marks a letter as being worked at. False if it is, or has been cleared.
    pub(crate) fn claim(&self, (partition, offset): (u32, u64)) -> bool {
        let mut cleared = self.lock();
        let of_partition = cleared.entry(partition).or_default();
        !of_partition.settled.contains(offset) && of_partition.busy.insert(offset)
    }

    /// Ends a [claim](Self::claim); the letter has been cleared if `is_done`.
    pub(crate) fn unclaim(&self, (partition, offset): (u32, u64), is_done: bool) {
        let mut cleared = self.lock();
        let of_partition = cleared.entry(partition).or_default();
        of_partition.busy.remove(&offset);
        if is_done {
            of_partition.settled.settle(offset);
        }
    }
}

/// What dead letters call the subscription: its name, or one made of its number.
pub(crate) fn subscription_name(inbox: &Inbox) -> Cow<'_, str> {
    match &inbox.name {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(format!("unnamed-{}", inbox.number)),
    }
}

/// The topic for the dead letters of a subscription that asked for no other.
pub(crate) fn default_topic(inbox: &Inbox) -> String {
    format!("$dlq/{}", subscription_name(inbox))
}

/// The attributes of `message` but for those that a dead letter adds.
pub(crate) fn own_attributes<'a>(message: &Message<'a>) -> Vec<(&'a str, &'a str)> {
    message.attributes().filter(|(key, _)| !ALL.contains(key)).collect()
}

/// Publishes `message` to `topic` as a dead letter, if there is room for it within `patience`.
pub(crate) fn store(
    topic: &Topic,
    message: &Message<'_>,
    source: Source<'_>,
    patience: Duration,
) -> Result<(), PublishError> {
    let partition = message.partition().to_string();
    let offset = message.offset().to_string();
    let attempts = source.attempts.to_string();
    let mut attributes = own_attributes(message);
    let reason = shortened(source.reason);
    attributes.extend([
        (DEAD_LETTER_SUBSCRIPTION, source.subscription),
        (DEAD_LETTER_TOPIC, message.topic()),
        (DEAD_LETTER_PARTITION, partition.as_str()),
        (DEAD_LETTER_OFFSET, offset.as_str()),
        (DEAD_LETTER_ATTEMPTS, attempts.as_str()),
        (DEAD_LETTER_REASON, reason),
    ]);
    let id = message.id();
    let letter = NewMessage {
        payload: message.payload(),
        key: message.key(),
        id: id.own(),
        attributes: &attributes,
    };
    topic.publish_again(&letter, Some(patience)).map(drop)
}

/// As much of `text` as fits into an attribute.
fn shortened(text: &str) -> &str {
    const MOST: usize = 1024;
    let mut end = text.len().min(MOST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&format!("{}ü", "x".repeat(1023))).len(), 1023);
        assert_eq!(shortened(&"ü".repeat(600)).len(), 1024);
    }
}
