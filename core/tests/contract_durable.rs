//! The contract of a broker with a directory: what was published and settled is there again when it
//! is opened the next time.
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

mod watchdog;

use slipring::store::{
    DiskStore, DiskStoreBuilder, MemoryStore, MessageStore, Retention, StoreError, SyncPolicy,
};
use slipring::{
    Broker, BrokerBuilder, DeliveryMode, Handled, NewMessage, OpenError, Overflow, PublishError,
    RecvError, Start, SubscribeError, Subscription, SubscriptionBuilder, TestClock, TopicConfig,
    TryRecvError,
};
use std::fmt::Debug;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tempfile::tempdir;

const MS: Duration = Duration::from_millis(1);

/// Quick, and as safe when a process is killed: only a power cut takes more.
fn quick() -> BrokerBuilder {
    Broker::builder().disk(small_disk(SyncPolicy::Os))
}

fn small_disk(sync: SyncPolicy) -> DiskStoreBuilder {
    DiskStore::builder().sync(sync).preallocate_bytes(0).reserve_bytes(0)
}

fn named<'a>(broker: &Broker, name: &'a str) -> SubscriptionBuilder<'a> {
    broker.subscription("a/**").name(name).delivery(DeliveryMode::AtLeastOnce)
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

/// All that is there, for a subscription that settles nothing.
fn take(subscription: &mut Subscription) -> Vec<u64> {
    let mut numbers = Vec::new();
    while subscription.poll(64, |message| numbers.push(number(message.payload()))).unwrap() > 0 {}
    numbers
}

fn first_attempts(numbers: impl IntoIterator<Item = u64>) -> Vec<(u64, u32)> {
    numbers.into_iter().map(|number| (number, 1)).collect()
}

#[test]
fn what_was_published_is_there_again_as_it_was() {
    let dir = tempdir().unwrap();
    let attributes = [("kind", "x")];
    let message = NewMessage::new(b"payload").key("k").id("own").attributes(&attributes);
    let broker = Broker::open(dir.path()).unwrap();
    let receipt = broker.publish("a/b", message).unwrap();
    assert!(receipt.durable);
    let derived = broker.publish("a/b", "second").unwrap();
    drop(broker);

    let broker = Broker::open(dir.path()).unwrap();
    let mut all = broker
        .subscription("a/**")
        .delivery(DeliveryMode::AtMostOnce)
        .start(Start::Earliest)
        .open()
        .unwrap();
    let first = all.recv().unwrap();
    assert_eq!((first.topic(), first.payload(), first.key()), ("a/b", &b"payload"[..], Some("k")));
    assert_eq!((first.id().own(), first.attribute("kind")), (Some("own"), Some("x")));
    assert_eq!((first.partition(), first.offset()), (receipt.partition, receipt.offset));
    let second = all.recv().unwrap();
    assert_eq!(second.id().to_string(), derived.id().to_string());
    assert_eq!(broker.publish("a/b", "third").unwrap().offset, 2);
    assert_eq!(all.recv().unwrap().payload(), b"third");
    assert!(all.try_recv().is_err());
}

#[test]
fn a_receipt_says_whether_a_power_cut_would_take_the_message() {
    for (sync, durable) in [
        (SyncPolicy::Always, true),
        (SyncPolicy::Os, false),
        (SyncPolicy::Interval(Duration::from_secs(3600)), false),
    ] {
        let dir = tempdir().unwrap();
        let broker = Broker::builder().disk(small_disk(sync)).open(dir.path()).unwrap();
        let topic = broker.topic("a/b").unwrap();
        assert_eq!(topic.publish("x").unwrap().durable, durable, "{sync:?}");
        assert_eq!(topic.publish_batch(&["x", "y"]).unwrap().durable, durable);
        assert_eq!(topic.loan(3).unwrap().commit().unwrap().durable, durable);
        assert_eq!(topic.publish_ticket("x").unwrap().wait().unwrap().durable, durable);
        assert!(!topic.try_publish("x").unwrap().durable, "it does not wait");
        assert!(topic.publish_sync("x").unwrap().durable);
        broker.flush().unwrap();
    }
    assert!(!Broker::in_memory().topic("a").unwrap().publish_sync("x").unwrap().durable);
}

#[test]
fn a_subscription_goes_on_where_it_was_and_gets_what_it_has_not_settled() {
    let dir = tempdir().unwrap();
    let broker = quick().open(dir.path()).unwrap();
    let mut all = named(&broker, "s").open().unwrap();
    publish(&broker, 0..10);
    let mut batch = all.try_recv_batch(8).unwrap();
    while let Some(message) = batch.next() {
        if ![2, 5].contains(&number(message.payload())) {
            assert_eq!(message.ack(), Ok(true));
        }
    }
    drop(all);
    publish(&broker, 10..12);
    drop(broker);

    let broker = quick().open(dir.path()).unwrap();
    assert_eq!(broker.subscriptions().unwrap(), ["s"]);
    publish(&broker, 12..14);
    let mut all = named(&broker, "s").open().unwrap();
    let mut expected = vec![(2, 2), (5, 2)];
    expected.extend(first_attempts(8..14));
    assert_eq!(drain(&mut all), (expected, 0));
    drop((all, broker));

    let broker = quick().open(dir.path()).unwrap();
    let mut all = named(&broker, "s").open().unwrap();
    assert_eq!(drain(&mut all), (vec![], 0));
}

#[test]
fn it_keeps_its_filter_its_terms_and_its_place() {
    let dir = tempdir().unwrap();
    let clock = TestClock::new();
    let open = || quick().clock(&clock).open(dir.path()).unwrap();
    let broker = open();
    let made = named(&broker, "s")
        .pattern("c")
        .filter("attributes.kind = \"x\"")
        .visibility_timeout(20 * MS)
        .max_delivery_attempts(2)
        .dead_letter_topic("graves")
        .start(Start::Earliest);
    drop(made.open().unwrap());
    let kinds = ["x", "y", "x"];
    for (number, kind) in (0_u64..).zip(kinds) {
        let (payload, attributes) = (number.to_le_bytes(), [("kind", kind)]);
        broker.publish("c", NewMessage::new(&payload).attributes(&attributes)).unwrap();
    }
    drop(broker);

    let broker = open();
    assert_eq!(named(&broker, "s").open().unwrap_err(), SubscribeError::Different);
    let mut both = named(&broker, "s").pattern("c").open().unwrap();
    let first = both.recv().unwrap();
    assert_eq!(number(first.payload()), 0);
    clock.advance(20 * MS);
    let again = both.recv().unwrap();
    assert_eq!((number(again.payload()), again.attempt()), (0, 2), "its visibility timeout");
    again.nack(None).unwrap();
    assert_eq!(number(both.recv().unwrap().payload()), 2, "its filter");
    assert_eq!(broker.dead_letters("graves").count(), 1, "its attempts and its topic");
}

#[test]
fn a_place_that_was_sought_and_a_subscription_that_was_deleted_stay_so() {
    let dir = tempdir().unwrap();
    let broker = quick().open(dir.path()).unwrap();
    publish(&broker, 0..5);
    let mut all = named(&broker, "s").start(Start::Earliest).open().unwrap();
    assert_eq!(drain(&mut all).0.len(), 5);
    all.seek(Start::Offset(3)).unwrap();
    drop(all);
    drop(named(&broker, "t").open().unwrap());
    drop(named(&broker, "u").start(Start::Earliest).open().unwrap());
    broker.delete_subscription("t").unwrap();
    broker.seek_subscription("u", Start::Now).unwrap();
    drop(broker);

    let broker = quick().open(dir.path()).unwrap();
    assert_eq!(broker.subscriptions().unwrap(), ["s", "u"]);
    let mut all = named(&broker, "s").open().unwrap();
    assert_eq!(drain(&mut all), (first_attempts(3..5), 0));
    let mut later = named(&broker, "u").open().unwrap();
    assert_eq!(drain(&mut later), (vec![], 0));
    let mut new = named(&broker, "t").open().unwrap();
    publish(&broker, 5..6);
    assert_eq!(drain(&mut new), (first_attempts(5..6), 0));
}

#[test]
fn topics_keep_their_partitions_and_deleted_ones_stay_deleted() {
    let dir = tempdir().unwrap();
    let broker = quick().shards(3).open(dir.path()).unwrap();
    let week = Duration::from_secs(7 * 24 * 3600);
    let config =
        TopicConfig::default().partitions(4).retention(None).retention_bytes(Some(1 << 20));
    let made = broker.create_topic_with("a/b", config).unwrap();
    broker.create_topic("a/gone", 2).unwrap().publish(&0_u64.to_le_bytes()).unwrap();
    for key in ["k", "l", "m", "n"] {
        made.publish(NewMessage::new(&1_u64.to_le_bytes()).key(key)).unwrap();
    }
    let described = broker.describe_topic("a/b").unwrap();
    assert_eq!((described.retention, described.retention_bytes), (None, Some(1 << 20)));
    broker.update_topic("a/b", TopicConfig::default()).unwrap();
    broker.delete_topic("a/gone").unwrap();
    let described = broker.describe_topic("a/b").unwrap();
    assert_eq!((described.retention, described.retention_bytes), (Some(week), None));
    drop((made, broker));

    let broker = quick().open(dir.path()).unwrap();
    assert_eq!(broker.describe_topic("a/b").unwrap(), described);
    assert_eq!(broker.topics("**", None, 9).unwrap(), ["a/b"]);
    let mut all = broker
        .subscription("a/*")
        .delivery(DeliveryMode::AtMostOnce)
        .start(Start::Earliest)
        .open()
        .unwrap();
    assert_eq!(take(&mut all), [1; 4], "not what the deleted topic had");
    // The name is free, and what is new under it is not taken for the old.
    let again = broker.create_topic("a/gone", 1).unwrap();
    assert_eq!(again.publish(&2_u64.to_le_bytes()).unwrap().offset, 0);
    assert_eq!(take(&mut all), [2]);
}

#[test]
fn a_directory_belongs_to_one_broker_and_is_free_when_that_is_closed() {
    let dir = tempdir().unwrap();
    let broker = quick().shards(2).open(dir.path()).unwrap();
    publish(&broker, 0..1);
    let mut all = broker
        .subscription("a/*")
        .delivery(DeliveryMode::AtMostOnce)
        .start(Start::Earliest)
        .open()
        .unwrap();
    let locked = Broker::open(dir.path()).unwrap_err();
    assert!(matches!(locked, OpenError::Store(StoreError::Locked)), "{locked}");
    let kept = all.recv().unwrap().keep();
    let report = broker.close(Duration::from_secs(5));
    assert_eq!(report.store, None);
    assert_eq!(broker.publish("a/b", "x").unwrap_err(), PublishError::Closed);

    let other = quick().shards(3).open(dir.path()).unwrap_err();
    assert!(matches!(other, OpenError::Store(StoreError::Incompatible(_))), "{other}");
    let again = quick().open(dir.path()).unwrap();
    assert_eq!(again.metrics().shards.len(), 2, "as many as it was made with");
    assert_eq!(number(kept.payload()), 0, "what was kept outlives it all");
}

#[test]
fn a_consumer_that_is_far_behind_reads_from_the_disk_while_others_publish() {
    const ALL: u64 = 60_000;
    let _watchdog = watchdog::watch(240);
    let dir = tempdir().unwrap();
    // Some thousand messages fit into memory.
    let broker = quick().memory_budget(256 << 10).open(dir.path()).unwrap();
    let mut behind = named(&broker, "s").capacity(16).open().unwrap();
    let mut lossy = broker
        .subscription("a/*")
        .delivery(DeliveryMode::AtMostOnce)
        .capacity(1 << 16)
        .open()
        .unwrap();
    publish(&broker, 0..ALL / 2);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            publish(&broker, ALL / 2..ALL);
            done.store(true, Ordering::Release);
        });
        let mut next = 0;
        while next < ALL {
            let message = behind.recv().unwrap();
            assert_eq!((number(message.payload()), message.attempt()), (next, 1));
            message.ack().unwrap();
            next += 1;
        }
    });
    assert!(done.load(Ordering::Acquire));
    assert_eq!(drain(&mut behind), (vec![], 0));
    // What has left memory is not lost to those either that deliver at most once.
    assert!(take(&mut lossy).into_iter().eq(0..ALL));
    assert!(broker.metrics().shards[0].retained < ALL / 2);
    assert_eq!(broker.metrics().shards[0].expired, 0);
}

#[test]
fn what_is_queued_for_a_ring_that_displaces_is_read_from_the_disk_as_well() {
    let dir = tempdir().unwrap();
    let broker = quick().memory_budget(256 << 10).open(dir.path()).unwrap();
    let oldest = Overflow::DropOldest;
    let mut lossy = broker
        .subscription("a/*")
        .delivery(DeliveryMode::AtMostOnce)
        .capacity(8192)
        .overflow(oldest)
        .open()
        .unwrap();
    publish(&broker, 0..20_000);
    assert_eq!(lossy.recv().unwrap_err(), RecvError::Lagged(20_000 - 8192));
    assert!(take(&mut lossy).into_iter().eq(20_000 - 8192..20_000));
}

#[test]
fn all_starts_find_their_place_on_the_disk() {
    let dir = tempdir().unwrap();
    let clock = TestClock::new();
    let open =
        || quick().clock(&clock).memory_budget(512 << 10).shards(2).open(dir.path()).unwrap();
    let broker = open();
    let topic = broker.create_topic("a/b", 2).unwrap();
    for number in 0..20_000_u64 {
        clock.advance(MS);
        let receipt = topic.publish(&number.to_le_bytes()).unwrap();
        assert_eq!(receipt.offset, number / 2);
    }
    let mut all = broker
        .subscription("a/b")
        .delivery(DeliveryMode::AtMostOnce)
        .start(Start::Earliest)
        .open()
        .unwrap();
    let mut times = vec![0; 20_000];
    let mut count = 0;
    while count < 20_000 {
        count += all
            .poll(64, |message| times[number(message.payload()) as usize] = message.published_us())
            .unwrap();
    }
    let middle_us = times[10_000];
    drop((topic, all, broker));

    let broker = open();
    let begun_at = |start| {
        let mut from = broker
            .subscription("a/b")
            .delivery(DeliveryMode::AtMostOnce)
            .start(start)
            .open()
            .unwrap();
        let mut numbers = take(&mut from);
        numbers.sort_unstable();
        let all_follow = numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        assert!(all_follow && numbers.last().is_none_or(|last| *last == 19_999), "{start:?}");
        20_000 - numbers.len()
    };
    assert_eq!(begun_at(Start::Earliest), 0);
    assert_eq!(begun_at(Start::Last(3000)), 17_000);
    assert_eq!(begun_at(Start::Offset(9_990)), 19_980);
    assert_eq!(begun_at(Start::Time(middle_us)), 10_000);
    assert_eq!(begun_at(Start::Now), 20_000);
    let filtered = broker.subscription("a/b").filter("attributes:none").start(Start::Last(5));
    assert_eq!(take(&mut filtered.open().unwrap()), vec![]);
}

#[test]
fn dead_letters_are_there_again_and_those_that_were_cleared_are_not() {
    let dir = tempdir().unwrap();
    let broker = quick().open(dir.path()).unwrap();
    let mut all = named(&broker, "s").open().unwrap();
    publish(&broker, 0..4);
    for _ in 0..4 {
        all.recv().unwrap().dead_letter("no").unwrap();
    }
    let letters = broker.dead_letters("$dlq/s");
    let listed = letters.list(9);
    assert_eq!(listed.len(), 4);
    assert!(letters.redrive(&listed[1].view()).unwrap());
    drop((listed, letters, all, broker));

    let broker = quick().open(dir.path()).unwrap();
    let letters = broker.dead_letters("$dlq/s");
    let numbers = |letters: &slipring::DeadLetters| -> Vec<u64> {
        letters.list(9).iter().map(|letter| number(letter.payload())).collect()
    };
    assert_eq!(numbers(&letters), [0, 2, 3]);
    let mut all = named(&broker, "s").open().unwrap();
    assert_eq!(drain(&mut all), (first_attempts([1]), 0), "what was sent back");
    assert_eq!(letters.purge(), Ok(3));
    drop((letters, all, broker));

    let broker = quick().open(dir.path()).unwrap();
    assert_eq!(numbers(&broker.dead_letters("$dlq/s")), [0_u64; 0]);
}

#[test]
fn what_is_older_than_its_topic_wants_it_is_let_go_and_told() {
    let watchdog = watchdog::watch(120);
    let dir = tempdir().unwrap();
    let clock = TestClock::new();
    let disk = small_disk(SyncPolicy::Os).segment_bytes(64 << 10);
    let builder = Broker::builder().disk(disk).clock(&clock).memory_budget(256 << 10);
    let broker = builder.open(dir.path()).unwrap();
    let hour = Duration::from_secs(3600);
    let short = TopicConfig::default().retention(Some(hour));
    broker.create_topic_with("a/b", short).unwrap();
    let mut behind = named(&broker, "s").open().unwrap();
    publish(&broker, 0..10_000);
    let stored = || -> u64 {
        let files = std::fs::read_dir(dir.path().join("shard-000")).unwrap();
        files.map(|file| file.unwrap().metadata().map_or(0, |data| data.len())).sum()
    };
    let before = stored();
    clock.advance(hour + Duration::from_secs(60));
    publish(&broker, 10_000..10_100);
    watchdog.until("old segments are gone", || stored() < before / 2);
    let (numbers, lost) = drain(&mut behind);
    assert_eq!((lost, numbers.len(), numbers[0]), (10_000, 100, (10_000, 1)));
}

#[test]
fn a_subscription_that_nothing_comes_for_loses_nothing_to_retention() {
    let watchdog = watchdog::watch(120);
    let dir = tempdir().unwrap();
    let clock = TestClock::new();
    let open = || {
        let disk = small_disk(SyncPolicy::Os).segment_bytes(64 << 10);
        Broker::builder().disk(disk).clock(&clock).open(dir.path()).unwrap()
    };
    let broker = open();
    let mode = DeliveryMode::AtLeastOnce;
    let quiet =
        |broker: &Broker| broker.subscription("quiet").name("q").delivery(mode).open().unwrap();
    drop(quiet(&broker));
    let hour = Duration::from_secs(3600);
    broker.create_topic_with("a/b", TopicConfig::default().retention(Some(hour))).unwrap();
    publish(&broker, 0..10_000);
    drop(broker);

    let broker = open();
    clock.advance(hour + Duration::from_secs(60));
    publish(&broker, 10_000..10_001);
    let retained = || {
        let mut all = broker
            .subscription("a/b")
            .delivery(DeliveryMode::AtMostOnce)
            .start(Start::Earliest)
            .open()
            .unwrap();
        let mut count = 0;
        loop {
            match all.try_recv() {
                Ok(_) => count += 1,
                // They may go while they are counted.
                Err(TryRecvError::Recv(RecvError::Lagged(_))) => {}
                Err(_) => return count,
            }
        }
    };
    watchdog.until("the old ones are gone", || retained() < 10_000);
    let mut consumer = quiet(&broker);
    broker.publish("quiet", &7_u64.to_le_bytes()).unwrap();
    assert_eq!(drain(&mut consumer), (first_attempts([7]), 0));
}

#[test]
fn a_subscription_is_told_of_no_more_lost_messages_than_were_for_it() {
    let watchdog = watchdog::watch(120);
    let dir = tempdir().unwrap();
    let clock = TestClock::new();
    let disk = small_disk(SyncPolicy::Os).segment_bytes(64 << 10);
    let builder = Broker::builder().disk(disk).clock(&clock).memory_budget(256 << 10);
    let broker = builder.open(dir.path()).unwrap();
    let hour = Duration::from_secs(3600);
    for topic in ["a/b", "rare/r"] {
        broker.create_topic_with(topic, TopicConfig::default().retention(Some(hour))).unwrap();
    }
    let mode = DeliveryMode::AtLeastOnce;
    let rare = || broker.subscription("rare/*").name("r").delivery(mode).open().unwrap();
    drop(rare());
    publish(&broker, 0..5_000);
    for number in 0..3_u64 {
        broker.publish("rare/r", &number.to_le_bytes()).unwrap();
    }
    publish(&broker, 5_000..10_000);
    clock.advance(hour + Duration::from_secs(60));
    publish(&broker, 10_000..10_001);
    let files = || std::fs::read_dir(dir.path().join("shard-000")).unwrap().count();
    let before = files();
    watchdog.until("old segments are gone", || files() < before / 2);
    let mut rare = rare();
    assert_eq!(drain(&mut rare), (vec![], 3));
    broker.publish("rare/r", &3_u64.to_le_bytes()).unwrap();
    assert_eq!(drain(&mut rare), (first_attempts([3]), 0));
}

#[test]
fn a_handler_settles_by_returning_and_goes_on_after_a_restart() {
    let dir = tempdir().unwrap();
    let run = |expected: &[u64]| {
        let broker = quick().open(dir.path()).unwrap();
        let (told, handled) = channel();
        let handler = named(&broker, "h").start(Start::Earliest).handler(move |message| {
            told.send(number(message.payload())).unwrap();
            Handled::Success
        });
        let handler = handler.unwrap();
        for number in expected {
            assert_eq!(handled.recv().unwrap(), *number);
        }
        handler.unsubscribe().unwrap();
        assert!(handled.try_recv().is_err());
        let next = expected.last().map_or(0, |last| last + 1);
        publish(&broker, next..next + 3);
    };
    run(&[]);
    run(&[0, 1, 2]);
    run(&[3, 4, 5]);
}

#[test]
fn messages_may_be_kept_in_another_store() {
    let dir = tempdir().unwrap();
    let store = Arc::new(MemoryStore::new(2, 1 << 20));
    let broker = Broker::builder().store(store).open(dir.path()).unwrap();
    let mut all = named(&broker, "s").open().unwrap();
    publish(&broker, 0..100);
    assert_eq!(drain(&mut all), (first_attempts(0..100), 0));
    let locked = Broker::open(dir.path()).unwrap_err();
    assert!(matches!(locked, OpenError::Store(StoreError::Locked)), "{locked}");
}

#[test]
fn a_filter_that_is_a_function_is_refused_where_it_would_have_to_be_kept() {
    let dir = tempdir().unwrap();
    let broker = quick().open(dir.path()).unwrap();
    let refused = named(&broker, "s").filter_fn(|_| true).open();
    assert_eq!(refused.unwrap_err(), SubscribeError::FilterNotKept);
    assert!(named(&broker, "s").open().is_ok(), "the name is free");
    assert!(broker.subscription("a").filter_fn(|_| true).open().is_ok());
}

#[test]
fn a_directory_that_is_no_store_or_has_lost_a_part_is_refused() {
    let dir = tempdir().unwrap();
    drop(quick().open(dir.path()).unwrap());
    let broker = quick().open(dir.path()).unwrap();
    publish(&broker, 0..1);
    drop(broker);
    let without = |name: &str| {
        let (from, to) = (dir.path().join(name), dir.path().join("elsewhere"));
        std::fs::rename(&from, &to).unwrap();
        let refused = Broker::open(dir.path()).unwrap_err();
        std::fs::rename(&to, &from).unwrap();
        refused.to_string()
    };
    assert!(without("metadata.redb").contains("metadata.redb"));
    assert!(without("cursors").contains("cursor"));
    let file = dir.path().join("a file");
    std::fs::write(&file, "x").unwrap();
    assert!(Broker::open(Path::new(&file)).is_err());
    assert!(Broker::open(dir.path()).is_ok());
}

/// Counts the events of the thread that has it.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

impl Events {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl tracing::Subscriber for Events {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn what_cannot_be_stored_is_told_once_and_once_more_when_it_can() {
    let dir = tempdir().unwrap();
    let store = Arc::new(MemoryStore::new(1, 64 << 10));
    let clock = TestClock::new();
    let builder = Broker::builder().store(Arc::clone(&store) as _).clock(&clock);
    let broker = builder.open(dir.path()).unwrap();
    let jobs = named(&broker, "worker").max_delivery_attempts(1);
    let mut jobs = jobs.visibility_timeout(1000 * MS).open().unwrap();
    broker.publish("a/b", &[1; 2000]).unwrap();
    let job = jobs.recv().unwrap().keep();
    let events = Events::default();
    tracing::subscriber::with_default(events.clone(), || {
        let payload = [0; 1000];
        while broker.publish("a/b", &payload).is_ok() {}
        for _ in 0..20 {
            assert_eq!(broker.publish("a/b", &payload), Err(PublishError::Full));
        }
        assert_eq!(events.take(), ["messages cannot be stored"]);
        // Each time the lease ends the dead letter is tried again.
        drop(job);
        for _ in 0..10 {
            clock.advance(1001 * MS);
            let _ = jobs.try_recv();
        }
        assert_eq!(events.take(), ["a dead letter is not stored"]);
        store.retain(0, 0, &|_| Retention::NOTHING).unwrap();
        while broker.metrics().subscriptions[0].dead_lettered == 0 {
            clock.advance(1001 * MS);
            let _ = jobs.try_recv();
        }
        assert_eq!(events.take(), ["messages are stored again", "dead letters are stored again"]);
    });
}

#[test]
fn figures_tell_what_the_directory_has_and_what_a_power_cut_would_take() {
    let dir = tempdir().unwrap();
    let broker = quick().open(dir.path()).unwrap();
    publish(&broker, 0..10);
    let figures = broker.metrics();
    let shard = &figures.shards[0];
    assert_eq!((shard.stored, shard.unsynced), (10, 10));
    let file = dir.path().join("shard-000/00000000000000000000.log");
    assert_eq!(shard.stored_bytes, file.metadata().unwrap().len());
    assert!(figures.to_prometheus().contains("slipring_shard_unsynced{shard=\"0\"} 10\n"));
    broker.flush().unwrap();
    assert_eq!(broker.metrics().shards[0].unsynced, 0);
}
