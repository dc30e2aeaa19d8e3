//! The contract of a broker with a directory at the moments between two of its steps, and with a
//! store that does not keep to its own contract.
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

mod killed;
mod watchdog;

use killed::what_a_kill_leaves;
use slipring::store::{
    Bounds, DiskStore, Group, MessageStore, PartitionBounds, Records, Retained, Retention,
    StoreError, StoredRecord, SyncPolicy,
};
use slipring::{
    Broker, BrokerBuilder, DeliveryMode, Handled, RecvError, SeekError, Start, Subscription,
    SubscriptionBuilder, TryRecvError,
};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tempfile::tempdir;

fn quick() -> BrokerBuilder {
    let disk = DiskStore::builder().sync(SyncPolicy::Os).preallocate_bytes(0).reserve_bytes(0);
    Broker::builder().disk(disk)
}

fn named<'a>(broker: &Broker, name: &'a str) -> SubscriptionBuilder<'a> {
    broker.subscription("a/**").name(name).delivery(DeliveryMode::AtLeastOnce)
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload.try_into().expect("8 bytes"))
}

fn publish(broker: &Broker, topic: &str, numbers: Range<u64>) {
    for number in numbers {
        broker.publish(topic, &number.to_le_bytes()).expect("publishes");
    }
}

/// All that is there, acknowledged; and how much was lost.
fn drain(subscription: &mut Subscription) -> (Vec<u64>, u64) {
    let (mut numbers, mut lost) = (Vec::new(), 0);
    loop {
        match subscription.try_recv() {
            Ok(message) => {
                numbers.push(number(message.payload()));
                assert_eq!(message.ack(), Ok(true));
            }
            Err(TryRecvError::Recv(RecvError::Lagged(count))) => lost += count,
            Err(TryRecvError::Empty) => return (numbers, lost),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Publishes `numbers` to `a/b`, and calls `meanwhile` when the log shows the first of them while
/// a filter keeps it from all queues.
fn publish_slowly(
    broker: &Broker,
    numbers: Range<u64>,
    between: &Subscriptions,
    meanwhile: impl FnOnce(),
) {
    between.is_armed.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        scope.spawn(|| publish(broker, "a/b", numbers));
        between.entered.lock().unwrap().recv().unwrap();
        meanwhile();
        between.go_on.send(()).unwrap();
    });
}

/// A subscription on either side of another one in the routes, of which the one that is asked first
/// stops its publisher.
struct Subscriptions {
    is_armed: Arc<AtomicBool>,
    entered: Mutex<std::sync::mpsc::Receiver<()>>,
    go_on: std::sync::mpsc::Sender<()>,
    _both: [Subscription; 2],
}

fn around<T>(broker: &Broker, open: impl FnOnce() -> T) -> (T, Subscriptions) {
    let is_armed = Arc::new(AtomicBool::new(false));
    let (enter, entered) = channel();
    let (go_on, gone_on) = channel();
    let gone_on = Arc::new(Mutex::new(gone_on));
    let filtered = || {
        let (is_armed, enter, gone_on) =
            (Arc::clone(&is_armed), enter.clone(), Arc::clone(&gone_on));
        let filter = move |_: &slipring::Message<'_>| {
            if is_armed.swap(false, Ordering::SeqCst) {
                enter.send(()).unwrap();
                gone_on.lock().unwrap().recv().unwrap();
            }
            true
        };
        broker.subscription("a/**").filter_fn(filter).open().unwrap()
    };
    let before = filtered();
    let made = open();
    let after = filtered();
    let both = [before, after];
    (made, Subscriptions { is_armed, entered: Mutex::new(entered), go_on, _both: both })
}

#[test]
fn a_consumer_that_looks_while_a_message_is_on_its_way_does_not_pass_over_it() {
    let _watchdog = watchdog::watch(60);
    let dir = tempdir().unwrap();
    let broker = quick().open(dir.path()).unwrap();
    let (mut all, between) = around(&broker, || named(&broker, "s").open().unwrap());
    publish(&broker, "a/b", 0..1);
    assert_eq!(drain(&mut all), (vec![0], 0));
    publish_slowly(&broker, 1..2, &between, || {
        assert_eq!(all.wait_timeout(Duration::ZERO), Ok(false));
    });
    // Received, and not settled.
    assert_eq!(number(all.recv().unwrap().payload()), 1);
    drop((all, between));
    drop(broker);

    let broker = quick().open(dir.path()).unwrap();
    let mut all = named(&broker, "s").open().unwrap();
    publish(&broker, "a/b", 2..3);
    assert_eq!(drain(&mut all), (vec![1, 2], 0));
}

#[test]
fn a_subscription_without_a_consumer_does_not_pass_over_a_message_on_its_way() {
    let _watchdog = watchdog::watch(60);
    let dir = tempdir().unwrap();
    let broker = quick().open(dir.path()).unwrap();
    let ((), between) = around(&broker, || drop(named(&broker, "s").open().unwrap()));
    publish(&broker, "a/b", 0..1);
    let mut all = named(&broker, "s").open().unwrap();
    assert_eq!(drain(&mut all), (vec![0], 0));
    drop(all);
    publish_slowly(&broker, 1..2, &between, || broker.flush().unwrap());
    drop(between);
    drop(broker);

    let broker = quick().open(dir.path()).unwrap();
    assert_eq!(drain(&mut named(&broker, "s").open().unwrap()), (vec![1], 0));
}

#[test]
fn what_a_handler_has_handled_is_noted_while_it_is_at_the_next() {
    let _watchdog = watchdog::watch(60);
    let dir = tempdir().unwrap();
    let broker = quick().open(dir.path()).unwrap();
    let (told, handled) = channel();
    let (go_on, gone_on) = channel::<()>();
    let handler = named(&broker, "s").handler(move |message| {
        let number = number(message.payload());
        told.send(number).unwrap();
        if number == 3 {
            let _ = gone_on.recv();
        }
        Handled::Success
    });
    let handler = handler.unwrap();
    publish(&broker, "a/b", 0..5);
    while handled.recv().unwrap() < 3 {}
    broker.flush().unwrap();
    let killed = what_a_kill_leaves(dir.path());
    drop(go_on);
    handler.unsubscribe().unwrap();

    let broker = quick().open(killed.path()).unwrap();
    let mut all = named(&broker, "s").open().unwrap();
    assert_eq!(drain(&mut all), (vec![3, 4], 0));
}

#[derive(Debug, Default)]
struct Log {
    end: u64,
    records: Vec<(u64, Vec<u8>)>,
}

/// How a store breaks its contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vice {
    None,
    /// It has nothing to say of what is asked for.
    Empty,
    /// Behind the last that was asked for, reading goes on where nothing will ever be.
    Far,
    /// It gives something else than was asked for.
    Others,
    /// It panics when something is to be let go.
    Panics,
}

/// A store of one shard, with vices.
#[derive(Debug)]
struct Wild {
    log: Mutex<Log>,
    vice: Mutex<Vice>,
    /// Told when somebody looks for a time, who then waits for the other.
    looking: Mutex<Option<(std::sync::mpsc::Sender<()>, std::sync::mpsc::Receiver<()>)>>,
}

impl Wild {
    fn new() -> Arc<Self> {
        let vice = Mutex::new(Vice::None);
        Arc::new(Self { log: Mutex::default(), vice, looking: Mutex::default() })
    }

    fn open(self: &Arc<Self>, dir: &Path) -> Broker {
        let builder = Broker::builder().memory_budget(256 << 10);
        builder.store(Arc::clone(self) as _).open(dir).unwrap()
    }

    fn set(&self, vice: Vice) {
        *self.vice.lock().unwrap() = vice;
    }

    fn fill(
        &self,
        wanted: impl Fn(u64, StoredRecord<'_>) -> bool,
        max: usize,
        into: &mut Records,
    ) -> Option<u64> {
        into.clear();
        let log = self.log.lock().unwrap();
        let (mut bytes, mut last) = (0, None);
        for (sequence, record) in &log.records {
            let record = StoredRecord::new(record).unwrap();
            if bytes < max && wanted(*sequence, record) {
                into.push(*sequence, record);
                bytes += record.bytes().len();
                last = Some(*sequence);
            }
        }
        last
    }
}

impl MessageStore for Wild {
    fn shards(&self) -> usize {
        1
    }

    fn append(&self, _: usize, group: &Group<'_>) -> Result<(), StoreError> {
        let mut log = self.log.lock().unwrap();
        assert_eq!(log.end, group.base_sequence);
        for record in group.parts.iter().flat_map(|part| StoredRecord::all(part)) {
            let entry = (log.end, record.unwrap().bytes().to_vec());
            log.records.push(entry);
            log.end += 1;
        }
        Ok(())
    }

    fn commit(&self, _: usize, _: u64) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync(&self, shard: usize, _: u64) -> Result<u64, StoreError> {
        Ok(self.bounds(shard)?.end)
    }

    fn bounds(&self, _: usize) -> Result<Bounds, StoreError> {
        let end = self.log.lock().unwrap().end;
        Ok(Bounds { low: 0, end, durable: end, first_offset: 0 })
    }

    fn partitions(&self, _: usize) -> Result<Vec<PartitionBounds>, StoreError> {
        let log = self.log.lock().unwrap();
        let records = log.records.iter().map(|(_, record)| StoredRecord::new(record).unwrap());
        let bounds = records.map(|record| PartitionBounds {
            partition: record.partition(),
            low: 0,
            next: record.offset() + 1,
        });
        Ok(bounds.collect())
    }

    fn read(
        &self,
        _: usize,
        sequences: Range<u64>,
        max: usize,
        into: &mut Records,
    ) -> Result<(), StoreError> {
        let vice = *self.vice.lock().unwrap();
        let wanted = |sequence| match vice {
            Vice::Empty => false,
            Vice::Others => sequence < sequences.end,
            _ => sequences.contains(&sequence),
        };
        let last = self.fill(|sequence, _| wanted(sequence), max, into);
        into.set_next(match vice {
            Vice::Empty => sequences.start,
            Vice::Far if last.is_none_or(|last| last + 1 == sequences.end) => u64::MAX,
            _ => last.map_or(sequences.end, |last| last + 1),
        });
        Ok(())
    }

    fn read_partition(
        &self,
        _: usize,
        partition: u32,
        offsets: Range<u64>,
        max: usize,
        into: &mut Records,
    ) -> Result<(), StoreError> {
        let wanted = |record: StoredRecord<'_>| {
            record.partition() == partition && offsets.contains(&record.offset())
        };
        self.fill(|_, record| wanted(record), max, into);
        let next = into.iter().last().map_or(offsets.end, |(_, record)| record.offset() + 1);
        into.set_next(next);
        Ok(())
    }

    fn sequence_at(&self, shard: usize, _: u64) -> Result<u64, StoreError> {
        let looking = self.looking.lock().unwrap().take();
        if let Some((tell, told)) = looking {
            tell.send(()).unwrap();
            told.recv().unwrap();
        }
        Ok(self.bounds(shard)?.end)
    }

    fn retain(
        &self,
        _: usize,
        _: u64,
        _: &dyn Fn(u32) -> Retention,
    ) -> Result<Retained, StoreError> {
        assert!(*self.vice.lock().unwrap() != Vice::Panics, "this store panics");
        Ok(Retained::default())
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn a_message_that_is_far_ahead_of_an_unsettled_one_keeps_no_other_from_being_noted() {
    let _watchdog = watchdog::watch(60);
    let (dir, store) = (tempdir().unwrap(), Wild::new());
    let other = |broker: &Broker| {
        let mode = DeliveryMode::AtLeastOnce;
        broker.subscription("o/**").name("o").delivery(mode).open().unwrap()
    };
    let broker = store.open(dir.path());
    drop((named(&broker, "s").open().unwrap(), other(&broker)));
    publish(&broker, "a/b", 0..1);
    drop(broker);
    // What others have published, and is not there any more.
    store.log.lock().unwrap().end += 1 << 25;

    let broker = store.open(dir.path());
    let (mut stuck, mut other) = (named(&broker, "s").open().unwrap(), other(&broker));
    publish(&broker, "a/b", 1..2);
    publish(&broker, "o/p", 2..3);
    assert_eq!(drain(&mut other), (vec![2], 0));
    for expected in 0..2 {
        assert_eq!(number(stuck.recv().unwrap().payload()), expected);
    }
    assert_eq!(broker.flush(), Ok(()));
}

#[test]
fn a_seek_that_comes_behind_a_take_over_moves_nothing() {
    let _watchdog = watchdog::watch(60);
    let (dir, store) = (tempdir().unwrap(), Wild::new());
    let broker = store.open(dir.path());
    let mut first = named(&broker, "s").open().unwrap();
    publish(&broker, "a/b", 0..3);
    let (tell, looks) = channel();
    let (go_on, gone_on) = channel();
    *store.looking.lock().unwrap() = Some((tell, gone_on));
    let second = thread::scope(|scope| {
        let seek = scope.spawn(|| first.seek(Start::Time(0)));
        looks.recv().unwrap();
        let second = named(&broker, "s").take_over().open().unwrap();
        go_on.send(()).unwrap();
        assert_eq!(seek.join().unwrap(), Err(SeekError::Ended));
        second
    });
    drop((first, second));
    drop(broker);

    let broker = store.open(dir.path());
    assert_eq!(drain(&mut named(&broker, "s").open().unwrap()), (vec![0, 1, 2], 0));
}

#[test]
fn a_store_that_reads_something_else_than_was_asked_for_is_found_out() {
    let _watchdog = watchdog::watch(60);
    for vice in [Vice::Empty, Vice::Far, Vice::Others] {
        let (dir, store) = (tempdir().unwrap(), Wild::new());
        let broker = store.open(dir.path());
        let mut all = named(&broker, "s").open().unwrap();
        // More than memory holds.
        publish(&broker, "a/b", 0..20_000);
        store.set(vice);
        let mut next = 0;
        let mut take = |all: &mut Subscription| {
            loop {
                match all.try_recv() {
                    Ok(message) => {
                        assert_eq!(number(message.payload()), next, "{vice:?}");
                        assert_eq!(message.ack(), Ok(true));
                        next += 1;
                    }
                    Err(error) => return error,
                }
            }
        };
        let stopped = take(&mut all);
        if vice != Vice::Far {
            assert!(matches!(stopped, TryRecvError::Recv(RecvError::Store(_))), "{vice:?}");
        }
        store.set(Vice::None);
        assert_eq!(take(&mut all), TryRecvError::Empty, "{vice:?}");
        assert_eq!(next, 20_000, "{vice:?}");
    }
}

#[test]
fn what_is_settled_is_noted_though_the_store_panics_when_it_is_to_let_go() {
    let watchdog = watchdog::watch(60);
    let (dir, store) = (tempdir().unwrap(), Wild::new());
    let clock = slipring::TestClock::new();
    store.set(Vice::Panics);
    let builder = Broker::builder().clock(&clock).store(Arc::clone(&store) as _);
    let broker = builder.open(dir.path()).unwrap();
    let mut all = named(&broker, "s").open().unwrap();
    publish(&broker, "a/b", 0..2);
    // It has panicked by the time that something is noted.
    let noted = || {
        let killed = what_a_kill_leaves(dir.path());
        let broker = store.open(killed.path());
        let left = drain(&mut named(&broker, "s").open().unwrap());
        left.0
    };
    all.recv().unwrap().ack().unwrap();
    watchdog.until("the first is noted", || noted() == [1]);
    clock.advance(Duration::from_secs(60));
    all.recv().unwrap().ack().unwrap();
    watchdog.until("the second is noted", || noted().is_empty());
}
