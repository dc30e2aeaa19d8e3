//! The terms on which a subscription's messages are delivered again.

use crate::backoff::Backoff;
use crate::clock::whole_ms;
use crate::config::DEFAULT_OUTSTANDING;
use crate::error::AckError;
use std::time::Duration;

/// The least and the most that a lease can be given for.
pub(crate) const LEASE_MIN: Duration = Duration::from_millis(10);
/// See [`LEASE_MIN`].
pub(crate) const LEASE_MAX: Duration = Duration::from_secs(600);

/// How messages are delivered again.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) visibility: Duration,
    pub(crate) max_attempts: u32,
    pub(crate) backoff: Backoff,
    pub(crate) max_outstanding: usize,
    /// Whether later messages of an ordering key wait for one that has failed.
    pub(crate) keys_wait: bool,
    /// Whether what is settled outlives the process.
    pub(crate) is_durable: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            visibility: Duration::from_secs(10),
            max_attempts: 5,
            backoff: Backoff::default(),
            max_outstanding: DEFAULT_OUTSTANDING,
            keys_wait: true,
            is_durable: false,
        }
    }
}

/// Whether `time` is from `min` to `max`.
pub(crate) fn in_range(time: Duration, min: Duration, max: Duration) -> Result<(), AckError> {
    if (min..=max).contains(&time) {
        return Ok(());
    }
    let (requested_ms, min_ms, max_ms) = (whole_ms(time), whole_ms(min), whole_ms(max));
    Err(AckError::OutOfRange { requested_ms, min_ms, max_ms })
}
