//! Segments that are made full of zeros before they are needed.
#![expect(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]

use slipring::NewMessage;
use slipring::internals::Fs;
use slipring::store::{
    DiskStore, DiskStoreBuilder, Group, MessageStore, RecordPlace, Records, StoreError,
    StoredRecord,
};
use slipring_sim::{Fault, Planned, SimFs, SimOptions, Until};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SEGMENT: u64 = 64 << 10;

fn disk() -> SimFs {
    SimFs::new(3, SimOptions { can_ruin: false, short_per_mille: 0, capacity: None })
}

fn builder() -> DiskStoreBuilder {
    let builder = DiskStore::builder().segment_bytes(SEGMENT).preallocate_bytes(SEGMENT);
    builder.reserve_bytes(0).background(false).seed(1).boot(1)
}

fn open(fs: &SimFs) -> DiskStore {
    builder().open_on(Arc::new(fs.clone())).unwrap()
}

/// Appends a record of a little more than `len` bytes.
fn append(store: &DiskStore, len: usize) -> Result<(), StoreError> {
    let sequence = store.bounds(0).unwrap().end;
    let place = RecordPlace { offset: sequence, sequence, ..RecordPlace::default() };
    let mut record = vec![];
    StoredRecord::encode(&NewMessage::new(&vec![7; len]), place, &mut record).unwrap();
    store.append(0, &Group { base_sequence: sequence, parts: &[&record] })?;
    store.commit(0, sequence + 1)
}

fn len(fs: &SimFs, path: &str) -> Option<u64> {
    fs.contents(Path::new(path)).map(|bytes| bytes.len() as u64)
}

/// How long the file of the segment to come is, if there is one.
fn spare(fs: &SimFs) -> Option<u64> {
    let entries = fs.list(Path::new("shard-000")).unwrap();
    let mut spares = entries.iter().filter(|entry| entry.name.to_string_lossy().ends_with(".tmp"));
    let spare = spares.next().map(|entry| entry.len);
    assert!(spares.next().is_none(), "one is enough");
    spare
}

fn segment(base: u64) -> String {
    format!("shard-000/{base:020}.log")
}

fn count(store: &DiskStore) -> u64 {
    let (mut at, mut count, mut records) = (0, 0, Records::new());
    let end = store.bounds(0).unwrap().end;
    while at < end {
        store.read(0, at..end, 1 << 20, &mut records).unwrap();
        count += records.iter().count() as u64;
        at = records.next();
    }
    count
}

/// A store whose first segment is more than half full, with the file of the next one made.
fn with_spare(fs: &SimFs) -> DiskStore {
    let store = open(fs);
    assert_eq!(len(fs, &segment(0)), Some(SEGMENT), "the first is made so");
    append(&store, 40_000).unwrap();
    store.maintain().unwrap();
    assert_eq!(spare(fs), None, "much was appended since");
    store.maintain().unwrap();
    assert_eq!(spare(fs), Some(SEGMENT));
    store
}

#[test]
fn the_file_of_the_next_segment_is_made_when_little_is_appended() {
    let fs = disk();
    let store = with_spare(&fs);
    append(&store, 40_000).unwrap();
    assert_eq!((spare(&fs), len(&fs, &segment(1))), (None, Some(SEGMENT)));
    store.maintain().unwrap();
    store.maintain().unwrap();
    append(&store, 10).unwrap();
    drop(store);
    assert_eq!(spare(&fs), None, "the end of the store takes it away");
    assert_eq!(count(&open(&fs.restart())), 3);
}

#[test]
fn a_crash_leaves_nothing_of_it() {
    let fs = disk();
    let store = with_spare(&fs);
    fs.power_cut();
    drop(store);
    let fs = fs.restart();
    let store = open(&fs);
    assert_eq!((spare(&fs), count(&store)), (None, 1));
    append(&store, 40_000).unwrap();
    assert_eq!(count(&store), 2);
}

#[test]
fn its_room_is_for_records_when_the_disk_is_full() {
    let fs = disk();
    let store = with_spare(&fs);
    fs.set_capacity(Some(fs.used()));
    // More than the segment has, and than one that is made has.
    append(&store, 50_000).unwrap();
    append(&store, 10_000).unwrap();
    append(&store, 50_000).unwrap_err();
    assert_eq!(spare(&fs), None);
    fs.set_capacity(None);
    append(&store, 50_000).unwrap();
    assert_eq!(count(&store), 4);
}

#[test]
fn a_disk_that_fails_while_it_is_made_keeps_nothing_from_being_stored() {
    for fault in [Fault::Io, Fault::NoSpace, Fault::Short] {
        let fs = disk();
        let store = open(&fs);
        append(&store, 40_000).unwrap();
        store.maintain().unwrap();
        let at = fs.calls();
        for call in 0..8 {
            fs.plan(vec![Planned { at: fs.calls() + call, fault, until: Until::Once }]);
            let _ = store.maintain();
            assert!(fs.calls() > at);
            fs.plan(vec![]);
        }
        append(&store, 40_000).unwrap();
        append(&store, 40_000).unwrap();
        assert_eq!(count(&store), 3, "{fault:?}");
    }
}

#[test]
fn segments_that_begin_while_files_are_made_lose_nothing() {
    const COUNT: u64 = 1000;
    // A real disk takes its time, which is what lets one overtake the other.
    let dir = tempfile::tempdir().unwrap();
    let open = || builder().open(dir.path()).unwrap();
    let store = open();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed: what ends this orders nothing.
            while !is_over.load(Ordering::Relaxed) {
                store.maintain().unwrap();
            }
        });
        let appended = (0..COUNT).try_for_each(|_| append(&store, 6000));
        is_over.store(true, Ordering::Relaxed);
        appended.unwrap();
    });
    drop(store);
    assert_eq!(count(&open()), COUNT);
}
