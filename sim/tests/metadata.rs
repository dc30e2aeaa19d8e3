//! The metadata on a disk that loses what it may, and on a real one.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use slipring::internals::{Change, Fs, META_FILE, MetaError, Metadata, OpenHow, RealFs};
use slipring_sim::{Fault, Planned, Report, SimFs, SimOptions, Until, metadata};

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

/// Newer metadata was put in its place, by whatever copies files, and the sync failed: programs still
/// read all of it, and some is not on the disk and never will be.
#[test]
fn what_opening_finds_is_on_the_disk() {
    let (mut opened, mut lost) = (0, 0);
    for seed in 0..200 {
        let options = SimOptions { can_ruin: false, short_per_mille: 0, capacity: None };
        let fs = SimFs::new(seed, options);
        let metadata = Metadata::create(Arc::new(fs.clone()), 7).unwrap();
        metadata.commit(&[Change::Frontier(1, 100)]).unwrap();
        drop(metadata);
        let newer = fs.copy();
        let metadata = Metadata::open(Arc::new(newer.clone())).unwrap();
        metadata.commit(&[Change::Frontier(2, 200)]).unwrap();
        drop(metadata);
        let path = Path::new(META_FILE);
        let bytes = newer.contents(path).unwrap();
        let file = fs.open(path, OpenHow::ReadWrite).unwrap();
        file.write_at(&[IoSlice::new(&bytes)], 0).unwrap();
        fs.plan(vec![Planned { at: fs.calls(), fault: Fault::Io, until: Until::Once }]);
        file.sync_data().unwrap_err();
        // What was lost can be what it cannot be opened without.
        let Ok(metadata) = Metadata::open(Arc::new(fs.clone())) else {
            lost += 1;
            continue;
        };
        let found = metadata.contents();
        opened += 1;
        fs.power_cut();
        drop(metadata);
        let again = Metadata::open(Arc::new(fs.restart())).map(|metadata| metadata.contents());
        assert_eq!(again.ok(), Some(found), "seed {seed}");
    }
    assert!(opened > 20 && lost > 0, "{opened} opened, {lost} lost");
}

/// Each once found a commit that was told as failed and was there: what failed was to ask for the
/// file's length, or to give back its room, behind the sync that made it durable.
#[test]
fn what_seeds_have_found_stays_mended() {
    for seed in [29_782, 39_529, 47_214, 55_240] {
        if let Err(failure) = metadata::run(seed) {
            panic!("{failure}");
        }
    }
}
