//! Subscribing: the settings of a subscription, and what comes of them.

use crate::acks::Acks;
use crate::around::Around;
use crate::backoff::Backoff;
use crate::clock::{deadline_after, whole_ms};
use crate::config::{
    CircuitBreaker, DEFAULT_CAPACITY, DeliveryMode, MAX_CAPACITY, Overflow, Start, WaitStrategy,
};
use crate::durable::delivery_record;
use crate::error::{InvalidFilter, StoreFault, SubscribeError};
use crate::filter::Filter;
use crate::handled::{Handled, HandlerResult};
use crate::handler::{BlockHandler, Handler};
use crate::handler_error::{HandlerError, Listeners};
use crate::inbox::{Inbox, InboxState, Queue};
use crate::interest::{FilterFn, Interest, Selector, is_inside_filter, outside_filters};
use crate::message::{Block, Message};
use crate::metrics::SubscriptionMetrics;
use crate::receiver::Receiver;
use crate::registry::{Registry, Succession};
use crate::store::meta::SubscriptionRecord;
use crate::subscription::{Home, Subscription};
use crate::sync::Arc;
use crate::terms::{LEASE_MAX, LEASE_MIN, Terms};
use crate::topic::{Pattern, validate_name};
use crate::wait::Schedule;
use crate::worker::{Task, TaskConfig};
use std::sync::Weak;
use std::time::{Duration, Instant};
use std::{fmt, mem};

/// Settings of a subscription. See [`Broker::subscription`](crate::Broker::subscription).
///
/// ```
/// use slipring::{Broker, DeliveryMode, Overflow, Start};
/// use std::time::Duration;
///
/// let broker = Broker::in_memory();
/// broker.publish("orders/in", "1")?;
/// let mut orders = broker
///     .subscription("orders/*")
///     .pattern("returns/**")
///     .filter("NOT attributes:test")
///     .start(Start::Earliest)
///     .visibility_timeout(Duration::from_secs(30))
///     .open()?;
/// let order = orders.recv()?;
/// assert_eq!(order.payload(), b"1");
/// order.ack()?;
///
/// // What is out of date when it comes late needs no acknowledging.
/// let mut display = broker
///     .subscription("orders/*")
///     .delivery(DeliveryMode::AtMostOnce)
///     .overflow(Overflow::DropOldest)
///     .capacity(16)
///     .start(Start::Last(1))
///     .open()?;
/// assert_eq!(display.recv()?.payload(), b"1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct SubscriptionBuilder<'a> {
    registry: Arc<Registry>,
    patterns: Vec<&'a str>,
    name: Option<&'a str>,
    filter: Result<Option<Selector>, InvalidFilter>,
    capacity: usize,
    overflow: Option<Overflow>,
    delivery: DeliveryMode,
    terms: Terms,
    /// The visibility timeout that asks for nothing.
    usual_visibility: Duration,
    dead_letter_topic: Option<&'a str>,
    takes_over: bool,
    start: Start,
    wait: WaitStrategy,
    dedicated: bool,
    breaker: Option<CircuitBreaker>,
    listeners: Listeners,
    around: Option<Around>,
}

impl fmt::Debug for SubscriptionBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscriptionBuilder")
            .field("patterns", &self.patterns)
            .field("name", &self.name)
            .field("filter", &self.filter)
            .field("capacity", &self.capacity)
            .field("overflow", &self.overflow)
            .field("delivery", &self.delivery)
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}

impl<'a> SubscriptionBuilder<'a> {
    pub(crate) fn new(registry: &Arc<Registry>, pattern: &'a str) -> Self {
        Self {
            registry: Arc::clone(registry),
            patterns: vec![pattern],
            name: None,
            filter: Ok(None),
            capacity: DEFAULT_CAPACITY,
            overflow: None,
            delivery: DeliveryMode::default(),
            terms: Terms::default(),
            usual_visibility: Terms::default().visibility,
            dead_letter_topic: None,
            takes_over: false,
            start: Start::default(),
            wait: WaitStrategy::default(),
            dedicated: false,
            breaker: None,
            listeners: Listeners::default(),
            around: None,
        }
    }

    /// Also wants the topics that match `pattern`. A message that several patterns match comes
    /// once.
    pub fn pattern(mut self, pattern: &'a str) -> Self {
        self.patterns.push(pattern);
        self
    }

    /// A name, unique in the broker: 1..=255 of `[A-Za-z0-9._~+%-]`.
    ///
    /// A subscription that has a name and delivers at least once (the default) lives as long as the
    /// broker, or its directory: when its consumer is dropped it goes on without one, and the next that
    /// is opened under the name gets all that was published in between, as far as the log retains it, and all that was
    /// not settled. It goes on where it was, whatever start is asked for.
    ///
    /// It keeps its patterns, filter, capacity, visibility timeout, attempts, backoff, outstanding
    /// messages, order of keys and topic for dead letters. Whoever opens it again repeats them or
    /// leaves them out: another value is refused with [`SubscribeError::Different`] or
    /// [`SubscribeError::DifferentSetting`], but a default asks for nothing, and of a filter function
    /// the one that was given first stays. To change them, delete the subscription and make it anew.
    /// The way of waiting, and for handlers the thread, the circuit breaker and the functions that
    /// are told, are those of each consumer.
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
    /// It runs on the publishing thread while a shard is held (in a replay, on the thread that
    /// subscribes or receives), so it must be quick, and must not call the broker: such calls are
    /// refused. A panic counts as no match. What it has captured is
    /// dropped some time after the subscription, on any thread, under the same conditions.
    pub fn filter_fn(
        self,
        function: impl Fn(&Message<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let function: Box<FilterFn> = Box::new(function);
        Self { filter: Ok(Some(Selector::Function(function))), ..self }
    }

    /// Messages that can be queued, from each shard: 1024 by default, at most 2^24. 16 bytes each,
    /// rounded up to a power of two, allocated when the first message comes.
    pub fn capacity(self, capacity: usize) -> Self {
        Self { capacity, ..self }
    }

    /// When a message counts as delivered: [`DeliveryMode::AtLeastOnce`] by default.
    pub fn delivery(self, delivery: DeliveryMode) -> Self {
        Self { delivery, ..self }
    }

    /// How long the consumer has to settle a message before it is delivered again: 10 ms to 600 s,
    /// 10 s by default. For one message, see
    /// [`modify_ack_deadline`](Message::modify_ack_deadline). A handler has its message for as long as
    /// it runs.
    pub fn visibility_timeout(mut self, timeout: Duration) -> Self {
        self.terms.visibility = timeout;
        self
    }

    /// The same for a consumer of a kind that gets another time than 10 s where nothing is asked for:
    /// a subscription that exists keeps its own.
    #[doc(hidden)]
    pub fn usual_visibility_timeout(mut self, timeout: Duration) -> Self {
        self.usual_visibility = timeout;
        self.visibility_timeout(timeout)
    }

    /// How often a message is delivered before it goes to the dead letters: 1 to 65,535, 5 by default.
    ///
    /// In a directory, deliveries that ended with their process count as well, but for one that may be
    /// missed: a message that kills its process each time is a dead letter after at most one start
    /// more. For that, what was in the log when a process ended without [closing] its broker is
    /// noted when it is delivered and when it is settled, which costs a system call each, and comes in
    /// batches of one.
    ///
    /// [closing]: crate::Broker::close
    pub fn max_delivery_attempts(mut self, attempts: u32) -> Self {
        self.terms.max_attempts = attempts;
        self
    }

    /// How long a message that failed waits for its next attempt.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.terms.backoff = backoff;
        self
    }

    /// Messages that the consumer can have at a time, received and neither settled nor given back:
    /// 65,536 by default, 1 to 2^24. At the limit none is delivered, nor delivered again, until it
    /// settles one, gives one back, or has had one for too long. What waits for another attempt, or
    /// for an earlier message of its key, does not count; all that is unsettled takes at most some
    /// 40 bytes each.
    pub fn max_outstanding(mut self, messages: usize) -> Self {
        self.terms.max_outstanding = messages;
        self
    }

    /// Lets messages overtake an earlier one of the same ordering key that has failed. Otherwise
    /// they wait until that is settled: acknowledged or among the dead letters.
    pub fn keys_overtake(mut self) -> Self {
        self.terms.keys_wait = false;
        self
    }

    /// The topic that dead letters go to, made if need be: `$dlq/` and the subscription's name by
    /// default, or `unnamed-` and its number where it has none.
    pub fn dead_letter_topic(self, topic: &'a str) -> Self {
        Self { dead_letter_topic: Some(topic), ..self }
    }

    /// Where the subscription of this name has a consumer, takes its place: that one gets
    /// [`Disconnected`](crate::RecvError::Disconnected), and what it has not settled is delivered
    /// anew. A handler in its place is unsubscribed.
    pub fn take_over(self) -> Self {
        Self { takes_over: true, ..self }
    }

    /// What happens to messages while the queue is full: [`Overflow::DropNewest`] by default. Only for
    /// [`DeliveryMode::AtMostOnce`], which it does not imply: whoever wants to be sure of each message,
    /// and asks for [`Overflow::Block`] as well, is to be told, not to lose that.
    pub fn overflow(self, overflow: Overflow) -> Self {
        Self { overflow: Some(overflow), ..self }
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
    /// counted. Means nothing without a handler.
    pub fn on_error(mut self, on_error: impl FnMut(HandlerError<'_>) + Send + 'static) -> Self {
        self.listeners.on_error = Some(Box::new(on_error));
        self
    }

    /// Is told of messages that were lost, with their exact number, between the calls of the handler
    /// where they are missing.
    pub fn on_lagged(mut self, on_lagged: impl FnMut(u64) + Send + 'static) -> Self {
        self.listeners.on_lagged = Some(Box::new(on_lagged));
        self
    }

    /// Is told why messages cannot be read for the handler at the moment, and by `None` that they can be
    /// again; in between that is tried once a second. The log is told as well: this is for a language
    /// with another one.
    #[doc(hidden)]
    pub fn on_unreadable(
        mut self,
        on_unreadable: impl FnMut(Option<StoreFault>) + Send + 'static,
    ) -> Self {
        self.listeners.on_unreadable = Some(Box::new(on_unreadable));
        self
    }

    /// Calls `around` wherever the handler has messages to handle, and handles them inside the one call
    /// that `around` makes of what it is given: to do once for all of them what would be too dear for
    /// each, as to take the lock of an interpreter. `on_error` and `on_lagged` are called inside as
    /// well, and what the handler has captured may be dropped there. Of subscriptions that are given
    /// clones of the same `around`, a worker handles what has come for all in one call. That lasts
    /// until there is nothing more, but no longer than some milliseconds and a slice of some hundred
    /// messages.
    pub fn around(self, around: &Around) -> Self {
        Self { around: Some(around.clone()), ..self }
    }

    /// Subscribes; the messages are pulled. Every publish that starts after this has returned
    /// sees the subscription.
    ///
    /// # Errors
    /// See [`SubscribeError`].
    pub fn open(self) -> Result<Subscription, SubscribeError> {
        let wait = self.wait;
        let registry = Arc::clone(&self.registry);
        let (inbox, acks) = match self.attach()? {
            Some(acks) => (Arc::clone(&acks.inbox), Some(acks)),
            None => {
                let start = self.start;
                let (inbox, acks, record) = self.make_inbox()?;
                let replays = registry.replays(&inbox, start);
                let floors = registry.floors(replays.as_deref());
                let control = registry.register(&inbox, None, acks.clone())?;
                registry.begin(control, &inbox, replays);
                keep(&registry, &inbox, acks.as_deref(), record, &floors)?;
                (inbox, acks)
            }
        };
        let receiver = receiver_of(&registry, &inbox, acks, false);
        Ok(Subscription::new(receiver, wait, Arc::new(Arc::downgrade(&registry))))
    }

    /// Becomes the consumer of the subscription of this name, if it is there and goes on without
    /// one, or may be taken over.
    fn attach(&self) -> Result<Option<Arc<Acks>>, SubscribeError> {
        let registry = &self.registry;
        registry.engine.check()?;
        if self.overflow.is_some() && self.delivery == DeliveryMode::AtLeastOnce {
            return Err(SubscribeError::OverflowAtLeastOnce);
        }
        self.check()?;
        let Some(name) = self.name.filter(|_| self.delivery == DeliveryMode::AtLeastOnce) else {
            return Ok(None);
        };
        let patterns = self.patterns()?;
        loop {
            let mut control = registry.control();
            if registry.engine.is_closed() {
                return Err(SubscribeError::Closed);
            }
            let Some(known) = control.find(name) else { return Ok(None) };
            let Some(acks) = known.acks.clone() else { return Err(SubscribeError::Different) };
            if known.inbox.interest.patterns != patterns {
                return Err(SubscribeError::Different);
            }
            self.check_kept(&known.inbox, &acks)?;
            if known.is_offline {
                known.is_offline = false;
                return Ok(Some(acks));
            }
            if !self.takes_over {
                return Err(SubscribeError::NameInUse);
            }
            drop(control);
            // If others come first, it is offline then, or somebody else's.
            let succession = registry.succeed(&acks.inbox, &acks, None, true);
            let Ok(Some(succession)) = succession else { continue };
            match succession.before.and_then(|task| task.upgrade()) {
                Some(task) => _ = task.end(Some(Instant::now())),
                None => {
                    acks.inbox.advance(InboxState::Disconnected);
                    acks.inbox.wake_all();
                }
            }
        }
    }

    /// Whether each setting is valid by itself.
    fn check(&self) -> Result<(), SubscribeError> {
        self.patterns()?;
        if let Err(error) = &self.filter {
            return Err(SubscribeError::InvalidFilter(error.clone()));
        }
        check_ranges([("capacity", self.capacity as u64, 1, MAX_CAPACITY as u64)])?;
        if let Some(name) = self.name {
            check_subscription_name(name)?;
        }
        if let Some(topic) = self.dead_letter_topic {
            validate_name(topic).map_err(SubscribeError::InvalidDeadLetterTopic)?;
        }
        if self.delivery == DeliveryMode::AtLeastOnce {
            check_terms(&self.terms)?;
        }
        Ok(())
    }

    /// Whether what is asked for is what the subscription of this name keeps. A default asks for
    /// nothing.
    fn check_kept(&self, inbox: &Inbox, acks: &Acks) -> Result<(), SubscribeError> {
        let default = Terms { visibility: self.usual_visibility, ..Terms::default() };
        let (asked, kept) = (&self.terms, &acks.terms);
        let other = |asked: u64, kept: u64, default: u64| asked != kept && asked != default;
        let visibility = |terms: &Terms| whole_ms(terms.visibility);
        let attempts = |terms: &Terms| terms.max_attempts.into();
        let outstanding = |terms: &Terms| terms.max_outstanding as u64;
        let backoff = |terms: &Terms| {
            let (min, max, jitter) = terms.backoff.parts();
            (whole_ms(min), whole_ms(max), jitter)
        };
        let of =
            |figure: &dyn Fn(&Terms) -> u64| other(figure(asked), figure(kept), figure(&default));
        let has_other_backoff =
            backoff(asked) != backoff(kept) && backoff(asked) != backoff(&default);
        let (capacity, kept_capacity) = (self.capacity as u64, inbox.capacity as u64);
        let topic = self.dead_letter_topic;
        let settings = [
            ("filter", self.filter.as_ref().is_ok_and(|filter| is_other(filter, inbox))),
            ("capacity", other(capacity, kept_capacity, DEFAULT_CAPACITY as u64)),
            ("visibility_timeout", of(&visibility)),
            ("max_delivery_attempts", of(&attempts)),
            ("backoff", has_other_backoff),
            ("max_outstanding", of(&outstanding)),
            ("keys_overtake", kept.keys_wait && !asked.keys_wait),
            ("dead_letter_topic", topic.is_some_and(|topic| *topic != *acks.dead_letters.name)),
        ];
        match settings.into_iter().find(|(_, is_other)| *is_other) {
            Some((setting, _)) => Err(SubscribeError::DifferentSetting { setting }),
            None => Ok(()),
        }
    }

    fn patterns(&self) -> Result<Vec<Pattern>, SubscribeError> {
        let patterns = self.patterns.iter().map(|pattern| Pattern::new(pattern));
        patterns.collect::<Result<_, _>>().map_err(SubscribeError::InvalidPattern)
    }

    /// Subscribes; `handler` is called with every message, in order, one at a time, on a delivery
    /// worker. What it returns settles the message: nothing, a `Result`, or a
    /// [`Handled`](crate::Handled). Success acknowledges it; after a failure it is delivered again,
    /// and in the end goes to the dead letters. Where messages are delivered at most once, a failure
    /// is reported and counted, and that is all.
    ///
    /// From inside the handler everything is allowed: publish, subscribe, unsubscribe this or
    /// another subscription, close the broker. A panic is caught and counts as a failure.
    ///
    /// # Errors
    /// See [`SubscribeError`].
    pub fn handler<R: HandlerResult>(
        self,
        handler: impl FnMut(&Message<'_>) -> R + Send + 'static,
    ) -> Result<HandlerSubscription, SubscribeError> {
        self.run(Box::new(handler))
    }

    /// The same for bindings, with several messages in a call, up to [`Block::MOST`]: those that are
    /// queued, never waited for. `handler` gives those that it has failed with, in rising order, and what
    /// it has made of each; each counts as one failure. After a panic all are to be delivered again.
    ///
    /// # Errors
    /// As [`handler`](Self::handler).
    #[doc(hidden)]
    pub fn block_handler(
        self,
        handler: impl FnMut(&Block<'_>) -> Vec<(usize, Handled)> + Send + 'static,
    ) -> Result<HandlerSubscription, SubscribeError> {
        self.run(Box::new(BlockHandler(handler)))
    }

    fn run(mut self, handler: Box<dyn Handler>) -> Result<HandlerSubscription, SubscribeError> {
        let (registry, start, dedicated) = (Arc::clone(&self.registry), self.start, self.dedicated);
        let config = TaskConfig {
            handler,
            listeners: mem::take(&mut self.listeners),
            around: self.around.take(),
            breaker: self.breaker,
            wait: self.wait,
        };
        // Before the mutex, which a thread may have held that a fork has left behind.
        registry.engine.check()?;
        let workers = {
            let _control = registry.control();
            registry.workers()?
        };
        let task = match self.attach()? {
            Some(acks) => {
                let inbox = Arc::clone(&acks.inbox);
                let receiver = receiver_of(&registry, &inbox, Some(acks), true);
                let task = Task::new(receiver, config, &workers);
                if !registry.note_task(&task) {
                    task.end(None);
                }
                task
            }
            None => {
                let (inbox, acks, record) = self.make_inbox()?;
                let replays = registry.replays(&inbox, start);
                let floors = registry.floors(replays.as_deref());
                let receiver = receiver_of(&registry, &inbox, acks.clone(), true);
                let task = Task::new(receiver, config, &workers);
                let weak = Some(Arc::downgrade(&task));
                let control = registry.register(&inbox, weak, acks.clone())?;
                registry.begin(control, &inbox, replays);
                keep(&registry, &inbox, acks.as_deref(), record, &floors)?;
                task
            }
        };
        if dedicated {
            if workers.start_dedicated(Arc::clone(&task)).is_err() {
                task.end(None);
                registry.leave(&task.inbox, task.acks.as_deref());
                return Err(SubscribeError::NoThread);
            }
        } else {
            // There may be something to replay, and if not, this makes it wait for arrivals.
            Schedule::schedule(Arc::clone(&task));
        }
        Ok(HandlerSubscription { inner: Arc::downgrade(&registry), task: Some(task), waits: true })
    }

    /// The inbox of a new subscription whose settings were [checked](Self::check), what settles its messages, and what is to be written down of
    /// it where it outlives the process.
    #[expect(clippy::type_complexity, reason = "what a subscription consists of")]
    fn make_inbox(
        mut self,
    ) -> Result<(Arc<Inbox>, Option<Arc<Acks>>, Option<SubscriptionRecord>), SubscribeError> {
        self.registry.engine.check()?;
        let patterns = self.patterns()?;
        let selector = self.filter.map_err(SubscribeError::InvalidFilter)?;
        let settles_later = self.delivery == DeliveryMode::AtLeastOnce;
        let inner = &self.registry;
        let mut record = None;
        if settles_later && self.name.is_some() && inner.archive.is_some() {
            let filter = match &selector {
                None => None,
                Some(Selector::Expression(filter)) => Some(filter.to_string()),
                Some(Selector::Function(_)) => return Err(SubscribeError::FilterNotKept),
            };
            self.terms.is_durable = true;
            record = Some(SubscriptionRecord {
                patterns: patterns.iter().map(ToString::to_string).collect(),
                filter,
                start: self.start,
                delivery: delivery_record(&self.terms, self.capacity, self.dead_letter_topic),
                ..SubscriptionRecord::default()
            });
        }
        let (from_offset, from_us) = self.start.limits(inner.engine.clock.unix_us());
        let inbox = Arc::new(Inbox::new(
            inner.next_id(),
            self.name.map(Into::into),
            Interest::new(patterns, selector, from_offset, from_us),
            Queue {
                overflow: self.overflow.unwrap_or_default(),
                delivery: self.delivery,
                capacity: self.capacity,
            },
            inner.engine.shards.len(),
            inner.engine.clock.unix_us(),
        ));
        let acks =
            settles_later.then(|| inner.settled_by(&inbox, self.terms, self.dead_letter_topic));
        Ok((inbox, acks, record))
    }
}

/// Writes a new subscription down, where it outlives the process.
fn keep(
    registry: &Arc<Registry>,
    inbox: &Inbox,
    acks: Option<&Acks>,
    record: Option<SubscriptionRecord>,
    floors: &[u64],
) -> Result<(), SubscribeError> {
    let (Some(acks), Some(name), Some(record)) = (acks, &inbox.name, record) else {
        return Ok(());
    };
    registry.keep_subscription(acks, name, record, floors).map_err(|fault| {
        registry.unroute(inbox);
        registry.engine.silence(inbox);
        SubscribeError::Store(fault)
    })
}

/// Whether another filter is asked for than `inbox` has. Of two functions nobody knows.
fn is_other(asked: &Option<Selector>, inbox: &Inbox) -> bool {
    match (asked, inbox.interest.selector.as_deref()) {
        (None, _) | (Some(Selector::Function(_)), Some(Selector::Function(_))) => false,
        (Some(Selector::Expression(asked)), Some(Selector::Expression(kept))) => {
            asked.to_string() != kept.to_string()
        }
        _ => true,
    }
}

fn check_terms(terms: &Terms) -> Result<(), SubscribeError> {
    check_ranges([
        (
            "visibility_timeout",
            whole_ms(terms.visibility),
            whole_ms(LEASE_MIN),
            whole_ms(LEASE_MAX),
        ),
        ("max_delivery_attempts", terms.max_attempts.into(), 1, u16::MAX.into()),
        ("max_outstanding", terms.max_outstanding as u64, 1, 1 << 24),
    ])
}

/// Whether each setting is in its range: name, value, least and most.
fn check_ranges<const N: usize>(
    settings: [(&'static str, u64, u64, u64); N],
) -> Result<(), SubscribeError> {
    match settings.into_iter().find(|&(_, value, min, max)| value < min || value > max) {
        Some((setting, _, min, max)) => Err(SubscribeError::OutOfRange { setting, min, max }),
        None => Ok(()),
    }
}

/// The consumer of `inbox`.
fn receiver_of(
    registry: &Registry,
    inbox: &Arc<Inbox>,
    acks: Option<Arc<Acks>>,
    handles: bool,
) -> Receiver {
    let receiver = Receiver::new(Arc::clone(inbox), Arc::clone(&registry.engine));
    match acks {
        Some(acks) => Receiver::settled_by(acks, handles, receiver),
        None => receiver,
    }
}

impl Home for Weak<Registry> {
    fn leave(&self, inbox: &Arc<Inbox>, acks: Option<&Acks>) {
        if let Some(registry) = self.upgrade() {
            registry.leave(inbox, acks);
        }
    }

    fn seek(
        &self,
        inbox: &Arc<Inbox>,
        acks: &Acks,
        start: Start,
    ) -> Result<Option<Receiver>, StoreFault> {
        let Some(registry) = self.upgrade() else { return Ok(None) };
        let sought = registry.succeed(inbox, acks, Some(start), false)?;
        Ok(sought.map(|Succession { acks, .. }| {
            receiver_of(&registry, &Arc::clone(&acks.inbox), Some(acks), false)
        }))
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

/// A subscription whose messages go to a handler. Dropping it unsubscribes and waits for the
/// handler, unless it is the handler that drops it. One that has a name and delivers at least once
/// goes on without a consumer then: see [`SubscriptionBuilder::name`].
#[derive(Debug)]
#[must_use = "dropping it unsubscribes: use `detach` to keep the handler running"]
pub struct HandlerSubscription {
    inner: Weak<Registry>,
    task: Option<Arc<Task>>,
    /// Whether dropping it waits for a running handler.
    waits: bool,
}

impl HandlerSubscription {
    /// Number of the subscription, unique in the broker.
    pub fn id(&self) -> u64 {
        self.task.as_ref().map_or(0, |task| task.inbox.number)
    }

    /// Messages queued and not handed to the handler yet.
    pub fn queued(&self) -> u64 {
        self.task.as_ref().map_or(0, |task| task.inbox.depth())
    }

    /// The subscription's figures.
    pub fn metrics(&self) -> Option<SubscriptionMetrics> {
        let task = self.task.as_ref()?;
        let now_us = self.inner.upgrade()?.engine.clock.unix_us();
        Some(SubscriptionMetrics::of(&task.inbox, Some(task), task.acks.as_deref(), now_us))
    }

    /// Unsubscribes: when this returns, the handler does not run any more and has been dropped.
    /// What was queued is thrown away, but for a subscription that has a name and delivers at least
    /// once, which goes on without a consumer. From inside the handler itself it returns at once, and the
    /// handler is not called again; from inside another one the handler may still be being dropped.
    ///
    /// Two handlers that unsubscribe each other at the same time would wait for ever: use
    /// [`unsubscribe_timeout`](Self::unsubscribe_timeout) where that can happen.
    ///
    /// # Errors
    /// [`UnsubscribeReason::InsideFilter`] from inside a filter function, with the subscription,
    /// which goes on: the handler may be waiting for the shard that the filter holds.
    pub fn unsubscribe(self) -> Result<(), UnsubscribeError> {
        self.end_by(None)
    }

    /// The same, waiting for a running handler for at most `timeout`.
    ///
    /// # Errors
    /// As [`unsubscribe`](Self::unsubscribe); or [`UnsubscribeReason::Running`], with the
    /// subscription, if the handler was still running. It is not called again, and dropping what is
    /// given back does not wait.
    pub fn unsubscribe_timeout(self, timeout: Duration) -> Result<(), UnsubscribeError> {
        self.end_by(Some(deadline_after(timeout)))
    }

    fn end_by(mut self, deadline: Option<Instant>) -> Result<(), UnsubscribeError> {
        if is_inside_filter() {
            let reason = UnsubscribeReason::InsideFilter;
            return Err(UnsubscribeError { reason, subscription: self });
        }
        if self.end(deadline) {
            return Ok(());
        }
        self.waits = false;
        Err(UnsubscribeError { reason: UnsubscribeReason::Running, subscription: self })
    }

    /// Lets the handler run until the broker closes.
    pub fn detach(mut self) {
        self.task = None;
    }

    fn end(&mut self, deadline: Option<Instant>) -> bool {
        let Some(task) = &self.task else { return true };
        task.inbox.advance(InboxState::Ended);
        let registry = self.inner.upgrade();
        if registry.as_ref().is_some_and(|registry| registry.engine.generation.is_over()) {
            // Its threads do not exist here, and its locks may be held for ever.
            mem::forget(self.task.take());
            return true;
        }
        let goes_on = task.acks.is_some() && task.inbox.name.is_some();
        if let Some(registry) = registry.as_ref().filter(|_| !goes_on) {
            registry.unroute(&task.inbox);
        }
        let ended = task.end(deadline);
        if let Some(registry) = registry {
            // When it has told what it has handled.
            registry.leave(&task.inbox, task.acks.as_deref());
        }
        if ended {
            self.task = None;
        }
        ended
    }
}

impl Drop for HandlerSubscription {
    fn drop(&mut self) {
        if let Some(task) = self.task.take().filter(|_| self.waits) {
            let inner = Weak::clone(&self.inner);
            let mut ending = Self { inner, task: Some(task), waits: true };
            outside_filters(move || {
                ending.end(None);
            });
        }
    }
}

/// A handler that could not be unsubscribed, or not be waited for.
#[derive(Debug)]
pub struct UnsubscribeError {
    /// Why not.
    pub reason: UnsubscribeReason,
    /// The subscription, given back.
    pub subscription: HandlerSubscription,
}

/// Why unsubscribing a handler failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnsubscribeReason {
    /// The call came from inside a filter function. Nothing has changed.
    InsideFilter,
    /// The handler was still running when the time given was over. It is not called again.
    Running,
}

impl fmt::Display for UnsubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.reason {
            UnsubscribeReason::InsideFilter => "a filter function may not call the broker",
            UnsubscribeReason::Running => "the handler was still running",
        })
    }
}

impl std::error::Error for UnsubscribeError {}
