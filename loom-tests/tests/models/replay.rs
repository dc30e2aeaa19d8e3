//! A subscription that begins in the past: it reads the log, then goes live, while others publish
//! and what it has not read may expire. Records are real memory, watched by loom.

use loom::sync::Arc;
use loom::thread;
use slipring::Overflow;
use slipring::internals::{
    CHUNK_BYTES, Consumer, HALF_CHUNK, Published, QUARTER_CHUNK, Received, WHOLE_CHUNK, World,
};
use slipring_loom_tests::check;

/// Receives until message `count - 1` is received or told as lost, each exactly once and in order;
/// how many were told as lost.
pub(crate) fn receive(consumer: &mut Consumer, world: &World, count: u64) -> u64 {
    let (mut next, mut lost) = (0, 0);
    while next < count {
        match consumer.next(world) {
            Received::Message(n) => {
                assert_eq!(n, next, "in order, none twice, none missed");
                next += 1;
            }
            Received::Lagged(more) => {
                assert!(more > 0);
                next += more;
                lost += more;
            }
            Received::Empty => thread::yield_now(),
        }
        assert!(next <= count, "lost and received: {next} of {count}");
    }
    lost
}

fn hands_over(overflow: Overflow, capacity: usize, before: u64, after: u64) {
    check(3, move || {
        let world = Arc::new(World::new(8 * CHUNK_BYTES, false));
        (0..before).for_each(|_| _ = world.publish(HALF_CHUNK));
        let mut consumer = world.subscribe(1, overflow, capacity, true);
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || {
            for _ in 0..after {
                theirs.publish(HALF_CHUNK);
            }
        });
        let lost = receive(&mut consumer, &world, before + after);
        publisher.join().unwrap();
        if capacity as u64 >= after {
            assert_eq!(lost, 0, "there was room");
        }
        assert_eq!(consumer.next(&world), Received::Empty);
        consumer.unsubscribe(&world);
    });
}

#[test]
fn going_live_misses_nothing_and_repeats_nothing() {
    hands_over(Overflow::DropNewest, 2, 1, 2);
}

#[test]
fn going_live_with_nothing_to_replay_misses_nothing() {
    hands_over(Overflow::DropNewest, 1, 0, 1);
}

#[test]
fn going_live_with_a_publisher_that_waits_misses_nothing() {
    hands_over(Overflow::Block { timeout: None }, 1, 1, 2);
}

#[test]
fn going_live_into_a_lossy_ring_accounts_for_everything() {
    hands_over(Overflow::DropOldest, 1, 1, 2);
}

/// Each record fills a chunk and the log keeps one: what the reader has not taken when the next
/// comes is counted as expired, by exactly one side.
#[test]
fn a_record_is_delivered_or_expired_never_both() {
    check(3, || {
        let world = Arc::new(World::new(2 * CHUNK_BYTES, false));
        (0..2).for_each(|_| _ = world.publish(WHOLE_CHUNK));
        let mut consumer = world.subscribe(1, Overflow::DropNewest, 2, true);
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || {
            (0..2).for_each(|_| _ = theirs.publish(WHOLE_CHUNK));
        });
        let lost = receive(&mut consumer, &world, 4);
        publisher.join().unwrap();
        assert_eq!(lost, consumer.expired());
        assert_eq!(consumer.next(&world), Received::Empty);
        consumer.unsubscribe(&world);
    });
}

/// The same with two records a chunk, of which the reader may have taken one, and a log that keeps
/// so little that the chunk is written again at once.
#[test]
fn a_chunk_that_expires_half_read_is_counted_exactly() {
    check(2, || {
        let world = Arc::new(World::new(CHUNK_BYTES, false));
        (0..2).for_each(|_| _ = world.publish(HALF_CHUNK));
        let mut consumer = world.subscribe(1, Overflow::DropNewest, 4, true);
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || {
            (0..3).for_each(|_| _ = theirs.publish(HALF_CHUNK));
        });
        let lost = receive(&mut consumer, &world, 5);
        publisher.join().unwrap();
        assert_eq!(lost, consumer.expired());
        assert_eq!(consumer.next(&world), Received::Empty);
        consumer.unsubscribe(&world);
    });
}

/// The same for a subscription that was there before and polls: it takes a chunk's token when it
/// comes there, or finds that the chunk has expired.
#[test]
fn what_is_polled_is_there_or_counted_as_expired() {
    check(2, || {
        let world = Arc::new(World::new(CHUNK_BYTES, false));
        let mut consumer = world.subscribe(1, Overflow::DropNewest, 8, false);
        (0..2).for_each(|_| _ = world.publish(HALF_CHUNK));
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || {
            (0..3).for_each(|_| _ = theirs.publish(HALF_CHUNK));
        });
        let (mut next, mut lost) = (0, 0);
        while next < 5 {
            for n in consumer.poll() {
                assert_eq!(n, next, "in order, none twice, none missed");
                next += 1;
            }
            match consumer.next(&world) {
                Received::Message(n) => {
                    assert_eq!(n, next);
                    next += 1;
                }
                Received::Lagged(more) => {
                    next += more;
                    lost += more;
                }
                Received::Empty => thread::yield_now(),
            }
        }
        publisher.join().unwrap();
        assert_eq!(lost, consumer.expired());
        consumer.unsubscribe(&world);
    });
}

/// A reader that comes for one message looks for it beside the log's head, where the one behind it may be
/// by then, in the chunk that it holds: that has been written as well.
#[test]
fn the_latest_record_is_whole_when_it_is_seen() {
    check(3, || {
        let world = Arc::new(World::new(CHUNK_BYTES, false));
        let mut consumer = world.subscribe(1, Overflow::DropNewest, 8, false);
        world.publish(QUARTER_CHUNK);
        assert_eq!(consumer.poll(), [0]);
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || {
            (0..2).for_each(|_| _ = theirs.publish(QUARTER_CHUNK));
        });
        let mut next = 1;
        while next < 3 {
            for n in consumer.poll() {
                assert_eq!(n, next);
                next += 1;
            }
            thread::yield_now();
        }
        publisher.join().unwrap();
        consumer.unsubscribe(&world);
    });
}

/// A log that refuses rather than forgets: what was accepted is all delivered.
#[test]
fn a_log_that_refuses_loses_nothing_that_it_accepted() {
    check(3, || {
        let world = Arc::new(World::new(CHUNK_BYTES, true));
        world.publish(WHOLE_CHUNK);
        let mut consumer = world.subscribe(1, Overflow::DropNewest, 4, true);
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || {
            (0..2).filter(|_| theirs.publish(WHOLE_CHUNK) != Published::Full).count() as u64
        });
        let mut received = 0;
        for _ in 0..2 {
            received += u64::from(matches!(consumer.next(&world), Received::Message(_)));
        }
        let accepted = 1 + publisher.join().unwrap();
        while let Received::Message(n) = consumer.next(&world) {
            assert_eq!(n, received);
            received += 1;
        }
        assert_eq!(received, accepted);
        consumer.unsubscribe(&world);
    });
}

/// A live subscription's queue may hold what the log has let go: it is told, and never read.
#[test]
fn what_expires_in_the_ring_is_told() {
    check(3, || {
        let world = Arc::new(World::new(CHUNK_BYTES, false));
        let mut consumer = world.subscribe(1, Overflow::DropNewest, 4, false);
        world.publish(WHOLE_CHUNK);
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || {
            (0..2).for_each(|_| _ = theirs.publish(WHOLE_CHUNK));
        });
        let lost = receive(&mut consumer, &world, 3);
        publisher.join().unwrap();
        assert_eq!(lost, consumer.expired());
        consumer.unsubscribe(&world);
    });
}

/// An unsubscribe while records are deferred, expire and are pushed gives every token back.
#[test]
fn unsubscribing_amid_a_replay_gives_every_token_back() {
    check(3, || {
        let world = Arc::new(World::new(CHUNK_BYTES, false));
        world.publish(WHOLE_CHUNK);
        let mut consumer = world.subscribe(1, Overflow::DropNewest, 2, true);
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || {
            (0..2).for_each(|_| _ = theirs.publish(WHOLE_CHUNK));
        });
        consumer.next(&world);
        consumer.unsubscribe(&world);
        publisher.join().unwrap();
    });
}

/// Records that were claimed apart lie in other chunks than those of the log's own; the log lets go
/// of both in the order of their sequences.
#[test]
fn claimed_records_are_delivered_or_expired_like_others() {
    check(2, || {
        let world = Arc::new(World::new(CHUNK_BYTES, false));
        // The next claim but one needs a new chunk.
        world.publish_claimed(QUARTER_CHUNK, 2);
        let mut consumer = world.subscribe(1, Overflow::DropNewest, 4, true);
        let publishers = [false, true].map(|claims| {
            let theirs = Arc::clone(&world);
            thread::spawn(move || match claims {
                true => _ = theirs.publish_claimed(QUARTER_CHUNK, 1),
                false => _ = theirs.publish(WHOLE_CHUNK),
            })
        });
        let lost = receive(&mut consumer, &world, 3);
        publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
        assert_eq!(lost, consumer.expired());
        consumer.unsubscribe(&world);
    });
}

/// A claimed record is read by a live subscription while its chunk is claimed from, replaced and
/// written again.
#[test]
fn a_claimed_record_is_read_before_its_chunk_is_used_again() {
    check(3, || {
        let world = Arc::new(World::new(CHUNK_BYTES, false));
        let mut consumer = world.subscribe(1, Overflow::DropNewest, 4, false);
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || {
            theirs.publish_claimed(QUARTER_CHUNK, 3);
            theirs.publish_claimed(QUARTER_CHUNK, 0);
            theirs.publish(WHOLE_CHUNK);
        });
        let lost = receive(&mut consumer, &world, 3);
        publisher.join().unwrap();
        assert_eq!(lost, consumer.expired());
        consumer.unsubscribe(&world);
    });
}
