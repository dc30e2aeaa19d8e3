//! The one clock: every deadline, pause and time stamp of a broker goes through it, so that a test
//! can step time instead of sleeping.

use crate::sync::{Arc, AtomicU64, Mutex, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time, shared by all parts of a broker.
#[derive(Debug, Clone)]
pub struct Clock(Kind);

#[derive(Debug, Clone)]
enum Kind {
    System { start: Instant },
    Test(Arc<TestTime>),
}

#[derive(Debug)]
struct TestTime {
    start_us: u64,
    /// Nanoseconds since the start.
    elapsed_ns: AtomicU64,
    /// Threads that wait for a deadline and look at the clock again when it moves.
    sleepers: Mutex<Vec<Thread>>,
}

impl Default for Clock {
    /// The system's clocks.
    fn default() -> Self {
        Self(Kind::System { start: Instant::now() })
    }
}

impl From<&TestClock> for Clock {
    fn from(clock: &TestClock) -> Self {
        Self(Kind::Test(Arc::clone(&clock.0)))
    }
}

impl Clock {
    /// Monotonic time since the clock was made.
    pub(crate) fn now(&self) -> Duration {
        match &self.0 {
            Kind::System { start } => start.elapsed(),
            // Relaxed: time orders nothing by itself.
            Kind::Test(time) => Duration::from_nanos(time.elapsed_ns.load(Ordering::Relaxed)),
        }
    }

    /// Microseconds since the Unix epoch.
    #[inline]
    pub(crate) fn unix_us(&self) -> u64 {
        match &self.0 {
            Kind::System { .. } => {
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
            }
            Kind::Test(time) => time.start_us + time.elapsed_ns.load(Ordering::Relaxed) / 1000,
        }
    }

    /// Parks the calling thread until it is unparked or `deadline` has come (`None`: for ever).
    /// May return early.
    pub(crate) fn park_until(&self, deadline: Option<Duration>) {
        let Some(deadline) = deadline else { return thread::park() };
        match &self.0 {
            Kind::System { .. } => {
                let left = deadline.saturating_sub(self.now());
                if !left.is_zero() {
                    thread::park_timeout(left);
                }
            }
            Kind::Test(time) => {
                let me = thread::current();
                let mut sleepers = time.sleepers();
                if !sleepers.iter().any(|sleeper| sleeper.id() == me.id()) {
                    sleepers.push(me);
                }
                drop(sleepers);
                // Whoever moves the clock after this look finds the thread in the list.
                if self.now() < deadline {
                    thread::park();
                }
            }
        }
    }
}

/// Whole milliseconds, as many as fit.
pub(crate) fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// `timeout` from now, or what is as good as never.
pub(crate) fn deadline_after(timeout: Duration) -> Instant {
    const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    let now = Instant::now();
    now.checked_add(timeout.min(NEVER)).unwrap_or(now)
}

impl TestTime {
    fn sleepers(&self) -> impl std::ops::DerefMut<Target = Vec<Thread>> {
        self.sleepers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Time stamps of one writer, in microseconds since the Unix epoch: never going back.
///
/// Reads the TSC, where there is a good one, and asks the system's clock about twice a second.
#[derive(Debug)]
pub(crate) struct Stamps {
    clock: Clock,
    fast: quanta::Clock,
    /// Microseconds per 2^32 ticks.
    scale: u64,
    /// A pair of readings taken together.
    anchor: u64,
    anchor_us: u64,
    last_us: u64,
    /// How many ticks the anchor serves: none where the clock is a test's, which does not tick.
    serves: u64,
}

impl Stamps {
    /// Ticks after which the system's clock is asked again, since it may have been set: about a
    /// second. So the scaled product fits into 64 bits.
    const ANCHOR_TICKS: u64 = 1 << 31;

    pub(crate) fn new(clock: Clock) -> Self {
        let fast = quanta::Clock::new();
        let (anchor, anchor_us) = (fast.raw(), clock.unix_us());
        let scale = (fast.delta_as_nanos(0, 1 << 40) >> 8) / 1000;
        let serves = if matches!(clock.0, Kind::Test(_)) { 0 } else { Self::ANCHOR_TICKS };
        Self { clock, fast, scale, anchor, anchor_us, last_us: 0, serves }
    }

    /// The present time.
    #[inline]
    pub(crate) fn now_us(&mut self) -> u64 {
        let ticks = self.fast.raw().wrapping_sub(self.anchor);
        let now = if ticks >= self.serves {
            self.anchor_again()
        } else {
            self.anchor_us + ((ticks * self.scale) >> 32)
        };
        self.last_us = self.last_us.max(now);
        self.last_us
    }

    #[cold]
    fn anchor_again(&mut self) -> u64 {
        (self.anchor, self.anchor_us) = (self.fast.raw(), self.clock.unix_us());
        self.anchor_us
    }
}

/// A clock that stands still until it is told to move.
///
/// ```
/// use slipring::{Broker, TestClock};
/// use std::time::Duration;
///
/// let clock = TestClock::new();
/// let broker = Broker::builder().clock(&clock).build()?;
/// clock.advance(Duration::from_secs(3600));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct TestClock(Arc<TestTime>);

impl TestClock {
    /// A clock that stands at the present time.
    pub fn new() -> Self {
        Self(Arc::new(TestTime {
            start_us: Clock::default().unix_us(),
            elapsed_ns: AtomicU64::new(0),
            sleepers: Mutex::default(),
        }))
    }

    /// A clock that stands at `start_us`, so that every run of a model is the same.
    #[cfg(slipring_loom)]
    pub(crate) fn at(start_us: u64) -> Self {
        let (elapsed_ns, sleepers) = (AtomicU64::new(0), Mutex::default());
        Self(Arc::new(TestTime { start_us, elapsed_ns, sleepers }))
    }

    /// Moves time forward and wakes whoever waits for it. The clock stops 584 years after it was
    /// made.
    pub fn advance(&self, by: Duration) {
        let by_ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let moved = |ns: u64| Some(ns.saturating_add(by_ns));
        let _ = self.0.elapsed_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved);
        for sleeper in std::mem::take(&mut *self.0.sleepers()) {
            sleeper.unpark();
        }
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}
