//! A shard: the single writer of its partitions.
//!
//! Whoever holds the shard's baton puts messages in order. [`Core::append`] is the path of a
//! message: find the route of its topic, see that nobody who asked for it must be waited for,
//! write the record, give it offset, time and sequence, and push its address into the lanes of the
//! subscriptions that want it.
#![expect(unsafe_code, reason = "partitions are owned by whoever holds their shard's baton")]

use crate::baton::{Baton, Guarded};
use crate::chunk::{Appender, CHUNK_BYTES, Claim, ClaimArea, FIRST_RECORD, Pool};
use crate::clock::Clock;
use crate::config::{Limits, Overflow, WhenFull};
use crate::inbox::{Inbox, InboxState};
use crate::lane::{Held, Lane, Pushed, Replay};
use crate::log::{Log, LogWriter};
use crate::message::{self, Context, Layout, NewMessage, Record};
use crate::snapshot::Snapshot;
use crate::sync::{Arc, Counter, UnsafeCell, light_fence};
use crate::trie::Trie;
use std::time::Duration;

/// Messages that are pushed to a lane in one go.
const GROUP: usize = 64;

/// The sequence of a log's first record. The models begin where its low half wraps around.
pub(crate) const FIRST_SEQUENCE: u64 = if cfg!(slipring_loom) { u32::MAX as u64 - 1 } else { 0 };

/// The routing table: which subscription wants which topics.
pub(crate) type Routes = Trie<Arc<Inbox>>;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) baton: Baton<Core>,
    pub(crate) claims: ClaimArea,
    pub(crate) log: std::sync::Arc<Log>,
    pub(crate) figures: std::sync::Arc<ShardFigures>,
}

/// Counted by the holder.
#[derive(Debug, Default)]
pub(crate) struct ShardFigures {
    pub(crate) published: Counter,
    pub(crate) published_bytes: Counter,
    /// Records that have expired from memory.
    pub(crate) expired: Counter,
    /// Chunk bytes that the log retains.
    pub(crate) retained_bytes: Counter,
}

impl Shard {
    pub(crate) fn new(
        index: usize,
        budget: usize,
        when_full: WhenFull,
        limits: Limits,
        pool: &Arc<Pool>,
        clock: Clock,
        context: &Arc<Context>,
        routing: &std::sync::Arc<Snapshot<Routes>>,
    ) -> Self {
        let writer = LogWriter::new(budget, FIRST_SEQUENCE);
        let log = std::sync::Arc::clone(writer.log());
        let figures = std::sync::Arc::new(ShardFigures::default());
        let core = Core {
            held: Held { shard: index },
            log: writer,
            appender: Appender::new(Arc::clone(pool)),
            pool: Arc::clone(pool),
            when_full,
            limits,
            clock,
            last_us: 0,
            context: Arc::clone(context),
            routing: std::sync::Arc::clone(routing),
            errands: Vec::new(),
            catching_up: Vec::new(),
            group: Vec::with_capacity(GROUP),
            wanted: Vec::with_capacity(GROUP),
            closed: false,
            figures: std::sync::Arc::clone(&figures),
        };
        Self { baton: Baton::new(core), claims: ClaimArea::new(Arc::clone(pool)), log, figures }
    }
}

/// A partition: the unit of order. What changes in it is owned by its shard's holder.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) id: u32,
    pub(crate) shard: usize,
    topic: std::sync::Arc<str>,
    state: UnsafeCell<PartitionState>,
    pub(crate) published: Counter,
    pub(crate) published_bytes: Counter,
}

// SAFETY: the cell is reached with `Held` alone.
unsafe impl Sync for Partition {}

#[derive(Debug, Default)]
struct PartitionState {
    next_offset: u64,
    deleted: bool,
    route: Vec<Target>,
    /// One of `route` may make a publisher wait.
    may_block: bool,
    /// The snapshot and the trie that `route` is of; 0 before the first.
    snapshot_version: u64,
    trie_version: u64,
    resolved: bool,
}

/// A subscription that a partition's messages go to.
#[derive(Debug)]
struct Target {
    inbox: Arc<Inbox>,
    lane: Arc<Lane>,
    filtered: bool,
    /// Whether the append at hand has brought something, so that its consumer may have to be woken.
    touched: bool,
}

impl Partition {
    pub(crate) fn new(id: u32, shard: usize, topic: std::sync::Arc<str>) -> Self {
        Self {
            id,
            shard,
            topic,
            state: UnsafeCell::new(PartitionState::default()),
            published: Counter::default(),
            published_bytes: Counter::default(),
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
    limits: Limits,
    clock: Clock,
    /// Time stamps never go back within a shard.
    last_us: u64,
    context: Arc<Context>,
    routing: std::sync::Arc<Snapshot<Routes>>,
    /// Inboxes whose consumer is to be woken when the baton has been let go.
    errands: Vec<Arc<Inbox>>,
    /// Subscriptions that read the log and must be told what expires.
    catching_up: Vec<(Arc<Inbox>, Arc<Lane>)>,
    /// Scratch: the addresses of the records at hand, and of those that a filter wants.
    group: Vec<usize>,
    wanted: Vec<usize>,
    closed: bool,
    figures: std::sync::Arc<ShardFigures>,
}

impl Guarded for Core {
    type Errands = Vec<Arc<Inbox>>;

    #[inline]
    fn take_errands(&mut self, errands: &mut Self::Errands) {
        if !self.errands.is_empty() {
            errands.append(&mut self.errands);
        }
    }

    #[inline]
    fn run_errands(errands: Self::Errands) {
        for inbox in errands {
            inbox.arrivals.wake();
        }
    }
}

impl Core {
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

    #[inline]
    fn append_to(
        &mut self,
        partition: &Partition,
        state: &mut PartitionState,
        messages: &[NewMessage<'_>],
        waited: Duration,
    ) -> Appended {
        let mut appended = Appended {
            count: 0,
            first_offset: state.next_offset,
            outcome: Outcome::default(),
            stop: self.begin(partition, state),
        };
        if appended.stop.is_some() {
            return appended;
        }
        let now_us = self.now_us();
        let mut group = std::mem::take(&mut self.group);
        while appended.count < messages.len() {
            group.clear();
            let rest = &messages[appended.count..];
            appended.stop = self.write_group(partition, state, rest, waited, &mut group);
            if appended.stop.is_some() {
                break;
            }
            self.publish(state, &group, now_us, &mut appended.outcome);
            appended.count += group.len();
        }
        self.group = group;
        self.end(partition, state, &appended);
        appended
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
                first_offset: state.next_offset,
                outcome: Outcome::default(),
                stop: self.begin(partition, state),
            };
            if appended.stop.is_some() {
                return appended;
            }
            let address = claim.at() as usize;
            let stop = self.make_room(claim.chunk().bytes()).or_else(|| {
                // SAFETY: the claim's owner has written a whole record and keeps it.
                let record = unsafe { Record::at(address) };
                self.decide(state, record, waited)
            });
            if stop.is_some() {
                appended.stop = stop;
                return appended;
            }
            let sequence = self.log.next();
            let now_us = self.now_us();
            self.publish(state, &[address], now_us, &mut appended.outcome);
            self.log.retain_claimed(claim.chunk(), sequence);
            appended.count = 1;
            self.end(partition, state, &appended);
            appended
        })
    }

    /// What an append begins with: may it go on, and with which route?
    #[inline]
    fn begin(&mut self, partition: &Partition, state: &mut PartitionState) -> Option<Stop> {
        if self.closed {
            return Some(Stop::Closed);
        }
        if state.deleted {
            return Some(Stop::Deleted);
        }
        if !state.resolved || state.snapshot_version != self.routing.version() {
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
        if !state.resolved || trie.concerns(state.trie_version, &partition.topic) {
            state.route.clear();
            trie.for_each_match(&partition.topic, |_, inbox| {
                if inbox.state() == InboxState::Open {
                    let lane = inbox.make_lane(partition.shard, self.log.log(), None);
                    state.route.push(Target {
                        inbox: Arc::clone(inbox),
                        lane: Arc::clone(lane),
                        filtered: inbox.interest.selector.is_some(),
                        touched: false,
                    });
                }
            });
            state.may_block = state
                .route
                .iter()
                .any(|target| matches!(target.inbox.overflow, Overflow::Block { .. }));
        }
        state.resolved = true;
        state.snapshot_version = snapshot_version;
        state.trie_version = trie.version();
    }

    /// Writes the next messages into one chunk: as many as fit there, into a group, and into the
    /// subscriptions that block. At least one, or the reason why not.
    #[inline]
    fn write_group(
        &mut self,
        partition: &Partition,
        state: &PartitionState,
        messages: &[NewMessage<'_>],
        waited: Duration,
        group: &mut Vec<usize>,
    ) -> Option<Stop> {
        let mut room = Room { most: messages.len().min(GROUP), ask_filters: false };
        if state.may_block {
            room = match self.room(state, room.most, waited) {
                Ok(room) => room,
                Err(stop) => return Some(stop),
            };
        }
        for message in &messages[..room.most] {
            // Checked by the publisher before it came here.
            let Ok(layout) = message.layout(&self.limits) else { break };
            let bytes = layout.bytes();
            let at = match self.appender.room(bytes) {
                Some(at) => at,
                None if !group.is_empty() => break,
                None if bytes > CHUNK_BYTES - FIRST_RECORD => {
                    return self.write_large(partition, state, message, layout, waited, group);
                }
                None => match self.next_chunk(bytes) {
                    Ok(at) => at,
                    Err(stop) => return Some(stop),
                },
            };
            // SAFETY: the appender's room is ours, aligned and large enough.
            unsafe { message::write(at, message, layout, partition.id) };
            if room.ask_filters {
                // SAFETY: just written, and the chunk is ours.
                let record = unsafe { Record::at(at as usize) };
                let stop = self.decide(state, record, waited);
                if stop.is_some() {
                    return stop;
                }
            }
            self.appender.commit(bytes);
            group.push(at as usize);
        }
        None
    }

    /// A message that no chunk holds gets a block for itself.
    #[cold]
    fn write_large(
        &mut self,
        partition: &Partition,
        state: &PartitionState,
        message: &NewMessage<'_>,
        layout: Layout,
        waited: Duration,
        group: &mut Vec<usize>,
    ) -> Option<Stop> {
        let stop = self.make_room(layout.bytes() + FIRST_RECORD);
        if stop.is_some() {
            return stop;
        }
        let Some((chunk, at)) = Pool::detached(&self.pool, layout.bytes()) else {
            return Some(Stop::NoMemory);
        };
        // SAFETY: the block is new, aligned and large enough.
        unsafe { message::write(at, message, layout, partition.id) };
        // SAFETY: just written, and the block is ours.
        let record = unsafe { Record::at(at as usize) };
        let stop = self.decide(state, record, waited);
        if stop.is_some() {
            chunk.release(1);
            return stop;
        }
        // The log's token is the one that the block came with.
        self.log.retain(chunk, self.log.next());
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

    /// Gives the records at `addresses`, all in one chunk, their place, and pushes them.
    #[inline]
    fn publish(
        &mut self,
        state: &mut PartitionState,
        addresses: &[usize],
        now_us: u64,
        outcome: &mut Outcome,
    ) {
        for &address in addresses {
            let at = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: a record of ours that nobody else has seen yet.
            unsafe { message::stamp(at, state.next_offset, now_us, self.log.next()) };
            self.log.append(address);
            state.next_offset += 1;
        }
        self.log.publish();
        let mut ended = false;
        for target in &mut state.route {
            let overflow = target.inbox.overflow;
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
            target.touched |= pushed != Pushed::default();
            outcome.matched += matched as u64;
            outcome.enqueued += u64::from(pushed.enqueued);
            outcome.dropped += u64::from(pushed.dropped);
            if pushed.disconnect {
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
        self.wanted.clear();
        for &address in addresses {
            // SAFETY: written and not let go.
            let record = unsafe { Record::at(address) };
            if target.inbox.interest.selects(record, &self.context) {
                self.wanted.push(address);
            }
        }
        let pushed = target.lane.push(
            &mut self.held,
            &self.wanted,
            &mut self.appender,
            target.inbox.overflow,
            now_us,
        );
        (pushed, self.wanted.len())
    }

    /// What an append ends with: counts, and a look for consumers that sleep.
    #[inline]
    fn end(&mut self, partition: &Partition, state: &mut PartitionState, appended: &Appended) {
        if appended.count == 0 {
            return;
        }
        partition.published.add(appended.count as u64);
        self.figures.published.add(appended.count as u64);
        // SYNC asleep: pairs with WaitCell::prepare.
        light_fence();
        for target in &mut state.route {
            if std::mem::take(&mut target.touched) && target.inbox.arrivals.is_armed() {
                self.errands.push(Arc::clone(&target.inbox));
            }
        }
    }

    #[inline]
    fn now_us(&mut self) -> u64 {
        self.last_us = self.last_us.max(self.clock.unix_us());
        self.last_us
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
        self.appender.room(bytes).ok_or(Stop::NoMemory)
    }

    /// Lets the oldest chunks expire until `bytes` more fit into the budget.
    fn make_room(&mut self, bytes: usize) -> Option<Stop> {
        while self.log.over_budget(bytes) {
            let Some((low, end, only_retained)) = self.log.oldest() else { break };
            if self.when_full == WhenFull::Refuse {
                let unread = self.catching_up.iter().any(|(_, lane)| lane.awaits(end));
                if unread || !only_retained {
                    return Some(Stop::Full);
                }
            }
            for (inbox, lane) in &self.catching_up {
                lane.expire(&mut self.held, end, &inbox.interest, &self.context);
            }
            self.log.expire();
            self.figures.expired.add(end - low);
        }
        self.figures.retained_bytes.set((self.log.bytes() + self.appender.bytes()) as u64);
        None
    }

    /// Makes the lane of an inbox that begins in the past, before any route has it.
    pub(crate) fn begin_replay(&mut self, inbox: &Arc<Inbox>, replay: Replay) {
        let cursor = replay.cursor.max(self.log.log().low());
        let replay = Replay { cursor, ..replay };
        let lane = inbox.make_lane(self.held.shard, self.log.log(), Some(replay));
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
        self.catching_up.retain(|(other, _)| other.id != inbox.id);
    }

    /// Refuses every append to `partition` from now on.
    pub(crate) fn delete(&mut self, partition: &Partition) {
        assert_eq!(partition.shard, self.held.shard, "a partition stays on its shard");
        partition.state.with_mut(|state| {
            // SAFETY: checked just above; the baton is held.
            let state = unsafe { &mut *state };
            state.deleted = true;
            state.route = Vec::new();
        });
    }

    /// The offset that the next message of `partition` gets.
    pub(crate) fn next_offset(&mut self, partition: &Partition) -> u64 {
        assert_eq!(partition.shard, self.held.shard, "a partition stays on its shard");
        // SAFETY: checked just above; the baton is held.
        partition.state.with_mut(|state| unsafe { (*state).next_offset })
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
