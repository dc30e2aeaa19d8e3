//! What foreign code may do to a broker, and what it must not be able to do.
#![expect(clippy::disallowed_types, reason = "a test is outside the models")]

mod watchdog;

use futures_core::Stream;
use slipring::{
    Broker, DeliveryMode, HandlerSubscription, Overflow, PublishError, RecvError, Sequencer, Start,
    SubscribeError,
};
use std::panic::panic_any;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake};
use std::thread;
use std::time::Duration;

struct PanicsOnWake;

impl Wake for PanicsOnWake {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("a drop that panics");
    }
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("a payload that panics when it is dropped");
        }
    }
}

struct DropsABomb;

impl Drop for DropsABomb {
    fn drop(&mut self) {
        panic_any(Bomb);
    }
}

/// Goal: a waker that panics harms neither the publisher, nor a sequencer, nor other waiters.
#[test]
fn a_panicking_waker_harms_nobody_else() {
    let _watchdog = watchdog::watch(30);
    for sequencer in [Sequencer::Publishers, Sequencer::Pinned { first: 0 }] {
        let broker = Broker::builder().sequencer(sequencer).build().unwrap();
        let mut bad = broker.subscribe("a").unwrap();
        let mut good = broker.subscribe("a").unwrap();
        let waker = Arc::new(PanicsOnWake).into();
        assert!(Pin::new(&mut bad).poll_next(&mut Context::from_waker(&waker)).is_pending());
        let waiting = thread::spawn(move || good.recv().map(|message| message.offset()));
        for offset in 0..3 {
            assert_eq!(broker.publish("a", "x").unwrap().offset, offset);
        }
        assert_eq!(waiting.join().unwrap(), Ok(0));
        assert!(Pin::new(&mut bad).poll_next(&mut Context::from_waker(&waker)).is_ready());
        broker.close(Duration::ZERO);
    }
}

/// Goal: a handler may end a subscription whose captures own the handler's own subscription.
#[test]
fn a_handler_may_end_itself_through_the_captures_of_another() {
    let watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let slot: Arc<Mutex<Option<HandlerSubscription>>> = Arc::default();
    let taken = Arc::clone(&slot);
    let done = Arc::new(AtomicBool::new(false));
    let signal = Arc::clone(&done);
    let first = broker
        .subscription("a")
        .handler(move |_| {
            let other = taken.lock().unwrap().take();
            drop(other);
            signal.store(true, Ordering::Release);
        })
        .unwrap();
    let second = broker.subscription("b").handler(move |_| _ = &first).unwrap();
    *slot.lock().unwrap() = Some(second);
    broker.publish("a", "x").unwrap();
    watchdog.until("the handler has returned", || done.load(Ordering::Acquire));
    assert!(!broker.close(Duration::from_secs(5)).handler_running);
}

/// Goal: the same while the other's handler runs, so that its worker ends it: what it captured is
/// dropped there, and waits for the handler that waits for it.
#[test]
fn a_handler_may_end_another_whose_captures_wait_for_it() {
    let watchdog = watchdog::watch(30);
    for _ in 0..100 {
        let broker = Broker::builder().workers(2).build().unwrap();
        let slot: Arc<Mutex<Option<HandlerSubscription>>> = Arc::default();
        let taken = Arc::clone(&slot);
        let [entered, ending, done] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
        let (signal_entered, signal_ending) = (Arc::clone(&entered), Arc::clone(&ending));
        let (seen_ending, signal_done) = (Arc::clone(&ending), Arc::clone(&done));
        let first = broker
            .subscription("a")
            .handler(move |_| {
                let other = taken.lock().unwrap().take();
                signal_ending.store(true, Ordering::Release);
                drop(other);
                signal_done.store(true, Ordering::Release);
            })
            .unwrap();
        let handler = move |_: &slipring::Message<'_>| {
            let _ = &first;
            signal_entered.store(true, Ordering::Release);
            while !seen_ending.load(Ordering::Acquire) {
                thread::yield_now();
            }
        };
        *slot.lock().unwrap() = Some(broker.subscription("b").handler(handler).unwrap());
        broker.publish("b", "x").unwrap();
        watchdog.until("the other runs", || entered.load(Ordering::Acquire));
        broker.publish("a", "x").unwrap();
        watchdog.until("the handler has returned", || done.load(Ordering::Acquire));
        assert!(!broker.close(Duration::from_secs(5)).handler_running);
    }
}

/// Goal: captures that panic when they are dropped, together and with payloads that panic again,
/// neither abort the process nor kill a worker.
#[test]
fn captures_that_panic_when_dropped_harm_nothing() {
    let watchdog = watchdog::watch(30);
    let broker = Broker::builder().workers(1).build().unwrap();
    let (one, two, three) = (PanicsOnDrop, PanicsOnDrop, DropsABomb);
    broker
        .subscription("a")
        .on_error(move |_| _ = &one)
        .on_lagged(move |_| _ = &two)
        .handler(move |_| _ = &three)
        .unwrap()
        .unsubscribe()
        .unwrap();
    // The same on a worker: the handler ends itself.
    let slot: Arc<Mutex<Option<HandlerSubscription>>> = Arc::default();
    let own = Arc::clone(&slot);
    let capture = DropsABomb;
    let handled = broker
        .subscription("a")
        .handler(move |_| {
            let _ = &capture;
            drop(own.lock().unwrap().take());
        })
        .unwrap();
    *slot.lock().unwrap() = Some(handled);
    broker.publish("a", "x").unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let _other = broker
        .subscription("b")
        .handler(move |_| _ = counted.fetch_add(1, Ordering::Relaxed))
        .unwrap();
    broker.publish("b", "x").unwrap();
    watchdog.until("the worker goes on", || count.load(Ordering::Relaxed) == 1);
    assert!(!broker.close(Duration::from_secs(5)).handler_running);
}

/// Goal: a broker that is closed starts no threads for a handler it refuses.
#[test]
fn a_closed_broker_starts_no_workers() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    broker.close(Duration::ZERO);
    let named = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
            .filter(|name| name.starts_with("slipring-superv"))
            .count()
    };
    let before = named();
    let refused = broker.subscription("a").handler(|_| {});
    assert_eq!(refused.err(), Some(SubscribeError::Closed));
    assert!(named() <= before, "a supervisor was started");
}

/// Goal: a filter may ask for metrics, and gets nothing; a replay that asks a slow filter holds up
/// no other subscriber.
#[test]
fn a_filter_that_asks_for_metrics_gets_none_and_does_not_hang() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    broker.publish("a", "x").unwrap();
    for start in [Start::Now, Start::Last(1), Start::Earliest] {
        let asked = broker.clone();
        let filter = move |_: &slipring::Message<'_>| asked.metrics().topics.is_empty();
        let mut subscription =
            broker.subscription("a").start(start).filter_fn(filter).open().unwrap();
        assert_eq!(broker.publish("a", "y").unwrap().enqueued, 1);
        assert!(subscription.recv().is_ok());
    }
}

/// Goal: what `unsubscribe_timeout` gives back does not wait when it is dropped.
#[test]
fn giving_up_on_a_handler_is_giving_up() {
    let watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let (inside, entered) = (Arc::new(AtomicBool::new(false)), Arc::clone(&gate));
    let signal = Arc::clone(&inside);
    let handled = broker
        .subscription("a")
        .handler(move |_| {
            signal.store(true, Ordering::Release);
            drop(entered.lock());
        })
        .unwrap();
    broker.publish("a", "x").unwrap();
    watchdog.until("the handler runs", || inside.load(Ordering::Acquire));
    let given_back = handled.unsubscribe_timeout(Duration::from_millis(1));
    assert!(given_back.is_err());
    drop(given_back);
    drop(closed);
    assert!(!broker.close(Duration::MAX).handler_running);
}

/// Goal: a stream tells once that it was disconnected, and then ends.
#[test]
fn a_disconnected_stream_ends() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let overflow = Overflow::Disconnect { after: Duration::ZERO };
    let mut subscription = broker
        .subscription("a")
        .capacity(1)
        .delivery(DeliveryMode::AtMostOnce)
        .overflow(overflow)
        .open()
        .unwrap();
    for _ in 0..3 {
        broker.publish("a", "x").unwrap();
    }
    let items: Vec<_> = subscription.iter().take(9).map(|item| item.map(drop)).collect();
    assert_eq!(items, [Ok(()), Err(RecvError::Lagged(1)), Err(RecvError::Disconnected)]);
}

/// Goal: settings at the end of their range are refused or harmless, and loans are bounded.
#[test]
fn extremes_are_harmless() {
    let _watchdog = watchdog::watch(30);
    let pinned = Sequencer::Pinned { first: usize::MAX };
    let broker = Broker::builder().shards(2).sequencer(pinned).build().unwrap();
    assert_eq!(broker.publish("a", "x").unwrap().offset, 0);
    let broker = Broker::builder().memory_budget(256 << 10).build().unwrap();
    let topic = broker.topic("a").unwrap();
    let loans: Vec<_> = (0..1000).map_while(|_| topic.loan(10_000).ok()).collect();
    assert!(loans.len() < 60, "{} loans of 10 kB in 256 KiB", loans.len());
    assert_eq!(topic.loan(10_000).unwrap_err(), PublishError::Full);
    drop(loans);
    assert!(topic.loan(10_000).is_ok());
}
