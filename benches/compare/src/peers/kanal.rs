//! kanal: a bounded channel; its blocking ends are its fast ones.

use std::time::Duration;

use crate::harness::{CAPACITY, Payload, Tally, drain, pair, payload, sequence_of};

/// Values, both ends block.
pub(crate) fn single(messages: u64) -> Duration {
    let (sender, receiver) = kanal::bounded::<Payload>(CAPACITY);
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
