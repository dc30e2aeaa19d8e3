//! The broker: opening, topics by name, subscribing, closing.
#![expect(unsafe_code, reason = "exported names")]

use crate::callback::User;
use crate::handle::Caller;
use crate::last_error::Failure;
use crate::log::Log;
use crate::options::{
    FOREVER, deduplicating, nanoseconds, retaining, slipring_broker_options,
    slipring_subscription_options, wait,
};
use crate::panic::{entry, free};
use crate::status::slipring_status;
use crate::text::slipring_text;
use crate::topic::{slipring_receipt, slipring_topic};
use slipring_core::{Broker, SubscriptionBuilder};
use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// A broker inside this process. Usable from all threads at once, and from inside handlers. Free it
/// with `slipring_broker_free`.
#[derive(Debug)]
pub struct slipring_broker {
    pub(crate) broker: Broker,
    pub(crate) log: Log,
}

impl Drop for slipring_broker {
    /// Closes it while its log is there. One that is shared with Rust code has none, and goes on.
    fn drop(&mut self) {
        if self.log.is_on() {
            self.log.during(|| self.broker.close(Duration::ZERO));
        }
    }
}

impl From<Broker> for slipring_broker {
    /// The handle of a broker that Rust code of the same process has.
    fn from(broker: Broker) -> Self {
        Self { broker, log: Log::default() }
    }
}

/// What closing left. It will not grow.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_close_report {
    /// Messages that were queued for handlers and not handled in time. They are lost, but those of a
    /// named subscription in a directory, which come when that is opened again.
    pub unhandled: u64,
    /// Messages that are queued for subscriptions that are pulled. They can still be received, but
    /// those of a named subscription in a directory, which come when that is opened again.
    pub unreceived: u64,
    /// 1 if a handler was still running. It runs to its end, and is then not called again.
    pub handler_running: u32,
    /// 1 if the directory could not be closed in order. What was acknowledged is on the disk as far as
    /// the receipts said; what was settled last may be delivered again.
    pub store_failed: u32,
    /// Messages that were delivered and are not settled: failed and waiting for another attempt, or
    /// not acknowledged yet. What has been received can still be acknowledged, but in a directory:
    /// there it is delivered again when that is opened again.
    pub unsettled: u64,
}

/// A partition of a topic. It will not grow.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_partition {
    /// The offset that its next message gets: as many were published.
    pub next_offset: u64,
    /// Its number, unique in the broker.
    pub id: u32,
    /// The shard that it lives on.
    pub shard: u32,
}

/// Settings of a topic. It may grow: say its size.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_topic_config {
    /// How long its messages are kept in the directory; SLIPRING_FOREVER for ever.
    pub retention_ns: u64,
    /// How many bytes of them are kept; 0 for any number.
    pub retention_bytes: u64,
    /// For how long an id that was published counts: see `slipring_broker_set_dedup_window`. 0 if none
    /// does.
    pub dedup_window_ns: u64,
    /// How many such ids do at most; 0 for any number.
    pub dedup_ids: u64,
}

/// Opens a broker: in memory, or in the directory that `options` name. `options` may be NULL for the
/// defaults. Errors: EINVAL, ERANGE, ETHREAD; for a directory ELOCKED, EINCOMPATIBLE, EDAMAGED, EFULL,
/// ESTORE. Does not wait in memory; in a directory it recovers what a crash has left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_open(
    options: *const slipring_broker_options,
    broker: *mut *mut slipring_broker,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let options = c.sized(options, "options")?;
            let log = options.log()?;
            let out = c.out(broker, "broker")?;
            let mut builder = options.apply(Broker::builder())?;
            if let Some(clock) = c.optional(options.clock, "clock")? {
                builder = builder.clock(&clock.clock);
            }
            let dir = c.array(options.dir.cast::<u8>(), options.dir_len, "dir")?;
            let broker = if options.dir.is_null() {
                log.during(|| builder.build())?
            } else {
                log.during(|| builder.open(OsStr::from_bytes(dir)))?
            };
            out.give(slipring_broker { broker, log });
            Ok(())
        })
    }
}

/// 1 if the broker has a directory, so that publishing may wait for the disk; 0 if not, or if `broker`
/// is NULL. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_is_durable(broker: *const slipring_broker) -> i32 {
    let mut is_durable = 0;
    // SAFETY: the caller's pointer, used as the header says.
    unsafe {
        entry(|c| {
            is_durable = i32::from(c.get(broker, "broker")?.broker.is_durable());
            Ok(())
        })
    };
    is_durable
}

/// Makes everything that has been published and settled survive a power cut. In memory it does
/// nothing. Errors: EINVAL, ESTORE, EFULL, EFILTERING, EFORKED. Waits for the disk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_flush(broker: *const slipring_broker) -> slipring_status {
    // SAFETY: the caller's pointer, used as the header says.
    unsafe {
        entry(|c| {
            let broker = c.get(broker, "broker")?;
            Ok(broker.log.during(|| broker.broker.flush())?)
        })
    }
}

/// Closes the broker: stops intake, gives handlers `deadline_ns` to handle what is queued, and
/// stops all threads. Publishers and consumers that wait wake with CLOSED; what is queued for
/// subscriptions that are pulled can still be received. A named subscription in a directory hands
/// nothing over any more and refuses acknowledgements with CLOSED: what it has not settled comes when
/// that is opened again. `report` may be NULL.
///
/// May be called from inside a handler, which then is not waited for. Closing again does nothing,
/// and neither does closing from inside a filter function. Errors: EINVAL. Waits for handlers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_close(
    broker: *const slipring_broker,
    deadline_ns: u64,
    report: *mut slipring_close_report,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let broker = c.get(broker, "broker")?;
            let out = c.optional_out(report, "report")?;
            let deadline = Duration::from_nanos(deadline_ns);
            let report = broker.log.during(|| broker.broker.close(deadline));
            out.write(slipring_close_report {
                unhandled: report.unhandled,
                unreceived: report.unreceived,
                handler_running: u32::from(report.handler_running),
                store_failed: u32::from(report.store.is_some()),
                unsettled: report.unsettled,
            });
            Ok(())
        })
    }
}

/// Frees the handle and sets the pointer to NULL; the broker closes as with `slipring_broker_close`
/// and no time to wait. Topics and subscriptions may be freed later. NULL, or a pointer to NULL, is
/// no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_free(broker: *mut *mut slipring_broker) {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { free(broker) }
}

/// The entry of a function that is about what has the name `name`.
///
/// # Safety
/// As for [`entry`].
#[inline]
pub(crate) unsafe fn with_name(
    broker: *const slipring_broker,
    name: (*const c_char, usize),
    body: impl for<'c> FnOnce(Caller<'c>, &'c slipring_broker, &'c str) -> Result<(), Failure>,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let handle = c.get(broker, "broker")?;
            body(c, handle, c.text(name.0, name.1, "name")?)
        })
    }
}

/// The topic `name`, to publish to; creates it, if the broker does that. Errors: EINVAL, EUTF8,
/// ENAME, ENOTOPIC, CLOSED, EFILTERING, EFORKED. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_topic(
    broker: *const slipring_broker,
    name: *const c_char,
    name_len: usize,
    topic: *mut *mut slipring_topic,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (name, name_len), |c, broker, name| {
            let out = c.out(topic, "topic")?;
            let topic = broker.broker.topic(name)?;
            out.give(slipring_topic { topic, log: broker.log.clone() });
            Ok(())
        })
    }
}

/// Creates the topic `name` with `partitions` partitions, 1 to 1024. `topic` may be NULL. Errors:
/// those of `slipring_broker_topic`, EEXIST, ERANGE. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_create_topic(
    broker: *const slipring_broker,
    name: *const c_char,
    name_len: usize,
    partitions: u32,
    topic: *mut *mut slipring_topic,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (name, name_len), |c, broker, name| {
            let out = c.optional_out(topic, "topic")?;
            let topic = broker.broker.create_topic(name, partitions as usize)?;
            out.give(slipring_topic { topic, log: broker.log.clone() });
            Ok(())
        })
    }
}

/// Says how long messages of the topic `name` are kept in the directory from now on: `retention_ns`, or
/// SLIPRING_FOREVER, and `retention_bytes`, or 0 for any number. Errors: EINVAL, EUTF8, ENOTOPIC,
/// ERANGE (less than the dedup window), ESTORE, EFULL, EFILTERING, EFORKED. Waits for the disk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_set_retention(
    broker: *const slipring_broker,
    name: *const c_char,
    name_len: usize,
    retention_ns: u64,
    retention_bytes: u64,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (name, name_len), |_, broker, name| {
            let config = broker.broker.describe_topic(name)?.config();
            let config = retaining(config, retention_ns, retention_bytes);
            Ok(broker.broker.update_topic(name, config)?)
        })
    }
}

/// Says that a message is not stored again in the topic `name` if its id was published there less than
/// `window_ns` ago: its receipt is that of the first one, with `duplicate`. 0 stores everything, which
/// is the default; 1 ms at least, rounded up to whole ones, and the topic's retention at most. Messages
/// without an id are not concerned, and what was refused does not count.
///
/// `ids` is how many ids are known at most, the latest; 0 for any number. Each costs about 100 bytes of
/// memory for as long as it counts. In a directory they are found again when it is opened, which reads
/// what was published within the window. Errors: EINVAL, EUTF8, ENOTOPIC, ERANGE, ESTORE, EFULL,
/// EFILTERING, EFORKED. Waits for the disk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_set_dedup_window(
    broker: *const slipring_broker,
    name: *const c_char,
    name_len: usize,
    window_ns: u64,
    ids: u64,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (name, name_len), |_, broker, name| {
            let config = broker.broker.describe_topic(name)?.config();
            let config = deduplicating(config, window_ns, ids);
            Ok(broker.broker.update_topic(name, config)?)
        })
    }
}

/// Deletes the topic `name`: handles to it refuse to publish (EDELETED), and its messages are not
/// replayed any more. What is queued already is still delivered. Errors: EINVAL, EUTF8, ENOTOPIC,
/// EFILTERING, EFORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_delete_topic(
    broker: *const slipring_broker,
    name: *const c_char,
    name_len: usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (name, name_len), |_, broker, name| {
            Ok(broker.broker.delete_topic(name)?)
        })
    }
}

/// Names of up to `most` topics that match `pattern`, in order, from the one after `after` on
/// (NULL: from the first), each ending in a newline, which no name contains. Errors: EINVAL, EUTF8,
/// ENAME, EFILTERING, EFORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_topics(
    broker: *const slipring_broker,
    pattern: *const c_char,
    pattern_len: usize,
    after: *const c_char,
    after_len: usize,
    most: usize,
    names: *mut *mut slipring_text,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let broker = c.get(broker, "broker")?;
            let pattern = c.text(pattern, pattern_len, "pattern")?;
            let after = c.optional_text(after, after_len, "after")?;
            let out = c.out(names, "names")?;
            out.give(slipring_text::lines(&broker.broker.topics(pattern, after, most)?));
            Ok(())
        })
    }
}

/// The partitions of the topic `name`: writes up to `partitions_len` of them to `partitions`, which
/// may be NULL if that is 0, and how many there are to `count`, which may be NULL. Errors: EINVAL,
/// EUTF8, ENOTOPIC, EFILTERING, EFORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_describe_topic(
    broker: *const slipring_broker,
    name: *const c_char,
    name_len: usize,
    partitions: *mut slipring_partition,
    partitions_len: usize,
    count: *mut usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (name, name_len), |c, broker, name| {
            let out = c.out_array(partitions, partitions_len, "partitions")?;
            let count = c.optional_out(count, "count")?;
            let topic = broker.broker.describe_topic(name)?;
            count.write(out.fill(topic.partitions.iter().map(|partition| slipring_partition {
                next_offset: partition.next_offset,
                id: partition.id,
                shard: partition.shard as u32,
            })));
            Ok(())
        })
    }
}

/// The settings of the topic `name`. `config_size` is `sizeof *config`; more than this library knows is
/// EINVAL. Errors: EINVAL, EUTF8, ENOTOPIC, EFILTERING, EFORKED. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_topic_config(
    broker: *const slipring_broker,
    name: *const c_char,
    name_len: usize,
    config: *mut slipring_topic_config,
    config_size: usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (name, name_len), |c, broker, name| {
            let topic = broker.broker.describe_topic(name)?;
            let settings = slipring_topic_config {
                retention_ns: topic.retention.map_or(FOREVER, nanoseconds),
                retention_bytes: topic.retention_bytes.unwrap_or(0),
                dedup_window_ns: topic.dedup_window.map_or(0, nanoseconds),
                dedup_ids: topic.dedup_ids.unwrap_or(0) as u64,
            };
            c.write_sized(config, config_size, settings, "config")
        })
    }
}

/// Publishes one message of bytes alone to the topic `name`. Publishers that stay hold on to a
/// topic instead of looking it up every time. Errors and waiting: as `slipring_broker_topic` and
/// `slipring_topic_publish`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_broker_publish(
    broker: *const slipring_broker,
    name: *const c_char,
    name_len: usize,
    payload: *const u8,
    payload_len: usize,
    receipt: *mut slipring_receipt,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        with_name(broker, (name, name_len), |c, broker, name| {
            let payload = c.array(payload, payload_len, "payload")?;
            let receipt = c.optional_out(receipt, "receipt")?;
            let published = broker.log.during(|| broker.broker.publish(name, payload))?;
            receipt.write(published.into());
            Ok(())
        })
    }
}

impl<'c> Caller<'c> {
    /// A subscription to be opened; `filter` is the options' user data, which is let go of also if
    /// this fails.
    pub(crate) fn subscription(
        self,
        broker: *const slipring_broker,
        pattern: (*const c_char, usize),
        options: &slipring_subscription_options,
        filter_user: User,
    ) -> Result<SubscriptionBuilder<'c>, Failure> {
        let broker = self.get(broker, "broker")?;
        let pattern = self.text(pattern.0, pattern.1, "pattern")?;
        let mut builder = broker
            .broker
            .subscription(pattern)
            .capacity(options.capacity())
            .start(options.start()?)
            .wait(wait(options.wait)?)
            .delivery(options.delivery()?)
            .visibility_timeout(Duration::from_nanos(options.visibility_timeout_ns))
            .backoff(options.backoff())
            .max_delivery_attempts(options.max_delivery_attempts)
            .max_outstanding(options.max_outstanding());
        if let Some(overflow) = options.overflow()? {
            builder = builder.overflow(overflow);
        }
        let (topic, len) = (options.dead_letter_topic, options.dead_letter_topic_len);
        if let Some(topic) = self.optional_text(topic, len, "dead_letter_topic")? {
            builder = builder.dead_letter_topic(topic);
        }
        if options.take_over != 0 {
            builder = builder.take_over();
        }
        if options.keys_overtake != 0 {
            builder = builder.keys_overtake();
        }
        if let Some(name) = self.optional_text(options.name, options.name_len, "name")? {
            builder = builder.name(name);
        }
        for pattern in self.array(options.patterns, options.patterns_len, "patterns")? {
            builder = builder.pattern(self.text(pattern.data, pattern.len, "patterns")?);
        }
        let expression = self.optional_text(options.filter, options.filter_len, "filter")?;
        if let Some(expression) = expression {
            builder = builder.filter(expression);
        }
        if let Some(function) = options.filter_fn {
            if expression.is_some() {
                return Err(Failure::invalid("filter and filter_fn: only one can be set"));
            }
            builder = builder.filter_fn(move |message| filter_user.wants(Some(function), message));
        }
        if options.dedicated_thread != 0 {
            builder = builder.dedicated_thread();
        }
        if let Some(breaker) = options.breaker() {
            builder = builder.circuit_breaker(breaker);
        }
        Ok(builder)
    }
}
