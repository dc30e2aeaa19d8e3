//! What every [`MessageStore`] must do, as a suite that any implementation can run.
//!
//! ```
//! use slipring::store::{MemoryStore, conformance};
//!
//! conformance::run(&|| Box::new(MemoryStore::new(2, 64 << 20)));
//! ```
//!
//! An implementation that outlives the process also runs [`run_durable`].

use super::{
    Bounds, Group, MessageStore, PartitionBounds, RecordPlace, Records, Retention, StoreError,
    StoredRecord,
};
use crate::message::NewMessage;
use std::collections::BTreeMap;
use std::ops::Range;

/// Makes a store that is empty, has two shards, and room for 32 MiB of records in each.
pub type MakeStore<'a> = &'a dyn Fn() -> Box<dyn MessageStore>;

/// Runs the whole suite.
///
/// # Panics
///
/// At the first thing that is not as it must be, with the name of the check.
pub fn run(make: MakeStore<'_>) {
    for (name, check) in CHECKS {
        println!("conformance: {name}");
        check(make);
    }
}

/// One of the checks.
type Check = fn(MakeStore<'_>);

/// The checks of [`run`], by name.
pub const CHECKS: &[(&str, Check)] = &[
    ("an empty store has nothing", an_empty_store_has_nothing),
    ("what is appended is read back", what_is_appended_is_read_back),
    ("a group that does not follow is refused", a_group_that_does_not_follow_is_refused),
    ("what expired is passed over", what_expired_is_passed_over),
    ("reads in pieces join", reads_in_pieces_join),
    ("a partition is read by itself", a_partition_is_read_by_itself),
    ("shards are independent", shards_are_independent),
    ("a buffer serves several shards and partitions", a_buffer_serves_several),
    ("large records come back", large_records_come_back),
    ("retention keeps what is wanted", retention_keeps_what_is_wanted),
    ("retention by age lets the oldest go", retention_by_age_lets_the_oldest_go),
    ("what expired is not read and not used again", what_expired_is_not_used_again),
    ("a time is found", a_time_is_found),
    ("durability moves forward", durability_moves_forward),
    ("a closed store takes nothing", a_closed_store_takes_nothing),
    ("readers go on while others append", readers_go_on_while_others_append),
    ("random use agrees with a model", random_use_agrees_with_a_model),
];

/// Runs what a store must do that outlives its process. `open` opens the same place every time; it
/// is empty at first, and the store before is dropped before the next is opened.
///
/// # Panics
///
/// At the first thing that is not as it must be.
pub fn run_durable(open: MakeStore<'_>) {
    let store = open();
    let mut writer = TestWriter::default();
    for round in 0..20 {
        writer.append(&*store, 0, &[1, 2, round % 7], 100);
    }
    let bounds = store.bounds(0).expect("bounds");
    let expected = read_all(&*store, 0);
    store.close().expect("closes");
    drop(store);
    let store = open();
    let again = store.bounds(0).expect("bounds");
    assert_eq!((again.low, again.end), (bounds.low, bounds.end), "after opening it again");
    assert_eq!(again.durable, again.end, "what is there when it is opened is durable");
    assert_eq!(read_all(&*store, 0), expected);
    writer.append(&*store, 0, &[1, 2, 3], 100);
    store.retain(0, 0, &|_| Retention::NOTHING).expect("retains");
    let nexts = partitions(&*store, 0);
    drop(store);
    let store = open();
    let again = partitions(&*store, 0);
    for (partition, bounds) in nexts {
        assert_eq!(again[&partition].next, bounds.next, "offsets of {partition} are not reused");
    }
    writer.append(&*store, 0, &[1, 2, 3], 100);
}

/// Makes groups whose offsets and sequences follow.
#[derive(Debug, Default)]
struct TestWriter {
    nexts: BTreeMap<(usize, u32), u64>,
    us: u64,
    salt: u8,
}

impl TestWriter {
    /// Appends one record for each of `partitions`.
    fn append(&mut self, store: &dyn MessageStore, shard: usize, partitions: &[u32], len: usize) {
        let base_sequence = store.bounds(shard).expect("bounds").end;
        let group = self.group(shard, base_sequence, partitions, len);
        // One part has two records, if there are so many.
        let split = group.len().min(2);
        let mut parts = vec![group[..split].concat()];
        parts.extend_from_slice(&group[split..]);
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        store.append(shard, &Group { base_sequence, parts: &parts }).expect("a group that follows");
        let end = base_sequence + group.len() as u64;
        store.commit(shard, end).expect("commits");
        assert_eq!(store.bounds(shard).expect("bounds").end, end);
    }

    fn group(
        &mut self,
        shard: usize,
        base_sequence: u64,
        partitions: &[u32],
        len: usize,
    ) -> Vec<Vec<u8>> {
        let records = partitions.iter().zip(base_sequence..).map(|(&partition, sequence)| {
            let next = self.nexts.entry((shard, partition)).or_default();
            let place = RecordPlace { partition, offset: *next, sequence, published_us: self.us };
            *next += 1;
            self.us += 10;
            self.salt = self.salt.wrapping_add(1);
            record(place, &vec![self.salt; len])
        });
        records.collect()
    }
}

fn record(place: RecordPlace, payload: &[u8]) -> Vec<u8> {
    let attributes = [("place", "ä")];
    let mut message = NewMessage::new(payload);
    if place.sequence.is_multiple_of(3) {
        message = message.key("key").attributes(&attributes);
    }
    let mut bytes = vec![];
    StoredRecord::encode(&message, place, &mut bytes).expect("a valid message");
    bytes
}

type Found = Vec<(u64, Vec<u8>)>;

fn read_all(store: &dyn MessageStore, shard: usize) -> Found {
    let Bounds { low, end, .. } = store.bounds(shard).expect("bounds");
    read(store, shard, low..end, 4096)
}

fn read(store: &dyn MessageStore, shard: usize, wanted: Range<u64>, max_bytes: usize) -> Found {
    let mut found = vec![];
    let mut records = Records::new();
    let mut at = wanted.start;
    while at < wanted.end {
        store.read(shard, at..wanted.end, max_bytes, &mut records).expect("reads");
        found.extend(records.iter().map(|(sequence, record)| (sequence, record.bytes().to_vec())));
        assert!(records.next() > at, "reading goes on from {at}");
        at = records.next();
    }
    assert!(found.is_sorted_by(|a, b| a.0 < b.0), "in order");
    found
}

fn read_partition(store: &dyn MessageStore, partition: u32, wanted: Range<u64>) -> Found {
    let mut found = vec![];
    let mut records = Records::new();
    let mut at = wanted.start;
    while at < wanted.end {
        store.read_partition(0, partition, at..wanted.end, 1000, &mut records).expect("reads");
        for (sequence, record) in records.iter() {
            assert_eq!(record.partition(), partition);
            found.push((sequence, record.bytes().to_vec()));
        }
        if records.next() == at {
            break;
        }
        at = records.next();
    }
    found
}

fn partitions(store: &dyn MessageStore, shard: usize) -> BTreeMap<u32, PartitionBounds> {
    let all = store.partitions(shard).expect("partitions");
    let count = all.len();
    let map: BTreeMap<_, _> = all.into_iter().map(|bounds| (bounds.partition, bounds)).collect();
    assert_eq!(map.len(), count, "each partition once");
    map
}

fn an_empty_store_has_nothing(make: MakeStore<'_>) {
    let store = make();
    assert_eq!(store.shards(), 2);
    for shard in 0..2 {
        let bounds = store.bounds(shard).expect("bounds");
        assert_eq!((bounds.low, bounds.end, bounds.first_offset), (0, 0, 0));
        assert!(partitions(&*store, shard).is_empty());
        let mut records = Records::new();
        store.read(shard, 0..100, 1000, &mut records).expect("reads nothing");
        assert!(records.is_empty());
        assert_eq!(store.sequence_at(shard, 0).expect("a place"), 0);
        assert_eq!(store.sync(shard, u64::MAX).expect("syncs"), 0);
    }
    let unknown = store.read_partition(0, 7, 0..1, 1000, &mut Records::new());
    assert!(matches!(unknown, Err(StoreError::Unknown)), "{unknown:?}");
    store.append(0, &Group { base_sequence: 0, parts: &[] }).expect("nothing is a group");
    assert_eq!(store.bounds(0).expect("bounds").end, 0);
}

fn what_is_appended_is_read_back(make: MakeStore<'_>) {
    let store = make();
    let mut writer = TestWriter::default();
    let mut expected = vec![];
    for len in [0, 1, 7, 8, 500] {
        let base = store.bounds(0).expect("bounds").end;
        let mut twin = TestWriter { nexts: writer.nexts.clone(), ..writer };
        let group = twin.group(0, base, &[1, 2, 1, 1, 3], len);
        writer.append(&*store, 0, &[1, 2, 1, 1, 3], len);
        expected.extend((base..).zip(group));
    }
    assert_eq!(read_all(&*store, 0), expected);
    assert_eq!(read(&*store, 0, 3..9, 1 << 20), expected[3..9]);
    let mut records = Records::new();
    store.read(0, 24..1000, 1 << 20, &mut records).expect("reads up to the end");
    assert_eq!((records.len(), records.next()), (1, 25));
    store.read(0, 25..1000, 1 << 20, &mut records).expect("nothing is there yet");
    assert_eq!((records.len(), records.next()), (0, 25));
}

fn a_group_that_does_not_follow_is_refused(make: MakeStore<'_>) {
    let store = make();
    let mut writer = TestWriter::default();
    writer.append(&*store, 0, &[1, 2], 10);
    let place = RecordPlace { partition: 1, offset: 1, sequence: 2, published_us: 0 };
    let good = record(place, b"x");
    let second = record(RecordPlace { offset: 3, sequence: 3, ..place }, b"x");
    /// What is wrong, the base, parts, and a part that is made for the case.
    type Case<'a> = (&'a str, u64, Vec<&'a [u8]>, Vec<u8>);
    let cases: [Case<'_>; 6] = [
        ("another base", 3, vec![&good], vec![]),
        ("another sequence", 2, vec![], record(RecordPlace { sequence: 3, ..place }, b"x")),
        ("an offset again", 2, vec![], record(RecordPlace { offset: 0, ..place }, b"x")),
        ("an offset too far", 2, vec![], record(RecordPlace { offset: 2, ..place }, b"x")),
        ("a gap inside", 2, vec![&good, &second], vec![]),
        ("a record cut short", 2, vec![&good[..good.len() - 8]], vec![]),
    ];
    for (what, base_sequence, mut parts, own) in cases {
        if !own.is_empty() {
            parts.push(&own);
        }
        let outcome = store.append(0, &Group { base_sequence, parts: &parts });
        assert!(matches!(outcome, Err(StoreError::InvalidGroup(_))), "{what}: {outcome:?}");
        assert_eq!(store.bounds(0).expect("bounds").end, 2, "{what}");
        assert_eq!(partitions(&*store, 0)[&1].next, 1, "{what}");
    }
    let fresh = record(RecordPlace { partition: 9, offset: 40, sequence: 2, ..place }, b"x");
    store.append(0, &Group { base_sequence: 2, parts: &[&fresh] }).expect("may begin anywhere");
    let bounds = partitions(&*store, 0)[&9];
    assert_eq!((bounds.low, bounds.next), (40, 41));
}

fn what_expired_is_passed_over(make: MakeStore<'_>) {
    let store = make();
    let mut writer = TestWriter::default();
    for _ in 0..60 {
        writer.append(&*store, 0, &[1, 1, 1, 1], 2000);
    }
    writer.append(&*store, 0, &[2], 10);
    let retention = |partition| match partition {
        1 => Retention::NOTHING,
        _ => Retention::default(),
    };
    store.retain(0, 0, &retention).expect("retains");
    let low = store.bounds(0).expect("bounds").low;
    for max_bytes in [1, 5000, 1 << 20] {
        let found = read(&*store, 0, low..241, max_bytes);
        assert_eq!(found.len(), 1, "{max_bytes} at once");
        assert_eq!(found[0].0, 240);
    }
}

fn reads_in_pieces_join(make: MakeStore<'_>) {
    let store = make();
    let mut writer = TestWriter::default();
    for at in 0..200 {
        writer.append(&*store, 0, &[1, at % 5, 2][..1 + at as usize % 3], at as usize * 13);
    }
    let all = read_all(&*store, 0);
    assert_eq!(all.len() as u64, store.bounds(0).expect("bounds").end);
    for max_bytes in [0, 1, 100, 3000, 1 << 20] {
        assert_eq!(read(&*store, 0, 0..all.len() as u64, max_bytes), all, "{max_bytes} at once");
    }
    // With a buffer that comes from elsewhere.
    let mut records = Records::new();
    store.read(0, 100..110, 1, &mut records).expect("reads");
    for from in [100, 3, 250, 4] {
        store.read(0, from..from + 1, 1, &mut records).expect("reads");
        let (sequence, record) = records.iter().next().expect("one");
        assert_eq!((sequence, record.bytes()), (from, &*all[from as usize].1));
    }
}

fn a_partition_is_read_by_itself(make: MakeStore<'_>) {
    let store = make();
    let mut writer = TestWriter::default();
    for at in 0..100 {
        writer.append(&*store, 0, &[1, 2, 1, at % 10], 300);
    }
    let all = read_all(&*store, 0);
    for (partition, bounds) in partitions(&*store, 0) {
        let of = |bytes: &[u8]| StoredRecord::new(bytes).map(|record| record.partition());
        let its: Vec<_> =
            all.iter().filter(|(_, bytes)| of(bytes) == Some(partition)).cloned().collect();
        assert_eq!((bounds.low, bounds.next), (0, its.len() as u64));
        assert_eq!(read_partition(&*store, partition, 0..bounds.next), its);
        let middle = bounds.next / 2;
        assert_eq!(read_partition(&*store, partition, middle..bounds.next), its[middle as usize..]);
        let mut records = Records::new();
        let behind = bounds.next..bounds.next + 10;
        store.read_partition(0, partition, behind, 1, &mut records).expect("nothing yet");
        assert_eq!((records.len(), records.next()), (0, bounds.next));
    }
}

fn shards_are_independent(make: MakeStore<'_>) {
    let store = make();
    let mut writer = TestWriter::default();
    writer.append(&*store, 0, &[1, 1, 1], 10);
    writer.append(&*store, 1, &[2], 20);
    assert_eq!(read_all(&*store, 0).len(), 3);
    assert_eq!(read_all(&*store, 1).len(), 1);
    assert_eq!(partitions(&*store, 1).keys().copied().collect::<Vec<_>>(), [2]);
    let outcome = store.bounds(2);
    assert!(matches!(outcome, Err(StoreError::Unknown)), "{outcome:?}");
    let outcome = store.append(2, &Group { base_sequence: 0, parts: &[] });
    assert!(matches!(outcome, Err(StoreError::Unknown)), "{outcome:?}");
}

fn a_buffer_serves_several(make: MakeStore<'_>) {
    let store = make();
    let mut writer = TestWriter::default();
    for at in 0..40 {
        writer.append(&*store, 0, &[1, 2], 100);
        writer.append(&*store, 1, &[3, 3], at * 7);
    }
    let mut records = Records::new();
    for at in 0..80 {
        for shard in [0, 1] {
            store.read(shard, at..at + 1, 1, &mut records).expect("reads");
            let (sequence, record) = records.iter().next().expect("one");
            assert_eq!((sequence, record.partition() == 3), (at, shard == 1));
        }
    }
    for at in 0..40 {
        for (shard, partition) in [(0, 1), (1, 3), (0, 2)] {
            store.read_partition(shard, partition, at..at + 1, 1, &mut records).expect("reads");
            let (_, record) = records.iter().next().expect("one");
            assert_eq!((record.partition(), record.offset()), (partition, at));
        }
    }
}

fn large_records_come_back(make: MakeStore<'_>) {
    let store = make();
    let mut writer = TestWriter::default();
    for len in [100, 3 << 20, 200, 10 << 20, 300 << 10] {
        writer.append(&*store, 0, &[1, 2], len);
    }
    let lens: Vec<usize> =
        read_all(&*store, 0).iter().map(|(_, bytes)| bytes.len() >> 10).collect();
    assert_eq!(lens, [0, 0, 3072, 3072, 0, 0, 10240, 10240, 300, 300]);
    assert_eq!(read_partition(&*store, 2, 0..5).len(), 5);
}

fn retention_keeps_what_is_wanted(make: MakeStore<'_>) {
    let store = make();
    let mut writer = TestWriter::default();
    for _ in 0..300 {
        writer.append(&*store, 0, &[1, 2], 1000);
    }
    let all = read_all(&*store, 0);
    let done = store.retain(0, 0, &|_| Retention::default()).expect("retains");
    assert_eq!((done.low, done.removed_bytes, done.lows.len()), (0, 0, 0), "no limit");
    let max_bytes = |partition| (partition == 1).then_some(50_000);
    for _ in 0..2 {
        store
            .retain(0, 0, &|partition| Retention {
                max_age_us: None,
                max_bytes: max_bytes(partition),
            })
            .expect("retains");
        let bounds = partitions(&*store, 0);
        assert_eq!((bounds[&2].low, bounds[&2].next), (0, 300), "2 has no limit");
        let kept = read_partition(&*store, 1, bounds[&1].low..300);
        let bytes: usize = kept.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(bytes >= 50_000, "{bytes} bytes are fewer than are wanted");
        assert_eq!(bounds[&1].low + kept.len() as u64, 300);
        let low = store.bounds(0).expect("bounds").low;
        let read = read(&*store, 0, low..600, 4096);
        let is_kept = |(_, bytes): &&(u64, Vec<u8>)| {
            let record = StoredRecord::new(bytes).expect("a record");
            record.offset() >= bounds[&record.partition()].low
        };
        let expected: Vec<_> = all.iter().filter(is_kept).cloned().collect();
        assert_eq!(read, expected, "what has expired is passed over, and nothing else");
    }
}

fn retention_by_age_lets_the_oldest_go(make: MakeStore<'_>) {
    let store = make();
    let mut writer = TestWriter::default();
    for _ in 0..300 {
        writer.append(&*store, 0, &[1], 1000);
    }
    // Record n was published at 10 n.
    let retention = Retention { max_age_us: Some(1000), max_bytes: None };
    store.retain(0, 2000, &|_| retention).expect("retains");
    let low = partitions(&*store, 0)[&1].low;
    assert!(low <= 101, "offset 101 is younger than 1000, and {low} is the oldest");
    store.retain(0, 2990 + 1000, &|_| retention).expect("retains");
    assert_eq!(partitions(&*store, 0)[&1].low, 300, "all of them are old");
}

fn what_expired_is_not_used_again(make: MakeStore<'_>) {
    let store = make();
    let mut writer = TestWriter::default();
    for _ in 0..100 {
        writer.append(&*store, 0, &[1, 2], 2000);
    }
    let end = store.bounds(0).expect("bounds").end;
    let done = store.retain(0, 0, &|_| Retention::NOTHING).expect("retains");
    assert_eq!(done.lows, [(1, 100), (2, 100)]);
    let bounds = store.bounds(0).expect("bounds");
    assert_eq!((bounds.low, bounds.end), (done.low, end));
    let bounds = partitions(&*store, 0)[&1];
    assert_eq!((bounds.low, bounds.next), (100, 100));
    let outcome = store.read_partition(0, 1, 0..10, 1000, &mut Records::new());
    assert!(matches!(outcome, Err(StoreError::Expired { low: 100 })), "{outcome:?}");
    if done.low > 0 {
        let outcome = store.read(0, 0..10, 1000, &mut Records::new());
        assert!(matches!(outcome, Err(StoreError::Expired { low }) if low == done.low));
    }
    assert!(read_all(&*store, 0).is_empty());
    writer.append(&*store, 0, &[1, 2], 10);
    assert_eq!(read_all(&*store, 0).len(), 2);
    assert_eq!(read_partition(&*store, 1, 100..101).len(), 1);
}

fn a_time_is_found(make: MakeStore<'_>) {
    let store = make();
    let mut writer = TestWriter::default();
    for _ in 0..400 {
        writer.append(&*store, 0, &[1, 2, 3], 500);
    }
    // Record n was published at 10 n.
    for (time_us, sequence) in [(0, 0), (1, 1), (10, 1), (5995, 600), (11_990, 1199)] {
        assert_eq!(store.sequence_at(0, time_us).expect("a place"), sequence, "at {time_us}");
    }
    assert_eq!(store.sequence_at(0, 11_991).expect("a place"), 1200);
}

fn durability_moves_forward(make: MakeStore<'_>) {
    let store = make();
    let mut writer = TestWriter::default();
    let mut last = 0;
    for _ in 0..10 {
        writer.append(&*store, 0, &[1], 10);
        let durable = store.bounds(0).expect("bounds").durable;
        assert!(durable >= last, "durability goes back from {last} to {durable}");
        let synced = store.sync(0, u64::MAX).expect("syncs");
        last = store.bounds(0).expect("bounds").durable;
        assert_eq!((synced, last), (store.bounds(0).expect("bounds").end, synced));
    }
}

fn a_closed_store_takes_nothing(make: MakeStore<'_>) {
    let store = make();
    let mut writer = TestWriter::default();
    writer.append(&*store, 0, &[1], 10);
    store.close().expect("closes");
    let bytes =
        record(RecordPlace { partition: 1, offset: 1, sequence: 1, published_us: 0 }, b"too late");
    let outcome = store.append(0, &Group { base_sequence: 1, parts: &[&bytes] });
    assert!(matches!(outcome, Err(StoreError::Closed)), "{outcome:?}");
    store.close().expect("closing it again is no error");
}

fn readers_go_on_while_others_append(make: MakeStore<'_>) {
    const GROUPS: u64 = 400;
    let store = make();
    std::thread::scope(|scope| {
        for shard in 0..2 {
            let store = &*store;
            scope.spawn(move || {
                let mut writer = TestWriter::default();
                for at in 0..GROUPS {
                    writer.append(store, shard, &[1, 2], at as usize % 2000);
                }
            });
            scope.spawn(move || {
                let mut records = Records::new();
                let mut at = 0;
                while at < 2 * GROUPS {
                    store.read(shard, at..u64::MAX, 10_000, &mut records).expect("reads");
                    for (sequence, record) in records.iter() {
                        assert_eq!((sequence, record.sequence_low()), (at, at as u32));
                        at += 1;
                    }
                    if records.is_empty() {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
}

fn random_use_agrees_with_a_model(make: MakeStore<'_>) {
    let store = make();
    let mut writer = TestWriter::default();
    let mut model: Found = vec![];
    // xorshift (Marsaglia, 2003): the same run every time.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for _ in 0..500 {
        match random(4) {
            0 | 1 => {
                let numbers: Vec<u32> = (0..=random(5)).map(|_| random(8) as u32).collect();
                let base = store.bounds(0).expect("bounds").end;
                let len = random(3000) as usize;
                let mut twin = TestWriter { nexts: writer.nexts.clone(), ..writer };
                model.extend((base..).zip(twin.group(0, base, &numbers, len)));
                writer.append(&*store, 0, &numbers, len);
            }
            2 => {
                let from = random(model.len() as u64 + 1) as usize;
                let to = from + random((model.len() - from) as u64 + 1) as usize;
                let found = read(&*store, 0, from as u64..to as u64, random(20_000) as usize);
                assert_eq!(found, model[from..to]);
            }
            _ => {
                let partition = random(8) as u32;
                let is_its = |(_, bytes): &&(u64, Vec<u8>)| {
                    StoredRecord::new(bytes).is_some_and(|record| record.partition() == partition)
                };
                let its: Vec<_> = model.iter().filter(is_its).cloned().collect();
                if let Some(bounds) = partitions(&*store, 0).get(&partition) {
                    assert_eq!(bounds.next, its.len() as u64);
                    let from = random(bounds.next + 1);
                    let found = read_partition(&*store, partition, from..bounds.next);
                    assert_eq!(found, its[from as usize..]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DiskStore, DiskStoreBuilder, MemoryStore, SyncPolicy};
    use super::*;

    #[test]
    fn a_store_in_memory_conforms() {
        run(&|| Box::new(MemoryStore::new(2, 64 << 20)));
    }

    fn small() -> DiskStoreBuilder {
        let small = DiskStore::builder().shards(2).segment_bytes(64 << 10);
        small.preallocate_bytes(16 << 10).reserve_bytes(0)
    }

    #[test]
    fn a_store_on_disk_conforms() {
        for policy in [SyncPolicy::Os, SyncPolicy::Always] {
            for builder in [small(), DiskStore::builder().shards(2).reserve_bytes(0)] {
                for (name, check) in CHECKS {
                    println!("conformance: {name}, {policy:?}");
                    let dir = tempfile::tempdir().unwrap();
                    check(&|| Box::new(builder.clone().sync(policy).open(dir.path()).unwrap()));
                }
            }
        }
    }

    #[test]
    fn a_store_on_disk_is_there_again() {
        let dir = tempfile::tempdir().unwrap();
        run_durable(&|| Box::new(small().open(dir.path()).unwrap()));
    }
}
