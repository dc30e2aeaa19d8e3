//! The memory of a ledger: leases of 32 bytes, in blocks that never move, each in at most one of
//! the ledger's lists.
//!
//! Lists are doubly linked through the leases themselves. The first lease of a list has the list's
//! number where others have their predecessor, and the last one where others have their successor;
//! so a lease is taken out of whatever list it is in, in O(1), without being told which.

use crate::prefetch;

/// Position of a lease in the slab.
pub(crate) type Slot = u32;

/// In no list, and nobody next to it.
const NONE: u32 = u32::MAX;
/// Set where a link names a list.
const LIST: u32 = 1 << 31;

const BLOCK: usize = 128;

/// What is known of a message that was taken and is not settled.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lease {
    /// Its place in the log of the shard.
    pub(crate) sequence: u64,
    deadline_low: u32,
    deadline_high: u8,
    pub(crate) state: LeaseState,
    /// Deliveries so far.
    pub(crate) attempts: u16,
    /// Which lease on the message this is: those before it are stale.
    pub(crate) generation: u32,
    /// Of the ordering key; 0 if it has none.
    pub(crate) key: u32,
    prev: u32,
    next: u32,
}

const _: () = assert!(size_of::<Lease>() == 32);

/// What a message that is not settled waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub(crate) enum LeaseState {
    /// Nothing: the slot is free.
    #[default]
    Free,
    /// That its consumer settles it, or the deadline.
    Leased,
    /// The time of its next attempt.
    Waiting,
    /// That an earlier message of its key is settled.
    Held,
}

impl Lease {
    /// The first lease on the message at `sequence`, not delivered yet.
    pub(crate) fn new(sequence: u64, key: u32, state: LeaseState) -> Self {
        Self { sequence, key, state, generation: 1, ..Self::default() }
    }

    /// When something happens to it, in ticks.
    pub(crate) fn deadline(&self) -> u64 {
        u64::from(self.deadline_high) << 32 | u64::from(self.deadline_low)
    }

    /// Sets the deadline. There are 2^40 ticks: 34 years of milliseconds.
    pub(crate) fn set_deadline(&mut self, tick: u64) {
        let tick = tick.min((1 << 40) - 1);
        (self.deadline_high, self.deadline_low) = ((tick >> 32) as u8, tick as u32);
    }
}

/// The ends of a list.
#[derive(Debug, Clone, Copy)]
struct Ends {
    first: u32,
    last: u32,
}

const EMPTY: Ends = Ends { first: NONE, last: NONE };

/// Leases and the lists that they are in.
#[derive(Debug)]
pub(crate) struct Slab {
    blocks: Vec<Box<[Lease; BLOCK]>>,
    /// The first free slot; each names the next.
    free: u32,
    /// Slots that have ever been used.
    used: u32,
    lists: Vec<Ends>,
}

impl Slab {
    /// An empty slab with `lists` lists.
    pub(crate) fn new(lists: usize) -> Self {
        Self { blocks: Vec::new(), free: NONE, used: 0, lists: vec![EMPTY; lists] }
    }

    /// Lets there be at least `lists` lists.
    pub(crate) fn grow_lists(&mut self, lists: usize) {
        if self.lists.len() < lists {
            self.lists.resize(lists, EMPTY);
        }
    }

    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> &Lease {
        &self.blocks[slot as usize / BLOCK][slot as usize % BLOCK]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut Lease {
        &mut self.blocks[slot as usize / BLOCK][slot as usize % BLOCK]
    }

    /// Fetches the line that a lease is in.
    #[inline]
    pub(crate) fn fetch(&self, slot: Slot) {
        if let Some(block) = self.blocks.get(slot as usize / BLOCK) {
            prefetch::for_write(&raw const block[slot as usize % BLOCK] as usize);
        }
    }

    /// All leases there are.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lease> {
        let used = self.blocks.iter().flat_map(|block| block.iter()).take(self.used as usize);
        used.filter(|lease| lease.state != LeaseState::Free)
    }

    /// Puts `lease` into a free slot; it is in no list.
    pub(crate) fn insert(&mut self, lease: Lease) -> Slot {
        let slot = self.free;
        let slot = if slot == NONE {
            let slot = self.used;
            if slot as usize / BLOCK == self.blocks.len() {
                self.blocks.push(Box::new([Lease::default(); BLOCK]));
            }
            self.used += 1;
            slot
        } else {
            self.free = self.get(slot).next;
            slot
        };
        *self.get_mut(slot) = Lease { prev: NONE, next: NONE, ..lease };
        slot
    }

    /// Frees `slot`, which is in no list any more if `unlink` was called.
    pub(crate) fn remove(&mut self, slot: Slot) {
        *self.get_mut(slot) = Lease { next: self.free, ..Lease::default() };
        self.free = slot;
    }

    /// The first of `list`.
    #[inline]
    pub(crate) fn first(&self, list: usize) -> Option<Slot> {
        let first = self.lists.get(list)?.first;
        (first != NONE).then_some(first)
    }

    /// Puts `slot`, which is in no list, at the end of `list`.
    pub(crate) fn append(&mut self, list: usize, slot: Slot) {
        let name = LIST | list as u32;
        let last = std::mem::replace(&mut self.lists[list].last, slot);
        let lease = self.get_mut(slot);
        lease.next = name;
        if last == NONE {
            lease.prev = name;
            self.lists[list].first = slot;
        } else {
            lease.prev = last;
            self.get_mut(last).next = slot;
        }
    }

    /// Takes `slot` out of its list, if it is in one; tells which list that has left empty.
    pub(crate) fn unlink(&mut self, slot: Slot) -> Option<usize> {
        let lease = self.get_mut(slot);
        let (prev, next) = (lease.prev, lease.next);
        (lease.prev, lease.next) = (NONE, NONE);
        if prev == NONE {
            return None;
        }
        match (prev & LIST != 0, next & LIST != 0) {
            (true, true) => {
                let list = (prev & !LIST) as usize;
                self.lists[list] = EMPTY;
                return Some(list);
            }
            (true, false) => {
                self.lists[(prev & !LIST) as usize].first = next;
                self.get_mut(next).prev = prev;
            }
            (false, true) => {
                self.lists[(next & !LIST) as usize].last = prev;
                self.get_mut(prev).next = next;
            }
            (false, false) => {
                self.get_mut(prev).next = next;
                self.get_mut(next).prev = prev;
            }
        }
        None
    }
}

#[cfg(test)]
#[cfg(not(slipring_loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn its_lists_are_what_queues_would_be(steps in prop::collection::vec((0u8..4, 0usize..3, any::<prop::sample::Index>()), 0..200)) {
            let mut slab = Slab::new(3);
            let mut lists: [VecDeque<Slot>; 3] = Default::default();
            let mut sequence = 0;
            for (step, list, index) in steps {
                match step {
                    0 | 1 => {
                        let slot = slab.insert(Lease::new(sequence, 0, LeaseState::Leased));
                        sequence += 1;
                        slab.append(list, slot);
                        lists[list].push_back(slot);
                    }
                    2 if !lists[list].is_empty() => {
                        let at = index.index(lists[list].len());
                        let slot = lists[list].remove(at).unwrap();
                        let left_empty = slab.unlink(slot);
                        prop_assert_eq!(left_empty, lists[list].is_empty().then_some(list));
                        prop_assert_eq!(slab.unlink(slot), None);
                        slab.remove(slot);
                    }
                    _ => if let Some(slot) = lists[list].pop_front() {
                        prop_assert_eq!(slab.first(list), Some(slot));
                        slab.unlink(slot);
                        slab.append(2 - list, slot);
                        lists[2 - list].push_back(slot);
                    }
                }
                for (list, oracle) in lists.iter().enumerate() {
                    prop_assert_eq!(slab.first(list), oracle.front().copied());
                }
            }
            prop_assert_eq!(slab.iter().count(), lists.iter().map(VecDeque::len).sum::<usize>());
        }
    }
}
