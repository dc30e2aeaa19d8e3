//! What to do between two looks at something that is not there yet.
//!
//! A consumer that looks at an empty ring all the time takes the line that the producer is about
//! to write, and slows it down several times over; one that looks too rarely adds latency. Which
//! of the two matters tells itself: where the next message was there at the first look after a
//! pause, messages come faster than they are fetched, and the pause grows, so that they gather;
//! where many looks were in vain, it shrinks to nothing.

use crate::config::WaitStrategy;
use crate::sync::{spin_loop, yield_now};

/// Longest pause between looks, in PAUSE instructions (about 2 us).
const LONGEST: u32 = 256;
/// Looks in vain after which latency is what matters.
const MANY: u32 = 8;
/// Messages in a round that are worth the round: fewer had better gather.
const ROUND: usize = 256;
/// PAUSE instructions spent in vain before an adaptive waiter yields, and then parks.
const SPIN_LIMIT: u32 = 4096;
const YIELD_LIMIT: u32 = SPIN_LIMIT + 4096;
/// What a yield counts for.
const YIELD_COST: u32 = 512;

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
    /// PAUSE instructions between looks.
    pause: u32,
    /// Looks in vain since something was found.
    looks: u32,
    /// What was spent on them.
    spent: u32,
    /// PAUSE instructions after a round that found a few messages, as the one before it did.
    gather: u32,
}

impl Idle {
    /// A waiter that has found nothing yet.
    pub fn new(strategy: WaitStrategy) -> Self {
        Self { strategy, pause: 1, looks: 0, spent: 0, gather: 1 }
    }

    /// Something was found.
    #[inline]
    pub(crate) fn found(&mut self) {
        if self.looks > 0 {
            self.adapt();
        }
    }

    #[inline]
    fn adapt(&mut self) {
        if self.looks <= 2 {
            self.pause = (self.pause * 2).min(LONGEST);
        } else if self.looks > MANY {
            self.pause = (self.pause / 4).max(1);
        }
        self.looks = 0;
        self.spent = 0;
    }

    /// Nothing was found: pauses. True if the strategy says to park now.
    pub(crate) fn pause(&mut self) -> bool {
        self.looks += 1;
        let spin = match self.strategy {
            WaitStrategy::Park => return true,
            WaitStrategy::BusySpin => true,
            WaitStrategy::Yield => self.spent < SPIN_LIMIT,
            WaitStrategy::Adaptive if self.spent >= YIELD_LIMIT => return true,
            WaitStrategy::Adaptive => self.spent < SPIN_LIMIT,
        };
        if spin {
            for _ in 0..self.pause {
                spin_loop();
            }
            self.spent = self.spent.saturating_add(self.pause);
        } else {
            yield_now();
            self.spent = self.spent.saturating_add(YIELD_COST);
        }
        false
    }

    /// A round of looking found `count` messages: pauses if that was none, and at times a little
    /// if it was few. Never parks, since it does not know what to be woken by.
    #[inline]
    pub fn rest(&mut self, count: usize) {
        if count == 0 {
            self.gather = 1;
            self.pause();
            return;
        }
        let is_stream = self.looks == 0;
        self.found();
        // Longer and longer, so that it never adds much to what the stream has taken so far.
        if is_stream && count < ROUND {
            for _ in 0..self.gather {
                spin_loop();
            }
            self.gather = (self.gather * 2).min(LONGEST / 2);
        }
    }
}
