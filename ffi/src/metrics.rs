//! Figures.
#![expect(unsafe_code, reason = "exported names")]

use crate::broker::{slipring_broker, with_name};
use crate::last_error::Failure;
use crate::panic::entry;
use crate::status::slipring_status;
use crate::text::slipring_text;
use slipring_core::{BreakerState, Metrics, SubscriptionMetrics};
use std::ffi::c_char;

/// Figures of a broker. It may grow: say its size.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_metrics {
    /// Bytes of message memory in use: retained, queued or kept by somebody.
    pub chunk_bytes: u64,
    /// The memory budget.
    pub budget_bytes: u64,
    /// Messages published.
    pub published: u64,
    /// Messages that are retained, and can be replayed.
    pub retained: u64,
    /// Bytes that hold them.
    pub retained_bytes: u64,
    /// Messages that have expired from memory.
    pub expired: u64,
    /// Bytes of the index from sequence to message.
    pub index_bytes: u64,
    /// How many shards.
    pub shards: u64,
    /// How many topics.
    pub topics: u64,
    /// How many subscriptions.
    pub subscriptions: u64,
    /// Bytes of messages in the directory, without room that is reserved there. Like those that
    /// follow, 0 in memory.
    pub stored_bytes: u64,
    /// Messages in the directory.
    pub stored: u64,
    /// Messages that a power cut would take now: published, and not synced.
    pub unsynced: u64,
}

impl From<&Metrics> for slipring_metrics {
    fn from(metrics: &Metrics) -> Self {
        let shards = &metrics.shards;
        Self {
            chunk_bytes: metrics.chunk_bytes,
            budget_bytes: metrics.budget_bytes,
            published: shards.iter().map(|shard| shard.published).sum(),
            retained: shards.iter().map(|shard| shard.retained).sum(),
            retained_bytes: shards.iter().map(|shard| shard.retained_bytes).sum(),
            expired: shards.iter().map(|shard| shard.expired).sum(),
            index_bytes: shards.iter().map(|shard| shard.index_bytes).sum(),
            shards: shards.len() as u64,
            topics: metrics.topics.len() as u64,
            subscriptions: metrics.subscriptions.len() as u64,
            stored_bytes: shards.iter().map(|shard| shard.stored_bytes).sum(),
            stored: shards.iter().map(|shard| shard.stored).sum(),
            unsynced: shards.iter().map(|shard| shard.unsynced).sum(),
        }
    }
}

/// Figures of a shard. It may grow: say its size.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_shard_metrics {
    /// Messages published to it.
    pub published: u64,
    /// Messages that are retained, and can be replayed.
    pub retained: u64,
    /// Bytes that hold them.
    pub retained_bytes: u64,
    /// Messages that have expired from memory.
    pub expired: u64,
    /// Bytes of the index from sequence to message.
    pub index_bytes: u64,
    /// Bytes of messages in the directory, without room that is reserved there. Like those that
    /// follow, 0 in memory.
    pub stored_bytes: u64,
    /// Messages in the directory.
    pub stored: u64,
    /// Messages that a power cut would take now: published, and not synced.
    pub unsynced: u64,
}

/// Figures of a topic. It may grow: say its size.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_topic_metrics {
    /// Messages published to it.
    pub published: u64,
    /// Messages that were not stored because they were published before, within its dedup window,
    /// counted since the broker began. They are not among `published`.
    pub duplicates: u64,
}

/// Figures of a subscription. It may grow: say its size. At rest, `matched + replayed = delivered +
/// dropped_newest + dropped_oldest + dropped_timeout + expired + discarded + queued`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_subscription_metrics {
    /// Its number.
    pub id: u64,
    /// Messages published since it began that it wanted.
    pub matched: u64,
    /// Messages from before it began that it was to get.
    pub replayed: u64,
    /// Messages handed to the consumer or handler.
    pub delivered: u64,
    /// Dropped on arrival because the queue was full.
    pub dropped_newest: u64,
    /// Dropped from the queue to make room.
    pub dropped_oldest: u64,
    /// Dropped after their publisher had waited long enough.
    pub dropped_timeout: u64,
    /// Expired from memory before they were delivered.
    pub expired: u64,
    /// Thrown away when the subscription ended.
    pub discarded: u64,
    /// Queued now.
    pub queued: u64,
    /// How far it is behind the end of the logs while it catches up.
    pub lag: u64,
    /// The oldest message queued is not older than this, in microseconds; UINT64_MAX if none is.
    pub oldest_age_us: u64,
    /// Messages that the handler failed on.
    pub handler_failures: u64,
    /// The handler's circuit breaker: 0 closed, 1 open, 2 half open.
    pub breaker: u64,
    /// Messages that were delivered and are not settled, those that wait for another attempt or for
    /// an earlier one of their key included. Like those that follow, 0 where messages are delivered
    /// at most once.
    pub unsettled: u64,
    /// Messages that were acknowledged, or that the handler has succeeded with.
    pub acked: u64,
    /// Deliveries after the first of a message. They are not among `delivered`.
    pub redelivered: u64,
    /// Messages that went to the dead letters.
    pub dead_lettered: u64,
    /// Messages that expired from memory after they were delivered, and before they were settled.
    pub expired_unsettled: u64,
    /// Messages that the handler panicked on, if it was written in Rust.
    pub handler_panics: u64,
    /// Messages that the filter function panicked on, if it was written in Rust.
    pub filter_panics: u64,
}

impl From<&SubscriptionMetrics> for slipring_subscription_metrics {
    fn from(figures: &SubscriptionMetrics) -> Self {
        Self {
            id: figures.id,
            matched: figures.matched,
            replayed: figures.replayed,
            delivered: figures.delivered,
            dropped_newest: figures.dropped_newest,
            dropped_oldest: figures.dropped_oldest,
            dropped_timeout: figures.dropped_timeout,
            expired: figures.expired,
            discarded: figures.discarded,
            queued: figures.queued,
            lag: figures.lag,
            oldest_age_us: figures.oldest_age_us.unwrap_or(u64::MAX),
            handler_failures: figures.handler_failures,
            breaker: match figures.breaker {
                BreakerState::Closed => 0,
                BreakerState::Open => 1,
                _ => 2,
            },
            unsettled: figures.unsettled,
            acked: figures.acked,
            redelivered: figures.redelivered,
            dead_lettered: figures.dead_lettered,
            expired_unsettled: figures.expired_unsettled,
            handler_panics: figures.handler_panics,
            filter_panics: figures.filter_panics,
        }
    }
}

/// Figures of the broker, over all its shards. `metrics_size` is `sizeof *metrics`; more than this
/// library knows is EINVAL. They are read one after another while others work; when nobody does,
/// they are exact. Errors: EINVAL. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_metrics(
    broker: *const slipring_broker,
    metrics: *mut slipring_metrics,
    metrics_size: usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let broker = c.get(broker, "broker")?;
            let figures = (&broker.broker.metrics()).into();
            c.write_sized(metrics, metrics_size, figures, "metrics")
        })
    }
}

/// Figures of the shard with the number `shard`, from 0; there are `slipring_metrics.shards`.
/// `metrics_size` is `sizeof *metrics`. Errors: EINVAL, ERANGE (there is none of this number). Does not
/// wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_shard_metrics(
    broker: *const slipring_broker,
    shard: u32,
    metrics: *mut slipring_shard_metrics,
    metrics_size: usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let shards = c.get(broker, "broker")?.broker.metrics().shards;
            let figures = shards.get(shard as usize).ok_or_else(|| {
                let told = format_args!("shard: {shard} is not below {}", shards.len());
                Failure::error(slipring_status::SLIPRING_ERANGE, told)
            })?;
            let figures = slipring_shard_metrics {
                published: figures.published,
                retained: figures.retained,
                retained_bytes: figures.retained_bytes,
                expired: figures.expired,
                index_bytes: figures.index_bytes,
                stored_bytes: figures.stored_bytes,
                stored: figures.stored,
                unsynced: figures.unsynced,
            };
            c.write_sized(metrics, metrics_size, figures, "metrics")
        })
    }
}

/// Figures of the topic `name`. `metrics_size` is `sizeof *metrics`. Errors: EINVAL, EUTF8, ENOTOPIC,
/// EFILTERING, EFORKED. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_topic_metrics(
    broker: *const slipring_broker,
    name: *const c_char,
    name_len: usize,
    metrics: *mut slipring_topic_metrics,
    metrics_size: usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (name, name_len), |c, broker, name| {
            let figures = broker.broker.topic_metrics_of(name)?;
            let figures = slipring_topic_metrics {
                published: figures.published,
                duplicates: figures.duplicates,
            };
            c.write_sized(metrics, metrics_size, figures, "metrics")
        })
    }
}

/// The numbers of all subscriptions, in the order in which they were made: writes up to `ids_len` of
/// them to `ids`, which may be NULL if that is 0, and how many there are to `count`, which may be NULL.
/// Errors: EINVAL, EFILTERING, EFORKED. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_subscription_ids(
    broker: *const slipring_broker,
    ids: *mut u64,
    ids_len: usize,
    count: *mut usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let broker = &c.get(broker, "broker")?.broker;
            let (out, count) = (c.out_array(ids, ids_len, "ids")?, c.optional_out(count, "count")?);
            // Figures do not tell whether the broker can be called at all.
            broker.subscriptions()?;
            count.write(out.fill(broker.metrics().subscriptions.iter().map(|known| known.id)));
            Ok(())
        })
    }
}

/// Figures of the subscription with the number `id`. Errors: EINVAL, ENOSUBSCRIPTION, EFILTERING,
/// EFORKED. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_subscription_metrics(
    broker: *const slipring_broker,
    id: u64,
    metrics: *mut slipring_subscription_metrics,
    metrics_size: usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let figures = c.get(broker, "broker")?.broker.subscription_metrics_of(id)?;
            c.write_sized(metrics, metrics_size, (&figures).into(), "metrics")
        })
    }
}

/// All figures, also per shard, topic and subscription, in the Prometheus text exposition format,
/// version 0.0.4. Errors: EINVAL. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_prometheus(
    broker: *const slipring_broker,
    text: *mut *mut slipring_text,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let broker = c.get(broker, "broker")?;
            let out = c.out(text, "text")?;
            out.give(slipring_text::new(broker.broker.metrics().to_prometheus()));
            Ok(())
        })
    }
}
