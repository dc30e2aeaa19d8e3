//! The segmented log on the simulated disk: from many seeds, and with a fault at every call.

use std::time::Duration;

use slipring::store::SyncPolicy;
use slipring_sim::{Fault, Planned, Until, run_log, run_log_fault};

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
                    if let Err(failure) = run_log_fault(policy, Some(Planned { at, fault, until }))
                    {
                        panic!("{failure}");
                    }
                }
            }
        }
    }
}
