//! What a store knows beside messages and cursors: topics, subscriptions, and how far numbers were
//! given away. Here as values; `meta_db` keeps them.

use std::collections::BTreeMap;

use super::wire::{Reader, put_bytes, put_number};
use crate::config::Start;
use crate::topic::{Pattern, TopicName};

/// Everything there is.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Contents {
    /// Tells this store from all others; part of every message id.
    pub store: u128,
    /// Whether everything that a new store consists of was made.
    pub is_ready: bool,
    /// Topics by name.
    pub topics: BTreeMap<String, TopicRecord>,
    /// Durable subscriptions by name.
    pub subscriptions: BTreeMap<String, SubscriptionRecord>,
    /// Per shard: no sequence from there on was ever given away.
    pub frontiers: BTreeMap<u32, u64>,
    /// Per shard: what is below was removed, or is about to be.
    pub low: BTreeMap<u32, u64>,
    /// Numbers that no topic, partition and subscription has ever had, nor any above.
    pub next: NextIds,
    /// Counts commits.
    pub revision: u64,
}

/// Numbers that were never given away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_structs, reason = "internal")]
pub struct NextIds {
    /// Of a topic.
    pub topic: u64,
    /// Of a partition.
    pub partition: u32,
    /// Of a subscription.
    pub subscription: u64,
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_structs, reason = "internal; a new field is a new tag")]
pub struct TopicRecord {
    /// Of [`NextIds::topic`] when it was made.
    pub id: u64,
    /// Its partitions, in order.
    pub partitions: Vec<PartitionRecord>,
    /// How long messages are kept, in milliseconds; `None` for ever.
    pub retention_ms: Option<u64>,
    /// How many bytes of messages are kept; `None` for any number.
    pub retention_bytes: Option<u64>,
    /// 0 to 3.
    pub priority: u8,
    /// For how long an id that was published counts, in milliseconds; `None` if none does.
    pub dedup_window_ms: Option<u64>,
    /// How many such ids do at most; `None` for any number.
    pub dedup_ids: Option<u64>,
}

/// A partition, and the shard it lives on, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_structs, reason = "internal")]
pub struct PartitionRecord {
    /// Of [`NextIds::partition`] when it was made.
    pub id: u32,
    /// The shard.
    pub shard: u32,
}

/// A durable subscription.
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(clippy::exhaustive_structs, reason = "internal; a new field is a new tag")]
pub struct SubscriptionRecord {
    /// Of [`NextIds::subscription`] when it was made.
    pub id: u64,
    /// Counts the times it was opened: an ack id of an earlier time is stale.
    pub epoch: u32,
    /// What it matches; at least one.
    pub patterns: Vec<String>,
    /// The text of its filter.
    pub filter: Option<String>,
    /// Where it began.
    pub start: Start,
    /// How it delivers.
    pub delivery: DeliveryRecord,
}

/// How a subscription delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "internal; a new field is a new tag")]
pub struct DeliveryRecord {
    /// Or else at most once.
    pub at_least_once: bool,
    /// How long a delivery may take, in milliseconds.
    pub visibility_ms: u64,
    /// Deliveries after which a message is a dead letter.
    pub max_attempts: u32,
    /// Pause before the second delivery, in milliseconds.
    pub backoff_min_ms: u64,
    /// The longest pause between deliveries, in milliseconds.
    pub backoff_max_ms: u64,
    /// Whether the pause is shortened at random.
    pub jitter: bool,
    /// Whether later messages of a key wait for an earlier one.
    pub keys_wait: bool,
    /// Where dead letters go; `None` for `$dlq/` and the subscription's name.
    pub dead_letters: Option<String>,
    /// Messages that its queue holds.
    pub capacity: u64,
    /// Messages that can be delivered and not settled.
    pub outstanding: u64,
}

impl Default for DeliveryRecord {
    fn default() -> Self {
        Self {
            at_least_once: true,
            visibility_ms: 10_000,
            max_attempts: 5,
            backoff_min_ms: 100,
            backoff_max_ms: 60_000,
            jitter: false,
            keys_wait: true,
            dead_letters: None,
            capacity: crate::config::DEFAULT_CAPACITY as u64,
            outstanding: crate::config::DEFAULT_OUTSTANDING as u64,
        }
    }
}

/// A change of the contents.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "internal")]
pub enum Change {
    /// A topic is made, or has another configuration. Its partitions stay, more may come.
    PutTopic(String, TopicRecord),
    /// There is no such topic any more.
    RemoveTopic(String),
    /// A subscription is made, opened again, or has other options.
    PutSubscription(String, SubscriptionRecord),
    /// There is no such subscription any more.
    RemoveSubscription(String),
    /// Sequences of a shard below this are about to be given away. Never less than before.
    Frontier(u32, u64),
    /// What a shard has below this is about to be removed. Never less than before.
    Low(u32, u64),
    /// Everything that a new store consists of is there.
    Ready,
}

/// What a change replaced.
#[derive(Debug)]
pub(super) enum Undo {
    Topic(String, Option<TopicRecord>, NextIds),
    Subscription(String, Option<SubscriptionRecord>, NextIds),
    Frontier(u32, Option<u64>),
    Low(u32, Option<u64>),
    Ready(bool),
}

impl Contents {
    /// Makes a change, or says why it cannot be made.
    pub(super) fn apply(&mut self, change: &Change) -> Result<Undo, &'static str> {
        let next = self.next;
        Ok(match change {
            Change::PutTopic(name, record) => {
                self.check_topic(name, record)?;
                self.next.topic = next.topic.max(record.id + 1);
                let ids = record.partitions.iter().map(|partition| partition.id + 1);
                self.next.partition = ids.max().unwrap_or(0).max(next.partition);
                Undo::Topic(name.clone(), self.topics.insert(name.clone(), record.clone()), next)
            }
            Change::RemoveTopic(name) => {
                let old = self.topics.remove(name).ok_or("there is no such topic")?;
                Undo::Topic(name.clone(), Some(old), next)
            }
            Change::PutSubscription(name, record) => {
                self.check_subscription(name, record)?;
                self.next.subscription = next.subscription.max(record.id + 1);
                let old = self.subscriptions.insert(name.clone(), record.clone());
                Undo::Subscription(name.clone(), old, next)
            }
            Change::RemoveSubscription(name) => {
                let old = self.subscriptions.remove(name).ok_or("there is no such subscription")?;
                Undo::Subscription(name.clone(), Some(old), next)
            }
            Change::Frontier(shard, upto) => {
                Undo::Frontier(*shard, raise(&mut self.frontiers, *shard, *upto)?)
            }
            Change::Low(shard, upto) => Undo::Low(*shard, raise(&mut self.low, *shard, *upto)?),
            Change::Ready => Undo::Ready(std::mem::replace(&mut self.is_ready, true)),
        })
    }

    pub(super) fn undo(&mut self, undo: Undo) {
        fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
            match value {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            };
        }
        match undo {
            Undo::Topic(name, old, next) => {
                put(&mut self.topics, name, old);
                self.next = next;
            }
            Undo::Subscription(name, old, next) => {
                put(&mut self.subscriptions, name, old);
                self.next = next;
            }
            Undo::Frontier(shard, old) => put(&mut self.frontiers, shard, old),
            Undo::Low(shard, old) => put(&mut self.low, shard, old),
            Undo::Ready(old) => self.is_ready = old,
        }
    }

    fn check_topic(&self, name: &str, record: &TopicRecord) -> Result<(), &'static str> {
        let is_system = name.starts_with('$');
        if TopicName::new(name).is_err() && !(is_system && TopicName::new(&name[1..]).is_ok()) {
            return Err("not the name of a topic");
        }
        if record.partitions.is_empty() {
            return Err("a topic has a partition at least");
        }
        let old = self.topics.get(name);
        let kept = old.map_or(&[][..], |old| &old.partitions);
        if !record.partitions.starts_with(kept) {
            return Err("a topic's partitions stay what they are");
        }
        if old.map_or(record.id < self.next.topic, |old| old.id != record.id) {
            return Err("the number of another topic");
        }
        let mut next = self.next.partition;
        for partition in &record.partitions[kept.len()..] {
            if partition.id < next || partition.id == u32::MAX {
                return Err("the number of another partition");
            }
            next = partition.id + 1;
        }
        if record.id == u64::MAX { Err("the number of a topic is too large") } else { Ok(()) }
    }

    fn check_subscription(
        &self,
        name: &str,
        record: &SubscriptionRecord,
    ) -> Result<(), &'static str> {
        if !(1..=255).contains(&name.len()) {
            return Err("the name of a subscription has 1 to 255 bytes");
        }
        if record.patterns.is_empty() || record.patterns.iter().any(|p| Pattern::new(p).is_err()) {
            return Err("a subscription has patterns, and all of them are valid");
        }
        match self.subscriptions.get(name) {
            Some(old) if old.id != record.id => Err("the number of another subscription"),
            Some(old) if old.epoch > record.epoch => Err("an epoch never becomes less"),
            None if record.id < self.next.subscription => Err("the number of another subscription"),
            _ if record.id == u64::MAX => Err("the number of a subscription is too large"),
            _ => Ok(()),
        }
    }
}

fn raise(map: &mut BTreeMap<u32, u64>, shard: u32, upto: u64) -> Result<Option<u64>, &'static str> {
    if map.get(&shard).is_some_and(|now| *now > upto) {
        return Err("it never becomes less");
    }
    Ok(map.insert(shard, upto))
}

/// Writes a record as tagged fields, so that a later version can add some. A reader refuses a tag
/// that it does not know.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn bytes(mut self, tag: u64, bytes: &[u8]) -> Self {
        put_number(&mut self.0, tag);
        put_bytes(&mut self.0, bytes);
        self
    }

    fn number(self, tag: u64, number: u64) -> Self {
        let mut bytes = vec![];
        put_number(&mut bytes, number);
        self.bytes(tag, &bytes)
    }

    fn if_some<T>(self, value: Option<T>, put: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => put(self, value),
            None => self,
        }
    }
}

/// Why a record cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordError {
    /// It is not one.
    Malformed,
    /// It has a field that this version does not know.
    Newer,
}

/// Calls `take` with each field; it gives `None` for what is malformed, `Some(false)` for a tag that
/// it does not know.
fn fields(
    bytes: &[u8],
    mut take: impl FnMut(u64, Reader<'_>) -> Option<bool>,
) -> Result<(), RecordError> {
    let mut reader = Reader::new(bytes);
    while reader.len() > 0 {
        let tag = reader.number().ok_or(RecordError::Malformed)?;
        let field = reader.bytes().ok_or(RecordError::Malformed)?;
        match take(tag, Reader::new(field)) {
            Some(true) => {}
            Some(false) => return Err(RecordError::Newer),
            None => return Err(RecordError::Malformed),
        }
    }
    Ok(())
}

impl TopicRecord {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut partitions = vec![];
        for partition in &self.partitions {
            put_number(&mut partitions, partition.id.into());
            put_number(&mut partitions, partition.shard.into());
        }
        Fields::default()
            .number(1, self.id)
            .bytes(2, &partitions)
            .if_some(self.retention_ms, |fields, ms| fields.number(3, ms))
            .if_some(self.retention_bytes, |fields, bytes| fields.number(4, bytes))
            .number(5, self.priority.into())
            .if_some(self.dedup_window_ms, |fields, ms| fields.number(6, ms))
            .if_some(self.dedup_ids, |fields, ids| fields.number(7, ids))
            .0
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut record = Self::default();
        fields(bytes, |tag, mut field| {
            match tag {
                1 => record.id = field.number()?,
                2 => {
                    while field.len() > 0 {
                        let (id, shard) = (field.small()?, field.small()?);
                        record.partitions.push(PartitionRecord { id, shard });
                    }
                }
                3 => record.retention_ms = Some(field.number()?),
                4 => record.retention_bytes = Some(field.number()?),
                5 => record.priority = field.small()?,
                6 => record.dedup_window_ms = Some(field.number()?),
                7 => record.dedup_ids = Some(field.number()?),
                _ => return Some(false),
            }
            (field.len() == 0).then_some(true)
        })?;
        Ok(record)
    }
}

impl SubscriptionRecord {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut patterns = vec![];
        self.patterns.iter().for_each(|pattern| put_bytes(&mut patterns, pattern.as_bytes()));
        let (start, place) = match self.start {
            Start::Now => (0, 0),
            Start::Earliest => (1, 0),
            Start::Last(count) => (2, count as u64),
            Start::Offset(offset) => (3, offset),
            Start::Time(us) => (4, us),
        };
        let mut begin = vec![start];
        put_number(&mut begin, place);
        let delivery = &self.delivery;
        Fields::default()
            .number(1, self.id)
            .number(2, self.epoch.into())
            .bytes(3, &patterns)
            .if_some(self.filter.as_ref(), |fields, text| fields.bytes(4, text.as_bytes()))
            .bytes(5, &begin)
            .number(6, delivery.at_least_once.into())
            .number(7, delivery.visibility_ms)
            .number(8, delivery.max_attempts.into())
            .number(9, delivery.backoff_min_ms)
            .number(10, delivery.backoff_max_ms)
            .number(11, delivery.jitter.into())
            .number(12, delivery.keys_wait.into())
            .if_some(delivery.dead_letters.as_ref(), |f, topic| f.bytes(13, topic.as_bytes()))
            .number(14, delivery.capacity)
            .number(15, delivery.outstanding)
            .0
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut record = Self::default();
        fields(bytes, |tag, mut field| {
            let delivery = &mut record.delivery;
            let flag = |field: &mut Reader<'_>| match field.number()? {
                0 => Some(false),
                1 => Some(true),
                _ => None,
            };
            match tag {
                1 => record.id = field.number()?,
                2 => record.epoch = field.small()?,
                3 => {
                    while field.len() > 0 {
                        record.patterns.push(field.text()?);
                    }
                }
                4 => record.filter = Some(field.rest()?),
                5 => {
                    record.start = match (field.byte()?, field.number()?) {
                        (0, 0) => Start::Now,
                        (1, 0) => Start::Earliest,
                        (2, count) => Start::Last(count.try_into().ok()?),
                        (3, offset) => Start::Offset(offset),
                        (4, us) => Start::Time(us),
                        _ => return None,
                    };
                }
                6 => delivery.at_least_once = flag(&mut field)?,
                7 => delivery.visibility_ms = field.number()?,
                8 => delivery.max_attempts = field.small()?,
                9 => delivery.backoff_min_ms = field.number()?,
                10 => delivery.backoff_max_ms = field.number()?,
                11 => delivery.jitter = flag(&mut field)?,
                12 => delivery.keys_wait = flag(&mut field)?,
                13 => delivery.dead_letters = Some(field.rest()?),
                14 => delivery.capacity = field.number()?,
                15 => delivery.outstanding = field.number()?,
                _ => return Some(false),
            }
            (field.len() == 0).then_some(true)
        })?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic() -> TopicRecord {
        TopicRecord {
            id: 3,
            partitions: vec![
                PartitionRecord { id: 9, shard: 1 },
                PartitionRecord { id: 12, shard: 0 },
            ],
            retention_ms: Some(86_400_000),
            retention_bytes: None,
            priority: 2,
            dedup_window_ms: Some(120_000),
            dedup_ids: Some(1 << 20),
        }
    }

    fn subscription() -> SubscriptionRecord {
        SubscriptionRecord {
            id: 5,
            epoch: 2,
            patterns: vec!["a/**".to_owned(), "b/*".to_owned()],
            filter: Some("attributes:x".to_owned()),
            start: Start::Time(77),
            delivery: DeliveryRecord {
                dead_letters: Some("dead".to_owned()),
                jitter: true,
                ..DeliveryRecord::default()
            },
        }
    }

    #[test]
    fn records_read_back_as_written() {
        assert_eq!(TopicRecord::decode(&topic().encode()), Ok(topic()));
        for start in [Start::Now, Start::Earliest, Start::Last(4), Start::Offset(9), Start::Time(1)]
        {
            let record = SubscriptionRecord { start, ..subscription() };
            assert_eq!(SubscriptionRecord::decode(&record.encode()), Ok(record));
        }
        let plain = SubscriptionRecord { patterns: vec!["x".to_owned()], ..Default::default() };
        assert_eq!(SubscriptionRecord::decode(&plain.encode()), Ok(plain));
    }

    #[test]
    fn a_field_of_a_later_version_is_refused_and_a_cut_record_too() {
        let newer = Fields(topic().encode()).number(99, 1).0;
        assert_eq!(TopicRecord::decode(&newer), Err(RecordError::Newer));
        let bytes = subscription().encode();
        assert_eq!(
            SubscriptionRecord::decode(&bytes[..bytes.len() - 1]),
            Err(RecordError::Malformed)
        );
    }

    #[test]
    fn numbers_are_never_given_twice_and_marks_never_go_back() {
        let mut contents = Contents::default();
        let mut apply = |change| contents.apply(&change).map(drop);
        let put = |id| Change::PutTopic("a/b".to_owned(), TopicRecord { id, ..topic() });
        apply(put(3)).unwrap();
        apply(put(4)).unwrap_err();
        apply(put(3)).unwrap();
        let fewer = TopicRecord { partitions: topic().partitions[..1].to_vec(), ..topic() };
        apply(Change::PutTopic("a/b".to_owned(), fewer)).unwrap_err();
        apply(Change::RemoveTopic("a/b".to_owned())).unwrap();
        apply(Change::RemoveTopic("a/b".to_owned())).unwrap_err();
        apply(put(3)).unwrap_err();
        apply(put(4)).unwrap_err();
        let fresh = vec![PartitionRecord { id: 13, shard: 0 }];
        let record = TopicRecord { id: 4, partitions: fresh, ..topic() };
        apply(Change::PutTopic("$dlq/x".to_owned(), record)).unwrap();
        apply(Change::PutSubscription("s".to_owned(), subscription())).unwrap();
        let older = SubscriptionRecord { epoch: 1, ..subscription() };
        apply(Change::PutSubscription("s".to_owned(), older)).unwrap_err();
        apply(Change::PutSubscription("t".to_owned(), subscription())).unwrap_err();
        apply(Change::Frontier(0, 10)).unwrap();
        apply(Change::Frontier(0, 9)).unwrap_err();
        apply(Change::Low(0, 3)).unwrap();
        apply(Change::Low(0, 2)).unwrap_err();
    }

    #[test]
    fn what_is_undone_was_never_there() {
        let mut contents = Contents::default();
        contents.apply(&Change::Low(1, 5)).unwrap();
        let before = contents.clone();
        let changes = [
            Change::PutTopic("a".to_owned(), topic()),
            Change::RemoveTopic("a".to_owned()),
            Change::PutSubscription("s".to_owned(), subscription()),
            Change::RemoveSubscription("s".to_owned()),
            Change::Frontier(1, 5),
            Change::Low(1, 6),
            Change::Ready,
        ];
        let undone: Vec<_> = changes.iter().map(|change| contents.apply(change).unwrap()).collect();
        undone.into_iter().rev().for_each(|undo| contents.undo(undo));
        assert_eq!(contents, before);
    }
}
