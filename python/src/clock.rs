//! A clock for tests.

use crate::options::Seconds;
use pyo3::prelude::*;
use slipring_core::TestClock as CoreClock;

/// A clock that stands still until it is told to move: for tests of leases, retries and start times,
/// which need not sleep. Timeouts of calls are not by it.
///
/// >>> import slipring
/// >>> clock = slipring.TestClock()
/// >>> broker = slipring.open(clock=clock)
/// >>> jobs = broker.subscribe("jobs", delivery=slipring.DeliveryMode.AT_LEAST_ONCE)
/// >>> receipt = broker.publish("jobs", b"mail")
/// >>> jobs.get().attempt
/// 1
/// >>> clock.advance(10)
/// >>> jobs.get().attempt
/// 2
#[pyclass(frozen, module = "slipring")]
pub(crate) struct TestClock(pub(crate) CoreClock);

#[pymethods]
impl TestClock {
    /// So that pytest does not take it for a class of tests.
    #[classattr]
    #[pyo3(name = "__test__")]
    const IS_NO_TEST: bool = false;

    #[new]
    fn new() -> Self {
        Self(CoreClock::new())
    }

    /// Moves time forward and wakes whoever waits for it.
    fn advance(&self, seconds: Seconds) {
        self.0.advance(seconds.0);
    }
}
