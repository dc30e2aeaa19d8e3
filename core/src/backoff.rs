//! How long a message that failed waits before it is tried again.

use std::time::Duration;

/// Pauses between attempts: `min` after the first, then doubled each time, up to `max`.
///
/// ```
/// use slipring::Backoff;
/// use std::time::Duration;
///
/// let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
/// let pauses: Vec<_> = (1..=5).map(|attempt| backoff.after(attempt).as_millis()).collect();
/// assert_eq!(pauses, [100, 200, 400, 800, 1000]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    jitter: bool,
}

impl Default for Backoff {
    /// 100 ms, doubled up to 60 s, without jitter.
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(60))
    }
}

impl Backoff {
    /// The most that a pause can be.
    pub const MAX: Duration = Duration::from_secs(24 * 3600);

    /// From `min` to `max`. Where `max` is less, it counts as `min`; what is more than
    /// [`MAX`](Self::MAX) counts as that.
    pub const fn new(min: Duration, max: Duration) -> Self {
        let min = if min.as_nanos() > Self::MAX.as_nanos() { Self::MAX } else { min };
        let max = if max.as_nanos() > Self::MAX.as_nanos() { Self::MAX } else { max };
        let max = if max.as_nanos() < min.as_nanos() { min } else { max };
        Self { min, max, jitter: false }
    }

    /// With jitter: each pause is shortened by a random part of up to a half, so that what failed
    /// together is not tried again all at once.
    #[must_use]
    pub const fn jitter(self) -> Self {
        Self { jitter: true, ..self }
    }

    /// The least, the most, and whether there is jitter.
    pub(crate) fn parts(&self) -> (Duration, Duration, bool) {
        (self.min, self.max, self.jitter)
    }

    /// The pause after attempt number `attempt` (counted from 1) has failed, without jitter.
    pub fn after(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(63);
        let min_ns = self.min.as_nanos();
        // At most 2^47 ns, doubled 63 times: within 128 bits.
        let ns = (min_ns << doublings).min(self.max.as_nanos());
        Duration::from_nanos(ns as u64)
    }

    /// The same with jitter, if it was asked for; then `random` decides, all values alike.
    pub(crate) fn after_with(&self, attempt: u32, random: impl FnOnce() -> u32) -> Duration {
        let pause = self.after(attempt);
        if !self.jitter {
            return pause;
        }
        let ns = pause.as_nanos() as u64;
        Duration::from_nanos(ns - ((u128::from(ns / 2) * u128::from(random())) >> 32) as u64)
    }
}

#[cfg(test)]
#[cfg(not(slipring_loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_minimum_above_the_maximum_is_both() {
        let hour = Duration::from_secs(3600);
        assert_eq!(Backoff::new(hour, Duration::ZERO).after(7), hour);
        assert_eq!(Backoff::new(Duration::MAX, Duration::MAX).after(1), Backoff::MAX);
    }

    #[test]
    fn the_default_starts_at_100_ms_and_ends_at_a_minute() {
        let pauses = [1, 2, 10, 11, 100, u32::MAX].map(|n| Backoff::default().after(n).as_millis());
        assert_eq!(pauses, [100, 200, 51_200, 60_000, 60_000, 60_000]);
        assert_eq!(Backoff::default().after(0).as_millis(), 100);
    }

    proptest! {
        #[test]
        fn jitter_shortens_by_at_most_a_half(attempt in 0u32..80, random: u32, min in 0u64..9000) {
            let plain = Backoff::new(Duration::from_millis(min), Duration::from_secs(8));
            let pause = plain.jitter().after_with(attempt, || random);
            prop_assert!(pause <= plain.after(attempt) && pause >= plain.after(attempt) / 2);
            prop_assert_eq!(plain.after_with(attempt, || random), plain.after(attempt));
        }
    }
}
