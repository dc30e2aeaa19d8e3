//! What a binding to an interpreter builds on: waits that it can end, one call around many
//! messages, and messages kept together.
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]

mod killed;
mod watchdog;

use slipring::store::{DiskStore, SyncPolicy};
use slipring::{
    Around, Broker, DeliveryMode, NewMessage, Overflow, OwnedMessages, PublishError, Start,
};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use watchdog::watch;

const FOREVER: Duration = Duration::from_secs(3600);

/// A broker with a subscription that blocks, and is full; forget it and nothing is ever taken.
fn full(timeout: Option<Duration>) -> (Broker, slipring::Subscription) {
    let broker = Broker::in_memory();
    let subscription = broker
        .subscription("full")
        .capacity(1)
        .delivery(DeliveryMode::AtMostOnce)
        .overflow(Overflow::Block { timeout })
        .open()
        .expect("the settings hold");
    broker.publish("full", "first").expect("it fits");
    (broker, subscription)
}

#[test]
fn a_wait_for_room_ends_when_it_is_told_to() {
    let _watchdog = watch(60);
    let (broker, mut subscription) = full(None);
    let topic = broker.topic("full").unwrap();
    let asked = Cell::new(0);
    let three_times = || {
        asked.set(asked.get() + 1);
        asked.get() % 3 != 0
    };
    let refused = topic.publish_while("x", None, &three_times);
    assert_eq!(refused, Err(PublishError::Timeout));
    let messages = [NewMessage::new(b"x"); 2];
    let refused = topic.publish_batch_while(&messages, None, &three_times).unwrap_err();
    assert_eq!((refused.receipt.published, refused.reason), (0, PublishError::Timeout));
    let loan = topic.loan(1).unwrap();
    let refused = loan.commit_while(None, &three_times).unwrap_err();
    assert_eq!(refused.reason, PublishError::Timeout);
    assert_eq!(asked.get(), 9);
    // What was refused was not published, and the loan is unharmed.
    assert_eq!(subscription.recv().unwrap().payload(), b"first");
    assert_eq!(refused.loan.unwrap().commit_while(None, &three_times).unwrap().enqueued, 1);
    assert_eq!(subscription.queued(), 1);
}

#[test]
fn who_is_asked_whether_to_go_on_may_call_the_broker() {
    let _watchdog = watch(60);
    let (broker, subscription) = full(None);
    let subscription = Cell::new(Some(subscription));
    let topic = broker.topic("full").unwrap();
    let make_room = || {
        let mut subscription = subscription.take().unwrap();
        assert_eq!(subscription.recv().unwrap().payload(), b"first");
        broker.publish("other", "y").unwrap();
        drop(subscription);
        true
    };
    assert_eq!(topic.publish_while("x", Some(FOREVER), &make_room).unwrap().matched, 0);
}

#[test]
fn being_asked_prolongs_neither_the_wait_nor_the_subscriptions_patience() {
    let _watchdog = watch(60);
    let (broker, _subscription) = full(Some(Duration::from_millis(200)));
    let topic = broker.topic("full").unwrap();
    let began = Instant::now();
    let refused = topic.publish_while("x", Some(Duration::from_millis(120)), &|| true);
    assert_eq!(refused, Err(PublishError::Timeout));
    assert!(began.elapsed() >= Duration::from_millis(120));
    let receipt = topic.publish_while("x", Some(FOREVER), &|| true).unwrap();
    assert_eq!((receipt.enqueued, receipt.dropped), (0, 1));
}

#[test]
fn one_call_goes_around_many_messages_and_none_around_nothing() {
    let _watchdog = watch(60);
    for dedicated in [false, true] {
        let broker = Broker::in_memory();
        let (handled, wait_handled) = mpsc::channel();
        let inside = Arc::new(Mutex::new((false, 0)));
        let (around, within) = (Arc::clone(&inside), inside);
        let (hold, held) = mpsc::channel::<()>();
        let around = Around::new(move |run| {
            {
                let mut inside = around.lock().unwrap();
                *inside = (true, inside.1 + 1);
            }
            run();
            around.lock().unwrap().0 = false;
        });
        let builder = broker.subscription("a").capacity(1024).around(&around);
        let builder = if dedicated { builder.dedicated_thread() } else { builder };
        let _subscription = builder
            .handler(move |message| {
                let (is_inside, calls) = *within.lock().unwrap();
                assert!(is_inside);
                if message.payload() == b"hold" {
                    held.recv().unwrap();
                }
                handled.send(calls).unwrap();
            })
            .unwrap();
        broker.publish("a", "hold").unwrap();
        broker.topic("a").unwrap().publish_batch(&[NewMessage::new(b"x"); 100]).unwrap();
        hold.send(()).unwrap();
        for _ in 0..101 {
            assert!(wait_handled.recv().unwrap() <= 2, "one call for many messages");
        }
    }
}

#[test]
fn one_call_goes_around_the_messages_of_all_subscriptions_that_share_it() {
    let _watchdog = watch(60);
    let broker = Broker::builder().workers(1).build().unwrap();
    let (hold, held) = mpsc::channel::<()>();
    let _holds = broker.subscription("hold").handler(move |_| _ = held.recv()).unwrap();
    let (handled, wait_handled) = mpsc::channel();
    let calls = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
    let arounds = calls.clone().map(|calls| {
        Around::new(move |run| {
            calls.fetch_add(1, Ordering::SeqCst);
            run();
        })
    });
    let subscriptions: Vec<_> = (0..10)
        .map(|number| {
            let handled = handled.clone();
            let builder = broker.subscription("a").around(&arounds[number / 8]);
            builder.handler(move |_| handled.send(number).unwrap()).unwrap()
        })
        .collect();
    loop {
        calls.iter().for_each(|calls| calls.store(0, Ordering::SeqCst));
        // Were the worker not busy, it would begin with the first subscription's.
        broker.publish("hold", "x").unwrap();
        broker.topic("a").unwrap().publish_batch(&[NewMessage::new(b"x"); 100]).unwrap();
        hold.send(()).unwrap();
        let mut counts = [0; 10];
        for _ in 0..10 * 100 {
            counts[wait_handled.recv().unwrap()] += 1;
        }
        assert_eq!(counts, [100; 10]);
        // On a machine that others use, it may take so long that more workers come to help.
        if calls.each_ref().map(|calls| calls.load(Ordering::SeqCst)) == [1, 1] {
            break;
        }
    }
    drop(subscriptions);
}

/// How often it was waited.
#[derive(Default, Clone)]
struct Waited(Arc<Mutex<u32>>);

impl Waited {
    fn broker(&self) -> slipring::BrokerBuilder {
        let counted = Arc::clone(&self.0);
        Broker::builder().memory_budget(256 << 10).around_waits(move |wait| {
            *counted.lock().expect("nobody panics") += 1;
            wait();
        })
    }

    fn take(&self) -> u32 {
        std::mem::take(&mut self.0.lock().expect("nobody panics"))
    }
}

#[test]
fn a_call_goes_around_reads_of_the_disk_and_not_around_what_is_in_memory() {
    let _watchdog = watch(60);
    let dir = tempfile::tempdir().unwrap();
    let waited = Waited::default();
    let disk = DiskStore::builder().sync(SyncPolicy::Os).preallocate_bytes(0).reserve_bytes(0);
    let broker = waited.broker().disk(disk).open(dir.path()).unwrap();
    let topic = broker.topic("a").unwrap();
    let of_the_past = || broker.subscription("a").delivery(DeliveryMode::AtMostOnce);
    let mut live = of_the_past().open().unwrap();
    topic.publish("live").unwrap();
    assert_eq!(live.recv().unwrap().payload(), b"live");
    assert_eq!(waited.take(), 0);
    for _ in 0..64 {
        topic.publish(&[0; 16 << 10]).unwrap();
    }
    assert_eq!(waited.take(), 0);
    let mut behind = of_the_past().start(Start::Earliest).open().unwrap();
    assert_eq!(behind.recv().unwrap().payload(), b"live");
    assert!(waited.take() > 0);
    let (tell, told) = mpsc::channel();
    let tell = move |_: &slipring::Message<'_>| tell.send(()).unwrap();
    let _handler = of_the_past().start(Start::Earliest).handler(tell).unwrap();
    told.recv().unwrap();
    assert!(waited.take() > 0);
}

/// Goal: an interpreter's lock is not held while another thread has the journal.
#[test]
fn a_call_goes_around_the_notes_of_what_the_process_before_may_have_died_of() {
    let _watchdog = watch(60);
    let dir = tempfile::tempdir().unwrap();
    let waited = Waited::default();
    let disk = || DiskStore::builder().sync(SyncPolicy::Os).preallocate_bytes(0).reserve_bytes(0);
    let jobs = |broker: &Broker| broker.subscription("a").name("s").open().unwrap();
    let before = Broker::builder().disk(disk()).open(dir.path()).unwrap();
    drop(jobs(&before));
    before.publish("a", "suspect").unwrap();
    let left = killed::what_a_kill_leaves(dir.path());
    let broker = waited.broker().disk(disk()).open(left.path()).unwrap();
    broker.publish("a", "new").unwrap();
    let mut jobs = jobs(&broker);
    waited.take();
    let suspect = jobs.recv().unwrap().keep();
    assert_eq!(suspect.payload(), b"suspect");
    assert!(waited.take() > 0, "as it is read, and handed over");
    suspect.view().ack().unwrap();
    assert_eq!(waited.take(), 1, "as it is settled");
    jobs.recv().unwrap().ack().unwrap();
    assert_eq!(waited.take(), 0);
}

#[test]
fn a_call_goes_around_the_storing_of_a_dead_letter_wherever_that_happens() {
    let watchdog = watch(60);
    let waited = Waited::default();
    let clock = slipring::TestClock::new();
    let broker = waited.broker().clock(&clock).build().unwrap();
    let all = || broker.subscription("a").name("s").max_delivery_attempts(1);
    let mut jobs = all().open().unwrap();
    for reason in ["settling", "giving back", "receiving", "a handler's"] {
        broker.publish("a", reason).unwrap();
    }
    jobs.recv().unwrap().dead_letter("no").unwrap();
    assert_eq!(waited.take(), 1);
    jobs.recv().unwrap().nack(None).unwrap();
    assert_eq!(waited.take(), 1);
    jobs.recv().unwrap();
    clock.advance(FOREVER);
    assert_eq!(jobs.recv().unwrap().payload(), b"a handler's");
    assert_eq!(waited.take(), 1);
    drop(jobs);
    clock.advance(FOREVER);
    let (tell, told) = mpsc::channel();
    let tell = move |_: &slipring::Message<'_>| tell.send(()).unwrap();
    let _handler = all().handler(tell).unwrap();
    watchdog.until("its former consumer's is a dead letter", || waited.take() == 1);
    assert!(told.try_recv().is_err());
}

#[test]
fn a_panic_around_a_handler_harms_nobody() {
    let watchdog = watch(60);
    let broker = Broker::in_memory();
    let (handled, wait_handled) = mpsc::channel();
    let is_first = AtomicBool::new(true);
    let around = Around::new(move |run| {
        assert!(!is_first.swap(false, Ordering::Relaxed), "on purpose");
        run();
    });
    let _subscription = broker
        .subscription("a")
        .around(&around)
        .handler(move |_| handled.send(()).unwrap())
        .unwrap();
    broker.publish("a", "x").unwrap();
    watchdog.until("it is called again", || wait_handled.try_recv().is_ok());
}

/// Goal: who ends a handler with a deadline is told when it does not run any more, and not when its
/// worker gets inside again, or at the deadline.
#[test]
fn the_end_of_a_handler_is_told_though_its_worker_is_kept_outside() {
    let _watchdog = watch(100);
    let broker = Broker::in_memory();
    let inside = Arc::new(Mutex::new(()));
    let others = Arc::clone(&inside);
    let around = Around::new(move |run| {
        let _inside = others.lock().unwrap();
        run();
    });
    for round in 0..2000 {
        let subscription = broker.subscription("a").around(&around);
        let subscription =
            if round % 2 == 0 { subscription } else { subscription.dedicated_thread() };
        let handled = subscription.handler(|_| ()).unwrap();
        broker.publish("a", "x").unwrap();
        // Somewhere between two looks of the worker.
        (0..round).for_each(|_| std::hint::spin_loop());
        let kept_outside = inside.lock().unwrap();
        let began = Instant::now();
        handled.unsubscribe_timeout(Duration::from_secs(10)).unwrap();
        assert!(began.elapsed() < Duration::from_secs(9), "round {round}");
        drop(kept_outside);
    }
}

#[test]
fn messages_kept_together_outlive_the_broker_and_give_their_memory_back() {
    let broker = Broker::builder().memory_budget(1 << 20).build().unwrap();
    let topic = broker.topic("a").unwrap();
    let mut subscription = broker.subscription("a").capacity(4096).open().unwrap();
    let payloads: Vec<_> = (0..1000_u32).map(|n| [n.to_le_bytes(); 16].concat()).collect();
    let messages: Vec<_> = payloads.iter().map(NewMessage::from).collect();
    topic.publish_batch(&messages).unwrap();
    let mut kept = OwnedMessages::default();
    while kept.len() < 1000 {
        subscription.poll(64, |message| kept.push(message)).unwrap();
    }
    let filler = vec![0; 60_000];
    for _ in 0..100 {
        topic.publish(&filler).unwrap();
    }
    let expired: Vec<_> = kept.iter().map(|message| message.payload().to_vec()).collect();
    assert_eq!(expired, payloads);
    let with_them = broker.metrics().chunk_bytes;
    drop(kept);
    let without = broker.metrics().chunk_bytes;
    assert!(without < with_them, "{without} of {with_them} bytes");
    let mut kept = OwnedMessages::default();
    let mut late = broker.subscribe("a").unwrap();
    topic.publish("last").unwrap();
    late.poll(1, |message| kept.push(message)).unwrap();
    drop((late, subscription, topic, broker));
    assert_eq!(kept.get(0).unwrap().payload(), b"last");
    assert_eq!(kept.get(0).unwrap().topic(), "a");
    assert!(kept.get(1).is_none());
}

#[test]
#[should_panic(expected = "two brokers")]
fn messages_of_two_brokers_are_not_kept_together() {
    let mut kept = OwnedMessages::default();
    for _ in 0..2 {
        let broker = Broker::in_memory();
        let mut subscription = broker.subscribe("a").unwrap();
        broker.publish("a", "x").unwrap();
        kept.push(&subscription.recv().unwrap());
    }
}
