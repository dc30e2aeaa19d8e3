//! A map that is cheap to read, cheap to change one entry of, and never changes under a reader: a
//! frozen table below a small persistent tree of changes.
//!
//! Keys are 64-bit hashes that are already well mixed; two things with one key are the caller's
//! business. A lookup asks the changes (usually none) and then the table. [`Overlay::set`] copies
//! one path of the tree, whatever the size of the table; [`Overlay::merge`] makes a new table of
//! both, away from readers and writers, and [`Overlay::rebase`] moves the changes made meanwhile on
//! top of it.

use std::fmt;
use std::sync::Arc; // immutable data only: who reads it got it through a Snapshot

use crate::sync::{AtomicU64, Ordering};
use crate::tree::Tree;

/// A frozen table of what an overlay holds.
pub(crate) trait Frozen: Sized {
    /// What a change holds: cheap to clone.
    type Value: Clone;
    /// What a lookup finds.
    type Found<'t>: Copy
    where
        Self: 't;

    /// How many entries there are.
    fn len(&self) -> usize;

    fn get(&self, key: u64) -> Option<Self::Found<'_>>;

    /// Whether there may be an entry: wrong once in sixteen, and mostly answered from the cache.
    fn may_have(&self, key: u64) -> bool;

    /// Begins to fetch what [`Frozen::get`] looks at first.
    fn fetch(&self, key: u64);

    /// What a lookup finds where `value` is a change.
    fn found(value: &Self::Value) -> Self::Found<'_>;

    /// What was found, for a change to hold.
    fn to_value(found: Self::Found<'_>) -> Self::Value;

    /// Whether what was found is `value`; saying no too often costs memory and nothing else.
    fn is_same(found: Self::Found<'_>, value: &Self::Value) -> bool;

    /// A table of this one's entries and `changes`, sorted by key, of which `None` removes one.
    fn merged(&self, changes: Vec<(u64, Option<Self::Value>)>) -> Self;
}

/// See the module's head.
pub(crate) struct Overlay<F: Frozen> {
    base: Arc<F>,
    /// Whatever differs from the base; `None` hides an entry of the base.
    changes: Tree<Option<F::Value>>,
    filter: ChangeFilter,
}

impl<F: Frozen> Clone for Overlay<F> {
    fn clone(&self) -> Self {
        Self {
            base: Arc::clone(&self.base),
            changes: self.changes.clone(),
            filter: self.filter.clone(),
        }
    }
}

impl<F: Frozen> Overlay<F> {
    /// What `base` has.
    pub(crate) fn new(base: Arc<F>) -> Self {
        Self { base, changes: Tree::new(), filter: ChangeFilter::new(0) }
    }

    #[inline(always)]
    pub(crate) fn get(&self, key: u64) -> Option<F::Found<'_>> {
        if self.changes.is_empty() { self.base.get(key) } else { self.get_changed(key) }
    }

    /// Whether there may be an entry: wrong once in sixteen, and mostly answered from the cache
    /// where [`Overlay::get`] is not.
    #[inline(always)]
    pub(crate) fn may_have(&self, key: u64) -> bool {
        self.base.may_have(key) || (!self.changes.is_empty() && self.filter.may_have(key))
    }

    /// Begins to fetch what [`Overlay::get`] will look at: a few lookups that do so first wait for
    /// memory at the same time.
    #[inline(always)]
    pub(crate) fn fetch(&self, key: u64) {
        self.base.fetch(key);
    }

    fn get_changed(&self, key: u64) -> Option<F::Found<'_>> {
        if self.filter.may_have(key)
            && let Some(change) = self.changes.get(key)
        {
            return change.as_ref().map(F::found);
        }
        self.base.get(key)
    }

    /// Sets or (`None`) removes an entry; clones made before do not see it.
    pub(crate) fn set(&mut self, key: u64, value: Option<F::Value>) {
        let is_undone = match (self.base.get(key), &value) {
            (None, None) => true,
            (Some(found), Some(value)) => F::is_same(found, value),
            _ => false,
        };
        if is_undone {
            self.changes.remove(key);
        } else {
            self.changes.insert(key, value);
            self.filter.note(key, &self.changes);
        }
    }

    /// A table of everything: O(table), for a background thread.
    pub(crate) fn merge(&self) -> Arc<F> {
        if self.changes.is_empty() {
            return Arc::clone(&self.base);
        }
        let mut changes = Vec::with_capacity(self.changes.len());
        self.changes.for_each(&mut |key, change| changes.push((key, change.clone())));
        changes.sort_unstable_by_key(|(key, _)| *key);
        Arc::new(self.base.merged(changes))
    }

    /// The same content over `table`, which is `from` merged; `self` grew out of `from`. `None` if
    /// it did not. O(changes).
    pub(crate) fn rebase(&self, from: &Self, table: &Arc<F>) -> Option<Self> {
        if !Arc::ptr_eq(&self.base, &from.base) {
            return None;
        }
        let mut rebased = Self::new(Arc::clone(table));
        self.changes.for_each(&mut |key, change| {
            let is_merged = match (from.changes.get(key), change) {
                (Some(None), None) => true,
                (Some(Some(merged)), Some(value)) => F::is_same(F::found(merged), value),
                _ => false,
            };
            if !is_merged {
                rebased.set(key, change.clone());
            }
        });
        from.changes.for_each(&mut |key, _| {
            // Undone since: only the old base has the answer.
            if self.changes.get(key).is_none() {
                rebased.set(key, self.base.get(key).map(F::to_value));
            }
        });
        Some(rebased)
    }

    pub(crate) fn changes_len(&self) -> usize {
        self.changes.len()
    }

    pub(crate) fn base_len(&self) -> usize {
        self.base.len()
    }

    /// How many clones, this one included, share the table.
    pub(crate) fn base_users(&self) -> usize {
        Arc::strong_count(&self.base)
    }

    /// The number of entries: O(changes).
    pub(crate) fn count(&self) -> usize {
        let mut count = self.base.len();
        self.changes.for_each(&mut |key, change| {
            count += usize::from(change.is_some());
            count -= usize::from(self.base.get(key).is_some());
        });
        count
    }
}

impl<F: Frozen> fmt::Debug for Overlay<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay")
            .field("base", &self.base.len())
            .field("changes", &self.changes.len())
            .finish()
    }
}

/// Spreads keys over `places`, in the order of the keys.
#[inline(always)]
pub(crate) fn place(key: u64, places: usize) -> usize {
    ((u128::from(key) * places as u128) >> 64) as usize
}

/// Which keys the changes may have, so that lookups of others need not ask them.
///
/// Shared by the overlays made from one another: a bit that a newer one has set costs an older one
/// a needless lookup and nothing else.
#[derive(Clone)]
struct ChangeFilter {
    /// Written by whoever makes the next overlay (they take turns), read by every lookup.
    words: Arc<[AtomicU64]>,
    /// How many keys may still be noted before it is made anew, with twice the room.
    room: usize,
}

impl ChangeFilter {
    const MIN_WORDS: usize = 4;
    const BITS_PER_KEY: usize = 16;

    fn new(keys: usize) -> Self {
        let words = (keys * Self::BITS_PER_KEY).div_ceil(64).max(Self::MIN_WORDS);
        let room = words * 64 / Self::BITS_PER_KEY;
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect(), room }
    }

    fn bit(&self, key: u64) -> (&AtomicU64, u64) {
        let bit = place(key, self.words.len() * 64);
        (&self.words[bit / 64], 1 << (bit % 64))
    }

    #[inline(always)]
    fn may_have(&self, key: u64) -> bool {
        let (word, bit) = self.bit(key);
        // Relaxed: whoever has the overlay with the change got it in an order that has the bit
        // come first; nobody else needs the bit.
        word.load(Ordering::Relaxed) & bit != 0
    }

    fn set(&mut self, key: u64) {
        let (word, bit) = self.bit(key);
        word.fetch_or(bit, Ordering::Relaxed); // relaxed as in `may_have`
        self.room -= 1;
    }

    fn note<T: Clone>(&mut self, key: u64, changes: &Tree<T>) {
        if self.room == 0 {
            *self = Self::new(changes.len() * 2);
            changes.for_each(&mut |key, _| self.set(key));
        } else {
            self.set(key);
        }
    }
}
