//! From sequence to what is known of a message that was taken and is not settled: a page of 4-byte
//! entries for every 1024 sequences of which one is known.
//!
//! Only a window of the log is ever known, so a table beats hashing: neighbours in the log are
//! neighbours here, and a look-up touches one line. What was taken and is not known is settled, so
//! this is also the set of what is settled in the window.

use crate::prefetch;
use crate::slab::Slot;
use std::collections::VecDeque;
use std::iter;

const PAGE: usize = 1024;

/// An entry: a slot of the slab, or one of these, which are none.
type Entry = u32;
/// Nothing is known.
const NONE: Entry = Entry::MAX;
const FRESH: Entry = Entry::MAX - 1;

/// What is known of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// It has been leased once, as all were, and nothing has happened since.
    Fresh,
    /// All else is in the slab.
    At(Slot),
}

impl Known {
    fn read(entry: Entry) -> Option<Self> {
        match entry {
            NONE => None,
            FRESH => Some(Self::Fresh),
            slot => Some(Self::At(slot)),
        }
    }

    fn entry(self) -> Entry {
        match self {
            Self::Fresh => FRESH,
            Self::At(slot) => slot,
        }
    }
}

#[derive(Debug, Default)]
struct Page {
    entries: Option<Box<[Entry; PAGE]>>,
    used: u32,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Number of the first page.
    base: u64,
    pages: VecDeque<Page>,
    len: usize,
    /// An empty page, to be used again.
    spare: Option<Box<[Entry; PAGE]>>,
}

impl Index {
    /// Sequences that are known.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn get(&self, sequence: u64) -> Option<Known> {
        let page = (sequence / PAGE as u64).checked_sub(self.base)?;
        let entries = self.pages.get(page as usize)?.entries.as_ref()?;
        Known::read(entries[sequence as usize % PAGE])
    }

    /// Fetches the line that tells of `sequence`.
    #[inline]
    pub(crate) fn fetch(&self, sequence: u64) {
        let page = (sequence / PAGE as u64).wrapping_sub(self.base) as usize;
        if let Some(Page { entries: Some(entries), .. }) = self.pages.get(page) {
            prefetch::for_write(&raw const entries[sequence as usize % PAGE] as usize);
        }
    }

    /// Notes a sequence that is not known, above all that were.
    #[inline]
    pub(crate) fn insert(&mut self, sequence: u64, known: Known) {
        let number = sequence / PAGE as u64;
        if self.pages.is_empty() {
            self.base = number;
        }
        debug_assert!(number >= self.base, "sequences come in order");
        let at = (number - self.base) as usize;
        if at >= self.pages.len() {
            self.pages.resize_with(at + 1, Page::default);
        }
        let page = &mut self.pages[at];
        let empty = || self.spare.take().unwrap_or_else(|| Box::new([NONE; PAGE]));
        let entries = page.entries.get_or_insert_with(empty);
        entries[sequence as usize % PAGE] = known.entry();
        page.used += 1;
        self.len += 1;
    }

    /// Notes something else of a sequence that is known.
    pub(crate) fn set(&mut self, sequence: u64, known: Known) {
        let page = (sequence / PAGE as u64 - self.base) as usize;
        if let Some(entries) = &mut self.pages[page].entries {
            debug_assert_ne!(entries[sequence as usize % PAGE], NONE, "it is known");
            entries[sequence as usize % PAGE] = known.entry();
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, sequence: u64) -> Option<Known> {
        let at = (sequence / PAGE as u64).checked_sub(self.base)? as usize;
        let page = self.pages.get_mut(at)?;
        let entries = page.entries.as_mut()?;
        let known = Known::read(std::mem::replace(&mut entries[sequence as usize % PAGE], NONE))?;
        page.used -= 1;
        self.len -= 1;
        if page.used == 0 {
            self.spare = page.entries.take();
            while self.pages.front().is_some_and(|page| page.used == 0) {
                self.pages.pop_front();
                self.base += 1;
            }
        }
        Some(known)
    }

    /// The first sequence from `from` on that is known. A step for each sequence between at most,
    /// and one for each page of which none is.
    pub(crate) fn first_known(&self, from: u64) -> Option<u64> {
        self.first(from, |entry| entry != NONE)
    }

    /// The same for those that are fresh.
    pub(crate) fn first_fresh(&self, from: u64) -> Option<u64> {
        self.first(from, |entry| entry == FRESH)
    }

    #[inline]
    fn first(&self, from: u64, is_wanted: impl Fn(Entry) -> bool) -> Option<u64> {
        let from = from.max(self.base * PAGE as u64);
        let at = (from / PAGE as u64 - self.base) as usize;
        let mut start = from as usize % PAGE;
        for (number, page) in iter::zip(self.base + at as u64.., self.pages.iter().skip(at)) {
            if let Some(entries) = &page.entries
                && let Some(place) = entries[start..].iter().position(|&entry| is_wanted(entry))
            {
                return Some(number * PAGE as u64 + (start + place) as u64);
            }
            start = 0;
        }
        None
    }

    /// All that is known, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Known)> {
        let pages = iter::zip(self.base.., &self.pages);
        let pages = pages.filter_map(|(number, page)| Some((number, page.entries.as_ref()?)));
        pages.flat_map(|(number, entries)| {
            let sequences = number * PAGE as u64..;
            let known = iter::zip(sequences, entries.iter());
            known.filter_map(|(sequence, &entry)| Some((sequence, Known::read(entry)?)))
        })
    }
}
