//! The contract of handlers: failures, isolation, circuit breaker, re-entrancy, unsubscribing.
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]

mod watchdog;

use slipring::{
    Broker, CircuitBreaker, DeliveryMode, HandlerSubscription, NewMessage, Overflow, PublishError,
    RecvError, Start, SubscribeError, SubscriptionBuilder, TestClock,
};
use std::num::NonZeroUsize;
use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);

/// Holds handlers up until it is opened, or dropped.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn pass(&self) {
        let (open, opened) = &*self.0;
        let guard = open.lock().expect("no panic inside");
        drop(opened.wait_while(guard, |open| !*open).expect("no panic inside"));
    }

    fn open(&self) {
        let (open, opened) = &*self.0;
        *open.lock().expect("no panic inside") = true;
        opened.notify_all();
    }

    /// Opens when it is dropped, so that a failing test does not hang.
    fn opener(&self) -> Opener {
        Opener(self.clone())
    }
}

struct Opener(Gate);

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Says so when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn workers(count: usize) -> Broker {
    Broker::builder().workers(count).build().expect("builds")
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload.try_into().expect("8 bytes"))
}

fn publish(broker: &Broker, topic: &str, number: u64) {
    broker.publish(topic, &number.to_le_bytes()).expect("publishes");
}

/// A handler that tells what it gets.
fn telling(builder: SubscriptionBuilder<'_>) -> (HandlerSubscription, Receiver<u64>) {
    let (tell, told) = channel();
    let handler = builder.handler(move |message| {
        let _ = tell.send(number(message.payload()));
    });
    (handler.expect("subscribes"), told)
}

fn wait_for(told: &Receiver<u64>, expected: u64) {
    assert_eq!(told.recv_timeout(LONG), Ok(expected));
}

type Setup = for<'a> fn(SubscriptionBuilder<'a>) -> SubscriptionBuilder<'a>;

/// Both places where handlers run.
fn places() -> [(&'static str, Setup); 2] {
    [("pool", |builder| builder), ("dedicated", |builder| builder.dedicated_thread())]
}

/// Goal: messages of a subscription are handled one at a time, in order, wherever it runs.
#[test]
fn a_handler_gets_its_messages_in_order_one_at_a_time() {
    let watchdog = watchdog::watch(60);
    for (place, setup) in places() {
        let broker = workers(4);
        let (inside, handled) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let subscriptions: Vec<_> = (0..6)
            .map(|_| {
                let (inside, handled) = (Arc::clone(&inside), Arc::clone(&handled));
                let (alone, mut next) = (AtomicUsize::new(0), 0);
                let block = Overflow::Block { timeout: None };
                setup(
                    broker
                        .subscription("a")
                        .delivery(DeliveryMode::AtMostOnce)
                        .overflow(block)
                        .capacity(100),
                )
                .handler(move |message| {
                    inside.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(alone.fetch_add(1, Ordering::SeqCst), 0);
                    assert_eq!(message.offset(), next);
                    next += 1;
                    alone.fetch_sub(1, Ordering::SeqCst);
                    handled.fetch_add(1, Ordering::SeqCst);
                })
                .unwrap()
            })
            .collect();
        let topic = broker.topic("a").unwrap();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..1000).for_each(|_| _ = topic.publish("x").unwrap()));
            }
        });
        watchdog.until("all is handled", || handled.load(Ordering::SeqCst) == 6 * 2000);
        assert_eq!(inside.load(Ordering::SeqCst), 6 * 2000, "{place}");
        watchdog.until("nothing is queued", || subscriptions.iter().all(|s| s.queued() == 0));
    }
}

/// Goal: a dedicated handler has one thread, which nobody else has.
#[test]
fn a_dedicated_handler_has_a_thread_of_its_own() {
    let _watchdog = watchdog::watch(30);
    let broker = workers(1);
    let (tell, told) = channel::<(usize, ThreadId)>();
    let telling = |who: usize| {
        let tell = tell.clone();
        move |_: &slipring::Message<'_>| _ = tell.send((who, thread::current().id()))
    };
    let _subscriptions = [
        broker.subscription("a").handler(telling(0)).unwrap(),
        broker.subscription("a").dedicated_thread().handler(telling(1)).unwrap(),
        broker.subscription("a").dedicated_thread().handler(telling(2)).unwrap(),
    ];
    (0..20).for_each(|n| publish(&broker, "a", n));
    let mut threads = [None; 3];
    for _ in 0..60 {
        let (who, thread) = told.recv_timeout(LONG).unwrap();
        if who > 0 {
            assert_eq!(*threads[who].get_or_insert(thread), thread, "always the same");
        }
        threads[who] = Some(thread);
    }
    assert!(threads[0] != threads[1] && threads[1] != threads[2] && threads[0] != threads[2]);
}

/// Goal: a handler may begin in the past.
#[test]
fn a_handler_may_begin_in_the_past() {
    let _watchdog = watchdog::watch(30);
    for (_, setup) in places() {
        let broker = workers(1);
        (0..1000).for_each(|n| publish(&broker, "a", n));
        let (_subscription, told) = telling(setup(broker.subscription("a").start(Start::Earliest)));
        (1000..1500).for_each(|n| publish(&broker, "a", n));
        (0..1500).for_each(|n| wait_for(&told, n));
    }
}

/// Goal: a failure or panic concerns one message of one subscription, and is reported.
#[test]
fn a_failing_or_panicking_handler_harms_nobody_and_is_reported() {
    let _watchdog = watchdog::watch(30);
    for (place, setup) in places() {
        let broker = workers(1);
        let (tell, told) = channel();
        let failing = setup(broker.subscription("a"))
            .delivery(DeliveryMode::AtMostOnce)
            .on_error(move |error| {
                let offset = error.message.offset();
                tell.send((offset, error.reason.to_owned(), error.panicked)).unwrap();
                assert!(offset != 3, "on_error panics too");
            })
            .handler(|message| match message.offset() {
                1 => Err("refused".to_owned()),
                2 => panic!("with text"),
                3 => panic!("with number {}", 3),
                4 => panic_any(4),
                5 => panic_any(PanicsWhenDropped),
                _ => Ok(()),
            })
            .unwrap();
        let (_other, others) = telling(broker.subscription("a"));
        (0..7).for_each(|n| publish(&broker, "a", n));
        (0..7).for_each(|n| wait_for(&others, n));
        let expected = [
            (1, "refused", false),
            (2, "with text", true),
            (3, "with number 3", true),
            (4, "panic of an unknown type", true),
            (5, "panic of an unknown type", true),
        ];
        for (offset, reason, panicked) in expected {
            let reported = told.recv_timeout(LONG).unwrap();
            assert_eq!(reported, (offset, reason.to_owned(), panicked), "{place}");
        }
        failing.unsubscribe().unwrap();
        assert!(told.try_recv().is_err(), "message 6 was handled");
        publish(&broker, "a", 7);
        wait_for(&others, 7);
    }
}

/// What a nasty program may panic with.
struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("dropped");
        }
    }
}

/// Goal: a panicking filter matches nothing and reaches neither publisher nor other subscriptions.
#[test]
fn a_panicking_filter_counts_as_no_match_and_harms_nobody() {
    let _watchdog = watchdog::watch(30);
    for start in [Start::Now, Start::Earliest] {
        let broker = workers(1);
        let mut before = broker.subscribe("a").unwrap();
        let filter = |message: &slipring::Message<'_>| match message.offset() {
            0 | 3 => true,
            1 => panic!("in a filter"),
            _ => panic_any(PanicsWhenDropped),
        };
        let mut panicking = broker.subscription("a").start(start).filter_fn(filter).open().unwrap();
        let mut behind = broker.subscribe("a").unwrap();
        let matched: Vec<u64> = (0..4).map(|_| broker.publish("a", "x").unwrap().matched).collect();
        assert_eq!(matched, [3, 2, 2, 3], "{start:?}");
        for subscription in [&mut before, &mut behind] {
            (0..4).for_each(|n| assert_eq!(subscription.recv().unwrap().offset(), n));
        }
        assert_eq!(panicking.recv().unwrap().offset(), 0);
        assert_eq!(panicking.recv().unwrap().offset(), 3);
        assert!(panicking.try_recv().is_err());
    }
}

/// Goal: what a filter has captured may call the broker when it is dropped, whoever drops it.
#[test]
fn what_a_filter_captured_may_call_the_broker_when_it_is_dropped() {
    let _watchdog = watchdog::watch(30);
    struct Calls(slipring::Topic, Arc<AtomicUsize>);
    impl Drop for Calls {
        fn drop(&mut self) {
            // Refused or not: it returns.
            let _ = self.0.publish("bye");
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    for round in 0..8 {
        let broker = Broker::in_memory();
        let topic = broker.topic("a").unwrap();
        let calls = Calls(topic.clone(), Arc::clone(&dropped));
        let filter = move |_: &slipring::Message<'_>| {
            let _ = &calls;
            true
        };
        let subscription = broker.subscription("a").filter_fn(filter).open().unwrap();
        topic.publish("x").unwrap();
        drop(subscription);
        // Both the routes and the topic's own route still hold it; either may be the last to let go.
        if round % 2 == 0 {
            topic.publish("x").unwrap();
        }
        (0..200).for_each(|_| drop(broker.subscribe("b").unwrap()));
        topic.publish("x").unwrap();
        assert_eq!(dropped.load(Ordering::SeqCst), round + 1, "it is let go of");
    }
}

/// Goal: handlers that never return delay no other handler's messages by 50 ms, with one worker.
#[test]
fn handlers_that_never_return_hardly_delay_others() {
    let _watchdog = watchdog::watch(60);
    let broker = workers(1);
    let gate = Gate::default();
    let opener = gate.opener();
    let (entered, enters) = channel();
    let mut stuck = Vec::new();
    let mut slowest = Duration::ZERO;
    for round in 0..6 {
        let (gate, entered) = (gate.clone(), entered.clone());
        let never_returns = move |_: &slipring::Message<'_>| {
            entered.send(()).unwrap();
            gate.pass();
        };
        stuck.push(broker.subscription("stuck/*").handler(never_returns).unwrap());
        // Alternately the stuck ones are called by a message of their own before, or by the same
        // message as the others, just before these.
        let (_other, others) = telling(broker.subscription("**"));
        let began = Instant::now();
        publish(&broker, &format!("stuck/{round}"), round);
        wait_for(&others, round);
        slowest = slowest.max(began.elapsed());
        enters.recv_timeout(LONG).unwrap();
        for n in 0..20 {
            let began = Instant::now();
            publish(&broker, "free", n);
            wait_for(&others, n);
            slowest = slowest.max(began.elapsed());
        }
    }
    println!("beside up to 6 stuck handlers and 1 worker, the slowest message took {slowest:?}");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    drop(opener);
}

/// Goal: the same if all are called by one message: who is first in the queue may get stuck.
#[test]
fn one_message_to_many_handlers_reaches_all_though_all_but_one_get_stuck() {
    let _watchdog = watchdog::watch(60);
    let mut slowest = Duration::ZERO;
    for (workers_count, handlers) in [(1, 2), (2, 3), (1, 8), (3, 8)] {
        for _ in 0..10 {
            let broker = workers(workers_count);
            let gate = Gate::default();
            let opener = gate.opener();
            let (tell, told) = channel();
            let _handlers: Vec<_> = (0..handlers)
                .map(|_| {
                    let (gate, tell) = (gate.clone(), tell.clone());
                    let handler = move |_: &slipring::Message<'_>| {
                        tell.send(Instant::now()).unwrap();
                        gate.pass();
                    };
                    broker.subscription("a").handler(handler).unwrap()
                })
                .collect();
            let began = Instant::now();
            broker.publish("a", "x").unwrap();
            let last = (0..handlers).map(|_| told.recv_timeout(LONG).unwrap()).max().unwrap();
            slowest = slowest.max(last - began);
            drop(opener);
        }
    }
    println!("up to 8 handlers that all get stuck were called within {slowest:?}");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
}

/// Goal: a stuck dedicated handler is nobody's business.
#[test]
fn a_stuck_dedicated_handler_delays_nobody() {
    let _watchdog = watchdog::watch(30);
    let broker = workers(1);
    let gate = Gate::default();
    let opener = gate.opener();
    let stuck = gate.clone();
    let dedicated = broker.subscription("a").dedicated_thread();
    let _stuck = dedicated.handler(move |_| stuck.pass()).unwrap();
    let (_other, others) = telling(broker.subscription("a"));
    for n in 0..1000 {
        publish(&broker, "a", n);
        wait_for(&others, n);
    }
    drop(opener);
}

fn breaker(failures: usize, cool_down_s: u64) -> CircuitBreaker {
    let failures = NonZeroUsize::new(failures).expect("not 0");
    CircuitBreaker { failures, cool_down: Duration::from_secs(cool_down_s) }
}

/// Goal: the breaker opens after failures in a row, tries one message after the cool-down, and
/// closes with a success.
#[test]
fn the_circuit_breaker_opens_tries_one_message_and_closes() {
    let watchdog = watchdog::watch(60);
    for (place, setup) in places() {
        let clock = TestClock::new();
        let broker = Broker::builder().workers(1).clock(&clock).build().unwrap();
        let (calls, fails) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
        let (counted, failing) = (Arc::clone(&calls), Arc::clone(&fails));
        let subscription = setup(broker.subscription("a").circuit_breaker(breaker(3, 10)))
            .delivery(DeliveryMode::AtMostOnce)
            .handler(move |message| {
                let call = counted.fetch_add(1, Ordering::SeqCst);
                // A success among the failures: they do not count as in a row.
                if failing.load(Ordering::SeqCst) && call != 2 {
                    return Err(format!("message {}", message.offset()));
                }
                Ok(())
            })
            .unwrap();
        let (_other, others) = telling(broker.subscription("b"));
        let round_trip = || {
            publish(&broker, "b", 1);
            wait_for(&others, 1);
        };
        let called = || calls.load(Ordering::SeqCst);
        (0..20).for_each(|n| publish(&broker, "a", n));
        watchdog.until("it opens", || called() == 6);
        round_trip();
        clock.advance(Duration::from_secs(9));
        round_trip();
        assert_eq!((called(), subscription.queued()), (6, 14), "it is open, {place}");
        let advance_until = |calls| {
            watchdog.until("it is half open", || {
                clock.advance(Duration::from_secs(1));
                thread::yield_now();
                called() >= calls
            });
        };
        advance_until(7);
        round_trip();
        assert_eq!(called(), 7, "the trial failed: open again, {place}");
        fails.store(false, Ordering::SeqCst);
        advance_until(8);
        watchdog.until("it is closed", || called() == 20);
        (0..10).for_each(|n| publish(&broker, "a", n));
        watchdog.until("all goes", || called() == 30 && subscription.queued() == 0);
    }
}

/// Goal: a handler whose breaker is open can be unsubscribed and closed at once.
#[test]
fn a_paused_handler_ends_at_once() {
    let watchdog = watchdog::watch(30);
    for (place, setup) in places() {
        let broker = workers(1);
        let calls = Arc::new(AtomicUsize::new(0));
        let failing = |calls: &Arc<AtomicUsize>| {
            let calls = Arc::clone(calls);
            move |_: &slipring::Message<'_>| {
                calls.fetch_add(1, Ordering::SeqCst);
                Err("fails")
            }
        };
        let open = || {
            setup(broker.subscription("a").circuit_breaker(breaker(1, 3600)))
                .handler(failing(&calls))
                .unwrap()
        };
        let (unsubscribed, timed, closed) = (open(), open(), open());
        broker.publish("a", "x").unwrap();
        watchdog.until("all are open", || calls.load(Ordering::SeqCst) == 3);
        let began = Instant::now();
        unsubscribed.unsubscribe().unwrap();
        assert!(timed.unsubscribe_timeout(Duration::from_secs(5)).is_ok());
        let report = broker.close(Duration::from_secs(5));
        assert!(!report.handler_running, "{place}");
        assert!(began.elapsed() < Duration::from_secs(4), "{place}: {:?}", began.elapsed());
        drop(closed);
    }
}

/// Goal: from inside a handler, publishing is fine, also to itself.
#[test]
fn a_handler_may_publish_also_to_itself() {
    let _watchdog = watchdog::watch(30);
    for (_, setup) in places() {
        let broker = workers(1);
        let (_other, others) = telling(broker.subscription("b"));
        let (tell, told) = channel();
        let inside = broker.clone();
        let _self = setup(broker.subscription("a"))
            .handler(move |message| {
                let n = number(message.payload());
                if n < 10 {
                    publish(&inside, "a", n + 1);
                    publish(&inside, "b", n);
                    let mut loan = inside.topic("c").unwrap().loan(1).unwrap();
                    loan[0] = 1;
                    loan.commit().unwrap();
                    inside.topic("c").unwrap().publish_ticket("x").unwrap().wait().unwrap();
                }
                tell.send(n).unwrap();
            })
            .unwrap();
        publish(&broker, "a", 0);
        (0..=10).for_each(|n| wait_for(&told, n));
        (0..10).for_each(|n| wait_for(&others, n));
    }
}

/// Goal: from inside a handler, subscribing is fine, both ways.
#[test]
fn a_handler_may_subscribe() {
    let _watchdog = watchdog::watch(30);
    for (_, setup) in places() {
        let broker = workers(1);
        let inside = broker.clone();
        let (tell, told) = channel();
        let _self = setup(broker.subscription("a"))
            .handler(move |_| {
                let mut pulled = inside.subscribe("b").unwrap();
                let (handled, others) = telling(inside.subscription("b"));
                publish(&inside, "b", 7);
                assert_eq!(number(pulled.recv().unwrap().payload()), 7);
                wait_for(&others, 7);
                handled.unsubscribe().unwrap();
                tell.send(0).unwrap();
            })
            .unwrap();
        publish(&broker, "a", 0);
        wait_for(&told, 0);
    }
}

/// A place for a subscription that its own handler can reach.
type Slot = Arc<Mutex<Option<HandlerSubscription>>>;

/// Goal: a handler may end its own subscription: it returns at once and is not called again.
#[test]
fn a_handler_may_unsubscribe_itself() {
    let watchdog = watchdog::watch(30);
    for (place, setup) in places() {
        for drops in [false, true] {
            let broker = workers(2);
            let slot = Slot::default();
            let (inside, dropped) = (Arc::clone(&slot), Arc::new(AtomicBool::new(false)));
            let calls = Arc::new(AtomicUsize::new(0));
            let (guard, counted) = (Dropped(Arc::clone(&dropped)), Arc::clone(&calls));
            let handler = setup(broker.subscription("a"))
                .handler(move |message| {
                    let _ = &guard;
                    counted.fetch_add(1, Ordering::SeqCst);
                    if message.offset() == 2 {
                        let own = inside.lock().unwrap().take().unwrap();
                        if drops {
                            drop(own);
                        } else {
                            own.unsubscribe().unwrap();
                        }
                    }
                })
                .unwrap();
            *slot.lock().unwrap() = Some(handler);
            (0..10).for_each(|n| publish(&broker, "a", n));
            watchdog.until("the handler is dropped", || dropped.load(Ordering::SeqCst));
            assert_eq!(calls.load(Ordering::SeqCst), 3, "{place}");
            assert_eq!(broker.publish("a", "x").unwrap().matched, 0);
        }
    }
}

/// Goal: a handler may end another's subscription, and then that one does not run.
#[test]
fn a_handler_may_unsubscribe_another_that_is_running() {
    let _watchdog = watchdog::watch(30);
    for (_, setup) in places() {
        let broker = workers(1);
        let gate = Gate::default();
        let _opener = gate.opener();
        let (entered, enters) = channel();
        let running = Arc::new(AtomicBool::new(false));
        let (inside, passes) = (Arc::clone(&running), gate.clone());
        let other = setup(broker.subscription("other"))
            .handler(move |_| {
                inside.store(true, Ordering::SeqCst);
                entered.send(()).unwrap();
                passes.pass();
                inside.store(false, Ordering::SeqCst);
            })
            .unwrap();
        let slot = Arc::new(Mutex::new(Some(other)));
        let (tell, told) = channel();
        let _self = setup(broker.subscription("a"))
            .handler(move |_| {
                let other = slot.lock().unwrap().take().unwrap();
                let other = other.unsubscribe_timeout(Duration::ZERO).unwrap_err().subscription;
                tell.send(1).unwrap();
                other.unsubscribe().unwrap();
                tell.send(u64::from(running.load(Ordering::SeqCst))).unwrap();
            })
            .unwrap();
        publish(&broker, "other", 0);
        enters.recv_timeout(LONG).unwrap();
        publish(&broker, "a", 0);
        wait_for(&told, 1);
        gate.open();
        wait_for(&told, 0);
    }
}

/// Goal: a handler may close the broker, or drop the last handle of it.
#[test]
fn a_handler_may_close_the_broker_or_drop_its_last_handle() {
    let watchdog = watchdog::watch(30);
    for (place, setup) in places() {
        for closes in [true, false] {
            let broker = workers(2);
            let mut pulled = broker.subscribe("a").unwrap();
            let (tell, told) = channel();
            let slot = Arc::new(Mutex::new(None::<Broker>));
            let inside = Arc::clone(&slot);
            let dropped = Arc::new(AtomicBool::new(false));
            let guard = Dropped(Arc::clone(&dropped));
            let own = setup(broker.subscription("a"))
                .handler(move |_| {
                    let _ = &guard;
                    let broker = inside.lock().unwrap().take().unwrap();
                    if closes {
                        let report = broker.close(LONG);
                        assert!(report.handler_running, "this one");
                        assert_eq!(broker.publish("a", "x").unwrap_err(), PublishError::Closed);
                    }
                    drop(broker);
                    tell.send(0).unwrap();
                })
                .unwrap();
            let topic = broker.topic("a").unwrap();
            *slot.lock().unwrap() = Some(broker);
            topic.publish("x").unwrap();
            wait_for(&told, 0);
            assert_eq!(topic.publish("x").unwrap_err(), PublishError::Closed, "{place}");
            assert_eq!(pulled.recv().unwrap().offset(), 0);
            assert_eq!(pulled.recv().unwrap_err(), RecvError::Closed);
            watchdog.until("the handler is dropped", || dropped.load(Ordering::SeqCst));
            drop(own);
        }
    }
}

/// Goal: a handler that holds its own subscription is no obstacle to ending it from outside.
#[test]
fn a_handler_that_owns_its_own_subscription_can_be_closed() {
    let _watchdog = watchdog::watch(20);
    for (_, setup) in places() {
        let broker = workers(1);
        let slot = Slot::default();
        let inside = Arc::clone(&slot);
        let dropped = Arc::new(AtomicBool::new(false));
        let guard = Dropped(Arc::clone(&dropped));
        let own = setup(broker.subscription("a"))
            .handler(move |_| {
                let _ = (&inside, &guard);
            })
            .unwrap();
        *slot.lock().unwrap() = Some(own);
        // The handler holds the last reference to its own subscription now.
        drop(slot);
        broker.publish("a", "x").unwrap();
        let report = broker.close(Duration::from_secs(10));
        assert_eq!((report.unhandled, report.handler_running), (0, false));
        assert!(dropped.load(Ordering::SeqCst));
    }
}

/// Goal: when `unsubscribe` returns, the handler does not run and is dropped; not before.
#[test]
fn unsubscribe_returns_only_when_the_handler_does_not_run_any_more() {
    let _watchdog = watchdog::watch(60);
    let modes = [DeliveryMode::AtMostOnce, DeliveryMode::AtLeastOnce];
    for ((place, setup), delivery) in
        places().into_iter().flat_map(|place| modes.map(|mode| (place, mode)))
    {
        let broker = workers(2);
        let gate = Gate::default();
        let _opener = gate.opener();
        let (entered, enters) = channel();
        let passes = gate.clone();
        let dropped = Arc::new(AtomicBool::new(false));
        let guard = Dropped(Arc::clone(&dropped));
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let subscription = setup(broker.subscription("a").delivery(delivery))
            .handler(move |_| {
                let _ = &guard;
                counted.fetch_add(1, Ordering::SeqCst);
                entered.send(()).unwrap();
                passes.pass();
            })
            .unwrap();
        (0..5).for_each(|n| publish(&broker, "a", n));
        enters.recv_timeout(LONG).unwrap();
        let began = Instant::now();
        let timeout = Duration::from_millis(30);
        let subscription = subscription.unsubscribe_timeout(timeout).unwrap_err().subscription;
        assert!(began.elapsed() >= timeout);
        assert_eq!(broker.publish("a", "x").unwrap().matched, 0, "it is unsubscribed already");
        let returned = Arc::new(AtomicBool::new(false));
        let returns = Arc::clone(&returned);
        let waiter = thread::spawn(move || {
            subscription.unsubscribe().unwrap();
            returns.store(true, Ordering::SeqCst);
        });
        for _ in 0..100 {
            thread::yield_now();
            assert!(!returned.load(Ordering::SeqCst), "the handler is still inside, {place}");
        }
        gate.open();
        waiter.join().unwrap();
        assert!(dropped.load(Ordering::SeqCst), "the handler is gone, {place}");
        assert_eq!(calls.load(Ordering::SeqCst), 1, "what was queued is thrown away");
    }
}

/// Goal: an unsubscription that timed out does not, when it is ended at last, take away the name
/// of a newer subscription.
#[test]
fn a_late_unsubscription_leaves_the_name_to_its_new_owner() {
    let _watchdog = watchdog::watch(30);
    let broker = workers(1);
    let gate = Gate::default();
    let _opener = gate.opener();
    let (entered, enters) = channel();
    let passes = gate.clone();
    let old = broker
        .subscription("a")
        .name("n")
        .handler(move |_| {
            entered.send(()).unwrap();
            passes.pass();
        })
        .unwrap();
    broker.publish("a", "x").unwrap();
    enters.recv_timeout(LONG).unwrap();
    let old = old.unsubscribe_timeout(Duration::ZERO).unwrap_err().subscription;
    let new = broker.subscription("a").name("n").open().unwrap();
    gate.open();
    drop(old);
    let third = broker.subscription("a").name("n").open();
    assert_eq!(third.unwrap_err(), SubscribeError::NameInUse);
    assert_eq!(broker.publish("a", "x").unwrap().matched, 1);
    drop(new);
}

/// Goal: `unsubscribe_timeout` notices at once that the handler has returned.
#[test]
fn unsubscribe_timeout_returns_as_soon_as_the_handler_has_returned() {
    let _watchdog = watchdog::watch(60);
    for (_, setup) in places() {
        for failing in [false, true] {
            let broker = workers(2);
            let gate = Gate::default();
            let _opener = gate.opener();
            let (entered, enters) = channel();
            let passes = gate.clone();
            let subscription = setup(broker.subscription("a").circuit_breaker(breaker(1, 3600)))
                .handler(move |_| {
                    entered.send(()).unwrap();
                    passes.pass();
                    if failing { Err("fails") } else { Ok(()) }
                })
                .unwrap();
            broker.publish("a", "x").unwrap();
            enters.recv_timeout(LONG).unwrap();
            let waiter = thread::spawn(move || {
                subscription.unsubscribe_timeout(Duration::from_secs(40)).unwrap();
            });
            for _ in 0..100 {
                thread::yield_now();
            }
            let opened = Instant::now();
            gate.open();
            waiter.join().unwrap();
            let waited = opened.elapsed();
            assert!(waited < Duration::from_secs(10), "failing: {failing}, {waited:?}");
        }
    }
}

/// Goal: subscriptions of one topic can end in every order, and the rest goes on.
#[test]
fn subscriptions_of_one_topic_may_be_dropped_in_every_order() {
    let _watchdog = watchdog::watch(60);
    let orders = (0..24).map(|code| {
        let mut left = vec![0, 1, 2, 3];
        [left.remove(code / 6), left.remove(code % 6 / 2), left.remove(code % 2), left.remove(0)]
    });
    for order in orders {
        let broker = workers(2);
        let mut handlers: Vec<_> =
            (0..4).map(|_| Some(telling(broker.subscription("a")))).collect();
        let mut pulled: Vec<_> = (0..4).map(|_| Some(broker.subscribe("a").unwrap())).collect();
        for (n, &which) in order.iter().enumerate() {
            let receipt = broker.publish("a", &(n as u64).to_le_bytes()).unwrap();
            assert_eq!(receipt.matched, 8 - 2 * n as u64, "{order:?}");
            for (_, told) in handlers.iter().flatten() {
                wait_for(told, n as u64);
            }
            for subscription in pulled.iter_mut().flatten() {
                assert_eq!(subscription.recv().unwrap().offset(), n as u64);
            }
            drop(handlers[which].take());
            drop(pulled[which].take());
        }
        assert_eq!(broker.publish("a", "x").unwrap().matched, 0);
    }
}

/// Goal: a detached handler runs on until the broker closes.
#[test]
fn a_detached_handler_runs_until_the_broker_closes() {
    let _watchdog = watchdog::watch(30);
    for (_, setup) in places() {
        let broker = workers(1);
        let (subscription, told) = telling(setup(broker.subscription("a")));
        assert!(subscription.id() > 0);
        subscription.detach();
        publish(&broker, "a", 1);
        wait_for(&told, 1);
        let report = broker.close(LONG);
        assert!(!report.handler_running);
        assert!(told.recv_timeout(LONG).is_err(), "the handler is dropped");
    }
}

/// Goal: a subscriber with `Block` that is a handler is waited for like any other.
#[test]
fn a_blocking_handler_slows_its_publisher_down_and_loses_nothing() {
    let watchdog = watchdog::watch(60);
    for (_, setup) in places() {
        let broker = workers(1);
        let handled = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&handled);
        let block = Overflow::Block { timeout: None };
        let _handler = setup(
            broker.subscription("a").delivery(DeliveryMode::AtMostOnce).overflow(block).capacity(2),
        )
        .handler(move |message| {
            assert_eq!(message.offset(), counted.fetch_add(1, Ordering::SeqCst) as u64);
        })
        .unwrap();
        for _ in 0..500 {
            let receipt = broker.publish_batch("a", &[NewMessage::new(b"x"); 4]).unwrap();
            assert_eq!((receipt.enqueued, receipt.dropped), (4, 0));
        }
        watchdog.until("all is handled", || handled.load(Ordering::SeqCst) == 2000);
    }
}

/// Goal: a handler's own messages wait for it, everybody else's do not: tickets of a stuck handler.
#[test]
fn a_stuck_handler_with_block_is_left_behind_when_it_is_unsubscribed() {
    let _watchdog = watchdog::watch(30);
    let broker = workers(1);
    let gate = Gate::default();
    let _opener = gate.opener();
    let (entered, enters): (Sender<()>, _) = channel();
    let passes = gate.clone();
    let stuck = broker
        .subscription("a")
        .delivery(DeliveryMode::AtMostOnce)
        .overflow(Overflow::Block { timeout: None })
        .capacity(1)
        .handler(move |_| {
            entered.send(()).unwrap();
            passes.pass();
        })
        .unwrap();
    publish(&broker, "a", 0);
    enters.recv_timeout(LONG).unwrap();
    publish(&broker, "a", 1);
    thread::scope(|scope| {
        let publisher = scope.spawn(|| broker.publish("a", "x").unwrap());
        let late = stuck.unsubscribe_timeout(Duration::from_millis(10)).unwrap_err().subscription;
        assert_eq!(publisher.join().unwrap().matched, 0, "woken though the handler is stuck");
        gate.open();
        drop(late);
    });
}
