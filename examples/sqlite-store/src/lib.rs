//! A [`MessageStore`] over SQLite: one table of records, one of partitions.
//!
//! It is an example of a store of one's own, and passes the suite that every store must pass. A
//! commit of SQLite syncs, so groups are durable one by one; nothing here makes groups larger.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use slipring::store::{
    Bounds, Group, MessageStore, PartitionBounds, Records, Retained, Retention, StoreError,
    StoredRecord,
};

const SCHEMA: &str = "
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS record (
    shard INTEGER, sequence INTEGER, part INTEGER, offset INTEGER, us INTEGER, bytes BLOB,
    PRIMARY KEY (shard, sequence)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_offset ON record (shard, part, offset);
CREATE TABLE IF NOT EXISTS part (shard INTEGER, part INTEGER, next INTEGER,
    PRIMARY KEY (shard, part)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ends (shard INTEGER PRIMARY KEY, next INTEGER);";

/// Messages in an SQLite database.
#[derive(Debug)]
pub struct SqliteStore {
    /// `None` when it is closed.
    connection: Mutex<Option<Connection>>,
    shards: usize,
}

fn error(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full,
        _ => StoreError::Io(Arc::new(std::io::Error::other(error))),
    }
}

impl SqliteStore {
    /// Opens the database at `path`, or makes it.
    ///
    /// # Errors
    ///
    /// What SQLite says.
    pub fn open(path: &Path, shards: usize) -> Result<Self, StoreError> {
        let connection = Connection::open(path).map_err(error)?;
        connection.execute_batch(SCHEMA).map_err(error)?;
        Ok(Self { connection: Mutex::new(Some(connection)), shards })
    }

    /// Runs `work` in a transaction, which is as if it had not been if that fails.
    fn run<T>(
        &self,
        shard: usize,
        work: impl FnOnce(&Connection, i64) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        if shard >= self.shards {
            return Err(StoreError::Unknown);
        }
        let mut guard: MutexGuard<'_, _> = self.connection.lock().unwrap_or_else(|e| e.into_inner());
        let connection = guard.as_mut().ok_or(StoreError::Closed)?;
        let transaction = connection.transaction().map_err(error)?;
        let done = work(&transaction, shard as i64).map_err(|failure| failure.0)?;
        transaction.commit().map_err(error)?;
        Ok(done)
    }

    /// Fills `into` with the rows of a query: sequence, bytes and the number to go on behind.
    fn fill(
        &self,
        shard: usize,
        query: &str,
        [part, from, to]: [i64; 3],
        max_bytes: usize,
        into: &mut Records,
    ) -> Result<(), StoreError> {
        self.run(shard, |db, shard| {
            let mut statement = db.prepare_cached(query)?;
            let mut rows = statement.query(params![shard, part, from, to])?;
            let mut taken = 0;
            while let Some(row) = rows.next()?.filter(|_| taken == 0 || taken < max_bytes) {
                let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
                let record = StoredRecord::new(bytes).ok_or(StoreError::InvalidGroup("damaged"))?;
                into.push(row.get::<_, i64>(0)? as u64, record);
                into.set_next(row.get::<_, i64>(2)? as u64 + 1);
                taken += bytes.len();
            }
            Ok(())
        })
    }
}

/// So that `?` takes both kinds of errors.
struct Failure(StoreError);

impl From<rusqlite::Error> for Failure {
    fn from(from: rusqlite::Error) -> Self {
        Self(error(from))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self(error)
    }
}

fn number(db: &Connection, query: &str, of: [i64; 2]) -> rusqlite::Result<Option<u64>> {
    let found: Option<Option<i64>> = db.prepare_cached(query)?.query_row(of, |row| row.get(0)).optional()?;
    Ok(found.flatten().map(|found| found as u64))
}

fn bounds(db: &Connection, shard: i64) -> rusqlite::Result<Bounds> {
    let end = number(db, "SELECT next FROM ends WHERE shard = ?1 AND ?2 = 0", [shard, 0])?.unwrap_or(0);
    let low = number(db, "SELECT min(sequence) FROM record WHERE shard = ?1 AND ?2 = 0", [shard, 0])?;
    Ok(Bounds { low: low.unwrap_or(end), end, durable: end, first_offset: 0 })
}

const NEXT: &str = "SELECT next FROM part WHERE shard = ?1 AND part = ?2";
const LOW: &str = "SELECT min(offset) FROM record WHERE shard = ?1 AND part = ?2";

impl MessageStore for SqliteStore {
    fn shards(&self) -> usize {
        self.shards
    }

    fn append(&self, shard: usize, group: &Group<'_>) -> Result<(), StoreError> {
        self.run(shard, |db, shard| {
            let mut sequence = bounds(db, shard)?.end;
            if group.base_sequence != sequence {
                return Err(StoreError::InvalidGroup("it does not begin where the log ends").into());
            }
            for part in group.parts {
                for record in StoredRecord::all(part) {
                    let record = record.ok_or(StoreError::InvalidGroup("not a whole record"))?;
                    let (part, offset) = (i64::from(record.partition()), record.offset());
                    let next = number(db, NEXT, [shard, part])?;
                    if next.is_some_and(|next| next != offset) || record.sequence_low() != sequence as u32 {
                        return Err(StoreError::InvalidGroup("a record does not follow").into());
                    }
                    db.prepare_cached("INSERT INTO record VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?.execute(
                        params![shard, sequence as i64, part, offset as i64, record.published_us() as i64, record.bytes()],
                    )?;
                    db.prepare_cached("INSERT OR REPLACE INTO part VALUES (?1, ?2, ?3)")?
                        .execute([shard, part, offset as i64 + 1])?;
                    sequence += 1;
                }
            }
            db.prepare_cached("INSERT OR REPLACE INTO ends VALUES (?1, ?2)")?.execute([shard, sequence as i64])?;
            Ok(())
        })
    }

    fn commit(&self, shard: usize, _upto: u64) -> Result<(), StoreError> {
        self.bounds(shard).map(drop)
    }

    fn sync(&self, shard: usize, _upto: u64) -> Result<u64, StoreError> {
        self.bounds(shard).map(|bounds| bounds.durable)
    }

    fn bounds(&self, shard: usize) -> Result<Bounds, StoreError> {
        self.run(shard, |db, shard| Ok(bounds(db, shard)?))
    }

    fn partitions(&self, shard: usize) -> Result<Vec<PartitionBounds>, StoreError> {
        self.run(shard, |db, shard| {
            let mut statement = db.prepare_cached("SELECT part, next FROM part WHERE shard = ?1")?;
            let rows = statement.query_map([shard], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)))?;
            rows.map(|row| {
                let (partition, next): (u32, i64) = row?;
                let low = number(db, LOW, [shard, i64::from(partition)])?;
                Ok(PartitionBounds { partition, low: low.unwrap_or(next as u64), next: next as u64 })
            })
            .collect()
        })
    }

    fn read(&self, shard: usize, wanted: Range<u64>, max_bytes: usize, into: &mut Records) -> Result<(), StoreError> {
        let Bounds { low, end, .. } = self.bounds(shard)?;
        into.clear();
        into.set_next(wanted.start);
        if wanted.start < low {
            return Err(StoreError::Expired { low });
        }
        let query = "SELECT sequence, bytes, sequence FROM record
            WHERE shard = ?1 AND ?2 = 0 AND sequence >= ?3 AND sequence < ?4 ORDER BY sequence";
        let to = wanted.end.min(end);
        self.fill(shard, query, [0, wanted.start as i64, to as i64], max_bytes, into)?;
        if into.is_empty() {
            into.set_next(to.max(wanted.start));
        }
        Ok(())
    }

    fn read_partition(&self, shard: usize, partition: u32, wanted: Range<u64>, max_bytes: usize, into: &mut Records) -> Result<(), StoreError> {
        let part = i64::from(partition);
        let (low, next) = self.run(shard, |db, shard| Ok((number(db, LOW, [shard, part])?, number(db, NEXT, [shard, part])?)))?;
        let low = low.or(next).ok_or(StoreError::Unknown)?;
        into.clear();
        into.set_next(wanted.start);
        if wanted.start < low {
            return Err(StoreError::Expired { low });
        }
        let query = "SELECT sequence, bytes, offset FROM record
            WHERE shard = ?1 AND part = ?2 AND offset >= ?3 AND offset < ?4 ORDER BY offset";
        let to = wanted.end.min(i64::MAX as u64);
        self.fill(shard, query, [part, wanted.start as i64, to as i64], max_bytes, into)
    }

    fn sequence_at(&self, shard: usize, time_us: u64) -> Result<u64, StoreError> {
        self.run(shard, |db, shard| {
            let first = "SELECT min(sequence) FROM record WHERE shard = ?1 AND us >= ?2";
            Ok(number(db, first, [shard, time_us as i64])?.unwrap_or(bounds(db, shard)?.end))
        })
    }

    fn retain(&self, shard: usize, now_us: u64, retention: &dyn Fn(u32) -> Retention) -> Result<Retained, StoreError> {
        let (mut lows, mut removed_bytes) = (vec![], 0);
        for PartitionBounds { partition, low, next } in self.partitions(shard)? {
            let Retention { max_age_us, max_bytes } = retention(partition);
            let too_old = max_age_us.map_or(-1, |age| now_us.saturating_sub(age) as i64);
            let (kept, removed) = self.run(shard, |db, shard| {
                // Newest first: what is behind the limit, and the first old one, go with all before.
                let mut statement = db.prepare_cached("SELECT offset, length(bytes), us FROM record WHERE shard = ?1 AND part = ?2 ORDER BY offset DESC")?;
                let mut rows = statement.query([shard, i64::from(partition)])?;
                let (mut kept, mut bytes) = (next, 0);
                while let Some(row) = rows.next()? {
                    if row.get::<_, i64>(2)? <= too_old || max_bytes.is_some_and(|max| bytes >= max) {
                        break;
                    }
                    bytes += row.get::<_, i64>(1)? as u64;
                    kept = row.get::<_, i64>(0)? as u64;
                }
                let of = params![shard, partition, kept as i64];
                let sum = "SELECT total(length(bytes)) FROM record WHERE shard = ?1 AND part = ?2 AND offset < ?3";
                let removed: f64 = db.query_row(sum, of, |row| row.get(0))?;
                db.execute("DELETE FROM record WHERE shard = ?1 AND part = ?2 AND offset < ?3", of)?;
                Ok((kept, removed as u64))
            })?;
            removed_bytes += removed;
            if kept > low {
                lows.push((partition, kept));
            }
        }
        lows.sort_unstable();
        Ok(Retained { low: self.bounds(shard)?.low, removed_bytes, lows })
    }

    fn close(&self) -> Result<(), StoreError> {
        let closed = self.connection.lock().unwrap_or_else(|e| e.into_inner()).take();
        closed.map_or(Ok(()), |connection| connection.close().map_err(|(_, why)| error(why)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipring::store::conformance;

    #[test]
    fn it_conforms() {
        let dirs: Vec<_> = (0..conformance::CHECKS.len()).map(|_| tempfile::tempdir().unwrap()).collect();
        for (dir, (name, check)) in dirs.iter().zip(conformance::CHECKS) {
            println!("conformance: {name}");
            check(&|| Box::new(SqliteStore::open(&dir.path().join("messages.db"), 2).unwrap()));
        }
    }

    #[test]
    fn it_is_there_again() {
        let dir = tempfile::tempdir().unwrap();
        conformance::run_durable(&|| Box::new(SqliteStore::open(&dir.path().join("messages.db"), 2).unwrap()));
    }
}
