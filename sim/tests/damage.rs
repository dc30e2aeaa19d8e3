//! Damage that no crash does: every bit, every length, every sector. It is told, or harmless; no
//! other state is ever given.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slipring::internals::{
    CURSOR_DIR, Contents, Cursor, CursorChange, CursorDelta, CursorJournal, CursorKey, Fs,
    IfDamaged, IfMissing, JournalError, JournalOptions, META_FILE, MetaError, Metadata,
};
use slipring_sim::{SimFs, SimOptions, cursors, metadata};

type Cursors = BTreeMap<CursorKey, Cursor>;

/// One file, one way to open what is in it, and what that must give, unless it tells the damage.
struct Sample<S> {
    fs: SimFs,
    file: PathBuf,
    bytes: Vec<u8>,
    good: S,
}

#[derive(Debug, Default)]
struct Count {
    told: u64,
    harmless: u64,
}

impl<S: PartialEq + std::fmt::Debug> Sample<S> {
    fn try_bytes(
        &self,
        bytes: &[u8],
        what: &str,
        open: &impl Fn(&SimFs) -> Result<S, String>,
        count: &mut Count,
    ) {
        let fs = self.fs.copy();
        fs.replace(&self.file, bytes);
        match open(&fs) {
            Ok(state) => {
                assert_eq!(state, self.good, "{what}");
                count.harmless += 1;
            }
            Err(error) => {
                assert!(error.contains(self.file.to_str().unwrap()), "{what}: {error}");
                assert_eq!(fs.contents(&self.file).as_deref(), Some(bytes), "{what}");
                count.told += 1;
            }
        }
    }

    /// Of the bits, lengths, sectors and pairs of sectors, every `stride`-th: bits flipped, the file
    /// cut, sectors zeroed, filled and swapped.
    fn sweep(&self, stride: usize, open: &impl Fn(&SimFs) -> Result<S, String>) -> Count {
        let mut count = Count::default();
        let mut bytes = self.bytes.clone();
        for bit in (0..bytes.len() * 8).step_by(stride) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            self.try_bytes(&bytes, &format!("bit {bit}"), open, &mut count);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for len in (0..self.bytes.len()).step_by(stride) {
            self.try_bytes(&self.bytes[..len], &format!("cut to {len}"), open, &mut count);
        }
        for size in [512, 4096] {
            let sectors = self.bytes.len() / size;
            for one in 0..sectors {
                for fill in [0, 0xff] {
                    let mut bytes = self.bytes.clone();
                    bytes[one * size..][..size].fill(fill);
                    self.try_bytes(&bytes, &format!("{size} at {one}: {fill}"), open, &mut count);
                }
                for other in (one + 1..sectors).step_by(stride.div_ceil(4)) {
                    let mut bytes = self.bytes.clone();
                    let (low, high) = bytes.split_at_mut(other * size);
                    low[one * size..][..size].swap_with_slice(&mut high[..size]);
                    self.try_bytes(&bytes, &format!("{size}: {one} for {other}"), open, &mut count);
                }
            }
        }
        count
    }
}

/// More of everything by `STRIDE=1`, which takes a while.
fn stride(default: usize) -> usize {
    std::env::var("STRIDE").map_or(default, |text| text.parse().expect("a number"))
}

fn open_cursors(fs: &SimFs) -> Result<Cursors, String> {
    let options = JournalOptions { reserve_bytes: 4096, ..JournalOptions::default() };
    CursorJournal::open(Arc::new(fs.clone()), cursors::STORE, options)
        .map(|(journal, _)| journal.cursors())
        .map_err(|error| match error {
            JournalError::Damaged { .. } | JournalError::Incompatible { .. } => error.to_string(),
            other => panic!("{other}"),
        })
}

fn cursor_sample(changes: u64) -> Sample<Cursors> {
    let fs = SimFs::new(1, SimOptions { short_per_mille: 0, ..SimOptions::default() });
    let options = JournalOptions {
        if_missing: IfMissing::Create,
        reserve_bytes: 4096,
        seed: Some(1),
        ..JournalOptions::default()
    };
    let open =
        |options| CursorJournal::open(Arc::new(fs.clone()), cursors::STORE, options).unwrap().0;
    let work = |journal: &CursorJournal, base: u64| {
        for at in 0..changes {
            let key = CursorKey { subscription: at % 7, shard: 0 };
            if base == 0 && at < 7 {
                let change = CursorChange::Replace(Cursor::new(at));
                journal.stage(key, &change).unwrap();
            }
            let settled = (0..9).map(|step| base + at * 3 + step * 11).collect();
            let attempts = BTreeMap::from([(base + at * 3 + 1, 2)]);
            let delta = CursorDelta { floor: base + at, settled, attempts };
            let staged = journal.stage(key, &CursorChange::Advance(delta)).unwrap();
            journal.commit(staged).unwrap();
        }
    };
    let journal = open(options.clone());
    work(&journal, 0);
    journal.close().unwrap();
    // Now with a snapshot before the changes.
    let journal = open(options);
    work(&journal, 1000);
    journal.close().unwrap();
    let names = fs.list(Path::new(CURSOR_DIR)).unwrap();
    assert_eq!(names.len(), 1);
    let file = Path::new(CURSOR_DIR).join(&names[0].name);
    let bytes = fs.contents(&file).unwrap();
    Sample { file, bytes, good: journal.cursors(), fs }
}

#[test]
fn no_damage_of_a_closed_cursor_journal_gives_another_state() {
    let sample = cursor_sample(60);
    let count = sample.sweep(stride(131), &open_cursors);
    println!("cursor journal of {} bytes: {count:?}", sample.bytes.len());
    assert!(count.told > count.harmless);
    // Nothing follows from a first sector that is damaged.
    let mut count = Count::default();
    for bit in (0..512 * 8).step_by(11) {
        let mut bytes = sample.bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        sample.try_bytes(&bytes, &format!("bit {bit}"), &open_cursors, &mut count);
    }
    assert_eq!(count.harmless, 0);
}

#[test]
fn what_is_before_the_damage_is_kept_if_asked_for_and_the_damaged_file_too() {
    let sample = cursor_sample(60);
    let mut bytes = sample.bytes.clone();
    let middle = bytes.iter().rposition(|byte| *byte != 0).unwrap() / 2;
    bytes[middle] ^= 1;
    sample.fs.replace(&sample.file, &bytes);
    let open = |if_damaged| {
        let options = JournalOptions { if_damaged, ..JournalOptions::default() };
        CursorJournal::open(Arc::new(sample.fs.clone()), cursors::STORE, options)
    };
    let error = open(IfDamaged::Refuse).unwrap_err();
    assert!(matches!(error, JournalError::Damaged { was_durable: true, .. }), "{error}");
    let (journal, report) = open(IfDamaged::KeepValid).unwrap();
    assert!(!journal.cursors().is_empty() && journal.cursors() != sample.good);
    drop(journal);
    let kept = report.damaged.unwrap();
    open(IfDamaged::Refuse).unwrap();
    assert_eq!(sample.fs.contents(&kept), Some(bytes));
}

#[test]
fn another_store_and_a_missing_journal_are_refused() {
    let sample = cursor_sample(8);
    let open = |fs: &SimFs, store| {
        CursorJournal::open(Arc::new(fs.clone()), store, JournalOptions::default()).map(drop)
    };
    let error = open(&sample.fs, 7).unwrap_err();
    assert!(matches!(error, JournalError::Incompatible { .. }), "{error}");
    open(&sample.fs, cursors::STORE).unwrap();
    let empty = SimFs::new(1, SimOptions::default());
    assert!(matches!(open(&empty, 7), Err(JournalError::Missing)));
}

fn open_metadata(fs: &SimFs) -> Result<Contents, String> {
    Metadata::open(Arc::new(fs.clone())).map(|metadata| metadata.contents()).map_err(|error| {
        match error {
            MetaError::Damaged { .. } | MetaError::Incompatible { .. } => error.to_string(),
            other => panic!("{other}"),
        }
    })
}

#[test]
fn no_damage_of_metadata_gives_another_state() {
    for left in [metadata::Left::Killed, metadata::Left::Closed] {
        let (fs, good) = metadata::sample(3, 6, left).unwrap();
        let file = PathBuf::from(META_FILE);
        let bytes = fs.contents(&file).unwrap();
        let sample = Sample { fs, file, bytes, good };
        // The two copies of the header more closely: each makes up for the other.
        let mut count = Count::default();
        for bit in (0..512 * 8).chain(4096 * 8..4608 * 8).step_by(13) {
            let mut bytes = sample.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            sample.try_bytes(&bytes, &format!("bit {bit}"), &open_metadata, &mut count);
        }
        assert_eq!(count.told, 0, "{left:?}");
        let count = sample.sweep(stride(1999), &open_metadata);
        println!("metadata of {} bytes, {left:?}: {count:?}", sample.bytes.len());
        assert!(count.told > 0, "{left:?}");
    }
}
