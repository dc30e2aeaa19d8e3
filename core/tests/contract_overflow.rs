//! The contract of full queues: the four policies, to the letter and to the message.
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]

mod watchdog;

use proptest::prelude::*;
use slipring::{
    Broker, DeliveryMode, NewMessage, Overflow, PublishError, Receipt, RecvError, Sequencer,
    Subscription, TestClock, Topic, TryRecvError,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What a subscriber is given: a message's number, or a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    Message(u64),
    Lost(u64),
}
use Item::{Lost, Message};

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload.try_into().expect("8 bytes"))
}

fn publish(topic: &Topic, number: u64) -> Receipt {
    topic.publish(&number.to_le_bytes()).expect("publishes")
}

fn outcome(receipt: &Receipt) -> (u64, u64, u64) {
    (receipt.matched, receipt.enqueued, receipt.dropped)
}

fn take(subscription: &mut Subscription) -> Result<Item, TryRecvError> {
    match subscription.try_recv() {
        Ok(message) => Ok(Message(number(message.payload()))),
        Err(TryRecvError::Recv(RecvError::Lagged(lost))) => Ok(Lost(lost)),
        Err(error) => Err(error),
    }
}

fn drain(subscription: &mut Subscription) -> (Vec<Item>, TryRecvError) {
    let mut items = Vec::new();
    loop {
        match take(subscription) {
            Ok(item) => items.push(item),
            Err(end) => return (items, end),
        }
    }
}

fn open(broker: &Broker, overflow: Overflow, capacity: usize) -> Subscription {
    broker
        .subscription("a")
        .delivery(DeliveryMode::AtMostOnce)
        .overflow(overflow)
        .capacity(capacity)
        .open()
        .expect("opens")
}

const CAPACITIES: [usize; 8] = [1, 2, 3, 5, 7, 8, 33, 100];

/// Goal: exactly the capacity fits; what comes then is dropped, and told behind it.
#[test]
fn drop_newest_keeps_the_first_that_fit_and_tells_the_rest_behind_them() {
    let _watchdog = watchdog::watch(30);
    for capacity in CAPACITIES {
        let broker = Broker::in_memory();
        let mut subscription = open(&broker, Overflow::DropNewest, capacity);
        let topic = broker.topic("a").unwrap();
        let capacity = capacity as u64;
        for n in 0..capacity + 5 {
            let fits = u64::from(n < capacity);
            assert_eq!(outcome(&publish(&topic, n)), (1, fits, 1 - fits), "{n} of {capacity}");
        }
        assert_eq!(subscription.queued(), capacity);
        assert_eq!(take(&mut subscription), Ok(Message(0)));
        assert_eq!(outcome(&publish(&topic, 1000)), (1, 1, 0), "one has become free");
        assert_eq!(outcome(&publish(&topic, 1001)), (1, 0, 1), "and no more than one");
        let mut expected: Vec<Item> = (1..capacity).map(Message).collect();
        expected.extend([Lost(5), Message(1000), Lost(1)]);
        assert_eq!(drain(&mut subscription), (expected, TryRecvError::Empty));
    }
}

/// Goal: exactly the capacity stays: the last ones, with the loss told before them.
#[test]
fn drop_oldest_keeps_the_last_that_fit_and_tells_the_rest_before_them() {
    let _watchdog = watchdog::watch(30);
    for capacity in CAPACITIES {
        let broker = Broker::in_memory();
        let mut subscription = open(&broker, Overflow::DropOldest, capacity);
        let topic = broker.topic("a").unwrap();
        let capacity = capacity as u64;
        for n in 0..capacity + 5 {
            assert_eq!(outcome(&publish(&topic, n)), (1, 1, u64::from(n >= capacity)));
        }
        assert_eq!(subscription.queued(), capacity);
        let mut expected = vec![Lost(5)];
        expected.extend((5..capacity + 5).map(Message));
        assert_eq!(drain(&mut subscription), (expected, TryRecvError::Empty));
        assert_eq!(subscription.queued(), 0);
    }
}

/// Goal: being told of a loss takes nothing out of the queue: its capacity holds all the time.
#[test]
fn drop_oldest_honours_its_capacity_also_after_a_loss_was_told() {
    let _watchdog = watchdog::watch(30);
    for capacity in [1, 3] {
        let broker = Broker::in_memory();
        let mut subscription = open(&broker, Overflow::DropOldest, capacity as usize);
        let topic = broker.topic("a").unwrap();
        (0..=capacity).for_each(|n| _ = publish(&topic, n));
        assert_eq!(take(&mut subscription), Ok(Lost(1)));
        assert_eq!(outcome(&publish(&topic, 9)), (1, 1, 1), "it is full");
        assert_eq!(subscription.queued(), capacity);
        let (items, _) = drain(&mut subscription);
        let expected: Vec<Item> =
            [Lost(1)].into_iter().chain((2..=capacity).map(Message)).chain([Message(9)]).collect();
        assert_eq!(items, expected);
    }
}

/// Goal: neither Drop policy ever makes a publisher wait, however stalled its subscribers.
#[test]
fn the_drop_policies_never_block() {
    let watchdog = watchdog::watch(60);
    let broker = Broker::builder().memory_budget(1 << 20).build().unwrap();
    let after = Duration::from_secs(3600);
    let stalled: Vec<Subscription> =
        [Overflow::DropNewest, Overflow::DropOldest, Overflow::Disconnect { after }]
            .into_iter()
            .flat_map(|overflow| [open(&broker, overflow, 1), open(&broker, overflow, 1000)])
            .collect();
    let topic = broker.topic("a").unwrap();
    for n in 0..20_000u64 {
        // Never refused for want of room: nobody else holds the shard.
        let receipt = topic.try_publish(&n.to_le_bytes()).unwrap();
        assert_eq!(receipt.matched, 6);
    }
    watchdog.until("no more is queued than fits", || {
        stalled.iter().all(|subscription| subscription.queued() <= 1000)
    });
}

/// Goal: a subscriber that never takes anything has no influence on one that does.
#[test]
fn stalled_subscribers_never_delay_nor_thin_out_others() {
    let _watchdog = watchdog::watch(60);
    let broker = Broker::builder().shards(2).build().unwrap();
    let after = Duration::from_secs(3600);
    let policies = [
        Overflow::DropNewest,
        Overflow::DropOldest,
        Overflow::Disconnect { after },
        Overflow::Block { timeout: Some(Duration::ZERO) },
    ];
    let _stalled = policies.map(|overflow| open(&broker, overflow, 2));
    let mut live = broker.subscription("a").capacity(8).open().unwrap();
    let topic = broker.create_topic("a", 2).unwrap();
    let mut slowest = Duration::ZERO;
    for n in 0..10_000 {
        let began = Instant::now();
        assert_eq!(publish(&topic, n).matched, 5);
        let message = live.recv().unwrap();
        assert_eq!((number(message.payload()), message.ack()), (n, Ok(true)));
        slowest = slowest.max(began.elapsed());
    }
    println!("beside four stalled subscriptions, the slowest message took {slowest:?}");
    assert!(slowest < Duration::from_millis(500));
}

/// Starts a publish of `number` that has to wait, and returns when it does.
fn start_blocked<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    topic: &'scope Topic,
    number: u64,
    done: &'scope AtomicBool,
) -> thread::ScopedJoinHandle<'scope, Result<Receipt, PublishError>> {
    let publisher = scope.spawn(move || {
        let result = topic.publish(&number.to_le_bytes());
        done.store(true, Ordering::Release);
        result
    });
    // It waits, or is about to: others are refused all the while.
    for _ in 0..200 {
        assert_eq!(topic.try_publish("other").expect_err("no room"), PublishError::WouldBlock);
        thread::yield_now();
    }
    assert!(!done.load(Ordering::Acquire), "a blocked publish does not return");
    publisher
}

/// Goal: `Block` without a timeout waits for room, however long, and drops nothing.
#[test]
fn block_waits_for_room_and_drops_nothing() {
    let _watchdog = watchdog::watch(60);
    for capacity in [1, 2, 3, 5] {
        let broker = Broker::in_memory();
        let mut subscription = open(&broker, Overflow::Block { timeout: None }, capacity);
        let other = broker.subscribe("a").unwrap();
        let topic = broker.topic("a").unwrap();
        let capacity = capacity as u64;
        (0..capacity).for_each(|n| assert_eq!(outcome(&publish(&topic, n)), (2, 2, 0)));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let publisher = start_blocked(scope, &topic, capacity, &done);
            assert_eq!(other.queued(), capacity, "it is not published to anybody before");
            assert_eq!(take(&mut subscription), Ok(Message(0)));
            assert_eq!(outcome(&publisher.join().unwrap().unwrap()), (2, 2, 0));
        });
        assert_eq!(subscription.queued(), capacity);
        let expected = (1..=capacity).map(Message).collect();
        assert_eq!(drain(&mut subscription), (expected, TryRecvError::Empty));
    }
}

/// Goal: a fast publisher and a slow subscriber with `Block`: everything comes, in order.
#[test]
fn block_hands_over_everything_under_pressure() {
    let _watchdog = watchdog::watch(60);
    let pinned = Sequencer::Pinned { first: 0 };
    for (capacity, batch, sequencer) in [
        (1, 1, Sequencer::Publishers),
        (3, 1, Sequencer::Publishers),
        (3, 10, Sequencer::Publishers),
        (64, 100, Sequencer::Publishers),
        (1, 1, pinned),
        (64, 100, pinned),
    ] {
        let broker = Broker::builder().shards(2).sequencer(sequencer).build().unwrap();
        let mut subscription = open(&broker, Overflow::Block { timeout: None }, capacity);
        let topics = [broker.topic("a").unwrap(), broker.topic("a").unwrap()];
        thread::scope(|scope| {
            for topic in &topics {
                scope.spawn(move || {
                    for n in 0..2000 / batch {
                        let payload = u64::to_le_bytes(n);
                        let messages = vec![NewMessage::new(&payload); batch as usize];
                        let receipt = topic.publish_batch(&messages).unwrap();
                        assert_eq!((receipt.enqueued, receipt.dropped), (batch, 0));
                    }
                });
            }
            for offset in 0..4000 {
                assert_eq!(subscription.recv().unwrap().offset(), offset);
            }
        });
        assert_eq!(subscription.queued(), 0);
    }
}

/// Goal: who waits for a subscription that goes, goes on, and does not count it.
#[test]
fn block_wakes_when_the_subscription_is_dropped() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let subscription = open(&broker, Overflow::Block { timeout: None }, 1);
    let topic = broker.topic("a").unwrap();
    publish(&topic, 0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let publisher = start_blocked(scope, &topic, 1, &done);
        drop(subscription);
        assert_eq!(outcome(&publisher.join().unwrap().unwrap()), (0, 0, 0));
    });
}

/// Goal: closing wakes whoever waits, and takes nothing from what is queued.
#[test]
fn block_wakes_when_the_broker_closes() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let mut subscription = open(&broker, Overflow::Block { timeout: None }, 1);
    let topic = broker.topic("a").unwrap();
    publish(&topic, 0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let publisher = start_blocked(scope, &topic, 1, &done);
        assert_eq!(broker.close(Duration::ZERO).unreceived, 1);
        assert_eq!(publisher.join().unwrap().unwrap_err(), PublishError::Closed);
    });
    let closed = TryRecvError::Recv(RecvError::Closed);
    assert_eq!(drain(&mut subscription), (vec![Message(0)], closed));
}

/// Goal: `Block` drops when its timeout is over, not a moment earlier, and says so.
#[test]
fn block_never_drops_before_its_timeout_and_then_does() {
    let _watchdog = watchdog::watch(30);
    let clock = TestClock::new();
    let broker = Broker::builder().clock(&clock).build().unwrap();
    let timeout = Duration::from_secs(1);
    let mut subscription = open(&broker, Overflow::Block { timeout: Some(timeout) }, 2);
    let topic = broker.topic("a").unwrap();
    (0..2).for_each(|n| _ = publish(&topic, n));
    let (elapsed_ms, step_ms) = (AtomicU64::new(0), 100);
    for n in 2..5 {
        thread::scope(|scope| {
            let publisher = scope.spawn(|| {
                let began = elapsed_ms.load(Ordering::SeqCst);
                let receipt = publish(&topic, n);
                (receipt, elapsed_ms.load(Ordering::SeqCst) - began)
            });
            while !publisher.is_finished() {
                elapsed_ms.fetch_add(step_ms, Ordering::SeqCst);
                clock.advance(Duration::from_millis(step_ms));
                for _ in 0..20 {
                    thread::yield_now();
                }
            }
            let (receipt, waited_ms) = publisher.join().unwrap();
            assert_eq!(outcome(&receipt), (1, 0, 1));
            assert!(waited_ms + step_ms > 1000, "dropped after {waited_ms} ms");
        });
    }
    let expected = vec![Message(0), Message(1), Lost(3)];
    assert_eq!(drain(&mut subscription), (expected, TryRecvError::Empty));
    assert_eq!(outcome(&publish(&topic, 9)), (1, 1, 0), "it recovers");
}

/// Goal: each subscription that blocks has a waiting time of its own: what a publisher waited for one
/// does not count for another. Method: the second becomes full while the first is waited for.
#[test]
fn what_was_waited_for_one_subscription_does_not_count_for_another() {
    let watchdog = watchdog::watch(60);
    let (timeout_ms, step_ms) = (1000, 100);
    for loaned in [false, true] {
        let clock = TestClock::new();
        let broker = Broker::builder().clock(&clock).build().unwrap();
        let mut patient = open(&broker, Overflow::Block { timeout: None }, 1);
        let block = Overflow::Block { timeout: Some(Duration::from_millis(timeout_ms)) };
        let builder = broker
            .subscription("a")
            .pattern("b")
            .delivery(DeliveryMode::AtMostOnce)
            .overflow(block)
            .capacity(1);
        let mut strict = builder.open().unwrap();
        let (topic, other) = (broker.topic("a").unwrap(), broker.topic("b").unwrap());
        publish(&topic, 0);
        assert_eq!(take(&mut strict), Ok(Message(0)));
        let elapsed_ms = AtomicU64::new(0);
        let advance = |by_ms| {
            elapsed_ms.fetch_add(by_ms, Ordering::SeqCst);
            clock.advance(Duration::from_millis(by_ms));
        };
        let done = AtomicBool::new(false);
        let (receipt, dropped_ms) = thread::scope(|scope| {
            let publisher = scope.spawn(|| {
                let receipt = if loaned {
                    let mut loan = topic.loan(8).unwrap();
                    loan.copy_from_slice(&1_u64.to_le_bytes());
                    loan.commit().unwrap()
                } else {
                    publish(&topic, 1)
                };
                let dropped_ms = elapsed_ms.load(Ordering::SeqCst);
                done.store(true, Ordering::Release);
                (receipt, dropped_ms)
            });
            for _ in 0..200 {
                assert_eq!(topic.try_publish("other").unwrap_err(), PublishError::WouldBlock);
                thread::yield_now();
            }
            publish(&other, 7);
            advance(2 * timeout_ms);
            assert_eq!(take(&mut patient), Ok(Message(0)));
            // Long enough for a publisher that drops at once to be seen doing so.
            let started = Instant::now();
            watchdog.until("the publisher has had time to drop", || {
                done.load(Ordering::Acquire) || started.elapsed() > Duration::from_millis(300)
            });
            while !publisher.is_finished() {
                advance(step_ms);
                (0..20).for_each(|_| thread::yield_now());
            }
            publisher.join().unwrap()
        });
        assert_eq!(outcome(&receipt), (2, 1, 1));
        assert!(dropped_ms + step_ms >= 3 * timeout_ms, "dropped after {dropped_ms} ms");
    }
}

/// Goal: subscriptions that are full together are waited for together, not one after the other.
#[test]
fn waiting_for_several_subscriptions_takes_as_long_as_for_the_most_patient() {
    let _watchdog = watchdog::watch(60);
    let clock = TestClock::new();
    let broker = Broker::builder().clock(&clock).build().unwrap();
    let block = |ms| Overflow::Block { timeout: Some(Duration::from_millis(ms)) };
    let _full = [1000, 900, 800].map(|ms| open(&broker, block(ms), 1));
    let topic = broker.topic("a").unwrap();
    publish(&topic, 0);
    let elapsed_ms = AtomicU64::new(0);
    thread::scope(|scope| {
        let publisher = scope.spawn(|| (publish(&topic, 1), elapsed_ms.load(Ordering::SeqCst)));
        while !publisher.is_finished() {
            assert!(elapsed_ms.load(Ordering::SeqCst) < 1_000_000, "it waits for ever");
            elapsed_ms.fetch_add(1, Ordering::SeqCst);
            clock.advance(Duration::from_millis(1));
            (0..20).for_each(|_| thread::yield_now());
        }
        let (receipt, _) = publisher.join().unwrap();
        assert_eq!(outcome(&receipt), (3, 0, 3));
    });
    let metrics = broker.metrics();
    assert!(metrics.subscriptions.iter().all(|each| each.dropped_timeout == 1));
}

/// Goal: a blocking subscription with a filter is waited for only where it wants the message.
#[test]
fn block_does_not_wait_for_what_its_filter_does_not_want() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let block = Overflow::Block { timeout: None };
    let builder =
        broker.subscription("a").delivery(DeliveryMode::AtMostOnce).overflow(block).capacity(1);
    let mut subscription = builder.filter("attributes:wanted").open().unwrap();
    let topic = broker.topic("a").unwrap();
    let wanted = NewMessage::new(b"w").attributes(&[("wanted", "")]);
    let batch = [NewMessage::new(b"-"), wanted, NewMessage::new(b"-"), NewMessage::new(b"-")];
    let receipt = topic.try_publish_batch(&batch).unwrap();
    assert_eq!((receipt.published, receipt.matched, receipt.enqueued), (4, 1, 1));
    assert_eq!(topic.try_publish(wanted).unwrap_err(), PublishError::WouldBlock);
    assert_eq!(topic.publish("-").unwrap().matched, 0);
    let error = topic.try_publish_batch(&[NewMessage::new(b"-"), wanted]).unwrap_err();
    assert_eq!((error.receipt.published, error.reason), (1, PublishError::WouldBlock));
    subscription.recv().unwrap();
    topic.try_publish(wanted).unwrap();
}

/// Goal: a subscription that is full for too long gets what is queued, then the loss, then its end.
#[test]
fn disconnect_ends_a_subscription_that_stays_full_for_too_long() {
    let _watchdog = watchdog::watch(30);
    let clock = TestClock::new();
    let broker = Broker::builder().clock(&clock).build().unwrap();
    let after = Duration::from_secs(10);
    let mut subscription = open(&broker, Overflow::Disconnect { after }, 2);
    let topic = broker.topic("a").unwrap();
    for n in 0..3 {
        publish(&topic, n);
    }
    clock.advance(after - Duration::from_secs(1));
    assert_eq!(outcome(&publish(&topic, 3)), (1, 0, 1), "not yet");
    assert_eq!(take(&mut subscription), Ok(Message(0)));
    assert_eq!(outcome(&publish(&topic, 4)), (1, 1, 0));
    clock.advance(Duration::from_secs(5));
    assert_eq!(outcome(&publish(&topic, 5)), (1, 0, 1), "it had room meanwhile: counts anew");
    clock.advance(after);
    assert_eq!(outcome(&publish(&topic, 6)), (1, 0, 1), "now it is disconnected");
    assert_eq!(outcome(&publish(&topic, 7)), (0, 0, 0), "and matched no more");
    let expected = vec![Message(1), Lost(2), Message(4), Lost(2)];
    let disconnected = TryRecvError::Recv(RecvError::Disconnected);
    assert_eq!(drain(&mut subscription), (expected, disconnected));
    assert_eq!(subscription.recv().unwrap_err(), RecvError::Disconnected);
    assert_eq!(subscription.recv_batch(2).unwrap_err(), RecvError::Disconnected);
    assert_eq!(subscription.poll(2, |_| ()).unwrap_err(), RecvError::Disconnected);
}

/// Goal: a disconnected subscription is matched nowhere: other topics, partitions and shards agree.
#[test]
fn a_disconnected_subscription_is_disconnected_from_every_topic_and_shard() {
    let _watchdog = watchdog::watch(30);
    let clock = TestClock::new();
    let broker = Broker::builder().clock(&clock).shards(2).build().unwrap();
    let overflow = Overflow::Disconnect { after: Duration::from_secs(1) };
    let builder =
        broker.subscription("*").delivery(DeliveryMode::AtMostOnce).overflow(overflow).capacity(1);
    let mut subscription = builder.open().unwrap();
    // Topics take turns among the shards.
    let topics = ["a", "b", "c", "d"].map(|name| broker.topic(name).unwrap());
    for topic in &topics {
        publish(topic, 0);
    }
    clock.advance(Duration::from_secs(1));
    publish(&topics[0], 1);
    clock.advance(Duration::from_secs(1));
    publish(&topics[0], 2);
    for topic in &topics {
        assert_eq!(outcome(&publish(topic, 3)), (0, 0, 0), "{}", topic.name());
    }
    let (_, end) = drain(&mut subscription);
    assert_eq!(end, TryRecvError::Recv(RecvError::Disconnected));
}

/// Goal: however one receives, a loss comes between the messages that it lies between.
#[test]
fn a_loss_is_told_where_it_happened_by_every_way_to_receive() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let topic = broker.topic("a").unwrap();
    let prepared = || {
        let mut subscription = open(&broker, Overflow::DropNewest, 2);
        (0..4).for_each(|n| _ = publish(&topic, n));
        assert_eq!(take(&mut subscription), Ok(Message(0)));
        publish(&topic, 4);
        publish(&topic, 5);
        subscription
    };
    // Message 1, two lost, message 4, one lost.
    let lagged = RecvError::Lagged;
    let mut subscription = prepared();
    assert_eq!(number(subscription.recv_batch(9).unwrap().next().unwrap().payload()), 1);
    assert_eq!(subscription.recv_batch(9).unwrap_err(), lagged(2));
    assert_eq!(subscription.recv_batch(9).unwrap().len(), 1);
    assert_eq!(subscription.try_recv_batch(9).unwrap_err(), lagged(1));
    let mut subscription = prepared();
    assert_eq!(subscription.poll(9, |_| ()), Ok(1));
    assert!(subscription.wait_timeout(Duration::ZERO).unwrap());
    assert_eq!(subscription.poll(9, |_| ()), Err(lagged(2)));
    assert_eq!(subscription.poll(9, |_| ()), Ok(1));
    assert_eq!(subscription.recv().unwrap_err(), lagged(1));
    let mut subscription = prepared();
    broker.close(Duration::ZERO);
    let items: Vec<_> =
        subscription.iter().map(|item| item.map(|message| number(message.payload()))).collect();
    assert_eq!(items, [Ok(1), Err(lagged(2)), Ok(4), Err(lagged(1))]);
}

/// A queue as anybody would write it.
struct Model {
    overflow: Overflow,
    capacity: usize,
    queue: VecDeque<Item>,
}

impl Model {
    fn queued(&self) -> usize {
        self.queue.iter().filter(|item| matches!(item, Message(_))).count()
    }

    /// Publishes; says how much is enqueued and dropped.
    fn publish(&mut self, number: u64) -> (u64, u64) {
        if self.queued() < self.capacity {
            self.queue.push_back(Message(number));
            return (1, 0);
        }
        if self.overflow == Overflow::DropOldest {
            let oldest = self.queue.iter().position(|item| matches!(item, Message(_)));
            self.queue.remove(oldest.expect("it is full"));
            match self.queue.front_mut() {
                Some(Lost(lost)) => *lost += 1,
                _ => self.queue.push_front(Lost(1)),
            }
            self.queue.push_back(Message(number));
            return (1, 1);
        }
        match self.queue.back_mut() {
            Some(Lost(lost)) => *lost += 1,
            _ => self.queue.push_back(Lost(1)),
        }
        (0, 1)
    }

    /// Takes up to `most` messages, or the one loss that is in front of them.
    fn take(&mut self, most: usize) -> Vec<Item> {
        if let Some(Lost(_)) = self.queue.front() {
            return self.queue.pop_front().into_iter().collect();
        }
        let messages = self.queue.iter().take_while(|item| matches!(item, Message(_))).count();
        self.queue.drain(..messages.min(most)).collect()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Publish(u8),
    Batch(u8),
    Recv,
    RecvBatch(u8),
    Poll(u8),
    Stream,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..6u8).prop_map(Step::Publish),
        1 => (1..12u8).prop_map(Step::Batch),
        3 => Just(Step::Recv),
        1 => (1..5u8).prop_map(Step::RecvBatch),
        1 => (1..5u8).prop_map(Step::Poll),
        1 => Just(Step::Stream),
    ];
    proptest::collection::vec(step, 1..60)
}

fn received(result: Result<Vec<Item>, RecvError>) -> Vec<Item> {
    match result {
        Ok(items) => items,
        Err(RecvError::Lagged(lost)) => vec![Lost(lost)],
        Err(error) => panic!("{error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Goal: one subscription behaves like a queue with a policy, whatever is done to it.
    #[test]
    fn a_subscription_is_a_queue_with_a_policy(
        oldest in any::<bool>(),
        capacity in 1..9usize,
        steps in steps(),
    ) {
        let _watchdog = watchdog::watch(60);
        let overflow = if oldest { Overflow::DropOldest } else { Overflow::DropNewest };
        let broker = Broker::in_memory();
        let mut subscription = open(&broker, overflow, capacity);
        let topic = broker.topic("a").unwrap();
        let mut model = Model { overflow, capacity, queue: VecDeque::new() };
        let mut next = 0;
        for step in steps {
            match step {
                Step::Publish(count) => {
                    for _ in 0..count {
                        let receipt = publish(&topic, next);
                        prop_assert_eq!((receipt.enqueued, receipt.dropped), model.publish(next));
                        next += 1;
                    }
                }
                Step::Batch(count) => {
                    let payloads: Vec<_> =
                        (next..next + u64::from(count)).map(u64::to_le_bytes).collect();
                    let messages: Vec<_> = payloads.iter().map(NewMessage::from).collect();
                    let receipt = topic.publish_batch(&messages).unwrap();
                    let mut expected = (0, 0);
                    for _ in 0..count {
                        let (enqueued, dropped) = model.publish(next);
                        expected = (expected.0 + enqueued, expected.1 + dropped);
                        next += 1;
                    }
                    prop_assert_eq!((receipt.enqueued, receipt.dropped), expected);
                }
                Step::Recv => {
                    let items: Vec<Item> = take(&mut subscription).into_iter().collect();
                    prop_assert_eq!(items, model.take(1));
                }
                Step::RecvBatch(most) => {
                    let batch = subscription.try_recv_batch(most.into());
                    let items = batch.map(|batch| {
                        batch.iter().map(|message| Message(number(message.payload()))).collect()
                    });
                    prop_assert_eq!(received(items), model.take(most.into()));
                }
                Step::Poll(most) => {
                    let mut items = Vec::new();
                    let polled = subscription
                        .poll(most.into(), |message| items.push(Message(number(message.payload()))));
                    let items = received(polled.map(|count| {
                        assert_eq!(count, items.len());
                        items
                    }));
                    prop_assert_eq!(items, model.take(most.into()));
                }
                Step::Stream => {
                    use futures::{FutureExt, StreamExt};
                    let item = subscription.next().now_or_never();
                    let items = received(item.flatten().map_or(Ok(Vec::new()), |item| {
                        item.map(|message| vec![Message(number(message.payload()))])
                    }));
                    prop_assert_eq!(items, model.take(1));
                }
            }
            prop_assert_eq!(subscription.queued(), model.queued() as u64);
        }
    }
}

/// Goal: a publisher that waits for room goes on when what fills the queue has expired, though
/// nothing of it is delivered.
#[test]
fn a_publisher_that_waits_goes_on_when_what_was_queued_expires() {
    let watchdog = watchdog::watch(60);
    let broker = Broker::builder().shards(1).memory_budget(1 << 18).build().unwrap();
    let mut subscription = open(&broker, Overflow::Block { timeout: None }, 4);
    let (topic, other) = (broker.topic("a").unwrap(), broker.topic("b").unwrap());
    (0..4).for_each(|n| _ = publish(&topic, n));
    thread::scope(|scope| {
        let publisher = scope.spawn(|| publish(&topic, 4));
        let payload = [0; 1000];
        for _ in 0..1000 {
            other.publish(&payload).unwrap();
        }
        // By then it sleeps, as a rule; if not, it finds the room by itself.
        let asked = Instant::now();
        watchdog.until("the publisher has had time to sleep", || {
            asked.elapsed() > Duration::from_millis(20)
        });
        assert_eq!(take(&mut subscription), Ok(Lost(4)));
        let received = subscription.recv().map(|message| number(message.payload()));
        assert_eq!(received, Ok(4));
        assert_eq!(publisher.join().unwrap().offset, 4);
    });
}
