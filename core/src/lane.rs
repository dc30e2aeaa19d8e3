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

use crate::chunk::{Appender, CHUNK_BYTES, Chunk, Pins};
use crate::config::Overflow;
use crate::interest::{Interest, Scan};
use crate::log::Log;
use crate::lossy;
use crate::message::{Context, Message, Record};
use crate::ring;
use crate::sync::{
    Arc, AtomicBool, AtomicU64, CachePadded, Counter, Ordering, PlainArc, UnsafeCell, epoch,
    spin_loop, yield_now,
};

/// Set in the cursor while the holder counts what expired before it.
const COUNTING: u64 = 1 << 63;

/// Records that a catching-up reader takes from the log in one go.
const SCAN_BATCH: u64 = 256;

/// The bits that addresses in one chunk have in common.
const CHUNK_MASK: usize = !(CHUNK_BYTES - 1);

/// Words that are taken from a lossy ring in one go.
const LOSSY_BATCH: usize = 32;

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
enum WriteQueue {
    Plain(ring::Producer),
    Lossy(lossy::Producer),
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

#[derive(Debug)]
enum ReadQueue {
    Plain(ring::Consumer),
    Lossy {
        ring: lossy::Consumer,
        /// Taken from the ring, with their tokens, and not delivered yet: from `at` on.
        taken: Vec<usize>,
        at: usize,
        /// Displaced just before `taken[at]`.
        displaced: u64,
    },
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
    /// As in the write side.
    falls_back: bool,
}

#[derive(Debug, Default)]
struct CatchUp {
    scan: Scan,
    /// Taken from the log, with a token each: from `at` on.
    taken: Vec<usize>,
    at: usize,
    /// The lane is live; only a loss before that has still to be told.
    is_over: bool,
}

#[derive(Debug)]
enum Gauge {
    Plain(ring::Gauge),
    Lossy(lossy::Gauge),
}

/// Counted by the holder.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Dropped because the ring was full (`DropNewest`, `Disconnect`).
    pub(crate) dropped_newest: Counter,
    /// Displaced by newer ones (`DropOldest`).
    pub(crate) dropped_oldest: Counter,
    /// Dropped because the publisher's wait timed out (`Block`).
    pub(crate) dropped_timeout: Counter,
    /// Left in the log for a reader that was catching up.
    pub(crate) deferred: Counter,
    /// Of those, moved into the ring by the holder.
    pub(crate) moved: Counter,
    /// Of those, expired unread.
    pub(crate) deferred_expired: Counter,
}

/// Counted by the reader.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) delivered: Counter,
    /// When the last of them was published.
    pub(crate) last_us: Counter,
    /// Expired while they were in the ring.
    pub(crate) expired: Counter,
    /// Taken from the log by the reader, of those that the holder deferred.
    pub(crate) undeferred: Counter,
    /// Taken from the log and published before the subscription began.
    pub(crate) replayed: Counter,
    /// Still queued when the subscription ended.
    pub(crate) discarded: Counter,
    /// Taken from the log or a lossy ring and not delivered yet: a level, not a sum.
    buffered: Counter,
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

/// What happened to messages for a lane: packed into one register, because a struct would go
/// through memory right behind the stores of the records, and wait there for all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pushed(u64);

impl Pushed {
    const DISCONNECT: u64 = 1 << 63;
    const FELL_BACK: u64 = 1 << 62;
    const SPECIAL: u64 = Self::DISCONNECT | Self::FELL_BACK;

    #[inline]
    fn new(enqueued: usize, dropped: usize) -> Self {
        Self(enqueued as u64 | (dropped as u64) << 32)
    }

    #[inline]
    pub(crate) fn enqueued(self) -> u64 {
        self.0 & u64::from(u32::MAX)
    }

    #[inline]
    pub(crate) fn dropped(self) -> u64 {
        (self.0 & !Self::SPECIAL) >> 32
    }

    /// The queue was full, and from now on the reader takes what comes from the log.
    pub(crate) fn fell_back(self) -> bool {
        self.0 & Self::FELL_BACK != 0
    }

    /// The queue has been full for longer than the subscription allows: it ends.
    #[inline]
    pub(crate) fn disconnect(self) -> bool {
        self.0 & Self::DISCONNECT != 0
    }
}

/// What a poll of a lane's ring has found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Polled {
    pub(crate) count: usize,
    /// Nothing is there any more, not even a loss to be told.
    pub(crate) is_all: bool,
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
        let (write_queue, read_queue, gauge) = if overflow == Overflow::DropOldest {
            let (producer, ring) = lossy::lossy(capacity, 0);
            let gauge = Gauge::Lossy(producer.gauge());
            let taken = Vec::with_capacity(LOSSY_BATCH);
            let read = ReadQueue::Lossy { ring, taken, at: 0, displaced: 0 };
            (WriteQueue::Lossy(producer), read, gauge)
        } else {
            let (producer, consumer) = ring::ring(capacity, 0);
            let gauge = Gauge::Plain(producer.gauge());
            (WriteQueue::Plain(producer), ReadQueue::Plain(consumer), gauge)
        };
        let began_at = log.head();
        let state = if replay.is_some() { LaneState::CatchingUp } else { LaneState::Live };
        let cursor = replay.as_ref().map_or(0, |replay| replay.cursor);
        let first_us =
            replay.as_ref().filter(|replay| replay.cursor < began_at).and_then(|replay| {
                let pinned = epoch::pin();
                log.pinned_record(replay.cursor, &pinned).map(|record| record.published_us())
            });
        let scan = replay.map(|replay| replay.scan).unwrap_or_default();
        let catch_up = (state == LaneState::CatchingUp).then(|| CatchUp {
            scan: scan.clone(),
            taken: Vec::new(),
            at: 0,
            is_over: false,
        });
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
                falls_back,
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
            (WriteQueue::Plain(ring), LaneState::Live) => ring.free(wanted),
            _ => wanted,
        })
    }

    /// Delivers the record at `address`, if the lane is live, it fits, and there is nothing special
    /// about it; else [`push`](Self::push) has to. The caller then hands out a token for it.
    #[inline(always)]
    pub(crate) fn try_push_one(&self, held: &mut Held, address: usize) -> bool {
        debug_assert_eq!(held.shard, self.shard, "the baton of another shard");
        // Not inside the closure, which would be a function of its own.
        let side = self.write.with_mut(|side| side);
        // SAFETY: the one Held of this shard is borrowed exclusively.
        match unsafe { &mut *side } {
            WriteSide { queue: WriteQueue::Plain(ring), state: LaneState::Live, .. } => {
                ring.try_push_one(address)
            }
            _ => false,
        }
    }

    /// Delivers the records at `addresses`, all in one chunk, as far as they fit; drops the rest as
    /// the overflow policy has it.
    #[inline(never)]
    pub(crate) fn push(
        &self,
        held: &mut Held,
        addresses: &[usize],
        appender: &mut Appender,
        overflow: Overflow,
        now_us: u64,
    ) -> Pushed {
        let count = addresses.len();
        let Some(&first) = addresses.first() else { return Pushed::default() };
        let chunk = Chunk::of(first);
        self.write_side(held, |side| {
            match side.state {
                LaneState::Live => {}
                LaneState::CatchingUp => {
                    self.written.deferred.add(count as u64);
                    return Pushed::new(count, 0);
                }
                LaneState::Dead => return Pushed::default(),
            }
            match &mut side.queue {
                WriteQueue::Plain(ring) => {
                    let fits = ring.free(count);
                    // The tokens are handed out first: the reader may give them back at once.
                    appender.grant(chunk, fits as u64);
                    if fits == count {
                        ring.push(addresses);
                        return Pushed::new(count, 0);
                    }
                    if fits > 0 {
                        ring.push(&addresses[..fits]);
                    }
                    let lost = count - fits;
                    if side.falls_back {
                        return self.fall_back(side, addresses[fits], count, fits);
                    }
                    ring.lose(lost as u64);
                    self.overflow(side, lost, fits, overflow, now_us)
                }
                WriteQueue::Lossy(ring) => {
                    appender.grant(chunk, count as u64);
                    let mut displaced = 0;
                    for &address in addresses {
                        if let Some(oldest) = ring.push(address) {
                            appender.take_back(Chunk::of(oldest), 1);
                            displaced += 1;
                        }
                    }
                    self.written.dropped_oldest.add(displaced);
                    Pushed::new(count, displaced as usize)
                }
            }
        })
    }

    #[cold]
    fn overflow(
        &self,
        side: &mut WriteSide,
        lost: usize,
        fits: usize,
        overflow: Overflow,
        now_us: u64,
    ) -> Pushed {
        let mut disconnect = false;
        match overflow {
            Overflow::Block { .. } => self.written.dropped_timeout.add(lost as u64),
            Overflow::Disconnect { after } => {
                self.written.dropped_newest.add(lost as u64);
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
                self.written.dropped_newest.add(lost as u64);
            }
        }
        let pushed = Pushed::new(fits, lost);
        if disconnect { Pushed(pushed.0 | Pushed::DISCONNECT) } else { pushed }
    }

    /// From the record at `address` on, the last of `count` that are not among the first `fits` of
    /// them, the reader takes what comes from the log.
    #[cold]
    fn fall_back(&self, side: &mut WriteSide, address: usize, count: usize, fits: usize) -> Pushed {
        // SAFETY: the caller has just put it into the log.
        let record = unsafe { Record::at(address) };
        let head = self.log.head();
        let cursor = head - u64::from((head as u32).wrapping_sub(record.sequence_low()));
        // SYNC cursor-moved: nobody else moves it while the lane is live. The reader sees it with
        // the mark (loss-told).
        self.cursor.store(cursor, Ordering::Release);
        self.is_live.store(false, Ordering::Relaxed);
        self.written.deferred.add((count - fits) as u64);
        side.state = LaneState::CatchingUp;
        if let WriteQueue::Plain(ring) = &mut side.queue {
            ring.lose(1);
        }
        Pushed(Pushed::new(count, 0).0 | Pushed::FELL_BACK)
    }

    /// Messages that were left in the log and that nobody has taken.
    fn deferred_left(&self) -> u64 {
        let gone = self.counted.undeferred.get()
            + self.written.moved.get()
            + self.written.deferred_expired.get();
        self.written.deferred.get().saturating_sub(gone)
    }

    /// The record at `sequence`, which was taken before, with a token among the pins; `None` if it
    /// has expired. Its slot or token is not counted again.
    pub(crate) fn again(&self, reader: &mut Reader, sequence: u64) -> Option<usize> {
        let pinned = epoch::pin();
        let address = self.log.record(sequence, &pinned)?;
        Chunk::of(address).grant(1);
        self.read_side(reader, |side| side.pins.add(address));
        Some(address)
    }

    /// The oldest sequence that its log retains.
    pub(crate) fn low(&self) -> u64 {
        self.log.low()
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
        match &self.gauge {
            Gauge::Plain(gauge) => gauge.is_full(),
            Gauge::Lossy(_) => false,
        }
    }

    /// Messages that are in the ring, and in the log for a reader that is catching up.
    pub(crate) fn depth(&self) -> u64 {
        let ring = match &self.gauge {
            Gauge::Plain(gauge) => gauge.depth(),
            Gauge::Lossy(gauge) => gauge.depth(),
        };
        ring + self.counted.buffered.get() + self.deferred_left()
    }

    /// A time before which nothing was published that is queued, for a subscription that began at
    /// `began_us`.
    pub(crate) fn queued_since_us(&self, began_us: u64) -> u64 {
        // A shard's messages are delivered in the order of their times.
        let first_us = self.first_us.map_or(began_us, |first_us| first_us.min(began_us));
        first_us.max(self.counted.last_us.get())
    }

    fn pushed(&self) -> u64 {
        match &self.gauge {
            Gauge::Plain(gauge) => gauge.pushed(0),
            Gauge::Lossy(gauge) => gauge.pushed(0),
        }
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
        let low = self.log.low();
        self.read_side(reader, |side| {
            if side.catch_up.is_some() {
                return self.next_from_log(side, interest, context);
            }
            let next = match &mut side.queue {
                ReadQueue::Plain(ring) => loop {
                    match ring.peek() {
                        ring::Slot::Word(address) => {
                            // SAFETY: the slot's token keeps the record.
                            let record = unsafe { Record::at(address) };
                            if has_expired(record, low) {
                                ring.advance();
                                ring.release();
                                side.pins.add(address);
                                side.expired += 1;
                                continue;
                            }
                            if side.expired > 0 {
                                break Next::Lagged(0);
                            }
                            ring.advance();
                            side.pins.add(address);
                            break Next::Record(address);
                        }
                        ring::Slot::Loss(lost) => {
                            ring.acknowledge_loss(lost);
                            if side.falls_back {
                                continue;
                            }
                            break Next::Lagged(lost);
                        }
                        ring::Slot::Empty => {
                            let lost = ring.loss_at_end();
                            if lost == 0 {
                                break Next::Empty;
                            }
                            ring.acknowledge_loss(lost);
                            if side.falls_back {
                                side.catch_up = Some(CatchUp::default());
                                if side.expired > 0 {
                                    break Next::Lagged(0);
                                }
                                return self.next_from_log(side, interest, context);
                            }
                            break Next::Lagged(lost);
                        }
                    }
                },
                ReadQueue::Lossy { ring, taken, at, displaced } => loop {
                    if *displaced > 0 {
                        break Next::Lagged(std::mem::take(displaced));
                    }
                    if let Some(&address) = taken.get(*at) {
                        // SAFETY: its token came with it.
                        let record = unsafe { Record::at(address) };
                        let expired = has_expired(record, low);
                        if !expired && side.expired > 0 {
                            break Next::Lagged(0);
                        }
                        *at += 1;
                        self.counted.buffered.set((taken.len() - *at) as u64);
                        side.pins.add(address);
                        if !expired {
                            break Next::Record(address);
                        }
                        side.expired += 1;
                        continue;
                    }
                    // Told before anything is taken: what is taken cannot be displaced any more.
                    let lost = ring.displaced();
                    if lost > 0 {
                        break Next::Lagged(lost);
                    }
                    *at = 0;
                    taken.resize(most.clamp(1, LOSSY_BATCH), 0);
                    let (count, lost) = ring.take(taken);
                    taken.truncate(count);
                    *displaced = lost;
                    self.counted.buffered.set(count as u64);
                    if count == 0 {
                        break Next::Empty;
                    }
                },
            };
            match next {
                Next::Record(address) => self.count_delivery(address),
                Next::Lagged(_) | Next::Empty if side.expired > 0 => {
                    let expired = std::mem::take(&mut side.expired);
                    self.counted.expired.add(expired);
                    let more = if let Next::Lagged(lost) = next { lost } else { 0 };
                    return Next::Lagged(expired + more);
                }
                _ => {}
            }
            next
        })
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
        self.read_side(reader, |side| {
            if let ReadQueue::Plain(ring) = &mut side.queue {
                ring.release();
            }
        });
    }

    /// Gives back the tokens of all chunks but that of the last record: only that is in use.
    #[inline]
    pub(crate) fn release_older(&self, reader: &mut Reader) {
        self.read_side(reader, |side| side.pins.release_older());
    }

    /// Gives all tokens back: nothing that was taken is in use any more.
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
                && let ReadQueue::Plain(ring) = &mut side.queue
            {
                let lost = ring.loss_at_end();
                if lost > 0 {
                    ring.acknowledge_loss(lost);
                    side.catch_up = Some(CatchUp::default());
                }
            }
            let told = side.told;
            let Some(catch_up) = &mut side.catch_up else {
                let is_empty = side.expired == 0
                    && match &side.queue {
                        ReadQueue::Plain(ring) => ring.is_empty(),
                        ReadQueue::Lossy { ring, taken, at, displaced } => {
                            *displaced == 0 && *at == taken.len() && ring.is_empty()
                        }
                    };
                return if is_empty { Look::Nothing } else { Look::Something };
            };
            loop {
                if catch_up.at < catch_up.taken.len() {
                    return Look::Something;
                }
                let cursor = self.settled_cursor();
                if catch_up.is_over || self.expired_unread.load(Ordering::Acquire) > told {
                    return Look::Something;
                }
                let head = self.log.head();
                if cursor == head {
                    return Look::CaughtUp;
                }
                catch_up.taken.clear();
                catch_up.at = 0;
                self.take_from_log(catch_up, cursor, head, interest, context);
            }
        })
    }

    /// Calls `f` with up to `most` messages of a live ring, in place, until it says to stop; ends
    /// at whatever is not an ordinary message, which [`next`](Self::next) then tells, as it does all
    /// of a small ring. Slots are given back after every few messages and at the end.
    #[inline(always)]
    pub(crate) fn poll(
        &self,
        reader: &mut Reader,
        most: usize,
        context: &Arc<Context>,
        released: &mut impl FnMut(),
        f: &mut impl FnMut(Message<'_>) -> bool,
    ) -> Polled {
        let low = self.log.low();
        self.read_side(reader, |side| {
            let special = Polled { count: 0, is_all: false };
            let ReadSide {
                queue: ReadQueue::Plain(ring), pins, catch_up: None, expired: 0, ..
            } = side
            else {
                return special;
            };
            // In a small ring every slot is given back as soon as its message has been taken.
            if ring.capacity() < 16 * ring::BLOCK {
                return special;
            }
            match ring.peek() {
                ring::Slot::Empty => {
                    return Polled { count: 0, is_all: ring.loss_at_end() == 0 };
                }
                // Sequences rise: where the first has not expired, none has.
                // SAFETY: the slot's token keeps the record.
                ring::Slot::Word(first) if !has_expired(unsafe { Record::at(first) }, low) => {}
                _ => return special,
            }
            let left = |last: usize, count: usize| {
                pins.move_to(last, count as u64);
                self.counted.delivered.add(count as u64);
                // SAFETY: its token is among the pins.
                self.counted.last_us.set(unsafe { Record::at(last) }.published_us());
            };
            let count = ring.drain(most, CHUNK_MASK, left, &mut *released, |address| {
                // SAFETY: its token was taken with it.
                f(Message { record: unsafe { Record::at(address) }, context, lease: None })
            });
            Polled { count, is_all: ring.is_empty() }
        })
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
            if let Some(&address) = catch_up.taken.get(catch_up.at) {
                catch_up.at += 1;
                self.counted.buffered.set((catch_up.taken.len() - catch_up.at) as u64);
                side.pins.add(address);
                self.count_delivery(address);
                return Next::Record(address);
            }
            catch_up.taken.clear();
            catch_up.at = 0;
            let cursor = self.settled_cursor();
            let lost = self.untold(side.told);
            if lost > 0 {
                side.told += lost;
                return Next::Lagged(lost);
            }
            let head = self.log.head();
            if cursor == head {
                return Next::CaughtUp;
            }
            self.take_from_log(catch_up, cursor, head, interest, context);
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
    fn take_from_log(
        &self,
        catch_up: &mut CatchUp,
        cursor: u64,
        head: u64,
        interest: &Interest,
        context: &Arc<Context>,
    ) {
        let mut next = cursor;
        let mut undeferred = 0;
        {
            let pinned = epoch::pin();
            while next < head.min(cursor + SCAN_BATCH) {
                let Some(address) = self.log.record(next, &pinned) else { break };
                // SAFETY: not expired when it was looked up, so the log's token is not given back
                // while this thread is pinned.
                let record = unsafe { Record::at(address) };
                if catch_up.scan.accepts(record, interest, context) {
                    Chunk::of(address).grant(1);
                    catch_up.taken.push(address);
                    undeferred += u64::from(next >= self.began_at);
                }
                next += 1;
            }
        }
        // SYNC cursor-moved: pairs with `expire`, which wins where this fails.
        let swap = self.cursor.compare_exchange(cursor, next, Ordering::AcqRel, Ordering::Acquire);
        if swap.is_ok() {
            self.counted.undeferred.add(undeferred);
            self.counted.buffered.set(catch_up.taken.len() as u64);
            self.counted.replayed.add(catch_up.taken.len() as u64 - undeferred);
        } else {
            for address in catch_up.taken.drain(..) {
                Chunk::of(address).release(1);
            }
        }
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
            let pinned = epoch::pin();
            for sequence in cursor..end {
                let Some(address) = self.log.record(sequence, &pinned) else { continue };
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

    /// Whether a catching-up reader has yet to take a record below `end`.
    pub(crate) fn awaits(&self, end: u64) -> bool {
        self.cursor.load(Ordering::Acquire) & !COUNTING < end
    }

    /// Makes a catching-up lane live, if what is left in the log fits into its ring. Called by the
    /// reader through the baton; `true` if the lane is live now.
    pub(crate) fn go_live(
        &self,
        held: &mut Held,
        next: u64,
        appender: &mut Appender,
        interest: &Interest,
        context: &Arc<Context>,
    ) -> bool {
        let cursor = self.cursor.load(Ordering::Acquire);
        self.write_side(held, |side| {
            let gap = next - cursor;
            let room = match &mut side.queue {
                WriteQueue::Plain(ring) => ring.free(SCAN_BATCH as usize) as u64,
                // A lossy ring is empty now and holds its capacity.
                WriteQueue::Lossy(_) => 1,
            };
            if side.state != LaneState::CatchingUp || gap > room {
                return side.state != LaneState::CatchingUp;
            }
            let pinned = epoch::pin();
            for sequence in cursor..next {
                let Some(address) = self.log.record(sequence, &pinned) else { continue };
                // SAFETY: the log has a token of it, and only the baton's holder lets it go.
                let record = unsafe { Record::at(address) };
                if !side.scan.accepts(record, interest, context) {
                    continue;
                }
                let deferred = sequence >= self.began_at;
                self.written.moved.add(u64::from(deferred));
                self.replay_moved.add(u64::from(!deferred));
                appender.grant(Chunk::of(address), 1);
                match &mut side.queue {
                    WriteQueue::Plain(ring) => ring.push(&[address]),
                    WriteQueue::Lossy(ring) => {
                        if let Some(oldest) = ring.push(address) {
                            appender.take_back(Chunk::of(oldest), 1);
                            self.written.dropped_oldest.add(1);
                        }
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
            for address in &catch_up.taken[catch_up.at..] {
                side.pins.add(*address);
                dropped += 1;
            }
        }
        match &mut side.queue {
            ReadQueue::Plain(ring) => loop {
                match ring.peek() {
                    ring::Slot::Word(address) => {
                        ring.advance();
                        side.pins.add(address);
                        dropped += 1;
                    }
                    ring::Slot::Loss(lost) => ring.acknowledge_loss(lost),
                    ring::Slot::Empty => {
                        let lost = ring.loss_at_end();
                        ring.acknowledge_loss(lost);
                        break ring.release();
                    }
                }
            },
            ReadQueue::Lossy { ring, taken, at, .. } => loop {
                for &address in &taken[*at..] {
                    side.pins.add(address);
                    dropped += 1;
                }
                *at = 0;
                taken.resize(LOSSY_BATCH, 0);
                let (count, _) = ring.take(taken);
                taken.truncate(count);
                if count == 0 {
                    break;
                }
            },
        }
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

/// Whether the log has let `record` go. Sequences that are near each other compare by their low
/// halves: a log's window is far below 2^31 records.
#[inline]
fn has_expired(record: Record<'_>, low: u64) -> bool {
    (record.sequence_low().wrapping_sub(low as u32) as i32) < 0
}
