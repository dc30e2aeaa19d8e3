//! rtrb: a single-producer single-consumer ring of values.

use std::hint::spin_loop;
use std::time::Duration;

use rtrb::{PushError, RingBuffer};

use crate::harness::{
    CAPACITY, Latencies, Payload, Tally, drain, pair, payload, ping_pong, sequence_of, spin_for,
};

/// `push` and `pop`, one message at a time.
pub(crate) fn single(messages: u64) -> Duration {
    let (mut producer, mut consumer) = RingBuffer::<Payload>::new(CAPACITY);
    pair(
        Tally::of(messages, 1),
        move || {
            for sequence in 0..messages {
                let mut message = payload(sequence);
                while let Err(PushError::Full(back)) = producer.push(message) {
                    message = back;
                    spin_loop();
                }
            }
        },
        move || drain(messages, || consumer.pop().ok().map(sequence_of)),
    )
}

/// Chunks of `batch` on both ends; `messages` is a multiple of it.
pub(crate) fn chunks(messages: u64, batch: usize) -> Duration {
    let (mut producer, mut consumer) = RingBuffer::<Payload>::new(CAPACITY);
    pair(
        Tally::of(messages, 1),
        move || {
            let mut sequence = 0;
            while sequence < messages {
                match producer.write_chunk_uninit(batch) {
                    Ok(chunk) => {
                        let end = sequence + batch as u64;
                        chunk.fill_from_iter((sequence..end).map(payload));
                        sequence = end;
                    }
                    Err(_) => spin_loop(),
                }
            }
        },
        move || {
            let mut tally = Tally::default();
            while tally.count < messages {
                match consumer.read_chunk(consumer.slots().min(batch)) {
                    Ok(chunk) if !chunk.is_empty() => {
                        for message in chunk {
                            tally.see(message);
                        }
                    }
                    _ => spin_loop(),
                }
            }
            tally
        },
    )
}

/// A pair of rings, there and back.
pub(crate) fn round_trips(rounds: u64) -> Latencies {
    let (mut ping, mut ping_end) = RingBuffer::<Payload>::new(CAPACITY);
    let (mut pong, mut pong_end) = RingBuffer::<Payload>::new(CAPACITY);
    ping_pong(
        rounds,
        move |message| ping.push(message).expect("the ring is empty"),
        move || sequence_of(spin_for(|| pong_end.pop().ok())),
        move || {
            let message = spin_for(|| ping_end.pop().ok());
            pong.push(message).expect("the ring is empty");
        },
    )
}
