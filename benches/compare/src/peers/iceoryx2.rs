//! iceoryx2 within one process (`local`): samples in shared memory, nothing is overwritten, a full
//! buffer makes the publisher try again.

use std::hint::spin_loop;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;

use crate::harness::{
    BURST, CAPACITY, Latencies, Payload, Tally, pair_made, payload, ping_pong_made, sequence_of,
    spin_for,
};

type Local = local::Service;

fn service(node: &Node<Local>, name: &str, subscribers: u64) -> PortFactory<Local, Payload, ()> {
    node.service_builder(&name.try_into().expect("a valid service name"))
        .publish_subscribe::<Payload>()
        .enable_safe_overflow(false)
        .subscriber_max_buffer_size(CAPACITY)
        .subscriber_max_borrowed_samples(64)
        .history_size(0)
        .max_subscribers(subscribers as usize)
        .max_publishers(2)
        .max_nodes(4)
        .open_or_create()
        .expect("the service opens")
}

fn publisher(service: &PortFactory<Local, Payload, ()>) -> Publisher<Local, Payload, ()> {
    service
        .publisher_builder()
        .max_loaned_samples(2)
        .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
        .create()
        .expect("a publisher is created")
}

fn subscriber(service: &PortFactory<Local, Payload, ()>) -> Subscriber<Local, Payload, ()> {
    let builder = service.subscriber_builder().buffer_size(CAPACITY);
    builder.create().expect("a subscriber is created")
}

/// A name no other run of this process or another has.
fn fresh_name() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    format!("compare-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

fn node() -> Node<Local> {
    set_log_level(LogLevel::Error);
    NodeBuilder::new().create::<Local>().expect("a node is created")
}

fn send(publisher: &Publisher<Local, Payload, ()>, message: Payload) {
    let sample = publisher.loan_uninit().expect("a sample is free").write_payload(message);
    sample.send().expect("the sample is sent");
}

/// `subscribers` subscribers drained by one thread. A run that ends short of messages (seen once in
/// this set-up) is reported, not hidden.
pub(crate) fn fan_out(messages: u64, subscribers: u64) -> Duration {
    let name = fresh_name();
    let (subscribed, sent) = (Barrier::new(2), AtomicBool::new(false));
    let expected = Tally::of(messages, subscribers);
    let (elapsed, seen) = pair_made(
        || {
            subscribed.wait();
            let node = node();
            let service = service(&node, &name, subscribers);
            let publisher = publisher(&service);
            let sent = &sent;
            move || {
                let _alive = (&node, &service);
                (0..messages).for_each(|sequence| send(&publisher, payload(sequence)));
                sent.store(true, Ordering::Release);
            }
        },
        || {
            let node = node();
            let service = service(&node, &name, subscribers);
            let ports: Vec<_> = (0..subscribers).map(|_| subscriber(&service)).collect();
            subscribed.wait();
            let sent = &sent;
            move || {
                let _alive = (&node, &service);
                drain_ports(&ports, sent, expected.count)
            }
        },
    );
    if seen != expected {
        eprintln!("iceoryx2: {} of {} deliveries came", seen.count, expected.count);
    }
    elapsed
}

fn drain_ports(
    ports: &[Subscriber<Local, Payload, ()>],
    sent: &AtomicBool,
    deliveries: u64,
) -> Tally {
    let mut tally = Tally::default();
    while tally.count < deliveries {
        let (before, all_sent) = (tally.count, sent.load(Ordering::Acquire));
        for port in ports {
            for _ in 0..BURST {
                match port.receive().expect("receive works") {
                    Some(sample) => tally.see(sample.payload()),
                    None => break,
                }
            }
        }
        if tally.count == before {
            if all_sent {
                break;
            }
            spin_loop();
        }
    }
    tally
}

/// Two services, there and back.
pub(crate) fn round_trips(rounds: u64) -> Latencies {
    let (ping, pong) = (fresh_name(), fresh_name());
    let connect = |publish: &str, subscribe: &str| {
        let node = node();
        let (to, from) = (service(&node, publish, 2), service(&node, subscribe, 2));
        let ends = (publisher(&to), subscriber(&from));
        (node, ends.0, ends.1)
    };
    ping_pong_made(
        rounds,
        || {
            let (node, publisher, subscriber) = connect(&ping, &pong);
            let receive = move || {
                let _alive = &node;
                let sample = spin_for(|| subscriber.receive().expect("receive works"));
                sequence_of(sample.payload())
            };
            (move |message| send(&publisher, message), receive)
        },
        || {
            let (node, publisher, subscriber) = connect(&pong, &ping);
            move || {
                let _alive = &node;
                let sample = spin_for(|| subscriber.receive().expect("receive works"));
                send(&publisher, *sample.payload());
            }
        },
    )
}
