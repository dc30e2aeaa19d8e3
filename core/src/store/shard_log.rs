//! A shard's log on disk: a writer, readers beside it, and those who wait for a sync.

use super::batch::Kind;
use super::commit::{Commit, Mark};
use super::error::StoreError;
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
use super::superblock::State;
use super::writer::{Home, Tail, Writer, poisoned};
use super::{Bounds, PartitionBounds};
use crate::sync::Mutex;
use ahash::AHashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

pub(crate) struct ShardLog {
    home: Home,
    writer: Mutex<Writer>,
    commit: Commit,
    segments: Segments,
    /// Per partition, the oldest offset that has not expired, where that is not the oldest one.
    lows: Mutex<Arc<AHashMap<u32, u64>>>,
    recovery: Recovery,
}

impl ShardLog {
    pub(crate) fn open(home: Home) -> Result<Self, StoreError> {
        let Opened { writer, segments, commit, report } = recovery::open(&home)?;
        let writer = Mutex::new(writer);
        Ok(Self { home, writer, commit, segments, lows: Mutex::default(), recovery: report })
    }

    pub(crate) fn recovery(&self) -> &Recovery {
        &self.recovery
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
        let sync = || self.segments.sync(&*self.home.fs);
        self.commit.sync(upto, sync).map_err(StoreError::Poisoned)
    }

    pub(crate) fn bounds(&self) -> Bounds {
        let (written, durable) = self.commit.marks();
        let (low, first_offset) = self.segments.low_and_given_up();
        Bounds { low, end: written.sequence, durable: durable.sequence, first_offset }
    }

    pub(crate) fn partitions(&self) -> Vec<PartitionBounds> {
        let mut lows: AHashMap<u32, u64> = AHashMap::new();
        for segment in self.segments.all() {
            // A segment that cannot be read has nothing to offer.
            for row in segment.read_table(&*self.home.fs).unwrap_or_default() {
                if row.bytes > 0 {
                    lows.entry(row.partition).or_insert(row.first_offset);
                }
            }
        }
        let expired = self.expired();
        let writer = self.writer();
        let bounds = writer.tails.iter().map(|(&partition, tail)| {
            let low = lows.get(&partition).copied().unwrap_or(tail.next);
            let low = low.max(expired.get(&partition).copied().unwrap_or(0));
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
        let tail = self.writer().tails.get(&partition).copied();
        let Some(Tail { next, .. }) = tail else { return Err(StoreError::Unknown) };
        let mut low = self.expired().get(&partition).copied().unwrap_or(0);
        if low == 0 {
            low = self.oldest_offset(partition)?.unwrap_or(next);
        }
        if offsets.start < low {
            return Err(StoreError::Expired { low });
        }
        let offsets = offsets.start..offsets.end.min(next).max(offsets.start);
        reader::partition(&self.home, &self.segments, partition, offsets, max_bytes, into)
    }

    fn oldest_offset(&self, partition: u32) -> Result<Option<u64>, StoreError> {
        for segment in self.segments.all() {
            let row = segment.with_index(&*self.home.fs, |index| index.partition(partition))?;
            self.segments.used(&segment);
            if let Some(row) = row.filter(|row| row.bytes > 0) {
                return Ok(Some(row.first_offset));
            }
        }
        Ok(None)
    }

    /// The first sequence published at or after `time_us`.
    pub(crate) fn sequence_at(&self, time_us: u64) -> Result<u64, StoreError> {
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
        let file = segment.file(fs).map_err(|error| self.segments.expired(error))?;
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

    /// Lets expire what `retention` says, and removes the segments that hold nothing else.
    pub(crate) fn retain(
        &self,
        now_us: u64,
        retention: &dyn Fn(u32) -> Retention,
    ) -> Result<Retained, StoreError> {
        let nexts: AHashMap<u32, u64> =
            self.writer().tails.iter().map(|(&partition, tail)| (partition, tail.next)).collect();
        let mut keeps: AHashMap<u32, Keep> = AHashMap::new();
        let mut oldest: AHashMap<u32, u64> = AHashMap::new();
        let segments = self.segments.all();
        let mut removable = vec![];
        for (at, segment) in segments.iter().enumerate().rev() {
            let mut is_wanted = false;
            for row in segment.read_table(&*self.home.fs)?.iter().filter(|row| row.bytes > 0) {
                let keep = keeps.entry(row.partition).or_insert_with(|| {
                    let next = nexts.get(&row.partition).copied().unwrap_or(row.next_offset);
                    Keep::new(retention(row.partition), now_us, next)
                });
                is_wanted |= keep.keeps(row);
                oldest.insert(row.partition, row.first_offset);
            }
            // The last one is being written, or will be.
            removable.push(!is_wanted && at + 1 < segments.len());
        }
        let count = removable.iter().rev().take_while(|&&removable| removable).count();
        let mut lows: AHashMap<u32, u64> = AHashMap::clone(&self.expired());
        let mut moved: Vec<(u32, u64)> = vec![];
        for (partition, keep) in keeps {
            let before = lows.get(&partition).copied().unwrap_or(0).max(oldest[&partition]);
            if keep.low > before {
                lows.insert(partition, keep.low);
                moved.push((partition, keep.low));
            }
        }
        moved.sort_unstable();
        *self.lows() = Arc::new(lows);
        let removed_bytes = match segments.get(count) {
            Some(first_kept) if count > 0 => self.remove_below(first_kept.base())?,
            _ => 0,
        };
        Ok(Retained { low: self.segments.low(), removed_bytes, lows: moved })
    }

    /// Removes the segments below `low`. First, durably, what must be known without them and that
    /// they are to go; then the files.
    fn remove_below(&self, low: u64) -> Result<u64, StoreError> {
        let mut writer = self.writer();
        writer.check(&self.commit)?;
        let active = writer.active.base();
        let silent = writer.tails.iter().filter(|(_, tail)| tail.home < low);
        let silent: Vec<(u32, u64)> = silent.map(|(&id, tail)| (id, tail.next)).collect();
        if !silent.is_empty() && !sabotaged("carry_tails") {
            let body = scan::encode_tails(silent.iter().copied());
            writer.write_control(Kind::Tails, &body, &self.home, &self.commit)?;
            for (partition, next) in silent {
                writer.tails.insert(partition, Tail { next, home: active });
            }
            if !sabotaged("carry_sync") {
                self.sync_to(writer.mark())?;
            }
        }
        let state = writer.superblock.state();
        if !sabotaged("low_first") {
            writer
                .superblock
                .store(State { low, ..state })
                .map_err(|error| poisoned(&self.commit, "superblock", &error))?;
        }
        drop(writer);
        let removed = self.segments.remove_below(low);
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
    pub(crate) fn maintain(&self) -> Result<(), StoreError> {
        let mut writer = self.writer();
        if writer.refusal.is_some() || self.commit.is_poisoned().is_some() {
            return Ok(());
        }
        let age_us = self.home.clock.unix_us().saturating_sub(writer.active.header.created_us);
        let is_old = u128::from(age_us) >= self.home.options.segment_age.as_micros();
        if is_old && writer.extent.sequence > writer.active.base() {
            writer.roll(&self.home, &self.segments, &self.commit)?;
        }
        let (written, durable) = self.commit.marks();
        let checkpoint = (durable.segment, durable.position);
        let state = writer.superblock.state();
        if written == durable && state.checkpoint != checkpoint {
            writer
                .superblock
                .store(State { checkpoint, ..state })
                .map_err(|error| poisoned(&self.commit, "superblock", &error))?;
        }
        Ok(())
    }

    /// Syncs, and notes that everything is there. Nothing can be appended afterwards.
    pub(crate) fn close(&self) -> Result<(), StoreError> {
        let mut writer = self.writer();
        if writer.refusal.is_some() {
            return Ok(());
        }
        let mark = writer.mark();
        if let Err(error) = writer.check(&self.commit).and_then(|()| self.sync_to(mark)) {
            // What the operating system has in memory is not what the disk has.
            let state = writer.superblock.state();
            let _ = writer.superblock.store(State { boot: 0, ..state });
            return Err(error);
        }
        writer.refusal = Some(StoreError::Closed);
        let state = writer.superblock.state();
        let checkpoint = (mark.segment, mark.position);
        writer
            .superblock
            .store(State { clean: true, checkpoint, ..state })
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
