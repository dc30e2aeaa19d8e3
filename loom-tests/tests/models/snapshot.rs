//! Who was told that a value has been stored sees it.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use slipring::internals::Snapshot;
use slipring_loom_tests::check;

/// What `subscribe` and a publish that begins after it has returned do.
#[test]
fn a_publish_after_subscribe_sees_the_subscription() {
    check(3, || {
        let snapshot = Arc::new(Snapshot::new(Arc::new(0)));
        let subscribed = Arc::new(AtomicBool::new(false));
        let (theirs, told) = (Arc::clone(&snapshot), Arc::clone(&subscribed));
        let subscriber = thread::spawn(move || {
            theirs.store(Arc::new(1));
            told.store(true, Ordering::Release);
        });
        let was_subscribed = subscribed.load(Ordering::Acquire);
        let version = snapshot.version();
        assert!(version == 1 || !was_subscribed, "the version is seen");
        assert!(*snapshot.load() >= version, "the value is at least as new");
        subscriber.join().unwrap();
        assert_eq!((*snapshot.load(), snapshot.version()), (1, 1));
    });
}

/// A publisher that looks twice never keeps an old value under a new version.
#[test]
fn a_value_kept_beside_its_version_is_renewed() {
    check(3, || {
        let snapshot = Arc::new(Snapshot::new(Arc::new(0)));
        let theirs = Arc::clone(&snapshot);
        let writer = thread::spawn(move || (1..=2).for_each(|n| theirs.store(Arc::new(n))));
        let (mut seen, mut value) = (0, 0);
        for _ in 0..2 {
            if snapshot.version() != seen {
                seen = snapshot.version();
                value = *snapshot.load();
            }
            assert!(value >= seen);
        }
        writer.join().unwrap();
    });
}

/// The version alone makes visible what the subscriber did before: no lock stands between.
#[test]
fn the_version_shows_what_was_done_before_it() {
    check(3, || {
        let snapshot = Arc::new(Snapshot::new(Arc::new(())));
        let cell = Arc::new(loom::cell::UnsafeCell::new(0));
        let (theirs, written) = (Arc::clone(&snapshot), Arc::clone(&cell));
        let writer = thread::spawn(move || {
            // SAFETY: read only by who has seen the version; loom checks it.
            written.with_mut(|cell| unsafe { *cell = 1 });
            theirs.store(Arc::new(()));
        });
        if snapshot.version() == 1 {
            // SAFETY: as above.
            assert_eq!(cell.with(|cell| unsafe { *cell }), 1);
        }
        writer.join().unwrap();
    });
}
