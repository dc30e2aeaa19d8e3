//! A publisher that waits for room, against everything that ends its waiting; and a consumer that
//! waits for messages.

use loom::sync::Arc;
use loom::thread;
use slipring::Overflow;
use slipring::internals::{CHUNK_BYTES, Published, Received, World};
use slipring_loom_tests::check;

const BUDGET: usize = 4 * CHUNK_BYTES;
const BLOCK: Overflow = Overflow::Block { timeout: None };
const ENQUEUED: Published = Published::Done { enqueued: 1, dropped: 0 };

#[test]
fn a_blocked_publisher_gets_the_slot_that_is_freed() {
    check(3, || {
        let world = Arc::new(World::new(BUDGET, false));
        let mut consumer = world.subscribe(1, BLOCK, 1, false);
        assert_eq!(world.publish(8), ENQUEUED);
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || {
            assert_eq!(theirs.publish(8), ENQUEUED);
        });
        assert_eq!(consumer.next(&world), Received::Message(0));
        publisher.join().unwrap();
        assert_eq!(consumer.next(&world), Received::Message(1));
        assert_eq!(consumer.next(&world), Received::Empty);
    });
}

#[test]
fn a_blocked_publisher_is_freed_by_close() {
    check(3, || {
        let world = Arc::new(World::new(BUDGET, false));
        let consumer = world.subscribe(1, BLOCK, 1, false);
        assert_eq!(world.publish(8), ENQUEUED);
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || theirs.publish(8));
        world.close();
        consumer.ending().close();
        assert_eq!(publisher.join().unwrap(), Published::Closed, "it never had room");
    });
}

#[test]
fn a_blocked_publisher_is_freed_by_unsubscribe() {
    check(3, || {
        let world = Arc::new(World::new(BUDGET, false));
        let consumer = world.subscribe(1, BLOCK, 1, false);
        assert_eq!(world.publish(8), ENQUEUED);
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || {
            let published = theirs.publish(8);
            assert!(matches!(published, Published::Done { .. }), "{published:?}");
        });
        consumer.unsubscribe(&world);
        publisher.join().unwrap();
        assert_eq!(world.publish(8), Published::Done { enqueued: 0, dropped: 0 });
    });
}

/// Both publishers see the ring full, and one slot frees only one of them at a time.
#[test]
fn two_blocked_publishers_both_get_through() {
    check(1, || {
        let world = Arc::new(World::new(BUDGET, false));
        let mut consumer = world.subscribe(1, BLOCK, 1, false);
        assert_eq!(world.publish(8), ENQUEUED);
        let publishers = [0, 1].map(|_| {
            let theirs = Arc::clone(&world);
            thread::spawn(move || assert_eq!(theirs.publish(8), ENQUEUED))
        });
        for n in 0..3 {
            while consumer.next(&world) != Received::Message(n) {
                thread::yield_now();
            }
        }
        publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    });
}

/// The first publish after a change of routes makes the lane; the next ones go the short way.
fn wakes_a_waiting_consumer(before: u64) {
    check(3, move || {
        let world = Arc::new(World::new(BUDGET, false));
        let mut consumer = world.subscribe(1, Overflow::DropNewest, 2, false);
        for n in 0..before {
            assert_eq!(world.publish(8), ENQUEUED);
            assert_eq!(consumer.next(&world), Received::Message(n));
        }
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || {
            assert_eq!(theirs.publish(8), ENQUEUED);
        });
        assert!(consumer.wait(&world));
        assert_eq!(consumer.next(&world), Received::Message(before));
        publisher.join().unwrap();
    });
}

#[test]
fn a_waiting_consumer_is_woken_by_the_first_publish() {
    wakes_a_waiting_consumer(0);
}

#[test]
fn a_waiting_consumer_is_woken_by_a_later_publish() {
    wakes_a_waiting_consumer(1);
}

/// By then its lane follows the log, and the publisher hears of it by the alert alone.
#[test]
fn a_waiting_consumer_that_follows_is_woken() {
    wakes_a_waiting_consumer(3);
}

/// Two waits, so that the first alert is taken while the second is given.
#[test]
fn a_consumer_that_follows_is_woken_again_and_again() {
    check(2, || {
        let world = Arc::new(World::new(BUDGET, false));
        let mut consumer = world.subscribe(1, Overflow::DropNewest, 8, false);
        for n in 0..3 {
            assert_eq!(world.publish(8), ENQUEUED);
            assert_eq!(consumer.next(&world), Received::Message(n));
        }
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || {
            (0..2).for_each(|_| assert_eq!(theirs.publish(8), ENQUEUED));
        });
        for n in 3..5 {
            assert!(consumer.wait(&world));
            assert_eq!(consumer.next(&world), Received::Message(n));
        }
        publisher.join().unwrap();
    });
}

#[test]
fn a_waiting_consumer_is_woken_by_close() {
    check(3, || {
        let world = Arc::new(World::new(BUDGET, false));
        let mut consumer = world.subscribe(1, Overflow::DropNewest, 1, false);
        let ending = consumer.ending();
        let closer = thread::spawn(move || ending.close());
        assert!(!consumer.wait(&world));
        closer.join().unwrap();
    });
}

/// A subscription that drops the oldest: each message is received or counted, whoever wins.
#[test]
fn a_displacing_publisher_and_its_consumer_account_for_everything() {
    check(3, || {
        let world = Arc::new(World::new(BUDGET, false));
        let mut consumer = world.subscribe(1, Overflow::DropOldest, 1, false);
        world.publish(8);
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || (0..2).for_each(|_| _ = theirs.publish(8)));
        let mut next = 0;
        let mut step = |received| match received {
            Received::Message(n) => {
                assert_eq!(n, next);
                next += 1;
                next
            }
            Received::Lagged(lost) => {
                next += lost;
                next
            }
            Received::Empty => next,
        };
        step(consumer.next(&world));
        publisher.join().unwrap();
        while step(consumer.next(&world)) < 3 {}
    });
}
