//! What calls on a store cost: what is read, what stays open, and who waits for a sync.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

use slipring::NewMessage;
use slipring::internals::{
    Cursor, CursorChange, CursorDelta, CursorJournal, CursorKey, Fs, IfMissing, JournalError,
    JournalOptions,
};
use slipring::store::{
    DiskStore, DiskStoreBuilder, Group, MessageStore, PartitionBounds, RecordPlace, Records,
    Retention, StoreError, StoredRecord, SyncPolicy,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

mod memory_fs;
use memory_fs::MemoryFs;

/// Somebody who waits longer waits for ever.
const LIMIT: Duration = Duration::from_secs(60);

fn builder() -> DiskStoreBuilder {
    let builder = DiskStore::builder().sync(SyncPolicy::Os).segment_bytes(64 << 10);
    builder.preallocate_bytes(0).reserve_bytes(0).seed(1).boot(1).background(false)
}

fn open(fs: &MemoryFs) -> DiskStore {
    builder().open_on(Arc::new(fs.clone())).unwrap()
}

/// Appends a record of 1,000 bytes to a partition.
fn append(store: &DiskStore, partition: u32) {
    let sequence = store.bounds(0).unwrap().end;
    let known = store.partitions(0).unwrap();
    let offset = known.iter().find(|known| known.partition == partition).map_or(0, |of| of.next);
    let place = RecordPlace { partition, offset, sequence, published_us: sequence };
    let mut bytes = vec![];
    StoredRecord::encode(&NewMessage::new(&[7; 960]), place, &mut bytes).unwrap();
    store.append(0, &Group { base_sequence: sequence, parts: &[&bytes] }).unwrap();
}

/// A store of about as many segments.
fn filled(fs: &MemoryFs, segments: u64) -> DiskStore {
    let store = open(fs);
    (0..segments * 61).for_each(|at| append(&store, (at % 3) as u32));
    store
}

/// The segment that is being written.
fn newest_log(fs: &MemoryFs) -> String {
    let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    fs.paths().into_iter().rfind(is_log).unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_read_of_a_partition_costs_about_what_it_gives() {
    let fs = MemoryFs::default();
    let store = filled(&fs, 30);
    let next = store.partitions(0).unwrap()[0].next;
    let partition = store.partitions(0).unwrap()[0].partition;
    let mut records = Records::new();
    let mut at = 0;
    let before = fs.used();
    let mut calls = 0;
    while at < next {
        store.read_partition(0, partition, at..next, 1000, &mut records).unwrap();
        assert!(!records.is_empty());
        at = records.next();
        calls += 1;
    }
    let after = fs.used();
    let per_call = (after.bytes_read - before.bytes_read) / calls;
    assert!(per_call < 8 << 10, "{per_call} bytes are read for 1,000");
    // File and index of each segment, once.
    let opens = after.opens - before.opens;
    assert!(opens <= 2 * 32, "{opens} files are opened for 30 segments in {calls} calls");
}

#[test]
fn what_all_segments_are_asked_for_does_not_leave_them_open() {
    let fs = MemoryFs::default();
    drop(filled(&fs, 60));
    for path in fs.paths() {
        if path.extension().is_some_and(|extension| extension == "idx") {
            fs.remove(&path).unwrap();
        }
    }
    let store = open(&fs);
    let few = 12;
    assert!(fs.used().open <= few, "{:?} after opening", fs.used());
    store.sequence_at(0, u64::MAX).unwrap();
    store.retain(0, 0, &|_| Retention::default()).unwrap();
    assert!(fs.used().open <= few, "{:?} after looking at all segments", fs.used());
    let mut records = Records::new();
    let end = store.bounds(0).unwrap().end;
    let mut at = 0;
    while at < end {
        store.read(0, at..end, 10_000, &mut records).unwrap();
        at = records.next();
    }
    assert!(fs.used().open <= few, "{:?} after reading everything", fs.used());
    drop(store);
    assert_eq!(fs.used().open, 0);
}

/// Runs `syncs` with a disk on which no sync comes to its end, and appends meanwhile.
fn append_during(fs: &MemoryFs, store: DiskStore, syncs: fn(&DiskStore)) {
    let store = Arc::new(store);
    fs.hold_syncs();
    let syncing = Arc::clone(&store);
    let other = std::thread::spawn(move || syncs(&syncing));
    fs.wait_for_a_sync();
    let (done, is_done) = mpsc::channel();
    let appending = Arc::clone(&store);
    let appends = std::thread::spawn(move || {
        append(&appending, 1);
        done.send(()).unwrap();
    });
    let outcome = is_done.recv_timeout(LIMIT);
    fs.release_syncs();
    appends.join().unwrap();
    other.join().unwrap();
    outcome.expect("an append waits for a sync");
}

#[test]
fn an_append_does_not_wait_for_a_sync() {
    let fs = MemoryFs::default();
    let store = filled(&fs, 1);
    append_during(&fs, store, |store| assert_eq!(store.sync(0, u64::MAX).unwrap(), 61));
}

#[test]
fn an_append_does_not_wait_for_retention() {
    let fs = MemoryFs::default();
    let store = filled(&fs, 3);
    append_during(&fs, store, |store| {
        let removed = store.retain(0, 0, &|_| Retention::NOTHING).unwrap().removed_bytes;
        assert!(removed > 100_000);
    });
}

#[test]
fn an_append_does_not_wait_for_maintenance() {
    let fs = MemoryFs::default();
    let store = filled(&fs, 1);
    store.sync(0, u64::MAX).unwrap();
    append_during(&fs, store, |store| store.maintain().unwrap());
}

#[test]
fn where_partitions_begin_is_known_after_retention_and_after_opening_again() {
    let fs = MemoryFs::default();
    let store = filled(&fs, 8);
    (0..61).for_each(|_| append(&store, 9));
    let keep = |partition| match partition {
        0 => Retention::NOTHING,
        1 => Retention { max_age_us: None, max_bytes: Some(40_000) },
        2 => Retention { max_age_us: None, max_bytes: Some(80_000) },
        _ => Retention::default(),
    };
    let bounds = |store: &DiskStore| {
        let mut bounds = store.partitions(0).unwrap();
        bounds.sort_unstable_by_key(|bounds| bounds.partition);
        bounds
    };
    let readable = |store: &DiskStore| {
        let mut records = Records::new();
        bounds(store)
            .iter()
            .map(move |of| {
                let mut at = of.low;
                while at < of.next {
                    store.read_partition(0, of.partition, at..of.next, 5000, &mut records).unwrap();
                    assert!(records.next() > at, "{of:?} from {at}");
                    at = records.next();
                }
                if of.low > 0 {
                    let below = of.low - 1..of.next;
                    store.read_partition(0, of.partition, below, 1, &mut records).unwrap_err();
                }
                (of.partition, of.next - of.low)
            })
            .collect::<Vec<_>>()
    };
    store.retain(0, 0, &keep).unwrap();
    let counts = readable(&store);
    assert!(counts[0] == (0, 0) && counts[1].1 > 40 && counts[2].1 > 80, "{counts:?}");
    assert_eq!(counts[3], (9, 61));
    (0..4).for_each(|partition| append(&store, [0, 1, 2, 9][partition as usize]));
    let counts: Vec<_> = counts.into_iter().map(|(of, count)| (of, count + 1)).collect();
    assert_eq!(readable(&store), counts);
    // What has expired and is there still can be read again, until retention comes by.
    let before = bounds(&store);
    drop(store);
    let store = open(&fs);
    for (before, after) in before.iter().zip(bounds(&store)) {
        assert!(after.low <= before.low && after.next == before.next, "{before:?}, {after:?}");
    }
    readable(&store);
    store.retain(0, 0, &keep).unwrap();
    assert_eq!(readable(&store)[1..], counts[1..]);
}

#[test]
fn what_is_left_of_crashes_does_not_pile_up() {
    let fs = MemoryFs::default();
    let count = |fs: &MemoryFs, extension: &str| {
        let of = |path: &&PathBuf| path.extension().is_some_and(|of| of == extension);
        fs.paths().iter().filter(of).count()
    };
    for round in 0..30 {
        let store = open(&fs);
        assert!(count(&fs, "torn") <= 9, "round {round}");
        append(&store, 1);
        let log = newest_log(&fs);
        // A write that did not come to its end.
        let mut bytes = fs.bytes(&log);
        bytes.extend_from_slice(&[0x5a; 20]);
        std::mem::forget(store);
        let file = fs.open(Path::new(&log), slipring::internals::OpenHow::ReadWrite).unwrap();
        slipring::internals::write_all_at(&*file, &mut [std::io::IoSlice::new(&bytes)], 0).unwrap();
    }
    assert!(count(&fs, "torn") > 4, "they are kept for a while");
    let orphan = Path::new("shard-000/00000000000000077777.idx");
    drop(fs.open(orphan, slipring::internals::OpenHow::CreateNew).unwrap());
    drop(open(&fs));
    assert!(!fs.paths().iter().any(|path| path == orphan));
}

#[test]
fn no_length_in_a_file_is_believed_before_it_is_checked() {
    const LARGE: usize = 40 << 20;
    let is_small = |fs: &MemoryFs| assert!(fs.used().largest_read <= 2 << 20, "{:?}", fs.used());
    let fs = MemoryFs::default();
    drop(filled(&fs, 2));
    // An index that is far too long, and says so.
    let index = "shard-000/00000000000000000000.idx";
    let mut bytes = fs.bytes(index);
    for counts in [36, 40, 44] {
        bytes[counts..counts + 4].copy_from_slice(&(LARGE as u32 / 64).to_le_bytes());
    }
    bytes.resize(LARGE, 0x5a);
    let with_index = fs.with(index, bytes);
    let store = open(&with_index);
    let mut records = Records::new();
    store.read_partition(0, 1, 0..5, 1, &mut records).unwrap();
    assert_eq!(records.iter().next().unwrap().1.offset(), 0);
    is_small(&with_index);
    // A long write that was torn at its beginning.
    let log = newest_log(&fs);
    let mut bytes = fs.bytes(&log);
    bytes.extend_from_slice(&[0; 64]);
    bytes.resize(LARGE, 0x5a);
    let with_end = fs.with(&log, bytes);
    let store = open(&with_end);
    assert!(store.recovery()[0].torn_bytes > LARGE as u64 / 2);
    is_small(&with_end);
}

#[test]
fn a_panic_in_a_sync_leaves_nobody_waiting() {
    let fs = MemoryFs::default();
    let store = filled(&fs, 1);
    fs.panic_at_sync();
    let sync = || store.sync(0, u64::MAX);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(sync)).unwrap_err();
    assert!(matches!(sync(), Err(StoreError::Poisoned(_))));

    let options = JournalOptions { if_missing: IfMissing::Create, ..JournalOptions::default() };
    let (journal, _) = CursorJournal::open(Arc::new(fs.clone()), 1, options).unwrap();
    let key = CursorKey { subscription: 0, shard: 0 };
    let staged = journal.stage(key, &CursorChange::Replace(Cursor::new(1))).unwrap();
    fs.panic_at_sync();
    let commit = || journal.commit(staged);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(commit)).unwrap_err();
    assert!(matches!(commit(), Err(JournalError::Poisoned(_))));
}

#[test]
fn the_journal_of_many_cursors_is_not_written_anew_for_a_few_changes() {
    const CURSORS: u64 = 5000;
    let fs = MemoryFs::default();
    let options = JournalOptions { if_missing: IfMissing::Create, ..JournalOptions::default() };
    let (journal, _) = CursorJournal::open(Arc::new(fs.clone()), 1, options).unwrap();
    for subscription in 0..CURSORS {
        let key = CursorKey { subscription, shard: 0 };
        journal.stage(key, &CursorChange::Replace(Cursor::new(1))).unwrap();
    }
    journal.write(journal.last()).unwrap();
    let before = fs.used().opens;
    for floor in 2..2 + CURSORS - 10 {
        let delta = CursorDelta { floor, ..CursorDelta::default() };
        let key = CursorKey { subscription: 7, shard: 0 };
        let staged = journal.stage(key, &CursorChange::Advance(delta)).unwrap();
        journal.write(staged).unwrap();
    }
    let files = fs.used().opens - before;
    assert!(files <= 2, "{files} snapshots of {CURSORS} cursors for as many changes");
}

#[test]
fn many_partitions_are_carried_on_when_their_segments_go() {
    const PARTITIONS: u32 = 70_000;
    let fs = MemoryFs::default();
    let store = open(&fs);
    let mut next = 0;
    for partitions in (0..PARTITIONS).collect::<Vec<_>>().chunks(1000) {
        let mut bytes = vec![];
        for (sequence, &partition) in (next..).zip(partitions) {
            let place = RecordPlace { partition, offset: 3, sequence, published_us: 0 };
            StoredRecord::encode(&NewMessage::new(b""), place, &mut bytes).unwrap();
        }
        store.append(0, &Group { base_sequence: next, parts: &[&bytes] }).unwrap();
        next += partitions.len() as u64;
    }
    append(&store, PARTITIONS);
    store.retain(0, 0, &|_| Retention::NOTHING).unwrap();
    assert!(store.bounds(0).unwrap().low > 60_000);
    drop(store);
    let store = open(&fs);
    let bounds = store.partitions(0).unwrap();
    assert_eq!(bounds.len() as u32, PARTITIONS + 1);
    let is_carried =
        |of: &PartitionBounds| of.next == if of.partition < PARTITIONS { 4 } else { 1 };
    assert!(bounds.iter().all(is_carried));
}
