//! The consumer's side of a subscription that delivers at least once: leases what it takes, and
//! takes again what is due.

use crate::acks::{Acks, Due, sequence_after};
use crate::handled::Handled;
use crate::inbox::Inbox;
use crate::lane::{Lane, Next, Reader};
use crate::lease::{AckId, Leased};
use crate::ledger::Grant;
use crate::message::{Context, Message, Record};
use crate::publisher::Engine;
use crate::sync::{Ordering, PlainArc as Arc};

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Acked {
    pub(crate) acks: Arc<Acks>,
    /// Whether a handler's result settles messages.
    handles: bool,
    /// Of the messages at hand: the first `used`, in the order in which they were taken.
    leases: Vec<Leased>,
    used: usize,
    /// For a handler: whether nothing is unsettled but the run at hand, so that nobody need be
    /// asked about the next message.
    quiet: bool,
    run: Option<Run>,
    /// For a handler: whether it is to get several at once, so that each has a lease of its own.
    gathers: bool,
}

/// Messages that a handler has had and succeeded with, of which the ledger does not know yet.
#[derive(Debug, Clone, Copy)]
struct Run {
    shard: usize,
    next: u64,
    count: u64,
}

impl Acked {
    pub(crate) fn new(acks: Arc<Acks>, handles: bool) -> Self {
        Self { acks, handles, leases: Vec::new(), used: 0, quiet: false, run: None, gathers: false }
    }

    /// Nothing that was taken is at hand any more.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }

    /// The lease on the `index`-th message at hand.
    pub(crate) fn lease(&self, index: usize) -> Option<&Leased> {
        self.leases[..self.used].get(index)
    }

    /// Those on all messages at hand, or the one that is like those on all.
    pub(crate) fn leases(&self) -> &[Leased] {
        &self.leases[..self.used]
    }

    /// The lease on the last message that was taken.
    pub(crate) fn last(&self) -> Option<&Leased> {
        self.leases[..self.used].last()
    }

    /// Whether what was taken last goes to the consumer alone.
    pub(crate) fn is_alone(&self) -> bool {
        self.last().is_some_and(|lease| self.acks.suspects(lease.id))
    }

    #[inline]
    fn note(&mut self, id: AckId, attempt: u32) {
        if let Some(lease) = self.leases.get_mut(self.used) {
            (lease.id, lease.attempt) = (id, attempt);
        } else {
            let by = (!self.handles).then(|| Arc::clone(&self.acks) as _);
            self.leases.push(Leased { id, attempt, by });
        }
        self.used += 1;
    }

    /// The next message from `shard`: one that is due again, or one that was not taken before.
    pub(crate) fn next(
        &mut self,
        inbox: &Inbox,
        engine: &Engine,
        reader: &mut Reader,
        shard: usize,
    ) -> Next {
        let Some(lane) = inbox.lane(shard) else { return Next::Empty };
        if self.handles && !self.gathers {
            self.used = 0;
            if self.run.is_some_and(|run| run.shard != shard) {
                self.end_run();
            }
            self.quiet = self.quiet || self.acks.is_carefree();
        }
        if !self.quiet
            && let Some(next) = self.next_due(engine, lane, reader, shard)
        {
            return next;
        }
        loop {
            let next = lane.next(reader, 1, &inbox.interest, &engine.context);
            if let Next::Lagged(_) = next {
                // Whatever comes of the process, that is not delivered any more.
                self.end_run();
                self.acks.pass(shard, lane.passed(reader));
            }
            let Next::Record(address) = next else { return next };
            lane.release(reader);
            let message = Lane::message(reader, address, &engine.context);
            if self.quiet {
                let Some(next) = self.run_next(shard) else { return Next::Empty };
                let sequence = sequence_after(next, message.record);
                let id = AckId { epoch: 0, sequence, generation: 0, shard: shard as u16 };
                self.note(id, 1);
                return Next::Record(address);
            }
            if let Some((id, grant)) = self.acks.lease(shard, message.record, self.handles) {
                self.note(id, grant.attempt);
                return Next::Record(address);
            }
            // Held: it comes when the earlier one of its key is settled.
        }
    }

    /// What is due of the messages that were taken before; `None` if others may be taken.
    fn next_due(
        &mut self,
        engine: &Engine,
        lane: &Lane,
        reader: &mut Reader,
        shard: usize,
    ) -> Option<Next> {
        loop {
            let (id, grant, asks_key) = match self.acks.due(shard, self.handles) {
                Due::Again { id, grant, asks_key } => (id, grant, asks_key),
                Due::Lost(lost) => return Some(Next::Lagged(lost)),
                Due::Full => return Some(Next::Empty),
                Due::Fresh => return None,
            };
            let address = match lane.again(reader, grant.sequence) {
                Ok(Some(address)) => address,
                Ok(None) => {
                    // It has expired since: told by the next look.
                    if self.acks.lose(shard, grant.sequence) {
                        return Some(Next::Lagged(1));
                    }
                    continue;
                }
                Err(fault) => {
                    self.acks.return_unread(shard, grant);
                    return Some(Next::Failed(fault));
                }
            };
            let message = Lane::message(reader, address, &engine.context);
            if is_deleted(&message, &engine.context) {
                self.acks.settle(shard, grant.sequence);
            } else if message.record.has_expired(&engine.context) {
                if self.acks.lose(shard, grant.sequence) {
                    return Some(Next::Lagged(1));
                }
            } else if asks_key && !self.acks.tell_key(shard, grant, message.record) {
                // It comes when the earlier one of its key is settled.
            } else if grant.attempt > self.acks.terms.max_attempts {
                let attempts = grant.attempt - 1;
                let reason = format!("not acknowledged in {attempts} attempts");
                let grant = Grant { attempt: attempts, ..grant };
                if self.handles {
                    self.acks.bury_or_retry(shard, grant, &reason);
                } else {
                    self.acks.bury_due(shard, grant, &reason);
                }
            } else {
                self.acks.begin_again(shard, grant);
                self.note(id, grant.attempt);
                return Some(Next::Record(address));
            }
        }
    }

    /// Behind the last message that was taken from `shard`.
    fn run_next(&self, shard: usize) -> Option<u64> {
        match self.run {
            Some(run) => Some(run.next),
            None => self.acks.next(shard),
        }
    }

    /// Whether there is a run of messages from `shard`, so that the next one is of it as well.
    pub(crate) fn has_run(&self, shard: usize) -> bool {
        self.quiet && self.run.is_some_and(|run| run.shard == shard)
    }

    /// The next message of the run is at hand.
    #[inline]
    pub(crate) fn take_of_run(&mut self, record: Record<'_>) {
        let Some(run) = self.run else { return };
        let (sequence, shard) = (sequence_after(run.next, record), run.shard as u16);
        self.used = 0;
        self.note(AckId { epoch: 0, sequence, generation: 0, shard }, 1);
    }

    /// The handler has succeeded with the message at hand, which is the next one of a run.
    #[inline]
    pub(crate) fn add_to_run(&mut self) {
        let Some(&Leased { id: AckId { sequence, shard, .. }, .. }) = self.last() else { return };
        let (shard, next) = (usize::from(shard), sequence + 1);
        let count = self.run.map_or(0, |run| run.count) + 1;
        self.run = Some(Run { shard, next, count });
        self.acks.note_run(shard, next);
    }

    /// What became of the message that the handler had last.
    pub(crate) fn settle(&mut self, message: &Message<'_>, handled: &Handled) {
        let Some(&Leased { id, attempt, .. }) = self.last() else { return };
        let AckId { sequence, mut generation, .. } = id;
        let shard = usize::from(id.shard);
        if self.quiet && *handled == Handled::Success {
            return self.add_to_run();
        }
        self.used = 0;
        if self.quiet {
            self.end_run();
            self.quiet = false;
            // Nothing else is unsettled that it could have to wait for.
            let lease = self.acks.lease(shard, message.record, true);
            generation = lease.map_or(generation, |(_, grant)| grant.generation);
        }
        let grant = Grant { sequence, generation, attempt };
        match handled {
            Handled::Success => self.acks.succeed(shard, sequence),
            Handled::Retry { reason } => self.acks.fail(shard, grant, reason),
            Handled::DeadLetter { reason } => self.acks.bury_or_retry(shard, grant, reason),
        }
    }

    /// Sees to it that the next message from `shard` is of a run; false if it cannot be.
    pub(crate) fn begin_run(&mut self, shard: usize) -> bool {
        if self.run.is_some_and(|run| run.shard != shard) {
            self.end_run();
        }
        self.quiet = self.quiet || self.acks.is_carefree();
        if self.quiet && self.run.is_none() {
            self.run = self.acks.next(shard).map(|next| Run { shard, next, count: 0 });
        }
        self.has_run(shard)
    }

    /// The handler has had `records`, the next of a run, and failed with those at `failures`, in rising
    /// order. Settles the others, and leases those that it has failed with: the first lease at hand is on
    /// the first of them.
    pub(crate) fn settle_block(&mut self, records: &[Record<'_>], failures: &[(usize, Handled)]) {
        let (succeeded, rest) = match failures.first() {
            None => (records, &[][..]),
            Some(&(first, _)) => records.split_at(first),
        };
        if let (Some(&last), Some(run)) = (succeeded.last(), &mut self.run) {
            run.next = sequence_after(run.next, last) + 1;
            run.count += succeeded.len() as u64;
            self.acks.note_run(run.shard, run.next);
        }
        if let (&[(first, _), ..], Some(run)) = (failures, self.run) {
            self.end_slice();
            self.used = 0;
            let mut next = run.next;
            for &record in rest {
                next = sequence_after(next, record) + 1;
                // All of them before any has failed, so that none is held for its key.
                if let Some((id, grant)) = self.acks.lease(run.shard, record, true) {
                    self.note(id, grant.attempt);
                } else {
                    let (epoch, generation) = (0, 0);
                    let (sequence, shard) = (next - 1, run.shard as u16);
                    self.note(AckId { epoch, sequence, generation, shard }, 1);
                }
            }
            self.settle_from(first, failures);
        }
    }

    /// The handler has had all messages at hand, and failed with those at `failures`, in rising order.
    /// Settles the others.
    pub(crate) fn settle_others(&mut self, failures: &[(usize, Handled)]) {
        self.settle_from(0, failures);
    }

    fn settle_from(&self, first: usize, failures: &[(usize, Handled)]) {
        let mut failures = failures.iter().map(|&(at, _)| at - first).peekable();
        for (at, lease) in self.leases().iter().enumerate() {
            if failures.next_if_eq(&at).is_none() {
                self.acks.succeed(usize::from(lease.id.shard), lease.id.sequence);
            }
        }
    }

    /// What became of the message that the lease at `index` is on, if it was no success.
    pub(crate) fn settle_at(&self, index: usize, handled: &Handled) {
        let Some(&Leased { id, attempt, .. }) = self.lease(index) else { return };
        let AckId { sequence, generation, .. } = id;
        let (shard, grant) = (usize::from(id.shard), Grant { sequence, generation, attempt });
        match handled {
            Handled::Success => self.acks.succeed(shard, sequence),
            Handled::Retry { reason } => self.acks.fail(shard, grant, reason),
            Handled::DeadLetter { reason } => self.acks.bury_or_retry(shard, grant, reason),
        }
    }

    /// What is taken now is to be handled together.
    pub(crate) fn begin_gathering(&mut self) {
        self.end_slice();
        self.used = 0;
        self.gathers = true;
    }

    /// All of that was taken.
    pub(crate) fn end_gathering(&mut self) {
        self.gathers = false;
    }

    /// Tells the ledger of the run at hand.
    pub(crate) fn end_run(&mut self) {
        if let Some(Run { shard, next, count }) = self.run.take().filter(|run| run.count > 0) {
            self.acks.settle_run(shard, next - 1, count);
        }
    }

    /// The ledger is to be asked again: others may have changed it.
    pub(crate) fn end_slice(&mut self) {
        self.end_run();
        self.quiet = false;
    }
}

fn is_deleted(message: &Message<'_>, context: &Context) -> bool {
    context.partitions[message.partition() as usize].deleted.load(Ordering::Relaxed)
}
