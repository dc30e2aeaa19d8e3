//! A [`MessageStore`] over SQLite: one table of records, one of where shards and partitions end.
//!
//! It is an example of a store of one's own, and passes the suite that every store must pass. Each
//! group is a transaction, which SQLite syncs: so nothing waits for a commit, and nobody shares one.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rusqlite::{Connection, Error, ErrorCode, OptionalExtension, Result as Outcome, Row, params};
use slipring::store::{
    Bounds, Group, MessageStore, PartitionBounds, Records, Retained, Retention, StoreError,
    StoredRecord,
};

/// The partition in `ends` that is the log of the whole shard.
const LOG: i64 = -1;

/// The newest record that is too old, or has enough newer ones, goes with all before it.
const EXPIRE: &str = "DELETE FROM record WHERE shard = ?1 AND part = ?2 AND offset <= (
    SELECT max(offset) FROM (SELECT offset, us, total(length(bytes)) OVER
        (ORDER BY offset DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newer
        FROM record WHERE shard = ?1 AND part = ?2) WHERE us <= ?3 OR newer >= ?4)
    RETURNING offset, length(bytes)";

/// Messages in an SQLite database.
#[derive(Debug)]
pub struct SqliteStore {
    /// `None` when it is closed.
    connection: Mutex<Option<Connection>>,
    shards: usize,
}

/// An error of the store inside one of SQLite's, so that `?` takes both.
fn refuse<T>(why: StoreError) -> Outcome<T> {
    Err(Error::ToSqlConversionFailure(Box::new(why)))
}

fn store_error(error: Error) -> StoreError {
    match error {
        Error::ToSqlConversionFailure(why) if why.is::<StoreError>() => {
            *why.downcast().expect("it was just asked for")
        }
        error if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => StoreError::Full,
        error => StoreError::Io(Arc::new(std::io::Error::other(error))),
    }
}

/// From where to where the log, or a partition, can be read.
fn extent(db: &Connection, shard: i64, part: i64) -> Outcome<Option<Range<u64>>> {
    let query = "SELECT low, next FROM extent WHERE shard = ?1 AND part = ?2";
    let mut statement = db.prepare_cached(query)?;
    let of = |low: i64, next: i64| low as u64..next as u64;
    statement.query_row([shard, part], |row| Ok(of(row.get(0)?, row.get(1)?))).optional()
}

fn set_next(db: &Connection, shard: i64, part: i64, next: u64) -> Outcome<()> {
    let query = "INSERT OR REPLACE INTO ends VALUES (?1, ?2, ?3)";
    db.prepare_cached(query)?.execute([shard, part, next as i64]).map(drop)
}

impl SqliteStore {
    /// Opens the database at `path`, or makes it.
    ///
    /// # Errors
    ///
    /// What SQLite says.
    pub fn open(path: &Path, shards: usize) -> Result<Self, StoreError> {
        let connection = Connection::open(path).map_err(store_error)?;
        connection.execute_batch(include_str!("schema.sql")).map_err(store_error)?;
        Ok(Self { connection: Mutex::new(Some(connection)), shards })
    }

    /// Runs `work` in a transaction, which is as if it had not been if that fails.
    fn run<T>(
        &self,
        shard: usize,
        work: impl FnOnce(&Connection, i64) -> Outcome<T>,
    ) -> Result<T, StoreError> {
        if shard >= self.shards {
            return Err(StoreError::Unknown);
        }
        let mut connection = self.connection.lock().unwrap_or_else(|e| e.into_inner());
        let connection = connection.as_mut().ok_or(StoreError::Closed)?;
        let transaction = connection.transaction().map_err(store_error)?;
        let done = work(&transaction, shard as i64).map_err(store_error)?;
        transaction.commit().map_err(store_error)?;
        Ok(done)
    }

    fn fill(
        &self,
        (shard, part): (usize, i64),
        wanted: Range<u64>,
        max_bytes: usize,
        into: &mut Records,
    ) -> Result<(), StoreError> {
        self.run(shard, |db, shard| {
            into.clear();
            let found = extent(db, shard, part)?.or((part == LOG).then_some(0..0));
            let Some(Range { start: low, end }) = found else { return refuse(StoreError::Unknown) };
            if wanted.start < low {
                return refuse(StoreError::Expired { low });
            }
            let end = wanted.end.min(end).max(wanted.start);
            let query = "SELECT sequence, bytes, place FROM placed
                WHERE shard = ?1 AND part = ?2 AND place >= ?3 AND place < ?4 ORDER BY place";
            let mut statement = db.prepare_cached(query)?;
            let mut rows = statement.query([shard, part, wanted.start as i64, end as i64])?;
            let mut taken = 0;
            // If there is none, all of them have expired.
            into.set_next(end);
            while let Some(row) = rows.next()?.filter(|_| taken == 0 || taken < max_bytes) {
                let bytes = row.get_ref(1)?.as_blob()?;
                let Some(record) = StoredRecord::new(bytes) else {
                    return refuse(StoreError::InvalidGroup("what is stored is no record"));
                };
                into.push(row.get::<_, i64>(0)? as u64, record);
                into.set_next(row.get::<_, i64>(2)? as u64 + 1);
                taken += bytes.len();
            }
            Ok(())
        })
    }
}

impl MessageStore for SqliteStore {
    fn shards(&self) -> usize {
        self.shards
    }

    fn append(&self, shard: usize, group: &Group<'_>) -> Result<(), StoreError> {
        self.run(shard, |db, shard| {
            let mut sequence = extent(db, shard, LOG)?.map_or(0, |log| log.end);
            let refused = |why| refuse(StoreError::InvalidGroup(why));
            if group.base_sequence != sequence {
                return refused("it does not begin where the log ends");
            }
            let insert = "INSERT INTO record VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            let mut insert = db.prepare_cached(insert)?;
            for record in group.parts.iter().flat_map(|part| StoredRecord::all(part)) {
                let Some(record) = record else { return refused("it is not made of records") };
                let (part, offset) = (i64::from(record.partition()), record.offset());
                let follows = extent(db, shard, part)?.is_none_or(|of| of.end == offset);
                if !follows || record.sequence_low() != sequence as u32 {
                    return refused("a record does not follow");
                }
                let (at, us) = (sequence as i64, record.published_us() as i64);
                insert.execute(params![shard, at, part, offset as i64, us, record.bytes()])?;
                set_next(db, shard, part, offset + 1)?;
                sequence += 1;
            }
            set_next(db, shard, LOG, sequence)
        })
    }

    fn sync(&self, shard: usize, _upto: u64) -> Result<u64, StoreError> {
        Ok(self.bounds(shard)?.durable)
    }

    fn bounds(&self, shard: usize) -> Result<Bounds, StoreError> {
        let log = self.run(shard, |db, shard| extent(db, shard, LOG))?.unwrap_or(0..0);
        Ok(Bounds { low: log.start, end: log.end, durable: log.end, first_offset: 0 })
    }

    fn partitions(&self, shard: usize) -> Result<Vec<PartitionBounds>, StoreError> {
        self.run(shard, |db, shard| {
            let query = "SELECT low, next, part FROM extent WHERE shard = ?1 AND part <> -1";
            let mut statement = db.prepare_cached(query)?;
            let rows = statement.query_map([shard], |row| {
                let [low, next] = [row.get::<_, i64>(0)?, row.get(1)?].map(|at| at as u64);
                Ok(PartitionBounds { partition: row.get(2)?, low, next })
            });
            rows?.collect()
        })
    }

    fn read(
        &self,
        shard: usize,
        wanted: Range<u64>,
        max_bytes: usize,
        into: &mut Records,
    ) -> Result<(), StoreError> {
        self.fill((shard, LOG), wanted, max_bytes, into)
    }

    fn read_partition(
        &self,
        shard: usize,
        partition: u32,
        wanted: Range<u64>,
        max_bytes: usize,
        into: &mut Records,
    ) -> Result<(), StoreError> {
        self.fill((shard, partition.into()), wanted, max_bytes, into)
    }

    fn sequence_at(&self, shard: usize, time_us: u64) -> Result<u64, StoreError> {
        let found = "SELECT coalesce(
            (SELECT min(sequence) FROM record WHERE shard = ?1 AND us >= ?2),
            (SELECT next FROM ends WHERE shard = ?1 AND part = -1), 0)";
        let place = |row: &Row<'_>| row.get(0).map(|at: i64| at as u64);
        self.run(shard, |db, shard| db.query_row(found, [shard, time_us as i64], place))
    }

    fn retain(
        &self,
        shard: usize,
        now_us: u64,
        retention: &dyn Fn(u32) -> Retention,
    ) -> Result<Retained, StoreError> {
        let mut done = Retained::default();
        for PartitionBounds { partition, low, .. } in self.partitions(shard)? {
            let Retention { max_age_us, max_bytes } = retention(partition);
            let oldest_us = max_age_us.map(|age| now_us.saturating_sub(age) as i64);
            let max_bytes = max_bytes.map(|bytes| bytes as i64);
            let (kept, removed) = self.run(shard, |db, shard| {
                let mut expire = db.prepare_cached(EXPIRE)?;
                let of = params![shard, partition, oldest_us, max_bytes];
                let gone = expire.query_map(of, |row| Ok((row.get(0)?, row.get(1)?)))?;
                gone.into_iter().try_fold((low, 0), |(kept, removed), row| {
                    let (offset, len): (i64, i64) = row?;
                    Ok((kept.max(offset as u64 + 1), removed + len as u64))
                })
            })?;
            done.removed_bytes += removed;
            done.lows.extend((kept > low).then_some((partition, kept)));
        }
        done.lows.sort_unstable();
        Ok(Retained { low: self.bounds(shard)?.low, ..done })
    }

    fn close(&self) -> Result<(), StoreError> {
        let closed = self.connection.lock().unwrap_or_else(|e| e.into_inner()).take();
        closed.map_or(Ok(()), |closed| closed.close().map_err(|(_, why)| store_error(why)))
    }
}
