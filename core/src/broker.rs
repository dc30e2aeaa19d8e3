//! The broker: makes everything and knows everything; not on the path of a message.

use crate::alarm::Alarms;
use crate::archive::{Archive, OpenError};
use crate::around::AroundWaits;
use crate::backing::Backing;
use crate::batch::AsMessage;
use crate::chunk::{CHUNK_BYTES, Pool};
use crate::clock::{Clock, whole_ms};
use crate::config::{
    DEFAULT_MEMORY_BUDGET, Limits, MAX_PARTITIONS, MAX_SHARDS, Sequencer, TopicConfig, WhenFull,
};
use crate::dead_letter::Cleared;
use crate::dedup_window::DedupLimits;
use crate::error::{ConfigError, InvalidName, NameRule, PublishError, SubscribeError};
use crate::fork::Generation;
use crate::fs::{Fs, RealFs};
use crate::interest::{is_inside_filter, outside_filters};
use crate::keeper::Keeper;
use crate::message::{Context, NewMessage};
use crate::metrics::{Metrics, ShardMetrics, Source, SubscriptionMetrics, TopicMetrics};
use crate::origin::{Memory, Origin};
use crate::pin;
use crate::publisher::{Engine, Topic, TopicEntry};
use crate::receipt::{BatchError, BatchReceipt, Receipt};
use crate::registry::{CloseReport, Known, Registry, Settings};
use crate::shard::{Routes, Shard};
use crate::snapshot::Snapshot;
use crate::store::{
    DiskStoreBuilder, MessageStore, OnDamage, Retention, StoreError, boot_of_this_machine,
    lock_directory,
};
use crate::subscribe::SubscriptionBuilder;
use crate::subscription::Subscription;
use crate::sync::{Arc, AtomicBool, Ordering, register_asymmetric_fences};
use crate::topic::{Pattern, validate_name};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

/// A publish/subscribe broker inside this process. Cheap to clone: all clones are one broker.
///
/// The broker lives as long as any clone of it. Its topics and subscriptions may live longer; when
/// the last clone is dropped it closes as with [`close`](Self::close) and no time to wait.
///
/// ```
/// use slipring::Broker;
///
/// let broker = Broker::in_memory();
/// let mut all = broker.subscribe("sports/**")?;
/// broker.publish("sports/cricket/live", "four!")?;
/// let message = all.recv()?;
/// assert_eq!(message.payload(), b"four!");
/// message.ack()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Broker {
    pub(crate) inner: Arc<Registry>,
    handles: Arc<Handles>,
}

/// Closes the broker with the last of its clones, whoever else has a hold of the registry at that
/// moment.
struct Handles(Arc<Registry>);

impl Drop for Handles {
    fn drop(&mut self) {
        self.0.close(Duration::ZERO);
    }
}

impl Broker {
    /// A broker in memory with the default settings.
    ///
    /// # Panics
    /// Never with the default settings.
    pub fn in_memory() -> Self {
        Self::builder().build().unwrap_or_else(|error| unreachable!("the defaults hold: {error}"))
    }

    /// A broker in the directory `dir`, which is made if need be, with the default settings: what is
    /// published there, its topics, and the [named](SubscriptionBuilder::name) subscriptions that
    /// deliver at least once are there again when it is opened the next time, also after a crash.
    ///
    /// The directory belongs to one broker at a time. It is free again when the broker has been
    /// [closed](Self::close). With its first message it takes 97 MiB of the disk, most of it for when
    /// that is full; [`DiskStoreBuilder`] has the settings that make it less. On a full disk it is
    /// opened all the same: then publishing is refused with [`PublishError::Full`] until there is room.
    ///
    /// ```
    /// use slipring::{Broker, DeliveryMode};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path();
    /// let jobs = |broker: &Broker| {
    ///     let mode = DeliveryMode::AtLeastOnce;
    ///     broker.subscription("jobs/*").name("worker").delivery(mode).open()
    /// };
    /// let broker = Broker::open(dir)?;
    /// drop(jobs(&broker)?);
    /// assert!(broker.publish("jobs/mail", "send it")?.durable);
    /// drop(broker);
    ///
    /// let broker = Broker::open(dir)?;
    /// let mut worker = jobs(&broker)?;
    /// let job = worker.recv()?;
    /// assert_eq!(job.payload(), b"send it");
    /// job.ack()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`OpenError`]; nothing that was acknowledged has been changed then.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder().open(dir)
    }

    /// A broker with settings.
    pub fn builder() -> BrokerBuilder {
        BrokerBuilder::default()
    }

    /// The topic `name`, to publish to; creates it, if the broker does that (which is the default).
    ///
    /// # Errors
    /// [`PublishError::InvalidName`], or [`PublishError::UnknownTopic`].
    pub fn topic(&self, name: &str) -> Result<Topic, PublishError> {
        self.inner.engine.check()?;
        if let Some(entry) = self.inner.find_topic(name) {
            return Ok(Topic::new(Arc::clone(&self.inner.engine), entry));
        }
        validate_name(name)?;
        if !self.inner.settings.auto_create {
            return Err(PublishError::UnknownTopic);
        }
        match self.create_topic_with(name, self.inner.settings.topic) {
            Ok(topic) => Ok(topic),
            // Somebody else was faster.
            Err(ConfigError::TopicExists) => self.topic(name),
            Err(ConfigError::InvalidName(error)) => Err(error.into()),
            Err(ConfigError::Unavailable(error)) => Err(error),
            Err(_) => Err(PublishError::UnknownTopic),
        }
    }

    /// Creates the topic `name` with `partitions` partitions and the broker's defaults.
    ///
    /// # Errors
    /// As [`create_topic_with`](Self::create_topic_with).
    pub fn create_topic(&self, name: &str, partitions: usize) -> Result<Topic, ConfigError> {
        self.create_topic_with(name, self.inner.settings.topic.partitions(partitions))
    }

    /// Creates the topic `name`. In a broker with a directory it is on the disk when this returns.
    ///
    /// # Errors
    /// [`ConfigError::InvalidName`], also for names that begin with `$`;
    /// [`ConfigError::TopicExists`]; [`ConfigError::OutOfRange`].
    pub fn create_topic_with(&self, name: &str, config: TopicConfig) -> Result<Topic, ConfigError> {
        let engine = &self.inner.engine;
        engine.check()?;
        validate_name(name)?;
        if name.starts_with('$') {
            let reason = NameRule::Reserved;
            return Err(ConfigError::InvalidName(InvalidName { position: 0, reason }));
        }
        check_topic(config)?;
        let entry = self.inner.make_topic(&mut self.inner.control(), name, config)?;
        Ok(Topic::new(Arc::clone(engine), entry))
    }

    /// Gives the topic `name` the settings of `config`, but for its partitions, which stay what they
    /// are. [`TopicDescription::config`] has those that it has.
    ///
    /// # Errors
    /// [`ConfigError::UnknownTopic`]; [`ConfigError::OutOfRange`]; [`ConfigError::Unavailable`] with
    /// [`PublishError::Store`] if it could not be written down.
    pub fn update_topic(&self, name: &str, config: TopicConfig) -> Result<(), ConfigError> {
        self.inner.engine.check()?;
        let _control = self.inner.control();
        let entry = self.inner.find_topic(name).ok_or(ConfigError::UnknownTopic)?;
        check_topic(config.partitions(1))?;
        let (retention, dedup) = (Retention::of(config), DedupLimits::of(config));
        self.inner.change_topic(name, retention, dedup)?;
        entry.set_retention(retention);
        entry.set_dedup(dedup);
        for partition in &entry.partitions {
            let shard = &self.inner.engine.shards[partition.shard];
            shard.baton.run(|core| core.change_window(partition));
        }
        Ok(())
    }

    /// Deletes the topic `name`: handles to it refuse to publish, and its messages are not replayed
    /// any more. What is queued already is still delivered. Some 100 bytes remain of each partition
    /// for as long as the broker lives, because messages that are kept can still tell their topic. Subscriptions stay, and match a topic
    /// of the same name that is created later.
    ///
    /// # Errors
    /// [`ConfigError::UnknownTopic`].
    pub fn delete_topic(&self, name: &str) -> Result<(), ConfigError> {
        let engine = &self.inner.engine;
        engine.check()?;
        let _control = self.inner.control();
        let entry = self.inner.find_topic(name).ok_or(ConfigError::UnknownTopic)?;
        self.inner.forget_topic(name)?;
        self.inner.topics_mut().remove(name);
        for partition in &entry.partitions {
            let known = &engine.context.partitions[partition.id as usize];
            known.deleted.store(true, Ordering::Relaxed);
            engine.shards[partition.shard].baton.run(|core| core.delete(partition));
        }
        Ok(())
    }

    /// Names of up to `most` topics that match `pattern`, in order, from the one after `after` on.
    ///
    /// # Errors
    /// [`ConfigError::InvalidName`] if the pattern is not valid.
    pub fn topics(
        &self,
        pattern: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<String>, ConfigError> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.inner.engine.check()?;
        let pattern = Pattern::new(pattern)?;
        let from = after.map_or(Unbounded, Excluded);
        let topics = self.inner.topics.read().unwrap_or_else(PoisonError::into_inner);
        Ok(topics
            .range::<str, _>((from, Unbounded))
            .filter(|(name, _)| pattern.matches(name))
            .take(most)
            .map(|(name, _)| name.to_string())
            .collect())
    }

    /// What is known of the topic `name`.
    ///
    /// # Errors
    /// [`ConfigError::UnknownTopic`].
    pub fn describe_topic(&self, name: &str) -> Result<TopicDescription, ConfigError> {
        self.inner.engine.check()?;
        let entry = self.inner.find_topic(name).ok_or(ConfigError::UnknownTopic)?;
        let partitions = entry.partitions.iter().map(|partition| PartitionDescription {
            id: partition.id,
            shard: partition.shard,
            next_offset: partition.next_offset.get(),
        });
        let Retention { max_age_us, max_bytes } = entry.retention();
        let dedup = entry.window().and_then(|window| window.lock().limits());
        Ok(TopicDescription {
            name: name.into(),
            partitions: partitions.collect(),
            retention: max_age_us.map(Duration::from_micros),
            retention_bytes: max_bytes,
            dedup_window: dedup.map(|limits| Duration::from_micros(limits.window_us)),
            dedup_ids: dedup.map(|limits| limits.most_ids).filter(|most| *most < usize::MAX),
        })
    }

    /// Publishes one message to the topic `name`. Looking the topic up costs some tens of
    /// nanoseconds: publishers that stay hold on to a [`Topic`].
    ///
    /// # Errors
    /// As [`topic`](Self::topic) and [`Topic::publish`].
    pub fn publish<'m>(
        &self,
        name: &str,
        message: impl Into<NewMessage<'m>>,
    ) -> Result<Receipt, PublishError> {
        self.topic(name)?.publish(message)
    }

    /// Publishes messages to the topic `name`.
    ///
    /// # Errors
    /// As [`topic`](Self::topic) and [`Topic::publish_batch`].
    pub fn publish_batch<M: AsMessage>(
        &self,
        name: &str,
        messages: &[M],
    ) -> Result<BatchReceipt, BatchError> {
        let nothing = |reason| BatchError { receipt: BatchReceipt::default(), reason };
        self.topic(name).map_err(nothing)?.publish_batch(messages)
    }

    /// Subscribes to `pattern` with the default settings; the messages are pulled.
    ///
    /// They are delivered at least once: each is to be [acknowledged](crate::Message::ack), or comes
    /// again after 10 s. [`DeliveryMode::AtMostOnce`](crate::DeliveryMode::AtMostOnce) is to be asked
    /// for: see [`subscription`](Self::subscription).
    ///
    /// # Errors
    /// See [`SubscribeError`].
    pub fn subscribe(&self, pattern: &str) -> Result<Subscription, SubscribeError> {
        self.subscription(pattern).open()
    }

    /// A subscription to `pattern`, to be set up further.
    pub fn subscription<'a>(&self, pattern: &'a str) -> SubscriptionBuilder<'a> {
        SubscriptionBuilder::new(&self.inner, pattern)
    }

    /// Figures of the broker, its shards, topics and subscriptions.
    ///
    /// From inside a filter function, and in the child of a fork, the lists of topics and of
    /// subscriptions are empty, and nothing is told of the directory: others may hold what guards
    /// them, and wait for the caller or be gone.
    pub fn metrics(&self) -> Metrics {
        let inner = &*self.inner;
        let is_callable = inner.engine.check().is_ok();
        let now_us = inner.engine.clock.unix_us();
        // A store may be the user's, and wait for others.
        let store = inner.engine.store.as_ref().filter(|_| is_callable);
        let shards = inner.engine.shards.iter().enumerate().map(|(index, shard)| {
            let bounds = store.and_then(|store| store.bounds(index).ok()).unwrap_or_default();
            let bytes = store.and_then(|store| store.stored_bytes(index).ok());
            ShardMetrics {
                published: shard.log.head(),
                retained: shard.log.head().saturating_sub(shard.log.low()),
                retained_bytes: shard.figures.retained_bytes.get(),
                expired: shard.figures.expired.get(),
                index_bytes: shard.log.index_bytes(),
                stored_bytes: bytes.unwrap_or(0),
                stored: bounds.end.saturating_sub(bounds.low),
                unsynced: bounds.end.saturating_sub(bounds.durable),
            }
        });
        Metrics {
            chunk_bytes: inner.engine.pool.in_use(),
            budget_bytes: inner.engine.memory_budget as u64,
            shards: shards.collect(),
            topics: if is_callable { self.topic_metrics() } else { Vec::new() },
            subscriptions: if is_callable { self.subscription_metrics(now_us) } else { Vec::new() },
        }
    }

    /// Figures of the subscription with the number `id`, named or not. Does not gather those of
    /// others.
    ///
    /// # Errors
    /// [`ConfigError::UnknownSubscription`]; [`ConfigError::Unavailable`] from inside a filter
    /// function, and in the child of a fork.
    pub fn subscription_metrics_of(&self, id: u64) -> Result<SubscriptionMetrics, ConfigError> {
        self.inner.engine.check()?;
        let source = {
            let control = self.inner.control();
            let all = &control.subscriptions;
            let is_it = |known: &&Known| known.inbox.number == id;
            // Where it has sought or changed hands, its inbox has another id than the first.
            let known = all.get(&id).filter(is_it).or_else(|| all.values().find(is_it));
            source(known.ok_or(ConfigError::UnknownSubscription)?)
        };
        Ok(source.read(self.inner.engine.clock.unix_us()))
    }

    /// Figures of the topic `name`. Does not gather those of others.
    ///
    /// # Errors
    /// [`ConfigError::UnknownTopic`]; [`ConfigError::Unavailable`] from inside a filter function, and
    /// in the child of a fork.
    pub fn topic_metrics_of(&self, name: &str) -> Result<TopicMetrics, ConfigError> {
        self.inner.engine.check()?;
        self.inner.find_topic(name).map(|entry| figures_of(&entry)).ok_or(ConfigError::UnknownTopic)
    }

    fn topic_metrics(&self) -> Vec<TopicMetrics> {
        let topics = self.inner.topics.read().unwrap_or_else(PoisonError::into_inner);
        topics.values().map(|entry| figures_of(entry)).collect()
    }

    /// Not called with the topics' lock held: whoever creates a topic takes the two locks in the
    /// other order.
    fn subscription_metrics(&self, now_us: u64) -> Vec<SubscriptionMetrics> {
        let sources: Vec<_> = self.inner.control().subscriptions.values().map(source).collect();
        let mut figures: Vec<_> = sources.iter().map(|source| source.read(now_us)).collect();
        figures.sort_by_key(|figures| figures.id);
        figures
    }

    /// Whether it has a directory: then publishing may wait for the disk.
    pub fn is_durable(&self) -> bool {
        self.inner.archive.is_some()
    }

    /// Makes everything that has been published and settled survive a power cut. In memory it does
    /// nothing.
    ///
    /// # Errors
    /// [`PublishError::Store`], or why the broker cannot be called.
    pub fn flush(&self) -> Result<(), PublishError> {
        let inner = &*self.inner;
        inner.engine.check()?;
        let Some(archive) = &inner.archive else { return Ok(()) };
        // Messages first: what settles one must not outlive it.
        for shard in 0..inner.engine.shards.len() {
            inner.engine.sync(shard)?;
        }
        Ok(inner.try_to_note_settled(archive, true)?)
    }

    /// Stops intake, gives handlers until `deadline` from now to handle what is queued, and stops
    /// all threads. Publishers and consumers that wait wake with `Closed`; what is queued for
    /// subscriptions that are pulled can still be received. A named subscription in a directory hands
    /// nothing over any more, and refuses acknowledgements with
    /// [`AckError::Closed`](crate::AckError::Closed): what it has not settled comes when that is
    /// opened again.
    ///
    /// A handler whose circuit breaker is open is waited for like others, though it may not be tried
    /// before the deadline.
    ///
    /// May be called from inside a handler, which then is not waited for. Closing again does
    /// nothing, not even wait for another thread that closes, and neither does closing from inside a
    /// filter function, during which a shard is held.
    pub fn close(&self, deadline: Duration) -> CloseReport {
        self.inner.close(deadline)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if is_inside_filter() {
            // This may be the last, and closing waits for shards.
            let handles = Arc::clone(&self.handles);
            outside_filters(move || drop(handles));
        }
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("shards", &self.inner.engine.shards.len())
            .field("closed", &self.inner.engine.is_closed())
            .finish_non_exhaustive()
    }
}

fn figures_of(entry: &TopicEntry) -> TopicMetrics {
    TopicMetrics {
        name: entry.name.to_string(),
        published: entry.partitions.iter().map(|p| p.next_offset.get()).sum(),
        duplicates: entry.partitions.iter().map(|p| p.duplicates.get()).sum(),
    }
}

fn source(known: &Known) -> Source {
    Source { inbox: Arc::clone(&known.inbox), task: known.task.clone(), acks: known.acks.clone() }
}

/// See [`Broker::describe_topic`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicDescription {
    /// Its name.
    pub name: String,
    /// Its partitions.
    pub partitions: Vec<PartitionDescription>,
    /// How long its messages are kept, where they outlive memory; `None` for ever.
    pub retention: Option<Duration>,
    /// How many bytes of them are kept; `None` for any number.
    pub retention_bytes: Option<u64>,
    /// For how long an id that was published counts; `None` if none does.
    pub dedup_window: Option<Duration>,
    /// How many such ids do at most; `None` for any number.
    pub dedup_ids: Option<usize>,
}

impl TopicDescription {
    /// The topic's settings, to be changed in part and given to [`Broker::update_topic`].
    pub fn config(&self) -> TopicConfig {
        TopicConfig::default()
            .partitions(self.partitions.len())
            .retention(self.retention)
            .retention_bytes(self.retention_bytes)
            .dedup_window(self.dedup_window)
            .dedup_ids(self.dedup_ids)
    }
}

/// A partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionDescription {
    /// Its number, unique in the broker.
    pub id: u32,
    /// The shard that it lives on.
    pub shard: usize,
    /// The offset that its next message gets: as many were published.
    pub next_offset: u64,
}

fn in_range(
    setting: &'static str,
    value: usize,
    min: usize,
    max: usize,
) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::OutOfRange { setting, min: min as u64, max: max as u64 })
}

/// Whether a topic can have these settings.
fn check_topic(config: TopicConfig) -> Result<(), ConfigError> {
    in_range("partitions", config.partitions, 1, MAX_PARTITIONS)?;
    if let Some(window) = config.dedup_window {
        // Beyond its retention there may be nothing that a duplicate would be one of.
        let most = config.retention.map_or(u64::MAX, whole_ms);
        let is_long = config.retention.is_some_and(|retention| window > retention);
        if window < Duration::from_millis(1) || is_long {
            let setting = "dedup_window in ms";
            return Err(ConfigError::OutOfRange { setting, min: 1, max: most });
        }
    }
    config.dedup_ids.map_or(Ok(()), |most| in_range("dedup_ids", most, 1, usize::MAX))
}

/// Settings of a broker. See [`Broker::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct BrokerBuilder {
    shards: Option<usize>,
    memory_budget: usize,
    when_full: WhenFull,
    payload_limit: usize,
    auto_create: bool,
    topic: TopicConfig,
    workers: usize,
    pin_workers: Option<usize>,
    sequencer: Sequencer,
    clock: Clock,
    store: StoreChoice,
    around_waits: AroundWaits,
}

/// Where a broker with a directory keeps messages.
#[derive(Debug, Clone)]
enum StoreChoice {
    /// In the directory.
    Disk(DiskStoreBuilder),
    /// Elsewhere.
    Other(Arc<dyn MessageStore>),
}

impl Default for BrokerBuilder {
    fn default() -> Self {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        Self {
            shards: None,
            memory_budget: DEFAULT_MEMORY_BUDGET,
            when_full: WhenFull::default(),
            payload_limit: Limits::default().payload_bytes,
            auto_create: true,
            topic: TopicConfig::default(),
            workers: cpus.min(4),
            pin_workers: None,
            sequencer: Sequencer::default(),
            clock: Clock::default(),
            store: StoreChoice::Disk(DiskStoreBuilder::default()),
            around_waits: AroundWaits::default(),
        }
    }
}

impl BrokerBuilder {
    /// How many shards put messages in order independently of each other: 1 (default) to 64. More
    /// let publishers of different topics run at the same time; every subscription then takes
    /// turns among them. A directory keeps the number that it was made with, and is refused under
    /// another.
    pub fn shards(self, shards: usize) -> Self {
        Self { shards: Some(shards), ..self }
    }

    /// Bytes of memory for messages, over all shards: 64 MiB by default, at least 256 KiB a shard.
    /// The log's index comes on top: 8 bytes a message, 32 KiB at a time; and the 64 KiB that each
    /// shard has ready to be filled next. So do messages that somebody keeps, and loans, which are
    /// refused when they would take more than as much again.
    pub fn memory_budget(self, bytes: usize) -> Self {
        Self { memory_budget: bytes, ..self }
    }

    /// What a publish does when the memory budget is used up.
    pub fn when_full(self, when_full: WhenFull) -> Self {
        Self { when_full, ..self }
    }

    /// Bytes that a payload may have: 10 MiB by default, 64 MiB at most.
    pub fn payload_limit(self, bytes: usize) -> Self {
        Self { payload_limit: bytes, ..self }
    }

    /// Whether publishing to a topic that does not exist creates it; on by default.
    pub fn auto_create(self, auto_create: bool) -> Self {
        Self { auto_create, ..self }
    }

    /// Partitions of topics that are created by publishing: 1 by default.
    pub fn default_partitions(mut self, partitions: usize) -> Self {
        self.topic.partitions = partitions;
        self
    }

    /// Settings of topics that are created by publishing, or by the broker itself.
    pub fn default_topic(self, topic: TopicConfig) -> Self {
        Self { topic, ..self }
    }

    /// How messages are kept in the directory. Its clock and number of shards are the broker's.
    pub fn disk(self, store: DiskStoreBuilder) -> Self {
        Self { store: StoreChoice::Disk(store), ..self }
    }

    /// Keeps messages in `store`, and in the directory only topics, subscriptions, and what these have
    /// settled. The two belong together from then on.
    pub fn store(self, store: Arc<dyn MessageStore>) -> Self {
        Self { store: StoreChoice::Other(store), ..self }
    }

    /// Calls `around` wherever a call that receives or settles has to wait for something else than
    /// messages, and waits inside the call that `around` makes of what it is given: where a dead
    /// letter is stored, where messages are read from the directory, and where one that the process
    /// before may have died of is noted there, as it is handed over and as it is settled. To let go
    /// meanwhile of what others need, such as the lock of an interpreter. No lock of the broker is held
    /// there that a publish, a receive or a settlement takes.
    ///
    /// ```
    /// use slipring::{Broker, DeliveryMode};
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// static WAITS: AtomicU32 = AtomicU32::new(0);
    /// let broker = Broker::builder()
    ///     .around_waits(|wait| {
    ///         WAITS.fetch_add(1, Ordering::Relaxed);
    ///         wait();
    ///     })
    ///     .build()?;
    /// let mut jobs = broker.subscription("jobs").delivery(DeliveryMode::AtLeastOnce).open()?;
    /// broker.publish("jobs", "impossible")?;
    /// jobs.recv()?.dead_letter("cannot be done")?;
    /// assert_eq!(WAITS.load(Ordering::Relaxed), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn around_waits(self, around: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> Self {
        Self { around_waits: AroundWaits::new(around), ..self }
    }

    /// Delivery workers: as many as CPUs and at most 4 by default. They are started with the first
    /// handler.
    pub fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    /// Pins delivery workers to the allowed CPUs from this index on. Failure is a warning.
    pub fn pin_workers(self, first: usize) -> Self {
        Self { pin_workers: Some(first), ..self }
    }

    /// Who puts messages in order.
    pub fn sequencer(self, sequencer: Sequencer) -> Self {
        Self { sequencer, ..self }
    }

    /// The clock; a [`TestClock`](crate::TestClock) in tests.
    pub fn clock(self, clock: impl Into<Clock>) -> Self {
        Self { clock: clock.into(), ..self }
    }

    /// Makes a broker in memory.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`], or [`ConfigError::NoThread`] with a pinned sequencer.
    pub fn build(self) -> Result<Broker, ConfigError> {
        let shards = self.shards.unwrap_or(1);
        self.check(shards)?;
        let store = RandomState::new().build_hasher().finish();
        let origins = (0..shards).map(|_| Origin::new());
        self.assemble(store, None, |_, _| Ok(origins.collect())).map_err(|error| match error {
            OpenError::Config(error) => error,
            OpenError::Store(error) => unreachable!("there is no store: {error}"),
        })
    }

    /// Makes a broker in the directory `dir`: see [`Broker::open`]. After a crash this is where it
    /// recovers, which takes about as long as reading the newest segment of each shard; and what was
    /// published within the [dedup window](TopicConfig::dedup_window) of a topic to its shards, where
    /// one has that.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(self, dir: impl AsRef<Path>) -> Result<Broker, OpenError> {
        self.check(self.shards.unwrap_or(1))?;
        let fs = RealFs::open(dir.as_ref()).map_err(StoreError::from)?;
        self.open_on(Arc::new(fs), boot_of_this_machine())
    }

    /// The same on any file system, of a machine that has been up since its `boot`.
    #[doc(hidden)]
    pub fn open_on(self, fs: Arc<dyn Fs>, boot: u128) -> Result<Broker, OpenError> {
        // A disk store has a lock of its own on the directory.
        let lock = match &self.store {
            StoreChoice::Disk(_) => None,
            StoreChoice::Other(_) => Some(lock_directory(&*fs)?),
        };
        let (fs, store, id, on_damage): (_, Arc<dyn MessageStore>, _, _) = match &self.store {
            StoreChoice::Disk(builder) => {
                let builder = match self.shards {
                    Some(shards) => builder.clone().shards(shards),
                    None => builder.clone(),
                };
                // Subscriptions see messages while their publishers wait for the disk.
                let builder = builder.clock(self.clock.clone()).boot(boot).shows_early();
                let store = builder.open_on(fs)?;
                let (id, on_damage) = (store.id(), store.on_damage());
                (store.directory(), Arc::new(store), id, on_damage)
            }
            StoreChoice::Other(store) => (fs, Arc::clone(store), 0, OnDamage::Refuse),
        };
        let shards = store.shards();
        self.check(shards)?;
        let archive = Archive::open(fs, Arc::clone(&store), id, lock, on_damage)?;
        let id = archive.contents().store;
        let around_waits = self.around_waits.clone();
        let origins = |pool: &Arc<Pool>, context: &Arc<Context>| {
            let origin = |shard| {
                let bounds = store.bounds(shard)?;
                let store = Arc::clone(&store);
                let backing = Backing::new(store, shard, bounds.low, pool, context, &around_waits);
                Ok(Origin { sequence: bounds.end, backing: Some(backing) })
            };
            (0..shards).map(origin).collect()
        };
        let number = (id as u64) ^ (id >> 64) as u64;
        let broker = self.assemble(number, Some(Arc::new(archive)), origins)?;
        let inner = &broker.inner;
        if let Some(archive) = &inner.archive {
            inner.restore(archive)?;
        }
        let registry = Arc::downgrade(inner);
        let keeper = Keeper::start(move |durable| {
            // The last reference may go here, and then the broker closes on the keeper's thread.
            let Some(registry) = registry.upgrade() else { return false };
            registry.note_settled(durable);
            registry.retain_when_due();
            true
        });
        let _ = inner.keeper.set(keeper.map_err(|_| ConfigError::NoThread)?);
        Ok(broker)
    }

    fn check(&self, shards: usize) -> Result<(), ConfigError> {
        in_range("shards", shards, 1, MAX_SHARDS)?;
        if let StoreChoice::Disk(disk) = &self.store {
            disk.check()?;
        }
        let least = shards * 4 * CHUNK_BYTES;
        in_range("memory_budget", self.memory_budget, least, 1 << 46)?;
        in_range("payload_limit", self.payload_limit, 0, Limits::MAX_PAYLOAD_BYTES)?;
        check_topic(self.topic)?;
        in_range("workers", self.workers, 1, 256)
    }

    /// Puts a broker together, whose number among all there are is `store`.
    fn assemble(
        self,
        store: u64,
        archive: Option<Arc<Archive>>,
        origins: impl FnOnce(&Arc<Pool>, &Arc<Context>) -> Result<Vec<Origin>, StoreError>,
    ) -> Result<Broker, OpenError> {
        register_asymmetric_fences();
        pin::note_allowed();
        let limits = Limits { payload_bytes: self.payload_limit };
        let pool = Pool::new(self.memory_budget);
        let context = Arc::new(Context { partitions: boxcar::Vec::new(), store });
        let routing = Arc::new(Snapshot::new(Arc::new(Routes::new())));
        let origins = origins(&pool, &context)?;
        let memory = Memory {
            budget: self.memory_budget / origins.len(),
            when_full: self.when_full,
            pool: &pool,
        };
        let clock = &self.clock;
        let shard = |(index, origin)| {
            Arc::new(Shard::new(index, memory, origin, clock.clone(), &context, &routing))
        };
        let shards = origins.into_iter().enumerate().map(shard).collect();
        let mut engine = Engine {
            shards,
            context,
            limits,
            pool,
            memory_budget: self.memory_budget,
            clock: self.clock.clone(),
            generation: Generation::current(),
            closed: AtomicBool::new(false),
            around_waits: self.around_waits.clone(),
            store: archive.as_ref().map(|archive| Arc::clone(&archive.store)),
            alarms: Alarms::new(self.clock.clone()),
            sequencers: Vec::new(),
        };
        if let Sequencer::Pinned { first } = self.sequencer {
            engine.start_sequencers(first).map_err(|_| ConfigError::NoThread)?;
        }
        let inner = Registry {
            engine: Arc::new(engine),
            routing,
            settings: Settings {
                auto_create: self.auto_create,
                topic: self.topic,
                workers: self.workers,
                pin_workers: self.pin_workers,
            },
            topics: RwLock::default(),
            control: Mutex::default(),
            workers: OnceLock::new(),
            merging: AtomicBool::new(false),
            cleared: Cleared::default(),
            archive,
            keeper: OnceLock::new(),
        };
        let inner = Arc::new(inner);
        Ok(Broker { handles: Arc::new(Handles(Arc::clone(&inner))), inner })
    }
}
