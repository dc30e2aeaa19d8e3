//! The contract of handlers that get several messages at once, as the bindings offer them.
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]

mod watchdog;

use slipring::internals::Block;
use slipring::{
    Backoff, BreakerState, Broker, CircuitBreaker, DeliveryMode, Handled, HandlerSubscription,
    NewMessage, Overflow, Start, SubscriptionBuilder, TestClock,
};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A message of a batch: its number, and which attempt it is.
type Call = (u64, u32);

fn with_clock() -> (TestClock, Broker) {
    let clock = TestClock::new();
    let broker = Broker::builder().clock(&clock).workers(1).build().expect("valid settings");
    (clock, broker)
}

fn calls(block: &Block<'_>) -> Vec<Call> {
    let number = |payload: &[u8]| u64::from_le_bytes(payload.try_into().expect("8 bytes"));
    block.messages().map(|message| (number(message.payload()), message.attempt())).collect()
}

fn publish(broker: &Broker, topic: &str, numbers: std::ops::Range<u64>) {
    for number in numbers {
        broker.publish(topic, &number.to_le_bytes()).expect("it is published");
    }
}

/// A handler that waits with its first message until it is let go, tells what it gets, and answers as
/// `answer` has it; what it gets, and what lets it go.
fn held(
    builder: SubscriptionBuilder<'_>,
    mut answer: impl FnMut(Call) -> Handled + Send + 'static,
) -> (HandlerSubscription, Receiver<Vec<Call>>, impl FnOnce()) {
    let ((told, batches), (go, begins)) = (channel(), channel());
    let mut is_first = true;
    let handler = builder.block_handler(move |block| {
        if std::mem::take(&mut is_first) {
            begins.recv().expect("it is let go");
        }
        let calls = calls(block);
        let answers = calls.iter().map(|&call| answer(call)).enumerate();
        let failed = answers.filter(|(_, answer)| *answer != Handled::Success).collect();
        let _ = told.send(calls);
        failed
    });
    (handler.expect("it subscribes"), batches, move || go.send(()).expect("it waits"))
}

/// So many messages in as many batches as it takes; and those with more than one message.
fn take(batches: &Receiver<Vec<Call>>, messages: usize) -> (Vec<Call>, usize) {
    let (mut all, mut several) = (Vec::new(), 0);
    while all.len() < messages {
        let batch = batches.recv().expect("there are more");
        assert!(!batch.is_empty() && batch.len() <= Block::MOST);
        several += usize::from(batch.len() > 1);
        all.extend(batch);
    }
    assert_eq!(all.len(), messages);
    (all, several)
}

fn first_attempts(numbers: std::ops::Range<u64>) -> Vec<Call> {
    numbers.map(|number| (number, 1)).collect()
}

#[test]
fn what_is_queued_comes_together_and_in_order() {
    let _watchdog = watchdog::watch(60);
    for delivery in [DeliveryMode::AtMostOnce, DeliveryMode::AtLeastOnce] {
        let broker = Broker::builder().workers(1).build().unwrap();
        let builder = broker.subscription("a").delivery(delivery);
        let (handler, batches, go) = held(builder, |_| Handled::Success);
        publish(&broker, "a", 0..1000);
        go();
        let (all, several) = take(&batches, 1000);
        assert_eq!(all, first_attempts(0..1000));
        assert!(several >= 15, "{several} batches of several");
        assert_eq!(handler.metrics().unwrap().handler_failures, 0);
        handler.unsubscribe().unwrap();
        assert_eq!(batches.iter().count(), 0);
    }
}

#[test]
fn each_failure_is_told_with_its_message_where_nothing_comes_again() {
    let _watchdog = watchdog::watch(60);
    let broker = Broker::builder().workers(1).build().unwrap();
    let failures = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&failures);
    let builder = broker.subscription("a").delivery(DeliveryMode::AtMostOnce).on_error(move |e| {
        let number = u64::from_le_bytes(e.message.payload().try_into().unwrap());
        noted.lock().unwrap().push((number, e.reason.to_owned(), e.panicked));
    });
    let (handler, batches, go) = held(builder, |(number, _)| match number % 10 {
        3 => Handled::retry(format!("retry {number}")),
        7 => Handled::dead_letter(format!("dead {number}")),
        _ => Handled::Success,
    });
    publish(&broker, "a", 0..500);
    go();
    assert_eq!(take(&batches, 500).0, first_attempts(0..500));
    let _ = broker.close(Duration::from_secs(30));
    let expected = (0..500).filter_map(|number| match number % 10 {
        3 => Some((number, format!("retry {number}"), false)),
        7 => Some((number, format!("dead {number}"), false)),
        _ => None,
    });
    assert_eq!(*failures.lock().unwrap(), expected.collect::<Vec<_>>());
    drop(handler);
}

#[test]
fn failures_in_the_midst_come_again_and_no_others() {
    let watchdog = watchdog::watch(60);
    let (clock, broker) = with_clock();
    let builder = broker.subscription("a").backoff(Backoff::new(100 * MS, 100 * MS));
    let (handler, batches, go) = held(builder, |call| match call {
        (100, 1) => Handled::retry("not yet"),
        (101, 1) => Handled::retry("nor this"),
        (200, _) => Handled::dead_letter("never"),
        _ => Handled::Success,
    });
    publish(&broker, "a", 0..300);
    go();
    let (all, several) = take(&batches, 300);
    assert_eq!(all, first_attempts(0..300));
    assert!(several > 3);
    watchdog.until("two are left", || handler.metrics().unwrap().unsettled == 2);
    clock.advance(100 * MS);
    let again: BTreeSet<_> = take(&batches, 2).0.into_iter().collect();
    assert_eq!(again, BTreeSet::from([(100, 2), (101, 2)]));
    watchdog.until("all is settled", || handler.metrics().unwrap().unsettled == 0);
    let metrics = handler.metrics().unwrap();
    assert_eq!((metrics.acked, metrics.dead_lettered), (299, 1));
    assert_eq!((metrics.handler_failures, metrics.redelivered), (3, 2));
    let reasons: Vec<_> = broker
        .dead_letters(&format!("$dlq/unnamed-{}", handler.id()))
        .list(10)
        .iter()
        .map(|letter| letter.view().attribute("dead-letter-reason").unwrap().to_owned())
        .collect();
    assert_eq!(reasons, ["never"]);
    handler.unsubscribe().unwrap();
    assert_eq!(batches.iter().count(), 0);
}

#[test]
fn a_panic_brings_its_batch_again() {
    let watchdog = watchdog::watch(60);
    let (clock, broker) = with_clock();
    let builder = broker.subscription("a").backoff(Backoff::new(100 * MS, 100 * MS));
    let (handler, batches, go) = held(builder, |call| match call {
        (70, 1) => panic!("on purpose"),
        _ => Handled::Success,
    });
    publish(&broker, "a", 0..256);
    go();
    watchdog.until("it has panicked", || handler.metrics().unwrap().handler_panics == 1);
    let failed = handler.metrics().unwrap().handler_failures;
    assert!((1..=Block::MOST as u64).contains(&failed));
    let (all, _) = take(&batches, 256 - failed as usize);
    assert!(all.iter().all(|&(_, attempt)| attempt == 1));
    watchdog.until("the rest is left", || handler.metrics().unwrap().unsettled == failed);
    clock.advance(100 * MS);
    let (again, _) = take(&batches, failed as usize);
    assert!(
        again.iter().all(|&(_, attempt)| attempt == 2) && again.iter().any(|call| call.0 == 70)
    );
    watchdog.until("all is settled", || handler.metrics().unwrap().unsettled == 0);
    assert_eq!(handler.metrics().unwrap().acked, 256);
    handler.unsubscribe().unwrap();
}

#[test]
fn batches_are_whole_while_something_waits_for_another_attempt() {
    let watchdog = watchdog::watch(60);
    let (clock, broker) = with_clock();
    let builder = broker.subscription("a").backoff(Backoff::new(1000 * MS, 1000 * MS));
    let (handler, batches, go) = held(builder, |call| match call {
        (0 | 300, 1) => Handled::retry("not yet"),
        _ => Handled::Success,
    });
    publish(&broker, "a", 0..600);
    go();
    let (all, several) = take(&batches, 600);
    assert_eq!(all, first_attempts(0..600));
    assert!((9..=16).contains(&several), "{several} batches of several");
    watchdog.until("two are left", || handler.metrics().unwrap().unsettled == 2);
    clock.advance(1000 * MS);
    let again: BTreeSet<_> = take(&batches, 2).0.into_iter().collect();
    assert_eq!(again, BTreeSet::from([(0, 2), (300, 2)]));
    watchdog.until("all is settled", || handler.metrics().unwrap().unsettled == 0);
    handler.unsubscribe().unwrap();
}

#[test]
fn those_behind_a_failure_of_their_key_wait_unless_they_came_together() {
    let watchdog = watchdog::watch(60);
    let (clock, broker) = with_clock();
    let builder = broker.subscription("a").backoff(Backoff::new(100 * MS, 100 * MS));
    let (handler, batches, go) = held(builder, |call| match call {
        (1, 1) => Handled::retry("not yet"),
        _ => Handled::Success,
    });
    let keyed = |number: u64| {
        let payload = number.to_le_bytes();
        broker.publish("a", NewMessage { key: Some("k"), ..NewMessage::new(&payload) }).unwrap();
    };
    publish(&broker, "a", 0..1);
    (1..4).for_each(keyed);
    go();
    // The first came alone, for nothing else was there, or with the others.
    assert_eq!(take(&batches, 4).0, first_attempts(0..4));
    watchdog.until("one is left", || handler.metrics().unwrap().unsettled == 1);
    keyed(4);
    publish(&broker, "a", 5..6);
    assert_eq!(take(&batches, 1).0, [(5, 1)], "the one before waits");
    clock.advance(100 * MS);
    assert_eq!(take(&batches, 2).0, [(1, 2), (4, 1)]);
    watchdog.until("all is settled", || handler.metrics().unwrap().unsettled == 0);
    handler.unsubscribe().unwrap();
}

#[test]
fn no_more_come_together_than_may_be_outstanding() {
    let _watchdog = watchdog::watch(60);
    let (_clock, broker) = with_clock();
    let builder = broker.subscription("a").max_outstanding(3);
    let (handler, batches, go) = held(builder, |(number, _)| match number {
        50 => Handled::dead_letter("never"),
        _ => Handled::Success,
    });
    publish(&broker, "a", 0..100);
    go();
    let mut all = Vec::new();
    while all.len() < 100 {
        let batch = batches.recv().unwrap();
        assert!(batch.len() <= 3);
        all.extend(batch);
    }
    assert_eq!(all, first_attempts(0..100));
    handler.unsubscribe().unwrap();
}

#[test]
fn a_batch_whose_handler_unsubscribes_is_its_last() {
    let watchdog = watchdog::watch(60);
    for delivery in [DeliveryMode::AtMostOnce, DeliveryMode::AtLeastOnce] {
        let broker = Broker::builder().workers(1).build().unwrap();
        let own = Arc::new(Mutex::new(None::<HandlerSubscription>));
        let (inside, calls) = (Arc::clone(&own), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&calls);
        let (go, begins) = channel();
        let handler = broker.subscription("a").delivery(delivery).block_handler(move |_| {
            begins.recv().unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            inside.lock().unwrap().take().expect("it is there").unsubscribe().unwrap();
            Vec::new()
        });
        *own.lock().unwrap() = Some(handler.unwrap());
        publish(&broker, "a", 0..300);
        go.send(()).unwrap();
        // What was captured goes with it.
        watchdog.until("it has ended", || Arc::strong_count(&own) == 1);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        let _ = broker.close(Duration::from_secs(30));
    }
}

#[test]
fn what_is_read_from_the_log_or_drops_the_oldest_comes_together_too() {
    let _watchdog = watchdog::watch(60);
    for delivery in [DeliveryMode::AtMostOnce, DeliveryMode::AtLeastOnce] {
        let broker = Broker::builder().workers(1).build().unwrap();
        publish(&broker, "a", 0..900);
        let builder = broker.subscription("a").delivery(delivery).start(Start::Earliest);
        let (handler, batches, go) = held(builder.capacity(8), |_| Handled::Success);
        go();
        let (all, several) = take(&batches, 900);
        assert_eq!(all, first_attempts(0..900));
        assert!(several >= 14, "{several} batches of several");
        handler.unsubscribe().unwrap();
    }
    let broker = Broker::builder().workers(1).build().unwrap();
    let lost = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lost);
    let builder = broker
        .subscription("a")
        .delivery(DeliveryMode::AtMostOnce)
        .overflow(Overflow::DropOldest)
        .capacity(128)
        .on_lagged(move |lost| _ = counted.fetch_add(lost as usize, Ordering::SeqCst));
    let (handler, batches, go) = held(builder, |_| Handled::Success);
    publish(&broker, "a", 0..1);
    publish(&broker, "a", 1..1000);
    go();
    let mut all = Vec::new();
    while all.last() != Some(&(999, 1)) {
        all.extend(batches.recv().unwrap());
    }
    assert!(all.windows(2).all(|two| two[0] < two[1]));
    assert_eq!(all.len() + lost.load(Ordering::SeqCst), 1000);
    assert!(lost.load(Ordering::SeqCst) > 0);
    handler.unsubscribe().unwrap();
}

#[test]
fn a_breaker_counts_each_failure_and_tries_one_message() {
    let watchdog = watchdog::watch(60);
    let (clock, broker) = with_clock();
    let failures = NonZeroUsize::new(5).unwrap();
    let builder = broker
        .subscription("a")
        .delivery(DeliveryMode::AtMostOnce)
        .circuit_breaker(CircuitBreaker { failures, cool_down: 1000 * MS });
    let (handler, batches, go) = held(builder, |(number, _)| match number {
        0..200 => Handled::retry("not yet"),
        _ => Handled::Success,
    });
    publish(&broker, "a", 0..200);
    go();
    let breaker = || handler.metrics().unwrap().breaker;
    let mut next = 0;
    while next < 200 {
        watchdog.until("it is open", || {
            breaker() == BreakerState::Open && handler.metrics().unwrap().handler_failures > next
        });
        let tried = handler.metrics().unwrap().handler_failures - next;
        let (batch, _) = take(&batches, tried as usize);
        assert_eq!(batch, first_attempts(next..next + tried));
        // Those before it was open, and one each time.
        assert!(next == 0 || tried == 1, "{tried} were tried");
        next += tried;
        clock.advance(1000 * MS);
    }
    publish(&broker, "a", 200..300);
    assert_eq!(take(&batches, 100).0, first_attempts(200..300));
    watchdog.until("it is closed", || breaker() == BreakerState::Closed);
    handler.unsubscribe().unwrap();
}

/// Whatever fails, from whichever shard, every message succeeds once, and in the order of its topic but
/// for those that have failed.
#[test]
fn nothing_is_lost_or_doubled_while_others_publish() {
    const EACH: u64 = 20_000;
    const TOPICS: u64 = 3;
    let watchdog = watchdog::watch(300);
    let broker = Broker::builder().shards(2).memory_budget(64 << 20).build().unwrap();
    let (told, batches) = channel();
    let handler = broker
        .subscription("t/*")
        .capacity(256)
        .max_outstanding(1 << 20)
        .backoff(Backoff::new(MS, MS))
        .block_handler(move |block| {
            let topics = block.messages().map(|message| message.topic().to_owned());
            let calls: Vec<_> = topics.zip(calls(block)).collect();
            let fails = |(_, (_, call)): &(usize, &(String, Call))| call.1 == 1 && call.0 % 97 == 0;
            let failed = calls.iter().enumerate().filter(fails);
            let failed = failed.map(|(at, _)| (at, Handled::retry("not yet"))).collect();
            told.send(calls).unwrap();
            failed
        })
        .unwrap();
    thread::scope(|scope| {
        for topic in 0..TOPICS {
            let topic = broker.topic(&format!("t/{topic}")).unwrap();
            scope.spawn(move || {
                for number in 0..EACH {
                    topic.publish(&number.to_le_bytes()).unwrap();
                }
            });
        }
    });
    let failing = EACH.div_ceil(97);
    let mut next: BTreeMap<String, u64> = BTreeMap::new();
    let mut again = BTreeSet::new();
    let mut left = TOPICS * (EACH + failing);
    while left > 0 {
        for (topic, (number, attempt)) in batches.recv().unwrap() {
            left -= 1;
            if attempt == 1 {
                let next = next.entry(topic).or_default();
                assert_eq!(number, *next, "in order");
                *next += 1;
            } else {
                assert!(attempt == 2 && number % 97 == 0 && again.insert((topic, number)));
            }
        }
    }
    watchdog.until("all is settled", || handler.metrics().unwrap().unsettled == 0);
    let metrics = handler.metrics().unwrap();
    assert_eq!((metrics.acked, metrics.redelivered), (TOPICS * EACH, TOPICS * failing));
    handler.unsubscribe().unwrap();
    assert_eq!(batches.iter().count(), 0);
}
