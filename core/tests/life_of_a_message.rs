//! The life of a message, a test for each step, in order: claim, order, route, push, receive,
//! keep, expire.

mod watchdog;

use slipring::{Broker, DeliveryMode, Overflow, RecvError, TestClock, TryRecvError};
use std::time::Duration;

/// Goal: space that is claimed concerns nobody until it is committed.
#[test]
fn step_1_a_claim_is_seen_by_nobody_before_it_is_committed() {
    let _watchdog = watchdog::watch(20);
    let broker = Broker::in_memory();
    let mut subscription = broker.subscribe("a").unwrap();
    let topic = broker.topic("a").unwrap();
    let mut loan = topic.loan(3).unwrap();
    loan.copy_from_slice(b"one");
    assert_eq!(subscription.try_recv().unwrap_err(), TryRecvError::Empty);
    assert_eq!(broker.describe_topic("a").unwrap().partitions[0].next_offset, 0);
    topic.publish("zero").unwrap();
    assert_eq!(loan.commit().unwrap().offset, 1, "the order is that of the commits");
    assert_eq!(subscription.recv().unwrap().payload(), b"zero");
    assert_eq!(subscription.recv().unwrap().payload(), b"one");
}

/// Goal: an offset is dense in its partition, and time never goes back.
#[test]
fn step_2_order_is_an_offset_without_gaps_and_a_time_that_does_not_go_back() {
    let watchdog = watchdog::watch(20);
    let clock = TestClock::new();
    let broker = Broker::builder().clock(&clock).build().unwrap();
    let mut subscription = broker.subscribe("a").unwrap();
    let topic = broker.topic("a").unwrap();
    for expected in 0..10 {
        clock.advance(Duration::from_micros(7));
        assert_eq!(topic.publish("x").unwrap().offset, expected);
    }
    let mut before = None;
    for expected in 0..10 {
        let message = subscription.recv().unwrap();
        assert_eq!((message.offset(), message.topic()), (expected, "a"));
        if let Some(before) = before.replace(message.published_us()) {
            assert_eq!(message.published_us(), before + 7);
        }
    }
    watchdog.until("all is received", || subscription.queued() == 0);
}

/// Goal: a message goes to whoever wants its topic and its attributes, and to nobody else.
#[test]
fn step_3_a_route_leads_to_whoever_wants_the_message_and_to_nobody_else() {
    let _watchdog = watchdog::watch(20);
    let broker = Broker::in_memory();
    let subscribe = |pattern, filter| broker.subscription(pattern).filter(filter).open().unwrap();
    let wanted = [
        broker.subscribe("a/b").unwrap(),
        broker.subscribe("a/*").unwrap(),
        broker.subscribe("**").unwrap(),
        subscribe("a/**", "attributes.k = \"v\""),
    ];
    let unwanted = [
        broker.subscribe("a").unwrap(),
        broker.subscribe("a/b/c").unwrap(),
        subscribe("a/b", "attributes.k = \"w\""),
    ];
    let message = slipring::NewMessage::new(b"x").attributes(&[("k", "v")]);
    let receipt = broker.publish("a/b", message).unwrap();
    assert_eq!((receipt.matched, receipt.enqueued, receipt.dropped), (4, 4, 0));
    assert!(wanted.iter().all(|subscription| subscription.queued() == 1));
    assert!(unwanted.iter().all(|subscription| subscription.queued() == 0));
}

/// Goal: what does not fit is dropped, and the receipt says so.
#[test]
fn step_4_a_push_queues_the_message_or_counts_what_was_dropped() {
    let _watchdog = watchdog::watch(20);
    let broker = Broker::in_memory();
    let one = |overflow| {
        broker
            .subscription("a")
            .capacity(1)
            .delivery(DeliveryMode::AtMostOnce)
            .overflow(overflow)
            .open()
            .unwrap()
    };
    let (newest, oldest) = (one(Overflow::DropNewest), one(Overflow::DropOldest));
    let roomy = broker.subscribe("a").unwrap();
    let receipt = broker.publish("a", "first").unwrap();
    assert_eq!((receipt.matched, receipt.enqueued, receipt.dropped), (3, 3, 0));
    let receipt = broker.publish("a", "second").unwrap();
    assert_eq!((receipt.matched, receipt.enqueued, receipt.dropped), (3, 2, 2));
    assert_eq!((newest.queued(), oldest.queued(), roomy.queued()), (1, 1, 2));
}

/// Goal: nothing is copied on the way: all see the bytes where the publisher wrote them.
#[test]
fn step_5_everybody_receives_the_message_where_it_was_written() {
    let _watchdog = watchdog::watch(20);
    let broker = Broker::in_memory();
    let mut subscriptions = [broker.subscribe("a").unwrap(), broker.subscribe("*").unwrap()];
    let mut loan = broker.topic("a").unwrap().loan(5).unwrap();
    loan.copy_from_slice(b"hello");
    let written_at = loan.as_ptr();
    loan.commit().unwrap();
    for subscription in &mut subscriptions {
        let message = subscription.recv().unwrap();
        assert_eq!((message.payload(), message.payload().as_ptr()), (&b"hello"[..], written_at));
    }
}

/// Goal: what is kept stays, whatever ends meanwhile, and nothing is written over it.
#[test]
fn step_6_a_kept_message_outlives_its_expiry_its_subscription_and_its_broker() {
    let _watchdog = watchdog::watch(20);
    let broker = Broker::builder().memory_budget(1 << 20).build().unwrap();
    let mut subscription = broker.subscribe("a").unwrap();
    broker.publish("a", slipring::NewMessage::new(b"kept").attributes(&[("k", "v")])).unwrap();
    let kept = subscription.recv().unwrap().keep();
    let copy = kept.clone();
    for _ in 0..64 {
        broker.publish("a", &vec![0xAA; 64 << 10]).unwrap();
    }
    drop(subscription);
    drop(broker);
    drop(kept);
    assert_eq!((copy.payload(), copy.topic(), copy.view().offset()), (&b"kept"[..], "a", 0));
    assert_eq!(copy.view().attribute("k"), Some("v"));
}

/// Goal: what the budget does not hold is expired, never delivered, and told exactly.
#[test]
fn step_7_a_message_expires_when_memory_is_used_up_and_the_loss_is_told() {
    let _watchdog = watchdog::watch(20);
    let broker = Broker::builder().memory_budget(1 << 20).build().unwrap();
    let mut subscription = broker.subscribe("a").unwrap();
    let payload = vec![1; 64 << 10];
    for _ in 0..100 {
        broker.publish("a", &payload).unwrap();
    }
    let Err(RecvError::Lagged(lost)) = subscription.recv() else { panic!("nothing has expired") };
    assert!((80..100).contains(&lost), "{lost} of 6.4 MiB expired from 1 MiB");
    for expected in lost..100 {
        assert_eq!(subscription.recv().unwrap().offset(), expected);
    }
    assert_eq!(subscription.try_recv().unwrap_err(), TryRecvError::Empty);
}
