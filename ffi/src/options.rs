//! Options: structs that say their own size, so that they can grow.
#![expect(unsafe_code, reason = "exported names, and structs that are filled byte by byte")]

use crate::callback::{User, slipring_filter_fn, slipring_log_fn, slipring_user_free_fn};
use crate::clock::slipring_test_clock;
use crate::handle::Versioned;
use crate::last_error::Failure;
use crate::log::{Log, slipring_log_level};
use crate::message::slipring_text_view;
use crate::panic::entry;
use crate::status::slipring_status;
use slipring_core::store::{DiskStore, DiskStoreBuilder, OnDamage, SyncPolicy};
use slipring_core::{
    Backoff, BrokerBuilder, CircuitBreaker, DeliveryMode, Overflow, Sequencer, Start, TopicConfig,
    WaitStrategy, WhenFull,
};
use std::ffi::{c_char, c_void};
use std::num::NonZeroUsize;
use std::ptr;
use std::time::Duration;

/// No limit of time (SLIPRING_FOREVER in the header).
pub(crate) const FOREVER: u64 = u64::MAX;

/// A time of the caller; `None` for no limit.
pub(crate) fn time(ns: u64) -> Option<Duration> {
    (ns != FOREVER).then(|| Duration::from_nanos(ns))
}

/// The other way round, where what is longer than 584 years is as long as that.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(FOREVER)
}

/// What a publish does when the memory budget is used up.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_enums, reason = "C has no others")]
#[repr(u32)]
pub enum slipring_when_full {
    /// The oldest messages expire; who had not read them is told how many were lost.
    SLIPRING_EXPIRE = 0,
    /// The publish is refused (EFULL) while the oldest messages are still queued for somebody.
    SLIPRING_REFUSE = 1,
}

/// Who puts a shard's messages in order and hands them to subscriptions.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_enums, reason = "C has no others")]
#[repr(u32)]
pub enum slipring_sequencer {
    /// The publishers themselves.
    SLIPRING_PUBLISHERS = 0,
    /// A thread per shard, pinned to allowed CPUs from `sequencer_first_cpu` on.
    SLIPRING_PINNED = 1,
}

/// When a message that was published counts as stored, in a broker with a directory. Under none of
/// them does a killed process lose anything; they differ in what a power cut may take.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_enums, reason = "C has no others")]
#[repr(u32)]
pub enum slipring_sync {
    /// When the disk has it. Whoever waits at the same time shares one sync.
    SLIPRING_SYNC_ALWAYS = 0,
    /// When the operating system has it; the disk follows every `sync_interval_ns`.
    SLIPRING_SYNC_INTERVAL = 1,
    /// When the operating system has it; it decides when the disk follows.
    SLIPRING_SYNC_OS = 2,
}

/// What to do where the end of a log has other bytes than were written.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_enums, reason = "C has no others")]
#[repr(u32)]
pub enum slipring_on_damage {
    /// The shard can only be read: publishing to it fails with ESTORE.
    SLIPRING_DAMAGE_REFUSE = 0,
    /// It goes on behind it. The damage stays as it is, and reading tells of it as a loss.
    SLIPRING_DAMAGE_SKIP = 1,
}

/// When a message counts as delivered.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_enums, reason = "C has no others")]
#[repr(u32)]
pub enum slipring_delivery {
    /// When it is acknowledged, goes to the dead letters, or has expired from memory: until then it
    /// is delivered again, after a time or a failure. Nothing is dropped while a queue is full: the
    /// subscription reads the log until it has caught up.
    SLIPRING_AT_LEAST_ONCE = 0,
    /// When it is handed over. What happens while a queue is full, `overflow` says.
    SLIPRING_AT_MOST_ONCE = 1,
}

/// What happens to messages while a subscription's queue is full, where they are delivered at most
/// once. Whatever is dropped is told as an exact number, in stream order.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_enums, reason = "C has no others")]
#[repr(u32)]
pub enum slipring_overflow {
    /// The new message is dropped.
    SLIPRING_DROP_NEWEST = 0,
    /// The oldest message that is queued is dropped.
    SLIPRING_DROP_OLDEST = 1,
    /// The publisher waits until there is room; after `overflow_ns` the message is dropped.
    SLIPRING_BLOCK = 2,
    /// New messages are dropped, and a subscription whose queue has been full for longer than
    /// `overflow_ns` is disconnected.
    SLIPRING_DISCONNECT = 3,
}

/// Where a new subscription begins, or goes on when it seeks.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_enums, reason = "C has no others")]
#[repr(u32)]
pub enum slipring_start {
    /// With the first message published after subscribing has returned.
    SLIPRING_START_NOW = 0,
    /// With the oldest message still retained.
    SLIPRING_START_EARLIEST = 1,
    /// With the last `start_value` retained messages that match.
    SLIPRING_START_LAST = 2,
    /// In every matching partition, with the message at the offset `start_value`.
    SLIPRING_START_OFFSET = 3,
    /// With the first message published at or after `start_value`, in microseconds since the Unix
    /// epoch.
    SLIPRING_START_TIME = 4,
}

/// How a consumer waits for the next message.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_enums, reason = "C has no others")]
#[repr(u32)]
pub enum slipring_wait_strategy {
    /// Spins as long as that has lately been worth it, then yields, then parks.
    SLIPRING_WAIT_ADAPTIVE = 0,
    /// Spins and never gives the core away.
    SLIPRING_WAIT_BUSY_SPIN = 1,
    /// Spins a little, then yields to other threads again and again.
    SLIPRING_WAIT_YIELD = 2,
    /// Parks at once.
    SLIPRING_WAIT_PARK = 3,
}

/// Settings of a broker. Fill it with `slipring_broker_options_init` first.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_broker_options {
    /// Set by `slipring_broker_options_init`.
    pub struct_size: u32,
    /// How many shards put messages in order independently of each other: 1 to 64. Default 0: 1, or
    /// as many as the directory was made with, which is refused under another number.
    pub shards: u32,
    /// Memory for messages, over all shards: at least 256 KiB a shard. Default 64 MiB.
    pub memory_budget_bytes: u64,
    /// Bytes that a payload may have, up to 64 MiB. Default 10 MiB.
    pub payload_limit_bytes: u64,
    /// Partitions of topics that are created by publishing: 1 to 1024. Default 1.
    pub default_partitions: u32,
    /// Delivery workers, which are started with the first handler: 1 to 256. Default 0: as many as
    /// CPUs, and at most 4.
    pub workers: u32,
    /// Not 0: publishing to a topic that does not exist creates it. Default 1.
    pub create_topics: u32,
    /// A `slipring_when_full`. Default SLIPRING_EXPIRE.
    pub when_full: u32,
    /// A `slipring_sequencer`. Default SLIPRING_PUBLISHERS.
    pub sequencer: u32,
    /// For SLIPRING_PINNED: index into the allowed CPUs.
    pub sequencer_first_cpu: u32,
    /// Not 0: delivery workers are pinned to allowed CPUs from `workers_first_cpu` on. Default 0.
    pub pin_workers: u32,
    /// Index into the allowed CPUs.
    pub workers_first_cpu: u32,
    /// Is told the events of this broker: failures of handlers, disconnected subscriptions, its
    /// end, and what else nobody is told of; never a message. Default NULL.
    ///
    /// It is called where the event happens, on any thread and on several at a time, also while a
    /// shard is held: it must be quick, and calls of the broker from inside it are refused with
    /// EFILTERING. It may be called until `log_user_free` is.
    pub log_fn: slipring_log_fn,
    /// Handed to `log_fn`.
    pub log_user: *mut c_void,
    /// Lets go of `log_user`; may be NULL. Called exactly once for every open call that was given
    /// it, also where that fails, and after the last call of `log_fn`: on any thread, some time
    /// after the broker and all handles that came from it are gone. It must not call the broker
    /// either.
    pub log_user_free: slipring_user_free_fn,
    /// A `slipring_log_level`: what matters less is not told. Default SLIPRING_LOG_INFO.
    pub log_level: u32,
    /// For a directory: a `slipring_sync`. Default SLIPRING_SYNC_ALWAYS.
    pub sync: u32,
    /// A directory, which is made if need be: what is published, topics, and named subscriptions that
    /// deliver at least once are kept there, and are there again when it is opened the next time, also
    /// after a crash. It belongs to one broker at a time. Default NULL: a broker in memory.
    pub dir: *const c_char,
    /// Its length in bytes.
    pub dir_len: usize,
    /// For SLIPRING_SYNC_INTERVAL. Default 100 ms.
    pub sync_interval_ns: u64,
    /// How long messages of topics that are created by publishing are kept in the directory;
    /// SLIPRING_FOREVER for ever. Default 7 days.
    pub retention_ns: u64,
    /// How many bytes of them are kept, for each topic. Default 0: any number.
    pub retention_bytes: u64,
    /// For a directory: a `slipring_on_damage`. Default SLIPRING_DAMAGE_REFUSE.
    pub on_damage: u32,
    /// Not used: 0.
    pub reserved: u32,
    /// For topics that are created by publishing: see `slipring_broker_set_dedup_window`. Default 0.
    pub dedup_window_ns: u64,
    /// Likewise. Default 0.
    pub dedup_ids: u64,
    /// For a directory: bytes that are kept free on the disk for what must go on when it is full:
    /// opening, acknowledging, deleting. 0 to 2^40; 0 keeps nothing. They are taken with the first
    /// message; on a small disk, at most an eighth of it. Default 64 MiB.
    pub reserve_bytes: u64,
    /// For a directory: bytes after which a shard begins another file, 64 KiB to 1 GiB; on a small disk
    /// at most an eighth of it, for all shards. What expires gives its room back by whole files.
    /// Default 64 MiB.
    pub segment_bytes: u64,
    /// For a directory: bytes of a file that are reserved on the disk at once, 0 to 1 GiB; on a small
    /// disk at most an eighth of it, for all shards. With as many as a file has and
    /// SLIPRING_SYNC_ALWAYS, they are written with zeros ahead, which makes syncs of much at once
    /// faster and a new directory slower. Default 32 MiB.
    pub preallocate_bytes: u64,
    /// For a directory: age at which a shard begins another file, so that what is in one can expire
    /// though little is published. Default 21 hours.
    pub segment_age_ns: u64,
    /// For tests: the clock of the broker, which moves when it is told to; it may be freed before the
    /// broker. Default NULL: the machine's.
    pub clock: *const slipring_test_clock,
}

// SAFETY: `repr(C)`, a `u32` first, integers, pointers and functions that may be NULL; a bit
// pattern that is no function is the caller's breach.
unsafe impl Versioned for slipring_broker_options {
    const FIRST_BYTES: usize = 56;

    fn defaults() -> Self {
        Self {
            struct_size: size_of::<Self>() as u32,
            shards: 0,
            memory_budget_bytes: 64 << 20,
            payload_limit_bytes: 10 << 20,
            default_partitions: 1,
            workers: 0,
            create_topics: 1,
            when_full: slipring_when_full::SLIPRING_EXPIRE as u32,
            sequencer: slipring_sequencer::SLIPRING_PUBLISHERS as u32,
            sequencer_first_cpu: 0,
            pin_workers: 0,
            workers_first_cpu: 0,
            log_fn: None,
            log_user: ptr::null_mut(),
            log_user_free: None,
            log_level: slipring_log_level::SLIPRING_LOG_INFO as u32,
            sync: slipring_sync::SLIPRING_SYNC_ALWAYS as u32,
            dir: ptr::null(),
            dir_len: 0,
            sync_interval_ns: 100_000_000,
            retention_ns: 7 * 24 * 3600 * 1_000_000_000,
            retention_bytes: 0,
            on_damage: slipring_on_damage::SLIPRING_DAMAGE_REFUSE as u32,
            reserved: 0,
            dedup_window_ns: 0,
            dedup_ids: 0,
            reserve_bytes: 64 << 20,
            segment_bytes: 64 << 20,
            preallocate_bytes: 32 << 20,
            segment_age_ns: 21 * 3600 * 1_000_000_000,
            clock: ptr::null(),
        }
    }
}

fn unknown(what: &str, value: u32) -> Failure {
    Failure::error(
        slipring_status::SLIPRING_ERANGE,
        format_args!("{what}: {value} is none that this library knows"),
    )
}

/// Numbers that do not fit are out of every range.
fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

impl slipring_broker_options {
    /// Takes the log's user data; to be called once.
    pub(crate) fn log(&self) -> Result<Log, Failure> {
        let user = User::new(self.log_user, self.log_user_free);
        Log::new(self.log_fn, self.log_level, user)
            .ok_or_else(|| unknown("log_level", self.log_level))
    }

    pub(crate) fn apply(&self, mut builder: BrokerBuilder) -> Result<BrokerBuilder, Failure> {
        let when_full = match self.when_full {
            0 => WhenFull::Expire,
            1 => WhenFull::Refuse,
            other => return Err(unknown("when_full", other)),
        };
        let sequencer = match self.sequencer {
            0 => Sequencer::Publishers,
            1 => Sequencer::Pinned { first: self.sequencer_first_cpu as usize },
            other => return Err(unknown("sequencer", other)),
        };
        if self.shards > 0 {
            builder = builder.shards(self.shards as usize);
        }
        if self.workers > 0 {
            builder = builder.workers(self.workers as usize);
        }
        if self.pin_workers != 0 {
            builder = builder.pin_workers(self.workers_first_cpu as usize);
        }
        Ok(builder
            .memory_budget(size(self.memory_budget_bytes))
            .payload_limit(size(self.payload_limit_bytes))
            .default_topic(deduplicating(
                retaining(TopicConfig::default(), self.retention_ns, self.retention_bytes)
                    .partitions(self.default_partitions as usize),
                self.dedup_window_ns,
                self.dedup_ids,
            ))
            .disk(self.disk()?)
            .auto_create(self.create_topics != 0)
            .when_full(when_full)
            .sequencer(sequencer))
    }
}

impl slipring_broker_options {
    /// How messages are kept in the directory.
    fn disk(&self) -> Result<DiskStoreBuilder, Failure> {
        let sync = match self.sync {
            0 => SyncPolicy::Always,
            1 => SyncPolicy::Interval(Duration::from_nanos(self.sync_interval_ns)),
            2 => SyncPolicy::Os,
            other => return Err(unknown("sync", other)),
        };
        let on_damage = match self.on_damage {
            0 => OnDamage::Refuse,
            1 => OnDamage::Skip,
            other => return Err(unknown("on_damage", other)),
        };
        Ok(DiskStore::builder()
            .sync(sync)
            .on_damage(on_damage)
            .reserve_bytes(self.reserve_bytes)
            .segment_bytes(self.segment_bytes)
            .preallocate_bytes(self.preallocate_bytes)
            .segment_age(Duration::from_nanos(self.segment_age_ns)))
    }
}

/// Those settings, with what the caller's numbers say of how long messages are kept.
pub(crate) fn retaining(
    config: TopicConfig,
    retention_ns: u64,
    retention_bytes: u64,
) -> TopicConfig {
    config
        .retention(time(retention_ns))
        .retention_bytes((retention_bytes > 0).then_some(retention_bytes))
}

/// The same of which messages are stored once.
pub(crate) fn deduplicating(config: TopicConfig, window_ns: u64, ids: u64) -> TopicConfig {
    config
        .dedup_window((window_ns > 0).then(|| Duration::from_nanos(window_ns)))
        .dedup_ids((ids > 0).then(|| size(ids)))
}

/// Fills the options of a broker with the defaults; `struct_size` is `sizeof *options`. Errors:
/// EINVAL, also for a size that this library does not know. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_options_init(
    options: *mut slipring_broker_options,
    struct_size: usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { entry(|c| c.init(options, struct_size, "options")) }
}

/// Settings of a subscription. Fill it with `slipring_subscription_options_init` first.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_subscription_options {
    /// Set by `slipring_subscription_options_init`.
    pub struct_size: u32,
    /// A `slipring_overflow`. Default SLIPRING_DROP_NEWEST. Another is only for
    /// SLIPRING_AT_MOST_ONCE, and ERANGE without it.
    pub overflow: u32,
    /// For SLIPRING_BLOCK and SLIPRING_DISCONNECT. Default SLIPRING_FOREVER, which
    /// SLIPRING_DISCONNECT does not take.
    pub overflow_ns: u64,
    /// Messages that can be queued, from each shard: 1 to 2^24. Default 1024.
    pub capacity_messages: u64,
    /// A `slipring_start`. Default SLIPRING_START_NOW.
    pub start: u32,
    /// A `slipring_wait_strategy`. Default SLIPRING_WAIT_ADAPTIVE.
    pub wait: u32,
    /// What `start` says.
    pub start_value: u64,
    /// A name, unique in the broker: 1 to 255 of `[A-Za-z0-9._~+%-]`. Default NULL: none.
    ///
    /// A subscription that has a name and delivers at least once lives as long as the broker, or its
    /// directory: when its handle is freed it goes on without a consumer, and the next that
    /// subscribes under the name gets all that was published in between, as far as it is retained,
    /// and all that was not settled. It goes on where it was, whatever start is asked for, and keeps
    /// the filter and the other settings that it was made with: to ask for another value is refused
    /// with EINUSE, but a default asks for nothing.
    pub name: *const c_char,
    /// Its length.
    pub name_len: usize,
    /// More patterns. A message that several patterns match comes once. Default NULL.
    pub patterns: *const slipring_text_view,
    /// How many.
    pub patterns_len: usize,
    /// Only messages whose attributes match this expression are wanted. Default NULL: all.
    pub filter: *const c_char,
    /// Its length.
    pub filter_len: usize,
    /// Only messages for which this function says so are wanted; not together with `filter`.
    /// Default NULL.
    ///
    /// It is called on publishing threads, and in a replay on those that subscribe or receive, on
    /// several at a time, while a shard is held: it must be quick, and calls of the broker from
    /// inside it are refused with EFILTERING. It may be called until `filter_user_free` is.
    pub filter_fn: slipring_filter_fn,
    /// Handed to `filter_fn`.
    pub filter_user: *mut c_void,
    /// Lets go of `filter_user`; may be NULL. Called exactly once for every subscribe call that was
    /// given it, also where that fails, and after the last call of `filter_fn`: on any thread, some
    /// time after the subscription is gone. It must not call the broker either.
    pub filter_user_free: slipring_user_free_fn,
    /// For handlers. Not 0: a thread of its own instead of the shared workers. Default 0.
    pub dedicated_thread: u32,
    /// For handlers: consecutive failures after which deliveries pause. Default 0: never.
    pub breaker_failures: u32,
    /// How long they pause before one is tried.
    pub breaker_cool_down_ns: u64,
    /// A `slipring_delivery`. Default SLIPRING_AT_LEAST_ONCE, for which is what follows.
    pub delivery: u32,
    /// Not 0: takes the place of the consumer that the subscription `name` has, which gets
    /// DISCONNECTED; what that has not settled is delivered anew, and a handler in its place is
    /// unsubscribed. Default 0: EINUSE.
    pub take_over: u32,
    /// How long the consumer has to settle a message before it is delivered again: 10 ms to 600 s.
    /// Default 10 s. `slipring_extend` is for one message; a handler has its message for as long as
    /// it runs.
    pub visibility_timeout_ns: u64,
    /// How long a message that failed waits for its second attempt. Doubled for each one after that.
    /// Default 100 ms.
    pub backoff_min_ns: u64,
    /// What that is doubled up to, at most 24 hours. Default 60 s.
    pub backoff_max_ns: u64,
    /// Not 0: each of these pauses is shortened by a random part of up to a half. Default 0.
    pub backoff_jitter: u32,
    /// How often a message is delivered before it goes to the dead letters: 1 to 65535. Default 5.
    pub max_delivery_attempts: u32,
    /// Messages that can be received and not settled: 1 to 2^24, some 40 bytes each. At the limit,
    /// none is delivered until one is settled. Default 65536.
    pub max_outstanding: u64,
    /// Not 0: messages overtake an earlier one of the same ordering key that has failed. Default 0:
    /// they wait until that is settled.
    pub keys_overtake: u32,
    /// Not used: 0.
    pub reserved: u32,
    /// The topic that dead letters go to, made if need be. Default NULL: `$dlq/` and `name`, or
    /// `unnamed-` and the subscription's number where it has none.
    pub dead_letter_topic: *const c_char,
    /// Its length.
    pub dead_letter_topic_len: usize,
}

// SAFETY: `repr(C)`, a `u32` first, integers, pointers and functions that may be NULL; a bit
// pattern that is no function is the caller's breach.
unsafe impl Versioned for slipring_subscription_options {
    const FIRST_BYTES: usize = 128;

    fn defaults() -> Self {
        Self {
            struct_size: size_of::<Self>() as u32,
            overflow: slipring_overflow::SLIPRING_DROP_NEWEST as u32,
            overflow_ns: FOREVER,
            capacity_messages: 1024,
            start: slipring_start::SLIPRING_START_NOW as u32,
            wait: slipring_wait_strategy::SLIPRING_WAIT_ADAPTIVE as u32,
            start_value: 0,
            name: ptr::null(),
            name_len: 0,
            patterns: ptr::null(),
            patterns_len: 0,
            filter: ptr::null(),
            filter_len: 0,
            filter_fn: None,
            filter_user: ptr::null_mut(),
            filter_user_free: None,
            dedicated_thread: 0,
            breaker_failures: 0,
            breaker_cool_down_ns: 0,
            delivery: number_of(DeliveryMode::default()),
            take_over: 0,
            visibility_timeout_ns: 10_000_000_000,
            backoff_min_ns: 100_000_000,
            backoff_max_ns: 60_000_000_000,
            backoff_jitter: 0,
            max_delivery_attempts: 5,
            max_outstanding: 1 << 16,
            keys_overtake: 0,
            reserved: 0,
            dead_letter_topic: ptr::null(),
            dead_letter_topic_len: 0,
        }
    }
}

/// The number of a delivery mode.
pub(crate) fn number_of(delivery: DeliveryMode) -> u32 {
    let number = match delivery {
        DeliveryMode::AtLeastOnce => slipring_delivery::SLIPRING_AT_LEAST_ONCE,
        DeliveryMode::AtMostOnce => slipring_delivery::SLIPRING_AT_MOST_ONCE,
    };
    number as u32
}

/// A place in the stream, as a `slipring_start` and its value.
pub(crate) fn start(start: u32, value: u64) -> Result<Start, Failure> {
    Ok(match start {
        0 => Start::Now,
        1 => Start::Earliest,
        2 => Start::Last(size(value)),
        3 => Start::Offset(value),
        4 => Start::Time(value),
        other => return Err(unknown("start", other)),
    })
}

const _: () = assert!(
    size_of::<slipring_broker_options>() >= slipring_broker_options::FIRST_BYTES
        && size_of::<slipring_subscription_options>() >= slipring_subscription_options::FIRST_BYTES,
    "options are added at the end, and FIRST_BYTES stays"
);

/// The strategy of this number.
pub(crate) fn wait(strategy: u32) -> Result<WaitStrategy, Failure> {
    Ok(match strategy {
        0 => WaitStrategy::Adaptive,
        1 => WaitStrategy::BusySpin,
        2 => WaitStrategy::Yield,
        3 => WaitStrategy::Park,
        other => return Err(unknown("wait", other)),
    })
}

impl slipring_subscription_options {
    /// `None` for the default, which is right for each delivery mode.
    pub(crate) fn overflow(&self) -> Result<Option<Overflow>, Failure> {
        Ok(Some(match (self.overflow, time(self.overflow_ns)) {
            (0, _) => return Ok(None),
            (1, _) => Overflow::DropOldest,
            (2, timeout) => Overflow::Block { timeout },
            (3, Some(after)) => Overflow::Disconnect { after },
            (3, None) => {
                return Err(Failure::error(
                    slipring_status::SLIPRING_ERANGE,
                    "overflow_ns: SLIPRING_DISCONNECT needs a time",
                ));
            }
            (other, _) => return Err(unknown("overflow", other)),
        }))
    }

    pub(crate) fn start(&self) -> Result<Start, Failure> {
        start(self.start, self.start_value)
    }

    pub(crate) fn delivery(&self) -> Result<DeliveryMode, Failure> {
        match self.delivery {
            0 => Ok(DeliveryMode::AtLeastOnce),
            1 => Ok(DeliveryMode::AtMostOnce),
            other => Err(unknown("delivery", other)),
        }
    }

    pub(crate) fn backoff(&self) -> Backoff {
        let [min, max] = [self.backoff_min_ns, self.backoff_max_ns].map(Duration::from_nanos);
        let backoff = Backoff::new(min, max);
        if self.backoff_jitter != 0 { backoff.jitter() } else { backoff }
    }

    pub(crate) fn max_outstanding(&self) -> usize {
        size(self.max_outstanding)
    }

    pub(crate) fn capacity(&self) -> usize {
        size(self.capacity_messages)
    }

    pub(crate) fn breaker(&self) -> Option<CircuitBreaker> {
        Some(CircuitBreaker {
            failures: NonZeroUsize::new(self.breaker_failures as usize)?,
            cool_down: Duration::from_nanos(self.breaker_cool_down_ns),
        })
    }
}

/// Fills the options of a subscription with the defaults; `struct_size` is `sizeof *options`.
/// Errors: EINVAL, also for a size that this library does not know. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_subscription_options_init(
    options: *mut slipring_subscription_options,
    struct_size: usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { entry(|c| c.init(options, struct_size, "options")) }
}
