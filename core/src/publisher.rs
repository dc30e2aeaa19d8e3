//! Topics as publishers hold them: publish, batch, try, timeout, loan.

use crate::alarm::Alarms;
use crate::around::AroundWaits;
use crate::batch::{AsMessage, Batch, Payloads};
use crate::chunk::{Claim, Pool};
use crate::clock::Clock;
use crate::config::{Limits, Overflow};
use crate::dedup_window::{DedupLimits, DedupWindow, Earlier};
use crate::error::{PublishError, StoreFault};
use crate::fork::Generation;
use crate::idle::spin_for;
use crate::inbox::{Inbox, InboxState};
use crate::interest::is_inside_filter;
use crate::lane::Lane;
use crate::message::{self, Context, Layout, NewMessage};
use crate::message_id::MessageId;
use crate::receipt::{BatchError, BatchReceipt, Receipt};
use crate::sequencer::SequencerThread;
use crate::shard::{Appended, Core, Outcome, Partition, Shard, Stop, Waits};
use crate::store::{MessageStore, Retention};
use crate::sync::{Arc, AtomicBool, AtomicU64, Ordering, PlainArc, current_thread, yield_now};
use crate::wait::Waiter;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What publishers share with the broker.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) shards: Box<[Arc<Shard>]>,
    pub(crate) context: Arc<Context>,
    pub(crate) limits: Limits,
    pub(crate) pool: Arc<Pool>,
    pub(crate) memory_budget: usize,
    pub(crate) clock: Clock,
    pub(crate) generation: Generation,
    pub(crate) closed: AtomicBool,
    pub(crate) around_waits: AroundWaits,
    /// Where messages are kept that outlive the process.
    pub(crate) store: Option<Arc<dyn MessageStore>>,
    /// Wakes consumers for what becomes due by itself.
    pub(crate) alarms: Alarms,
    /// The sequencers' threads, which run as long as anything can be asked of a shard.
    pub(crate) sequencers: Vec<SequencerThread>,
}

impl Engine {
    /// Starts a sequencer for each shard, pinned from the allowed CPU at `first` on.
    pub(crate) fn start_sequencers(&mut self, first: usize) -> std::io::Result<()> {
        for (index, shard) in self.shards.iter().enumerate() {
            let shard = Arc::clone(shard);
            self.sequencers.push(SequencerThread::start(shard, first.saturating_add(index))?);
        }
        Ok(())
    }

    /// Whether the broker may be called from here and now.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), PublishError> {
        if is_inside_filter() {
            return Err(PublishError::InsideFilter);
        }
        if self.generation.is_over() {
            return Err(PublishError::Forked);
        }
        Ok(())
    }

    /// Nothing comes to `inbox` any more, nor does anything wait for what it has not read.
    pub(crate) fn silence(&self, inbox: &Inbox) {
        for shard in &self.shards {
            shard.baton.run(|core| core.end_inbox(inbox));
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits until all that has been published to a shard may be acknowledged, as the store's policy
    /// has it; whether it would survive a power cut.
    pub(crate) fn commit(&self, shard: usize) -> Result<bool, PublishError> {
        let Some(store) = &self.store else { return Ok(false) };
        let upto = self.shards[shard].log.head();
        let committed = store.commit(shard, upto).and_then(|()| store.bounds(shard));
        // Whatever has failed: it was published, and nobody knows whether it is stored.
        let bounds = committed.map_err(|error| {
            tracing::error!(shard, %error, "what was published may not be stored");
            StoreFault::Poisoned
        })?;
        Ok(bounds.durable >= upto)
    }

    /// Waits until all that has been published to a shard survives a power cut, if there is a store
    /// that can do that.
    pub(crate) fn sync(&self, shard: usize) -> Result<bool, StoreFault> {
        let Some(store) = &self.store else { return Ok(false) };
        let upto = self.shards[shard].log.head();
        let durable = store.sync(shard, upto).map_err(|error| StoreFault::from(&error))?;
        Ok(durable >= upto)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.generation.is_over() {
            // In the child of a fork the threads do not exist: there is nothing to stop or to join.
            std::mem::forget(std::mem::take(&mut self.sequencers));
            self.alarms.forget_thread();
        }
    }
}

/// A topic and its partitions.
#[derive(Debug)]
pub(crate) struct TopicEntry {
    pub(crate) name: Arc<str>,
    pub(crate) partitions: Box<[Partition]>,
    /// Where the next message without a key goes.
    turn: AtomicU64,
    /// How long its messages are kept, where they outlive memory.
    retention: Mutex<Retention>,
}

impl TopicEntry {
    pub(crate) fn new(name: Arc<str>, partitions: Box<[Partition]>, retention: Retention) -> Self {
        Self { name, partitions, turn: AtomicU64::new(0), retention: Mutex::new(retention) }
    }

    pub(crate) fn retention(&self) -> Retention {
        *self.retention.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_retention(&self, retention: Retention) {
        *self.retention.lock().unwrap_or_else(PoisonError::into_inner) = retention;
    }

    /// The ids that are known again, if any ever were.
    pub(crate) fn window(&self) -> Option<&DedupWindow> {
        self.partitions.first()?.window.get().map(|window| &**window)
    }

    /// Which ids are known again from now on. Called under the control mutex.
    pub(crate) fn set_dedup(&self, limits: Option<DedupLimits>) {
        match (self.window(), limits) {
            (Some(window), _) => window.set_limits(limits),
            (None, Some(limits)) => {
                let window = PlainArc::new(DedupWindow::new(limits));
                for partition in &self.partitions {
                    partition.window.get_or_init(|| PlainArc::clone(&window));
                }
            }
            (None, None) => {}
        }
    }

    /// The partition for a message with `key`: the same key goes to the same partition.
    #[inline]
    fn partition(&self, key: Option<&str>) -> &Partition {
        let count = self.partitions.len() as u64;
        let index = match key {
            _ if count == 1 => 0,
            Some(key) => stable_hash(key.as_bytes()) % count,
            None => {
                // Two publishers may take the same turn; what matters is that turns pass.
                let turn = self.turn.load(Ordering::Relaxed);
                self.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
                turn % count
            }
        };
        &self.partitions[index as usize]
    }
}

/// FNV-1a with a final mix (that of MurmurHash3): not keyed, because a key must find its partition
/// again after a restart.
pub(crate) fn stable_hash(bytes: &[u8]) -> u64 {
    let mut hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

/// How long a publish may wait for subscriptions that block.
#[derive(Clone, Copy)]
enum Patience<'p> {
    None,
    Until(Limit<'p>),
}

/// What ends a wait before there is room.
#[derive(Clone, Copy, Default)]
struct Limit<'p> {
    deadline: Option<Duration>,
    /// Asked every [`ASK_EVERY`]: false ends the wait.
    go_on: Option<&'p dyn Fn() -> bool>,
}

impl Limit<'_> {
    const NONE: Self = Self { deadline: None, go_on: None };
}

/// How long a wait lasts before its `go_on` is asked again.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// A topic to publish to. Cheap to clone; usable from all threads at once.
///
/// A publish puts the message into the log and into the queue of every subscription that wants it
/// before it returns. It waits only if a subscription with [`Overflow::Block`] has no room, and,
/// for the time of another publish, if somebody else is publishing to the same shard.
///
/// ```
/// use slipring::{Broker, NewMessage};
///
/// let broker = Broker::in_memory();
/// let mut scores = broker.subscribe("sports/*")?;
/// let topic = broker.topic("sports/cricket")?;
/// let receipt = topic.publish("four!")?;
/// assert_eq!((receipt.offset, receipt.matched, receipt.enqueued), (0, 1, 1));
/// topic.publish(NewMessage::new(b"six!").attributes(&[("team", "IN")]))?;
/// let four = scores.recv()?;
/// assert_eq!((four.payload(), four.ack()), (&b"four!"[..], Ok(true)));
/// let six = scores.recv()?;
/// assert_eq!((six.attribute("team"), six.ack()), (Some("IN"), Ok(true)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Topic {
    pub(crate) engine: Arc<Engine>,
    pub(crate) entry: Arc<TopicEntry>,
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topic").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Topic {
    pub(crate) fn new(engine: Arc<Engine>, entry: Arc<TopicEntry>) -> Self {
        Self { engine, entry }
    }

    /// The topic's name.
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// Whether its messages go into a directory: then publishing may wait for the disk.
    #[inline]
    pub fn is_durable(&self) -> bool {
        self.engine.store.is_some()
    }

    /// Publishes one message.
    ///
    /// # Errors
    /// See [`PublishError`]; nothing was published then, unless [`PublishError::Store`] says otherwise.
    #[inline]
    pub fn publish<'m>(&self, message: impl Into<NewMessage<'m>>) -> Result<Receipt, PublishError> {
        self.publish_one(&message.into(), || Patience::Until(Limit::NONE))
    }

    /// Publishes one message without ever waiting: not for a sync either, so that the receipt does not
    /// say that it is durable.
    ///
    /// # Errors
    /// [`PublishError::WouldBlock`] if a subscription with [`Overflow::Block`] has no room, or
    /// somebody else holds the shard; else as [`publish`](Self::publish).
    pub fn try_publish<'m>(
        &self,
        message: impl Into<NewMessage<'m>>,
    ) -> Result<Receipt, PublishError> {
        self.publish_one(&message.into(), || Patience::None)
    }

    /// Publishes one message, waiting for at most `timeout` for subscriptions that block.
    ///
    /// # Errors
    /// [`PublishError::Timeout`] if there still was no room; else as [`publish`](Self::publish).
    pub fn publish_timeout<'m>(
        &self,
        message: impl Into<NewMessage<'m>>,
        timeout: Duration,
    ) -> Result<Receipt, PublishError> {
        let deadline = self.deadline(timeout);
        let limit = Limit { deadline: Some(deadline), go_on: None };
        self.publish_one(&message.into(), || Patience::Until(limit))
    }

    /// Publishes one message, waiting for subscriptions that block for at most `timeout` and only
    /// as long as `go_on` returns true: for callers that must notice something else meanwhile, as an
    /// interpreter must a signal. It is asked on this thread about every 50 ms of waiting, with
    /// nothing held, so it may call the broker.
    ///
    /// # Errors
    /// As [`publish_timeout`](Self::publish_timeout), with [`PublishError::Timeout`] also where
    /// `go_on` ended it.
    pub fn publish_while<'m>(
        &self,
        message: impl Into<NewMessage<'m>>,
        timeout: Option<Duration>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Receipt, PublishError> {
        let limit = self.limit(timeout, go_on);
        self.publish_one(&message.into(), || Patience::Until(limit))
    }

    fn deadline(&self, timeout: Duration) -> Duration {
        self.engine.clock.now().saturating_add(timeout)
    }

    fn limit<'p>(&self, timeout: Option<Duration>, go_on: &'p dyn Fn() -> bool) -> Limit<'p> {
        Limit { deadline: timeout.map(|timeout| self.deadline(timeout)), go_on: Some(go_on) }
    }

    /// Publishes one message and returns when it survives a power cut, whatever the store's policy.
    /// In memory that is at once, and the receipt says that it does not.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn publish_sync<'m>(
        &self,
        message: impl Into<NewMessage<'m>>,
    ) -> Result<Receipt, PublishError> {
        self.publish_synced(&message.into(), Limit::NONE)
    }

    /// The same, for bindings, with the limits of [`publish_while`](Self::publish_while).
    ///
    /// # Errors
    /// As that.
    #[doc(hidden)]
    pub fn publish_sync_while<'m>(
        &self,
        message: impl Into<NewMessage<'m>>,
        timeout: Option<Duration>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Receipt, PublishError> {
        self.publish_synced(&message.into(), self.limit(timeout, go_on))
    }

    fn publish_synced(
        &self,
        message: &NewMessage<'_>,
        limit: Limit<'_>,
    ) -> Result<Receipt, PublishError> {
        let receipt = self.publish_one(message, || Patience::Until(limit))?;
        if receipt.durable || self.engine.store.is_none() {
            return Ok(receipt);
        }
        Ok(Receipt { durable: self.engine.sync(self.shard_of(&receipt))?, ..receipt })
    }

    /// [`Receipt::id`], for bindings whose receipts do not know it.
    #[doc(hidden)]
    pub fn id_at(&self, partition: u32, offset: u64) -> MessageId<'static> {
        MessageId::derived(self.engine.context.store, partition, offset)
    }

    /// Publishes messages in order. One call costs little more than one publish, whatever the
    /// number of messages; nothing is allocated.
    ///
    /// # Errors
    /// The reason why the batch ended early, with the receipt of what was published before. All
    /// messages are checked before the first is published.
    pub fn publish_batch<M: AsMessage>(&self, messages: &[M]) -> Result<BatchReceipt, BatchError> {
        self.batch(Batch::of(&messages), Patience::Until(Limit::NONE))
    }

    /// The same, with the limits of [`publish_while`](Self::publish_while) for each message.
    ///
    /// # Errors
    /// As [`publish_batch`](Self::publish_batch), with [`PublishError::Timeout`] among the reasons.
    pub fn publish_batch_while<M: AsMessage>(
        &self,
        messages: &[M],
        timeout: Option<Duration>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<BatchReceipt, BatchError> {
        self.batch(Batch::of(&messages), Patience::Until(self.limit(timeout, go_on)))
    }

    /// The same without ever waiting.
    ///
    /// # Errors
    /// As [`publish_batch`](Self::publish_batch), with [`PublishError::WouldBlock`] among the
    /// reasons.
    pub fn try_publish_batch<M: AsMessage>(
        &self,
        messages: &[M],
    ) -> Result<BatchReceipt, BatchError> {
        self.batch(Batch::of(&messages), Patience::None)
    }

    /// The same, for bindings, with messages that are payloads and nothing else, of which none is longer
    /// than `longest`; waits only if `waits`.
    ///
    /// # Errors
    /// As those.
    #[doc(hidden)]
    pub fn publish_payloads<M: AsMessage>(
        &self,
        messages: &[M],
        longest: usize,
        waits: bool,
    ) -> Result<BatchReceipt, BatchError> {
        let patience = if waits { Patience::Until(Limit::NONE) } else { Patience::None };
        self.batch(Batch::of_payloads(&Payloads { messages, longest }), patience)
    }

    /// Space for a payload of `bytes` bytes, to be written in place and then
    /// [committed](Loan::commit). What it holds at first is unspecified: zeroes, or bytes of
    /// messages that have expired.
    ///
    /// The message gets its place in the order when it is committed. Until then it delays nobody;
    /// a loan that is dropped, also by unwinding, publishes nothing.
    ///
    /// # Errors
    /// [`PublishError::InvalidMessage`] if it is too large; [`PublishError::Full`] if loans and kept
    /// messages take as much memory as the budget on top of it; [`PublishError::NoMemory`]; or as
    /// [`publish`](Self::publish).
    pub fn loan(&self, bytes: usize) -> Result<Loan, PublishError> {
        self.loan_for(&NewMessage::default(), bytes)
    }

    /// The same for a message with the key, id and attributes of `head`, whose payload is ignored.
    ///
    /// # Errors
    /// As [`loan`](Self::loan).
    pub fn loan_for(&self, head: &NewMessage<'_>, bytes: usize) -> Result<Loan, PublishError> {
        self.engine.check()?;
        if self.engine.is_closed() {
            return Err(PublishError::Closed);
        }
        let partition = self.entry.partition(head.key);
        let layout = head.layout_of(bytes, &self.engine.limits)?;
        let in_use = self.engine.pool.in_use() as usize;
        if in_use.saturating_add(layout.bytes()) > self.engine.memory_budget.saturating_mul(2) {
            return Err(PublishError::Full);
        }
        let claim = self.engine.shards[partition.shard]
            .claims
            .claim(layout.bytes())
            .ok_or(PublishError::NoMemory)?;
        let payload = message::write_claim(&claim, head, layout, partition.id);
        let index = (partition.id - self.entry.partitions[0].id) as usize;
        Ok(Loan { topic: self.clone(), index, claim, payload, bytes })
    }

    /// Publishes a message on the broker's own behalf, whether it was published before or not. It may
    /// have more attributes than a user's.
    pub(crate) fn publish_again(
        &self,
        message: &NewMessage<'_>,
        timeout: Option<Duration>,
    ) -> Result<Receipt, PublishError> {
        self.engine.check()?;
        let limit = Limit { deadline: timeout.map(|timeout| self.deadline(timeout)), go_on: None };
        let partition = self.entry.partition(message.key);
        let append =
            |core: &mut Core, waits: &mut Waits| core.append_again(partition, message, waits);
        let appended = self.wait_for_append(partition, limit, append)?;
        self.committed(partition, appended)
    }

    /// Calls `append`, which appends one message, until no subscription that blocks keeps it from
    /// that, nor another message with its id.
    fn wait_for_append(
        &self,
        partition: &Partition,
        limit: Limit<'_>,
        append: impl Fn(&mut Core, &mut Waits) -> Appended + Sync,
    ) -> Result<Appended, PublishError> {
        let mut waits = Waits::default();
        loop {
            waits.now = self.engine.clock.now();
            let baton = &self.engine.shards[partition.shard].baton;
            let appended = baton.run(|core| append(core, &mut waits));
            match &appended.stop {
                Some(Stop::Blocked(inbox, lane)) => {
                    let since = waits.since(inbox).unwrap_or(waits.now);
                    self.wait_for_room(inbox, lane, since, limit)?;
                }
                Some(Stop::Pending(before)) => partition.wait_for_pending(*before),
                _ => return Ok(appended),
            }
        }
    }

    /// The receipt of the message that was published, or of the one that it repeats, when it may be
    /// given.
    fn committed(
        &self,
        partition: &Partition,
        appended: Appended,
    ) -> Result<Receipt, PublishError> {
        let receipt = self.receipt_of(partition, appended)?;
        Ok(Receipt { durable: self.engine.commit(self.shard_of(&receipt))?, ..receipt })
    }

    /// The same at once: it does not say that it is durable.
    pub(crate) fn receipt_of(
        &self,
        partition: &Partition,
        appended: Appended,
    ) -> Result<Receipt, PublishError> {
        let Appended { first_offset, outcome, stop, .. } = appended;
        let Some(stop) = stop else { return Ok(self.receipt(partition, first_offset, outcome)) };
        let Earlier { partition, offset } = stop.earlier()?;
        let nothing = self.receipt(self.partition_of(partition), offset, Outcome::default());
        Ok(Receipt { duplicate: true, ..nothing })
    }

    /// The topic's partition with the number `id`.
    fn partition_of(&self, id: u32) -> &Partition {
        &self.entry.partitions[(id - self.entry.partitions[0].id) as usize]
    }

    /// The shard that the message of `receipt`, of this topic, is in.
    pub(crate) fn shard_of(&self, receipt: &Receipt) -> usize {
        self.partition_of(receipt.partition).shard
    }

    /// The receipt is made from registers where the message takes the short path: one that is
    /// copied is read from memory right behind the stores of the record, and waits there for all of
    /// them.
    #[inline(always)]
    fn publish_one<'p>(
        &self,
        message: &NewMessage<'_>,
        patience: impl FnOnce() -> Patience<'p>,
    ) -> Result<Receipt, PublishError> {
        let layout = self.check(message)?;
        let partition = self.entry.partition(message.key);
        let shard = &self.engine.shards[partition.shard];
        // Not through a closure: what it captures, and what it returns, would go through memory.
        if let Some(mut core) = shard.baton.enter()
            && let Some((offset, outcome)) = core.append_one(partition, message, layout)
        {
            return Ok(self.receipt(partition, offset, outcome));
        }
        // Made only here: it is not looked at before.
        self.publish_as_holder(partition, message, layout, patience())
    }

    /// The rest of [`publish_one`](Self::publish_one), where the baton is not biased to this thread,
    /// or there is something special about the message.
    #[cold]
    #[inline(never)]
    fn publish_as_holder(
        &self,
        partition: &Partition,
        message: &NewMessage<'_>,
        layout: Layout,
        patience: Patience<'_>,
    ) -> Result<Receipt, PublishError> {
        let alone = slice::from_ref(message);
        let messages = Batch::of(&alone);
        let work = |core: &mut Core| core.append_specially(partition, message, layout);
        let baton = &self.engine.shards[partition.shard].baton;
        let mut appended = match patience {
            Patience::Until(_) => baton.run(work),
            Patience::None => baton.try_run(work).map_err(|_| PublishError::WouldBlock)?,
        };
        if appended.stop.is_some() {
            let mut total = BatchReceipt::default();
            appended = self.wait_and_append(partition, messages, patience, appended, &mut total)?;
        }
        match patience {
            Patience::Until(_) => self.committed(partition, appended),
            // It does not wait for the disk either.
            Patience::None => self.receipt_of(partition, appended),
        }
    }

    #[inline(always)]
    pub(crate) fn check(&self, message: &NewMessage<'_>) -> Result<Layout, PublishError> {
        self.engine.check()?;
        Ok(message.layout(&self.engine.limits)?)
    }

    fn batch(
        &self,
        messages: Batch<'_>,
        patience: Patience<'_>,
    ) -> Result<BatchReceipt, BatchError> {
        let mut total = BatchReceipt::default();
        let failed = |receipt, reason| BatchError { receipt, reason };
        self.engine.check().map_err(|reason| failed(total, reason))?;
        messages.check(&self.engine.limits).map_err(|invalid| failed(total, invalid.into()))?;
        let mut rest = messages;
        // A bit for each shard that was published to.
        let mut shards = 0_u64;
        while let Some(first) = rest.first() {
            let partition = self.entry.partition(first.key);
            shards |= 1 << partition.shard;
            // With several partitions, each message finds its own.
            let run = if self.entry.partitions.len() == 1 { rest } else { rest.take(1) };
            let appended = self
                .append(partition, run, patience, &mut Waits::default())
                .map_err(|reason| failed(total, reason))?;
            if appended.stop.is_none() {
                total.add(partition.id, &appended);
            } else {
                let mut part = total;
                let result = self.wait_and_append(partition, run, patience, appended, &mut part);
                total = part;
                result.map_err(|reason| failed(total, reason))?;
            }
            rest = rest.skip(run.len());
        }
        if total.duplicates > 0 {
            // Where those were that they repeat, is not kept.
            shards = self.entry.partitions.iter().fold(shards, |all, other| all | 1 << other.shard);
        }
        if self.engine.store.is_some() && matches!(patience, Patience::Until(_)) {
            let mut all = true;
            while shards != 0 {
                let durable = self.engine.commit(shards.trailing_zeros() as usize);
                all &= durable.map_err(|reason| failed(total, reason))?;
                shards &= shards - 1;
            }
            total.durable = all;
        }
        Ok(total)
    }

    #[inline]
    fn append(
        &self,
        partition: &Partition,
        messages: Batch<'_>,
        patience: Patience<'_>,
        waits: &mut Waits,
    ) -> Result<Appended, PublishError> {
        let baton = &self.engine.shards[partition.shard].baton;
        match patience {
            Patience::Until(_) => {
                Ok(baton.run(|core| core.append_once(partition, messages, waits)))
            }
            Patience::None => baton
                .try_run(|core| core.append_once(partition, messages, waits))
                .map_err(|_| PublishError::WouldBlock),
        }
    }

    /// Goes on after `appended` has stopped: waits where that can help, and adds up what is
    /// published in `total`. Returns the last append, which stopped if the last message was published
    /// before.
    #[cold]
    fn wait_and_append(
        &self,
        partition: &Partition,
        messages: Batch<'_>,
        patience: Patience<'_>,
        mut appended: Appended,
        total: &mut BatchReceipt,
    ) -> Result<Appended, PublishError> {
        let mut rest = messages;
        let mut waits = Waits::default();
        loop {
            total.add(partition.id, &appended);
            rest = rest.skip(appended.count);
            if appended.count > 0 {
                waits.end();
            }
            match appended.stop.take() {
                None => return Ok(appended),
                Some(Stop::Blocked(inbox, lane)) => {
                    let Patience::Until(limit) = patience else {
                        return Err(PublishError::WouldBlock);
                    };
                    // Else the next look, with the time, notes all that are to be waited for.
                    if let Some(since) = waits.since(&inbox) {
                        self.wait_for_room(&inbox, &lane, since, limit)?;
                    }
                }
                Some(Stop::Pending(before)) if matches!(patience, Patience::Until(_)) => {
                    partition.wait_for_pending(before);
                }
                Some(stop) => {
                    let earlier = stop.earlier()?;
                    total.add_duplicate();
                    rest = rest.skip(1);
                    waits.end();
                    if rest.is_empty() {
                        return Ok(Appended { stop: Some(Stop::Duplicate(earlier)), ..appended });
                    }
                }
            }
            waits.now = self.engine.clock.now();
            appended = self.append(partition, rest, patience, &mut waits)?;
        }
    }

    /// Waits until `lane` has room, has ended, or it is time to drop for it; an error if it is
    /// time to give up.
    fn wait_for_room(
        &self,
        inbox: &Inbox,
        lane: &Lane,
        since: Duration,
        limit: Limit<'_>,
    ) -> Result<(), PublishError> {
        let ended = || inbox.state() != InboxState::Open || self.engine.is_closed();
        let over = || !lane.is_full() || ended();
        // Longer and longer pauses, some 60 us in all. As long as the consumer is at work it is left
        // alone until there is room for a good many messages: coming back for every few of them
        // slows it down.
        let mut before = lane.depth();
        for pause in [16, 32, 64, 128, 256, 512, 512, 512, 1024, 1024, 1024, 1024, 1024] {
            spin_for(pause);
            let depth = lane.depth();
            let has_room = if depth < before { lane.has_much_room() } else { !lane.is_full() };
            if has_room || ended() {
                return Ok(());
            }
            before = depth;
        }
        for _ in 0..4 {
            yield_now();
            if over() {
                return Ok(());
            }
        }
        let patience = match inbox.overflow {
            Overflow::Block { timeout } => timeout.map(|most| since.saturating_add(most)),
            _ => None,
        };
        let me = current_thread().id();
        let until = [patience, limit.deadline].into_iter().flatten().min();
        loop {
            let now = self.engine.clock.now();
            if patience.is_some_and(|patience| now >= patience) {
                return Ok(());
            }
            if limit.deadline.is_some_and(|deadline| now >= deadline) {
                return Err(PublishError::Timeout);
            }
            let ask = limit.go_on.map(|_| now.saturating_add(ASK_EVERY));
            let until = [until, ask].into_iter().flatten().min();
            inbox.space.prepare(Waiter::this_thread());
            let done = over();
            if !done {
                self.engine.clock.park_until(until);
            }
            inbox.space.cancel(|waiter| matches!(waiter, Waiter::Thread(t) if t.id() == me));
            if done || over() {
                return Ok(());
            }
            if limit.go_on.is_some_and(|go_on| !go_on()) {
                return Err(PublishError::Timeout);
            }
        }
    }

    #[inline(always)]
    fn receipt(&self, partition: &Partition, offset: u64, outcome: Outcome) -> Receipt {
        Receipt {
            partition: partition.id,
            offset,
            durable: false,
            duplicate: false,
            matched: outcome.matched,
            enqueued: outcome.enqueued,
            dropped: outcome.dropped,
            store: self.engine.context.store,
        }
    }
}

/// Space for a payload in the memory of the log. See [`Topic::loan`].
pub struct Loan {
    pub(crate) topic: Topic,
    pub(crate) index: usize,
    pub(crate) claim: Claim,
    /// Offset of the payload in the claim.
    payload: usize,
    bytes: usize,
}

impl Loan {
    /// Publishes the message. It is read where it was written; nothing is copied.
    ///
    /// # Errors
    /// With the loan given back, so that it can be committed again, where nothing was published.
    pub fn commit(self) -> Result<Receipt, CommitError> {
        self.commit_within(Limit::NONE)
    }

    /// The same, with the limits of [`Topic::publish_while`].
    ///
    /// # Errors
    /// As [`commit`](Self::commit), with [`PublishError::Timeout`] among the reasons.
    pub fn commit_while(
        self,
        timeout: Option<Duration>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Receipt, CommitError> {
        let limit = self.topic.limit(timeout, go_on);
        self.commit_within(limit)
    }

    fn commit_within(self, limit: Limit<'_>) -> Result<Receipt, CommitError> {
        let partition = &self.topic.entry.partitions[self.index];
        let engine = &self.topic.engine;
        if let Err(reason) = engine.check() {
            return Err(CommitError { reason, loan: Some(self) });
        }
        let append = |core: &mut Core, waits: &mut Waits| {
            core.append_claim_once(partition, &self.claim, waits)
        };
        let appended = self.topic.wait_for_append(partition, limit, append);
        let receipt = appended.and_then(|appended| self.topic.receipt_of(partition, appended));
        match receipt {
            Err(reason) => Err(CommitError { reason, loan: Some(self) }),
            // Whoever reads the log has it by now: it may not be written to any more.
            Ok(receipt) => match engine.commit(self.topic.shard_of(&receipt)) {
                Ok(durable) => Ok(Receipt { durable, ..receipt }),
                Err(reason) => Err(CommitError { reason, loan: None }),
            },
        }
    }
}

impl Deref for Loan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.claim.bytes_at(self.payload, self.bytes)
    }
}

impl DerefMut for Loan {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.claim.bytes_at_mut(self.payload, self.bytes)
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan")
            .field("topic", &self.topic.name())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// A loan that could not be committed.
#[derive(Debug)]
pub struct CommitError {
    /// Why not.
    pub reason: PublishError,
    /// The loan, unharmed. `None` where the message was published, and what failed is to make it
    /// survive: nobody knows whether it does.
    pub loan: Option<Loan>,
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for CommitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}
