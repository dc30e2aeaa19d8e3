//! The simulated disk against a plain model: what must survive does, and all that may happen does.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, IoSlice};
use std::path::Path;

use fastrand::Rng;
use slipring::internals::{Fs, FsFile, OpenHow, write_all_at};
use slipring_sim::{Fault, Planned, SimFs, SimOptions, Until};

fn disk(seed: u64) -> SimFs {
    SimFs::new(seed, SimOptions::default())
}

fn create(fs: &SimFs, name: &str) -> Box<dyn FsFile> {
    fs.open(Path::new(name), OpenHow::CreateNew).unwrap()
}

fn write(file: &dyn FsFile, bytes: &[u8], at: u64) {
    write_all_at(file, &mut [IoSlice::new(bytes)], at).unwrap();
}

fn once(at: u64, fault: Fault) -> Vec<Planned> {
    vec![Planned { at, fault, until: Until::Once }]
}

fn names(fs: &SimFs, dir: &str) -> BTreeSet<String> {
    let entries = fs.list(Path::new(dir)).unwrap();
    entries.into_iter().map(|entry| entry.name.into_string().unwrap()).collect()
}

/// Every value that a byte of a file may have after a power cut, and every length of the file.
struct Allowed {
    bytes: BTreeMap<usize, BTreeSet<u8>>,
    /// Written since the last sync, so that anything may be there if bytes are ruined.
    written: BTreeSet<usize>,
    lens: BTreeSet<usize>,
    seen: Vec<u8>,
}

impl Allowed {
    fn new() -> Self {
        let lens = BTreeSet::from([0]);
        Self { bytes: BTreeMap::new(), written: BTreeSet::new(), lens, seen: vec![] }
    }

    fn resize(&mut self, len: usize) {
        for at in len..self.seen.len() {
            self.allow(at, 0);
        }
        self.seen.resize(len, 0);
        self.lens.insert(len);
    }

    fn write(&mut self, bytes: &[u8], at: usize) {
        if at + bytes.len() > self.seen.len() {
            self.resize(at + bytes.len());
        }
        for (at, byte) in (at..).zip(bytes) {
            self.allow(at, *byte);
            self.seen[at] = *byte;
            self.written.insert(at);
        }
        // A write may have been done in pieces.
        self.lens.extend(at..=at + bytes.len());
    }

    fn allow(&mut self, at: usize, byte: u8) {
        let before = self.seen.get(at).copied().unwrap_or(0);
        self.bytes.entry(at).or_insert_with(|| BTreeSet::from([before])).insert(byte);
    }

    fn sync(&mut self) {
        self.bytes.clear();
        self.written.clear();
        self.lens = BTreeSet::from([self.seen.len()]);
    }

    fn check(&self, found: &[u8], ruined: bool, seed: u64) {
        assert!(self.lens.contains(&found.len()), "seed {seed}: length {}", found.len());
        for (at, byte) in found.iter().enumerate() {
            let seen = self.seen.get(at).copied().unwrap_or(0);
            let fine = match self.bytes.get(&at) {
                _ if ruined && self.written.contains(&at) => true,
                Some(allowed) => allowed.contains(byte),
                None => *byte == seen,
            };
            assert!(fine, "seed {seed}: byte {at} is {byte}");
        }
    }
}

#[test]
fn after_a_power_cut_each_byte_is_one_that_was_there_since_the_last_sync() {
    for seed in 0..400 {
        let mut rng = Rng::with_seed(seed);
        let mut fs = disk(seed);
        create(&fs, "f");
        fs.sync_dir(Path::new("")).unwrap();
        let mut allowed = Allowed::new();
        for _ in 0..rng.u8(1..4) {
            let file = fs.open(Path::new("f"), OpenHow::ReadWrite).unwrap();
            for _ in 0..rng.u8(1..12) {
                match rng.u8(0..10) {
                    0..6 => {
                        let bytes: Vec<u8> = (0..rng.usize(1..1500)).map(|_| rng.u8(..)).collect();
                        let at = rng.usize(..4000);
                        write(&*file, &bytes, at as u64);
                        allowed.write(&bytes, at);
                    }
                    6..8 => {
                        let len = rng.usize(..5000);
                        file.set_len(len as u64).unwrap();
                        allowed.resize(len);
                    }
                    _ => {
                        file.sync_data().unwrap();
                        allowed.sync();
                    }
                }
                assert_eq!(fs.contents(Path::new("f")).unwrap(), allowed.seen);
            }
            if rng.u8(0..4) == 0 {
                // A process that dies takes nothing with it, and makes nothing durable.
                fs.kill();
                fs = fs.restart();
                assert_eq!(fs.contents(Path::new("f")).unwrap(), allowed.seen);
                continue;
            }
            fs = fs.restart();
            let found = fs.contents(Path::new("f")).unwrap();
            allowed.check(&found, fs.was_ruined(), seed);
            allowed.seen = found;
            allowed.sync();
        }
    }
}

#[test]
fn an_unsynced_sector_is_kept_dropped_torn_or_ruined() {
    let (old, new) = ([1; 512], [2; 512]);
    let mut found = BTreeSet::new();
    for seed in 0..300 {
        let fs = disk(seed);
        let file = create(&fs, "f");
        write(&*file, &old, 0);
        file.sync_data().unwrap();
        fs.sync_dir(Path::new("")).unwrap();
        write(&*file, &new, 0);
        let bytes = fs.restart().contents(Path::new("f")).unwrap();
        found.insert(match &bytes {
            bytes if **bytes == new => "kept",
            bytes if **bytes == old => "dropped",
            bytes if bytes.iter().all(|byte| matches!(byte, 1 | 2)) => "torn",
            _ => "ruined",
        });
    }
    assert_eq!(found, BTreeSet::from(["dropped", "kept", "ruined", "torn"]));
}

#[test]
fn unsynced_names_are_lost_in_any_order_and_synced_ones_stay() {
    let mut found = BTreeSet::new();
    for seed in 0..500 {
        let fs = disk(seed);
        fs.create_dir(Path::new("d")).unwrap();
        fs.sync_dir(Path::new("")).unwrap();
        create(&fs, "d/old");
        create(&fs, "d/synced");
        fs.sync_dir(Path::new("d")).unwrap();
        create(&fs, "d/a");
        fs.rename(Path::new("d/a"), Path::new("d/b")).unwrap();
        fs.remove(Path::new("d/old")).unwrap();
        create(&fs, "d/c");
        let mut after = names(&fs.restart(), "d");
        assert!(after.remove("synced"));
        found.insert(after.into_iter().collect::<Vec<_>>().join(" "));
    }
    let all = ["", "a", "a c", "a c old", "a old", "b", "b c", "b c old", "b old", "c", "c old"];
    let all: BTreeSet<String> = all.iter().copied().chain(["old"]).map(str::to_owned).collect();
    assert_eq!(found, all);
}

#[test]
fn a_rename_survives_whole_or_not_at_all() {
    let mut found = BTreeSet::new();
    for seed in 0..200 {
        let fs = disk(seed);
        for (name, byte) in [("new", 1), ("old", 2)] {
            let file = create(&fs, name);
            write(&*file, &[byte], 0);
            file.sync_data().unwrap();
        }
        fs.sync_dir(Path::new("")).unwrap();
        fs.rename(Path::new("new"), Path::new("old")).unwrap();
        let fs = fs.restart();
        let bytes = fs.contents(Path::new("old")).unwrap();
        found.insert((names(&fs, "").len(), bytes));
    }
    assert_eq!(found, BTreeSet::from([(1, vec![1]), (2, vec![2])]));
}

#[test]
fn what_a_failed_sync_lost_no_later_sync_brings_back() {
    let mut lost = 0;
    for seed in 0..100 {
        let fs = disk(seed);
        let file = create(&fs, "f");
        fs.sync_dir(Path::new("")).unwrap();
        file.set_len(1024).unwrap();
        file.sync_data().unwrap();
        write(&*file, &[7; 1024], 0);
        fs.plan(once(fs.calls(), Fault::Io));
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        // The system still shows what it has in memory, until it lets go of it.
        assert_eq!(fs.contents(Path::new("f")).unwrap(), [7; 1024]);
        let on_disk = fs.restart().contents(Path::new("f")).unwrap();
        file.drop_cache().unwrap_err();
        lost += u32::from(on_disk != [7; 1024]);

        let fs = fs.restart();
        let file = fs.open(Path::new("f"), OpenHow::ReadWrite).unwrap();
        write(&*file, &[8; 1024], 0);
        file.sync_data().unwrap();
        assert_eq!(fs.restart().contents(Path::new("f")).unwrap(), [8; 1024]);
    }
    assert!((20..90).contains(&lost), "{lost}");
}

#[test]
fn dropping_the_cache_shows_what_a_failed_sync_lost() {
    let mut lost = 0;
    for seed in 0..100 {
        let fs = disk(seed);
        let file = create(&fs, "f");
        write(&*file, &[7; 512], 0);
        fs.plan(once(fs.calls(), Fault::NoSpace));
        assert_eq!(file.sync_data().unwrap_err().kind(), ErrorKind::StorageFull);
        file.drop_cache().unwrap();
        lost += u32::from(fs.contents(Path::new("f")).unwrap() != [7; 512]);
    }
    assert!((20..90).contains(&lost), "{lost}");
}

#[test]
fn a_full_disk_takes_what_fits_and_the_rest_when_there_is_room() {
    let options = SimOptions { capacity: Some(1000), short_per_mille: 0, ..SimOptions::default() };
    let fs = SimFs::new(1, options);
    let file = create(&fs, "f");
    let other = create(&fs, "g");
    write(&*other, &[1; 400], 0);
    assert_eq!(file.write_at(&[IoSlice::new(&[2; 700])], 0).unwrap(), 600);
    let full = |outcome: std::io::Result<()>| {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::StorageFull);
    };
    full(file.write_at(&[IoSlice::new(&[2; 100])], 600).map(drop));
    full(file.allocate(0, 601));
    full(file.set_len(601));
    write(&*file, &[3; 600], 0);
    fs.remove(Path::new("g")).unwrap();
    fs.sync_dir(Path::new("")).unwrap();
    file.allocate(0, 1000).unwrap();
    fs.set_capacity(None);
    write(&*file, &[2; 5000], 0);
}

#[test]
fn after_a_crash_every_call_fails_until_the_restart() {
    for fault in [Fault::PowerCut, Fault::Kill] {
        let fs = disk(1);
        let file = create(&fs, "f");
        fs.sync_dir(Path::new("")).unwrap();
        let _lock = fs.lock(Path::new("LOCK")).unwrap();
        let taken = fs.lock(Path::new("LOCK")).err().unwrap();
        assert_eq!(taken.kind(), ErrorKind::WouldBlock);
        fs.plan(once(fs.calls() + 1, fault));
        file.len().unwrap();
        file.len().unwrap_err();
        assert!(fs.is_down());
        let calls = fs.calls();
        file.len().unwrap_err();
        file.sync_data().unwrap_err();
        fs.list(Path::new("")).unwrap_err();
        assert_eq!(fs.calls(), calls);
        let fs = fs.restart();
        file.len().unwrap_err();
        assert!(names(&fs, "").contains("f"));
        fs.lock(Path::new("LOCK")).unwrap();
    }
}

#[test]
fn a_fault_strikes_its_call_once_or_until_the_restart() {
    let fs = disk(1);
    let file = create(&fs, "f");
    let calls = fs.calls();
    fs.plan(once(calls + 1, Fault::Io));
    assert!(file.len().is_ok() && file.len().is_err() && file.len().is_ok());
    fs.plan(vec![Planned { at: fs.calls(), fault: Fault::Io, until: Until::Restart }]);
    assert!(file.len().is_err() && file.len().is_err());
    assert!(fs.trace().iter().any(|line| line.contains("len f [Io] -> simulated EIO")));
    fs.sync_dir(Path::new("")).unwrap_err();
    fs.restart().list(Path::new("")).unwrap();
}

#[test]
fn one_seed_gives_one_run() {
    let run = |seed| {
        let fs = disk(seed);
        let file = create(&fs, "f");
        for at in 0..20 {
            write(&*file, &[at as u8; 700], at * 300);
        }
        fs.sync_dir(Path::new("")).unwrap();
        let fs = fs.restart();
        (fs.contents(Path::new("f")), fs.trace())
    };
    for seed in 0..50 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(1), run(2));
}
