//! A frozen flat table: open addressing with linear probing, half full.
//!
//! The high bits of the key choose the slot, so entries lie in the order of their keys: a table is
//! made in one pass over sorted entries, and read in that order to make the next.

use crate::overlay::{Frozen, place};
use crate::pages::large_vec;
use crate::prefetch;

/// See the module's head.
pub(crate) struct Table<T> {
    /// As many as there are homes, those that the last entries were pushed on to, and an empty one
    /// that ends every search.
    slots: Vec<Slot<T>>,
    homes: usize,
    /// Eight bits a home, that is, 16 an entry: set where an entry's key would lie in slots that
    /// much finer.
    filter: Vec<u64>,
    len: usize,
}

struct Slot<T> {
    key: u64,
    value: Option<T>,
}

const FILTER_BITS_PER_HOME: usize = 8;
/// Room behind the last home, which is rarely too little.
const BEHIND: usize = 62;

/// Makes a [`Table`], entry by entry in the order of their keys, which all differ.
pub(crate) struct Builder<T>(Table<T>);

impl<T> Builder<T> {
    /// For about `len` entries.
    pub(crate) fn new(len: usize) -> Self {
        let homes = len * 2 + 1;
        let words = (homes * FILTER_BITS_PER_HOME).div_ceil(64);
        let mut filter = large_vec(words);
        filter.resize(words, 0);
        Self(Table { slots: large_vec(homes + BEHIND), homes, filter, len: 0 })
    }

    #[inline]
    pub(crate) fn push(&mut self, key: u64, value: T) {
        let Table { slots, homes, filter, len } = &mut self.0;
        let home = place(key, *homes);
        while slots.len() < home {
            slots.push(Slot { key: 0, value: None });
        }
        slots.push(Slot { key, value: Some(value) });
        let bit = place(key, filter.len() * 64);
        filter[bit / 64] |= 1 << (bit % 64);
        *len += 1;
    }

    pub(crate) fn finish(self) -> Table<T> {
        let Self(mut table) = self;
        while table.slots.len() < table.homes {
            table.slots.push(Slot { key: 0, value: None });
        }
        table.slots.push(Slot { key: 0, value: None });
        table
    }
}

impl<T> Table<T> {
    /// A table of about `len` entries, in the order of their keys, all different.
    pub(crate) fn of_sorted(len: usize, entries: impl IntoIterator<Item = (u64, T)>) -> Self {
        let mut builder = Builder::new(len);
        entries.into_iter().for_each(|(key, value)| builder.push(key, value));
        builder.finish()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(crate) fn may_have(&self, key: u64) -> bool {
        let bit = place(key, self.filter.len() * 64);
        (self.filter[bit / 64] >> (bit % 64)) & 1 != 0
    }

    #[inline(always)]
    pub(crate) fn get(&self, key: u64) -> Option<&T> {
        let mut at = place(key, self.homes);
        loop {
            let slot = &self.slots[at];
            if slot.key == key || slot.value.is_none() {
                return slot.value.as_ref();
            }
            at += 1;
        }
    }

    #[inline(always)]
    pub(crate) fn fetch(&self, key: u64) {
        prefetch::for_read((&raw const self.slots[place(key, self.homes)]).expose_provenance());
    }

    /// The entries in the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.slots.iter().filter_map(|slot| Some((slot.key, slot.value.as_ref()?)))
    }
}

/// The entries of two sorted sequences by key; where both have one, that of `changes` counts.
pub(crate) fn merge_sorted<T>(
    base: impl Iterator<Item = (u64, T)>,
    changes: impl Iterator<Item = (u64, Option<T>)>,
) -> impl Iterator<Item = (u64, T)> {
    let (mut base, mut changes) = (base.peekable(), changes.peekable());
    std::iter::from_fn(move || {
        loop {
            let change = changes.peek().map(|(key, _)| *key);
            match (base.peek().map(|(key, _)| *key), change) {
                (Some(key), Some(change)) if key == change => drop(base.next()),
                (Some(key), Some(change)) if change < key => {}
                (None, Some(_)) => {}
                (_, _) => return base.next(),
            }
            if let Some((key, Some(value))) = changes.next() {
                return Some((key, value));
            }
        }
    })
}

impl<T: Copy + Eq> Frozen for Table<T> {
    type Value = T;
    type Found<'t>
        = &'t T
    where
        T: 't;

    fn len(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<&T> {
        self.get(key)
    }

    #[inline(always)]
    fn may_have(&self, key: u64) -> bool {
        self.may_have(key)
    }

    #[inline(always)]
    fn fetch(&self, key: u64) {
        self.fetch(key);
    }

    fn found(value: &T) -> &T {
        value
    }

    fn to_value(found: &T) -> T {
        *found
    }

    fn is_same(found: &T, value: &T) -> bool {
        found == value
    }

    fn merged(&self, changes: Vec<(u64, Option<T>)>) -> Self {
        let len = self.len + changes.len();
        let base = self.iter().map(|(key, value)| (key, *value));
        Self::of_sorted(len, merge_sorted(base, changes.into_iter()))
    }
}
