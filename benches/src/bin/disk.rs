//! What a directory costs: publishing into one, beside the same bytes written to a bare file; reading
//! it back; opening it again.
//!
//! `disk [DIR [FIGURE]]` prints the table, or the rows whose name has FIGURE in it; the directory is
//! made, filled with up to 2 GiB, and removed.
#![expect(clippy::disallowed_types, reason = "benches use the standard library's atomics")]

use slipring::store::{DiskStore, SyncPolicy};
use slipring::{Broker, DeliveryMode, NewMessage, Start, Topic};
use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a payload.
const PAYLOAD: [u8; 256] = [7; 256];
/// Of each figure the median of so many runs, of the two sides in turn.
const RUNS: usize = 5;

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().map_or_else(|| "disk-bench".into(), PathBuf::from);
    let only = args.next().unwrap_or_default();
    println!("| figure | ours | floor | ratio |\n|---|---:|---:|---:|");
    let figure = |label: &str, run: &dyn Fn(&str)| {
        if label.contains(&only) {
            run(label);
        }
    };
    figure("`always`, one at a time, records/s", &|label| synced(&dir, label, 1, 400));
    figure("`always`, batches of 64, records/s", &|label| synced(&dir, label, 64, 400));
    figure("`always`, batches of 1024, records/s", &|label| synced(&dir, label, 1024, 200));
    figure("`os`, one at a time, records/s", &|label| written(&dir, label, 1, 200_000));
    figure("`os`, batches of 64, records/s", &|label| written(&dir, label, 64, 20_000));
    figure("replay from the page cache, records/s (floor: the bar)", &|label| {
        replayed(&dir, label)
    });
    figure("publishing beside a laggard, records/s (floor: beside another)", &|label| {
        laggard(&dir, label)
    });
    figure("opening and closing 1 GiB, ms (floor: the bar)", &|label| recovered(&dir, label));
    let _ = std::fs::remove_dir_all(dir);
}

fn row(label: &str, mut ours: Vec<f64>, mut floor: Vec<f64>) {
    let median = |figures: &mut Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let (ours, floor) = (median(&mut ours), median(&mut floor));
    println!("| {label} | {ours:.0} | {floor:.0} | {:.2} |", ours / floor);
}

/// A broker in an empty directory.
fn broker(dir: &Path, sync: SyncPolicy) -> Broker {
    let _ = std::fs::remove_dir_all(dir);
    Broker::builder().disk(DiskStore::builder().sync(sync)).open(dir).expect("opens")
}

fn topic(broker: &Broker) -> Topic {
    broker.topic("a/b").expect("is made")
}

/// A file that has room for `bytes`.
fn bare(dir: &Path, bytes: u64) -> File {
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir).expect("is made");
    let file = OpenOptions::new().create_new(true).write(true).open(dir.join("bare"));
    let file = file.expect("is made");
    let zeros = vec![0; 1 << 20];
    for at in 0..bytes.div_ceil(1 << 20) {
        file.write_all_at(&zeros, at << 20).expect("is written");
    }
    file.sync_all().expect("is synced");
    file
}

/// Records per second, of `rounds` rounds of `batch` records.
fn rate(batch: usize, rounds: usize, mut round: impl FnMut(usize)) -> f64 {
    let began = Instant::now();
    (0..rounds).for_each(&mut round);
    (batch * rounds) as f64 / began.elapsed().as_secs_f64()
}

fn publish(topic: &Topic, batch: &[NewMessage<'_>]) {
    if let [one] = batch {
        black_box(topic.publish(*one).expect("is published"));
    } else {
        black_box(topic.publish_batch(batch).expect("is published"));
    }
}

/// Against appending the same bytes and syncing them, in a file whose blocks are there.
fn synced(dir: &Path, label: &str, batch: usize, rounds: usize) {
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    let messages = vec![NewMessage::new(&PAYLOAD); batch];
    for _ in 0..RUNS {
        let broker = broker(dir, SyncPolicy::Always);
        let topic = topic(&broker);
        publish(&topic, &messages);
        ours.push(rate(batch, rounds, |_| publish(&topic, &messages)));
        drop((topic, broker));
        let bytes = vec![7; batch * PAYLOAD.len()];
        let file = bare(dir, (bytes.len() * rounds) as u64);
        floor.push(rate(batch, rounds, |round| {
            file.write_all_at(&bytes, (round * bytes.len()) as u64).expect("is written");
            file.sync_data().expect("is synced");
        }));
    }
    row(label, ours, floor);
}

/// Against a write for each record, or for each 16 KiB of a batch.
fn written(dir: &Path, label: &str, batch: usize, rounds: usize) {
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    let messages = vec![NewMessage::new(&PAYLOAD); batch];
    for _ in 0..RUNS {
        let broker = broker(dir, SyncPolicy::Os);
        let topic = topic(&broker);
        publish(&topic, &messages);
        ours.push(rate(batch, rounds, |_| publish(&topic, &messages)));
        drop((topic, broker));
        let bytes = vec![7; batch * PAYLOAD.len()];
        let file = bare(dir, 0);
        floor.push(rate(batch, rounds, |round| {
            file.write_all_at(&bytes, (round * bytes.len()) as u64).expect("is written");
        }));
    }
    row(label, ours, floor);
}

/// Fills the directory with `count` records.
fn fill(dir: &Path, count: usize) {
    let broker = broker(dir, SyncPolicy::Os);
    let topic = topic(&broker);
    let messages = vec![NewMessage::new(&PAYLOAD); 64];
    for _ in 0..count.div_ceil(64) {
        publish(&topic, &messages);
    }
}

/// Reading all of a directory that was just opened, against 5 million records a second.
fn replayed(dir: &Path, label: &str) {
    const COUNT: usize = 1_000_000;
    fill(dir, COUNT);
    let run = || {
        let broker = Broker::open(dir).expect("opens");
        let mut all = broker
            .subscription("**")
            .delivery(DeliveryMode::AtMostOnce)
            .start(Start::Earliest)
            .open()
            .expect("opens");
        let began = Instant::now();
        let mut seen = 0;
        while seen < COUNT {
            seen += all.poll(1024, |message| _ = black_box(message.payload())).expect("reads");
        }
        COUNT as f64 / began.elapsed().as_secs_f64()
    };
    let ours = (0..RUNS).map(|_| run()).collect();
    row(label, ours, vec![5e6]);
}

/// Publishing while a subscription reads from the disk what is long gone from memory, against
/// publishing while one reads what is new.
fn laggard(dir: &Path, label: &str) {
    const OLD: usize = 2_000_000;
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for lags in [true, false].repeat(RUNS) {
        fill(dir, OLD);
        let disk = DiskStore::builder().sync(SyncPolicy::Os);
        let broker = Broker::builder().disk(disk).open(dir).expect("opens");
        let topic = topic(&broker);
        let start = if lags { Start::Earliest } else { Start::Now };
        let mode = DeliveryMode::AtMostOnce;
        let mut reader =
            broker.subscription("**").start(start).delivery(mode).open().expect("opens");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // A laggard that is as quick as it can be has caught up too soon.
                    let _ = reader.poll(64, |message| _ = black_box(message.payload()));
                    thread::sleep(Duration::from_micros(100));
                }
            });
            let figure = rate(1, 200_000, |_| publish(&topic, &[NewMessage::new(&PAYLOAD)]));
            done.store(true, Ordering::Relaxed);
            if lags { ours.push(figure) } else { floor.push(figure) }
        });
    }
    row(label, ours, floor);
}

/// Opening a directory with 1 GiB, against a second.
fn recovered(dir: &Path, label: &str) {
    fill(dir, (1 << 30) / (PAYLOAD.len() + 32));
    let run = || {
        let began = Instant::now();
        drop(black_box(Broker::open(dir).expect("opens")));
        began.elapsed().as_secs_f64() * 1e3
    };
    let ours = (0..RUNS).map(|_| run()).collect();
    row(label, ours, vec![1e3]);
}
