//! A lane: the queue from one shard into one subscription, with its two owners.
//!
//! | part | owned by |
//! |---|---|
//! | write side | the holder of the shard's baton: reached with the baton's [`Held`] |
//! | read side | the subscription's consumer: reached with its [`Reader`] |
//! | written, read | counted by the one owner, read by metrics |
//! | cursor | moved by compare-and-swap: by the reader over what it takes from the log, by the holder over what expires before it is taken |
//!
//! A lane is *live* when the shard pushes into its ring. One that begins in the past is *catching
//! up*: its reader takes records from the log until it is nearly at the end; then the holder moves
//! the last few into the ring and the lane is live, with nothing missed and nothing twice, however
//! fast others publish meanwhile.
//!
//! Where messages are delivered at least once, a lane whose ring is full *falls back*: the holder
//! leaves that message and all that follow in the log, notes where they begin, and marks the end of
//! the ring as a loss would be. The reader comes to the mark after what is in the ring, and
//! catches up from there. So the mark costs a lane that loses instead nothing.
//!
//! Pair `cursor-moved`: a swap or store of the cursor / its load. Whoever moves the cursor over a
//! record owns that record: to deliver it, or to count it as expired.
#![expect(unsafe_code, reason = "two cells with one owner each; records behind tokens")]

use crate::backing::{Recall, Recalled};
use crate::catch_up::{CatchUp, SCAN_BATCH, Scanned};
use crate::chunk::{CHUNK_BYTES, Chunk, Pins};
use crate::config::Overflow;
use crate::error::StoreFault;
use crate::interest::{Interest, Scan};
use crate::log::Log;
use crate::message::{Context, Message, Record, written};
use crate::prefetch;
use crate::queue::{Gauge, Polled, Pushed, ReadQueue, WriteQueue, queue};
use crate::ring;
use crate::runs::Span;
use crate::sync::{
    Arc, AtomicBool, AtomicU64, CachePadded, Counter, Ordering, PlainArc, UnsafeCell, epoch,
    spin_loop, yield_now,
};
use crate::tally::{Read, Written};
use std::{mem, mem::MaybeUninit, ptr, slice};

/// Set in the cursor while the holder counts what expired before it.
const COUNTING: u64 = 1 << 63;

/// Messages that a reader takes before it gives their places back to the writer.
pub(crate) const BLOCK: usize = if cfg!(slipring_loom) { 2 } else { 32 };

/// Proof that the baton of shard `shard` is held. There is one per shard, inside what its baton
/// guards.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) shard: usize,
}

/// Proof of being the one consumer of a subscription.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) subscription: u64,
}

#[derive(Debug)]
struct WriteSide {
    queue: WriteQueue,
    state: LaneState,
    /// When the ring was first found full, in microseconds since the epoch, and what had been
    /// pushed by then: if more has been since, it was not full all the time.
    full_since: Option<(u64, u64)>,
    /// How the holder decides about records that the reader has not taken from the log.
    scan: Scan,
    /// Whether it falls back to the log when its ring is full.
    falls_back: bool,
}

/// What the holder does with a message for this lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneState {
    /// Pushes it.
    Live,
    /// Leaves it in the log, where the reader will find it.
    CatchingUp,
    /// Nothing: the subscription has ended.
    Dead,
}

/// Messages that a poll has called its function with and that are not given back yet; gives them
/// back also when the function unwinds.
struct Taking<'a, R: FnMut()> {
    lane: &'a Lane,
    ring: &'a mut ring::Consumer,
    released: &'a mut R,
    count: usize,
    /// The address of the last of them.
    last: usize,
}

impl<R: FnMut()> Taking<'_, R> {
    #[inline(always)]
    fn leave(&mut self) {
        let count = mem::take(&mut self.count) as u64;
        if count > 0 {
            self.ring.advance(count);
            self.ring.release();
            self.lane.counted.delivered.add(count);
            // SAFETY: the poll's pins keep it until after this.
            self.lane.counted.last_us.set(unsafe { Record::at(self.last) }.published_us());
            (self.released)();
        }
    }
}

impl<R: FnMut()> Drop for Taking<'_, R> {
    #[inline(always)]
    fn drop(&mut self) {
        self.leave();
    }
}

#[derive(Debug)]
struct ReadSide {
    queue: ReadQueue,
    pins: Pins,
    catch_up: Option<CatchUp>,
    /// How much of `Lane::expired_unread` has been told.
    told: u64,
    /// Found expired in the ring and not told yet.
    expired: u64,
    /// Below it everything has been taken, or found lost.
    passed: u64,
    /// As in the write side.
    falls_back: bool,
    /// Read back from what backs the log: for the ring, and for what is delivered again.
    recalled: Recalled,
}

impl ReadSide {
    /// The mark at the end of the ring has been reached: the log is next.
    #[cold]
    fn begin_catch_up(&mut self, log: &Log) {
        self.queue.take_loss(log);
        self.catch_up = Some(CatchUp::default());
    }
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Lane {
    shard: usize,
    subscription: u64,
    write: CachePadded<UnsafeCell<WriteSide>>,
    read: CachePadded<UnsafeCell<ReadSide>>,
    gauge: Gauge,
    log: PlainArc<Log>,
    cursor: CachePadded<AtomicU64>,
    /// For metrics.
    is_live: AtomicBool,
    /// Matching records that expired before a catching-up reader took them.
    expired_unread: AtomicU64,
    /// The log's head when the subscription began.
    began_at: u64,
    /// The first sequence that it may get.
    pub(crate) origin: u64,
    /// The first message that was taken and is not settled; `u64::MAX` if there is none.
    unsettled: AtomicU64,
    /// When the first message was published that it may get from the log, if there is one.
    first_us: Option<u64>,
    /// Moved into the ring by the holder, of those published before that.
    replay_moved: Counter,
    pub(crate) written: CachePadded<Written>,
    pub(crate) counted: CachePadded<Read>,
}

// SAFETY: the cells have one owner each, told by `Held` and `Reader`.
unsafe impl Send for Lane {}
// SAFETY: as above.
unsafe impl Sync for Lane {}

/// Where a new lane begins.
#[derive(Debug, Clone)]
pub(crate) struct Replay {
    /// The first sequence to look at.
    pub(crate) cursor: u64,
    /// What to want of what is there.
    pub(crate) scan: Scan,
}

/// What the reader finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The address of a record; a token of its chunk has gone to the lane's pins.
    Record(usize),
    /// So many messages were lost here.
    Lagged(u64),
    Empty,
    /// A catching-up reader is at the end of the log and may be made live.
    CaughtUp,
    /// The next record has left memory and cannot be read back now. Nothing was taken.
    Failed(StoreFault),
}

/// What a look at a lane shows that takes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Something,
    Nothing,
    /// As [`Next::CaughtUp`].
    CaughtUp,
}

impl Lane {
    pub(crate) fn new(
        shard: usize,
        subscription: u64,
        capacity: usize,
        overflow: Overflow,
        falls_back: bool,
        log: PlainArc<Log>,
        replay: Option<Replay>,
    ) -> Self {
        let (write_queue, read_queue, gauge) = queue(capacity, overflow);
        let began_at = log.head();
        let state = if replay.is_some() { LaneState::CatchingUp } else { LaneState::Live };
        let cursor = replay.as_ref().map_or(0, |replay| replay.cursor);
        let first_us =
            replay.as_ref().filter(|replay| replay.cursor < began_at).and_then(|replay| {
                let pinned = epoch::pin();
                log.pinned_record(replay.cursor, &pinned).map(|record| record.published_us())
            });
        let scan = replay.map(|replay| replay.scan).unwrap_or_default();
        let catch_up = (state == LaneState::CatchingUp).then(|| CatchUp::new(scan.clone()));
        let origin = if state == LaneState::CatchingUp { cursor } else { began_at };
        Self {
            shard,
            subscription,
            write: CachePadded::new(UnsafeCell::new(WriteSide {
                queue: write_queue,
                state,
                full_since: None,
                scan,
                falls_back,
            })),
            read: CachePadded::new(UnsafeCell::new(ReadSide {
                queue: read_queue,
                pins: Pins::default(),
                catch_up,
                told: 0,
                expired: 0,
                passed: 0,
                falls_back,
                recalled: Recalled::default(),
            })),
            gauge,
            log,
            cursor: CachePadded::new(AtomicU64::new(cursor)),
            is_live: AtomicBool::new(state == LaneState::Live),
            expired_unread: AtomicU64::new(0),
            began_at,
            origin,
            unsettled: AtomicU64::new(u64::MAX),
            first_us,
            replay_moved: Counter::default(),
            written: CachePadded::default(),
            counted: CachePadded::default(),
        }
    }

    #[inline]
    fn write_side<R>(&self, held: &mut Held, work: impl FnOnce(&mut WriteSide) -> R) -> R {
        debug_assert_eq!(held.shard, self.shard, "the baton of another shard");
        // SAFETY: the one Held of this shard is borrowed exclusively.
        self.write.with_mut(|side| work(unsafe { &mut *side }))
    }

    #[inline]
    fn read_side<R>(&self, reader: &mut Reader, work: impl FnOnce(&mut ReadSide) -> R) -> R {
        debug_assert_eq!(reader.subscription, self.subscription, "another subscription's reader");
        // SAFETY: the one Reader of this subscription is borrowed exclusively.
        self.read.with_mut(|side| work(unsafe { &mut *side }))
    }

    /// How many of `wanted` messages may be published without dropping any here.
    #[inline]
    pub(crate) fn room(&self, held: &mut Held, wanted: usize) -> usize {
        self.write_side(held, |side| match (&mut side.queue, side.state) {
            (WriteQueue::Plain(ring), LaneState::Live) => ring.free(wanted as u64) as usize,
            _ => wanted,
        })
    }

    /// From now on all that the log shows is for this lane, without being pushed; for how many
    /// messages there is room. `None` if the lane has not had everything before `next`, is not of
    /// that kind, or has so little room that it would soon end.
    pub(crate) fn follow(&self, held: &mut Held, next: u64) -> Option<u64> {
        self.write_side(held, |side| match (&mut side.queue, side.state) {
            (WriteQueue::Plain(ring), LaneState::Live) => {
                ring.much_room().filter(|_| ring.follow(next))
            }
            _ => None,
        })
    }

    /// For how many messages there is room in a lane that follows, when the log has got to `next`.
    pub(crate) fn room_behind(&self, held: &mut Held, next: u64) -> u64 {
        self.write_side(held, |side| match &mut side.queue {
            WriteQueue::Plain(ring) => {
                ring.catch_up_with(next);
                ring.free(u64::MAX)
            }
            WriteQueue::Lossy(_) => 0,
        })
    }

    /// What the log shows from `next` on is pushed again where it is for this lane.
    pub(crate) fn unfollow(&self, held: &mut Held, next: u64) {
        self.write_side(held, |side| {
            if let WriteQueue::Plain(ring) = &mut side.queue {
                ring.unfollow(next);
            }
        });
    }

    /// Tells whoever publishes that the reader begins to wait.
    pub(crate) fn alert(&self) {
        self.log.alert();
    }

    /// Delivers the message at `sequence`, if the lane is live, it fits, and there is nothing
    /// special about it; else [`push`](Self::push) has to.
    #[inline(always)]
    pub(crate) fn try_push_one(&self, held: &mut Held, sequence: u64) -> bool {
        debug_assert_eq!(held.shard, self.shard, "the baton of another shard");
        // Not inside the closure, which would be a function of its own.
        let side = self.write.with_mut(|side| side);
        // SAFETY: the one Held of this shard is borrowed exclusively.
        match unsafe { &mut *side } {
            WriteSide { queue: WriteQueue::Plain(ring), state: LaneState::Live, .. } => {
                ring.try_push(Span { first: sequence, count: 1 })
            }
            _ => false,
        }
    }

    /// Delivers the messages of `span` as far as they fit; drops the rest as the overflow policy has
    /// it.
    #[inline(always)]
    pub(crate) fn push(
        &self,
        held: &mut Held,
        span: Span,
        overflow: Overflow,
        now_us: u64,
    ) -> Pushed {
        debug_assert_eq!(held.shard, self.shard, "the baton of another shard");
        // Not inside the closure, which would be a function of its own.
        let side = self.write.with_mut(|side| side);
        // SAFETY: the one Held of this shard is borrowed exclusively.
        let side = unsafe { &mut *side };
        match (&mut side.queue, side.state) {
            (WriteQueue::Plain(ring), LaneState::Live) => {
                if ring.try_push(span) {
                    Pushed::new(span.count, 0)
                } else {
                    self.push_what_fits(side, span, overflow, now_us)
                }
            }
            (WriteQueue::Lossy(ring), LaneState::Live) => {
                let displaced = ring.push(span);
                self.written.dropped_oldest.add(displaced);
                Pushed::new(span.count, displaced)
            }
            (_, LaneState::CatchingUp) => {
                self.written.deferred.add(span.count);
                Pushed::new(span.count, 0)
            }
            (_, LaneState::Dead) => Pushed::default(),
        }
    }

    #[inline(never)]
    fn push_what_fits(
        &self,
        side: &mut WriteSide,
        span: Span,
        overflow: Overflow,
        now_us: u64,
    ) -> Pushed {
        let WriteQueue::Plain(ring) = &mut side.queue else { return Pushed::default() };
        let fits = ring.free(span.count);
        if fits > 0 {
            ring.push(Span { count: fits, ..span });
        }
        let lost = span.count - fits;
        if side.falls_back {
            return self.fall_back(side, span.first + fits, lost, fits);
        }
        ring.lose(lost);
        self.overflow(side, lost, fits, overflow, now_us)
    }

    #[cold]
    fn overflow(
        &self,
        side: &mut WriteSide,
        lost: u64,
        fits: u64,
        overflow: Overflow,
        now_us: u64,
    ) -> Pushed {
        let mut disconnect = false;
        match overflow {
            Overflow::Block { .. } => self.written.dropped_timeout.add(lost),
            Overflow::Disconnect { after } => {
                self.written.dropped_newest.add(lost);
                let pushed = self.pushed();
                let since = match side.full_since {
                    Some((since, then)) if then == pushed => since,
                    _ => now_us,
                };
                side.full_since = Some((since, pushed));
                disconnect = now_us - since >= after.as_micros() as u64;
                if disconnect {
                    side.state = LaneState::Dead;
                }
            }
            Overflow::DropNewest | Overflow::DropOldest => {
                self.written.dropped_newest.add(lost);
            }
        }
        let pushed = Pushed::new(fits, lost);
        if disconnect { pushed.and_disconnect() } else { pushed }
    }

    /// From `sequence` on, of which `left` are the last that were published, the reader takes what
    /// comes from the log. `fits` before them are in the ring.
    #[cold]
    fn fall_back(&self, side: &mut WriteSide, sequence: u64, left: u64, fits: u64) -> Pushed {
        // SYNC cursor-moved: nobody else moves it while the lane is live. The reader sees it with
        // the mark (loss-told).
        self.cursor.store(sequence, Ordering::Release);
        self.is_live.store(false, Ordering::Relaxed);
        self.written.deferred.add(left);
        side.state = LaneState::CatchingUp;
        if let WriteQueue::Plain(ring) = &mut side.queue {
            ring.lose(1);
        }
        Pushed::new(fits + left, 0).and_fell_back()
    }

    /// Messages that were left in the log and that nobody has taken.
    fn deferred_left(&self) -> u64 {
        let gone = self.counted.undeferred.get()
            + self.written.moved.get()
            + self.written.deferred_expired.get();
        self.written.deferred.get().saturating_sub(gone)
    }

    /// The record at `sequence`, which was taken before, with a token among the pins; `None` if it
    /// has expired. It is not counted as delivered again.
    pub(crate) fn again(
        &self,
        reader: &mut Reader,
        sequence: u64,
    ) -> Result<Option<usize>, StoreFault> {
        self.read_side(reader, |side| {
            if let Some(address) = self.hold(&mut side.pins, sequence) {
                return Ok(Some(address));
            }
            let Some(backing) = self.log.backing() else { return Ok(None) };
            match side.recalled.take(backing, sequence, self.log.low())? {
                Recall::Record(record) => Ok(Some(record.pin(&mut side.pins))),
                Recall::Gone(_) => Ok(None),
            }
        })
    }

    /// The oldest sequence that can be read.
    pub(crate) fn oldest(&self) -> u64 {
        self.log.oldest()
    }

    /// Notes the first message that was taken and is not settled.
    pub(crate) fn note_unsettled(&self, sequence: Option<u64>) {
        // Release: whoever sees it sees that the message's token may be gone.
        self.unsettled.store(sequence.unwrap_or(u64::MAX), Ordering::Release);
    }

    /// Whether a message below `end` was taken and is not settled.
    pub(crate) fn is_unsettled(&self, end: u64) -> bool {
        self.unsettled.load(Ordering::Acquire) < end
    }

    /// Nothing is pushed from now on.
    pub(crate) fn end(&self, held: &mut Held) {
        self.write_side(held, |side| side.state = LaneState::Dead);
    }

    /// Whether no message fits. The answer may be out of date when it arrives.
    pub(crate) fn is_full(&self) -> bool {
        self.gauge.is_full(&self.log)
    }

    /// Whether a quarter of all that fits does so now.
    pub(crate) fn has_much_room(&self) -> bool {
        self.gauge.has_much_room(&self.log)
    }

    /// Messages that are in the ring, and in the log for a reader that is catching up.
    pub(crate) fn depth(&self) -> u64 {
        self.gauge.depth(&self.log) + self.counted.buffered.get() + self.deferred_left()
    }

    /// Whether nothing that was published before this call is for it and was not taken.
    pub(crate) fn is_exhausted(&self) -> bool {
        let reads_news_alone = self.is_live.load(Ordering::Acquire)
            || self.cursor.load(Ordering::Acquire) & !COUNTING >= self.began_at;
        reads_news_alone && self.depth() == 0
    }

    /// A time before which nothing was published that is queued, for a subscription that began at
    /// `began_us`.
    pub(crate) fn queued_since_us(&self, began_us: u64) -> u64 {
        // A shard's messages are delivered in the order of their times.
        let first_us = self.first_us.map_or(began_us, |first_us| first_us.min(began_us));
        first_us.max(self.counted.last_us.get())
    }

    fn pushed(&self) -> u64 {
        self.gauge.pushed(&self.log)
    }

    /// Messages that matched since the subscription began.
    pub(crate) fn matched(&self) -> u64 {
        let written = &*self.written;
        // All that was pushed, but for what the holder moved over from the log, and all that was
        // not pushed.
        (self.pushed() + written.deferred.get())
            .saturating_sub(written.moved.get() + self.replay_moved.get())
            + written.dropped_newest.get()
            + written.dropped_timeout.get()
    }

    /// All that expired before it was delivered.
    pub(crate) fn expired(&self) -> u64 {
        self.counted.expired.get() + self.expired_unread.load(Ordering::Acquire)
    }

    /// Messages from before the subscription began that it was to get, also if they expired first.
    pub(crate) fn replayed(&self) -> u64 {
        let unread = self.expired_unread.load(Ordering::Acquire);
        let history = unread.saturating_sub(self.written.deferred_expired.get());
        self.counted.replayed.get() + self.replay_moved.get() + history
    }

    /// The next record for the reader, who will ask for up to `most` in a row. The reader calls
    /// [`release_older`](Self::release_older) or [`unpin`](Self::unpin) when it is done with them.
    #[inline]
    pub(crate) fn next(
        &self,
        reader: &mut Reader,
        most: usize,
        interest: &Interest,
        context: &Arc<Context>,
    ) -> Next {
        self.read_side(reader, |side| {
            if side.catch_up.is_some() {
                return self.next_from_log(side, interest, context);
            }
            loop {
                let found = side.queue.look(most as u64, &self.log);
                self.show_taken(&side.queue);
                if let ring::Look::Span(span) = found {
                    let gone = self.log.oldest().saturating_sub(span.first).min(span.count);
                    if gone > 0 {
                        self.pass_expired(side, span.first, gone);
                        continue;
                    }
                }
                if side.falls_back && matches!(found, ring::Look::Loss(_)) {
                    side.begin_catch_up(&self.log);
                    if side.expired == 0 {
                        return self.next_from_log(side, interest, context);
                    }
                }
                if side.expired > 0 {
                    // Told before what comes next, also before another loss.
                    let expired = mem::take(&mut side.expired);
                    self.counted.expired.add(expired);
                    return Next::Lagged(expired + side.queue.take_loss(&self.log));
                }
                match found {
                    ring::Look::Span(span) => {
                        let address = match self.hold(&mut side.pins, span.first) {
                            Some(address) => address,
                            None => match self.recall(side, span) {
                                Ok(Some(address)) => address,
                                Ok(None) => continue,
                                Err(fault) => return Next::Failed(fault),
                            },
                        };
                        self.advance(side, 1);
                        // SAFETY: the pins keep it.
                        let record = unsafe { Record::at(address) };
                        debug_assert_eq!(record.sequence_low(), span.first as u32, "another's");
                        self.count_delivery(address);
                        return Next::Record(address);
                    }
                    ring::Look::Loss(_) => return Next::Lagged(side.queue.take_loss(&self.log)),
                    ring::Look::Empty => return Next::Empty,
                }
            }
        })
    }

    /// Steps over `count` messages from `first` on that have expired in the ring.
    #[cold]
    fn pass_expired(&self, side: &mut ReadSide, first: u64, count: u64) {
        self.advance(side, count);
        side.queue.release();
        side.expired += count;
        side.passed = first + count;
    }

    /// Behind what was lost last: before it, nothing is left.
    pub(crate) fn passed(&self, reader: &mut Reader) -> u64 {
        self.read_side(reader, |side| side.passed)
    }

    /// The address of the first record of `span`, which has left memory, with a token among the
    /// pins. `None` if the log has none, or that was passed over and counted.
    #[cold]
    #[inline(never)]
    fn recall(&self, side: &mut ReadSide, span: Span) -> Result<Option<usize>, StoreFault> {
        let Some(backing) = self.log.backing() else { return Ok(None) };
        match side.recalled.take(backing, span.first, span.first + span.count)? {
            Recall::Record(record) => Ok(Some(record.pin(&mut side.pins))),
            Recall::Gone(next) => {
                self.pass_expired(side, span.first, (next - span.first).min(span.count));
                Ok(None)
            }
        }
    }

    /// Steps over `count` messages that were looked at.
    #[inline]
    fn advance(&self, side: &mut ReadSide, count: u64) {
        side.queue.advance(count);
        self.show_taken(&side.queue);
    }

    #[inline(always)]
    fn show_taken(&self, queue: &ReadQueue) {
        if let Some(taken) = queue.taken() {
            self.counted.buffered.set(taken);
        }
    }

    /// The address of the record at `sequence`, whose chunk `pins` then keep; `None` if it has
    /// expired.
    #[inline(always)]
    fn hold(&self, pins: &mut Pins, sequence: u64) -> Option<usize> {
        let address = self.log.address(sequence)?;
        if pins.hold(address) { Some(address) } else { self.hold_chunk(pins, sequence) }
    }

    #[inline(never)]
    fn hold_chunk(&self, pins: &mut Pins, sequence: u64) -> Option<usize> {
        let pinned = epoch::pin();
        let address = self.log.record(sequence, &pinned)?;
        // Not expired when it was looked up, so the log's token is not given back while this thread
        // is pinned.
        Chunk::of(address).grant(1);
        pins.add(address);
        Some(address)
    }

    /// The message at `address`, whose token is among the reader's pins.
    #[inline]
    pub(crate) fn message<'a>(
        _reader: &'a Reader,
        address: usize,
        context: &'a Arc<Context>,
    ) -> Message<'a> {
        // SAFETY: the token is given back only with the reader borrowed exclusively.
        Message { record: unsafe { Record::at(address) }, context, lease: None }
    }

    /// Gives the slots of what was taken back to the writer.
    #[inline]
    pub(crate) fn release(&self, reader: &mut Reader) {
        self.read_side(reader, |side| side.queue.release());
    }

    /// Gives back the tokens of all chunks but that of the last record: only that is in use.
    #[inline]
    pub(crate) fn release_older(&self, reader: &mut Reader) {
        self.read_side(reader, |side| side.pins.release_older());
    }

    /// Nothing that was taken is in use any more: gives all tokens back but that of the chunk that
    /// is being filled, which is probably where the next message will be.
    #[inline]
    pub(crate) fn rest(&self, reader: &mut Reader) {
        self.read_side(reader, |side| side.pins.release_all_but(self.log.filling()));
    }

    /// The same for a reader that may not come back soon: gives all tokens back.
    #[inline]
    pub(crate) fn unpin(&self, reader: &mut Reader) {
        self.read_side(reader, |side| side.pins.flush());
    }

    /// Looks whether something is there to take; what was lost counts as something. A catching-up
    /// reader looks into the log as far as it must.
    pub(crate) fn look(
        &self,
        reader: &mut Reader,
        interest: &Interest,
        context: &Arc<Context>,
    ) -> Look {
        self.read_side(reader, |side| {
            if side.falls_back
                && side.catch_up.is_none()
                && side.expired == 0
                && matches!(side.queue.look(1, &self.log), ring::Look::Loss(_))
            {
                side.begin_catch_up(&self.log);
            }
            let ReadSide { catch_up, queue, recalled, told, expired, .. } = side;
            let Some(catch_up) = catch_up else {
                let is_empty = *expired == 0 && queue.is_empty(&self.log);
                return if is_empty { Look::Nothing } else { Look::Something };
            };
            loop {
                if catch_up.left() > 0 {
                    return Look::Something;
                }
                let cursor = self.settled_cursor();
                if catch_up.is_over || self.expired_unread.load(Ordering::Acquire) > *told {
                    return Look::Something;
                }
                let head = self.log.head();
                if cursor == head {
                    return Look::CaughtUp;
                }
                let scanned = self.scan_log(catch_up, recalled, (cursor, head), interest, context);
                if scanned.is_err() {
                    // For `next` to tell.
                    return Look::Something;
                }
            }
        })
    }

    /// Calls `f` with up to `most` messages of a live ring, in place, until it says to stop; ends
    /// at whatever is not an ordinary message, which [`next`](Self::next) then tells, as it does all
    /// of a small ring. Places are given back after every few messages and at the end, or with
    /// `EACH` before `f` is called, and then `released` is called. A message counts as taken when
    /// `f` is called with it, also if `f` unwinds. Those few are at most `FEW`; each call is with one,
    /// or with `WHOLE` with all of them.
    #[inline(always)]
    pub(crate) fn poll<const EACH: bool, const WHOLE: bool, const FEW: usize>(
        &self,
        reader: &mut Reader,
        most: usize,
        released: &mut impl FnMut(),
        f: &mut impl FnMut(&[Record<'_>]) -> bool,
    ) -> Polled {
        self.read_side(reader, |side| {
            let special = Polled { count: 0, is_all: false };
            let ReadSide {
                queue: ReadQueue::Plain(ring), pins, catch_up: None, expired: 0, ..
            } = side
            else {
                return special;
            };
            // In a small ring every place is given back as soon as its message has been taken.
            if !EACH && ring.capacity() < 8 * BLOCK as u64 {
                return special;
            }
            let mut taking = Taking { lane: self, ring, released, count: 0, last: 0 };
            // Whether what is taken has been seen by this poll, and not by one before.
            let (mut left, mut has_looked) = (most, taking.ring.has_taken_all());
            let mut addresses = [MaybeUninit::uninit(); FEW];
            while left > 0 {
                let span = match taking.ring.look(|| self.log.head()) {
                    ring::Look::Span(span) => span,
                    ring::Look::Loss(_) => break,
                    ring::Look::Empty => {
                        let is_all = taking.ring.loss_at_end(|| self.log.head()) == 0;
                        return Polled { count: most - left, is_all };
                    }
                };
                let latest = if span.count == 1 { self.latest(pins, span.first) } else { None };
                let count = match latest {
                    Some(address) => {
                        addresses[0].write(ptr::with_exposed_provenance(address));
                        1
                    }
                    None => self.find(span, left, &mut addresses),
                };
                // SAFETY: so many were found.
                let block = unsafe { written(&addresses, count) };
                let Some(&first) = block.first() else { break };
                if !pins.hold(first as usize) {
                    // No record of the chunk before is in use.
                    pins.flush();
                    if self.hold_chunk(pins, span.first).is_none() {
                        break;
                    }
                }
                // SAFETY: the pins keep them.
                let records = unsafe { Record::all_at(block) };
                let is_next = |(s, record): (u64, &Record<'_>)| record.sequence_low() == s as u32;
                debug_assert!((span.first..).zip(records).all(is_next));
                if WHOLE {
                    (taking.last, taking.count) = (block[count - 1] as usize, count);
                    if EACH {
                        taking.leave();
                    }
                    if !f(records) {
                        return Polled { count: most - left + count, is_all: false };
                    }
                } else {
                    // What is done apart leaves the registers to `f`.
                    for (at, record) in records.iter().enumerate() {
                        taking.last = record.address();
                        taking.count = if EACH { 1 } else { at + 1 };
                        if EACH {
                            taking.leave();
                        }
                        if !f(slice::from_ref(record)) {
                            return Polled { count: most - left + at + 1, is_all: false };
                        }
                    }
                }
                taking.leave();
                left -= count;
                // To look again now would take the line that the publisher is about to write.
                if taking.ring.has_taken_all() && mem::replace(&mut has_looked, true) {
                    return Polled { count: most - left, is_all: true };
                }
            }
            Polled { count: most - left, is_all: false }
        })
    }

    /// The address of the record at `sequence`, if that is the latest and in a chunk that `pins`
    /// keep: found beside the log's head, which has just been read.
    #[inline(always)]
    fn latest(&self, pins: &Pins, sequence: u64) -> Option<usize> {
        let latest = self.log.latest();
        // Where the rest of it is, only its first line tells; that is as far away.
        prefetch::for_read(latest.wrapping_add(64));
        if !pins.hold(latest) {
            self.log.fetch(latest, sequence);
            return None;
        }
        // SAFETY: it has been published, and the pins keep it: nothing else comes to its place.
        (unsafe { Record::at(latest) }.sequence_low() == sequence as u32).then_some(latest)
    }

    /// Puts the addresses of the first of `span` into `addresses`: at most `most`, as far as they
    /// are in one chunk; none if the first has expired. Fetches the records behind those, whose
    /// turn it is next.
    #[inline(always)]
    fn find<const FEW: usize>(
        &self,
        span: Span,
        most: usize,
        addresses: &mut [MaybeUninit<*const u8>; FEW],
    ) -> usize {
        let slots = self.log.slots(span.first);
        let slots = &slots[..slots.len().min(span.count as usize)];
        let (block, next) = slots.split_at(slots.len().min(most).min(FEW));
        let (mut all, mut any) = (usize::MAX, 0);
        for (slot, found) in block.iter().zip(addresses.iter_mut()) {
            // SYNC slot-reused: pairs with LogWriter::append.
            let address = slot.load(Ordering::Acquire);
            (all, any) = (all & address, any | address);
            found.write(ptr::with_exposed_provenance(address));
        }
        for slot in next.iter().take(most.saturating_sub(block.len()).min(FEW)) {
            // Relaxed: a hint.
            prefetch::for_read(slot.load(Ordering::Relaxed));
        }
        // Sequences rise: where the first has not expired, none has.
        if !self.log.is_retained(span.first) {
            return 0;
        }
        // In one chunk all agree in the upper bits.
        if any ^ all < CHUNK_BYTES {
            return block.len();
        }
        // SAFETY: written above.
        let found = unsafe { written(addresses, block.len()) };
        let is_there = |at: &*const u8| (*at as usize ^ found[0] as usize) < CHUNK_BYTES;
        found.iter().take_while(|at| is_there(at)).count()
    }

    #[inline]
    fn count_delivery(&self, address: usize) {
        self.counted.delivered.add(1);
        // SAFETY: its token is among the pins.
        self.counted.last_us.set(unsafe { Record::at(address) }.published_us());
    }

    /// Sequences between the reader and the end of the log, while it catches up.
    pub(crate) fn behind(&self) -> u64 {
        let cursor = self.cursor.load(Ordering::Acquire) & !COUNTING;
        // A live lane's cursor stays where it went live.
        if self.is_live.load(Ordering::Relaxed) {
            0
        } else {
            self.log.head().saturating_sub(cursor)
        }
    }

    fn next_from_log(
        &self,
        side: &mut ReadSide,
        interest: &Interest,
        context: &Arc<Context>,
    ) -> Next {
        loop {
            let Some(catch_up) = &mut side.catch_up else { return Next::Empty };
            if catch_up.is_over {
                let lost = self.untold(side.told);
                side.told += lost;
                side.catch_up = None;
                return Next::Lagged(lost);
            }
            if let Some(address) = catch_up.pop() {
                self.counted.buffered.set(catch_up.left() as u64);
                side.pins.add(address);
                self.count_delivery(address);
                return Next::Record(address);
            }
            let cursor = self.settled_cursor();
            let lost = self.untold(side.told);
            if lost > 0 {
                side.told += lost;
                side.passed = cursor;
                return Next::Lagged(lost);
            }
            let head = self.log.head();
            if cursor == head {
                return Next::CaughtUp;
            }
            let recalled = &mut side.recalled;
            let scanned = self.scan_log(catch_up, recalled, (cursor, head), interest, context);
            if let Err(fault) = scanned {
                return Next::Failed(fault);
            }
        }
    }

    /// How much expired unread and has not been told.
    fn untold(&self, told: u64) -> u64 {
        self.expired_unread.load(Ordering::Acquire) - told
    }

    /// The cursor, when no holder is counting.
    fn settled_cursor(&self) -> u64 {
        loop {
            // SYNC cursor-moved: pairs with `expire`.
            let cursor = self.cursor.load(Ordering::Acquire);
            if cursor & COUNTING == 0 {
                return cursor;
            }
            // The holder is at work, and may have been preempted at it.
            spin_loop();
            yield_now();
        }
    }

    /// Takes what is wanted of `cursor..` from the log, unless it expires meanwhile.
    fn scan_log(
        &self,
        catch_up: &mut CatchUp,
        recalled: &mut Recalled,
        (cursor, head): (u64, u64),
        interest: &Interest,
        context: &Arc<Context>,
    ) -> Result<(), StoreFault> {
        let span = (cursor, head);
        let scanned = catch_up.scan(&self.log, recalled, span, self.began_at, interest, context)?;
        let Scanned { next, expired, recent } = scanned;
        // SYNC cursor-moved: pairs with `expire`, which wins where this fails.
        let swap = self.cursor.compare_exchange(cursor, next, Ordering::AcqRel, Ordering::Acquire);
        if swap.is_err() {
            catch_up.clear();
            return Ok(());
        }
        let taken = catch_up.left() as u64;
        self.counted.undeferred.add(recent);
        if expired > 0 {
            self.lose(expired, cursor);
        }
        self.counted.buffered.set(taken);
        self.counted.replayed.add(taken - recent);
        Ok(())
    }

    /// So many records from `cursor` on were removed before the reader came to them; which it wanted,
    /// nobody knows. Those from before it began are all told, of others no more than are left for it.
    #[cold]
    fn lose(&self, removed: u64, cursor: u64) {
        let history = removed.min(self.began_at.saturating_sub(cursor));
        let deferred = (removed - history).min(self.deferred_left());
        self.counted.undeferred.add(deferred);
        self.expired_unread.fetch_add(history + deferred, Ordering::Release);
    }

    /// The records below `end` expire: counts those that a catching-up reader has not taken.
    pub(crate) fn expire(
        &self,
        held: &mut Held,
        end: u64,
        interest: &Interest,
        context: &Arc<Context>,
    ) {
        // SYNC cursor-moved: pairs with the reader's swap.
        let mut cursor = self.cursor.load(Ordering::Acquire);
        loop {
            if cursor >= end {
                return;
            }
            let claimed = self.cursor.compare_exchange(
                cursor,
                cursor | COUNTING,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match claimed {
                Ok(_) => break,
                Err(now) => cursor = now,
            }
        }
        let (mut expired, mut deferred) = (0, 0);
        self.write_side(held, |side| {
            for sequence in cursor..end {
                // Pinned for the look-up alone, not while a filter runs.
                let address = self.log.record(sequence, &epoch::pin());
                let Some(address) = address else { continue };
                // SAFETY: the log still has its token: the caller is about to let it go.
                let record = unsafe { Record::at(address) };
                if side.scan.accepts(record, interest, context) {
                    expired += 1;
                    deferred += u64::from(sequence >= self.began_at);
                }
            }
        });
        self.written.deferred_expired.add(deferred);
        // Release: whoever sees the cursor sees the count (the cursor's store follows).
        self.expired_unread.fetch_add(expired, Ordering::Release);
        // SYNC cursor-moved: pairs with `settled_cursor`.
        self.cursor.store(end, Ordering::Release);
    }

    /// Whether the reader has yet to take a record below `end`.
    pub(crate) fn awaits(&self, held: &mut Held, end: u64) -> bool {
        self.write_side(held, |side| {
            let oldest = match (&mut side.queue, side.state) {
                (queue, LaneState::CatchingUp) => {
                    // SYNC cursor-moved: pairs with the reader's swap.
                    let cursor = self.cursor.load(Ordering::Acquire) & !COUNTING;
                    // What is in the ring of a lane that has fallen back comes before.
                    Some(queue.oldest().map_or(cursor, |oldest| oldest.min(cursor)))
                }
                (queue, _) => queue.oldest(),
            };
            oldest.is_some_and(|oldest| oldest < end)
        })
    }

    /// Makes a catching-up lane live, if what is left in the log fits into its ring. Called by the
    /// reader through the baton; `true` if the lane is live now.
    pub(crate) fn go_live(
        &self,
        held: &mut Held,
        next: u64,
        interest: &Interest,
        context: &Arc<Context>,
    ) -> bool {
        let cursor = self.cursor.load(Ordering::Acquire);
        self.write_side(held, |side| {
            let gap = next - cursor;
            let room = match &mut side.queue {
                WriteQueue::Plain(ring) => ring.free(SCAN_BATCH),
                // A lossy ring is empty now and holds its capacity.
                WriteQueue::Lossy(_) => 1,
            };
            // What has left memory, the reader takes.
            let room = if cursor < self.log.low() { 0 } else { room };
            if side.state != LaneState::CatchingUp || gap > room {
                return side.state != LaneState::CatchingUp;
            }
            for sequence in cursor..next {
                // Pinned for the look-up alone, not while a filter runs.
                let address = self.log.record(sequence, &epoch::pin());
                let Some(address) = address else { continue };
                // SAFETY: the log has a token of it, and only the baton's holder lets it go.
                let record = unsafe { Record::at(address) };
                if !side.scan.accepts(record, interest, context) {
                    continue;
                }
                let deferred = sequence >= self.began_at;
                self.written.moved.add(u64::from(deferred));
                self.replay_moved.add(u64::from(!deferred));
                let span = Span { first: sequence, count: 1 };
                match &mut side.queue {
                    WriteQueue::Plain(ring) => ring.push(span),
                    WriteQueue::Lossy(ring) => {
                        self.written.dropped_oldest.add(ring.push(span));
                    }
                }
            }
            // SYNC cursor-moved: the reader is waiting for this call.
            self.cursor.store(next, Ordering::Release);
            side.state = LaneState::Live;
            self.is_live.store(true, Ordering::Relaxed);
            true
        })
    }

    /// The reader's side of going live.
    pub(crate) fn leave_log(&self, reader: &mut Reader) {
        self.read_side(reader, |side| match &mut side.catch_up {
            // Between the reader's last look and going live; told before what is in the ring.
            Some(catch_up) if self.untold(side.told) > 0 => catch_up.is_over = true,
            catch_up => *catch_up = None,
        });
    }

    /// Throws away all that is queued, after the write side has ended.
    pub(crate) fn discard(&self, reader: &mut Reader) {
        self.read_side(reader, |side| {
            let mut discarded = 0;
            if side.falls_back || side.catch_up.is_some() {
                // What the holder deferred and nobody took; it defers nothing any more.
                let left = self.deferred_left();
                self.counted.undeferred.add(left);
                discarded += left;
            }
            discarded += self.drop_queued(side);
            side.pins.flush();
            self.counted.buffered.set(0);
            self.counted.discarded.add(discarded);
        });
    }

    /// Takes all that is queued for the reader and not delivered; how much that was.
    fn drop_queued(&self, side: &mut ReadSide) -> u64 {
        let mut dropped = 0;
        if let Some(catch_up) = side.catch_up.take() {
            dropped += catch_up.leave_to(&mut side.pins);
        }
        loop {
            match side.queue.look(u64::MAX, &self.log) {
                ring::Look::Span(span) => {
                    dropped += span.count;
                    self.advance(side, span.count);
                }
                ring::Look::Loss(_) => _ = side.queue.take_loss(&self.log),
                ring::Look::Empty => break,
            }
        }
        side.queue.release();
        dropped
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Both sides are ours now. Subscriptions discard what is left before they end; a lane that
        // a stale route made for a subscription that had just ended may still hold something.
        let mut reader = Reader { subscription: self.subscription };
        self.discard(&mut reader);
    }
}
