//! What it costs to get messages: polled, received one by one, and by a handler.

use std::hint::black_box;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use slipring::{Broker, NewMessage, Overflow, Topic};
use slipring_benches::at_most_once;

/// Messages that are queued before they are fetched: as many as a queue holds.
const ROUND: u64 = 1024;

fn queue_up(topic: &Topic) {
    let batch = [NewMessage::new(&[7; 64]); 64];
    for _ in 0..ROUND / 64 {
        topic.publish_batch(&batch).expect("publishes");
    }
}

fn pulled(c: &mut Criterion) {
    let broker = Broker::in_memory();
    let topic = broker.topic("bench/topic").expect("a valid name");
    let mut subscription = at_most_once(&broker, "bench/*").open().expect("a valid pattern");
    let mut group = c.benchmark_group("delivery");
    group.throughput(Throughput::Elements(ROUND));
    // Only fetching is timed.
    group.bench_function("poll", |b| {
        b.iter_custom(|iterations| {
            let mut time = Duration::ZERO;
            for _ in 0..iterations {
                queue_up(&topic);
                let start = Instant::now();
                let polled = subscription.poll(usize::MAX, |message| {
                    black_box(message.payload());
                });
                time += start.elapsed();
                assert_eq!(polled, Ok(ROUND as usize));
            }
            time
        });
    });
    group.bench_function("recv", |b| {
        b.iter_custom(|iterations| {
            let mut time = Duration::ZERO;
            for _ in 0..iterations {
                queue_up(&topic);
                let start = Instant::now();
                for _ in 0..ROUND {
                    black_box(subscription.recv().expect("a message").payload());
                }
                time += start.elapsed();
            }
            time
        });
    });
}

/// From the first publish to the end of the last call: the handler runs beside the publisher.
fn handled(c: &mut Criterion) {
    let broker = Broker::builder().workers(1).build().expect("a valid setting");
    let topic = broker.topic("bench/topic").expect("a valid name");
    let (tell, told) = channel();
    let mut count = 0;
    let handler = at_most_once(&broker, "bench/*")
        .overflow(Overflow::Block { timeout: None })
        .handler(move |message| {
            black_box(message.payload());
            count += 1;
            if count % ROUND == 0 {
                let _ = tell.send(());
            }
        })
        .expect("a thread");
    let mut group = c.benchmark_group("delivery");
    group.throughput(Throughput::Elements(ROUND));
    group.bench_function("handler", |b| {
        b.iter(|| {
            queue_up(&topic);
            told.recv().expect("the handler lives");
        });
    });
    drop(handler);
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    pulled(&mut criterion);
    handled(&mut criterion);
    criterion.final_summary();
}
