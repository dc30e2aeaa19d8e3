//! A shard's log on disk: a writer, readers beside it, and those who wait for a sync.

use super::batch::Kind;
use super::commit::{Commit, Mark};
use super::error::StoreError;
use super::index::PartitionRow;
use super::options::SyncPolicy;
use super::plan::Group;
use super::reader;
use super::record::StoredRecord;
use super::records::Records;
use super::recovery::{self, Opened, Recovery};
use super::retention::{Keep, Retained, Retention};
use super::sabotage::sabotaged;
use super::scan::{self, Window};
use super::segment::{FIRST_BATCH, Segment};
use super::segments::Segments;
use super::superblock::{SharedSuperblock, State};
use super::writer::{Home, Tail, Writer, poisoned};
use super::{Bounds, PartitionBounds};
use crate::sync::Mutex;
use ahash::AHashMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, TryLockError};

pub(crate) struct ShardLog {
    home: Home,
    writer: Mutex<Writer>,
    commit: Commit,
    segments: Segments,
    superblock: SharedSuperblock,
    /// Per partition, the oldest offset that has not expired, where that is not the oldest one.
    lows: Mutex<Arc<AHashMap<u32, u64>>>,
    /// Held by who removes segments, or notes something in the superblock, without the writer: so
    /// that nobody who appends has to wait for that, and the end does.
    upkeep: Mutex<()>,
    recovery: Recovery,
}

impl ShardLog {
    pub(crate) fn open(home: Home) -> Result<Self, StoreError> {
        let Opened { writer, segments, commit, report: recovery } = recovery::open(&home)?;
        let superblock = writer.superblock.clone();
        let writer = Mutex::new(writer);
        let (lows, upkeep) = (Mutex::default(), Mutex::default());
        Ok(Self { home, writer, commit, segments, superblock, lows, upkeep, recovery })
    }

    pub(crate) fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Why nothing can be appended, whatever it is.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.writer().check(&self.commit)
    }

    pub(crate) fn append(&self, group: &Group<'_>) -> Result<(), StoreError> {
        self.writer().append(group, &self.home, &self.segments, &self.commit)
    }

    /// Waits as the policy demands before what is below `upto` is acknowledged.
    pub(crate) fn commit(&self, upto: u64) -> Result<(), StoreError> {
        match self.home.options.sync {
            SyncPolicy::Always => self.sync(upto).map(drop),
            SyncPolicy::Interval(_) | SyncPolicy::Os => Ok(()),
        }
    }

    pub(crate) fn sync(&self, upto: u64) -> Result<u64, StoreError> {
        self.sync_to(Mark::sequence(upto)).map(|mark| mark.sequence)
    }

    fn sync_to(&self, upto: Mark) -> Result<Mark, StoreError> {
        let sync = || {
            let outcome = self.segments.sync(&*self.home.fs);
            if outcome.is_err() {
                self.note_loss();
            }
            outcome
        };
        self.commit.sync(upto, sync).map_err(StoreError::Poisoned)
    }

    /// Notes that what the operating system has in memory is not what the disk has, as well as can
    /// be: whoever opens the log next need not find that out.
    fn note_loss(&self) {
        let _ = self.superblock.update(|state| State { boot: 0, ..state });
    }

    pub(crate) fn bounds(&self) -> Bounds {
        let (written, durable) = self.commit.marks();
        let (low, first_offset) = self.segments.low_and_given_up();
        Bounds { low, end: written.sequence, durable: durable.sequence, first_offset }
    }

    pub(crate) fn given_up(&self, sequences: Range<u64>) -> u64 {
        self.segments.given_up(sequences)
    }

    pub(crate) fn stored_bytes(&self) -> u64 {
        self.segments.bytes()
    }

    pub(crate) fn partitions(&self) -> Vec<PartitionBounds> {
        let expired = self.expired();
        let writer = self.writer();
        let bounds = writer.tails.iter().map(|(&partition, tail)| {
            let low = tail.first.max(expired.get(&partition).copied().unwrap_or(0));
            PartitionBounds { partition, low, next: tail.next }
        });
        bounds.collect()
    }

    pub(crate) fn read(
        &self,
        sequences: Range<u64>,
        max_bytes: usize,
        into: &mut Records,
    ) -> Result<(), StoreError> {
        self.again_if_removed(|| self.read_now(sequences.clone(), max_bytes, into))
    }

    fn read_now(
        &self,
        sequences: Range<u64>,
        max_bytes: usize,
        into: &mut Records,
    ) -> Result<(), StoreError> {
        let Bounds { low, end, .. } = self.bounds();
        if sequences.start < low {
            return Err(StoreError::Expired { low });
        }
        let sequences = sequences.start..sequences.end.min(end).max(sequences.start);
        let expired = self.expired();
        let is_expired = |record: StoredRecord<'_>| {
            expired.get(&record.partition()).is_some_and(|&low| record.offset() < low)
        };
        let is_expired: Option<reader::IsExpired<'_>> =
            if expired.is_empty() { None } else { Some(&is_expired) };
        reader::sequences(&self.home, &self.segments, sequences, max_bytes, is_expired, into)
    }

    pub(crate) fn read_partition(
        &self,
        partition: u32,
        offsets: Range<u64>,
        max_bytes: usize,
        into: &mut Records,
    ) -> Result<(), StoreError> {
        self.again_if_removed(|| {
            self.read_partition_now(partition, offsets.clone(), max_bytes, into)
        })
    }

    fn read_partition_now(
        &self,
        partition: u32,
        offsets: Range<u64>,
        max_bytes: usize,
        into: &mut Records,
    ) -> Result<(), StoreError> {
        let tail = self.writer().tails.get(&partition).copied();
        let Some(Tail { first, next, .. }) = tail else { return Err(StoreError::Unknown) };
        let low = first.max(self.expired().get(&partition).copied().unwrap_or(0));
        if offsets.start < low {
            return Err(StoreError::Expired { low });
        }
        let offsets = offsets.start..offsets.end.min(next).max(offsets.start);
        reader::partition(&self.home, &self.segments, partition, offsets, max_bytes, into)
    }

    /// The first sequence published at or after `time_us`.
    pub(crate) fn sequence_at(&self, time_us: u64) -> Result<u64, StoreError> {
        self.again_if_removed(|| self.sequence_at_now(time_us))
    }

    fn sequence_at_now(&self, time_us: u64) -> Result<u64, StoreError> {
        let end = self.bounds().end;
        for segment in self.segments.all() {
            let rows = segment.read_table(&*self.home.fs)?;
            if rows.iter().all(|row| row.last_us < time_us) {
                continue;
            }
            if let Some(found) = self.sequence_in(&segment, time_us)? {
                return Ok(found.min(end));
            }
        }
        Ok(end)
    }

    fn sequence_in(&self, segment: &Segment, time_us: u64) -> Result<Option<u64>, StoreError> {
        let fs = &*self.home.fs;
        let start = segment.with_index(fs, |index| index.position_at_time(time_us))?;
        self.segments.used(segment);
        let file = segment.file(fs)?;
        let mut window = Window::new(&*file);
        let mut position = start.unwrap_or(FIRST_BATCH);
        while position < segment.extent().position {
            let batch = scan::any_batch(&mut window, position, segment.header.salt)?;
            // What is damaged is told to who reads it.
            let Some((header, body)) = batch else { return Ok(Some(segment.base())) };
            if header.kind == Kind::Records && header.last_us() >= time_us {
                let records = (header.base_sequence..).zip(scan::records(body));
                let found = records.into_iter().find(|(_, r)| r.published_us() >= time_us);
                if let Some((sequence, _)) = found {
                    return Ok(Some(sequence));
                }
            }
            position += header.bytes();
        }
        Ok(None)
    }

    /// Calls `read`, and again if it finds that a file is missing and segments were removed
    /// meanwhile: that one of them is not there says nothing of what was asked for.
    fn again_if_removed<R>(
        &self,
        mut read: impl FnMut() -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        loop {
            let low = self.segments.low();
            match read() {
                Err(StoreError::Io(error))
                    if error.kind() == io::ErrorKind::NotFound && self.segments.low() > low => {}
                outcome => return outcome,
            }
        }
    }

    /// Lets expire what `retention` says, and removes the segments that hold nothing else.
    pub(crate) fn retain(
        &self,
        now_us: u64,
        retention: &dyn Fn(u32) -> Retention,
    ) -> Result<Retained, StoreError> {
        let _upkeep = self.upkeep.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let tails = self.writer().tails.clone();
        let segments = self.segments.all();
        let tables = segments.iter().map(|segment| segment.read_table(&*self.home.fs));
        let tables: Vec<Vec<PartitionRow>> = tables.collect::<Result<_, _>>()?;
        let mut keeps: AHashMap<u32, Keep> = AHashMap::new();
        // The last one is being written, or will be.
        let mut removable = tables.len() - 1;
        for (at, table) in tables.iter().enumerate().rev() {
            let mut is_wanted = false;
            for row in table.iter().filter(|row| row.bytes > 0) {
                let keep = keeps.entry(row.partition).or_insert_with(|| {
                    let next = tails.get(&row.partition).map_or(row.next_offset, |tail| tail.next);
                    Keep::new(retention(row.partition), now_us, next)
                });
                is_wanted |= keep.keeps(row);
            }
            if is_wanted {
                removable = removable.min(at);
            }
        }
        let mut lows: AHashMap<u32, u64> = AHashMap::clone(&self.expired());
        let mut moved: Vec<(u32, u64)> = vec![];
        for (partition, keep) in keeps {
            let first = tails.get(&partition).map_or(0, |tail| tail.first);
            let before = lows.get(&partition).copied().unwrap_or(0).max(first);
            if keep.low > before {
                lows.insert(partition, keep.low);
                moved.push((partition, keep.low));
            }
        }
        moved.sort_unstable();
        *self.lows() = Arc::new(lows);
        let removed_bytes = match segments.get(removable) {
            Some(first_kept) if removable > 0 => {
                self.remove_below(first_kept.base(), &tables, &tails)?
            }
            _ => 0,
        };
        Ok(Retained { low: self.segments.low(), removed_bytes, lows: moved })
    }

    /// Removes the segments below `low`. First, durably, what must be known without them and that
    /// they are to go; then the files. `tables` are those of all segments, in order, and `tails`
    /// were taken before them.
    fn remove_below(
        &self,
        low: u64,
        tables: &[Vec<PartitionRow>],
        tails: &AHashMap<u32, Tail>,
    ) -> Result<u64, StoreError> {
        let mut writer = self.writer();
        writer.check(&self.commit)?;
        if !sabotaged("carry_tails") {
            writer.carry_tails(low, &self.home, &self.commit)?;
        }
        let mark = writer.mark();
        // Syncs take their time: nobody who appends waits for them.
        drop(writer);
        if !sabotaged("carry_sync") {
            self.sync_to(mark)?;
        }
        if !sabotaged("low_first") {
            self.superblock
                .update(|state| State { low, ..state })
                .map_err(|error| poisoned(&self.commit, "superblock", &error))?;
        }
        let removed = self.segments.remove_below(low);
        let (gone, kept) = tables.split_at(removed.len());
        let mut writer = self.writer();
        writer.forget_removed(gone, kept, tails);
        // What is not there any more, nobody need pass over.
        let mut lows = AHashMap::clone(&self.expired());
        lows.retain(|partition, low| {
            writer.tails.get(partition).is_some_and(|tail| tail.first < *low)
        });
        drop(writer);
        *self.lows() = Arc::new(lows);
        let mut bytes = 0;
        for segment in &removed {
            bytes += segment.extent().position;
            self.home.fs.remove(&segment.path)?;
            // A cache, which may be missing.
            let _ = self.home.fs.remove(&segment.index_path());
            segment.close();
        }
        self.home.fs.sync_dir(&self.home.dir)?;
        Ok(bytes)
    }

    /// What is due now and then: ends a segment that is old, and notes how far an idle log is
    /// durable, so that later damage to its last batches is not taken for a torn end.
    /// Not while retention is at work: there is a next time.
    pub(crate) fn maintain(&self) -> Result<(), StoreError> {
        let _upkeep = match self.upkeep.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(()),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Ok(upkeep) => upkeep,
        };
        let mut writer = self.writer();
        if writer.refusal.is_some() || self.commit.is_poisoned().is_some() {
            return Ok(());
        }
        let age_us = self.home.clock.unix_us().saturating_sub(writer.active.header.created_us);
        let is_old = u128::from(age_us) >= self.home.options.segment_age.as_micros();
        if is_old && writer.extent.sequence > writer.active.base() {
            writer.roll(&self.home, &self.segments, &self.commit)?;
        }
        drop(writer);
        let (written, durable) = self.commit.marks();
        if written != durable {
            return Ok(());
        }
        let checkpoint = (durable.segment, durable.position);
        self.superblock
            .update(|state| State { checkpoint, ..state })
            .map_err(|error| poisoned(&self.commit, "superblock", &error))
    }

    /// Makes the file of the next segment, if there is time for that, and as long as `goes_on` says so.
    /// Nobody waits for it.
    pub(crate) fn prepare(&self, goes_on: &dyn Fn() -> bool) -> Result<(), StoreError> {
        let Home { fs, options, spare, .. } = &self.home;
        let Some(bytes) = options.spare_bytes() else { return Ok(()) };
        let is_due = {
            let mut writer = self.writer();
            writer.check(&self.commit).is_ok() && writer.has_time(options)
        };
        if !is_due || spare.is_there() {
            return Ok(());
        }
        let Some(made) = self.home.make_spare(bytes, goes_on)? else { return Ok(()) };
        // Whoever closes has this lock as well, and gives up what is there.
        match self.writer().refusal {
            None => spare.put(&**fs, made),
            Some(_) => made.remove(&**fs),
        }
        Ok(())
    }

    /// Gives back the file of the next segment; whether there was one.
    pub(crate) fn give_up_spare(&self) -> bool {
        self.home.spare.give_up(&*self.home.fs)
    }

    /// Syncs, and notes that everything is there. Nothing can be appended afterwards.
    pub(crate) fn close(&self) -> Result<(), StoreError> {
        let _upkeep = self.upkeep.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut writer = self.writer();
        if writer.refusal.is_some() {
            return Ok(());
        }
        let mark = writer.mark();
        if let Err(error) = writer.check(&self.commit).and_then(|()| self.sync_to(mark)) {
            self.note_loss();
            return Err(error);
        }
        writer.refusal = Some(StoreError::Closed);
        self.give_up_spare();
        let checkpoint = (mark.segment, mark.position);
        self.superblock
            .update(|state| State { clean: true, checkpoint, ..state })
            .map_err(|error| poisoned(&self.commit, "superblock", &error))
    }

    fn expired(&self) -> Arc<AHashMap<u32, u64>> {
        Arc::clone(&self.lows())
    }

    fn lows(&self) -> impl std::ops::DerefMut<Target = Arc<AHashMap<u32, u64>>> + use<'_> {
        self.lows.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn writer(&self) -> impl std::ops::DerefMut<Target = Writer> + use<'_> {
        self.writer.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl fmt::Debug for ShardLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardLog").field("bounds", &self.bounds()).finish_non_exhaustive()
    }
}
