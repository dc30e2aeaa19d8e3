//! The contract of publishing: every way to do it, receipts, limits, partitions and order.
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]

mod watchdog;

use slipring::{
    Broker, ConfigError, DeliveryMode, InvalidMessage, NameRule, NewMessage, Overflow,
    PublishError, RecvError, Sequencer, Subscription, Ticket, Topic, TryRecvError,
    UnsubscribeReason,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What is queued, as payloads.
fn drain(subscription: &mut Subscription) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        match subscription.try_recv() {
            Ok(message) => all.push(String::from_utf8_lossy(message.payload()).into_owned()),
            Err(TryRecvError::Empty) => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

fn offset_next(broker: &Broker, topic: &str) -> u64 {
    broker
        .describe_topic(topic)
        .expect("the topic exists")
        .partitions
        .iter()
        .map(|partition| partition.next_offset)
        .sum()
}

/// A subscription to `a` that is to be waited for and has no room.
fn full_blocker(broker: &Broker) -> Subscription {
    let block = Overflow::Block { timeout: None };
    let blocker = broker
        .subscription("a")
        .capacity(1)
        .delivery(DeliveryMode::AtMostOnce)
        .overflow(block)
        .open()
        .expect("opens");
    broker.publish("a", "fills").expect("fits");
    blocker
}

/// Goal: all ways to publish bring the message in call order and say what became of it.
#[test]
fn every_way_to_publish_brings_the_message_and_a_receipt() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let mut two = [broker.subscribe("a").unwrap(), broker.subscribe("*").unwrap()];
    let topic = broker.topic("a").unwrap();
    let receipts = [
        broker.publish("a", "by name").unwrap(),
        topic.publish("by handle").unwrap(),
        topic.try_publish("try").unwrap(),
        topic.publish_timeout("timeout", Duration::from_secs(1)).unwrap(),
        topic.publish_sync("sync").unwrap(),
        {
            let mut loan = topic.loan(4).unwrap();
            loan.copy_from_slice(b"loan");
            loan.commit().unwrap()
        },
        topic.publish_ticket("ticket").unwrap().wait().unwrap(),
    ];
    for (offset, receipt) in receipts.iter().enumerate() {
        assert_eq!(receipt.offset, offset as u64);
        assert_eq!((receipt.matched, receipt.enqueued, receipt.dropped), (2, 2, 0));
        assert!(!receipt.durable, "memory does not outlive a power cut");
    }
    let batch = [NewMessage::new(b"batch 1"), NewMessage::new(b"batch 2")];
    for receipt in [
        topic.publish_batch(&batch).unwrap(),
        topic.try_publish_batch(&batch).unwrap(),
        broker.publish_batch("a", &batch).unwrap(),
    ] {
        assert_eq!((receipt.published, receipt.matched), (2, 4));
        assert_eq!((receipt.enqueued, receipt.dropped), (4, 0));
    }
    let expected = [
        "by name",
        "by handle",
        "try",
        "timeout",
        "sync",
        "loan",
        "ticket",
        "batch 1",
        "batch 2",
        "batch 1",
        "batch 2",
        "batch 1",
        "batch 2",
    ];
    for subscription in &mut two {
        assert_eq!(drain(subscription), expected);
    }
}

/// Goal: a batch of payloads needs no descriptions: whatever they are, and however long, they arrive as
/// messages of theirs do, and a limit refuses them before the first is published.
#[test]
fn a_batch_of_payloads_is_published_as_one_of_messages_is() {
    let _watchdog = watchdog::watch(60);
    let broker = Broker::in_memory();
    let mut subscription = broker.subscribe("a").unwrap();
    let topic = broker.topic("a").unwrap();
    let mut expected = Vec::new();
    let mut note = |payload: &[u8]| expected.push(payload.to_vec());
    // The sizes at which copying changes its way, and those that no chunk holds.
    let sizes = (0..140).chain([255, 256, 4096, 70_000, 300_000]);
    let owned: Vec<Vec<u8>> =
        sizes.map(|len: usize| (0..len).map(|at| (at * 31 + len) as u8).collect()).collect();
    let borrowed: Vec<&[u8]> = owned.iter().map(Vec::as_slice).collect();
    let described: Vec<NewMessage<'_>> = owned.iter().map(|bytes| bytes.into()).collect();
    for round in 0..3 {
        let receipt = match round {
            0 => topic.publish_batch(&owned),
            1 => topic.publish_batch(&borrowed),
            _ => topic.try_publish_batch(&described),
        };
        let receipt = receipt.unwrap();
        assert_eq!((receipt.published, receipt.enqueued), (owned.len(), owned.len() as u64));
        owned.iter().for_each(|payload| note(payload));
    }
    topic.publish_batch(&["one", "two"]).unwrap();
    topic.publish_batch(&[String::from("three")]).unwrap();
    topic.publish_batch(&[[1; 64], [2; 64]]).unwrap();
    for payload in [&b"one"[..], b"two", b"three", &[1; 64], &[2; 64]] {
        note(payload);
    }
    let too_large = vec![0; (10 << 20) + 1];
    let refused = topic.publish_batch(&[&b"fine"[..], &too_large]).unwrap_err();
    assert!(matches!(refused.reason, PublishError::InvalidMessage(_)), "{refused:?}");
    assert_eq!(refused.receipt.published, 0);
    for payload in &expected {
        let message = subscription.recv().unwrap();
        assert_eq!((message.payload(), message.key()), (&payload[..], None));
    }
    assert_eq!(subscription.try_recv().unwrap_err(), TryRecvError::Empty);
}

/// Goal: nothing and empty things are not special.
#[test]
fn empty_payloads_empty_batches_and_topics_without_subscribers_are_fine() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let receipt = broker.publish("a", "").unwrap();
    assert_eq!((receipt.offset, receipt.matched, receipt.enqueued, receipt.dropped), (0, 0, 0, 0));
    let topic = broker.topic("a").unwrap();
    let receipt = topic.publish_batch(&[""; 0]).unwrap();
    assert_eq!((receipt.published, receipt.first), (0, None));
    assert_eq!(topic.loan(0).unwrap().commit().unwrap().offset, 1);
    let mut subscription = broker.subscribe("a").unwrap();
    topic.publish(NewMessage::new(b"").key("").attributes(&[("k", "")])).unwrap();
    let message = subscription.recv().unwrap();
    assert_eq!(
        (message.payload(), message.key(), message.attribute("k")),
        (&b""[..], Some(""), Some(""))
    );
}

/// Goal: what is sent with a message arrives as it was.
#[test]
fn key_id_and_attributes_arrive_as_they_were_sent() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let mut subscription = broker.subscribe("a").unwrap();
    let attributes = [("b", "2"), ("a", "1"), ("ä", "ö")];
    let whole = NewMessage::new(b"p").key("key").id("own").attributes(&attributes);
    broker.publish("a", whole).unwrap();
    let mut loan = broker.topic("a").unwrap().loan_for(&whole, 1).unwrap();
    loan[0] = b'p';
    loan.commit().unwrap();
    let plain = broker.publish("a", "p").unwrap();
    for _ in 0..2 {
        let message = subscription.recv().unwrap();
        assert_eq!((message.payload(), message.key()), (&b"p"[..], Some("key")));
        assert_eq!((message.id().own(), message.id().to_string().as_str()), (Some("own"), "own"));
        assert_eq!(message.attributes().collect::<Vec<_>>(), attributes, "in the order sent");
    }
    let message = subscription.recv().unwrap();
    assert_eq!((message.key(), message.id().own(), message.attributes().len()), (None, None, 0));
    assert_eq!(message.id().to_string(), plain.id().to_string(), "receipt and message agree");
}

/// Goal: derived ids differ across topics, partitions and brokers.
#[test]
fn derived_ids_are_unique_across_partitions_and_brokers() {
    let _watchdog = watchdog::watch(30);
    let brokers = [Broker::in_memory(), Broker::in_memory()];
    let mut ids = BTreeSet::new();
    for broker in &brokers {
        for topic in ["a", "b"] {
            for _ in 0..100 {
                ids.insert(broker.publish(topic, "x").unwrap().id().to_string());
            }
        }
    }
    assert_eq!(ids.len(), 400);
    assert!(ids.iter().all(|id| id.len() == 36), "they look like UUIDs");
}

/// Goal: the receipt of a batch is the sum over its messages, whatever the policy of each queue.
#[test]
fn the_receipt_of_a_batch_is_the_sum_over_its_messages() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let open = |overflow, capacity| {
        broker
            .subscription("a")
            .delivery(DeliveryMode::AtMostOnce)
            .overflow(overflow)
            .capacity(capacity)
            .open()
            .unwrap()
    };
    let _newest = open(Overflow::DropNewest, 3);
    let _oldest = open(Overflow::DropOldest, 4);
    let _filtered = broker.subscription("a").filter("attributes:k").open().unwrap();
    let with = [("k", "")];
    let batch: Vec<_> = (0..200)
        .map(|n| NewMessage::new(b"x").attributes(if n % 4 == 0 { &with } else { &[] }))
        .collect();
    let receipt = broker.publish_batch("a", &batch).unwrap();
    assert_eq!((receipt.published, receipt.matched), (200, 200 + 200 + 50));
    assert_eq!((receipt.enqueued, receipt.dropped), (3 + 200 + 50, 197 + 196));
    assert_eq!(receipt.first.unwrap().1, 0);
}

/// Goal: `try_publish` never waits, and publishes nothing where it would have to.
#[test]
fn try_publish_refuses_instead_of_waiting() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let mut blocker = full_blocker(&broker);
    let other = broker.subscribe("a").unwrap();
    let topic = broker.topic("a").unwrap();
    assert_eq!(topic.try_publish("x").unwrap_err(), PublishError::WouldBlock);
    let error = topic.try_publish_batch(&[NewMessage::new(b"x"); 3]).unwrap_err();
    assert_eq!((error.reason, error.receipt.published), (PublishError::WouldBlock, 0));
    let ticket = topic.publish_ticket("x").unwrap().wait();
    assert_eq!(ticket.unwrap_err(), PublishError::WouldBlock);
    assert_eq!((offset_next(&broker, "a"), other.queued()), (1, 0), "nothing was published");
    assert_eq!(drain(&mut blocker), ["fills"]);
    assert_eq!(topic.try_publish("x").unwrap().offset, 1);
}

/// Goal: a batch says how much of it went before it had to stop.
#[test]
fn a_batch_that_stops_early_says_how_far_it_came() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let block = Overflow::Block { timeout: None };
    let mut blocker = broker
        .subscription("a")
        .capacity(3)
        .delivery(DeliveryMode::AtMostOnce)
        .overflow(block)
        .open()
        .unwrap();
    let names = ["0", "1", "2", "3", "4"];
    let batch = names.map(NewMessage::from);
    let topic = broker.topic("a").unwrap();
    let error = topic.try_publish_batch(&batch).unwrap_err();
    assert_eq!((error.reason, error.receipt.published), (PublishError::WouldBlock, 3));
    assert_eq!((error.receipt.enqueued, error.receipt.matched), (3, 3));
    assert_eq!(drain(&mut blocker), names[..3]);
    topic.try_publish_batch(&batch[error.receipt.published..]).unwrap();
    assert_eq!(drain(&mut blocker), names[3..]);
}

/// Goal: a bounded wait ends with an error that leaves nothing behind.
#[test]
fn publish_timeout_gives_up_after_its_time_and_publishes_nothing() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let _blocker = full_blocker(&broker);
    let topic = broker.topic("a").unwrap();
    let (began, timeout) = (Instant::now(), Duration::from_millis(30));
    assert_eq!(topic.publish_timeout("x", timeout).unwrap_err(), PublishError::Timeout);
    assert!(began.elapsed() >= timeout, "not before its time");
    assert_eq!(topic.publish_timeout("x", Duration::ZERO).unwrap_err(), PublishError::Timeout);
    assert_eq!(offset_next(&broker, "a"), 1);
}

/// Goal: a loan that is not committed, for whatever reason, leaves no trace.
#[test]
fn a_loan_that_is_dropped_or_unwound_publishes_nothing() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let mut subscription = broker.subscribe("a").unwrap();
    let topic = broker.topic("a").unwrap();
    topic.loan(8).unwrap().fill(1);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let mut loan = topic.loan(8).unwrap();
        loan.fill(2);
        std::panic::resume_unwind(Box::new("while filling in"));
    }));
    assert!(unwound.is_err());
    assert_eq!(topic.publish("next").unwrap().offset, 0, "no gap is left");
    assert_eq!(drain(&mut subscription), ["next"]);
}

/// Goal: who holds a loan delays neither publishers nor subscribers.
#[test]
fn a_loan_kept_for_a_second_delays_nobody() {
    let _watchdog = watchdog::watch(60);
    let broker = Broker::builder().memory_budget(2 << 20).build().unwrap();
    let topic = broker.topic("a").unwrap();
    let mut subscription =
        broker.subscription("a").delivery(DeliveryMode::AtMostOnce).open().unwrap();
    let mut loan = topic.loan(16).unwrap();
    let began = Instant::now();
    let (mut slowest, mut expected) = (Duration::ZERO, 0u64);
    while began.elapsed() < Duration::from_secs(1) {
        let publish = Instant::now();
        assert_eq!(topic.publish(&[7; 100]).unwrap().offset, expected);
        if expected % 64 == 0 {
            let mut other = topic.loan(8).unwrap();
            other.fill(7);
            expected += 1;
            assert_eq!(other.commit().unwrap().offset, expected);
            assert_eq!(subscription.recv().unwrap().offset(), expected - 1);
        }
        assert_eq!(subscription.recv().unwrap().offset(), expected);
        slowest = slowest.max(publish.elapsed());
        expected += 1;
    }
    println!("with a loan outstanding: {expected} messages, the slowest took {slowest:?}");
    assert!(expected > 1000 && slowest < Duration::from_millis(500), "{expected}, {slowest:?}");
    loan.fill(9);
    assert_eq!(loan.commit().unwrap().offset, expected);
    assert_eq!(subscription.recv().unwrap().payload(), [9; 16], "its bytes are its own");
}

/// Goal: a commit that is refused gives the loan back, and it can be committed later.
#[test]
fn a_refused_commit_gives_the_loan_back() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let topic = broker.topic("a").unwrap();
    let mut loan = topic.loan(2).unwrap();
    loan.copy_from_slice(b"ok");
    broker.delete_topic("a").unwrap();
    let error = loan.commit().unwrap_err();
    let loan = error.loan.unwrap();
    assert_eq!((error.reason, &*loan), (PublishError::TopicDeleted, &b"ok"[..]));
    broker.close(Duration::ZERO);
    assert_eq!(loan.commit().unwrap_err().reason, PublishError::Closed);
    assert_eq!(topic.loan(1).unwrap_err(), PublishError::Closed);
}

fn sequencers() -> [Sequencer; 2] {
    [Sequencer::Publishers, Sequencer::Pinned { first: 0 }]
}

/// Goal: tickets of one thread are served in order, and each is answered.
#[test]
fn tickets_are_answered_in_the_order_in_which_they_were_taken() {
    let _watchdog = watchdog::watch(60);
    for sequencer in sequencers() {
        let broker = Broker::builder().sequencer(sequencer).build().unwrap();
        let mut subscription = broker.subscription("a").capacity(1 << 14).open().unwrap();
        let topic = broker.topic("a").unwrap();
        let tickets: Vec<Ticket> =
            (0..1000u64).map(|n| topic.publish_ticket(&n.to_le_bytes()).unwrap()).collect();
        for (n, ticket) in tickets.into_iter().enumerate() {
            let receipt = ticket.wait().unwrap();
            assert_eq!((receipt.offset, receipt.enqueued), (n as u64, 1), "{sequencer:?}");
        }
        for n in 0..1000u64 {
            assert_eq!(subscription.recv().unwrap().payload(), n.to_le_bytes());
        }
        // Dropping a ticket loses the answer, not the message.
        drop(topic.publish_ticket("last").unwrap());
        assert_eq!(subscription.recv().unwrap().payload(), b"last");
        let ticket = topic.publish_ticket("x").unwrap();
        let receipt = loop {
            if let Some(receipt) = ticket.try_receipt().unwrap() {
                break receipt;
            }
            thread::yield_now();
        };
        assert_eq!(receipt.offset, 1001);
        broker.close(Duration::ZERO);
        assert_eq!(topic.publish_ticket("x").unwrap_err(), PublishError::Closed);
    }
}

/// Goal: a pinned sequencer changes nothing that can be seen.
#[test]
fn a_pinned_sequencer_serves_every_way_to_publish_from_many_threads() {
    let _watchdog = watchdog::watch(60);
    let broker = Broker::builder()
        .sequencer(Sequencer::Pinned { first: 0 })
        .shards(2)
        .default_partitions(2)
        .build()
        .unwrap();
    let mut subscription = broker.subscription("a").capacity(1 << 14).open().unwrap();
    let topic = broker.topic("a").unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for n in 0..100 {
                    topic.publish("x").unwrap();
                    topic.publish_batch(&[NewMessage::new(b"x"); 3]).unwrap();
                    topic.loan(3).unwrap().commit().unwrap();
                    let ticket = topic.publish_ticket("x").unwrap();
                    if n % 2 == 0 {
                        ticket.wait().unwrap();
                    }
                }
            });
        }
    });
    let mut next = HashMap::new();
    for _ in 0..3 * 100 * 6 {
        let message = subscription.recv().unwrap();
        let next = next.entry(message.partition()).or_insert(0);
        assert_eq!(message.offset(), *next);
        *next += 1;
    }
    assert_eq!(subscription.try_recv().unwrap_err(), TryRecvError::Empty);
}

/// Goal: every limit is refused at one more, with the right error, and nothing is published.
#[test]
fn every_limit_on_a_message_is_refused_at_one_more_and_nothing_is_published() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::builder().payload_limit(1000).build().unwrap();
    let mut subscription = broker.subscribe("a").unwrap();
    let topic = broker.topic("a").unwrap();
    let text = |len: usize| "k".repeat(len);
    let (payload, key, id) = (vec![0; 1001], text(1025), text(256));
    let (attribute_key, attribute_value) = (text(257), text(1025));
    let names: Vec<String> = (0..101).map(|n| n.to_string()).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    let fine = NewMessage::new(b"fine");
    let long_key = [("a", ""), (attribute_key.as_str(), "")];
    let no_key = [("", "")];
    let long_value = [("a", attribute_value.as_str())];
    let twice = [("a", "1"), ("b", "2"), ("a", "3")];
    let refused: Vec<(NewMessage<'_>, InvalidMessage)> = vec![
        (NewMessage::new(&payload), InvalidMessage::PayloadTooLarge { bytes: 1001, limit: 1000 }),
        (fine.key(&key), InvalidMessage::KeyTooLong { bytes: 1025 }),
        (fine.id(""), InvalidMessage::IdLength { bytes: 0 }),
        (fine.id(&id), InvalidMessage::IdLength { bytes: 256 }),
        (fine.attributes(&many), InvalidMessage::TooManyAttributes { count: 101 }),
        (fine.attributes(&no_key), InvalidMessage::AttributeKeyLength { index: 0, bytes: 0 }),
        (fine.attributes(&long_key), InvalidMessage::AttributeKeyLength { index: 1, bytes: 257 }),
        (
            fine.attributes(&long_value),
            InvalidMessage::AttributeValueTooLong { index: 0, bytes: 1025 },
        ),
        (fine.attributes(&twice), InvalidMessage::DuplicateAttribute { index: 2 }),
    ];
    for (message, reason) in refused {
        let reason = PublishError::InvalidMessage(reason);
        assert_eq!(topic.publish(message).unwrap_err(), reason);
        assert_eq!(broker.publish("a", message).unwrap_err(), reason);
        assert_eq!(topic.try_publish(message).unwrap_err(), reason);
        assert_eq!(topic.publish_timeout(message, Duration::ZERO).unwrap_err(), reason);
        assert_eq!(topic.publish_sync(message).unwrap_err(), reason);
        assert_eq!(topic.publish_ticket(message).unwrap_err(), reason);
        assert_eq!(topic.loan_for(&message, message.payload.len()).unwrap_err(), reason);
        let error = topic.publish_batch(&[fine, fine, message]).unwrap_err();
        assert_eq!((error.reason, error.receipt.published), (reason, 0), "all are checked first");
    }
    assert_eq!((offset_next(&broker, "a"), subscription.queued()), (0, 0));

    // At the limits, all goes.
    let whole = NewMessage::new(&payload[1..]).key(&key[1..]).id(&id[1..]).attributes(&many[1..]);
    topic.publish(whole).unwrap();
    let largest = [(&attribute_key[1..], &attribute_value[1..])];
    topic.publish(fine.attributes(&largest)).unwrap();
    assert_eq!(subscription.recv().unwrap().attributes().len(), 100);
    assert_eq!(subscription.recv().unwrap().attributes().next(), Some(largest[0]));
}

/// Goal: a bad topic name is refused with its place and rule, and no topic comes of it.
#[test]
fn bad_topic_names_are_refused_with_place_and_rule() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let long = "x".repeat(1025);
    let deep = ["x"; 33].join("/");
    let bad = [
        ("", 0, NameRule::Empty),
        ("/a", 0, NameRule::EmptySegment),
        ("a//b", 2, NameRule::EmptySegment),
        ("a/", 2, NameRule::EmptySegment),
        ("a/*", 2, NameRule::WildcardInName),
        ("a/b*", 3, NameRule::WildcardInName),
        ("a/\u{7}", 2, NameRule::ControlCharacter),
        ("$sys/x", 0, NameRule::Reserved),
        (long.as_str(), 1024, NameRule::TooLong),
        (deep.as_str(), 64, NameRule::TooManySegments),
    ];
    for (name, position, reason) in bad {
        let expected = slipring::InvalidName { position, reason };
        let refused = PublishError::InvalidName(expected);
        assert_eq!(broker.publish(name, "x").unwrap_err(), refused, "{name:?}");
        assert_eq!(broker.topic(name).unwrap_err(), refused);
        assert_eq!(broker.create_topic(name, 1).unwrap_err(), ConfigError::InvalidName(expected));
        assert_eq!(broker.publish_batch(name, &[""; 0]).unwrap_err().reason, refused);
    }
    assert_eq!(broker.topics("**", None, 100).unwrap(), Vec::<String>::new());
    assert_eq!(broker.topics("$sys/**", None, 100).unwrap(), Vec::<String>::new());
}

/// Goal: settings of topics and the broker are held to.
#[test]
fn topics_are_created_described_listed_and_deleted() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::builder().auto_create(false).shards(2).build().unwrap();
    assert_eq!(broker.publish("a", "x").unwrap_err(), PublishError::UnknownTopic);
    for partitions in [0, 1025] {
        let error = broker.create_topic("a", partitions).unwrap_err();
        assert!(matches!(error, ConfigError::OutOfRange { min: 1, max: 1024, .. }), "{error}");
    }
    let mut subscription = broker.subscribe("*").unwrap();
    let topic = broker.create_topic("a", 3).unwrap();
    assert_eq!(broker.create_topic("a", 3).unwrap_err(), ConfigError::TopicExists);
    for name in ["b", "c", "d"] {
        broker.create_topic(name, 1).unwrap();
    }
    assert_eq!(broker.topics("*", None, 2).unwrap(), ["a", "b"]);
    assert_eq!(broker.topics("*", Some("b"), 2).unwrap(), ["c", "d"]);
    let described = broker.describe_topic("a").unwrap();
    assert_eq!(described.partitions.len(), 3);
    assert_eq!(described.partitions.iter().map(|p| p.shard).collect::<BTreeSet<_>>().len(), 2);
    topic.publish("before").unwrap();
    broker.delete_topic("a").unwrap();
    assert_eq!(broker.delete_topic("a").unwrap_err(), ConfigError::UnknownTopic);
    assert_eq!(broker.describe_topic("a").unwrap_err(), ConfigError::UnknownTopic);
    assert_eq!(topic.publish("x").unwrap_err(), PublishError::TopicDeleted);
    assert_eq!(broker.publish("a", "x").unwrap_err(), PublishError::UnknownTopic);
    broker.create_topic("a", 1).unwrap().publish("after").unwrap();
    assert_eq!(drain(&mut subscription), ["before", "after"], "what is queued is delivered");
}

/// Goal: settings out of range are refused by name.
#[test]
fn settings_out_of_range_are_refused() {
    let refused = |builder: slipring::BrokerBuilder| {
        let error = builder.build().expect_err("out of range");
        assert!(matches!(error, ConfigError::OutOfRange { .. }), "{error}");
    };
    let builder = Broker::builder;
    refused(builder().shards(0));
    refused(builder().shards(65));
    refused(builder().memory_budget(1000));
    refused(builder().shards(4).memory_budget((1 << 20) - 1));
    refused(builder().payload_limit((64 << 20) + 1));
    refused(builder().default_partitions(0));
    refused(builder().default_partitions(1025));
    refused(builder().workers(0));
}

/// Goal: the smallest budget is enough to publish and to receive.
#[test]
fn the_smallest_memory_budget_is_enough() {
    let _watchdog = watchdog::watch(30);
    let error = Broker::builder().shards(3).memory_budget(1).build().unwrap_err();
    let ConfigError::OutOfRange { min, .. } = error else { panic!("{error}") };
    let broker = Broker::builder().shards(3).memory_budget(min as usize).build().unwrap();
    let mut subscription = broker.subscribe("*").unwrap();
    for n in 0..10_000u64 {
        let topic = ["a", "b", "c"][n as usize % 3];
        broker.publish(topic, &n.to_le_bytes()).unwrap();
        let mut expected = vec![n.to_le_bytes().to_vec()];
        if n % 1000 == 0 {
            expected.push(vec![1; 100_000]);
            broker.publish(topic, &expected[1]).unwrap();
        }
        for payload in &expected {
            let message = subscription.recv().unwrap();
            assert_eq!((message.payload(), message.ack()), (&payload[..], Ok(true)));
        }
    }
}

/// Goal: a key picks its partition for ever; without one, messages spread.
#[test]
fn the_same_key_goes_to_the_same_partition_and_no_key_spreads() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::builder().shards(2).build().unwrap();
    let topic = broker.create_topic("a", 8).unwrap();
    let mut of_key: BTreeMap<String, u32> = BTreeMap::new();
    for round in 0..6 {
        for n in 0..200 {
            let key = format!("key {n}");
            let message = NewMessage::new(b"x").key(&key);
            let partition = match round % 3 {
                0 => topic.publish(message).unwrap().partition,
                1 => topic.publish_batch(&[message]).unwrap().first.unwrap().0,
                _ => topic.loan_for(&message, 1).unwrap().commit().unwrap().partition,
            };
            assert_eq!(*of_key.entry(key).or_insert(partition), partition);
        }
    }
    assert_eq!(of_key.values().collect::<BTreeSet<_>>().len(), 8, "200 keys use 8 partitions");
    let spread: BTreeSet<u32> = (0..16).map(|_| topic.publish("x").unwrap().partition).collect();
    assert_eq!(spread.len(), 8);
}

/// Publishes `each` messages from each of `threads` threads in all ways, and gives the places that
/// the receipts told.
fn publish_from_many(topic: &Topic, threads: u64, each: u64) -> Vec<(u32, u64)> {
    let publish = |thread: u64| {
        let mut places = Vec::new();
        for n in 0..each {
            let payload = (thread << 32 | n).to_le_bytes();
            let key = format!("{thread}");
            let message = NewMessage::new(&payload).key(&key);
            let receipt = match n % 3 {
                0 => topic.publish(message).expect("publishes"),
                1 => topic.publish_ticket(message).and_then(Ticket::wait).expect("publishes"),
                _ => {
                    let mut loan = topic.loan_for(&message, 8).expect("memory");
                    loan.copy_from_slice(&payload);
                    loan.commit().expect("publishes")
                }
            };
            places.push((receipt.partition, receipt.offset));
        }
        places
    };
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || publish(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Goal: offsets of each partition are 0, 1, 2, ... whoever publishes.
#[test]
fn offsets_are_dense_in_each_partition_with_many_publishers() {
    let _watchdog = watchdog::watch(60);
    for sequencer in sequencers() {
        let broker = Broker::builder().shards(3).sequencer(sequencer).build().unwrap();
        let topic = broker.create_topic("a", 3).unwrap();
        let mut places = publish_from_many(&topic, 4, 500);
        places.sort_unstable();
        let mut next = BTreeMap::new();
        for (partition, offset) in places {
            let next = next.entry(partition).or_insert(0);
            assert_eq!(offset, *next, "partition {partition}");
            *next += 1;
        }
        assert_eq!(next.values().sum::<u64>(), 2000);
        assert_eq!(offset_next(&broker, "a"), 2000);
    }
}

/// Goal: per partition, all subscribers see one order, and each publisher's messages in its own.
#[test]
fn all_subscribers_see_the_same_order_with_four_publishers() {
    let _watchdog = watchdog::watch(60);
    let broker = Broker::builder().shards(2).build().unwrap();
    let topic = broker.create_topic("a", 2).unwrap();
    let subscriptions: Vec<Subscription> =
        (0..3).map(|_| broker.subscription("a").capacity(1 << 14).open().unwrap()).collect();
    let read = |mut subscription: Subscription| {
        let mut order: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let mut last_of_thread = HashMap::new();
        for _ in 0..4 * 1500 {
            let message = subscription.recv().expect("nothing is lost");
            let value = u64::from_le_bytes(message.payload().try_into().expect("8 bytes"));
            let seen = order.entry(message.partition()).or_default();
            assert_eq!(message.offset(), seen.len() as u64);
            seen.push(value);
            let before = last_of_thread.insert(value >> 32, value);
            assert!(before.is_none_or(|before| before + 1 == value), "a publisher's own order");
        }
        order
    };
    let orders: Vec<_> = thread::scope(|scope| {
        let readers: Vec<_> =
            subscriptions.into_iter().map(|each| scope.spawn(move || read(each))).collect();
        publish_from_many(&topic, 4, 1500);
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    assert!(orders.iter().all(|order| *order == orders[0]));
}

/// Goal: a filter that calls the broker is refused wherever it tries, and nothing hangs.
#[test]
fn the_broker_refuses_calls_from_inside_a_filter() {
    let watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let refused = std::sync::Arc::new(AtomicBool::new(false));
    let (inside, topic) = (broker.clone(), broker.topic("b").unwrap());
    let mut loan = Some(topic.loan(1).unwrap());
    let loan = std::sync::Mutex::new(loan.take());
    let other = std::sync::Mutex::new(broker.subscribe("b").unwrap());
    let all_refused = std::sync::Arc::clone(&refused);
    let mut subscription = broker
        .subscription("a")
        .filter_fn(move |_| {
            let no = PublishError::InsideFilter;
            assert_eq!(inside.publish("b", "x").unwrap_err(), no);
            assert_eq!(inside.topic("new").unwrap_err(), no);
            assert_eq!(topic.publish("x").unwrap_err(), no);
            assert_eq!(topic.try_publish("x").unwrap_err(), no);
            assert_eq!(topic.publish_batch(&["x"]).unwrap_err().reason, no);
            assert_eq!(topic.loan(1).unwrap_err(), no);
            assert_eq!(topic.publish_ticket("x").unwrap_err(), no);
            let loan = loan.lock().unwrap().take().unwrap();
            assert_eq!(loan.commit().unwrap_err().reason, no);
            let no = slipring::SubscribeError::InsideFilter;
            assert_eq!(inside.subscribe("b").unwrap_err(), no);
            assert_eq!(inside.subscription("b").handler(|_| ()).unwrap_err(), no);
            let no = ConfigError::Unavailable(PublishError::InsideFilter);
            assert_eq!(inside.create_topic("new", 1).unwrap_err(), no);
            assert_eq!(inside.delete_topic("b").unwrap_err(), no);
            assert_eq!(inside.describe_topic("b").unwrap_err(), no);
            assert_eq!(inside.subscription_metrics_of(1).unwrap_err(), no);
            assert_eq!(inside.topic_metrics_of("b").unwrap_err(), no);
            let mut other = other.lock().unwrap();
            let no = RecvError::InsideFilter;
            assert_eq!(other.recv().unwrap_err(), no);
            assert_eq!(other.try_recv().unwrap_err(), TryRecvError::Recv(no));
            assert_eq!(other.recv_timeout(Duration::ZERO).unwrap_err(), no);
            assert_eq!(other.poll(1, |_| ()).unwrap_err(), no);
            assert_eq!(other.wait().unwrap_err(), no);
            all_refused.store(true, Ordering::Release);
            true
        })
        .open()
        .unwrap();
    let receipt = broker.publish("a", "x").unwrap();
    watchdog.until("the filter has run", || refused.load(Ordering::Acquire));
    assert_eq!((receipt.matched, subscription.recv().unwrap().payload()), (1, &b"x"[..]));
    assert_eq!(broker.publish("b", "x").unwrap().offset, 0);
}

/// Goal: closing from inside a filter cannot work, but must not hang: it is refused.
#[test]
fn closing_the_broker_from_inside_a_filter_does_not_hang() {
    let _watchdog = watchdog::watch(10);
    let broker = Broker::in_memory();
    let inside = broker.clone();
    let filter = move |_: &slipring::Message<'_>| {
        inside.close(Duration::ZERO);
        true
    };
    let _subscription = broker.subscription("a").filter_fn(filter).open().unwrap();
    broker.publish("a", "x").unwrap();
}

/// Goal: a filter cannot wait for a handler, since that may wait for the shard that the filter holds:
/// it is refused, and the subscription goes on.
#[test]
fn unsubscribing_from_inside_a_filter_is_refused_and_does_not_hang() {
    let watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let handled = std::sync::Arc::new(AtomicU64::new(0));
    let counter = std::sync::Arc::clone(&handled);
    let handler = broker
        .subscription("a")
        .handler(move |_| {
            counter.fetch_add(1, Ordering::AcqRel);
        })
        .unwrap();
    let handler = std::sync::Arc::new(std::sync::Mutex::new(Some(handler)));
    let inside = std::sync::Arc::clone(&handler);
    let filter = move |_: &slipring::Message<'_>| {
        let mut handler = inside.lock().unwrap();
        let refused = handler.take().unwrap().unsubscribe().unwrap_err();
        assert_eq!(refused.reason, UnsubscribeReason::InsideFilter);
        let refused = refused.subscription.unsubscribe_timeout(Duration::ZERO).unwrap_err();
        assert_eq!(refused.reason, UnsubscribeReason::InsideFilter);
        assert_eq!(refused.to_string(), "a filter function may not call the broker");
        *handler = Some(refused.subscription);
        true
    };
    let filtered = broker.subscription("a").filter_fn(filter).open().unwrap();
    for n in 1..=3 {
        broker.publish("a", "x").unwrap();
        watchdog.until("the handler has run", || handled.load(Ordering::Acquire) == n);
    }
    assert_eq!(filtered.queued(), 3, "no assertion failed in the filter");
    handler.lock().unwrap().take().unwrap().unsubscribe().unwrap();
    assert_eq!(broker.publish("a", "x").unwrap().matched, 0, "the filter has nothing to refuse");
}

/// Goal: topics and brokers are shared by reference between threads.
#[test]
fn what_publishers_hold_is_send_and_sync() {
    fn shared<T: Send + Sync + Clone>() {}
    fn sent<T: Send>() {}
    shared::<Broker>();
    shared::<Topic>();
    sent::<slipring::Loan>();
    sent::<Ticket>();
    sent::<Subscription>();
    sent::<slipring::HandlerSubscription>();
    shared::<slipring::OwnedMessage>();
    sent::<slipring::Idle>();
}
