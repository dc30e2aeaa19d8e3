//! tokio's broadcast channel. It overwrites what a slow reader has not read, so the reader gives
//! credit through a counter of ours, which is not part of tokio.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::broadcast::{Receiver, Sender, channel};

use crate::harness::{
    BURST, CAPACITY, Latencies, Payload, Tally, pair, payload, ping_pong, sequence_of, spin_for,
};

/// The counter on a line of its own.
#[repr(align(128))]
struct Credit(AtomicU64);

fn send_on_credit<T>(sender: &Sender<T>, credit: &Credit, messages: u64, make: impl Fn(u64) -> T) {
    for sequence in 0..messages {
        while sequence - credit.0.load(Ordering::Acquire) >= CAPACITY as u64 {
            spin_loop();
        }
        assert!(sender.send(make(sequence)).is_ok(), "a receiver is there");
    }
}

fn drain_on_credit(
    receivers: &mut [Receiver<Arc<[u8]>>],
    credit: &Credit,
    deliveries: u64,
) -> Tally {
    let mut tally = Tally::default();
    let mut read = vec![0; receivers.len()];
    while tally.count < deliveries {
        for (receiver, read) in receivers.iter_mut().zip(&mut read) {
            for _ in 0..BURST {
                let Ok(message) = receiver.try_recv() else {
                    break;
                };
                tally.see(&message);
                *read += 1;
            }
        }
        credit.0.store(read.iter().copied().min().unwrap_or(0), Ordering::Release);
    }
    tally
}

/// Values, one reader that gives credit for each message at once.
pub(crate) fn single(messages: u64) -> Duration {
    let (sender, mut receiver) = channel::<Payload>(CAPACITY);
    let credit = Credit(AtomicU64::new(0));
    pair(
        Tally::of(messages, 1),
        || send_on_credit(&sender, &credit, messages, payload),
        || {
            let mut tally = Tally::default();
            while tally.count < messages {
                tally.see(spin_for(|| receiver.try_recv().ok()));
                credit.0.store(tally.count, Ordering::Release);
            }
            tally
        },
    )
}

/// `subscribers` readers, one `Arc` a message.
pub(crate) fn fan_out(messages: u64, subscribers: u64) -> Duration {
    let (sender, receiver) = channel::<Arc<[u8]>>(CAPACITY);
    let mut receivers = vec![receiver];
    receivers.extend((1..subscribers).map(|_| sender.subscribe()));
    let credit = Credit(AtomicU64::new(0));
    let expected = Tally::of(messages, subscribers);
    let make = |sequence| Arc::from(payload(sequence).as_slice());
    pair(
        expected,
        || send_on_credit(&sender, &credit, messages, make),
        || drain_on_credit(&mut receivers, &credit, expected.count),
    )
}

/// A pair of channels, there and back.
pub(crate) fn round_trips(rounds: u64) -> Latencies {
    let (ping, mut ping_end) = channel::<Payload>(CAPACITY);
    let (pong, mut pong_end) = channel::<Payload>(CAPACITY);
    ping_pong(
        rounds,
        move |message| assert!(ping.send(message).is_ok(), "a receiver is there"),
        move || sequence_of(spin_for(|| pong_end.try_recv().ok())),
        move || {
            let message = spin_for(|| ping_end.try_recv().ok());
            assert!(pong.send(message).is_ok(), "a receiver is there");
        },
    )
}
