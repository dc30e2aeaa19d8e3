//! In the steady state, publishing and receiving allocate nothing for a message.
//!
//! What is allowed is what comes with a chunk of 64 KiB: retiring one goes through crossbeam-epoch,
//! which keeps its own small bags.
#![expect(unsafe_code, reason = "a global allocator that counts")]
#![expect(clippy::type_complexity, reason = "tables of cases")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod watchdog;

use slipring::{
    Broker, DeliveryMode, NewMessage, Overflow, RecvError, Sequencer, Subscription, Topic,
    WaitStrategy,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};

thread_local! {
    /// Allocations of this thread; needs no allocation and no destructor itself.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(at, layout) };
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: passed on.
        unsafe { System.realloc(at, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of the calling thread while `work` runs.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// One test at a time: while another thread looks, what is retired waits, and takes room when it is
/// given back at last.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const PAYLOAD: [u8; 64] = [7; 64];
const ATTRIBUTES: [(&str, &str); 2] = [("region", "IN"), ("kind", "score")];
const MESSAGES: u64 = 100_000;

/// Chunks that are retired while `bytes` of records are published, and some.
fn chunks(bytes: u64) -> u64 {
    bytes / (64 << 10) + 2
}

fn message() -> NewMessage<'static> {
    NewMessage::new(&PAYLOAD).key("key").attributes(&ATTRIBUTES)
}

type Publish = fn(&Topic);
type Receive = fn(&mut Subscription) -> u64;

/// All ways to publish ten messages, and to receive what is there.
fn ways() -> ([(&'static str, Publish); 4], [(&'static str, Receive); 5]) {
    let publish: [(&str, Publish); 4] = [
        ("publish", |topic| (0..10).for_each(|_| _ = topic.publish(message()).unwrap())),
        ("try_publish", |topic| (0..10).for_each(|_| _ = topic.try_publish(message()).unwrap())),
        ("batch", |topic| _ = topic.publish_batch(&[message(); 10]).unwrap()),
        ("loan", |topic| {
            for _ in 0..10 {
                let mut loan = topic.loan_for(&message(), PAYLOAD.len()).unwrap();
                loan.copy_from_slice(&PAYLOAD);
                loan.commit().unwrap();
            }
        }),
    ];
    let receive: [(&str, Receive); 5] = [
        ("recv", |subscription| {
            (0..10).for_each(|_| {
                let message = subscription.recv().unwrap();
                assert_eq!((message.payload(), message.attributes().len()), (&PAYLOAD[..], 2));
            });
            10
        }),
        ("try_recv", |subscription| {
            let mut count = 0;
            while subscription.try_recv().is_ok() {
                count += 1;
            }
            count
        }),
        ("poll", |subscription| {
            let check = |message: &slipring::Message<'_>| {
                assert_eq!((message.attribute("region"), message.key()), (Some("IN"), Some("key")));
            };
            subscription.poll(1000, check).unwrap() as u64
        }),
        ("batch", |subscription| subscription.recv_batch(100).unwrap().len() as u64),
        ("keep", |subscription| {
            (0..10)
                .map(|_| subscription.recv().unwrap().keep())
                .filter(|m| m.topic() == "a")
                .count() as u64
        }),
    ];
    (publish, receive)
}

/// Goal: every way to publish with every way to receive, over many times the budget.
#[test]
fn publishing_and_receiving_allocate_nothing_for_a_message() {
    let _alone = alone();
    let _watchdog = watchdog::watch(80);
    let (publish_ways, receive_ways) = ways();
    for overflow in [Overflow::DropNewest, Overflow::DropOldest] {
        for (publish_name, publish) in publish_ways {
            for (receive_name, receive) in receive_ways {
                let broker = Broker::builder().memory_budget(1 << 20).build().unwrap();
                let topic = broker.topic("a").unwrap();
                let open = |pattern| {
                    let builder = broker
                        .subscription(pattern)
                        .delivery(DeliveryMode::AtMostOnce)
                        .overflow(overflow);
                    builder.capacity(100).open().unwrap()
                };
                let mut subscriptions = [open("a"), open("*")];
                let filtered = broker.subscription("a").filter("attributes.region = \"US\"");
                let mut nothing = filtered.open().unwrap();
                let mut round = || {
                    publish(&topic);
                    for subscription in &mut subscriptions {
                        assert_eq!(receive(subscription), 10);
                    }
                    assert!(nothing.try_recv().is_err());
                };
                let rounds = MESSAGES / 10 / if cfg!(debug_assertions) { 10 } else { 1 };
                (0..rounds).for_each(|_| round());
                let count = allocations(|| (0..rounds).for_each(|_| round()));
                let allowed = 4 * chunks(rounds * 10 * 200);
                println!("{overflow:?}, {publish_name}, {receive_name}: {count} of {allowed}");
                assert!(
                    count <= allowed,
                    "{overflow:?}, {publish_name}, {receive_name}: {count} allocations for {} \
                     messages",
                    rounds * 10
                );
            }
        }
    }
}

/// Goal: within a chunk there is none at all.
#[test]
fn within_a_chunk_nothing_at_all_is_allocated() {
    let _alone = alone();
    let _watchdog = watchdog::watch(80);
    let broker = Broker::builder().memory_budget(1 << 20).build().unwrap();
    let topic = broker.topic("a").unwrap();
    let mut subscription =
        broker.subscription("a").delivery(DeliveryMode::AtMostOnce).open().unwrap();
    let (publish_ways, receive_ways) = ways();
    for (publish_name, publish) in publish_ways {
        for (receive_name, receive) in receive_ways {
            let mut round = || {
                publish(&topic);
                assert_eq!(receive(&mut subscription), 10);
            };
            (0..500).for_each(|_| round());
            // 5 rounds of 10 messages are 10 KB: at most one of them passes into another chunk.
            let counts: Vec<u64> =
                (0..5).map(|_| allocations(|| (0..5).for_each(|_| round()))).collect();
            let none = counts.iter().filter(|count| **count == 0).count();
            assert!(none >= 4, "{publish_name}, {receive_name}: {counts:?}");
        }
    }
}

/// Goal: losing and being told of it allocates nothing either.
#[test]
fn overflowing_and_expiring_allocate_nothing_for_a_message() {
    let _alone = alone();
    let watchdog = watchdog::watch(80);
    for overflow in [
        Overflow::DropNewest,
        Overflow::DropOldest,
        Overflow::Block { timeout: Some(std::time::Duration::ZERO) },
    ] {
        let broker = Broker::builder().memory_budget(1 << 20).build().unwrap();
        let topic = broker.topic("a").unwrap();
        let builder =
            broker.subscription("a").delivery(DeliveryMode::AtMostOnce).overflow(overflow);
        let mut small = builder.capacity(3).open().unwrap();
        let once = broker.subscription("a").delivery(DeliveryMode::AtMostOnce);
        let mut stalled = once.capacity(1 << 16).open().unwrap();
        let round = |small: &mut Subscription| {
            let receipt = topic.publish_batch(&[message(); 10]).unwrap();
            assert_eq!(receipt.dropped, 7);
            let (mut received, mut lost) = (0, 0);
            loop {
                match small.try_recv() {
                    Ok(_) => received += 1,
                    Err(slipring::TryRecvError::Recv(RecvError::Lagged(count))) => lost += count,
                    Err(_) => break,
                }
            }
            assert_eq!((received, lost), (3, 7));
        };
        (0..2000).for_each(|_| round(&mut small));
        let count = allocations(|| (0..2000).for_each(|_| round(&mut small)));
        let allowed = 4 * chunks(2000 * 10 * 200);
        println!("{overflow:?}: {count} of {allowed}");
        assert!(count <= allowed, "{overflow:?}: {count} allocations");
        let zero = std::time::Duration::ZERO;
        watchdog.until("something is there", || stalled.wait_timeout(zero).unwrap());
        let (mut received, mut lost) = (0, 0);
        let count = allocations(|| {
            while received + lost < 40_000 {
                match stalled.recv() {
                    Ok(_) => received += 1,
                    Err(RecvError::Lagged(count)) => lost += count,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        assert!(lost > 30_000, "most have expired: {lost}");
        assert!(count <= allowed, "{overflow:?}: {count} allocations");
    }
}

/// Goal: a handler's thread allocates nothing for a message.
#[test]
fn handlers_allocate_nothing_for_a_message() {
    let _alone = alone();
    let _watchdog = watchdog::watch(80);
    for dedicated in [false, true] {
        for sequencer in [Sequencer::Publishers, Sequencer::Pinned { first: 0 }] {
            let builder = Broker::builder().memory_budget(1 << 20).workers(1);
            let broker = builder.sequencer(sequencer).build().unwrap();
            let (tell, told) = channel();
            let builder = broker
                .subscription("a")
                .delivery(DeliveryMode::AtMostOnce)
                .overflow(Overflow::Block { timeout: None });
            let builder = if dedicated { builder.dedicated_thread() } else { builder };
            // Each message may wait for two other threads; so many tell an allocation each from none.
            let rounds = MESSAGES / 20;
            let mut counts = None;
            let _handler = builder
                .handler(move |message| {
                    assert_eq!(message.payload(), PAYLOAD);
                    let (thread, allocated) = (std::thread::current().id(), ALLOCATIONS.get());
                    let first = *counts.get_or_insert((thread, allocated));
                    if message.offset() % rounds == 0 {
                        // Another worker may have taken over: then there is nothing to compare.
                        let count = (first.0 == thread).then(|| allocated - first.1);
                        let _ = tell.send(count);
                        counts = Some((thread, ALLOCATIONS.get()));
                    }
                })
                .unwrap();
            let topic = broker.topic("a").unwrap();
            let mut least = u64::MAX;
            for round in 0..4 {
                (0..rounds).for_each(|_| _ = topic.publish(message()).unwrap());
                let count = told.recv().unwrap();
                if let (true, Some(count)) = (round > 0, count) {
                    least = least.min(count);
                }
            }
            println!("dedicated: {dedicated}, {sequencer:?}: {least} allocations");
            assert!(least <= 4 * chunks(rounds * 200), "{least} allocations");
        }
    }
}

/// Goal: a consumer that sleeps before every message costs nobody an allocation.
#[test]
fn waking_and_sleeping_allocates_nothing_for_a_message() {
    let _alone = alone();
    let _watchdog = watchdog::watch(80);
    const ROUNDS: u64 = 2000;
    let broker = Broker::builder().memory_budget(1 << 20).build().unwrap();
    let open = |topic| broker.subscription(topic).wait(WaitStrategy::Park).open().unwrap();
    let (mut pings, mut pongs) = (open("ping"), open("pong"));
    let (ping, pong) = (broker.topic("ping").unwrap(), broker.topic("pong").unwrap());
    let play = |rounds: u64, out: &Topic, back: &mut Subscription, begins: bool| {
        for _ in 0..rounds {
            if begins {
                out.publish(&PAYLOAD).unwrap();
            }
            assert_eq!(back.recv().unwrap().payload(), PAYLOAD);
            if !begins {
                out.publish(&PAYLOAD).unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            play(100, &pong, &mut pings, false);
            allocations(|| play(ROUNDS, &pong, &mut pings, false))
        });
        play(100, &ping, &mut pongs, true);
        let count = allocations(|| play(ROUNDS, &ping, &mut pongs, true));
        let others = other.join().unwrap();
        println!("{ROUNDS} times to and fro: {count} and {others} allocations");
        assert!(count.max(others) <= 4 * chunks(2 * ROUNDS * 200), "{count}, {others}");
    });
}
