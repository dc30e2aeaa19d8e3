//! Group commit: who was told that bytes are durable was told the truth, nobody waits for ever
//! (which loom reports as a deadlock), and after one failed sync nobody is told so any more.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use slipring::store::internals::{Commit, Mark};
use slipring_loom_tests::check;
use std::io;

/// A disk that is told what to keep by a sync.
struct Log {
    commit: Commit,
    writer: loom::sync::Mutex<u64>,
    written: AtomicU64,
    durable: AtomicU64,
    /// Syncs that were begun; the one of this number fails.
    syncs: AtomicU64,
    fails: u64,
    is_syncing: AtomicBool,
    /// Set when the log has been poisoned by a writer.
    is_poisoned: AtomicBool,
}

fn log(fails: u64) -> Arc<Log> {
    Arc::new(Log {
        commit: Commit::new(Mark::sequence(0)),
        writer: loom::sync::Mutex::new(0),
        written: AtomicU64::new(0),
        durable: AtomicU64::new(0),
        syncs: AtomicU64::new(0),
        fails,
        is_syncing: AtomicBool::new(false),
        is_poisoned: AtomicBool::new(false),
    })
}

impl Log {
    fn append(&self) -> u64 {
        let mut end = self.writer.lock().unwrap();
        *end += 1;
        // Relaxed: the commit must order it.
        self.written.store(*end, Ordering::Relaxed);
        self.commit.written(Mark::sequence(*end));
        *end
    }

    fn sync(&self, upto: u64) -> Result<(), ()> {
        let mut was_poisoned = false;
        let sync = || {
            let is_alone = !self.is_syncing.swap(true, Ordering::Relaxed);
            assert!(is_alone, "two sync at a time");
            let number = self.syncs.fetch_add(1, Ordering::Relaxed) + 1;
            if number == self.fails {
                return Err(io::Error::other("the disk"));
            }
            // What was written before the sync began, and not more.
            self.durable.store(self.written.load(Ordering::Relaxed), Ordering::Relaxed);
            was_poisoned = self.is_poisoned.load(Ordering::Relaxed);
            self.is_syncing.store(false, Ordering::Relaxed);
            Ok(())
        };
        let durable = self.commit.sync(Mark::sequence(upto), sync).map_err(drop)?;
        assert!(!was_poisoned, "told of a log that had been poisoned before its sync ended");
        assert!(durable.sequence >= upto, "told of less than was asked for");
        assert!(self.durable.load(Ordering::Relaxed) >= durable.sequence, "not on the disk");
        Ok(())
    }

    fn append_and_sync(&self) -> Result<(), ()> {
        let upto = self.append();
        self.sync(upto)
    }
}

#[test]
fn what_a_sync_reports_is_on_the_disk() {
    check(3, || {
        let log = log(0);
        let others = [0, 1].map(|_| {
            let log = Arc::clone(&log);
            thread::spawn(move || log.append_and_sync())
        });
        log.append_and_sync().unwrap();
        others.into_iter().for_each(|other| other.join().unwrap().unwrap());
        assert!(log.syncs.load(Ordering::Relaxed) <= 3);
    });
}

#[test]
fn after_a_failed_sync_nobody_is_told_that_more_is_durable() {
    check(3, || {
        let log = log(1);
        let theirs = Arc::clone(&log);
        let other = thread::spawn(move || theirs.append_and_sync());
        let mine = log.append_and_sync();
        assert_eq!((mine, other.join().unwrap()), (Err(()), Err(())), "the first sync failed");
        assert!(log.append_and_sync().is_err());
        assert_eq!(log.syncs.load(Ordering::Relaxed), 1, "a disk that failed is not asked again");
    });
}

#[test]
fn a_writer_that_poisons_fails_who_waits() {
    check(3, || {
        let log = log(0);
        let upto = log.append();
        let theirs = Arc::clone(&log);
        let other = thread::spawn(move || theirs.sync(upto));
        log.commit.poison("a write failed");
        log.is_poisoned.store(true, Ordering::Relaxed);
        // Either it came first, or it is told.
        let _ = other.join().unwrap();
        let upto = log.append();
        assert!(log.sync(upto).is_err());
    });
}
