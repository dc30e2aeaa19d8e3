//! The broker: makes everything and knows everything; not on the path of a message.

use crate::chunk::{CHUNK_BYTES, Pool};
use crate::clock::Clock;
use crate::config::{
    CircuitBreaker, DEFAULT_CAPACITY, DEFAULT_MEMORY_BUDGET, Limits, MAX_CAPACITY, MAX_PARTITIONS,
    MAX_SHARDS, Overflow, Sequencer, Start, WaitStrategy, WhenFull,
};
use crate::error::{ConfigError, InvalidFilter, NameRule, PublishError, SubscribeError};
use crate::filter::Filter;
use crate::fork::Generation;
use crate::inbox::{Inbox, InboxState};
use crate::interest::{FilterFn, Interest, Scan, Selector, is_inside_filter};
use crate::lane::Replay;
use crate::message::{Context, Message, NewMessage, PartitionEntry, Record};
use crate::pin;
use crate::publisher::{BatchError, BatchReceipt, Engine, Receipt, Topic, TopicEntry};
use crate::shard::{Partition, Routes, Shard};
use crate::snapshot::Snapshot;
use crate::subscription::{Receiver, Subscription};
use crate::sync::{Arc, AtomicBool, Ordering, epoch, register_asymmetric_fences};
use crate::topic::{Pattern, validate_name};
use crate::worker::{HandlerError, HandlerFn, HandlerResult, OnError, Task, TaskConfig, Workers};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Below this many patterns the routes are merged by whoever subscribes, above by a thread.
const MERGE_INLINE: usize = 1024;

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
/// assert_eq!(all.recv()?.payload(), b"four!");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Broker {
    pub(crate) inner: std::sync::Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) engine: Arc<Engine>,
    pub(crate) pool: Arc<Pool>,
    routing: std::sync::Arc<Snapshot<Routes>>,
    settings: Settings,
    pub(crate) topics: RwLock<BTreeMap<std::sync::Arc<str>, Arc<TopicEntry>>>,
    /// Serialises subscribe, unsubscribe, create and delete.
    control: Mutex<Control>,
    workers: OnceLock<std::sync::Arc<Workers>>,
    /// Whether a thread is merging the routes.
    merging: AtomicBool,
}

#[derive(Debug)]
struct Settings {
    auto_create: bool,
    partitions: usize,
    workers: usize,
    pin_workers: Option<usize>,
}

#[derive(Debug, Default)]
pub(crate) struct Control {
    last_id: u64,
    next_shard: usize,
    names: HashSet<Box<str>>,
    pub(crate) subscriptions: HashMap<u64, Known>,
}

/// A subscription as the broker knows it.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) task: Option<Weak<Task>>,
}

/// What [`Broker::close`] left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// Messages that were queued for handlers and not handled in time. They are lost.
    pub unhandled: u64,
    /// Messages that are queued for subscriptions that are pulled. They can still be received.
    pub unreceived: u64,
    /// Whether a handler was still running. It runs to its end, and is then not called again.
    pub handler_running: bool,
}

impl Broker {
    /// A broker in memory with the default settings.
    ///
    /// # Panics
    /// Never with the default settings.
    pub fn in_memory() -> Self {
        Self::builder().build().unwrap_or_else(|error| unreachable!("the defaults hold: {error}"))
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
        let partitions = self.inner.settings.partitions;
        match self.create_topic(name, partitions) {
            Ok(topic) => Ok(topic),
            // Somebody else was faster.
            Err(ConfigError::TopicExists) => self.topic(name),
            Err(ConfigError::InvalidName(error)) => Err(error.into()),
            Err(ConfigError::Unavailable(error)) => Err(error),
            Err(_) => Err(PublishError::UnknownTopic),
        }
    }

    /// Creates the topic `name` with `partitions` partitions, in 1..=1024: messages with the same
    /// key stay in one, and keep their order there.
    ///
    /// # Errors
    /// [`ConfigError::InvalidName`], also for names that begin with `$`;
    /// [`ConfigError::TopicExists`]; [`ConfigError::OutOfRange`].
    pub fn create_topic(&self, name: &str, partitions: usize) -> Result<Topic, ConfigError> {
        let engine = &self.inner.engine;
        engine.check()?;
        validate_name(name)?;
        if name.starts_with('$') {
            let reason = NameRule::Reserved;
            return Err(ConfigError::InvalidName(crate::error::InvalidName {
                position: 0,
                reason,
            }));
        }
        in_range("partitions", partitions, 1, MAX_PARTITIONS)?;
        let mut control = self.inner.control();
        if engine.is_closed() {
            return Err(PublishError::Closed.into());
        }
        if self.inner.find_topic(name).is_some() {
            return Err(ConfigError::TopicExists);
        }
        let name: std::sync::Arc<str> = name.into();
        let partitions = (0..partitions)
            .map(|_| {
                let id = engine.context.partitions.push(PartitionEntry {
                    topic: std::sync::Arc::clone(&name),
                    deleted: AtomicBool::new(false),
                });
                let shard = control.next_shard;
                control.next_shard = (shard + 1) % engine.shards.len();
                Partition::new(id as u32, shard, std::sync::Arc::clone(&name))
            })
            .collect();
        let entry = Arc::new(TopicEntry::new(std::sync::Arc::clone(&name), partitions));
        self.inner.topics_mut().insert(name, Arc::clone(&entry));
        Ok(Topic::new(Arc::clone(engine), entry))
    }

    /// Deletes the topic `name`: handles to it refuse to publish, and its messages are not replayed
    /// any more. What is queued already is still delivered. Subscriptions stay, and match a topic
    /// of the same name that is created later.
    ///
    /// # Errors
    /// [`ConfigError::UnknownTopic`].
    pub fn delete_topic(&self, name: &str) -> Result<(), ConfigError> {
        let engine = &self.inner.engine;
        engine.check()?;
        let _control = self.inner.control();
        let entry = self.inner.topics_mut().remove(name).ok_or(ConfigError::UnknownTopic)?;
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
        Ok(TopicDescription { name: name.into(), partitions: partitions.collect() })
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
    pub fn publish_batch(
        &self,
        name: &str,
        messages: &[NewMessage<'_>],
    ) -> Result<BatchReceipt, BatchError> {
        let nothing = |reason| BatchError { receipt: BatchReceipt::default(), reason };
        self.topic(name).map_err(nothing)?.publish_batch(messages)
    }

    /// Subscribes to `pattern` with the default settings; the messages are pulled.
    ///
    /// # Errors
    /// See [`SubscribeError`].
    pub fn subscribe(&self, pattern: &str) -> Result<Subscription, SubscribeError> {
        self.subscription(pattern).open()
    }

    /// A subscription to `pattern`, to be set up further.
    pub fn subscription<'a>(&self, pattern: &'a str) -> SubscriptionBuilder<'a> {
        SubscriptionBuilder {
            broker: self.clone(),
            patterns: vec![pattern],
            name: None,
            filter: Ok(None),
            capacity: DEFAULT_CAPACITY,
            overflow: Overflow::default(),
            start: Start::default(),
            wait: WaitStrategy::default(),
            dedicated: false,
            breaker: None,
            on_error: None,
        }
    }

    /// Stops intake, gives handlers until `deadline` from now to handle what is queued, and stops
    /// all threads. Publishers and consumers that wait wake with `Closed`; what is queued for
    /// subscriptions that are pulled can still be received.
    ///
    /// May be called from inside a handler, which then is not waited for. Closing again does
    /// nothing, and neither does closing from inside a filter function, during which a shard is
    /// held.
    pub fn close(&self, deadline: Duration) -> CloseReport {
        self.inner.close(deadline)
    }
}

/// See [`Broker::describe_topic`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicDescription {
    /// Its name.
    pub name: String,
    /// Its partitions.
    pub partitions: Vec<PartitionDescription>,
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

impl Inner {
    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        // No foreign code runs under this lock.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find_topic(&self, name: &str) -> Option<Arc<TopicEntry>> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        topics.get(name).cloned()
    }

    fn topics_mut(
        &self,
    ) -> impl std::ops::DerefMut<Target = BTreeMap<std::sync::Arc<str>, Arc<TopicEntry>>> {
        self.topics.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn workers(&self) -> Result<std::sync::Arc<Workers>, SubscribeError> {
        if let Some(workers) = self.workers.get() {
            return Ok(std::sync::Arc::clone(workers));
        }
        let started = Workers::start(
            self.settings.workers,
            self.settings.pin_workers,
            self.engine.clock.clone(),
        )
        .map_err(|_| SubscribeError::NoThread)?;
        // Callers hold the control mutex: nobody else starts workers meanwhile.
        Ok(std::sync::Arc::clone(self.workers.get_or_init(|| started)))
    }

    /// Puts the routes with `inbox` in place.
    fn route(&self, inbox: &Arc<Inbox>) {
        let mut routes = Routes::clone(&self.routing.load());
        for pattern in &inbox.interest.patterns {
            routes = routes.insert(pattern, inbox.id, Arc::clone(inbox));
        }
        self.routing.store(std::sync::Arc::new(routes));
    }

    /// Takes `inbox` out of the routes and out of what the broker knows.
    fn unroute(self: &std::sync::Arc<Self>, inbox: &Inbox) {
        let mut control = self.control();
        if control.subscriptions.remove(&inbox.id).is_none() {
            // It has been done, and the name may be somebody else's by now.
            return;
        }
        let mut routes = Routes::clone(&self.routing.load());
        for pattern in &inbox.interest.patterns {
            routes = routes.remove(pattern, inbox.id);
        }
        self.routing.store(std::sync::Arc::new(routes));
        if let Some(name) = &inbox.name {
            control.names.remove(name);
        }
        self.merge_routes(control);
    }

    /// Merges the routes if there are many changes since the last time.
    fn merge_routes(self: &std::sync::Arc<Self>, control: MutexGuard<'_, Control>) {
        let routes = self.routing.load();
        if !routes.needs_merge() {
            return;
        }
        if routes.len() < MERGE_INLINE {
            self.routing.store(std::sync::Arc::new(routes.install(&routes.merge())));
            return;
        }
        drop(control);
        if self.merging.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = std::sync::Arc::downgrade(self);
        let merge = move || {
            let merged = routes.merge();
            drop(routes);
            if let Some(inner) = inner.upgrade() {
                let control = inner.control();
                let now = inner.routing.load();
                inner.routing.store(std::sync::Arc::new(now.install(&merged)));
                inner.merging.store(false, Ordering::Release);
                drop(control);
            }
        };
        if thread::Builder::new().name("slipring-routes".into()).spawn(merge).is_err() {
            // The next change tries again; until then routing is slower, not wrong.
            self.merging.store(false, Ordering::Release);
        }
    }

    fn close(&self, deadline: Duration) -> CloseReport {
        if is_inside_filter() {
            tracing::error!("a filter function may not close the broker: it stays open");
            return CloseReport::default();
        }
        if self.engine.generation.is_over() || self.engine.closed.swap(true, Ordering::AcqRel) {
            return CloseReport::default();
        }
        let deadline = Instant::now() + deadline;
        for shard in &self.engine.shards {
            shard.baton.run(|core| core.close());
        }
        let (inboxes, tasks): (Vec<_>, Vec<_>) = {
            let control = self.control();
            let known = control.subscriptions.values();
            let tasks = known.clone().filter_map(|known| known.task.as_ref()?.upgrade());
            let pulled = known.clone().filter(|known| known.task.is_none());
            (pulled.map(|known| Arc::clone(&known.inbox)).collect(), tasks.collect())
        };
        for inbox in inboxes.iter().chain(tasks.iter().map(|task| &task.inbox)) {
            inbox.advance(InboxState::Closed);
            inbox.wake_all();
        }
        let mut report = CloseReport::default();
        if let Some(workers) = self.workers.get() {
            let others: Vec<_> = tasks.iter().filter(|task| !task.is_own_thread()).collect();
            workers.wait_until(deadline, |_| others.iter().all(|task| task.is_drained()));
            report.unhandled = tasks.iter().map(|task| task.inbox.depth()).sum();
            for task in &tasks {
                task.inbox.advance(InboxState::Ended);
                task.inbox.wake_all();
            }
            for task in &tasks {
                report.handler_running |= !task.end(Some(deadline)) || task.is_own_thread();
            }
            report.handler_running |= !workers.stop(deadline);
        }
        report.unreceived = inboxes.iter().map(|inbox| inbox.depth()).sum();
        tracing::info!(?report, "broker closed");
        report
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close(Duration::ZERO);
    }
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

/// Settings of a broker. See [`Broker::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct BrokerBuilder {
    shards: usize,
    memory_budget: usize,
    when_full: WhenFull,
    payload_limit: usize,
    auto_create: bool,
    partitions: usize,
    workers: usize,
    pin_workers: Option<usize>,
    sequencer: Sequencer,
    clock: Clock,
}

impl Default for BrokerBuilder {
    fn default() -> Self {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        Self {
            shards: 1,
            memory_budget: DEFAULT_MEMORY_BUDGET,
            when_full: WhenFull::default(),
            payload_limit: Limits::default().payload_bytes,
            auto_create: true,
            partitions: 1,
            workers: cpus.min(4),
            pin_workers: None,
            sequencer: Sequencer::default(),
            clock: Clock::default(),
        }
    }
}

impl BrokerBuilder {
    /// How many shards put messages in order independently of each other: 1 (default) to 64. More
    /// let publishers of different topics run at the same time; every subscription then takes
    /// turns among them.
    pub fn shards(self, shards: usize) -> Self {
        Self { shards, ..self }
    }

    /// Bytes of memory for messages, over all shards: 64 MiB by default, at least 128 KiB a shard.
    /// The log's index comes on top: 8 bytes a message.
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
    pub fn default_partitions(self, partitions: usize) -> Self {
        Self { partitions, ..self }
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

    /// Makes the broker.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`], or [`ConfigError::NoThread`] with a pinned sequencer.
    pub fn build(self) -> Result<Broker, ConfigError> {
        in_range("shards", self.shards, 1, MAX_SHARDS)?;
        let least = self.shards * 2 * CHUNK_BYTES;
        in_range("memory_budget", self.memory_budget, least, 1 << 46)?;
        in_range("payload_limit", self.payload_limit, 0, Limits::MAX_PAYLOAD_BYTES)?;
        in_range("partitions", self.partitions, 1, MAX_PARTITIONS)?;
        in_range("workers", self.workers, 1, 256)?;
        register_asymmetric_fences();
        pin::note_allowed();
        let limits = Limits { payload_bytes: self.payload_limit };
        let pool = Pool::new(self.memory_budget);
        let store = RandomState::new().build_hasher().finish();
        let context = Arc::new(Context { partitions: boxcar::Vec::new(), store });
        let routing = std::sync::Arc::new(Snapshot::new(std::sync::Arc::new(Routes::new())));
        let shards = (0..self.shards)
            .map(|index| {
                std::sync::Arc::new(Shard::new(
                    index,
                    self.memory_budget / self.shards,
                    self.when_full,
                    limits,
                    &pool,
                    self.clock.clone(),
                    &context,
                    &routing,
                ))
            })
            .collect();
        let mut engine = Engine {
            shards,
            context,
            limits,
            clock: self.clock,
            generation: Generation::current(),
            closed: AtomicBool::new(false),
            sequencers: Vec::new(),
        };
        if let Sequencer::Pinned { first } = self.sequencer {
            engine.start_sequencers(first).map_err(|_| ConfigError::NoThread)?;
        }
        let inner = Inner {
            engine: Arc::new(engine),
            pool,
            routing,
            settings: Settings {
                auto_create: self.auto_create,
                partitions: self.partitions,
                workers: self.workers,
                pin_workers: self.pin_workers,
            },
            topics: RwLock::default(),
            control: Mutex::default(),
            workers: OnceLock::new(),
            merging: AtomicBool::new(false),
        };
        Ok(Broker { inner: std::sync::Arc::new(inner) })
    }
}

/// Settings of a subscription. See [`Broker::subscription`].
///
/// ```
/// use slipring::{Broker, Overflow, Start};
///
/// let broker = Broker::in_memory();
/// broker.publish("orders/in", "1")?;
/// let mut orders = broker
///     .subscription("orders/*")
///     .pattern("returns/**")
///     .filter("NOT attributes:test")
///     .capacity(4096)
///     .overflow(Overflow::DropOldest)
///     .start(Start::Earliest)
///     .open()?;
/// assert_eq!(orders.recv()?.payload(), b"1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct SubscriptionBuilder<'a> {
    broker: Broker,
    patterns: Vec<&'a str>,
    name: Option<&'a str>,
    filter: Result<Option<Selector>, InvalidFilter>,
    capacity: usize,
    overflow: Overflow,
    start: Start,
    wait: WaitStrategy,
    dedicated: bool,
    breaker: Option<CircuitBreaker>,
    on_error: Option<Box<OnError>>,
}

impl fmt::Debug for SubscriptionBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscriptionBuilder")
            .field("patterns", &self.patterns)
            .field("name", &self.name)
            .field("filter", &self.filter)
            .field("capacity", &self.capacity)
            .field("overflow", &self.overflow)
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}

impl<'a> SubscriptionBuilder<'a> {
    /// Also wants the topics that match `pattern`. A message that several patterns match comes
    /// once.
    pub fn pattern(mut self, pattern: &'a str) -> Self {
        self.patterns.push(pattern);
        self
    }

    /// A name, unique in the broker: 1..=255 of `[A-Za-z0-9._~+%-]`.
    pub fn name(self, name: &'a str) -> Self {
        Self { name: Some(name), ..self }
    }

    /// Wants only messages whose attributes match this expression; see [`Filter`] for the grammar.
    pub fn filter(self, expression: &str) -> Self {
        let filter = Filter::parse(expression).map(|filter| Some(Selector::Expression(filter)));
        Self { filter, ..self }
    }

    /// Wants only messages whose attributes match this filter.
    pub fn filter_by(self, filter: Filter) -> Self {
        Self { filter: Ok(Some(Selector::Expression(filter))), ..self }
    }

    /// Wants only messages for which `function` returns true.
    ///
    /// It runs on the publishing thread while a shard is held, so it must be quick, and must not
    /// call the broker: such calls are refused. A panic counts as no match. What it has captured is
    /// dropped some time after the subscription, on any thread, under the same conditions.
    pub fn filter_fn(
        self,
        function: impl Fn(&Message<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let function: Box<FilterFn> = Box::new(function);
        Self { filter: Ok(Some(Selector::Function(function))), ..self }
    }

    /// Messages that can be queued, from each shard: 1024 by default, at most 2^24. 8 bytes each,
    /// rounded up to a power of two, allocated when the first message comes.
    pub fn capacity(self, capacity: usize) -> Self {
        Self { capacity, ..self }
    }

    /// What happens to messages while the queue is full.
    pub fn overflow(self, overflow: Overflow) -> Self {
        Self { overflow, ..self }
    }

    /// Where in the stream to begin.
    pub fn start(self, start: Start) -> Self {
        Self { start, ..self }
    }

    /// How to wait for messages.
    pub fn wait(self, wait: WaitStrategy) -> Self {
        Self { wait, ..self }
    }

    /// Gives the handler a thread of its own, instead of the shared workers.
    pub fn dedicated_thread(self) -> Self {
        Self { dedicated: true, ..self }
    }

    /// Pauses deliveries to a handler that keeps failing.
    pub fn circuit_breaker(self, breaker: CircuitBreaker) -> Self {
        Self { breaker: Some(breaker), ..self }
    }

    /// Is told of every failure of the handler, on the handler's thread, after the failure was
    /// counted.
    pub fn on_error(self, on_error: impl FnMut(HandlerError<'_>) + Send + 'static) -> Self {
        Self { on_error: Some(Box::new(on_error)), ..self }
    }

    /// Subscribes; the messages are pulled. Every publish that starts after this has returned
    /// sees the subscription.
    ///
    /// # Errors
    /// See [`SubscribeError`].
    pub fn open(self) -> Result<Subscription, SubscribeError> {
        let wait = self.wait;
        let (broker, start) = (self.broker.clone(), self.start);
        let inbox = self.make_inbox()?;
        let receiver = Receiver::new(Arc::clone(&inbox), Arc::clone(&broker.inner.engine));
        let control = broker.inner.register(&inbox, None)?;
        broker.inner.begin(control, &inbox, start);
        let inner = std::sync::Arc::downgrade(&broker.inner);
        Ok(Subscription::new(receiver, wait, move |inbox| {
            if let Some(inner) = inner.upgrade() {
                inner.unroute(inbox);
            }
        }))
    }

    /// Subscribes; `handler` is called with every message, in order, one at a time, on a delivery
    /// worker. What it returns tells whether it succeeded: nothing, or a `Result`.
    ///
    /// From inside the handler everything is allowed: publish, subscribe, unsubscribe this or
    /// another subscription, close the broker. A panic is caught and counts as a failure.
    ///
    /// # Errors
    /// See [`SubscribeError`].
    pub fn handler<R: HandlerResult>(
        mut self,
        mut handler: impl FnMut(&Message<'_>) -> R + Send + 'static,
    ) -> Result<HandlerSubscription, SubscribeError> {
        let (broker, start, dedicated) = (self.broker.clone(), self.start, self.dedicated);
        let handler: Box<HandlerFn> = Box::new(move |message| handler(message).into_handled());
        let config = TaskConfig {
            handler,
            on_error: self.on_error.take(),
            breaker: self.breaker,
            wait: self.wait,
        };
        let inbox = self.make_inbox()?;
        let inner = &broker.inner;
        let workers = {
            let _control = inner.control();
            inner.workers()?
        };
        let receiver = Receiver::new(Arc::clone(&inbox), Arc::clone(&inner.engine));
        let task = Task::new(receiver, config, &workers);
        let control = inner.register(&inbox, Some(std::sync::Arc::downgrade(&task)))?;
        inner.begin(control, &inbox, start);
        if dedicated {
            if workers.start_dedicated(std::sync::Arc::clone(&task)).is_err() {
                inner.unroute(&inbox);
                task.end(None);
                return Err(SubscribeError::NoThread);
            }
        } else {
            // There may be something to replay, and if not, this makes it wait for arrivals.
            crate::wait::Schedule::schedule(std::sync::Arc::clone(&task));
        }
        Ok(HandlerSubscription { inner: std::sync::Arc::downgrade(inner), task: Some(task) })
    }

    fn make_inbox(self) -> Result<Arc<Inbox>, SubscribeError> {
        self.broker.inner.engine.check()?;
        let patterns = self
            .patterns
            .iter()
            .map(|pattern| Pattern::new(pattern))
            .collect::<Result<Vec<_>, _>>()
            .map_err(SubscribeError::InvalidPattern)?;
        let selector = self.filter.map_err(SubscribeError::InvalidFilter)?;
        if self.capacity == 0 || self.capacity > MAX_CAPACITY {
            return Err(SubscribeError::Capacity { requested: self.capacity });
        }
        if let Some(name) = self.name {
            check_subscription_name(name)?;
        }
        let inner = &self.broker.inner;
        let (from_offset, from_us) = match self.start {
            Start::Offset(offset) => (offset, 0),
            // What is published from now on is not older.
            Start::Time(us) if us > inner.engine.clock.unix_us() => (0, us),
            _ => (0, 0),
        };
        let id = {
            let mut control = inner.control();
            control.last_id += 1;
            control.last_id
        };
        Ok(Arc::new(Inbox::new(
            id,
            self.name.map(Into::into),
            Interest::new(patterns, selector, from_offset, from_us),
            self.overflow,
            self.capacity,
            inner.engine.shards.len(),
        )))
    }
}

fn check_subscription_name(name: &str) -> Result<(), SubscribeError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._~+%-".contains(&byte);
    let wrong = name.bytes().position(|byte| !allowed(byte));
    match wrong {
        Some(position) => Err(SubscribeError::InvalidSubscriptionName { position }),
        None if name.is_empty() => Err(SubscribeError::InvalidSubscriptionName { position: 0 }),
        None if name.len() > 255 => Err(SubscribeError::InvalidSubscriptionName { position: 255 }),
        None => Ok(()),
    }
}

impl Inner {
    /// Notes a subscription, under the control mutex.
    fn register(
        &self,
        inbox: &Arc<Inbox>,
        task: Option<Weak<Task>>,
    ) -> Result<MutexGuard<'_, Control>, SubscribeError> {
        let mut control = self.control();
        if self.engine.is_closed() {
            return Err(SubscribeError::Closed);
        }
        if let Some(name) = &inbox.name {
            if !control.names.insert(name.clone()) {
                return Err(SubscribeError::NameInUse);
            }
        }
        control.subscriptions.insert(inbox.id, Known { inbox: Arc::clone(inbox), task });
        Ok(control)
    }

    /// Lets messages come, from `start` on.
    fn begin(
        self: &std::sync::Arc<Self>,
        control: MutexGuard<'_, Control>,
        inbox: &Arc<Inbox>,
        start: Start,
    ) {
        match self.replays(inbox, start) {
            None => self.route(inbox),
            // With all batons held, a message is either in the log before the subscription began,
            // or published with a route that has it: the counts are exact.
            Some(replays) => {
                begin_replay(&self.engine.shards, &replays, inbox, &mut || self.route(inbox));
            }
        }
        self.merge_routes(control);
    }

    /// For each shard, where to begin reading its log; `None` to begin now.
    fn replays(&self, inbox: &Inbox, start: Start) -> Option<Vec<Replay>> {
        let shards = &self.engine.shards;
        let replay = |cursor| Replay { cursor, scan: Scan::default() };
        let from = |cursor: &dyn Fn(&Shard) -> u64| {
            Some(shards.iter().map(|shard| replay(cursor(shard))).collect())
        };
        match start {
            Start::Now => None,
            Start::Earliest | Start::Offset(_) => from(&|shard| shard.log.low()),
            Start::Time(from_us) => {
                from(&|shard| shard.log.first_where(|record| published_us(record) >= from_us))
            }
            Start::Last(count) => {
                // The last `count` of each shard, and of those the latest `count`. Where none of a
                // shard is among them, all is older that was there before the search began.
                let heads: Vec<u64> = shards.iter().map(|shard| shard.log.head()).collect();
                let mut last: Vec<(u64, usize, u64)> = heads
                    .iter()
                    .zip(shards)
                    .enumerate()
                    .flat_map(|(index, (&head, shard))| {
                        self.last_of_shard(inbox, shard, head, count)
                            .into_iter()
                            .map(move |(time, sequence)| (time, index, sequence))
                    })
                    .collect();
                last.sort_unstable();
                let mut cursors = heads;
                for &(_, index, sequence) in &last[last.len().saturating_sub(count)..] {
                    cursors[index] = cursors[index].min(sequence);
                }
                Some(cursors.into_iter().map(replay).collect())
            }
        }
    }

    /// Publish times and sequences of the last `count` records of `shard` before `head` that
    /// `inbox` wants.
    fn last_of_shard(
        &self,
        inbox: &Inbox,
        shard: &Shard,
        head: u64,
        count: usize,
    ) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let mut scan = Scan::default();
        let pinned = epoch::pin();
        let (low, mut next) = (shard.log.low(), head);
        while found.len() < count && next > low {
            next -= 1;
            let Some(record) = shard.log.pinned_record(next, &pinned) else { break };
            if scan.accepts(record, &inbox.interest, &self.engine.context) {
                found.push((record.published_us(), next));
            }
        }
        found
    }
}

fn published_us(record: Record<'_>) -> u64 {
    record.published_us()
}

/// Makes the lanes of `inbox` with all batons held, and then calls `publish_route`.
fn begin_replay(
    shards: &[std::sync::Arc<Shard>],
    replays: &[Replay],
    inbox: &Arc<Inbox>,
    publish_route: &mut (dyn FnMut() + Send),
) {
    match (shards.split_first(), replays.split_first()) {
        (Some((shard, shards)), Some((replay, replays))) => shard.baton.run(|core| {
            core.begin_replay(inbox, replay.clone());
            begin_replay(shards, replays, inbox, publish_route);
        }),
        _ => publish_route(),
    }
}

/// A subscription whose messages go to a handler. Dropping it unsubscribes and waits for the
/// handler, unless it is the handler that drops it.
#[derive(Debug)]
#[must_use = "dropping it unsubscribes: use `detach` to keep the handler running"]
pub struct HandlerSubscription {
    inner: Weak<Inner>,
    task: Option<std::sync::Arc<Task>>,
}

impl HandlerSubscription {
    /// Number of the subscription, unique in the broker.
    pub fn id(&self) -> u64 {
        self.task.as_ref().map_or(0, |task| task.inbox.id)
    }

    /// Messages queued and not handed to the handler yet.
    pub fn queued(&self) -> u64 {
        self.task.as_ref().map_or(0, |task| task.inbox.depth())
    }

    /// Unsubscribes: when this returns, the handler does not run any more and has been dropped.
    /// What was queued is thrown away. From inside the handler itself it returns at once, and the
    /// handler is not called again.
    ///
    /// Two handlers that unsubscribe each other at the same time would wait for ever: use
    /// [`unsubscribe_timeout`](Self::unsubscribe_timeout) where that can happen.
    pub fn unsubscribe(mut self) {
        self.end(None);
    }

    /// The same, waiting for a running handler for at most `timeout`.
    ///
    /// # Errors
    /// With the subscription, if the handler was still running; it is not called again.
    pub fn unsubscribe_timeout(mut self, timeout: Duration) -> Result<(), Self> {
        if self.end(Some(Instant::now() + timeout)) { Ok(()) } else { Err(self) }
    }

    /// Lets the handler run until the broker closes.
    pub fn detach(mut self) {
        self.task = None;
    }

    fn end(&mut self, deadline: Option<Instant>) -> bool {
        let Some(task) = &self.task else { return true };
        task.inbox.advance(InboxState::Ended);
        if let Some(inner) = self.inner.upgrade() {
            if inner.engine.generation.is_over() {
                return true;
            }
            inner.unroute(&task.inbox);
        }
        let ended = task.end(deadline);
        if ended {
            self.task = None;
        }
        ended
    }
}

impl Drop for HandlerSubscription {
    fn drop(&mut self) {
        self.end(None);
    }
}
