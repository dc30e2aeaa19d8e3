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
/// retain, and memory for what it gives, not for what it reads. Letters expire like other messages,
/// and are in no list then.
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
        let mut found = None;
        self.each(Some((partition, offset)), |letter| {
            found = Some(letter);
            false
        });
        found
    }

    /// How many letters there are.
    pub fn count(&self) -> usize {
        let mut count = 0;
        self.each(None, |_| {
            count += 1;
            true
        });
        count
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
        self.redrive_where(|_| true)
    }

    /// The same for those that `filter` matches.
    ///
    /// # Errors
    /// As [`redrive_all`](Self::redrive_all).
    pub fn redrive_by(&self, filter: &Filter) -> Result<u64, PublishError> {
        self.registry.engine.check()?;
        self.redrive_where(|letter| matches(filter, letter))
    }

    /// Takes all letters out of the list; how many.
    ///
    /// # Errors
    /// [`PublishError::Store`], if that could not be noted: after a crash they may be in the list
    /// again. [`PublishError::InsideFilter`] and [`PublishError::Forked`].
    pub fn purge(&self) -> Result<u64, PublishError> {
        self.registry.engine.check()?;
        let (mut purged, mut outcome) = (0, Ok(()));
        self.each(None, |letter| {
            let place = place_of(&letter.view());
            if self.registry.cleared.claim(place) {
                self.registry.cleared.unclaim(place, true);
                outcome = self.registry.note_cleared(place);
                purged += 1;
            }
            outcome.is_ok()
        });
        outcome.map(|()| purged)
    }

    fn redrive_where(&self, wanted: impl Fn(&Message<'_>) -> bool) -> Result<u64, PublishError> {
        let mut sent = Ok(0);
        self.each(None, |letter| {
            let letter = letter.view();
            if let Ok(count) = sent
                && wanted(&letter)
            {
                sent = self.redrive(&letter).map(|is_sent| count + u64::from(is_sent));
            }
            sent.is_ok()
        });
        sent
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
        let mut letters = Vec::new();
        self.each(None, |letter| {
            if letters.len() < most && wanted(&letter.view()) {
                letters.push(letter);
            }
            letters.len() < most
        });
        letters
    }

    /// Calls `f` with the letters that are in the list when this begins, one by one, until it says to
    /// stop; or with the one in the place that is given.
    fn each(&self, only: Option<(u32, u64)>, mut f: impl FnMut(OwnedMessage) -> bool) {
        let registry = &self.registry;
        if registry.engine.check().is_err() {
            return;
        }
        let Some(entry) = registry.find_topic(&self.topic) else { return };
        let context = &registry.engine.context;
        let is_letter = |message: &Message<'_>| {
            message.attribute(DEAD_LETTER_SUBSCRIPTION).is_some()
                && !message.record.has_expired(context)
                && !registry.cleared.has(place_of(message))
        };
        // Before anything is read: what `f` leads to may be more of them.
        let offsets = entry.partitions.iter().map(|partition| match only {
            Some((id, _)) if id != partition.id => 0..0,
            Some((_, offset)) => offset..offset.saturating_add(1),
            None => 0..partition.next_offset.get(),
        });
        let offsets: Vec<_> = offsets.collect();
        for (partition, offsets) in entry.partitions.iter().zip(offsets) {
            let log = &registry.engine.shards[partition.shard].log;
            if let Some(backing) = log.backing() {
                let mut letters = backing.messages_of(partition.id, offsets, context);
                if !letters.all(|letter| !is_letter(&letter.view()) || f(letter)) {
                    return;
                }
                continue;
            }
            for sequence in log.low()..log.head() {
                let letter = log.keep_message_if(sequence, context, |message| {
                    message.partition() == partition.id
                        && offsets.contains(&message.offset())
                        && is_letter(message)
                });
                if letter.is_some_and(|letter| !f(letter)) {
                    return;
                }
            }
        }
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
