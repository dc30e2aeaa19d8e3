//! slipring's side of every comparison: the only file here that knows its API.
#![expect(unsafe_code, reason = "messages as C describes them")]

use std::cell::UnsafeCell;
use std::hint::{black_box, spin_loop};
use std::path::Path;
use std::process::Command;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use slipring::internals::{Snapshot, Trie};
use slipring::store::{DiskStore, SyncPolicy};
use slipring::{
    AsMessage, Broker, DeliveryMode, Filter, Idle, Message, NewMessage, Overflow, Pattern, Start,
    Subscription, SubscriptionBuilder, TestClock, Topic, WaitStrategy,
};

use crate::cpu::{self, Role};
use crate::disk;
use crate::durable;
use crate::harness::{
    BURST, CAPACITY, Latencies, Payload, Tally, pair, payload, ping_pong, pinned, sequence_of,
    spin_for, stamp,
};
use crate::peers::park::time_wakes;
use crate::side::{LeaseBytes, Memory, Router, Side, Stalled, Stored, Synced};

const TOPIC: &str = "bench/topic";
const PATTERN: &str = "bench/*";
/// The largest batch of any comparison.
const MAX_BATCH: usize = 64;
/// What one poll takes at most.
const POLL: usize = 256;
/// What is kept for latecomers. The peers keep nothing; this holds what is queued and fits into a
/// second-level cache.
const BUDGET_BYTES: usize = 1 << 20;
/// Large payloads: room for a window of them.
const LARGE_BUDGET_BYTES: usize = 256 << 20;
const LARGE_WINDOW: usize = 32;

/// slipring.
pub(crate) fn side() -> Option<&'static dyn Side> {
    Some(&Slipring)
}

struct Slipring;

fn broker(budget_bytes: usize) -> Broker {
    let builder = Broker::builder().shards(1).memory_budget(budget_bytes);
    builder.build().expect("a broker is built")
}

fn topic(broker: &Broker, name: &str) -> Topic {
    broker.topic(name).expect("a topic is made")
}

/// A broker on a directory, which is made if it is not there.
fn on_disk(dir: &Path, sync: Synced, memory: Memory) -> Broker {
    let disk = DiskStore::builder();
    let disk = match sync {
        // As the bare file beside it: its room is there before anything is appended.
        Synced::Each => disk.sync(SyncPolicy::Always).preallocate_bytes(64 << 20),
        Synced::Never => disk.sync(SyncPolicy::Os),
    };
    let builder = Broker::builder().disk(disk);
    let builder = match memory {
        Memory::Small => builder.memory_budget(BUDGET_BYTES),
        Memory::Default => builder,
    };
    builder.open(dir).expect("a broker opens")
}

/// A subscription for what is stored.
fn reading(broker: &Broker, start: Start) -> Subscription {
    at_most_once(broker, PATTERN).start(start).open().expect("a subscription opens")
}

/// What the peers do: nothing is acknowledged.
fn at_most_once<'a>(broker: &Broker, pattern: &'a str) -> SubscriptionBuilder<'a> {
    broker.subscription(pattern).delivery(DeliveryMode::AtMostOnce)
}

/// A subscription that blocks its publisher when it is full.
fn subscribe(broker: &Broker, pattern: &str, capacity: usize) -> Subscription {
    at_most_once(broker, pattern)
        .capacity(capacity)
        .overflow(Overflow::Block { timeout: None })
        .wait(WaitStrategy::BusySpin)
        .open()
        .expect("a subscription opens")
}

/// How long leases run.
const VISIBILITY: Duration = Duration::from_secs(300);

/// A subscription that may have so many `leases`, from the oldest message on.
fn subscribe_leasing(broker: &Broker, leases: u64) -> Subscription {
    broker
        .subscription(PATTERN)
        .delivery(DeliveryMode::AtLeastOnce)
        .visibility_timeout(VISIBILITY)
        .max_outstanding(leases as usize)
        .capacity(CAPACITY)
        .wait(WaitStrategy::BusySpin)
        .start(Start::Earliest)
        .open()
        .expect("a subscription opens")
}

/// Receives all there is, which must be `leases` messages.
fn lease(subscription: &mut Subscription, leases: u64, mut f: impl FnMut(&Message<'_>)) {
    let mut received = 0;
    loop {
        match subscription.poll(POLL, &mut f).expect("nothing is lost") {
            0 => break,
            polled => received += polled as u64,
        }
    }
    assert_eq!(received, leases, "messages were lost or doubled");
}

/// Fisher and Yates's shuffle, by numbers of xorshift.
fn shuffle<T>(items: &mut [T]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (1..items.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        items.swap(at, (state % (at as u64 + 1)) as usize);
    }
}

/// A subscription that nobody reads.
fn leave(broker: &Broker, pattern: &str, overflow: Overflow) -> Subscription {
    let builder = at_most_once(broker, pattern).capacity(CAPACITY).overflow(overflow);
    builder.open().expect("a subscription opens")
}

fn publish(topic: &Topic, messages: u64, batch: usize, len: usize) {
    if batch == 1 {
        let mut bytes = vec![0; len];
        for sequence in 0..messages {
            stamp(&mut bytes, sequence);
            topic.publish(&bytes[..]).expect("it is published");
        }
        return;
    }
    match batch {
        16 => publish_batches::<16>(topic, messages, |_| {}),
        MAX_BATCH => publish_batches::<MAX_BATCH>(topic, messages, |_| {}),
        other => unreachable!("no scenario has batches of {other}"),
    }
}

/// `ready` is called with the number of each batch's first message, before it is published.
fn publish_batches<const BATCH: usize>(topic: &Topic, messages: u64, ready: impl Fn(u64)) {
    let mut payloads: [Payload; BATCH] = [payload(0); BATCH];
    for first in (0..messages).step_by(BATCH) {
        for (payload, sequence) in payloads.iter_mut().zip(first..) {
            stamp(payload, sequence);
        }
        ready(first);
        topic.publish_batch(&payloads).expect("it is published");
    }
}

#[inline(always)]
fn poll(subscription: &mut Subscription, most: usize, tally: &mut Tally) -> usize {
    let taken = subscription.poll(most, |message| tally.see(message.payload()));
    taken.expect("nothing is lost")
}

fn drain(subscription: &mut Subscription, messages: u64) -> Tally {
    let mut tally = Tally::default();
    while tally.count < messages {
        if poll(subscription, POLL, &mut tally) == 0 {
            subscription.wait().expect("nothing hinders waiting");
        }
    }
    tally
}

impl Side for Slipring {
    fn one_to_one(&self, messages: u64, batch: usize, len: usize) -> Duration {
        // A full queue must fit into the budget, or what is queued expires.
        let large = len > 512;
        let broker = broker(if large { LARGE_BUDGET_BYTES } else { BUDGET_BYTES });
        let capacity = if large { LARGE_WINDOW } else { CAPACITY };
        let mut subscription = subscribe(&broker, PATTERN, capacity);
        let topic = topic(&broker, TOPIC);
        pair(
            Tally::of(messages, 1),
            || publish(&topic, messages, batch, len),
            || drain(&mut subscription, messages),
        )
    }

    fn to_handler(&self, messages: u64, described: bool) -> Duration {
        let broker = Broker::builder().memory_budget(BUDGET_BYTES);
        // Beside C all threads are pinned.
        let broker = if described { broker.workers(1).pin_workers(1) } else { broker };
        let broker = broker.build().expect("a broker opens");
        let done = Arc::new(AtomicBool::new(false));
        let (signal, mut tally) = (Arc::clone(&done), Tally::default());
        let subscription = at_most_once(&broker, PATTERN)
            .capacity(CAPACITY)
            .overflow(Overflow::Block { timeout: None })
            .wait(WaitStrategy::BusySpin)
            .handler(move |message: &Message<'_>| {
                tally.see(message.payload());
                if tally.count == messages {
                    assert_eq!(tally, Tally::of(messages, 1), "messages were lost");
                    signal.store(true, Ordering::Release);
                }
            })
            .expect("a handler subscribes");
        let topic = topic(&broker, TOPIC);
        let elapsed = pinned(|| {
            let mut batch = DescribedBatch::new();
            let began = Instant::now();
            if described {
                batch.publish(&topic, messages);
            } else {
                publish(&topic, messages, MAX_BATCH, size_of::<Payload>());
            }
            while !done.load(Ordering::Acquire) {
                spin_loop();
            }
            began.elapsed()
        });
        drop(subscription);
        elapsed
    }

    fn drain_by_handler(&self, messages: u64) -> Duration {
        let broker = Broker::builder().memory_budget(BUDGET_BYTES).workers(1).pin_workers(0);
        let broker = broker.build().expect("a broker opens");
        let rounds = Arc::new(Rounds::default());
        let (shared, mut tally) = (Arc::clone(&rounds), Tally::default());
        let mut began = Instant::now();
        let subscription = at_most_once(&broker, PATTERN)
            .capacity(CAPACITY)
            .overflow(Overflow::Block { timeout: None })
            .wait(WaitStrategy::BusySpin)
            .handler(move |message: &Message<'_>| {
                if tally.count.is_multiple_of(CAPACITY as u64) {
                    began = shared.begin(tally.count);
                }
                tally.see(message.payload());
                if tally.count.is_multiple_of(CAPACITY as u64) {
                    shared.end(began, tally);
                }
            })
            .expect("a handler subscribes");
        let topic = topic(&broker, TOPIC);
        pinned(|| {
            let mut batch = DescribedBatch::new();
            for filled in (0..messages).step_by(CAPACITY) {
                batch.publish(&topic, CAPACITY as u64);
                rounds.fill_and_wait(filled + CAPACITY as u64);
            }
        });
        drop(subscription);
        Duration::from_nanos(rounds.took_ns.load(Ordering::Relaxed))
    }

    fn to_settling_handler(&self, messages: u64) -> Duration {
        let broker = broker(BUDGET_BYTES);
        let handled = Arc::new(AtomicU64::new(0));
        let (told, mut tally) = (Arc::clone(&handled), Tally::default());
        let subscription = broker
            .subscription(PATTERN)
            .delivery(DeliveryMode::AtLeastOnce)
            .capacity(CAPACITY)
            .wait(WaitStrategy::BusySpin)
            .handler(move |message: &Message<'_>| {
                tally.see(message.payload());
                if tally.count.is_multiple_of(MAX_BATCH as u64) {
                    told.store(tally.count, Ordering::Release);
                }
                if tally.count == messages {
                    assert_eq!(tally, Tally::of(messages, 1), "messages were lost or doubled");
                }
            })
            .expect("a handler subscribes");
        let topic = topic(&broker, TOPIC);
        let elapsed = pinned(|| {
            let window = CAPACITY as u64;
            let wait_for = |count: u64| {
                while handled.load(Ordering::Acquire) < count {
                    spin_loop();
                }
            };
            let began = Instant::now();
            publish_batches::<MAX_BATCH>(&topic, messages, |first| {
                wait_for((first + MAX_BATCH as u64).saturating_sub(window));
            });
            wait_for(messages);
            began.elapsed()
        });
        drop(subscription);
        elapsed
    }

    fn many_producers(&self, messages: u64, producers: u64) -> Duration {
        let broker = broker(BUDGET_BYTES);
        let mut subscription = at_most_once(&broker, PATTERN)
            .capacity(CAPACITY)
            .overflow(Overflow::Block { timeout: None })
            .wait(WaitStrategy::Adaptive)
            .open()
            .expect("a subscription opens");
        let topic = topic(&broker, TOPIC);
        let each = messages / producers;
        let start = Barrier::new(producers as usize + 1);
        std::thread::scope(|scope| {
            let (start, topic) = (&start, &topic);
            for producer in 0..producers {
                scope.spawn(move || {
                    start.wait();
                    for sequence in 0..each {
                        let bytes = payload(producer << 32 | sequence);
                        topic.publish(&bytes[..]).expect("it is published");
                    }
                });
            }
            start.wait();
            let began = Instant::now();
            let mut next = vec![0; producers as usize];
            for _ in 0..each * producers {
                let number = sequence_of(subscription.recv().expect("a message").payload());
                let expected = &mut next[(number >> 32) as usize];
                assert_eq!(number & 0xffff_ffff, *expected, "a producer's order is broken");
                *expected += 1;
            }
            began.elapsed()
        })
    }

    fn loans(&self, messages: u64, len: usize) -> Duration {
        let broker = broker(LARGE_BUDGET_BYTES);
        let mut subscription = subscribe(&broker, PATTERN, LARGE_WINDOW);
        let topic = topic(&broker, TOPIC);
        pair(
            Tally::of(messages, 1),
            || {
                for sequence in 0..messages {
                    let mut loan = topic.loan(len).expect("a loan is given");
                    stamp(&mut loan[..], sequence);
                    loan.commit().expect("it is published");
                }
            },
            || drain(&mut subscription, messages),
        )
    }

    fn fan_out(&self, messages: u64, subscribers: u64, batch: usize, strangers: u64) -> Duration {
        let broker = broker(BUDGET_BYTES);
        let _strangers: Vec<_> = (0..strangers)
            .map(|index| {
                let pattern = format!("elsewhere/n{index}/*");
                let builder = at_most_once(&broker, &pattern).capacity(16);
                builder.open().expect("a subscription opens")
            })
            .collect();
        let mut subscriptions: Vec<_> =
            (0..subscribers).map(|_| subscribe(&broker, PATTERN, CAPACITY)).collect();
        let topic = topic(&broker, TOPIC);
        let expected = Tally::of(messages, subscribers);
        pair(
            expected,
            || publish(&topic, messages, batch, size_of::<Payload>()),
            || {
                let mut tally = Tally::default();
                let mut idle = Idle::new(WaitStrategy::BusySpin);
                while tally.count < expected.count {
                    let mut found = 0;
                    for subscription in &mut subscriptions {
                        found += poll(subscription, BURST, &mut tally);
                    }
                    idle.rest(found);
                }
                tally
            },
        )
    }

    fn rejected(&self, messages: u64, filter: bool) -> Duration {
        let broker = broker(BUDGET_BYTES);
        let _subscription = filter.then(|| {
            let filter = Filter::equals("region", "IN");
            at_most_once(&broker, PATTERN).filter_by(filter).open().expect("a subscription opens")
        });
        let topic = topic(&broker, TOPIC);
        pinned(|| {
            let began = Instant::now();
            publish(&topic, messages, 1, size_of::<Payload>());
            began.elapsed()
        })
    }

    fn beside_stalled(&self, messages: u64, stalled: Stalled) -> Duration {
        let broker = broker(BUDGET_BYTES);
        let _stalled = match stalled {
            Stalled::Absent => None,
            Stalled::DropNewest => Some(leave(&broker, PATTERN, Overflow::DropNewest)),
            Stalled::DropOldest => Some(leave(&broker, PATTERN, Overflow::DropOldest)),
        };
        let mut subscription = subscribe(&broker, PATTERN, CAPACITY);
        let topic = topic(&broker, TOPIC);
        pair(
            Tally::of(messages, 1),
            || publish(&topic, messages, MAX_BATCH, size_of::<Payload>()),
            || drain(&mut subscription, messages),
        )
    }

    fn ping_pong(&self, rounds: u64) -> Latencies {
        // One shard for each direction, as the peers have a ring for each.
        let builder = Broker::builder().shards(2).memory_budget(2 * BUDGET_BYTES);
        let broker = builder.build().expect("a broker is built");
        let mut ping_end = subscribe(&broker, "ping/*", CAPACITY);
        let mut pong_end = subscribe(&broker, "pong/*", CAPACITY);
        let (ping, pong) = (topic(&broker, "ping/a"), topic(&broker, "pong/a"));
        let next = |subscription: &mut Subscription| {
            spin_for(|| {
                let mut number = None;
                let taken =
                    subscription.poll(1, |message| number = Some(sequence_of(message.payload())));
                taken.expect("nothing is lost");
                number
            })
        };
        ping_pong(
            rounds,
            |message| {
                ping.publish(&message[..]).expect("it is published");
            },
            || next(&mut pong_end),
            || {
                let message = payload(next(&mut ping_end));
                pong.publish(&message[..]).expect("it is published");
            },
        )
    }

    fn wake(&self, rounds: u64) -> Latencies {
        let broker = broker(BUDGET_BYTES);
        let mut subscription = at_most_once(&broker, PATTERN)
            .capacity(CAPACITY)
            .overflow(Overflow::Block { timeout: None })
            .wait(WaitStrategy::Park)
            .open()
            .expect("a subscription opens");
        let topic = topic(&broker, TOPIC);
        let (woken_at, start) = (AtomicU64::new(0), Barrier::new(2));
        std::thread::scope(|scope| {
            let (woken_at, start) = (&woken_at, &start);
            scope.spawn(|| {
                cpu::pin(Role::Consumer);
                start.wait();
                for _ in 0..rounds {
                    black_box(subscription.recv().expect("a message").payload());
                    woken_at.store(cpu::ticks(), Ordering::Release);
                }
            });
            pinned(|| {
                start.wait();
                time_wakes(rounds, woken_at, || {
                    topic.publish(&payload(0)[..]).expect("it is published");
                })
            })
        })
    }

    fn publish_times(&self, publishes: u64, churn: u64) -> Latencies {
        let broker = broker(BUDGET_BYTES);
        let _subscription = leave(&broker, PATTERN, Overflow::DropOldest);
        let topic = topic(&broker, TOPIC);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (broker, done) = (&broker, &done);
            if churn > 0 {
                scope.spawn(move || {
                    cpu::pin(Role::Consumer);
                    // One subscribe and one unsubscribe make a change.
                    let began = Instant::now();
                    let mut changes = 0_u32;
                    while !done.load(Ordering::Relaxed) {
                        let due = Duration::from_secs(1) / churn as u32 * changes;
                        if began.elapsed() < due {
                            spin_loop();
                            continue;
                        }
                        drop(leave(broker, "bench/*/deeper", Overflow::DropNewest));
                        changes += 1;
                    }
                });
            }
            pinned(|| {
                let mut latencies = Latencies::new();
                for sequence in 0..publishes {
                    let bytes = payload(sequence);
                    let before = cpu::ticks();
                    black_box(topic.publish(&bytes[..]).expect("it is published"));
                    latencies.record_ticks(cpu::ticks() - before);
                }
                done.store(true, Ordering::Relaxed);
                latencies
            })
        })
    }

    fn ack_randomly(&self, leases: u64, batch: usize) -> Duration {
        let broker = broker(LARGE_BUDGET_BYTES);
        publish(&topic(&broker, TOPIC), leases, MAX_BATCH, size_of::<Payload>());
        let mut subscription = subscribe_leasing(&broker, leases);
        let mut ids = Vec::with_capacity(leases as usize);
        lease(&mut subscription, leases, |message| {
            ids.push(message.ack_id().expect("it is to be settled"));
        });
        shuffle(&mut ids);
        let acker = subscription.acker().expect("it delivers at least once");
        pinned(|| {
            let began = Instant::now();
            if batch == 1 {
                ids.iter().for_each(|id| assert_eq!(acker.ack(id), Ok(true)));
            } else {
                for ids in ids.chunks(batch) {
                    assert!(acker.ack_all(ids).iter().all(|acked| *acked == Ok(true)));
                }
            }
            began.elapsed()
        })
    }

    fn lease_bytes(&self, leases: u64) -> LeaseBytes {
        let broker = broker(LARGE_BUDGET_BYTES);
        publish(&topic(&broker, TOPIC), leases, MAX_BATCH, size_of::<Payload>());
        let bytes = |extends: bool| {
            cpu::trim();
            let before = cpu::resident_bytes();
            let mut subscription = subscribe_leasing(&broker, leases);
            lease(&mut subscription, leases, |message| {
                if extends {
                    message.modify_ack_deadline(2 * VISIBILITY).expect("it is leased");
                }
            });
            cpu::trim();
            (cpu::resident_bytes() as f64 - before as f64) / leases as f64
        };
        // The first time also for what earlier brokers leave to the allocator: that takes a while.
        let _ = bytes(false);
        LeaseBytes { leased: bytes(false), extended: bytes(true) }
    }

    fn publish_beside_leases(&self, publishes: u64, leases: u64, expired: bool) -> Latencies {
        let clock = TestClock::new();
        let builder = Broker::builder().shards(1).memory_budget(LARGE_BUDGET_BYTES).clock(&clock);
        let broker = builder.build().expect("a broker is built");
        let topic = topic(&broker, TOPIC);
        publish(&topic, leases, MAX_BATCH, size_of::<Payload>());
        let mut subscription = subscribe_leasing(&broker, leases);
        lease(&mut subscription, leases, |_| {});
        let (start, done) = (Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (start, done) = (&start, &done);
            scope.spawn(move || {
                cpu::pin(Role::Consumer);
                if expired {
                    clock.advance(VISIBILITY);
                }
                start.wait();
                if expired {
                    // At its limit it gets nothing new.
                    lease(&mut subscription, leases, |message| assert_eq!(message.attempt(), 2));
                    done.store(true, Ordering::Release);
                }
                // It stays as long as there are publishes.
                start.wait();
            });
            pinned(|| {
                let mut latencies = Latencies::new();
                start.wait();
                for sequence in 0..publishes {
                    if done.load(Ordering::Acquire) {
                        break;
                    }
                    let bytes = payload(sequence);
                    let before = cpu::ticks();
                    black_box(topic.publish(&bytes[..]).expect("it is published"));
                    latencies.record_ticks(cpu::ticks() - before);
                }
                start.wait();
                latencies
            })
        })
    }

    fn store(&self, how: &Stored<'_>, records: u64) -> Duration {
        disk::empty(how.dir);
        let broker = on_disk(how.dir, how.sync, how.memory);
        let topic = topic(&broker, TOPIC);
        let messages = vec![NewMessage::new(&[7; durable::PAYLOAD]); how.batch];
        let publish = || match &*messages {
            [message] => drop(topic.publish(*message).expect("it is published")),
            batch => drop(topic.publish_batch(batch).expect("they are published")),
        };
        publish();
        let began = Instant::now();
        (0..records / how.batch as u64).for_each(|_| publish());
        began.elapsed()
    }

    fn fill(&self, dir: &Path, records: u64) {
        disk::empty(dir);
        let broker = on_disk(dir, Synced::Never, Memory::Small);
        let topic = topic(&broker, TOPIC);
        let mut payloads = [[0; durable::PAYLOAD]; MAX_BATCH];
        for first in (0..records).step_by(MAX_BATCH) {
            for (payload, sequence) in payloads.iter_mut().zip(first..) {
                stamp(payload, sequence);
            }
            topic.publish_batch(&payloads).expect("it is published");
        }
    }

    fn replay(&self, dir: &Path, records: u64, prepare: &dyn Fn()) -> Duration {
        let broker = on_disk(dir, Synced::Never, Memory::Small);
        let mut subscription = reading(&broker, Start::Earliest);
        prepare();
        let began = Instant::now();
        let tally = drain(&mut subscription, records);
        let elapsed = began.elapsed();
        assert_eq!(tally, Tally::of(records, 1), "not what was stored");
        elapsed
    }

    fn reopen_elsewhere(&self, dir: &Path) -> Duration {
        let program = std::env::current_exe().expect("a program has a name");
        let output = Command::new(program).arg(crate::REOPEN).arg(dir).output();
        let output = output.expect("the program starts again");
        let nanoseconds = String::from_utf8_lossy(&output.stdout).trim().parse();
        Duration::from_nanos(nanoseconds.expect("it has opened the directory"))
    }

    fn reopen(&self, dir: &Path) -> ! {
        let began = Instant::now();
        let broker = on_disk(dir, Synced::Never, Memory::Small);
        println!("{}", began.elapsed().as_nanos());
        topic(&broker, TOPIC).publish(&[7; durable::PAYLOAD][..]).expect("it is published");
        // Nothing is dropped, and so nothing closed.
        std::process::exit(0)
    }

    fn publish_beside_reader(&self, dir: &Path, publishes: u64, lags: bool) -> Duration {
        let broker = on_disk(dir, Synced::Never, Memory::Small);
        let topic = topic(&broker, TOPIC);
        let start = if lags { Start::Earliest } else { Start::Now };
        let mut subscription = reading(&broker, start);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // It may lose messages. Here that is told, and is nothing to the publisher.
                    let _ = subscription.poll(MAX_BATCH, |message| {
                        black_box(message.payload());
                    });
                    // One that is as quick as it can be would have caught up too soon.
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
            let began = Instant::now();
            for _ in 0..publishes {
                topic.publish(&[7; durable::PAYLOAD][..]).expect("it is published");
            }
            let elapsed = began.elapsed();
            done.store(true, Ordering::Relaxed);
            elapsed
        })
    }

    fn router(&self, patterns: &[String]) -> Box<dyn Router> {
        Box::new(Routes::new(patterns))
    }

    fn boundary(&self, messages: u64, batch: usize) -> (Duration, Duration) {
        let broker = broker(BUDGET_BYTES);
        let mut subscription = subscribe(&broker, PATTERN, CAPACITY);
        let topic = topic(&broker, TOPIC);
        pinned(|| {
            let (mut publishing, mut polling) = (Duration::ZERO, Duration::ZERO);
            let mut described = DescribedBatch::new();
            for _ in 0..messages / CAPACITY as u64 {
                let began = Instant::now();
                if batch == 1 {
                    publish(&topic, CAPACITY as u64, 1, size_of::<Payload>());
                } else {
                    described.publish(&topic, CAPACITY as u64);
                }
                let full = Instant::now();
                drain(&mut subscription, CAPACITY as u64);
                publishing += full - began;
                polling += full.elapsed();
            }
            (publishing, polling)
        })
    }

    fn hot_publishes(&self, publishes: u64, patterns: &[String]) -> Duration {
        let broker = broker(BUDGET_BYTES);
        let _strangers: Vec<_> = patterns
            .iter()
            .map(|pattern| at_most_once(&broker, pattern).capacity(16).open().expect("it opens"))
            .collect();
        let mut subscription = subscribe(&broker, PATTERN, CAPACITY);
        let topic = topic(&broker, TOPIC);
        let window = CAPACITY as u64 / 2;
        let began = Instant::now();
        for _ in 0..publishes / window {
            publish(&topic, window, 1, size_of::<Payload>());
            drain(&mut subscription, window);
        }
        began.elapsed()
    }
}

/// What a thread that fills a queue and the handler that empties it have agreed on. The handler waits at
/// the first message of a round until all of them are there.
#[derive(Default)]
struct Rounds {
    filled: AtomicU64,
    drained: AtomicU64,
    took_ns: AtomicU64,
}

impl Rounds {
    #[cold]
    #[inline(never)]
    fn begin(&self, drained: u64) -> Instant {
        while self.filled.load(Ordering::Acquire) <= drained {
            std::thread::yield_now();
        }
        Instant::now()
    }

    #[cold]
    #[inline(never)]
    fn end(&self, began: Instant, tally: Tally) {
        self.took_ns.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        // In each round the payloads have the same numbers.
        let rounds = tally.count / CAPACITY as u64;
        let expected = Tally::of(CAPACITY as u64, rounds);
        assert_eq!(tally, expected, "messages were lost or doubled");
        self.drained.store(tally.count, Ordering::Release);
    }

    fn fill_and_wait(&self, filled: u64) {
        self.filled.store(filled, Ordering::Release);
        while self.drained.load(Ordering::Acquire) < filled {
            std::thread::yield_now();
        }
    }
}

/// A batch as the C ABI takes it, for a comparison with that: messages that are described once, of
/// which only the run tells how long they are, and that they are nothing but a payload.
struct DescribedBatch {
    payloads: Vec<UnsafeCell<Payload>>,
    messages: Vec<Described>,
}

/// As large as a `slipring_new_message`.
struct Described {
    payload: *const u8,
    len: usize,
    key: Option<&'static str>,
    id: Option<&'static str>,
    attributes: &'static [(&'static str, &'static str)],
}

// SAFETY: it is used by one thread.
unsafe impl Sync for Described {}

// SAFETY: the payload lies in the batch, which leaves it alone meanwhile; nothing else is done.
unsafe impl AsMessage for Described {
    #[inline(always)]
    fn as_message(&self) -> NewMessage<'_> {
        let &Self { payload, len, key, id, attributes } = self;
        // SAFETY: as above.
        NewMessage { payload: unsafe { slice::from_raw_parts(payload, len) }, key, id, attributes }
    }
}

impl DescribedBatch {
    fn new() -> Self {
        let payloads: Vec<_> = (0..MAX_BATCH).map(|_| UnsafeCell::new(payload(0))).collect();
        let describe = |payload: &UnsafeCell<Payload>| Described {
            payload: payload.get().cast(),
            len: size_of::<Payload>(),
            key: None,
            id: None,
            attributes: &[],
        };
        Self { messages: payloads.iter().map(describe).collect(), payloads }
    }

    fn publish(&mut self, topic: &Topic, messages: u64) {
        for first in (0..messages).step_by(MAX_BATCH) {
            for (payload, sequence) in self.payloads.iter_mut().zip(first..) {
                stamp(payload.get_mut(), sequence);
            }
            topic.publish_batch(black_box(&self.messages)).expect("it is published");
        }
    }
}

/// The routing table as a shard sees it: a trie behind a snapshot.
struct Routes {
    current: Arc<Trie<()>>,
    published: Snapshot<Trie<()>>,
}

impl Routes {
    fn new(patterns: &[String]) -> Self {
        let entries = (0..).zip(patterns).map(|(id, pattern)| (parse(pattern), id, ()));
        let current = Arc::new(Trie::bulk(entries));
        Self { published: Snapshot::new(Arc::clone(&current)), current }
    }
}

impl Router for Routes {
    fn matches(&self, topic: &str) -> usize {
        let mut count = 0;
        self.current.for_each_match(topic, |id, ()| {
            black_box(id);
            count += 1;
        });
        count
    }

    /// Merges when it is due, on this thread: the broker does it in the background.
    fn subscribe(&mut self, pattern: &str, id: u32) {
        let mut next = self.current.insert(&parse(pattern), u64::from(id), ());
        if next.needs_merge() {
            next = next.install(&next.merge());
        }
        self.current = Arc::new(next);
        self.published.store(Arc::clone(&self.current));
    }
}

fn parse(pattern: &str) -> Pattern {
    Pattern::new(pattern).expect("a valid pattern")
}
