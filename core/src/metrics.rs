//! Figures of a broker: a snapshot that costs nothing on the path of a message, where owners count
//! in memory of their own, and its rendering for Prometheus.

use crate::acks::Acks;
use crate::breaker::BreakerState;
use crate::inbox::Inbox;
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::tally::AckFigures;
use crate::worker::Task;
use std::fmt::{self, Write as _};
use std::sync::Weak;

/// What [`Broker::metrics`](crate::Broker::metrics) saw. Figures are read one after another while
/// others work; when nobody does, they are exact.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Bytes of chunks in use: retained, queued or kept by somebody.
    pub chunk_bytes: u64,
    /// The memory budget.
    pub budget_bytes: u64,
    /// Per shard.
    pub shards: Vec<ShardMetrics>,
    /// Per topic, by name.
    pub topics: Vec<TopicMetrics>,
    /// Per subscription, in the order in which they were made.
    pub subscriptions: Vec<SubscriptionMetrics>,
}

/// Figures of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardMetrics {
    /// Messages published to it.
    pub published: u64,
    /// Messages that are retained, and can be replayed.
    pub retained: u64,
    /// Bytes of chunks that hold them.
    pub retained_bytes: u64,
    /// Messages that have expired from memory.
    pub expired: u64,
    /// Bytes of the index from sequence to message.
    pub index_bytes: u64,
    /// Bytes of messages in the directory, without room that is reserved there. Like those that
    /// follow, 0 in memory.
    pub stored_bytes: u64,
    /// Messages in the directory: published, and kept by retention.
    pub stored: u64,
    /// Messages that a power cut would take now: published, and not synced.
    pub unsynced: u64,
}

/// Figures of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicMetrics {
    /// Its name.
    pub name: String,
    /// Messages published to it.
    pub published: u64,
    /// Messages that were not stored because they were published before, within its
    /// [window](crate::TopicConfig::dedup_window), counted since the broker began. They are not among
    /// `published`.
    pub duplicates: u64,
}

/// Figures of a subscription. At rest,
/// `matched + replayed = delivered + dropped_newest + dropped_oldest + dropped_timeout + expired +
/// discarded + queued`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriptionMetrics {
    /// Its number.
    pub id: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its patterns.
    pub patterns: Vec<String>,
    /// Messages published since it began that it wanted.
    pub matched: u64,
    /// Messages from before it began that it was to get.
    pub replayed: u64,
    /// Messages handed to the consumer or handler.
    pub delivered: u64,
    /// Dropped on arrival because the queue was full (`DropNewest`, `Disconnect`).
    pub dropped_newest: u64,
    /// Dropped from the queue to make room (`DropOldest`).
    pub dropped_oldest: u64,
    /// Dropped after their publisher had waited long enough (`Block`).
    pub dropped_timeout: u64,
    /// Expired from memory before they were delivered.
    pub expired: u64,
    /// Thrown away when the subscription ended.
    pub discarded: u64,
    /// Queued now, in its queue or, while it catches up, in the log. What was published before the
    /// broker opened its directory is not counted here, only in `lag`.
    pub queued: u64,
    /// How far it is behind the end of the logs while it catches up, counting also what it does
    /// not want.
    pub lag: u64,
    /// The oldest message queued is not older than this, in microseconds; `None` if none is.
    pub oldest_age_us: Option<u64>,
    /// Messages that were delivered and are not settled, those that wait for another attempt or for
    /// an earlier one of their key included. Always 0 where messages are delivered at most once.
    pub unsettled: u64,
    /// Messages that were acknowledged, or that the handler has succeeded with.
    pub acked: u64,
    /// Deliveries after the first of a message. They are not among `delivered`.
    pub redelivered: u64,
    /// Messages that went to the dead letters.
    pub dead_lettered: u64,
    /// Messages that expired from memory after they were delivered, and before they were settled.
    pub expired_unsettled: u64,
    /// Messages that the handler failed on, panics included.
    pub handler_failures: u64,
    /// Messages that the handler panicked on.
    pub handler_panics: u64,
    /// Messages that the filter function panicked on.
    pub filter_panics: u64,
    /// State of the handler's circuit breaker.
    pub breaker: BreakerState,
}

/// What the figures of a subscription are read from: taken under the lock of the broker, and read
/// without it, because the last reference to a handler may be dropped then.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) task: Option<Weak<Task>>,
    pub(crate) acks: Option<Arc<Acks>>,
}

impl Source {
    pub(crate) fn read(&self, now_us: u64) -> SubscriptionMetrics {
        let task = self.task.as_ref().and_then(Weak::upgrade);
        SubscriptionMetrics::of(&self.inbox, task.as_deref(), self.acks.as_deref(), now_us)
    }
}

impl SubscriptionMetrics {
    pub(crate) fn of(inbox: &Inbox, task: Option<&Task>, acks: Option<&Acks>, now_us: u64) -> Self {
        let counted = |figure: fn(&AckFigures) -> &AtomicU64| {
            acks.map_or(0, |acks| figure(&acks.figures).load(Ordering::Relaxed))
        };
        let mut figures = Self {
            id: inbox.number,
            name: inbox.name.as_deref().map(str::to_owned),
            patterns: inbox.interest.patterns.iter().map(ToString::to_string).collect(),
            matched: 0,
            replayed: 0,
            delivered: 0,
            dropped_newest: 0,
            dropped_oldest: 0,
            dropped_timeout: 0,
            expired: 0,
            discarded: 0,
            queued: 0,
            lag: 0,
            oldest_age_us: None,
            unsettled: acks.map_or(0, Acks::unsettled),
            acked: counted(|figures| &figures.acked),
            redelivered: counted(|figures| &figures.redelivered),
            dead_lettered: counted(|figures| &figures.dead_lettered),
            expired_unsettled: counted(|figures| &figures.expired_leases),
            handler_failures: task.map_or(0, |task| task.failures.get()),
            handler_panics: task.map_or(0, |task| task.panics.get()),
            filter_panics: inbox.interest.filter_panics(),
            breaker: task.map_or(BreakerState::Closed, Task::breaker_state),
        };
        for lane in inbox.lanes() {
            figures.matched += lane.matched();
            figures.replayed += lane.replayed();
            figures.delivered += lane.counted.delivered.get();
            figures.dropped_newest += lane.written.dropped_newest.get();
            figures.dropped_oldest += lane.written.dropped_oldest.get();
            figures.dropped_timeout += lane.written.dropped_timeout.get();
            figures.expired += lane.expired();
            figures.discarded += lane.counted.discarded.get();
            let queued = lane.depth();
            figures.queued += queued;
            figures.lag += lane.behind();
            // Each lane for itself: shards know nothing of each other's order.
            if queued > 0 {
                let age_us = now_us.saturating_sub(lane.queued_since_us(inbox.began_us));
                figures.oldest_age_us = figures.oldest_age_us.max(Some(age_us));
            }
        }
        figures
    }
}

impl Metrics {
    /// The figures in the Prometheus text exposition format, version 0.0.4.
    pub fn to_prometheus(&self) -> String {
        let mut page = Page::default();
        page.family("chunk_bytes", "gauge", "Bytes of message memory in use.");
        page.sample("chunk_bytes", &[], self.chunk_bytes);
        page.family("budget_bytes", "gauge", "The memory budget.");
        page.sample("budget_bytes", &[], self.budget_bytes);
        type Of<T> = (&'static str, &'static str, &'static str, fn(&T) -> u64);
        const SHARD: [Of<ShardMetrics>; 8] = [
            ("shard_published_total", "counter", "Messages published.", |m| m.published),
            ("shard_retained", "gauge", "Messages that can be replayed.", |m| m.retained),
            ("shard_retained_bytes", "gauge", "Bytes that hold them.", |m| m.retained_bytes),
            ("shard_expired_total", "counter", "Messages expired from memory.", |m| m.expired),
            ("shard_index_bytes", "gauge", "Bytes of the log's index.", |m| m.index_bytes),
            ("shard_stored_bytes", "gauge", "Bytes in the directory.", |m| m.stored_bytes),
            ("shard_stored", "gauge", "Messages in the directory.", |m| m.stored),
            ("shard_unsynced", "gauge", "Messages a power cut would take.", |m| m.unsynced),
        ];
        for (name, kind, help, figure) in SHARD {
            page.family(name, kind, help);
            for (index, shard) in self.shards.iter().enumerate() {
                page.sample(name, &[("shard", &index.to_string())], figure(shard));
            }
        }
        const TOPIC: [Of<TopicMetrics>; 2] = [
            ("topic_published_total", "counter", "Messages published.", |m| m.published),
            ("topic_duplicates_total", "counter", "Messages published before.", |m| m.duplicates),
        ];
        for (name, kind, help, figure) in TOPIC {
            page.family(name, kind, help);
            for topic in &self.topics {
                page.sample(name, &[("topic", &topic.name)], figure(topic));
            }
        }
        const SUBSCRIPTION: [Of<SubscriptionMetrics>; 17] = [
            ("subscription_matched_total", "counter", "Messages it wanted.", |m| m.matched),
            ("subscription_replayed_total", "counter", "Older messages.", |m| m.replayed),
            ("subscription_delivered_total", "counter", "Messages handed over.", |m| m.delivered),
            ("subscription_expired_total", "counter", "Expired undelivered.", |m| m.expired),
            ("subscription_discarded_total", "counter", "Left at its end.", |m| m.discarded),
            ("subscription_queued", "gauge", "Messages queued.", |m| m.queued),
            ("subscription_lag", "gauge", "Distance to the end of the logs.", |m| m.lag),
            ("subscription_oldest_age_us", "gauge", "Age of the oldest queued, at most.", |m| {
                m.oldest_age_us.unwrap_or(0)
            }),
            ("subscription_unsettled", "gauge", "Messages delivered, not settled.", |m| {
                m.unsettled
            }),
            ("subscription_acked_total", "counter", "Messages acknowledged.", |m| m.acked),
            ("subscription_redelivered_total", "counter", "Deliveries after the first.", |m| {
                m.redelivered
            }),
            ("subscription_dead_lettered_total", "counter", "Messages given up on.", |m| {
                m.dead_lettered
            }),
            ("subscription_expired_unsettled_total", "counter", "Expired unsettled.", |m| {
                m.expired_unsettled
            }),
            ("subscription_handler_failures_total", "counter", "Handler failures.", |m| {
                m.handler_failures
            }),
            ("subscription_handler_panics_total", "counter", "Handler panics.", |m| {
                m.handler_panics
            }),
            ("subscription_filter_panics_total", "counter", "Filter panics.", |m| m.filter_panics),
            ("subscription_breaker", "gauge", "0 closed, 1 open, 2 half open.", |m| {
                u64::from(m.breaker as u8)
            }),
        ];
        for (name, kind, help, figure) in SUBSCRIPTION {
            page.family(name, kind, help);
            for subscription in &self.subscriptions {
                let id = subscription.id.to_string();
                page.sample(name, &subscription.labels(&id), figure(subscription));
            }
        }
        page.family("subscription_dropped_total", "counter", "Messages dropped, by reason.");
        for subscription in &self.subscriptions {
            let id = subscription.id.to_string();
            let [id, name, pattern] = subscription.labels(&id);
            for (reason, count) in [
                ("newest", subscription.dropped_newest),
                ("oldest", subscription.dropped_oldest),
                ("timeout", subscription.dropped_timeout),
            ] {
                let labels = [id, name, pattern, ("reason", reason)];
                page.sample("subscription_dropped_total", &labels, count);
            }
        }
        page.text
    }
}

impl SubscriptionMetrics {
    /// What tells it from others: its number; and what people know it by.
    fn labels<'a>(&'a self, id: &'a str) -> [(&'static str, &'a str); 3] {
        let pattern = self.patterns.first().map_or("", String::as_str);
        [("id", id), ("subscription", self.name.as_deref().unwrap_or("")), ("pattern", pattern)]
    }
}

/// A page of the exposition format.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail.
        let _ = write!(self.text, "# HELP slipring_{name} {help}\n# TYPE slipring_{name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        let _ = writeln!(self.text, "slipring_{name}{} {value}", Labels(labels));
    }
}

struct Labels<'a>(&'a [(&'a str, &'a str)]);

impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "{" } else { "," })?;
            write!(f, "{name}=\"")?;
            for character in value.chars() {
                match character {
                    '\\' => f.write_str("\\\\")?,
                    '"' => f.write_str("\\\"")?,
                    '\n' => f.write_str("\\n")?,
                    other => f.write_char(other)?,
                }
            }
            f.write_char('"')?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_char('}') }
    }
}
