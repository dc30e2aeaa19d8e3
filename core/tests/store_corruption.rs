//! Damage to a segment: every bit flipped, every length, every sector zeroed, sectors swapped. All
//! of it is noticed, nothing wrong is ever returned, and nothing that was durable is cut off.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

use slipring::NewMessage;
use slipring::store::{
    DiskStore, DiskStoreBuilder, Group, MessageStore, RecordPlace, Records, StoreError,
    StoredRecord, SyncPolicy,
};
use std::sync::Arc;

mod memory_fs;
use memory_fs::MemoryFs;

const SEGMENT: &str = "shard-000/00000000000000000000.log";
const SECTOR: usize = 512;

fn builder() -> DiskStoreBuilder {
    let builder = DiskStore::builder().sync(SyncPolicy::Always).segment_bytes(64 << 10);
    builder.preallocate_bytes(0).reserve_bytes(0).seed(1).background(false)
}

fn open(fs: &MemoryFs) -> Result<DiskStore, StoreError> {
    builder().open_on(Arc::new(fs.clone()))
}

/// A store that was killed with almost 64 KiB in its one segment, the records in it, and the
/// position below which everything is known to be durable: the last batch alone is above.
fn killed() -> (MemoryFs, Vec<Vec<u8>>, usize) {
    let (fs, records, batches, store) = filled();
    let killed = fs.with(SEGMENT, fs.bytes(SEGMENT));
    store.close().unwrap();
    (killed, records, batches[batches.len() - 1])
}

/// The same, closed in order: everything is known to be durable.
fn closed() -> (MemoryFs, Vec<Vec<u8>>, usize) {
    let (fs, records, batches, store) = filled();
    store.close().unwrap();
    (fs, records, batches[batches.len() - 1])
}

/// The same, still open, and where each batch begins.
fn filled() -> (MemoryFs, Vec<Vec<u8>>, Vec<usize>, DiskStore) {
    let fs = MemoryFs::default();
    let store = open(&fs).unwrap();
    let mut records: Vec<Vec<u8>> = vec![];
    let mut batches = vec![];
    let mut byte = 0_u8;
    while fs.bytes(SEGMENT).len() < 62_000 {
        let base_sequence = records.len() as u64;
        batches.push(fs.bytes(SEGMENT).len());
        for at in 0..1 + base_sequence % 4 {
            // No zeros in it, so that nothing looks as if it had not been written.
            let payload: Vec<u8> = (0..300 + 97 * at)
                .map(|_| {
                    byte = byte.wrapping_mul(5).wrapping_add(17);
                    byte | 1
                })
                .collect();
            let sequence = base_sequence + at;
            let place = RecordPlace {
                partition: 1,
                offset: sequence,
                sequence,
                published_us: 0x0101_0101_0101_0101 + sequence,
            };
            let mut bytes = vec![];
            StoredRecord::encode(&NewMessage::new(&payload).key("key"), place, &mut bytes).unwrap();
            records.push(bytes);
        }
        let parts: Vec<&[u8]> =
            records[base_sequence as usize..].iter().map(Vec::as_slice).collect();
        store.append(0, &Group { base_sequence, parts: &parts }).unwrap();
        store.commit(0, records.len() as u64).unwrap();
    }
    (fs, records, batches, store)
}

/// What a store on these files makes of a changed segment.
struct Outcome {
    /// Whether something was found to be wrong: at opening, or when everything was read.
    noticed: bool,
    /// Records that were read.
    read: usize,
    segment_len: usize,
}

fn outcome(fs: &MemoryFs, segment: Vec<u8>, records: &[Vec<u8>]) -> Outcome {
    let fs = fs.with(SEGMENT, segment);
    let store = match open(&fs) {
        Ok(store) => store,
        Err(StoreError::Damaged(_) | StoreError::Incompatible(_)) => {
            return Outcome { noticed: true, read: 0, segment_len: fs.bytes(SEGMENT).len() };
        }
        Err(error) => panic!("{error}"),
    };
    let recovery = &store.recovery()[0];
    let mut noticed = recovery.damage.is_some() || recovery.torn_bytes > 0;
    let mut found = Records::new();
    let (mut at, mut read) = (0, 0);
    let end = records.len() as u64;
    while at < end {
        match store.read(0, at..end, 1 << 20, &mut found) {
            Ok(()) if found.next() == at => break,
            Ok(()) => {
                for (sequence, record) in found.iter() {
                    assert_eq!(record.bytes(), records[sequence as usize], "a wrong record");
                    read += 1;
                }
                at = found.next();
            }
            Err(StoreError::Damaged(damage)) => {
                noticed = true;
                let Some(resume) = damage.resume else { break };
                assert!(resume > at);
                at = resume;
            }
            Err(error) => panic!("{error}"),
        }
    }
    Outcome { noticed, read, segment_len: fs.bytes(SEGMENT).len() }
}

/// Runs `check` for each of `cases`, on all processors.
fn for_each(cases: std::ops::Range<usize>, check: impl Fn(usize) + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (check, cases) = (&check, cases.clone());
            scope.spawn(move || cases.skip(thread).step_by(threads).for_each(check));
        }
    });
}

/// What must hold of any change at `at`.
fn assert_noticed(outcome: &Outcome, at: usize, before_last: usize, len: usize, what: &str) {
    if at < before_last {
        assert!(outcome.noticed, "{what} is not noticed");
        assert_eq!(outcome.segment_len, len, "{what}: durable bytes were cut off");
    }
}

/// Every how many of the cases: all of them where `SLIPRING_SWEEP=full`, as `cargo xtask test` has
/// it with optimised code; some, otherwise.
fn stride(sampled: usize) -> usize {
    if std::env::var("SLIPRING_SWEEP").is_ok_and(|sweep| sweep == "full") { 1 } else { sampled }
}

#[test]
fn every_flipped_bit_is_noticed_and_no_wrong_record_returned() {
    let (fs, records, _) = killed();
    let segment = fs.bytes(SEGMENT);
    let unchanged = outcome(&fs, segment.clone(), &records);
    assert_eq!((unchanged.read, unchanged.noticed), (records.len(), false));
    let stride = stride(997);
    for_each(0..segment.len() * 8 / stride, |case| {
        let bit = case * stride;
        let mut changed = segment.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let outcome = outcome(&fs, changed, &records);
        let what = format!("bit {bit}");
        // Also in the last batch: nothing in it looks as if it had not been written.
        assert_noticed(&outcome, bit / 8, segment.len(), segment.len(), &what);
    });
}

#[test]
fn every_truncation_is_noticed_unless_nobody_can_know() {
    let (fs, records, before_last) = killed();
    let segment = fs.bytes(SEGMENT);
    let stride = stride(101);
    for_each(0..segment.len() / stride, |case| {
        let len = case * stride;
        let outcome = outcome(&fs, segment[..len].to_vec(), &records);
        // Cut between two batches, a file is as it once was.
        assert!(outcome.noticed || outcome.segment_len == len, "cut to {len}");
        if len > before_last {
            assert!(outcome.noticed && outcome.segment_len == before_last, "cut to {len}");
        }
    });
}

#[test]
fn every_truncation_of_a_log_that_was_closed_is_noticed() {
    let (fs, records, _) = closed();
    let segment = fs.bytes(SEGMENT);
    let stride = stride(101);
    for_each(0..segment.len() / stride, |case| {
        let len = case * stride;
        let outcome = outcome(&fs, segment[..len].to_vec(), &records);
        assert_noticed(&outcome, len, segment.len(), len, &format!("cut to {len}"));
    });
}

#[test]
fn every_zeroed_sector_is_noticed() {
    let (fs, records, before_last) = killed();
    let segment = fs.bytes(SEGMENT);
    for size in [SECTOR, 4096] {
        for_each(0..segment.len().div_ceil(size), |sector| {
            let mut changed = segment.clone();
            let end = segment.len().min((sector + 1) * size);
            changed[sector * size..end].fill(0);
            if changed == segment {
                return;
            }
            let outcome = outcome(&fs, changed, &records);
            let what = format!("sector {sector} of {size} bytes zeroed");
            assert_noticed(
                &outcome,
                sector * size,
                before_last / size * size,
                segment.len(),
                &what,
            );
        });
    }
}

#[test]
fn every_pair_of_swapped_sectors_is_noticed() {
    let (fs, records, before_last) = killed();
    let segment = fs.bytes(SEGMENT);
    let sectors = segment.len() / SECTOR;
    let stride = stride(13);
    for_each(0..sectors * sectors / stride, |case| {
        let pair = case * stride;
        let (a, b) = (pair / sectors, pair % sectors);
        if a >= b || segment[a * SECTOR..][..SECTOR] == segment[b * SECTOR..][..SECTOR] {
            return;
        }
        let mut changed = segment.clone();
        let (left, right) = changed.split_at_mut(b * SECTOR);
        left[a * SECTOR..][..SECTOR].swap_with_slice(&mut right[..SECTOR]);
        let outcome = outcome(&fs, changed, &records);
        assert_noticed(&outcome, a * SECTOR, before_last, segment.len(), &format!("{a} and {b}"));
    });
}

/// It verifies, and is of the same file: only what it begins with tells that it is not the next. If
/// the last one were believed, the log would go on at sequences that were given out.
#[test]
fn a_batch_in_the_place_of_another_is_noticed() {
    let (fs, records, mut ends, _store) = filled();
    let segment = fs.bytes(SEGMENT);
    ends.push(segment.len());
    let batches: Vec<_> = ends.windows(2).map(|ends| ends[0]..ends[1]).collect();
    let mut tried = 0;
    for to in &batches {
        for from in batches.iter().filter(|from| *from != to && from.len() == to.len()) {
            tried += 1;
            let mut changed = segment.clone();
            changed.copy_within(from.clone(), to.start);
            let outcome = outcome(&fs, changed, &records);
            let what = format!("the batch of {from:?} in the place of {to:?}");
            assert_noticed(&outcome, to.start, segment.len(), segment.len(), &what);
        }
    }
    assert!(tried > 100, "{tried} batches are as long as another");
}
