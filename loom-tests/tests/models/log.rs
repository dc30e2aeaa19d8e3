//! The log by itself: readers look records up without a lock while the writer lets chunks go, uses
//! their memory again, and comes round to their slots in the index.

use loom::thread;
use slipring::internals::{
    Appender, CHUNK_BYTES, Chunk, Log, LogWriter, Pool, look, search, watch_read, watch_write,
};
use slipring_loom_tests::check;

const RECORD: usize = 1024;
/// Slots of the smallest index under loom.
const WINDOW: u64 = 16;
const STARTS: [u64; 2] = [0, u32::MAX as u64];

struct Writer {
    log: LogWriter,
    appender: Appender,
}

impl Writer {
    fn new(start: u64) -> Self {
        let pool = Pool::new(1 << 20);
        Self { log: LogWriter::new(CHUNK_BYTES, start), appender: Appender::new(pool) }
    }

    /// Appends a record at the beginning of a chunk of its own.
    fn append(&mut self) {
        self.log.give_back(usize::MAX);
        assert!(self.appender.begin().is_some());
        let at = self.appender.room(RECORD).unwrap() as usize;
        watch_write(at);
        self.appender.commit(RECORD);
        let sequence = self.log.next();
        self.log.append(at);
        let chunk = self.appender.seal().unwrap();
        self.log.retain(chunk, sequence);
    }
}

/// Reads what `log` has at `sequence`, if it is retained, and keeps a token of it for a while.
fn read(log: &Log, sequence: u64) -> bool {
    let kept = look(log, sequence, |address| {
        watch_read(address);
        let chunk = Chunk::of(address);
        chunk.grant(1);
        (chunk, address)
    });
    if let Some((chunk, address)) = kept {
        watch_read(address);
        chunk.release(1);
    }
    kept.is_some()
}

#[test]
fn a_published_record_can_be_read() {
    for start in STARTS {
        check(3, move || {
            let mut writer = Writer::new(start);
            let log = std::sync::Arc::clone(writer.log.log());
            let reader = thread::spawn(move || {
                let head = log.head();
                for sequence in start..head {
                    assert!(read(&log, sequence), "nothing has expired");
                }
            });
            (0..2).for_each(|_| writer.append());
            reader.join().unwrap();
        });
    }
}

/// A search pins before it asks how far it may go, so no fence stands between that and the records.
#[test]
fn a_search_reads_only_what_is_published_and_retained() {
    for start in STARTS {
        check(3, move || {
            let mut writer = Writer::new(start);
            writer.append();
            let log = std::sync::Arc::clone(writer.log.log());
            let reader = thread::spawn(move || {
                let end = search(&log);
                assert!((start + 1..=start + 3).contains(&end));
            });
            writer.append();
            writer.log.expire();
            writer.append();
            reader.join().unwrap();
        });
    }
}

#[test]
fn a_record_is_not_read_once_its_memory_is_used_again() {
    for start in STARTS {
        check(3, move || {
            let mut writer = Writer::new(start);
            writer.append();
            let log = std::sync::Arc::clone(writer.log.log());
            let reader = thread::spawn(move || {
                let (low, head) = (log.low(), log.head());
                for sequence in low..head {
                    read(&log, sequence);
                }
                assert!(log.low() >= low);
            });
            for _ in 0..2 {
                writer.log.expire();
                writer.append();
            }
            reader.join().unwrap();
            assert!(!read(writer.log.log(), start));
        });
    }
}

/// The index is circular: a reader that is a whole window behind must not take the newest record
/// for the one that it asked for.
#[test]
fn a_slot_that_is_used_again_is_not_mistaken() {
    for start in STARTS {
        check(3, move || {
            let mut writer = Writer::new(start);
            for _ in 0..WINDOW - 1 {
                writer.append();
            }
            let log = std::sync::Arc::clone(writer.log.log());
            let first = look(&log, start, |address| address);
            let reader = thread::spawn(move || {
                let found = look(&log, start, |address| {
                    watch_read(address);
                    address
                });
                assert!(found.is_none() || found == first, "the record that was asked for");
            });
            for _ in 0..2 {
                writer.log.expire();
                writer.append();
            }
            reader.join().unwrap();
        });
    }
}

/// Two readers search while chunks expire.
#[test]
fn two_readers_keep_what_they_found() {
    check(3, || {
        let mut writer = Writer::new(0);
        writer.append();
        let readers = [0, 1].map(|_| {
            let log = std::sync::Arc::clone(writer.log.log());
            thread::spawn(move || {
                let head = log.head();
                (log.low()..head).filter(|&sequence| read(&log, sequence)).count()
            })
        });
        writer.log.expire();
        writer.append();
        let found = readers.map(|reader| reader.join().unwrap());
        assert!(found.iter().all(|&count| count <= 1), "one at a time is retained");
        drop(writer);
    });
}
