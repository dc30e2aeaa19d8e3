//! The contract of start positions and of memory that is used up: nothing missing, nothing twice,
//! and what has expired is told exactly.
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]

mod watchdog;

use slipring::{
    Broker, DeliveryMode, NewMessage, Overflow, PublishError, RecvError, Start, Subscription,
    TestClock, Topic, TryRecvError, WhenFull,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload[..8].try_into().expect("8 bytes"))
}

/// Publishes `number` with an attribute that tells whether it is even.
fn publish(broker: &Broker, topic: &str, number: u64) {
    let parity = [("parity", if number.is_multiple_of(2) { "even" } else { "odd" })];
    let payload = number.to_le_bytes();
    broker.publish(topic, NewMessage::new(&payload).attributes(&parity)).expect("publishes");
}

/// What is there: numbers in the order received, and how many were lost.
fn drain(subscription: &mut Subscription) -> (Vec<u64>, u64) {
    let (mut numbers, mut lost) = (Vec::new(), 0);
    loop {
        match subscription.try_recv() {
            Ok(message) => numbers.push(number(message.payload())),
            Err(TryRecvError::Recv(RecvError::Lagged(count))) => lost += count,
            Err(_) => return (numbers, lost),
        }
    }
}

fn sorted(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.sort_unstable();
    numbers
}

fn policies() -> [Overflow; 4] {
    [
        Overflow::DropNewest,
        Overflow::DropOldest,
        Overflow::Block { timeout: None },
        Overflow::Disconnect { after: Duration::from_secs(3600) },
    ]
}

/// Goal: each start gives exactly what it says of what is there, and then goes on live.
#[test]
fn every_start_begins_exactly_where_it_says() {
    let _watchdog = watchdog::watch(60);
    for (shards, overflow) in [1, 3].into_iter().flat_map(|n| policies().map(|p| (n, p))) {
        let clock = TestClock::new();
        let broker = Broker::builder().shards(shards).clock(&clock).build().unwrap();
        let topics = ["t/0", "t/1", "t/2", "t/3"];
        let mut time_of_20 = 0;
        let mut other = broker.subscribe("t/*").unwrap();
        for n in 0..40 {
            clock.advance(Duration::from_micros(10));
            publish(&broker, topics[n as usize % 4], n);
            publish(&broker, "other", 1000 + n);
        }
        other
            .poll(1000, |message| {
                if number(message.payload()) == 20 {
                    time_of_20 = message.published_us();
                }
            })
            .unwrap();
        for (start, expected) in [
            (Start::Now, 40..40),
            (Start::Earliest, 0..40),
            (Start::Offset(0), 0..40),
            (Start::Last(0), 40..40),
            (Start::Last(1), 39..40),
            (Start::Last(7), 33..40),
            (Start::Last(40), 0..40),
            (Start::Last(41), 0..40),
            (Start::Last(usize::MAX), 0..40),
            (Start::Offset(9), 36..40),
            (Start::Offset(3), 12..40),
            (Start::Time(0), 0..40),
            (Start::Time(time_of_20), 20..40),
            (Start::Time(time_of_20 + 1), 21..40),
        ] {
            let builder = broker
                .subscription("t/*")
                .start(start)
                .delivery(DeliveryMode::AtMostOnce)
                .overflow(overflow);
            let mut subscription = builder.open().unwrap();
            let mut expected: Vec<u64> = expected.collect();
            // Half of it is read before more is published.
            let mut numbers: Vec<u64> = (0..expected.len() / 2)
                .map(|_| number(subscription.try_recv().unwrap().payload()))
                .collect();
            publish(&broker, "other", 2000);
            let (rest, lost) = drain(&mut subscription);
            numbers.extend(rest);
            if shards > 1 {
                // Nothing is promised across partitions.
                numbers.sort_unstable();
                expected.sort_unstable();
            }
            assert_eq!((numbers, lost), (expected, 0), "{start:?}, {shards}, {overflow:?}");
            assert_eq!(subscription.queued(), 0);
            (0..10).for_each(|n| publish(&broker, "t/live", n));
            let first = if let Start::Offset(offset) = start { offset } else { 0 };
            let live = (first..10).collect();
            assert_eq!(drain(&mut subscription), (live, 0), "{start:?}");
            broker.delete_topic("t/live").unwrap();
        }
    }
}

/// Goal: a filter applies to the past as it does to what is live, and `Last` counts what matches.
#[test]
fn a_filter_applies_to_the_past() {
    let _watchdog = watchdog::watch(30);
    for shards in [1, 3] {
        let clock = TestClock::new();
        let broker = Broker::builder().shards(shards).clock(&clock).build().unwrap();
        for n in 0..40 {
            clock.advance(Duration::from_micros(10));
            publish(&broker, ["a", "b", "c"][n as usize % 3], n);
        }
        let even = |start| {
            let builder = broker.subscription("*").start(start);
            builder.filter("attributes.parity = \"even\"").open().unwrap()
        };
        let evens: Vec<u64> = (0..40).filter(|n| n % 2 == 0).collect();
        assert_eq!(sorted(drain(&mut even(Start::Earliest)).0), evens);
        assert_eq!(sorted(drain(&mut even(Start::Last(5))).0), evens[15..]);
        let by_function = broker.subscription("*").start(Start::Last(3));
        let mut third = by_function
            .filter_fn(|message| number(message.payload()).is_multiple_of(3))
            .open()
            .unwrap();
        assert_eq!(sorted(drain(&mut third).0), [33, 36, 39]);
        publish(&broker, "a", 42);
        publish(&broker, "a", 43);
        assert_eq!(drain(&mut third).0, [42]);
    }
}

/// Goal: looking for the last few messages ends where there can be no more, also if they are fewer
/// than were asked for. Method: many searches beside a long log of other topics, which would take
/// minutes if each read it.
#[test]
fn the_last_few_of_a_quiet_topic_are_found_without_reading_the_log() {
    let _watchdog = watchdog::watch(60);
    let broker = Broker::in_memory();
    let loud = broker.topic("loud").unwrap();
    broker.topic("silent").unwrap();
    let payloads: Vec<_> = (0..1000_u64).map(u64::to_le_bytes).collect();
    let batch: Vec<_> = payloads.iter().map(|payload| NewMessage::new(payload)).collect();
    for _ in 0..300 {
        loud.publish_batch(&batch).unwrap();
    }
    publish(&broker, "quiet", 1);
    publish(&broker, "quiet", 2);
    let retained: u64 = broker.metrics().shards.iter().map(|shard| shard.retained).sum();
    assert_eq!(retained, 300_002);
    for _ in 0..2000 {
        let quiet = broker.subscription("quiet").pattern("silent").start(Start::Last(10));
        assert_eq!(drain(&mut quiet.open().unwrap()), (vec![1, 2], 0));
        let nothing = broker.subscription("nobody/*").start(Start::Last(1));
        assert_eq!(drain(&mut nothing.open().unwrap()), (vec![], 0));
    }
}

/// Goal: a filter that takes long in a replay delays nobody's memory: what expires meanwhile goes
/// back. Method: the filter does not return until twenty budgets have been published.
#[test]
fn memory_is_reclaimed_while_a_filter_is_stuck_in_a_replay() {
    for start in [Start::Earliest, Start::Last(usize::MAX)] {
        let watchdog = watchdog::watch(60);
        const BUDGET: usize = 1 << 20;
        let broker = Broker::builder().memory_budget(BUDGET).build().unwrap();
        (0..100).for_each(|n| publish(&broker, "a", n));
        let (is_stuck, go_on) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (stuck, gone_on) = (Arc::clone(&is_stuck), Arc::clone(&go_on));
        let filter = move |_: &slipring::Message<'_>| {
            // The first call alone: the publishing side asks as well.
            while !stuck.swap(true, Ordering::AcqRel) || thread::current().name() == Some("replay")
            {
                if gone_on.load(Ordering::Acquire) {
                    break;
                }
                thread::yield_now();
            }
            true
        };
        let reader = broker.clone();
        let replay = move || {
            let builder = reader.subscription("a").start(start).filter_fn(filter);
            let mut subscription = builder.open().unwrap();
            let (received, lost) = drain(&mut subscription);
            received.len() as u64 + lost
        };
        let replay = thread::Builder::new().name("replay".into()).spawn(replay).unwrap();
        watchdog.until("the filter is asked", || is_stuck.load(Ordering::Acquire));
        let topic = broker.topic("b").unwrap();
        let payload = [0; 1000];
        let mut most = 0;
        for _ in 0..20 * BUDGET / payload.len() {
            topic.publish(&payload).unwrap();
            most = most.max(broker.metrics().chunk_bytes);
        }
        go_on.store(true, Ordering::Release);
        let told = replay.join().unwrap();
        // What expires while the last ones are looked for is gone before the subscription begins.
        let expected = if start == Start::Earliest { 100 } else { 0 };
        assert_eq!(told, expected, "each is delivered or told as lost");
        // Other tests of this process pin the same epochs for a moment: it need not be little, but
        // far from all that was published.
        assert!(most < 10 * BUDGET as u64, "{most} bytes of a budget of {BUDGET}");
    }
}

/// Goal: an offset or a time that is still to come is waited for: nothing before it is delivered,
/// and the receipt of what is not wanted says so.
#[test]
fn a_start_in_the_future_begins_there() {
    let _watchdog = watchdog::watch(30);
    for look_first in [false, true] {
        let clock = TestClock::new();
        let broker = Broker::builder().clock(&clock).build().unwrap();
        publish(&broker, "a", 0);
        let mut seen = broker.subscribe("a").unwrap();
        publish(&broker, "a", 1);
        let now_us = seen.recv().unwrap().published_us();
        let open = |start| broker.subscription("a").start(start).open().unwrap();
        let mut subscriptions = [open(Start::Offset(4)), open(Start::Time(now_us + 4_000_000))];
        for subscription in &mut subscriptions {
            if look_first {
                assert!(subscription.try_recv().is_err());
            }
        }
        for n in 2..8 {
            clock.advance(Duration::from_millis(1001));
            let receipt = broker.publish("a", &u64::to_le_bytes(n)).unwrap();
            let wanted = 1 + u64::from(n >= 4) + u64::from(n >= 5);
            assert_eq!(receipt.matched, wanted, "message {n}, look first: {look_first}");
        }
        assert_eq!(drain(&mut subscriptions[0]).0, [4, 5, 6, 7]);
        assert_eq!(drain(&mut subscriptions[1]).0, [5, 6, 7]);
        assert!(subscriptions.iter().all(|subscription| subscription.queued() == 0));
    }
}

/// Goal: from replay to live while others publish as fast as they can: no gap, nothing twice.
#[test]
fn a_replay_goes_live_without_gap_or_duplicate_while_others_publish() {
    let _watchdog = watchdog::watch(80);
    for (shards, overflow) in [1, 3].into_iter().flat_map(|n| policies().map(|p| (n, p))) {
        let broker = Broker::builder().shards(shards).build().unwrap();
        let topics: Vec<Topic> =
            ["a", "b", "c"].map(|name| broker.topic(name).unwrap()).into_iter().collect();
        for topic in &topics {
            topic.publish_batch(&[NewMessage::new(b"before"); 500]).unwrap();
        }
        let done = AtomicBool::new(false);
        let readers = AtomicBool::new(false);
        thread::scope(|scope| {
            for first in [0, 1] {
                let (topics, done) = (&topics, &done);
                scope.spawn(move || {
                    for n in 0..6000 {
                        topics[(n + first) % 3].publish("live").unwrap();
                    }
                    done.store(true, Ordering::Release);
                });
            }
            for start in [Start::Earliest, Start::Last(700), Start::Offset(100)] {
                let (broker, topics) = (&broker, &topics);
                let readers = &readers;
                scope.spawn(move || {
                    let builder = broker
                        .subscription("*")
                        .start(start)
                        .delivery(DeliveryMode::AtMostOnce)
                        .overflow(overflow);
                    let mut subscription = builder.capacity(1 << 15).open().unwrap();
                    readers.store(true, Ordering::Release);
                    let mut next: BTreeMap<u32, u64> = BTreeMap::new();
                    // Each topic gets 4000 more, behind the 500 there were.
                    while next.len() < topics.len() || next.values().any(|&next| next < 4500) {
                        let message = subscription.recv().expect("nothing is lost");
                        let offset = message.offset();
                        if let Start::Offset(first) = start {
                            assert!(offset >= first);
                        }
                        let next = next.entry(message.partition()).or_insert(offset);
                        assert_eq!(offset, *next, "{start:?}, {overflow:?}");
                        *next += 1;
                    }
                    assert_eq!(subscription.try_recv().unwrap_err(), TryRecvError::Empty);
                    assert_eq!(subscription.queued(), 0);
                });
            }
        });
    }
}

/// Goal: with a budget that is far too small, delivered and lost are together what was published.
#[test]
fn what_expires_is_told_exactly_to_live_and_replaying_subscriptions() {
    let _watchdog = watchdog::watch(80);
    for overflow in policies() {
        if matches!(overflow, Overflow::Block { .. }) {
            continue;
        }
        let broker = Broker::builder().memory_budget(1 << 20).build().unwrap();
        let topic = broker.topic("a").unwrap();
        let payload = |n: u64| {
            let mut payload = vec![0; 2000];
            payload[..8].copy_from_slice(&n.to_le_bytes());
            payload
        };
        let publish = |range: std::ops::Range<u64>| {
            for n in range {
                let parity = [("parity", if n % 2 == 0 { "even" } else { "odd" })];
                topic.publish(NewMessage::new(&payload(n)).attributes(&parity)).unwrap();
            }
        };
        let open = |start, filter: Option<&str>| {
            let builder = broker
                .subscription("a")
                .capacity(3000)
                .delivery(DeliveryMode::AtMostOnce)
                .overflow(overflow)
                .start(start);
            match filter {
                Some(filter) => builder.filter(filter).open().unwrap(),
                None => builder.open().unwrap(),
            }
        };
        let even = Some("attributes.parity = \"even\"");
        let mut live = [open(Start::Now, None), open(Start::Now, even)];
        publish(0..300);
        let mut replaying = [open(Start::Earliest, None), open(Start::Earliest, even)];
        assert_eq!(number(replaying[0].recv().unwrap().payload()), 0);
        publish(300..2000);
        let (numbers, lost) = drain(&mut live[0]);
        assert_eq!(numbers.len() as u64 + lost, 2000, "{overflow:?}");
        assert!(lost > 1000, "2000 times 2000 bytes do not fit into 1 MiB: {lost}");
        assert_eq!(numbers, ((2000 - numbers.len() as u64)..2000).collect::<Vec<_>>());
        let (numbers, lost) = drain(&mut live[1]);
        assert_eq!(numbers.len() as u64 + lost, 1000, "{overflow:?}");
        let (numbers, lost) = drain(&mut replaying[0]);
        assert_eq!(1 + numbers.len() as u64 + lost, 2000, "{overflow:?}");
        let (numbers, lost) = drain(&mut replaying[1]);
        assert_eq!(numbers.len() as u64 + lost, 1000, "{overflow:?}");
        assert!(lost > 500);
        for subscription in live.iter().chain(&replaying) {
            assert_eq!(subscription.queued(), 0);
        }
    }
}

/// Goal: the same with publishers and readers at work at the same time.
#[test]
fn delivered_and_lost_add_up_while_messages_expire_under_the_readers() {
    let _watchdog = watchdog::watch(80);
    let broker = Broker::builder().memory_budget(2 << 20).shards(2).build().unwrap();
    let topics = ["a", "b"].map(|name| broker.topic(name).unwrap());
    let payload = [1; 1000];
    thread::scope(|scope| {
        let readers: Vec<_> = policies()
            .into_iter()
            .filter(|overflow| !matches!(overflow, Overflow::Block { .. }))
            .flat_map(|overflow| [(overflow, Start::Now), (overflow, Start::Earliest)])
            .map(|(overflow, start)| {
                let builder = broker
                    .subscription("*")
                    .delivery(DeliveryMode::AtMostOnce)
                    .overflow(overflow)
                    .start(start);
                (builder.capacity(2500).open().unwrap(), start, overflow)
            })
            .map(|(mut subscription, start, overflow)| {
                scope.spawn(move || {
                    let (mut received, mut lost) = (0, 0);
                    while received + lost < 20_000 {
                        match subscription.recv() {
                            Ok(message) => {
                                assert_eq!(message.payload(), [1; 1000], "nothing is overwritten");
                                received += 1;
                            }
                            Err(RecvError::Lagged(count)) => lost += count,
                            Err(error) => panic!("{error}"),
                        }
                        if received % 16 == 0 {
                            thread::yield_now();
                        }
                    }
                    assert_eq!(received + lost, 20_000, "{start:?}, {overflow:?}");
                    assert_eq!(subscription.try_recv().unwrap_err(), TryRecvError::Empty);
                })
            })
            .collect();
        for topic in &topics {
            scope.spawn(move || {
                for _ in 0..10_000 {
                    topic.publish(&payload).unwrap();
                }
            });
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

/// Goal: a broker that refuses keeps what is queued, says `Full`, and goes on when it was read, or
/// acknowledged.
#[test]
fn a_broker_that_refuses_is_full_while_messages_are_queued_and_recovers() {
    let _watchdog = watchdog::watch(30);
    let modes = [DeliveryMode::AtMostOnce, DeliveryMode::AtLeastOnce];
    for (start, mode) in
        [Start::Now, Start::Earliest].into_iter().flat_map(|start| modes.map(|mode| (start, mode)))
    {
        let builder = Broker::builder().memory_budget(1 << 20).when_full(WhenFull::Refuse);
        let broker = builder.build().unwrap();
        let mut subscription = broker.subscription("a").delivery(mode).start(start).open().unwrap();
        let topic = broker.topic("a").unwrap();
        let payload = vec![7; 10_000];
        let fill = || {
            let mut published = 0;
            loop {
                match topic.publish(&payload) {
                    Ok(_) => published += 1,
                    Err(error) => {
                        assert_eq!(error, PublishError::Full);
                        return published;
                    }
                }
                assert!(published < 1000, "never full");
            }
        };
        let first = fill();
        assert!(first > 40, "{first}");
        assert_eq!(topic.try_publish(&payload).unwrap_err(), PublishError::Full);
        let error = topic.publish_batch(&[NewMessage::new(&payload)]).unwrap_err();
        assert_eq!((error.reason, error.receipt.published), (PublishError::Full, 0));
        assert_eq!(broker.describe_topic("a").unwrap().partitions[0].next_offset, first);
        for round in 0..3 {
            let mut received = 0;
            while let Ok(message) = subscription.try_recv() {
                assert_eq!(message.ack().is_ok(), mode == DeliveryMode::AtLeastOnce);
                received += 1;
            }
            assert!(received > 0, "round {round}");
            let again = fill();
            assert!(again > 40, "round {round}: room for {again} only, {start:?}");
            assert_eq!(subscription.queued(), again);
        }
        drop(subscription);
        for _ in 0..1000 {
            topic.publish(&payload).unwrap();
        }
    }
}

/// Goal: without a subscriber there is nothing to refuse for.
#[test]
fn a_broker_that_refuses_lets_go_of_what_nobody_waits_for() {
    let _watchdog = watchdog::watch(30);
    let builder = Broker::builder().memory_budget(1 << 20).when_full(WhenFull::Refuse);
    let broker = builder.build().unwrap();
    let topic = broker.topic("a").unwrap();
    for _ in 0..500 {
        topic.publish(&vec![1; 10_000]).unwrap();
    }
    let mut late = broker.subscription("a").start(Start::Earliest).open().unwrap();
    let (numbers, lost) = drain(&mut late);
    assert!((50..=110).contains(&numbers.len()) && lost == 0, "{}", numbers.len());
}

/// Goal: who waits for a loan's message may filter by its offset.
#[test]
fn filters_see_the_place_of_a_loan_before_somebody_is_made_to_wait_for_it() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let topic = broker.topic("a").unwrap();
    topic.publish("0").unwrap();
    let builder = broker
        .subscription("a")
        .delivery(DeliveryMode::AtMostOnce)
        .overflow(Overflow::Block { timeout: None })
        .capacity(1);
    let mut odd = builder.filter_fn(|message| message.offset() % 2 == 1).open().unwrap();
    assert_eq!(topic.publish("1").unwrap().matched, 1);
    assert_eq!(topic.loan(1).unwrap().commit().unwrap().matched, 0, "2 is not wanted");
    thread::scope(|scope| {
        let publisher = scope.spawn(|| topic.loan(1).unwrap().commit().unwrap());
        assert!(topic.try_publish("x").is_err(), "3 is waited for");
        assert_eq!(odd.recv().unwrap().offset(), 1);
        let receipt = publisher.join().unwrap();
        assert_eq!((receipt.offset, receipt.enqueued, receipt.dropped), (3, 1, 0));
    });
    assert_eq!(odd.recv().unwrap().offset(), 3);
}

/// Goal: loans of mixed sizes are accounted for once: what fits the budget stays.
#[test]
fn committed_loans_of_any_size_use_up_no_more_memory_than_they_take() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::builder().memory_budget(16 << 20).build().unwrap();
    let topic = broker.topic("a").unwrap();
    // A large one gets a block of 128 KiB for itself: 13 MiB, and one chunk for all small ones.
    for _ in 0..100 {
        topic.loan(8).unwrap().commit().unwrap();
        topic.loan(100_000).unwrap().commit().unwrap();
    }
    let mut subscription = broker.subscription("a").start(Start::Earliest).open().unwrap();
    let mut count = 0;
    while subscription.try_recv().is_ok() {
        count += 1;
    }
    assert_eq!(count, 200, "nothing has expired");
}

/// Goal: a deleted topic is not replayed.
#[test]
fn a_deleted_topic_is_not_replayed() {
    let watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    publish(&broker, "a", 1);
    publish(&broker, "b", 2);
    broker.delete_topic("a").unwrap();
    publish(&broker, "a", 3);
    let mut all = broker.subscription("*").start(Start::Earliest).open().unwrap();
    assert_eq!(drain(&mut all), (vec![2, 3], 0));
    let mut last = broker.subscription("*").start(Start::Last(2)).open().unwrap();
    watchdog.until("the last two are there", || last.wait_timeout(Duration::ZERO).unwrap());
    assert_eq!(drain(&mut last), (vec![2, 3], 0));
}

/// Goal: a slot of the index is used again. Where it then has a record in a chunk that the reader holds, as that of
/// loans may be for long, this is not taken for the message that has expired.
#[test]
fn a_loan_is_not_taken_for_the_expired_message_whose_slot_it_has() {
    const WINDOW: u64 = 32_768; // slots for the least budget there is
    let _watchdog = watchdog::watch(60);
    let broker = Broker::builder().shards(1).memory_budget(256 << 10).build().unwrap();
    let builder = broker.subscription("a").delivery(DeliveryMode::AtMostOnce);
    let mut subscription = builder.capacity(1 << 17).open().unwrap();
    let topic = broker.topic("a").unwrap();
    let lend = |text: &[u8; 5]| {
        let mut loan = topic.loan(text.len()).unwrap();
        loan.copy_from_slice(text);
        loan
    };
    // From one chunk.
    let (earlier, later) = (lend(b"first"), lend(b"later"));
    assert_eq!(earlier.commit().unwrap().offset, 0);
    let first = subscription.recv().unwrap().keep();
    while topic.publish("").unwrap().offset < WINDOW {}
    assert_eq!(later.commit().unwrap().offset, 1 + WINDOW);
    let (mut next, mut lost) = (1, 0);
    while next <= 1 + WINDOW {
        let polled = subscription.poll(usize::MAX, |message| {
            assert_eq!(message.offset(), next);
            next += 1;
        });
        if let Err(RecvError::Lagged(count)) = polled {
            (next, lost) = (next + count, lost + count);
        }
    }
    assert!(lost > WINDOW / 2, "most have expired: {lost}");
    assert_eq!(first.payload(), b"first");
}
