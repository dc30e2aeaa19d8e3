//! What leases cost: given and settled, in order and in random order, with a million outstanding.
//! What they weigh, `core/tests/ledger_weight.rs` says.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use slipring::internals::Ledger;

const OUTSTANDING: u64 = 1_000_000;
const VISIBILITY: Duration = Duration::from_secs(10);

fn full() -> Ledger {
    let mut ledger = Ledger::new(0);
    for sequence in 0..OUTSTANDING {
        ledger.lease(sequence, 0, VISIBILITY);
    }
    ledger
}

/// All of `0..OUTSTANDING`, each once, in an order without pattern: xorshift, then Fisher and
/// Yates's shuffle.
fn shuffled() -> Vec<u64> {
    let mut order: Vec<u64> = (0..OUTSTANDING).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (1..order.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(at, (state % (at as u64 + 1)) as usize);
    }
    order
}

fn ledger(c: &mut Criterion) {
    let mut group = c.benchmark_group("ledger");
    group.throughput(Throughput::Elements(OUTSTANDING)).sample_size(10);
    // Every ack is of a ledger that has had a million leases outstanding.
    let order = shuffled();
    group.bench_function("ack_random_of_1M", |b| {
        b.iter_custom(|iterations| {
            let mut time = Duration::ZERO;
            for _ in 0..iterations {
                let mut ledger = full();
                let start = Instant::now();
                for &sequence in &order {
                    black_box(ledger.ack(sequence, 1));
                }
                time += start.elapsed();
                assert_eq!(ledger.floor(), OUTSTANDING);
            }
            time
        });
    });
    // With a million outstanding all the time: each ack makes room for one more lease.
    group.bench_function("ack_random_and_lease_at_1M", |b| {
        let mut ledger = full();
        let mut base = 0;
        b.iter_custom(|iterations| {
            let start = Instant::now();
            for _ in 0..iterations {
                for &sequence in &order {
                    black_box(ledger.ack(base + sequence, 1));
                    ledger.lease(ledger.next(), 0, VISIBILITY);
                }
                base += OUTSTANDING;
            }
            start.elapsed()
        });
    });
    group.bench_function("lease_1M", |b| b.iter(full));
    group.bench_function("due_1M_at_once", |b| {
        b.iter_custom(|iterations| {
            let mut ledger = full();
            let mut now = Duration::ZERO;
            let start = Instant::now();
            for _ in 0..iterations {
                now += VISIBILITY;
                let mut count = 0;
                while ledger.due(now, now + VISIBILITY, usize::MAX).is_some() {
                    count += 1;
                }
                assert_eq!(count, OUTSTANDING);
            }
            start.elapsed()
        });
    });
    group.bench_function("settle_in_order", |b| {
        b.iter(|| {
            let mut ledger = Ledger::new(0);
            for sequence in 0..OUTSTANDING {
                ledger.take_settled(black_box(sequence));
            }
            ledger.floor()
        });
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    ledger(&mut criterion);
    criterion.final_summary();
}
