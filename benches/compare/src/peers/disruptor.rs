//! The Disruptor: one ring of events, every consumer reads them in place.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use disruptor::{
    BusySpin, EventPoller, ProcessorSettings, Producer, SingleProducerBarrier,
    build_single_producer,
};

use crate::cpu::{self, Role};
use crate::harness::{
    BURST, CAPACITY, Latencies, Payload, Tally, pair, payload, ping_pong, pinned, sequence_of,
    spin_for,
};

type Poller = EventPoller<Payload, SingleProducerBarrier>;

fn produce(producer: &mut impl Producer<Payload>, messages: u64, batch: usize) {
    if batch == 1 {
        for sequence in 0..messages {
            producer.publish(|event| *event = payload(sequence));
        }
        return;
    }
    let mut sequence = 0;
    while sequence < messages {
        let size = batch.min((messages - sequence) as usize);
        producer.batch_publish(size, |events| {
            for event in events {
                *event = payload(sequence);
                sequence += 1;
            }
        });
    }
}

/// Its own consumer thread, pinned, calls a handler: the usual way.
pub(crate) fn managed(messages: u64, batch: usize) -> Duration {
    let done = Arc::new(AtomicBool::new(false));
    let (signal, mut tally) = (Arc::clone(&done), Tally::default());
    let mut producer = build_single_producer(CAPACITY, || payload(0), BusySpin)
        .pin_at_core(cpu::number(Role::Consumer))
        .handle_events_with(move |event: &Payload, _, _| {
            tally.see(event);
            if tally.count == messages {
                assert_eq!(tally, Tally::of(messages, 1), "the disruptor lost messages");
                signal.store(true, Ordering::Release);
            }
        })
        .build();
    std::thread::sleep(Duration::from_millis(2)); // its thread pins itself and starts to spin
    pinned(move || {
        let began = Instant::now();
        produce(&mut producer, messages, batch);
        while !done.load(Ordering::Acquire) {
            spin_loop();
        }
        began.elapsed()
    })
}

/// A poller on our own thread.
pub(crate) fn polled(messages: u64) -> Duration {
    let (mut poller, builder) =
        build_single_producer(CAPACITY, || payload(0), BusySpin).new_event_poller();
    let mut producer = builder.build();
    pair(
        Tally::of(messages, 1),
        move || produce(&mut producer, messages, 1),
        move || {
            let mut tally = Tally::default();
            while tally.count < messages {
                match poller.poll() {
                    Ok(mut events) => (&mut events).for_each(|event| tally.see(event)),
                    Err(_) => spin_loop(),
                }
            }
            tally
        },
    )
}

/// `subscribers` pollers read the same events in place, all on one thread.
pub(crate) fn fan_out(messages: u64, subscribers: u64, batch: usize) -> Duration {
    let (first, builder) =
        build_single_producer(CAPACITY, || payload(0), BusySpin).new_event_poller();
    let mut pollers = vec![first];
    // The builder's type changes with the first and the second consumer.
    if subscribers == 1 {
        return drain_pollers(messages, pollers, builder.build(), batch);
    }
    let (second, mut builder) = builder.new_event_poller();
    pollers.push(second);
    for _ in 2..subscribers {
        let (next, grown) = builder.new_event_poller();
        pollers.push(next);
        builder = grown;
    }
    drain_pollers(messages, pollers, builder.build(), batch)
}

fn drain_pollers(
    messages: u64,
    mut pollers: Vec<Poller>,
    mut producer: impl Producer<Payload> + Send,
    batch: usize,
) -> Duration {
    let expected = Tally::of(messages, pollers.len() as u64);
    pair(
        expected,
        move || produce(&mut producer, messages, batch),
        move || {
            let mut tally = Tally::default();
            while tally.count < expected.count {
                for poller in &mut pollers {
                    if let Ok(mut events) = poller.take(BURST as u64) {
                        (&mut events).for_each(|event| tally.see(event));
                    }
                }
            }
            tally
        },
    )
}

/// A pair of rings, there and back, polled.
pub(crate) fn round_trips(rounds: u64) -> Latencies {
    let ring = || build_single_producer(CAPACITY, || payload(0), BusySpin).new_event_poller();
    let ((mut ping_end, ping), (mut pong_end, pong)) = (ring(), ring());
    let (mut ping, mut pong) = (ping.build(), pong.build());
    let next = |poller: &mut Poller| {
        spin_for(|| {
            let mut events = poller.poll().ok()?;
            (&mut events).last().copied()
        })
    };
    ping_pong(
        rounds,
        move |message| ping.publish(|event| *event = message),
        move || sequence_of(next(&mut pong_end)),
        move || {
            let message = next(&mut ping_end);
            pong.publish(|event| *event = message);
        },
    )
}
