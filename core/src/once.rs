//! Publishing once: a message whose id was published to its topic within the window is not stored
//! again. Where a topic has no window, this is one look.

use crate::chunk::Claim;
use crate::dedup_window::Earlier;
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
    /// published before.
    #[inline]
    pub(crate) fn append_once(
        &mut self,
        partition: &Partition,
        messages: &[NewMessage<'_>],
        waits: &mut Waits,
    ) -> Appended {
        if partition.window().is_none() {
            self.append(partition, messages, waits)
        } else {
            self.append_new(partition, messages, waits)
        }
    }

    #[cold]
    #[inline(never)]
    fn append_new(
        &mut self,
        partition: &Partition,
        messages: &[NewMessage<'_>],
        waits: &mut Waits,
    ) -> Appended {
        let has_id = messages.iter().any(|message| message.id.is_some());
        let Some(window) = partition.window().filter(|_| has_id) else {
            return self.append(partition, messages, waits);
        };
        let mut ids = window.lock();
        let next = Earlier { partition: partition.id, offset: partition.next_offset.get() };
        let (new, earlier) = ids.admit(messages, next, self.stamps.now_us());
        let mut appended = self.append(partition, &messages[..new], waits);
        ids.settle(&messages[appended.count..new]);
        if let (None, Some(earlier)) = (&appended.stop, earlier) {
            partition.duplicates.add(1);
            appended.stop = Some(Stop::Duplicate(earlier));
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
        let mut ids = window.lock();
        let now_us = self.stamps.now_us();
        ids.forget_old(now_us);
        if let Some(earlier) = ids.find(id, now_us) {
            // Whether anything may be published at all.
            let mut nothing = self.append(partition, &[], waits);
            if nothing.stop.is_none() {
                partition.duplicates.add(1);
                nothing.stop = Some(Stop::Duplicate(earlier));
            }
            return nothing;
        }
        let appended = self.append_claim(partition, claim, waits);
        if appended.count > 0 {
            let place = Earlier { partition: partition.id, offset: appended.first_offset };
            ids.note(id, place, now_us);
            ids.trim();
        }
        appended
    }

    /// Appends a message whether it was published before or not: the broker itself knows what it
    /// does.
    pub(crate) fn append_again(
        &mut self,
        partition: &Partition,
        message: &NewMessage<'_>,
        waits: &mut Waits,
    ) -> Appended {
        let appended = self.append(partition, slice::from_ref(message), waits);
        if let (1, Some(window), Some(id)) = (appended.count, partition.window(), message.id) {
            let place = Earlier { partition: partition.id, offset: appended.first_offset };
            let mut ids = window.lock();
            ids.note(id, place, self.stamps.now_us());
            ids.trim();
        }
        appended
    }
}
