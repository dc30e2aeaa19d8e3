//! The ring of `DropOldest`: when it is full, the producer takes the oldest word back.
//!
//! Both sides may then take from the head, so a word belongs to whoever moves `head` past it by
//! compare-and-swap. A slot is an atomic word and is read before the swap; a reader that loses the
//! swap forgets what it read. Nothing is reached through a word that was not won. Positions are
//! u64 and only grow, so a swap cannot succeed on a recycled position.
//!
//! The consumer counts what was taken back by itself: it knows the position that follows its last
//! word, and the distance from there to the position of the next word it wins is the loss.
//!
//! Pairs: `lossy-filled` (producer's store of a slot / consumer's load) makes the record visible;
//! `lossy-taken` (either side's swap of head / producer's load of head) makes the reads of a slot
//! happen before it is overwritten.

use crate::sync::{Arc, AtomicU64, AtomicUsize, CachePadded, Ordering};

/// The low bits of a word that the ring uses itself.
const TAG_BITS: usize = 0b111;
const LAP: usize = 0b001;

#[derive(Debug)]
struct Shared {
    slots: Box<[AtomicUsize]>,
    capacity: u64,
    /// Position of the oldest word that nobody took.
    head: CachePadded<AtomicU64>,
    /// Position of the next word to push; for metrics only.
    tail: CachePadded<AtomicU64>,
}

impl Shared {
    fn index(&self, position: u64) -> usize {
        position as usize & (self.slots.len() - 1)
    }

    fn lap(&self, position: u64) -> usize {
        (position >> self.slots.len().trailing_zeros()) as usize & LAP
    }
}

/// Makes a ring of `capacity` messages whose positions begin at `start`.
///
/// # Panics
/// If `capacity` is 0 or above 2^31.
pub fn lossy(capacity: usize, start: u64) -> (Producer, Consumer) {
    assert!(capacity > 0 && capacity <= 1 << 31, "ring capacity {capacity} out of 1..=2^31");
    let len = capacity.next_power_of_two();
    let shift = len.trailing_zeros();
    let slots = (0..len as u64)
        .map(|index| {
            let first = start.wrapping_add(index.wrapping_sub(start) & (len as u64 - 1));
            AtomicUsize::new(((first >> shift) as usize & LAP) ^ LAP)
        })
        .collect();
    let shared = Arc::new(Shared {
        slots,
        capacity: capacity as u64,
        head: CachePadded::new(AtomicU64::new(start)),
        tail: CachePadded::new(AtomicU64::new(start)),
    });
    let producer = Producer { shared: Arc::clone(&shared), tail: start, cached_head: start };
    (producer, Consumer { shared, expected: start })
}

/// The write end.
#[derive(Debug)]
pub struct Producer {
    shared: Arc<Shared>,
    tail: u64,
    cached_head: u64,
}

impl Producer {
    /// Pushes `word`; gives back the oldest word where that made room for it.
    #[inline]
    pub fn push(&mut self, word: usize) -> Option<usize> {
        debug_assert_eq!(word & TAG_BITS, 0, "the low bits of a word belong to the ring");
        let displaced = if self.is_full() { self.make_room() } else { None };
        let shared = &*self.shared;
        // SYNC lossy-filled: pairs with Consumer::take.
        shared.slots[shared.index(self.tail)]
            .store(word | shared.lap(self.tail), Ordering::Release);
        self.tail = self.tail.wrapping_add(1);
        // Relaxed: a figure for metrics.
        shared.tail.store(self.tail, Ordering::Relaxed);
        displaced
    }

    #[inline]
    fn is_full(&mut self) -> bool {
        self.tail.wrapping_sub(self.cached_head) == self.shared.capacity && {
            // SYNC lossy-taken: pairs with the swaps of head.
            self.cached_head = self.shared.head.load(Ordering::Acquire);
            self.tail.wrapping_sub(self.cached_head) == self.shared.capacity
        }
    }

    fn make_room(&mut self) -> Option<usize> {
        let shared = &*self.shared;
        // Relaxed: only this side writes slots.
        let oldest = shared.slots[shared.index(self.cached_head)].load(Ordering::Relaxed);
        let next = self.cached_head.wrapping_add(1);
        // SYNC lossy-taken: pairs with the consumer's swap and with the load in is_full.
        let swap = shared.head.compare_exchange(
            self.cached_head,
            next,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        match swap {
            Ok(_) => {
                self.cached_head = next;
                Some(oldest & !TAG_BITS)
            }
            // The consumer has just made room itself.
            Err(head) => {
                self.cached_head = head;
                None
            }
        }
    }

    /// What other threads may ask about this ring.
    pub fn gauge(&self) -> Gauge {
        Gauge(Arc::clone(&self.shared))
    }
}

/// The read end.
#[derive(Debug)]
pub struct Consumer {
    shared: Arc<Shared>,
    /// The position after the last word taken.
    expected: u64,
}

impl Consumer {
    /// Takes up to `words.len()` words into `words`; returns how many, and how many messages were
    /// displaced just before the first of them.
    ///
    /// 0 words means that the ring was empty: never that a word was there but was displaced.
    pub fn take(&mut self, words: &mut [usize]) -> (usize, u64) {
        let shared = &*self.shared;
        // SYNC lossy-taken: pairs with the producer's swap, whose slot it may overwrite next.
        let mut head = shared.head.load(Ordering::Acquire);
        loop {
            let mut count = 0;
            while count < words.len() {
                let position = head.wrapping_add(count as u64);
                // SYNC lossy-filled: pairs with Producer::push.
                let tagged = shared.slots[shared.index(position)].load(Ordering::Acquire);
                if tagged & LAP != shared.lap(position) {
                    break;
                }
                words[count] = tagged & !TAG_BITS;
                count += 1;
            }
            if count == 0 {
                // Either empty, or the slot already holds a later lap: then head has moved.
                let now = shared.head.load(Ordering::Acquire);
                if now == head {
                    return (0, 0);
                }
                head = now;
                continue;
            }
            let next = head.wrapping_add(count as u64);
            // SYNC lossy-taken: pairs with the producer's load of head before it overwrites.
            match shared.head.compare_exchange(head, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let displaced = head.wrapping_sub(self.expected);
                    self.expected = next;
                    return (count, displaced);
                }
                Err(now) => head = now,
            }
        }
    }

    /// Messages displaced since the last word was taken; told once. Takes nothing.
    pub fn displaced(&mut self) -> u64 {
        // SYNC lossy-taken: what the producer took before is counted here and not again.
        let head = self.shared.head.load(Ordering::Acquire);
        let displaced = head.wrapping_sub(self.expected);
        self.expected = head;
        displaced
    }

    /// Whether nothing is there to take.
    pub fn is_empty(&self) -> bool {
        let shared = &*self.shared;
        loop {
            let head = shared.head.load(Ordering::Acquire);
            // SYNC lossy-filled: pairs with Producer::push.
            let tagged = shared.slots[shared.index(head)].load(Ordering::Acquire);
            if tagged & LAP == shared.lap(head) {
                return false;
            }
            if shared.head.load(Ordering::Acquire) == head {
                return true;
            }
        }
    }

    /// What other threads may ask about this ring.
    pub fn gauge(&self) -> Gauge {
        Gauge(Arc::clone(&self.shared))
    }
}

/// The figures of a ring, for metrics.
#[derive(Debug, Clone)]
pub struct Gauge(Arc<Shared>);

impl Gauge {
    /// Messages pushed so far, counted from the position `start`.
    pub fn pushed(&self, start: u64) -> u64 {
        self.0.tail.load(Ordering::Relaxed).wrapping_sub(start)
    }

    /// Messages pushed and neither taken nor displaced.
    pub fn depth(&self) -> u64 {
        let tail = self.0.tail.load(Ordering::Relaxed);
        let head = self.0.head.load(Ordering::Relaxed);
        if tail.wrapping_sub(head) > self.0.capacity { 0 } else { tail.wrapping_sub(head) }
    }
}

#[cfg(test)]
#[cfg(not(slipring_loom))]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_and_the_loss_is_exact() {
        for start in [0, u64::from(u32::MAX) - 2, u64::MAX - 2] {
            for capacity in [1usize, 2, 3, 8] {
                let (mut producer, mut consumer) = lossy(capacity, start);
                let mut displaced = 0;
                for n in 0..20usize {
                    if let Some(word) = producer.push(n << 3) {
                        assert_eq!(word >> 3, displaced);
                        displaced += 1;
                    }
                }
                assert_eq!(displaced, 20 - capacity);
                let mut words = [0; 32];
                let (count, lost) = consumer.take(&mut words);
                assert_eq!((count, lost), (capacity, displaced as u64));
                assert_eq!(words[0] >> 3, displaced);
                assert_eq!(consumer.take(&mut words), (0, 0));
                assert!(consumer.is_empty());
                producer.push(99 << 3);
                assert_eq!(consumer.take(&mut words), (1, 0));
                for n in 0..capacity + 2 {
                    let _ = producer.push(n << 3);
                }
                assert_eq!((consumer.displaced(), consumer.displaced()), (2, 0), "told once");
                assert_eq!(producer.push(88 << 3), Some(2 << 3), "telling took nothing");
                assert_eq!(consumer.take(&mut words), (capacity, 1));
            }
        }
    }
}
