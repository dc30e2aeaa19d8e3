//! A bare parked thread: what waking costs whatever stands above it.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::cpu::{self, Role};
use crate::harness::Latencies;

/// From `unpark` to the return of `park` on the other processor.
pub(crate) fn wake(rounds: u64) -> Latencies {
    let (woken_at, unparked) = (AtomicU64::new(0), AtomicBool::new(false));
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let (woken_at, unparked, start) = (&woken_at, &unparked, &start);
        let sleeper = scope.spawn(move || {
            cpu::pin(Role::Consumer);
            start.wait();
            for _ in 0..rounds {
                while !unparked.swap(false, Ordering::Acquire) {
                    thread::park();
                }
                woken_at.store(cpu::ticks(), Ordering::Release);
            }
        });
        let waker = scope.spawn(move || {
            cpu::pin(Role::Producer);
            start.wait();
            time_wakes(rounds, woken_at, || {
                unparked.store(true, Ordering::Release);
                sleeper.thread().unpark();
            })
        });
        waker.join().expect("the waker panicked")
    })
}

/// Calls `wake` when the other thread has had time to fall asleep, waits until that thread has
/// stored when it woke, and records the difference. Our own side is timed by this too.
pub(crate) fn time_wakes(rounds: u64, woken_at: &AtomicU64, mut wake: impl FnMut()) -> Latencies {
    let mut latencies = Latencies::new();
    for _ in 0..rounds {
        thread::sleep(Duration::from_micros(300));
        let asked = cpu::ticks();
        wake();
        loop {
            match woken_at.swap(0, Ordering::Acquire) {
                0 => std::hint::spin_loop(),
                woken => {
                    latencies.record_ticks(woken.saturating_sub(asked));
                    break;
                }
            }
        }
    }
    latencies
}
