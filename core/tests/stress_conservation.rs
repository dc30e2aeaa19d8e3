//! Conservation under stress: published times matched is delivered, plus dropped by reason, plus
//! still queued, to the message, for every policy, while subscribers come and go.
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]

mod watchdog;

use slipring::{
    Broker, DeliveryMode, NewMessage, Overflow, RecvError, Start, Subscription, Topic,
    TryRecvError, WaitStrategy,
};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::Duration;

/// Sums of receipts.
#[derive(Default)]
struct Sums {
    matched: AtomicU64,
    enqueued: AtomicU64,
    dropped: AtomicU64,
}

impl Sums {
    fn add(&self, matched: u64, enqueued: u64, dropped: u64) {
        self.matched.fetch_add(matched, Ordering::SeqCst);
        self.enqueued.fetch_add(enqueued, Ordering::SeqCst);
        self.dropped.fetch_add(dropped, Ordering::SeqCst);
    }

    fn get(&self) -> (u64, u64, u64) {
        let get = |sum: &AtomicU64| sum.load(Ordering::SeqCst);
        (get(&self.matched), get(&self.enqueued), get(&self.dropped))
    }
}

/// What subscribers got.
#[derive(Debug, Default, Clone, Copy)]
struct Got {
    received: u64,
    lost: u64,
    queued: u64,
    /// Subscriptions that came and went.
    lives: u64,
}

/// Publishers pass it with every message; subscribers close it to leave.
#[derive(Default)]
struct Gate {
    lock: RwLock<()>,
    leaving: AtomicUsize,
}

impl Gate {
    fn pass(&self) -> std::sync::RwLockReadGuard<'_, ()> {
        while self.leaving.load(Ordering::SeqCst) > 0 {
            thread::yield_now();
        }
        self.lock.read().expect("no panic inside")
    }

    /// Closes it, doing `meanwhile` until nobody is inside.
    fn close(&self, mut meanwhile: impl FnMut()) -> std::sync::RwLockWriteGuard<'_, ()> {
        self.leaving.fetch_add(1, Ordering::SeqCst);
        let closed = loop {
            match self.lock.try_write() {
                Ok(closed) => break closed,
                Err(_) => meanwhile(),
            }
        };
        self.leaving.fetch_sub(1, Ordering::SeqCst);
        closed
    }
}

/// A small generator, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Publishes in all ways until told to stop; between messages it lets subscribers come and go.
fn publish(seed: u64, topics: &[Topic], gate: &Gate, stop: &AtomicBool, sums: &Sums) {
    let mut random = Random(seed);
    let wanted = [("k", "v")];
    while !stop.load(Ordering::SeqCst) {
        let topic = &topics[random.below(topics.len() as u64) as usize];
        let attributes: &[(&str, &str)] = if random.below(2) == 0 { &wanted } else { &[] };
        let key = ["x", "y", "z"][random.below(3) as usize];
        let message = NewMessage::new(b"some payload").attributes(attributes).key(key);
        let _open = gate.pass();
        match random.below(5) {
            0 => {
                let batch = [message; 7];
                let receipt = topic.publish_batch(&batch).expect("publishes");
                sums.add(receipt.matched, receipt.enqueued, receipt.dropped);
            }
            1 => {
                let mut loan = topic.loan_for(&message, 8).expect("memory");
                loan.fill(1);
                let receipt = loan.commit().expect("publishes");
                sums.add(receipt.matched, receipt.enqueued, receipt.dropped);
            }
            2 => match topic.try_publish(message) {
                Ok(receipt) => sums.add(receipt.matched, receipt.enqueued, receipt.dropped),
                Err(error) => assert_eq!(error, slipring::PublishError::WouldBlock),
            },
            _ => {
                let receipt = topic.publish(message).expect("publishes");
                sums.add(receipt.matched, receipt.enqueued, receipt.dropped);
            }
        }
    }
}

/// Receives a little, in any way; false at the end.
fn receive(subscription: &mut Subscription, random: &mut Random, got: &mut Got) -> bool {
    let most = 1 + random.below(20) as usize;
    let received = match random.below(4) {
        0 => subscription.try_recv().map(|_| 1),
        1 => subscription.poll(most, |_| ()).map_err(TryRecvError::Recv).map(|n| n as u64),
        2 => subscription
            .try_recv_batch(most)
            .map(|batch| batch.len() as u64)
            .map_err(TryRecvError::Recv),
        _ => subscription
            .recv_timeout(Duration::from_micros(50))
            .map(|message| u64::from(message.is_some()))
            .map_err(TryRecvError::Recv),
    };
    match received {
        Ok(count) => got.received += count,
        Err(TryRecvError::Empty) => {}
        Err(TryRecvError::Recv(RecvError::Lagged(lost))) => got.lost += lost,
        Err(TryRecvError::Recv(RecvError::Disconnected | RecvError::Closed)) => return false,
        Err(error) => panic!("{error}"),
    }
    true
}

/// One subscriber after another: subscribes, receives for a while, leaves with or without draining.
fn come_and_go(
    seed: u64,
    broker: &Broker,
    overflow: Overflow,
    replays: bool,
    gate: &Gate,
    stop: &AtomicBool,
    all: &Mutex<Got>,
) {
    let mut random = Random(seed);
    while !stop.load(Ordering::SeqCst) {
        let pattern = ["a", "*", "**", "b"][random.below(4) as usize];
        let capacity = [1, 2, 3, 16, 100, 1000][random.below(6) as usize];
        let mut builder = broker
            .subscription(pattern)
            .capacity(capacity)
            .delivery(DeliveryMode::AtMostOnce)
            .overflow(overflow);
        builder = builder.wait(WaitStrategy::Park);
        match random.below(3) {
            0 => builder = builder.filter("attributes:k"),
            1 => builder = builder.filter_fn(|message| message.offset() % 2 == 0),
            _ => {}
        }
        if random.below(2) == 0 {
            builder = builder.pattern("a");
        }
        let mut got = Got::default();
        let mut subscription = if replays {
            // What was there before is nobody's receipt: it is taken, or lost, before others go on.
            let closed = gate.close(thread::yield_now);
            let mut subscription = builder.start(Start::Last(50)).open().expect("subscribes");
            while !matches!(subscription.try_recv(), Err(TryRecvError::Empty)) {}
            drop(closed);
            subscription
        } else {
            builder.open().expect("subscribes")
        };
        let mut is_open = true;
        for _ in 0..random.below(200) {
            is_open = is_open && receive(&mut subscription, &mut random, &mut got);
        }
        // It leaves while nobody publishes, so that what is queued can be counted. Until that is
        // so it receives, since somebody may be waiting for it.
        let closed = gate.close(|| {
            is_open = receive(&mut subscription, &mut random, &mut got) && is_open;
        });
        if random.below(2) == 0 {
            while subscription.queued() > 0 {
                receive(&mut subscription, &mut random, &mut got);
            }
        }
        got.queued = subscription.queued();
        // Losses behind what is queued are told when that has been received.
        let mut rest = 0;
        loop {
            match subscription.try_recv() {
                Ok(_) => rest += 1,
                Err(TryRecvError::Recv(RecvError::Lagged(lost))) => got.lost += lost,
                Err(_) => break,
            }
        }
        assert_eq!(rest, got.queued, "as many as were said to be queued, {overflow:?}");
        drop(subscription);
        drop(closed);
        let mut all = all.lock().expect("no panic inside");
        all.received += got.received;
        all.lost += got.lost;
        all.queued += got.queued;
        all.lives += 1;
    }
}

fn run(overflow: Overflow, shards: usize, publishers: u64, replays: bool) {
    let broker = Broker::builder().shards(shards).build().expect("builds");
    let topics =
        [broker.create_topic("a", shards).expect("creates"), broker.topic("b").expect("creates")];
    let (sums, all) = (Sums::default(), Mutex::new(Got::default()));
    let (gate, stop) = (Gate::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let (broker, topics, sums, all) = (&broker, &topics, &sums, &all);
        let (gate, stop) = (&gate, &stop);
        let subscribers: Vec<_> = (0..3)
            .map(|seed| {
                scope.spawn(move || come_and_go(seed, broker, overflow, replays, gate, stop, all))
            })
            .collect();
        let publishers: Vec<_> = (0..publishers)
            .map(|seed| scope.spawn(move || publish(seed + 100, topics, gate, stop, sums)))
            .collect();
        let enough = if cfg!(debug_assertions) { 30_000 } else { 300_000 };
        let lives = || all.lock().expect("no panic inside").lives;
        while sums.matched.load(Ordering::SeqCst) < enough || lives() < 20 {
            assert!(publishers.iter().all(|publisher| !publisher.is_finished()), "one failed");
            assert!(subscribers.iter().all(|subscriber| !subscriber.is_finished()), "one failed");
            thread::park_timeout(Duration::from_millis(1));
        }
        stop.store(true, Ordering::SeqCst);
    });
    let (matched, enqueued, dropped) = sums.get();
    let got = *all.lock().expect("no panic inside");
    println!(
        "{overflow:?}, {shards} shards, {publishers} publishers, replays: {replays}: matched \
         {matched}, enqueued {enqueued}, dropped {dropped}; {got:?}"
    );
    assert_eq!(got.received + got.lost + got.queued, matched, "{overflow:?}: {got:?}");
    assert_eq!(got.lost, dropped, "{overflow:?}: {got:?}");
    if overflow == Overflow::DropOldest {
        assert_eq!(enqueued, matched, "what is displaced had been queued");
    } else {
        assert_eq!(enqueued + dropped, matched, "{overflow:?}");
    }
    if overflow == (Overflow::Block { timeout: None }) {
        assert_eq!(dropped, 0, "Block never drops");
    }
}

fn run_all(overflow: Overflow) {
    let _watchdog = watchdog::watch(80);
    run(overflow, 1, 2, false);
    run(overflow, 3, 4, false);
    run(overflow, 2, 2, true);
}

/// Goal: the sums agree to the message with `DropNewest`.
#[test]
fn nothing_is_created_or_lost_with_drop_newest() {
    run_all(Overflow::DropNewest);
}

/// Goal: the sums agree to the message with `DropOldest`.
#[test]
fn nothing_is_created_or_lost_with_drop_oldest() {
    run_all(Overflow::DropOldest);
}

/// Goal: the sums agree to the message with `Block`, and nothing is dropped.
#[test]
fn nothing_is_created_or_lost_with_block() {
    run_all(Overflow::Block { timeout: None });
}

/// Goal: the sums agree to the message with `Block` and a timeout that is often over.
#[test]
fn nothing_is_created_or_lost_with_block_and_a_short_timeout() {
    run_all(Overflow::Block { timeout: Some(Duration::from_micros(100)) });
}

/// Goal: the sums agree to the message with `Disconnect`, also for what has been disconnected.
#[test]
fn nothing_is_created_or_lost_with_disconnect() {
    run_all(Overflow::Disconnect { after: Duration::from_micros(200) });
}

/// Goal: handlers that come and go without any pause get each of their messages at most once and in
/// order, and a message that was enqueued for one that stays is handled.
#[test]
fn handlers_come_and_go_while_others_publish() {
    let watchdog = watchdog::watch(80);
    let broker = Broker::builder().workers(2).shards(2).build().expect("builds");
    let topic = broker.create_topic("a", 2).expect("creates");
    let (handled, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let handled = std::sync::Arc::new(handled);
    let counted = std::sync::Arc::clone(&handled);
    let block = Overflow::Block { timeout: None };
    let stays = broker
        .subscription("a")
        .delivery(DeliveryMode::AtMostOnce)
        .overflow(block)
        .handler(move |_| _ = counted.fetch_add(1, Ordering::SeqCst))
        .expect("subscribes");
    let published = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    topic.publish_batch(&[NewMessage::new(b"x"); 3]).expect("publishes");
                    published.fetch_add(3, Ordering::SeqCst);
                }
            });
        }
        for round in 0..600 {
            let mut next = [None, None];
            let first = topic.publish("x").expect("publishes").partition % 2;
            published.fetch_add(1, Ordering::SeqCst);
            let builder = broker.subscription(["a", "*"][round % 2]);
            let builder = if round % 16 == 0 { builder.dedicated_thread() } else { builder };
            let builder = if round % 3 == 0 {
                builder.delivery(DeliveryMode::AtMostOnce).overflow(block)
            } else {
                builder
            };
            let handler = builder.handler(move |message| {
                let next = &mut next[(message.partition() % 2 == first) as usize];
                assert!(next.is_none_or(|next| message.offset() >= next), "in order");
                *next = Some(message.offset() + 1);
            });
            drop(handler.expect("subscribes"));
        }
        stop.store(true, Ordering::SeqCst);
    });
    let published = published.load(Ordering::SeqCst);
    watchdog.until("all is handled", || handled.load(Ordering::SeqCst) == published);
    assert_eq!(stays.queued(), 0);
}
