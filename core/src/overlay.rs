//! A map that is cheap to read, cheap to change one entry of, and never changes under a reader: a
//! frozen flat table below a small persistent tree of changes.
//!
//! Keys are 64-bit hashes that are already well mixed; two things with one key are the caller's
//! business. A lookup asks the changes (usually none) and then the table, where it costs one cache
//! miss. [`Overlay::set`] copies one path of the tree, whatever the size of the table;
//! [`Overlay::merge`] makes a new table of both, away from readers and writers, and
//! [`Overlay::rebase`] moves the changes made meanwhile on top of it.

use std::fmt;
use std::iter::once;
use std::sync::Arc; // immutable data only: who reads it got it through a Snapshot

use crate::sync::{AtomicU64, Ordering};

/// What an [`Overlay`] holds: cheap to clone, and cheap to recognise.
pub(crate) trait Value: Clone {
    /// Whether both are interchangeable; saying no too often costs memory and nothing else.
    fn is_same(&self, other: &Self) -> bool;
}

fn are_same<T: Value>(one: Option<&T>, other: Option<&T>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.is_same(other),
        _ => false,
    }
}

/// See the module's head.
#[derive(Clone)]
pub(crate) struct Overlay<T> {
    base: Arc<Table<T>>,
    /// Whatever differs from the base; `None` hides an entry of the base.
    changes: Tree<Option<T>>,
    filter: ChangeFilter,
}

impl<T: Value> Overlay<T> {
    pub(crate) fn new() -> Self {
        Self { base: Arc::new(Table::new()), changes: Tree::new(), filter: ChangeFilter::new(0) }
    }

    #[inline(always)]
    pub(crate) fn get(&self, key: u64) -> Option<&T> {
        if self.changes.is_empty() { self.base.get(key) } else { self.get_changed(key) }
    }

    /// Whether there may be an entry: wrong once in sixteen, and mostly answered from the cache
    /// where [`Overlay::get`] is not.
    #[inline(always)]
    pub(crate) fn may_have(&self, key: u64) -> bool {
        self.base.may_have(key) || (!self.changes.is_empty() && self.filter.may_have(key))
    }

    fn is_changed(&self, key: u64) -> bool {
        self.filter.may_have(key) && self.changes.get(key).is_some()
    }

    fn get_changed(&self, key: u64) -> Option<&T> {
        if self.filter.may_have(key)
            && let Some(change) = self.changes.get(key)
        {
            return change.as_ref();
        }
        self.base.get(key)
    }

    /// Sets or (`None`) removes an entry; clones made before do not see it.
    pub(crate) fn set(&mut self, key: u64, value: Option<T>) {
        if are_same(self.base.get(key), value.as_ref()) {
            self.changes.remove(key);
        } else {
            self.changes.insert(key, value);
            self.filter.note(key, &self.changes);
        }
    }

    /// Adds an entry, or replaces it, in the table itself: for building, before anybody else has
    /// a clone (else it falls back to [`Overlay::set`]).
    pub(crate) fn build(&mut self, key: u64, value: T) {
        match Arc::get_mut(&mut self.base) {
            Some(base) if self.changes.is_empty() => base.insert(key, value),
            _ => self.set(key, Some(value)),
        }
    }

    /// Makes room for `additional` entries that [`Overlay::build`] will add.
    pub(crate) fn reserve(&mut self, additional: usize) {
        if let Some(base) = Arc::get_mut(&mut self.base) {
            base.grow_to_hold(base.len + additional);
        }
    }

    /// Gives back what building left over.
    pub(crate) fn shrink(&mut self) {
        if let Some(base) = Arc::get_mut(&mut self.base)
            && base.slots.len() > Table::<T>::slots_for(base.len)
        {
            base.resize(Table::<T>::slots_for(base.len));
        }
    }

    /// A table of everything: O(table), for a background thread.
    pub(crate) fn merge(&self) -> Arc<Table<T>> {
        if self.changes.is_empty() {
            return Arc::clone(&self.base);
        }
        let mut table = Table::new();
        table.grow_to_hold(self.base.len + self.changes.len());
        for slot in &self.base.slots {
            if let Some(value) = &slot.value
                && !self.is_changed(slot.key)
            {
                table.insert(slot.key, value.clone());
            }
        }
        self.changes.for_each(&mut |key, change| {
            if let Some(value) = change {
                table.insert(key, value.clone());
            }
        });
        Arc::new(table)
    }

    /// The same content over `table`, which is `from` merged; `self` grew out of `from`. `None` if
    /// it did not. O(changes).
    pub(crate) fn rebase(&self, from: &Self, table: &Arc<Table<T>>) -> Option<Self> {
        if !Arc::ptr_eq(&self.base, &from.base) {
            return None;
        }
        let mut rebased =
            Self { base: Arc::clone(table), changes: Tree::new(), filter: ChangeFilter::new(0) };
        self.changes.for_each(&mut |key, change| rebased.set(key, change.clone()));
        from.changes.for_each(&mut |key, _| {
            // Undone since: only the old base has the answer.
            if self.changes.get(key).is_none() {
                rebased.set(key, self.base.get(key).cloned());
            }
        });
        Some(rebased)
    }

    pub(crate) fn changes_len(&self) -> usize {
        self.changes.len()
    }

    pub(crate) fn base_len(&self) -> usize {
        self.base.len
    }

    /// How many clones, this one included, share the table.
    pub(crate) fn base_users(&self) -> usize {
        Arc::strong_count(&self.base)
    }

    /// The number of entries: O(changes).
    pub(crate) fn count(&self) -> usize {
        let mut count = self.base.len;
        self.changes.for_each(&mut |key, change| {
            count += usize::from(change.is_some());
            count -= usize::from(self.base.get(key).is_some());
        });
        count
    }
}

impl<T> fmt::Debug for Overlay<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay")
            .field("base", &self.base.len)
            .field("changes", &self.changes.len)
            .finish()
    }
}

/// Open addressing with linear probing; never more than [`MAX_LOAD_PERCENT`] full. The high bits
/// of the key choose the slot, so the entries lie nearly in the order of their keys, and copying
/// one table into another reads and writes both from front to back.
pub(crate) struct Table<T> {
    slots: Box<[Slot<T>]>,
    /// Eight bits a slot, that is, 16 and more an entry: set where an entry's key would lie in
    /// slots that much finer.
    filter: Box<[u64]>,
    len: usize,
}

struct Slot<T> {
    key: u64,
    value: Option<T>,
}

const MAX_LOAD_PERCENT: usize = 60;
const FILTER_BITS_PER_SLOT: usize = 8;

impl<T> Table<T> {
    fn new() -> Self {
        Self::with_slots(1)
    }

    fn with_slots(count: usize) -> Self {
        let slots = (0..count).map(|_| Slot { key: 0, value: None }).collect();
        let filter = vec![0; (count * FILTER_BITS_PER_SLOT).div_ceil(64)].into_boxed_slice();
        Self { slots, filter, len: 0 }
    }

    /// The slots a fresh table has for `len` entries: half full, and one empty slot at least.
    fn slots_for(len: usize) -> usize {
        len * 2 + 1
    }

    #[inline(always)]
    fn home(key: u64, slots: usize) -> usize {
        ((u128::from(key) * slots as u128) >> 64) as usize
    }

    #[inline(always)]
    fn may_have(&self, key: u64) -> bool {
        let bit = Self::home(key, self.filter.len() * 64);
        (self.filter[bit / 64] >> (bit % 64)) & 1 != 0
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<&T> {
        let slots = &*self.slots;
        let mut at = Self::home(key, slots.len());
        loop {
            let slot = &slots[at];
            if slot.key == key || slot.value.is_none() {
                return slot.value.as_ref();
            }
            at += 1;
            if at == slots.len() {
                at = 0;
            }
        }
    }

    fn insert(&mut self, key: u64, value: T) {
        if (self.len + 1) * 100 > self.slots.len() * MAX_LOAD_PERCENT {
            self.resize(Self::slots_for(self.len * 2 + 4));
        }
        let mut at = Self::home(key, self.slots.len());
        while self.slots[at].value.is_some() && self.slots[at].key != key {
            at += 1;
            if at == self.slots.len() {
                at = 0;
            }
        }
        self.len += usize::from(self.slots[at].value.is_none());
        self.slots[at] = Slot { key, value: Some(value) };
        let bit = Self::home(key, self.filter.len() * 64);
        self.filter[bit / 64] |= 1 << (bit % 64);
    }

    fn grow_to_hold(&mut self, len: usize) {
        if len * 100 > self.slots.len() * MAX_LOAD_PERCENT {
            self.resize(Self::slots_for(len));
        }
    }

    fn resize(&mut self, slots: usize) {
        let old = std::mem::replace(self, Self::with_slots(slots));
        for slot in old.slots {
            if let Some(value) = slot.value {
                self.insert(slot.key, value);
            }
        }
    }
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

    fn place(&self, key: u64) -> (&AtomicU64, u64) {
        let bit = Table::<()>::home(key, self.words.len() * 64);
        (&self.words[bit / 64], 1 << (bit % 64))
    }

    #[inline(always)]
    fn may_have(&self, key: u64) -> bool {
        let (word, bit) = self.place(key);
        // Relaxed: whoever has the overlay with the change got it in an order that has the bit
        // come first; nobody else needs the bit.
        word.load(Ordering::Relaxed) & bit != 0
    }

    fn set(&mut self, key: u64) {
        let (word, bit) = self.place(key);
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

/// A persistent hash tree, 16 ways a level, by the low bits of the key first. An insert copies the
/// nodes on one path; everything else is shared with the tree it was made from.
#[derive(Clone)]
pub(crate) struct Tree<T> {
    root: Option<Node<T>>,
    len: usize,
}

#[derive(Clone)]
enum Node<T> {
    Entry(u64, T),
    /// Which of the 16 children there are, and those, in order; two at least, except that the one
    /// child may be another `Inner`.
    Inner(u16, Arc<[Self]>),
}

const WAY_BITS: u32 = 4;
const WAY_MASK: u64 = 0xf;

impl<T: Clone> Tree<T> {
    pub(crate) fn new() -> Self {
        Self { root: None, len: 0 }
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: u64) -> Option<&T> {
        let mut node = self.root.as_ref()?;
        let mut rest = key;
        loop {
            match node {
                Node::Entry(found, value) => return (*found == key).then_some(value),
                Node::Inner(present, children) => {
                    let way = 1u16 << (rest & WAY_MASK);
                    if present & way == 0 {
                        return None;
                    }
                    node = &children[rank(*present, way)];
                    rest >>= WAY_BITS;
                }
            }
        }
    }

    pub(crate) fn insert(&mut self, key: u64, value: T) {
        let (root, is_new) = match &self.root {
            None => (Node::Entry(key, value), true),
            Some(root) => root.with(key, value, 0),
        };
        self.root = Some(root);
        self.len += usize::from(is_new);
    }

    pub(crate) fn remove(&mut self, key: u64) {
        if self.get(key).is_some() {
            self.root = self.root.as_ref().and_then(|root| root.without(key, 0));
            self.len -= 1;
        }
    }

    /// The entry, if it is the only one.
    pub(crate) fn single(&self) -> Option<(u64, &T)> {
        match &self.root {
            Some(Node::Entry(key, value)) => Some((*key, value)),
            _ => None,
        }
    }

    pub(crate) fn for_each<'t>(&'t self, f: &mut impl FnMut(u64, &'t T)) {
        if let Some(root) = &self.root {
            root.for_each(f);
        }
    }
}

fn rank(present: u16, way: u16) -> usize {
    (present & (way - 1)).count_ones() as usize
}

fn way(key: u64, level: u32) -> u16 {
    1 << ((key >> (level * WAY_BITS)) & WAY_MASK)
}

/// `children` with the one at `at` replaced.
fn replaced<T: Clone>(children: &[T], at: usize, child: T) -> Arc<[T]> {
    let (before, after) = (&children[..at], &children[at + 1..]);
    before.iter().cloned().chain(once(child)).chain(after.iter().cloned()).collect()
}

impl<T: Clone> Node<T> {
    /// This node with an entry set, and whether that is new. Recurses once a level: 16 at most.
    fn with(&self, key: u64, value: T, level: u32) -> (Self, bool) {
        match self {
            Self::Entry(found, _) if *found == key => (Self::Entry(key, value), false),
            Self::Entry(found, _) => {
                let (old, new) = (way(*found, level), way(key, level));
                let node = if old == new {
                    let child = self.with(key, value, level + 1).0;
                    Self::Inner(old, Arc::from([child]))
                } else {
                    let entry = Self::Entry(key, value);
                    let pair =
                        if old < new { [self.clone(), entry] } else { [entry, self.clone()] };
                    Self::Inner(old | new, Arc::from(pair))
                };
                (node, true)
            }
            Self::Inner(present, children) => {
                let way = way(key, level);
                let at = rank(*present, way);
                if present & way != 0 {
                    let (child, is_new) = children[at].with(key, value, level + 1);
                    return (Self::Inner(*present, replaced(children, at, child)), is_new);
                }
                let (before, after) = children.split_at(at);
                let entry = once(Self::Entry(key, value));
                let children =
                    before.iter().cloned().chain(entry).chain(after.iter().cloned()).collect();
                (Self::Inner(present | way, children), true)
            }
        }
    }

    /// This node without an entry that it holds; `None` if that was all.
    fn without(&self, key: u64, level: u32) -> Option<Self> {
        let Self::Inner(present, children) = self else {
            return None;
        };
        let way = way(key, level);
        let at = rank(*present, way);
        if let Some(child) = children[at].without(key, level + 1) {
            if children.len() == 1 && matches!(child, Self::Entry(..)) {
                return Some(child);
            }
            return Some(Self::Inner(*present, replaced(children, at, child)));
        }
        match &**children {
            [_] => None,
            [one, other] => {
                let left = if at == 0 { other } else { one };
                if matches!(left, Self::Entry(..)) {
                    return Some(left.clone());
                }
                Some(Self::Inner(present & !way, Arc::from([left.clone()])))
            }
            _ => {
                let (before, after) = (&children[..at], &children[at + 1..]);
                let children = before.iter().cloned().chain(after.iter().cloned()).collect();
                Some(Self::Inner(present & !way, children))
            }
        }
    }

    fn for_each<'t>(&'t self, f: &mut impl FnMut(u64, &'t T)) {
        match self {
            Self::Entry(key, value) => f(*key, value),
            Self::Inner(_, children) => children.iter().for_each(|child| child.for_each(f)),
        }
    }
}
