//! No wake-up is lost: a waiter that is never woken is a deadlock, which loom reports.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use slipring::internals::{WaitCell, Waiter};
use slipring_loom_tests::check;

struct Shared {
    cell: WaitCell,
    /// Relaxed everywhere: the fences must do it.
    condition: AtomicU32,
}

fn shared() -> Arc<Shared> {
    Arc::new(Shared { cell: WaitCell::new(), condition: AtomicU32::new(0) })
}

fn wait_for(shared: &Shared, wanted: u32) {
    loop {
        shared.cell.prepare(Waiter::this_thread());
        if shared.condition.load(Ordering::Relaxed) >= wanted {
            break;
        }
        thread::park();
        if shared.condition.load(Ordering::Relaxed) >= wanted {
            break;
        }
    }
    let me = thread::current().id();
    shared.cell.cancel(|waiter| matches!(waiter, Waiter::Thread(t) if t.id() == me));
}

fn bring_about(shared: &Shared) {
    shared.condition.fetch_add(1, Ordering::Relaxed);
    if shared.cell.is_armed_after_fence() {
        shared.cell.wake();
    }
}

#[test]
fn one_waiter_is_woken() {
    check(3, || {
        let shared = shared();
        let theirs = Arc::clone(&shared);
        let other = thread::spawn(move || bring_about(&theirs));
        wait_for(&shared, 1);
        other.join().unwrap();
    });
}

#[test]
fn two_waiters_are_woken() {
    check(3, || {
        let shared = shared();
        let waiters = [0, 1].map(|_| {
            let theirs = Arc::clone(&shared);
            thread::spawn(move || wait_for(&theirs, 1))
        });
        bring_about(&shared);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

#[test]
fn a_waiter_for_the_last_of_two_is_woken_by_it() {
    check(3, || {
        let shared = shared();
        let others = [0, 1].map(|_| {
            let theirs = Arc::clone(&shared);
            thread::spawn(move || bring_about(&theirs))
        });
        wait_for(&shared, 2);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}
