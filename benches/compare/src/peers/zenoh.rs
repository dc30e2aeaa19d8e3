//! zenoh in one session: routing by key expression, without a network between the two ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use zenoh::handlers::{FifoChannel, FifoChannelHandler};
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::sample::Sample;
use zenoh::{Config, Session, Wait};

use crate::harness::{
    CAPACITY, Latencies, Tally, drain_all, pair, payload, ping_pong, pinned, sequence_of, spin_for,
};

const TOPIC: &str = "bench/topic";
const PATTERN: &str = "bench/*";

fn session() -> Session {
    let mut config = Config::default();
    for (key, value) in [
        ("mode", "\"peer\""),
        ("scouting/multicast/enabled", "false"),
        ("scouting/gossip/enabled", "false"),
        ("listen/endpoints", "[]"),
        ("connect/endpoints", "[]"),
    ] {
        config.insert_json5(key, value).expect("a valid setting");
    }
    zenoh::open(config).wait().expect("a session without network opens")
}

fn publisher<'a>(session: &'a Session, topic: &'static str) -> Publisher<'a> {
    session
        .declare_publisher(topic)
        .congestion_control(CongestionControl::Block)
        .wait()
        .expect("a publisher is declared")
}

fn fifo(session: &Session, pattern: &'static str) -> Subscriber<FifoChannelHandler<Sample>> {
    session
        .declare_subscriber(pattern)
        .with(FifoChannel::new(CAPACITY))
        .wait()
        .expect("a subscriber is declared")
}

/// Callbacks: zenoh runs them in the publishing thread, there is no queue.
pub(crate) fn callbacks(messages: u64, subscribers: u64) -> Duration {
    let session = session();
    let (count, sum) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let declared: Vec<_> = (0..subscribers)
        .map(|_| {
            let (count, sum) = (Arc::clone(&count), Arc::clone(&sum));
            session
                .declare_subscriber(PATTERN)
                .callback(move |sample| {
                    let number = sequence_of(sample.payload().to_bytes());
                    sum.fetch_add(number, Ordering::Relaxed);
                    count.fetch_add(1, Ordering::Relaxed);
                })
                .wait()
                .expect("a subscriber is declared")
        })
        .collect();
    let publisher = publisher(&session, TOPIC);
    let elapsed = pinned(|| {
        let began = Instant::now();
        for sequence in 0..messages {
            publisher.put(payload(sequence).as_slice()).wait().expect("it is published");
        }
        began.elapsed()
    });
    let seen = Tally { count: count.load(Ordering::Acquire), sum: sum.load(Ordering::Acquire) };
    assert_eq!(seen, Tally::of(messages, subscribers), "zenoh lost messages");
    drop((declared, publisher));
    session.close().wait().expect("the session closes");
    elapsed
}

/// A queue a subscriber, polled by another thread.
pub(crate) fn queues(messages: u64, subscribers: u64) -> Duration {
    let session = session();
    let mut declared: Vec<_> = (0..subscribers).map(|_| fifo(&session, PATTERN)).collect();
    let publisher = publisher(&session, TOPIC);
    let expected = Tally::of(messages, subscribers);
    let elapsed = pair(
        expected,
        || {
            for sequence in 0..messages {
                publisher.put(payload(sequence).as_slice()).wait().expect("it is published");
            }
        },
        || {
            drain_all(expected.count, &mut declared, |subscriber| {
                let sample = subscriber.try_recv().ok().flatten()?;
                Some(sequence_of(sample.payload().to_bytes()))
            })
        },
    );
    drop((declared, publisher));
    session.close().wait().expect("the session closes");
    elapsed
}

/// Two queues, there and back.
pub(crate) fn round_trips(rounds: u64) -> Latencies {
    let session = session();
    let (ping, pong) = (publisher(&session, "ping"), publisher(&session, "pong"));
    let (ping_end, pong_end) = (fifo(&session, "ping"), fifo(&session, "pong"));
    let next = |subscriber: &Subscriber<FifoChannelHandler<Sample>>| {
        spin_for(|| subscriber.try_recv().ok().flatten())
    };
    let latencies = ping_pong(
        rounds,
        |message| ping.put(message.as_slice()).wait().expect("it is published"),
        || sequence_of(next(&pong_end).payload().to_bytes()),
        || pong.put(next(&ping_end).payload().clone()).wait().expect("it is published"),
    );
    drop((ping, pong, ping_end, pong_end));
    session.close().wait().expect("the session closes");
    latencies
}
