//! The contract of subscribing: patterns, names, every way to receive, waiting, event descriptors.
#![expect(unsafe_code, reason = "poll(2) asks whether a descriptor is readable")]

mod watchdog;

use futures::StreamExt;
use futures::executor::block_on;
use slipring::{
    Broker, DeliveryMode, NewMessage, Overflow, OwnedMessage, RecvError, Start, SubscribeError,
    Subscription, TestClock, TryRecvError, WaitStrategy,
};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Whether `fd` is readable within `timeout_ms` (-1: as long as it takes).
fn readable_within(fd: BorrowedFd<'_>, timeout_ms: i32) -> bool {
    let mut asked = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, as said.
    let count = unsafe { libc::poll(&raw mut asked, 1, timeout_ms) };
    assert!(count >= 0 && asked.revents & !libc::POLLIN == 0, "poll fails: {}", asked.revents);
    count == 1
}

fn is_readable(subscription: &mut Subscription) -> bool {
    readable_within(subscription.event_fd().expect("a descriptor"), 0)
}

fn publish_numbers(broker: &Broker, topic: &str, numbers: std::ops::Range<u64>) {
    for number in numbers {
        broker.publish(topic, &number.to_le_bytes()).expect("publishes");
    }
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload.try_into().expect("8 bytes"))
}

/// Goal: all ways to receive take from one stream, in order, nothing twice.
#[test]
fn every_way_to_receive_takes_from_the_same_stream() {
    let _watchdog = watchdog::watch(30);
    for shards in [1, 3] {
        let broker = Broker::builder().shards(shards).build().unwrap();
        let mut subscription = broker.subscribe("a").unwrap();
        publish_numbers(&broker, "a", 0..40);
        let mut seen = Vec::new();
        seen.push(number(subscription.recv().unwrap().payload()));
        seen.push(number(subscription.try_recv().unwrap().payload()));
        let message = subscription.recv_timeout(Duration::from_secs(5)).unwrap().unwrap();
        seen.push(number(message.payload()));
        let batch = subscription.recv_batch(5).unwrap();
        assert_eq!(batch.len(), 5);
        seen.extend(batch.iter().map(|message| number(message.payload())));
        let mut batch = subscription.try_recv_batch(2).unwrap();
        while let Some(message) = batch.next() {
            seen.push(number(message.payload()));
        }
        let polled = subscription.poll(7, |message| seen.push(number(message.payload()))).unwrap();
        assert_eq!(polled, 7);
        for message in subscription.iter().take(3) {
            seen.push(number(message.unwrap().payload()));
        }
        for message in (&mut subscription).into_iter().take(1) {
            seen.push(number(message.unwrap().payload()));
        }
        let streamed: Vec<_> = block_on(subscription.by_ref().take(4).collect());
        seen.extend(streamed.iter().map(|message| number(message.as_ref().unwrap().payload())));
        assert!(subscription.wait_timeout(Duration::ZERO).unwrap());
        subscription.wait().unwrap();
        subscription.poll(1000, |message| seen.push(number(message.payload()))).unwrap();
        assert_eq!(seen, (0..40).collect::<Vec<_>>());

        assert_eq!(subscription.try_recv().unwrap_err(), TryRecvError::Empty);
        assert!(subscription.recv_timeout(Duration::ZERO).unwrap().is_none());
        assert!(subscription.try_recv_batch(5).unwrap().is_empty());
        assert_eq!(subscription.poll(5, |_| panic!("nothing is there")).unwrap(), 0);
        assert!(!subscription.wait_timeout(Duration::ZERO).unwrap());
    }
}

/// Goal: asking for nothing takes nothing and tells nothing.
#[test]
fn asking_for_no_message_takes_none() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let mut subscription = broker.subscribe("a").unwrap();
    publish_numbers(&broker, "a", 0..2);
    assert!(subscription.recv_batch(0).unwrap().is_empty());
    assert!(subscription.try_recv_batch(0).unwrap().is_empty());
    assert_eq!(subscription.poll(0, |_| panic!("none was asked for")), Ok(0));
    assert_eq!(subscription.queued(), 2);
    broker.close(Duration::ZERO);
    assert_eq!(subscription.poll(0, |_| panic!("none was asked for")), Ok(0), "two are queued");
    assert_eq!(subscription.poll(9, |_| ()), Ok(2));
    assert_eq!(subscription.poll(9, |_| ()), Err(RecvError::Closed));
}

/// Goal: whoever waits, in whatever way and with whatever strategy, is woken by a message.
#[test]
fn every_way_to_wait_is_woken_by_a_message_with_every_strategy() {
    let _watchdog = watchdog::watch(60);
    type Receive = fn(&mut Subscription) -> u64;
    let ways: [(&str, Receive); 6] = [
        ("recv", |s| number(s.recv().unwrap().payload())),
        ("recv_timeout", |s| {
            number(s.recv_timeout(Duration::from_secs(30)).unwrap().unwrap().payload())
        }),
        ("recv_batch", |s| number(s.recv_batch(1).unwrap().next().unwrap().payload())),
        ("wait", |s| {
            s.wait().unwrap();
            number(s.try_recv().unwrap().payload())
        }),
        ("stream", |s| number(block_on(s.next()).unwrap().unwrap().payload())),
        ("event", |s| {
            while !readable_within(s.event_fd().unwrap(), -1) {}
            number(s.try_recv().unwrap().payload())
        }),
    ];
    let strategies =
        [WaitStrategy::Adaptive, WaitStrategy::Park, WaitStrategy::Yield, WaitStrategy::BusySpin];
    for strategy in strategies {
        for (name, receive) in ways {
            let broker = Broker::builder().shards(2).build().unwrap();
            let mut subscription = broker.subscription("*").wait(strategy).open().unwrap();
            let (told, tell) = channel();
            thread::scope(|scope| {
                scope.spawn(move || {
                    for _ in 0..200 {
                        told.send(receive(&mut subscription)).unwrap();
                    }
                });
                // Each message is sent when the one before has been received: the receiver is
                // about to wait, or waits already.
                for expected in 0..200 {
                    publish_numbers(
                        &broker,
                        ["a", "b"][expected as usize % 2],
                        expected..expected + 1,
                    );
                    assert_eq!(tell.recv().unwrap(), expected, "{name}, {strategy:?}");
                }
            });
        }
    }
}

/// Goal: a bounded wait ends by the broker's clock, not before.
#[test]
fn a_bounded_wait_ends_when_the_clock_says_so() {
    let _watchdog = watchdog::watch(30);
    let clock = TestClock::new();
    let broker = Broker::builder().clock(&clock).build().unwrap();
    let mut subscription = broker.subscribe("a").unwrap();
    let (told, tell) = channel();
    thread::spawn(move || {
        let nothing = subscription.recv_timeout(Duration::from_secs(3600)).unwrap().is_none();
        told.send(nothing).unwrap();
        told.send(!subscription.wait_timeout(Duration::from_secs(3600)).unwrap()).unwrap();
    });
    for _ in 0..2 {
        let mut steps = 0;
        let ended = loop {
            if let Ok(ended) = tell.try_recv() {
                break ended;
            }
            clock.advance(Duration::from_secs(60));
            steps += 1;
            thread::yield_now();
        };
        assert!(ended && steps >= 60, "an hour is 60 steps of a minute, it was {steps}");
    }
    let broker = Broker::in_memory();
    let mut subscription = broker.subscribe("a").unwrap();
    let (began, timeout) = (Instant::now(), Duration::from_millis(20));
    assert!(subscription.recv_timeout(timeout).unwrap().is_none() && began.elapsed() >= timeout);
}

/// Goal: however many patterns match, and in however many ways, a message comes once.
#[test]
fn overlapping_patterns_deliver_a_message_once() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let mut subscription = broker
        .subscription("a/b")
        .pattern("a/*")
        .pattern("**")
        .pattern("**/b")
        .pattern("a/**/b")
        .pattern("**/*/**")
        .pattern("a/b")
        .open()
        .unwrap();
    assert_eq!(broker.publish("a/b", "x").unwrap().matched, 1);
    assert_eq!(broker.publish("c", "y").unwrap().matched, 1);
    assert_eq!(subscription.recv().unwrap().payload(), b"x");
    assert_eq!(subscription.recv().unwrap().payload(), b"y");
    assert_eq!(subscription.try_recv().unwrap_err(), TryRecvError::Empty);
    drop(subscription);
    assert_eq!(broker.publish("a/b", "x").unwrap().matched, 0, "all its patterns are gone");
    assert_eq!(broker.publish("c", "y").unwrap().matched, 0);
}

/// Goal: a topic need not exist when somebody subscribes to it.
#[test]
fn patterns_see_topics_that_are_created_later() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::builder().shards(3).build().unwrap();
    let mut wild = broker.subscribe("a/**").unwrap();
    let mut exact = broker.subscribe("a/7").unwrap();
    for n in 0..20 {
        assert_eq!(broker.publish(&format!("a/{n}"), "x").unwrap().matched, 1 + u64::from(n == 7));
    }
    let mut topics: Vec<String> =
        (0..20).map(|_| wild.recv().unwrap().topic().to_owned()).collect();
    topics.sort_unstable();
    topics.dedup();
    assert_eq!(topics.len(), 20);
    assert_eq!(exact.recv().unwrap().topic(), "a/7");
}

/// Goal: a wildcard at the beginning does not reach the system's topics, a literal does.
#[test]
fn a_leading_wildcard_does_not_match_system_topics() {
    let _watchdog = watchdog::watch(30);
    assert!(!slipring::Pattern::new("**").unwrap().matches("$sys/a"));
    assert!(slipring::Pattern::new("$sys/**").unwrap().matches("$sys/a"));
    assert!(Broker::in_memory().subscribe("$dlq/orders").is_ok(), "users may subscribe to them");
}

/// Goal: once `subscribe` has returned, no later publish of any thread misses the subscription.
#[test]
fn a_publish_that_starts_after_subscribe_has_returned_is_seen() {
    let _watchdog = watchdog::watch(60);
    let broker = Broker::builder().shards(2).build().unwrap();
    let (to_publisher, told) = channel::<u64>();
    let publisher = broker.clone();
    let noise = broker.clone();
    thread::scope(|scope| {
        let (done, is_done) = channel::<u64>();
        scope.spawn(move || {
            let topics = [publisher.topic("a").unwrap(), publisher.topic("b").unwrap()];
            for round in told {
                let receipt = topics[round as usize % 2].publish(&round.to_le_bytes()).unwrap();
                done.send(receipt.matched).unwrap();
            }
        });
        // Others publish all the time, so that routes are resolved while they change.
        let (stop, stopped) = channel::<()>();
        scope.spawn(move || {
            let topic = noise.topic("b").unwrap();
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                topic.publish(&u64::MAX.to_le_bytes()).unwrap();
            }
        });
        for round in 0..2000 {
            let mut subscription = broker.subscribe(["a", "*"][round as usize / 2 % 2]).unwrap();
            if subscription.try_recv().is_ok() {
                // The noise: a pattern that sees it.
            }
            to_publisher.send(round).unwrap();
            let matched = is_done.recv().unwrap();
            let wants = round / 2 % 2 == 1 || round % 2 == 0;
            assert_eq!(matched, u64::from(wants), "round {round}");
            drop(subscription);
        }
        drop(stop);
        drop(to_publisher);
    });
}

/// Goal: a name is unique while its subscription lives, and checked.
#[test]
fn names_are_unique_and_checked() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let open = |name| broker.subscription("a").name(name).open();
    let longest = "x".repeat(255);
    let first = open("orders.v1_~+%-").unwrap();
    assert_eq!(first.name(), Some("orders.v1_~+%-"));
    assert_eq!(broker.subscribe("a").unwrap().name(), None);
    assert_ne!(first.id(), broker.subscribe("a").unwrap().id());
    assert_eq!(open("orders.v1_~+%-").unwrap_err(), SubscribeError::NameInUse);
    let handler = broker.subscription("a").name("orders.v1_~+%-").handler(|_| ());
    assert_eq!(handler.unwrap_err(), SubscribeError::NameInUse);
    drop(first);
    let handler = broker.subscription("a").name("orders.v1_~+%-").handler(|_| ()).unwrap();
    assert_eq!(open("orders.v1_~+%-").unwrap_err(), SubscribeError::NameInUse);
    handler.unsubscribe().unwrap();
    assert!(open("orders.v1_~+%-").is_ok() && open(&longest).is_ok());
    let too_long = format!("{longest}x");
    for (name, position) in [("", 0), ("a b", 1), ("a/b", 1), ("ä", 0), (&*too_long, 255)] {
        let refused = SubscribeError::InvalidSubscriptionName { position };
        assert_eq!(open(name).unwrap_err(), refused, "{name:?}");
    }
}

/// Goal: bad patterns, filters and capacities are refused, and nothing of them stays.
#[test]
fn bad_subscriptions_are_refused_and_leave_nothing_behind() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    for pattern in ["", "a//b", "/a", "a*", "a/**b", "***"] {
        assert!(matches!(broker.subscribe(pattern), Err(SubscribeError::InvalidPattern(_))));
        let second = broker.subscription("a").pattern(pattern).open();
        assert!(matches!(second, Err(SubscribeError::InvalidPattern(_))), "{pattern}");
    }
    let filtered = broker.subscription("a").name("n").filter("attributes.k = ").open();
    assert!(matches!(filtered, Err(SubscribeError::InvalidFilter(_))));
    for requested in [0, (1 << 24) + 1] {
        let error = broker.subscription("a").name("n").capacity(requested).open().unwrap_err();
        let (setting, min, max) = ("capacity", 1, 1 << 24);
        assert_eq!(error, SubscribeError::OutOfRange { setting, min, max });
    }
    assert_eq!(broker.publish("a", "x").unwrap().matched, 0);
    assert!(broker.subscription("a").name("n").open().is_ok(), "the name was not taken");
}

/// Goal: a kept message is the same bytes at the same place, whatever else ends.
#[test]
fn kept_messages_outlive_batch_subscription_and_broker() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::builder().memory_budget(1 << 20).build().unwrap();
    let mut subscription = broker.subscribe("a").unwrap();
    publish_numbers(&broker, "a", 0..100);
    let mut kept: Vec<OwnedMessage> = Vec::new();
    kept.push(subscription.recv().unwrap().keep());
    kept.extend(subscription.recv_batch(9).unwrap().iter().map(|message| message.keep()));
    subscription.poll(10, |message| kept.push(message.keep())).unwrap();
    let in_place = kept[0].payload().as_ptr();
    let big = vec![0xAA; 60 << 10];
    for _ in 0..100 {
        broker.publish("a", &big).unwrap();
    }
    drop(subscription);
    drop(broker);
    for (n, message) in kept.iter().enumerate() {
        assert_eq!((number(message.payload()), message.topic()), (n as u64, "a"));
    }
    assert_eq!(kept[0].clone().payload().as_ptr(), in_place, "keeping copies nothing");
    let elsewhere = kept.pop().unwrap();
    thread::spawn(move || drop(elsewhere)).join().unwrap();
}

/// Goal: attributes can be read without the message being copied, as often as one likes.
#[test]
fn a_batch_can_be_read_in_place_any_number_of_times() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let mut subscription = broker.subscribe("a").unwrap();
    for n in 0..3u64 {
        let name = n.to_string();
        let attributes = [("n", name.as_str())];
        broker.publish("a", NewMessage::new(b"x").attributes(&attributes)).unwrap();
    }
    let batch = subscription.recv_batch(10).unwrap();
    for _ in 0..2 {
        let names: Vec<_> = batch.iter().map(|message| message.attribute("n").unwrap()).collect();
        assert_eq!(names, ["0", "1", "2"]);
    }
}

/// Goal: the descriptor is readable exactly while something can be received.
#[test]
fn the_event_descriptor_is_readable_exactly_while_something_can_be_received() {
    let _watchdog = watchdog::watch(30);
    for shards in [1, 3] {
        let broker = Broker::builder().shards(shards).build().unwrap();
        let mut subscription = broker.subscribe("*").unwrap();
        // Queued before it was asked for.
        broker.publish("a", "1").unwrap();
        assert!(is_readable(&mut subscription));
        assert!(is_readable(&mut subscription), "level-triggered: still so");
        broker.publish("b", "2").unwrap();
        subscription.recv().unwrap();
        assert!(is_readable(&mut subscription), "one is left");
        subscription.recv().unwrap();
        assert!(!is_readable(&mut subscription), "at once when the last one is taken");
        assert_eq!(subscription.try_recv().unwrap_err(), TryRecvError::Empty);
        assert!(!is_readable(&mut subscription));
        for way in 0..4 {
            broker.publish("c", "3").unwrap();
            broker.publish("a", "4").unwrap();
            assert!(is_readable(&mut subscription), "way {way}");
            match way {
                0 => drop(subscription.poll(2, |_| ()).unwrap()),
                1 => _ = block_on(subscription.by_ref().take(2).collect::<Vec<_>>()),
                2 => _ = subscription.iter().take(2).count(),
                _ => {
                    while subscription.queued() > 0 {
                        let _ = subscription.recv_batch(2).unwrap();
                    }
                }
            }
            assert!(!is_readable(&mut subscription), "way {way}, {shards} shards");
        }
        assert_eq!(subscription.as_raw_fd(), subscription.event_fd().unwrap().as_raw_fd());
        broker.close(Duration::ZERO);
        assert!(is_readable(&mut subscription), "the end can be received");
        assert_eq!(subscription.recv().unwrap_err(), RecvError::Closed);
        assert!(is_readable(&mut subscription), "and again");
    }
}

/// Goal: a loss is something to receive.
#[test]
fn the_event_descriptor_is_readable_for_a_loss() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let once = broker.subscription("a").delivery(DeliveryMode::AtMostOnce);
    let mut subscription = once.capacity(1).open().unwrap();
    assert!(!is_readable(&mut subscription));
    publish_numbers(&broker, "a", 0..3);
    subscription.recv().unwrap();
    assert!(is_readable(&mut subscription), "two were lost");
    assert_eq!(subscription.try_recv().unwrap_err(), TryRecvError::Recv(RecvError::Lagged(2)));
    assert!(!is_readable(&mut subscription));
}

/// Goal: a subscription that begins in the past is readable only if there is something of it.
#[test]
fn the_event_descriptor_of_a_replay_is_readable_only_if_there_is_something() {
    let _watchdog = watchdog::watch(30);
    for shards in [1, 3] {
        let broker = Broker::builder().shards(shards).build().unwrap();
        publish_numbers(&broker, "a", 0..10);
        let open = |pattern| broker.subscription(pattern).start(Start::Earliest).open().unwrap();
        let (mut nothing, mut ten) = (open("nothing"), open("a"));
        assert!(!is_readable(&mut nothing), "{shards} shards");
        assert!(!nothing.wait_timeout(Duration::ZERO).unwrap());
        assert!(is_readable(&mut ten));
        for _ in 0..10 {
            assert!(is_readable(&mut ten));
            ten.recv().unwrap();
        }
        assert!(!is_readable(&mut ten), "{shards} shards");
        assert!(!ten.wait_timeout(Duration::ZERO).unwrap());
        publish_numbers(&broker, "nothing", 0..1);
        assert!(is_readable(&mut nothing) && !is_readable(&mut ten));
    }
}

/// Goal: who waits with poll(2) alone misses nothing, however fast others publish.
#[test]
fn a_loop_over_the_event_descriptor_loses_no_wake_up() {
    let _watchdog = watchdog::watch(60);
    let broker = Broker::builder().shards(2).build().unwrap();
    let once = broker.subscription("*").delivery(DeliveryMode::AtMostOnce);
    let mut subscription = once.capacity(1 << 15).open().unwrap();
    thread::scope(|scope| {
        for topic in ["a", "b"] {
            let broker = &broker;
            scope.spawn(move || publish_numbers(broker, topic, 0..10_000));
        }
        let mut received = 0;
        while received < 20_000 {
            assert!(readable_within(subscription.event_fd().unwrap(), 20_000), "at {received}");
            received += subscription.poll(64, |_| ()).unwrap();
        }
    });
}

/// Goal: the stream is pending without a message, and woken by one, by the end, by a loss.
#[test]
fn the_stream_gives_messages_losses_and_the_end() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let once = broker.subscription("a").delivery(DeliveryMode::AtMostOnce);
    let mut subscription = once.capacity(2).open().unwrap();
    assert!(futures::FutureExt::now_or_never(subscription.next()).is_none());
    publish_numbers(&broker, "a", 0..5);
    let others = broker.clone();
    let closes = thread::spawn(move || others.close(Duration::ZERO));
    let all: Vec<Result<u64, RecvError>> = block_on(
        subscription.by_ref().map(|item| item.map(|message| number(message.payload()))).collect(),
    );
    assert_eq!(all, [Ok(0), Ok(1), Err(RecvError::Lagged(3))]);
    assert!(block_on(subscription.next()).is_none(), "it has ended for good");
    closes.join().unwrap();
}

/// Goal: a subscription may move between threads while it is in use.
#[test]
fn a_subscription_may_move_between_threads() {
    let _watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let mut subscription = broker.subscribe("a").unwrap();
    for round in 0..20 {
        publish_numbers(&broker, "a", round..round + 1);
        subscription = thread::spawn(move || {
            assert_eq!(number(subscription.recv().unwrap().payload()), round);
            subscription
        })
        .join()
        .unwrap();
    }
}

/// Goal: while a message is looked at in place, the broker can be called.
#[test]
fn the_broker_may_be_called_from_inside_a_poll() {
    let _watchdog = watchdog::watch(30);
    for overflow in [Overflow::DropNewest, Overflow::DropOldest] {
        let broker = Broker::in_memory();
        let mut subscription = broker
            .subscription("*")
            .delivery(DeliveryMode::AtMostOnce)
            .overflow(overflow)
            .capacity(4)
            .open()
            .unwrap();
        publish_numbers(&broker, "a", 0..3);
        let mut seen = Vec::new();
        for _ in 0..2 {
            subscription
                .poll(10, |message| {
                    let number = number(message.payload());
                    seen.push(number);
                    if number < 3 {
                        publish_numbers(&broker, "b", 10 + number..11 + number);
                    }
                    drop(broker.subscribe("b").unwrap());
                })
                .unwrap();
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 10, 11, 12], "{overflow:?}");
    }
}

/// Goal: a panic while a message is looked at takes that message and nothing else.
#[test]
fn a_panic_inside_a_poll_takes_one_message() {
    let _watchdog = watchdog::watch(30);
    for (overflow, capacity) in
        [(Overflow::DropNewest, 8), (Overflow::DropNewest, 1000), (Overflow::DropOldest, 8)]
    {
        let broker = Broker::in_memory();
        let mut subscription = broker
            .subscription("a")
            .delivery(DeliveryMode::AtMostOnce)
            .overflow(overflow)
            .capacity(capacity)
            .open()
            .unwrap();
        publish_numbers(&broker, "a", 0..8);
        let mut seen = Vec::new();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            subscription.poll(10, |message| match number(message.payload()) {
                2 => std::panic::resume_unwind(Box::new("while polling")),
                number => seen.push(number),
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(subscription.queued(), 5, "{overflow:?}");
        publish_numbers(&broker, "a", 8..9);
        subscription.poll(10, |message| seen.push(number(message.payload()))).unwrap();
        assert_eq!(seen, [0, 1, 3, 4, 5, 6, 7, 8], "{overflow:?}");
    }
}

/// Goal: dropping a subscription while others publish ends it, with what it held.
#[test]
fn a_dropped_subscription_is_matched_no_more() {
    let watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let stays = broker.subscribe("a").unwrap();
    let goes = broker.subscribe("a").unwrap();
    assert_eq!(broker.publish("a", "x").unwrap().matched, 2);
    drop(goes);
    let receipt = broker.publish("a", "x").unwrap();
    assert_eq!((receipt.matched, receipt.enqueued, receipt.dropped), (1, 1, 0));
    watchdog.until("both are queued", || stays.queued() == 2);
}

/// Goal: a subscription that is dropped inside a filter, which holds a shard, ends all the same.
#[test]
fn a_subscription_dropped_inside_a_filter_ends_without_a_hang() {
    let watchdog = watchdog::watch(30);
    let broker = Broker::in_memory();
    let victim = std::sync::Mutex::new(Some(broker.subscribe("a").unwrap()));
    let handled = broker.subscription("a").handler(|_| {}).unwrap();
    let other_victim = std::sync::Mutex::new(Some(handled));
    let _filtering = broker
        .subscription("a")
        .filter_fn(move |_| {
            drop(victim.lock().unwrap().take());
            drop(other_victim.lock().unwrap().take());
            true
        })
        .open()
        .unwrap();
    broker.publish("a", "x").unwrap();
    watchdog.until("both have ended", || broker.metrics().subscriptions.len() == 1);
    assert_eq!(broker.publish("a", "y").unwrap().matched, 1);
}
