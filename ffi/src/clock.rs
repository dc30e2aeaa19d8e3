//! A clock for tests.
#![expect(unsafe_code, reason = "exported names")]

use crate::panic::{entry, free};
use crate::status::slipring_status;
use slipring_core::TestClock;
use std::time::Duration;

/// A clock for tests, which stands still until it is told to move: leases, pauses and retention end
/// without waiting. It is given to a broker as `slipring_broker_options.clock`. Usable from all threads
/// at once. Free it with `slipring_test_clock_free`.
#[derive(Debug)]
pub struct slipring_test_clock {
    pub(crate) clock: TestClock,
}

/// A clock that stands at the present time. Errors: EINVAL. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_test_clock_new(
    clock: *mut *mut slipring_test_clock,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            c.out(clock, "clock")?.give(slipring_test_clock { clock: TestClock::new() });
            Ok(())
        })
    }
}

/// Moves it forward and wakes who waits for it. It stops 584 years after it was made. Errors: EINVAL.
/// Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_test_clock_advance(
    clock: *const slipring_test_clock,
    by_ns: u64,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            c.get(clock, "clock")?.clock.advance(Duration::from_nanos(by_ns));
            Ok(())
        })
    }
}

/// Frees it and sets the pointer to NULL; brokers that have the clock go on with it. NULL, or a
/// pointer to NULL, is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_test_clock_free(clock: *mut *mut slipring_test_clock) {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { free(clock) }
}
