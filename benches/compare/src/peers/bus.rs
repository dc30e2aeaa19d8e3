//! bus: a lossless single-producer broadcast ring.

use std::hint::spin_loop;
use std::sync::Arc;
use std::time::Duration;

use bus::Bus;

use crate::harness::{CAPACITY, Tally, drain_all, pair, payload, sequence_of};

/// `subscribers` readers of one bus, one `Arc` a message.
pub(crate) fn fan_out(messages: u64, subscribers: u64) -> Duration {
    let mut bus = Bus::<Arc<[u8]>>::new(CAPACITY);
    let mut readers: Vec<_> = (0..subscribers).map(|_| bus.add_rx()).collect();
    let expected = Tally::of(messages, subscribers);
    pair(
        expected,
        move || {
            for sequence in 0..messages {
                let mut message = Arc::from(payload(sequence).as_slice());
                while let Err(back) = bus.try_broadcast(message) {
                    message = back;
                    spin_loop();
                }
            }
        },
        move || {
            drain_all(expected.count, &mut readers, |reader| {
                reader.try_recv().ok().map(sequence_of)
            })
        },
    )
}
