//! The ledger: which messages of one shard a subscription has taken and not settled, what each of
//! them waits for, and until when.
//!
//! A message that is taken and neither settled at once nor dropped is found by its sequence in an
//! index. Nothing more is kept of it while its first lease runs: see [`fresh`](crate::fresh). What
//! becomes of it then is a lease in the slab. As all leases are given for the same time, those that
//! were given stand in the order in which they expire: the common list needs no sorting and nothing
//! happens to it when time passes. Deadlines of their own (extensions, pauses between attempts) go
//! to a timer wheel, whose lists are made of the same leases. Every operation costs O(1) amortised;
//! what expires is handed out one by one, so a million leases that expire at once delay nobody.
//!
//! | a message is | until |
//! |---|---|
//! | leased | it is settled, fails, or its deadline passes: then it is due |
//! | waiting | the time of its next attempt: then it is due |
//! | held | no earlier message of its ordering key has failed and is unsettled: then it is due |
//!
//! One consumer owns a ledger, or it is behind a lock: nothing here is shared.

use crate::clock::whole_ms;
use crate::fresh::Fresh;
use crate::index::{Index, Known};
use crate::settled::Settled;
use crate::slab::{Lease, LeaseState, Slab, Slot};
use crate::wheel::{LISTS, Wheel};
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Leases in the order in which they were given, and expire.
const GIVEN: usize = 0;
/// What is due now.
const DUE: usize = 1;
/// The lists of the wheel follow.
const WHEEL: usize = 2;

/// The key of a message that has not been read since it was [restored](Ledger::restored).
const UNREAD: u32 = u32::MAX;

/// Leases that one call moves along the wheel at most.
const MOVES: usize = 10_000;

/// See the module's head.
#[derive(Debug)]
pub struct Ledger {
    /// Below it everything is settled.
    floor: u64,
    /// Behind the last message that was taken.
    next: u64,
    slab: Slab,
    by_sequence: Index,
    fresh: Fresh,
    wheel: Wheel,
    /// Ordering keys of which a message has failed and is not settled.
    keys: HashMap<u32, Key>,
    /// Leased, and not fresh any more.
    leased: usize,
    /// Whether keys may have to be [told](Self::tell_key).
    asks_keys: bool,
    changes: Changes,
}

/// Which messages may have been delivered since changes were last asked for.
#[derive(Debug, Default)]
struct Changes {
    /// Those from here on, and
    from: u64,
    /// these, if anybody asks.
    again: Option<Vec<u64>>,
}

/// An ordering key that is stopped: the sequences of its messages.
#[derive(Debug, Default)]
struct Key {
    failed: BTreeSet<u64>,
    held: BTreeSet<u64>,
}

impl Key {
    /// Whether the message at `sequence` must wait for an earlier one.
    fn holds(&self, sequence: u64) -> bool {
        self.failed.first().is_some_and(|&first| first < sequence)
    }
}

/// A lease that was given: what tells it from others on the same message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "internal")]
pub struct Grant {
    /// The message's place in the log.
    pub sequence: u64,
    /// Counts the leases on it.
    pub generation: u32,
    /// Deliveries of it, with this one.
    pub attempt: u32,
}

/// What is settled, and how often the rest was delivered.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Position {
    /// Below it everything is settled.
    pub floor: u64,
    /// Settled above that.
    pub settled: RoaringTreemap,
    /// Of messages that were delivered and are not settled: the number of their next delivery.
    pub attempts: BTreeMap<u64, u16>,
}

/// The lease is over: the message is settled, or has been or may be given to somebody anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "internal")]
pub struct Stale;

/// Milliseconds, rounded up: a deadline never comes early.
fn tick_after(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl Ledger {
    /// A ledger in which everything below `floor` is settled.
    pub fn new(floor: u64) -> Self {
        Self {
            floor,
            next: floor,
            slab: Slab::new(WHEEL),
            by_sequence: Index::default(),
            fresh: Fresh::default(),
            wheel: Wheel::default(),
            keys: HashMap::new(),
            leased: 0,
            asks_keys: false,
            changes: Changes::default(),
        }
    }

    /// The ledger that has told this position, as a [whole](Self::changes): what was not settled is due, in order.
    /// With `has_keys`, the ordering key of each is to be [told](Self::tell_key) when it is leased
    /// the first time: nothing need be read before.
    pub fn restored(position: Position, has_keys: bool) -> Self {
        let Position { floor, settled, attempts } = position;
        let mut ledger = Self::new(floor);
        let settled = Settled::with(floor, settled);
        let tried = attempts.last_key_value().map_or(floor, |(last, _)| last + 1);
        (ledger.floor, ledger.next) = (settled.floor(), settled.end().max(tried));
        ledger.asks_keys = has_keys;
        ledger.changes = Changes { from: ledger.next, again: Some(Vec::new()) };
        let mut attempts = attempts.into_iter().peekable();
        for sequence in &settled.missing(0..ledger.next) {
            let key = if has_keys { UNREAD } else { 0 };
            let mut lease = Lease::new(sequence, key, LeaseState::Waiting);
            lease.generation = 0;
            while attempts.next_if(|(tried, _)| *tried < sequence).is_some() {}
            if let Some((_, next)) = attempts.next_if(|(tried, _)| *tried == sequence) {
                lease.attempts = next.saturating_sub(1);
            }
            let slot = ledger.insert(lease);
            ledger.slab.append(DUE, slot);
        }
        ledger
    }

    /// Whether the ordering key of the message at `sequence`, which has just been leased, is to be
    /// [told](Self::tell_key).
    pub fn asks_key(&self, sequence: u64) -> bool {
        let known = self.by_sequence.get(sequence).filter(|_| self.asks_keys);
        matches!(known, Some(Known::At(slot)) if self.slab.get(slot).key == UNREAD)
    }

    /// Tells the ordering key of the message of `grant`, as [`lease`](Self::lease) has it. False if
    /// the message must wait for an earlier one of its key: then it was not leased, and is no attempt.
    pub fn tell_key(&mut self, grant: Grant, key: u32) -> bool {
        let Some(Known::At(slot)) = self.by_sequence.get(grant.sequence) else { return false };
        let must_wait = self.must_wait(key, grant.sequence);
        if grant.attempt > 1 {
            self.fail(key, grant.sequence);
        }
        self.slab.get_mut(slot).key = key;
        if must_wait {
            self.unlink(slot);
            self.leased -= 1;
            let lease = self.slab.get_mut(slot);
            lease.state = LeaseState::Held;
            lease.attempts = lease.attempts.saturating_sub(1);
            self.hold(key, grant.sequence);
        }
        !must_wait
    }

    /// What must be known of it for another to go on where it is, but attempts only as far as they
    /// may have changed since this was called before.
    pub fn changes(&mut self) -> Position {
        let Changes { from, again } = &mut self.changes;
        let from = std::mem::replace(from, self.next);
        let again = again.replace(Vec::new()).unwrap_or_default();
        // Whoever has a message now has had it, whatever becomes of the process.
        let next = |known| match known {
            Known::Fresh => Some(2),
            Known::At(slot) => {
                let tried = self.slab.get(slot).attempts;
                (tried > 0).then(|| tried.saturating_add(1))
            }
        };
        let (mut settled, mut attempts) = (RoaringTreemap::new(), BTreeMap::new());
        let mut behind = self.floor;
        for (sequence, known) in self.by_sequence.iter() {
            settled.insert_range(behind..sequence);
            behind = sequence + 1;
            if sequence >= from {
                attempts.extend(next(known).map(|next| (sequence, next)));
            }
        }
        settled.insert_range(behind..self.next);
        for sequence in again {
            let next = self.by_sequence.get(sequence).and_then(next);
            attempts.extend(next.map(|next| (sequence, next)));
        }
        Position { floor: self.floor, settled, attempts }
    }

    /// The next call of [`changes`](Self::changes) is to tell all: what the last one told is not
    /// known to anybody.
    pub fn change_all(&mut self) {
        self.changes.from = 0;
    }

    /// All below `sequence` has been looked at: what was not taken is not wanted.
    pub fn pass(&mut self, sequence: u64) {
        if sequence > self.next {
            self.move_to(sequence, sequence);
        }
    }

    /// Below it everything is settled.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// The first message that is taken and not settled.
    #[inline]
    pub fn oldest(&self) -> Option<u64> {
        (self.floor < self.next).then_some(self.floor)
    }

    /// Behind the last message that was taken.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Messages that are leased.
    pub fn leased(&self) -> usize {
        self.leased + self.fresh.len()
    }

    /// Messages that were taken and are not settled.
    pub fn unsettled(&self) -> usize {
        self.by_sequence.len()
    }

    /// Whether nothing needs to be asked about messages that come: none is unsettled.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.by_sequence.len() == 0
    }

    /// What is below `next` is taken, or not wanted; if nothing was unsettled, nothing is below
    /// `floor`.
    #[inline]
    fn move_to(&mut self, floor: u64, next: u64) {
        debug_assert!(next >= self.next, "messages are taken in order");
        if self.floor == self.next {
            self.floor = floor;
        }
        self.next = next;
    }

    /// The next message was taken and handled: it is settled. So are those before it, if nothing
    /// was [unsettled](Self::is_quiet) and they were handled as well: a run is told by its last.
    #[inline]
    pub fn take_settled(&mut self, sequence: u64) {
        self.move_to(sequence + 1, sequence + 1);
    }

    /// The next message, at `sequence`, is taken: leases it until `deadline`, the same time from
    /// now for all, unless it must wait for another of its ordering key. `key` is 0 where there is
    /// none, or where its order does not matter.
    pub fn lease(&mut self, sequence: u64, key: u32, deadline: Duration) -> Option<Grant> {
        self.move_to(sequence, sequence + 1);
        let tick = tick_after(deadline);
        if key == 0 && self.fresh.give(sequence, tick) {
            self.by_sequence.insert(sequence, Known::Fresh);
            return Some(Grant { sequence, generation: 1, attempt: 1 });
        }
        let held = self.must_wait(key, sequence);
        let state = if held { LeaseState::Held } else { LeaseState::Leased };
        let mut lease = Lease::new(sequence, key, state);
        lease.attempts = u16::from(!held);
        lease.set_deadline(tick);
        let slot = self.insert(lease);
        if held {
            self.hold(key, sequence);
            return None;
        }
        self.slab.append(GIVEN, slot);
        self.leased += 1;
        Some(Grant { sequence, generation: 1, attempt: 1 })
    }

    /// The next message that is due at `now`, leased anew until `deadline`: its last lease has
    /// expired, its pause is over, or what held it is settled. `Grant::attempt` counts this
    /// delivery, so that whoever has no attempts left settles it instead. `None` if nothing is due,
    /// or not before the next call: one call moves a bounded number of leases. At most `most` are
    /// leased then.
    pub fn due(&mut self, now: Duration, deadline: Duration, most: usize) -> Option<Grant> {
        let now = whole_ms(now);
        for _ in 0..MOVES {
            if !self.wheel.is_empty() {
                self.turn_wheel(now);
            }
            let Some(slot) = self.slab.first(DUE).filter(|_| self.leased() < most) else {
                let expired = self.first_expired(now)?;
                self.make_due(expired);
                continue;
            };
            let Lease { sequence, key, .. } = *self.slab.get(slot);
            self.unlink(slot);
            if self.must_wait(key, sequence) {
                self.slab.get_mut(slot).state = LeaseState::Held;
                self.hold(key, sequence);
                continue;
            }
            self.slab.append(GIVEN, slot);
            self.leased += 1;
            let lease = self.slab.get_mut(slot);
            lease.state = LeaseState::Leased;
            lease.generation = lease.generation.wrapping_add(1);
            lease.attempts = lease.attempts.saturating_add(1);
            lease.set_deadline(tick_after(deadline));
            let (generation, attempt) = (lease.generation, u32::from(lease.attempts));
            if let Some(again) = &mut self.changes.again {
                again.push(sequence);
            }
            return Some(Grant { sequence, generation, attempt });
        }
        None
    }

    /// The lease that ends first, if it has at the tick `now`.
    fn first_expired(&mut self, now: u64) -> Option<Slot> {
        let given = self.slab.first(GIVEN).map(|slot| {
            let lease = self.slab.get(slot);
            (lease.deadline(), lease.sequence)
        });
        let fresh = self.fresh.first();
        let first = [given, fresh].into_iter().flatten().min();
        let (_, sequence) = first.filter(|&(deadline, _)| deadline <= now)?;
        if fresh == first { Some(self.file(sequence)) } else { self.slab.first(GIVEN) }
    }

    /// Puts a fresh lease, to which something happens, into the slab; it is in no list.
    fn file(&mut self, sequence: u64) -> Slot {
        let mut lease = Lease::new(sequence, 0, LeaseState::Leased);
        lease.attempts = 1;
        lease.set_deadline(self.fresh.deadline(sequence));
        let slot = self.slab.insert(lease);
        self.by_sequence.set(sequence, Known::At(slot));
        self.fresh.leave(sequence, &self.by_sequence);
        self.leased += 1;
        slot
    }

    /// When something may be due next, if at most `most` may be leased; in the past if it is.
    pub fn next_due(&self, most: usize) -> Option<Duration> {
        if self.leased() < most && self.slab.first(DUE).is_some() {
            return Some(Duration::ZERO);
        }
        let given = self.slab.first(GIVEN).map(|slot| self.slab.get(slot).deadline());
        let fresh = self.fresh.first().map(|(deadline, _)| deadline);
        let placed = self.wheel.next().map(|place| place.tick);
        [given, fresh, placed].into_iter().flatten().min().map(Duration::from_millis)
    }

    /// Settles the message at `sequence`, if its lease of this `generation` has not been followed
    /// by another. False if that had no effect.
    pub fn ack(&mut self, sequence: u64, generation: u32) -> bool {
        let present = match self.by_sequence.get(sequence) {
            Some(Known::Fresh) => 1,
            Some(Known::At(slot)) => self.slab.get(slot).generation,
            None => return false,
        };
        present == generation && self.remove(sequence)
    }

    /// Hints that the messages at these sequences will be settled soon, the nearer one sooner: what is
    /// settled in no order waits for memory at each otherwise.
    #[inline]
    pub fn expect(&self, near: Option<u64>, far: Option<u64>) {
        if let Some(far) = far {
            self.by_sequence.fetch(far);
        }
        if let Some(Known::At(slot)) = near.and_then(|near| self.by_sequence.get(near)) {
            self.slab.fetch(slot);
        }
    }

    /// Settles the message at `sequence`, whoever has it. False if it was settled, or never taken.
    pub fn settle(&mut self, sequence: u64) -> bool {
        self.remove(sequence)
    }

    /// Gives a lease back: the message is due again at `due`.
    ///
    /// # Errors
    /// [`Stale`], if the lease is over at `now`.
    pub fn nack(
        &mut self,
        sequence: u64,
        generation: u32,
        now: Duration,
        due: Duration,
    ) -> Result<(), Stale> {
        let slot = self.take_lease(sequence, generation, now)?;
        self.leased -= 1;
        let lease = self.slab.get_mut(slot);
        lease.state = LeaseState::Waiting;
        lease.generation = lease.generation.wrapping_add(1);
        let key = lease.key;
        self.fail(key, sequence);
        // What is due now need not wait for the end of this tick.
        let at = if due <= now { whole_ms(now) } else { tick_after(due) };
        self.put_off(slot, whole_ms(now), at);
        Ok(())
    }

    /// Gives a lease back whose message nobody has seen: the attempt does not count.
    ///
    /// # Errors
    /// [`Stale`], if the lease is over at `now`.
    pub fn return_unread(
        &mut self,
        grant: Grant,
        now: Duration,
        due: Duration,
    ) -> Result<(), Stale> {
        self.nack(grant.sequence, grant.generation, now, due)?;
        if let Some(Known::At(slot)) = self.by_sequence.get(grant.sequence) {
            let lease = self.slab.get_mut(slot);
            lease.attempts = lease.attempts.saturating_sub(1);
        }
        Ok(())
    }

    /// Moves the deadline of a lease to `deadline`.
    ///
    /// # Errors
    /// [`Stale`], if the lease is over at `now`.
    pub fn extend(
        &mut self,
        sequence: u64,
        generation: u32,
        now: Duration,
        deadline: Duration,
    ) -> Result<(), Stale> {
        let slot = self.take_lease(sequence, generation, now)?;
        self.put_off(slot, whole_ms(now), tick_after(deadline));
        Ok(())
    }

    /// How often the message at `sequence` was delivered, if this lease on it is not over.
    ///
    /// # Errors
    /// [`Stale`], if it is.
    pub fn attempts(&self, sequence: u64, generation: u32, now: Duration) -> Result<u32, Stale> {
        let attempts = match self.find_lease(sequence, generation, now)? {
            Known::Fresh => 1,
            Known::At(slot) => self.slab.get(slot).attempts,
        };
        Ok(u32::from(attempts))
    }

    /// All that is leased is due now, as if its deadline had passed.
    pub fn expire_all(&mut self) {
        self.fresh.expire_all();
        while let Some(slot) = self.slab.first(GIVEN) {
            self.make_due(slot);
        }
        // Extended ones are spread over the wheel.
        let extended = self.slab.iter().filter(|lease| lease.state == LeaseState::Leased);
        let extended: Vec<u64> = extended.map(|lease| lease.sequence).collect();
        for sequence in extended {
            if let Some(Known::At(slot)) = self.by_sequence.get(sequence) {
                self.make_due(slot);
            }
        }
    }

    fn make_due(&mut self, slot: Slot) {
        self.unlink(slot);
        self.end_lease(slot);
        self.slab.append(DUE, slot);
    }

    /// The deadline of a message has passed, which is a failure like others if it was leased.
    fn end_lease(&mut self, slot: Slot) {
        let lease = self.slab.get_mut(slot);
        if lease.state == LeaseState::Leased {
            lease.state = LeaseState::Waiting;
            let (key, sequence) = (lease.key, lease.sequence);
            self.leased -= 1;
            self.fail(key, sequence);
        }
    }

    /// The log has let go of all below `low`: what was unsettled there is settled. How many.
    pub fn expire_below(&mut self, low: u64) -> u64 {
        let mut expired = 0;
        let end = low.min(self.next);
        while self.floor < end {
            // The floor moves on to the next one that is unsettled.
            let removed = self.remove(self.floor);
            debug_assert!(removed, "what is taken is settled or known");
            expired += 1;
        }
        self.pass(low);
        expired
    }

    /// The lease of this generation, if it is not over.
    fn find_lease(&self, sequence: u64, generation: u32, now: Duration) -> Result<Known, Stale> {
        let known = self.by_sequence.get(sequence).ok_or(Stale)?;
        let (is_leased, present, deadline) = match known {
            Known::Fresh => (true, 1, self.fresh.deadline(sequence)),
            Known::At(slot) => {
                let lease = self.slab.get(slot);
                (lease.state == LeaseState::Leased, lease.generation, lease.deadline())
            }
        };
        let is_it = is_leased && present == generation && deadline > whole_ms(now);
        if is_it { Ok(known) } else { Err(Stale) }
    }

    /// The same, taken out of its list.
    fn take_lease(&mut self, sequence: u64, generation: u32, now: Duration) -> Result<Slot, Stale> {
        match self.find_lease(sequence, generation, now)? {
            Known::Fresh => Ok(self.file(sequence)),
            Known::At(slot) => {
                self.unlink(slot);
                Ok(slot)
            }
        }
    }

    fn insert(&mut self, lease: Lease) -> Slot {
        let slot = self.slab.insert(lease);
        self.by_sequence.insert(lease.sequence, Known::At(slot));
        slot
    }

    /// Settles the message at `sequence`. False if it is settled, or was never taken.
    fn remove(&mut self, sequence: u64) -> bool {
        match self.by_sequence.remove(sequence) {
            None => return false,
            Some(Known::Fresh) => self.fresh.leave(sequence, &self.by_sequence),
            Some(Known::At(slot)) => {
                let Lease { key, state, .. } = *self.slab.get(slot);
                self.unlink(slot);
                self.slab.remove(slot);
                self.leased -= usize::from(state == LeaseState::Leased);
                self.free_key(key, sequence);
            }
        }
        if sequence == self.floor {
            // Each sequence is passed once.
            self.floor = self.by_sequence.first_known(sequence).unwrap_or(self.next);
        }
        true
    }

    fn unlink(&mut self, slot: Slot) {
        if let Some(list) = self.slab.unlink(slot)
            && list >= WHEEL
        {
            self.wheel.clear(list - WHEEL);
        }
    }

    /// Puts a lease that is in no list where it becomes due at the tick `at`.
    fn put_off(&mut self, slot: Slot, now: u64, at: u64) {
        if self.wheel.is_empty() {
            self.slab.grow_lists(WHEEL + LISTS);
            self.wheel.advance(now);
        }
        self.slab.get_mut(slot).set_deadline(at);
        self.place(slot);
    }

    fn place(&mut self, slot: Slot) {
        let deadline = self.slab.get(slot).deadline();
        if deadline <= self.wheel.elapsed() {
            self.end_lease(slot);
            self.slab.append(DUE, slot);
        } else {
            self.slab.append(WHEEL + self.wheel.place(deadline), slot);
        }
    }

    /// Lets the wheel turn up to `now`, or as far as one call may.
    fn turn_wheel(&mut self, now: u64) {
        let mut moves = MOVES;
        while let Some(place) = self.wheel.next().filter(|place| place.tick <= now) {
            self.wheel.advance(place.tick);
            while let Some(slot) = self.slab.first(WHEEL + place.list) {
                if moves == 0 {
                    return;
                }
                moves -= 1;
                self.unlink(slot);
                self.place(slot);
            }
        }
        self.wheel.advance(now);
    }

    fn must_wait(&self, key: u32, sequence: u64) -> bool {
        !matches!(key, 0 | UNREAD)
            && !self.keys.is_empty()
            && self.keys.get(&key).is_some_and(|key| key.holds(sequence))
    }

    /// Lets the message at `sequence` wait for its key.
    fn hold(&mut self, key: u32, sequence: u64) {
        self.keys.entry(key).or_default().held.insert(sequence);
    }

    /// Later messages of the key wait from now on.
    fn fail(&mut self, key: u32, sequence: u64) {
        if !matches!(key, 0 | UNREAD) {
            self.keys.entry(key).or_default().failed.insert(sequence);
        }
    }

    /// The message at `sequence` is settled: those that waited for it alone are due.
    fn free_key(&mut self, key: u32, sequence: u64) {
        if matches!(key, 0 | UNREAD) || self.keys.is_empty() {
            return;
        }
        let Some(stopped) = self.keys.get_mut(&key) else { return };
        stopped.held.remove(&sequence);
        if !stopped.failed.remove(&sequence) {
            return;
        }
        // All up to the next one that has failed, and that itself if it was held.
        let freed = match stopped.failed.first() {
            Some(&failed) => {
                let later = stopped.held.split_off(&(failed + 1));
                std::mem::replace(&mut stopped.held, later)
            }
            None => self.keys.remove(&key).map(|key| key.held).unwrap_or_default(),
        };
        for sequence in freed {
            let Some(Known::At(slot)) = self.by_sequence.get(sequence) else { continue };
            debug_assert_eq!(self.slab.get(slot).state, LeaseState::Held, "it is in no list");
            self.slab.get_mut(slot).state = LeaseState::Waiting;
            self.slab.append(DUE, slot);
        }
    }
}
