//! The dead letters of a subscription: listed, looked at, sent back, thrown away.

use crate::dead_letter::{DEAD_LETTER_SUBSCRIPTION, DEAD_LETTER_TOPIC, own_attributes};
use crate::error::PublishError;
use crate::filter::Filter;
use crate::message::{Message, NewMessage, OwnedMessage};
use crate::publisher::Topic;
use crate::registry::Registry;
use crate::sync::Arc;
use std::fmt;

/// The dead letters in one topic: what subscriptions have given up on. From
/// [`Broker::dead_letters`](crate::Broker::dead_letters).
///
/// Listing reads through the logs of the topic's shards: it takes time in proportion to what they
/// retain. Letters expire like other messages.
///
/// ```
/// use slipring::{Broker, DEAD_LETTER_REASON};
///
/// let broker = Broker::in_memory();
/// let mut jobs = broker.subscription("jobs/*").name("mailer").open()?;
/// broker.publish("jobs/mail", "no address")?;
/// jobs.recv()?.dead_letter("no address given")?;
///
/// let letters = broker.dead_letters("$dlq/mailer");
/// let all = letters.list(10);
/// assert_eq!(all[0].view().attribute(DEAD_LETTER_REASON), Some("no address given"));
/// assert!(letters.redrive(&all[0].view())?);
/// assert_eq!(jobs.recv()?.payload(), b"no address");
/// assert!(letters.list(10).is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeadLetters {
    registry: Arc<Registry>,
    topic: String,
}

impl fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetters").field("topic", &self.topic).finish_non_exhaustive()
    }
}

impl DeadLetters {
    pub(crate) fn new(registry: Arc<Registry>, topic: &str) -> Self {
        Self { registry, topic: topic.to_owned() }
    }

    /// The first `most` letters that are retained and were neither sent back nor thrown away, in
    /// order by partition and offset. What is still there can be listed after the broker has closed.
    /// None from inside a filter function, or in the child of a fork.
    pub fn list(&self, most: usize) -> Vec<OwnedMessage> {
        self.list_where(most, |_| true)
    }

    /// The same of those that `filter` matches.
    pub fn list_by(&self, filter: &Filter, most: usize) -> Vec<OwnedMessage> {
        self.list_where(most, |message| matches(filter, message))
    }

    /// The letter at `offset` of `partition`, if it is in the list.
    pub fn peek(&self, partition: u32, offset: u64) -> Option<OwnedMessage> {
        self.list_where(1, |message| place_of(message) == (partition, offset)).pop()
    }

    /// How many letters there are.
    pub fn count(&self) -> usize {
        self.list(usize::MAX).len()
    }

    /// Publishes a letter to the topic that its message was from, as it was, and takes it out of the
    /// list. All subscriptions of that topic get it. False if it is not in the list any more, or is
    /// being sent back by somebody else.
    ///
    /// # Errors
    /// As publishing; the letter stays in the list then. [`PublishError::UnknownTopic`] if the topic
    /// is not there any more.
    pub fn redrive(&self, letter: &Message<'_>) -> Result<bool, PublishError> {
        self.registry.engine.check()?;
        let place = place_of(letter);
        let Some(topic) =
            letter.attribute(DEAD_LETTER_TOPIC).filter(|_| self.registry.cleared.claim(place))
        else {
            return Ok(false);
        };
        let result = self.send_back(letter, topic);
        self.registry.cleared.unclaim(place, result.is_ok());
        result?;
        self.registry.note_cleared(place)?;
        Ok(true)
    }

    /// The same for all letters in the list; how many were sent back.
    ///
    /// # Errors
    /// With the first that could not be; those before it were.
    pub fn redrive_all(&self) -> Result<u64, PublishError> {
        self.registry.engine.check()?;
        self.redrive_these(self.list(usize::MAX))
    }

    /// The same for those that `filter` matches.
    ///
    /// # Errors
    /// As [`redrive_all`](Self::redrive_all).
    pub fn redrive_by(&self, filter: &Filter) -> Result<u64, PublishError> {
        self.registry.engine.check()?;
        self.redrive_these(self.list_by(filter, usize::MAX))
    }

    /// Takes all letters out of the list; how many.
    ///
    /// # Errors
    /// [`PublishError::Store`], if that could not be noted: after a crash they may be in the list
    /// again. [`PublishError::InsideFilter`] and [`PublishError::Forked`].
    pub fn purge(&self) -> Result<u64, PublishError> {
        self.registry.engine.check()?;
        let letters = self.list(usize::MAX);
        let places = letters.iter().map(|letter| place_of(&letter.view()));
        let mut purged = 0;
        for place in places {
            if self.registry.cleared.claim(place) {
                self.registry.cleared.unclaim(place, true);
                self.registry.note_cleared(place)?;
                purged += 1;
            }
        }
        Ok(purged)
    }

    fn redrive_these(&self, letters: Vec<OwnedMessage>) -> Result<u64, PublishError> {
        let mut sent = 0;
        for letter in letters {
            sent += u64::from(self.redrive(&letter.view())?);
        }
        Ok(sent)
    }

    fn send_back(&self, letter: &Message<'_>, topic: &str) -> Result<(), PublishError> {
        let entry = self.registry.find_topic(topic).ok_or(PublishError::UnknownTopic)?;
        let topic = Topic::new(Arc::clone(&self.registry.engine), entry);
        let attributes = own_attributes(letter);
        let id = letter.id();
        let message = NewMessage {
            payload: letter.payload(),
            key: letter.key(),
            id: id.own(),
            attributes: &attributes,
        };
        // Whoever sends it back knows that it was published before.
        topic.check(&message)?;
        topic.publish_again(&message, None).map(drop)
    }

    fn list_where(&self, most: usize, wanted: impl Fn(&Message<'_>) -> bool) -> Vec<OwnedMessage> {
        let registry = &self.registry;
        if registry.engine.check().is_err() {
            return Vec::new();
        }
        let Some(entry) = registry.find_topic(&self.topic) else { return Vec::new() };
        let mut letters = Vec::new();
        let wanted = |message: &Message<'_>| {
            message.attribute(DEAD_LETTER_SUBSCRIPTION).is_some()
                && !registry.cleared.has(place_of(message))
                && wanted(message)
        };
        for partition in &entry.partitions {
            let log = &registry.engine.shards[partition.shard].log;
            let context = &registry.engine.context;
            if let Some(backing) = log.backing() {
                let of_partition = backing.messages_of(partition.id, context);
                letters.extend(
                    of_partition.filter(|letter| wanted(&letter.view())).take(most - letters.len()),
                );
                continue;
            }
            for sequence in log.low()..log.head() {
                if letters.len() == most {
                    return letters;
                }
                letters.extend(log.keep_message_if(sequence, context, |message| {
                    message.partition() == partition.id && wanted(message)
                }));
            }
        }
        letters
    }
}

/// Partition and offset of a letter.
fn place_of(letter: &Message<'_>) -> (u32, u64) {
    (letter.partition(), letter.offset())
}

fn matches(filter: &Filter, message: &Message<'_>) -> bool {
    let attributes: Vec<_> = message.attributes().collect();
    filter.matches(&attributes[..])
}
