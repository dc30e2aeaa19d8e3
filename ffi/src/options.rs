//! Options: structs that say their own size, so that they can grow.
#![expect(unsafe_code, reason = "exported names, and structs that are filled byte by byte")]

use crate::callback::{User, slipring_filter_fn, slipring_log_fn, slipring_user_free_fn};
use crate::handle::Versioned;
use crate::last_error::Failure;
use crate::log::{Log, slipring_log_level};
use crate::message::slipring_text_view;
use crate::panic::entry;
use crate::status::slipring_status;
use slipring_core::{
    BrokerBuilder, CircuitBreaker, Overflow, Sequencer, Start, WaitStrategy, WhenFull,
};
use std::ffi::{c_char, c_void};
use std::num::NonZeroUsize;
use std::ptr;
use std::time::Duration;

/// No limit of time (SLIPRING_FOREVER in the header).
const FOREVER: u64 = u64::MAX;

/// A time of the caller; `None` for no limit.
pub(crate) fn time(ns: u64) -> Option<Duration> {
    (ns != FOREVER).then(|| Duration::from_nanos(ns))
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

/// What happens to messages while a subscription's queue is full. Whatever is dropped is told as an
/// exact number, in stream order.
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

/// Where a new subscription begins.
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
    /// How many shards put messages in order independently of each other: 1 to 64. Default 1.
    pub shards: u32,
    /// Memory for messages, over all shards: at least 1 MiB a shard. Default 64 MiB.
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
    /// Not used: 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, a `u32` first, integers, pointers and functions that may be NULL; a bit
// pattern that is no function is the caller's breach.
unsafe impl Versioned for slipring_broker_options {
    const FIRST_BYTES: usize = 56;

    fn defaults() -> Self {
        Self {
            struct_size: size_of::<Self>() as u32,
            shards: 1,
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
            reserved: 0,
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
        if self.workers > 0 {
            builder = builder.workers(self.workers as usize);
        }
        if self.pin_workers != 0 {
            builder = builder.pin_workers(self.workers_first_cpu as usize);
        }
        Ok(builder
            .shards(self.shards as usize)
            .memory_budget(size(self.memory_budget_bytes))
            .payload_limit(size(self.payload_limit_bytes))
            .default_partitions(self.default_partitions as usize)
            .auto_create(self.create_topics != 0)
            .when_full(when_full)
            .sequencer(sequencer))
    }
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
    /// A `slipring_overflow`. Default SLIPRING_DROP_NEWEST.
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
        }
    }
}

const _: () = assert!(
    size_of::<slipring_broker_options>() >= slipring_broker_options::FIRST_BYTES
        && size_of::<slipring_subscription_options>() == slipring_subscription_options::FIRST_BYTES,
    "an option was added: FIRST_BYTES stays, and its == becomes >="
);

impl slipring_subscription_options {
    pub(crate) fn overflow(&self) -> Result<Overflow, Failure> {
        Ok(match (self.overflow, time(self.overflow_ns)) {
            (0, _) => Overflow::DropNewest,
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
        })
    }

    pub(crate) fn start(&self) -> Result<Start, Failure> {
        Ok(match self.start {
            0 => Start::Now,
            1 => Start::Earliest,
            2 => Start::Last(size(self.start_value)),
            3 => Start::Offset(self.start_value),
            4 => Start::Time(self.start_value),
            other => return Err(unknown("start", other)),
        })
    }

    pub(crate) fn wait(&self) -> Result<WaitStrategy, Failure> {
        Ok(match self.wait {
            0 => WaitStrategy::Adaptive,
            1 => WaitStrategy::BusySpin,
            2 => WaitStrategy::Yield,
            3 => WaitStrategy::Park,
            other => return Err(unknown("wait", other)),
        })
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
