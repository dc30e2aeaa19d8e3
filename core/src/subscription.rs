//! Subscriptions that are pulled: receive, batch, poll, iterate, stream, eventfd.

use crate::acked::Acked;
use crate::acker::Acker;
use crate::acks::Acks;
use crate::config::{Overflow, Start, WaitStrategy};
use crate::error::{RecvError, SeekError, TryRecvError};
use crate::event::EventFd;
use crate::fork::Generation;
use crate::handled::Handled;
use crate::idle::Idle;
use crate::inbox::{Inbox, InboxState};
use crate::interest::{is_inside_filter, outside_filters};
use crate::lane::{Lane, Look, Next, Polled, Reader};
use crate::lease::{AckId, Settle};
use crate::message::{Message, OwnedMessage};
use crate::publisher::Engine;
use crate::sync::{Arc, current_thread};
use crate::wait::Waiter;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

/// The consuming end of an inbox: takes records from its lanes in turn.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) engine: Arc<Engine>,
    reader: Reader,
    /// The shard whose lane is looked at first.
    turn: usize,
    /// Lost behind what the last call delivered, and to be told by the next. Where messages are
    /// settled later, [`SETTLED_LATER`] is set as well, so that asking about the rare costs nothing
    /// more than asking about losses.
    untold: u64,
    pub(crate) acked: Option<Box<Acked>>,
}

const SETTLED_LATER: u64 = 1 << 63;

impl Receiver {
    pub(crate) fn new(inbox: Arc<Inbox>, engine: Arc<Engine>) -> Self {
        let reader = Reader { subscription: inbox.id };
        Self { inbox, engine, reader, turn: 0, untold: 0, acked: None }
    }

    /// The same for a subscription whose messages are settled through `acks`, or by what a handler
    /// returns.
    pub(crate) fn settled_by(acks: Arc<Acks>, handles: bool, receiver: Self) -> Self {
        let acked = Some(Box::new(Acked::new(acks, handles)));
        Self { acked, untold: receiver.untold | SETTLED_LATER, ..receiver }
    }

    /// The next record of any lane; the caller says with [`Self::done_with_older`] when the ones
    /// before are not in use any more.
    #[inline]
    pub(crate) fn next(&mut self, most: usize) -> Next {
        if self.untold > 0 {
            return self.next_specially();
        }
        for _ in 0..self.engine.shards.len() {
            let next = self.next_of_turn(most);
            if next != Next::Empty {
                return next;
            }
            self.pass_turn();
        }
        Next::Empty
    }

    /// What [`next`](Self::next) does where there is a loss to be told, or messages are settled
    /// later.
    #[cold]
    #[inline(never)]
    fn next_specially(&mut self) -> Next {
        if let Some(lost) = self.take_untold() {
            return Next::Lagged(lost);
        }
        for _ in 0..self.engine.shards.len() {
            let next = self.next_acked_of_turn();
            if next != Next::Empty {
                return next;
            }
            self.pass_turn();
        }
        Next::Empty
    }

    fn next_acked_of_turn(&mut self) -> Next {
        let Self { inbox, engine, reader, turn, acked, .. } = self;
        let Some(acked) = acked else { return Next::Empty };
        loop {
            let next = acked.next(inbox, engine, reader, *turn);
            let (Next::CaughtUp, Some(lane)) = (next, inbox.lane(*turn)) else { return next };
            go_live(inbox, engine, *turn, lane, reader);
        }
    }

    /// A loss that is to be told.
    fn take_untold(&mut self) -> Option<u64> {
        let lost = self.untold & !SETTLED_LATER;
        self.untold &= SETTLED_LATER;
        (lost > 0).then_some(lost)
    }

    #[inline]
    pub(crate) fn is_settled_later(&self) -> bool {
        self.untold & SETTLED_LATER != 0
    }

    #[inline]
    fn pass_turn(&mut self) {
        self.turn += 1;
        if self.turn == self.engine.shards.len() {
            self.turn = 0;
        }
    }

    #[inline]
    fn next_of_turn(&mut self, most: usize) -> Next {
        let Some(lane) = self.inbox.lane(self.turn) else { return Next::Empty };
        let next = loop {
            let next =
                lane.next(&mut self.reader, most, &self.inbox.interest, &self.engine.context);
            if next != Next::CaughtUp {
                break next;
            }
            go_live(&self.inbox, &self.engine, self.turn, lane, &mut self.reader);
        };
        if let Next::Lagged(_) = next {
            // What has expired has left its places free.
            self.release();
        }
        next
    }

    /// Gives the slots of what was taken from the lane at hand back to its shard.
    #[inline]
    pub(crate) fn release(&mut self) {
        if let Some(lane) = self.inbox.lane(self.turn) {
            lane.release(&mut self.reader);
            if matches!(self.inbox.overflow, Overflow::Block { .. })
                && self.inbox.space.is_armed_after_fence()
            {
                self.inbox.space.wake();
            }
        }
    }

    /// Of what was taken from the lane at hand, only the last record is still in use.
    #[inline]
    pub(crate) fn done_with_older(&mut self) {
        if let Some(lane) = self.inbox.lane(self.turn) {
            lane.release_older(&mut self.reader);
        }
    }

    /// Nothing that was taken is in use any more.
    #[inline]
    pub(crate) fn done_with_all(&mut self) {
        for lane in self.inbox.lanes() {
            lane.rest(&mut self.reader);
        }
    }

    /// The same for a receiver that may not come back soon: no memory is kept for it.
    pub(crate) fn leave(&mut self) {
        for lane in self.inbox.lanes() {
            lane.unpin(&mut self.reader);
        }
    }

    /// Whether nothing is queued, nor in the log for a lane that is catching up.
    pub(crate) fn is_empty(&mut self) -> bool {
        if self.untold & !SETTLED_LATER > 0 {
            return false;
        }
        if let Some(acked) = &self.acked {
            if acked.acks.is_due() {
                return false;
            }
            if !acked.acks.has_room() {
                return true;
            }
        }
        loop {
            // Going live may wait for a shard, and so use up the wake-up for what came meanwhile
            // to a lane that was looked at before: then all are looked at again.
            let mut waited = false;
            for shard in 0..self.engine.shards.len() {
                let Some(lane) = self.inbox.lane(shard) else { continue };
                loop {
                    let (interest, context) = (&self.inbox.interest, &self.engine.context);
                    match lane.look(&mut self.reader, interest, context) {
                        Look::Something => return false,
                        Look::Nothing => break,
                        Look::CaughtUp => {
                            go_live(&self.inbox, &self.engine, shard, lane, &mut self.reader);
                            waited = true;
                        }
                    }
                }
            }
            if !waited {
                return true;
            }
        }
    }

    /// The message at `address`, which [`Self::next`] has just given.
    #[inline]
    pub(crate) fn message(&self, address: usize) -> Message<'_> {
        let lease = match &self.acked {
            Some(acked) => acked.last(),
            None => None,
        };
        Message { lease, ..Lane::message(&self.reader, address, &self.engine.context) }
    }

    /// The same for the `index`-th of several that were taken together.
    fn message_at(&self, index: usize, address: usize) -> Message<'_> {
        let lease = self.acked.as_ref().and_then(|acked| acked.lease(index));
        Message { lease, ..self.message(address) }
    }

    /// Nothing that was taken is at hand any more.
    #[inline]
    fn forget_leases(&mut self) {
        if let Some(acked) = &mut self.acked {
            acked.clear();
        }
    }

    /// What became of the message at `address`, which a handler had.
    pub(crate) fn settle(&mut self, address: usize, handled: &Handled) {
        let Self { reader, engine, acked, .. } = self;
        if let Some(acked) = acked {
            acked.settle(&Lane::message(reader, address, &engine.context), handled);
        }
    }

    /// Settles the message that `id` names, unless its lease is over.
    fn ack(&self, id: AckId) {
        if let Some(acked) = &self.acked {
            // Where that cannot be called, neither can what follows, which tells.
            let _ = acked.acks.ack(id);
        }
    }

    /// A handler's slice of messages is over.
    pub(crate) fn end_slice(&mut self) {
        if let Some(acked) = &mut self.acked {
            acked.end_slice();
        }
    }

    /// When something is due by itself.
    fn next_due(&self) -> Option<Duration> {
        self.acked.as_ref().and_then(|acked| acked.acks.next_due())
    }

    /// Whoever waits is woken when something is due by itself.
    pub(crate) fn set_alarm(&self) {
        if let Some(acked) = &self.acked {
            acked.acks.set_alarm();
        }
    }

    /// Ends all lanes and throws away what is queued. The subscription is not routed to any more.
    pub(crate) fn discard(&mut self) {
        self.engine.silence(&self.inbox);
        for lane in self.inbox.lanes() {
            lane.discard(&mut self.reader);
        }
    }

    /// Takes up to `most` messages that are queued and calls `f` with each, in place, until it says
    /// to stop. Ends early before a loss, which the next call then reports.
    /// With `EACH`, the place of a message is free as soon as `f` has it.
    #[inline]
    pub(crate) fn poll<const EACH: bool>(
        &mut self,
        most: usize,
        mut f: impl FnMut(Message<'_>) -> bool,
    ) -> Result<usize, RecvError> {
        if self.untold > 0 {
            if let Some(lost) = self.take_untold() {
                return Err(RecvError::Lagged(lost));
            }
            return self.poll_acked(most, f);
        }
        let mut count = 0;
        let mut going_on = true;
        for _ in 0..self.engine.shards.len() {
            self.pass_turn();
            while going_on && count < most {
                let polled = self.poll_ring::<EACH>(most - count, |message| {
                    going_on = f(message);
                    going_on
                });
                count += polled.count;
                if polled.is_all || polled.count > 0 && count == most || !going_on {
                    break;
                }
                // Whatever is not an ordinary message in a plain ring.
                match self.next_of_turn(most - count) {
                    Next::Record(address) => {
                        self.done_with_older();
                        self.release();
                        count += 1;
                        going_on = f(self.message(address));
                    }
                    Next::Lagged(lost) if count == 0 => return Err(RecvError::Lagged(lost)),
                    Next::Lagged(lost) => {
                        self.untold = lost;
                        return Ok(count);
                    }
                    Next::CaughtUp | Next::Empty => break,
                }
            }
            if !going_on || count == most {
                break;
            }
        }
        Ok(count)
    }

    #[cold]
    fn poll_acked(
        &mut self,
        most: usize,
        mut f: impl FnMut(Message<'_>) -> bool,
    ) -> Result<usize, RecvError> {
        let mut count = 0;
        while count < most {
            self.forget_leases();
            self.done_with_older();
            match self.next_specially() {
                Next::Record(address) => {
                    count += 1;
                    if !f(self.message(address)) {
                        break;
                    }
                }
                Next::Lagged(lost) if count == 0 => return Err(RecvError::Lagged(lost)),
                Next::Lagged(lost) => {
                    self.untold += lost;
                    break;
                }
                Next::CaughtUp | Next::Empty => break,
            }
        }
        Ok(count)
    }

    #[inline(always)]
    fn poll_ring<const EACH: bool>(
        &mut self,
        most: usize,
        mut f: impl FnMut(Message<'_>) -> bool,
    ) -> Polled {
        let Self { inbox, engine, reader, turn, .. } = self;
        let Some(lane) = inbox.lane(*turn) else { return Polled { count: 0, is_all: true } };
        let blocks = matches!(inbox.overflow, Overflow::Block { .. });
        let mut released = || {
            if blocks && inbox.space.is_armed_after_fence() {
                inbox.space.wake();
            }
        };
        lane.poll::<EACH>(reader, most, &engine.context, &mut released, &mut f)
    }
}

/// The broker, as its subscriptions know it.
pub(crate) trait Home: Send + Sync {
    /// The consumer is gone.
    fn leave(&self, inbox: &Arc<Inbox>, acks: Option<&Acks>);
    /// Gives the subscription another inbox, from `start` on; `None` if the broker is gone.
    fn seek(&self, inbox: &Arc<Inbox>, acks: &Acks, start: Start) -> Option<Receiver>;
}

/// Makes a lane live that has caught up, unless too much has come meanwhile.
fn go_live(inbox: &Inbox, engine: &Engine, shard: usize, lane: &Lane, reader: &mut Reader) {
    if engine.shards[shard].baton.run(|core| core.go_live(inbox, lane)) {
        lane.leave_log(reader);
    }
}

/// A subscription whose messages are fetched by its owner.
///
/// It may move between threads; it is one consumer, so receiving takes `&mut self`, and what is
/// received is borrowed from it until the next call. Dropping it unsubscribes; a subscription that
/// has a name and delivers at least once goes on without a consumer: see
/// [`SubscriptionBuilder::name`](crate::SubscriptionBuilder::name).
///
/// ```
/// use slipring::{Broker, RecvError, TryRecvError};
///
/// let broker = Broker::in_memory();
/// let mut subscription = broker.subscribe("a/**")?;
/// broker.publish("a/b", "one")?;
/// broker.publish("a/c", "two")?;
/// let first = subscription.recv()?;
/// assert_eq!(first.topic(), "a/b");
/// first.ack()?;
/// let kept = subscription.recv()?.keep();
/// assert_eq!(subscription.try_recv().unwrap_err(), TryRecvError::Empty);
/// assert_eq!(kept.payload(), b"two");
/// kept.view().ack()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Subscription {
    receiver: Receiver,
    idle: Idle,
    event: Option<Arc<EventFd>>,
    home: Arc<dyn Home>,
    batch: Vec<usize>,
    /// Whether an iterator or stream has told of an end that is no close.
    told_end: bool,
}

impl Subscription {
    pub(crate) fn new(receiver: Receiver, wait: WaitStrategy, home: Arc<dyn Home>) -> Self {
        Self {
            idle: Idle::for_queue(wait, receiver.inbox.capacity),
            receiver,
            event: None,
            home,
            batch: Vec::new(),
            told_end: false,
        }
    }

    /// Number of the subscription, unique in the broker.
    pub fn id(&self) -> u64 {
        let Inbox { number, .. } = *self.receiver.inbox;
        number
    }

    /// The name it was given.
    pub fn name(&self) -> Option<&str> {
        self.receiver.inbox.name.as_deref()
    }

    /// Messages queued and not received. Exact when nobody publishes at the moment.
    pub fn queued(&self) -> u64 {
        self.receiver.inbox.depth()
    }

    /// Settles its messages by their ack ids, from any thread; `None` if they are delivered at most
    /// once.
    pub fn acker(&self) -> Option<Acker> {
        self.receiver.acked.as_ref().map(|acked| Acker::new(&acked.acks))
    }

    /// Goes on from `start`, which may lie before what was received: what is there is delivered
    /// anew. All that was received and not settled is forgotten, and its ack ids are stale.
    ///
    /// # Errors
    /// [`SeekError`].
    pub fn seek(&mut self, start: Start) -> Result<(), SeekError> {
        self.check().map_err(|error| match error {
            RecvError::InsideFilter => SeekError::InsideFilter,
            _ => SeekError::Forked,
        })?;
        let acked = self.receiver.acked.as_ref().ok_or(SeekError::AtMostOnce)?;
        let before = Arc::clone(&self.receiver.inbox);
        let sought = self.home.seek(&before, &acked.acks, start).ok_or(SeekError::Ended)?;
        let mut old = std::mem::replace(&mut self.receiver, sought);
        before.advance(InboxState::Ended);
        old.discard();
        self.batch.clear();
        if let Some(event) = &self.event {
            before.arrivals.cancel(|waiter| matches!(waiter, Waiter::Event(_)));
            event.set();
        }
        self.settle_event();
        Ok(())
    }

    /// Receives the next message, waiting as the subscription's [`WaitStrategy`] has it.
    ///
    /// # Errors
    /// See [`RecvError`]. After [`Lagged`](RecvError::Lagged) the next call goes on.
    #[inline]
    pub fn recv(&mut self) -> Result<Message<'_>, RecvError> {
        let address = self.wait_for_next(None)?.ok_or(RecvError::Closed)?;
        Ok(self.receiver.message(address))
    }

    /// Receives the next message; `None` if there is none within `timeout`.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<Message<'_>>, RecvError> {
        let deadline = self.receiver.engine.clock.now().saturating_add(timeout);
        let address = self.wait_for_next(Some(deadline))?;
        Ok(address.map(|address| self.receiver.message(address)))
    }

    /// Receives the next message if one is queued.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`] if none is; else as [`recv`](Self::recv).
    #[inline]
    pub fn try_recv(&mut self) -> Result<Message<'_>, TryRecvError> {
        match self.take_next()? {
            Some(address) => Ok(self.receiver.message(address)),
            None => Err(TryRecvError::Empty),
        }
    }

    /// Receives up to `most` messages, at least one, waiting for that as [`recv`](Self::recv)
    /// does. Allocates nothing once its buffer has grown to `most` (8 bytes a message).
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_batch(&mut self, most: usize) -> Result<Batch<'_>, RecvError> {
        self.batch.clear();
        if most > 0 {
            match self.wait_for_next(None)? {
                Some(address) => self.batch.push(address),
                None => return Err(RecvError::Closed),
            }
            self.fill_batch(most);
        }
        Ok(Batch { subscription: self, at: 0 })
    }

    /// Receives up to `most` messages that are queued now; possibly none.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn try_recv_batch(&mut self, most: usize) -> Result<Batch<'_>, RecvError> {
        self.batch.clear();
        if most > 0
            && let Some(address) = self.take_next()?
        {
            self.batch.push(address);
            self.fill_batch(most);
        }
        Ok(Batch { subscription: self, at: 0 })
    }

    fn fill_batch(&mut self, most: usize) {
        // The rest comes from the same lane, whose slots are given back together.
        while self.batch.len() < most {
            let next = if self.receiver.is_settled_later() {
                self.receiver.next_acked_of_turn()
            } else {
                self.receiver.next_of_turn(most - self.batch.len())
            };
            match next {
                Next::Record(address) => self.batch.push(address),
                Next::Lagged(lost) => {
                    self.receiver.untold += lost;
                    break;
                }
                Next::CaughtUp | Next::Empty => break,
            }
        }
        self.receiver.release();
        self.settle_event();
    }

    /// Calls `f` with up to `most` messages that are queued now, in place and without waiting;
    /// returns how many. The fastest way to receive.
    ///
    /// # Errors
    /// As [`recv`](Self::recv); a loss behind the first message is told by the next call.
    #[inline]
    pub fn poll(
        &mut self,
        most: usize,
        mut f: impl FnMut(Message<'_>),
    ) -> Result<usize, RecvError> {
        self.check()?;
        if most == 0 {
            return Ok(0);
        }
        let state = self.receiver.inbox.state();
        let polled = self.receiver.poll::<false>(most, |message| {
            f(message);
            true
        });
        let count = polled.inspect_err(|_| self.settle_event())?;
        if count > 0 {
            self.idle.found(count);
            if self.event.is_some() {
                self.settle_event();
            }
            return Ok(count);
        }
        self.receiver.done_with_all();
        self.settle_event();
        ended(state).map_or(Ok(0), Err)
    }

    /// Waits until a message is queued, or there is something else to tell by the next call.
    ///
    /// # Errors
    /// [`RecvError::InsideFilter`] or [`RecvError::Forked`]: what else there is, receiving tells.
    pub fn wait(&mut self) -> Result<(), RecvError> {
        self.check()?;
        while self.receiver.inbox.state() == InboxState::Open && self.receiver.is_empty() {
            self.rest(None);
        }
        Ok(())
    }

    /// The same, for at most `timeout`; whether there is something.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<bool, RecvError> {
        self.check()?;
        let deadline = self.receiver.engine.clock.now().saturating_add(timeout);
        while self.receiver.inbox.state() == InboxState::Open && self.receiver.is_empty() {
            if self.receiver.engine.clock.now() >= deadline {
                return Ok(false);
            }
            self.rest(Some(deadline));
        }
        Ok(true)
    }

    /// A descriptor that is readable exactly while something can be received: for `poll`, `epoll`
    /// and event loops. Level-triggered; what was queued before the first call counts. Do not read
    /// from it. It stays the same, and valid as long as the subscription.
    ///
    /// # Errors
    /// What the system says when it has no descriptor left.
    pub fn event_fd(&mut self) -> io::Result<BorrowedFd<'_>> {
        if self.event.is_none() {
            let event = Arc::new(EventFd::new()?);
            event.set();
            self.event = Some(event);
            self.settle_event();
        }
        match &self.event {
            Some(event) => Ok(event.as_fd()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// An iterator over the messages, which waits for each and ends when the broker closes. Losses
    /// are items of their own.
    ///
    /// Where messages are delivered at least once, asking for the next acknowledges the one before,
    /// unless that was settled otherwise: it has been dealt with. Whoever leaves the loop
    /// acknowledges the last one or gets it again. An adapter that asks ahead, as
    /// [`collect`](Iterator::collect) does, acknowledges what nobody has dealt with yet.
    ///
    /// ```
    /// use slipring::Broker;
    ///
    /// let broker = Broker::in_memory();
    /// let mut jobs = broker.subscribe("jobs/*")?;
    /// for job in ["1", "2", "3"] {
    ///     broker.publish("jobs/new", job)?;
    /// }
    /// for job in &mut jobs {
    ///     let job = job?;
    ///     if job.payload() == b"3" {
    ///         job.view().ack()?;
    ///         break;
    ///     }
    /// }
    /// assert_eq!(broker.metrics().subscriptions[0].acked, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&mut self) -> Iter<'_> {
        Iter { subscription: self, last: None }
    }

    /// What an iterator or stream makes of an error: a loss and an end that is no close are told
    /// once, and after an end there is nothing more.
    fn item_of(&mut self, error: RecvError) -> Option<Result<OwnedMessage, RecvError>> {
        match error {
            RecvError::Lagged(_) => Some(Err(error)),
            RecvError::Closed => None,
            _ if std::mem::replace(&mut self.told_end, true) => None,
            _ => Some(Err(error)),
        }
    }

    fn check(&self) -> Result<(), RecvError> {
        check(self.receiver.engine.generation)
    }

    /// The next record, if there is one now.
    #[inline]
    fn take_next(&mut self) -> Result<Option<usize>, RecvError> {
        self.check()?;
        self.receiver.forget_leases();
        self.receiver.done_with_older();
        // What was published before the end is delivered before the end is told.
        let state = self.receiver.inbox.state();
        let next = self.receiver.next(1);
        match next {
            Next::Record(address) => {
                self.receiver.release();
                self.idle.found(1);
                if self.event.is_some() {
                    self.settle_event();
                }
                Ok(Some(address))
            }
            Next::Lagged(lost) => {
                self.settle_event();
                Err(RecvError::Lagged(lost))
            }
            Next::Empty | Next::CaughtUp => {
                self.receiver.done_with_all();
                self.settle_event();
                ended(state).map_or(Ok(None), Err)
            }
        }
    }

    /// The next record, waiting for it until `deadline`.
    #[inline]
    fn wait_for_next(&mut self, deadline: Option<Duration>) -> Result<Option<usize>, RecvError> {
        loop {
            if let Some(address) = self.take_next()? {
                return Ok(Some(address));
            }
            if deadline.is_some_and(|deadline| self.receiver.engine.clock.now() >= deadline) {
                return Ok(None);
            }
            self.rest(deadline);
        }
    }

    /// Waits a little, or until woken.
    fn rest(&mut self, deadline: Option<Duration>) {
        if !self.idle.pause() {
            return;
        }
        self.receiver.leave();
        let me = current_thread().id();
        let inbox = Arc::clone(&self.receiver.inbox);
        inbox.await_arrivals(Waiter::this_thread());
        if self.receiver.is_empty() && inbox.state() == InboxState::Open {
            let deadline = [deadline, self.receiver.next_due()].into_iter().flatten().min();
            self.receiver.engine.clock.park_until(deadline);
        }
        inbox.arrivals.cancel(|waiter| matches!(waiter, Waiter::Thread(t) if t.id() == me));
    }

    /// Keeps the eventfd readable exactly while there is something to receive.
    #[inline]
    fn settle_event(&mut self) {
        if let Some(event) = self.event.clone() {
            self.settle(&event);
        }
    }

    #[cold]
    fn settle(&mut self, event: &Arc<EventFd>) {
        let inbox = Arc::clone(&self.receiver.inbox);
        // While the event waits in the cell, it is clear, and whoever brings something sets it.
        if !self.receiver.is_empty()
            || inbox.arrivals.has(|waiter| matches!(waiter, Waiter::Event(_)))
        {
            return;
        }
        event.clear();
        inbox.await_arrivals(Waiter::Event(Arc::clone(event)));
        self.receiver.set_alarm();
        if !self.receiver.is_empty() || inbox.state() != InboxState::Open {
            inbox.arrivals.cancel(|waiter| matches!(waiter, Waiter::Event(_)));
            event.set();
        }
    }
}

fn check(generation: Generation) -> Result<(), RecvError> {
    if is_inside_filter() {
        return Err(RecvError::InsideFilter);
    }
    if generation.is_over() {
        return Err(RecvError::Forked);
    }
    Ok(())
}

/// What to tell of an inbox that is empty and was in `state` before it was found empty.
fn ended(state: InboxState) -> Option<RecvError> {
    match state {
        InboxState::Open => None,
        InboxState::Disconnected => Some(RecvError::Disconnected),
        InboxState::Closed | InboxState::Ended => Some(RecvError::Closed),
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if self.receiver.engine.generation.is_over() {
            return;
        }
        let Receiver { inbox, engine, .. } = &self.receiver;
        let (inbox, engine) = (Arc::clone(inbox), Arc::clone(engine));
        let acks = self.receiver.acked.as_ref().map(|acked| Arc::clone(&acked.acks));
        let home = Arc::clone(&self.home);
        inbox.advance(InboxState::Ended);
        outside_filters(move || {
            home.leave(&inbox, acks.as_deref());
            // This one takes over from the one that is being dropped and receives no more.
            Receiver::new(Arc::clone(&inbox), engine).discard();
            inbox.wake_all();
        });
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("id", &self.id())
            .field("name", &self.name())
            .field("patterns", &self.receiver.inbox.interest.patterns)
            .finish_non_exhaustive()
    }
}

/// For event loops; call [`Subscription::event_fd`] first.
impl AsRawFd for Subscription {
    /// The eventfd, or -1 before the first call of [`Subscription::event_fd`].
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_ref().map_or(-1, |event| event.fd())
    }
}

/// Messages received together; an iterator over them. What is not iterated over is skipped.
#[derive(Debug)]
pub struct Batch<'a> {
    subscription: &'a mut Subscription,
    at: usize,
}

impl<'a> Batch<'a> {
    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.subscription.batch.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.subscription.batch.is_empty()
    }

    /// The messages, any number of times.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Message<'_>> {
        let subscription = &*self.subscription;
        let messages = subscription.batch.iter().enumerate();
        messages.map(|(index, &address)| subscription.receiver.message_at(index, address))
    }
}

impl Batch<'_> {
    /// The next message of the batch.
    #[expect(clippy::should_implement_trait, reason = "an item borrows from the batch")]
    pub fn next(&mut self) -> Option<Message<'_>> {
        let address = *self.subscription.batch.get(self.at)?;
        self.at += 1;
        Some(self.subscription.receiver.message_at(self.at - 1, address))
    }
}

/// See [`Subscription::iter`].
#[derive(Debug)]
pub struct Iter<'a> {
    subscription: &'a mut Subscription,
    /// What it gave last, if that is to be settled.
    last: Option<AckId>,
}

impl Iterator for Iter<'_> {
    type Item = Result<OwnedMessage, RecvError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(last) = self.last.take() {
            self.subscription.receiver.ack(last);
        }
        match self.subscription.recv() {
            Ok(message) => {
                self.last = message.ack_id();
                Some(Ok(message.keep()))
            }
            Err(error) => self.subscription.item_of(error),
        }
    }
}

impl<'a> IntoIterator for &'a mut Subscription {
    type Item = Result<OwnedMessage, RecvError>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The messages as a stream, on any async runtime. Ends when the broker closes; losses are items.
///
/// Where messages are delivered at least once, each is to be acknowledged: being asked for the next
/// does not mean here that the one before has been dealt with, for many are dealt with at a time.
impl futures_core::Stream for Subscription {
    type Item = Result<OwnedMessage, RecvError>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        for attempt in 0..2 {
            match self.try_recv() {
                Ok(message) => {
                    let kept = message.keep();
                    self.receiver.inbox.arrivals.cancel(|w| matches!(w, Waiter::Waker(_)));
                    return Poll::Ready(Some(Ok(kept)));
                }
                Err(TryRecvError::Recv(error)) => return Poll::Ready(self.item_of(error)),
                Err(TryRecvError::Empty) if attempt == 0 => {
                    let inbox = &self.receiver.inbox;
                    inbox.arrivals.cancel(|waiter| matches!(waiter, Waiter::Waker(_)));
                    inbox.await_arrivals(Waiter::Waker(task.waker().clone()));
                    self.receiver.set_alarm();
                }
                Err(TryRecvError::Empty) => {}
            }
        }
        Poll::Pending
    }
}
