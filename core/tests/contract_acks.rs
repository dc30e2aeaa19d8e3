//! The contract of delivery at least once: leases, acknowledgements, retries, and what happens to a
//! queue that is full.
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]

mod watchdog;

use slipring::{
    AckError, AckId, Backoff, BreakerState, Broker, CircuitBreaker, DEAD_LETTER_REASON,
    DeliveryMode, Handled, Message, NewMessage, Overflow, PublishError, RecvError, Start,
    SubscribeError, Subscription, SubscriptionBuilder, TestClock, TryRecvError, WhenFull,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// It is the default.
fn settled_later<'a>(broker: &Broker, pattern: &'a str) -> SubscriptionBuilder<'a> {
    broker.subscription(pattern)
}

fn with_clock() -> (TestClock, Broker) {
    let clock = TestClock::new();
    let broker = Broker::builder().clock(&clock).build().expect("valid settings");
    (clock, broker)
}

fn text(message: &Message<'_>) -> String {
    text_of(message.payload())
}

fn text_of(payload: &[u8]) -> String {
    String::from_utf8(payload.to_vec()).expect("text")
}

/// The next message, as text with its attempt.
fn next(subscription: &mut Subscription) -> Option<(String, u32)> {
    match subscription.try_recv() {
        Ok(message) => Some((text(&message), message.attempt())),
        Err(TryRecvError::Empty) => None,
        Err(error) => panic!("{error}"),
    }
}

fn id(subscription: &mut Subscription) -> AckId {
    subscription.try_recv().expect("a message").ack_id().expect("it is leased")
}

#[test]
fn messages_are_to_be_acknowledged_unless_something_else_is_asked_for() {
    assert_eq!(DeliveryMode::default(), DeliveryMode::AtLeastOnce);
    let (clock, broker) = with_clock();
    let mut pulled = broker.subscribe("a").unwrap();
    let mut once = broker.subscription("a").delivery(DeliveryMode::AtMostOnce).open().unwrap();
    broker.publish("a", "one").unwrap();
    assert_eq!(next(&mut pulled), Some(("one".into(), 1)));
    assert_eq!(next(&mut once), Some(("one".into(), 1)));
    clock.advance(Duration::from_secs(10));
    assert_eq!(next(&mut pulled), Some(("one".into(), 2)), "after 10 s");
    assert_eq!(next(&mut once), None);
}

#[test]
fn an_overflow_policy_is_refused_where_nothing_overflows() {
    let broker = Broker::in_memory();
    for overflow in [
        Overflow::DropNewest,
        Overflow::DropOldest,
        Overflow::Block { timeout: None },
        Overflow::Disconnect { after: MS },
    ] {
        let builder = || broker.subscription("a").name("s").overflow(overflow);
        let refusal = SubscribeError::OverflowAtLeastOnce;
        assert_eq!(builder().open().unwrap_err(), refusal);
        assert_eq!(builder().handler(|_| ()).unwrap_err(), refusal);
        let named = builder().delivery(DeliveryMode::AtLeastOnce);
        assert_eq!(named.open().unwrap_err(), refusal, "also if it is said twice");
        drop(builder().delivery(DeliveryMode::AtMostOnce).open().unwrap());
    }
    assert_eq!(broker.subscriptions(), Ok(vec![]));
}

#[test]
fn an_iterator_acknowledges_what_it_gave_when_it_is_asked_for_the_next() {
    let (_clock, broker) = with_clock();
    let mut all = broker.subscribe("a").unwrap();
    let acker = all.acker().unwrap();
    let unsettled = || broker.metrics().subscriptions[0].unsettled;
    for payload in ["0", "1", "2", "3"] {
        broker.publish("a", payload).unwrap();
    }
    let mut messages = all.iter();
    let mut taken = || messages.next().unwrap().unwrap();
    assert_eq!((text(&taken().view()).as_str(), unsettled()), ("0", 1));
    let second = taken();
    assert_eq!(unsettled(), 1, "the first is settled");
    second.view().nack(Some(Duration::from_secs(1))).unwrap();
    let third = taken();
    assert_eq!(unsettled(), 2, "what was given back stays so");
    assert_eq!(third.view().ack(), Ok(true));
    assert_eq!((text(&taken().view()).as_str(), unsettled()), ("3", 2));
    broker.close(Duration::ZERO);
    assert!(messages.next().is_none());
    assert_eq!(unsettled(), 1, "the last is settled at the end");
    assert_eq!(acker.ack(&second.view().ack_id().unwrap()), Ok(false));
}

#[test]
fn whoever_leaves_the_loop_or_uses_a_stream_acknowledges_by_himself() {
    let broker = Broker::in_memory();
    let mut all = broker.subscribe("a").unwrap();
    let unsettled = || broker.metrics().subscriptions[0].unsettled;
    for payload in ["0", "1", "2", "3"] {
        broker.publish("a", payload).unwrap();
    }
    let left = all.iter().next().unwrap().unwrap();
    assert_eq!(unsettled(), 1);
    assert_eq!(left.view().ack(), Ok(true));
    let next = || futures::executor::block_on(futures::StreamExt::next(&mut all)).unwrap().unwrap();
    let taken: Vec<_> = std::iter::repeat_with(next).take(3).collect();
    assert_eq!(unsettled(), 3);
    assert!(taken.iter().all(|message| message.view().ack() == Ok(true)));
    assert_eq!(unsettled(), 0);
}

#[test]
fn closing_tells_what_is_not_settled() {
    let watchdog = watchdog::watch(60);
    let (_clock, broker) = with_clock();
    let mut pulled = broker.subscribe("a").unwrap();
    let handler = broker.subscription("a").handler(|message| match message.payload() {
        b"bad" => Handled::retry("never"),
        _ => Handled::Success,
    });
    let handler = handler.unwrap();
    for payload in ["bad", "good", "better"] {
        broker.publish("a", payload).unwrap();
    }
    watchdog.until("it has handled them", || handler.metrics().unwrap().acked == 2);
    watchdog.until("one has failed", || handler.metrics().unwrap().handler_failures == 1);
    let received = pulled.try_recv().unwrap();
    let report = broker.close(Duration::from_secs(30));
    assert_eq!((report.unhandled, report.unreceived, report.unsettled), (0, 2, 2));
    assert_eq!(received.ack(), Ok(true));
}

#[test]
fn an_open_breaker_keeps_what_is_due_again_waiting() {
    let watchdog = watchdog::watch(60);
    let (clock, broker) = with_clock();
    let (told, calls) = channel();
    let fails = Arc::new(AtomicBool::new(true));
    let failing = Arc::clone(&fails);
    let cool_down = Duration::from_secs(60);
    let handler = broker
        .subscription("a")
        .backoff(Backoff::new(100 * MS, 100 * MS))
        .circuit_breaker(CircuitBreaker { failures: 2.try_into().unwrap(), cool_down })
        .handler(move |message| {
            told.send((text(message), message.attempt())).unwrap();
            let fails = failing.load(Ordering::Relaxed);
            if fails { Handled::retry("down") } else { Handled::Success }
        })
        .unwrap();
    for payload in ["0", "1", "2"] {
        broker.publish("a", payload).unwrap();
    }
    let called = |times| calls.iter().take(times).collect::<Vec<_>>();
    assert_eq!(called(2), [("0".into(), 1), ("1".into(), 1)]);
    watchdog.until("it opens", || handler.metrics().unwrap().breaker == BreakerState::Open);
    clock.advance(cool_down - MS);
    assert!(calls.try_recv().is_err(), "two are due, and the breaker is open");
    fails.store(false, Ordering::Relaxed);
    clock.advance(MS);
    let rest: BTreeSet<_> = called(3).into_iter().collect();
    assert_eq!(rest, [("0", 2), ("1", 2), ("2", 1)].map(|(text, n)| (text.into(), n)).into());
    watchdog.until("all is settled", || handler.metrics().unwrap().acked == 3);
}

#[test]
fn a_message_comes_again_when_its_lease_ends_until_it_is_acknowledged() {
    let (clock, broker) = with_clock();
    let mut all = settled_later(&broker, "a").visibility_timeout(100 * MS).open().unwrap();
    broker.publish("a", "one").unwrap();
    for attempt in 1..=3 {
        let message = all.try_recv().expect("it is due");
        assert_eq!((text(&message).as_str(), message.attempt()), ("one", attempt));
        assert_eq!(next(&mut all), None);
        clock.advance(99 * MS);
        assert_eq!(next(&mut all), None, "attempt {attempt} has its time");
        clock.advance(MS);
    }
    let message = all.try_recv().expect("it is due");
    assert_eq!(message.ack(), Ok(true));
    assert_eq!(message.ack(), Ok(false), "acknowledging again does nothing");
    clock.advance(Duration::from_secs(3600));
    assert_eq!(next(&mut all), None);
}

#[test]
fn what_fails_waits_longer_each_time() {
    let (clock, broker) = with_clock();
    let backoff = Backoff::new(100 * MS, 250 * MS);
    let mut all =
        settled_later(&broker, "a").backoff(backoff).max_delivery_attempts(9).open().unwrap();
    broker.publish("a", "one").unwrap();
    for (attempt, pause) in [(1, 100), (2, 200), (3, 250), (4, 250)] {
        let message = all.try_recv().expect("it is due");
        assert_eq!(message.attempt(), attempt);
        message.nack(None).unwrap();
        clock.advance((pause - 1) * MS);
        assert_eq!(next(&mut all), None, "after attempt {attempt}");
        clock.advance(MS);
    }
    all.try_recv().unwrap().nack(Some(Duration::from_secs(7))).unwrap();
    clock.advance(Duration::from_secs(7) - MS);
    assert_eq!(next(&mut all), None);
    clock.advance(MS);
    assert_eq!(next(&mut all), Some(("one".into(), 6)));
}

#[test]
fn a_stale_lease_can_do_nothing() {
    let (clock, broker) = with_clock();
    let mut all = settled_later(&broker, "a").visibility_timeout(50 * MS).open().unwrap();
    let acker = all.acker().unwrap();
    broker.publish("a", "one").unwrap();
    let first = id(&mut all);
    clock.advance(50 * MS);
    assert_eq!(acker.nack(&first, None), Err(AckError::Stale));
    assert_eq!(acker.modify_ack_deadline(&first, 100 * MS), Err(AckError::Stale));
    assert_eq!(acker.dead_letter(&first, "late"), Err(AckError::Stale));
    let second = id(&mut all);
    assert_ne!(first, second);
    assert_eq!(acker.ack(&first), Ok(false), "somebody else has it now");
    assert_eq!(acker.modify_ack_deadline(&second, 60 * MS), Ok(()));
    clock.advance(59 * MS);
    assert_eq!(next(&mut all), None, "it was extended");
    assert_eq!(acker.nack(&second, Some(Duration::ZERO)), Ok(()));
    assert_eq!(acker.ack(&second), Ok(false), "it was given back");
    assert_eq!(acker.nack(&second, None), Err(AckError::Stale));
    let third = id(&mut all);
    assert_eq!(acker.ack(&third), Ok(true));
    assert_eq!(acker.nack(&third, None), Err(AckError::Stale));
    let read: AckId = third.to_string().parse().unwrap();
    assert_eq!(acker.ack(&read), Ok(false));
}

#[test]
fn an_ack_after_the_deadline_counts_as_long_as_nobody_else_has_the_message() {
    let (clock, broker) = with_clock();
    let mut all = settled_later(&broker, "a").visibility_timeout(50 * MS).open().unwrap();
    broker.publish("a", "one").unwrap();
    let late = id(&mut all);
    clock.advance(Duration::from_secs(1));
    assert_eq!(all.acker().unwrap().ack(&late), Ok(true));
    assert_eq!(next(&mut all), None);
}

#[test]
fn ids_of_other_subscriptions_are_refused() {
    let broker = Broker::in_memory();
    let mut one = settled_later(&broker, "a").open().unwrap();
    let other = settled_later(&broker, "a").open().unwrap();
    broker.publish("a", "x").unwrap();
    let id = id(&mut one);
    let acker = other.acker().unwrap();
    assert_eq!(acker.ack(&id), Err(AckError::UnknownAckId));
    assert_eq!(acker.nack(&id, None), Err(AckError::UnknownAckId));
    assert_eq!(one.acker().unwrap().ack_all(&[id, id]), [Ok(true), Ok(false)]);
    let elsewhere = settled_later(&Broker::in_memory(), "a").open().unwrap().acker().unwrap();
    assert_eq!(elsewhere.ack(&id), Err(AckError::UnknownAckId));
}

#[test]
fn a_message_can_be_settled_with_what_a_handler_would_return() {
    let (clock, broker) = with_clock();
    let mut all = settled_later(&broker, "a").name("s").max_delivery_attempts(2).open().unwrap();
    let acker = all.acker().unwrap();
    for payload in ["good", "busy", "bad"] {
        broker.publish("a", payload).unwrap();
    }
    let ids: Vec<_> = (0..3).map(|_| id(&mut all)).collect();
    assert!(!all.is_due());
    assert_eq!(acker.settle(&ids[0], &Handled::Success), Ok(true));
    assert_eq!(acker.settle(&ids[0], &Handled::Success), Ok(false));
    assert_eq!(acker.settle(&ids[0], &Handled::retry("late")), Err(AckError::Stale));
    assert_eq!(acker.settle(&ids[1], &Handled::retry("busy")), Ok(true));
    assert_eq!(acker.settle(&ids[2], &Handled::dead_letter("bad")), Ok(true));
    assert_eq!(next(&mut all), None);
    clock.advance(100 * MS);
    assert!(all.is_due());
    let again = id(&mut all);
    assert!(!all.is_due());
    assert_eq!(acker.settle(&again, &Handled::retry("still busy")), Ok(true));
    let letters = broker.dead_letters("$dlq/s").list(9);
    let reasons = letters.iter().map(|letter| letter.view().attribute(DEAD_LETTER_REASON));
    assert_eq!(reasons.collect::<Vec<_>>(), [Some("bad"), Some("still busy")]);
}

#[test]
fn what_is_delivered_at_most_once_or_to_a_handler_has_no_lease() {
    let broker = Broker::in_memory();
    let mut once = broker.subscription("a").delivery(DeliveryMode::AtMostOnce).open().unwrap();
    assert!(once.acker().is_none());
    let (told, results) = channel();
    let handler = settled_later(&broker, "a")
        .handler(move |message| told.send((message.ack(), message.ack_id())).unwrap())
        .unwrap();
    broker.publish("a", "x").unwrap();
    let message = once.recv().unwrap();
    assert_eq!(message.ack(), Err(AckError::NotLeased));
    assert_eq!(message.nack(None), Err(AckError::NotLeased));
    assert_eq!((message.ack_id(), message.attempt()), (None, 1));
    assert_eq!(results.recv().unwrap(), (Err(AckError::NotLeased), None));
    handler.unsubscribe().unwrap();
}

#[test]
fn settings_out_of_range_are_refused() {
    let broker = Broker::in_memory();
    let refused = |builder: SubscriptionBuilder<'_>| match builder.open().unwrap_err() {
        SubscribeError::OutOfRange { setting, .. } => setting,
        other => panic!("{other}"),
    };
    let new = || settled_later(&broker, "a");
    assert_eq!(refused(new().visibility_timeout(9 * MS)), "visibility_timeout");
    assert_eq!(refused(new().visibility_timeout(600_001 * MS)), "visibility_timeout");
    assert_eq!(refused(new().max_delivery_attempts(0)), "max_delivery_attempts");
    assert_eq!(refused(new().max_outstanding(0)), "max_outstanding");
    let mut all = new().visibility_timeout(600_000 * MS).open().unwrap();
    broker.publish("a", "x").unwrap();
    let message = all.try_recv().unwrap();
    for wrong in [9 * MS, 600_001 * MS] {
        let refused = message.modify_ack_deadline(wrong);
        assert!(matches!(refused, Err(AckError::OutOfRange { .. })), "{refused:?}");
    }
    let refused = message.nack(Some(Backoff::MAX + MS));
    assert!(matches!(refused, Err(AckError::OutOfRange { .. })), "{refused:?}");
    assert_eq!(message.ack(), Ok(true));
}

#[test]
fn at_the_limit_of_outstanding_messages_delivery_stops_until_one_is_settled() {
    let watchdog = watchdog::watch(60);
    let broker = Broker::in_memory();
    let mut all = settled_later(&broker, "a").max_outstanding(3).open().unwrap();
    let acker = all.acker().unwrap();
    for number in 0..5 {
        broker.publish("a", &number.to_string()).unwrap();
    }
    let ids: Vec<_> = (0..3).map(|_| id(&mut all)).collect();
    assert_eq!(next(&mut all), None);
    // A consumer that waits is woken by whoever settles a message.
    let waiting = thread::spawn(move || {
        let received = all.recv().map(|message| text(&message));
        (all, received)
    });
    assert_eq!(acker.ack(&ids[1]), Ok(true));
    let (mut all, received) = waiting.join().unwrap();
    assert_eq!(received, Ok("3".into()));
    assert_eq!(next(&mut all), None);
    assert_eq!(acker.ack_all(&ids), [Ok(true), Ok(false), Ok(true)]);
    assert_eq!(next(&mut all), Some(("4".into(), 1)));
    drop(watchdog);
}

#[test]
fn at_the_limit_only_what_has_expired_is_delivered_again() {
    let (clock, broker) = with_clock();
    let mut all =
        settled_later(&broker, "a").max_outstanding(2).visibility_timeout(300 * MS).open().unwrap();
    for payload in ["failed", "one", "two", "three"] {
        broker.publish("a", payload).unwrap();
    }
    all.try_recv().unwrap().nack(Some(100 * MS)).unwrap();
    assert_eq!(next(&mut all), Some(("one".into(), 1)));
    let extended = all.try_recv().unwrap();
    extended.modify_ack_deadline(200 * MS).unwrap();
    clock.advance(100 * MS);
    assert_eq!(next(&mut all), None, "two are with the consumer");
    clock.advance(100 * MS);
    assert_eq!(next(&mut all), Some(("failed".into(), 2)), "one of them not any more");
    assert_eq!(next(&mut all), None);
    clock.advance(100 * MS);
    assert_eq!(next(&mut all), Some(("two".into(), 2)), "in the place of the other");
    assert_eq!(next(&mut all), None);
}

#[test]
fn later_messages_of_a_key_wait_for_one_that_failed_and_others_do_not() {
    let (clock, broker) = with_clock();
    let mut all = settled_later(&broker, "a").open().unwrap();
    let mut overtaking = settled_later(&broker, "a").keys_overtake().open().unwrap();
    let publish = |key, payload: &str| {
        broker.publish("a", NewMessage::new(payload.as_bytes()).key(key)).unwrap();
    };
    publish("k", "k1");
    for subscription in [&mut all, &mut overtaking] {
        subscription.try_recv().unwrap().nack(Some(Duration::from_secs(1))).unwrap();
    }
    publish("k", "k2");
    publish("j", "j1");
    publish("k", "k3");
    assert_eq!(next(&mut all), Some(("j1".into(), 1)));
    assert_eq!(next(&mut all), None);
    for expected in ["k2", "j1", "k3"] {
        assert_eq!(next(&mut overtaking), Some((expected.into(), 1)));
    }
    clock.advance(Duration::from_secs(1));
    let first = all.try_recv().unwrap();
    assert_eq!((text(&first).as_str(), first.attempt()), ("k1", 2));
    let first = first.ack_id().unwrap();
    assert_eq!(next(&mut all), None, "it is not settled yet");
    all.acker().unwrap().ack(&first).unwrap();
    assert_eq!(next(&mut all), Some(("k2".into(), 1)));
    assert_eq!(next(&mut all), Some(("k3".into(), 1)));
}

#[test]
fn a_handler_is_called_again_after_a_failure_and_others_go_on() {
    let watchdog = watchdog::watch(60);
    let (clock, broker) = with_clock();
    let (told, calls) = channel();
    let handler = settled_later(&broker, "a")
        .backoff(Backoff::new(100 * MS, 100 * MS))
        .handler(move |message| {
            let (text, attempt) = (text(message), message.attempt());
            told.send((text.clone(), attempt)).unwrap();
            match (text.as_str(), attempt) {
                ("error", 1) => Handled::retry("not yet"),
                ("panic", 1) => panic!("on purpose"),
                _ => Handled::Success,
            }
        })
        .unwrap();
    for payload in ["error", "good", "panic", "better"] {
        broker.publish("a", payload).unwrap();
    }
    let called = |times: usize| -> Vec<(String, u32)> {
        (0..times).map(|_| calls.recv().unwrap()).collect()
    };
    let first: Vec<_> = ["error", "good", "panic", "better"].map(|text| (text.into(), 1)).into();
    assert_eq!(called(4), first);
    watchdog.until("the handler has returned", || handler.metrics().unwrap().unsettled == 2);
    // Time stands still, so nothing is tried again.
    assert!(calls.try_recv().is_err());
    clock.advance(100 * MS);
    let again: BTreeSet<_> = called(2).into_iter().collect();
    assert_eq!(again, BTreeSet::from([("error".into(), 2), ("panic".into(), 2)]));
    watchdog.until("all is settled", || handler.metrics().unwrap().unsettled == 0);
    let metrics = handler.metrics().unwrap();
    assert_eq!((metrics.acked, metrics.redelivered, metrics.handler_failures), (4, 2, 2));
    handler.unsubscribe().unwrap();
}

#[test]
fn a_failure_in_the_midst_of_many_brings_that_message_again_and_no_other() {
    const COUNT: usize = 300;
    let watchdog = watchdog::watch(60);
    let (clock, broker) = with_clock();
    let ((told, calls), (go, begins)) = (channel(), channel());
    let handler = settled_later(&broker, "a")
        .backoff(Backoff::new(100 * MS, 100 * MS))
        .handler(move |message| {
            let call = (text(message).parse::<usize>().unwrap(), message.attempt());
            if call == (0, 1) {
                // Until the others are queued.
                begins.recv().unwrap();
            }
            told.send(call).unwrap();
            match call {
                (100, 1) => Handled::retry("not yet"),
                (101, 1) => panic!("on purpose"),
                (200, _) => Handled::dead_letter("never"),
                _ => Handled::Success,
            }
        })
        .unwrap();
    for number in 0..COUNT {
        broker.publish("a", number.to_string().as_str()).unwrap();
    }
    go.send(()).unwrap();
    let first: Vec<_> = calls.iter().take(COUNT).collect();
    assert_eq!(first, (0..COUNT).map(|number| (number, 1)).collect::<Vec<_>>());
    watchdog.until("two are left", || handler.metrics().unwrap().unsettled == 2);
    clock.advance(100 * MS);
    let again: BTreeSet<_> = calls.iter().take(2).collect();
    assert_eq!(again, BTreeSet::from([(100, 2), (101, 2)]));
    watchdog.until("all is settled", || handler.metrics().unwrap().unsettled == 0);
    let metrics = handler.metrics().unwrap();
    assert_eq!((metrics.acked, metrics.dead_lettered), (COUNT as u64 - 1, 1));
    handler.unsubscribe().unwrap();
    assert_eq!(calls.iter().count(), 0);
}

#[test]
fn a_full_queue_falls_back_to_the_log_and_loses_nothing_while_others_publish() {
    const EACH: u64 = 20_000;
    const PUBLISHERS: u64 = 2;
    let _watchdog = watchdog::watch(300);
    let broker = Broker::builder().shards(2).memory_budget(64 << 20).build().unwrap();
    let mut all = settled_later(&broker, "t/*").capacity(8).open().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for publisher in 0..PUBLISHERS {
            let topic = broker.topic(&format!("t/{publisher}")).unwrap();
            scope.spawn(move || {
                for number in 0..EACH {
                    topic.publish(&number.to_le_bytes()).unwrap();
                }
            });
        }
        let mut expected = BTreeMap::new();
        let mut received = 0;
        while received < EACH * PUBLISHERS {
            let message = all.recv().expect("nothing is lost");
            let number = u64::from_le_bytes(message.payload().try_into().unwrap());
            let next = expected.entry(message.topic().to_owned()).or_insert(0);
            assert_eq!(number, *next, "in order, without gap or duplicate");
            *next += 1;
            received += 1;
            // Every third message is settled later, by nobody.
            if number % 3 != 0 {
                assert_eq!(message.ack(), Ok(true));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(done.load(Ordering::Relaxed));
    assert_eq!(next(&mut all), None);
    let metrics = &broker.metrics().subscriptions[0];
    assert_eq!(metrics.matched, EACH * PUBLISHERS);
    assert_eq!(metrics.delivered, EACH * PUBLISHERS);
    let unsettled = PUBLISHERS * EACH.div_ceil(3);
    assert_eq!((metrics.unsettled, metrics.acked), (unsettled, EACH * PUBLISHERS - unsettled));
}

#[test]
fn expired_messages_end_their_leases_and_are_told_as_lost() {
    let clock = TestClock::new();
    let broker = Broker::builder().clock(&clock).memory_budget(256 << 10).build().unwrap();
    let mut all = settled_later(&broker, "a").capacity(16).open().unwrap();
    for number in 0..10_u64 {
        broker.publish("a", &number.to_le_bytes()).unwrap();
    }
    let ids: Vec<_> = (0..4).map(|_| id(&mut all)).collect();
    let acker = all.acker().unwrap();
    assert_eq!(acker.ack(&ids[1]), Ok(true));
    let filler = broker.topic("b").unwrap();
    while broker.metrics().shards[0].expired < 10 {
        filler.publish(&[0; 1024]).unwrap();
    }
    let mut lost = 0;
    let left = loop {
        match all.try_recv() {
            Err(TryRecvError::Recv(RecvError::Lagged(count))) => lost += count,
            other => break other.map(|message| text(&message)),
        }
    };
    assert_eq!(left, Err(TryRecvError::Empty));
    assert_eq!(lost, 9, "three that were leased and six that were not received");
    assert_eq!(acker.ack(&ids[0]), Ok(false));
    assert_eq!(acker.nack(&ids[2], None), Err(AckError::Stale));
    assert_eq!(broker.metrics().subscriptions[0].unsettled, 0);
}

#[test]
fn a_broker_that_refuses_is_full_until_messages_are_settled() {
    let broker =
        Broker::builder().memory_budget(256 << 10).when_full(WhenFull::Refuse).build().unwrap();
    let mut all = settled_later(&broker, "a").open().unwrap();
    let payload = [7; 1000];
    let mut published = 0;
    let refusal = loop {
        match broker.publish("a", &payload) {
            Ok(_) => published += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refusal, PublishError::Full);
    // Received, but not settled: nothing may expire.
    let ids: Vec<_> = (0..published).map(|_| id(&mut all)).collect();
    assert_eq!(next(&mut all), None);
    assert_eq!(broker.publish("a", &payload).unwrap_err(), PublishError::Full);
    let mut loan = broker.topic("a").unwrap().loan(1000).unwrap();
    loan.fill(8);
    let refused = loan.commit().unwrap_err();
    assert_eq!(refused.reason, PublishError::Full);
    let again = refused.loan.expect("it was not published");
    assert_eq!(again[..3], [8; 3]);
    let acker = all.acker().unwrap();
    assert!(acker.ack_all(&ids).into_iter().all(|settled| settled == Ok(true)));
    assert!(again.commit().is_ok(), "there is room again");
    assert_eq!(next(&mut all), Some((text_of(&[8; 1000]), 1)));
}

#[test]
fn a_consumer_that_waits_is_woken_by_time_alone() {
    let watchdog = watchdog::watch(60);
    let (clock, broker) = with_clock();
    let mut all = settled_later(&broker, "a").visibility_timeout(100 * MS).open().unwrap();
    broker.publish("a", "one").unwrap();
    assert_eq!(next(&mut all), Some(("one".into(), 1)));
    let waiting = thread::spawn(move || all.recv().map(|message| message.attempt()));
    watchdog.until("it came again", || {
        clock.advance(MS);
        waiting.is_finished()
    });
    assert_eq!(waiting.join().unwrap(), Ok(2));
}

#[test]
fn an_eventfd_becomes_readable_when_a_lease_ends() {
    let watchdog = watchdog::watch(60);
    let (clock, broker) = with_clock();
    let mut all = settled_later(&broker, "a").visibility_timeout(100 * MS).open().unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&all.event_fd().unwrap());
    broker.publish("a", "one").unwrap();
    assert_eq!(next(&mut all), Some(("one".into(), 1)));
    assert!(!is_readable(fd));
    clock.advance(100 * MS);
    watchdog.until("it is readable", || is_readable(fd));
    let message = all.try_recv().unwrap();
    assert_eq!((message.attempt(), message.ack()), (2, Ok(true)));
    assert!(!is_readable(fd));
}

fn is_readable(fd: std::os::fd::RawFd) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives here.
    #[expect(unsafe_code, reason = "poll(2)")]
    let ready = unsafe { libc::poll(&mut poll, 1, 0) };
    ready == 1
}

#[test]
fn kept_messages_and_batches_are_settled_like_others() {
    let broker = Broker::in_memory();
    let mut all = settled_later(&broker, "a").open().unwrap();
    for payload in ["0", "1", "2", "3"] {
        broker.publish("a", payload).unwrap();
    }
    let mut batch = all.recv_batch(3).unwrap();
    assert_eq!(batch.len(), 3);
    let first = batch.next().unwrap();
    assert_eq!((text(&first).as_str(), first.ack()), ("0", Ok(true)));
    let second = batch.next().unwrap().keep();
    assert_eq!(batch.next().unwrap().nack(Some(Duration::ZERO)), Ok(()));
    let elsewhere = thread::spawn(move || (text(&second.view()), second.view().ack()));
    assert_eq!(elsewhere.join().unwrap(), ("1".into(), Ok(true)));
    let mut seen = Vec::new();
    let polled = all.poll(10, |message| {
        seen.push((text(message), message.attempt()));
        message.ack().unwrap();
    });
    assert_eq!(polled, Ok(2));
    assert_eq!(seen, [("2".into(), 2), ("3".into(), 1)]);
    assert_eq!(broker.metrics().subscriptions[0].unsettled, 0);
}

#[test]
fn seeking_delivers_anew_what_was_settled_and_makes_old_ids_stale() {
    let broker = Broker::in_memory();
    let mut all = settled_later(&broker, "a").open().unwrap();
    for payload in ["0", "1", "2"] {
        broker.publish("a", payload).unwrap();
    }
    let acker = all.acker().unwrap();
    let old = id(&mut all);
    assert_eq!(all.try_recv().unwrap().ack(), Ok(true));
    all.seek(Start::Earliest).unwrap();
    for expected in ["0", "1", "2"] {
        assert_eq!(next(&mut all), Some((expected.into(), 1)));
    }
    assert_eq!(acker.ack(&old), Ok(false));
    assert_eq!(all.acker().unwrap().ack(&old), Ok(false));
    assert_eq!(all.acker().unwrap().nack(&old, None), Err(AckError::Stale));
    all.seek(Start::Offset(2)).unwrap();
    assert_eq!(next(&mut all), Some(("2".into(), 1)));
    all.seek(Start::Now).unwrap();
    assert_eq!(next(&mut all), None);
    broker.publish("a", "3").unwrap();
    assert_eq!(next(&mut all), Some(("3".into(), 1)));
    let mut once = broker.subscription("a").delivery(DeliveryMode::AtMostOnce).open().unwrap();
    assert!(once.seek(Start::Earliest).is_err());
}
