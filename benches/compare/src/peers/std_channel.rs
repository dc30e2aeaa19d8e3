//! `std::sync::mpsc::sync_channel`: what is there without a dependency.

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use crate::harness::{CAPACITY, Payload, Tally, drain, pair, payload, sequence_of};

/// Values, both ends block.
pub(crate) fn single(messages: u64) -> Duration {
    let (sender, receiver) = sync_channel::<Payload>(CAPACITY);
    pair(
        Tally::of(messages, 1),
        move || {
            (0..messages).for_each(|sequence| {
                sender.send(payload(sequence)).expect("a receiver is there");
            });
        },
        move || drain(messages, || receiver.recv().ok().map(sequence_of)),
    )
}
