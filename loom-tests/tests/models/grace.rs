//! Grace periods: what is hidden is used again only after the last look at it.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use slipring::internals::{CHUNK_BYTES, Hidden, pinned, retire, watch_read, watch_write};
use slipring_loom_tests::check;

/// Loom watches a cell beside it; there is no memory.
const THING: usize = CHUNK_BYTES;

/// A thing that can be found until it is hidden. Relaxed: the grace must do it.
fn shown() -> Arc<AtomicBool> {
    watch_write(THING);
    Arc::new(AtomicBool::new(true))
}

fn look(shown: &AtomicBool, twice: bool) {
    pinned(twice, || {
        if shown.load(Ordering::Relaxed) {
            watch_read(THING);
        }
    });
}

#[test]
fn what_is_hidden_is_not_looked_at_after_the_grace() {
    for twice in [false, true] {
        check(3, move || {
            let shown = shown();
            let theirs = Arc::clone(&shown);
            let reader = thread::spawn(move || look(&theirs, twice));
            shown.store(false, Ordering::Relaxed);
            let mut grace = Hidden::now();
            if grace.is_over() || grace.is_over() {
                watch_write(THING);
            }
            reader.join().unwrap();
            assert!(grace.is_over(), "nobody is pinned any more");
            watch_write(THING);
        });
    }
}

/// The count that has changed may be that of another look, which began after the thing was hidden.
#[test]
fn a_later_look_tells_that_the_earlier_one_is_over() {
    check(3, || {
        let shown = shown();
        let theirs = Arc::clone(&shown);
        let reader = thread::spawn(move || {
            look(&theirs, false);
            look(&theirs, false);
        });
        shown.store(false, Ordering::Relaxed);
        let mut grace = Hidden::now();
        if grace.is_over() || grace.is_over() {
            watch_write(THING);
        }
        reader.join().unwrap();
    });
}

#[test]
fn the_end_of_a_grace_is_noticed_by_somebody() {
    check(3, || {
        let shown = shown();
        let theirs = Arc::clone(&shown);
        let reader = thread::spawn(move || look(&theirs, false));
        shown.store(false, Ordering::Relaxed);
        let done = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&done);
        retire(move || {
            watch_write(THING);
            told.store(true, Ordering::Relaxed);
        });
        reader.join().unwrap();
        retire(|| ());
        assert!(done.load(Ordering::Relaxed), "who comes next does what was left");
    });
}
