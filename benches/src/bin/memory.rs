//! Prints what a broker costs at rest: bytes per subscription and topic; and what strangers cost:
//! publishing and subscribing beside many subscriptions that have nothing to do with it. Where nothing
//! else is said, they deliver at most once.
//!
//! `memory` for the table; `memory <row> <count>` is one measurement, in a process of its own.

use std::hint::black_box;
use std::process::Command;

use slipring::{Broker, DeliveryMode, Subscription};
use slipring_benches::{at_most_once, give_memory_back, thread_cpu_time};

const STRANGERS: [usize; 3] = [1_000, 100_000, 1_000_000];
const PUBLISHES: u32 = 200_000;
const SUBSCRIBES: u32 = 2_000;
/// Of each figure the median of so many processes.
const RUNS: usize = 3;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => table(),
        [row, count] => println!("{}", measure(row, count.parse().expect("a count"))),
        _ => panic!("memory, or memory <row> <count>"),
    }
}

fn table() {
    println!("| figure | 1,000 | 100,000 | 1,000,000 |\n|---|---:|---:|---:|");
    for (row, label, sizes) in [
        ("broker", "broker at rest, bytes", &[1][..]),
        ("idle", "subscription, never published to, bytes", &STRANGERS[..2]),
        ("idle-acked", "the same where it delivers at least once, bytes", &STRANGERS[..2]),
        ("used", "subscription after one message, bytes", &STRANGERS[..2]),
        ("used-acked", "the same where it delivers at least once, bytes", &STRANGERS[..2]),
        ("used-16", "at most once with capacity 16, bytes", &STRANGERS[..2]),
        ("topics", "topic, bytes", &STRANGERS[..2]),
        ("publish", "publish beside so many strangers, ns of the caller's CPU", &STRANGERS[..]),
        ("subscribe", "subscribe and drop likewise, ns of the caller's CPU", &STRANGERS[..]),
    ] {
        print!("| {label} |");
        for size in sizes {
            print!(" {:.0} |", median(row, *size));
        }
        println!("{}", " |".repeat(STRANGERS.len() - sizes.len()));
    }
}

fn median(row: &str, count: usize) -> f64 {
    let own = std::env::current_exe().expect("a path");
    let mut figures: Vec<f64> = (0..RUNS)
        .map(|_| {
            let output = Command::new(&own).args([row, &count.to_string()]).output();
            let text = String::from_utf8(output.expect("it runs").stdout).expect("a number");
            text.trim().parse().expect("a number")
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    figures[RUNS / 2]
}

fn measure(row: &str, count: usize) -> f64 {
    match row {
        "broker" => grown(1, || (Broker::in_memory(), ())),
        "idle" => grown(count, || subscribed(count, DeliveryMode::AtMostOnce)),
        "idle-acked" => grown(count, || subscribed(count, DeliveryMode::AtLeastOnce)),
        "used" => grown(count, || used(count, DeliveryMode::AtMostOnce, 1024)),
        "used-acked" => grown(count, || used(count, DeliveryMode::AtLeastOnce, 1024)),
        "used-16" => grown(count, || used(count, DeliveryMode::AtMostOnce, 16)),
        "topics" => grown(count, || {
            let broker = Broker::in_memory();
            (0..count).for_each(|n| _ = broker.topic(&name(n)).expect("a valid name"));
            (broker, ())
        }),
        "publish" => publish_beside(count),
        "subscribe" => subscribe_beside(count),
        _ => panic!("no row {row}"),
    }
}

fn name(n: usize) -> String {
    format!("strangers/{}/{n}", n % 1000)
}

fn subscribed(count: usize, mode: DeliveryMode) -> (Broker, Vec<Subscription>) {
    let broker = Broker::in_memory();
    let subscription = |n| broker.subscription(&name(n)).delivery(mode).open();
    let all = (0..count).map(|n| subscription(n).expect("a valid pattern")).collect();
    (broker, all)
}

/// All of them get one message, by one topic that they all want.
fn used(count: usize, mode: DeliveryMode, capacity: usize) -> (Broker, Vec<Subscription>) {
    let broker = Broker::in_memory();
    let subscription = |_| broker.subscription("one").delivery(mode).capacity(capacity).open();
    let mut all: Vec<_> = (0..count).map(|n| subscription(n).expect("a valid pattern")).collect();
    broker.publish("one", "message").expect("publishes");
    for subscription in &mut all {
        let message = subscription.try_recv().expect("it has come");
        assert_eq!(message.ack().is_ok(), mode == DeliveryMode::AtLeastOnce);
    }
    (broker, all)
}

/// Bytes by which the process grows with what `make` makes, for each of `count`.
fn grown<T>(count: usize, make: impl FnOnce() -> T) -> f64 {
    // What the first broker of a process sets up is not what the next one costs.
    drop(subscribed(10, DeliveryMode::AtLeastOnce));
    let before = resident_bytes();
    let made = make();
    let after = resident_bytes();
    drop(made);
    (after as f64 - before as f64) / count as f64
}

fn resident_bytes() -> u64 {
    give_memory_back();
    let status = std::fs::read_to_string("/proc/self/smaps_rollup").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("Rss:")).expect("an Rss line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") * 1024
}

/// Nanoseconds of a publish to a topic with one subscription of its own.
fn publish_beside(count: usize) -> f64 {
    let (broker, _strangers) = subscribed(count, DeliveryMode::AtMostOnce);
    let topic = broker.topic("own").expect("a valid name");
    let mut own = at_most_once(&broker, "own").open().expect("a valid pattern");
    let mut publish = |count: u32| {
        for n in 0..count {
            topic.publish("message").expect("publishes");
            if n % 256 == 0 {
                while own.poll(256, |message| _ = black_box(message)) != Ok(0) {}
            }
        }
    };
    publish(1000);
    let start = thread_cpu_time();
    publish(PUBLISHES);
    (thread_cpu_time() - start).as_nanos() as f64 / f64::from(PUBLISHES)
}

/// Nanoseconds of a subscription's coming and going.
fn subscribe_beside(count: usize) -> f64 {
    let (broker, _strangers) = subscribed(count, DeliveryMode::AtMostOnce);
    let patterns: Vec<String> = (0..SUBSCRIBES).map(|n| format!("own/{n}/*")).collect();
    let start = thread_cpu_time();
    for pattern in &patterns {
        drop(at_most_once(&broker, pattern).open().expect("a valid pattern"));
    }
    (thread_cpu_time() - start).as_nanos() as f64 / f64::from(SUBSCRIBES)
}
