//! The circuit breaker of a handler: pauses deliveries to one that keeps failing.

use crate::config::CircuitBreaker;
use std::time::Duration;

/// What a breaker lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum BreakerState {
    /// Everything.
    #[default]
    Closed,
    /// Nothing, until the cool-down is over.
    Open,
    /// One message, to see whether the handler has recovered.
    HalfOpen,
}

#[derive(Debug)]
pub(crate) struct Breaker {
    config: Option<CircuitBreaker>,
    state: BreakerState,
    failures: usize,
    open_until: Duration,
}

impl Breaker {
    pub(crate) fn new(config: Option<CircuitBreaker>) -> Self {
        Self { config, state: BreakerState::Closed, failures: 0, open_until: Duration::ZERO }
    }

    pub(crate) fn state(&self) -> BreakerState {
        self.state
    }

    /// How many messages may be delivered now, or else when to ask again.
    pub(crate) fn admits(&mut self, now: Duration, wanted: usize) -> Result<usize, Duration> {
        match self.state {
            BreakerState::Closed if self.config.is_none() => Ok(wanted),
            // A success must come between failures, so look after each message.
            BreakerState::Closed => Ok(wanted),
            BreakerState::Open if now < self.open_until => Err(self.open_until),
            BreakerState::Open | BreakerState::HalfOpen => {
                self.state = BreakerState::HalfOpen;
                Ok(1)
            }
        }
    }

    /// A message was handled. True if deliveries may go on at once.
    pub(crate) fn record(&mut self, success: bool, now: impl FnOnce() -> Duration) -> bool {
        if success {
            self.failures = 0;
            self.state = BreakerState::Closed;
            return true;
        }
        self.failures += 1;
        match self.config {
            Some(config)
                if self.state == BreakerState::HalfOpen
                    || self.failures >= config.failures.get() =>
            {
                self.state = BreakerState::Open;
                self.open_until = now().saturating_add(config.cool_down);
                false
            }
            _ => true,
        }
    }
}

#[cfg(test)]
#[cfg(not(slipring_loom))]
mod tests {
    use super::*;
    use std::num::NonZeroUsize;

    #[test]
    fn it_opens_after_failures_in_a_row_and_tries_one_message_after_the_cool_down() {
        let at = Duration::from_secs;
        let config = CircuitBreaker { failures: NonZeroUsize::new(2).unwrap(), cool_down: at(10) };
        let mut breaker = Breaker::new(Some(config));
        assert!(breaker.record(false, || at(0)));
        assert!(breaker.record(true, || at(0)));
        assert!(breaker.record(false, || at(0)));
        assert!(!breaker.record(false, || at(0)));
        assert_eq!(breaker.admits(at(9), 64), Err(at(10)));
        assert_eq!(breaker.admits(at(10), 64), Ok(1));
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        assert!(!breaker.record(false, || at(10)), "a failed trial opens it again");
        assert_eq!(breaker.admits(at(20), 64), Ok(1));
        assert!(breaker.record(true, || at(20)));
        assert_eq!(breaker.admits(at(20), 64), Ok(64));
    }
}
