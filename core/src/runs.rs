//! Runs: what is queued, as intervals of a log's sequences.
//!
//! The log's index knows where each record is, so a queue need not: it says which sequences are in
//! it. Messages for one subscription mostly follow each other in the log, and then the queue grows
//! by moving its end: one store, for one message or for a whole batch. Only where others' messages
//! lie between does a new *run* begin.
//!
//! The table has a slot for each run that can be queued at once, which is at most one a message. A
//! run says where in the queue it begins (its *base*, counted in messages) and with which sequence.
//! It ends where the next one begins, or at the queue's end.
//!
//! Pair `run-begun`: the producer's stores of a slot, then of `begun` / the consumer's load of
//! `begun`, then of a slot.

use crate::sync::{AtomicU64, Ordering};

/// Set in a slot whose run follows a loss.
const LOSS: u64 = 1;

#[derive(Debug)]
struct Slot {
    base: AtomicU64,
    /// The first sequence, shifted, and [`LOSS`].
    first: AtomicU64,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Runs(Box<[Slot]>);

/// A run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    /// The position in the queue at which it begins.
    pub(crate) base: u64,
    /// The sequence there.
    pub(crate) first: u64,
    /// Whether messages were lost just before.
    pub(crate) follows_loss: bool,
}

impl Run {
    /// The sequence at `position`.
    #[inline(always)]
    pub(crate) fn at(self, position: u64) -> u64 {
        self.first.wrapping_add(position.wrapping_sub(self.base))
    }
}

impl Runs {
    /// A table for a queue of `capacity` messages.
    pub(crate) fn new(capacity: usize) -> Self {
        let slot = |_| Slot { base: AtomicU64::new(0), first: AtomicU64::new(0) };
        Self((0..capacity.next_power_of_two()).map(slot).collect())
    }

    /// How many runs there is room for.
    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// The slot that the run number `run` uses.
    #[inline(always)]
    pub(crate) fn slot(&self, run: u64) -> usize {
        run as usize & (self.0.len() - 1)
    }

    /// Writes down the run number `run`; whoever reads it has seen that it has begun.
    #[inline(always)]
    pub(crate) fn write(&self, number: u64, run: Run) {
        let slot = &self.0[self.slot(number)];
        // Relaxed, here and below: `begun` shows what is written. Where a slot may be overwritten while
        // it is read, the swap tells that follows (`lossy-taken`).
        slot.base.store(run.base, Ordering::Relaxed);
        let first = run.first << 1 | if run.follows_loss { LOSS } else { 0 };
        slot.first.store(first, Ordering::Relaxed);
    }

    /// The run number `number`.
    #[inline(always)]
    pub(crate) fn read(&self, number: u64) -> Run {
        let first = self.0[self.slot(number)].first.load(Ordering::Relaxed);
        Run { base: self.base(number), first: first >> 1, follows_loss: first & LOSS != 0 }
    }

    /// Where the run number `number` begins.
    #[inline(always)]
    pub(crate) fn base(&self, number: u64) -> u64 {
        self.0[self.slot(number)].base.load(Ordering::Relaxed)
    }

    /// The number of the run that has `position`, of those up to `newest` and from `from` on, or from
    /// the oldest on that can still be in its slot.
    pub(crate) fn seek(&self, from: u64, newest: u64, position: u64) -> u64 {
        // Positions that are compared are far less than 2^63 apart.
        let begins_by = |run| position.wrapping_sub(self.base(run)) < 1 << 63;
        let mut run = from.max((newest + 1).saturating_sub(self.0.len() as u64));
        while run < newest && begins_by(run + 1) {
            run += 1;
        }
        run
    }
}

/// Messages that follow each other in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "internal")]
pub struct Span {
    /// The first one's sequence.
    pub first: u64,
    /// How many.
    pub count: u64,
}
