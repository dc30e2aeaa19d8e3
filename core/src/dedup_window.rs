//! The ids that were published to a topic of late: what tells that a message is published again.
//!
//! An id is known by two keyed hashes of 64 bits, so that what is kept of it has one size, whatever
//! its length. Ids stand in the order in which they were published, with the place of their message;
//! what finds one there is a table from the first hash. They leave at the front: when they are
//! older than the window, or more than are to be kept.
//!
//! A topic has one window, whatever its partitions and shards: the same id meets it also with another
//! key. Who appends to the topic has it locked from the look-up until the message is stored, and
//! holds the baton of a shard, never the other way round.

use crate::config::TopicConfig;
use crate::message::NewMessage;
use crate::sync::{AtomicBool, Ordering};
use ahash::RandomState;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Old ids that one look lets go of at most, so that none takes long after a pause.
const FORGET_MOST: usize = 16;

/// Which ids a topic knows again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DedupLimits {
    /// Those that were published less than this many microseconds ago,
    pub(crate) window_us: u64,
    /// and this many of them, the latest.
    pub(crate) most_ids: usize,
}

impl DedupLimits {
    /// Those of a topic, if it knows any.
    pub(crate) fn of(config: TopicConfig) -> Option<Self> {
        // As it is written down: in milliseconds.
        let ms = |window: Duration| u64::try_from(window.as_nanos().div_ceil(1_000_000));
        let window_us = ms(config.dedup_window?).unwrap_or(u64::MAX).saturating_mul(1000);
        Some(Self { window_us, most_ids: config.dedup_ids.unwrap_or(usize::MAX) })
    }
}

/// The place of a message that was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Earlier {
    pub(crate) partition: u32,
    pub(crate) offset: u64,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct DedupWindow {
    /// Whether there are limits: told without the lock.
    is_on: AtomicBool,
    ids: Mutex<Ids>,
}

impl DedupWindow {
    pub(crate) fn new(limits: DedupLimits) -> Self {
        let ids = Ids { limits: Some(limits), ..Ids::default() };
        Self { is_on: AtomicBool::new(true), ids: Mutex::new(ids) }
    }

    /// Whether ids are looked at.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        // Relaxed: what is known is behind the lock.
        self.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has other limits from now on; with none, forgets everything.
    pub(crate) fn set_limits(&self, limits: Option<DedupLimits>) {
        let mut ids = self.lock();
        match limits {
            Some(_) => {
                ids.limits = limits;
                ids.trim();
            }
            None => *ids = Ids::default(),
        }
        self.is_on.store(limits.is_some(), Ordering::Relaxed);
    }
}

/// What a window knows. Costs 59 to 119 bytes an id, as full as its tables are.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    limits: Option<DedupLimits>,
    hashers: [RandomState; 2],
    /// From the first hash of an id to the number of its latest publication.
    known: HashMap<u64, u64, RandomState>,
    /// In the order in which they were published, but for a few microseconds where shards differ.
    published: VecDeque<Published>,
    /// Number of the first of these.
    first: u64,
}

/// That an id was published.
#[derive(Debug, Clone, Copy)]
struct Published {
    hashes: [u64; 2],
    at_us: u64,
    place: Earlier,
}

impl Ids {
    /// What the window knows again.
    pub(crate) fn limits(&self) -> Option<DedupLimits> {
        self.limits
    }

    /// Where a message with `id` was published within the window before `now_us`, if one was.
    pub(crate) fn find(&self, id: &str, now_us: u64) -> Option<Earlier> {
        let window_us = self.limits?.window_us;
        let hashes = self.hash(id);
        let number = *self.known.get(&hashes[0])?;
        let found = self.published.get(number.wrapping_sub(self.first) as usize)?;
        let is_it = found.hashes == hashes && now_us.saturating_sub(found.at_us) < window_us;
        is_it.then_some(found.place)
    }

    /// How many of `messages`, from the first on, were not published before, nor are twice among
    /// them; and where the one behind those was. Their ids are noted, as if they were published
    /// from the place `next` on: see [`settle`](Self::settle).
    pub(crate) fn admit(
        &mut self,
        messages: &[NewMessage<'_>],
        next: Earlier,
        now_us: u64,
    ) -> (usize, Option<Earlier>) {
        self.forget_old(now_us);
        for (count, message) in messages.iter().enumerate() {
            let Some(id) = message.id else { continue };
            if let Some(earlier) = self.find(id, now_us) {
                return (count, Some(earlier));
            }
            self.note(id, Earlier { offset: next.offset + count as u64, ..next }, now_us);
        }
        (messages.len(), None)
    }

    /// Of what was [admitted](Self::admit), `refused` was not published after all. Others that had
    /// to go for the rest, go.
    pub(crate) fn settle(&mut self, refused: &[NewMessage<'_>]) {
        for _ in refused.iter().filter(|message| message.id.is_some()) {
            // Noted when nothing within the window was in its place.
            let Some(last) = self.published.pop_back() else { break };
            self.known.remove(&last.hashes[0]);
        }
        self.trim();
    }

    /// Notes that `id` was published. Of two messages with one id the later counts.
    pub(crate) fn note(&mut self, id: &str, place: Earlier, at_us: u64) {
        let hashes = self.hash(id);
        self.known.insert(hashes[0], self.first + self.published.len() as u64);
        self.published.push_back(Published { hashes, at_us, place });
    }

    /// Brings what was noted in any order into that of time.
    pub(crate) fn arrange(&mut self) {
        self.published.make_contiguous().sort_by_key(|published| published.at_us);
        for (number, published) in (self.first..).zip(&self.published) {
            self.known.insert(published.hashes[0], number);
        }
        self.trim();
    }

    /// Lets go of what is older than the window, or of a part of it.
    pub(crate) fn forget_old(&mut self, now_us: u64) {
        let Some(DedupLimits { window_us, .. }) = self.limits else { return };
        for _ in 0..FORGET_MOST {
            let is_old = |oldest: &Published| now_us.saturating_sub(oldest.at_us) >= window_us;
            if !self.published.front().is_some_and(is_old) {
                break;
            }
            self.forget_first();
        }
    }

    /// Lets go of what is more than there may be.
    pub(crate) fn trim(&mut self) {
        let most = self.limits.map_or(0, |limits| limits.most_ids);
        while self.published.len() > most {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let Some(oldest) = self.published.pop_front() else { return };
        // Unless it was published again since.
        if self.known.get(&oldest.hashes[0]) == Some(&self.first) {
            self.known.remove(&oldest.hashes[0]);
        }
        self.first += 1;
    }

    fn hash(&self, id: &str) -> [u64; 2] {
        [self.hashers[0].hash_one(id), self.hashers[1].hash_one(id)]
    }
}

#[cfg(test)]
#[cfg(not(slipring_loom))]
mod tests {
    use super::*;

    fn ids(window_us: u64, most_ids: usize) -> Ids {
        Ids { limits: Some(DedupLimits { window_us, most_ids }), ..Ids::default() }
    }

    fn messages<'m>(of: &[&'m str]) -> Vec<NewMessage<'m>> {
        of.iter().map(|id| NewMessage::new(b"").id(id)).collect()
    }

    fn place(offset: u64) -> Earlier {
        Earlier { partition: 7, offset }
    }

    #[test]
    fn what_was_refused_was_never_there_and_pushes_nothing_out() {
        let mut ids = ids(100, 2);
        assert_eq!(ids.admit(&messages(&["a", "b"]), place(0), 0), (2, None));
        ids.settle(&[]);
        let refused = messages(&["c", "d", "e"]);
        assert_eq!(ids.admit(&refused, place(2), 1), (3, None));
        ids.settle(&refused);
        assert_eq!(
            ["a", "b", "c"].map(|id| ids.find(id, 1)),
            [Some(place(0)), Some(place(1)), None]
        );
        assert_eq!((ids.known.len(), ids.published.len()), (2, 2));
        assert_eq!(ids.admit(&refused, place(2), 1), (3, None));
        ids.settle(&refused[2..]);
        assert_eq!(
            ["b", "c", "d", "e"].map(|id| ids.find(id, 1).is_some()),
            [false, true, true, false]
        );
    }

    #[test]
    fn old_ids_leave_the_tables_a_few_at_a_time() {
        let mut ids = ids(100, usize::MAX);
        for at in 0..1000 {
            ids.note(&at.to_string(), place(at), 0);
        }
        assert_eq!(ids.find("999", 99), Some(place(999)));
        assert_eq!(ids.find("999", 100), None);
        ids.note("0", place(1000), 100);
        for _ in 0..1000_usize.div_ceil(FORGET_MOST) {
            ids.forget_old(100);
        }
        assert_eq!((ids.known.len(), ids.published.len()), (1, 1));
        assert_eq!(ids.find("0", 100), Some(place(1000)), "published again since");
    }

    #[test]
    fn what_is_arranged_leaves_in_order_of_time_and_the_later_of_two_counts() {
        let mut ids = ids(100, 3);
        for (id, at_us) in [("b", 20), ("d", 40), ("a", 10), ("b", 30)] {
            ids.note(id, place(at_us), at_us);
        }
        ids.arrange();
        assert_eq!(
            ["a", "b", "d"].map(|id| ids.find(id, 50)),
            [None, Some(place(30)), Some(place(40))]
        );
        ids.forget_old(125);
        assert_eq!(ids.find("b", 125), Some(place(30)));
    }
}
