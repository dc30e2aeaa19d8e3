//! From sequence to lease: a page of 4-byte slots for every 4096 sequences of which one is known.
//!
//! Only a window of the log is ever known, so a table beats hashing: neighbours in the log are
//! neighbours here, and a look-up touches one line.

use crate::prefetch;
use crate::slab::Slot;
use std::collections::VecDeque;

const PAGE: usize = 4096;
const NONE: Slot = Slot::MAX;

#[derive(Debug, Default)]
struct Page {
    slots: Option<Box<[Slot; PAGE]>>,
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
    spare: Option<Box<[Slot; PAGE]>>,
}

impl Index {
    /// Sequences that are known.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn get(&self, sequence: u64) -> Option<Slot> {
        let page = (sequence / PAGE as u64).checked_sub(self.base)?;
        let slots = self.pages.get(page as usize)?.slots.as_ref()?;
        let slot = slots[sequence as usize % PAGE];
        (slot != NONE).then_some(slot)
    }

    /// Fetches the line that tells of `sequence`.
    #[inline]
    pub(crate) fn fetch(&self, sequence: u64) {
        let page = (sequence / PAGE as u64).wrapping_sub(self.base) as usize;
        if let Some(Page { slots: Some(slots), .. }) = self.pages.get(page) {
            prefetch::for_write(&raw const slots[sequence as usize % PAGE] as usize);
        }
    }

    /// Notes a sequence that is not known, above all that were.
    pub(crate) fn insert(&mut self, sequence: u64, slot: Slot) {
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
        page.slots.get_or_insert_with(empty)[sequence as usize % PAGE] = slot;
        page.used += 1;
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, sequence: u64) -> Option<Slot> {
        let at = (sequence / PAGE as u64).checked_sub(self.base)? as usize;
        let page = self.pages.get_mut(at)?;
        let slot = std::mem::replace(&mut page.slots.as_mut()?[sequence as usize % PAGE], NONE);
        if slot == NONE {
            return None;
        }
        page.used -= 1;
        self.len -= 1;
        if page.used == 0 {
            self.spare = page.slots.take();
            while self.pages.front().is_some_and(|page| page.used == 0) {
                self.pages.pop_front();
                self.base += 1;
            }
        }
        Some(slot)
    }
}
