//! The cursor journal on a disk that loses what it may, and on a real one.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use slipring::internals::{
    Cursor, CursorChange, CursorDelta, CursorJournal, CursorKey, Fs, IfMissing, JournalOptions,
    RealFs,
};
use slipring_sim::{Report, SimFs, SimOptions, cursors};

#[test]
fn no_seed_loses_an_acknowledged_cursor() {
    let mut report = Report::default();
    for seed in 0..seeds() {
        match cursors::run(seed) {
            Ok(run) => report.add(&run),
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{report:?}");
}

/// More of them by `SEEDS=n`.
fn seeds() -> u64 {
    std::env::var("SEEDS").map_or(300, |text| text.parse().expect("a number"))
}

fn open(fs: Arc<dyn Fs>, if_missing: IfMissing) -> CursorJournal {
    let options = JournalOptions { if_missing, ..JournalOptions::default() };
    CursorJournal::open(fs, cursors::STORE, options).unwrap().0
}

fn settle(journal: &CursorJournal, subscription: u64, sequence: u64) {
    let key = CursorKey { subscription, shard: 0 };
    let delta = CursorDelta { settled: [sequence].into_iter().collect(), ..Default::default() };
    let staged = journal.stage(key, &CursorChange::Advance(delta)).unwrap();
    journal.commit(staged).unwrap();
}

#[test]
fn threads_share_syncs_and_each_finds_its_change_after_the_power_cut() {
    const THREADS: u64 = 8;
    const CHANGES: u64 = 200;
    let fs = SimFs::new(1, SimOptions::default());
    let journal = open(Arc::new(fs.clone()), IfMissing::Create);
    for subscription in 0..THREADS {
        let key = CursorKey { subscription, shard: 0 };
        journal.stage(key, &CursorChange::Replace(Cursor::new(0))).unwrap();
    }
    std::thread::scope(|scope| {
        for subscription in 0..THREADS {
            let journal = &journal;
            // Every other one, so that the floor stays and the set grows.
            scope.spawn(move || (0..CHANGES).for_each(|at| settle(journal, subscription, at * 2)));
        }
    });
    let fs = fs.restart();
    let journal = open(Arc::new(fs), IfMissing::Refuse);
    for subscription in 0..THREADS {
        let cursor = journal.cursor(CursorKey { subscription, shard: 0 }).unwrap();
        assert_eq!((cursor.floor(), cursor.settled().len()), (1, CHANGES - 1));
    }
}

#[test]
fn changes_of_many_subscriptions_are_one_write_and_one_sync() {
    let fs = SimFs::new(1, SimOptions { short_per_mille: 0, ..SimOptions::default() });
    let journal = open(Arc::new(fs.clone()), IfMissing::Create);
    let mut last = None;
    for subscription in 0..100 {
        let key = CursorKey { subscription, shard: 0 };
        last = Some(journal.stage(key, &CursorChange::Replace(Cursor::new(7))).unwrap());
    }
    let calls = fs.calls();
    journal.commit(last.unwrap()).unwrap();
    assert_eq!(fs.calls() - calls, 2);
}

/// On a disk that takes every other write in pieces. What was committed is there, and what was not is
/// no damage.
#[test]
fn changes_that_were_written_in_pieces_and_torn_are_not_taken_for_damage() {
    for seed in 0..seeds() * 10 {
        let options = SimOptions { can_ruin: false, short_per_mille: 500, capacity: None };
        let fs = SimFs::new(seed, options);
        let options = JournalOptions {
            if_missing: IfMissing::Create,
            seed: Some(seed),
            ..JournalOptions::default()
        };
        let open =
            |fs: &SimFs| CursorJournal::open(Arc::new(fs.clone()), cursors::STORE, options.clone());
        let (journal, _) = open(&fs).unwrap();
        let key = CursorKey { subscription: 3, shard: 0 };
        journal.stage(key, &CursorChange::Replace(Cursor::new(5))).unwrap();
        journal.commit(journal.last()).unwrap();
        for sequence in 0..4 {
            let settled = [6 + 3 * sequence].into_iter().collect();
            let delta = CursorDelta { settled, ..Default::default() };
            let staged = journal.stage(key, &CursorChange::Advance(delta)).unwrap();
            journal.write(staged).unwrap();
        }
        fs.power_cut();
        let fs = fs.restart();
        let (journal, _) = open(&fs)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", fs.trace().join("\n")));
        assert_eq!(journal.cursor(key).map(|cursor| cursor.floor()), Some(5), "seed {seed}");
    }
}

#[test]
fn a_real_directory_keeps_cursors() {
    let dir = tempfile::tempdir().unwrap();
    let fs = || Arc::new(RealFs::open(dir.path()).unwrap());
    let journal = open(fs(), IfMissing::Create);
    let key = CursorKey { subscription: 3, shard: 0 };
    journal.stage(key, &CursorChange::Replace(Cursor::new(5))).unwrap();
    // Far enough for a second snapshot.
    (0..1100).for_each(|at| settle(&journal, 3, 6 + at));
    let cursors = journal.cursors();
    drop(journal);
    let journal = open(fs(), IfMissing::Refuse);
    assert_eq!(journal.cursors(), cursors);
    journal.close().unwrap();
    journal.stage(key, &CursorChange::Forget).unwrap_err();
    assert_eq!(open(fs(), IfMissing::Refuse).cursors(), cursors);
}
