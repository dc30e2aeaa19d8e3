//! A subscription that delivers at least once: when its ring is full, what comes stays in the log, is
//! read there, and the ring is rejoined, again and again, while others publish.

use crate::replay::receive;
use loom::sync::Arc;
use loom::thread;
use slipring::internals::{
    CHUNK_BYTES, Consumer, HALF_CHUNK, Published, QUARTER_CHUNK, Received, WHOLE_CHUNK, World,
};
use slipring_loom_tests::check;

/// A log that keeps all, a ring of one place, and a thread for each of `publishers` that publishes
/// so many.
fn loses_nothing(preemptions: usize, publishers: &'static [u64]) {
    check(preemptions, move || {
        let world = Arc::new(World::new(8 * CHUNK_BYTES, false));
        let mut consumer = world.subscribe_at_least_once(1, 1);
        let publishing = publishers.iter().map(|&count| {
            let theirs = Arc::clone(&world);
            thread::spawn(move || {
                for _ in 0..count {
                    let done = Published::Done { enqueued: 1, dropped: 0 };
                    assert_eq!(theirs.publish(QUARTER_CHUNK), done);
                }
            })
        });
        let publishing: Vec<_> = publishing.collect();
        let lost = receive(&mut consumer, &world, publishers.iter().sum());
        publishing.into_iter().for_each(|publisher| publisher.join().unwrap());
        assert_eq!((lost, consumer.expired()), (0, 0));
        assert_eq!(consumer.next(&world), Received::Empty);
        consumer.unsubscribe(&world);
    });
}

/// The second finds the ring full, or not; the third finds the reader in the log, or back.
#[test]
fn what_does_not_fit_is_read_from_the_log_and_none_is_missed_or_repeated() {
    loses_nothing(3, &[3]);
}

#[test]
fn a_reader_that_comes_back_falls_behind_again() {
    loses_nothing(2, &[5]);
}

#[test]
fn two_publishers_fill_the_ring_of_a_reader_that_comes_back() {
    loses_nothing(2, &[2, 1]);
}

/// Whoever waits is woken also by what is not pushed.
#[test]
fn a_reader_that_waits_is_woken_by_what_stays_in_the_log() {
    check(2, || {
        let world = Arc::new(World::new(8 * CHUNK_BYTES, false));
        let mut consumer = world.subscribe_at_least_once(1, 1);
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || {
            (0..3).for_each(|_| _ = theirs.publish(QUARTER_CHUNK));
        });
        let mut next = 0;
        while next < 3 {
            match consumer.next(&world) {
                Received::Message(n) => {
                    assert_eq!(n, next);
                    next += 1;
                }
                Received::Lagged(lost) => panic!("{lost} lost"),
                Received::Empty => assert!(consumer.wait(&world)),
            }
        }
        publisher.join().unwrap();
        consumer.unsubscribe(&world);
    });
}

/// What is left in a log that keeps little expires there, or is read, never both.
#[test]
fn what_stays_in_the_log_is_read_or_told_as_expired() {
    for (len, count) in [(WHOLE_CHUNK, 4), (HALF_CHUNK, 5)] {
        check(2, move || {
            let world = Arc::new(World::new(2 * CHUNK_BYTES, false));
            let mut consumer = world.subscribe_at_least_once(1, 1);
            world.publish(len);
            let theirs = Arc::clone(&world);
            let publisher = thread::spawn(move || {
                (1..count).for_each(|_| _ = theirs.publish(len));
            });
            let lost = receive(&mut consumer, &world, count);
            publisher.join().unwrap();
            assert_eq!(lost, consumer.expired());
            assert_eq!(consumer.next(&world), Received::Empty);
            consumer.unsubscribe(&world);
        });
    }
}

/// What a log that refuses has accepted stays until it is read, in the ring and behind it.
#[test]
fn a_log_that_refuses_keeps_what_the_ring_does_not_hold() {
    check(2, || {
        let world = Arc::new(World::new(2 * CHUNK_BYTES, true));
        let mut consumer = world.subscribe_at_least_once(1, 1);
        (0..2).for_each(|_| assert_ne!(world.publish(WHOLE_CHUNK), Published::Full));
        assert_eq!(world.publish(WHOLE_CHUNK), Published::Full, "for what is in the ring");
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || {
            (0..2).filter(|_| theirs.publish(WHOLE_CHUNK) != Published::Full).count() as u64
        });
        let mut received = 0;
        let mut take = |consumer: &mut Consumer| match consumer.next(&world) {
            Received::Message(n) => {
                assert_eq!(n, received);
                received += 1;
                true
            }
            Received::Lagged(lost) => panic!("{lost} lost"),
            Received::Empty => false,
        };
        take(&mut consumer);
        let accepted = 2 + publisher.join().unwrap();
        while take(&mut consumer) {}
        assert_eq!(received, accepted);
        consumer.unsubscribe(&world);
    });
}

/// An unsubscribe while the ring is full, left or rejoined gives every token back.
#[test]
fn unsubscribing_behind_a_full_ring_gives_every_token_back() {
    check(3, || {
        let world = Arc::new(World::new(CHUNK_BYTES, false));
        let mut consumer = world.subscribe_at_least_once(1, 1);
        world.publish(WHOLE_CHUNK);
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || {
            (0..2).for_each(|_| _ = theirs.publish(WHOLE_CHUNK));
        });
        consumer.next(&world);
        consumer.unsubscribe(&world);
        publisher.join().unwrap();
    });
}
