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
                time.sleepers().push(thread::current());
                // Whoever moves the clock after this look finds the thread in the list.
                if self.now() < deadline {
                    thread::park();
                }
            }
        }
    }
}

impl TestTime {
    fn sleepers(&self) -> impl std::ops::DerefMut<Target = Vec<Thread>> {
        self.sleepers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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

    /// Moves time forward and wakes whoever waits for it.
    pub fn advance(&self, by: Duration) {
        self.0.elapsed_ns.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
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
