//! The one writer of a shard's log: appends groups, seals segments and begins new ones.
//!
//! A group is written whole or not at all. What fails before a sync did is undone and may be tried
//! again; a sync that fails, or an undoing that does, poisons the log.

use super::batch::{BatchHeader, HEADER, Kind, checksum};
use super::commit::{Commit, Mark};
use super::entropy::Entropy;
use super::error::StoreError;
use super::gaps::Gaps;
use super::index::{PartitionRow, Touch};
use super::options::Options;
use super::plan::{Batch, Group, Plan};
use super::sabotage::sabotaged;
use super::scan;
use super::sector::{WriteError, write_sectors_at};
use super::segment::{Extent, Segment, SegmentHeader, StoreId};
use super::segments::Segments;
use super::spare::{Spare, SpareFile, ZEROS};
use super::superblock::{FRONTIER_STEP, SharedSuperblock, State};
use crate::clock::Clock;
use crate::fs::{Fs, FsFile, write_all_at};
use ahash::AHashMap;
use arrayvec::ArrayVec;
use std::io::{self, IoSlice};
use std::iter;
use std::path::PathBuf;
use std::sync::Arc;

/// The most bytes of a group: positions in a segment, whose length it may add to, have 32 bits.
const MAX_GROUP: usize = 1 << 30;
/// A batch of so many bytes is written from one buffer: copying it costs less than a list of two.
const SMALL: usize = 2048;
/// More room than for so many slices and touches of a group is not kept for the next one.
const KEPT: usize = 4096;
/// The most partitions in one batch that carries their tails.
const MAX_TAILS: usize = 1 << 16;

/// Where a shard's log lives, and what it was told.
pub(crate) struct Home {
    pub(crate) fs: Arc<dyn Fs>,
    /// The shard's directory, from the store's on.
    pub(crate) dir: PathBuf,
    pub(crate) id: StoreId,
    pub(crate) shard: usize,
    /// Whether the shard may not have been made yet.
    pub(crate) is_new: bool,
    pub(crate) options: Options,
    pub(crate) spare: Spare,
    pub(crate) clock: Clock,
    pub(crate) entropy: Entropy,
    /// Random: tells this log, as it is open now, from all others.
    pub(crate) log: u64,
}

impl Home {
    /// Makes the file of a segment to come.
    pub(super) fn make_spare(
        &self,
        bytes: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> io::Result<Option<SpareFile>> {
        SpareFile::make(&*self.fs, &self.dir, self.entropy.next(), bytes, goes_on)
    }
}

/// How far a partition has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The oldest offset that a segment has; the next one, if none has any.
    pub(crate) first: u64,
    /// The offset that its next record has.
    pub(crate) next: u64,
    /// Base of the segment that tells so.
    pub(crate) home: u64,
}

pub(crate) struct Writer {
    pub(super) active: Arc<Segment>,
    pub(super) file: Arc<dyn FsFile>,
    pub(super) extent: Extent,
    /// Bytes of the file that are reserved on the disk.
    pub(super) allocated: u64,
    /// Bytes of the file that were written, be it with zeros.
    pub(super) zeroed: u64,
    pub(super) tails: AHashMap<u32, Tail>,
    pub(super) superblock: SharedSuperblock,
    pub(super) epoch: u32,
    /// As the superblock has it: no sequence from here on was ever given away.
    pub(super) frontier: u64,
    /// Why nothing can be appended, though nothing failed: the end of the log is damaged, or it
    /// was closed.
    pub(super) refusal: Option<StoreError>,
    /// The position when [`has_time`](Self::has_time) was asked last.
    pub(super) asked_at: u64,
    /// Whether it said so.
    pub(super) is_next_made: bool,
    /// What the last group has left of memory.
    pub(super) plan: Plan,
    /// What the partitions were before the group that is being appended.
    pub(super) undo: Vec<(u32, Option<Tail>)>,
}

impl Writer {
    /// Where the log is, as the waiters know it.
    pub(super) fn mark(&self) -> Mark {
        let Extent { position, sequence, .. } = self.extent;
        Mark { sequence, segment: self.active.base(), position }
    }

    /// Whether anything may be written at all.
    pub(super) fn check(&self, commit: &Commit) -> Result<(), StoreError> {
        self.standing(commit).map(drop)
    }

    /// The same, and how far all is durable.
    fn standing(&self, commit: &Commit) -> Result<Mark, StoreError> {
        match &self.refusal {
            Some(refusal) => Err(refusal.clone()),
            None => commit.durable().map_err(StoreError::Poisoned),
        }
    }

    /// Appends a group.
    pub(super) fn append(
        &mut self,
        group: &Group<'_>,
        home: &Home,
        segments: &Segments,
        commit: &Commit,
    ) -> Result<(), StoreError> {
        let durable = self.standing(commit)?;
        if group.base_sequence != self.extent.sequence {
            return Err(StoreError::InvalidGroup("it does not begin where the log ends"));
        }
        let bytes: usize = group.parts.iter().map(|part| part.len()).sum();
        if bytes > MAX_GROUP {
            return Err(StoreError::InvalidGroup("more than 1 GiB at once"));
        }
        if self.extent.sealed
            || self.extent.sequence > self.active.base()
                && self.extent.position + bytes as u64 > home.options.segment_bytes
        {
            self.roll(home, segments, commit)?;
        }
        let mut plan = std::mem::take(&mut self.plan);
        let outcome = self.append_planned(group, &mut plan, durable, home, commit);
        plan.forget(KEPT);
        self.plan = plan;
        self.undo.clear();
        self.undo.shrink_to(KEPT);
        outcome
    }

    fn append_planned(
        &mut self,
        group: &Group<'_>,
        plan: &mut Plan,
        durable: Mark,
        home: &Home,
        commit: &Commit,
    ) -> Result<(), StoreError> {
        plan.make(group, self.epoch, self.active.header.salt)?;
        if plan.records == 0 {
            return Ok(());
        }
        self.advance_tails(&plan.touches)?;
        let written = self
            .reserve_sequences(self.extent.sequence + plan.records, home, commit)
            .and_then(|()| self.write_plan(group, plan, durable, home, commit));
        if let Err(error) = written {
            self.restore_tails();
            return Err(error);
        }
        let start = self.extent.position;
        self.extent.position += plan.bytes;
        self.extent.sequence += plan.records;
        self.active.grow(self.extent, |index| {
            let mut position = start;
            for batch in &plan.batches {
                let touches = &plan.touches[batch.touches.clone()];
                let header = &batch.header;
                index.add_batch(header.base_sequence, position, header.first_us, touches);
                position += header.bytes();
            }
        });
        commit.written(self.mark());
        Ok(())
    }

    /// Moves the partitions on by what a group has of them, and notes what they were.
    fn advance_tails(&mut self, touches: &[Touch]) -> Result<(), StoreError> {
        let home = self.active.base();
        self.undo.clear();
        for touch in touches {
            let next = touch.first_offset + u64::from(touch.count);
            let before = match self.tails.get_mut(&touch.partition) {
                Some(tail) if tail.next != touch.first_offset => {
                    self.restore_tails();
                    return Err(StoreError::InvalidGroup("a record is of another offset"));
                }
                Some(tail) => Some(std::mem::replace(tail, Tail { next, home, ..*tail })),
                None => {
                    let first = touch.first_offset;
                    self.tails.insert(touch.partition, Tail { first, next, home })
                }
            };
            self.undo.push((touch.partition, before));
        }
        Ok(())
    }

    fn restore_tails(&mut self) {
        for (partition, tail) in self.undo.drain(..).rev() {
            match tail {
                Some(tail) => self.tails.insert(partition, tail),
                None => self.tails.remove(&partition),
            };
        }
    }

    /// Where records may be seen before they are on the disk: notes durably that the sequences below
    /// `end` were given away, before they are.
    fn reserve_sequences(
        &mut self,
        end: u64,
        home: &Home,
        commit: &Commit,
    ) -> Result<(), StoreError> {
        if !home.options.gives_up_places() || end <= self.frontier || sabotaged("frontier") {
            return Ok(());
        }
        let frontier = end + FRONTIER_STEP;
        self.superblock
            .update(|state| State { frontier, ..state })
            .map_err(|error| poisoned(commit, "superblock", &error))?;
        self.frontier = frontier;
        Ok(())
    }

    fn write_plan(
        &mut self,
        group: &Group<'_>,
        plan: &Plan,
        durable: Mark,
        home: &Home,
        commit: &Commit,
    ) -> Result<(), StoreError> {
        let durable_pos = self.durable_pos(durable);
        let salt = self.active.header.salt;
        let encode = |batch: &Batch| BatchHeader { durable_pos, ..batch.header }.encode(salt);
        if let [batch] = &plan.batches[..]
            && plan.bytes <= SMALL as u64
        {
            let header = encode(batch);
            let mut bytes = ArrayVec::<u8, SMALL>::new();
            let slices = plan.slices.iter().map(|slice| slice.of(group));
            let mut parts = iter::once(&header[..]).chain(slices);
            if parts.try_for_each(|part| bytes.try_extend_from_slice(part)).is_ok() {
                return self.write(&[IoSlice::new(&bytes)], plan.bytes, home, commit);
            }
        }
        let headers: Vec<[u8; HEADER]> = plan.batches.iter().map(encode).collect();
        let mut bufs = Vec::with_capacity(headers.len() + plan.slices.len());
        for (batch, header) in plan.batches.iter().zip(&headers) {
            bufs.push(IoSlice::new(header));
            let slices = plan.slices[batch.slices.clone()].iter();
            bufs.extend(slices.map(|slice| IoSlice::new(slice.of(group))));
        }
        self.write(&bufs, plan.bytes, home, commit)
    }

    /// Position below which the segment was durable when all was up to `durable`; 0 if the one before
    /// was not.
    fn durable_pos(&self, durable: Mark) -> u64 {
        if durable.segment == self.active.base() { durable.position } else { 0 }
    }

    /// Appends a batch that has no records.
    pub(super) fn write_control(
        &mut self,
        kind: Kind,
        body: &[u8],
        home: &Home,
        commit: &Commit,
    ) -> Result<(), StoreError> {
        let salt = self.active.header.salt;
        let header = BatchHeader {
            kind,
            base_sequence: self.extent.sequence,
            body_len: body.len() as u32,
            record_count: 0,
            first_us: home.clock.unix_us(),
            max_delta_ms: 0,
            epoch: self.epoch,
            durable_pos: self.durable_pos(commit.marks().1),
            body_crc: checksum(salt, body),
        };
        let bytes = header.bytes();
        let position = self.extent.position;
        let encoded = header.encode(salt);
        self.write(&[IoSlice::new(&encoded), IoSlice::new(body)], bytes, home, commit)?;
        self.extent.position += bytes;
        self.extent.sealed = kind == Kind::Seal;
        self.active.grow(self.extent, |index| scan::add_to_index(index, &header, position, body));
        commit.written(self.mark());
        Ok(())
    }

    /// Writes down where the partitions are of which only segments below `low` tell it.
    pub(super) fn carry_tails(
        &mut self,
        low: u64,
        home: &Home,
        commit: &Commit,
    ) -> Result<(), StoreError> {
        let silent = self.tails.iter().filter(|(_, tail)| tail.home < low);
        let silent: Vec<(u32, u64)> = silent.map(|(&id, tail)| (id, tail.next)).collect();
        for tails in silent.chunks(MAX_TAILS) {
            let body = scan::encode_tails(tails.iter().copied());
            self.write_control(Kind::Tails, &body, home, commit)?;
            let active = self.active.base();
            for (partition, _) in tails {
                if let Some(tail) = self.tails.get_mut(partition) {
                    tail.home = active;
                }
            }
        }
        Ok(())
    }

    /// Notes where the partitions begin of which records were removed. Of all segments there were,
    /// `removed` and `kept` are the tables; `before` are the tails before these were read.
    pub(super) fn forget_removed(
        &mut self,
        removed: &[Vec<PartitionRow>],
        kept: &[Vec<PartitionRow>],
        before: &AHashMap<u32, Tail>,
    ) {
        let has_records = |row: &&PartitionRow| row.bytes > 0;
        let mut firsts: AHashMap<u32, Option<u64>> = AHashMap::new();
        firsts
            .extend(removed.iter().flatten().filter(has_records).map(|row| (row.partition, None)));
        for row in kept.iter().flatten().filter(has_records) {
            if let Some(first) = firsts.get_mut(&row.partition) {
                first.get_or_insert(row.first_offset);
            }
        }
        for (partition, first) in firsts {
            // Where none was kept, what has come since is what is there.
            let first = first.or_else(|| before.get(&partition).map(|tail| tail.next));
            if let (Some(tail), Some(first)) = (self.tails.get_mut(&partition), first) {
                tail.first = first;
            }
        }
    }

    /// Writes `bytes` at the end. If that fails, nothing of them stays.
    fn write(
        &mut self,
        bufs: &[IoSlice<'_>],
        bytes: u64,
        home: &Home,
        commit: &Commit,
    ) -> Result<(), StoreError> {
        let end = self.extent.position + bytes;
        self.make_room(end, &home.options)?;
        self.zero_ahead(end, &home.options).map_err(|error| self.take_back(error, commit))?;
        match write_sectors_at(&*self.file, bufs, self.extent.position) {
            Ok(()) => Ok(()),
            Err(WriteError::Write(error)) => Err(self.take_back(error, commit)),
            Err(WriteError::Sync(error)) => Err(poisoned(commit, "taking back a part", &error)),
        }
    }

    /// Reserves the disk's room up to `end`, and some more.
    fn make_room(&mut self, end: u64, options: &Options) -> Result<(), StoreError> {
        if end <= self.allocated {
            return Ok(());
        }
        let ahead = self.allocated.saturating_add(options.preallocate_bytes);
        let wanted = ahead.min(options.segment_bytes).max(end);
        let allocate = |to: u64| self.file.allocate(self.allocated, to - self.allocated);
        match allocate(wanted) {
            Err(error) if super::error::is_full(&error) && wanted > end => {
                allocate(end)?;
                self.allocated = end;
            }
            outcome => {
                outcome?;
                self.allocated = wanted;
            }
        }
        Ok(())
    }

    /// Writes zeros ahead of what ends at `end`, into room that was reserved.
    ///
    /// A page that was reserved and never written costs the file system more than the bytes do, and
    /// a sync has then to note that it was written; zeros that go ahead make one such page of many.
    /// For the scan of a segment they are what is there anyway.
    fn zero_ahead(&mut self, end: u64, options: &Options) -> io::Result<()> {
        if end <= self.zeroed {
            return Ok(());
        }
        let from = self.zeroed.max(self.extent.position);
        let to = (from + options.zeros_ahead()).min(self.allocated);
        // Of more than that, the pages are many in any case.
        if end < to {
            let zeros = &ZEROS[..(to - from) as usize];
            write_all_at(&*self.file, &mut [IoSlice::new(zeros)], from)?;
        }
        self.zeroed = to.max(end);
        Ok(())
    }

    /// Cuts off what a failed write may have left. Durably, since otherwise a crash could leave
    /// pieces of it in what is written there next.
    fn take_back(&mut self, error: io::Error, commit: &Commit) -> StoreError {
        let position = self.extent.position;
        let cut = self
            .file
            .set_len(position)
            .and_then(|()| if sabotaged("heal_sync") { Ok(()) } else { self.file.sync_data() });
        match cut {
            Ok(()) => {
                (self.allocated, self.zeroed) = (position, position);
                error.into()
            }
            Err(again) => poisoned(commit, "taking back a failed write", &again),
        }
    }

    /// Seals the active segment and begins the next one where it ends.
    pub(super) fn roll(
        &mut self,
        home: &Home,
        segments: &Segments,
        commit: &Commit,
    ) -> Result<(), StoreError> {
        if !self.extent.sealed {
            self.write_control(Kind::Seal, &[], home, commit)?;
            self.file
                .set_len(self.extent.position)
                .map_err(|error| poisoned(commit, "sealing a segment", &error))?;
            self.active.save_own_index(&*home.fs);
        }
        self.begin_segment(self.extent.sequence, home, segments)
    }

    /// Whether to make the file of the next segment, because this one is half full and little was
    /// appended to it since that was asked last. Says so once for each.
    pub(super) fn has_time(&mut self, options: &Options) -> bool {
        let position = self.extent.position;
        let appended = position - std::mem::replace(&mut self.asked_at, position);
        let is_due = position * 2 >= options.segment_bytes && appended * 4 < options.segment_bytes;
        is_due && !std::mem::replace(&mut self.is_next_made, true)
    }

    /// Begins a new segment at `base`, which is not below the end of the log.
    pub(super) fn begin_segment(
        &mut self,
        base: u64,
        home: &Home,
        segments: &Segments,
    ) -> Result<(), StoreError> {
        let Extent { sequence: end, damaged, .. } = self.extent;
        let gaps = self.active.header.gaps;
        let gaps = if damaged { gaps.and_damaged(base - end) } else { gaps.and(end..base) };
        let before = Before { end, gaps, damaged };
        let (segment, len) = create_segment(home, base, before, self.epoch)?;
        self.file = segment.file(&*home.fs)?;
        self.extent = segment.extent();
        (self.allocated, self.zeroed, self.asked_at) = (len, len, self.extent.position);
        self.is_next_made = false;
        self.active = Arc::new(segment);
        segments.push(Arc::clone(&self.active));
        Ok(())
    }
}

/// What a new segment says of what is before it.
pub(super) struct Before {
    pub(super) end: u64,
    pub(super) gaps: Gaps,
    pub(super) damaged: bool,
}

/// Makes a segment file; also says how long it is.
pub(super) fn create_segment(
    home: &Home,
    base: u64,
    before: Before,
    epoch: u32,
) -> Result<(Segment, u64), StoreError> {
    let header = SegmentHeader {
        id: home.id,
        shard: home.shard as u32,
        base,
        previous_end: before.end,
        gaps: before.gaps,
        after_damage: before.damaged,
        created_us: home.clock.unix_us(),
        epoch,
        salt: home.entropy.next() as u32,
    };
    Ok(Segment::create(&*home.fs, &home.dir, header, home.spare.take())?)
}

/// Poisons the log.
pub(super) fn poisoned(commit: &Commit, what: &str, error: &io::Error) -> StoreError {
    StoreError::Poisoned(commit.poison(&format!("{what}: {error}")))
}
