//! The ring of `DropOldest`. Each message has a cell, written before its push; whoever owns its word
//! afterwards writes it again, so a word with two owners fails, and so does one that is owned before
//! it can be seen.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
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

    fn push(&self, producer: &mut Producer, n: u64) -> Option<u64> {
        // SAFETY: nobody else has its word yet; loom checks it.
        self.0[n as usize].with_mut(|state| unsafe { *state = PUSHED });
        let displaced = producer.push((n as usize) << 3);
        displaced.map(|word| self.own(word))
    }

    /// Owns the message of `word`, which is its number.
    fn own(&self, word: usize) -> u64 {
        let n = word >> 3;
        // SAFETY: whoever has the word owns its message; loom checks it.
        self.0[n].with_mut(|state| unsafe { assert_eq!(state.replace(OWNED), PUSHED) });
        n as u64
    }

    /// Takes what is there; the number that follows the last word.
    fn take(&self, consumer: &mut Consumer, next: &mut u64, most: usize) -> (u64, u64) {
        let mut words = [0; 4];
        let (count, displaced) = consumer.take(&mut words[..most]);
        *next += displaced;
        for &word in &words[..count] {
            assert_eq!(self.own(word), *next, "in order, after exactly what was displaced");
            *next += 1;
        }
        (count as u64, displaced)
    }
}

/// `before` messages are there when the consumer begins; it then looks `looks` times.
fn races(capacity: usize, count: u64, before: u64, looks: usize, most: usize) {
    for start in STARTS {
        check(3, move || {
            let (mut producer, mut consumer) = lossy(capacity, start);
            let messages = Messages::new(count);
            for n in 0..before {
                assert_eq!(messages.push(&mut producer, n), None, "there is room at first");
            }
            let theirs = Arc::clone(&messages);
            let publisher = thread::spawn(move || {
                (before..count).filter_map(|n| theirs.push(&mut producer, n)).count() as u64
            });
            let (mut next, mut taken, mut told) = (0, 0, 0);
            for look in 0..looks {
                let was_empty = consumer.is_empty();
                let (count, displaced) = messages.take(&mut consumer, &mut next, most);
                if look == 0 && before == capacity as u64 && capacity > 1 {
                    assert!(!was_empty, "it has been full since before");
                    assert!(count > 0, "it has been full since before");
                }
                // The only slot is empty for a moment while its word is replaced.
                let replaced = was_empty || capacity == 1;
                assert!(replaced || count > 0, "what is there can be taken or is replaced");
                taken += count;
                told += displaced;
            }
            let displaced = publisher.join().unwrap();
            loop {
                let (count, lost) = messages.take(&mut consumer, &mut next, most);
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
fn one_slot_has_one_owner_for_every_word() {
    races(1, 4, 1, 2, 1);
}

#[test]
fn one_slot_that_is_empty_at_first_has_one_owner_for_every_word() {
    races(1, 3, 0, 2, 1);
}

#[test]
fn two_slots_have_one_owner_for_every_word() {
    races(2, 6, 2, 2, 1);
}

#[test]
fn batches_have_one_owner_for_every_word() {
    races(2, 5, 2, 2, 2);
}
