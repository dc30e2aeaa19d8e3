//! What a publish costs: alone, in batches, by loan, with subscriptions that are drained on the
//! same thread, and with a filter that rejects.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use slipring::{Broker, NewMessage, Subscription};
use slipring_benches::at_most_once;

const PAYLOAD: &[u8] = &[7; 64];
const BATCH: u64 = 64;
/// Messages that are published before what is queued is drained: less than a queue holds.
const ROUND: u64 = 256;

fn drain(subscriptions: &mut [Subscription]) {
    for subscription in subscriptions {
        while subscription.poll(usize::MAX, |message| _ = black_box(message.payload())) != Ok(0) {}
    }
}

fn publish(c: &mut Criterion) {
    for count in [0, 1, 16] {
        let broker = Broker::in_memory();
        let topic = broker.topic("bench/topic").expect("a valid name");
        let mut subscriptions: Vec<_> = (0..count)
            .map(|_| at_most_once(&broker, "bench/*").open().expect("a valid pattern"))
            .collect();
        let mut group = c.benchmark_group(format!("publish/{count} subscriptions"));
        group.throughput(Throughput::Elements(ROUND));
        group.bench_function("single", |b| {
            b.iter(|| {
                (0..ROUND).for_each(|_| _ = topic.publish(PAYLOAD).expect("publishes"));
                drain(&mut subscriptions);
            });
        });
        let batch = [NewMessage::new(PAYLOAD); BATCH as usize];
        group.bench_function("batch of 64", |b| {
            b.iter(|| {
                for _ in 0..ROUND / BATCH {
                    topic.publish_batch(&batch).expect("publishes");
                }
                drain(&mut subscriptions);
            });
        });
    }
}

fn loan(c: &mut Criterion) {
    for (name, bytes) in [("4 KiB", 4 << 10), ("1 MiB", 1 << 20)] {
        let broker = Broker::in_memory();
        let topic = broker.topic("bench/topic").expect("a valid name");
        let mut group = c.benchmark_group("loan");
        group.throughput(Throughput::Elements(1));
        // What it holds is not touched: this is the cost of the loan, not of its bytes.
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut loan = topic.loan(bytes).expect("memory");
                loan[0] = 1;
                loan.commit().expect("publishes")
            });
        });
    }
}

fn filter(c: &mut Criterion) {
    let broker = Broker::in_memory();
    let topic = broker.topic("bench/topic").expect("a valid name");
    let builder = at_most_once(&broker, "bench/*").filter("attributes.kind = \"other\"");
    let _subscription = builder.open().expect("a valid filter");
    let attributes = [("kind", "this"), ("region", "eu")];
    let message = NewMessage::new(PAYLOAD).attributes(&attributes);
    let mut group = c.benchmark_group("filter");
    group.throughput(Throughput::Elements(1));
    group.bench_function("that rejects", |b| {
        b.iter(|| topic.publish(message).expect("publishes"));
    });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    publish(&mut criterion);
    loan(&mut criterion);
    filter(&mut criterion);
    criterion.final_summary();
}
