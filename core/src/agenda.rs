//! An agenda: what is to be done, and when.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

/// See the module's head. What comes first is found in O(1), the rest costs O(log n).
#[derive(Debug)]
pub(crate) struct Agenda<T>(BinaryHeap<Reverse<Entry<T>>>);

#[derive(Debug)]
struct Entry<T> {
    at: Duration,
    what: T,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self(BinaryHeap::new())
    }
}

impl<T> Agenda<T> {
    /// Puts `what` down for the time `at`.
    pub(crate) fn add(&mut self, at: Duration, what: T) {
        self.0.push(Reverse(Entry { at, what }));
    }

    /// When the next thing is to be done.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.0.peek().map(|Reverse(entry)| entry.at)
    }

    /// Takes out what is to be done first, if its time has come.
    pub(crate) fn take_due(&mut self, now: Duration) -> Option<T> {
        self.next().filter(|&at| at <= now)?;
        self.0.pop().map(|Reverse(entry)| entry.what)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl<T> Eq for Entry<T> {}
impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}
