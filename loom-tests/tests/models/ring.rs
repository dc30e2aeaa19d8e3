//! The plain ring. Beside each place lies a cell that the producer writes and the consumer reads, as
//! a record would be; the cell is used again when the place is.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use slipring::internals::Span;
use slipring::internals::ring::{Consumer, Look, Producer, ring};
use slipring_loom_tests::check;

const STARTS: [u64; 3] = [0, u32::MAX as u64, u64::MAX - 1];

type Cells = Arc<Vec<UnsafeCell<u64>>>;

fn cells(count: usize) -> Cells {
    Arc::new((0..count).map(|_| UnsafeCell::new(u64::MAX)).collect())
}

fn write(cells: &Cells, position: u64, value: u64) {
    let at = position as usize % cells.len();
    // SAFETY: the ring says that this place is the producer's; loom checks it.
    cells[at].with_mut(|cell| unsafe { *cell = value });
}

fn read(cells: &Cells, position: u64) -> u64 {
    let at = position as usize % cells.len();
    // SAFETY: the ring says that this place is the consumer's; loom checks it.
    cells[at].with(|cell| unsafe { *cell })
}

/// Of a ring that does not follow it.
fn no_log() -> u64 {
    unreachable!("it is not asked")
}

/// The sequence of message `n`, where others' messages come after every `run` of them.
fn sequence(n: u64, run: u64) -> u64 {
    10 + n + n / run
}

fn push_all(mut producer: Producer, cells: &Cells, count: u64, batch: u64, run: u64) {
    let mut pushed = 0;
    while pushed < count {
        let wanted = batch.min(count - pushed).min(run - pushed % run);
        let free = producer.free(wanted);
        if free == 0 {
            thread::yield_now();
            continue;
        }
        (pushed..pushed + free).for_each(|n| write(cells, n, n));
        producer.push(Span { first: sequence(pushed, run), count: free });
        pushed += free;
    }
}

fn take_all(mut consumer: Consumer, cells: &Cells, count: u64, batch: u64, run: u64) {
    let mut taken = 0;
    while taken < count {
        match consumer.look(no_log) {
            Look::Span(span) => {
                for at in 0..span.count.min(batch) {
                    assert_eq!(span.first + at, sequence(taken, run), "in order, none twice");
                    assert_eq!(read(cells, taken), taken, "what was written before the push");
                    taken += 1;
                }
                consumer.advance(span.count.min(batch));
                consumer.release();
            }
            Look::Loss(_) => panic!("nothing was lost"),
            Look::Empty => thread::yield_now(),
        }
    }
    assert_eq!(consumer.look(no_log), Look::Empty);
}

fn passes(capacity: usize, count: u64, batch: u64, run: u64) {
    for start in STARTS {
        check(2, move || {
            let (producer, consumer) = ring(capacity, start);
            let cells = cells(capacity);
            let theirs = Arc::clone(&cells);
            let publisher = thread::spawn(move || push_all(producer, &theirs, count, batch, run));
            take_all(consumer, &cells, count, batch, run);
            publisher.join().unwrap();
        });
    }
}

#[test]
fn one_place_passes_every_message_once_and_in_order() {
    passes(1, 3, 1, u64::MAX);
}

#[test]
fn one_place_passes_runs_of_one() {
    passes(1, 3, 1, 1);
}

#[test]
fn two_places_pass_every_message_once_and_in_order() {
    passes(2, 4, 1, 2);
}

#[test]
fn batches_pass_as_single_messages_do() {
    passes(2, 4, 2, 3);
}

/// Pushes what fits and loses the rest; the consumer must be able to say after every step exactly
/// which message comes next.
fn tells_losses(capacity: usize, count: u64) {
    for start in STARTS {
        check(3, move || {
            let (mut producer, mut consumer) = ring(capacity, start);
            let gauge = producer.gauge();
            let cells = cells(capacity);
            let theirs = Arc::clone(&cells);
            let publisher = thread::spawn(move || {
                let mut position = 0;
                for n in 0..count {
                    if producer.free(1) == 1 {
                        write(&theirs, position, n);
                        assert!(producer.try_push(Span { first: n, count: 1 }));
                        position += 1;
                    } else {
                        producer.lose(1);
                    }
                }
                producer.lost()
            });
            let (mut next, mut position, mut told) = (0, 0, 0);
            let mut step = |consumer: &mut Consumer| {
                let lost = match consumer.look(no_log) {
                    Look::Span(span) => {
                        assert_eq!(span.first, next, "a loss is told where it happened");
                        assert_eq!(read(&cells, position), next);
                        consumer.advance(1);
                        consumer.release();
                        position += 1;
                        next += 1;
                        0
                    }
                    Look::Loss(lost) => lost,
                    Look::Empty => match consumer.loss_at_end(no_log) {
                        0 => return None,
                        lost => lost,
                    },
                };
                if lost > 0 {
                    consumer.acknowledge_loss(lost);
                }
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
            assert_eq!(gauge.depth(no_log), 0);
        });
    }
}

#[test]
fn one_place_tells_losses_exactly_where_they_happened() {
    tells_losses(1, 4);
}

#[test]
fn two_places_tell_losses_exactly_where_they_happened() {
    tells_losses(2, 5);
}

/// The log's index: what is published there has been written before.
struct Log {
    head: AtomicU64,
    cells: Vec<UnsafeCell<u64>>,
}

impl Log {
    fn publish(&self, next: &mut u64) {
        // SAFETY: nobody reads it before it is published; loom checks it.
        self.cells[*next as usize].with_mut(|cell| unsafe { *cell = *next });
        *next += 1;
        self.head.store(*next, Ordering::Release);
    }

    fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    fn read(&self, sequence: u64) {
        // SAFETY: published; loom checks it.
        let found = self.cells[sequence as usize].with(|cell| unsafe { *cell });
        assert_eq!(found, sequence, "the record is there");
    }
}

/// The ring follows the log for the messages 1 and 2; the message 3 is somebody else's; 4 is pushed,
/// and then it follows again.
#[test]
fn a_ring_that_follows_has_all_that_is_for_it_and_nothing_else() {
    for start in [0, u64::MAX - 1] {
        check(2, move || {
            let (mut producer, mut consumer) = ring(8, start);
            let gauge = producer.gauge();
            let log = Arc::new(Log {
                head: AtomicU64::new(0),
                cells: (0..6).map(|_| UnsafeCell::new(u64::MAX)).collect(),
            });
            let mut next = 0;
            log.publish(&mut next);
            producer.push(Span { first: 0, count: 1 });
            assert!(producer.follow(1));
            let theirs = Arc::clone(&log);
            let publisher = thread::spawn(move || {
                theirs.publish(&mut next);
                theirs.publish(&mut next);
                producer.unfollow(next);
                theirs.publish(&mut next);
                theirs.publish(&mut next);
                producer.push(Span { first: 4, count: 1 });
                assert!(producer.follow(next));
                theirs.publish(&mut next);
                producer
            });
            let mut got = Vec::new();
            let mut step = |consumer: &mut Consumer| {
                let Look::Span(span) = consumer.look(|| log.head()) else { return false };
                for sequence in span.first..span.first + span.count {
                    log.read(sequence);
                    got.push(sequence);
                }
                consumer.advance(span.count);
                consumer.release();
                true
            };
            for _ in 0..2 {
                step(&mut consumer);
                assert!(gauge.depth(|| log.head()) <= 5);
            }
            let mut producer = publisher.join().unwrap();
            producer.catch_up_with(6);
            while step(&mut consumer) {}
            assert_eq!(got, [0, 1, 2, 4, 5]);
            assert_eq!(producer.free(8), 8);
            assert_eq!(gauge.pushed(start, || log.head()), 5);
        });
    }
}
