//! crossbeam-channel: the bounded channel most programs take.

use std::hint::spin_loop;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crossbeam_channel::{TrySendError, bounded};

use crate::harness::{
    CAPACITY, Latencies, Payload, Tally, drain, drain_all, pair, payload, ping_pong, sequence_of,
    spin_for, stamp,
};

/// Values, both ends spin.
pub(crate) fn single(messages: u64) -> Duration {
    let (sender, receiver) = bounded::<Payload>(CAPACITY);
    pair(
        Tally::of(messages, 1),
        move || {
            for sequence in 0..messages {
                let mut message = payload(sequence);
                while let Err(TrySendError::Full(back)) = sender.try_send(message) {
                    message = back;
                    spin_loop();
                }
            }
        },
        move || drain(messages, || receiver.try_recv().ok().map(sequence_of)),
    )
}

/// One `Arc` of `len` bytes a message, both ends spin.
pub(crate) fn shared(messages: u64, len: usize) -> Duration {
    let (sender, receiver) = bounded::<Arc<[u8]>>(CAPACITY);
    pair(
        Tally::of(messages, 1),
        move || {
            let mut bytes = vec![0; len];
            for sequence in 0..messages {
                stamp(&mut bytes, sequence);
                let mut message = Arc::from(bytes.as_slice());
                while let Err(TrySendError::Full(back)) = sender.try_send(message) {
                    message = back;
                    spin_loop();
                }
            }
        },
        move || drain(messages, || receiver.try_recv().ok().map(sequence_of)),
    )
}

/// Several senders that block, nothing pinned: there are more threads than processors. A message
/// carries its producer in the upper half of its number.
pub(crate) fn many_producers(messages: u64, producers: u64) -> Duration {
    let (sender, receiver) = bounded::<Payload>(CAPACITY);
    let start = Barrier::new(producers as usize + 1);
    let each = messages / producers;
    std::thread::scope(|scope| {
        let start = &start;
        for producer in 0..producers {
            let sender = sender.clone();
            scope.spawn(move || {
                start.wait();
                for sequence in 0..each {
                    sender.send(payload(producer << 32 | sequence)).expect("a receiver is there");
                }
            });
        }
        start.wait();
        let began = Instant::now();
        let mut next = vec![0; producers as usize];
        for _ in 0..each * producers {
            let number = sequence_of(receiver.recv().expect("a sender is there"));
            let expected = &mut next[(number >> 32) as usize];
            assert_eq!(number & 0xffff_ffff, *expected, "a producer's order is broken");
            *expected += 1;
        }
        began.elapsed()
    })
}

/// A channel a subscriber, one `Arc` a message.
pub(crate) fn fan_out(messages: u64, subscribers: u64) -> Duration {
    let channels = (0..subscribers).map(|_| bounded::<Arc<[u8]>>(CAPACITY));
    let (senders, mut receivers): (Vec<_>, Vec<_>) = channels.unzip();
    let expected = Tally::of(messages, subscribers);
    pair(
        expected,
        move || {
            for sequence in 0..messages {
                let message: Arc<[u8]> = Arc::from(payload(sequence).as_slice());
                for sender in &senders {
                    let mut copy = Arc::clone(&message);
                    while let Err(TrySendError::Full(back)) = sender.try_send(copy) {
                        copy = back;
                        spin_loop();
                    }
                }
            }
        },
        move || {
            drain_all(expected.count, &mut receivers, |receiver| {
                receiver.try_recv().ok().map(sequence_of)
            })
        },
    )
}

/// A pair of channels, there and back, both ends spin.
pub(crate) fn round_trips(rounds: u64) -> Latencies {
    let (ping, ping_end) = bounded::<Payload>(CAPACITY);
    let (pong, pong_end) = bounded::<Payload>(CAPACITY);
    ping_pong(
        rounds,
        move |message| ping.send(message).expect("a receiver is there"),
        move || sequence_of(spin_for(|| pong_end.try_recv().ok())),
        move || {
            let message = spin_for(|| ping_end.try_recv().ok());
            pong.send(message).expect("a receiver is there");
        },
    )
}
