//! Acknowledgements: what a subscription that delivers at least once has in flight, shared by its
//! consumer and by whoever settles its messages.
//!
//! The ledgers are behind one mutex. No foreign code runs under it, and nothing is published: a
//! dead letter is stored between two uses of the lock, while its message is leased to nobody but
//! whoever stores it.

use crate::backing::{Recall, Recalled};
use crate::backoff::Backoff;
use crate::clock::whole_ms;
use crate::config::DEFAULT_OUTSTANDING;
use crate::dead_letter::{self, Source};
use crate::error::{AckError, PublishError, StoreFault};
use crate::handled::Handled;
use crate::inbox::{Inbox, InboxState};
use crate::interest::is_inside_filter;
use crate::lane::Lane;
use crate::lease::{AckId, Settle};
use crate::ledger::{Grant, Ledger, Position, Stale};
use crate::message::Record;
use crate::outage::Outage;
use crate::publisher::{Engine, Topic, stable_hash};
use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering};
use std::fmt;
use std::sync::PoisonError;
use std::time::Duration;

/// The least and the most that a lease can be given for.
pub(crate) const LEASE_MIN: Duration = Duration::from_millis(10);
/// See [`LEASE_MIN`].
pub(crate) const LEASE_MAX: Duration = Duration::from_secs(600);

/// How long a message that cannot be read waits for another attempt at that.
const UNREADABLE: Duration = Duration::from_secs(1);

/// Inboxes that a subscription can have had in one process before their numbers come again.
const INCARNATIONS: u16 = 64;

/// How far the messages that are taken may be ahead of the first one that is not settled.
const WINDOW: u64 = 1 << 23;

/// A lease that does not end: what a handler has is not given to anybody else.
const FOR_EVER: Duration = Duration::MAX;

/// How messages are delivered again.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) visibility: Duration,
    pub(crate) max_attempts: u32,
    pub(crate) backoff: Backoff,
    pub(crate) max_outstanding: usize,
    /// Whether later messages of an ordering key wait for one that has failed.
    pub(crate) keys_wait: bool,
    /// Whether what is settled outlives the process.
    pub(crate) is_durable: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            visibility: Duration::from_secs(10),
            max_attempts: 5,
            backoff: Backoff::default(),
            max_outstanding: DEFAULT_OUTSTANDING,
            keys_wait: true,
            is_durable: false,
        }
    }
}

/// The topic for dead letters, created if need be.
pub(crate) type DeadLetterTopic = dyn Fn() -> Result<Topic, PublishError> + Send + Sync;

/// See the module's head.
pub(crate) struct Acks {
    pub(crate) inbox: Arc<Inbox>,
    engine: Arc<Engine>,
    pub(crate) terms: Terms,
    pub(crate) dead_letters: Arc<DeadLetterTopic>,
    state: Mutex<State>,
    /// How far a handler has come with a run of messages that the ledger does not know of yet: the
    /// shard above [`RUN_SHARD`], and the sequence behind the last one. 0 if there is no such run.
    run: AtomicU64,
    pub(crate) figures: AckFigures,
    /// While dead letters cannot be stored.
    burying: Outage,
}

/// The bits of a run's sequence; those above are its shard.
const RUN_SHARD: u32 = 56;

/// Counted by whoever does it.
#[derive(Debug, Default)]
pub(crate) struct AckFigures {
    pub(crate) acked: AtomicU64,
    pub(crate) redelivered: AtomicU64,
    pub(crate) dead_lettered: AtomicU64,
    /// Expired from the log unsettled, after they had been delivered.
    pub(crate) expired_leases: AtomicU64,
}

fn count(figure: &AtomicU64, count: u64) {
    // Relaxed: a figure that orders nothing.
    figure.fetch_add(count, Ordering::Relaxed);
}

#[derive(Debug)]
struct State {
    /// By shard, from the first message on.
    ledgers: Box<[Option<Ledger>]>,
    /// Tells the present ack ids from those of earlier inboxes.
    incarnation: u16,
    /// Another inbox goes on.
    is_over: bool,
    /// What is settled, or how often something was delivered, since that was last asked.
    has_changed: bool,
    /// Nothing could be delivered once before something was settled.
    was_full: bool,
    /// The alarm that is set.
    alarm: Option<Duration>,
    /// For jitter: the state of a generator that nobody needs to be unable to guess.
    random: u64,
}

impl fmt::Debug for Acks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acks").field("terms", &self.terms).finish_non_exhaustive()
    }
}

/// What a consumer is to do next about what it has taken before.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Due {
    /// Deliver this again.
    Again(AckId, Grant),
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
        dead_letters: Arc<DeadLetterTopic>,
    ) -> Self {
        let state = State {
            ledgers: (0..engine.shards.len()).map(|_| None).collect(),
            incarnation: 0,
            is_over: false,
            has_changed: false,
            was_full: false,
            alarm: None,
            random: inbox.id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ engine.context.store | 1,
        };
        let (state, figures) = (Mutex::new(state), AckFigures::default());
        let burying = Outage::default();
        Self { inbox, engine, terms, dead_letters, state, run: AtomicU64::new(0), figures, burying }
    }

    /// Those of the same subscription for its next inbox, after a [hand-over](Self::hand_over).
    /// Nothing is leased: what was is due. With `forget` nothing is unsettled either.
    pub(crate) fn succeed_to(&self, inbox: Arc<Inbox>, left: HandOver, forget: bool) -> Self {
        let (engine, dead_letters) = (Arc::clone(&self.engine), Arc::clone(&self.dead_letters));
        let next = Self::new(inbox, engine, self.terms.clone(), dead_letters);
        {
            let mut state = next.lock();
            state.incarnation = left.incarnation.wrapping_add(1);
            if !forget {
                state.ledgers = left.ledgers;
                state.ledgers.iter_mut().flatten().for_each(Ledger::expire_all);
            }
        }
        next
    }

    /// Shows the shards what is unsettled, when they know the inbox.
    pub(crate) fn note_unsettled(&self) {
        let state = self.lock();
        for (shard, ledger) in state.ledgers.iter().enumerate() {
            if let (Some(lane), Some(ledger)) = (self.inbox.lane(shard), ledger) {
                lane.note_unsettled(ledger.oldest());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No foreign code runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.engine.clock.now()
    }

    /// What ack ids of an incarnation have in common: store, subscription, incarnation.
    fn epoch(&self, incarnation: u16) -> u64 {
        const PART: u64 = (1 << 24) - 1;
        let of_store = (self.engine.context.store & PART) << 40;
        of_store | (self.inbox.number & PART) << 16 | u64::from(incarnation)
    }

    /// The ordering key of `record`, as ledgers know it.
    fn key(&self, record: Record<'_>) -> u32 {
        match record.key() {
            Some(key) if self.terms.keys_wait => {
                let hash = stable_hash(key.as_bytes()) ^ u64::from(record.partition()) << 32;
                ((hash ^ hash >> 32) as u32).max(1)
            }
            _ => 0,
        }
    }

    /// What is due now of the messages from `shard` that were taken before.
    pub(crate) fn due(&self, shard: usize, to_handler: bool) -> Due {
        let now = self.now();
        let until = self.lease_end(now, to_handler);
        let mut state = self.lock();
        let most = state.most_leased(shard, &self.terms);
        if let (Some(ledger), Some(lane)) = (state.ledgers[shard].as_mut(), self.inbox.lane(shard))
            && let Some(due) = self.due_of(ledger, lane, now, until, most)
        {
            state.has_changed = true;
            return match due {
                Ok(grant) => Due::Again(self.id(&state, shard, grant), grant),
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
        count(&self.figures.redelivered, u64::from(grant.attempt > 1));
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
        grant.map(|grant| (self.id(&state, shard, grant), grant))
    }

    /// The consumer has found nothing more below `head` of `shard`.
    pub(crate) fn pass(&self, shard: usize, head: u64) {
        let mut state = self.lock();
        if let Some((ledger, _)) = state.ledger(&self.inbox, shard) {
            ledger.pass(head);
        }
    }

    /// What is settled of each shard that something has come from; `None` if another inbox goes on.
    pub(crate) fn positions(&self) -> Option<Vec<Option<Position>>> {
        let state = self.lock();
        if state.is_over {
            return None;
        }
        let positions = state.ledgers.iter().map(|ledger| Some(ledger.as_ref()?.position()));
        let mut positions: Vec<_> = positions.collect();
        // Acquire: what the handler has done for them comes before.
        let run = self.run.load(Ordering::Acquire);
        if let Some(Some(position)) = positions.get_mut((run >> RUN_SHARD) as usize) {
            // Nothing else is unsettled as long as there is a run.
            position.floor = position.floor.max(run & ((1 << RUN_SHARD) - 1));
        }
        Some(positions)
    }

    /// A handler has succeeded with all from `shard` below `next` of a run that is told later.
    #[inline]
    pub(crate) fn note_run(&self, shard: usize, next: u64) {
        if self.terms.is_durable {
            self.run.store((shard as u64) << RUN_SHARD | next, Ordering::Release);
        }
    }

    /// Goes on from `positions`, by shard, in the `epoch`-th process that has the subscription.
    pub(crate) fn restore(&self, positions: Vec<Position>, epoch: u32) {
        let ledgers = positions.into_iter().enumerate().map(|(shard, position)| {
            let log = &self.engine.shards[shard].log;
            let mut recalled = Recalled::default();
            // As far as messages were taken before; a hint.
            let end = log.low();
            Some(Ledger::restored(position, |sequence| {
                let Some(backing) = log.backing().filter(|_| self.terms.keys_wait) else {
                    return 0;
                };
                match recalled.take(backing, sequence, end) {
                    Ok(Recall::Record(record)) => self.key(record.record()),
                    // It will be found missing, or unreadable, when it is delivered.
                    _ => 0,
                }
            }))
        });
        let ledgers = ledgers.collect();
        let mut state = self.lock();
        state.ledgers = ledgers;
        state.incarnation = (epoch as u16).wrapping_mul(INCARNATIONS);
    }

    /// Where to go on reading each shard, after a [`restore`](Self::restore).
    pub(crate) fn cursors(&self) -> Vec<u64> {
        self.lock().ledgers.iter().map(|ledger| ledger.as_ref().map_or(0, Ledger::next)).collect()
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
        self.lock().ledgers.iter().flatten().all(Ledger::is_quiet)
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
        state.ledgers.iter().flatten().map(|ledger| ledger.unsettled() as u64).sum()
    }

    /// The id of a lease on a message from `shard`.
    fn id(&self, state: &State, shard: usize, grant: Grant) -> AckId {
        let Grant { sequence, generation, .. } = grant;
        let epoch = self.epoch(state.incarnation);
        AckId { epoch, sequence, generation, shard: shard as u16 }
    }

    /// The message of a lease is settled, whatever has become of the lease.
    pub(crate) fn settle(&self, shard: usize, sequence: u64) -> bool {
        self.change(shard, |ledger| ledger.settle(sequence).then_some(()).ok_or(Stale)).is_ok()
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
        let log = &self.engine.shards[shard].log;
        let unreadable = |fault: StoreFault| AckError::DeadLetter(fault.into());
        let message = log.keep_message(grant.sequence, &self.engine.context).map_err(unreadable)?;
        let Some(message) = message else {
            self.lose(shard, grant.sequence);
            return Err(AckError::Expired);
        };
        let subscription = dead_letter::subscription_name(&self.inbox);
        let source = Source { subscription: &subscription, attempts: grant.attempt, reason };
        let store = || dead_letter::store(&(self.dead_letters)()?, &message.view(), source);
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
        let had_room = state.has_room(&self.terms);
        let (Some(ledger), Some(lane)) = (state.ledgers[shard].as_mut(), self.inbox.lane(shard))
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
    fn changed(&self, mut state: MutexGuard<'_, State>, had_room: bool) {
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
        let (incarnation, is_over) = {
            let state = self.lock();
            (state.incarnation, state.is_over)
        };
        let ours = self.epoch(incarnation);
        if id.epoch >> 16 != ours >> 16 || usize::from(id.shard) >= self.engine.shards.len() {
            return Err(AckError::UnknownAckId);
        }
        if is_over {
            return Err(AckError::Stale);
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
        let ledger = state.ledgers[shard].as_ref().ok_or(AckError::Stale)?;
        let attempt = ledger.attempts(sequence, generation, now).map_err(|_| AckError::Stale)?;
        Ok((shard, Grant { sequence, generation, attempt }))
    }

    /// Ends this: nothing is leased or settled by it any more. What it knew, for its successor.
    pub(crate) fn hand_over(&self) -> HandOver {
        let mut state = self.lock();
        state.is_over = true;
        let shards = state.ledgers.len();
        let ledgers = std::mem::replace(&mut state.ledgers, (0..shards).map(|_| None).collect());
        HandOver { ledgers, incarnation: state.incarnation }
    }
}

/// What a subscription's acknowledgements leave to those of its next inbox.
#[derive(Debug)]
pub(crate) struct HandOver {
    pub(crate) ledgers: Box<[Option<Ledger>]>,
    incarnation: u16,
}

impl State {
    fn has_room(&self, terms: &Terms) -> bool {
        !self.is_over && self.leased() < terms.max_outstanding && !self.is_stretched()
    }

    /// Whether so much is settled behind a message that is not, that more could not be noted.
    fn is_stretched(&self) -> bool {
        let mut ledgers = self.ledgers.iter().flatten();
        ledgers.any(|ledger| ledger.next() - ledger.floor() >= WINDOW)
    }

    fn leased(&self) -> usize {
        self.ledgers.iter().flatten().map(Ledger::leased).sum()
    }

    /// Messages from `shard` that may be leased at a time, as others are leased now.
    fn most_leased(&self, shard: usize, terms: &Terms) -> usize {
        let leased_here = self.ledgers[shard].as_ref().map_or(0, Ledger::leased);
        terms.max_outstanding.saturating_sub(self.leased() - leased_here)
    }

    /// When something from `shard` is due next; in the past if it is.
    fn next_due_of(&self, shard: usize, terms: &Terms) -> Option<Duration> {
        self.ledgers[shard].as_ref()?.next_due(self.most_leased(shard, terms))
    }

    fn next_due(&self, terms: &Terms) -> Option<Duration> {
        (0..self.ledgers.len()).filter_map(|shard| self.next_due_of(shard, terms)).min()
    }

    /// The ledger of `shard`, made if need be, with the lane that its messages come from.
    fn ledger<'a>(
        &'a mut self,
        inbox: &'a Inbox,
        shard: usize,
    ) -> Option<(&'a mut Ledger, &'a Lane)> {
        let lane = inbox.lane(shard).filter(|_| !self.is_over)?;
        self.has_changed = true;
        let ledger = self.ledgers[shard].get_or_insert_with(|| Ledger::new(lane.origin));
        Some((ledger, lane))
    }

    /// The next random number (Marsaglia: "Xorshift RNGs", 2003).
    fn random(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as u32
    }
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
        let had_room = state.has_room(&self.terms);
        let sequence_at = |at: usize, shard: u16| {
            ids.get(at).filter(|id| id.shard == shard).map(|id| id.sequence)
        };
        let mut settled = 0;
        let mut ack = |at: usize, id: &AckId| {
            let shard = usize::from(id.shard);
            if id.epoch >> 16 != ours >> 16 || shard >= state.ledgers.len() {
                return Err(AckError::UnknownAckId);
            }
            let Some(ledger) = state.ledgers[shard].as_mut().filter(|_| id.epoch == ours) else {
                return Ok(false);
            };
            ledger.expect(sequence_at(at + NEAR, id.shard), sequence_at(at + FAR, id.shard));
            let is_settled = !is_over && ledger.ack(id.sequence, id.generation);
            settled += u64::from(is_settled);
            Ok(is_settled)
        };
        ids.iter().enumerate().for_each(|(at, id)| told(ack(at, id)));
        count(&self.figures.acked, settled);
        for (ledger, shard) in state.ledgers.iter().zip(0..) {
            if let (Some(ledger), Some(lane)) = (ledger, self.inbox.lane(shard)) {
                lane.note_unsettled(ledger.oldest());
            }
        }
        self.changed(state, had_room);
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

fn in_range(time: Duration, min: Duration, max: Duration) -> Result<(), AckError> {
    if (min..=max).contains(&time) {
        return Ok(());
    }
    let (requested_ms, min_ms, max_ms) = (whole_ms(time), whole_ms(min), whole_ms(max));
    Err(AckError::OutOfRange { requested_ms, min_ms, max_ms })
}
