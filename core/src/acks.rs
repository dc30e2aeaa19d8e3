//! Acknowledgements: what a subscription that delivers at least once has in flight, shared by its
//! consumer and by whoever settles its messages.
//!
//! The ledgers are behind one mutex. No foreign code runs under it, and nothing is published: a
//! dead letter is stored between two uses of the lock, while its message is leased to nobody but
//! whoever stores it.

use crate::backoff::Backoff;
use crate::dead_letter::{self, DeadLetterTopic, PATIENCE, Source};
use crate::error::{AckError, StoreFault};
use crate::handled::Handled;
use crate::inbox::{Inbox, InboxState};
use crate::interest::is_inside_filter;
use crate::lane::Lane;
use crate::lease::{AckId, Settle};
use crate::ledger::{Grant, Ledger, Position, Stale};
use crate::ledgers::Ledgers;
use crate::message::Record;
use crate::outage::Outage;
use crate::publisher::{Engine, stable_hash};
use crate::suspects::Suspects;
use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};
use crate::tally::AckFigures;
use crate::terms::{LEASE_MAX, LEASE_MIN, Terms, in_range};
use std::fmt;
use std::sync::PoisonError;
use std::time::Duration;

/// How long a message that cannot be read waits for another attempt at that.
const UNREADABLE: Duration = Duration::from_secs(1);

/// Inboxes that a subscription can have had in one process before their numbers come again.
const INCARNATIONS: u16 = 64;

/// A lease that does not end: what a handler has is not given to anybody else.
const FOR_EVER: Duration = Duration::MAX;

/// See the module's head.
pub(crate) struct Acks {
    pub(crate) inbox: Arc<Inbox>,
    engine: Arc<Engine>,
    pub(crate) terms: Terms,
    pub(crate) dead_letters: DeadLetterTopic,
    state: Mutex<Ledgers>,
    /// How far a handler has come with a run of messages that the ledger does not know of yet: the
    /// shard above [`RUN_SHARD`], and the sequence behind the last one. 0 if there is no such run.
    run: AtomicU64,
    /// Whether some of what comes may be suspects.
    has_suspects: AtomicBool,
    pub(crate) figures: AckFigures,
    /// While dead letters cannot be stored.
    burying: Outage,
}

/// The bits of a run's sequence; those above are its shard.
const RUN_SHARD: u32 = 56;

fn count(figure: &AtomicU64, count: u64) {
    // Relaxed: a figure that orders nothing.
    figure.fetch_add(count, Ordering::Relaxed);
}

impl fmt::Debug for Acks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acks").field("terms", &self.terms).finish_non_exhaustive()
    }
}

/// What a consumer is to do next about what it has taken before.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Due {
    /// Deliver this again; with `asks_key`, if its [key](Acks::tell_key) allows that.
    Again { id: AckId, grant: Grant, asks_key: bool },
    /// Tell that so many expired unsettled.
    Lost(u64),
    /// Take one that was not taken before.
    Fresh,
    /// Wait until something is settled.
    Full,
}

impl Acks {
    pub(crate) fn new(
        inbox: Arc<Inbox>,
        engine: Arc<Engine>,
        terms: Terms,
        dead_letters: DeadLetterTopic,
    ) -> Self {
        let state = Ledgers {
            by_shard: (0..engine.shards.len()).map(|_| None).collect(),
            incarnation: 0,
            is_over: false,
            is_sealed: false,
            has_changed: false,
            suspects: None,
            was_full: false,
            alarm: None,
            random: inbox.id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ engine.context.store | 1,
        };
        let (state, figures) = (Mutex::new(state), AckFigures::default());
        let (run, has_suspects) = (AtomicU64::new(0), AtomicBool::new(false));
        let burying = Outage::default();
        Self { inbox, engine, terms, dead_letters, state, run, has_suspects, figures, burying }
    }

    /// Those of the same subscription for its next inbox, after a [hand-over](Self::hand_over).
    /// Nothing is leased: what was is due. With `forget` nothing is unsettled either.
    pub(crate) fn succeed_to(&self, inbox: Arc<Inbox>, left: HandOver, forget: bool) -> Self {
        let (engine, dead_letters) = (Arc::clone(&self.engine), self.dead_letters.clone());
        let next = Self::new(inbox, engine, self.terms.clone(), dead_letters);
        {
            let mut state = next.lock();
            state.incarnation = left.incarnation.wrapping_add(1);
            // What the one before has settled last may not be noted yet.
            state.has_changed = true;
            next.has_suspects.store(left.suspects.is_some(), Ordering::Relaxed);
            state.suspects = left.suspects;
            if !forget {
                state.by_shard = left.ledgers;
                state.by_shard.iter_mut().flatten().for_each(Ledger::expire_all);
            }
        }
        next
    }

    /// Shows the shards what is unsettled, when they know the inbox.
    pub(crate) fn note_unsettled(&self) {
        let state = self.lock();
        for (shard, ledger) in state.by_shard.iter().enumerate() {
            if let (Some(lane), Some(ledger)) = (self.inbox.lane(shard), ledger) {
                lane.note_unsettled(ledger.oldest());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ledgers> {
        // No foreign code runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.engine.clock.now()
    }

    /// What ack ids of an incarnation have in common.
    fn epoch(&self, incarnation: u16) -> u64 {
        AckId::epoch_of(self.engine.context.store, self.inbox.number, incarnation)
    }

    /// The ordering key of `record`, as ledgers know it.
    fn key(&self, record: Record<'_>) -> u32 {
        match record.key() {
            Some(key) if self.terms.keys_wait => {
                let hash = stable_hash(key.as_bytes()) ^ u64::from(record.partition()) << 32;
                ((hash ^ hash >> 32) as u32).clamp(1, u32::MAX - 1)
            }
            _ => 0,
        }
    }

    /// What is due now of the messages from `shard` that were taken before.
    pub(crate) fn due(&self, shard: usize, to_handler: bool) -> Due {
        let now = self.now();
        let until = self.lease_end(now, to_handler);
        let mut state = self.lock();
        if state.is_sealed {
            return Due::Full;
        }
        let most = state.most_leased(shard, &self.terms);
        if let (Some(ledger), Some(lane)) = (state.by_shard[shard].as_mut(), self.inbox.lane(shard))
            && let Some(due) = self.due_of(ledger, lane, now, until, most)
        {
            state.has_changed = true;
            return match due {
                Ok(grant) => {
                    let ledger = state.by_shard[shard].as_ref();
                    let asks_key = ledger.is_some_and(|ledger| ledger.asks_key(grant.sequence));
                    Due::Again { id: self.id(&state, shard, grant), grant, asks_key }
                }
                Err(lost) => Due::Lost(lost),
            };
        }
        if state.has_room(&self.terms) {
            return Due::Fresh;
        }
        let first_time = !state.is_over && !std::mem::replace(&mut state.was_full, true);
        drop(state);
        if first_time {
            let (subscription, limit) = (self.inbox.number, self.terms.max_outstanding);
            tracing::info!(subscription, limit, "at the limit of messages not acknowledged");
        }
        Due::Full
    }

    /// When a lease that is given now ends; a handler settles its message when it returns.
    fn lease_end(&self, now: Duration, to_handler: bool) -> Duration {
        if to_handler { FOR_EVER } else { now.saturating_add(self.terms.visibility) }
    }

    /// A message of `ledger` that is due, or how many have expired.
    fn due_of(
        &self,
        ledger: &mut Ledger,
        lane: &Lane,
        now: Duration,
        until: Duration,
        most: usize,
    ) -> Option<Result<Grant, u64>> {
        if ledger.is_quiet() {
            return None;
        }
        // What was not taken yet, the lane tells.
        let expired = ledger.expire_below(lane.oldest().min(ledger.next()));
        if expired > 0 {
            lane.note_unsettled(ledger.oldest());
            count(&self.figures.expired_leases, expired);
            return Some(Err(expired));
        }
        let grant = ledger.due(now, until, most)?;
        // What has no attempt left is not delivered, but given up on.
        let is_delivered_again = (2..=self.terms.max_attempts).contains(&grant.attempt);
        count(&self.figures.redelivered, u64::from(is_delivered_again));
        Some(Ok(grant))
    }

    /// Whether one more message may be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.lock().has_room(&self.terms)
    }

    /// Leases the next message from `shard`, unless it must wait for another of its key.
    pub(crate) fn lease(
        &self,
        shard: usize,
        record: Record<'_>,
        to_handler: bool,
    ) -> Option<(AckId, Grant)> {
        let key = self.key(record);
        let until = self.lease_end(self.now(), to_handler);
        let mut state = self.lock();
        let (ledger, lane) = state.ledger(&self.inbox, shard)?;
        let sequence = sequence_after(ledger.next(), record);
        let grant = ledger.lease(sequence, key, until);
        lane.note_unsettled(ledger.oldest());
        let grant = grant?;
        let id = self.id(&state, shard, grant);
        self.note_suspects(state, Some((shard, grant)));
        Some((id, grant))
    }

    /// The message that was due is `record`. False if it must wait for an earlier one of its key.
    pub(crate) fn tell_key(&self, shard: usize, grant: Grant, record: Record<'_>) -> bool {
        let key = self.key(record);
        let mut state = self.lock();
        state.by_shard[shard].as_mut().is_some_and(|ledger| ledger.tell_key(grant, key))
    }

    /// A message that was due is about to be handed over.
    pub(crate) fn begin_again(&self, shard: usize, grant: Grant) {
        // Relaxed: as below.
        if self.has_suspects.load(Ordering::Relaxed) {
            self.note_suspects(self.lock(), Some((shard, grant)));
        }
    }

    /// Notes the delivery that is about to be made, and what was settled, as far as it is of suspects.
    #[inline]
    fn note_suspects(&self, mut state: MutexGuard<'_, Ledgers>, delivery: Option<(usize, Grant)>) {
        // Relaxed: changed with the lock.
        if !self.has_suspects.load(Ordering::Relaxed) {
            return;
        }
        let Some(suspects) = &mut state.suspects else { return };
        let (notes, archive) = (suspects.take_notes(delivery), Arc::clone(&suspects.archive));
        self.has_suspects.store(state.check_suspects(), Ordering::Relaxed);
        drop(state);
        if notes.is_empty() {
            return;
        }
        let number = self.inbox.number;
        let note = || {
            // Nobody gives it another place meanwhile, to which this would not belong.
            let _moving = archive.moving();
            if self.lock().is_over {
                return Ok(());
            }
            archive.note_at_once(number, notes)
        };
        if let Err(fault) = self.engine.around_waits.run(note) {
            // A directory that cannot be written to keeps nobody from what can be read.
            tracing::warn!(subscription = number, %fault, "a suspect is not noted in time");
        }
    }

    /// Whether a process may have died of the message that `id` names: then no other is handed over
    /// together with it.
    pub(crate) fn suspects(&self, id: AckId) -> bool {
        let has = |suspects: &Suspects| suspects.has(usize::from(id.shard), id.sequence);
        // Relaxed: as above.
        self.has_suspects.load(Ordering::Relaxed) && self.lock().suspects.as_ref().is_some_and(has)
    }

    /// The consumer has found nothing more below `head` of `shard`.
    pub(crate) fn pass(&self, shard: usize, head: u64) {
        let mut state = self.lock();
        if let Some((ledger, _)) = state.ledger(&self.inbox, shard) {
            ledger.pass(head);
        }
    }

    /// What is settled of each shard that something has come from, with the attempts that have
    /// changed since this was called before; `None` if another inbox goes on.
    pub(crate) fn changes(&self) -> Option<Vec<Option<Position>>> {
        let mut state = self.lock();
        if state.is_over {
            return None;
        }
        let positions =
            state.by_shard.iter_mut().map(|ledger| ledger.as_mut().map(Ledger::changes));
        let mut positions: Vec<_> = positions.collect();
        // Acquire: what the handler has done for them comes before.
        let run = self.run.load(Ordering::Acquire);
        if let Some(Some(position)) = positions.get_mut((run >> RUN_SHARD) as usize) {
            // Nothing else is unsettled as long as there is a run.
            position.floor = position.floor.max(run & ((1 << RUN_SHARD) - 1));
        }
        Some(positions)
    }

    /// What [`changes`](Self::changes) told of `shard` is not noted, or not all.
    pub(crate) fn change_all(&self, shard: usize) {
        let mut state = self.lock();
        state.has_changed = true;
        state.by_shard[shard].iter_mut().for_each(Ledger::change_all);
    }

    /// Nothing is handed over or settled from now on: it could not be noted.
    pub(crate) fn seal(&self) {
        self.lock().is_sealed = true;
    }

    /// A handler has succeeded with all from `shard` below `next` of a run that is told later.
    #[inline]
    pub(crate) fn note_run(&self, shard: usize, next: u64) {
        if self.terms.is_durable {
            self.run.store((shard as u64) << RUN_SHARD | next, Ordering::Release);
        }
    }

    /// Goes on from `positions`, by shard, in the `epoch`-th process that has the subscription.
    /// Of the messages that are left, `suspects` are handed over with care.
    pub(crate) fn restore(&self, positions: Vec<Position>, epoch: u32, suspects: Option<Suspects>) {
        let keys_wait = self.terms.keys_wait;
        let ledgers = positions.into_iter();
        let ledgers = ledgers.map(|position| Some(Ledger::restored(position, keys_wait)));
        let ledgers = ledgers.collect();
        let mut state = self.lock();
        state.by_shard = ledgers;
        state.suspects = suspects;
        self.has_suspects.store(state.check_suspects(), Ordering::Relaxed);
        state.incarnation = (epoch as u16).wrapping_mul(INCARNATIONS);
    }

    /// Where to go on reading each shard, after a [`restore`](Self::restore).
    pub(crate) fn cursors(&self) -> Vec<u64> {
        self.lock().by_shard.iter().map(|ledger| ledger.as_ref().map_or(0, Ledger::next)).collect()
    }

    /// Whether something was settled since this was last asked.
    pub(crate) fn take_changed(&self) -> bool {
        // Relaxed: looked at again with the lock.
        std::mem::take(&mut self.lock().has_changed) || self.run.load(Ordering::Relaxed) != 0
    }

    /// Whether what is settled outlives the process.
    pub(crate) fn is_durable(&self) -> bool {
        self.terms.is_durable
    }

    /// Its number among those of the store, the same for all inboxes it has had.
    pub(crate) fn number(&self) -> u64 {
        self.inbox.number
    }

    /// Behind the last message taken from `shard`.
    pub(crate) fn next(&self, shard: usize) -> Option<u64> {
        let mut state = self.lock();
        state.ledger(&self.inbox, shard).map(|(ledger, _)| ledger.next())
    }

    /// The messages from `shard` up to `last` were all taken and handled, while nothing else was
    /// unsettled.
    pub(crate) fn settle_run(&self, shard: usize, last: u64, messages: u64) {
        let mut state = self.lock();
        if let Some((ledger, _)) = state.ledger(&self.inbox, shard) {
            ledger.take_settled(last);
        }
        // Relaxed: whoever looks has the lock.
        self.run.store(0, Ordering::Relaxed);
        count(&self.figures.acked, messages);
    }

    /// Whether nothing is unsettled.
    pub(crate) fn is_quiet(&self) -> bool {
        self.lock().is_quiet()
    }

    /// The same, and nobody need be asked about the message that comes next either.
    pub(crate) fn is_carefree(&self) -> bool {
        let mut state = self.lock();
        // Relaxed: changed with the lock.
        let has_suspects = self.has_suspects.load(Ordering::Relaxed) && state.check_suspects();
        state.is_quiet() && !has_suspects
    }

    /// When something is due next.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.lock().next_due(&self.terms)
    }

    /// Whether something is due now.
    pub(crate) fn is_due(&self) -> bool {
        self.next_due().is_some_and(|next| next <= self.now())
    }

    /// Wakes the consumer when something is due.
    pub(crate) fn set_alarm(&self) {
        let now = self.now();
        let mut state = self.lock();
        let Some(due) = state.next_due(&self.terms) else { return };
        if state.alarm.is_none_or(|alarm| due < alarm || alarm <= now) {
            state.alarm = Some(due);
            drop(state);
            self.engine.alarms.set(due, &self.inbox);
        }
    }

    /// Messages that were taken and are not settled.
    pub(crate) fn unsettled(&self) -> u64 {
        let state = self.lock();
        state.by_shard.iter().flatten().map(|ledger| ledger.unsettled() as u64).sum()
    }

    /// The id of a lease on a message from `shard`.
    fn id(&self, state: &Ledgers, shard: usize, grant: Grant) -> AckId {
        let Grant { sequence, generation, .. } = grant;
        let epoch = self.epoch(state.incarnation);
        AckId { epoch, sequence, generation, shard: shard as u16 }
    }

    /// The message of a lease is settled, whatever has become of the lease.
    pub(crate) fn settle(&self, shard: usize, sequence: u64) -> bool {
        let settled =
            self.change(shard, |ledger| ledger.settle(sequence).then_some(()).ok_or(Stale));
        // Relaxed: changed with the lock.
        if settled.is_ok() && self.has_suspects.load(Ordering::Relaxed) {
            let mut state = self.lock();
            state.suspects.iter_mut().for_each(|suspects| suspects.settle(shard, sequence));
            self.note_suspects(state, None);
        }
        settled.is_ok()
    }

    /// A message that was taken has expired. False if that was known.
    pub(crate) fn lose(&self, shard: usize, sequence: u64) -> bool {
        let lost = self.settle(shard, sequence);
        count(&self.figures.expired_leases, u64::from(lost));
        lost
    }

    /// A message that was due cannot be read now: that was no delivery, and is tried again soon.
    pub(crate) fn return_unread(&self, shard: usize, grant: Grant) {
        let now = self.now();
        let due = now.saturating_add(UNREADABLE);
        // Nothing else can have happened to a lease that nobody has seen.
        let _ = self.change(shard, |ledger| ledger.return_unread(grant, now, due));
    }

    /// The handler has succeeded.
    pub(crate) fn succeed(&self, shard: usize, sequence: u64) {
        if self.settle(shard, sequence) {
            count(&self.figures.acked, 1);
        }
    }

    /// A delivery has failed: the message is due again after its pause, or a dead letter.
    pub(crate) fn fail(&self, shard: usize, grant: Grant, reason: &str) {
        self.warn(self.give_back(shard, grant, None, reason));
    }

    /// Gives up on a message that is leased; if its dead letter cannot be stored, that is tried
    /// again.
    pub(crate) fn bury_or_retry(&self, shard: usize, grant: Grant, reason: &str) {
        self.warn(self.bury(shard, grant, reason));
    }

    /// Gives up on a message that is due and has no attempt left. Whoever receives does not wait for
    /// room for its dead letter: where there is none, that is tried again after a pause.
    pub(crate) fn bury_due(&self, shard: usize, grant: Grant, reason: &str) {
        let now = self.now();
        let pause = self.terms.backoff.after_with(grant.attempt, || self.lock().random());
        let due = now.saturating_add(pause.max(PATIENCE));
        // It was no delivery, so that the number of attempts stays.
        let mine = self.change(shard, |ledger| ledger.return_unread(grant, now, due));
        self.warn(mine.and_then(|()| self.store_letter(shard, grant, reason, Duration::ZERO)));
    }

    fn warn(&self, result: Result<(), AckError>) {
        // Any other error: it expired from the log meanwhile.
        if let Err(AckError::DeadLetter(error)) = result
            && self.burying.begins()
        {
            let subscription = self.inbox.number;
            tracing::warn!(subscription, %error, "a dead letter is not stored");
        }
    }

    /// Gives up on a message that is leased.
    fn bury(&self, shard: usize, grant: Grant, reason: &str) -> Result<(), AckError> {
        let now = self.now();
        let until = now.saturating_add(self.terms.visibility);
        // Whoever stores the dead letter is the only one to have the message. If it cannot be
        // stored, there is another attempt at that when the time is over.
        self.change(shard, |ledger| ledger.nack(grant.sequence, grant.generation, now, until))?;
        self.store_letter(shard, grant, reason, PATIENCE)
    }

    /// Stores the dead letter of a message that nobody else has, which is settled then.
    fn store_letter(
        &self,
        shard: usize,
        grant: Grant,
        reason: &str,
        patience: Duration,
    ) -> Result<(), AckError> {
        let log = &self.engine.shards[shard].log;
        let unreadable = |fault: StoreFault| AckError::DeadLetter(fault.into());
        let message = log.keep_message(grant.sequence, &self.engine.context).map_err(unreadable)?;
        let Some(message) = message else {
            self.lose(shard, grant.sequence);
            return Err(AckError::Expired);
        };
        let subscription = dead_letter::subscription_name(&self.inbox);
        let source = Source { subscription: &subscription, attempts: grant.attempt, reason };
        let (topic, message) = (&self.dead_letters.open, message.view());
        let store = || dead_letter::store(&topic()?, &message, source, patience);
        self.engine.around_waits.run(store).map_err(AckError::DeadLetter)?;
        if self.burying.ends() {
            tracing::info!(subscription = self.inbox.number, "dead letters are stored again");
        }
        self.settle(shard, grant.sequence);
        count(&self.figures.dead_lettered, 1);
        Ok(())
    }

    fn give_back(
        &self,
        shard: usize,
        grant: Grant,
        delay: Option<Duration>,
        reason: &str,
    ) -> Result<(), AckError> {
        if grant.attempt >= self.terms.max_attempts {
            return self.bury(shard, grant, reason);
        }
        let now = self.now();
        let pause = || self.terms.backoff.after_with(grant.attempt, || self.lock().random());
        let due = now.saturating_add(delay.unwrap_or_else(pause));
        let Grant { sequence, generation, .. } = grant;
        self.change(shard, |ledger| ledger.nack(sequence, generation, now, due))
    }

    /// Settles a message as a handler's result does.
    pub(crate) fn settle_as(&self, id: AckId, handled: &Handled) -> Result<bool, AckError> {
        match handled {
            Handled::Success => return self.ack(id),
            Handled::DeadLetter { reason } => self.dead_letter(id, reason)?,
            Handled::Retry { reason } => {
                let (shard, grant) = self.grant(id)?;
                self.give_back(shard, grant, None, reason)?;
            }
        }
        Ok(true)
    }

    /// Changes the ledger of `shard`, and wakes the consumer if that has made something due, or
    /// made room.
    fn change(
        &self,
        shard: usize,
        change: impl FnOnce(&mut Ledger) -> Result<(), Stale>,
    ) -> Result<(), AckError> {
        let mut state = self.lock();
        if state.is_sealed {
            return Err(AckError::Closed);
        }
        let had_room = state.has_room(&self.terms);
        let (Some(ledger), Some(lane)) = (state.by_shard[shard].as_mut(), self.inbox.lane(shard))
        else {
            return Err(AckError::Stale);
        };
        change(ledger).map_err(|Stale| AckError::Stale)?;
        lane.note_unsettled(ledger.oldest());
        self.changed(state, had_room);
        Ok(())
    }

    /// Something was settled or given back: wakes the consumer if there is room now where there was
    /// none before, or something is due.
    fn changed(&self, mut state: MutexGuard<'_, Ledgers>, had_room: bool) {
        state.has_changed = true;
        let made_room = !had_room && state.has_room(&self.terms);
        drop(state);
        if self.inbox.arrivals.is_armed_after_fence() {
            // Asked only where somebody waits: it looks at all shards.
            if made_room || self.is_due() {
                self.inbox.arrivals.wake();
            } else {
                self.set_alarm();
            }
        }
    }

    /// Whether a subscription can be called from here and now.
    fn check_caller(&self) -> Result<(), AckError> {
        if is_inside_filter() {
            return Err(AckError::InsideFilter);
        }
        if self.engine.generation.is_over() { Err(AckError::Forked) } else { Ok(()) }
    }

    /// Whether the subscription can be called now, and `id` is of it. An id of an earlier
    /// incarnation is stale.
    fn check(&self, id: AckId) -> Result<(), AckError> {
        self.check_caller()?;
        let (incarnation, is_over, is_sealed) = {
            let state = self.lock();
            (state.incarnation, state.is_over, state.is_sealed)
        };
        let ours = self.epoch(incarnation);
        if id.epoch >> 16 != ours >> 16 || usize::from(id.shard) >= self.engine.shards.len() {
            return Err(AckError::UnknownAckId);
        }
        if is_over {
            return Err(AckError::Stale);
        }
        if is_sealed {
            return Err(AckError::Closed);
        }
        if self.inbox.state() == InboxState::Ended {
            return Err(AckError::Ended);
        }
        if id.epoch == ours { Ok(()) } else { Err(AckError::Stale) }
    }

    /// The lease that `id` names, if it is not over.
    fn grant(&self, id: AckId) -> Result<(usize, Grant), AckError> {
        self.check(id)?;
        let AckId { sequence, generation, .. } = id;
        let (now, shard) = (self.now(), usize::from(id.shard));
        let state = self.lock();
        let ledger = state.by_shard[shard].as_ref().ok_or(AckError::Stale)?;
        let attempt = ledger.attempts(sequence, generation, now).map_err(|_| AckError::Stale)?;
        Ok((shard, Grant { sequence, generation, attempt }))
    }

    /// Ends this: nothing is leased or settled by it any more. What it knew, for its successor.
    pub(crate) fn hand_over(&self) -> HandOver {
        let mut state = self.lock();
        state.is_over = true;
        let shards = state.by_shard.len();
        let ledgers = std::mem::replace(&mut state.by_shard, (0..shards).map(|_| None).collect());
        HandOver { ledgers, incarnation: state.incarnation, suspects: state.suspects.take() }
    }
}

/// What a subscription's acknowledgements leave to those of its next inbox.
#[derive(Debug)]
pub(crate) struct HandOver {
    pub(crate) ledgers: Box<[Option<Ledger>]>,
    incarnation: u16,
    suspects: Option<Suspects>,
}

/// The sequence of `record`, which is at `next` or behind.
pub(crate) fn sequence_after(next: u64, record: Record<'_>) -> u64 {
    next + u64::from(record.sequence_low().wrapping_sub(next as u32))
}

/// How many acks ahead the memory of one is asked for, and the place where that is noted.
const NEAR: usize = 8;
const FAR: usize = 16;

impl Acks {
    /// Acknowledges all of `ids`; what became of each, in their order.
    pub(crate) fn ack_all(&self, ids: &[AckId]) -> Vec<Result<bool, AckError>> {
        let mut acks = Vec::with_capacity(ids.len());
        self.ack_each(ids, |ack| acks.push(ack));
        acks
    }

    /// The same, told one by one while nobody else settles anything.
    fn ack_each(&self, ids: &[AckId], mut told: impl FnMut(Result<bool, AckError>)) {
        if let Err(error) = self.check_caller() {
            return ids.iter().for_each(|_| told(Err(error)));
        }
        let is_ended = self.inbox.state() == InboxState::Ended;
        let mut state = self.lock();
        let ours = self.epoch(state.incarnation);
        let is_over = state.is_over || is_ended;
        let is_sealed = state.is_sealed;
        let had_room = state.has_room(&self.terms);
        let sequence_at = |at: usize, shard: u16| {
            ids.get(at).filter(|id| id.shard == shard).map(|id| id.sequence)
        };
        let mut settled = 0;
        let mut ack = |at: usize, id: &AckId| {
            let shard = usize::from(id.shard);
            if id.epoch >> 16 != ours >> 16 || shard >= state.by_shard.len() {
                return Err(AckError::UnknownAckId);
            }
            let Some(ledger) = state.by_shard[shard].as_mut().filter(|_| id.epoch == ours) else {
                return Ok(false);
            };
            ledger.expect(sequence_at(at + NEAR, id.shard), sequence_at(at + FAR, id.shard));
            if is_sealed && !is_over {
                return Err(AckError::Closed);
            }
            let is_settled = !is_over && ledger.ack(id.sequence, id.generation);
            settled += u64::from(is_settled);
            if let Some(suspects) = state.suspects.as_mut().filter(|_| is_settled) {
                suspects.settle(shard, id.sequence);
            }
            Ok(is_settled)
        };
        ids.iter().enumerate().for_each(|(at, id)| told(ack(at, id)));
        count(&self.figures.acked, settled);
        for (ledger, shard) in state.by_shard.iter().zip(0..) {
            if let (Some(ledger), Some(lane)) = (ledger, self.inbox.lane(shard)) {
                lane.note_unsettled(ledger.oldest());
            }
        }
        self.changed(state, had_room);
        // Relaxed: changed with the lock.
        if self.has_suspects.load(Ordering::Relaxed) {
            self.note_suspects(self.lock(), None);
        }
    }
}

impl Settle for Acks {
    fn ack(&self, id: AckId) -> Result<bool, AckError> {
        let mut acked = Ok(false);
        self.ack_each(&[id], |ack| acked = ack);
        acked
    }

    fn nack(&self, id: AckId, delay: Option<Duration>) -> Result<(), AckError> {
        in_range(delay.unwrap_or_default(), Duration::ZERO, Backoff::MAX)?;
        let (shard, grant) = self.grant(id)?;
        self.give_back(shard, grant, delay, "given back at the last attempt")
    }

    fn dead_letter(&self, id: AckId, reason: &str) -> Result<(), AckError> {
        let (shard, grant) = self.grant(id)?;
        self.bury(shard, grant, reason)
    }

    fn extend(&self, id: AckId, by: Duration) -> Result<(), AckError> {
        in_range(by, LEASE_MIN, LEASE_MAX)?;
        let (shard, Grant { sequence, generation, .. }) = self.grant(id)?;
        let now = self.now();
        let until = now.saturating_add(by);
        self.change(shard, |ledger| ledger.extend(sequence, generation, now, until))
    }
}
