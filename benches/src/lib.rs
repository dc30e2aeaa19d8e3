//! Criterion benchmarks of slipring itself; the peers are in `compare/`.

pub mod routing_input;
pub mod routing_model;

use slipring::{Broker, DeliveryMode, SubscriptionBuilder};
use std::time::Duration;

/// A subscription whose messages need no acknowledging.
pub fn at_most_once<'a>(broker: &Broker, pattern: &'a str) -> SubscriptionBuilder<'a> {
    broker.subscription(pattern).delivery(DeliveryMode::AtMostOnce)
}

/// Lets the allocator give what is free back to the system, so that resident memory tells what is
/// in use.
#[expect(unsafe_code, reason = "the allocator's own call")]
pub fn give_memory_back() {
    // SAFETY: malloc_trim(3) may be called at any time, from any thread.
    unsafe { libc::malloc_trim(0) };
}

/// CPU time that the calling thread has used: what others do on the machine counts little.
#[expect(unsafe_code, reason = "a system call")]
pub fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(3) writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
