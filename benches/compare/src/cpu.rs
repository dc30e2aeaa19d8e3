//! The two processors of every comparison, and the clock of the latency ones.
//!
//! The allowed set is read once, before anything is pinned: a thread that a pinned thread starts
//! inherits its one processor and would find no second.
#![expect(unsafe_code, reason = "sched_setaffinity, the time stamp counter and malloc_trim")]

use std::mem::size_of;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Which of the two processors a thread runs on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Role {
    /// The first allowed processor.
    Producer,
    /// The second allowed processor.
    Consumer,
}

static ALLOWED: OnceLock<Vec<usize>> = OnceLock::new();

/// The processors this process may use, as absolute numbers. The first call must come before any
/// pinning.
pub(crate) fn allowed() -> &'static [usize] {
    ALLOWED.get_or_init(|| {
        // SAFETY: an all-zero cpu_set_t is an empty set, and the kernel writes no more than its size.
        let set = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
            set
        };
        let limit = usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
        // SAFETY: the index is below CPU_SETSIZE.
        (0..limit).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
    })
}

/// The absolute number of a role's processor.
pub(crate) fn number(role: Role) -> usize {
    let allowed = allowed();
    match role {
        Role::Producer => allowed[0],
        Role::Consumer => *allowed.get(1).unwrap_or(&allowed[0]),
    }
}

/// Pins the calling thread.
///
/// # Panics
/// When the kernel refuses: an unpinned comparison would be worth nothing.
pub(crate) fn pin(role: Role) {
    // SAFETY: an all-zero cpu_set_t is an empty set, the number is from the allowed set and so
    // below CPU_SETSIZE, and the kernel reads no more than the set's size.
    let refused = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(number(role), &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    assert_eq!(refused, 0, "cannot pin a thread to processor {}", number(role));
}

/// Gives freed memory back to the kernel, so that the next [`resident_bytes`] starts clean.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The process's resident memory.
pub(crate) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// How many threads of the whole machine wanted a processor, averaged over the last minute.
pub(crate) fn load() -> f64 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().and_then(|minute| minute.parse().ok()).unwrap_or(0.0)
}

/// Reads a counter that runs at a constant rate on all processors.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reading the time stamp counter has no effect on memory.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        static START: OnceLock<Instant> = OnceLock::new();
        let elapsed = START.get_or_init(Instant::now).elapsed();
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// How many [`ticks`] a nanosecond has.
pub(crate) fn ticks_per_ns() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (start, first) = (Instant::now(), ticks());
        while start.elapsed() < Duration::from_millis(100) {
            std::hint::spin_loop();
        }
        (ticks() - first) as f64 / start.elapsed().as_nanos() as f64
    })
}
