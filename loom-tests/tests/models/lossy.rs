//! The ring of `DropOldest`. Each message has a cell, written before its push; the consumer that
//! takes it writes it again, so one that is taken twice fails, and so does one that is taken before it
//! can be seen. What the producer displaces, it counts.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use slipring::internals::Span;
use slipring::internals::lossy::{Consumer, Producer, lossy};
use slipring_loom_tests::check;

const STARTS: [u64; 3] = [0, u32::MAX as u64 - 1, u64::MAX - 1];

const PUSHED: u64 = 1;
const OWNED: u64 = 2;

struct Messages(Vec<UnsafeCell<u64>>);

impl Messages {
    fn new(count: u64) -> Arc<Self> {
        Arc::new(Self((0..count).map(|_| UnsafeCell::new(0)).collect()))
    }

    fn push(&self, producer: &mut Producer, n: u64, run: u64) -> u64 {
        // SAFETY: nobody else can own it yet; loom checks it.
        self.0[n as usize].with_mut(|state| unsafe { *state = PUSHED });
        producer.push(Span { first: sequence(n, run), count: 1 })
    }

    /// Owns message `n`.
    fn own(&self, n: u64) {
        // SAFETY: whoever took it owns its message; loom checks it.
        self.0[n as usize].with_mut(|state| unsafe { assert_eq!(state.replace(OWNED), PUSHED) });
    }

    /// Takes what is there; `next` is the number that follows the last one.
    fn take(&self, consumer: &mut Consumer, next: &mut u64, most: u64, run: u64) -> (u64, u64) {
        let (span, displaced) = consumer.take(most);
        *next += displaced;
        for at in 0..span.count {
            let right = sequence(*next, run);
            assert_eq!(span.first + at, right, "in order, after exactly what was displaced");
            self.own(*next);
            *next += 1;
        }
        (span.count, displaced)
    }
}

/// The sequence of message `n`, where others' messages come after every `run` of them.
fn sequence(n: u64, run: u64) -> u64 {
    10 + n + n / run
}

/// `before` messages are there when the consumer begins; it then looks `looks` times.
fn races(capacity: usize, count: u64, before: u64, looks: usize, most: u64, run: u64) {
    for start in STARTS {
        check(2, move || {
            let (mut producer, mut consumer) = lossy(capacity, start);
            let messages = Messages::new(count);
            for n in 0..before {
                assert_eq!(messages.push(&mut producer, n, run), 0, "there is room at first");
            }
            let theirs = Arc::clone(&messages);
            let publisher = thread::spawn(move || {
                (before..count).map(|n| theirs.push(&mut producer, n, run)).sum::<u64>()
            });
            let (mut next, mut taken, mut told) = (0, 0, 0);
            for look in 0..looks {
                let was_empty = consumer.is_empty();
                let (count, displaced) = messages.take(&mut consumer, &mut next, most, run);
                if look == 0 && before == capacity as u64 && capacity > 1 {
                    assert!(!was_empty, "it has been full since before");
                    assert!(count > 0, "it has been full since before");
                }
                // The only place is empty for a moment while its message is replaced.
                let replaced = was_empty || capacity == 1;
                assert!(replaced || count > 0, "what is there can be taken or is replaced");
                taken += count;
                told += displaced;
            }
            let displaced = publisher.join().unwrap();
            loop {
                let (count, lost) = messages.take(&mut consumer, &mut next, most, run);
                taken += count;
                told += lost;
                if count == 0 {
                    break;
                }
            }
            assert!(consumer.is_empty());
            assert_eq!(taken + displaced, count, "each message is taken or displaced");
            assert_eq!((next, told), (count, displaced), "what was displaced is told");
        });
    }
}

#[test]
fn one_place_has_one_owner_for_every_message() {
    races(1, 4, 1, 2, 1, u64::MAX);
}

#[test]
fn one_place_has_one_owner_for_every_run() {
    races(1, 4, 1, 2, 1, 1);
}

#[test]
fn one_place_that_is_empty_at_first_has_one_owner_for_every_message() {
    races(1, 3, 0, 2, 1, 1);
}

#[test]
fn two_places_have_one_owner_for_every_message() {
    races(2, 5, 2, 2, 1, 2);
}

#[test]
fn batches_have_one_owner_for_every_message() {
    races(2, 5, 2, 2, 2, 2);
}
