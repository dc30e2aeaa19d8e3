//! Opening a shard's log: what is there, what of it counts, and where it goes on.
//!
//! The rules, in the order in which they apply:
//!
//! - Nothing is decided on bytes that a dead process left in memory alone: files are synced and
//!   dropped from the cache before they are read.
//! - Only the last segment can have a torn end, and those before it back to the first that is known
//!   to have been durable: each batch says how far the file was durable when it was made, and
//!   says 0 while not even the file before it was.
//! - What does not verify below the durable position, or has no hole that a torn write would have,
//!   is damage: it stays as it is. The rest is a torn end: it is copied aside and cut off, with all
//!   that follows it, also if that verifies.
//! - Sequences and offsets that may have been seen and are lost are given up, not given out again.
//!   After a mere kill that is at most what the operating system has in memory: where that ends is
//!   written down before it is dropped. So nothing is given up, unless a failed sync has left bytes
//!   that are in memory alone.
//!
//! A crash at any step leaves what the next attempt treats the same.

use super::batch::Kind;
use super::commit::{Commit, Mark};
use super::error::{Damage, StoreError, unsynced};
use super::gaps::Gaps;
use super::options::OnDamage;
use super::plan::Plan;
use super::sabotage::sabotaged;
use super::scan::{self, Scan, Stop};
use super::segment::{
    BadHeader, Extent, FIRST_BATCH, SEGMENT_HEADER, Segment, SegmentHeader, base_of_digits,
    base_of_name, index_path, log_path, torn_of_name, torn_path,
};
use super::segments::Segments;
use super::superblock::{FRONTIER_STEP, SharedSuperblock, State, Superblock};
use super::writer::{Before, Home, Tail, Writer, create_segment};
use crate::fs::{FsFile, OpenHow, read_full_at, write_all_at};
use crate::message::RECORD_HEADER;
use ahash::AHashMap;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

/// What opening a shard found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Whether the shard had been closed in order.
    pub clean: bool,
    /// Bytes of a torn end that were cut off, and kept beside the log.
    pub torn_bytes: u64,
    /// Sequences that were given up, because records under them may have been seen and are lost.
    pub given_up: u64,
    /// What is damaged among the newest records. Older ones are looked at when they are read.
    pub damage: Option<Damage>,
}

/// A shard's log, ready for use.
pub(crate) struct Opened {
    pub(crate) writer: Writer,
    pub(crate) segments: Segments,
    pub(crate) commit: Commit,
    pub(crate) report: Recovery,
}

/// A segment that may have a torn end.
struct Scanned {
    file: Arc<dyn FsFile>,
    scan: Scan,
    /// Nothing below this can be torn.
    durable: u64,
}

/// Opens the log, or makes it.
pub(crate) fn open(home: &Home) -> Result<Opened, StoreError> {
    let (fs, dir) = (&*home.fs, &*home.dir);
    if home.is_new {
        match fs.create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            outcome => outcome?,
        }
    }
    fs.sync_dir(Path::new(""))?;
    match fs.sync_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(damaged_file(home, "", 0));
        }
        outcome => outcome?,
    }
    let mut bases = list(home)?;
    let superblock = match Superblock::open(fs, dir, home.id, home.shard as u32) {
        Ok(Some(superblock)) => superblock,
        Ok(None) if bases.is_empty() && home.is_new => {
            Superblock::create(fs, dir, home.id, home.shard as u32)?
        }
        Ok(None) => return Err(damaged_file(home, "superblock", 0)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(damaged_file(home, "superblock", 0));
        }
        Err(error) => return Err(unsynced(error)),
    };
    let state = superblock.state();
    remove_expired(home, &mut bases, state.low)?;
    if bases.first().is_none_or(|&first| first > state.low && !superblock.is_doubtful())
        && state.checkpoint != (0, 0)
    {
        return Err(damaged_file(home, "", state.low));
    }
    let mut recovery = Attempt { home, superblock, headers: vec![], scanned: VecDeque::new() };
    recovery.read_headers(&bases)?;
    if !state.clean && state.frontier > 0 {
        recovery.note_end()?;
    }
    recovery.scan_back()?;
    recovery.finish()
}

/// Bases of the segments, in order. Takes away files that never got a name that counts, indexes
/// without a segment, and the oldest of the ends that were cut off.
fn list(home: &Home) -> Result<Vec<u64>, StoreError> {
    /// Ends that were cut off and stay, for who wants to look at them.
    const TORN: usize = 8;
    let (mut bases, mut indexes, mut torn) = (vec![], vec![], vec![]);
    for entry in home.fs.list(&home.dir)? {
        let name = entry.name.to_string_lossy();
        if let Some(base) = base_of_name(&name) {
            bases.push(base);
        } else if name.ends_with(".log.tmp") || name == "superblock.tmp" {
            home.fs.remove(&home.dir.join(&*name))?;
        } else if let Some(base) = name.strip_suffix(".idx").and_then(base_of_digits) {
            indexes.push(base);
        } else if let Some(of) = torn_of_name(&name) {
            torn.push(of);
        }
    }
    bases.sort_unstable();
    indexes.retain(|base| bases.binary_search(base).is_err());
    torn.sort_unstable();
    torn.truncate(torn.len().saturating_sub(TORN));
    let indexes = indexes.into_iter().map(|base| index_path(&home.dir, base));
    let torn = torn.into_iter().map(|(epoch, base)| torn_path(&home.dir, base, epoch));
    for path in indexes.chain(torn) {
        // It will be tried again.
        let _ = home.fs.remove(&path);
    }
    Ok(bases)
}

/// Ends a removal that a crash interrupted.
fn remove_expired(home: &Home, bases: &mut Vec<u64>, low: u64) -> Result<(), StoreError> {
    let expired = bases.iter().take_while(|&&base| base < low).count();
    for base in bases.drain(..expired) {
        let path = log_path(&home.dir, base);
        home.fs.remove(&path)?;
        let _ = home.fs.remove(&index_path(&home.dir, base));
    }
    if expired > 0 {
        home.fs.sync_dir(&home.dir)?;
    }
    Ok(())
}

fn damaged_file(home: &Home, name: &str, from: u64) -> StoreError {
    damage(home, &home.dir.join(name), 0, from, None).into()
}

fn damage(home: &Home, path: &Path, position: u64, from: u64, resume: Option<u64>) -> Damage {
    let file = path.to_string_lossy().into_owned();
    Damage { shard: home.shard, file, position, from, resume }
}

struct Attempt<'a> {
    home: &'a Home,
    superblock: Superblock,
    /// Of all segments.
    headers: Vec<(SegmentHeader, u64)>,
    /// The last ones of them.
    scanned: VecDeque<Scanned>,
}

impl Attempt<'_> {
    fn read_headers(&mut self, bases: &[u64]) -> Result<(), StoreError> {
        let home = self.home;
        for &base in bases {
            let path = log_path(&home.dir, base);
            let file = home.fs.open(&path, OpenHow::Read)?;
            let mut page = vec![0; SEGMENT_HEADER];
            let read = read_full_at(&*file, &mut page, 0)?;
            let header = match SegmentHeader::decode(&page[..read]) {
                Ok(header) => header,
                Err(BadHeader::Damaged) => {
                    return Err(damage(home, &path, 0, base, None).into());
                }
                Err(BadHeader::Unknown(why)) => return Err(StoreError::Incompatible(why.into())),
            };
            if (header.id, header.shard as usize, header.base) != (home.id, home.shard, base) {
                let why = format!("{} is a file of another log", path.display());
                return Err(StoreError::Incompatible(why.into()));
            }
            self.headers.push((header, file.len()?));
        }
        Ok(())
    }

    /// In the boot in which the log was open, the operating system still has what it was given:
    /// notes durably where that ends. No sequence behind it was given away.
    fn note_end(&mut self) -> Result<(), StoreError> {
        let home = self.home;
        let state = self.superblock.state();
        if state.boot == 0 || state.boot != home.options.boot {
            return Ok(());
        }
        let mut frontier = state.frontier;
        if let Some((header, _)) = self.headers.last() {
            let file = home.fs.open(&log_path(&home.dir, header.base), OpenHow::Read)?;
            let scan = scan::segment(&*file, header)?;
            if scan.stop != Stop::Changed {
                frontier = frontier.min(scan.last_sequence);
            }
        }
        self.superblock.store(State { boot: 0, frontier, ..state }).map_err(unsynced)
    }

    /// Scans from the last segment back to the first one that is known to have been durable up to
    /// some place in it.
    fn scan_back(&mut self) -> Result<(), StoreError> {
        let state = self.superblock.state();
        for (header, _) in self.headers.iter().rev() {
            let path = log_path(&self.home.dir, header.base);
            let file: Arc<dyn FsFile> = Arc::from(self.home.fs.open(&path, OpenHow::ReadWrite)?);
            if !state.clean {
                if !sabotaged("recovery_sync") {
                    file.sync_data().map_err(unsynced)?;
                }
                if !sabotaged("recovery_drop_cache") {
                    file.drop_cache()?;
                }
            }
            let scan = scan::segment(&*file, header)?;
            let (checkpoint, position) = state.checkpoint;
            let durable = match checkpoint.cmp(&header.base) {
                std::cmp::Ordering::Less => scan.durable_pos,
                std::cmp::Ordering::Equal => scan.durable_pos.max(position),
                std::cmp::Ordering::Greater => u64::MAX,
            };
            let durable = if sabotaged("watermark") { FIRST_BATCH } else { durable };
            self.scanned.push_front(Scanned { file, scan, durable });
            if durable >= FIRST_BATCH {
                break;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Opened, StoreError> {
        let state = self.superblock.state();
        let mut report = Recovery { clean: state.clean, ..Recovery::default() };
        self.judge(&mut report)?;
        let all = self.segments();
        let end = all.last().map_or(0, |segment| segment.extent().sequence);
        let next = self.next_sequence(end, &mut report);
        let tails = self.tails(&all, next - end)?;
        let is_new = all.is_empty();
        let last = match all.last() {
            Some(last) => Arc::clone(last),
            None => {
                if let Some(bytes) = self.home.options.spare_bytes()
                    && let Some(made) = self.home.make_spare(bytes, &|| true)?
                {
                    self.home.spare.put(&*self.home.fs, made);
                }
                let gaps = Gaps::default().and(end..next);
                let before = Before { end, gaps, damaged: false };
                Arc::new(create_segment(self.home, next, before, state.epoch + 1)?.0)
            }
        };
        let file = match self.scanned.back() {
            Some(scanned) => Arc::clone(&scanned.file),
            None => last.file(&*self.home.fs)?,
        };
        let mut all = VecDeque::from(all);
        if is_new {
            all.push_back(Arc::clone(&last));
        }
        let first_unsynced =
            all.len().checked_sub(self.scanned.len().max(1)).map_or(0, |first| all[first].base());
        let segments = Segments::new(all, first_unsynced);
        let superblock = SharedSuperblock::new(self.superblock);
        let mut writer = Writer {
            extent: last.extent(),
            allocated: file.len()?,
            // What of one that was here nobody knows.
            zeroed: if is_new { file.len()? } else { last.extent().position },
            active: last,
            file,
            tails,
            superblock,
            epoch: state.epoch + 1,
            frontier: state.frontier,
            refusal: None,
            asked_at: FIRST_BATCH,
            is_next_made: false,
            plan: Plan::default(),
            undo: vec![],
        };
        // No waiter knows of it yet.
        let commit = Commit::new(Mark::default());
        let is_damaged = self.scanned.back().is_some_and(is_damaged);
        if is_damaged && self.home.options.on_damage == OnDamage::Refuse {
            writer.refusal = report.damage.clone().map(StoreError::from);
            let commit = Commit::new(writer.mark());
            return Ok(Opened { writer, segments, commit, report });
        }
        if is_damaged {
            writer.begin_segment(next, self.home, &segments)?;
        } else if writer.extent.sealed || next > end {
            if !writer.extent.sealed {
                writer.write_control(Kind::Seal, &[], self.home, &commit)?;
                writer.file.set_len(writer.extent.position)?;
                writer.active.save_own_index(&*self.home.fs);
            }
            writer.begin_segment(next, self.home, &segments)?;
        }
        if !is_damaged {
            segments.sync(&*self.home.fs).map_err(unsynced)?;
        }
        let mark = writer.mark();
        let gives_up_places = self.home.options.gives_up_places();
        let frontier = if gives_up_places { next + FRONTIER_STEP } else { 0 };
        writer.frontier = frontier;
        let noted = writer.superblock.update(|state| State {
            epoch: state.epoch + 1,
            clean: false,
            boot: self.home.options.boot,
            frontier,
            checkpoint: (mark.segment, mark.position),
            ..state
        });
        noted.map_err(unsynced)?;
        Ok(Opened { writer, segments, commit: Commit::new(mark), report })
    }

    /// Tells torn ends from damage, and cuts a torn end off.
    fn judge(&mut self, report: &mut Recovery) -> Result<(), StoreError> {
        let first = self.headers.len() - self.scanned.len();
        for at in 0..self.scanned.len() {
            let is_last = at + 1 == self.scanned.len();
            let Scanned { scan, durable, .. } = &self.scanned[at];
            let is_torn = match scan.stop {
                Stop::Sealed => {
                    let is_whole = match self.headers.get(first + at + 1) {
                        Some((next, _)) => next.previous_end == scan.sequence,
                        // There was a later one, if it is known to have been durable.
                        None => scan.position >= *durable,
                    };
                    if !is_whole {
                        self.note_damage(at, report);
                    }
                    continue;
                }
                Stop::End if is_last && scan.position >= *durable => continue,
                Stop::End | Stop::Torn => scan.position >= *durable,
                Stop::Changed => sabotaged("evidence"),
            };
            if is_torn {
                return self.cut(at, report);
            }
            self.note_damage(at, report);
        }
        Ok(())
    }

    fn note_damage(&mut self, at: usize, report: &mut Recovery) {
        let first = self.headers.len() - self.scanned.len();
        let (header, _) = self.headers[first + at];
        let scan = &self.scanned[at].scan;
        let next = self.headers.get(first + at + 1).map(|(next, _)| next.base);
        let path = log_path(&self.home.dir, header.base);
        let found = damage(self.home, &path, scan.position, scan.sequence, next);
        tracing::error!(target: "slipring", "{found}");
        report.damage.get_or_insert(found);
        self.scanned[at].scan.stop = Stop::Changed;
    }

    /// Cuts a torn end off the segment `at`, and takes the later ones away, whose records were
    /// never durable either: the last one first, so that what stays is always without a gap.
    fn cut(&mut self, at: usize, report: &mut Recovery) -> Result<(), StoreError> {
        let home = self.home;
        let epoch = self.superblock.state().epoch + 1;
        let aside = |base: u64| torn_path(&home.dir, base, epoch);
        while self.scanned.len() > at + 1 {
            let dropped = self.scanned.pop_back().expect("more than one");
            let (header, _) = self.headers.pop().expect("as many as were scanned");
            let path = log_path(&home.dir, header.base);
            home.fs.rename(&path, &aside(header.base))?;
            home.fs.sync_dir(&home.dir)?;
            let _ = home.fs.remove(&index_path(&home.dir, header.base));
            report.torn_bytes += dropped.scan.position - FIRST_BATCH;
        }
        let (header, file_len) = self.headers.last_mut().expect("there is one that is torn");
        let Scanned { file, scan, .. } = &mut self.scanned[at];
        let len = scan::end_of_bytes(&**file, scan.position, scan.file_len)? - scan.position;
        if len > 0 {
            report.torn_bytes += len;
            match keep_aside(home, &aside(header.base), &**file, scan.position, len) {
                // It was never acknowledged: a full disk must not keep the log from opening.
                Err(error) if super::error::is_full(&error) => {}
                outcome => outcome?,
            }
        }
        tracing::warn!(
            target: "slipring", shard = home.shard, bytes = len,
            "cut off the end of the log, which was being written when the machine stopped"
        );
        file.set_len(scan.position)?;
        file.sync_data().map_err(unsynced)?;
        (scan.stop, scan.file_len, *file_len) = (Stop::End, scan.position, scan.position);
        Ok(())
    }

    /// The segments that are there, as far as they were written.
    fn segments(&self) -> Vec<Arc<Segment>> {
        let first = self.headers.len() - self.scanned.len();
        let next = |at: usize| self.headers.get(at + 1).map(|(next, _)| next);
        let segment = |at: usize| {
            let (header, file_len) = self.headers[at];
            let path = log_path(&self.home.dir, header.base);
            let Some(scanned) = at.checked_sub(first).map(|at| &self.scanned[at]) else {
                let next = next(at);
                let extent = Extent {
                    position: file_len,
                    sequence: next.map_or(header.base, |next| next.previous_end),
                    sealed: true,
                    damaged: next.is_some_and(|next| next.after_damage),
                };
                return Segment::new(header, path, extent, None);
            };
            let scan = &scanned.scan;
            let damaged = is_damaged(scanned);
            let (position, sequence) = match (damaged, next(at)) {
                (false, _) => (scan.position, scan.sequence),
                (true, Some(next)) => (scan.file_len, next.previous_end),
                (true, None) => (scan.file_len, scan.sequence),
            };
            let sealed = scan.stop != Stop::End;
            let extent = Extent { position, sequence, sealed, damaged };
            let open = (Arc::clone(&scanned.file), scan.index.clone());
            Segment::new(header, path, extent, (!damaged).then_some(open))
        };
        (0..self.headers.len()).map(|at| Arc::new(segment(at))).collect()
    }

    /// Where the log goes on: not at a sequence that may have been seen.
    fn next_sequence(&self, end: u64, report: &mut Recovery) -> u64 {
        let state = self.superblock.state();
        let mut next = end.max(state.low);
        if !state.clean {
            next = next.max(state.frontier);
        }
        if let Some(scanned) = self.scanned.back().filter(|scanned| is_damaged(scanned)) {
            let scan = &scanned.scan;
            let most = (scan.file_len - scan.position) / RECORD_HEADER as u64 + 1;
            let (base, position) = state.checkpoint;
            next = next.max(scan.last_sequence + most).max(state.frontier);
            next = next.max(base + position / RECORD_HEADER as u64);
        }
        if sabotaged("give_up") {
            next = end;
        }
        report.given_up = next - end;
        next
    }

    /// How far each partition has come, with what was given up behind its last record.
    fn tails(
        &self,
        all: &[Arc<Segment>],
        given_up: u64,
    ) -> Result<AHashMap<u32, Tail>, StoreError> {
        let mut tails: AHashMap<u32, Found> = AHashMap::new();
        for segment in all {
            let (home, gaps) = (segment.base(), segment.header.gaps.total());
            for row in segment.read_table(&*self.home.fs)? {
                let first = (row.bytes > 0).then_some(row.first_offset);
                let known = tails.get(&row.partition).and_then(|found| found.first);
                let found = Found { first: known.or(first), next: row.next_offset, home, gaps };
                tails.insert(row.partition, found);
            }
        }
        let gaps = all.last().map_or(0, |last| last.header.gaps.total()) + given_up;
        let settled = tails.into_iter().map(|(partition, found)| {
            let next = found.next + (gaps - found.gaps);
            (partition, Tail { first: found.first.unwrap_or(next), next, home: found.home })
        });
        Ok(settled.collect())
    }
}

/// What the segments say of a partition.
struct Found {
    first: Option<u64>,
    next: u64,
    home: u64,
    /// Sequences that had been given up when the segment that says so was made.
    gaps: u64,
}

fn is_damaged(scanned: &Scanned) -> bool {
    scanned.scan.stop == Stop::Changed
}

/// Copies `len` bytes of a file from `from` on to a file of their own.
fn keep_aside(home: &Home, path: &Path, of: &dyn FsFile, from: u64, len: u64) -> io::Result<()> {
    /// At once: a torn end can be as long as a segment.
    const PIECE: u64 = 1 << 20;
    let file = match home.fs.open(path, OpenHow::CreateNew) {
        // Of an attempt that was interrupted before it cut the end off.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            home.fs.remove(path)?;
            home.fs.open(path, OpenHow::CreateNew)?
        }
        outcome => outcome?,
    };
    let mut piece = vec![0; len.min(PIECE) as usize];
    let mut done = 0;
    while done < len {
        let piece = &mut piece[..(len - done).min(PIECE) as usize];
        let read = read_full_at(of, piece, from + done)?;
        write_all_at(&*file, &mut [IoSlice::new(&piece[..read])], done)?;
        if read < piece.len() {
            break;
        }
        done += read as u64;
    }
    file.sync_data()?;
    home.fs.sync_dir(&home.dir)
}

impl From<Damage> for StoreError {
    fn from(damage: Damage) -> Self {
        Self::Damaged(Arc::new(damage))
    }
}
