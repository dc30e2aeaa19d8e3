//! A receiver: the consuming end of an inbox, which takes records from its lanes in turn.

use crate::acked::Acked;
use crate::acks::Acks;
use crate::config::Overflow;
use crate::error::RecvError;
use crate::handled::Handled;
use crate::inbox::{Inbox, InboxState};
use crate::lane::{BLOCK, Lane, Look, Next, Reader};
use crate::lease::{AckId, Settle};
use crate::message::{Block, Message, Record};
use crate::publisher::Engine;
use crate::queue::Polled;
use crate::sync::Arc;
use std::array;
use std::time::Duration;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) engine: Arc<Engine>,
    reader: Reader,
    /// The shard whose lane is looked at first.
    turn: usize,
    /// Lost behind what the last call delivered, and to be told by the next. Where messages are
    /// settled later, [`SETTLED_LATER`] is set as well, so that asking about the rare costs nothing
    /// more than asking about losses.
    pub(crate) untold: u64,
    pub(crate) acked: Option<Box<Acked>>,
}

const SETTLED_LATER: u64 = 1 << 63;

impl Receiver {
    pub(crate) fn new(inbox: Arc<Inbox>, engine: Arc<Engine>) -> Self {
        let reader = Reader { subscription: inbox.id };
        Self { inbox, engine, reader, turn: 0, untold: 0, acked: None }
    }

    /// The same for a subscription whose messages are settled through `acks`, or by what a handler
    /// returns.
    pub(crate) fn settled_by(acks: Arc<Acks>, handles: bool, receiver: Self) -> Self {
        let acked = Some(Box::new(Acked::new(acks, handles)));
        Self { acked, untold: receiver.untold | SETTLED_LATER, ..receiver }
    }

    /// The next record of any lane; the caller says with [`Self::done_with_older`] when the ones
    /// before are not in use any more.
    #[inline]
    pub(crate) fn next(&mut self, most: usize) -> Next {
        if self.untold > 0 {
            return self.next_specially();
        }
        for _ in 0..self.engine.shards.len() {
            let next = self.next_of_turn(most);
            if let Next::Failed(_) = next {
                // The other shards' turn comes all the same.
                self.pass_turn();
            }
            if next != Next::Empty {
                return next;
            }
            self.pass_turn();
        }
        Next::Empty
    }

    /// What [`next`](Self::next) does where there is a loss to be told, or messages are settled
    /// later.
    #[cold]
    #[inline(never)]
    fn next_specially(&mut self) -> Next {
        if let Some(lost) = self.take_untold() {
            return Next::Lagged(lost);
        }
        for _ in 0..self.engine.shards.len() {
            let next = self.next_acked_of_turn();
            if let Next::Failed(_) = next {
                self.pass_turn();
            }
            if next != Next::Empty {
                return next;
            }
            self.pass_turn();
        }
        Next::Empty
    }

    pub(crate) fn next_acked_of_turn(&mut self) -> Next {
        let Self { inbox, engine, reader, turn, acked, .. } = self;
        let Some(acked) = acked else { return Next::Empty };
        loop {
            let next = acked.next(inbox, engine, reader, *turn);
            let (Next::CaughtUp, Some(lane)) = (next, inbox.lane(*turn)) else { return next };
            go_live(inbox, engine, *turn, lane, reader);
        }
    }

    /// Whether what was taken last goes to the consumer alone.
    pub(crate) fn took_suspect(&self) -> bool {
        self.acked.as_ref().is_some_and(|acked| acked.is_alone())
    }

    /// A loss that is to be told.
    fn take_untold(&mut self) -> Option<u64> {
        let lost = self.untold & !SETTLED_LATER;
        self.untold &= SETTLED_LATER;
        (lost > 0).then_some(lost)
    }

    #[inline]
    pub(crate) fn is_settled_later(&self) -> bool {
        self.untold & SETTLED_LATER != 0
    }

    #[inline]
    fn pass_turn(&mut self) {
        self.turn += 1;
        if self.turn == self.engine.shards.len() {
            self.turn = 0;
        }
    }

    #[inline]
    pub(crate) fn next_of_turn(&mut self, most: usize) -> Next {
        let Some(lane) = self.inbox.lane(self.turn) else { return Next::Empty };
        let next = loop {
            let next =
                lane.next(&mut self.reader, most, &self.inbox.interest, &self.engine.context);
            if next != Next::CaughtUp {
                break next;
            }
            go_live(&self.inbox, &self.engine, self.turn, lane, &mut self.reader);
        };
        if let Next::Lagged(_) = next {
            // What has expired has left its places free.
            self.release();
        }
        next
    }

    /// Gives the slots of what was taken from the lane at hand back to its shard.
    #[inline]
    pub(crate) fn release(&mut self) {
        if let Some(lane) = self.inbox.lane(self.turn) {
            lane.release(&mut self.reader);
            telling_of_room(&self.inbox)();
        }
    }

    /// Of what was taken from the lane at hand, only the last record is still in use.
    #[inline]
    pub(crate) fn done_with_older(&mut self) {
        if let Some(lane) = self.inbox.lane(self.turn) {
            lane.release_older(&mut self.reader);
        }
    }

    /// Nothing that was taken is in use any more.
    #[inline]
    pub(crate) fn done_with_all(&mut self) {
        for lane in self.inbox.lanes() {
            lane.rest(&mut self.reader);
        }
    }

    /// The same for a receiver that may not come back soon: no memory is kept for it.
    pub(crate) fn leave(&mut self) {
        for lane in self.inbox.lanes() {
            lane.unpin(&mut self.reader);
        }
    }

    /// Whether nothing is queued, nor in the log for a lane that is catching up.
    pub(crate) fn is_empty(&mut self) -> bool {
        if self.untold & !SETTLED_LATER > 0 {
            return false;
        }
        if let Some(acked) = &self.acked {
            if acked.acks.is_due() {
                return false;
            }
            if !acked.acks.has_room() {
                return true;
            }
        }
        let heads: Vec<u64> = match &self.acked {
            Some(acked) if acked.acks.is_durable() => {
                self.engine.shards.iter().map(|shard| shard.log.queued()).collect()
            }
            _ => Vec::new(),
        };
        loop {
            // Going live may wait for a shard, and so use up the wake-up for what came meanwhile
            // to a lane that was looked at before: then all are looked at again.
            let mut waited = false;
            for shard in 0..self.engine.shards.len() {
                let Some(lane) = self.inbox.lane(shard) else { continue };
                loop {
                    let (interest, context) = (&self.inbox.interest, &self.engine.context);
                    match lane.look(&mut self.reader, interest, context) {
                        Look::Something => return false,
                        Look::Nothing => break,
                        Look::CaughtUp => {
                            go_live(&self.inbox, &self.engine, shard, lane, &mut self.reader);
                            waited = true;
                        }
                    }
                }
            }
            if !waited {
                break;
            }
        }
        for (shard, head) in heads.into_iter().enumerate() {
            if let Some(acked) = &self.acked {
                acked.acks.pass(shard, head);
            }
        }
        true
    }

    /// The message at `address`, which [`Self::next`] has just given.
    #[inline]
    pub(crate) fn message(&self, address: usize) -> Message<'_> {
        let lease = match &self.acked {
            Some(acked) => acked.last(),
            None => None,
        };
        Message { lease, ..Lane::message(&self.reader, address, &self.engine.context) }
    }

    /// The same for the `index`-th of several that were taken together.
    pub(crate) fn message_at(&self, index: usize, address: usize) -> Message<'_> {
        let lease = self.acked.as_ref().and_then(|acked| acked.lease(index));
        Message { lease, ..self.message(address) }
    }

    /// Nothing that was taken is at hand any more.
    #[inline]
    pub(crate) fn forget_leases(&mut self) {
        if let Some(acked) = &mut self.acked {
            acked.clear();
        }
    }

    /// What became of the message at `address`, which a handler had last.
    pub(crate) fn settle(&mut self, address: usize, handled: &Handled) {
        let Self { reader, engine, acked, .. } = self;
        if let Some(acked) = acked {
            acked.settle(&Lane::message(reader, address, &engine.context), handled);
        }
    }

    /// The same of one of several.
    pub(crate) fn settle_failed(&mut self, failed: &Failed) {
        if let Some(acked) = &self.acked {
            acked.settle_at(failed.lease, &failed.handled);
        }
    }

    /// Settles the message that `id` names, unless its lease is over.
    pub(crate) fn ack(&self, id: AckId) {
        if let Some(acked) = &self.acked {
            // Where that cannot be called, neither can what follows, which tells.
            let _ = acked.acks.ack(id);
        }
    }

    /// A handler's slice of messages is over.
    pub(crate) fn end_slice(&mut self) {
        if let Some(acked) = &mut self.acked {
            acked.end_slice();
        }
    }

    /// When something is due by itself.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.acked.as_ref().and_then(|acked| acked.acks.next_due())
    }

    /// Whoever waits is woken when something is due by itself.
    pub(crate) fn set_alarm(&self) {
        if let Some(acked) = &self.acked {
            acked.acks.set_alarm();
        }
    }

    /// Ends all lanes and throws away what is queued. The subscription is not routed to any more.
    pub(crate) fn discard(&mut self) {
        self.engine.silence(&self.inbox);
        for lane in self.inbox.lanes() {
            lane.discard(&mut self.reader);
        }
    }

    /// Takes up to `most` messages that are queued and calls `f` with each, in place, until it says
    /// to stop. Ends early before a loss, which the next call then reports.
    /// With `EACH`, the place of a message is free as soon as `f` has it. With `WHOLE`, `f` gets
    /// several at once where they are of one delivery.
    #[inline]
    pub(crate) fn poll<const EACH: bool, const WHOLE: bool>(
        &mut self,
        most: usize,
        mut f: impl FnMut(&Block<'_>) -> bool,
    ) -> Result<usize, RecvError> {
        if self.untold > 0 {
            if let Some(lost) = self.take_untold() {
                return Err(RecvError::Lagged(lost));
            }
            return self.poll_acked(most, f);
        }
        let mut count = 0;
        let mut going_on = true;
        for _ in 0..self.engine.shards.len() {
            self.pass_turn();
            while going_on && count < most {
                let polled = self.poll_ring::<EACH, WHOLE>(most - count, |block| {
                    going_on = f(block);
                    going_on
                });
                count += polled.count;
                if polled.is_all || polled.count > 0 && count == most || !going_on {
                    break;
                }
                // Whatever is not an ordinary message in a plain ring.
                match self.next_of_turn(most - count) {
                    Next::Record(address) => {
                        self.done_with_older();
                        self.release();
                        count += 1;
                        going_on = f(&Block::of(&self.message(address)));
                    }
                    Next::Lagged(lost) if count == 0 => return Err(RecvError::Lagged(lost)),
                    Next::Lagged(lost) => {
                        self.untold = lost;
                        return Ok(count);
                    }
                    Next::Failed(fault) if count == 0 => return Err(RecvError::Store(fault)),
                    Next::Failed(_) => return Ok(count),
                    Next::CaughtUp | Next::Empty => break,
                }
            }
            if !going_on || count == most {
                break;
            }
        }
        Ok(count)
    }

    /// Calls `handle` with up to `most` messages, in place where nothing else is unsettled, until it says
    /// that it has failed or the subscription has ended. Settles those that it has succeeded with. What
    /// there is instead of a message, if that was the first.
    #[inline]
    pub(crate) fn handle(
        &mut self,
        most: usize,
        mut handle: impl FnMut(&Message<'_>) -> bool,
    ) -> Result<(), Next> {
        self.done_with_older();
        if self.handle_run(most, &mut handle) > 0 {
            return Ok(());
        }
        match self.next(most) {
            Next::Record(address) => {
                // The place is free as soon as the handler has the message.
                self.release();
                if handle(&self.message(address)) {
                    self.settle(address, &Handled::Success);
                }
                Ok(())
            }
            special => Err(special),
        }
    }

    /// The same in place, as long as nothing else is unsettled; how many. None where that is not known,
    /// or the next one is special.
    #[inline]
    fn handle_run(&mut self, most: usize, handle: &mut impl FnMut(&Message<'_>) -> bool) -> usize {
        let Self { inbox, engine, reader, turn, acked, untold, .. } = self;
        let (Some(lane), Some(acked)) = (inbox.lane(*turn), acked) else { return 0 };
        if *untold & !SETTLED_LATER > 0 || !acked.has_run(*turn) {
            return 0;
        }
        let context = &engine.context;
        let polled = lane.poll::<true, false, BLOCK>(reader, most, &mut || (), &mut |records| {
            let &[record] = records else { return false };
            acked.take_of_run(record);
            let succeeded = handle(&Message { record, context, lease: acked.last() });
            if succeeded {
                acked.add_to_run();
            }
            succeeded && inbox.state() != InboxState::Ended
        });
        polled.count
    }

    /// Calls `handle` with up to `most` messages, several at once, until it fails with some or the
    /// subscription has ended; it gives which it has failed with, in rising order. Settles those that it
    /// has succeeded with, and leaves the others in `failed`. Their places are free as soon as the handler
    /// has them. What there is instead of a message, if that comes first.
    pub(crate) fn handle_blocks(
        &mut self,
        most: usize,
        failed: &mut Vec<Failed>,
        mut handle: impl FnMut(&Block<'_>) -> Vec<(usize, Handled)>,
    ) -> Result<(), Next> {
        self.done_with_older();
        if self.untold & !SETTLED_LATER == 0 {
            for _ in 0..self.engine.shards.len() {
                self.pass_turn();
                if self.handle_ring(most, failed, &mut handle) > 0 {
                    return Ok(());
                }
            }
        }
        let mut addresses = [0; Block::MOST];
        let count = self.gather(most, &mut addresses)?;
        let Self { engine, reader, acked, .. } = self;
        let record = |at: usize| Lane::message(reader, addresses[at], &engine.context).record;
        let records: [Record<'_>; Block::MOST] = array::from_fn(|at| record(at.min(count - 1)));
        let records = &records[..count];
        let leases = acked.as_ref().map_or(&[][..], |acked| acked.leases());
        let failures = handle(&Block { records, context: &engine.context, leases });
        if let Some(acked) = acked {
            acked.settle_others(&failures);
        }
        note_failures(failures, records, (0, 0), failed);
        Ok(())
    }

    /// The same from the ring of the lane at hand; how many messages. None where the next one is special,
    /// or is to be asked for.
    fn handle_ring(
        &mut self,
        most: usize,
        failed: &mut Vec<Failed>,
        handle: &mut impl FnMut(&Block<'_>) -> Vec<(usize, Handled)>,
    ) -> usize {
        let Self { inbox, engine, reader, turn, acked, .. } = self;
        let Some(lane) = inbox.lane(*turn) else { return 0 };
        let mut most = most;
        if let Some(acked) = acked.as_mut() {
            if !acked.begin_run(*turn) {
                return 0;
            }
            // Nothing else is outstanding.
            most = most.min(acked.acks.terms.max_outstanding);
        }
        let context = &engine.context;
        let mut count = 0;
        let mut f = |records: &[Record<'_>]| {
            let leases = acked.as_mut().map_or(&[][..], |acked| {
                acked.take_of_run(records[0]);
                acked.leases()
            });
            let failures = handle(&Block { records, context, leases });
            if let Some(acked) = acked.as_mut() {
                acked.settle_block(records, &failures);
            }
            let first = failures.first().map_or(0, |&(at, _)| at);
            let is_success = failures.is_empty();
            note_failures(failures, records, (count, first), failed);
            count += records.len();
            is_success && inbox.state() != InboxState::Ended
        };
        let mut released = telling_of_room(inbox);
        lane.poll::<true, true, { Block::MOST }>(reader, most, &mut released, &mut f).count
    }

    /// Takes up to `most` messages from one lane, whatever there is special about them; puts where they
    /// are into `addresses`, and says how many.
    fn gather(&mut self, most: usize, addresses: &mut [usize; Block::MOST]) -> Result<usize, Next> {
        if let Some(acked) = &mut self.acked {
            acked.begin_gathering();
        }
        let mut next = self.next(most);
        let mut count = 0;
        while let Next::Record(address) = next {
            addresses[count] = address;
            count += 1;
            if count == most.min(addresses.len()) || self.took_suspect() {
                break;
            }
            next = if self.is_settled_later() {
                self.next_acked_of_turn()
            } else {
                self.next_of_turn(most - count)
            };
        }
        if let Some(acked) = &mut self.acked {
            acked.end_gathering();
        }
        match next {
            special if count == 0 => return Err(special),
            Next::Lagged(lost) => self.untold += lost,
            // The next call tells.
            _ => {}
        }
        self.release();
        Ok(count)
    }

    #[cold]
    fn poll_acked(
        &mut self,
        most: usize,
        mut f: impl FnMut(&Block<'_>) -> bool,
    ) -> Result<usize, RecvError> {
        let mut count = 0;
        while count < most {
            self.forget_leases();
            self.done_with_older();
            match self.next_specially() {
                Next::Record(address) => {
                    count += 1;
                    if !f(&Block::of(&self.message(address))) || self.took_suspect() {
                        break;
                    }
                }
                Next::Lagged(lost) if count == 0 => return Err(RecvError::Lagged(lost)),
                Next::Lagged(lost) => {
                    self.untold += lost;
                    break;
                }
                Next::Failed(fault) if count == 0 => return Err(RecvError::Store(fault)),
                Next::Failed(_) | Next::CaughtUp | Next::Empty => break,
            }
        }
        Ok(count)
    }

    #[inline(always)]
    fn poll_ring<const EACH: bool, const WHOLE: bool>(
        &mut self,
        most: usize,
        mut f: impl FnMut(&Block<'_>) -> bool,
    ) -> Polled {
        let Self { inbox, engine, reader, turn, .. } = self;
        let Some(lane) = inbox.lane(*turn) else { return Polled { count: 0, is_all: true } };
        let mut released = telling_of_room(inbox);
        let context = &engine.context;
        let mut f = |records: &[Record<'_>]| f(&Block { records, context, leases: &[] });
        if WHOLE {
            lane.poll::<EACH, true, { Block::MOST }>(reader, most, &mut released, &mut f)
        } else {
            lane.poll::<EACH, false, BLOCK>(reader, most, &mut released, &mut f)
        }
    }
}

/// A message of several that a handler has failed with.
#[derive(Debug)]
pub(crate) struct Failed {
    /// Which of those that the handler was called with.
    pub(crate) at: usize,
    pub(crate) address: usize,
    /// Which of the leases at hand is of it.
    pub(crate) lease: usize,
    pub(crate) handled: Handled,
}

/// Leaves `failures` with some of `records` in `failed`. Before them the handler had `before` others, and
/// the leases at hand begin with the record `first`.
#[inline(always)]
fn note_failures(
    failures: Vec<(usize, Handled)>,
    records: &[Record<'_>],
    (before, first): (usize, usize),
    failed: &mut Vec<Failed>,
) {
    failed.extend(failures.into_iter().map(|(at, handled)| Failed {
        at: before + at,
        address: records[at].address(),
        lease: at - first,
        handled,
    }));
}

/// Wakes publishers that wait for room in `inbox`, each time that places were given back.
#[inline(always)]
fn telling_of_room(inbox: &Inbox) -> impl FnMut() {
    // Asked once, and not for each few messages.
    let blocks = matches!(inbox.overflow, Overflow::Block { .. });
    move || {
        if blocks && inbox.space.is_armed_after_fence() {
            inbox.space.wake();
        }
    }
}

/// Makes a lane live that has caught up, unless too much has come meanwhile.
fn go_live(inbox: &Inbox, engine: &Engine, shard: usize, lane: &Lane, reader: &mut Reader) {
    if engine.shards[shard].baton.run(|core| core.go_live(inbox, lane)) {
        lane.leave_log(reader);
    }
}
