//! A shard: the single writer of its partitions.
//!
//! Whoever holds the shard's baton puts messages in order. [`Core::append`] is the path of a
//! message: find the route of its topic, see that nobody who asked for it must be waited for,
//! write the record, give it offset, time and sequence, and push its address into the lanes of the
//! subscriptions that want it.
#![expect(unsafe_code, reason = "partitions are owned by whoever holds their shard's baton")]

use crate::baton::{Baton, Guarded};
use crate::chunk::{Appender, CHUNK_BYTES, Claim, ClaimArea, FIRST_RECORD, Pool};
use crate::clock::{Clock, Stamps};
use crate::config::{Overflow, WhenFull};
use crate::inbox::{Inbox, InboxState};
use crate::lane::{Held, Lane, Pushed, Replay};
use crate::log::{Log, LogWriter};
use crate::message::{self, Context, Layout, NewMessage, Place, Record};
use crate::prefetch;
use crate::snapshot::Snapshot;
use crate::sync::{Arc, Counter, PlainArc, UnsafeCell, light_fence};
use crate::trie::Trie;
use arrayvec::ArrayVec;
use std::collections::HashMap;
use std::time::Duration;

/// Messages that are pushed to a lane in one go.
const GROUP: usize = 64;

/// Addresses of the records of a group.
type Group = ArrayVec<usize, GROUP>;
/// The sequence of a log's first record. The models begin where its low half wraps around.
pub(crate) const FIRST_SEQUENCE: u64 = if cfg!(slipring_loom) { u32::MAX as u64 - 1 } else { 0 };

/// The routing table: which subscription wants which topics.
pub(crate) type Routes = Trie<Arc<Inbox>>;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) baton: Baton<Core>,
    pub(crate) claims: ClaimArea,
    pub(crate) log: PlainArc<Log>,
    pub(crate) figures: PlainArc<ShardFigures>,
}

/// The memory that a shard may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory<'a> {
    pub(crate) budget: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) pool: &'a Arc<Pool>,
}

/// Counted by the holder.
#[derive(Debug, Default)]
pub(crate) struct ShardFigures {
    /// Records that have expired from memory.
    pub(crate) expired: Counter,
    /// Chunk bytes that the log retains.
    pub(crate) retained_bytes: Counter,
}

impl Shard {
    pub(crate) fn new(
        index: usize,
        memory: Memory<'_>,
        clock: Clock,
        context: &Arc<Context>,
        routing: &PlainArc<Snapshot<Routes>>,
    ) -> Self {
        let Memory { budget, when_full, pool } = memory;
        let writer = LogWriter::new(budget, FIRST_SEQUENCE);
        let log = PlainArc::clone(writer.log());
        let figures = PlainArc::new(ShardFigures::default());
        let core = Core {
            held: Held { shard: index },
            log: writer,
            appender: Appender::new(Arc::clone(pool)),
            pool: Arc::clone(pool),
            when_full,
            stamps: Stamps::new(clock),
            context: Arc::clone(context),
            routing: PlainArc::clone(routing),
            errands: Vec::new(),
            catching_up: Vec::new(),
            settling: HashMap::new(),
            closed: false,
            figures: PlainArc::clone(&figures),
        };
        Self { baton: Baton::new(core), claims: ClaimArea::new(Arc::clone(pool)), log, figures }
    }
}

/// A partition: the unit of order. What changes in it is owned by its shard's holder.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) id: u32,
    pub(crate) shard: usize,
    topic: PlainArc<str>,
    state: UnsafeCell<PartitionState>,
    /// The offset of the next message: as many were published.
    pub(crate) next_offset: Counter,
}

// SAFETY: the cell is reached with `Held` alone.
unsafe impl Sync for Partition {}

/// The version of no snapshot.
const UNRESOLVED: u64 = u64::MAX;

#[derive(Debug)]
struct PartitionState {
    deleted: bool,
    route: Vec<Target>,
    /// One of `route` may make a publisher wait.
    may_block: bool,
    /// One of `route` has a policy that ends subscriptions; or the topic is deleted.
    is_special: bool,
    /// The snapshot and the trie that `route` is of.
    snapshot_version: u64,
    trie_version: u64,
}

/// A subscription that a partition's messages go to.
#[derive(Debug)]
struct Target {
    inbox: Arc<Inbox>,
    lane: Arc<Lane>,
    filtered: bool,
    /// Whether it may make a publisher wait.
    blocks: bool,
}

impl Partition {
    pub(crate) fn new(id: u32, shard: usize, topic: PlainArc<str>) -> Self {
        Self {
            id,
            shard,
            topic,
            state: UnsafeCell::new(PartitionState {
                deleted: false,
                route: Vec::new(),
                may_block: false,
                is_special: false,
                snapshot_version: UNRESOLVED,
                trie_version: 0,
            }),
            next_offset: Counter::default(),
        }
    }
}

/// How many subscriptions a publish was for, and what became of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) matched: u64,
    pub(crate) enqueued: u64,
    pub(crate) dropped: u64,
}

impl Outcome {
    #[inline(always)]
    fn add(&mut self, matched: usize, pushed: Pushed) {
        self.matched += matched as u64;
        self.enqueued += pushed.enqueued();
        self.dropped += pushed.dropped();
    }
}

/// What became of the messages of one [`Core::append`].
#[derive(Debug)]
pub(crate) struct Appended {
    /// How many of them were published: always the first ones.
    pub(crate) count: usize,
    pub(crate) first_offset: u64,
    pub(crate) outcome: Outcome,
    /// Why the rest was not.
    pub(crate) stop: Option<Stop>,
}

/// Why a message was not published.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A subscription that asked to be waited for has no room.
    Blocked(Arc<Inbox>, Arc<Lane>),
    /// The memory budget is used up by messages that are still queued.
    Full,
    /// The system has no memory.
    NoMemory,
    /// The topic was deleted.
    Deleted,
    Closed,
}

/// What a shard's baton guards.
#[derive(Debug)]
pub(crate) struct Core {
    held: Held,
    log: LogWriter,
    appender: Appender,
    pool: Arc<Pool>,
    when_full: WhenFull,
    stamps: Stamps,
    context: Arc<Context>,
    routing: PlainArc<Snapshot<Routes>>,
    /// Inboxes whose consumer is to be woken when the baton has been let go.
    errands: Vec<Arc<Inbox>>,
    /// Subscriptions that read the log and must be told what expires.
    catching_up: Vec<(Arc<Inbox>, Arc<Lane>)>,
    /// Lanes whose messages are settled later, by subscription: where the broker refuses rather
    /// than to forget, what they have not settled does not expire.
    settling: HashMap<u64, Arc<Lane>>,
    closed: bool,
    figures: PlainArc<ShardFigures>,
}

/// Inboxes whose consumer is to be woken. As a rule they are few, and nothing is allocated.
#[derive(Debug, Default)]
pub(crate) struct Errands {
    few: ArrayVec<Arc<Inbox>, 8>,
    more: Vec<Arc<Inbox>>,
}

impl Guarded for Core {
    type Errands = Errands;

    #[inline(always)]
    fn has_errands(&self) -> bool {
        !self.errands.is_empty()
    }

    fn take_errands(&mut self, errands: &mut Self::Errands) {
        for inbox in self.errands.drain(..) {
            if let Err(full) = errands.few.try_push(inbox) {
                errands.more.push(full.element());
            }
        }
    }

    fn run_errands(errands: Self::Errands) {
        for inbox in errands.few.into_iter().chain(errands.more) {
            inbox.arrivals.wake();
        }
    }
}

impl Core {
    /// Publishes `message`, whose layout is `layout`, to `partition`: what [`append`](Self::append)
    /// does for one message of which there is nothing special to say.
    #[inline(always)]
    pub(crate) fn append_one(
        &mut self,
        partition: &Partition,
        message: &NewMessage<'_>,
        layout: Layout,
    ) -> Appended {
        // Not inside the closure, which would be a function of its own, with its result in memory.
        let state = partition.state.with_mut(|state| state);
        // SAFETY: the partition is of this shard (checked in `resolve`), whose baton is held.
        let state = unsafe { &mut *state };
        let bytes = layout.bytes();
        let (Some(at), false, false) = (
            self.appender.room(bytes),
            state.is_special || self.closed,
            state.snapshot_version != self.routing.version(),
        ) else {
            return self.append_special(partition, state, message);
        };
        if state.may_block && self.is_full(state) {
            return self.append_special(partition, state, message);
        }
        let offset = partition.next_offset.get();
        let now_us = self.stamps.now_us();
        let sequence_low = self.log.next() as u32;
        let place = Place { offset, published_us: now_us, partition: partition.id, sequence_low };
        prefetch::for_write(at as usize + message::AHEAD);
        prefetch::for_write(at as usize + message::AHEAD + 64);
        // SAFETY: the appender's room is ours, aligned and large enough.
        unsafe { message::write(at, message, layout, place) };
        self.appender.commit(bytes);
        self.log.append_one(at as usize);
        partition.next_offset.set(offset + 1);
        let mut outcome = Outcome { matched: state.route.len() as u64, ..Outcome::default() };
        let mut pushed = 0;
        for target in &state.route {
            if target.filtered && !self.selects(target, at as usize) {
                outcome.matched -= 1;
                continue;
            }
            if target.lane.try_push_one(&mut self.held, at as usize) {
                pushed += 1;
            } else {
                outcome.add(0, self.push_specially(target, at as usize, now_us));
            }
            // SYNC asleep: pairs with WaitCell::prepare.
            light_fence();
            if target.inbox.arrivals.is_armed() {
                self.wake(target);
            }
        }
        // Readers may give tokens back already: the chunk has more until it is sealed.
        self.appender.grant_current(pushed);
        outcome.enqueued += pushed;
        Appended { count: 1, first_offset: offset, outcome, stop: None }
    }

    #[inline(never)]
    fn selects(&self, target: &Target, address: usize) -> bool {
        // SAFETY: written and not let go.
        target.inbox.interest.selects(unsafe { Record::at(address) }, &self.context)
    }

    #[cold]
    #[inline(never)]
    fn push_specially(&mut self, target: &Target, address: usize, now_us: u64) -> Pushed {
        let (lane, overflow) = (&target.lane, target.inbox.overflow);
        let pushed = lane.push(&mut self.held, &[address], &mut self.appender, overflow, now_us);
        if pushed.fell_back() {
            self.catching_up.push((Arc::clone(&target.inbox), Arc::clone(lane)));
        }
        pushed
    }

    #[cold]
    #[inline(never)]
    fn append_special(
        &mut self,
        partition: &Partition,
        state: &mut PartitionState,
        message: &NewMessage<'_>,
    ) -> Appended {
        self.append_to(partition, state, std::slice::from_ref(message), Duration::ZERO)
    }

    /// Whether one of the subscriptions that block has no room.
    #[inline(always)]
    fn is_full(&mut self, state: &PartitionState) -> bool {
        let mut blocking = state.route.iter().filter(|target| target.blocks);
        blocking.any(|target| target.lane.room(&mut self.held, 1) == 0)
    }

    #[cold]
    #[inline(never)]
    fn wake(&mut self, target: &Target) {
        self.errands.push(Arc::clone(&target.inbox));
    }

    /// Publishes `messages` to `partition` in order, as many as go; `waited` is how long their
    /// publisher has been waiting for subscriptions that block.
    #[inline]
    pub(crate) fn append(
        &mut self,
        partition: &Partition,
        messages: &[NewMessage<'_>],
        waited: Duration,
    ) -> Appended {
        partition.state.with_mut(|state| {
            // SAFETY: the partition is of this shard (checked in `route`), whose baton is held.
            let state = unsafe { &mut *state };
            self.append_to(partition, state, messages, waited)
        })
    }

    #[inline(always)]
    fn append_to(
        &mut self,
        partition: &Partition,
        state: &mut PartitionState,
        messages: &[NewMessage<'_>],
        waited: Duration,
    ) -> Appended {
        // Kept apart until the end: a result that is moved is read from memory right behind the
        // stores of the records, and waits there for all of them.
        let first_offset = partition.next_offset.get();
        let (mut count, mut outcome) = (0, Outcome::default());
        let mut stop = self.begin(partition, state);
        if stop.is_none() {
            let now_us = self.stamps.now_us();
            while count < messages.len() {
                let mut group = Group::new();
                let rest = &messages[count..];
                stop = self.write_group(partition, state, rest, waited, now_us, &mut group);
                if stop.is_some() {
                    break;
                }
                self.publish(partition, state, &group, now_us, &mut outcome);
                count += group.len();
            }
        }
        Appended { count, first_offset, outcome, stop }
    }

    /// Publishes the record that was written into `claim`.
    pub(crate) fn append_claim(
        &mut self,
        partition: &Partition,
        claim: &Claim,
        waited: Duration,
    ) -> Appended {
        partition.state.with_mut(|state| {
            // SAFETY: as in `append`.
            let state = unsafe { &mut *state };
            let mut appended = Appended {
                count: 0,
                first_offset: partition.next_offset.get(),
                outcome: Outcome::default(),
                stop: self.begin(partition, state),
            };
            if appended.stop.is_some() {
                return appended;
            }
            let address = claim.at() as usize;
            appended.stop = self.make_room(claim.chunk().bytes());
            if appended.stop.is_some() {
                return appended;
            }
            let sequence = self.log.next();
            let now_us = self.stamps.now_us();
            let place = Place {
                offset: partition.next_offset.get(),
                published_us: now_us,
                partition: partition.id,
                sequence_low: sequence as u32,
            };
            // Before any filter looks at it; if it has to wait, it gets another place then.
            // SAFETY: the claim's record, which nobody else has seen yet.
            unsafe { message::stamp(claim.at(), place) };
            // SAFETY: the claim's owner has written a whole record and keeps it.
            let record = unsafe { Record::at(address) };
            appended.stop = self.decide(state, record, waited);
            if appended.stop.is_some() {
                return appended;
            }
            self.publish(partition, state, &[address], now_us, &mut appended.outcome);
            self.log.retain_claimed(claim.chunk(), sequence);
            self.show_retained();
            appended.count = 1;
            appended
        })
    }

    /// What an append begins with: may it go on, and with which route?
    #[inline(always)]
    fn begin(&mut self, partition: &Partition, state: &mut PartitionState) -> Option<Stop> {
        if self.closed {
            return Some(Stop::Closed);
        }
        if state.snapshot_version != self.routing.version() {
            if state.deleted {
                return Some(Stop::Deleted);
            }
            self.resolve(partition, state);
        }
        None
    }

    /// Brings a partition's route up to date.
    #[cold]
    fn resolve(&mut self, partition: &Partition, state: &mut PartitionState) {
        assert_eq!(partition.shard, self.held.shard, "a partition stays on its shard");
        let snapshot_version = self.routing.version();
        let trie = self.routing.load();
        // Most changes concern other topics, and then this one's route stands.
        if state.snapshot_version == UNRESOLVED
            || trie.concerns(state.trie_version, &partition.topic)
        {
            state.route.clear();
            trie.for_each_match(&partition.topic, |_, inbox| {
                if inbox.state() == InboxState::Open {
                    let lane = inbox.make_lane(partition.shard, self.log.log(), None);
                    if inbox.is_settled_later() {
                        self.settling.insert(inbox.id, Arc::clone(lane));
                    }
                    state.route.push(Target {
                        inbox: Arc::clone(inbox),
                        lane: Arc::clone(lane),
                        filtered: inbox.interest.is_selective(),
                        blocks: matches!(inbox.overflow, Overflow::Block { .. }),
                    });
                }
            });
            state.is_special = state.route.iter().any(|target| {
                let disconnects = matches!(target.inbox.overflow, Overflow::Disconnect { .. });
                disconnects
            });
            state.may_block = state
                .route
                .iter()
                .any(|target| matches!(target.inbox.overflow, Overflow::Block { .. }));
        }
        state.snapshot_version = snapshot_version;
        state.trie_version = trie.version();
    }

    /// Writes the next messages into one chunk: as many as fit there, into a group, and into the
    /// subscriptions that block. At least one, or the reason why not.
    #[inline(always)]
    fn write_group(
        &mut self,
        partition: &Partition,
        state: &PartitionState,
        messages: &[NewMessage<'_>],
        waited: Duration,
        now_us: u64,
        group: &mut Group,
    ) -> Option<Stop> {
        let mut room = Room { most: messages.len().min(GROUP), ask_filters: false };
        if state.may_block {
            room = match self.room(state, room.most, waited) {
                Ok(room) => room,
                Err(stop) => return Some(stop),
            };
        }
        let place = Place {
            offset: partition.next_offset.get(),
            published_us: now_us,
            partition: partition.id,
            sequence_low: self.log.next() as u32,
        };
        let messages = &messages[..room.most];
        if !room.ask_filters {
            let (at, left) = self.appender.span();
            let end = at as usize + left;
            // SAFETY: an array of maybe-uninitialised addresses may hold anything.
            let into = unsafe {
                std::slice::from_raw_parts_mut(group.as_mut_ptr().cast(), group.capacity())
            };
            // SAFETY: the appender's span is ours and aligned; the publisher has checked the
            // messages before they came here.
            let (count, next) = unsafe { message::write_all(at, end, messages, place, into) };
            if count > 0 {
                // SAFETY: so many have been written.
                unsafe { group.set_len(count) };
                self.appender.commit(next as usize - at as usize);
                return None;
            }
        }
        self.write_first(state, messages, place, room.ask_filters, waited, group)
    }

    /// Writes the first of `messages` alone: it needs another chunk, or must be looked at first.
    #[cold]
    #[inline(never)]
    fn write_first(
        &mut self,
        state: &PartitionState,
        messages: &[NewMessage<'_>],
        place: Place,
        ask_filters: bool,
        waited: Duration,
        group: &mut Group,
    ) -> Option<Stop> {
        let message = messages.first()?;
        // Checked by the publisher before it came here.
        let Ok(layout) = message.measure() else { return Some(Stop::NoMemory) };
        let bytes = layout.bytes();
        if bytes > CHUNK_BYTES - FIRST_RECORD {
            return self.write_large(state, message, layout, place, waited, group);
        }
        let at = match self.appender.room(bytes) {
            Some(at) => at,
            None => match self.next_chunk(bytes) {
                Ok(at) => at,
                Err(stop) => return Some(stop),
            },
        };
        // SAFETY: the appender's room is ours, aligned and large enough.
        unsafe { message::write(at, message, layout, place) };
        if ask_filters {
            // SAFETY: just written, and the chunk is ours.
            let record = unsafe { Record::at(at as usize) };
            let stop = self.decide(state, record, waited);
            if stop.is_some() {
                return stop;
            }
        }
        self.appender.commit(bytes);
        group.push(at as usize);
        None
    }

    /// A message that no chunk holds gets a block for itself.
    #[cold]
    fn write_large(
        &mut self,
        state: &PartitionState,
        message: &NewMessage<'_>,
        layout: Layout,
        place: Place,
        waited: Duration,
        group: &mut Group,
    ) -> Option<Stop> {
        let stop = self.make_room(layout.bytes() + FIRST_RECORD);
        if stop.is_some() {
            return stop;
        }
        let Some((chunk, at)) = Pool::detached(&self.pool, layout.bytes()) else {
            return Some(Stop::NoMemory);
        };
        // SAFETY: the block is new, aligned and large enough.
        unsafe { message::write(at, message, layout, place) };
        // SAFETY: just written, and the block is ours.
        let record = unsafe { Record::at(at as usize) };
        let stop = self.decide(state, record, waited);
        if stop.is_some() {
            chunk.release(1);
            return stop;
        }
        // The log's token is the one that the block came with.
        self.log.retain(chunk, self.log.next());
        self.show_retained();
        group.push(at as usize);
        None
    }

    /// How many of `wanted` messages can be published without dropping any for a subscription
    /// that is to be waited for. With a filter on such a subscription they go one by one.
    fn room(
        &mut self,
        state: &PartitionState,
        wanted: usize,
        waited: Duration,
    ) -> Result<Room, Stop> {
        let mut most = wanted;
        let mut ask_filters = false;
        for target in &state.route {
            if !must_wait(&target.inbox, waited) {
                continue;
            }
            let room = target.lane.room(&mut self.held, most);
            if room == 0 && !target.filtered {
                return Err(Stop::Blocked(Arc::clone(&target.inbox), Arc::clone(&target.lane)));
            }
            // A filtered one may not want what there is no room for: look at each by itself.
            if room < most && target.filtered {
                (most, ask_filters) = (1, true);
            } else {
                most = room;
            }
        }
        Ok(Room { most, ask_filters })
    }

    /// Whether the publisher of `record` must wait for somebody first.
    #[cold]
    fn decide(
        &mut self,
        state: &PartitionState,
        record: Record<'_>,
        waited: Duration,
    ) -> Option<Stop> {
        if !state.may_block {
            return None;
        }
        for target in &state.route {
            if must_wait(&target.inbox, waited)
                && target.lane.room(&mut self.held, 1) == 0
                && target.inbox.interest.selects(record, &self.context)
            {
                return Some(Stop::Blocked(Arc::clone(&target.inbox), Arc::clone(&target.lane)));
            }
        }
        None
    }

    /// Takes the records at `addresses`, all in one chunk, into the log, and pushes them.
    #[inline(always)]
    fn publish(
        &mut self,
        partition: &Partition,
        state: &mut PartitionState,
        addresses: &[usize],
        now_us: u64,
        outcome: &mut Outcome,
    ) {
        self.log.append(addresses);
        partition.next_offset.add(addresses.len() as u64);
        self.log.publish();
        let mut ended = false;
        for target in &state.route {
            let overflow = target.inbox.overflow;
            // Another partition, or another shard, may have disconnected it.
            if matches!(overflow, Overflow::Disconnect { .. })
                && target.inbox.state() != InboxState::Open
            {
                ended = true;
                continue;
            }
            let (pushed, matched) = if target.filtered {
                self.push_filtered(target, addresses, now_us)
            } else {
                let pushed = target.lane.push(
                    &mut self.held,
                    addresses,
                    &mut self.appender,
                    overflow,
                    now_us,
                );
                (pushed, addresses.len())
            };
            outcome.add(matched, pushed);
            // SYNC asleep: pairs with WaitCell::prepare.
            light_fence();
            if pushed != Pushed::default() && target.inbox.arrivals.is_armed() {
                self.wake(target);
            }
            if pushed.fell_back() {
                self.catching_up.push((Arc::clone(&target.inbox), Arc::clone(&target.lane)));
            } else if pushed.disconnect() {
                target.inbox.advance(InboxState::Disconnected);
                self.errands.push(Arc::clone(&target.inbox));
                tracing::warn!(
                    subscription = target.inbox.id,
                    "disconnected: its queue stayed full"
                );
                ended = true;
            }
        }
        if ended {
            state.route.retain(|target| target.inbox.state() == InboxState::Open);
        }
    }

    #[cold]
    fn push_filtered(
        &mut self,
        target: &Target,
        addresses: &[usize],
        now_us: u64,
    ) -> (Pushed, usize) {
        let mut wanted = Group::new();
        for &address in addresses {
            // SAFETY: written and not let go.
            let record = unsafe { Record::at(address) };
            if target.inbox.interest.selects(record, &self.context) {
                wanted.push(address);
            }
        }
        let pushed = target.lane.push(
            &mut self.held,
            &wanted,
            &mut self.appender,
            target.inbox.overflow,
            now_us,
        );
        (pushed, wanted.len())
    }

    /// Ends the current chunk and begins another, letting old ones expire to stay in the budget.
    #[cold]
    fn next_chunk(&mut self, bytes: usize) -> Result<*mut u8, Stop> {
        // The present chunk counts from now on, and the new one as well.
        let sealed = self.appender.seal();
        if let Some(chunk) = sealed {
            self.log.retain(chunk, self.log.next().wrapping_sub(1));
        }
        if let Some(stop) = self.make_room(CHUNK_BYTES) {
            return Err(stop);
        }
        if !self.appender.begin() {
            return Err(Stop::NoMemory);
        }
        self.show_retained();
        self.appender.room(bytes).ok_or(Stop::NoMemory)
    }

    /// Lets the oldest chunks expire until `bytes` more fit into the budget.
    fn make_room(&mut self, bytes: usize) -> Option<Stop> {
        while self.log.over_budget(bytes) {
            let Some((low, end, only_retained)) = self.log.oldest() else { break };
            if self.when_full == WhenFull::Refuse {
                let unread = self.catching_up.iter().any(|(_, lane)| lane.awaits(end));
                let unsettled = self.settling.values().any(|lane| lane.is_unsettled(end));
                if unread || unsettled || !only_retained {
                    return Some(Stop::Full);
                }
            }
            for (inbox, lane) in &self.catching_up {
                lane.expire(&mut self.held, end, &inbox.interest, &self.context);
            }
            self.log.expire();
            self.figures.expired.add(end - low);
        }
        self.show_retained();
        None
    }

    /// Called whenever chunks have come or gone.
    fn show_retained(&self) {
        self.figures.retained_bytes.set((self.log.bytes() + self.appender.bytes()) as u64);
    }

    /// Makes the lane of an inbox that begins in the past, before any route has it.
    pub(crate) fn begin_replay(&mut self, inbox: &Arc<Inbox>, replay: Replay) {
        let cursor = replay.cursor.max(self.log.log().low());
        let replay = Replay { cursor, ..replay };
        let lane = inbox.make_lane(self.held.shard, self.log.log(), Some(replay));
        if inbox.is_settled_later() {
            self.settling.insert(inbox.id, Arc::clone(lane));
        }
        self.catching_up.push((Arc::clone(inbox), Arc::clone(lane)));
    }

    /// Lets a lane that has caught up go live, if it can be done now.
    pub(crate) fn go_live(&mut self, inbox: &Inbox, lane: &Lane) -> bool {
        let live = lane.go_live(
            &mut self.held,
            self.log.next(),
            &mut self.appender,
            &inbox.interest,
            &self.context,
        );
        if live {
            self.catching_up.retain(|(other, _)| other.id != inbox.id);
        }
        live
    }

    /// Nothing is pushed to `inbox` from now on.
    pub(crate) fn end_inbox(&mut self, inbox: &Inbox) {
        if let Some(lane) = inbox.lane(self.held.shard) {
            lane.end(&mut self.held);
        }
        self.settling.remove(&inbox.id);
        self.catching_up.retain(|(other, _)| other.id != inbox.id);
    }

    /// Refuses every append to `partition` from now on.
    pub(crate) fn delete(&mut self, partition: &Partition) {
        assert_eq!(partition.shard, self.held.shard, "a partition stays on its shard");
        partition.state.with_mut(|state| {
            // SAFETY: checked just above; the baton is held.
            let state = unsafe { &mut *state };
            state.deleted = true;
            state.snapshot_version = UNRESOLVED;
            state.route = Vec::new();
        });
    }

    /// Refuses every append from now on.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }
}

/// Whether a publisher that has waited so long must still wait for `inbox` to have room.
#[inline]
fn must_wait(inbox: &Inbox, waited: Duration) -> bool {
    matches!(inbox.overflow, Overflow::Block { timeout } if timeout.is_none_or(|most| waited < most))
        && inbox.state() == InboxState::Open
}

/// How many messages may be published at once.
struct Room {
    most: usize,
    /// The filters of subscriptions that block must be asked first.
    ask_filters: bool,
}
