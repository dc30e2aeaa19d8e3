//! The contract of beginning and ending: close, drop, fork, and no growth, threads or CPU left over.
#![expect(unsafe_code, reason = "fork(2), and the process's CPU clock")]
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]

mod watchdog;

use futures::StreamExt;
use futures::executor::block_on;
use slipring::{
    Broker, CloseReport, ConfigError, DeliveryMode, Overflow, PublishError, RecvError, Sequencer,
    Start, SubscribeError, Subscription, TryRecvError,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);

/// Runs `body` in a process of its own, where no other test has threads or memory.
fn in_a_process_of_its_own(test: &str, body: impl FnOnce()) {
    const VARIABLE: &str = "SLIPRING_TEST_ALONE";
    if std::env::var(VARIABLE).as_deref() == Ok(test) {
        return body();
    }
    let this = std::env::current_exe().expect("a test has a path");
    let output = Command::new(this)
        .args([test, "--exact", "--test-threads=1", "--nocapture"])
        .env(VARIABLE, test)
        .output()
        .expect("it can be started again");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn entries(directory: &str) -> usize {
    std::fs::read_dir(directory).expect("Linux").count()
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("statm has a second field") * 4096
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a timespec to write to.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Goal: a close says what it left, and what is queued for pulling can still be received.
#[test]
fn close_reports_what_it_left() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::builder().workers(1).shards(2).build().unwrap();
    let mut pulled = broker.subscribe("*").unwrap();
    let (entered, enters) = channel();
    let (release, released) = channel::<()>();
    let stuck = broker
        .subscription("a")
        .handler(move |_| {
            entered.send(()).unwrap();
            let _ = released.recv();
        })
        .unwrap();
    for n in 0..6u64 {
        broker.publish(["a", "b"][n as usize % 2], &n.to_le_bytes()).unwrap();
    }
    enters.recv_timeout(LONG).unwrap();
    let began = Instant::now();
    let report = broker.close(Duration::from_millis(50));
    assert!((50..5000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    assert_eq!((report.unhandled, report.unreceived), (2, 6));
    assert!(report.handler_running);
    assert_eq!((0..6).filter(|_| pulled.try_recv().is_ok()).count(), 6);
    assert_eq!(pulled.try_recv().unwrap_err(), TryRecvError::Recv(RecvError::Closed));
    drop(release);
    drop(stuck);
}

/// Goal: handlers get what is queued before a close returns, if there is time.
#[test]
fn close_lets_handlers_drain() {
    let _watchdog = watchdog::watch(30);
    for dedicated in [false, true] {
        let broker = Broker::builder().workers(2).build().unwrap();
        let handled = Arc::new(AtomicUsize::new(0));
        let _handlers: Vec<_> = (0..4)
            .map(|_| {
                let handled = Arc::clone(&handled);
                let builder = broker.subscription("a").capacity(2000);
                let builder = if dedicated { builder.dedicated_thread() } else { builder };
                builder.handler(move |_| _ = handled.fetch_add(1, Ordering::SeqCst)).unwrap()
            })
            .collect();
        (0..1000).for_each(|_| _ = broker.publish("a", "x").unwrap());
        let report = broker.close(LONG);
        assert_eq!(report, CloseReport::default(), "nothing is left");
        assert_eq!(handled.load(Ordering::SeqCst), 4000);
    }
}

/// Goal: a close of handlers with nothing to do returns at once, also when they have just done it.
#[test]
fn close_returns_as_soon_as_handlers_are_drained() {
    let _watchdog = watchdog::watch(60);
    for round in 0..400 {
        let broker = Broker::builder().workers(1).build().unwrap();
        let (tell, told) = channel();
        let builder = broker.subscription("a");
        let builder = if round % 4 == 0 { builder.dedicated_thread() } else { builder };
        let _handler = builder.handler(move |_| _ = tell.send(())).unwrap();
        broker.publish("a", "x").unwrap();
        if round % 2 == 0 {
            told.recv_timeout(LONG).unwrap();
        }
        // Close at any point of the worker's way back to sleep.
        (0..round * 7 % 1000).for_each(|_| std::hint::spin_loop());
        let began = Instant::now();
        assert!(!broker.close(LONG).handler_running);
        assert!(began.elapsed() < LONG / 2, "round {round}: {:?}", began.elapsed());
    }
}

/// Goal: whoever waits for a message, in whatever way, wakes with the end.
#[test]
fn close_wakes_every_waiting_consumer() {
    let watchdog = watchdog::watch(30);
    type Wait = fn(&mut Subscription) -> Option<RecvError>;
    let ways: [Wait; 7] = [
        |s| s.recv().err(),
        |s| s.recv_timeout(LONG * 10).err(),
        |s| s.recv_batch(3).err(),
        |s| s.wait().map_or_else(Some, |()| s.recv().err()),
        |s| s.wait_timeout(LONG * 10).map_or_else(Some, |_| s.recv().err()),
        |s| block_on(s.next()).map_or(Some(RecvError::Closed), |item| item.err()),
        |s| s.iter().next().map_or(Some(RecvError::Closed), |item| item.err()),
    ];
    for closes in [true, false] {
        let broker = Broker::builder().shards(2).build().unwrap();
        let waiting = AtomicUsize::new(0);
        thread::scope(|scope| {
            let waiters: Vec<_> = ways
                .iter()
                .map(|wait| {
                    let mut subscription = broker.subscribe("a").unwrap();
                    let waiting = &waiting;
                    scope.spawn(move || {
                        waiting.fetch_add(1, Ordering::SeqCst);
                        wait(&mut subscription)
                    })
                })
                .collect();
            watchdog.until("all wait", || waiting.load(Ordering::SeqCst) == ways.len());
            if closes {
                assert_eq!(broker.close(LONG), CloseReport::default());
            } else {
                drop(broker);
            }
            for (way, waiter) in waiters.into_iter().enumerate() {
                assert_eq!(waiter.join().unwrap(), Some(RecvError::Closed), "way {way}");
            }
        });
    }
}

/// Goal: many blocked publishers of several topics all wake with the end.
#[test]
fn close_wakes_every_blocked_publisher() {
    let watchdog = watchdog::watch(30);
    let broker = Broker::builder().shards(2).build().unwrap();
    let block = Overflow::Block { timeout: None };
    let subscription = broker
        .subscription("*")
        .delivery(DeliveryMode::AtMostOnce)
        .overflow(block)
        .capacity(1)
        .open()
        .unwrap();
    let topics = ["a", "b"].map(|name| broker.topic(name).unwrap());
    for topic in &topics {
        topic.publish("fills").unwrap();
    }
    let blocked = AtomicUsize::new(0);
    thread::scope(|scope| {
        let publishers: Vec<_> = (0..8)
            .map(|n| {
                let (topic, blocked) = (&topics[n % 2], &blocked);
                scope.spawn(move || {
                    blocked.fetch_add(1, Ordering::SeqCst);
                    match n / 2 {
                        0 => topic.publish("x").unwrap_err(),
                        1 => topic.publish_batch(&["x"]).unwrap_err().reason,
                        2 => topic.publish_timeout("x", LONG * 10).unwrap_err(),
                        _ => topic.loan(1).unwrap().commit().unwrap_err().reason,
                    }
                })
            })
            .collect();
        watchdog.until("all are there", || blocked.load(Ordering::SeqCst) == 8);
        assert_eq!(broker.close(Duration::ZERO).unreceived, 2);
        for publisher in publishers {
            assert_eq!(publisher.join().unwrap(), PublishError::Closed);
        }
    });
    drop(subscription);
}

/// Goal: a closed broker says so, whatever it is asked, and closing again does nothing.
#[test]
fn a_closed_broker_refuses_everything_and_can_be_closed_again() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let topic = broker.topic("a").unwrap();
    let loan = topic.loan(1).unwrap();
    let mut subscription = broker.subscribe("a").unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| broker.close(LONG));
        }
    });
    assert_eq!(broker.close(LONG), CloseReport::default());
    let closed = PublishError::Closed;
    assert_eq!(broker.publish("a", "x").unwrap_err(), closed);
    assert_eq!(broker.publish("new", "x").unwrap_err(), closed);
    assert_eq!(topic.publish("x").unwrap_err(), closed);
    assert_eq!(topic.try_publish("x").unwrap_err(), closed);
    assert_eq!(topic.publish_batch(&["x"]).unwrap_err().reason, closed);
    assert_eq!(topic.loan(1).unwrap_err(), closed);
    assert_eq!(loan.commit().unwrap_err().reason, closed);
    assert_eq!(broker.create_topic("b", 1).unwrap_err(), ConfigError::Unavailable(closed));
    assert_eq!(broker.subscribe("a").unwrap_err(), SubscribeError::Closed);
    assert_eq!(broker.subscription("a").handler(|_| ()).unwrap_err(), SubscribeError::Closed);
    assert_eq!(subscription.recv().unwrap_err(), RecvError::Closed);
    assert_eq!(subscription.recv().unwrap_err(), RecvError::Closed);
}

/// Goal: the last handle closes; topics, subscriptions and loans live on as far as they can.
#[test]
fn dropping_all_handles_closes_the_broker() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let clone = broker.clone();
    let topic = broker.topic("a").unwrap();
    let mut subscription = broker.subscription("a").start(Start::Earliest).open().unwrap();
    let handler = broker.subscription("a").handler(|_| ()).unwrap();
    drop(broker);
    topic.publish("one clone is left").unwrap();
    let loan = topic.loan(1).unwrap();
    drop(clone);
    assert_eq!(topic.publish("x").unwrap_err(), PublishError::Closed);
    assert_eq!(loan.commit().unwrap_err().reason, PublishError::Closed);
    assert_eq!(subscription.recv().unwrap().payload(), b"one clone is left");
    assert_eq!(subscription.recv().unwrap_err(), RecvError::Closed);
    handler.unsubscribe().unwrap();
    drop((subscription, topic));
}

/// What the child of a fork does with things of its parent; they are dropped at the end.
fn child(
    broker: Broker,
    mut subscription: Subscription,
    handler: Option<slipring::HandlerSubscription>,
    loan: slipring::Loan,
) {
    let forked = PublishError::Forked;
    let topic = broker.topic("a").map(drop);
    assert_eq!(topic.expect_err("forked"), forked);
    assert_eq!(broker.publish("a", "x").expect_err("forked"), forked);
    assert_eq!(broker.publish_batch("a", &[""; 0]).expect_err("forked").reason, forked);
    assert_eq!(broker.create_topic("b", 1).expect_err("forked"), ConfigError::Unavailable(forked));
    assert_eq!(broker.delete_topic("a").expect_err("forked"), ConfigError::Unavailable(forked));
    assert_eq!(broker.describe_topic("a").expect_err("forked"), ConfigError::Unavailable(forked));
    let listed = broker.topics("**", None, 9).expect_err("forked");
    assert_eq!(listed, ConfigError::Unavailable(forked));
    let figures = broker.subscription_metrics_of(1);
    assert_eq!(figures.expect_err("forked"), ConfigError::Unavailable(forked));
    assert_eq!(broker.subscribe("a").expect_err("forked"), SubscribeError::Forked);
    let second = broker.subscription("a").handler(|_| ());
    assert_eq!(second.expect_err("forked"), SubscribeError::Forked);
    let letters = broker.dead_letters("$dlq/s");
    assert_eq!(letters.redrive_all().expect_err("forked"), forked);
    let all = slipring::Filter::parse("attributes:a").expect("an expression");
    assert_eq!(letters.redrive_by(&all).expect_err("forked"), forked);
    assert_eq!(letters.purge().expect_err("forked"), forked);
    assert_eq!(subscription.recv().expect_err("forked"), RecvError::Forked);
    assert_eq!(subscription.try_recv().expect_err("forked"), RecvError::Forked.into());
    assert_eq!(subscription.poll(1, |_| ()).expect_err("forked"), RecvError::Forked);
    assert_eq!(subscription.wait().expect_err("forked"), RecvError::Forked);
    assert_eq!(loan.commit().expect_err("forked").reason, forked);
    assert_eq!(broker.close(LONG), CloseReport::default());
    if let Some(handler) = handler {
        handler.unsubscribe().expect("outside a filter");
    }
    drop(subscription);
    drop(broker);
    // A broker of its own works.
    let own = Broker::in_memory();
    let mut subscription = own.subscribe("a").expect("subscribes");
    let (tell, told) = channel();
    let handler = own.subscription("a").handler(move |_| _ = tell.send(())).expect("subscribes");
    own.publish("a", "own").expect("publishes");
    assert_eq!(subscription.recv().expect("receives").payload(), b"own");
    told.recv_timeout(LONG).expect("handled");
    drop(handler);
}

/// Goal: in the child of a fork everything is refused and nothing hangs, whatever the parent's
/// threads were about; the parent goes on.
#[test]
fn a_forked_child_is_refused_and_the_parent_goes_on() {
    in_a_process_of_its_own("a_forked_child_is_refused_and_the_parent_goes_on", || {
        let _watchdog = watchdog::watch(60);
        for sequencer in [Sequencer::Publishers, Sequencer::Pinned { first: 0 }] {
            for round in 0..10 {
                let broker = Broker::builder().sequencer(sequencer).shards(2).build().unwrap();
                let busy = broker.clone();
                let topic = broker.topic("a").unwrap();
                let subscription = broker.subscribe("a").unwrap();
                let mut stays = broker.subscription("a").capacity(1 << 16).open().unwrap();
                let (tell, told) = channel();
                // Without a handler, nothing else keeps the child's copy alive.
                let handler = (round % 3 > 0)
                    .then(|| broker.subscription("a").handler(move |_| _ = tell.send(())).unwrap());
                let loan = topic.loan(1).unwrap();
                let stop = Arc::new(AtomicBool::new(round % 2 == 0));
                let stopped = Arc::clone(&stop);
                // In every other round, another thread is in the middle of everything.
                let worker = thread::spawn(move || {
                    while !stopped.load(Ordering::SeqCst) {
                        busy.publish("a", "x").unwrap();
                        drop(busy.subscribe("a").unwrap());
                        let _ = busy.topics("**", None, 9).unwrap();
                    }
                });
                // In the others, nobody else holds the broker: the child drops the last of it.
                let mut worker = Some(worker);
                if round % 2 == 0
                    && let Some(worker) = worker.take()
                {
                    worker.join().unwrap();
                }
                // SAFETY: the child calls only what is under test, and ends without unwinding.
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    // SAFETY: a signal ends the child if it hangs.
                    unsafe { libc::alarm(10) };
                    let done = catch_unwind(AssertUnwindSafe(move || {
                        drop((topic, stays));
                        child(broker, subscription, handler, loan);
                    }));
                    // SAFETY: ends the child at once.
                    unsafe { libc::_exit(i32::from(done.is_err())) };
                }
                let mut status = 0;
                // SAFETY: a child of ours and a place for its status.
                assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
                assert_eq!(status, 0, "{sequencer:?}: 14 is the alarm: the child hung");
                stop.store(true, Ordering::SeqCst);
                if let Some(worker) = worker {
                    worker.join().unwrap()
                }
                while stays.try_recv().is_ok() {}
                while told.try_recv().is_ok() {}
                topic.publish("parent").unwrap();
                assert_eq!(stays.recv().unwrap().payload(), b"parent");
                if handler.is_some() {
                    told.recv_timeout(LONG).unwrap();
                }
                let matched = 2 + u64::from(handler.is_some());
                assert_eq!(loan.commit().unwrap().matched, matched);
                drop((handler, subscription));
            }
        }
    });
}

/// Where a thread stays, with the locks that it has, until it is told to go on.
#[derive(Clone)]
struct Gate {
    reached: Sender<()>,
    opened: Arc<Mutex<Receiver<()>>>,
}

impl Gate {
    fn new(reached: &Sender<()>) -> (Sender<()>, Self) {
        let (open, opened) = channel();
        (open, Self { reached: reached.clone(), opened: Arc::new(Mutex::new(opened)) })
    }

    /// Once it has been opened, nobody stays any more.
    fn pass(&self) {
        self.reached.send(()).expect("the test waits");
        let opened = self.opened.lock().expect("nobody panics");
        assert!(opened.recv().is_err(), "opened by dropping the other end");
    }
}

/// Goal: the same where it is certain that other threads have what the child would wait for: the
/// shard that a publish is in the middle of, and the handlers that workers are inside of.
#[test]
fn a_child_forked_while_locks_are_held_hangs_nowhere() {
    in_a_process_of_its_own("a_child_forked_while_locks_are_held_hangs_nowhere", || {
        let _watchdog = watchdog::watch(60);
        for sequencer in [Sequencer::Publishers, Sequencer::Pinned { first: 0 }] {
            let broker = Broker::builder().sequencer(sequencer).shards(1).build().unwrap();
            let topic = broker.topic("a").unwrap();
            let subscription = broker.subscribe("a").unwrap();
            let mut stays = broker.subscription("a").capacity(1 << 16).open().unwrap();
            let loan = topic.loan(1).unwrap();
            let (reached, reaches) = channel();
            let (open, gates): (Vec<_>, Vec<_>) = (0..3).map(|_| Gate::new(&reached)).unzip();
            let [filter, shared, dedicated] = <[Gate; 3]>::try_from(gates).ok().unwrap();
            let handler = broker.subscription("h").handler(move |_| shared.pass()).unwrap();
            let builder = broker.subscription("h").dedicated_thread();
            let on_its_own = builder.handler(move |_| dedicated.pass()).unwrap();
            let asks = broker.subscription("a").filter_fn(move |_| {
                filter.pass();
                true
            });
            let asks = asks.open().unwrap();
            broker.publish("h", "x").unwrap();
            let busy = topic.clone();
            let publisher = thread::spawn(move || busy.publish("x").unwrap());
            for _ in 0..3 {
                reaches.recv_timeout(LONG).unwrap();
            }
            // SAFETY: the child calls only what is under test, and ends without unwinding.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                // SAFETY: a signal ends the child if it hangs.
                unsafe { libc::alarm(10) };
                let done = catch_unwind(AssertUnwindSafe(move || {
                    assert_eq!(topic.publish("child").expect_err("forked"), PublishError::Forked);
                    assert_eq!(stays.try_recv().expect_err("forked"), RecvError::Forked.into());
                    drop((topic, stays, asks, on_its_own));
                    child(broker, subscription, Some(handler), loan);
                }));
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(done.is_err())) };
            }
            let mut status = 0;
            // SAFETY: a child of ours and a place for its status.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            assert_eq!(status, 0, "{sequencer:?}: 14 is the alarm: the child hung");
            drop(open);
            assert_eq!(publisher.join().unwrap().matched, 3);
            assert_eq!(stays.recv().unwrap().payload(), b"x");
            handler.unsubscribe().unwrap();
            on_its_own.unsubscribe().unwrap();
            assert_eq!(loan.commit().unwrap().matched, 3);
            drop((asks, subscription, reaches));
        }
    });
}

/// Goal: subscribing and unsubscribing again and again leaves no memory behind.
#[test]
fn subscribe_and_unsubscribe_leave_no_memory_behind() {
    in_a_process_of_its_own("subscribe_and_unsubscribe_leave_no_memory_behind", || {
        let _watchdog = watchdog::watch(80);
        let cycles: usize = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
        let broker = Broker::builder().memory_budget(1 << 20).build().unwrap();
        let topics = ["a/0", "a/1"].map(|name| broker.topic(name).unwrap());
        let cycle = |n: usize| {
            let own = format!("a/{n}");
            let pattern = ["a/*", "a/1", "**", own.as_str()][n % 4];
            let mut builder = broker.subscription(pattern).capacity(16);
            if n.is_multiple_of(3) {
                builder = builder.name("again").pattern("b").delivery(DeliveryMode::AtMostOnce);
            }
            if n.is_multiple_of(5) {
                builder = builder.start(Start::Earliest).filter("attributes:k");
            }
            let subscription = builder.open().unwrap();
            if n.is_multiple_of(8) {
                topics[n / 8 % 2].publish("x").unwrap();
            }
            drop(subscription);
            if n.is_multiple_of(100) {
                broker.subscription("a/*").handler(|_| ()).unwrap().unsubscribe().unwrap();
            }
        };
        (0..cycles / 4).for_each(cycle);
        let (before, threads) = (resident_bytes(), entries("/proc/self/task"));
        (0..cycles).for_each(cycle);
        let grown = resident_bytes().saturating_sub(before);
        println!("{cycles} cycles: {grown} bytes more than after the first {}", cycles / 4);
        assert!(grown < 4 << 20, "{grown} bytes");
        assert_eq!(entries("/proc/self/task"), threads);
        assert_eq!(topics[1].publish("x").unwrap().matched, 0);
    });
}

/// Goal: a hundred subscriptions that have nothing to do use no CPU, waited for or not.
#[test]
fn an_idle_broker_uses_no_cpu() {
    in_a_process_of_its_own("an_idle_broker_uses_no_cpu", || {
        let _watchdog = watchdog::watch(30);
        for sequencer in [Sequencer::Publishers, Sequencer::Pinned { first: 0 }] {
            let broker = Broker::builder().sequencer(sequencer).shards(2).build().unwrap();
            let handlers: Vec<_> = (0..50)
                .map(|n| {
                    let builder = broker.subscription("a");
                    let builder = if n < 10 { builder.dedicated_thread() } else { builder };
                    builder.handler(|_| ()).unwrap()
                })
                .collect();
            let mut pulled: Vec<_> = (0..30).map(|_| broker.subscribe("a").unwrap()).collect();
            thread::scope(|scope| {
                for _ in 0..20 {
                    let mut waiting = broker.subscribe("a").unwrap();
                    scope.spawn(move || while waiting.recv().is_ok() {});
                }
                broker.publish("a", "everybody has had something to do").unwrap();
                // On a busy machine it takes a while until everybody has found that nothing follows:
                // what counts is that it comes to rest.
                let comes_to_rest = (0..5).any(|_| {
                    thread::park_timeout(Duration::from_millis(300));
                    let (began, before) = (Instant::now(), cpu_time());
                    while began.elapsed() < Duration::from_secs(1) {
                        thread::park_timeout(Duration::from_secs(1));
                    }
                    let (used, elapsed) = (cpu_time() - before, began.elapsed());
                    println!("100 idle subscriptions used {used:?} of CPU in {elapsed:?}");
                    used < elapsed / 100
                });
                let all_received =
                    pulled.iter_mut().all(|subscription| subscription.try_recv().is_ok());
                // Before anything is asserted: the waiting threads end with the broker.
                broker.close(LONG);
                assert!(comes_to_rest && all_received, "{all_received}");
            });
            drop(handlers);
        }
    });
}

/// Goal: brokers that come and go leave neither threads nor descriptors behind.
#[test]
fn brokers_that_come_and_go_leave_no_threads_or_descriptors_behind() {
    in_a_process_of_its_own(
        "brokers_that_come_and_go_leave_no_threads_or_descriptors_behind",
        || {
            let watchdog = watchdog::watch(60);
            let (threads, descriptors) = (entries("/proc/self/task"), entries("/proc/self/fd"));
            for round in 0..60 {
                let sequencer = match round % 2 {
                    0 => Sequencer::Publishers,
                    _ => Sequencer::Pinned { first: 0 },
                };
                let broker = Broker::builder().sequencer(sequencer).shards(2).build().unwrap();
                let mut pulled = broker.subscribe("a").unwrap();
                pulled.event_fd().unwrap();
                let dedicated = broker.subscription("a").dedicated_thread();
                let dedicated = dedicated.handler(|_| ()).unwrap();
                let pooled = broker.subscription("a").handler(|_| ()).unwrap();
                broker.subscription("a").handler(|_| ()).unwrap().detach();
                broker.publish("a", "x").unwrap();
                match round % 5 {
                    0 => drop(broker.close(LONG).handler_running.then(|| panic!("none runs"))),
                    1 => drop((pulled, dedicated, pooled)),
                    2 => {
                        drop(broker);
                        drop((dedicated, pooled, pulled));
                    }
                    3 => dedicated.detach(),
                    _ => drop(broker.topic("b").unwrap().publish_ticket("x").unwrap()),
                }
            }
            watchdog.until("all threads are gone", || entries("/proc/self/task") == threads);
            assert_eq!(entries("/proc/self/fd"), descriptors);
        },
    );
}

/// Goal: workers that were started because others were stuck leave when they are not needed.
#[test]
fn extra_workers_leave_when_stuck_handlers_return() {
    in_a_process_of_its_own("extra_workers_leave_when_stuck_handlers_return", || {
        let watchdog = watchdog::watch(60);
        let broker = Broker::builder().workers(1).build().unwrap();
        broker.subscription("warm").handler(|_| ()).unwrap().unsubscribe().unwrap();
        let threads = entries("/proc/self/task");
        let stuck = Arc::new(AtomicUsize::new(0));
        let release = Arc::new(AtomicBool::new(false));
        let _handlers: Vec<_> = (0..10)
            .map(|_| {
                let (stuck, release) = (Arc::clone(&stuck), Arc::clone(&release));
                let handler = move |_: &slipring::Message<'_>| {
                    stuck.fetch_add(1, Ordering::SeqCst);
                    while !release.load(Ordering::SeqCst) {
                        thread::park_timeout(Duration::from_millis(1));
                    }
                };
                broker.subscription("a").handler(handler).unwrap()
            })
            .collect();
        broker.publish("a", "x").unwrap();
        watchdog.until("all are stuck", || stuck.load(Ordering::SeqCst) == 10);
        assert!(entries("/proc/self/task") >= threads + 9);
        release.store(true, Ordering::SeqCst);
        watchdog.until("the extra workers have left", || entries("/proc/self/task") <= threads + 1);
    });
}
