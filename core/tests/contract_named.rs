//! The contract of subscriptions that have a name: they outlive their consumers.
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]

mod watchdog;

use slipring::{
    AckError, Broker, ConfigError, DeliveryMode, Handled, PublishError, RecvError, SeekError,
    Start, SubscribeError, Subscription, SubscriptionBuilder, TestClock, TryRecvError,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

fn named<'a>(broker: &Broker, name: &'a str) -> SubscriptionBuilder<'a> {
    broker.subscription("a/**").name(name)
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload.try_into().expect("8 bytes"))
}

fn publish(broker: &Broker, numbers: std::ops::Range<u64>) {
    for number in numbers {
        broker.publish("a/b", &number.to_le_bytes()).expect("publishes");
    }
}

/// All that is there, acknowledged, with the attempt of each; and how much was lost.
fn drain(subscription: &mut Subscription) -> (Vec<(u64, u32)>, u64) {
    let (mut numbers, mut lost) = (Vec::new(), 0);
    loop {
        match subscription.try_recv() {
            Ok(message) => {
                numbers.push((number(message.payload()), message.attempt()));
                assert_eq!(message.ack(), Ok(true));
            }
            Err(TryRecvError::Recv(RecvError::Lagged(count))) => lost += count,
            Err(TryRecvError::Empty) => return (numbers, lost),
            Err(error) => panic!("{error}"),
        }
    }
}

fn first_attempts(numbers: std::ops::Range<u64>) -> Vec<(u64, u32)> {
    numbers.map(|number| (number, 1)).collect()
}

#[test]
fn it_comes_back_to_what_was_published_and_what_was_not_settled() {
    let broker = Broker::in_memory();
    let mut all = named(&broker, "s").capacity(4).open().unwrap();
    publish(&broker, 0..10);
    for _ in 0..3 {
        all.try_recv().unwrap().ack().unwrap();
    }
    let unsettled = all.try_recv().unwrap().keep();
    assert_eq!(number(unsettled.payload()), 3);
    drop(all);
    assert_eq!(unsettled.view().ack(), Ok(false), "its lease has ended");
    let described = broker.describe_subscription("s").unwrap();
    assert_eq!((described.is_online, described.unsettled), (false, 1));
    publish(&broker, 10..20);
    let mut back = named(&broker, "s").start(Start::Earliest).open().unwrap();
    let mut expected = first_attempts(4..20);
    expected.insert(0, (3, 2));
    assert_eq!(drain(&mut back), (expected, 0));
    publish(&broker, 20..30);
    assert_eq!(drain(&mut back), (first_attempts(20..30), 0));
    assert_eq!(broker.metrics().subscriptions.len(), 1);
}

#[test]
fn it_may_come_and_go_while_others_publish() {
    const COUNT: u64 = 20_000;
    let _watchdog = watchdog::watch(300);
    let broker = Broker::builder().shards(2).build().unwrap();
    // Settled or not, what was received comes in order, and after a return nothing is missing.
    drop(named(&broker, "s").capacity(16).open().unwrap());
    let finished = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            publish(&broker, 0..COUNT);
            finished.store(true, Ordering::Release);
        });
        let mut next = 0;
        while next < COUNT {
            let mut all = named(&broker, "s").open().unwrap();
            for _ in 0..97 {
                match all.recv_timeout(Duration::from_millis(1)) {
                    Ok(Some(message)) => {
                        assert_eq!((number(message.payload()), message.ack()), (next, Ok(true)));
                        next += 1;
                    }
                    Ok(None) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
    assert!(finished.load(Ordering::Acquire));
    let mut all = named(&broker, "s").open().unwrap();
    assert_eq!(drain(&mut all), (vec![], 0));
}

#[test]
fn what_expires_meanwhile_is_told() {
    let broker = Broker::builder().memory_budget(256 << 10).build().unwrap();
    drop(named(&broker, "s").open().unwrap());
    publish(&broker, 0..50);
    let filler = broker.topic("other").unwrap();
    while broker.metrics().shards[0].expired < 50 {
        filler.publish(&[0; 1024]).unwrap();
    }
    publish(&broker, 50..52);
    let mut all = named(&broker, "s").open().unwrap();
    assert_eq!(drain(&mut all), (first_attempts(50..52), 50));
}

#[test]
fn a_second_consumer_is_refused_or_takes_over() {
    let watchdog = watchdog::watch(60);
    let broker = Broker::in_memory();
    let mut first = named(&broker, "s").open().unwrap();
    publish(&broker, 0..4);
    let held = first.try_recv().unwrap().keep();
    assert_eq!(named(&broker, "s").open().unwrap_err(), SubscribeError::NameInUse);
    let waiting = thread::spawn(move || {
        // It has three more, and then waits.
        for _ in 0..3 {
            assert_eq!(first.recv().unwrap().ack(), Ok(true));
        }
        first.recv().map(|message| number(message.payload()))
    });
    watchdog.until("it has them", || broker.metrics().subscriptions[0].acked == 3);
    let mut second = named(&broker, "s").take_over().open().unwrap();
    assert_eq!(waiting.join().unwrap(), Err(RecvError::Disconnected));
    assert_eq!(held.view().ack(), Ok(false));
    assert_eq!(held.view().nack(None), Err(AckError::Stale));
    assert_eq!(drain(&mut second), (vec![(0, 2)], 0));
    publish(&broker, 4..6);
    assert_eq!(drain(&mut second), (first_attempts(4..6), 0));
}

#[test]
fn a_handler_takes_its_turn_with_consumers_that_pull() {
    let watchdog = watchdog::watch(60);
    let clock = TestClock::new();
    let broker = Broker::builder().clock(&clock).build().unwrap();
    let (told, handled) = channel();
    let handler = named(&broker, "s")
        .handler(move |message| {
            let number = number(message.payload());
            told.send(number).unwrap();
            if number == 2 { Handled::retry("later") } else { Handled::Success }
        })
        .unwrap();
    publish(&broker, 0..3);
    for number in 0..3 {
        assert_eq!(handled.recv().unwrap(), number);
    }
    watchdog.until("it has failed", || handler.metrics().unwrap().unsettled == 1);
    handler.unsubscribe().unwrap();
    publish(&broker, 3..5);
    assert!(handled.try_recv().is_err(), "it has unsubscribed");
    let mut pulled = named(&broker, "s").open().unwrap();
    assert_eq!(drain(&mut pulled), (first_attempts(3..5), 0));
    clock.advance(Duration::from_millis(100));
    assert_eq!(drain(&mut pulled), (vec![(2, 2)], 0));
    let taken = named(&broker, "s").take_over().handler(|_| ()).unwrap();
    assert_eq!(pulled.try_recv().unwrap_err(), TryRecvError::Recv(RecvError::Disconnected));
    publish(&broker, 5..9);
    watchdog.until("all is handled", || taken.metrics().unwrap().acked == 4);
}

#[test]
fn another_pattern_or_mode_is_refused() {
    let broker = Broker::in_memory();
    drop(named(&broker, "s").open().unwrap());
    let other = broker.subscription("b").name("s").delivery(DeliveryMode::AtLeastOnce);
    assert_eq!(other.open().unwrap_err(), SubscribeError::Different);
    let other = broker.subscription("a/**").name("s").delivery(DeliveryMode::AtMostOnce);
    assert_eq!(other.open().unwrap_err(), SubscribeError::NameInUse);
    assert!(named(&broker, "s").open().is_ok());
}

#[test]
fn they_are_listed_described_and_deleted() {
    let broker = Broker::in_memory();
    let mut one = named(&broker, "one").open().unwrap();
    drop(named(&broker, "two").open().unwrap());
    publish(&broker, 0..3);
    assert_eq!(broker.subscriptions().unwrap(), ["one", "two"]);
    let two = broker.describe_subscription("two").unwrap();
    assert_eq!((two.name.as_str(), two.is_online, two.queued), ("two", false, 3));
    assert_eq!(two.patterns, ["a/**"]);
    assert_eq!(two.delivery, DeliveryMode::AtLeastOnce);
    assert!(broker.describe_subscription("one").unwrap().is_online);
    let unknown = ConfigError::UnknownSubscription;
    assert_eq!(broker.describe_subscription("three").unwrap_err(), unknown);
    assert_eq!(broker.delete_subscription("three").unwrap_err(), unknown);
    broker.delete_subscription("two").unwrap();
    assert_eq!(broker.subscriptions().unwrap(), ["one"]);
    broker.delete_subscription("one").unwrap();
    assert_eq!(one.try_recv().unwrap_err(), TryRecvError::Recv(RecvError::Disconnected));
    drop(one);
    assert!(broker.subscriptions().unwrap().is_empty());
    assert!(broker.metrics().subscriptions.is_empty());
    let mut anew = named(&broker, "two").open().unwrap();
    assert_eq!(drain(&mut anew), (vec![], 0), "it is another subscription");
}

#[test]
fn one_without_a_consumer_can_be_sought() {
    let clock = TestClock::new();
    let broker = Broker::builder().clock(&clock).shards(3).build().unwrap();
    let mut all = named(&broker, "s").open().unwrap();
    publish(&broker, 0..5);
    clock.advance(Duration::from_secs(10));
    let middle = broker.subscribe("a/b").unwrap();
    publish(&broker, 5..10);
    assert_eq!(drain(&mut all).0.len(), 10);
    assert_eq!(
        broker.seek_subscription("s", Start::Earliest).unwrap_err(),
        ConfigError::SubscriptionInUse
    );
    drop(all);
    let sought = |start| {
        broker.seek_subscription("s", start).unwrap();
        drain(&mut named(&broker, "s").open().unwrap()).0
    };
    assert_eq!(sought(Start::Earliest), first_attempts(0..10));
    assert_eq!(sought(Start::Offset(7)), first_attempts(7..10));
    assert_eq!(sought(Start::Last(2)), first_attempts(8..10));
    assert_eq!(sought(Start::Now), []);
    let mut oldest = named(&broker, "s").open().unwrap();
    oldest.seek(Start::Earliest).unwrap();
    let times: Vec<_> = (0..10).map(|_| oldest.try_recv().unwrap().published_us()).collect();
    drop((oldest, middle));
    assert_eq!(sought(Start::Time(times[4] + 1)), first_attempts(5..10));
    assert_eq!(
        broker.seek_subscription("t", Start::Now).unwrap_err(),
        ConfigError::UnknownSubscription
    );
}

#[test]
fn after_the_close_nothing_is_sought_opened_or_taken_over() {
    let _watchdog = watchdog::watch(60);
    let broker = Broker::in_memory();
    let mut online = named(&broker, "online").open().unwrap();
    drop(named(&broker, "offline").open().unwrap());
    publish(&broker, 0..2);
    broker.close(Duration::ZERO);
    assert_eq!(online.seek(Start::Earliest), Err(SeekError::Ended));
    assert_eq!(
        broker.seek_subscription("offline", Start::Earliest).unwrap_err(),
        ConfigError::Unavailable(PublishError::Closed)
    );
    for name in ["online", "offline", "new"] {
        assert_eq!(named(&broker, name).open().unwrap_err(), SubscribeError::Closed);
        let taken_over = named(&broker, name).take_over();
        assert_eq!(taken_over.open().unwrap_err(), SubscribeError::Closed);
        let handled = named(&broker, name).take_over().handler(|_| ());
        assert_eq!(handled.unwrap_err(), SubscribeError::Closed);
    }
    for expected in 0..2 {
        assert_eq!(number(online.recv().unwrap().payload()), expected);
    }
    assert_eq!(online.recv().map(|_| ()), Err(RecvError::Closed));
    drop(online);
    assert_eq!(broker.subscriptions().unwrap(), ["offline"]);
}

#[test]
fn whoever_seeks_stays_the_only_consumer() {
    const ROUNDS: usize = 2_000;
    let _watchdog = watchdog::watch(300);
    let broker = Broker::in_memory();
    let mut all = named(&broker, "s").open().unwrap();
    let finished = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !finished.load(Ordering::Acquire) {
                assert_eq!(named(&broker, "s").open().unwrap_err(), SubscribeError::NameInUse);
            }
        });
        for _ in 0..ROUNDS {
            all.seek(Start::Earliest).unwrap();
        }
        finished.store(true, Ordering::Release);
    });
}

#[test]
fn a_handler_that_is_taken_over_while_it_begins_is_let_go() {
    const ROUNDS: usize = 2_000;
    let watchdog = watchdog::watch(300);
    let broker = Broker::in_memory();
    drop(named(&broker, "s").open().unwrap());
    let captured = Arc::new(());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let captured = Arc::clone(&captured);
                    let taken = named(&broker, "s").take_over();
                    taken.handler(move |_| drop(Arc::clone(&captured))).unwrap().detach();
                }
            });
        }
    });
    broker.delete_subscription("s").unwrap();
    watchdog.until("all are let go of", || Arc::strong_count(&captured) == 1);
}
