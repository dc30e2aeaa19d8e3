//! What every comparison shares: the payload, the two threads, the runs in turns, the statistics.
//!
//! A payload of 64 bytes begins with its sequence number and ends with the complement. Each
//! consumer adds up what it reads, so a lost, doubled or torn message fails the run instead of
//! making it look fast.

use std::fmt;
use std::hint::spin_loop;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::cpu::{self, Role};
use crate::distance;

/// Slots of every queue that is compared.
pub(crate) const CAPACITY: usize = 1024;
/// How many messages a consumer takes from one of several queues before it goes on to the next.
pub(crate) const BURST: usize = 32;
/// The payload of all comparisons that do not vary it.
pub(crate) const PAYLOAD: usize = 64;

/// A message by value.
pub(crate) type Payload = [u8; PAYLOAD];

/// The payload of message `sequence`.
#[inline(always)]
pub(crate) fn payload(sequence: u64) -> Payload {
    let mut bytes = [0; PAYLOAD];
    stamp(&mut bytes, sequence);
    bytes
}

/// Writes the sequence number to both ends of a payload of at least 16 bytes.
#[inline(always)]
pub(crate) fn stamp(bytes: &mut [u8], sequence: u64) {
    let end = bytes.len() - 8;
    bytes[..8].copy_from_slice(&sequence.to_ne_bytes());
    bytes[end..].copy_from_slice(&(!sequence).to_ne_bytes());
}

/// The sequence number of a payload; `u64::MAX` when its ends do not belong together.
#[inline(always)]
pub(crate) fn sequence_of(message: impl AsRef<[u8]>) -> u64 {
    let bytes = message.as_ref();
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(word)
    };
    let first = word(0);
    if first == !word(bytes.len() - 8) { first } else { u64::MAX }
}

/// What a consumer has seen: how many messages, and the sum of their numbers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Messages seen.
    pub(crate) count: u64,
    /// The wrapping sum of their sequence numbers.
    pub(crate) sum: u64,
}

impl Tally {
    /// What is seen when each of `messages` arrives `copies` times.
    pub(crate) const fn of(messages: u64, copies: u64) -> Self {
        let once = messages.wrapping_mul(messages.wrapping_sub(1)) / 2;
        Self { count: messages * copies, sum: once.wrapping_mul(copies) }
    }

    /// Counts one message.
    #[inline(always)]
    pub(crate) fn see(&mut self, message: impl AsRef<[u8]>) {
        self.count_number(sequence_of(message));
    }

    #[inline(always)]
    fn count_number(&mut self, number: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(number);
    }
}

/// Runs the producer and the consumer on their processors and gives the time from the producer's
/// first message to the consumer's last.
///
/// # Panics
/// When the consumer has not seen exactly what was `expected`.
pub(crate) fn pair(
    expected: Tally,
    produce: impl FnMut() + Send,
    consume: impl FnMut() -> Tally + Send,
) -> Duration {
    let (elapsed, seen) = pair_made(move || produce, move || consume);
    assert_eq!(seen, expected, "messages were lost, doubled or torn");
    elapsed
}

/// As [`pair`], for ends that must be made on the thread that uses them. Both live until both are
/// done. The tally is the caller's to check.
pub(crate) fn pair_made<P: FnMut(), C: FnMut() -> Tally>(
    make_producer: impl FnOnce() -> P + Send,
    make_consumer: impl FnOnce() -> C + Send,
) -> (Duration, Tally) {
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        let barrier = &barrier;
        let consumer = scope.spawn(move || {
            cpu::pin(Role::Consumer);
            let mut consume = make_consumer();
            barrier.wait();
            let tally = consume();
            let ended = Instant::now();
            barrier.wait();
            (ended, tally)
        });
        let producer = scope.spawn(move || {
            cpu::pin(Role::Producer);
            let mut produce = make_producer();
            barrier.wait();
            let began = Instant::now();
            produce();
            barrier.wait();
            began
        });
        let began = producer.join().expect("the producer panicked");
        let (ended, tally) = consumer.join().expect("the consumer panicked");
        (ended - began, tally)
    })
}

/// Runs `work` on the producer's processor and gives its result.
pub(crate) fn pinned<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            cpu::pin(Role::Producer);
            work()
        });
        thread.join().expect("the pinned thread panicked")
    })
}

/// Takes messages until `messages` have come; `next` gives the number of one, or `None`.
#[inline(always)]
pub(crate) fn drain(messages: u64, mut next: impl FnMut() -> Option<u64>) -> Tally {
    let mut tally = Tally::default();
    while tally.count < messages {
        match next() {
            Some(number) => tally.count_number(number),
            None => spin_loop(),
        }
    }
    tally
}

/// Takes up to [`BURST`] messages from each queue in turn until `deliveries` have come.
#[inline(always)]
pub(crate) fn drain_all<Q>(
    deliveries: u64,
    queues: &mut [Q],
    mut next: impl FnMut(&mut Q) -> Option<u64>,
) -> Tally {
    let mut tally = Tally::default();
    while tally.count < deliveries {
        for queue in queues.iter_mut() {
            for _ in 0..BURST {
                match next(queue) {
                    Some(number) => tally.count_number(number),
                    None => break,
                }
            }
        }
    }
    tally
}

/// Spins until `next` gives something.
#[inline(always)]
pub(crate) fn spin_for<T>(mut next: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = next() {
            return found;
        }
        spin_loop();
    }
}

/// Sends one message back and forth; gives the round trips, the first tenth dropped.
pub(crate) fn ping_pong(
    rounds: u64,
    send: impl FnMut(Payload) + Send,
    receive: impl FnMut() -> u64 + Send,
    echo: impl FnMut() + Send,
) -> Latencies {
    ping_pong_made(rounds, move || (send, receive), move || echo)
}

/// As [`ping_pong`], for ends that must be made on the thread that uses them.
pub(crate) fn ping_pong_made<S: FnMut(Payload), R: FnMut() -> u64, E: FnMut()>(
    rounds: u64,
    make_near: impl FnOnce() -> (S, R) + Send,
    make_far: impl FnOnce() -> E + Send,
) -> Latencies {
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        let barrier = &barrier;
        scope.spawn(move || {
            cpu::pin(Role::Consumer);
            let mut echo = make_far();
            barrier.wait();
            (0..rounds).for_each(|_| echo());
            barrier.wait();
        });
        let near = scope.spawn(move || {
            cpu::pin(Role::Producer);
            let (mut send, mut receive) = make_near();
            let mut latencies = Latencies::new();
            barrier.wait();
            for round in 0..rounds {
                let sent = cpu::ticks();
                send(payload(round));
                let answer = receive();
                let took = cpu::ticks() - sent;
                assert_eq!(answer, round, "the echo is not what was sent");
                if round >= rounds / 10 {
                    latencies.record_ticks(took);
                }
            }
            barrier.wait();
            latencies
        });
        near.join().expect("the near end panicked")
    })
}

/// A histogram of durations.
#[derive(Debug, Clone)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    /// An empty histogram, three digits from 1 ns to 10 s.
    pub(crate) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("the bounds are valid"))
    }

    /// Records a difference of [`cpu::ticks`].
    pub(crate) fn record_ticks(&mut self, ticks: u64) {
        self.record_ns(ticks as f64 / cpu::ticks_per_ns());
    }

    /// Records a duration.
    pub(crate) fn record_ns(&mut self, ns: f64) {
        self.0.saturating_record(ns.max(1.0) as u64);
    }

    /// The value below which the share `quantile` lies.
    pub(crate) fn at(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64
    }
}

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Runs of each contender, the warm-up not counted.
    pub(crate) runs: usize,
    /// About how long one run lasts.
    pub(crate) run_seconds: f64,
    /// Leave out what only fills the tables.
    pub(crate) quick: bool,
    /// Where there is a disk, for section E.
    pub(crate) dir: &'static Path,
}

impl Plan {
    /// How many messages fill one run at about this rate.
    pub(crate) fn messages(&self, millions_per_second: f64) -> u64 {
        let messages = millions_per_second * 1e6 * self.run_seconds;
        (messages as u64).max(1024) / 1024 * 1024 // whole batches
    }
}

/// One entrant: a name and one measured run.
pub(crate) struct Contender<'a> {
    name: String,
    run: Box<dyn FnMut() -> f64 + 'a>,
}

impl fmt::Debug for Contender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A contender that moves `messages` a run; its figure is millions a second.
pub(crate) fn rate<'a>(
    name: impl Into<String>,
    messages: u64,
    mut run: impl FnMut(u64) -> Duration + 'a,
) -> Contender<'a> {
    let millions = messages as f64 / 1e6;
    figure(name, move || millions / run(messages).as_secs_f64())
}

/// A contender whose run gives its figure itself.
pub(crate) fn figure<'a>(name: impl Into<String>, run: impl FnMut() -> f64 + 'a) -> Contender<'a> {
    Contender { name: name.into(), run: Box::new(run) }
}

/// All runs of one contender.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// Who ran.
    pub(crate) name: String,
    /// In the order of the turns.
    turns: Vec<f64>,
    /// In rising order.
    values: Vec<f64>,
}

impl Series {
    /// The figures of the runs, in the order of the turns.
    ///
    /// # Panics
    /// When there is none.
    pub(crate) fn new(name: impl Into<String>, turns: Vec<f64>) -> Self {
        assert!(!turns.is_empty(), "a series has at least one run");
        let mut values = turns.clone();
        values.sort_by(f64::total_cmp);
        Self { name: name.into(), turns, values }
    }

    /// The middle run.
    pub(crate) fn median(&self) -> f64 {
        self.values[self.values.len() / 2]
    }

    /// The smallest run.
    pub(crate) fn min(&self) -> f64 {
        self.values[0]
    }

    /// The largest run.
    pub(crate) fn max(&self) -> f64 {
        self.values[self.values.len() - 1]
    }
}

/// Runs the contenders in turns (a, b, c, a, b, c, ...), the first turn as a warm-up: what the
/// machine does to one of them at a time it does to all.
pub(crate) fn in_turns(plan: &Plan, contenders: Vec<Contender<'_>>) -> Results {
    turns(plan, contenders, |contender| (contender.run)())
}

/// The same for contenders of two threads, with the processors as far apart as they usually are:
/// see [`distance`].
pub(crate) fn in_steady_turns(plan: &Plan, contenders: Vec<Contender<'_>>) -> Results {
    turns(plan, contenders, |contender| distance::steady(&mut contender.run))
}

fn turns<'a>(
    plan: &Plan,
    mut contenders: Vec<Contender<'a>>,
    run: impl Fn(&mut Contender<'a>) -> f64,
) -> Results {
    let mut values = vec![Vec::new(); contenders.len()];
    for turn in 0..=plan.runs {
        for (contender, values) in contenders.iter_mut().zip(&mut values) {
            let value = run(contender);
            if turn > 0 {
                values.push(value);
            }
        }
    }
    let series = contenders.into_iter().zip(values);
    Results(series.map(|(contender, values)| Series::new(contender.name, values)).collect())
}

/// What came out of [`in_turns`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Results(pub(crate) Vec<Series>);

impl Results {
    /// The series of that name.
    pub(crate) fn series(&self, name: &str) -> Option<&Series> {
        self.0.iter().find(|series| series.name == name)
    }

    /// The median of that name.
    pub(crate) fn median(&self, name: &str) -> Option<f64> {
        self.series(name).map(Series::median)
    }

    /// The largest median among the names: the best mode of a peer with several.
    pub(crate) fn best(&self, names: &[&str]) -> Option<f64> {
        names.iter().filter_map(|name| self.median(name)).max_by(f64::total_cmp)
    }

    /// The median of what `f` makes of the figures that `a` and `b` have in the same turn: where the machine
    /// changes between turns, it does that to both.
    pub(crate) fn of_turns(&self, a: &str, b: &str, f: impl Fn(f64, f64) -> f64) -> Option<f64> {
        let pairs = self.series(a)?.turns.iter().zip(&self.series(b)?.turns);
        Some(Series::new(a, pairs.map(|(&a, &b)| f(a, b)).collect()).median())
    }

    /// The median of `a` over the median of `b`.
    pub(crate) fn ratio(&self, a: &str, b: &str) -> Option<f64> {
        Some(self.median(a)? / self.median(b)?)
    }
}
