//! A shard: the single writer of its partitions.
//!
//! Whoever holds the shard's baton puts messages in order. [`Core::append`] is the path of a
//! message: find the route of its topic, see that nobody who asked for it must be waited for,
//! write the record, give it offset, time and sequence, and push its sequence into the lanes of the
//! subscriptions that want it.
#![expect(unsafe_code, reason = "partitions are owned by whoever holds their shard's baton")]

use crate::batch::Batch;
use crate::baton::{Baton, Guarded};
use crate::chunk::{Appender, CHUNK_BYTES, Claim, ClaimArea, FIRST_RECORD, Pool};
use crate::clock::{Clock, Stamps};
use crate::config::{Overflow, WhenFull};
use crate::errands::Errands;
use crate::followers::Followers;
use crate::inbox::{Inbox, InboxState};
use crate::lane::{Held, Lane, Replay};
use crate::log::{Log, LogWriter};
use crate::message::{self, Context, Layout, NewMessage, Place, Record};
use crate::origin::{Memory, Origin};
pub(crate) use crate::outcome::{Appended, Outcome, Stop};
pub(crate) use crate::partition::Partition;
use crate::partition::{PartitionState, Target, UNRESOLVED};
use crate::prefetch;
use crate::queue::Pushed;
use crate::runs::Span;
use crate::snapshot::Snapshot;
use crate::sync::{Arc, Ordering, PlainArc, light_fence};
use crate::tally::ShardFigures;
use crate::trie::Trie;
use crate::waits::Room;
pub(crate) use crate::waits::Waits;
use std::collections::HashMap;

/// Bytes of records that a chunk has room for.
pub(crate) const CHUNK_ROOM: usize = CHUNK_BYTES - FIRST_RECORD;

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

impl Shard {
    pub(crate) fn new(
        index: usize,
        memory: Memory<'_>,
        origin: Origin,
        clock: Clock,
        context: &Arc<Context>,
        routing: &PlainArc<Snapshot<Routes>>,
    ) -> Self {
        let Memory { budget, when_full, pool } = memory;
        // What is stored does not fill memory.
        let when_full = if origin.backing.is_some() { WhenFull::Expire } else { when_full };
        let writer = LogWriter::backed(budget, origin.sequence, origin.backing);
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
            awaited: HashMap::new(),
            followers: Followers::default(),
            closed: false,
            figures: PlainArc::clone(&figures),
        };
        Self { baton: Baton::new(core), claims: ClaimArea::new(Arc::clone(pool)), log, figures }
    }
}

/// What a shard's baton guards.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) held: Held,
    pub(crate) log: LogWriter,
    pub(crate) appender: Appender,
    pool: Arc<Pool>,
    when_full: WhenFull,
    pub(crate) stamps: Stamps,
    context: Arc<Context>,
    routing: PlainArc<Snapshot<Routes>>,
    /// Inboxes whose consumer is to be woken when the baton has been let go.
    errands: Vec<Arc<Inbox>>,
    /// Subscriptions that read the log and must be told what expires.
    catching_up: Vec<(Arc<Inbox>, Arc<Lane>)>,
    /// All subscriptions, where nothing may expire that one of them has not taken.
    awaited: HashMap<u64, Arc<Lane>>,
    followers: Followers,
    closed: bool,
    figures: PlainArc<ShardFigures>,
}

impl Guarded for Core {
    type Errands = Errands;

    #[inline(always)]
    fn has_errands(&self) -> bool {
        !self.errands.is_empty()
    }

    fn take_errands(&mut self, errands: &mut Self::Errands) {
        errands.extend(self.errands.drain(..));
    }

    fn run_errands(errands: Self::Errands) {
        errands.run();
    }
}

impl Core {
    /// Publishes `message`, whose layout is `layout`, to `partition`, if there is nothing special
    /// about it: its offset, and what became of it. `None` means that nothing was done, and that
    /// [`append_specially`](Self::append_specially) has to.
    #[inline(always)]
    pub(crate) fn append_one(
        &mut self,
        partition: &Partition,
        message: &NewMessage<'_>,
        layout: Layout,
    ) -> Option<(u64, Outcome)> {
        // Not inside the closure, which would be a function of its own, with its result in memory.
        let state = partition.state.with_mut(|state| state);
        // SAFETY: the partition is of this shard (checked in `resolve`), whose baton is held.
        let state = unsafe { &mut *state };
        let bytes = layout.bytes();
        let (Some(at), true) = (self.appender.room_before_mark(bytes), self.is_ordinary(state))
        else {
            return None;
        };
        // Readers have taken the head, and fetch ahead as well: let all come back while we look around.
        [0, 64].into_iter().for_each(|line| prefetch::for_write(at as usize + line));
        self.log.fetch_head();
        let following = self.is_following(partition);
        if state.may_block(following) && self.is_full(state.targets(following)) {
            return None;
        }
        let offset = partition.next_offset.get();
        let now_us = self.stamps.now_us();
        let sequence = self.log.next();
        let sequence_low = sequence as u32;
        let place = Place { offset, published_us: now_us, partition: partition.id, sequence_low };
        prefetch::for_write(at as usize + message::AHEAD);
        prefetch::for_write(at as usize + message::AHEAD + 64);
        // SAFETY: the appender's room is ours, aligned and large enough.
        unsafe { message::write(at, message, layout, place) };
        self.appender.commit(bytes);
        self.log.append(at as usize);
        partition.next_offset.set(offset + 1);
        let mut outcome = Outcome { matched: state.route.len() as u64, ..Outcome::default() };
        let mut pushed = 0;
        if following {
            pushed = state.followers as u64;
            self.followers.credit -= 1;
            self.notice_alert();
        }
        for target in state.targets(following) {
            if target.filtered && !self.selects(target, at as usize) {
                outcome.matched -= 1;
                continue;
            }
            if target.lane.try_push_one(&mut self.held, sequence) {
                pushed += 1;
            } else {
                outcome.add(0, self.push_specially(target, sequence, now_us));
            }
            // SYNC asleep: pairs with WaitCell::prepare.
            light_fence();
            if target.inbox.arrivals.is_armed() {
                self.wake(target);
            }
        }
        outcome.enqueued += pushed;
        if !following || state.is_incomplete {
            self.note_streak(partition, state);
        }
        Some((offset, outcome))
    }

    /// Whether nothing keeps a message to the partition with this `state` from the short way.
    #[inline(always)]
    fn is_ordinary(&self, state: &PartitionState) -> bool {
        !(state.is_special || self.closed) && state.snapshot_version == self.routing.version()
    }

    /// Whether a message to `partition` could not go the short way, had it room in the chunk.
    #[cold]
    pub(crate) fn is_held_up(&mut self, partition: &Partition) -> bool {
        let state = partition.state.with_mut(|state| state);
        // SAFETY: as in `append_one`.
        let state = unsafe { &*state };
        if !self.is_ordinary(state) {
            return true;
        }
        let following = self.is_following(partition);
        state.may_block(following) && self.is_full(state.targets(following))
    }

    /// Whether the lanes that may follow the log do, with room for a message, while `partition` is
    /// published to. If not, none does.
    #[inline(always)]
    fn is_following(&mut self, partition: &Partition) -> bool {
        if self.followers.partition == Some(partition.id) {
            self.followers.credit > 0 || self.extend_credit()
        } else {
            if self.followers.partition.is_some() {
                self.unfollow();
            }
            false
        }
    }

    /// After a publish that has touched lanes: lets them follow the log from now on, if it looks as
    /// if that pays.
    #[inline(always)]
    fn note_streak(&mut self, partition: &Partition, state: &mut PartitionState) {
        if self.followers.is_streak(partition.id) {
            self.follow(partition, state);
        }
    }

    /// Lets more lanes of `partition` follow the log: those that have had everything up to now, and
    /// have room for a while.
    #[cold]
    #[inline(never)]
    fn follow(&mut self, partition: &Partition, state: &mut PartitionState) {
        let followers = &mut self.followers;
        followers.end_streak();
        if followers.partition.is_none() {
            (followers.credit, state.followers) = (u64::MAX, 0);
        }
        let next = self.log.next();
        state.is_incomplete = false;
        for at in state.followers..state.route.len() {
            let target = &state.route[at];
            if !target.is_followable() {
                continue;
            }
            let Some(room) = target.lane.follow(&mut self.held, next) else {
                state.is_incomplete = true;
                continue;
            };
            followers.credit = followers.credit.min(room);
            followers.lanes.push((Arc::clone(&target.inbox), Arc::clone(&target.lane)));
            followers.partition = Some(partition.id);
            state.route.swap(at, state.followers);
            state.followers += 1;
        }
        state.rest_may_block = state.targets(true).iter().any(|target| target.blocks);
    }

    /// Sees how much fits into all lanes that follow; if nothing fits into one, none does any more.
    #[cold]
    #[inline(never)]
    fn extend_credit(&mut self) -> bool {
        let next = self.log.next();
        let mut credit = u64::MAX;
        for (_, lane) in &self.followers.lanes {
            credit = credit.min(lane.room_behind(&mut self.held, next));
        }
        self.followers.credit = credit;
        if credit == 0 {
            self.unfollow();
        }
        credit > 0
    }

    /// Lets no lane follow the log. To be called before the log shows something that is not for all
    /// of them, and before a lane is dealt with in any other way.
    #[cold]
    #[inline(never)]
    fn unfollow(&mut self) {
        let next = self.log.next();
        self.followers.partition = None;
        self.followers.end_streak();
        for (_, lane) in self.followers.lanes.drain(..) {
            lane.unfollow(&mut self.held, next);
        }
    }

    /// Wakes those of the lanes' readers that wait, if one has begun to.
    #[inline(always)]
    fn notice_alert(&mut self) {
        // SYNC asleep: pairs with WaitCell::prepare in Inbox::await_arrivals.
        light_fence();
        if self.log.is_alerted() {
            self.wake_followers();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_followers(&mut self) {
        let waiting = self.followers.lanes.iter().filter(|(inbox, _)| inbox.arrivals.is_armed());
        self.errands.extend(waiting.map(|(inbox, _)| Arc::clone(inbox)));
    }

    #[inline(never)]
    fn selects(&self, target: &Target, address: usize) -> bool {
        // SAFETY: written and not let go.
        target.inbox.interest.selects(unsafe { Record::at(address) }, &self.context)
    }

    #[cold]
    #[inline(never)]
    fn push_specially(&mut self, target: &Target, sequence: u64, now_us: u64) -> Pushed {
        let span = Span { first: sequence, count: 1 };
        let pushed = target.lane.push(&mut self.held, span, target.inbox.overflow, now_us);
        if pushed.fell_back() {
            self.watch(&target.inbox, &target.lane);
        }
        pushed
    }

    /// From now on `lane` is told what expires: its reader takes from the log.
    #[cold]
    fn watch(&mut self, inbox: &Arc<Inbox>, lane: &Arc<Lane>) {
        self.catching_up.push((Arc::clone(inbox), Arc::clone(lane)));
    }

    /// Whether one of the subscriptions that block has no room.
    #[inline(always)]
    fn is_full(&mut self, targets: &[Target]) -> bool {
        let mut blocking = targets.iter().filter(|target| target.blocks);
        blocking.any(|target| target.lane.room(&mut self.held, 1) == 0)
    }

    #[cold]
    #[inline(never)]
    fn wake(&mut self, target: &Target) {
        self.errands.push(Arc::clone(&target.inbox));
    }

    /// Publishes `messages` to `partition` in order, as many as go; `waits` is for how long their
    /// publisher has been waiting for subscriptions that block.
    #[inline]
    pub(crate) fn append(
        &mut self,
        partition: &Partition,
        messages: Batch<'_>,
        waits: &mut Waits,
    ) -> Appended {
        partition.state.with_mut(|state| {
            // SAFETY: the partition is of this shard (checked in `route`), whose baton is held.
            let state = unsafe { &mut *state };
            self.append_to(partition, state, messages, waits)
        })
    }

    #[inline(always)]
    fn append_to(
        &mut self,
        partition: &Partition,
        state: &mut PartitionState,
        messages: Batch<'_>,
        waits: &mut Waits,
    ) -> Appended {
        // Kept apart until the end: a result that is moved is read from memory right behind the
        // stores of the records, and waits there for all of them.
        let first_offset = partition.next_offset.get();
        let (mut count, mut outcome) = (0, Outcome::default());
        let mut stop = self.begin(partition, state);
        if stop.is_none() {
            let now_us = self.stamps.now_us();
            while count < messages.len() {
                let rest = messages.skip(count);
                let following = self.is_following(partition);
                match self.write_group(partition, state, following, rest, waits, now_us) {
                    Ok(written) => {
                        let number = written as u64;
                        stop = self.store(number);
                        if stop.is_some() {
                            self.withdraw();
                            break;
                        }
                        self.publish(partition, state, following, number, now_us, &mut outcome);
                        count += written;
                    }
                    Err(reason) => {
                        stop = Some(reason);
                        break;
                    }
                }
            }
        }
        if self.appender.is_due() {
            self.prepare();
        }
        Appended { count, first_offset, outcome, stop }
    }

    /// Publishes the record that was written into `claim`.
    pub(crate) fn append_claim(
        &mut self,
        partition: &Partition,
        claim: &Claim,
        waits: &mut Waits,
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
            let following = self.is_following(partition);
            appended.stop = self.decide(state, following, record, waits);
            if appended.stop.is_some() {
                return appended;
            }
            // SYNC slot-reused: pairs with Log::address.
            self.log.slots()[0].store(address, Ordering::Release);
            appended.stop = self.store(1);
            if appended.stop.is_some() {
                return appended;
            }
            self.publish(partition, state, following, 1, now_us, &mut appended.outcome);
            self.log.retain_claimed(claim.chunk(), sequence);
            self.show_retained();
            self.log.let_go_when_due();
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
            self.unfollow();
            state.route.clear();
            trie.for_each_match(&partition.topic, |_, inbox| {
                if inbox.state() == InboxState::Open {
                    let is_new = inbox.lane(partition.shard).is_none();
                    let lane = inbox.make_lane(partition.shard, self.log.log(), None);
                    if is_new && self.when_full == WhenFull::Refuse {
                        self.awaited.insert(inbox.id, Arc::clone(lane));
                    }
                    state.route.push(Target {
                        inbox: Arc::clone(inbox),
                        lane: Arc::clone(lane),
                        filtered: inbox.interest.is_selective(),
                        blocks: matches!(inbox.overflow, Overflow::Block { .. }),
                    });
                }
            });
            state.is_special = self.log.log().backing().is_some()
                || partition.window().is_some()
                || state
                    .route
                    .iter()
                    .any(|target| matches!(target.inbox.overflow, Overflow::Disconnect { .. }));
            state.may_block = state.route.iter().any(|target| target.blocks);
        }
        state.snapshot_version = snapshot_version;
        state.trie_version = trie.version();
    }

    /// Writes the next messages into one chunk: as many as fit there, into a group, and into the
    /// subscriptions that block. How many, at least one, or the reason why not.
    #[inline(always)]
    fn write_group(
        &mut self,
        partition: &Partition,
        state: &PartitionState,
        following: bool,
        messages: Batch<'_>,
        waits: &mut Waits,
        now_us: u64,
    ) -> Result<usize, Stop> {
        let group = self.log.log().group();
        let mut room = Room { most: messages.len().min(group), ask_filters: false };
        if following {
            room.most = room.most.min(self.followers.credit as usize);
        }
        if state.may_block(following) {
            room = self.room(state.targets(following), room.most, waits)?;
        }
        let place = Place {
            offset: partition.next_offset.get(),
            published_us: now_us,
            partition: partition.id,
            sequence_low: self.log.next() as u32,
        };
        let messages = messages.take(room.most);
        if !room.ask_filters {
            let mut count = self.write_into_chunk(messages, place);
            if count == 0 && self.begin_chunk_for(messages)? {
                count = self.write_into_chunk(messages, place);
            }
            if count > 0 {
                return Ok(count);
            }
        }
        self.write_first(state, following, messages, place, room.ask_filters, waits)
    }

    /// Writes as many of `messages` as fit behind what is in the present chunk.
    #[inline(always)]
    fn write_into_chunk(&mut self, messages: Batch<'_>, place: Place) -> usize {
        let (at, left) = self.appender.span();
        let end = at as usize + left;
        // SAFETY: the appender's span is ours and aligned; the publisher has checked the messages
        // before they came here.
        let (count, next) = unsafe { messages.write((at, end), place, self.log.slots()) };
        if count > 0 {
            self.appender.commit(next as usize - at as usize);
        }
        count
    }

    /// Writes the first of `messages` alone: it needs memory of its own, or must be looked at first.
    #[cold]
    #[inline(never)]
    fn write_first(
        &mut self,
        state: &PartitionState,
        following: bool,
        messages: Batch<'_>,
        place: Place,
        ask_filters: bool,
        waits: &mut Waits,
    ) -> Result<usize, Stop> {
        let Some(message) = messages.first() else { return Ok(0) };
        // Checked by the publisher before it came here.
        let Ok(layout) = message.measure() else { return Err(Stop::NoMemory) };
        let bytes = layout.bytes();
        if bytes > CHUNK_ROOM {
            return self.write_large(state, following, &message, layout, place, waits);
        }
        let at = match self.appender.room(bytes) {
            Some(at) => at,
            None => self.next_chunk(bytes)?,
        };
        // SAFETY: the appender's room is ours, aligned and large enough.
        unsafe { message::write(at, &message, layout, place) };
        if ask_filters {
            // SAFETY: just written, and the chunk is ours.
            let record = unsafe { Record::at(at as usize) };
            if let Some(stop) = self.decide(state, following, record, waits) {
                return Err(stop);
            }
        }
        self.appender.commit(bytes);
        // SYNC slot-reused: pairs with Log::address.
        self.log.slots()[0].store(at as usize, Ordering::Release);
        Ok(1)
    }

    /// A message that no chunk holds gets a block for itself.
    #[cold]
    fn write_large(
        &mut self,
        state: &PartitionState,
        following: bool,
        message: &NewMessage<'_>,
        layout: Layout,
        place: Place,
        waits: &mut Waits,
    ) -> Result<usize, Stop> {
        if let Some(stop) = self.make_room(layout.bytes() + FIRST_RECORD) {
            return Err(stop);
        }
        let Some((chunk, at)) = Pool::detached(&self.pool, layout.bytes()) else {
            return Err(Stop::NoMemory);
        };
        // SAFETY: the block is new, aligned and large enough.
        unsafe { message::write(at, message, layout, place) };
        // SAFETY: just written, and the block is ours.
        let record = unsafe { Record::at(at as usize) };
        if let Some(stop) = self.decide(state, following, record, waits) {
            chunk.release(1);
            return Err(stop);
        }
        // The log's token is the one that the block came with.
        self.log.retain(chunk, self.log.next());
        self.show_retained();
        // SYNC slot-reused: pairs with Log::address.
        self.log.slots()[0].store(at as usize, Ordering::Release);
        Ok(1)
    }

    /// How many of `wanted` messages can be published without dropping any for a subscription
    /// that is to be waited for. With a filter on such a subscription they go one by one.
    fn room(&mut self, targets: &[Target], wanted: usize, waits: &mut Waits) -> Result<Room, Stop> {
        let mut most = wanted;
        let mut ask_filters = false;
        let mut blocked = None;
        for target in targets {
            if !waits.must_wait(&target.inbox) {
                continue;
            }
            let room = target.lane.room(&mut self.held, most);
            if room == 0 && !target.filtered {
                // The others that are full are waited for from now on as well.
                waits.begin(&target.inbox);
                blocked = blocked.or(Some(target));
                continue;
            }
            // A filtered one may not want what there is no room for: look at each by itself.
            if room < most && target.filtered {
                (most, ask_filters) = (1, true);
            } else {
                most = room;
            }
        }
        match blocked {
            Some(target) => Err(blocked_by(target)),
            None => Ok(Room { most, ask_filters }),
        }
    }

    /// Whether the publisher of `record` must wait for somebody first.
    #[cold]
    fn decide(
        &mut self,
        state: &PartitionState,
        following: bool,
        record: Record<'_>,
        waits: &mut Waits,
    ) -> Option<Stop> {
        if !state.may_block(following) {
            return None;
        }
        let mut blocked = None;
        for target in state.targets(following) {
            if waits.must_wait(&target.inbox)
                && target.lane.room(&mut self.held, 1) == 0
                && target.inbox.interest.selects(record, &self.context)
            {
                waits.begin(&target.inbox);
                blocked = blocked.or(Some(target));
            }
        }
        blocked.map(blocked_by)
    }

    /// Gives back the memory of records that are not shown after all.
    #[cold]
    fn withdraw(&mut self) {
        self.appender.withdraw(self.log.address(self.log.next()));
        self.log.withdraw();
        self.show_retained();
    }

    /// Stores the next `count` records, whose addresses are in the log's slots, if they are to
    /// outlive the memory. They lie one behind the other.
    #[inline(always)]
    fn store(&self, count: u64) -> Option<Stop> {
        let backing = self.log.log().backing()?;
        backing.append(self.log.next(), self.log.unshown(count)).err().map(Stop::from)
    }

    /// Gives the next `count` records, whose addresses are in the log's slots, their sequences, and
    /// pushes them.
    #[inline(always)]
    fn publish(
        &mut self,
        partition: &Partition,
        state: &mut PartitionState,
        following: bool,
        count: u64,
        now_us: u64,
        outcome: &mut Outcome,
    ) {
        let span = Span { first: self.log.next(), count };
        self.log.advance(count);
        partition.next_offset.add(count);
        if following {
            let all = count * state.followers as u64;
            outcome.matched += all;
            outcome.enqueued += all;
            self.followers.credit -= count;
            self.notice_alert();
        }
        let mut ended = false;
        for target in state.targets(following) {
            let overflow = target.inbox.overflow;
            // Another partition, or another shard, may have disconnected it.
            if matches!(overflow, Overflow::Disconnect { .. })
                && target.inbox.state() != InboxState::Open
            {
                ended = true;
                continue;
            }
            let (pushed, matched) = if target.filtered {
                self.push_filtered(target, span, now_us)
            } else {
                (target.lane.push(&mut self.held, span, overflow, now_us), count)
            };
            outcome.add(matched, pushed);
            // SYNC asleep: pairs with WaitCell::prepare.
            light_fence();
            if pushed != Pushed::default() && target.inbox.arrivals.is_armed() {
                self.wake(target);
            }
            if !pushed.is_special() {
                continue;
            }
            if pushed.fell_back() {
                self.watch(&target.inbox, &target.lane);
            } else {
                target.inbox.advance(InboxState::Disconnected);
                self.errands.push(Arc::clone(&target.inbox));
                tracing::warn!(
                    subscription = target.inbox.number,
                    "disconnected: its queue stayed full"
                );
                ended = true;
            }
        }
        self.log.note_queued();
        if ended {
            self.unfollow();
            state.route.retain(|target| target.inbox.state() == InboxState::Open);
        } else if !following || state.is_incomplete {
            self.note_streak(partition, state);
        }
    }

    /// Pushes those of `span` that the target's filter selects; how many those are.
    #[cold]
    fn push_filtered(&mut self, target: &Target, span: Span, now_us: u64) -> (Pushed, u64) {
        let (mut pushed, mut matched) = (Pushed::default(), 0);
        let mut wanted = Span { first: span.first, count: 0 };
        for sequence in span.first..=span.first + span.count {
            if sequence < span.first + span.count
                && self.selects(target, self.log.address(sequence))
            {
                wanted.count += 1;
                continue;
            }
            if wanted.count > 0 {
                let overflow = target.inbox.overflow;
                pushed += target.lane.push(&mut self.held, wanted, overflow, now_us);
                matched += wanted.count;
                if pushed.disconnect() {
                    break;
                }
            }
            wanted = Span { first: sequence + 1, count: 0 };
        }
        (pushed, matched)
    }

    /// Lets the oldest chunks expire until `bytes` more fit into the budget.
    pub(crate) fn make_room(&mut self, bytes: usize) -> Option<Stop> {
        while self.log.over_budget(bytes) {
            let Some((low, end)) = self.log.expiring() else { break };
            if self.when_full == WhenFull::Refuse {
                for (_, lane) in &self.followers.lanes {
                    lane.room_behind(&mut self.held, self.log.next());
                }
                let held = &mut self.held;
                let unread = self.awaited.values().any(|lane| lane.awaits(held, end));
                // In this order: what was taken is pinned until it is noted as unsettled.
                let pinned = self.log.oldest().is_some_and(|(_, _, only_retained)| !only_retained);
                let unsettled = self.awaited.values().any(|lane| lane.is_unsettled(end));
                if unread || pinned || unsettled {
                    return Some(Stop::Full);
                }
            }
            if self.log.log().backing().is_none() {
                for (inbox, lane) in &self.catching_up {
                    lane.expire(&mut self.held, end, &inbox.interest, &self.context);
                }
                self.figures.expired.add(end - low);
            }
            self.log.expire();
        }
        self.show_retained();
        None
    }

    /// Called whenever chunks have come or gone.
    pub(crate) fn show_retained(&self) {
        self.figures.retained_bytes.set((self.log.bytes() + self.appender.bytes()) as u64);
    }

    /// Makes the lane of an inbox that begins in the past, before any route has it.
    pub(crate) fn begin_replay(&mut self, inbox: &Arc<Inbox>, replay: Replay) {
        let log = self.log.log();
        let mut replay = replay;
        // What is gone of the past of one that goes on is read as a loss.
        if replay.scan.is_of_new() || log.backing().is_none() {
            replay.cursor = replay.cursor.max(log.oldest());
        }
        let lane = inbox.make_lane(self.held.shard, self.log.log(), Some(replay));
        if self.when_full == WhenFull::Refuse {
            self.awaited.insert(inbox.id, Arc::clone(lane));
        }
        self.catching_up.push((Arc::clone(inbox), Arc::clone(lane)));
    }

    /// Lets a lane that has caught up go live, if it can be done now.
    pub(crate) fn go_live(&mut self, inbox: &Inbox, lane: &Lane) -> bool {
        let live = lane.go_live(&mut self.held, self.log.next(), &inbox.interest, &self.context);
        if live {
            self.catching_up.retain(|(other, _)| other.id != inbox.id);
        }
        live
    }

    /// Nothing is pushed to `inbox` from now on.
    pub(crate) fn end_inbox(&mut self, inbox: &Inbox) {
        self.unfollow();
        if let Some(lane) = inbox.lane(self.held.shard) {
            lane.end(&mut self.held);
        }
        self.catching_up.retain(|(other, _)| other.id != inbox.id);
        self.awaited.remove(&inbox.id);
    }

    /// Refuses every append to `partition` from now on.
    pub(crate) fn delete(&mut self, partition: &Partition) {
        self.unfollow();
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

#[cold]
fn blocked_by(target: &Target) -> Stop {
    Stop::Blocked(Arc::clone(&target.inbox), Arc::clone(&target.lane))
}
