//! The contract of metrics: at rest they agree, to the message, with receipts and deliveries.
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]

mod watchdog;

use slipring::{
    BreakerState, Broker, CircuitBreaker, ConfigError, DeliveryMode, HandlerSubscription, Metrics,
    NewMessage, Overflow, PublishError, RecvError, Start, Subscription, SubscriptionMetrics,
    TestClock, Topic, TryRecvError,
};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);

fn policies() -> [Overflow; 5] {
    [
        Overflow::DropNewest,
        Overflow::DropOldest,
        Overflow::Block { timeout: None },
        Overflow::Block { timeout: Some(Duration::from_micros(20)) },
        Overflow::Disconnect { after: Duration::from_secs(3600) },
    ]
}

/// A small generator, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn of(metrics: &Metrics, id: u64) -> &SubscriptionMetrics {
    metrics.subscriptions.iter().find(|figures| figures.id == id).expect("it is known")
}

fn dropped(figures: &SubscriptionMetrics) -> u64 {
    figures.dropped_newest + figures.dropped_oldest + figures.dropped_timeout
}

/// The law of [`SubscriptionMetrics`].
fn assert_law(figures: &SubscriptionMetrics, where_: &str) {
    let accounted =
        figures.delivered + dropped(figures) + figures.expired + figures.discarded + figures.queued;
    assert_eq!(figures.matched + figures.replayed, accounted, "{where_}: {figures:?}");
    assert_eq!(figures.oldest_age_us.is_some(), figures.queued > 0, "{where_}: {figures:?}");
}

/// What one subscription must show: sums of receipts and of what its consumer was given.
#[derive(Debug, Default)]
struct Ledger {
    matched: u64,
    enqueued: u64,
    dropped: u64,
    received: u64,
    told: u64,
}

impl Ledger {
    fn publish(&mut self, topic: &Topic, message: NewMessage<'_>, random: &mut Random) {
        let (matched, enqueued, dropped) = match random.below(3) {
            0 => match topic.try_publish(message) {
                Ok(receipt) => (receipt.matched, receipt.enqueued, receipt.dropped),
                Err(error) => return assert_eq!(error, PublishError::WouldBlock),
            },
            1 => match topic.try_publish_batch(&[message; 3]) {
                Ok(receipt) => (receipt.matched, receipt.enqueued, receipt.dropped),
                Err(error) => {
                    assert_eq!(error.reason, PublishError::WouldBlock);
                    let receipt = error.receipt;
                    (receipt.matched, receipt.enqueued, receipt.dropped)
                }
            },
            _ => match topic.publish_timeout(message, Duration::from_micros(40)) {
                Ok(receipt) => (receipt.matched, receipt.enqueued, receipt.dropped),
                Err(error) => return assert_eq!(error, PublishError::Timeout),
            },
        };
        self.matched += matched;
        self.enqueued += enqueued;
        self.dropped += dropped;
    }

    /// False when nothing was there.
    fn receive(&mut self, subscription: &mut Subscription, random: &mut Random) -> bool {
        let most = 1 + random.below(9) as usize;
        let received = match random.below(3) {
            0 => subscription.try_recv().map(|_| 1),
            1 => subscription
                .poll(most, |_| ())
                .map(|count| count as u64)
                .map_err(TryRecvError::Recv),
            _ => subscription
                .try_recv_batch(most)
                .map(|batch| batch.len() as u64)
                .map_err(TryRecvError::Recv),
        };
        match received {
            Ok(count) => self.received += count,
            Err(TryRecvError::Empty) => return false,
            Err(TryRecvError::Recv(RecvError::Lagged(lost))) => self.told += lost,
            Err(error) => panic!("{error}"),
        }
        !matches!(received, Ok(0))
    }
}

/// The one reason for which a policy drops.
fn dropped_by(overflow: Overflow, figures: &SubscriptionMetrics) -> u64 {
    match overflow {
        Overflow::DropOldest => figures.dropped_oldest,
        Overflow::Block { .. } => figures.dropped_timeout,
        _ => figures.dropped_newest,
    }
}

/// Goal: matched, delivered, dropped and queued are those of receipts and deliveries, at every
/// step, for every policy, with filters, from several shards.
#[test]
fn figures_agree_with_receipts_and_deliveries_at_every_step() {
    let _watchdog = watchdog::watch(80);
    let plain = (1..=3usize).flat_map(|shards| policies().map(|overflow| (shards, overflow)));
    for (seed, (shards, overflow)) in plain.enumerate() {
        let mut random = Random(seed as u64);
        let broker = Broker::builder().shards(shards).build().unwrap();
        let topics = ["a", "b", "c"].map(|name| broker.topic(name).unwrap());
        for filtered in [false, true] {
            let builder = broker
                .subscription("*")
                .delivery(DeliveryMode::AtMostOnce)
                .overflow(overflow)
                .capacity(5);
            let builder = if filtered { builder.filter("attributes:k") } else { builder };
            let mut subscription = builder.open().unwrap();
            let mut ledger = Ledger::default();
            for step in 0..600 {
                if random.below(3) > 0 {
                    let wanted: &[(&str, &str)] = &[("k", "v")][..random.below(2) as usize];
                    let topic = &topics[random.below(3) as usize];
                    let message = NewMessage::new(b"some payload").attributes(wanted);
                    ledger.publish(topic, message, &mut random);
                } else {
                    ledger.receive(&mut subscription, &mut random);
                }
                let metrics = broker.metrics();
                let figures = of(&metrics, subscription.id());
                let at = format!("{overflow:?}, {shards} shards, step {step}, {ledger:?}");
                assert_law(figures, &at);
                assert_eq!(figures.matched, ledger.matched, "{at}");
                assert_eq!(figures.delivered, ledger.received, "{at}");
                assert_eq!(dropped_by(overflow, figures), ledger.dropped, "{at}");
                assert_eq!(dropped(figures), ledger.dropped, "for that reason alone: {at}");
                assert_eq!(figures.queued, subscription.queued(), "{at}");
                assert_eq!(figures.replayed + figures.expired + figures.discarded, 0, "{at}");
                assert_eq!(figures.lag, 0, "{at}");
                let is_lossy = overflow == Overflow::DropOldest;
                let lost_on_arrival = if is_lossy { 0 } else { ledger.dropped };
                assert_eq!(ledger.enqueued + lost_on_arrival, ledger.matched, "{at}");
            }
            assert!(ledger.matched > 100 && ledger.received > 50, "it has done something");
            while ledger.receive(&mut subscription, &mut random) {}
            assert_eq!(ledger.told, ledger.dropped, "{overflow:?}: all of it was told");
        }
    }
}

/// Goal: the law holds at every step also while a subscription catches up with a log that expires
/// under it, and in the end all figures are those of deliveries and told losses.
#[test]
fn figures_agree_while_a_replay_is_overtaken_by_expiry() {
    let _watchdog = watchdog::watch(80);
    let plain = [1, 3].into_iter().flat_map(|shards| policies().map(|o| (shards, o)));
    for (seed, (shards, overflow)) in plain.enumerate() {
        let mut random = Random(seed as u64);
        let budget = shards * (256 << 10);
        let broker = Broker::builder().shards(shards).memory_budget(budget).build().unwrap();
        let topics = ["a", "b", "c"].map(|name| broker.topic(name).unwrap());
        let payload = [7; 1500];
        let publish = |ledger: &mut Ledger, random: &mut Random| {
            let wanted: &[(&str, &str)] = &[("k", "v")][..usize::from(random.below(4) > 0)];
            let message = NewMessage::new(&payload).attributes(wanted);
            ledger.publish(&topics[random.below(3) as usize], message, random);
        };
        let (mut expired, mut replayed) = (0, 0);
        for round in 0..24 {
            (0..100).for_each(|_| publish(&mut Ledger::default(), &mut random));
            let start = [
                Start::Earliest,
                Start::Last(30),
                Start::Offset(20 * round as u64),
                Start::Last(usize::MAX),
            ][round % 4];
            let builder = broker
                .subscription("*")
                .delivery(DeliveryMode::AtMostOnce)
                .overflow(overflow)
                .start(start);
            let builder = builder.capacity([5, 40][round % 2]);
            let builder = if round % 3 > 0 { builder.filter("attributes:k") } else { builder };
            let mut subscription = builder.open().unwrap();
            let mut ledger = Ledger::default();
            for step in 0..80 {
                if random.below(4) > round as u64 / 8 {
                    publish(&mut ledger, &mut random);
                } else {
                    ledger.receive(&mut subscription, &mut random);
                }
                let metrics = broker.metrics();
                let figures = of(&metrics, subscription.id());
                let at = format!("{overflow:?}, {shards} shards, {start:?}, {step}, {ledger:?}");
                assert_law(figures, &at);
                assert_eq!(figures.matched, ledger.matched, "{at}");
                assert_eq!(figures.delivered, ledger.received, "{at}");
                assert_eq!(dropped(figures), ledger.dropped, "{at}");
                assert_eq!(figures.queued, subscription.queued(), "{at}");
            }
            while ledger.receive(&mut subscription, &mut random) {}
            let metrics = broker.metrics();
            let figures = of(&metrics, subscription.id());
            let at = format!("{overflow:?}, {shards} shards, {start:?}, {ledger:?}");
            assert_law(figures, &at);
            assert_eq!((figures.queued, figures.lag), (0, 0), "{at}");
            assert_eq!(figures.delivered, ledger.received, "{at}");
            assert_eq!(figures.expired + dropped(figures), ledger.told, "{at}: {figures:?}");
            assert_eq!(figures.matched + figures.replayed, ledger.received + ledger.told, "{at}");
            expired += figures.expired;
            replayed += figures.replayed;
        }
        assert!(expired > 0 && replayed > 0, "{expired} expired, {replayed} replayed");
    }
}

/// Goal: while subscribers come and go under load nothing goes wrong, and when all is at rest the
/// law holds for whoever stayed, and the others are not listed.
#[test]
fn figures_are_exact_at_rest_after_subscribers_came_and_went_under_load() {
    let watchdog = watchdog::watch(80);
    for overflow in [Overflow::DropNewest, Overflow::DropOldest, Overflow::Block { timeout: None }]
    {
        let broker = Broker::builder().shards(3).workers(2).build().unwrap();
        let topics = ["a", "b", "c"].map(|name| broker.topic(name).unwrap());
        topics.iter().for_each(|topic| _ = topic.publish("before").unwrap());
        let once = broker.subscription("**").delivery(DeliveryMode::AtMostOnce);
        let drop_newest = once.capacity(7).open().unwrap();
        let handled = std::sync::Arc::new(AtomicU64::new(0));
        let counted = std::sync::Arc::clone(&handled);
        let builder = broker
            .subscription("*")
            .start(Start::Earliest)
            .delivery(DeliveryMode::AtMostOnce)
            .overflow(overflow);
        let handler = builder.handler(move |_| _ = counted.fetch_add(1, Ordering::SeqCst)).unwrap();
        thread::scope(|scope| {
            for first in [0, 1] {
                let topics = &topics;
                scope.spawn(move || {
                    (0..4000).for_each(|n| _ = topics[(n + first) % 3].publish("x").unwrap());
                });
            }
            for round in 0..60 {
                let builder = broker.subscription(["a", "*"][round % 2]).capacity(16);
                let mut passing = builder.start(Start::Last(round % 5)).open().unwrap();
                let _ = passing.poll(round % 20, |_| ());
                assert!(broker.metrics().subscriptions.len() >= 3);
            }
        });
        watchdog.until("all is handled", || handler.queued() == 0);
        let at_rest = || {
            let figures = handler.metrics().unwrap();
            handled.load(Ordering::SeqCst) == figures.delivered
        };
        watchdog.until("the last is counted", at_rest);
        let metrics = broker.metrics();
        assert_eq!(metrics.subscriptions.len(), 2, "the others have left");
        metrics.subscriptions.iter().for_each(|figures| assert_law(figures, "at rest"));
        assert_eq!(of(&metrics, drop_newest.id()).matched, 8000);
        assert_eq!(of(&metrics, handler.id()).matched, 8000);
        assert_eq!(of(&metrics, handler.id()).replayed, 3);
        assert_eq!(handler.metrics().as_ref(), Some(of(&metrics, handler.id())));
        for figures in &metrics.subscriptions {
            let mut alone = broker.subscription_metrics_of(figures.id).unwrap();
            // Time goes on for what is queued.
            assert_eq!(alone.oldest_age_us.is_some(), figures.oldest_age_us.is_some());
            alone.oldest_age_us = figures.oldest_age_us;
            assert_eq!(&alone, figures);
        }
        for figures in &metrics.topics {
            assert_eq!(&broker.topic_metrics_of(&figures.name).unwrap(), figures);
        }
        assert_eq!(broker.topic_metrics_of("none"), Err(ConfigError::UnknownTopic));
        let mut sought =
            broker.subscription("none").delivery(DeliveryMode::AtLeastOnce).open().unwrap();
        sought.seek(Start::Earliest).unwrap();
        assert_eq!(broker.subscription_metrics_of(sought.id()).unwrap().id, sought.id());
        let gone = broker.subscribe("a").unwrap().id();
        let unknown = Err(ConfigError::UnknownSubscription);
        assert_eq!(broker.subscription_metrics_of(gone), unknown);
    }
}

/// What a handler was given, in its order.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    Handled(u64),
    Lost(u64),
}
use Event::{Handled, Lost};

/// A handler of "a" that tells what it gets, and goes on with each message when it is let.
fn stepwise(
    broker: &Broker,
    overflow: Overflow,
) -> (HandlerSubscription, Sender<()>, Receiver<Event>) {
    let (go_on, step) = channel();
    let (tell, told) = channel();
    let tell_loss = tell.clone();
    let handler = broker
        .subscription("a")
        .delivery(DeliveryMode::AtMostOnce)
        .overflow(overflow)
        .capacity(3)
        .on_lagged(move |lost| tell_loss.send(Lost(lost)).expect("somebody listens"))
        .handler(move |message| {
            tell.send(Handled(message.offset())).expect("somebody listens");
            // Without anybody who holds it up, it runs freely.
            let _ = step.recv();
        });
    (handler.expect("subscribes"), go_on, told)
}

/// Goal: `on_lagged` comes between the messages where the loss is, with its exact number.
#[test]
fn a_handlers_losses_are_told_in_stream_order_with_exact_numbers() {
    let watchdog = watchdog::watch(60);
    let disconnect = Overflow::Disconnect { after: Duration::from_secs(3600) };
    for overflow in [Overflow::DropNewest, Overflow::DropOldest, disconnect] {
        let broker = Broker::builder().workers(1).build().unwrap();
        let (handler, go_on, told) = stepwise(&broker, overflow);
        let topic = broker.topic("a").unwrap();
        topic.publish("0").unwrap();
        assert_eq!(told.recv_timeout(LONG), Ok(Handled(0)));
        watchdog.until("it has taken the first", || handler.queued() == 0);
        (1..=8).for_each(|_| _ = topic.publish("1 to 8").unwrap());
        let figures = handler.metrics().unwrap();
        assert_law(&figures, "full");
        assert_eq!((figures.matched, figures.queued, dropped(&figures)), (9, 3, 5));
        assert_eq!(dropped_by(overflow, &figures), 5);
        go_on.send(()).unwrap();
        let first = told.recv_timeout(LONG).unwrap();
        let is_lossy = overflow == Overflow::DropOldest;
        assert_eq!(first, if is_lossy { Lost(5) } else { Handled(1) });
        drop(go_on);
        let rest = if is_lossy {
            [Handled(6), Handled(7), Handled(8)]
        } else {
            [Handled(2), Handled(3), Lost(5)]
        };
        for expected in rest {
            assert_eq!(told.recv_timeout(LONG), Ok(expected), "{overflow:?}");
        }
        topic.publish("9").unwrap();
        assert_eq!(told.recv_timeout(LONG), Ok(Handled(9)));
        assert_eq!(handler.metrics().unwrap().delivered, 5);
    }
}

/// Goal: what a handler's end throws away is counted, also where it is told to end while it runs.
#[test]
fn what_is_left_of_a_handler_at_its_end_is_discarded() {
    let watchdog = watchdog::watch(60);
    let broker = Broker::builder().workers(1).build().unwrap();
    let (handler, go_on, told) = stepwise(&broker, Overflow::DropOldest);
    let topic = broker.topic("a").unwrap();
    topic.publish("0").unwrap();
    assert_eq!(told.recv_timeout(LONG), Ok(Handled(0)));
    watchdog.until("it has taken the first", || handler.queued() == 0);
    (1..=8).for_each(|_| _ = topic.publish("1 to 8").unwrap());
    let id = handler.id();
    let handler = handler.unsubscribe_timeout(Duration::ZERO).unwrap_err().subscription;
    assert!(broker.metrics().subscriptions.iter().all(|figures| figures.id != id));
    drop(go_on);
    let figures = || handler.metrics().unwrap();
    watchdog.until("it has ended", || figures().discarded > 0);
    watchdog.until("nothing is queued", || figures().queued == 0);
    assert_law(&figures(), "ended");
    assert_eq!((figures().discarded, figures().dropped_oldest, figures().delivered), (3, 5, 1));
}

/// Goal: failures and panics of handlers, panics of filters, and the breaker's state are counted
/// to the message.
#[test]
fn failures_panics_and_the_breaker_are_counted() {
    let watchdog = watchdog::watch(60);
    for dedicated in [false, true] {
        let clock = TestClock::new();
        let broker = Broker::builder().workers(1).clock(&clock).build().unwrap();
        let cool_down = Duration::from_secs(60);
        let breaker = CircuitBreaker { failures: NonZeroUsize::new(3).unwrap(), cool_down };
        let (go_on, step) = channel::<()>();
        let once = broker.subscription("a").delivery(DeliveryMode::AtMostOnce);
        let builder = once.circuit_breaker(breaker);
        let builder = if dedicated { builder.dedicated_thread() } else { builder };
        let builder = builder.filter_fn(|message| match message.offset() {
            1 => panic!("a filter's panic"),
            offset => offset != 2,
        });
        let handler = builder.handler(move |message| match message.offset() {
            3 => Err("refused".to_owned()),
            4 => panic!("a handler's panic"),
            5 => Err("refused".to_owned()),
            6 => {
                let _ = step.recv();
                Ok(())
            }
            _ => Ok(()),
        });
        // In this order, so that a failing test lets the handler go on before it waits for it.
        let (handler, go_on) = (handler.unwrap(), go_on);
        let figures = || handler.metrics().unwrap();
        let topic = broker.topic("a").unwrap();
        let matched: u64 = (0..8).map(|_| topic.publish("x").unwrap().matched).sum();
        assert_eq!(matched, 6);
        watchdog.until("it opens", || figures().breaker == BreakerState::Open);
        let open = figures();
        assert_law(&open, "open");
        assert_eq!((open.handler_failures, open.handler_panics, open.filter_panics), (3, 1, 1));
        assert_eq!((open.matched, open.delivered, open.queued), (6, 4, 2));
        clock.advance(cool_down);
        watchdog.until("it tries one", || figures().breaker == BreakerState::HalfOpen);
        drop(go_on);
        watchdog.until("it closes", || figures().breaker == BreakerState::Closed);
        watchdog.until("all is handled", || figures().delivered == 6);
        assert_law(&figures(), "closed");
        assert_eq!(broker.metrics().subscriptions, [figures()]);
        assert_eq!((figures().handler_failures, figures().handler_panics), (3, 1));
    }
}

/// Goal: the age is that of the oldest message queued, or more, and never less: also where another
/// shard's newer message was delivered, and for what is replayed.
#[test]
fn the_oldest_age_is_never_less_than_that_of_the_oldest_queued() {
    let _watchdog = watchdog::watch(30);
    for shards in [1, 2] {
        let clock = TestClock::new();
        let broker = Broker::builder().shards(shards).clock(&clock).build().unwrap();
        let second = Duration::from_secs(1);
        let [first, other] = ["first", "other"].map(|name| broker.topic(name).unwrap());
        let mut subscription = broker.subscribe("*").unwrap();
        let age = |id| of(&broker.metrics(), id).oldest_age_us;
        let id = subscription.id();
        assert_eq!(age(id), None);
        first.publish("at 0").unwrap();
        clock.advance(second);
        assert_eq!(age(id), Some(1_000_000));
        other.publish("at 1").unwrap();
        clock.advance(second);
        // The shards take turns: one of the two is delivered.
        let at_0 = subscription.try_recv().unwrap().payload() == b"at 0";
        assert!(at_0 || shards > 1);
        let oldest = if at_0 { 1_000_000 } else { 2_000_000 };
        let seen = age(id).unwrap();
        assert!(seen >= oldest, "{seen} us, with one of {oldest} us queued, {shards} shards");
        assert!(seen <= 2_000_000, "nothing is older: {seen}");
        subscription.try_recv().unwrap();
        assert_eq!(age(id), None);

        // The other shard's message first, whichever it is that is looked at first.
        for (newer, older) in [(&first, &other), (&other, &first)] {
            older.publish("older").unwrap();
            clock.advance(second);
            newer.publish("newer").unwrap();
            clock.advance(second);
            let was_older = subscription.try_recv().unwrap().payload() == b"older";
            let oldest = if was_older { 1_000_000 } else { 2_000_000 };
            assert!(age(id).unwrap() >= oldest, "{:?}, {oldest} us, {shards} shards", age(id));
            subscription.try_recv().unwrap();
        }

        // What is replayed is older than the subscription.
        first.publish("before").unwrap();
        clock.advance(second);
        let mut replays = broker.subscription("first").start(Start::Earliest).open().unwrap();
        let total = subscription.queued();
        assert_eq!(total, 1);
        let mut replayed = 0;
        while let Ok(message) = replays.try_recv() {
            let published_us = message.published_us();
            replayed += 1;
            let figures = of(&broker.metrics(), replays.id()).clone();
            if figures.queued > 0 {
                // All that is queued was published at that time or later, and before this second.
                let age = figures.oldest_age_us.unwrap();
                assert!(age >= 1_000_000, "{age} us after one of {published_us}");
            }
        }
        assert!(replayed > 1);
    }
}

/// Goal: while nothing was received yet, what is moved over from the log counts with its own age.
#[test]
fn the_oldest_age_counts_what_was_published_before_the_subscription_began() {
    let _watchdog = watchdog::watch(30);
    let clock = TestClock::new();
    let broker = Broker::builder().clock(&clock).workers(1).build().unwrap();
    let topic = broker.topic("a").unwrap();
    (0..3).for_each(|_| _ = topic.publish("old").unwrap());
    clock.advance(Duration::from_secs(10));
    let (go_on, step) = channel::<()>();
    let (tell, told) = channel();
    let handler = broker
        .subscription("a")
        .start(Start::Last(2))
        .handler(move |_| {
            tell.send(()).unwrap();
            let _ = step.recv();
        })
        .unwrap();
    let go_on = go_on;
    told.recv_timeout(LONG).unwrap();
    let figures = handler.metrics().unwrap();
    assert_eq!((figures.replayed, figures.queued), (2, 1));
    assert_eq!(figures.oldest_age_us, Some(10_000_000));
    drop(go_on);
}

/// Goal: shards and topics count what was published to them, and memory is that of the log.
#[test]
fn shard_and_topic_figures_are_those_of_what_was_published() {
    let _watchdog = watchdog::watch(30);
    let budget = 512 << 10;
    let broker = Broker::builder().shards(2).memory_budget(budget).build().unwrap();
    let two = broker.create_topic("two", 2).unwrap();
    let one = broker.create_topic("one", 1).unwrap();
    broker.topic("none").unwrap();
    let mut by_shard = BTreeMap::from([(0, 0), (1, 0)]);
    let mut publish = |topic: &Topic, payload: &[u8]| {
        let partition = topic.publish(payload).unwrap().partition;
        let described = broker.describe_topic(topic.name()).unwrap();
        let shard = described.partitions.iter().find(|p| p.id == partition).unwrap().shard;
        *by_shard.get_mut(&shard).unwrap() += 1;
    };
    (0..7).for_each(|_| publish(&two, b"x"));
    (0..4).for_each(|_| publish(&one, b"x"));
    let small = broker.metrics();
    assert!(small.shards.iter().all(|shard| shard.retained == shard.published));
    (0..400).for_each(|_| publish(&one, &[0; 2000]));
    (0..400).for_each(|_| publish(&two, &[0; 2000]));
    let metrics = broker.metrics();
    assert_eq!(metrics.budget_bytes, budget as u64);
    let topics: Vec<_> = metrics.topics.iter().map(|t| (t.name.as_str(), t.published)).collect();
    assert_eq!(topics, [("none", 0), ("one", 404), ("two", 407)]);
    for (index, shard) in metrics.shards.iter().enumerate() {
        assert_eq!(shard.published, by_shard[&index], "shard {index}");
        assert_eq!(shard.retained + shard.expired, shard.published, "shard {index}");
        assert!(shard.expired > 0 && shard.retained_bytes <= budget as u64, "{shard:?}");
        assert!(shard.retained_bytes >= shard.retained * 2000, "{shard:?}");
        assert!(shard.index_bytes >= shard.retained * 8, "{shard:?}");
        let mut all = broker.subscription("**").start(Start::Earliest).open().unwrap();
        let mut replayed = 0;
        while all.try_recv().is_ok() {
            replayed += 1;
        }
        assert_eq!(replayed, metrics.shards.iter().map(|shard| shard.retained).sum::<u64>());
    }
    let retained: u64 = metrics.shards.iter().map(|shard| shard.retained_bytes).sum();
    assert!(metrics.chunk_bytes >= retained, "also what has expired and is still kept");
    broker.delete_topic("one").unwrap();
    assert_eq!(broker.metrics().topics.len(), 2);
}

/// Goal: whoever looks at the figures holds up nobody for ever: topics and subscriptions come and
/// go meanwhile.
#[test]
fn figures_can_be_read_while_topics_and_subscriptions_come_and_go() {
    let _watchdog = watchdog::watch(60);
    let broker = Broker::builder().shards(2).build().unwrap();
    thread::scope(|scope| {
        for maker in 0..2 {
            let broker = &broker;
            scope.spawn(move || {
                for n in 0..2000 {
                    let name = format!("{maker}/{n}");
                    broker.create_topic(&name, 1).unwrap();
                    drop(broker.subscribe(&name).unwrap());
                    broker.delete_topic(&name).unwrap();
                }
            });
        }
        scope.spawn(|| (0..4000).for_each(|_| drop(broker.metrics())));
    });
    assert_eq!(broker.metrics().topics, []);
}

static ASKED_BY_A_FILTER: OnceLock<Broker> = OnceLock::new();

/// Goal: a filter that asks for the figures, which it must not, cannot hang the broker: it is told
/// nothing that would have to be waited for.
#[test]
fn a_filter_that_reads_the_figures_hangs_nobody() {
    let _watchdog = watchdog::watch(30);
    let broker = ASKED_BY_A_FILTER.get_or_init(Broker::in_memory);
    broker.publish("a", "x").unwrap();
    let seen = std::sync::Arc::new(Mutex::new(Vec::new()));
    let see = std::sync::Arc::clone(&seen);
    let builder = broker.subscription("a").start(Start::Last(1)).filter_fn(move |_| {
        let metrics = ASKED_BY_A_FILTER.get().expect("it is set").metrics();
        see.lock().unwrap().push((metrics.topics.len(), metrics.subscriptions.len()));
        true
    });
    let mut subscription = builder.open().unwrap();
    broker.publish("a", "y").unwrap();
    assert_eq!(subscription.recv().unwrap().payload(), b"x");
    assert_eq!(subscription.recv().unwrap().payload(), b"y");
    assert!(seen.lock().unwrap().iter().all(|&lens| lens == (0, 0)));
    assert!(seen.lock().unwrap().len() >= 2);
}

/// A sample of the exposition format: its name, its labels, its value.
type Sample = (String, BTreeMap<String, String>, f64);

/// A parser of the exposition format that shares nothing with the writer; panics at what is wrong.
fn parse(page: &str) -> Vec<Sample> {
    assert!(page.ends_with('\n'), "the last line ends, too");
    let is_name = |name: &str| {
        let mut bytes = name.bytes();
        bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    let (mut samples, mut families) = (Vec::new(), BTreeSet::new());
    let (mut helped, mut typed) = (String::new(), String::new());
    let mut seen = BTreeSet::new();
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect("a name and a text");
            assert!(is_name(name) && !text.is_empty(), "{line}");
            assert!(families.insert(name.to_owned()), "a family comes once: {line}");
            helped = name.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a name and a type");
            assert_eq!(name, helped, "HELP and TYPE come together");
            assert!(kind == "gauge" || kind == "counter", "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            typed = name.to_owned();
        } else {
            let end = line.find(['{', ' ']).expect("a value");
            let (name, mut rest) = line.split_at(end);
            assert!(is_name(name), "{line}");
            assert!(name == helped && name == typed, "inside its family: {line}");
            let mut labels = BTreeMap::new();
            if let Some(inside) = rest.strip_prefix('{') {
                rest = inside;
                loop {
                    let (label, after) = rest.split_once("=\"").expect("a label and a quote");
                    assert!(is_name(label), "{line}");
                    let mut value = String::new();
                    let mut characters = after.char_indices();
                    let close = loop {
                        let (at, character) = characters.next().expect("a closing quote");
                        match character {
                            '"' => break at,
                            '\\' => match characters.next().expect("something escaped").1 {
                                'n' => value.push('\n'),
                                escaped @ ('\\' | '"') => value.push(escaped),
                                other => panic!("\\{other} in {line}"),
                            },
                            other => value.push(other),
                        }
                    };
                    assert_eq!(labels.insert(label.to_owned(), value), None, "{line}");
                    rest = &after[close + 1..];
                    match rest.as_bytes()[0] {
                        b',' => rest = &rest[1..],
                        b'}' => break rest = &rest[1..],
                        _ => panic!("{line}"),
                    }
                }
            }
            let value = rest.strip_prefix(' ').expect("a blank before the value");
            assert!(seen.insert((name.to_owned(), labels.clone())), "a series comes once: {line}");
            samples.push((name.to_owned(), labels, value.parse().expect("a number")));
        }
    }
    samples
}

/// Goal: every line of the page is well-formed, and every figure of the snapshot is on it once.
#[test]
fn the_prometheus_page_is_well_formed_and_holds_every_figure() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::builder().shards(2).memory_budget(512 << 10).build().unwrap();
    let awkward = "quote\"back\\slash{brace},=é/x y";
    let topic = broker.topic(awkward).unwrap();
    let mut subscriptions = [
        broker
            .subscription("**")
            .name("named")
            .delivery(DeliveryMode::AtMostOnce)
            .capacity(2)
            .open()
            .unwrap(),
        broker
            .subscription(awkward)
            .delivery(DeliveryMode::AtMostOnce)
            .overflow(Overflow::DropOldest)
            .capacity(2)
            .open()
            .unwrap(),
        broker.subscription("*/*").start(Start::Earliest).open().unwrap(),
    ];
    let _handler =
        broker.subscription("**").dedicated_thread().handler(|_| Err("refused")).unwrap();
    (0..700).for_each(|_| _ = topic.publish(&[0; 1000]).unwrap());
    subscriptions[1].try_recv().unwrap_err();
    let metrics = broker.metrics();
    let samples = parse(&metrics.to_prometheus());
    let mut left: BTreeMap<(String, Vec<(String, String)>), f64> = samples
        .into_iter()
        .map(|(name, labels, value)| ((name, labels.into_iter().collect()), value))
        .collect();
    let mut check = |name: &str, labels: &[(&str, &str)], value: u64| {
        let mut labels: Vec<_> =
            labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        labels.sort();
        let found = left.remove(&(format!("slipring_{name}"), labels.clone()));
        assert_eq!(found, Some(value as f64), "{name} {labels:?}");
    };
    check("chunk_bytes", &[], metrics.chunk_bytes);
    check("budget_bytes", &[], metrics.budget_bytes);
    for (index, shard) in metrics.shards.iter().enumerate() {
        let index = index.to_string();
        let labels = [("shard", index.as_str())];
        check("shard_published_total", &labels, shard.published);
        check("shard_retained", &labels, shard.retained);
        check("shard_retained_bytes", &labels, shard.retained_bytes);
        check("shard_expired_total", &labels, shard.expired);
        check("shard_index_bytes", &labels, shard.index_bytes);
        check("shard_stored_bytes", &labels, shard.stored_bytes);
        check("shard_stored", &labels, shard.stored);
        check("shard_unsynced", &labels, shard.unsynced);
    }
    for topic in &metrics.topics {
        check("topic_published_total", &[("topic", &topic.name)], topic.published);
        check("topic_duplicates_total", &[("topic", &topic.name)], topic.duplicates);
    }
    for figures in &metrics.subscriptions {
        let id = figures.id.to_string();
        let name = figures.name.as_deref().unwrap_or("");
        let labels = [("id", &*id), ("subscription", name), ("pattern", &*figures.patterns[0])];
        for (name, value) in [
            ("matched_total", figures.matched),
            ("replayed_total", figures.replayed),
            ("delivered_total", figures.delivered),
            ("expired_total", figures.expired),
            ("discarded_total", figures.discarded),
            ("queued", figures.queued),
            ("lag", figures.lag),
            ("oldest_age_us", figures.oldest_age_us.unwrap_or(0)),
            ("unsettled", figures.unsettled),
            ("acked_total", figures.acked),
            ("redelivered_total", figures.redelivered),
            ("dead_lettered_total", figures.dead_lettered),
            ("expired_unsettled_total", figures.expired_unsettled),
            ("handler_failures_total", figures.handler_failures),
            ("handler_panics_total", figures.handler_panics),
            ("filter_panics_total", figures.filter_panics),
            ("breaker", 0),
        ] {
            check(&format!("subscription_{name}"), &labels, value);
        }
        for (reason, value) in [
            ("newest", figures.dropped_newest),
            ("oldest", figures.dropped_oldest),
            ("timeout", figures.dropped_timeout),
        ] {
            let [id, name, pattern] = labels;
            let labels = [id, name, pattern, ("reason", reason)];
            check("subscription_dropped_total", &labels, value);
        }
    }
    assert!(left.is_empty(), "nothing else is on it: {left:?}");
    assert_eq!(metrics.subscriptions.len(), 4);
    let dropped: Vec<u64> = metrics.subscriptions.iter().map(dropped).collect();
    assert_eq!(dropped[..2], [698, 698], "it shows something");
}
