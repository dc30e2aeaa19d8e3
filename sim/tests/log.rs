//! The segmented log on the simulated disk: from many seeds, and with a fault at every call.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use slipring::NewMessage;
use slipring::internals::Fs;
use slipring::store::{
    DiskStore, DiskStoreBuilder, Group, MessageStore, OnDamage, RecordPlace, Records, Retention,
    StoreError, StoredRecord, SyncPolicy,
};
use slipring_sim::{Fault, Planned, SimFs, SimOptions, Until, cursors, run_log, run_log_fault};

/// All cases where `SLIPRING_SWEEP=full`, as `cargo xtask test` has it with optimised code.
fn stride(sampled: usize) -> usize {
    if std::env::var("SLIPRING_SWEEP").is_ok_and(|sweep| sweep == "full") { 1 } else { sampled }
}

#[test]
fn nothing_acknowledged_is_lost_whenever_the_machine_stops() {
    for seed in 1_000_000..1_000_200 {
        if let Err(failure) = run_log(seed) {
            panic!("{failure}");
        }
    }
}

/// Each of these found something once: in the store, or in what a run takes for possible.
#[test]
fn what_seeds_have_found_stays_mended() {
    for seed in [
        191, 208, 241, 472, 473, 484, 541, 1065, 3012, 3240, 6309, 9992, 12_885, 13_730, 14_779,
        17_560, 19_501,
    ] {
        if let Err(failure) = run_log(seed) {
            panic!("{failure}");
        }
    }
    if let Err(failure) = cursors::run(548) {
        panic!("{failure}");
    }
}

/// A store that syncs nothing by itself, on a disk that ruins nothing.
fn unsynced(seed: u64, boot: u128) -> DiskStoreBuilder {
    let disk = DiskStore::builder().sync(SyncPolicy::Os).boot(boot).seed(seed);
    disk.preallocate_bytes(0).reserve_bytes(0).background(false)
}

/// Appends a record of `len` bytes that are all `byte`.
fn append(store: &DiskStore, byte: u8, len: usize) -> Result<(), StoreError> {
    append_to(store, 0, byte, len)
}

fn append_to(store: &DiskStore, partition: u32, byte: u8, len: usize) -> Result<(), StoreError> {
    let sequence = store.bounds(0)?.end;
    let offset = next_of(store, partition).unwrap_or(0);
    let place = RecordPlace { partition, offset, sequence, ..RecordPlace::default() };
    let mut record = vec![];
    StoredRecord::encode(&NewMessage::new(&vec![byte; len]), place, &mut record).unwrap();
    store.append(0, &Group { base_sequence: sequence, parts: &[&record] })
}

/// The offset at which a partition goes on, if it is known.
fn next_of(store: &DiskStore, partition: u32) -> Option<u64> {
    let all = store.partitions(0).unwrap();
    all.iter().find(|bounds| bounds.partition == partition).map(|bounds| bounds.next)
}

/// The sequences that can be read; what is damaged is left out.
fn readable(store: &DiskStore) -> Vec<u64> {
    let (mut found, mut records) = (vec![], Records::new());
    let mut at = 0;
    let end = store.bounds(0).unwrap().end;
    while at < end {
        match store.read(0, at..end, 1 << 20, &mut records) {
            Ok(()) => {
                found.extend(records.iter().map(|(sequence, _)| sequence));
                at = records.next();
            }
            Err(StoreError::Damaged(damage)) => match damage.resume {
                Some(resume) => at = resume,
                None => break,
            },
            Err(error) => panic!("{error}"),
        }
    }
    found
}

/// One record a batch, with no zeros among its bytes that would pass for a hole, on a disk that takes
/// every other write in pieces.
#[test]
fn a_batch_that_was_written_in_pieces_and_torn_is_not_taken_for_damage() {
    for seed in 0..20_000 / stride(10) as u64 {
        let options = SimOptions { can_ruin: false, short_per_mille: 500, capacity: None };
        let fs = SimFs::new(seed, options);
        let store = unsynced(seed, 1).open_on(Arc::new(fs.clone())).unwrap();
        for _ in 0..4 {
            append(&store, 7, 300).unwrap();
        }
        fs.power_cut();
        let fs = fs.restart();
        let store = unsynced(seed, 2).open_on(Arc::new(fs.clone())).unwrap();
        let damage = store.recovery().remove(0).damage;
        assert_eq!(damage, None, "seed {seed}:\n{}", fs.trace().join("\n"));
    }
}

/// It failed with some of it done, and another is written in its place.
#[test]
fn a_batch_in_the_place_of_one_that_failed_and_torn_is_not_taken_for_damage() {
    let mut failed = 0;
    for seed in 0..20_000 / stride(10) as u64 {
        let options = SimOptions { can_ruin: false, short_per_mille: 0, capacity: None };
        let fs = SimFs::new(seed, options);
        let store = unsynced(seed, 1).open_on(Arc::new(fs.clone())).unwrap();
        append(&store, 7, 300).unwrap();
        // Its room is made, and it is written.
        let at = fs.calls() + 1;
        fs.plan(vec![Planned { at, fault: Fault::Io, until: Until::Once }]);
        failed += u32::from(append(&store, 8, 900).is_err());
        append(&store, 9, 900).unwrap();
        fs.power_cut();
        let fs = fs.restart();
        let store = unsynced(seed, 2).open_on(Arc::new(fs.clone())).unwrap();
        let damage = store.recovery().remove(0).damage;
        assert_eq!(damage, None, "seed {seed}:\n{}", fs.trace().join("\n"));
    }
    assert!(failed > 100, "{failed} writes failed");
}

/// A kill leaves records with the operating system alone. The log goes on in a segment behind the
/// damage, and from then on all before it counts as durable.
#[test]
fn what_is_read_after_a_kill_beside_damage_is_there_after_a_power_cut() {
    for seed in 0..200 {
        let options = SimOptions { can_ruin: false, short_per_mille: 0, capacity: None };
        let fs = SimFs::new(seed, options);
        let builder = |boot| unsynced(seed, boot).segment_bytes(64 << 10).on_damage(OnDamage::Skip);
        let store = builder(1).open_on(Arc::new(fs.clone())).unwrap();
        (0..80).for_each(|_| append(&store, 7, 1000).unwrap());
        fs.kill();
        drop(store);
        let fs = fs.restart();
        let shard = Path::new("shard-000");
        let names = fs.list(shard).unwrap().into_iter().map(|entry| entry.name);
        let newest = names.filter(|name| name.to_string_lossy().ends_with(".log")).max().unwrap();
        let newest = shard.join(newest);
        let mut bytes = fs.contents(&newest).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs.replace(&newest, &bytes);
        let store = builder(1).open_on(Arc::new(fs.clone())).unwrap();
        assert!(store.recovery()[0].damage.is_some());
        let seen = readable(&store);
        assert!(seen.len() > 60, "{seen:?}");
        fs.power_cut();
        drop(store);
        let fs = fs.restart();
        let store = builder(2).open_on(Arc::new(fs.clone())).unwrap();
        assert_eq!(readable(&store), seen, "seed {seed}:\n{}", fs.trace().join("\n"));
    }
}

/// Its records go, and with them the segment that said where it was.
#[test]
fn a_partition_of_which_all_was_removed_goes_on_where_it_was_after_a_power_cut() {
    for seed in 0..200 {
        let options = SimOptions { can_ruin: false, short_per_mille: 0, capacity: None };
        let fs = SimFs::new(seed, options);
        let builder = |boot| unsynced(seed, boot).segment_bytes(64 << 10);
        let store = builder(1).open_on(Arc::new(fs.clone())).unwrap();
        append_to(&store, 1, 7, 300).unwrap();
        (0..80).for_each(|_| append(&store, 7, 1000).unwrap());
        store.retain(0, 0, &|_| Retention::NOTHING).unwrap();
        assert!(store.bounds(0).unwrap().low > 0, "its segment is removed");
        fs.power_cut();
        let fs = fs.restart();
        let store = builder(2).open_on(Arc::new(fs.clone())).unwrap();
        let next = next_of(&store, 1);
        assert!(next >= Some(1), "seed {seed}: {next:?}\n{}", fs.trace().join("\n"));
    }
}

#[test]
fn a_seed_runs_the_same_again() {
    for seed in [1, 2, 3] {
        let runs = [(); 2].map(|()| format!("{:?}", run_log(seed)));
        assert_eq!(runs[0], runs[1]);
    }
}

#[test]
fn a_fault_at_every_call_loses_nothing_acknowledged() {
    let faults = [Fault::PowerCut, Fault::Kill, Fault::Io, Fault::NoSpace, Fault::Short];
    let mut cases = vec![];
    for policy in
        [SyncPolicy::Always, SyncPolicy::Interval(Duration::from_millis(10)), SyncPolicy::Os]
    {
        let calls = match run_log_fault(policy, None) {
            Ok(calls) => calls,
            Err(failure) => panic!("{failure}"),
        };
        assert!(calls > 200, "{calls} calls are not what 200 steps make");
        for at in (0..calls).step_by(stride(23)) {
            for fault in faults {
                for until in [Until::Once, Until::Restart] {
                    cases.push((policy, Planned { at, fault, until }));
                }
            }
        }
    }
    println!("{} faults", cases.len());
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // Relaxed: it hands out cases, and orders nothing.
                while let Some(&(policy, fault)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(failure) = run_log_fault(policy, Some(fault)) {
                        panic!("{failure}");
                    }
                }
            });
        }
    });
}
