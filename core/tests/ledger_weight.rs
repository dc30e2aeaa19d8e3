//! What a million leases weigh.
#![expect(unsafe_code, reason = "a global allocator that counts")]
#![expect(clippy::disallowed_types, reason = "the allocator's own counters")]

use slipring::internals::Ledger;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: everything is passed on to the system's allocator; growing is a new block, as it is by
// default.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.dealloc(at, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LEASES: u64 = 1_000_000;

/// The only test here: the allocator counts what all threads do.
#[test]
fn a_million_leases_fit_into_64_mib_and_settling_in_order_allocates_nothing() {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let mut ledger = Ledger::new(0);
    for sequence in 0..LEASES {
        // Every third of the log is somebody else's.
        ledger.lease(sequence + sequence / 2, 0, Duration::from_secs(10));
    }
    assert_eq!(ledger.leased() as u64, LEASES);
    let given = PEAK.load(Ordering::Relaxed) - before;
    // Every second one is settled, the others get deadlines of their own.
    for sequence in 0..LEASES {
        let place = sequence + sequence / 2;
        if sequence % 2 == 1 {
            assert!(ledger.ack(place, 1));
        } else {
            let until = Duration::from_millis(20_000 + sequence % 7000);
            assert_eq!(ledger.extend(place, 1, Duration::ZERO, until), Ok(()));
        }
    }
    let peak = PEAK.load(Ordering::Relaxed) - before;
    println!("{LEASES} leases: {given} bytes at most, {peak} with half settled and half extended");
    assert!(peak <= 64 << 20, "{peak} bytes");
    drop(ledger);

    let mut ledger = Ledger::new(0);
    let start = NOW.load(Ordering::Relaxed);
    PEAK.store(start, Ordering::Relaxed);
    for sequence in 0..LEASES {
        ledger.take_settled(sequence);
    }
    assert_eq!((ledger.floor(), ledger.is_quiet()), (LEASES, true));
    assert_eq!(PEAK.load(Ordering::Relaxed), start);
}
