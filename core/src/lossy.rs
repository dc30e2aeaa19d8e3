//! The ring of `DropOldest`: when it is full, the producer takes the oldest messages back.
//!
//! Both sides may then take from the head, so a message belongs to whoever moves `head` past it by
//! compare-and-swap. Slots of [runs](crate::runs) are atomic and are read before the swap; a reader
//! that loses the swap forgets what it read. Positions are u64 and only grow, so a swap cannot
//! succeed on a recycled position.
//!
//! The consumer counts what was taken back by itself: it knows the position that follows its last
//! message, and the distance from there to the next one that it wins is the loss.
//!
//! Pairs: `tail-moved` and `run-begun` as in the plain ring; `lossy-taken` (either side's swap of
//! head / producer's swap or load of head) makes the reads of a slot happen before it is overwritten.
//! So who has read what overwrote a slot loses the swap: had it won, its reads would have happened
//! before the producer's swap, and that before the slot was overwritten.

use crate::runs::{Run, Runs, Span};
use crate::sync::{Arc, AtomicU64, CachePadded, Ordering};

/// No sequence goes on from here.
const NOWHERE: u64 = u64::MAX;

#[derive(Debug)]
struct Shared {
    runs: Runs,
    capacity: u64,
    /// Position of the oldest message that nobody took.
    head: CachePadded<AtomicU64>,
    end: CachePadded<End>,
}

#[derive(Debug)]
struct End {
    /// Position of the next message to push.
    tail: AtomicU64,
    /// How many runs have begun.
    begun: AtomicU64,
}

/// Makes a ring of `capacity` messages whose positions begin at `start`.
///
/// # Panics
/// If `capacity` is 0 or above 2^31.
pub fn lossy(capacity: usize, start: u64) -> (Producer, Consumer) {
    assert!(capacity > 0 && capacity <= 1 << 31, "ring capacity {capacity} out of 1..=2^31");
    let shared = Arc::new(Shared {
        runs: Runs::new(capacity),
        capacity: capacity as u64,
        head: CachePadded::new(AtomicU64::new(start)),
        end: CachePadded::new(End { tail: AtomicU64::new(start), begun: AtomicU64::new(0) }),
    });
    let producer = Producer {
        shared: Arc::clone(&shared),
        tail: start,
        cached_head: start,
        next: NOWHERE,
        begun: 0,
        oldest: 0,
    };
    (producer, Consumer { shared, expected: start, run: 0 })
}

/// The write end.
#[derive(Debug)]
pub struct Producer {
    shared: Arc<Shared>,
    tail: u64,
    cached_head: u64,
    /// The sequence with which the present run goes on.
    next: u64,
    begun: u64,
    /// A run that has, or is before the one that has, the oldest message.
    oldest: u64,
}

impl Producer {
    /// Pushes the messages of `span`, at least one; how many older ones, or of its own, were
    /// displaced.
    #[inline]
    pub fn push(&mut self, span: Span) -> u64 {
        debug_assert!(span.count > 0, "a run has messages");
        let (mut displaced, mut rest) = (0, span);
        while rest.count > 0 {
            let count = rest.count.min(self.shared.capacity);
            displaced += self.make_room(count);
            self.append(Span { first: rest.first, count });
            rest = Span { first: rest.first + count, count: rest.count - count };
        }
        displaced
    }

    #[inline]
    fn append(&mut self, span: Span) {
        let shared = &*self.shared;
        if span.first != self.next {
            let run = Run { base: self.tail, first: span.first, follows_loss: false };
            shared.runs.write(self.begun, run);
            self.begun += 1;
            // SYNC run-begun: pairs with Consumer::find.
            shared.end.begun.store(self.begun, Ordering::Release);
        }
        self.next = span.first + span.count;
        self.tail = self.tail.wrapping_add(span.count);
        // SYNC tail-moved: pairs with Consumer::take.
        shared.end.tail.store(self.tail, Ordering::Release);
    }

    /// Takes back as many messages as must go before `count` fit; how many.
    #[inline]
    fn make_room(&mut self, count: u64) -> u64 {
        let shared = &*self.shared;
        loop {
            let excess =
                (self.tail.wrapping_sub(self.cached_head) + count).saturating_sub(shared.capacity);
            if excess == 0 {
                return 0;
            }
            // SYNC lossy-taken: pairs with the consumer's swap. If this fails, the consumer has
            // just made room itself, or what was known of it is old.
            let swap = shared.head.compare_exchange(
                self.cached_head,
                self.cached_head.wrapping_add(excess),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match swap {
                Ok(_) => {
                    self.cached_head = self.cached_head.wrapping_add(excess);
                    return excess;
                }
                Err(head) => self.cached_head = head,
            }
        }
    }

    /// The sequence of the oldest message that has not been taken.
    pub fn oldest(&mut self) -> Option<u64> {
        // SYNC lossy-taken: pairs with the consumer's swap.
        self.cached_head = self.shared.head.load(Ordering::Acquire);
        if self.cached_head == self.tail {
            return None;
        }
        let runs = &self.shared.runs;
        self.oldest = runs.seek(self.oldest, self.begun - 1, self.cached_head);
        Some(runs.read(self.oldest).at(self.cached_head))
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
    /// The position after the last message taken.
    expected: u64,
    /// The run in which the last message was.
    run: u64,
}

impl Consumer {
    /// Takes up to `most` messages that follow each other; which, and how many messages were
    /// displaced just before the first of them.
    ///
    /// No message means that the ring was empty: never that one was there but was displaced.
    pub fn take(&mut self, most: u64) -> (Span, u64) {
        let shared = Arc::clone(&self.shared);
        // SYNC lossy-taken: pairs with the producer's swap, whose slots it may overwrite next.
        let mut head = shared.head.load(Ordering::Acquire);
        loop {
            // SYNC tail-moved: pairs with Producer::append.
            let tail = shared.end.tail.load(Ordering::Acquire);
            if tail == head {
                return (Span::default(), 0);
            }
            let span = self.find(head, tail, most);
            let next = head.wrapping_add(span.count);
            // SYNC lossy-taken: pairs with the producer's load of head before it overwrites.
            match shared.head.compare_exchange(head, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let displaced = head.wrapping_sub(self.expected);
                    self.expected = next;
                    return (span, displaced);
                }
                Err(now) => head = now,
            }
        }
    }

    /// The messages from `head` on, if that is still the head: else anything.
    fn find(&mut self, head: u64, tail: u64, most: u64) -> Span {
        let runs = &self.shared.runs;
        // SYNC run-begun: pairs with Producer::append. Not older than the tail.
        let newest = self.shared.end.begun.load(Ordering::Acquire) - 1;
        self.run = runs.seek(self.run, newest, head);
        let run = runs.read(self.run);
        let end = if self.run < newest { runs.base(self.run + 1) } else { tail };
        let until = |position: u64| position.wrapping_sub(head);
        let count = until(end).min(until(tail)).min(most);
        Span { first: run.at(head), count }
    }

    /// Messages displaced since the last one was taken; told once. Takes nothing.
    pub fn displaced(&mut self) -> u64 {
        // SYNC lossy-taken: what the producer took before is counted here and not again.
        let head = self.shared.head.load(Ordering::Acquire);
        let displaced = head.wrapping_sub(self.expected);
        self.expected = head;
        displaced
    }

    /// Whether nothing is there to take.
    pub fn is_empty(&self) -> bool {
        // SYNC lossy-taken: pairs with the producer's swap.
        let head = self.shared.head.load(Ordering::Acquire);
        // SYNC tail-moved: pairs with Producer::append.
        self.shared.end.tail.load(Ordering::Acquire) == head
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
        self.0.end.tail.load(Ordering::Relaxed).wrapping_sub(start)
    }

    /// Messages pushed and neither taken nor displaced.
    pub fn depth(&self) -> u64 {
        let tail = self.0.end.tail.load(Ordering::Relaxed);
        let head = self.0.head.load(Ordering::Relaxed);
        if tail.wrapping_sub(head) > self.0.capacity { 0 } else { tail.wrapping_sub(head) }
    }
}

#[cfg(test)]
#[cfg(not(slipring_loom))]
mod tests {
    use super::*;

    fn span(first: u64, count: u64) -> Span {
        Span { first, count }
    }

    #[test]
    fn the_oldest_goes_and_the_loss_is_exact() {
        for start in [0, u64::from(u32::MAX) - 2, u64::MAX - 2] {
            for capacity in [1, 2, 3, 8] {
                let (mut producer, mut consumer) = lossy(capacity as usize, start);
                let mut displaced = 0;
                for n in 0..20 {
                    displaced += producer.push(span(2 * n, 1));
                    assert_eq!(producer.oldest(), Some(2 * displaced));
                }
                assert_eq!(displaced, 20 - capacity);
                for n in displaced..20 {
                    let lost = if n == displaced { displaced } else { 0 };
                    assert_eq!(consumer.take(32), (span(2 * n, 1), lost));
                }
                assert_eq!(consumer.take(32), (span(0, 0), 0));
                assert!(consumer.is_empty());
                assert_eq!(producer.push(span(99, 1)), 0);
                assert_eq!(consumer.take(32), (span(99, 1), 0));
                assert_eq!(producer.push(span(100, capacity + 2)), 2, "two of its own");
                assert_eq!((consumer.displaced(), consumer.displaced()), (2, 0), "told once");
                assert_eq!(producer.push(span(500, 1)), 1, "telling took nothing");
                if capacity == 1 {
                    assert_eq!(consumer.take(32), (span(500, 1), 1));
                } else {
                    assert_eq!(consumer.take(32), (span(103, capacity - 1), 1));
                    assert_eq!(consumer.take(32), (span(500, 1), 0));
                }
            }
        }
    }
}
