//! The contract of a topic with a dedup window: what is published again with its id is stored once.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

mod killed;
mod watchdog;

use killed::what_a_kill_leaves;
use proptest::prelude::*;
use slipring::store::{DiskStore, SyncPolicy};
use slipring::{
    Broker, BrokerBuilder, ConfigError, DEAD_LETTER_TOPIC, DeliveryMode, NewMessage, Overflow,
    PublishError, Receipt, Sequencer, Start, TestClock, Topic, TopicConfig, WhenFull,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use tempfile::tempdir;

const MS: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);

fn windowed() -> TopicConfig {
    TopicConfig::default().dedup_window(Some(MINUTE))
}

fn on_disk(sync: SyncPolicy) -> BrokerBuilder {
    Broker::builder().disk(DiskStore::builder().sync(sync).preallocate_bytes(0).reserve_bytes(0))
}

fn with_id<'m>(id: &'m str) -> NewMessage<'m> {
    NewMessage::new(id.as_bytes()).id(id)
}

fn loan_commit(topic: &Topic, message: NewMessage<'_>) -> Result<Receipt, PublishError> {
    let mut loan = topic.loan_for(&message, message.payload.len())?;
    loan.copy_from_slice(message.payload);
    loan.commit().map_err(|error| error.reason)
}

type Publish = fn(&Broker, &Topic, NewMessage<'_>) -> Result<Receipt, PublishError>;

/// Every way to publish one message that gives a receipt.
const WAYS: [(&str, Publish); 8] = [
    ("by handle", |_, topic, message| topic.publish(message)),
    ("by name", |broker, topic, message| broker.publish(topic.name(), message)),
    ("try", |_, topic, message| topic.try_publish(message)),
    ("timeout", |_, topic, message| topic.publish_timeout(message, MINUTE)),
    ("while", |_, topic, message| topic.publish_while(message, None, &|| true)),
    ("sync", |_, topic, message| topic.publish_sync(message)),
    ("loan", |_, topic, message| loan_commit(topic, message)),
    ("ticket", |_, topic, message| topic.publish_ticket(message)?.wait()),
];

/// Payloads of what is stored in all topics, in order.
fn stored(broker: &Broker) -> Vec<String> {
    let all = broker.subscription("**").delivery(DeliveryMode::AtMostOnce);
    let mut all = all.start(Start::Earliest).open().unwrap();
    let mut payloads = Vec::new();
    let mut take = |payload: &[u8]| payloads.push(String::from_utf8(payload.to_vec()).unwrap());
    while all.poll(64, |message| take(message.payload())).unwrap() > 0 {}
    payloads
}

fn duplicates(broker: &Broker) -> u64 {
    broker.metrics().topics.iter().map(|topic| topic.duplicates).sum()
}

/// That `again` is the receipt of the message that has `first`, and tells it.
fn assert_same(first: Receipt, again: Receipt, way: &str) {
    assert!(!first.duplicate && again.duplicate, "{way}");
    assert_eq!((again.partition, again.offset), (first.partition, first.offset), "{way}");
    assert_eq!(again.id(), first.id(), "{way}");
    assert_eq!((again.matched, again.enqueued, again.dropped), (0, 0, 0), "{way}");
}

/// Goal: whichever way a message is published first and again, it is stored once.
#[test]
fn an_id_within_the_window_is_stored_once_whichever_way_it_is_published() {
    let _watchdog = watchdog::watch(120);
    let dir = tempdir().unwrap();
    for broker in [Broker::in_memory(), on_disk(SyncPolicy::Os).open(dir.path()).unwrap()] {
        let topic = broker.create_topic_with("a", windowed()).unwrap();
        let mut all = broker.subscribe("a").unwrap();
        for (first_way, publish_first) in WAYS {
            let first = publish_first(&broker, &topic, with_id(first_way)).unwrap();
            assert_eq!((first.matched, first.enqueued), (1, 1), "{first_way}");
            for (way, publish) in WAYS {
                let again = publish(&broker, &topic, with_id(first_way)).unwrap();
                assert_same(first, again, way);
            }
            let batch = topic.publish_batch(&[with_id(first_way)]).unwrap();
            assert_eq!((batch.published, batch.duplicates, batch.first), (1, 1, None));
            assert_eq!((batch.matched, batch.enqueued, batch.dropped), (0, 0, 0));
            let message = all.recv().unwrap();
            assert_eq!(message.id().own(), Some(first_way));
            message.ack().unwrap();
        }
        assert!(all.try_recv().is_err());
        let names: Vec<_> = WAYS.iter().map(|(way, _)| way.to_string()).collect();
        assert_eq!(stored(&broker), names);
        assert_eq!(duplicates(&broker), (WAYS.len() * (WAYS.len() + 1)) as u64);
        let page = broker.metrics().to_prometheus();
        assert!(page.contains("slipring_topic_duplicates_total{topic=\"a\"} 72\n"), "{page}");
        assert_eq!(broker.metrics().topics[0].published, WAYS.len() as u64);
    }
}

#[test]
fn of_what_is_twice_in_a_batch_or_was_there_before_it_the_rest_is_stored_in_order() {
    let broker = Broker::in_memory();
    let topic = broker.create_topic_with("a", windowed()).unwrap();
    let mut all = broker.subscribe("a").unwrap();
    topic.publish(with_id("before")).unwrap();
    let ids = ["x", "before", "y", "x", "x", "z", "y"];
    let mut batch = ids.map(with_id).to_vec();
    batch.insert(3, NewMessage::new(b"without"));
    batch.insert(4, NewMessage::new(b"without"));
    for publish in [Topic::publish_batch, Topic::try_publish_batch] {
        let receipt = publish(&topic, &batch).unwrap();
        let is_first = receipt.duplicates == 4;
        assert_eq!(receipt.published, 9);
        assert_eq!(
            receipt.first,
            Some((topic_partition(&broker, "a"), if is_first { 1 } else { 6 }))
        );
        assert_eq!(receipt.matched, 9 - receipt.duplicates as u64);
        assert_eq!(receipt.enqueued, receipt.matched);
    }
    let expected = ["before", "x", "y", "without", "without", "z", "without", "without"];
    assert_eq!(stored(&broker), expected);
    for payload in expected {
        let message = all.recv().unwrap();
        assert_eq!(message.payload(), payload.as_bytes());
        message.ack().unwrap();
    }
    assert!(all.try_recv().is_err());
    assert_eq!(duplicates(&broker), 4 + 7);
}

fn topic_partition(broker: &Broker, topic: &str) -> u32 {
    broker.describe_topic(topic).unwrap().partitions[0].id
}

#[test]
fn messages_without_an_id_and_topics_without_a_window_store_everything() {
    let broker = Broker::in_memory();
    let windowed = broker.create_topic_with("w", windowed()).unwrap();
    let plain = broker.create_topic("p", 1).unwrap();
    for (way, publish) in WAYS {
        for _ in 0..2 {
            assert!(
                !publish(&broker, &windowed, NewMessage::new(b"x")).unwrap().duplicate,
                "{way}"
            );
            assert!(!publish(&broker, &plain, with_id("x")).unwrap().duplicate, "{way}");
        }
    }
    assert_eq!(plain.publish_batch(&[with_id("x"), with_id("x")]).unwrap().duplicates, 0);
    assert_eq!(stored(&broker).len(), WAYS.len() * 4 + 2);
    assert_eq!(duplicates(&broker), 0);
}

#[test]
fn ids_of_one_topic_are_nothing_to_another() {
    let broker = Broker::builder().default_topic(windowed()).build().unwrap();
    for topic in ["a", "b"] {
        assert!(!broker.publish(topic, with_id("x")).unwrap().duplicate);
        assert!(broker.publish(topic, with_id("x")).unwrap().duplicate);
    }
}

/// Goal: the window is counted from the first message on, to the microsecond, and no duplicate
/// makes it longer.
#[test]
fn an_id_is_stored_again_when_the_window_is_over_since_it_was_stored() {
    let clock = TestClock::new();
    let broker = Broker::builder().clock(&clock).build().unwrap();
    let topic = broker.create_topic_with("a", windowed()).unwrap();
    let us = Duration::from_micros(1);
    for round in 0..3 {
        let first = topic.publish(with_id("x")).unwrap();
        assert_eq!((first.duplicate, first.offset), (false, round));
        clock.advance(MINUTE / 2);
        assert_same(first, topic.publish(with_id("x")).unwrap(), "halfway");
        clock.advance(MINUTE / 2 - us);
        assert_same(first, topic.publish(with_id("x")).unwrap(), "just before");
        clock.advance(us);
    }
}

/// Goal: keys and partitions make no difference, also where partitions are on different shards.
#[test]
fn the_same_id_meets_the_same_window_in_whichever_partition() {
    let _watchdog = watchdog::watch(60);
    for shards in [1, 3] {
        let broker = Broker::builder().shards(shards).build().unwrap();
        let topic = broker.create_topic_with("a", windowed().partitions(6)).unwrap();
        for id in ["x", "y"] {
            let first = topic.publish(with_id(id).key("first")).unwrap();
            for key in 0..50 {
                let key = key.to_string();
                for (way, publish) in WAYS {
                    let again = publish(&broker, &topic, with_id(id).key(&key)).unwrap();
                    assert_same(first, again, way);
                    assert_same(first, publish(&broker, &topic, with_id(id)).unwrap(), way);
                }
            }
            let batch: Vec<_> = (0..20).map(|_| with_id(id)).collect();
            assert_eq!(topic.publish_batch(&batch).unwrap().duplicates, 20);
        }
        assert_eq!(stored(&broker), ["x", "y"]);
    }
}

/// Goal: of publishers that race with one id exactly one stores it, and all have its receipt.
#[test]
fn of_publishers_that_race_with_an_id_exactly_one_stores_it() {
    let _watchdog = watchdog::watch(300);
    const THREADS: usize = 4;
    const IDS: usize = 600;
    let dir = tempdir().unwrap();
    let brokers = [
        Broker::builder().build().unwrap(),
        Broker::builder().shards(4).build().unwrap(),
        Broker::builder().shards(2).sequencer(Sequencer::Pinned { first: 0 }).build().unwrap(),
        on_disk(SyncPolicy::Os).shards(2).open(dir.path()).unwrap(),
    ];
    for broker in brokers {
        let topic = broker.create_topic_with("a", windowed().partitions(4)).unwrap();
        let ids: Vec<_> = (0..IDS).map(|id| id.to_string()).collect();
        let start = Barrier::new(THREADS);
        let publisher = |thread: usize| {
            let mut receipts = Vec::new();
            start.wait();
            for (number, id) in ids.iter().enumerate() {
                let key = (thread + number).to_string();
                let (_, publish) = WAYS[(thread * 3 + number) % WAYS.len()];
                receipts.push(loop {
                    match publish(&broker, &topic, with_id(id).key(&key)) {
                        Err(PublishError::WouldBlock) => thread::yield_now(),
                        result => break result.unwrap(),
                    }
                });
            }
            receipts
        };
        let receipts: Vec<_> = thread::scope(|scope| {
            let threads = [0, 1, 2, 3].map(|thread| scope.spawn(move || publisher(thread)));
            threads.map(|thread| thread.join().unwrap()).to_vec()
        });
        for number in 0..IDS {
            let of_id: Vec<_> = receipts.iter().map(|receipts| receipts[number]).collect();
            let stored = of_id.iter().filter(|receipt| !receipt.duplicate).count();
            assert_eq!(stored, 1, "{of_id:?}");
            assert!(of_id.iter().all(|receipt| receipt.id() == of_id[0].id()), "{of_id:?}");
        }
        let mut all = stored(&broker);
        all.sort();
        let mut expected = ids.clone();
        expected.sort();
        assert_eq!(all, expected);
        assert_eq!(duplicates(&broker), (IDS * (THREADS - 1)) as u64);
    }
}

/// Goal: publishers that wait for room with the same id do not both publish when there is some.
#[test]
fn of_publishers_that_wait_for_room_with_one_id_one_stores_it() {
    let watchdog = watchdog::watch(60);
    let broker = Broker::in_memory();
    let topic = broker.create_topic_with("a", windowed()).unwrap();
    let mut blocker = broker
        .subscription("a")
        .capacity(1)
        .delivery(DeliveryMode::AtMostOnce)
        .overflow(Overflow::Block { timeout: None })
        .open()
        .unwrap();
    topic.publish("fills").unwrap();
    let (told, receipts) = channel();
    thread::scope(|scope| {
        for (_, publish) in [WAYS[0], WAYS[3], WAYS[6]] {
            let (told, topic, broker) = (told.clone(), &topic, &broker);
            scope.spawn(move || told.send(publish(broker, topic, with_id("x")).unwrap()).unwrap());
        }
        assert!(receipts.try_recv().is_err(), "there is no room");
        assert_eq!(blocker.recv().unwrap().payload(), b"fills");
        let published = || broker.describe_topic("a").unwrap().partitions[0].next_offset;
        watchdog.until("one of them has published", || published() == 2);
        // Whoever still waits for room finds the message published when it looks again.
        assert_eq!(blocker.recv().unwrap().payload(), b"x");
        let receipts: Vec<_> = (0..3).map(|_| receipts.recv().unwrap()).collect();
        assert_eq!(receipts.iter().filter(|receipt| !receipt.duplicate).count(), 1);
        assert!(receipts.iter().all(|receipt| receipt.offset == 1));
    });
    assert_eq!(stored(&broker), ["fills", "x"]);
}

/// Goal: while one publish is under way, and held up by a filter, no other waits for it but that with
/// the same id; who may not wait is told so.
#[test]
fn while_a_message_is_being_published_only_its_own_id_waits() {
    let watchdog = watchdog::watch(60);
    let broker = Broker::builder().shards(2).build().unwrap();
    let topic = broker.create_topic_with("a", windowed().partitions(2)).unwrap();
    let shard_of = |receipt: Receipt| {
        let partitions = broker.describe_topic("a").unwrap().partitions;
        partitions.iter().find(|partition| partition.id == receipt.partition).unwrap().shard
    };
    let keys = ["0", "1", "2", "3", "4", "5", "6", "7"];
    let on = |shard| {
        let is_on =
            |key: &&str| shard_of(topic.publish(NewMessage::new(b"").key(key)).unwrap()) == shard;
        keys.into_iter().find(is_on).unwrap()
    };
    let (here, there) = (on(0), on(1));
    let (entered, is_inside) = channel();
    let (let_go, may_go) = channel::<()>();
    let may_go = std::sync::Mutex::new(may_go);
    let _filtered = broker
        .subscription("a")
        .filter_fn(move |message| {
            if message.payload() == b"slow" {
                entered.send(()).unwrap();
                may_go.lock().unwrap().recv().unwrap();
            }
            true
        })
        .open()
        .unwrap();
    thread::scope(|scope| {
        let slow =
            scope.spawn(|| topic.publish(NewMessage::new(b"slow").key(here).id("x")).unwrap());
        is_inside.recv().unwrap();
        let other = with_id("y").key(there);
        assert!(!topic.try_publish(other).unwrap().duplicate);
        assert!(topic.try_publish(other).unwrap().duplicate);
        assert_eq!(broker.describe_topic("a").unwrap().dedup_window, Some(MINUTE));
        let same = with_id("x").key(there);
        assert_eq!(topic.try_publish(same), Err(PublishError::WouldBlock));
        let ticket = topic.publish_ticket(same).unwrap();
        assert_eq!(ticket.wait(), Err(PublishError::WouldBlock));
        let batch = topic.try_publish_batch(&[with_id("z").key(there), same]).unwrap_err();
        assert_eq!((batch.receipt.published, batch.reason), (1, PublishError::WouldBlock));
        let (told, again) = channel();
        let patient = [WAYS[0], WAYS[3], WAYS[6]].map(|(_, publish)| {
            let (told, topic, broker) = (told.clone(), &topic, &broker);
            scope.spawn(move || {
                told.send(()).unwrap();
                publish(broker, topic, same).unwrap()
            })
        });
        patient.iter().for_each(|_| again.recv().unwrap());
        assert!(patient.iter().all(|thread| !thread.is_finished()));
        let_go.send(()).unwrap();
        let first = slow.join().unwrap();
        for thread in patient {
            watchdog.until("the first one is there", || thread.is_finished());
            assert_same(first, thread.join().unwrap(), "after waiting");
        }
    });
}

#[test]
fn what_was_refused_for_want_of_room_does_not_count() {
    let _watchdog = watchdog::watch(60);
    let clock = TestClock::new();
    let broker = Broker::builder().clock(&clock).build().unwrap();
    let topic = broker.create_topic_with("a", windowed().dedup_ids(Some(4))).unwrap();
    let block = Overflow::Block { timeout: None };
    let blocker = broker.subscription("a").capacity(1).delivery(DeliveryMode::AtMostOnce);
    let mut blocker = blocker.overflow(block).open().unwrap();
    let first = topic.publish(with_id("fills")).unwrap();
    for round in 0..10 {
        let id = round.to_string();
        assert_eq!(topic.try_publish(with_id(&id)), Err(PublishError::WouldBlock));
        let zero = topic.publish_timeout(with_id(&id), Duration::ZERO);
        assert_eq!(zero, Err(PublishError::Timeout));
        let batch = topic.try_publish_batch(&[with_id(&id), with_id("other")]).unwrap_err();
        assert_eq!((batch.receipt.published, batch.receipt.duplicates), (0, 0));
        let mut loan = topic.loan_for(&with_id(&id), 1).unwrap();
        loan.copy_from_slice(b"l");
        let refused = loan.commit_while(Some(Duration::ZERO), &|| true).unwrap_err();
        assert_eq!(refused.reason, PublishError::Timeout);
        let ticket = topic.publish_ticket(with_id(&id)).unwrap();
        assert_eq!(ticket.wait(), Err(PublishError::WouldBlock));
        // Nor has it pushed others out of the window.
        assert_same(first, topic.try_publish(with_id("fills")).unwrap(), "no room is needed");
    }
    // A batch that ends early counts as far as it came.
    assert_eq!(blocker.recv().unwrap().payload(), b"fills");
    let batch = topic.try_publish_batch(&[with_id("0"), with_id("1")]).unwrap_err();
    assert_eq!((batch.receipt.published, batch.reason), (1, PublishError::WouldBlock));
    assert!(topic.try_publish(with_id("0")).unwrap().duplicate);
    drop(blocker);
    assert!(!topic.publish(with_id("1")).unwrap().duplicate);
    assert_eq!(stored(&broker), ["fills", "0", "1"]);
}

#[test]
fn what_was_refused_for_want_of_memory_does_not_count() {
    let builder = Broker::builder().memory_budget(256 << 10).when_full(WhenFull::Refuse);
    let broker = builder.build().unwrap();
    let topic = broker.create_topic_with("a", windowed()).unwrap();
    let mut all = broker.subscribe("a").unwrap();
    let payload = [7; 10_000];
    let message = |id| NewMessage::new(&payload).id(id);
    let ids: Vec<_> = (0..100).map(|id| id.to_string()).collect();
    let fits = ids.iter().take_while(|id| topic.publish(message(id.as_str())).is_ok()).count();
    assert!((1..100).contains(&fits));
    assert_eq!(topic.publish(message(&ids[fits])), Err(PublishError::Full));
    for _ in 0..fits {
        all.recv().unwrap().ack().unwrap();
    }
    assert!(!topic.publish(message(&ids[fits])).unwrap().duplicate);
    assert!(topic.publish(message(&ids[fits])).unwrap().duplicate);
}

#[test]
fn publish_sync_of_a_duplicate_is_durable_when_it_returns() {
    for sync in [SyncPolicy::Os, SyncPolicy::Interval(Duration::from_secs(3600))] {
        let dir = tempdir().unwrap();
        let broker = on_disk(sync).shards(2).open(dir.path()).unwrap();
        let topic = broker.create_topic_with("a", windowed().partitions(2)).unwrap();
        for id in ["x", "y"] {
            let first = topic.publish(with_id(id)).unwrap();
            assert!(!first.durable, "{sync:?}");
            assert!(!topic.publish(with_id(id)).unwrap().durable);
            let again = topic.publish_sync(with_id(id)).unwrap();
            assert_same(first, again, "sync");
            assert!(again.durable, "{sync:?}");
        }
    }
    let dir = tempdir().unwrap();
    let broker = on_disk(SyncPolicy::Always).shards(2).open(dir.path()).unwrap();
    let topic = broker.create_topic_with("a", windowed().partitions(2)).unwrap();
    let first = topic.publish(with_id("x")).unwrap();
    for (way, publish) in WAYS {
        let again = publish(&broker, &topic, with_id("x")).unwrap();
        assert_same(first, again, way);
        assert_eq!(again.durable, way != "try", "{way}: that one does not wait");
    }
    let batch = topic.publish_batch(&[with_id("x"), with_id("x")]).unwrap();
    assert!(batch.durable && batch.duplicates == 2);
}

#[test]
fn a_closed_broker_and_a_deleted_topic_refuse_duplicates_too() {
    let broker = Broker::in_memory();
    let topic = broker.create_topic_with("a", windowed()).unwrap();
    topic.publish(with_id("x")).unwrap();
    broker.delete_topic("a").unwrap();
    for (way, publish) in WAYS.into_iter().filter(|(way, _)| *way != "by name") {
        let refused = publish(&broker, &topic, with_id("x"));
        assert_eq!(refused, Err(PublishError::TopicDeleted), "{way}");
    }
    let again = broker.create_topic_with("a", windowed()).unwrap();
    assert!(!again.publish(with_id("x")).unwrap().duplicate, "deleting forgets");
    broker.close(Duration::ZERO);
    for (way, publish) in WAYS {
        let refused = publish(&broker, &again, with_id("x"));
        assert_eq!(refused, Err(PublishError::Closed), "{way}");
    }
}

#[test]
fn the_window_is_changed_by_updating_the_topic() {
    let clock = TestClock::new();
    let dir = tempdir().unwrap();
    let disk = on_disk(SyncPolicy::Os).clock(&clock).open(dir.path()).unwrap();
    for broker in [Broker::builder().clock(&clock).build().unwrap(), disk] {
        let topic = broker.create_topic("a", 2).unwrap();
        let publish = |id: &str| topic.publish(with_id(id)).unwrap().duplicate;
        for _ in 0..100 {
            // So often that this thread keeps the shard.
            assert!(!publish("x"));
        }
        broker.update_topic("a", windowed()).unwrap();
        let known = broker.describe_topic("a").unwrap();
        assert_eq!((known.dedup_window, known.dedup_ids), (Some(MINUTE), None));
        assert_eq!(known.config(), windowed().partitions(2));
        assert!(!publish("x"), "what was published before is not known");
        assert!(publish("x"));
        clock.advance(MINUTE / 2);
        broker.update_topic("a", windowed().dedup_window(Some(MINUTE / 2))).unwrap();
        assert!(!publish("x"), "longer ago than the window");
        clock.advance(MINUTE / 4);
        assert!(publish("x"));
        broker
            .update_topic("a", windowed().dedup_window(Some(2 * MINUTE)).dedup_ids(Some(2)))
            .unwrap();
        assert_eq!(broker.describe_topic("a").unwrap().dedup_ids, Some(2));
        clock.advance(MINUTE);
        assert!(publish("x"), "a longer window holds for what is known");
        assert!(!publish("y"));
        assert!(publish("x"));
        assert!(!publish("z"));
        assert!(publish("y"));
        assert!(!publish("x"), "the third id back");
        broker.update_topic("a", TopicConfig::default()).unwrap();
        assert!(!publish("x"));
        assert!(!publish("x"));
        broker.update_topic("a", windowed()).unwrap();
        assert!(!publish("x"), "turned off and on, it knows nothing");
        assert!(publish("x"));
        assert_eq!(duplicates(&broker), 6);
    }
}

#[test]
fn settings_that_cannot_hold_are_refused() {
    let broker = Broker::in_memory();
    let hour = 60 * MINUTE;
    let wrong = [
        ("dedup_window in ms", windowed().dedup_window(Some(Duration::ZERO))),
        ("dedup_window in ms", windowed().dedup_window(Some(Duration::from_micros(999)))),
        ("dedup_window in ms", windowed().dedup_window(Some(hour + MS)).retention(Some(hour))),
        ("dedup_ids", windowed().dedup_ids(Some(0))),
    ];
    broker.create_topic("there", 1).unwrap();
    for (name, config) in wrong {
        let is_refused = |error: ConfigError| matches!(error, ConfigError::OutOfRange { setting, .. } if setting == name);
        assert!(is_refused(broker.create_topic_with("a", config).unwrap_err()));
        assert!(is_refused(broker.update_topic("there", config).unwrap_err()));
        assert!(is_refused(Broker::builder().default_topic(config).build().unwrap_err()));
    }
    assert_eq!(broker.describe_topic("there").unwrap().dedup_window, None);
    broker
        .create_topic_with("a", windowed().dedup_window(Some(hour)).retention(Some(hour)))
        .unwrap();
    let ever = windowed().dedup_window(Some(Duration::MAX)).retention(None);
    broker.create_topic_with("b", ever).unwrap();
    assert!(!broker.publish("b", with_id("x")).unwrap().duplicate);
    assert!(broker.publish("b", with_id("x")).unwrap().duplicate);
}

/// Goal: dead letters come and go whatever their ids: the broker knows what it publishes again.
#[test]
fn dead_letters_are_stored_and_sent_back_within_the_window() {
    let broker = Broker::builder().default_topic(windowed()).build().unwrap();
    let mut jobs = broker.subscription("jobs").name("worker").open().unwrap();
    broker.publish("jobs", with_id("x")).unwrap();
    let letters = broker.dead_letters("$dlq/worker");
    for round in 1..4 {
        let job = jobs.recv().unwrap();
        assert_eq!((job.id().own(), job.offset()), (Some("x"), round - 1));
        job.dead_letter("no").unwrap();
        let all = letters.list(10);
        assert_eq!(all.len(), 1, "round {round}");
        assert_eq!(all[0].view().attribute(DEAD_LETTER_TOPIC), Some("jobs"));
        assert!(letters.redrive(&all[0].view()).unwrap());
        let again = broker.publish("jobs", with_id("x")).unwrap();
        assert!(again.duplicate, "what was sent back was published as well");
        assert_eq!(again.offset, round, "the last one");
    }
}

#[test]
fn the_window_holds_when_the_directory_is_opened_again() {
    let clock = TestClock::new();
    let dir = tempdir().unwrap();
    let open = || on_disk(SyncPolicy::Os).clock(&clock).shards(2).open(dir.path()).unwrap();
    let broker = open();
    let topic = broker.create_topic_with("a", windowed().partitions(3)).unwrap();
    broker.create_topic("without", 1).unwrap();
    let mut first = BTreeMap::new();
    for number in 0..60 {
        let (id, key) = (format!("id {number}"), number.to_string());
        first.insert(number, topic.publish(with_id(&id).key(&key)).unwrap());
        broker.publish("without", with_id(&id)).unwrap();
        topic.publish("no id").unwrap();
        clock.advance(Duration::from_secs(1));
    }
    drop((topic, broker));
    clock.advance(Duration::from_secs(10));

    let broker = open();
    let known = broker.describe_topic("a").unwrap();
    assert_eq!((known.dedup_window, known.dedup_ids), (Some(MINUTE), None));
    for number in 0..60 {
        let id = format!("id {number}");
        let again = broker.publish("a", with_id(&id)).unwrap();
        // The first eleven are a minute old by now.
        assert_eq!(again.duplicate, number > 10, "{id}");
        if again.duplicate {
            assert_same(first[&number], again, &id);
        }
        assert!(!broker.publish("without", with_id(&id)).unwrap().duplicate);
    }
    assert_eq!(duplicates(&broker), 49);
    drop(broker);
    let broker = open();
    assert!(
        broker.publish("a", with_id("id 0")).unwrap().duplicate,
        "published again, known again"
    );
    broker.delete_topic("a").unwrap();
    broker.create_topic_with("a", windowed().dedup_ids(Some(2))).unwrap();
    for id in ["x", "y", "z"] {
        assert!(!broker.publish("a", with_id(id)).unwrap().duplicate);
    }
    drop(broker);
    let broker = open();
    assert_eq!(broker.describe_topic("a").unwrap().dedup_ids, Some(2));
    let known = ["id 1", "x", "z"].map(|id| broker.publish("a", with_id(id)).unwrap().duplicate);
    assert_eq!(known, [false, false, false], "of the deleted topic, and of more than two");
}

#[derive(Debug, Clone)]
enum Step {
    Publish { id: u8, key: Option<u8>, way: usize },
    Batch(Vec<Option<u8>>),
    Advance(u64),
    Window(Option<u64>),
    Reopen { killed: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = proptest::option::of(0..4_u8);
    let step = prop_oneof![
        12 => (0..6_u8, key, 0..WAYS.len()).prop_map(|(id, key, way)| Step::Publish { id, key, way }),
        3 => proptest::collection::vec(proptest::option::weighted(0.8, 0..6_u8), 1..8)
            .prop_map(Step::Batch),
        6 => (1..40_u64).prop_map(Step::Advance),
        1 => proptest::option::weighted(0.8, 1..100_u64).prop_map(Step::Window),
        1 => any::<bool>().prop_map(|killed| Step::Reopen { killed }),
    ];
    proptest::collection::vec(step, 1..60)
}

/// What the oracle knows of a message that was stored with an id.
#[derive(Debug, Clone, Copy)]
struct Stored {
    id: u8,
    at_ms: u64,
    place: (u32, u64),
    /// The window was shorter than its age, or off, since it was stored: it may be known or not.
    is_doubtful: bool,
}

#[derive(Debug, Default)]
struct Oracle {
    now_ms: u64,
    window_ms: Option<u64>,
    stored: Vec<Stored>,
}

impl Oracle {
    /// The place of the message with `id` within the window, if there is one, and whether that is
    /// in doubt.
    fn find(&self, id: u8) -> Option<Stored> {
        let window = self.window_ms?;
        let last = self.stored.iter().rev().find(|stored| stored.id == id)?;
        (self.now_ms - last.at_ms < window).then_some(*last)
    }

    fn set_window(&mut self, window_ms: Option<u64>) {
        for stored in &mut self.stored {
            let age = self.now_ms - stored.at_ms;
            stored.is_doubtful |= self.window_ms.is_none_or(|window| age >= window);
        }
        self.window_ms = window_ms;
    }

    fn publish(&mut self, id: u8, receipt: Receipt) -> Result<(), TestCaseError> {
        let place = (receipt.partition, receipt.offset);
        match self.find(id) {
            Some(last) if receipt.duplicate => {
                let is_it = |stored: &Stored| stored.id == id && stored.place == place;
                let is_one = last.is_doubtful && self.stored.iter().any(is_it);
                prop_assert!(last.place == place || is_one, "{:?} is not {:?}", place, last);
            }
            Some(stored) => prop_assert!(stored.is_doubtful, "stored again: {:?}", stored),
            None => prop_assert!(!receipt.duplicate, "it is new, and taken for {:?}", place),
        }
        if !receipt.duplicate {
            self.note(id, place);
        }
        Ok(())
    }

    fn note(&mut self, id: u8, place: (u32, u64)) {
        let is_doubtful = self.window_ms.is_none();
        self.stored.push(Stored { id, at_ms: self.now_ms, place, is_doubtful });
    }
}

fn agrees(steps: Vec<Step>, shards: usize, partitions: usize) -> Result<(), TestCaseError> {
    let clock = TestClock::new();
    let mut dir = tempdir().unwrap();
    let open =
        |path: &Path| on_disk(SyncPolicy::Os).clock(&clock).shards(shards).open(path).unwrap();
    let config = |window_ms: Option<u64>| {
        let window = window_ms.map(Duration::from_millis);
        TopicConfig::default().partitions(partitions).dedup_window(window)
    };
    let mut broker = open(dir.path());
    let mut oracle = Oracle { window_ms: Some(50), ..Oracle::default() };
    let mut topic = broker.create_topic_with("a", config(Some(50))).unwrap();
    let (mut total, mut in_batches) = (0, 0);
    for step in steps {
        match step {
            Step::Publish { id, key, way } => {
                let (id_text, key_text) = (id.to_string(), key.map(|key| key.to_string()));
                let message = NewMessage { key: key_text.as_deref(), ..with_id(&id_text) };
                let receipt = WAYS[way].1(&broker, &topic, message).unwrap();
                oracle.publish(id, receipt)?;
                total += u64::from(!receipt.duplicate);
            }
            Step::Batch(ids) => {
                // One partition at a time: all of a batch have a key.
                let texts: Vec<_> = ids.iter().map(|id| id.map(|id| id.to_string())).collect();
                let messages: Vec<_> = texts
                    .iter()
                    .map(|id| NewMessage { id: id.as_deref(), ..NewMessage::new(b"") }.key("k"))
                    .collect();
                // Doubt would spread: such a batch is left to single publishes.
                let is_doubtful = |id: &Option<u8>| {
                    id.and_then(|id| oracle.find(id)).is_some_and(|stored| stored.is_doubtful)
                };
                if ids.iter().any(is_doubtful) {
                    continue;
                }
                let receipt = topic.publish_batch(&messages).unwrap();
                let (mut duplicates, mut next) = (0, receipt.first);
                for id in &ids {
                    match id.and_then(|id| oracle.find(id)) {
                        Some(_) => duplicates += 1,
                        None => {
                            let (partition, offset) = next.expect("one is stored");
                            id.map(|id| oracle.note(id, (partition, offset)));
                            next = Some((partition, offset + 1));
                        }
                    }
                }
                prop_assert_eq!(receipt.duplicates, duplicates);
                prop_assert_eq!(receipt.published, ids.len());
                in_batches += (ids.len() - duplicates) as u64;
            }
            Step::Advance(ms) => {
                clock.advance(Duration::from_millis(ms));
                oracle.now_ms += ms;
            }
            Step::Window(window_ms) => {
                broker.update_topic("a", config(window_ms)).unwrap();
                oracle.set_window(window_ms);
            }
            Step::Reopen { killed } => {
                if killed {
                    let left = what_a_kill_leaves(dir.path());
                    drop((topic, broker));
                    dir = left;
                } else {
                    drop((topic, broker));
                }
                broker = open(dir.path());
                topic = broker.topic("a").unwrap();
            }
        }
    }
    prop_assert_eq!(stored(&broker).len() as u64, total + in_batches);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..Default::default() })]

    /// Goal: over any times, windows, partitions, shards, ways and openings, exactly what an oracle
    /// takes for new is stored.
    #[test]
    fn what_is_stored_is_what_a_small_oracle_takes_for_new(
        steps in steps(),
        shards in 1..3_usize,
        partitions in 1..4_usize,
    ) {
        let _watchdog = watchdog::watch(120);
        agrees(steps, shards, partitions)?;
    }
}
