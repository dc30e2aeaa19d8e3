//! The metadata on a disk that loses what it may.

use slipring_sim::{Report, metadata};

#[test]
fn no_seed_loses_an_acknowledged_commit() {
    let mut report = Report::default();
    for seed in 0..seeds() {
        match metadata::run(seed) {
            Ok(run) => report.add(&run),
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{report:?}");
}

/// More of them by `SEEDS=n`.
fn seeds() -> u64 {
    std::env::var("SEEDS").map_or(100, |text| text.parse().expect("a number"))
}
