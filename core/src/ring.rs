//! The plain ring: a bounded queue from one producer to one consumer, without a CAS.
//!
//! It is Lamport's queue over [runs](crate::runs): positions are counted in messages, the producer
//! publishes its `tail`, the consumer its `head`, and either reads the other's only when what it
//! last saw does not suffice. A push is one store as long as the run goes on, also for a batch.
//!
//! Where all that is published is for the ring, the producer need not even do that: the ring then
//! *follows* the log, and all that the log shows from the present run on is in it, until the
//! producer ends that, which it does before the log shows something else. So one store tells any
//! number of rings.
//!
//! What does not fit is dropped by the caller and reported to [`Producer::lose`]; the next push
//! begins a run with a mark, so the consumer learns of the loss exactly where it happened.
//!
//! | shared field | written by | read by | may be stale |
//! |---|---|---|---|
//! | runs | producer | consumer | not where `begun` says so |
//! | head | consumer | producer | yes: then the ring looks fuller than it is |
//! | tail | producer | consumer, metrics, a blocked publisher | yes: then it looks emptier |
//! | begun | producer | consumer | not behind a tail that was seen |
//! | following | producer | consumer, metrics | read before and after the log's head |
//! | lost | producer | consumer when the ring is empty, metrics | yes: then a loss is told later |
//!
//! Pairs: `tail-moved` (producer's store of tail / consumer's load) makes the messages visible, and
//! the runs they are in; `run-begun` (store of begun / load of it) makes a run's slot visible;
//! `slot-free` (consumer's store of head / producer's load) makes the consumer's reads of a slot
//! happen before it is overwritten; `following` (producer's stores of following, the second before
//! the log's head moves past what is for the ring / loads of it on both sides of that of the log's
//! head) makes a head that counts be one of the time in between; `loss-told` (producer's store of lost / consumer's load) makes
//! everything pushed before the loss visible to whoever sees the loss.

use crate::runs::{Run, Runs, Span};
use crate::sync::{Arc, AtomicU64, CachePadded, Ordering};
use std::sync::OnceLock;

/// No sequence goes on from here.
const NOWHERE: u64 = u64::MAX;

#[derive(Debug)]
struct Shared {
    runs: Runs,
    /// Messages that fit.
    capacity: u64,
    /// For each slot whose run follows a loss: the total lost until then. Made at the first loss.
    losses: OnceLock<Box<[AtomicU64]>>,
    /// Position of the next message to take.
    head: CachePadded<AtomicU64>,
    end: CachePadded<End>,
}

/// Where the queue ends.
#[derive(Debug)]
struct End {
    /// Position of the next message to push.
    tail: AtomicU64,
    /// How many runs have begun.
    begun: AtomicU64,
    /// How many messages were lost so far.
    lost: AtomicU64,
    /// Odd while the ring follows the log: counts when that begins and ends.
    following: AtomicU64,
}

impl Shared {
    /// Position of the next message to push, where `log_head` is the next sequence that the log
    /// will show.
    #[inline(always)]
    fn tail(&self, log_head: impl Fn() -> u64) -> u64 {
        loop {
            // SYNC following: pairs with Producer::follow and unfollow.
            let following = self.end.following.load(Ordering::Acquire);
            if following.is_multiple_of(2) {
                // SYNC tail-moved: pairs with Producer::push and unfollow.
                return self.end.tail.load(Ordering::Acquire);
            }
            let head = log_head();
            // SYNC run-begun: none begins while the ring follows, so who sees a newer one sees
            // below that the ring has not followed all the time.
            let newest = self.end.begun.load(Ordering::Acquire).wrapping_sub(1);
            let run = self.runs.read(newest);
            // SYNC following: behind the load of the log's head, whose store is behind the end.
            if self.end.following.load(Ordering::Relaxed) == following {
                return run.base.wrapping_add(head.wrapping_sub(run.first));
            }
        }
    }
}

/// Makes a ring of `capacity` messages whose positions begin at `start`.
///
/// # Panics
/// If `capacity` is 0 or above 2^31.
pub fn ring(capacity: usize, start: u64) -> (Producer, Consumer) {
    assert!(capacity > 0 && capacity <= 1 << 31, "ring capacity {capacity} out of 1..=2^31");
    let shared = Arc::new(Shared {
        runs: Runs::new(capacity),
        capacity: capacity as u64,
        losses: OnceLock::new(),
        head: CachePadded::new(AtomicU64::new(start)),
        end: CachePadded::new(End {
            tail: AtomicU64::new(start),
            begun: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            following: AtomicU64::new(0),
        }),
    });
    let producer = Producer {
        tail: start,
        cached_head: start,
        capacity: capacity as u64,
        next: NOWHERE,
        begun: 0,
        oldest: 0,
        following: 0,
        loss_untold: false,
        lost: 0,
        shared: Arc::clone(&shared),
    };
    let run = Run { base: start, first: 0, follows_loss: false };
    let consumer = Consumer {
        head: start,
        seen_tail: start,
        seen_begun: 0,
        run,
        run_end: Some(start),
        entered: 0,
        loss: 0,
        lost_told: 0,
        shared,
    };
    (producer, consumer)
}

/// The write end.
#[derive(Debug)]
pub struct Producer {
    tail: u64,
    /// A past value of the consumer's head: never ahead of it.
    cached_head: u64,
    capacity: u64,
    /// The sequence with which the present run goes on.
    next: u64,
    begun: u64,
    /// A run that has, or is before the one that has, the oldest message.
    oldest: u64,
    /// As it is shared.
    following: u64,
    /// Whether something was lost since the last push.
    loss_untold: bool,
    lost: u64,
    shared: Arc<Shared>,
}

impl Producer {
    /// How many messages fit now, if that is at least an eighth of all that ever do.
    pub fn much_room(&mut self) -> Option<u64> {
        let room = self.free(u64::MAX);
        (room >= (self.capacity / 8).max(1)).then_some(room)
    }

    /// How many of `wanted` messages fit now. Reads the consumer's line only when they seem not to.
    #[inline(always)]
    pub fn free(&mut self, wanted: u64) -> u64 {
        let mut free = self.capacity - self.tail.wrapping_sub(self.cached_head);
        if free < wanted {
            // SYNC slot-free: pairs with Consumer::release.
            self.cached_head = self.shared.head.load(Ordering::Acquire);
            free = self.capacity - self.tail.wrapping_sub(self.cached_head);
        }
        free.min(wanted)
    }

    /// Pushes the messages of `span`, at least one; a loss is told before the first. The caller has
    /// asked [`free`](Self::free) that they fit.
    #[inline(always)]
    pub fn push(&mut self, span: Span) {
        debug_assert!(span.count > 0, "a run has messages");
        debug_assert!(self.following.is_multiple_of(2), "what follows the log is not pushed to");
        debug_assert!(self.free(span.count) == span.count, "push past what is free");
        if span.first != self.next || self.loss_untold {
            self.begin(span.first);
        }
        self.next = span.first + span.count;
        self.tail = self.tail.wrapping_add(span.count);
        // SYNC tail-moved: pairs with Consumer::look.
        self.shared.end.tail.store(self.tail, Ordering::Release);
    }

    /// Pushes the messages of `span`, at least one, if all of them fit.
    #[inline(always)]
    pub fn try_push(&mut self, span: Span) -> bool {
        let fits = self.free(span.count) == span.count;
        if fits {
            self.push(span);
        }
        fits
    }

    /// From now on all that the log shows is for this ring, which has everything up to `next`
    /// already; false if that is not so.
    pub fn follow(&mut self, next: u64) -> bool {
        if self.next != next || self.loss_untold {
            return false;
        }
        self.following += 1;
        // SYNC following: pairs with Shared::tail.
        self.shared.end.following.store(self.following, Ordering::Release);
        true
    }

    /// Takes note that the log has got to `next` while the ring follows it.
    pub fn catch_up_with(&mut self, next: u64) {
        self.tail = self.tail.wrapping_add(next - self.next);
        self.next = next;
    }

    /// What the log shows from `next` on is not for this ring, or is pushed to it.
    pub fn unfollow(&mut self, next: u64) {
        self.catch_up_with(next);
        // SYNC tail-moved: pairs with Shared::tail.
        self.shared.end.tail.store(self.tail, Ordering::Release);
        self.following += 1;
        // SYNC following: pairs with Shared::tail.
        self.shared.end.following.store(self.following, Ordering::Release);
    }

    #[inline(never)]
    fn begin(&mut self, first: u64) {
        if self.loss_untold {
            self.tell_loss();
        }
        let run = Run { base: self.tail, first, follows_loss: self.loss_untold };
        self.loss_untold = false;
        self.shared.runs.write(self.begun, run);
        self.begun += 1;
        // SYNC run-begun: pairs with Consumer::look.
        self.shared.end.begun.store(self.begun, Ordering::Release);
    }

    #[cold]
    fn tell_loss(&mut self) {
        let runs = &self.shared.runs;
        let make = || (0..runs.len()).map(|_| AtomicU64::new(0)).collect();
        let losses = self.shared.losses.get_or_init(make);
        // Relaxed: published with the run (run-begun), and the slot is ours now.
        losses[runs.slot(self.begun)].store(self.lost, Ordering::Relaxed);
    }

    /// Notes that `count` messages were dropped because they did not fit.
    #[cold]
    pub fn lose(&mut self, count: u64) {
        self.lost += count;
        self.loss_untold = true;
        // SYNC loss-told: pairs with Consumer::loss_at_end.
        self.shared.end.lost.store(self.lost, Ordering::Release);
    }

    /// Messages lost so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The sequence of the oldest message that has not been taken.
    pub fn oldest(&mut self) -> Option<u64> {
        // SYNC slot-free: as in `free`.
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

/// What a look at a ring shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "internal; a reader handles all of them")]
pub enum Look {
    /// Nothing is there, except perhaps a [loss at the end](Consumer::loss_at_end).
    Empty,
    /// The next messages: at least one.
    Span(Span),
    /// So many messages were lost before the next one; it is told once, by
    /// [`Consumer::acknowledge_loss`].
    Loss(u64),
}

/// The read end.
#[derive(Debug)]
pub struct Consumer {
    head: u64,
    /// A past value of the producer's tail: never ahead of it.
    seen_tail: u64,
    /// How many runs had begun then, or later.
    seen_begun: u64,
    /// The run that the message at `head` is in, unless `run_end` says that it has ended.
    run: Run,
    /// Where it ends, if that has been seen.
    run_end: Option<u64>,
    /// How many runs have been entered.
    entered: u64,
    /// Lost before the message at `head`, and not told yet.
    loss: u64,
    lost_told: u64,
    shared: Arc<Shared>,
}

impl Consumer {
    /// Messages that fit.
    pub fn capacity(&self) -> u64 {
        self.shared.capacity
    }

    /// Looks at the next messages without taking them. `log_head` is the next sequence that the log
    /// will show.
    #[inline(always)]
    pub fn look(&mut self, log_head: impl Fn() -> u64) -> Look {
        if self.head == self.seen_tail {
            self.seen_tail = self.shared.tail(log_head);
            if self.head == self.seen_tail {
                return Look::Empty;
            }
            // SYNC run-begun: pairs with Producer::begin. All that is before the tail is in these.
            self.seen_begun = self.shared.end.begun.load(Ordering::Acquire);
            self.see_run_end();
        }
        if self.run_end == Some(self.head) {
            self.enter_next();
        }
        if self.loss > 0 {
            return Look::Loss(self.loss);
        }
        // Where the run has not ended, all that was seen is in it.
        let end = self.run_end.map_or(self.seen_tail, |end| {
            // Both lie between head and a tail, which are no further apart than the capacity.
            let until = |position: u64| position.wrapping_sub(self.head);
            if until(end) < until(self.seen_tail) { end } else { self.seen_tail }
        });
        Look::Span(Span { first: self.run.at(self.head), count: end.wrapping_sub(self.head) })
    }

    /// Sees whether the run at hand has ended. If not, all up to the tail that was seen is in it.
    #[inline(always)]
    fn see_run_end(&mut self) {
        if self.run_end.is_none() && self.seen_begun > self.entered {
            self.run_end = Some(self.shared.runs.base(self.entered));
        }
    }

    /// Goes on to the next run, which has messages.
    #[inline(never)]
    fn enter_next(&mut self) {
        let runs = &self.shared.runs;
        self.run = runs.read(self.entered);
        debug_assert_eq!(self.run.base, self.head, "runs follow each other");
        if self.run.follows_loss {
            let slot = runs.slot(self.entered);
            // Relaxed: it has become visible with the run.
            let total = self.shared.losses.get().map_or(0, |all| all[slot].load(Ordering::Relaxed));
            // Less than was told already, where the loss was told at the end of the ring.
            self.loss = total.saturating_sub(self.lost_told);
        }
        self.entered += 1;
        self.run_end = None;
        self.see_run_end();
    }

    /// Steps over `count` messages that [`look`](Self::look) gave. Their places stay taken until
    /// [`release`](Self::release).
    #[inline(always)]
    pub fn advance(&mut self, count: u64) {
        self.head = self.head.wrapping_add(count);
    }

    /// Whether all that a look has seen was stepped over.
    #[inline(always)]
    pub fn has_taken_all(&self) -> bool {
        self.head == self.seen_tail
    }

    /// Gives the places stepped over back to the producer.
    #[inline(always)]
    pub fn release(&mut self) {
        // SYNC slot-free: pairs with Producer::free.
        self.shared.head.store(self.head, Ordering::Release);
    }

    /// Messages lost after all that was pushed, when the ring is empty; 0 when it is not.
    #[inline]
    pub fn loss_at_end(&self, log_head: impl Fn() -> u64) -> u64 {
        // SYNC loss-told: pairs with Producer::lose.
        let lost = self.shared.end.lost.load(Ordering::Acquire);
        if lost == self.lost_told || self.head != self.shared.tail(log_head) {
            0
        } else {
            lost - self.lost_told
        }
    }

    /// Whether nothing is there, not even a loss to be told.
    #[inline]
    pub fn is_empty(&self, log_head: impl Fn() -> u64) -> bool {
        self.head == self.shared.tail(&log_head) && self.loss_at_end(log_head) == 0
    }

    /// The loss of `count` was told to the subscriber.
    pub fn acknowledge_loss(&mut self, count: u64) {
        self.lost_told += count;
        self.loss = 0;
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
    pub fn is_full(&self, log_head: impl Fn() -> u64) -> bool {
        self.depth(log_head) >= self.0.capacity
    }

    /// Whether a quarter of the capacity is free, rounded down but at least one place.
    pub fn has_much_room(&self, log_head: impl Fn() -> u64) -> bool {
        self.depth(log_head) + (self.0.capacity / 4).max(1) <= self.0.capacity
    }

    /// Messages pushed and not yet taken.
    pub fn depth(&self, log_head: impl Fn() -> u64) -> u64 {
        let tail = self.0.tail(log_head);
        // SYNC slot-free: a publisher that sees space here finds it in Producer::free as well.
        let head = self.0.head.load(Ordering::Acquire);
        // Two loads are no snapshot: head may have passed the tail that was read.
        if tail.wrapping_sub(head) > self.0.capacity { 0 } else { tail.wrapping_sub(head) }
    }

    /// Messages pushed so far, counted from the position `start`.
    pub fn pushed(&self, start: u64, log_head: impl Fn() -> u64) -> u64 {
        self.0.tail(log_head).wrapping_sub(start)
    }
}

#[cfg(test)]
#[cfg(not(slipring_loom))]
mod tests {
    use super::*;

    /// Of rings that do not follow it.
    fn no_log() -> u64 {
        unreachable!("it is not asked")
    }

    fn one(sequence: u64) -> Span {
        Span { first: sequence, count: 1 }
    }

    /// Takes up to `most` messages, or a loss.
    fn take(consumer: &mut Consumer, most: u64) -> Look {
        let mut look = consumer.look(no_log);
        match &mut look {
            Look::Span(span) => {
                span.count = span.count.min(most);
                consumer.advance(span.count);
                consumer.release();
            }
            Look::Loss(lost) => consumer.acknowledge_loss(*lost),
            Look::Empty => {}
        }
        look
    }

    #[test]
    fn sequences_come_out_as_they_went_in_from_any_start_position() {
        for start in [0, 7, u64::from(u32::MAX) - 3, u64::MAX - 3, u64::MAX] {
            for capacity in [1, 2, 3, 5, 8] {
                // Every third one is somebody else's.
                for others in [u64::MAX, 3, 2, 1] {
                    let (mut producer, mut consumer) = ring(capacity, start);
                    let sequence = |n: u64| if others == u64::MAX { n } else { n + n / others };
                    let (mut pushed, mut taken) = (0, 0);
                    while taken < 100 {
                        while producer.free(1) == 1 {
                            producer.push(one(sequence(pushed)));
                            pushed += 1;
                        }
                        assert_eq!(pushed - taken, capacity as u64, "as many fit as was asked for");
                        assert_eq!(consumer.gauge().depth(no_log), capacity as u64);
                        assert_eq!(producer.oldest(), Some(sequence(taken)));
                        let wanted = taken + capacity as u64 / 2 + 1;
                        while taken < wanted {
                            let Look::Span(span) = take(&mut consumer, wanted - taken) else {
                                panic!("messages are there");
                            };
                            for n in 0..span.count {
                                assert_eq!(span.first + n, sequence(taken));
                                taken += 1;
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_loss_is_told_where_it_happened() {
        let (mut producer, mut consumer) = ring(2, 0);
        producer.push(Span { first: 0, count: 2 });
        producer.lose(3);
        assert_eq!(take(&mut consumer, 1), Look::Span(one(0)));
        producer.push(one(5));
        producer.lose(4);
        assert_eq!(take(&mut consumer, 9), Look::Span(one(1)));
        assert_eq!(take(&mut consumer, 9), Look::Loss(3));
        assert_eq!(take(&mut consumer, 9), Look::Span(one(5)));
        assert_eq!(take(&mut consumer, 9), Look::Empty);
        assert_eq!(consumer.loss_at_end(no_log), 4);
        consumer.acknowledge_loss(4);
        producer.push(one(10));
        assert_eq!(take(&mut consumer, 9), Look::Span(one(10)), "a loss is told once");
        assert_eq!(consumer.loss_at_end(no_log), 0);
    }

    #[test]
    fn the_oldest_sequence_is_found_wherever_the_consumer_is() {
        let (mut producer, mut consumer) = ring(4, 0);
        assert_eq!(producer.oldest(), None);
        for sequence in [1, 2, 5, 9] {
            producer.push(one(sequence));
        }
        for oldest in [1, 2, 5, 9] {
            assert_eq!(producer.oldest(), Some(oldest));
            take(&mut consumer, 1);
        }
        assert_eq!(producer.oldest(), None);
        producer.push(Span { first: 10, count: 2 });
        assert_eq!(producer.oldest(), Some(10));
    }

    #[test]
    fn a_ring_that_follows_the_log_has_what_the_log_shows() {
        let (mut producer, mut consumer) = ring(4, 0);
        assert!(!producer.follow(5), "it has nothing yet");
        producer.push(one(5));
        assert!(producer.follow(6));
        assert_eq!(consumer.gauge().depth(|| 8), 3);
        assert_eq!(consumer.look(|| 8), Look::Span(Span { first: 5, count: 3 }));
        consumer.advance(2);
        consumer.release();
        producer.catch_up_with(8);
        assert_eq!(producer.free(9), 3);
        producer.unfollow(9);
        producer.push(one(12));
        assert_eq!(consumer.gauge().pushed(0, no_log), 5);
        assert_eq!(consumer.look(no_log), Look::Span(one(7)));
        consumer.advance(1);
        assert_eq!(consumer.look(no_log), Look::Span(one(8)));
        consumer.advance(1);
        assert_eq!(consumer.look(no_log), Look::Span(one(12)));
        producer.lose(1);
        assert!(!producer.follow(13), "a loss is told before");
    }
}
