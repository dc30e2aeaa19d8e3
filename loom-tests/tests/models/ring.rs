//! The plain ring. Beside each slot lies a cell that the producer writes and the consumer reads, as
//! a record would be; the cell is used again when the slot is.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use slipring::internals::ring::{Consumer, Producer, Slot, ring};
use slipring_loom_tests::check;

const STARTS: [u64; 3] = [0, u32::MAX as u64, u64::MAX - 1];

type Cells = Arc<Vec<UnsafeCell<u64>>>;

fn cells(count: usize) -> Cells {
    Arc::new((0..count).map(|_| UnsafeCell::new(u64::MAX)).collect())
}

fn write(cells: &Cells, position: u64, value: u64) {
    let at = position as usize % cells.len();
    // SAFETY: the ring says that this slot is the producer's; loom checks it.
    cells[at].with_mut(|cell| unsafe { *cell = value });
}

fn read(cells: &Cells, position: u64) -> u64 {
    let at = position as usize % cells.len();
    // SAFETY: the ring says that this slot is the consumer's; loom checks it.
    cells[at].with(|cell| unsafe { *cell })
}

fn word(n: u64) -> usize {
    (n as usize) << 3
}

fn push_all(mut producer: Producer, cells: &Cells, count: u64, batch: u64) {
    let mut pushed = 0;
    while pushed < count {
        let wanted = batch.min(count - pushed);
        let free = producer.free(wanted as usize) as u64;
        if free == 0 {
            thread::yield_now();
            continue;
        }
        let words: Vec<usize> = (pushed..pushed + free)
            .map(|n| {
                write(cells, n, n);
                word(n)
            })
            .collect();
        producer.push(&words);
        pushed += free;
    }
}

fn take_all(mut consumer: Consumer, cells: &Cells, count: u64, batch: u64) {
    let mut taken = 0;
    while taken < count {
        match consumer.peek() {
            Slot::Word(got) => {
                assert_eq!(got, word(taken), "in order, none twice");
                assert_eq!(read(cells, taken), taken, "what was written before the push");
                consumer.advance();
                taken += 1;
                if taken % batch == 0 || taken == count {
                    consumer.release();
                }
            }
            Slot::Loss(_) => panic!("nothing was lost"),
            Slot::Empty => {
                consumer.release();
                thread::yield_now();
            }
        }
    }
    assert_eq!(consumer.peek(), Slot::Empty);
}

fn passes(capacity: usize, count: u64, batch: u64) {
    for start in STARTS {
        check(2, move || {
            let (producer, consumer) = ring(capacity, start);
            let cells = cells(capacity.next_power_of_two());
            let theirs = Arc::clone(&cells);
            let publisher = thread::spawn(move || push_all(producer, &theirs, count, batch));
            take_all(consumer, &cells, count, batch);
            publisher.join().unwrap();
        });
    }
}

#[test]
fn one_slot_passes_every_word_once_and_in_order() {
    passes(1, 3, 1);
}

#[test]
fn two_slots_pass_every_word_once_and_in_order() {
    passes(2, 4, 1);
}

#[test]
fn batches_pass_as_single_words_do() {
    passes(2, 4, 2);
}

/// The short ways of both ends, with words that agree in all bits or in none that tell them apart.
/// Each message has a cell of its own.
#[test]
fn words_drained_are_those_pushed_one_by_one() {
    const COUNT: u64 = 4;
    for (start, same) in [(0, !0b111), (u32::MAX as u64, 0), (u64::MAX - 1, 0)] {
        check(2, move || {
            let (mut producer, mut consumer) = ring(2, start);
            let cells = cells(COUNT as usize);
            let theirs = Arc::clone(&cells);
            let publisher = thread::spawn(move || {
                let mut lost = 0;
                for n in 0..COUNT {
                    if producer.free(1) == 1 {
                        write(&theirs, n, n);
                        if !producer.try_push_one(word(n)) {
                            producer.push(&[word(n)]);
                        }
                    } else {
                        producer.lose(1);
                        lost += 1;
                    }
                }
                lost
            });
            let (mut next, mut told) = (0, 0);
            let mut step = |consumer: &mut Consumer| {
                let taken = consumer.drain(
                    2,
                    same,
                    |_, _| (),
                    || (),
                    |got| {
                        assert_eq!(got, word(next), "in order, behind exactly what was lost");
                        assert_eq!(read(&cells, next), next);
                        next += 1;
                        true
                    },
                );
                let mut passed = taken > 0;
                let lost = match consumer.peek() {
                    Slot::Loss(lost) => lost,
                    Slot::Empty => consumer.loss_at_end(),
                    // With the mark of a loss that was told already, or pushed just now.
                    Slot::Word(got) => {
                        assert_eq!(got, word(next));
                        assert_eq!(read(&cells, next), next);
                        consumer.advance();
                        consumer.release();
                        next += 1;
                        passed = true;
                        0
                    }
                };
                consumer.acknowledge_loss(lost);
                next += lost;
                told += lost;
                passed || lost > 0
            };
            for _ in 0..2 {
                step(&mut consumer);
            }
            let lost = publisher.join().unwrap();
            while step(&mut consumer) {}
            assert_eq!((next, told), (COUNT, lost), "every message is delivered or told as lost");
        });
    }
}

/// Pushes what fits and loses the rest; the consumer must be able to say after every step exactly
/// which message comes next.
fn tells_losses(capacity: usize, count: u64) {
    for start in STARTS {
        check(3, move || {
            let (mut producer, mut consumer) = ring(capacity, start);
            let gauge = producer.gauge();
            let cells = cells(capacity.next_power_of_two());
            let theirs = Arc::clone(&cells);
            let publisher = thread::spawn(move || {
                let mut position = 0;
                for n in 0..count {
                    if producer.free(1) == 1 {
                        write(&theirs, position, n);
                        producer.push(&[word(n)]);
                        position += 1;
                    } else {
                        producer.lose(1);
                    }
                }
                producer.lost()
            });
            let (mut next, mut position, mut told) = (0, 0, 0);
            let mut step = |consumer: &mut Consumer| {
                let lost = match consumer.peek() {
                    Slot::Word(got) => {
                        assert_eq!(got, word(next), "a loss is told where it happened");
                        assert_eq!(read(&cells, position), next);
                        consumer.advance();
                        consumer.release();
                        position += 1;
                        next += 1;
                        0
                    }
                    Slot::Loss(lost) => lost,
                    Slot::Empty => match consumer.loss_at_end() {
                        0 => return None,
                        lost => lost,
                    },
                };
                consumer.acknowledge_loss(lost);
                next += lost;
                told += lost;
                Some((next, told))
            };
            for _ in 0..count {
                if step(&mut consumer).is_none() {
                    thread::yield_now();
                }
            }
            let lost = publisher.join().unwrap();
            while step(&mut consumer).is_some() {}
            assert_eq!((next, told), (count, lost), "every message is delivered or told as lost");
            assert_eq!(gauge.depth(), 0);
        });
    }
}

#[test]
fn one_slot_tells_losses_exactly_where_they_happened() {
    tells_losses(1, 4);
}

#[test]
fn two_slots_tell_losses_exactly_where_they_happened() {
    tells_losses(2, 5);
}
