//! What a broker does when its store does not do its part: nothing is lost, nothing comes twice, and
//! whoever called is told.
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

mod watchdog;

use slipring::store::{
    Bounds, Group, MemoryStore, MessageStore, PartitionBounds, Records, Retained, Retention,
    StoreError,
};
use slipring::{
    Broker, DeliveryMode, Handled, NewMessage, PublishError, RecvError, StoreFault, Subscription,
    TestClock, TopicConfig, TryRecvError,
};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use tempfile::{TempDir, tempdir};

/// What does not work at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Full,
    Refuses,
    Syncs,
    Reads,
}

/// A store in memory that fails when it is told to.
#[derive(Debug)]
struct Faulty {
    inner: MemoryStore,
    fault: AtomicU8,
    failed_reads: AtomicU64,
    appends: AtomicUsize,
}

impl Faulty {
    fn failed_reads(&self) -> u64 {
        self.failed_reads.load(Ordering::SeqCst)
    }

    fn set(&self, fault: Fault) {
        self.fault.store(fault as u8, Ordering::SeqCst);
    }

    fn check(&self, fault: Fault, error: StoreError) -> Result<(), StoreError> {
        if self.fault.load(Ordering::SeqCst) == fault as u8 { Err(error) } else { Ok(()) }
    }
}

fn io() -> StoreError {
    std::io::Error::from_raw_os_error(5).into()
}

impl MessageStore for Faulty {
    fn shards(&self) -> usize {
        self.inner.shards()
    }

    fn append(&self, shard: usize, group: &Group<'_>) -> Result<(), StoreError> {
        self.check(Fault::Full, StoreError::Full)?;
        self.check(Fault::Refuses, io())?;
        self.appends.fetch_add(1, Ordering::SeqCst);
        self.inner.append(shard, group)
    }

    fn commit(&self, shard: usize, upto: u64) -> Result<(), StoreError> {
        self.check(Fault::Syncs, StoreError::Poisoned("a sync failed".into()))?;
        self.inner.commit(shard, upto)
    }

    fn sync(&self, shard: usize, upto: u64) -> Result<u64, StoreError> {
        self.inner.sync(shard, upto)
    }

    fn bounds(&self, shard: usize) -> Result<Bounds, StoreError> {
        self.inner.bounds(shard)
    }

    fn partitions(&self, shard: usize) -> Result<Vec<PartitionBounds>, StoreError> {
        self.inner.partitions(shard)
    }

    fn read(
        &self,
        shard: usize,
        sequences: Range<u64>,
        max_bytes: usize,
        into: &mut Records,
    ) -> Result<(), StoreError> {
        self.check(Fault::Reads, io()).inspect_err(|_| {
            self.failed_reads.fetch_add(1, Ordering::SeqCst);
        })?;
        self.inner.read(shard, sequences, max_bytes, into)
    }

    fn read_partition(
        &self,
        shard: usize,
        partition: u32,
        offsets: Range<u64>,
        max_bytes: usize,
        into: &mut Records,
    ) -> Result<(), StoreError> {
        self.check(Fault::Reads, io())?;
        self.inner.read_partition(shard, partition, offsets, max_bytes, into)
    }

    fn sequence_at(&self, shard: usize, time_us: u64) -> Result<u64, StoreError> {
        self.inner.sequence_at(shard, time_us)
    }

    fn retain(
        &self,
        shard: usize,
        now_us: u64,
        retention: &dyn Fn(u32) -> Retention,
    ) -> Result<Retained, StoreError> {
        self.inner.retain(shard, now_us, retention)
    }

    fn close(&self) -> Result<(), StoreError> {
        self.inner.close()
    }
}

struct World {
    _dir: TempDir,
    clock: TestClock,
    store: Arc<Faulty>,
    broker: Broker,
}

/// A broker that keeps little in memory.
fn world() -> World {
    let dir = tempdir().unwrap();
    let clock = TestClock::new();
    let inner = MemoryStore::new(1, 64 << 20);
    let store = Arc::new(Faulty {
        inner,
        fault: AtomicU8::new(Fault::None as u8),
        failed_reads: AtomicU64::new(0),
        appends: AtomicUsize::new(0),
    });
    let builder = Broker::builder().clock(&clock).memory_budget(256 << 10);
    let broker = builder.store(Arc::clone(&store) as Arc<dyn MessageStore>).open(dir.path());
    World { _dir: dir, clock, store, broker: broker.unwrap() }
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload.try_into().expect("8 bytes"))
}

fn publish(broker: &Broker, numbers: Range<u64>) {
    for number in numbers {
        broker.publish("a", &number.to_le_bytes()).expect("publishes");
    }
}

fn settled_later(broker: &Broker) -> Subscription {
    broker.subscription("a").name("s").delivery(DeliveryMode::AtLeastOnce).open().unwrap()
}

#[test]
fn what_is_not_stored_is_not_published_and_its_place_is_given_to_the_next() {
    let World { store, broker, _dir, .. } = world();
    let mut all = settled_later(&broker);
    publish(&broker, 0..1);
    for (fault, told) in [
        (Fault::Full, PublishError::Full),
        (Fault::Refuses, PublishError::Store(StoreFault::Io(Some(5)))),
    ] {
        store.set(fault);
        let topic = broker.topic("a").unwrap();
        assert_eq!(topic.publish("x").unwrap_err(), told);
        assert_eq!(topic.try_publish("x").unwrap_err(), told);
        let batch = topic.publish_batch(&["x", "y"]).unwrap_err();
        assert_eq!((batch.receipt.published, batch.reason), (0, told));
        let mut loan = topic.loan(1).unwrap();
        loan.copy_from_slice(b"x");
        let failed = loan.commit().unwrap_err();
        assert_eq!(failed.reason, told);
        assert_eq!(topic.publish_ticket("x").unwrap().wait().unwrap_err(), told);
        let large = vec![0; 200_000];
        assert_eq!(topic.publish(&large).unwrap_err(), told);
        store.set(Fault::None);
    }
    assert_eq!(broker.publish("a", &1_u64.to_le_bytes()).unwrap().offset, 1);
    for expected in 0..2 {
        let message = all.recv().unwrap();
        assert_eq!(number(message.payload()), expected);
        message.ack().unwrap();
    }
    assert_eq!(all.try_recv().unwrap_err(), TryRecvError::Empty);
}

/// A call of the store is a write into a file, or more.
#[test]
fn a_batch_is_stored_with_one_call_for_each_chunk_it_fills() {
    let World { store, broker, _dir, .. } = world();
    let topic = broker.topic("a").unwrap();
    let mut subscription =
        broker.subscription("a").delivery(DeliveryMode::AtMostOnce).capacity(2048).open().unwrap();
    let numbers: Vec<[u8; 8]> = (0..1000_u64).map(u64::to_le_bytes).collect();
    let receipt = topic.publish_batch(&numbers).unwrap();
    assert_eq!((receipt.published, store.appends.load(Ordering::SeqCst)), (1000, 1));
    for expected in 0..1000 {
        assert_eq!(number(subscription.try_recv().unwrap().payload()), expected);
    }
}

#[test]
fn publishing_in_vain_costs_no_memory() {
    let World { store, broker, _dir, .. } = world();
    let topic = broker.topic("a").unwrap();
    publish(&broker, 0..100);
    store.set(Fault::Full);
    let before = broker.metrics();
    for _ in 0..10_000 {
        assert_eq!(topic.publish("x").unwrap_err(), PublishError::Full);
    }
    assert_eq!(topic.publish(&vec![0; 100_000]).unwrap_err(), PublishError::Full);
    let after = broker.metrics();
    assert_eq!(after.chunk_bytes, before.chunk_bytes);
    assert_eq!(after.shards[0].retained, before.shards[0].retained);
}

#[test]
fn a_loan_that_was_not_stored_is_given_back_and_can_be_committed() {
    let World { store, broker, _dir, .. } = world();
    let mut all = settled_later(&broker);
    let mut loan = broker.topic("a").unwrap().loan(8).unwrap();
    loan.copy_from_slice(&7_u64.to_le_bytes());
    store.set(Fault::Full);
    let loan = loan.commit().unwrap_err().loan.unwrap();
    store.set(Fault::None);
    assert_eq!(loan.commit().unwrap().offset, 0);
    assert_eq!(number(all.recv().unwrap().payload()), 7);
}

#[test]
fn a_publisher_is_told_when_nobody_knows_whether_it_is_stored() {
    let World { store, broker, _dir, .. } = world();
    store.set(Fault::Syncs);
    let told = PublishError::Store(StoreFault::Poisoned);
    assert_eq!(broker.publish("a", "x").unwrap_err(), told);
    let batch = broker.publish_batch("a", &["y", "z"]).unwrap_err();
    assert_eq!((batch.receipt.published, batch.reason), (2, told));
    assert!(!batch.receipt.durable);
}

#[test]
fn a_loan_that_has_been_published_is_not_given_back_to_be_written_to() {
    let World { store, broker, _dir, .. } = world();
    let mut all = settled_later(&broker);
    store.set(Fault::Syncs);
    let mut loan = broker.topic("a").unwrap().loan(8).unwrap();
    loan.copy_from_slice(&7_u64.to_le_bytes());
    let failed = loan.commit().unwrap_err();
    assert_eq!(failed.reason, PublishError::Store(StoreFault::Poisoned));
    assert_eq!(number(all.recv().unwrap().payload()), 7);
    assert!(failed.loan.is_none());
}

/// Goal: what the store has not taken does not count as published, and leaves the window as it was.
#[test]
fn an_id_that_was_not_stored_is_not_known_again() {
    let World { store, broker, _dir, .. } = world();
    let window = Some(Duration::from_secs(60));
    let config = TopicConfig::default().dedup_window(window).dedup_ids(Some(3));
    let topic = broker.create_topic_with("a", config).unwrap();
    let message = |id| NewMessage::new(b"x").id(id);
    topic.publish(message("first")).unwrap();
    for fault in [Fault::Full, Fault::Refuses] {
        store.set(fault);
        for id in ["x", "y", "z"] {
            topic.publish(message(id)).unwrap_err();
            topic.publish_batch(&[message(id), message("first")]).unwrap_err();
            topic.loan_for(&message(id), 1).unwrap().commit().unwrap_err();
            topic.publish_ticket(message(id)).unwrap().wait().unwrap_err();
        }
        assert!(topic.publish(message("first")).unwrap().duplicate, "that needs no room");
        store.set(Fault::None);
    }
    for id in ["x", "y", "z"] {
        assert!(!topic.publish(message(id)).unwrap().duplicate);
    }
    assert!(!topic.publish(message("first")).unwrap().duplicate, "the fourth back");
}

/// Goal: whoever was told that nobody knows tries again, and is told when it is stored.
#[test]
fn a_publisher_that_was_told_that_nobody_knows_may_try_again() {
    let World { store, broker, _dir, .. } = world();
    let config = TopicConfig::default().dedup_window(Some(Duration::from_secs(60)));
    let topic = broker.create_topic_with("a", config).unwrap();
    let message = NewMessage::new(b"x").id("x");
    store.set(Fault::Syncs);
    let told = PublishError::Store(StoreFault::Poisoned);
    assert_eq!(topic.publish(message).unwrap_err(), told);
    assert_eq!(topic.publish(message).unwrap_err(), told, "it was published, and may be lost");
    store.set(Fault::None);
    let again = topic.publish(message).unwrap();
    assert_eq!((again.duplicate, again.offset), (true, 0));
    assert_eq!(topic.publish("y").unwrap().offset, 1);
}

#[test]
fn a_consumer_is_told_that_it_cannot_read_and_goes_on_where_it_was() {
    let World { store, broker, _dir, .. } = world();
    let mut all = settled_later(&broker);
    let mut once = broker
        .subscription("a")
        .delivery(DeliveryMode::AtMostOnce)
        .capacity(1 << 14)
        .open()
        .unwrap();
    publish(&broker, 0..10_000);
    let unreadable = RecvError::Store(StoreFault::Io(Some(5)));
    for expected in 0..10_000 {
        if expected % 1000 == 500 {
            store.set(Fault::Reads);
            // What has been read already, and what is in memory, still comes.
            let polled = once.poll(1, |_| ());
            assert!(polled == Ok(1) || polled == Err(unreadable), "{polled:?}");
            store.set(Fault::None);
        }
        let message = all.recv().unwrap();
        assert_eq!((number(message.payload()), message.attempt()), (expected, 1));
        message.ack().unwrap();
    }
    assert_eq!(all.try_recv().unwrap_err(), TryRecvError::Empty);

    publish(&broker, 10_000..20_000);
    store.set(Fault::Reads);
    assert_eq!(all.try_recv().unwrap_err(), TryRecvError::Recv(unreadable));
    assert_eq!(all.recv().unwrap_err(), unreadable);
    assert!(all.iter().next().unwrap().is_err_and(|error| error == unreadable));
    store.set(Fault::None);
    for expected in 10_000..20_000 {
        let message = all.recv().unwrap();
        assert_eq!((number(message.payload()), message.attempt()), (expected, 1));
        message.ack().unwrap();
    }
}

#[test]
fn a_message_that_cannot_be_read_again_keeps_its_attempts() {
    let World { store, broker, clock, _dir } = world();
    let mut all = settled_later(&broker);
    publish(&broker, 0..1);
    all.recv().unwrap().nack(Some(Duration::ZERO)).unwrap();
    // It leaves memory.
    publish(&broker, 1..10_000);
    store.set(Fault::Reads);
    for _ in 0..9 {
        clock.advance(Duration::from_secs(1));
        let unreadable = RecvError::Store(StoreFault::Io(Some(5)));
        assert_eq!(all.try_recv().unwrap_err(), TryRecvError::Recv(unreadable));
    }
    store.set(Fault::None);
    clock.advance(Duration::from_secs(1));
    let message = all.recv().unwrap();
    assert_eq!((number(message.payload()), message.attempt()), (0, 2));
}

#[test]
fn a_handler_waits_until_it_can_read_and_misses_nothing() {
    let watchdog = watchdog::watch(60);
    let World { store, broker, clock, _dir } = world();
    let settled = settled_later(&broker);
    publish(&broker, 0..10_000);
    store.set(Fault::Reads);
    drop(settled);
    let (told, handled) = channel();
    let (tells, unreadable) = channel();
    let handler = broker
        .subscription("a")
        .name("s")
        .delivery(DeliveryMode::AtLeastOnce)
        .on_unreadable(move |fault| tells.send(fault).unwrap())
        .handler(move |message| {
            told.send(number(message.payload())).unwrap();
            Handled::Success
        })
        .unwrap();
    assert_eq!(unreadable.recv(), Ok(Some(StoreFault::Io(Some(5)))));
    let failed = store.failed_reads();
    watchdog.until("it has tried again", || {
        clock.advance(Duration::from_secs(1));
        store.failed_reads() >= failed + 3
    });
    assert!(unreadable.try_recv().is_err(), "told once");
    assert!(handled.try_recv().is_err());
    store.set(Fault::None);
    let mut next = 0;
    watchdog.until("all are handled", || {
        clock.advance(Duration::from_secs(1));
        while let Ok(number) = handled.try_recv() {
            assert_eq!(number, next);
            next += 1;
        }
        next == 10_000
    });
    assert_eq!(unreadable.recv(), Ok(None), "that it is over is told as well");
    handler.unsubscribe().unwrap();
}

#[test]
fn a_dead_letter_that_is_not_stored_leaves_its_message_where_it_was() {
    let World { store, broker, clock, _dir } = world();
    let mut all = settled_later(&broker);
    broker.publish("a", NewMessage::new(&3_u64.to_le_bytes())).unwrap();
    // The topic for dead letters is there.
    broker.publish("a", NewMessage::new(&4_u64.to_le_bytes())).unwrap();
    all.recv().unwrap().dead_letter("first").unwrap();
    store.set(Fault::Full);
    let refused = all.recv().unwrap().dead_letter("second").unwrap_err();
    assert_eq!(refused, slipring::AckError::DeadLetter(PublishError::Full));
    store.set(Fault::None);
    assert_eq!(broker.dead_letters("$dlq/s").count(), 1);
    clock.advance(Duration::from_secs(10));
    let again = all.recv().unwrap();
    assert_eq!((number(again.payload()), again.attempt()), (4, 2));
    again.dead_letter("second").unwrap();
    assert_eq!(broker.dead_letters("$dlq/s").count(), 2);
}
