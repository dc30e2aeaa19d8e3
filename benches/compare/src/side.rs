//! What slipring has to do in each comparison. `ours.rs` does it; nothing else knows our API.
//!
//! Throughout: one broker a call, its set-up outside the measured time; publishes go through a topic
//! handle; subscriptions are wildcard, at-most-once with `Block` and [`CAPACITY`] slots; consumers
//! check each payload with [`Tally::see`]; threads pin themselves (`harness::pair` does it).
//!
//! [`CAPACITY`]: crate::harness::CAPACITY
//! [`Tally::see`]: crate::harness::Tally::see

use std::path::Path;
use std::time::Duration;

use crate::harness::Latencies;

/// A subscriber that does not take its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stalled {
    /// There is none: the quiet figure.
    Absent,
    /// It drops what comes.
    DropNewest,
    /// It drops what waits.
    DropOldest,
}

/// What a message weighs that is delivered and not settled, the message itself not counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseBytes {
    /// While its first lease runs.
    pub(crate) leased: f64,
    /// After its deadline was moved.
    pub(crate) extended: f64,
}

/// When a record is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Synced {
    /// When its publish returns.
    Each,
    /// When the system wants it.
    Never,
}

/// Memory for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// As much as in the other sections: what is written fits into a cache of the processor.
    Small,
    /// What users have who ask for nothing.
    Default,
}

/// How records are stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored<'a> {
    /// Emptied before.
    pub(crate) dir: &'a Path,
    pub(crate) batch: usize,
    pub(crate) sync: Synced,
    pub(crate) memory: Memory,
}

/// Our side of the comparisons.
pub(crate) trait Side: Sync {
    /// A: one publisher, one pull consumer, `batch` messages a publish, `len` bytes each.
    fn one_to_one(&self, messages: u64, batch: usize, len: usize) -> Duration;

    /// A8, G3: as above with a handler subscription, batches of 64; for G3 of messages that are
    /// described as C describes them.
    fn to_handler(&self, messages: u64, described: bool) -> Duration;

    /// F1: the same for a handler whose messages are delivered at least once: its return settles
    /// each, in order. Nothing blocks the publisher then, so it waits while [`CAPACITY`] messages are
    /// not handled.
    ///
    /// [`CAPACITY`]: crate::harness::CAPACITY
    fn to_settling_handler(&self, messages: u64) -> Duration;

    /// A9: `producers` threads, not pinned, share `messages` into one topic; one consumer checks
    /// that each producer's numbers rise.
    fn many_producers(&self, messages: u64, producers: u64) -> Duration;

    /// A10: loans of `len` bytes, only both ends written, one pull consumer.
    fn loans(&self, messages: u64, len: usize) -> Duration;

    /// B: `subscribers` subscriptions drained by one thread, `batch` messages a publish, beside
    /// `strangers` other subscriptions whose patterns do not match.
    fn fan_out(&self, messages: u64, subscribers: u64, batch: usize, strangers: u64) -> Duration;

    /// B9: single publishes on the calling thread; with `filter`, the only subscription has an
    /// attribute filter that rejects all of them, else there is no subscription.
    fn rejected(&self, messages: u64, filter: bool) -> Duration;

    /// B10: one publisher, one pull consumer, batches of 64, beside a stalled subscription.
    fn beside_stalled(&self, messages: u64, stalled: Stalled) -> Duration;

    /// C1 to C3: a ping topic and a pong topic, both consumers spin.
    fn ping_pong(&self, rounds: u64) -> Latencies;

    /// C4: from the publish to the return of a parked `recv` on the other processor.
    fn wake(&self, rounds: u64) -> Latencies;

    /// C5: the time of each single publish into a subscription that drops; with `churn`, another
    /// thread subscribes and unsubscribes that many times a second all the while.
    fn publish_times(&self, publishes: u64, churn: u64) -> Latencies;

    /// F2: receives `leases` messages, then acknowledges them in random order, `batch` a call. The time
    /// of the latter.
    fn ack_randomly(&self, leases: u64, batch: usize) -> Duration;

    /// F3: resident bytes for each of `leases` messages, by what has become of it.
    fn lease_bytes(&self, leases: u64) -> LeaseBytes;

    /// F4: the time of each single publish beside a subscription that has received `leases` messages;
    /// with `expired`, all of them expire and are delivered again all the while, else nothing happens
    /// to them.
    fn publish_beside_leases(&self, publishes: u64, leases: u64, expired: bool) -> Latencies;

    /// E1 to E3, E6, E7: publishes `records`, whole batches, nobody subscribes.
    fn store(&self, how: &Stored<'_>, records: u64) -> Duration;

    /// E8 to E11: fills the directory, emptied before, with so many records.
    fn fill(&self, dir: &Path, records: u64);

    /// E8, E9: a subscription that reads the `records` in the directory; `prepare` is called between
    /// opening that and reading.
    fn replay(&self, dir: &Path, records: u64, prepare: &dyn Fn()) -> Duration;

    /// E10: a process that opens the directory, publishes one message and ends without closing it. The
    /// time of opening it.
    fn reopen_elsewhere(&self, dir: &Path) -> Duration;

    /// What that process does, at the end of which it prints nanoseconds. Never returns.
    fn reopen(&self, dir: &Path) -> !;

    /// E11: single publishes beside a subscription that begins with the oldest record there is, or with
    /// the next one.
    fn publish_beside_reader(&self, dir: &Path, publishes: u64, lags: bool) -> Duration;

    /// D: a routing table over the patterns, built in bulk; the index is the subscription's id.
    fn router(&self, patterns: &[String]) -> Box<dyn Router>;

    /// G3: how long a handler takes to empty its queue, which a thread on the same processor fills,
    /// again and again, before it lets go of it.
    #[cfg_attr(not(native), expect(dead_code, reason = "its section needs the C library"))]
    fn drain_by_handler(&self, messages: u64) -> Duration;

    /// G1 to G3: a pinned thread fills the queue of one subscription, `batch` messages a publish,
    /// and empties it by polls of 256, again and again. Batches are of messages that are described as
    /// C describes them. Times of both.
    #[cfg_attr(not(native), expect(dead_code, reason = "its section needs the C library"))]
    fn boundary(&self, messages: u64, batch: usize) -> (Duration, Duration);

    /// D7: single publishes to one topic and polls of its one subscription on the calling thread,
    /// beside the strangers' `patterns`.
    fn hot_publishes(&self, publishes: u64, patterns: &[String]) -> Duration;
}

/// A routing structure: ours and its peers.
pub(crate) trait Router {
    /// How many subscriptions match the topic.
    fn matches(&self, topic: &str) -> usize;

    /// Adds one subscription; when it returns, the next `matches` sees it.
    fn subscribe(&mut self, pattern: &str, id: u32);
}
