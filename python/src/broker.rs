//! The broker: makes everything.

use crate::acker::Acker;
use crate::capsule;
use crate::clock::TestClock;
use crate::errors::raise;
use crate::handler::Callbacks;
use crate::interpreter;
use crate::letters::DeadLetters;
use crate::metrics;
use crate::options::{self, Seconds};
use crate::publish::{self, Head};
use crate::receipt::{BatchReceipt, CloseReport, Receipt};
use crate::signals::interruptible;
use crate::subscribe::{self, Options};
use crate::topic::Topic;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyCFunction, PyCapsule, PyDict, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use slipring_core::Broker as CoreBroker;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the end of a `with` block waits for handlers.
const PATIENCE: Duration = Duration::from_secs(5);

/// A broker, and the functions that it calls: so that the interpreter's collector sees them.
pub(crate) struct Shared {
    pub(crate) broker: CoreBroker,
    /// Locked only with the interpreter at hand, and while no code of Python runs.
    callbacks: Mutex<Vec<Arc<Callbacks>>>,
}

impl Shared {
    fn callbacks(&self) -> MutexGuard<'_, Vec<Arc<Callbacks>>> {
        self.callbacks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes functions that are going to be called.
    pub(crate) fn add(&self, callbacks: &Arc<Callbacks>) {
        self.callbacks().push(Arc::clone(callbacks));
    }

    /// Those functions are not called any more.
    pub(crate) fn remove(&self, callbacks: &Arc<Callbacks>) {
        let mut known = self.callbacks();
        let at = known.iter().position(|known| Arc::ptr_eq(known, callbacks));
        let removed = at.map(|at| known.swap_remove(at));
        drop(known);
        drop(removed);
    }
}

/// A publish/subscribe broker inside this process. Usable from all threads at once. Made by `open`.
///
/// >>> import slipring
/// >>> with slipring.open() as broker:
/// ...     late = broker.publish("a/b", b"early")
/// ...     sub = broker.subscribe("a/*", start=slipring.Last(1))
/// ...     bytes(sub.get())
/// b'early'
// Everything else of Python that needs the broker has this object, and shows the collector that it
// has. So whoever forgets all of them forgets the broker, also where its own handlers know it.
#[pyclass(frozen, weakref, module = "slipring")]
pub(crate) struct Broker(Arc<Shared>);

/// Opens a broker: in memory, or in the directory `path`, which is made if need be. What is published
/// there, topics, and named subscriptions that deliver at least once are there again when it is opened
/// the next time, also after a crash. It belongs to one broker at a time.
///
/// `sync` says when a message counts as stored: `Sync.ALWAYS` (the default), `Sync.OS`, or a duration at
/// which the disk follows. A killed process loses nothing under any of them; a power cut may take what
/// was not synced. `retention` (7 days unless it is given; `FOREVER` for ever) and `retention_bytes`
/// say how long messages of topics that are created by publishing are kept; `dedup_window` and
/// `dedup_ids` are those of `Broker.create_topic` for them.
///
/// With its first message a directory takes 97 MiB of the disk. `reserve_bytes` (64 MiB; 0 to 2**40)
/// are kept free for when the disk is full: then publishing raises `Full`, and all else goes on.
/// `preallocate_bytes` (32 MiB; 0 to 2**30) are reserved ahead, for each shard; as many as
/// `segment_bytes` are written with zeros ahead, which makes syncs of much at once faster. A shard begins
/// another file after `segment_bytes` (64 MiB; 2**16 to 2**30), or when the newest is of `segment_age` (21
/// hours), and what has expired gives its room back by whole files. On a small disk each has at most
/// an eighth of it.
///
/// >>> import slipring, tempfile
/// >>> with tempfile.TemporaryDirectory() as path:
/// ...     with slipring.open(path) as broker:
/// ...         receipt = broker.publish("a/b", b"kept")
/// ...     with slipring.open(path) as broker:
/// ...         sub = broker.subscribe(
/// ...             "a/*", start=slipring.Start.EARLIEST, delivery=slipring.DeliveryMode.AT_MOST_ONCE
/// ...         )
/// ...         bytes(sub.get()), receipt.durable
/// (b'kept', True)
#[pyfunction]
#[pyo3(signature = (
    path=None, *, sync=None, on_damage=None, retention=None, retention_bytes=None,
    dedup_window=None, dedup_ids=None, reserve_bytes=None, segment_bytes=None,
    segment_age=None, preallocate_bytes=None, shards=None, memory_budget=None, when_full=None, payload_limit=None,
    auto_create=None, default_partitions=None, workers=None, pin_workers=None, sequencer=None,
    clock=None
))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn open(
    py: Python<'_>,
    path: Option<PathBuf>,
    sync: Option<&Bound<'_, PyAny>>,
    on_damage: Option<&Bound<'_, PyAny>>,
    retention: Option<&Bound<'_, PyAny>>,
    retention_bytes: Option<u64>,
    dedup_window: Option<Seconds>,
    dedup_ids: Option<usize>,
    reserve_bytes: Option<u64>,
    segment_bytes: Option<u64>,
    segment_age: Option<Seconds>,
    preallocate_bytes: Option<u64>,
    shards: Option<usize>,
    memory_budget: Option<usize>,
    when_full: Option<&Bound<'_, PyAny>>,
    payload_limit: Option<usize>,
    auto_create: Option<bool>,
    default_partitions: Option<usize>,
    workers: Option<usize>,
    pin_workers: Option<usize>,
    sequencer: Option<&Bound<'_, PyAny>>,
    clock: Option<&Bound<'_, TestClock>>,
) -> PyResult<Py<Broker>> {
    let mut builder = CoreBroker::builder().around_waits(interpreter::let_others_run);
    if let Some(shards) = shards {
        builder = builder.shards(shards);
    }
    if let Some(bytes) = memory_budget {
        builder = builder.memory_budget(bytes);
    }
    if let Some(when_full) = when_full {
        builder = builder.when_full(options::when_full(when_full)?);
    }
    if let Some(bytes) = payload_limit {
        builder = builder.payload_limit(bytes);
    }
    if let Some(auto_create) = auto_create {
        builder = builder.auto_create(auto_create);
    }
    let mut topic = options::topic_config(retention, retention_bytes, dedup_window, dedup_ids)?;
    if let Some(partitions) = default_partitions {
        topic = topic.partitions(partitions);
    }
    builder = builder.default_topic(topic);
    if path.is_some() {
        let sizes =
            options::DiskSizes { reserve_bytes, segment_bytes, segment_age, preallocate_bytes };
        builder = builder.disk(options::disk(sync, on_damage, sizes)?);
    } else if sync.is_some()
        || on_damage.is_some()
        || retention.is_some()
        || retention_bytes.is_some()
        || reserve_bytes.is_some()
        || segment_bytes.is_some()
        || segment_age.is_some()
        || preallocate_bytes.is_some()
    {
        let wrong = "sync, on_damage, retention, reserve_bytes, segment_bytes, segment_age and \
                     preallocate_bytes are of a directory, and no path is given";
        return Err(PyTypeError::new_err(wrong));
    }
    if let Some(workers) = workers {
        builder = builder.workers(workers);
    }
    if let Some(first) = pin_workers {
        builder = builder.pin_workers(first);
    }
    if let Some(sequencer) = sequencer {
        builder = builder.sequencer(options::sequencer(sequencer)?);
    }
    if let Some(clock) = clock {
        builder = builder.clock(&clock.get().0);
    }
    let broker = match path {
        None => py.detach(|| builder.build()).map_err(|error| raise(py, error))?,
        Some(path) => py.detach(|| builder.open(path)).map_err(|error| raise(py, error))?,
    };
    let shared = Arc::new(Shared { broker, callbacks: Mutex::default() });
    let weak = Arc::downgrade(&shared);
    let broker = Bound::new(py, Broker(shared))?;
    interpreter::note(&broker, weak)?;
    Ok(broker.unbind())
}

impl Broker {
    pub(crate) fn core(&self) -> &CoreBroker {
        &self.0.broker
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    fn core_topic(&self, py: Python<'_>, name: &str) -> PyResult<slipring_core::Topic> {
        let topic = if self.core().is_durable() {
            // Where it is made, that waits for the disk.
            py.detach(|| self.core().topic(name))
        } else {
            self.core().topic(name)
        };
        topic.map_err(|error| raise(py, error))
    }
}

#[pymethods]
impl Broker {
    /// The topic `name`, to publish to; creates it, if the broker does that.
    fn topic(this: &Bound<'_, Self>, name: &str) -> PyResult<Topic> {
        Ok(Topic::new(this.get().core_topic(this.py(), name)?, this.clone().unbind()))
    }

    /// Creates the topic `name`: messages with the same key stay in one of its partitions, and keep
    /// their order there.
    ///
    /// With a `dedup_window` (a duration) a message whose id was published to the topic less than that
    /// ago is not stored again, and its receipt is that of the first one: what a publisher that does
    /// not know whether its message arrived may publish again. Of the ids the latest `dedup_ids` are
    /// known, or all; each costs about 100 bytes for as long as it counts.
    ///
    /// >>> import slipring
    /// >>> with slipring.open() as broker:
    /// ...     orders = broker.create_topic("orders", dedup_window=120)
    /// ...     first = orders.publish(b"3 apples", id="order-17")
    /// ...     again = orders.publish(b"3 apples", id="order-17")
    /// ...     again.duplicate, again.offset == first.offset
    /// (True, True)
    #[pyo3(signature = (
        name, partitions=1, *, retention=None, retention_bytes=None, dedup_window=None,
        dedup_ids=None
    ))]
    fn create_topic(
        this: &Bound<'_, Self>,
        name: &str,
        partitions: usize,
        retention: Option<&Bound<'_, PyAny>>,
        retention_bytes: Option<u64>,
        dedup_window: Option<Seconds>,
        dedup_ids: Option<usize>,
    ) -> PyResult<Topic> {
        let (py, core) = (this.py(), this.get().core());
        let config = options::topic_config(retention, retention_bytes, dedup_window, dedup_ids)?;
        let config = config.partitions(partitions);
        let topic = py.detach(|| core.create_topic_with(name, config));
        Ok(Topic::new(topic.map_err(|error| raise(py, error))?, this.clone().unbind()))
    }

    /// Says how long the messages of the topic `name` are kept in the directory from now on: for
    /// `retention` (7 days unless it is given; `FOREVER` for ever) and while they have
    /// `retention_bytes` together; and which are stored once (all are stored, unless a `dedup_window`
    /// is given). What was published before a window was set does not count in it.
    #[pyo3(signature = (
        name, *, retention=None, retention_bytes=None, dedup_window=None, dedup_ids=None
    ))]
    fn update_topic(
        &self,
        py: Python<'_>,
        name: &str,
        retention: Option<&Bound<'_, PyAny>>,
        retention_bytes: Option<u64>,
        dedup_window: Option<Seconds>,
        dedup_ids: Option<usize>,
    ) -> PyResult<()> {
        let config = options::topic_config(retention, retention_bytes, dedup_window, dedup_ids)?;
        py.detach(|| self.core().update_topic(name, config)).map_err(|error| raise(py, error))
    }

    /// Whether it has a directory.
    #[getter]
    fn durable(&self) -> bool {
        self.core().is_durable()
    }

    /// Makes everything that has been published and settled survive a power cut. In memory it does
    /// nothing.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.core().flush()).map_err(|error| raise(py, error))
    }

    /// Deletes the topic `name`. What is queued already is still delivered.
    fn delete_topic(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        py.detach(|| self.core().delete_topic(name)).map_err(|error| raise(py, error))
    }

    /// Names of up to `most` topics that match `pattern`, in order, from the one after `after` on.
    #[pyo3(signature = (pattern="**", *, after=None, most=usize::MAX))]
    fn topics(
        &self,
        py: Python<'_>,
        pattern: &str,
        after: Option<&str>,
        most: usize,
    ) -> PyResult<Vec<String>> {
        py.detach(|| self.core().topics(pattern, after, most)).map_err(|error| raise(py, error))
    }

    /// What is known of the topic `name`: a dict with its partitions.
    fn describe_topic<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        let topic = py.detach(|| self.core().describe_topic(name));
        let topic = topic.map_err(|error| raise(py, error))?;
        let partitions = topic.partitions.iter().map(|partition| {
            let dict = PyDict::new(py);
            dict.set_item("id", partition.id)?;
            dict.set_item("shard", partition.shard)?;
            dict.set_item("next_offset", partition.next_offset)?;
            Ok(dict)
        });
        let dict = PyDict::new(py);
        dict.set_item("name", &topic.name)?;
        dict.set_item("retention", topic.retention.map(|age| age.as_secs_f64()))?;
        dict.set_item("retention_bytes", topic.retention_bytes)?;
        dict.set_item("dedup_window", topic.dedup_window.map(|window| window.as_secs_f64()))?;
        dict.set_item("dedup_ids", topic.dedup_ids)?;
        dict.set_item("partitions", partitions.collect::<PyResult<Vec<_>>>()?)?;
        Ok(dict)
    }

    /// Publishes one message to the topic `topic`; see `Topic.publish`. Who publishes often holds on
    /// to a topic instead.
    #[pyo3(signature = (topic, payload, /, *, attributes=None, key=None, id=None, timeout=None, **more))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn publish(
        &self,
        topic: &str,
        payload: &Bound<'_, PyAny>,
        attributes: Option<&Bound<'_, PyAny>>,
        key: Option<PyBackedStr>,
        id: Option<PyBackedStr>,
        timeout: Option<Seconds>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Receipt> {
        let head = Head::new(key, id, attributes, more)?;
        let topic = self.core_topic(payload.py(), topic)?;
        publish::publish(&topic, payload, &head, timeout)
    }

    /// Publishes many messages to the topic `topic`; see `Topic.publish_many`.
    #[pyo3(signature = (topic, payloads, /, *, attributes=None, key=None, timeout=None, **more))]
    fn publish_many(
        &self,
        topic: &str,
        payloads: &Bound<'_, PyAny>,
        attributes: Option<&Bound<'_, PyAny>>,
        key: Option<PyBackedStr>,
        timeout: Option<Seconds>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<BatchReceipt> {
        let head = Head::new(key, None, attributes, more)?;
        let topic = self.core_topic(payloads.py(), topic)?;
        publish::publish_many(&topic, payloads, &head, timeout)
    }

    /// Subscribes to `pattern`, and to `patterns` as well. With a `handler` the messages go to it,
    /// and the subscription goes on until it or the broker is closed; without, they are fetched from
    /// the `Subscription`, which is closed when it is forgotten.
    ///
    /// Durations are seconds or a `timedelta`. The options:
    ///
    /// - `delivery`: when a message counts as delivered, a `DeliveryMode`.
    /// - `filter`: an expression over attributes, or a function of the message, which is slow.
    /// - `capacity`: messages that can be queued, from each shard; 1024 by default.
    /// - `start`: where to begin: a `Start`, `Last`, `Offset` or `Time`.
    /// - `on_lagged`: told of losses, with their number; else `get` raises `Lagged`.
    /// - `name`: unique in the broker. With a name, and delivery at least once, the subscription lives
    ///   as long as the broker or its directory: whoever subscribes under the name gets what was
    ///   published and not settled in between, and goes on with the filter and settings it was made
    ///   with. Where it has a consumer, that is refused; with `take_over` it is replaced, and told
    ///   `Disconnected`.
    ///
    /// At most once: `overflow` is what happens while the queue is full: an `Overflow`, a `Block` or
    /// a `Disconnect`.
    ///
    /// At least once:
    ///
    /// - `visibility_timeout`: how long a message is leased before it is delivered again: 10 ms to
    ///   600 s, 10 s by default. A handler has its message for as long as it runs.
    /// - `max_delivery_attempts`: 1 to 65,535, 5 by default; then it goes to the dead letters, in
    ///   `dead_letter_topic`: `$dlq/` and the name by default, or `unnamed-` and the id.
    /// - `backoff`: how long what failed waits for its next attempt: a `Backoff`.
    /// - `max_outstanding`: messages that can be received and not settled: 65,536 by default. At the
    ///   limit, none is delivered until one is settled.
    /// - `keys_overtake`: later messages of an ordering key do not wait for one that failed.
    ///
    /// A handler is called with one message after the other, in order, on a delivery worker; one
    /// that is a coroutine function, on the running event loop. What it returns is success, unless
    /// that is a `Retry` or a `DeadLetter`; what it raises is a failure, which is told to `on_error`
    /// with the message, or to the logger `slipring`, and tried again where messages are delivered
    /// at least once. For handlers on workers: `dedicated_thread` gives it a thread of its own, `wait`
    /// is how that waits, and a `circuit_breaker` pauses deliveries while it keeps failing.
    ///
    /// >>> import slipring
    /// >>> broker = slipring.open()
    /// >>> orders = broker.subscribe(
    /// ...     "orders/*",
    /// ...     delivery=slipring.DeliveryMode.AT_MOST_ONCE,
    /// ...     filter='attributes.region = "IN" AND NOT attributes:test',
    /// ...     capacity=4096,
    /// ...     overflow=slipring.Block(timeout=0.5),
    /// ... )
    /// >>> broker.publish("orders/new", b"1", region="IN").enqueued
    /// 1
    /// >>> jobs = broker.subscribe(
    /// ...     "jobs/*",
    /// ...     name="mailer",
    /// ...     delivery=slipring.DeliveryMode.AT_LEAST_ONCE,
    /// ...     visibility_timeout=30,
    /// ...     backoff=slipring.Backoff(min=1, max=60, jitter=True),
    /// ... )
    /// >>> broker.publish("jobs/mail", b"hello").enqueued
    /// 1
    /// >>> message = jobs.get()
    /// >>> message.attempt, message.ack()
    /// (1, True)
    #[pyo3(signature = (
        pattern, /, *patterns, handler=None, name=None, filter=None, capacity=None, overflow=None,
        start=None, delivery=None, visibility_timeout=None, max_delivery_attempts=None, backoff=None,
        max_outstanding=None, keys_overtake=false, dead_letter_topic=None, take_over=false,
        wait=None, dedicated_thread=false, circuit_breaker=None, on_error=None, on_lagged=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn subscribe<'py>(
        this: &Bound<'py, Self>,
        pattern: &str,
        patterns: Vec<PyBackedStr>,
        handler: Option<Bound<'py, PyAny>>,
        name: Option<&str>,
        filter: Option<&Bound<'py, PyAny>>,
        capacity: Option<usize>,
        overflow: Option<&Bound<'py, PyAny>>,
        start: Option<&Bound<'py, PyAny>>,
        delivery: Option<&Bound<'py, PyAny>>,
        visibility_timeout: Option<Seconds>,
        max_delivery_attempts: Option<u32>,
        backoff: Option<&Bound<'py, PyAny>>,
        max_outstanding: Option<usize>,
        keys_overtake: bool,
        dead_letter_topic: Option<&str>,
        take_over: bool,
        wait: Option<&Bound<'py, PyAny>>,
        dedicated_thread: bool,
        circuit_breaker: Option<&Bound<'py, PyAny>>,
        on_error: Option<Bound<'py, PyAny>>,
        on_lagged: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = Options {
            handler,
            name,
            filter,
            capacity,
            overflow,
            start,
            delivery,
            visibility_timeout,
            max_delivery_attempts,
            backoff,
            max_outstanding,
            keys_overtake,
            dead_letter_topic,
            take_over,
            wait,
            dedicated_thread,
            circuit_breaker,
            on_error,
            on_lagged,
        };
        subscribe::subscribe(this, pattern, &patterns, options)
    }

    /// Makes a function the handler of a subscription: `@broker.on("sports/*")`. The options are
    /// those of `subscribe`. The function stays what it was; the subscription goes on until the
    /// broker closes.
    ///
    /// >>> import slipring
    /// >>> got = []
    /// >>> with slipring.open() as broker:
    /// ...     @broker.on("sports/*")
    /// ...     def cheer(message):
    /// ...         got.append(bytes(message))
    /// ...     receipt = broker.publish("sports/cricket", b"four!")
    /// >>> got
    /// [b'four!']
    #[pyo3(signature = (pattern, /, *patterns, **options))]
    fn on<'py>(
        this: Bound<'py, Self>,
        pattern: Bound<'py, PyString>,
        patterns: &Bound<'py, PyTuple>,
        options: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyCFunction>> {
        let py = this.py();
        let options = options.unwrap_or_else(|| PyDict::new(py));
        if options.contains("handler")? {
            return Err(PyTypeError::new_err("the handler is the function that is decorated"));
        }
        let patterns = PyTuple::new(py, [pattern.into_any()])?.add(patterns)?;
        let patterns = patterns.cast_into::<PyTuple>()?.unbind();
        let (broker, options) = (this.unbind(), options.unbind());
        PyCFunction::new_closure(
            py,
            Some(c"on"),
            None,
            move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
                let py = arguments.py();
                let handler: Bound<'_, PyAny> = arguments.extract::<(Bound<'_, PyAny>,)>()?.0;
                let options = options.bind(py).copy()?;
                options.set_item("handler", &handler)?;
                broker.bind(py).call_method("subscribe", patterns.bind(py), Some(&options))?;
                Ok::<_, PyErr>(handler.unbind())
            },
        )
    }

    /// Names of the subscriptions that have one, in order.
    fn subscriptions(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        py.detach(|| self.core().subscriptions()).map_err(|error| raise(py, error))
    }

    /// What is known of the subscription `name`: a dict with its patterns, its delivery mode, whether
    /// it has a consumer, and how many messages are queued and unsettled.
    fn describe_subscription<'py>(
        &self,
        py: Python<'py>,
        name: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let known = py.detach(|| self.core().describe_subscription(name));
        let known = known.map_err(|error| raise(py, error))?;
        let dict = PyDict::new(py);
        dict.set_item("name", &known.name)?;
        dict.set_item("patterns", &known.patterns)?;
        dict.set_item("delivery", options::delivery_member(py, known.delivery)?)?;
        dict.set_item("is_online", known.is_online)?;
        dict.set_item("queued", known.queued)?;
        dict.set_item("unsettled", known.unsettled)?;
        Ok(dict)
    }

    /// Deletes the subscription `name`, with all that it has not settled. Who fetches from it is told
    /// `Disconnected`; a handler is not called again.
    fn delete_subscription(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        py.detach(|| self.core().delete_subscription(name)).map_err(|error| raise(py, error))
    }

    /// Lets the subscription `name`, which has no consumer at the moment, go on from `start`: see
    /// `Subscription.seek`. Raises `NameInUse` where it has one.
    fn seek_subscription(
        &self,
        py: Python<'_>,
        name: &str,
        start: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let start = options::start(start)?;
        let sought = py.detach(|| self.core().seek_subscription(name, start));
        sought.map_err(|error| raise(py, error))
    }

    /// Settles messages of the subscription `name` by their ack ids, until it gets another consumer.
    fn acker(this: &Bound<'_, Self>, name: &str) -> PyResult<Acker> {
        let (py, core) = (this.py(), this.get().core());
        let acker = py.detach(|| core.acker(name)).map_err(|error| raise(py, error))?;
        Ok(Acker::new(acker, this.clone().unbind()))
    }

    /// The dead letters in `topic`: `$dlq/` and a subscription's name, where it did not ask for
    /// another.
    fn dead_letters(this: &Bound<'_, Self>, topic: &str) -> DeadLetters {
        DeadLetters::new(this, topic)
    }

    /// The broker's figures, and those of its shards, topics and subscriptions, as plain dicts.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let metrics = py.detach(|| self.core().metrics());
        metrics::dict(py, &metrics)
    }

    /// Those of the topic `name` alone.
    fn topic_metrics<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        let figures = py.detach(|| self.core().topic_metrics_of(name));
        metrics::topic_dict(py, &figures.map_err(|error| raise(py, error))?)
    }

    /// Those of the subscription with the number `id` alone, which may have no name.
    fn subscription_metrics<'py>(&self, py: Python<'py>, id: u64) -> PyResult<Bound<'py, PyDict>> {
        let figures = py.detach(|| self.core().subscription_metrics_of(id));
        metrics::subscription_dict(py, &figures.map_err(|error| raise(py, error))?)
    }

    /// All figures as Prometheus text.
    fn prometheus(&self, py: Python<'_>) -> String {
        py.detach(|| self.core().metrics().to_prometheus())
    }

    /// A capsule through which native code of this process uses the same broker by the C ABI: see
    /// `slipring_python.h` in `slipring.get_include()`. It keeps the broker open.
    fn capsule<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::new(this)
    }

    /// Stops intake, gives handlers until `deadline` from now to handle what is queued, and stops
    /// all threads. Who waits is told `Closed`; what is queued for subscriptions that are fetched
    /// from can still be received. A named subscription in a directory hands nothing over any more, and
    /// refuses acknowledgements with `Closed`. Closing again does nothing.
    #[pyo3(signature = (deadline=Seconds(PATIENCE)))]
    fn close(&self, py: Python<'_>, deadline: Seconds) -> PyResult<CloseReport> {
        let shared = Arc::clone(&self.0);
        interruptible(py, move || shared.broker.close(deadline.0)).map(CloseReport)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py, Seconds(PATIENCE)).map(drop)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a broker cannot be pickled: it lives in this process. A process of its own opens its \
             own broker",
        ))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let callbacks = self.0.callbacks();
        callbacks.iter().try_for_each(|callbacks| callbacks.visit(&visit))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Closing waits for shards and threads. The handle in here closes nothing any more.
        let broker = self.broker.clone();
        let closed = Python::try_attach(|py| {
            py.detach(|| broker.close(Duration::ZERO));
            let callbacks = std::mem::take(&mut *self.callbacks());
            drop(callbacks);
        });
        if closed.is_none() {
            broker.close(Duration::ZERO);
        }
    }
}
