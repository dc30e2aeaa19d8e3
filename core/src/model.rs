//! The path of a message without a broker around it, for the loom models: one shard, one topic,
//! and the subscriptions and publishers that a model asks for. What happens in it is production
//! code; only the loops of `Publisher::wait_for_room` and `Subscription::rest` are written anew,
//! because those wait with a clock.
#![expect(unsafe_code, reason = "records behind tokens")]

use crate::acked::Acked;
use crate::acks::Acks;
use crate::around::AroundWaits;
use crate::chunk::Pool;
use crate::clock::{Clock, TestClock};
use crate::config::{DeliveryMode, Limits, Overflow, WhenFull};
use crate::dead_letter::DeadLetterTopic;
use crate::error::PublishError;
use crate::handled::Handled;
use crate::inbox::{Inbox, InboxState, Queue};
use crate::interest::{Interest, Scan};
use crate::lane::{BLOCK, Lane, Look, Next, Reader, Replay};
use crate::lease::{AckId, Settle};
use crate::log::Log;
use crate::message::{self, Context, NewMessage, PartitionEntry, Record};
use crate::origin::{FIRST_SEQUENCE, Memory, Origin};
use crate::publisher::{Alarms, Engine, Generation};
use crate::shard::{Core, Partition, Routes, Shard, Stop, Waits};
use crate::snapshot::Snapshot;
use crate::sync::{Arc, Ordering, PlainArc, current_thread, epoch, park, watched};
use crate::terms::Terms;
use crate::topic::Pattern;
use crate::wait::Waiter;
use std::time::Duration;

/// Bytes of the largest payload that is claimed in a chunk with others: a chunk holds four.
pub const QUARTER_CHUNK: usize = 896;
/// Bytes of a payload of which a chunk holds two.
pub const HALF_CHUNK: usize = 1800;
/// Bytes of a payload of which a chunk holds one.
pub const WHOLE_CHUNK: usize = 3600;

const TOPIC: &str = "topic";
static PAYLOAD: [u8; WHOLE_CHUNK] = [7; WHOLE_CHUNK];

/// One shard with one topic.
#[derive(Debug)]
pub struct World {
    engine: Arc<Engine>,
    partition: Partition,
    clock: TestClock,
    routing: std::sync::Arc<Snapshot<Routes>>,
}

/// What became of a publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// For so many subscriptions, of which so many dropped it.
    Done {
        /// Subscriptions that took it.
        enqueued: u64,
        /// Subscriptions that dropped it, or something older.
        dropped: u64,
    },
    /// Refused for want of memory that is not still in use.
    Full,
    /// Refused because the broker has closed.
    Closed,
}

impl World {
    /// A shard whose log keeps `budget` bytes, and refuses rather than forgets if `refuse`.
    pub fn new(budget: usize, refuse: bool) -> Self {
        let pool = Pool::new(1 << 20);
        let topic: std::sync::Arc<str> = TOPIC.into();
        let context = Arc::new(Context { partitions: boxcar::Vec::new(), store: 1 });
        context.partitions.push(PartitionEntry::new(std::sync::Arc::clone(&topic), false));
        let routing = std::sync::Arc::new(Snapshot::new(Arc::new(Routes::new())));
        let when_full = if refuse { WhenFull::Refuse } else { WhenFull::Expire };
        let shard = Shard::new(
            0,
            Memory { budget, when_full, pool: &pool },
            Origin::new(),
            Clock::default(),
            &context,
            &routing,
        );
        let clock = TestClock::at(0);
        let engine = Engine {
            shards: Box::new([shard]),
            context,
            clock: Clock::from(&clock),
            generation: Generation,
            alarms: Alarms,
            around_waits: AroundWaits::default(),
        };
        Self { engine: Arc::new(engine), partition: Partition::new(0, 0, topic), clock, routing }
    }

    fn shard(&self) -> &Shard {
        &self.engine.shards[0]
    }

    /// Moves the time of leases.
    pub fn pass_time(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Publishes one message with a payload of `len` bytes, waiting as long as it takes.
    pub fn publish(&self, len: usize) -> Published {
        let message = NewMessage::new(&PAYLOAD[..len]);
        let layout = message.layout(&Limits::default()).expect("allowed");
        loop {
            let append = |core: &mut Core| core.append_specially(&self.partition, &message, layout);
            let appended = self.shard().baton.run(append);
            match appended.stop {
                None => {
                    return Published::Done {
                        enqueued: appended.outcome.enqueued,
                        dropped: appended.outcome.dropped,
                    };
                }
                Some(Stop::Blocked(inbox, lane)) => wait_for_room(&inbox, &lane),
                Some(Stop::Full) => return Published::Full,
                Some(Stop::Closed) => return Published::Closed,
                Some(stop) => panic!("{stop:?}"),
            }
        }
    }

    /// The same through a claim, as a loan does it; `aborted` claims before it are never published.
    pub fn publish_claimed(&self, len: usize, aborted: usize) -> Published {
        let layout = NewMessage::new(&PAYLOAD[..len]).layout(&Limits::default()).expect("allowed");
        for _ in 0..aborted {
            drop(self.shard().claims.claim(layout.bytes()));
        }
        let mut claim = self.shard().claims.claim(layout.bytes()).expect("memory");
        let at = message::write_claim(&claim, &NewMessage::default(), layout, self.partition.id);
        claim.bytes_at_mut(at, len).copy_from_slice(&PAYLOAD[..len]);
        let appended = self
            .shard()
            .baton
            .run(|core| core.append_claim(&self.partition, &claim, &mut Waits::default()));
        match appended.stop {
            None => Published::Done {
                enqueued: appended.outcome.enqueued,
                dropped: appended.outcome.dropped,
            },
            Some(Stop::Full) => Published::Full,
            Some(stop) => panic!("{stop:?}"),
        }
    }

    /// Begins a subscription; with `replay`, with the oldest message that is retained.
    pub fn subscribe(
        &self,
        id: u64,
        overflow: Overflow,
        capacity: usize,
        replay: bool,
    ) -> Consumer {
        let delivery = DeliveryMode::AtMostOnce;
        self.begin(id, Queue { overflow, delivery, capacity }, replay)
    }

    /// Begins one whose queue falls back to the log when it is full.
    pub fn subscribe_at_least_once(&self, id: u64, capacity: usize) -> Consumer {
        let (overflow, delivery) = (Overflow::default(), DeliveryMode::AtLeastOnce);
        self.begin(id, Queue { overflow, delivery, capacity }, false)
    }

    fn begin(&self, id: u64, queue: Queue, replay: bool) -> Consumer {
        let pattern = Pattern::new(TOPIC).expect("a topic's name is a pattern");
        let interest = Interest::new(vec![pattern.clone()], None, 0, 0);
        let inbox = Arc::new(Inbox::new(id, None, interest, queue, 1, 0));
        let route = || {
            let routes = self.routing.load().insert(&pattern, id, Arc::clone(&inbox));
            self.routing.store(Arc::new(routes));
        };
        if replay {
            self.shard().baton.run(|core| {
                core.begin_replay(&inbox, Replay { cursor: 0, scan: Scan::default() });
                route();
            });
        } else {
            route();
        }
        let context = Arc::clone(&self.engine.context);
        Consumer { inbox, reader: Reader { subscription: id }, context }
    }

    /// Begins a subscription that settles what it takes; with `handles`, as handlers do it, and
    /// durably.
    pub fn subscribe_acked(&self, id: u64, capacity: usize, handles: bool) -> AckedConsumer {
        let consumer = self.subscribe_at_least_once(id, capacity);
        let terms = Terms { is_durable: handles, ..Terms::default() };
        let dead_letters = DeadLetterTopic {
            name: Arc::from_std("nowhere".into()),
            open: Arc::from_std(PlainArc::new(|| Err(PublishError::Closed))),
        };
        let acks =
            Acks::new(Arc::clone(&consumer.inbox), Arc::clone(&self.engine), terms, dead_letters);
        AckedConsumer { consumer, acked: Acked::new(PlainArc::new(acks), handles), last: None }
    }

    /// Refuses every publish from now on.
    pub fn close(&self) {
        self.shard().baton.run(|core| core.close());
    }
}

fn wait_for_room(inbox: &Inbox, lane: &Lane) {
    let over = || !lane.is_full() || inbox.state() != InboxState::Open;
    loop {
        inbox.space.prepare(Waiter::this_thread());
        let done = over();
        if !done {
            park();
        }
        let me = current_thread().id();
        inbox.space.cancel(|waiter| matches!(waiter, Waiter::Thread(t) if t.id() == me));
        if done || over() {
            return;
        }
    }
}

/// A subscription's end, or the means to end it from elsewhere.
#[derive(Debug, Clone)]
pub struct Ending(Arc<Inbox>);

impl Ending {
    /// What `Broker::close` does to a subscription.
    pub fn close(&self) {
        self.0.advance(InboxState::Closed);
        self.0.wake_all();
    }

    /// What dropping a subscription does first.
    pub fn end(&self) {
        self.0.advance(InboxState::Ended);
        self.0.wake_all();
    }
}

/// A subscription.
#[derive(Debug)]
pub struct Consumer {
    inbox: Arc<Inbox>,
    reader: Reader,
    context: Arc<Context>,
}

/// What a subscription received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// The message with this offset.
    Message(u64),
    /// So many were lost.
    Lagged(u64),
    /// Nothing is there.
    Empty,
}

impl Consumer {
    /// What there is, as `Receiver::next` has it. The message received is read, and then let go.
    pub fn next(&mut self, world: &World) -> Received {
        let Self { inbox, reader, .. } = self;
        let Some(lane) = inbox.lane(0) else { return Received::Empty };
        loop {
            match lane.next(reader, 1, &inbox.interest, &world.engine.context) {
                Next::Record(address) => {
                    lane.release_older(reader);
                    lane.release(reader);
                    self.wake_publishers();
                    return Received::Message(read(address));
                }
                Next::Lagged(lost) => return Received::Lagged(lost),
                Next::Failed(fault) => unreachable!("nothing backs a model's log: {fault}"),
                Next::Empty => {
                    lane.release(reader);
                    lane.unpin(reader);
                    return Received::Empty;
                }
                Next::CaughtUp => {
                    if world.shard().baton.run(|core| core.go_live(inbox, lane)) {
                        lane.leave_log(reader);
                    }
                }
            }
        }
    }

    /// What there is, as a handler's poll has it: the messages are read in place.
    pub fn poll(&mut self) -> Vec<u64> {
        let Self { inbox, reader, .. } = self;
        let mut offsets = Vec::new();
        if let Some(lane) = inbox.lane(0) {
            lane.poll::<true, false, BLOCK>(reader, usize::MAX, &mut || (), &mut |records| {
                offsets.extend(records.iter().map(|record| read(record.address())));
                true
            });
        }
        offsets
    }

    fn wake_publishers(&self) {
        if matches!(self.inbox.overflow, Overflow::Block { .. })
            && self.inbox.space.is_armed_after_fence()
        {
            self.inbox.space.wake();
        }
    }

    /// Nothing received is in use any more.
    pub fn unpin(&mut self) {
        if let Some(lane) = self.inbox.lane(0) {
            lane.unpin(&mut self.reader);
        }
    }

    /// Waits until there is something, or the subscription has ended: then it is false.
    pub fn wait(&mut self, world: &World) -> bool {
        self.wait_unless(world, || false)
    }

    fn wait_unless(&mut self, world: &World, is_due: impl Fn() -> bool) -> bool {
        let Self { inbox, reader, context } = self;
        loop {
            let me = current_thread().id();
            inbox.await_arrivals(Waiter::this_thread());
            let is_empty = |lane: &Lane, reader: &mut Reader| {
                lane.look(reader, &inbox.interest, context) == Look::Nothing
            };
            let empty = !is_due() && inbox.lanes().all(|lane| is_empty(lane, reader));
            let open = inbox.state() == InboxState::Open;
            if empty && open {
                park();
            }
            inbox.arrivals.cancel(|waiter| matches!(waiter, Waiter::Thread(t) if t.id() == me));
            if !empty || !open {
                return !empty;
            }
        }
    }

    /// How it can be ended.
    pub fn ending(&self) -> Ending {
        Ending(Arc::clone(&self.inbox))
    }

    /// What dropping a subscription does.
    pub fn unsubscribe(mut self, world: &World) {
        self.ending().end();
        let routes = {
            let pattern = Pattern::new(TOPIC).expect("a topic's name is a pattern");
            world.routing.load().remove(&pattern, self.inbox.id)
        };
        world.routing.store(Arc::new(routes));
        let inbox = &*self.inbox;
        world.shard().baton.run(|core| core.end_inbox(inbox));
        for lane in inbox.lanes() {
            lane.discard(&mut self.reader);
        }
    }

    /// Messages that expired before they were delivered.
    pub fn expired(&self) -> u64 {
        self.inbox.lanes().map(|lane| lane.expired()).sum()
    }
}

/// A subscription whose messages are settled.
#[derive(Debug)]
pub struct AckedConsumer {
    consumer: Consumer,
    acked: Acked,
    /// The address of the message that was received last, while it is at hand.
    last: Option<usize>,
}

impl AckedConsumer {
    /// What there is, as `Receiver::next` has it. The message stays at hand until the next call.
    pub fn next(&mut self, world: &World) -> Received {
        let Self { consumer: Consumer { inbox, reader, .. }, acked, last } = self;
        acked.clear();
        *last = None;
        let Some(lane) = inbox.lane(0) else { return Received::Empty };
        lane.release_older(reader);
        loop {
            match acked.next(inbox, &world.engine, reader, 0) {
                Next::Record(address) => {
                    *last = Some(address);
                    return Received::Message(read(address));
                }
                Next::Lagged(lost) => {
                    lane.release(reader);
                    return Received::Lagged(lost);
                }
                Next::Failed(fault) => unreachable!("nothing backs a model's log: {fault}"),
                Next::Empty => {
                    lane.unpin(reader);
                    return Received::Empty;
                }
                Next::CaughtUp => {
                    if world.shard().baton.run(|core| core.go_live(inbox, lane)) {
                        lane.leave_log(reader);
                    }
                }
            }
        }
    }

    /// Names the lease on the message at hand.
    pub fn ack_id(&self) -> AckId {
        self.acked.last().expect("a message is at hand").id
    }

    /// The handler has succeeded with the message at hand, or not.
    pub fn handle(&mut self, world: &World, success: bool) {
        let Self { consumer, acked, last } = self;
        let address = last.take().expect("a message is at hand");
        let handled = if success { Handled::Success } else { Handled::retry("a model") };
        let message = Lane::message(&consumer.reader, address, &world.engine.context);
        acked.settle(&message, &handled);
    }

    /// The handler's slice of messages is over.
    pub fn end_slice(&mut self) {
        self.acked.end_slice();
    }

    /// Waits until there is something, as `Subscription::rest` has it.
    pub fn wait(&mut self, world: &World) {
        self.consumer.wait_unless(world, || self.acked.acks.is_due());
    }

    /// What settles its messages.
    pub fn settler(&self) -> Settler {
        Settler(PlainArc::clone(&self.acked.acks))
    }

    /// What dropping a subscription does.
    pub fn unsubscribe(self, world: &World) {
        self.consumer.unsubscribe(world);
    }
}

/// What settles the messages of a subscription, from anywhere.
#[derive(Debug, Clone)]
pub struct Settler(PlainArc<Acks>);

impl Settler {
    /// Whether that has settled it.
    pub fn ack(&self, id: AckId) -> bool {
        self.0.ack(id).expect("of this subscription")
    }

    /// Whether that has given it back, to be delivered again at once.
    pub fn nack(&self, id: AckId) -> bool {
        self.0.nack(id, Some(Duration::ZERO)).is_ok()
    }

    /// The position in the partition below which everything is settled, as a durable store notes it.
    pub fn settled_below(&self) -> u64 {
        let positions = self.0.changes().expect("no other inbox goes on");
        positions[0].as_ref().map_or(0, |position| position.floor.saturating_sub(FIRST_SEQUENCE))
    }

    /// Messages that are neither settled nor expired, of those that were taken.
    pub fn unsettled(&self) -> u64 {
        self.0.unsettled()
    }

    /// Messages that expired, taken or not.
    pub fn expired(&self) -> u64 {
        let before = self.0.inbox.lanes().map(|lane| lane.expired()).sum::<u64>();
        // Relaxed: a figure that orders nothing.
        before + self.0.figures.expired_leases.load(Ordering::Relaxed)
    }
}

/// Reads the record at `address`; its offset.
fn read(address: usize) -> u64 {
    // SAFETY: the caller holds a token of it, or is pinned.
    let record = unsafe { Record::at(address) };
    assert_eq!(record.payload()[0], PAYLOAD[0], "a whole record");
    let offset = record.offset();
    assert_eq!(record.sequence_low(), (FIRST_SEQUENCE + offset) as u32, "the record asked for");
    offset
}

/// Reads the record that `log` has at `sequence`, while pinned; `reading` runs with its address.
pub fn look<R>(log: &Log, sequence: u64, reading: impl FnOnce(usize) -> R) -> Option<R> {
    let pinned = epoch::pin();
    log.record(sequence, &pinned).map(reading)
}

/// Searches `log` to its end, reading each record that it looks at.
pub fn search(log: &Log) -> u64 {
    log.first_where(|record| {
        watched::read(record.address());
        false
    })
}

/// Tells loom that the memory at `address` is read.
pub fn watch_read(address: usize) {
    watched::read(address);
}

/// Tells loom that the memory at `address` is written.
pub fn watch_write(address: usize) {
    watched::write(address);
}
