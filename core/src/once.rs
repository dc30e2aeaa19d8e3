//! Publishing once: a message whose id was published to its topic within the window is not stored
//! again. Where a topic has no window, this is one look.

use crate::batch::Batch;
use crate::chunk::Claim;
use crate::dedup_window::{Earlier, Known};
use crate::message::{self, NewMessage};
use crate::outcome::{Appended, Stop};
use crate::partition::Partition;
use crate::shard::{Core, Waits};
use std::slice;

impl Core {
    /// Messages to `partition` are known again from now on, or none is.
    pub(crate) fn change_window(&mut self, partition: &Partition) {
        partition.unresolve(&mut self.held);
    }

    /// As [`append`](Self::append); stops with [`Stop::Duplicate`] before a message that was
    /// published before, and with [`Stop::Pending`] before one that is being published elsewhere.
    #[inline]
    pub(crate) fn append_once(
        &mut self,
        partition: &Partition,
        messages: Batch<'_>,
        waits: &mut Waits,
    ) -> Appended {
        if partition.window().is_none() {
            self.append(partition, messages, waits)
        } else {
            self.append_new(partition, messages, waits)
        }
    }

    /// As [`append`](Self::append), which is compiled into those that are in a hurry, and not into
    /// more than those.
    #[cold]
    #[inline(never)]
    fn append_apart(
        &mut self,
        partition: &Partition,
        messages: Batch<'_>,
        waits: &mut Waits,
    ) -> Appended {
        self.append(partition, messages, waits)
    }

    #[cold]
    #[inline(never)]
    fn append_new(
        &mut self,
        partition: &Partition,
        messages: Batch<'_>,
        waits: &mut Waits,
    ) -> Appended {
        let has_id = messages.iter().any(|message| message.id.is_some());
        let Some(window) = partition.window().filter(|_| has_id) else {
            return self.append_apart(partition, messages, waits);
        };
        let (new, known) = window.admit(messages, partition.next_place(), self.stamps.now_us());
        let mut appended = self.append_apart(partition, messages.take(new.count()), waits);
        new.settle(appended.count);
        if appended.stop.is_none() {
            appended.stop = known.map(|known| stop_at(partition, known));
        }
        appended
    }

    /// As [`append_claim`](Self::append_claim), likewise.
    pub(crate) fn append_claim_once(
        &mut self,
        partition: &Partition,
        claim: &Claim,
        waits: &mut Waits,
    ) -> Appended {
        let (Some(window), Some(id)) = (partition.window(), message::claimed_id(claim)) else {
            return self.append_claim(partition, claim, waits);
        };
        let head = [NewMessage::new(b"").id(id)];
        let head = &head[..];
        let (new, known) =
            window.admit(Batch::of(&head), partition.next_place(), self.stamps.now_us());
        let Some(known) = known else {
            let appended = self.append_claim(partition, claim, waits);
            new.settle(appended.count);
            return appended;
        };
        // Whether anything may be published at all.
        let mut nothing = self.append_apart(partition, Batch::of(&head).take(0), waits);
        if nothing.stop.is_none() {
            nothing.stop = Some(stop_at(partition, known));
        }
        nothing
    }

    /// Appends a message whether it was published before or not: the broker itself knows what it
    /// does.
    pub(crate) fn append_again(
        &mut self,
        partition: &Partition,
        message: &NewMessage<'_>,
        waits: &mut Waits,
    ) -> Appended {
        let appended = self.append_apart(partition, Batch::of(&slice::from_ref(message)), waits);
        if let (1, Some(window), Some(id)) = (appended.count, partition.window(), message.id) {
            let place = Earlier { partition: partition.id, offset: appended.first_offset };
            let mut ids = window.lock();
            ids.note(id, place, self.stamps.now_us());
            ids.trim();
        }
        appended
    }
}

fn stop_at(partition: &Partition, known: Known) -> Stop {
    match known {
        Known::Published(earlier) => {
            partition.duplicates.add(1);
            Stop::Duplicate(earlier)
        }
        Known::Pending(before) => Stop::Pending(before),
    }
}
