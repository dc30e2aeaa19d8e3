//! The segments of a shard, oldest first; the last one is being written.

use super::sabotage::sabotaged;
use super::segment::Segment;
use crate::fs::Fs;
use crate::sync::Mutex;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Sealed segments whose files and indexes stay open.
const OPEN: usize = 8;

#[derive(Debug)]
pub(crate) struct Segments(Mutex<Inside>);

#[derive(Debug)]
struct Inside {
    all: VecDeque<Arc<Segment>>,
    /// Base of the first one that may hold bytes that are not durable.
    first_unsynced: u64,
    /// Bases of sealed ones that are open, the last used at the end.
    open: VecDeque<u64>,
}

impl Segments {
    /// All are durable but those from `first_unsynced` on.
    pub(crate) fn new(all: VecDeque<Arc<Segment>>, first_unsynced: u64) -> Self {
        Self(Mutex::new(Inside { all, first_unsynced, open: VecDeque::new() }))
    }

    /// Appends one; the one before is sealed.
    pub(crate) fn push(&self, segment: Arc<Segment>) {
        self.lock().all.push_back(segment);
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Segment>> {
        self.lock().all.iter().cloned().collect()
    }

    /// Bytes that were written to them.
    pub(crate) fn bytes(&self) -> u64 {
        // Not under the lock: a segment may be read by somebody at the moment.
        self.all().iter().map(|segment| segment.extent().position).sum()
    }

    /// Those that begin at `base` or later.
    pub(crate) fn from(&self, base: u64) -> Vec<Arc<Segment>> {
        let inside = self.lock();
        let first = inside.all.partition_point(|segment| segment.base() < base);
        inside.all.range(first..).cloned().collect()
    }

    /// Sequence of the oldest record.
    pub(crate) fn low(&self) -> u64 {
        self.lock().all.front().map_or(0, |segment| segment.base())
    }

    /// The same, and how many sequences were given up in the life of the log.
    pub(crate) fn low_and_given_up(&self) -> (u64, u64) {
        let inside = self.lock();
        let low = inside.all.front().map_or(0, |segment| segment.base());
        (low, inside.all.back().map_or(0, |segment| segment.header.gaps.total()))
    }

    /// How many of `sequences` were given up, as far as that is known.
    pub(crate) fn given_up(&self, sequences: Range<u64>) -> u64 {
        self.lock().all.back().map_or(0, |segment| segment.header.gaps.within(sequences))
    }

    /// The one that has `sequence`, and the base of the next one.
    pub(crate) fn of(&self, sequence: u64) -> Option<(Arc<Segment>, Option<u64>)> {
        let mut inside = self.lock();
        let behind = inside.all.partition_point(|segment| segment.base() <= sequence);
        let segment = Arc::clone(inside.all.get(behind.checked_sub(1)?)?);
        let next = inside.all.get(behind).map(|segment| segment.base());
        if next.is_some() {
            inside.used(&segment);
        }
        Some((segment, next))
    }

    /// Notes that a sealed segment is in use, and closes the one that was longest not.
    pub(crate) fn used(&self, segment: &Segment) {
        self.lock().used(segment);
    }

    /// Syncs all that may need it, the oldest first. After a success they need it no more; the last
    /// one may be written to meanwhile.
    pub(crate) fn sync(&self, fs: &dyn Fs) -> io::Result<()> {
        let dirty: Vec<_> = {
            let inside = self.lock();
            let first = inside.first_unsynced;
            inside.all.iter().filter(|segment| segment.base() >= first).cloned().collect()
        };
        let skipped = if sabotaged("sealed_sync") { dirty.len() - 1 } else { 0 };
        for segment in &dirty[skipped..] {
            let file = segment.file(fs)?;
            if !sabotaged("sync") {
                file.sync_data()?;
            }
        }
        if let Some((last, synced)) = dirty.split_last() {
            let mut inside = self.lock();
            inside.first_unsynced = last.base();
            synced.iter().for_each(|segment| inside.used(segment));
        }
        Ok(())
    }

    /// Takes away those that are below `low`, the oldest first.
    pub(crate) fn remove_below(&self, low: u64) -> Vec<Arc<Segment>> {
        let mut inside = self.lock();
        let count = inside.all.iter().take_while(|segment| segment.base() < low).count();
        inside.all.drain(..count).collect()
    }

    fn lock(&self) -> impl std::ops::DerefMut<Target = Inside> + use<'_> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Inside {
    fn used(&mut self, segment: &Segment) {
        let base = segment.base();
        if base >= self.first_unsynced || self.open.back() == Some(&base) {
            return;
        }
        self.open.retain(|open| *open != base);
        self.open.push_back(base);
        if self.open.len() > OPEN
            && let Some(oldest) = self.open.pop_front()
            && let Ok(at) = self.all.binary_search_by_key(&oldest, |segment| segment.base())
        {
            self.all[at].close();
        }
    }
}
