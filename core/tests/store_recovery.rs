//! What a store makes of a directory that is not as it left it.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

use slipring::NewMessage;
use slipring::internals::{Fs, OpenHow};
use slipring::store::{
    DiskStore, DiskStoreBuilder, Group, MessageStore, OnDamage, RecordPlace, Records, StoreError,
    StoredRecord, SyncPolicy,
};
use std::path::Path;
use std::sync::Arc;

mod memory_fs;
use memory_fs::MemoryFs;

const FIRST: &str = "shard-000/00000000000000000000.log";

fn builder() -> DiskStoreBuilder {
    let builder = DiskStore::builder().sync(SyncPolicy::Always).segment_bytes(64 << 10);
    builder.preallocate_bytes(0).reserve_bytes(0).seed(1).boot(1).background(false)
}

fn open(builder: DiskStoreBuilder, fs: &MemoryFs) -> Result<DiskStore, StoreError> {
    builder.open_on(Arc::new(fs.clone()))
}

/// Appends `count` records of 1,000 bytes that are not zero, each in a group of its own.
fn append(store: &DiskStore, count: u64) {
    for _ in 0..count {
        let sequence = store.bounds(0).unwrap().end;
        let partitions = store.partitions(0).unwrap();
        let offset = partitions.first().map_or(0, |partition| partition.next);
        let place = RecordPlace { partition: 3, offset, sequence, published_us: sequence + 1 };
        let payload = vec![(sequence % 200) as u8 + 1; 1000];
        let mut bytes = vec![];
        StoredRecord::encode(&NewMessage::new(&payload), place, &mut bytes).unwrap();
        store.append(0, &Group { base_sequence: sequence, parts: &[&bytes] }).unwrap();
        store.commit(0, sequence + 1).unwrap();
    }
}

/// The files as they are when a store with `count` records is killed, or (`closed`) was closed.
fn files(count: u64, closed: bool) -> MemoryFs {
    let fs = MemoryFs::default();
    let store = open(builder(), &fs).unwrap();
    append(&store, count);
    let killed = fs.with("shard-000/superblock", fs.bytes("shard-000/superblock"));
    drop(store);
    if closed { fs } else { killed }
}

fn changed(fs: &MemoryFs, path: &str, change: impl FnOnce(&mut Vec<u8>)) -> MemoryFs {
    let mut bytes = fs.bytes(path);
    change(&mut bytes);
    fs.with(path, bytes)
}

/// Sequences that can be read, and the damage on the way.
fn readable(store: &DiskStore) -> (Vec<u64>, usize) {
    let bounds = store.bounds(0).unwrap();
    let (mut found, mut damages) = (vec![], 0);
    let mut records = Records::new();
    let mut at = bounds.low;
    while at < bounds.end {
        match store.read(0, at..bounds.end, 1 << 20, &mut records) {
            Ok(()) => {
                found.extend(records.iter().map(|(sequence, _)| sequence));
                at = records.next();
            }
            Err(StoreError::Damaged(damage)) => {
                damages += 1;
                assert_eq!(damage.from, at);
                let Some(resume) = damage.resume else { break };
                at = resume;
            }
            Err(error) => panic!("{error}"),
        }
    }
    (found, damages)
}

#[test]
fn a_torn_end_is_cut_off_and_kept_beside_the_log() {
    let fs = files(3, false);
    let len = fs.bytes(FIRST).len();
    let torn = changed(&fs, FIRST, |bytes| bytes[len - 600..].fill(0));
    let store = open(builder(), &torn).unwrap();
    let recovery = &store.recovery()[0];
    assert!(!recovery.clean && recovery.damage.is_none() && recovery.torn_bytes > 400);
    assert_eq!(store.bounds(0).unwrap().end, 2);
    let kept = torn.bytes("shard-000/00000000000000000000.2.torn");
    assert_eq!(kept.len() as u64, recovery.torn_bytes);
    append(&store, 2);
    assert_eq!(readable(&store), ((0..4).collect(), 0));
    drop(store);
    let store = open(builder(), &torn).unwrap();
    assert!(store.recovery()[0].clean);
    assert_eq!(readable(&store), ((0..4).collect(), 0));
}

#[test]
fn a_hole_before_later_batches_is_a_torn_end_too() {
    let fs = MemoryFs::default();
    let store = open(builder().sync(SyncPolicy::Os), &fs).unwrap();
    append(&store, 5);
    let second = 4096 + (fs.bytes(FIRST).len() - 4096) / 5;
    let killed = changed(&fs, FIRST, |bytes| bytes[second..second + 1000].fill(0));
    let store = open(builder().sync(SyncPolicy::Os).boot(2), &killed).unwrap();
    assert!(store.recovery()[0].damage.is_none());
    assert_eq!(readable(&store).0, [0], "what follows the hole is not spliced on");
}

#[test]
fn damage_to_what_was_durable_makes_the_log_read_only() {
    let fs = changed(&files(5, false), FIRST, |bytes| bytes[7000] ^= 1);
    let store = open(builder(), &fs).unwrap();
    let damage = store.recovery()[0].damage.clone().unwrap();
    assert_eq!((damage.file.as_str(), damage.from), (FIRST, 2));
    let len = fs.bytes(FIRST).len();
    let group = Group { base_sequence: store.bounds(0).unwrap().end, parts: &[] };
    let outcome = store.append(0, &group);
    assert!(matches!(outcome, Err(StoreError::Damaged(_))), "{outcome:?}");
    assert_eq!(readable(&store).0, [0, 1], "up to the damage");
    drop(store);
    assert_eq!(fs.bytes(FIRST).len(), len, "nothing was cut off");
    let again = open(builder(), &fs).unwrap();
    assert!(again.recovery()[0].damage.is_some(), "opening it does not make it good");
}

#[test]
fn a_damaged_log_goes_on_behind_if_told_to() {
    let fs = changed(&files(5, false), FIRST, |bytes| bytes[7000] ^= 1);
    for round in 0..2 {
        let store = open(builder().on_damage(OnDamage::Skip), &fs).unwrap();
        let end = store.bounds(0).unwrap().end;
        assert!(end > 5, "sequences that may have been used are not used again");
        assert!(store.partitions(0).unwrap()[0].next >= 5 + round, "nor are offsets");
        append(&store, 1);
        let (found, damages) = readable(&store);
        assert_eq!((&found[..4], damages), (&[0, 1, 3, 4][..], 1), "the loss is told");
        assert_eq!(found.last(), Some(&end));
    }
}

#[test]
fn a_sealed_segment_is_verified_when_it_is_read() {
    let fs = files(100, true);
    let fs = changed(&fs, FIRST, |bytes| bytes[20_000] ^= 4);
    let store = open(builder(), &fs).unwrap();
    assert!(store.recovery()[0].damage.is_none(), "it is not looked at when opening");
    let (found, damages) = readable(&store);
    assert_eq!((found.len(), damages), (99, 1));
    append(&store, 1);
    let mut records = Records::new();
    let bounds = store.partitions(0).unwrap()[0];
    let mut at = bounds.low;
    let (mut count, mut damages) = (0, 0);
    while at < bounds.next {
        match store.read_partition(0, 3, at..bounds.next, 1 << 20, &mut records) {
            Ok(()) => (count, at) = (count + records.len(), records.next()),
            Err(StoreError::Damaged(damage)) => {
                (damages, at) = (damages + 1, damage.resume.unwrap());
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((count, damages), (100, 1), "by partition, too");
}

#[test]
fn an_index_that_is_missing_or_wrong_is_made_again() {
    let index = "shard-000/00000000000000000000.idx";
    let fs = files(100, true);
    let good = fs.bytes(index);
    let of_partition = |fs: &MemoryFs| {
        let store = open(builder(), fs).unwrap();
        let mut records = Records::new();
        store.read_partition(0, 3, 0..100, 1 << 20, &mut records).unwrap();
        assert_eq!(readable(&store), ((0..100).collect(), 0));
        records.len()
    };
    let removed = fs.with(index, vec![]);
    removed.remove(Path::new(index)).unwrap();
    assert_eq!(of_partition(&removed), 100);
    assert_eq!(removed.bytes(index), good, "and saved");
    assert_eq!(of_partition(&fs.with(index, vec![0x5a; good.len()])), 100);
    assert_eq!(of_partition(&fs.with(index, good[..good.len() / 2].to_vec())), 100);
    for at in 0..good.len() {
        assert_eq!(of_partition(&changed(&fs, index, |bytes| bytes[at] ^= 0x10)), 100);
    }
}

#[test]
fn every_damage_to_a_superblock_is_survived_or_refused() {
    let path = "shard-000/superblock";
    let fs = files(3, false);
    for at in 0..512 {
        for slot in [0, 4096] {
            let store =
                open(builder(), &changed(&fs, path, |bytes| bytes[slot + at] ^= 1)).unwrap();
            assert_eq!(readable(&store), ((0..3).collect(), 0), "the other slot is there");
        }
        let both = changed(&fs, path, |bytes| {
            bytes[at] ^= 1;
            bytes[4096 + at] ^= 1;
        });
        let outcome = open(builder(), &both);
        assert!(matches!(outcome, Err(StoreError::Damaged(_))), "{outcome:?}");
    }
}

#[test]
fn a_missing_file_is_not_taken_for_a_new_store() {
    let fs = files(200, true);
    for path in ["store", "shard-000/superblock", FIRST] {
        let fs = fs.with("unrelated", vec![]);
        fs.remove(Path::new(path)).unwrap();
        let outcome = open(builder(), &fs);
        let is_refused =
            matches!(outcome, Err(StoreError::Damaged(_) | StoreError::Incompatible(_)));
        assert!(is_refused, "without {path}: {outcome:?}");
    }
    let lost = fs.with("unrelated", vec![]);
    for path in lost.paths().iter().filter(|path| path.starts_with("shard-000")) {
        lost.remove(path).unwrap();
    }
    let outcome = open(builder(), &lost);
    assert!(matches!(outcome, Err(StoreError::Damaged(_))), "without the shard: {outcome:?}");
    let names: Vec<String> = fs
        .list(Path::new("shard-000"))
        .unwrap()
        .into_iter()
        .map(|entry| entry.name.into_string().unwrap())
        .filter(|name| name.ends_with(".log"))
        .collect();
    assert!(names.len() > 3);
    let last = names.iter().max().unwrap();
    fs.remove(&Path::new("shard-000").join(last)).unwrap();
    let store = open(builder(), &fs).unwrap();
    assert!(store.recovery()[0].damage.is_some(), "the newest segment is gone");
}

#[test]
fn another_number_of_shards_or_another_version_is_refused() {
    let fs = files(1, true);
    let outcome = open(builder().shards(2), &fs);
    assert!(matches!(outcome, Err(StoreError::Incompatible(_))), "{outcome:?}");
    let outcome = open(builder(), &changed(&fs, "store", |bytes| bytes[8] = 2));
    assert!(matches!(outcome, Err(StoreError::Incompatible(_))), "{outcome:?}");
    let outcome = open(builder().shards(65), &MemoryFs::default());
    assert!(matches!(outcome, Err(StoreError::Incompatible(_))), "{outcome:?}");
}

#[test]
fn sequences_are_given_up_after_a_power_cut_and_not_after_a_kill() {
    for policy in [SyncPolicy::Os, SyncPolicy::Always] {
        let fs = MemoryFs::default();
        let builder = || builder().sync(policy);
        let store = open(builder(), &fs).unwrap();
        append(&store, 3);
        let killed = fs.with("unrelated", vec![]);
        let store = open(builder(), &killed).unwrap();
        assert_eq!((store.bounds(0).unwrap().end, store.recovery()[0].given_up), (3, 0));
        let cut = fs.with("unrelated", vec![]);
        let store = open(builder().boot(2), &cut).unwrap();
        let end = store.bounds(0).unwrap().end;
        assert_eq!(end > 3, policy == SyncPolicy::Os);
        assert_eq!(store.partitions(0).unwrap()[0].next, end);
        append(&store, 1);
        assert_eq!(readable(&store), (vec![0, 1, 2, end], 0));
        assert_eq!(store.bounds(0).unwrap().first_offset, end - 3);
        assert_eq!(store.given_up(0, 0..end + 1).unwrap(), end - 3);
        assert_eq!(store.given_up(0, 0..3).unwrap(), 0);
    }
}

/// Opening reserves many at once; these are more, and the power cut takes all of them.
#[test]
fn sequences_beyond_those_that_opening_has_reserved_are_given_up_too() {
    const COUNT: u64 = (1 << 18) + 1;
    let builder = || builder().sync(SyncPolicy::Os).segment_bytes(64 << 20);
    let fs = MemoryFs::default();
    let store = open(builder(), &fs).unwrap();
    let mut group = vec![];
    for sequence in 0..COUNT {
        let place = RecordPlace { offset: sequence, sequence, ..RecordPlace::default() };
        StoredRecord::encode(&NewMessage::new(b""), place, &mut group).unwrap();
    }
    store.append(0, &Group { base_sequence: 0, parts: &[&group] }).unwrap();
    assert_eq!(store.bounds(0).unwrap().end, COUNT);
    let cut = changed(&fs, FIRST, |bytes| bytes.truncate(4096));
    let store = open(builder().boot(2), &cut).unwrap();
    assert!(store.bounds(0).unwrap().end >= COUNT, "a sequence that was seen is given out again");
}

#[test]
fn a_store_is_open_once() {
    let dir = tempfile::tempdir().unwrap();
    let builder = || DiskStore::builder().reserve_bytes(0).preallocate_bytes(0);
    let store = builder().open(dir.path()).unwrap();
    let outcome = builder().open(dir.path());
    assert!(matches!(outcome, Err(StoreError::Locked)), "{outcome:?}");
    drop(store);
    builder().open(dir.path()).unwrap();
}

#[test]
fn stray_files_are_left_alone() {
    let fs = files(2, true);
    for path in ["shard-000/notes.txt", "shard-000/1.log", "shard-000/00000000000000000000.7.torn"]
    {
        fs.open(Path::new(path), OpenHow::CreateNew).unwrap().set_len(3).unwrap();
        let store = open(builder(), &fs).unwrap();
        assert_eq!(readable(&store), ((0..2).collect(), 0));
        assert_eq!(fs.bytes(path), [0; 3]);
    }
}
