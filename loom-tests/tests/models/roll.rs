//! A shard's log on disk whose every append rolls to a new segment, while others sync, read and let
//! expire: who was told that records are durable finds them after a power cut, a reader sees all of
//! them in order, and retention loses nothing that it should keep.

use crate::disk::{Disk, Image};
use loom::sync::Arc;
use loom::thread;
use slipring::NewMessage;
use slipring::store::internals::ModelLog;
use slipring::store::{Group, RecordPlace, Records, Retention, StoreError, StoredRecord};
use slipring_loom_tests::check;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// When old records were published, and new ones.
const OLD_US: u64 = 0;
const NEW_US: u64 = 1000;
/// Now, when the old ones have expired.
const NOW_US: u64 = 1001;
const KEEP_NEW: Retention = Retention { max_age_us: Some(500), max_bytes: None };

struct World {
    log: ModelLog,
    disk: Disk,
}

/// What a power cut would have left when somebody knew that everything below a sequence is durable.
type Promise = (u64, Image);

/// Different ones of them, from all orders. Whether they were kept is looked at afterwards, once for
/// each.
#[derive(Clone, Default)]
struct Promises(std::sync::Arc<Mutex<BTreeSet<Promise>>>);

impl Promises {
    fn add(&self, durable: u64, images: impl IntoIterator<Item = Image>) {
        let mut promises = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        promises.extend(images.into_iter().map(|image| (durable, image)));
    }

    /// Opens each of them.
    fn open_each(&self, look: fn(&ModelLog, u64)) {
        let promises = std::mem::take(&mut *self.0.lock().unwrap());
        assert!(!promises.is_empty());
        println!("{} power cuts", promises.len());
        for (durable, image) in promises {
            loom::model(move || {
                let disk = std::sync::Arc::new(Disk::of(&image));
                let log = ModelLog::open(disk, false).expect("opens after a power cut");
                assert_eq!(log.recovery().damage, None);
                look(&log, durable);
            });
        }
    }
}

impl World {
    fn new() -> Arc<Self> {
        let disk = Disk::new();
        let log = ModelLog::open(std::sync::Arc::new(disk.clone()), true).unwrap();
        Arc::new(Self { log, disk })
    }

    /// Appends the next record, at `sequence`, in a segment of its own.
    fn append(&self, sequence: u64, partition: u32, offset: u64, published_us: u64) {
        let place = RecordPlace { partition, offset, sequence, published_us };
        let mut bytes = vec![];
        StoredRecord::encode(&NewMessage::new(&[payload(sequence)]), place, &mut bytes).unwrap();
        self.log.append(&Group { base_sequence: sequence, parts: &[&bytes] }).unwrap();
    }

    fn sync(&self, upto: u64, promises: &Promises) -> u64 {
        let durable = self.log.sync(upto).unwrap();
        promises.add(durable, self.disk.power_cuts());
        durable
    }

    /// Reads what comes at `next`, if there is something.
    fn read(&self, next: u64, records: &mut Records) -> u64 {
        if self.log.bounds().end == next {
            return next;
        }
        self.log.read(next..u64::MAX, records).unwrap();
        assert!(!records.is_empty(), "there is one");
        next + check_records(records, next)
    }
}

fn payload(sequence: u64) -> u8 {
    sequence as u8 + 7
}

/// They follow each other from `first` on; how many they are.
fn check_records(records: &Records, first: u64) -> u64 {
    for ((sequence, record), expected) in records.iter().zip(first..) {
        assert_eq!(sequence, expected, "in order, with no gap");
        assert_eq!(record.payload(), [payload(sequence)], "a whole record");
    }
    records.len() as u64
}

#[test]
fn what_a_sync_beside_a_roll_reports_survives_a_power_cut() {
    let promises = Promises::default();
    let made = promises.clone();
    check(3, move || {
        let world = World::new();
        world.append(0, 1, 0, NEW_US);
        let (theirs, also_made) = (Arc::clone(&world), made.clone());
        let writer = thread::spawn(move || {
            theirs.append(1, 1, 1, NEW_US);
            theirs.append(2, 1, 2, NEW_US);
            assert_eq!(theirs.sync(3, &also_made), 3);
        });
        let first = world.sync(1, &made);
        let second = world.sync(u64::MAX, &made);
        assert!(first >= 1 && second >= first);
        writer.join().unwrap();
    });
    promises.open_each(|log, durable| {
        assert!(log.bounds().end >= durable, "what was durable is lost");
        let (mut next, mut records) = (0, Records::new());
        while next < durable {
            log.read(next..durable, &mut records).unwrap();
            next += check_records(&records, next);
        }
    });
}

#[test]
fn a_reader_beside_rolls_gets_every_record_once_and_in_order() {
    check(3, || {
        let world = World::new();
        world.append(0, 1, 0, NEW_US);
        let theirs = Arc::clone(&world);
        let writer = thread::spawn(move || {
            (1..3).for_each(|sequence| theirs.append(sequence, 1, sequence, NEW_US));
        });
        let mut records = Records::new();
        let mut next = 0;
        (0..2).for_each(|_| next = world.read(next, &mut records));
        writer.join().unwrap();
        while next < 3 {
            next = world.read(next, &mut records);
        }
    });
}

#[test]
fn a_reader_of_a_partition_beside_a_roll_misses_nothing_below_its_end() {
    check(3, || {
        let world = World::new();
        world.append(0, 1, 0, NEW_US);
        let theirs = Arc::clone(&world);
        let writer = thread::spawn(move || theirs.append(1, 1, 1, NEW_US));
        let end = world.log.partitions()[0].next;
        let mut records = Records::new();
        let mut next = 0;
        while next < end {
            world.log.read_partition(1, next..u64::MAX, &mut records).unwrap();
            next += check_records(&records, next);
        }
        assert!(next >= end);
        writer.join().unwrap();
    });
}

/// What is new is there.
fn finds_the_new(log: &ModelLog) {
    let (mut next, mut records) = (log.bounds().low, Records::new());
    while next < 3 {
        log.read(next..3, &mut records).unwrap();
        next = records.next();
    }
    assert_eq!(check_records(&records, 2), 1);
    log.read_partition(1, 1..2, &mut records).unwrap();
    assert_eq!(records.len(), 1, "also in its partition");
}

/// No offset of these partitions is given out again.
fn knows_partitions(log: &ModelLog, nexts: [u64; 2]) {
    let partitions = log.partitions();
    for (id, next) in (1..).zip(nexts) {
        let of = partitions.iter().find(|of| of.partition == id).expect("it had records");
        assert!(of.next >= next, "partition {id}");
    }
}

/// Of partition 1 comes something new, of partition 2 nothing is left but where it goes on.
#[test]
fn retention_beside_a_roll_loses_nothing_new_and_no_partition() {
    let (removals, ends) = (Promises::default(), Promises::default());
    let (at_removals, at_ends) = (removals.clone(), ends.clone());
    check(3, move || {
        let world = World::new();
        world.append(0, 1, 0, OLD_US);
        world.append(1, 2, 0, OLD_US);
        let theirs = Arc::clone(&world);
        let writer = thread::spawn(move || {
            theirs.append(2, 1, 1, NEW_US);
            theirs.log.sync(3).unwrap();
        });
        world.log.retain(NOW_US, KEEP_NEW).unwrap();
        writer.join().unwrap();
        finds_the_new(&world.log);
        at_removals.add(0, world.disk.take_cuts_at_removals());
        at_ends.add(3, world.disk.power_cuts());
    });
    removals.open_each(|log, _| knows_partitions(log, [1, 1]));
    ends.open_each(|log, _| {
        knows_partitions(log, [2, 1]);
        finds_the_new(log);
    });
}

/// A log whose first record is old, and whose second is new and in another segment; `reading` runs
/// while the first is removed.
fn beside_a_removal(reading: impl Fn(&ModelLog) + Send + Sync + 'static) {
    check(3, move || {
        let world = World::new();
        world.append(0, 1, 0, OLD_US);
        world.append(1, 1, 1, NEW_US);
        let theirs = Arc::clone(&world);
        let expiry = thread::spawn(move || theirs.log.retain(NOW_US, KEEP_NEW).unwrap());
        reading(&world.log);
        assert_eq!(expiry.join().unwrap().low, 1);
        let mut records = Records::new();
        world.log.read(1..2, &mut records).unwrap();
        assert_eq!(check_records(&records, 1), 1);
    });
}

#[test]
fn a_reader_of_what_is_being_removed_gets_it_or_is_told_that_it_has_expired() {
    beside_a_removal(|log| {
        let mut records = Records::new();
        match log.read(0..2, &mut records) {
            Ok(()) => _ = check_records(&records, records.next() - records.len() as u64),
            Err(StoreError::Expired { low }) => assert_eq!(low, 1),
            Err(error) => panic!("{error}"),
        }
    });
}

#[test]
fn a_reader_of_a_partition_beside_a_removal_gets_what_has_not_expired() {
    beside_a_removal(|log| {
        let mut records = Records::new();
        log.read_partition(1, 1..2, &mut records).unwrap();
        assert_eq!(check_records(&records, 1), 1);
    });
}

#[test]
fn a_time_is_found_beside_a_removal() {
    beside_a_removal(|log| assert_eq!(log.sequence_at(NEW_US).unwrap(), 1));
}
