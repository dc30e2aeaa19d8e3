//! How far apart the two processors are: what a line takes to the other one and back.
//!
//! On a virtual machine the host decides which cores the two processors are, and moves them: two
//! threads of one core, two cores behind one cache, or cores of different chips, which are up to ten
//! times as far apart. A contender that runs at one distance says nothing about one that runs at
//! another, so a turn counts only where the processors are, before it and after it, as far apart as
//! they usually are.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cpu;
use crate::harness::{Tally, pair};

/// Looks from which the usual distance is taken, and the pause between them.
const LOOKS: usize = 25;
const BETWEEN: Duration = Duration::from_millis(80);
/// By how much a distance may differ from another and still count as the same.
const SAME: f64 = 1.4;
/// How often a turn is taken until it counts; the last counts anyhow.
const TRIES: usize = 12;

/// Turns that were taken again.
static REPEATED: AtomicU64 = AtomicU64::new(0);
/// Turns that counted though the processors were not at their usual distance.
static ELSEWHERE: AtomicU64 = AtomicU64::new(0);

/// A word in lines of its own.
#[repr(align(128))]
struct Line(AtomicU64);

/// Nanoseconds for a line to the other processor and back: the least of a few short runs, for some
/// are interrupted.
fn now() -> f64 {
    const ROUNDS: u64 = 500;
    let (there, back) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let mut least = f64::MAX;
    let wait = |line: &Line, round| while line.0.load(Ordering::Acquire) != round {};
    let answer = || {
        for round in 1..=ROUNDS * 8 {
            wait(&there, round);
            back.0.store(round, Ordering::Release);
        }
        Tally::default()
    };
    let ask = || {
        for run in 0..8 {
            let began = Instant::now();
            for round in run * ROUNDS + 1..=(run + 1) * ROUNDS {
                there.0.store(round, Ordering::Release);
                wait(&back, round);
            }
            least = least.min(began.elapsed().as_nanos() as f64 / ROUNDS as f64);
        }
    };
    pair(Tally::default(), ask, answer);
    least
}

/// The distance that most of some looks have shown, within the tolerance.
fn usual() -> f64 {
    static USUAL: OnceLock<f64> = OnceLock::new();
    *USUAL.get_or_init(|| {
        let looks: Vec<f64> = (0..LOOKS)
            .map(|_| {
                sleep(BETWEEN);
                now()
            })
            .collect();
        let alike = |at: &&f64| looks.iter().filter(|other| is_same(**at, **other)).count();
        looks.iter().max_by_key(alike).copied().unwrap_or(f64::NAN)
    })
}

fn is_same(a: f64, b: f64) -> bool {
    a.max(b) <= SAME * a.min(b)
}

/// Runs `turn` with the processors at their usual distance, again where they are moved meanwhile.
pub(crate) fn steady<T>(mut turn: impl FnMut() -> T) -> T {
    if cpu::allowed().len() < 2 {
        return turn();
    }
    for _ in 1..TRIES {
        await_usual();
        let result = turn();
        if is_same(now(), usual()) {
            return result;
        }
        REPEATED.fetch_add(1, Ordering::Relaxed);
    }
    ELSEWHERE.fetch_add(1, Ordering::Relaxed);
    turn()
}

/// Waits until the processors are at their usual distance, for a few seconds at most.
fn await_usual() {
    for _ in 0..LOOKS {
        if is_same(now(), usual()) {
            return;
        }
        sleep(BETWEEN);
    }
}

/// What became of the turns, for the page.
pub(crate) fn summary() -> Option<String> {
    (cpu::allowed().len() >= 2).then(|| {
        format!(
            "A line to the other processor and back takes {:.0} ns; {} turns were taken again since the host \
             had moved the processors, {} counted all the same.",
            usual(),
            REPEATED.load(Ordering::Relaxed),
            ELSEWHERE.load(Ordering::Relaxed)
        )
    })
}
