//! Fresh leases: those of which nothing is known but that they were given. The message has no
//! ordering key and was leased for the first time, and neither settled nor given back nor extended
//! since.
//!
//! They are given in the order of the log, each for the same time, so their deadlines rise with
//! their sequences: one note tells the deadline of all that were given within a tick. So a fresh
//! lease is an entry of the [index](Index) and nothing else: 4 bytes, and settling it touches one
//! line.
//!
//! The ledger owns both and keeps them in step: what is marked in the index as fresh is counted
//! here, and nothing else. The first of them is known, and the first note is the one that tells its
//! deadline. A lease that becomes fresh is above all that were, and one that is not fresh any more
//! never is again; so the first only moves on, and each sequence is passed once.

use crate::index::Index;
use std::collections::VecDeque;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Fresh {
    len: usize,
    /// The first of them, if there is one.
    first: u64,
    /// The deadlines, in ticks, each with the sequence from which on it holds.
    deadlines: VecDeque<(u64, u64)>,
}

impl Fresh {
    /// How many there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Notes that the message at `sequence`, above all that were, is leased until the tick
    /// `deadline`. False if it cannot be among these, because others end later.
    #[inline]
    pub(crate) fn give(&mut self, sequence: u64, deadline: u64) -> bool {
        if self.len == 0 {
            self.first = sequence;
            self.deadlines.clear();
        }
        match self.deadlines.back() {
            Some(&(_, last)) if deadline < last => return false,
            Some(&(_, last)) if deadline == last => {}
            _ => self.deadlines.push_back((sequence, deadline)),
        }
        self.len += 1;
        true
    }

    /// The deadline of the first that ends, and its sequence.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        let &(_, deadline) = self.deadlines.front().filter(|_| self.len > 0)?;
        Some((deadline, self.first))
    }

    /// The deadline of the one at `sequence`.
    pub(crate) fn deadline(&self, sequence: u64) -> u64 {
        let behind = self.deadlines.partition_point(|&(from, _)| from <= sequence);
        behind.checked_sub(1).map_or(0, |at| self.deadlines[at].1)
    }

    /// The one at `sequence` is none any more; `index` tells those that are.
    #[inline]
    pub(crate) fn leave(&mut self, sequence: u64, index: &Index) {
        self.len -= 1;
        if sequence != self.first || self.len == 0 {
            return;
        }
        self.first = index.first_fresh(sequence).unwrap_or(sequence);
        while self.deadlines.get(1).is_some_and(|&(from, _)| from <= self.first) {
            self.deadlines.pop_front();
        }
    }

    /// All of them have ended.
    pub(crate) fn expire_all(&mut self) {
        self.deadlines.clear();
        self.deadlines.push_back((self.first, 0));
    }
}
