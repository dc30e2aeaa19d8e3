//! Subscriptions that are pulled: receive, batch, poll, iterate, stream, eventfd.

use crate::acker::Acker;
use crate::acks::Acks;
use crate::config::{Start, WaitStrategy};
use crate::error::{RecvError, SeekError, StoreFault, TryRecvError};
use crate::event::EventFd;
use crate::fork::Generation;
use crate::idle::Idle;
use crate::inbox::{Inbox, InboxState};
use crate::interest::{is_inside_filter, outside_filters};
use crate::lane::Next;
use crate::lease::AckId;
use crate::message::{Block, Message, OwnedMessage};
use crate::receiver::Receiver;
use crate::sync::{Arc, current_thread};
use crate::wait::Waiter;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

/// The broker, as its subscriptions know it.
pub(crate) trait Home: Send + Sync {
    /// The consumer is gone.
    fn leave(&self, inbox: &Arc<Inbox>, acks: Option<&Acks>);
    /// Gives the subscription another inbox, from `start` on; `None` if the broker is gone.
    fn seek(
        &self,
        inbox: &Arc<Inbox>,
        acks: &Acks,
        start: Start,
    ) -> Result<Option<Receiver>, StoreFault>;
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

    /// Messages queued and not received. Exact when nobody publishes at the moment. What was published
    /// before the subscription began, or before it last [sought](Self::seek), may not be counted yet:
    /// whether there is something, receiving tells.
    pub fn queued(&self) -> u64 {
        self.receiver.inbox.depth()
    }

    /// Settles its messages by their ack ids, from any thread; `None` if they are delivered at most
    /// once.
    pub fn acker(&self) -> Option<Acker> {
        self.receiver.acked.as_ref().map(|acked| Acker::new(&acked.acks))
    }

    /// Whether a message that was received before is due to be received again. Then the next call that
    /// receives may have to give up on it, and so to wait a little (100 ms at most) where somebody
    /// who subscribes to dead letters blocks.
    pub fn is_due(&self) -> bool {
        let acked = self.receiver.acked.as_ref().filter(|_| self.check().is_ok());
        acked.is_some_and(|acked| acked.acks.is_due())
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
        let sought = self.home.seek(&before, &acked.acks, start).map_err(SeekError::Store)?;
        let sought = sought.ok_or(SeekError::Ended)?;
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
        while self.batch.len() < most && !self.receiver.took_suspect() {
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
                // The next call tells.
                Next::Failed(_) | Next::CaughtUp | Next::Empty => break,
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
        mut f: impl FnMut(&Message<'_>),
    ) -> Result<usize, RecvError> {
        self.poll_each::<false>(most, |block| f(&block.first()))
    }

    /// The same with several messages in a call. All of them count as taken when `f` is called.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    #[doc(hidden)]
    #[inline]
    pub fn poll_blocks(
        &mut self,
        most: usize,
        f: impl FnMut(&Block<'_>),
    ) -> Result<usize, RecvError> {
        self.poll_each::<true>(most, f)
    }

    #[inline(always)]
    fn poll_each<const WHOLE: bool>(
        &mut self,
        most: usize,
        mut f: impl FnMut(&Block<'_>),
    ) -> Result<usize, RecvError> {
        self.check()?;
        if most == 0 {
            return Ok(0);
        }
        let state = self.receiver.inbox.state();
        let polled = self.receiver.poll::<false, WHOLE>(most, |block| {
            f(block);
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
            RecvError::Lagged(_) | RecvError::Store(_) => Some(Err(error)),
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
            Next::Failed(fault) => {
                self.settle_event();
                Err(RecvError::Store(fault))
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
