//! The plain ring: a bounded queue from one producer to one consumer, without a CAS.
//!
//! A slot holds one *word* (the address of a record; its three low bits are ours) and, in its
//! lowest bit, the parity of the lap in which it was written. So a slot tells by itself whether it
//! is filled: the consumer reads no index of the producer's, and a message costs the transfer of
//! one line less than with a published tail. (The idea of a queue whose slots say whether they are
//! full is that of FastForward, Giacomoni et al., PPoPP 2008; the parity in place of a null means
//! that the consumer writes no slot.) The consumer publishes its own position when it has taken
//! what it wanted; the producer reads that position only when the ring looks full.
//!
//! What does not fit is dropped by the caller and reported to [`Producer::lose`]; the next word
//! pushed carries a mark, so the consumer learns of the loss exactly where it happened.
//!
//! | shared field | written by | read by | may be stale |
//! |---|---|---|---|
//! | slots | producer | consumer | an old lap's word, told by its parity |
//! | head | consumer | producer | yes: then the ring looks fuller than it is |
//! | tail | producer | metrics, a blocked publisher | yes |
//! | lost | producer | consumer when the ring is empty, metrics | yes: then a loss is told later |
//!
//! Pairs: `slot-filled` (producer's store of a slot / consumer's load of it) makes the record
//! visible; `slot-free` (consumer's store of head / producer's load) makes the consumer's reads of
//! a slot happen before it is overwritten; `loss-told` (producer's store of lost / consumer's
//! load) makes everything pushed before the loss visible to whoever sees the loss.

use crate::prefetch;
use crate::sync::{Arc, AtomicU64, AtomicUsize, CachePadded, Ordering, PlainArc, store_all};
use std::sync::OnceLock;

/// Words that are taken, and whose slots are given back, in one go.
pub const BLOCK: usize = if cfg!(slipring_loom) { 2 } else { 16 };

/// The low bits of a word that the ring uses itself; a word handed to `push` has them clear.
const TAG_BITS: usize = 0b111;
/// The lap's parity.
const LAP: usize = 0b001;
/// A loss precedes this word; how much was lost in all until then is in `losses`.
const LOSS: usize = 0b010;

#[derive(Debug)]
struct Shared {
    slots: Slots,
    /// Messages that fit; at most the number of slots, which is the next power of two.
    capacity: u64,
    /// For each slot marked LOSS: the total lost before its word. Made at the first loss.
    losses: OnceLock<Box<[AtomicU64]>>,
    /// Position of the next word to take.
    head: CachePadded<AtomicU64>,
    /// Position of the next word to push, and the number of messages lost so far.
    tail: CachePadded<AtomicU64>,
    lost: AtomicU64,
}

/// The slots. Either end has its own handle to them, to get there without a detour.
#[derive(Debug, Clone)]
struct Slots(PlainArc<[AtomicUsize]>);

impl Slots {
    #[inline]
    fn index(&self, position: u64) -> usize {
        // Lossless after the mask: the slots are in memory.
        position as usize & (self.0.len() - 1)
    }

    #[inline]
    fn at(&self, position: u64) -> &AtomicUsize {
        &self.0[self.index(position)]
    }

    /// Parity of the lap that `position` belongs to. Exact also where u64 wraps around, because
    /// two laps divide 2^64.
    #[inline]
    fn lap(&self, position: u64) -> usize {
        usize::from(position & self.0.len() as u64 != 0)
    }

    /// The words at `position` and behind, with no loss before any: at most `most` and [`BLOCK`],
    /// as far as they agree in the bits of `same`, and not beyond the lap. Fetches their records.
    #[inline(always)]
    fn block(&self, position: u64, most: usize, same: usize) -> &[AtomicUsize] {
        let slots = &self.0[self.index(position)..];
        let slots = &slots[..slots.len().min(most).min(BLOCK)];
        let Some(first) = slots.first() else { return slots };
        // SYNC slot-filled: pairs with Producer::push.
        let first = first.load(Ordering::Acquire);
        // What the first is to be, and all others too: of this lap, without a loss.
        let wanted = first & !(LAP | LOSS) | self.lap(position);
        let mut count = 0;
        for slot in slots {
            // SYNC slot-filled: pairs with Producer::push.
            let tagged = slot.load(Ordering::Acquire);
            if (tagged ^ wanted) & (same | LAP | LOSS) != 0 {
                break;
            }
            prefetch::for_read(tagged);
            prefetch::for_read(tagged.wrapping_add(64));
            count += 1;
        }
        &slots[..count]
    }
}

/// Makes a ring of `capacity` messages whose positions begin at `start`.
///
/// # Panics
/// If `capacity` is 0 or above 2^31.
pub fn ring(capacity: usize, start: u64) -> (Producer, Consumer) {
    assert!(capacity > 0 && capacity <= 1 << 31, "ring capacity {capacity} out of 1..=2^31");
    let len = capacity.next_power_of_two();
    let shift = len.trailing_zeros();
    let empty = (0..len as u64).map(|index| {
        // A slot is empty when it carries the other parity than the lap that fills it first.
        let first = start.wrapping_add(index.wrapping_sub(start) & (len as u64 - 1));
        AtomicUsize::new(((first >> shift) as usize & LAP) ^ LAP)
    });
    let slots = Slots(empty.collect());
    let shared = Arc::new(Shared {
        slots: slots.clone(),
        capacity: capacity as u64,
        losses: OnceLock::new(),
        head: CachePadded::new(AtomicU64::new(start)),
        tail: CachePadded::new(AtomicU64::new(start)),
        lost: AtomicU64::new(0),
    });
    let producer = Producer {
        slots: slots.clone(),
        tail: start,
        cached_head: start,
        capacity: capacity as u64,
        loss_untold: false,
        lost: 0,
        shared: Arc::clone(&shared),
    };
    (producer, Consumer { slots, head: start, lost_told: 0, shared })
}

/// The write end.
#[derive(Debug)]
pub struct Producer {
    slots: Slots,
    tail: u64,
    /// A past value of the consumer's head: never ahead of it.
    cached_head: u64,
    capacity: u64,
    /// Whether something was lost since the last push.
    loss_untold: bool,
    lost: u64,
    shared: Arc<Shared>,
}

impl Producer {
    /// How many of `wanted` words fit now. Reads the consumer's line only when they seem not to.
    #[inline(always)]
    pub fn free(&mut self, wanted: usize) -> usize {
        let capacity = self.capacity;
        let mut free = capacity - self.tail.wrapping_sub(self.cached_head);
        if free < wanted as u64 {
            // SYNC slot-free: pairs with Consumer::release.
            self.cached_head = self.shared.head.load(Ordering::Acquire);
            free = capacity - self.tail.wrapping_sub(self.cached_head);
        }
        (free as usize).min(wanted)
    }

    /// Pushes `word` if it fits and no loss is to be told before it.
    #[inline(always)]
    pub fn try_push_one(&mut self, word: usize) -> bool {
        if self.loss_untold || self.free(1) == 0 {
            return false;
        }
        debug_assert_eq!(word & TAG_BITS, 0, "the low bits of a word belong to the ring");
        // SYNC slot-filled: pairs with Consumer::peek.
        self.slots.at(self.tail).store(word | self.slots.lap(self.tail), Ordering::Release);
        self.tail = self.tail.wrapping_add(1);
        if self.tail.is_multiple_of(8) {
            self.prefetch();
        }
        // Relaxed: see `push`.
        self.shared.tail.store(self.tail, Ordering::Relaxed);
        true
    }

    /// Pushes all of `words`, at least one: a loss is told with the first of them. The caller has
    /// asked [`free`](Self::free) that they fit.
    pub fn push(&mut self, words: &[usize]) {
        debug_assert!(!words.is_empty(), "a loss would be told in a slot that is not ours");
        debug_assert!(self.free(words.len()) == words.len(), "push past what is free");
        let mut rest = words;
        if let (true, Some((&first, others))) = (self.loss_untold, words.split_first()) {
            let tagged = first | self.slots.lap(self.tail) | self.tell_loss();
            // SYNC slot-filled: pairs with Consumer::peek.
            self.slots.at(self.tail).store(tagged, Ordering::Release);
            self.tail = self.tail.wrapping_add(1);
            rest = others;
        }
        while !rest.is_empty() {
            // As far as the end of the lap.
            let lap = self.slots.lap(self.tail);
            let slots = &self.slots.0[self.slots.index(self.tail)..];
            let count = slots.len().min(rest.len());
            debug_assert!(rest.iter().all(|word| word & TAG_BITS == 0), "the ring's own bits");
            // SYNC slot-filled: pairs with Consumer::peek.
            store_all(slots, &rest[..count], lap, Ordering::Release);
            rest = &rest[count..];
            self.tail = self.tail.wrapping_add(count as u64);
        }
        self.prefetch();
        // Relaxed: a figure for metrics and for a publisher that waits for space, who both read it
        // again; no memory is reached through it.
        self.shared.tail.store(self.tail, Ordering::Relaxed);
    }

    /// Fetches the line after the next: its slots were last read by the consumer.
    #[inline(always)]
    fn prefetch(&self) {
        prefetch::for_write(std::ptr::from_ref(self.slots.at(self.tail.wrapping_add(16))) as usize);
    }

    /// Notes that `count` messages were dropped because they did not fit.
    #[cold]
    pub fn lose(&mut self, count: u64) {
        self.lost += count;
        self.loss_untold = true;
        // SYNC loss-told: pairs with Consumer::loss_at_end.
        self.shared.lost.store(self.lost, Ordering::Release);
    }

    #[cold]
    fn tell_loss(&mut self) -> usize {
        self.loss_untold = false;
        let losses = self
            .shared
            .losses
            .get_or_init(|| self.shared.slots.0.iter().map(|_| AtomicU64::new(0)).collect());
        // Relaxed: published by the slot's own store (slot-filled), and the slot is ours now.
        losses[self.slots.index(self.tail)].store(self.lost, Ordering::Relaxed);
        LOSS
    }

    /// Messages lost so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// What other threads may ask about this ring.
    pub fn gauge(&self) -> Gauge {
        Gauge(Arc::clone(&self.shared))
    }
}

/// A word taken from the ring, and what was lost just before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "internal; a reader handles all of them")]
pub enum Slot {
    /// Nothing is there.
    Empty,
    /// The next word.
    Word(usize),
    /// So many messages were lost before the next word; it is told once, by
    /// [`Consumer::acknowledge_loss`].
    Loss(u64),
}

/// The read end.
#[derive(Debug)]
pub struct Consumer {
    slots: Slots,
    head: u64,
    lost_told: u64,
    shared: Arc<Shared>,
}

impl Consumer {
    /// Messages that fit.
    pub fn capacity(&self) -> usize {
        self.shared.capacity as usize
    }

    /// Looks at the next word without taking it.
    #[inline]
    pub fn peek(&self) -> Slot {
        // SYNC slot-filled: pairs with Producer::push.
        let tagged = self.slots.at(self.head).load(Ordering::Acquire);
        if tagged & LAP != self.slots.lap(self.head) {
            return Slot::Empty;
        }
        if tagged & LOSS != 0 {
            let loss = self.loss_before(self.slots.index(self.head));
            if loss > 0 {
                return Slot::Loss(loss);
            }
        }
        Slot::Word(tagged & !TAG_BITS)
    }

    #[cold]
    fn loss_before(&self, index: usize) -> u64 {
        // Relaxed: the slot's load (slot-filled) has made it visible.
        let total = self.shared.losses.get().map_or(0, |all| all[index].load(Ordering::Relaxed));
        // Less than was told already, where the loss was told at the end of the ring.
        total.saturating_sub(self.lost_told)
    }

    /// Messages lost after all that was pushed, when the ring is empty; 0 when it is not.
    #[inline]
    pub fn loss_at_end(&self) -> u64 {
        // SYNC loss-told: pairs with Producer::lose.
        let lost = self.shared.lost.load(Ordering::Acquire);
        if lost == self.lost_told || self.peek() != Slot::Empty { 0 } else { lost - self.lost_told }
    }

    /// Whether nothing is there, not even a loss to be told.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.peek() == Slot::Empty && self.loss_at_end() == 0
    }

    /// The loss of `count` was told to the subscriber.
    pub fn acknowledge_loss(&mut self, count: u64) {
        self.lost_told += count;
    }

    /// Calls `f` with the words that are there, in order, up to `most`, until it says to stop. Ends
    /// before a loss. Returns how many words were taken.
    ///
    /// They are taken in blocks of up to [`BLOCK`] words that agree in the bits of `same`. When a
    /// block has been gone through, `left` is called with its last word and their number, then the
    /// slots are given back, and `released` is called. A word counts as taken when `f` is called
    /// with it, also if `f` unwinds.
    #[inline(always)]
    pub fn drain(
        &mut self,
        most: usize,
        same: usize,
        left: impl FnMut(usize, usize),
        mut released: impl FnMut(),
        mut f: impl FnMut(usize) -> bool,
    ) -> usize {
        /// The block at hand; leaves it also when `f` unwinds.
        struct Taking<'a, L: FnMut(usize, usize)> {
            head: &'a mut u64,
            shared: &'a AtomicU64,
            block: &'a [AtomicUsize],
            count: usize,
            left: L,
        }
        impl<L: FnMut(usize, usize)> Taking<'_, L> {
            #[inline(always)]
            fn leave(&mut self) {
                let count = std::mem::take(&mut self.count);
                if count > 0 {
                    // Relaxed: `block` has seen this very word.
                    let last = self.block[count - 1].load(Ordering::Relaxed) & !TAG_BITS;
                    (self.left)(last, count);
                    *self.head = self.head.wrapping_add(count as u64);
                    // SYNC slot-free: pairs with Producer::free.
                    self.shared.store(*self.head, Ordering::Release);
                }
            }
        }
        impl<L: FnMut(usize, usize)> Drop for Taking<'_, L> {
            #[inline(always)]
            fn drop(&mut self) {
                self.leave();
            }
        }
        let slots = &self.slots;
        let mut at = self.head;
        let mut taken = 0;
        let block = slots.block(at, most, same);
        let shared = &self.shared.head;
        let mut taking = Taking { head: &mut self.head, shared, block, count: 0, left };
        while !taking.block.is_empty() {
            let block = taking.block;
            taken += block.len();
            at = at.wrapping_add(block.len() as u64);
            // Looked at before this one is read, so that its records come meanwhile.
            let next = slots.block(at, most - taken, same);
            for slot in block {
                // Relaxed: `block` has seen this very word.
                let word = slot.load(Ordering::Relaxed) & !TAG_BITS;
                taking.count += 1;
                if !f(word) {
                    return taken - block.len() + taking.count;
                }
            }
            taking.leave();
            released();
            taking.block = next;
        }
        taken
    }

    /// Steps over the word that `peek` gave. The slot stays taken until [`release`](Self::release).
    #[inline]
    pub fn advance(&mut self) {
        self.head = self.head.wrapping_add(1);
    }

    /// Gives the slots stepped over back to the producer.
    #[inline]
    pub fn release(&mut self) {
        // SYNC slot-free: pairs with Producer::free.
        self.shared.head.store(self.head, Ordering::Release);
    }

    /// What other threads may ask about this ring.
    pub fn gauge(&self) -> Gauge {
        Gauge(Arc::clone(&self.shared))
    }
}

/// The figures of a ring, for metrics and for publishers that wait for space.
#[derive(Debug, Clone)]
pub struct Gauge(Arc<Shared>);

impl Gauge {
    /// Whether no message fits. The answer may be out of date when it arrives.
    pub fn is_full(&self) -> bool {
        self.depth() >= self.0.capacity
    }

    /// Messages pushed and not yet taken.
    pub fn depth(&self) -> u64 {
        let tail = self.0.tail.load(Ordering::Relaxed);
        // SYNC slot-free: a publisher that sees space here finds it in Producer::free as well.
        let head = self.0.head.load(Ordering::Acquire);
        // Two loads are no snapshot: head may have passed the tail that was read.
        if tail.wrapping_sub(head) > self.0.capacity { 0 } else { tail.wrapping_sub(head) }
    }

    /// Messages pushed so far, counted from the position `start`.
    pub fn pushed(&self, start: u64) -> u64 {
        self.0.tail.load(Ordering::Relaxed).wrapping_sub(start)
    }
}

#[cfg(test)]
#[cfg(not(slipring_loom))]
mod tests {
    use super::*;

    fn word(n: u64) -> usize {
        (n as usize) << 3
    }

    fn take(consumer: &mut Consumer) -> Slot {
        let slot = consumer.peek();
        match slot {
            Slot::Word(_) => {
                consumer.advance();
                consumer.release();
            }
            Slot::Loss(n) => consumer.acknowledge_loss(n),
            Slot::Empty => {}
        }
        slot
    }

    #[test]
    fn words_come_out_in_order_from_any_start_position() {
        for start in [0, 7, u64::from(u32::MAX) - 3, u64::MAX - 3, u64::MAX] {
            for capacity in [1, 2, 3, 5, 8] {
                let (mut producer, mut consumer) = ring(capacity, start);
                let (mut pushed, mut taken) = (0, 0);
                while taken < 100 {
                    while producer.free(1) == 1 {
                        producer.push(&[word(pushed)]);
                        pushed += 1;
                    }
                    assert_eq!(pushed - taken, capacity as u64, "exactly what was asked for fits");
                    assert_eq!(consumer.gauge().depth(), capacity as u64);
                    for _ in 0..=capacity / 2 {
                        assert_eq!(take(&mut consumer), Slot::Word(word(taken)));
                        taken += 1;
                    }
                }
            }
        }
    }

    #[test]
    fn a_loss_is_told_where_it_happened() {
        let (mut producer, mut consumer) = ring(2, 0);
        producer.push(&[word(0), word(1)]);
        producer.lose(3);
        assert_eq!(take(&mut consumer), Slot::Word(word(0)));
        producer.push(&[word(2)]);
        producer.lose(4);
        assert_eq!(take(&mut consumer), Slot::Word(word(1)));
        assert_eq!(take(&mut consumer), Slot::Loss(3));
        assert_eq!(take(&mut consumer), Slot::Word(word(2)));
        assert_eq!(take(&mut consumer), Slot::Empty);
        assert_eq!(consumer.loss_at_end(), 4);
        consumer.acknowledge_loss(4);
        producer.push(&[word(3)]);
        assert_eq!(take(&mut consumer), Slot::Word(word(3)), "a loss is told once");
        assert_eq!(consumer.loss_at_end(), 0);
    }
}
