//! The ids that were published to a topic of late: what tells that a message is published again.
//!
//! An id is known by two keyed hashes of 64 bits, so that what is kept of it has one size, whatever
//! its length. Ids stand in the order in which they were published, with the place of their message;
//! what finds one there is a table from the first hash. They leave at the front: when they are
//! older than the window, or more than are to be kept.
//!
//! A topic has one window, whatever its partitions and shards: the same id meets it also with another
//! key. Ids of messages that are being appended are *pending*: noted when they are stored, and not when
//! they are refused. Nothing is done under the lock but that, since an append calls filters, which
//! are foreign code; who finds an id pending in another shard lets go of its own, waits, and looks
//! again.

use crate::batch::Batch;
use crate::config::TopicConfig;
use crate::sync::{AtomicBool, Ordering};
use ahash::RandomState;
use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
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

/// Why a message is not to be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// It was published before.
    Published(Earlier),
    /// It is being published: see [`DedupWindow::wait`].
    Pending(Settlements),
}

/// Counts what has become of pending ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Settlements(u64);

/// See the module's head.
#[derive(Debug)]
pub(crate) struct DedupWindow {
    /// Whether there are limits: told without the lock.
    is_on: AtomicBool,
    ids: Mutex<Ids>,
    settled: Condvar,
}

impl DedupWindow {
    pub(crate) fn new(limits: DedupLimits) -> Self {
        let ids = Ids { limits: Some(limits), ..Ids::default() };
        Self { is_on: AtomicBool::new(true), ids: Mutex::new(ids), settled: Condvar::new() }
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

    /// Has other limits from now on; with none, forgets everything that was published.
    pub(crate) fn set_limits(&self, limits: Option<DedupLimits>) {
        let mut ids = self.lock();
        ids.limits = limits;
        if limits.is_some() {
            ids.trim();
        } else {
            (ids.known, ids.published) = (HashMap::default(), VecDeque::new());
        }
        self.is_on.store(limits.is_some(), Ordering::Relaxed);
    }

    /// How many of `messages`, from the first on, were not published before, nor are twice among
    /// them, and why the one behind those is not to be. Their ids are pending as long as the admission
    /// lives. They are to be appended from the place `next` on, by the holder of that partition's
    /// shard.
    pub(crate) fn admit<'a>(
        &'a self,
        messages: Batch<'a>,
        next: Earlier,
        now_us: u64,
    ) -> (Admission<'a>, Option<Known>) {
        let mut ids = self.lock();
        ids.forget_old(now_us);
        let mut admission = Admission { window: self, messages, next, now_us, published: 0 };
        for (count, message) in messages.iter().enumerate() {
            let Some(id) = message.id else { continue };
            let known = ids.look_up(id, next.partition, now_us);
            if known.is_some() {
                admission.messages = messages.take(count);
                return (admission, known);
            }
            let place = Earlier { offset: next.offset + count as u64, ..next };
            let hashes = ids.hash(id);
            ids.pending.insert(hashes, place);
        }
        (admission, None)
    }

    /// Waits until something has become of pending ids since `before`. Not to be called with a baton.
    pub(crate) fn wait(&self, before: Settlements) {
        let mut ids = self.lock();
        while ids.settlements == before {
            ids = self.settled.wait(ids).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Messages that may be appended. Those of which nothing else is said are refused, also when it is
/// dropped by unwinding.
#[derive(Debug)]
pub(crate) struct Admission<'a> {
    window: &'a DedupWindow,
    messages: Batch<'a>,
    next: Earlier,
    now_us: u64,
    published: usize,
}

impl Admission<'_> {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.messages.len()
    }

    /// The first `count` of them were published.
    pub(crate) fn settle(mut self, count: usize) {
        self.published = count;
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        let mut ids = self.window.lock();
        for (index, message) in self.messages.iter().enumerate() {
            let Some(id) = message.id else { continue };
            let hashes = ids.hash(id);
            ids.pending.remove(&hashes);
            if index < self.published {
                let place = Earlier { offset: self.next.offset + index as u64, ..self.next };
                ids.note_hashed(hashes, place, self.now_us);
            }
        }
        ids.trim();
        ids.settlements.0 += 1;
        drop(ids);
        self.window.settled.notify_all();
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
    /// Ids of messages that are being appended, and where.
    pending: HashMap<[u64; 2], Earlier, RandomState>,
    settlements: Settlements,
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

    /// Why a message with `id` is not to be appended to `partition`, if it is not.
    fn look_up(&self, id: &str, partition: u32, now_us: u64) -> Option<Known> {
        if let Some(earlier) = self.find(id, now_us) {
            return Some(Known::Published(earlier));
        }
        let place = *self.pending.get(&self.hash(id))?;
        // The holder of a shard has nothing pending there but the messages before this one. They are
        // stored by the time anybody is told, or that one is refused as well.
        let is_own = place.partition == partition;
        Some(if is_own { Known::Published(place) } else { Known::Pending(self.settlements) })
    }

    /// Notes that `id` was published. Of two messages with one id the later counts.
    pub(crate) fn note(&mut self, id: &str, place: Earlier, at_us: u64) {
        self.note_hashed(self.hash(id), place, at_us);
    }

    fn note_hashed(&mut self, hashes: [u64; 2], place: Earlier, at_us: u64) {
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
    use crate::message::NewMessage;

    fn window(window_us: u64, most_ids: usize) -> DedupWindow {
        DedupWindow::new(DedupLimits { window_us, most_ids })
    }

    fn messages<'m>(of: &[&'m str]) -> Vec<NewMessage<'m>> {
        of.iter().map(|id| NewMessage::new(b"").id(id)).collect()
    }

    fn place(offset: u64) -> Earlier {
        Earlier { partition: 7, offset }
    }

    #[test]
    fn what_was_refused_was_never_there_and_pushes_nothing_out() {
        let window = window(100, 2);
        let find = |id| window.lock().find(id, 1);
        let first = &messages(&["a", "b", "a"])[..];
        let (admitted, twice) = window.admit(Batch::of(&first), place(0), 0);
        assert_eq!((admitted.count(), twice), (2, Some(Known::Published(place(0)))));
        admitted.settle(2);
        let refused = &messages(&["c", "d", "e"])[..];
        let (admitted, known) = window.admit(Batch::of(&refused), place(2), 1);
        assert_eq!((admitted.count(), known), (3, None));
        drop(admitted);
        assert_eq!(["a", "b", "c"].map(find), [Some(place(0)), Some(place(1)), None]);
        window.admit(Batch::of(&refused), place(2), 1).0.settle(2);
        let expected = [None, Some(place(2)), Some(place(3)), None];
        assert_eq!(["b", "c", "d", "e"].map(find), expected);
        assert!(window.lock().pending.is_empty());
    }

    #[test]
    fn what_is_pending_is_known_by_its_own_shard_and_awaited_by_others() {
        let window = window(100, 9);
        let same = &messages(&["a"])[..];
        let (admitted, _) = window.admit(Batch::of(&same), place(5), 0);
        let elsewhere = Earlier { partition: 8, offset: 0 };
        let (none, known) = window.admit(Batch::of(&same), elsewhere, 0);
        let Some(Known::Pending(before)) = known else { panic!("{known:?}") };
        assert_eq!(none.count(), 0);
        admitted.settle(1);
        window.wait(before);
        let (_, known) = window.admit(Batch::of(&same), elsewhere, 0);
        assert_eq!(known, Some(Known::Published(place(5))));
        window.set_limits(None);
        assert_eq!(window.admit(Batch::of(&same), elsewhere, 0).1, None);
    }

    #[test]
    fn old_ids_leave_the_tables_a_few_at_a_time() {
        let window = window(100, usize::MAX);
        let mut ids = window.lock();
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
        let window = window(100, 3);
        let mut ids = window.lock();
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
