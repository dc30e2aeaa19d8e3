//! The segmented log on the simulated disk: from many seeds, and with a fault at every call.
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use slipring::NewMessage;
use slipring::store::{DiskStore, Group, MessageStore, RecordPlace, StoredRecord, SyncPolicy};
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

/// One record a batch, with no zeros among its bytes that would pass for a hole, on a disk that takes
/// every other write in pieces.
#[test]
fn a_batch_that_was_written_in_pieces_and_torn_is_not_taken_for_damage() {
    for seed in 0..20_000 / stride(10) as u64 {
        let options = SimOptions { can_ruin: false, short_per_mille: 500, capacity: None };
        let fs = SimFs::new(seed, options);
        let builder = |boot| {
            let disk = DiskStore::builder().sync(SyncPolicy::Os).boot(boot).seed(seed);
            disk.preallocate_bytes(0).reserve_bytes(0).background(false)
        };
        let store = builder(1).open_on(Arc::new(fs.clone())).unwrap();
        for at in 0..4 {
            let place = RecordPlace { offset: at, sequence: at, ..RecordPlace::default() };
            let mut record = vec![];
            StoredRecord::encode(&NewMessage::new(&[7; 300]), place, &mut record).unwrap();
            store.append(0, &Group { base_sequence: at, parts: &[&record] }).unwrap();
        }
        fs.power_cut();
        let fs = fs.restart();
        let store = builder(2).open_on(Arc::new(fs.clone())).unwrap();
        let damage = store.recovery().remove(0).damage;
        assert_eq!(damage, None, "seed {seed}:\n{}", fs.trace().join("\n"));
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
