//! The ledger of a subscription that delivers at least once, beside a log that expires: every message
//! that was taken is settled once or told as expired once, never both and never neither; and a
//! durable position never says more than what a handler has done.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use slipring::internals::{
    AckedConsumer, CHUNK_BYTES, Published, QUARTER_CHUNK, Received, Settler, WHOLE_CHUNK, World,
};
use slipring_loom_tests::check;
use std::time::Duration;

/// How long a lease lasts: the default.
const VISIBILITY: Duration = Duration::from_secs(10);

/// What became of the messages of a subscription.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Tally {
    settled: u64,
    lost: u64,
}

impl Tally {
    /// Takes what is next; settles it, and with `keep` leaves it leased. False if nothing is there.
    fn take(&mut self, consumer: &mut AckedConsumer, world: &World, keep: bool) -> bool {
        match consumer.next(world) {
            Received::Message(_) if keep => {}
            Received::Message(_) => {
                let is_settled = consumer.settler().ack(consumer.ack_id());
                assert!(is_settled, "who has the one lease settles the message");
                self.settled += 1;
            }
            Received::Lagged(lost) => self.lost += lost,
            Received::Empty => return false,
        }
        true
    }

    /// Takes all there is, of `published`, and compares with what was counted.
    fn take_all(mut self, mut consumer: AckedConsumer, world: &World, published: u64) {
        while self.take(&mut consumer, world, false) {}
        let settler = consumer.settler();
        assert_eq!(settler.unsettled(), 0, "neither settled nor expired");
        assert_eq!(self.settled + self.lost, published);
        assert_eq!(self.lost, settler.expired(), "told as it was counted");
        assert_eq!(settler.settled_below(), published);
        consumer.unsubscribe(world);
    }
}

fn publishing(world: &Arc<World>, count: u64) -> thread::JoinHandle<()> {
    let theirs = Arc::clone(world);
    thread::spawn(move || (0..count).for_each(|_| _ = theirs.publish(WHOLE_CHUNK)))
}

/// A log that keeps one or two messages, of which one is leased to a consumer that has another thread
/// settle it.
fn leased() -> (Arc<World>, AckedConsumer) {
    let world = Arc::new(World::new(2 * CHUNK_BYTES, false));
    let mut consumer = world.subscribe_acked(1, 4, false);
    world.publish(WHOLE_CHUNK);
    assert_eq!(consumer.next(&world), Received::Message(0));
    (world, consumer)
}

#[test]
fn what_is_leased_is_acked_elsewhere_or_told_as_expired() {
    check(2, || {
        let (world, mut consumer) = leased();
        let publisher = publishing(&world, 3);
        let (settler, id) = (consumer.settler(), consumer.ack_id());
        let acking = thread::spawn(move || settler.ack(id));
        let mut tally = Tally::default();
        (0..2).for_each(|_| _ = tally.take(&mut consumer, &world, false));
        publisher.join().unwrap();
        tally.settled += u64::from(acking.join().unwrap());
        tally.take_all(consumer, &world, 4);
    });
}

#[test]
fn what_is_given_back_elsewhere_comes_again_or_is_told_as_expired() {
    check(2, || {
        let (world, mut consumer) = leased();
        let publisher = publishing(&world, 2);
        let (settler, id) = (consumer.settler(), consumer.ack_id());
        let nacking = thread::spawn(move || settler.nack(id));
        let mut tally = Tally::default();
        tally.take(&mut consumer, &world, false);
        nacking.join().unwrap();
        tally.take(&mut consumer, &world, false);
        publisher.join().unwrap();
        tally.take_all(consumer, &world, 3);
    });
}

#[test]
fn what_nobody_settles_is_told_as_expired() {
    check(3, || {
        let (world, mut consumer) = leased();
        let publisher = publishing(&world, 3);
        let mut tally = Tally::default();
        // One or two more are leased, and left.
        (0..2).for_each(|_| _ = tally.take(&mut consumer, &world, true));
        publisher.join().unwrap();
        // All of those have expired.
        (0..3).for_each(|_| _ = world.publish(WHOLE_CHUNK));
        tally.take_all(consumer, &world, 7);
    });
}

/// The consumer has it again, and its lease alone counts.
#[test]
fn a_lease_that_has_run_out_settles_nothing_that_is_leased_anew() {
    check(3, || {
        let (world, mut consumer) = leased();
        world.pass_time(VISIBILITY);
        let (settler, id) = (consumer.settler(), consumer.ack_id());
        let acking = thread::spawn(move || settler.ack(id));
        let received = consumer.next(&world);
        let mut tally = Tally::default();
        match received {
            Received::Message(offset) => {
                assert_eq!(offset, 0);
                assert!(consumer.settler().ack(consumer.ack_id()), "the one lease there is");
                assert!(!acking.join().unwrap(), "settled twice");
                tally.settled = 1;
            }
            Received::Empty => {
                assert!(acking.join().unwrap(), "settled by nobody");
                tally.settled = 1;
            }
            Received::Lagged(lost) => panic!("{lost} lost"),
        }
        tally.take_all(consumer, &world, 1);
    });
}

/// A log that refuses keeps a message until it is settled, wherever it is meanwhile: in the ring, at
/// hand, leased, or given back.
#[test]
fn what_is_not_settled_stays_in_a_log_that_refuses() {
    check(3, || {
        let world = Arc::new(World::new(2 * CHUNK_BYTES, true));
        let mut consumer = world.subscribe_acked(1, 4, false);
        (0..2).for_each(|_| _ = world.publish(WHOLE_CHUNK));
        let theirs = Arc::clone(&world);
        let publisher = thread::spawn(move || theirs.publish(WHOLE_CHUNK));
        assert_eq!(consumer.next(&world), Received::Message(0));
        assert_eq!(consumer.next(&world), Received::Message(1));
        assert_eq!(consumer.next(&world), Received::Empty, "both are leased, and nothing more");
        assert_eq!(publisher.join().unwrap(), Published::Full);
        world.pass_time(VISIBILITY);
        for offset in 0..2 {
            assert_eq!(consumer.next(&world), Received::Message(offset), "again");
            assert!(consumer.settler().ack(consumer.ack_id()));
        }
        assert_eq!(consumer.next(&world), Received::Empty);
        let done = Published::Done { enqueued: 1, dropped: 0 };
        assert_eq!(world.publish(WHOLE_CHUNK), done, "what is settled makes room");
        Tally { settled: 2, lost: 0 }.take_all(consumer, &world, 3);
    });
}

#[test]
fn a_consumer_that_waits_is_woken_by_what_is_given_back() {
    check(3, || {
        let (world, mut consumer) = leased();
        let (settler, id) = (consumer.settler(), consumer.ack_id());
        let nacking = thread::spawn(move || assert!(settler.nack(id)));
        let mut tally = Tally::default();
        while tally.settled == 0 {
            if !tally.take(&mut consumer, &world, false) {
                consumer.wait(&world);
            }
        }
        nacking.join().unwrap();
        tally.take_all(consumer, &world, 1);
    });
}

/// Looks at the position, which never goes back and is never beyond what was `done`.
fn look(settler: &Settler, done: &AtomicU64) {
    let first = settler.settled_below();
    // Relaxed: whoever sees the position sees what was done for it.
    assert!(done.load(Ordering::Relaxed) >= first, "settled before it was handled");
    let second = settler.settled_below();
    assert!(second >= first, "a position goes back");
    assert!(done.load(Ordering::Relaxed) >= second, "settled before it was handled");
}

/// The handler's messages are noted in runs; it fails once with the one at `fails`.
fn runs(fails: u64) {
    check(3, move || {
        let world = Arc::new(World::new(8 * CHUNK_BYTES, false));
        let mut handler = world.subscribe_acked(1, 4, true);
        (0..3).for_each(|_| _ = world.publish(QUARTER_CHUNK));
        let done = Arc::new(AtomicU64::new(0));
        let (settler, theirs) = (handler.settler(), Arc::clone(&done));
        let keeper = thread::spawn(move || look(&settler, &theirs));
        let mut has_failed = false;
        while let Received::Message(offset) = handler.next(&world) {
            let succeeds = has_failed || offset != fails;
            if succeeds && offset == done.load(Ordering::Relaxed) {
                done.store(offset + 1, Ordering::Relaxed);
            }
            handler.handle(&world, succeeds);
            has_failed |= !succeeds;
            if offset == 1 {
                handler.end_slice();
            }
        }
        handler.end_slice();
        let end = if fails < 3 { fails } else { 3 };
        assert_eq!(handler.settler().settled_below(), end);
        keeper.join().unwrap();
        handler.unsubscribe(&world);
    });
}

#[test]
fn a_position_that_is_noted_during_a_run_says_what_was_handled() {
    runs(u64::MAX);
}

#[test]
fn a_failure_ends_a_run_and_holds_the_position() {
    runs(1);
}

/// What expires in the middle of a run is told, and passed by the position.
#[test]
fn a_run_beside_expiry_accounts_for_every_message() {
    check(2, || {
        let world = Arc::new(World::new(2 * CHUNK_BYTES, false));
        let mut handler = world.subscribe_acked(1, 4, true);
        world.publish(WHOLE_CHUNK);
        let publisher = publishing(&world, 3);
        let mut tally = Tally::default();
        let mut handle = |handler: &mut AckedConsumer| match handler.next(&world) {
            Received::Message(_) => {
                handler.handle(&world, true);
                tally.settled += 1;
                true
            }
            Received::Lagged(lost) => {
                tally.lost += lost;
                true
            }
            Received::Empty => false,
        };
        (0..2).for_each(|_| _ = handle(&mut handler));
        publisher.join().unwrap();
        while handle(&mut handler) {}
        handler.end_slice();
        assert_eq!(tally.settled + tally.lost, 4);
        assert_eq!(tally.lost, handler.settler().expired());
        assert_eq!(handler.settler().unsettled(), 0);
        handler.unsubscribe(&world);
    });
}
