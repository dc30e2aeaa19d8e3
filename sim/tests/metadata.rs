//! The metadata on a disk that loses what it may, and on a real one.

use std::path::Path;
use std::sync::Arc;

use slipring::internals::{Change, META_FILE, MetaError, Metadata, RealFs};
use slipring_sim::{Report, SimFs, SimOptions, metadata};

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
    std::env::var("SEEDS").map_or(60, |text| text.parse().expect("a number"))
}

#[test]
fn a_real_directory_keeps_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let fs = || Arc::new(RealFs::open(dir.path()).unwrap());
    assert!(matches!(Metadata::open(fs()), Err(MetaError::Missing)));
    let metadata = Metadata::create(fs(), 7).unwrap();
    metadata.commit(&[Change::Frontier(1, 65536), Change::Ready]).unwrap();
    let error = metadata.commit(&[Change::Low(1, 9), Change::Frontier(1, 5)]).unwrap_err();
    assert!(matches!(error, MetaError::Refused(_)), "{error}");
    let contents = metadata.contents();
    assert!(contents.is_ready && contents.low.is_empty() && contents.store == 7);
    drop(metadata);
    assert!(matches!(Metadata::create(fs(), 8), Err(MetaError::Refused(_))));
    assert_eq!(Metadata::open(fs()).unwrap().contents(), contents);
}

#[test]
fn a_full_disk_refuses_commits_and_takes_them_again_when_there_is_room() {
    let fs = SimFs::new(1, SimOptions { capacity: Some(1 << 20), ..SimOptions::default() });
    let metadata = Metadata::create(Arc::new(fs.clone()), 7).unwrap();
    fs.set_capacity(Some(fs.contents(Path::new(META_FILE)).unwrap().len() as u64));
    let mut frontier = 0;
    let mut commit = |count: u32| {
        frontier += 1;
        let changes: Vec<_> = (0..count).map(|shard| Change::Frontier(shard, frontier)).collect();
        metadata.commit(&changes)
    };
    let error = commit(4_000).unwrap_err();
    assert!(matches!(error, MetaError::Full), "{error}");
    assert!(matches!(commit(4_000), Err(MetaError::Full)));
    assert!(metadata.contents().frontiers.is_empty());
    fs.set_capacity(None);
    commit(4_000).unwrap();
    assert_eq!(metadata.contents().frontiers.len(), 4_000);
    let contents = metadata.contents();
    drop(metadata);
    assert_eq!(Metadata::open(Arc::new(fs.restart())).unwrap().contents(), contents);
}
