//! What to do between two looks at something that is not there yet.
//!
//! A consumer that looks at an empty ring all the time takes the line that the producer is about
//! to write, and slows it down several times over; one that looks too rarely adds latency. Which
//! of the two matters tells itself: where a pause was long enough for many messages, the next one
//! may be longer, for it adds little to what those have waited; where it brought few, it shrinks.

use crate::config::WaitStrategy;
use crate::sync::{spin_loop, yield_now};

/// What pauses are counted in, in nanoseconds. A PAUSE instruction takes as long as the processor has
/// it: 8 on one server, 26 on another.
const UNIT_NS: u32 = 8;
/// Longest pause between looks (about 8 us).
const LONGEST: u32 = 1024;
/// Fewer messages than these,
const FEW: u32 = 4;
/// found after more looks than these, had been waited for, and had not come meanwhile.
const WAITED: u32 = 2;
/// Looks in vain after which the pause is halved: a stream has ended.
const IN_VAIN: u32 = 8;
/// A pause of so many units is worth one message that it brought: it may be longer.
const WORTH: u32 = 16;
/// Units spent in vain before an adaptive waiter yields, and then parks.
const SPIN_LIMIT: u32 = 4096;
const YIELD_LIMIT: u32 = SPIN_LIMIT + 4096;
/// What a yield counts for.
const YIELD_COST: u32 = 512;

/// Spins for so many units of 8 ns, at least for one PAUSE.
pub(crate) fn spin_for(units: u32) {
    for _ in 0..(units / pause_units()).max(1) {
        spin_loop();
    }
}

/// How many units a PAUSE takes, at least one; measured once.
#[cfg(not(slipring_loom))]
fn pause_units() -> u32 {
    use std::{sync::OnceLock, time::Instant};
    const COUNT: u32 = 64;
    static UNITS: OnceLock<u32> = OnceLock::new();
    *UNITS.get_or_init(|| {
        let ns = || {
            let began = Instant::now();
            (0..COUNT).for_each(|_| spin_loop());
            began.elapsed().as_nanos() as u32 / COUNT
        };
        // The least: some are interrupted.
        let ns = (0..4).map(|_| ns()).min().unwrap_or(UNIT_NS);
        (ns / UNIT_NS).max(1)
    })
}

#[cfg(slipring_loom)]
fn pause_units() -> u32 {
    1
}

/// The waiting strategy of one consumer, between its looks.
///
/// For a thread that polls several subscriptions in turn:
///
/// ```
/// use slipring::{Broker, Idle, WaitStrategy};
///
/// let broker = Broker::in_memory();
/// let mut subscriptions = [broker.subscribe("a/*")?, broker.subscribe("b/*")?];
/// broker.publish("a/1", "x")?;
/// let mut idle = Idle::new(WaitStrategy::BusySpin);
/// let mut got = 0;
/// while got < 1 {
///     let found: usize = subscriptions
///         .iter_mut()
///         .map(|subscription| subscription.poll(64, |_| {}).unwrap_or(0))
///         .sum();
///     idle.rest(found);
///     got += found;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Idle {
    strategy: WaitStrategy,
    /// Units between looks.
    pause: u32,
    /// Looks in vain since something was found.
    looks: u32,
    /// What was spent on them.
    spent: u32,
    /// Messages found since the last of them.
    found: u32,
    /// The longest pause.
    longest: u32,
}

impl Idle {
    /// A waiter that has found nothing yet.
    pub fn new(strategy: WaitStrategy) -> Self {
        Self { strategy, pause: 1, looks: 0, spent: 0, found: 0, longest: LONGEST }
    }

    /// The same for one queue of `capacity` messages, which is not to fill up meanwhile: a fast
    /// publisher needs about a unit for a message.
    pub(crate) fn for_queue(strategy: WaitStrategy, capacity: usize) -> Self {
        Self { longest: LONGEST.min(capacity as u32), ..Self::new(strategy) }
    }

    /// So many messages were found.
    #[inline]
    pub(crate) fn found(&mut self, count: usize) {
        self.found = self.found.saturating_add(count as u32);
    }

    /// Fits the pause to what the last one brought.
    fn adapt(&mut self) {
        let had_been_waited_for = self.found < FEW && self.looks > WAITED;
        if had_been_waited_for || self.found.saturating_mul(4 * WORTH) < self.pause {
            self.pause = (self.pause / 4).max(1);
        } else if self.found.saturating_mul(WORTH) >= self.pause {
            self.pause = (self.pause * 2).min(self.longest);
        }
        (self.looks, self.spent, self.found) = (0, 0, 0);
    }

    /// Nothing was found: pauses. True if the strategy says to park now.
    pub(crate) fn pause(&mut self) -> bool {
        if self.found > 0 {
            self.adapt();
        }
        self.looks += 1;
        if self.looks.is_multiple_of(IN_VAIN) {
            self.pause = (self.pause / 2).max(1);
        }
        let spin = match self.strategy {
            WaitStrategy::Park => return true,
            WaitStrategy::BusySpin => true,
            WaitStrategy::Yield => self.spent < SPIN_LIMIT,
            WaitStrategy::Adaptive if self.spent >= YIELD_LIMIT => return true,
            WaitStrategy::Adaptive => self.spent < SPIN_LIMIT,
        };
        if spin {
            spin_for(self.pause);
            self.spent = self.spent.saturating_add(self.pause);
        } else {
            yield_now();
            self.spent = self.spent.saturating_add(YIELD_COST);
        }
        false
    }

    /// A round of looking found `count` messages: pauses if that was none. Never parks, since it
    /// does not know what to be woken by.
    #[inline]
    pub fn rest(&mut self, count: usize) {
        if count == 0 {
            self.pause();
        } else {
            self.found(count);
        }
    }
}
