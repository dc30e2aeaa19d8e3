//! Limits, policies and their defaults.

use std::num::NonZeroUsize;
use std::time::Duration;

/// Limits on a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of a payload.
    pub(crate) payload_bytes: usize,
}

impl Limits {
    /// The most that `payload_bytes` can be set to.
    pub(crate) const MAX_PAYLOAD_BYTES: usize = 64 << 20;
    pub(crate) const KEY_BYTES: usize = 1024;
    pub(crate) const ID_BYTES: usize = 255;
    pub(crate) const ATTRIBUTES: usize = 100;
    /// Attributes that the broker may add to those of a message.
    pub(crate) const SYSTEM_ATTRIBUTES: usize = 6;
    pub(crate) const ATTRIBUTE_KEY_BYTES: usize = 256;
    pub(crate) const ATTRIBUTE_VALUE_BYTES: usize = 1024;
}

impl Default for Limits {
    fn default() -> Self {
        Self { payload_bytes: 10 << 20 }
    }
}

/// Shards of a broker at most.
pub(crate) const MAX_SHARDS: usize = 64;
/// Partitions of a topic at most.
pub(crate) const MAX_PARTITIONS: usize = 1024;
/// Messages that a subscription's queue holds, where nothing else is asked for.
pub(crate) const DEFAULT_CAPACITY: usize = 1024;
/// Messages that a subscription's queue can hold at most.
pub(crate) const MAX_CAPACITY: usize = 1 << 24;
/// Messages that can be delivered and not settled, where nothing else is asked for.
pub(crate) const DEFAULT_OUTSTANDING: usize = 1 << 16;
/// Memory for messages, where nothing else is asked for.
pub(crate) const DEFAULT_MEMORY_BUDGET: usize = 64 << 20;

/// How long the messages of a topic are kept, unless it says something else.
pub(crate) const DEFAULT_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

/// Settings of a topic. See [`Broker::create_topic_with`](crate::Broker::create_topic_with).
///
/// ```
/// use slipring::{Broker, TopicConfig};
/// use std::time::Duration;
///
/// let broker = Broker::in_memory();
/// let day = Duration::from_secs(24 * 3600);
/// let config = TopicConfig::default().partitions(4).retention(Some(day));
/// broker.create_topic_with("orders/in", config)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct TopicConfig {
    pub(crate) partitions: usize,
    pub(crate) retention: Option<Duration>,
    pub(crate) retention_bytes: Option<u64>,
    pub(crate) dedup_window: Option<Duration>,
    pub(crate) dedup_ids: Option<usize>,
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self {
            partitions: 1,
            retention: Some(DEFAULT_RETENTION),
            retention_bytes: None,
            dedup_window: None,
            dedup_ids: None,
        }
    }
}

impl TopicConfig {
    /// In 1..=1024, 1 by default: messages with the same key stay in one partition, and keep their
    /// order there.
    pub fn partitions(self, partitions: usize) -> Self {
        Self { partitions, ..self }
    }

    /// How long messages are kept, 7 days by default; `None` for ever. What is older is not
    /// delivered any more, whether it was settled or not. The disk has its room back by whole
    /// segments, when nothing in one is wanted any more; see
    /// [`segment_bytes`](crate::store::DiskStoreBuilder::segment_bytes). A broker in memory keeps what
    /// its budget has room for.
    pub fn retention(self, age: Option<Duration>) -> Self {
        Self { retention: age, ..self }
    }

    /// How many bytes of messages are kept, and up to a segment more; `None`, the default, for any
    /// number. As for [`retention`](Self::retention).
    pub fn retention_bytes(self, bytes: Option<u64>) -> Self {
        Self { retention_bytes: bytes, ..self }
    }

    /// For how long an [id of the publisher's own](crate::NewMessage::id) counts: a message with an id
    /// that was published to the topic less than this ago, in whichever partition, is not stored
    /// again, and its receipt is that of the first one
    /// ([`Receipt::duplicate`](crate::Receipt::duplicate)). `None`, the default, stores everything; at
    /// least 1 ms, rounded up to whole ones, and at most the [`retention`](Self::retention).
    ///
    /// Messages without an id of their own are not concerned. What was refused does not count, nor
    /// does what was published before the window was set. Of publishers that race with an id one
    /// publishes, and the others wait for it; those that never wait are told
    /// [`WouldBlock`](crate::PublishError::WouldBlock). Each id costs about 100 bytes of memory for as
    /// long as it counts: see [`dedup_ids`](Self::dedup_ids). In a directory the ids are found in the
    /// log when it is opened, which reads all that was published to the topic's shards within the
    /// window.
    ///
    /// ```
    /// use slipring::{Broker, NewMessage, TopicConfig};
    /// use std::time::Duration;
    ///
    /// let broker = Broker::in_memory();
    /// let two_minutes = Some(Duration::from_secs(120));
    /// broker.create_topic_with("orders", TopicConfig::default().dedup_window(two_minutes))?;
    /// let order = NewMessage::new(b"3 apples").id("order-17");
    /// let first = broker.publish("orders", order)?;
    /// let again = broker.publish("orders", order)?;
    /// assert!(again.duplicate && again.id() == first.id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dedup_window(self, window: Option<Duration>) -> Self {
        Self { dedup_window: window, ..self }
    }

    /// How many ids the [window](Self::dedup_window) knows at most, the latest; at least 1. `None`, the
    /// default, for all: so many times 100 bytes as are published within the window.
    pub fn dedup_ids(self, most: Option<usize>) -> Self {
        Self { dedup_ids: most, ..self }
    }
}

/// What happens to a message for a subscription whose queue is full, where messages are delivered at
/// most once.
///
/// A policy says what may be lost, or who waits so that nothing is. Where messages are delivered
/// [at least once](DeliveryMode::AtLeastOnce), which is the default, there is nothing to say: the log
/// keeps what the queue does not hold. A policy is refused there
/// ([`SubscribeError::OverflowAtLeastOnce`](crate::SubscribeError::OverflowAtLeastOnce)): it could
/// only be ignored, or take the guarantee away without a word.
///
/// The names are literal: what drops never blocks, what blocks never drops before its timeout. (What
/// is queued may expire all the same, where the memory budget is too small for the queues: see
/// [`WhenFull`].)
/// Whatever is dropped is told to the subscriber as an exact number, in stream order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Overflow {
    /// The new message is dropped.
    #[default]
    DropNewest,
    /// The oldest message that is queued is dropped.
    DropOldest,
    /// The publisher waits until there is room; after `timeout` the message is dropped for this
    /// subscription. `None` waits for as long as it takes.
    Block {
        /// How long one publish waits for this subscription, from when it first finds it full.
        /// Others that block, and are full as well, are waited for at the same time.
        timeout: Option<Duration>,
    },
    /// New messages are dropped, and a subscription whose queue has been full for longer than
    /// `after` is disconnected: it gets what is queued, then an error.
    Disconnect {
        /// How long the queue may stay full.
        after: Duration,
    },
}

/// When a message counts as delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(
    clippy::exhaustive_enums,
    reason = "there is no third: exactly once is at least once, and a consumer that knows what it has done"
)]
pub enum DeliveryMode {
    /// When the consumer has acknowledged it, given up on it, or it has expired from the log: until
    /// then it is delivered again, after a time or a failure. Nothing is dropped while a queue is
    /// full: the subscription reads the log until it has caught up.
    ///
    /// A handler acknowledges by returning, an [iterator](crate::Subscription::iter) by being asked
    /// for the next; whoever receives in another way calls [`ack`](crate::Message::ack).
    #[default]
    AtLeastOnce,
    /// When it is handed over: nothing is to be acknowledged, and receiving costs less. What happens
    /// while a queue is full, its [`Overflow`] policy says.
    AtMostOnce,
}

/// Where a new subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Start {
    /// With the first message published after `subscribe` has returned.
    #[default]
    Now,
    /// With the oldest message still retained.
    Earliest,
    /// With the last `n` retained messages that match (fewer if there are fewer).
    Last(usize),
    /// In every matching partition, with the message at this offset.
    Offset(u64),
    /// With the first message published at or after this time, in microseconds since the Unix
    /// epoch.
    Time(u64),
}

/// How a consumer waits for the next message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// Spins and never gives the core away: lowest latency, one core per consumer.
    BusySpin,
    /// Spins a little, then yields to other threads again and again.
    Yield,
    /// Parks at once.
    Park,
    /// Spins as long as that has lately been worth it, then yields, then parks.
    #[default]
    Adaptive,
}

/// What a publish does when the memory budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WhenFull {
    /// The oldest messages expire: they are not delivered any more, and who had not read them is
    /// told how many were lost.
    #[default]
    Expire,
    /// The publish is refused while the oldest messages are still queued for somebody.
    Refuse,
}

/// Who puts a shard's messages in order and hands them to subscriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Sequencer {
    /// The publishers themselves, whoever comes first doing it for all that come meanwhile.
    #[default]
    Publishers,
    /// A thread per shard, pinned from this index on into the set of allowed CPUs; shard `n` gets
    /// index `first + n`. Failure to pin is a warning.
    Pinned {
        /// Index into the allowed CPUs.
        first: usize,
    },
}

/// When deliveries to a failing handler are paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitBreaker {
    /// Consecutive failures that open it.
    pub failures: NonZeroUsize,
    /// How long deliveries pause before one is tried.
    pub cool_down: Duration,
}
