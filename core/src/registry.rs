//! The registry: what a broker knows of its topics and subscriptions, and how they come and go.

use crate::acks::Acks;
use crate::archive::Archive;
use crate::backing::{Backing, Recalled};
use crate::clock::deadline_after;
use crate::config::{Start, TopicConfig};
use crate::dead_letter::{self, Cleared, DeadLetterTopic};
use crate::dedup_window::DedupLimits;
use crate::error::{ConfigError, PublishError, StoreFault, SubscribeError};
use crate::grace;
use crate::inbox::{Inbox, InboxState};
use crate::interest::{Interest, Scan, is_inside_filter};
use crate::keeper::Keeper;
use crate::kept::KeptRecord;
use crate::lane::Replay;
use crate::log::Log;
use crate::message::PartitionEntry;
use crate::publisher::{Engine, Topic, TopicEntry};
use crate::receiver::Receiver;
use crate::shard::{Partition, Routes, Shard};
use crate::snapshot::Snapshot;
use crate::store::Retention;
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::terms::Terms;
use crate::threads;
use crate::worker::{Task, Workers};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

/// Below this many patterns the routes are merged by whoever subscribes, above by a thread.
const MERGE_INLINE: usize = 1024;

/// Records that a search for the last ones reads in one go.
const LAST_BATCH: u64 = 256;

#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) engine: Arc<Engine>,
    pub(crate) routing: Arc<Snapshot<Routes>>,
    pub(crate) settings: Settings,
    pub(crate) topics: RwLock<BTreeMap<Arc<str>, Arc<TopicEntry>>>,
    /// Serialises subscribe, unsubscribe, create and delete.
    pub(crate) control: Mutex<Control>,
    pub(crate) workers: OnceLock<Arc<Workers>>,
    /// Whether a thread is merging the routes.
    pub(crate) merging: AtomicBool,
    pub(crate) cleared: Cleared,
    /// What outlives the process, if anything does.
    pub(crate) archive: Option<Arc<Archive>>,
    pub(crate) keeper: OnceLock<Keeper>,
}

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) auto_create: bool,
    pub(crate) topic: TopicConfig,
    pub(crate) workers: usize,
    pub(crate) pin_workers: Option<usize>,
}

#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(crate) last_id: u64,
    pub(crate) next_shard: usize,
    pub(crate) names: HashMap<Box<str>, u64>,
    pub(crate) subscriptions: HashMap<u64, Known>,
}

/// A subscription as the broker knows it.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) task: Option<Weak<Task>>,
    pub(crate) acks: Option<Arc<Acks>>,
    /// It has no consumer at the moment.
    pub(crate) is_offline: bool,
}

impl Control {
    /// The subscription `name`.
    pub(crate) fn find(&mut self, name: &str) -> Option<&mut Known> {
        self.subscriptions.get_mut(self.names.get(name)?)
    }

    /// Notes a subscription, also by its name.
    fn insert(&mut self, known: Known) {
        let Inbox { id, name, .. } = &*known.inbox;
        if let Some(name) = name {
            self.names.insert(name.clone(), *id);
        }
        self.subscriptions.insert(*id, known);
    }
}

/// What came of giving a subscription another inbox.
pub(crate) struct Succession {
    /// Of the next inbox.
    pub(crate) acks: Arc<Acks>,
    /// Who handled what came to the one before.
    pub(crate) before: Option<Weak<Task>>,
}

/// What [`Broker::close`](crate::Broker::close) left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// Messages that were queued for handlers and not handled in time. They are lost, but those of a
    /// named subscription in a directory, which come when that is opened again.
    pub unhandled: u64,
    /// Messages that are queued for subscriptions that are pulled. They can still be received, but
    /// those of a named subscription in a directory, which come when that is opened again.
    pub unreceived: u64,
    /// Messages that were delivered and are not settled: failed and waiting for another attempt, or
    /// not acknowledged yet. What has been received can still be acknowledged, but in a directory,
    /// which is let go: there it is delivered again when that is opened again.
    pub unsettled: u64,
    /// Whether a handler was still running. It runs to its end, and is then not called again.
    pub handler_running: bool,
    /// What kept the store from being closed in order. What was acknowledged is on the disk as far
    /// as the receipts said; what was settled last may be delivered again.
    pub store: Option<StoreFault>,
}

impl Registry {
    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        // No foreign code runs under this lock.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find_topic(&self, name: &str) -> Option<Arc<TopicEntry>> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        topics.get(name).cloned()
    }

    pub(crate) fn topics_mut(
        &self,
    ) -> impl std::ops::DerefMut<Target = BTreeMap<Arc<str>, Arc<TopicEntry>>> {
        self.topics.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The delivery workers, started if need be. Under the control mutex, so that a broker that
    /// closes meanwhile stops them.
    pub(crate) fn workers(&self) -> Result<Arc<Workers>, SubscribeError> {
        if self.engine.is_closed() {
            return Err(SubscribeError::Closed);
        }
        if let Some(workers) = self.workers.get() {
            return Ok(Arc::clone(workers));
        }
        let started = Workers::start(
            self.settings.workers,
            self.settings.pin_workers,
            self.engine.clock.clone(),
        )
        .map_err(|_| SubscribeError::NoThread)?;
        // Callers hold the control mutex: nobody else starts workers meanwhile.
        Ok(Arc::clone(self.workers.get_or_init(|| started)))
    }

    /// Puts the routes with `inbox`, and without `before`, in place.
    fn route(&self, inbox: &Arc<Inbox>, before: Option<&Inbox>) {
        let mut routes = Routes::clone(&self.routing.load());
        if let Some(before) = before {
            for pattern in &before.interest.patterns {
                routes = routes.remove(pattern, before.id);
            }
        }
        for pattern in &inbox.interest.patterns {
            routes = routes.insert(pattern, inbox.id, Arc::clone(inbox));
        }
        self.routing.store(Arc::new(routes));
    }

    /// The topic `name`, which may be the system's, with `partitions` partitions; made under the
    /// control mutex.
    pub(crate) fn make_topic(
        &self,
        control: &mut Control,
        name: &str,
        config: TopicConfig,
    ) -> Result<Arc<TopicEntry>, ConfigError> {
        let engine = &self.engine;
        if engine.is_closed() {
            return Err(PublishError::Closed.into());
        }
        if self.find_topic(name).is_some() {
            return Err(ConfigError::TopicExists);
        }
        let (partitions, retention) = (config.partitions, Retention::of(config));
        let dedup = DedupLimits::of(config);
        let first = engine.context.partitions.count();
        let shards = engine.shards.len();
        let place = |index| ((first + index) as u32, (control.next_shard + index) % shards);
        let places: Vec<_> = (0..partitions).map(place).collect();
        // Before anybody can publish to it.
        self.keep_topic(name, &places, retention, dedup)?;
        control.next_shard = (control.next_shard + partitions) % shards;
        let name: Arc<str> = name.into();
        let partitions = places.into_iter().map(|(id, shard)| {
            // Numbers are given under the control mutex alone, so it gets the one it was promised.
            engine.context.partitions.push(PartitionEntry::new(Arc::clone(&name), false));
            Partition::new(id, shard, Arc::clone(&name))
        });
        let partitions = partitions.collect();
        let entry = Arc::new(TopicEntry::new(Arc::clone(&name), partitions, retention));
        entry.set_dedup(dedup);
        self.topics_mut().insert(name, Arc::clone(&entry));
        Ok(entry)
    }

    /// The topic for dead letters named `name`, made if need be.
    pub(crate) fn dead_letter_topic(&self, name: &str) -> Result<Topic, PublishError> {
        let mut control = self.control();
        let entry = match self.find_topic(name) {
            Some(entry) => entry,
            // Under the control mutex nobody else is faster.
            None => match self.make_topic(&mut control, name, self.settings.topic.partitions(1)) {
                Ok(entry) => entry,
                Err(ConfigError::Unavailable(error)) => return Err(error),
                Err(_) => return Err(PublishError::Closed),
            },
        };
        Ok(Topic::new(Arc::clone(&self.engine), entry))
    }

    /// What settles the messages of `inbox`, whose dead letters go to `dead_letters` or to a topic of
    /// the subscription's own.
    pub(crate) fn settled_by(
        self: &Arc<Self>,
        inbox: &Arc<Inbox>,
        terms: Terms,
        dead_letters: Option<&str>,
    ) -> Arc<Acks> {
        let topic = dead_letters.map_or_else(|| dead_letter::default_topic(inbox), str::to_owned);
        let broker = Arc::downgrade(self);
        let name: Arc<str> = topic.into();
        let topic = Arc::clone(&name);
        let open = Arc::new(move || {
            let broker = broker.upgrade().ok_or(PublishError::Closed)?;
            broker.dead_letter_topic(&topic)
        });
        let dead_letters = DeadLetterTopic { name, open };
        Arc::new(Acks::new(Arc::clone(inbox), Arc::clone(&self.engine), terms, dead_letters))
    }

    /// Takes `inbox` out of the routes and out of what the broker knows.
    pub(crate) fn unroute(self: &Arc<Self>, inbox: &Inbox) {
        self.forget(self.control(), inbox.id);
    }

    /// The same under the control mutex; what was known. `None` if it has been done: then the name
    /// may be somebody else's by now.
    pub(crate) fn forget(
        self: &Arc<Self>,
        mut control: MutexGuard<'_, Control>,
        id: u64,
    ) -> Option<Known> {
        let known = control.subscriptions.remove(&id)?;
        let inbox = &known.inbox;
        let mut routes = Routes::clone(&self.routing.load());
        for pattern in &inbox.interest.patterns {
            routes = routes.remove(pattern, inbox.id);
        }
        self.routing.store(Arc::new(routes));
        if let Some(name) = &inbox.name {
            control.names.remove(name);
        }
        self.merge_routes(control);
        Some(known)
    }

    /// Merges the routes if there are many changes since the last time.
    fn merge_routes(self: &Arc<Self>, control: MutexGuard<'_, Control>) {
        let routes = self.routing.load();
        if !routes.needs_merge() {
            return;
        }
        if routes.len() < MERGE_INLINE {
            self.routing.store(Arc::new(routes.install(&routes.merge())));
            return;
        }
        drop(control);
        if self.merging.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = Arc::downgrade(self);
        let merge = move || {
            let merged = routes.merge();
            drop(routes);
            if let Some(inner) = inner.upgrade() {
                let control = inner.control();
                let now = inner.routing.load();
                inner.routing.store(Arc::new(now.install(&merged)));
                inner.merging.store(false, Ordering::Release);
                drop(control);
            }
        };
        if threads::spawn("slipring-routes".into(), merge).is_err() {
            // The next change tries again; until then routing is slower, not wrong.
            self.merging.store(false, Ordering::Release);
        }
    }

    pub(crate) fn close(&self, deadline: Duration) -> CloseReport {
        if is_inside_filter() {
            tracing::error!("a filter function may not close the broker: it stays open");
            return CloseReport::default();
        }
        if self.engine.generation.is_over() || self.engine.closed.swap(true, Ordering::AcqRel) {
            return CloseReport::default();
        }
        let deadline = deadline_after(deadline);
        for shard in &self.engine.shards {
            shard.baton.run(|core| core.close());
        }
        let (inboxes, tasks, acks): (Vec<_>, Vec<_>, Vec<_>) = {
            let control = self.control();
            let known = control.subscriptions.values();
            let tasks = known.clone().filter_map(|known| known.task.as_ref()?.upgrade());
            let pulled = known.clone().filter(|known| known.task.is_none());
            let acks = known.clone().filter_map(|known| known.acks.clone());
            let pulled = pulled.map(|known| Arc::clone(&known.inbox));
            (pulled.collect(), tasks.collect(), acks.collect())
        };
        for inbox in inboxes.iter().chain(tasks.iter().map(|task| &task.inbox)) {
            inbox.advance(InboxState::Closed);
            inbox.wake_all();
        }
        let mut report = CloseReport::default();
        if let Some(workers) = self.workers.get() {
            let others: Vec<_> = tasks.iter().filter(|task| !task.is_own_thread()).collect();
            workers.wait_until(deadline, |_| others.iter().all(|task| task.is_drained()));
            report.unhandled = tasks.iter().map(|task| task.inbox.depth()).sum();
            for task in &tasks {
                task.inbox.advance(InboxState::Ended);
                task.inbox.wake_all();
            }
            for task in &tasks {
                report.handler_running |= !task.end(Some(deadline)) || task.is_own_thread();
            }
            report.handler_running |= !workers.stop(deadline);
        }
        report.unreceived = inboxes.iter().map(|inbox| inbox.depth()).sum();
        report.unsettled = acks.iter().map(|acks| acks.unsettled()).sum();
        report.store = self.close_archive(!report.handler_running).err();
        tracing::info!(?report, "broker closed");
        report
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.close(Duration::ZERO);
    }
}

impl Registry {
    /// Notes a subscription, under the control mutex.
    pub(crate) fn register(
        &self,
        inbox: &Arc<Inbox>,
        task: Option<Weak<Task>>,
        acks: Option<Arc<Acks>>,
    ) -> Result<MutexGuard<'_, Control>, SubscribeError> {
        let mut control = self.control();
        if self.engine.is_closed() {
            return Err(SubscribeError::Closed);
        }
        if inbox.name.as_ref().is_some_and(|name| control.find(name).is_some()) {
            return Err(SubscribeError::NameInUse);
        }
        control.insert(Known { inbox: Arc::clone(inbox), task, acks, is_offline: false });
        Ok(control)
    }

    /// Notes who handles what comes for a subscription that was attached to. False if it has been
    /// taken over or deleted since, or the broker has closed: nobody would end the task.
    pub(crate) fn note_task(&self, task: &Arc<Task>) -> bool {
        let mut control = self.control();
        match control.subscriptions.get_mut(&task.inbox.id) {
            Some(known) if !self.engine.is_closed() => {
                known.task = Some(Arc::downgrade(task));
                true
            }
            _ => false,
        }
    }

    /// Whether `inbox` is in the place of its subscription.
    pub(crate) fn knows(&self, inbox: &Inbox) -> bool {
        self.control().subscriptions.contains_key(&inbox.id)
    }

    /// The number that the next subscription or inbox gets.
    pub(crate) fn next_id(&self) -> u64 {
        let mut control = self.control();
        control.last_id += 1;
        control.last_id
    }

    /// Gives a subscription that settles later another inbox: from where it was, or from `start`
    /// on. The old one gets nothing any more; whoever has it ends it. With `is_offline` the next
    /// one has no consumer until somebody opens it. `None` if the subscription is not there any
    /// more, or the broker has closed: nobody would close the next inbox.
    pub(crate) fn succeed(
        self: &Arc<Self>,
        inbox: &Arc<Inbox>,
        acks: &Acks,
        start: Option<Start>,
        is_offline: bool,
    ) -> Result<Option<Succession>, StoreFault> {
        let interest = match start {
            Some(start) => start.limit(&inbox.interest, self.engine.clock.unix_us()),
            None => inbox.interest.again(),
        };
        let next = Arc::new(inbox.again(self.next_id(), interest));
        // Asks the filter, so no lock is held.
        let replays = start.map(|start| self.replays(&next, start));
        // Held by everybody who gives it another inbox: what is written down is of the one that is
        // in its place.
        let moving = self.moving().filter(|_| acks.is_durable());
        if let (Some(_), Some(start), Some(name)) = (&moving, start, inbox.name.as_deref()) {
            if self.engine.is_closed() || !self.knows(inbox) {
                return Ok(None);
            }
            // Written down first: if that fails, nothing has changed.
            let floors = self.floors(replays.as_ref().and_then(Option::as_deref));
            self.move_subscription(acks, name, start, &floors)?;
        }
        let mut control = self.control();
        if self.engine.is_closed() {
            return Ok(None);
        }
        let Some(before) = control.subscriptions.remove(&inbox.id) else { return Ok(None) };
        // Heads first: a shard that has no lane afterwards has had nothing below for it.
        let heads: Vec<u64> = self.engine.shards.iter().map(|shard| shard.log.head()).collect();
        let left = acks.hand_over();
        let replays = replays.unwrap_or_else(|| {
            let cursor =
                |(shard, head): (usize, u64)| match (&left.ledgers[shard], inbox.lane(shard)) {
                    (Some(ledger), _) => ledger.next(),
                    (None, Some(lane)) => lane.origin,
                    (None, None) => head,
                };
            let cursors = heads.into_iter().enumerate().map(cursor);
            Some(cursors.map(|cursor| Replay { cursor, scan: Scan::default() }).collect())
        });
        let acks = Arc::new(acks.succeed_to(Arc::clone(&next), left, start.is_some()));
        control.insert(Known {
            inbox: Arc::clone(&next),
            task: None,
            acks: Some(Arc::clone(&acks)),
            is_offline,
        });
        self.begin_instead(control, &next, replays, Some(inbox));
        acks.note_unsettled();
        // Its consumer may keep it for as long as it likes.
        self.engine.silence(inbox);
        drop(moving);
        Ok(Some(Succession { acks, before: before.task }))
    }

    /// Where a subscription begins in each shard that begins with `replays`, or now.
    pub(crate) fn floors(&self, replays: Option<&[Replay]>) -> Vec<u64> {
        match replays {
            Some(replays) => replays.iter().map(|replay| replay.cursor).collect(),
            None => self.engine.shards.iter().map(|shard| shard.log.head()).collect(),
        }
    }

    /// Ends an inbox that has had no consumer, and has no place in the routes any more.
    pub(crate) fn end_offline(&self, inbox: &Arc<Inbox>) {
        inbox.advance(InboxState::Ended);
        Receiver::new(Arc::clone(inbox), Arc::clone(&self.engine)).discard();
    }

    /// The consumer of `inbox` is gone: a subscription that has a name and settles later goes on
    /// without one, any other ends.
    pub(crate) fn leave(self: &Arc<Self>, inbox: &Arc<Inbox>, acks: Option<&Acks>) {
        match acks.filter(|_| inbox.name.is_some()) {
            // Nothing is written down where it goes on where it was.
            Some(acks) if matches!(self.succeed(inbox, acks, None, true), Ok(Some(_))) => {}
            // The end of the broker is still to note what it has settled.
            Some(acks) if acks.is_durable() && self.engine.is_closed() => {}
            _ => self.unroute(inbox),
        }
    }

    /// Lets messages come, from `replays` on.
    pub(crate) fn begin(
        self: &Arc<Self>,
        control: MutexGuard<'_, Control>,
        inbox: &Arc<Inbox>,
        replays: Option<Vec<Replay>>,
    ) {
        self.begin_instead(control, inbox, replays, None);
    }

    /// The same, and no more to `before`.
    fn begin_instead(
        self: &Arc<Self>,
        control: MutexGuard<'_, Control>,
        inbox: &Arc<Inbox>,
        replays: Option<Vec<Replay>>,
        before: Option<&Inbox>,
    ) {
        match replays {
            None => self.route(inbox, before),
            // With all batons held, a message is either in the log before the subscription began,
            // or published with a route that has it: the counts are exact.
            Some(replays) => {
                let route = &mut || self.route(inbox, before);
                begin_replay(&self.engine.shards, &replays, inbox, route);
            }
        }
        self.merge_routes(control);
    }

    /// For each shard, where to begin reading its log; `None` to begin now. May ask the filter,
    /// which is foreign code: no lock is held.
    pub(crate) fn replays(&self, inbox: &Inbox, start: Start) -> Option<Vec<Replay>> {
        let shards = &self.engine.shards;
        let now_us = self.engine.clock.unix_us();
        let replay = |cursor| Replay { cursor, scan: Scan::since(now_us) };
        let from = |cursor: &dyn Fn(&Shard) -> u64| {
            Some(shards.iter().map(|shard| replay(cursor(shard))).collect())
        };
        match start {
            Start::Now => None,
            Start::Earliest | Start::Offset(_) => from(&|shard| oldest_of(&shard.log)),
            Start::Time(from_us) => from(&|shard| first_at(&shard.log, from_us)),
            Start::Last(count) => {
                // The last `count` of each shard, and of those the latest `count`. Where none of a
                // shard is among them, all is older that was there before the search began.
                let heads: Vec<u64> = shards.iter().map(|shard| shard.log.head()).collect();
                let mut last: Vec<(u64, usize, u64)> = heads
                    .iter()
                    .zip(shards)
                    .enumerate()
                    .flat_map(|(index, (&head, shard))| {
                        self.last_of_shard(inbox, index, shard, head, count)
                            .into_iter()
                            .map(move |(time, sequence)| (time, index, sequence))
                    })
                    .collect();
                last.sort_unstable();
                let mut cursors = heads;
                for &(_, index, sequence) in &last[last.len().saturating_sub(count)..] {
                    cursors[index] = cursors[index].min(sequence);
                }
                Some(cursors.into_iter().map(replay).collect())
            }
        }
    }

    /// Publish times and sequences of the last `count` records of `shard` before `head` that
    /// `inbox` wants, the latest first.
    ///
    /// Reads the log backwards, to where there can be no more: at most all that is retained.
    fn last_of_shard(
        &self,
        inbox: &Inbox,
        index: usize,
        shard: &Shard,
        head: u64,
        count: usize,
    ) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let mut left = self.offsets_left(inbox, index);
        let mut next = head;
        while found.len() < count && next > shard.log.oldest() && !left.is_empty() {
            let start = shard.log.oldest().max(next.saturating_sub(LAST_BATCH));
            let records = records_before(&shard.log, start, next);
            next = start;
            // Unpinned: while a filter runs, what others let go must not wait for it.
            for (sequence, kept) in records.into_iter().rev() {
                let record = kept.record();
                let Some(left_of_it) = left.get_mut(&record.partition()) else { continue };
                *left_of_it = record.offset();
                if record.offset() == 0 {
                    left.remove(&record.partition());
                }
                if found.len() < count && inbox.interest.selects(record, &self.engine.context) {
                    found.push((record.published_us(), sequence));
                }
            }
        }
        found
    }

    /// The partitions on shard `index` that `inbox` wants, each with how many messages it has had.
    fn offsets_left(&self, inbox: &Inbox, index: usize) -> HashMap<u32, u64> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        let wanted = topics.values().filter(|topic| inbox.interest.matches_topic(&topic.name));
        let partitions = wanted.flat_map(|topic| &topic.partitions);
        partitions
            .filter(|partition| partition.shard == index)
            .map(|partition| (partition.id, partition.next_offset.get()))
            .filter(|(_, published)| *published > 0)
            .collect()
    }
}

/// Records of `start..end` with their sequences, in order: those before the log's low end from what
/// backs it, or else those from there on.
fn records_before(log: &Log, start: u64, end: u64) -> Vec<(u64, KeptRecord)> {
    let low = log.low();
    if let Some(backing) = log.backing().filter(|_| start < low) {
        let (mut records, mut at, mut recalled) = (Vec::new(), start, Recalled::default());
        while at < end {
            if backing.read(at..end, &mut recalled).is_err() {
                break;
            }
            let (read, next, _) = recalled.take_all();
            records.extend(read);
            at = next;
        }
        return records;
    }
    let pinned = grace::pin();
    (start..end).filter_map(|sequence| Some((sequence, log.keep(sequence, &pinned)?))).collect()
}

/// Where a log begins for who has had nothing of it: what is gone already is no loss.
fn oldest_of(log: &Log) -> u64 {
    log.backing().map_or_else(|| log.low(), Backing::low_now)
}

/// The first sequence that was published at `time_us` or later.
fn first_at(log: &Log, time_us: u64) -> u64 {
    let first = log.first_where(|record| record.published_us() >= time_us);
    let Some(backing) = log.backing().filter(|_| first == log.low()) else { return first };
    // What cannot be read is told where it is received.
    backing.sequence_at(time_us).unwrap_or_else(|_| log.oldest())
}

/// Makes the lanes of `inbox` with all batons held, and then calls `publish_route`.
fn begin_replay(
    shards: &[Arc<Shard>],
    replays: &[Replay],
    inbox: &Arc<Inbox>,
    publish_route: &mut (dyn FnMut() + Send),
) {
    match (shards.split_first(), replays.split_first()) {
        (Some((shard, shards)), Some((replay, replays))) => shard.baton.run(|core| {
            core.begin_replay(inbox, replay.clone());
            begin_replay(shards, replays, inbox, publish_route);
        }),
        _ => publish_route(),
    }
}

impl Start {
    /// What of `interest` is wanted from here on, at the time `now_us`.
    pub(crate) fn limit(self, interest: &Interest, now_us: u64) -> Interest {
        let (from_offset, from_us) = self.limits(now_us);
        interest.starting_at(from_offset, from_us)
    }

    /// The least offset and time of what is wanted from here on.
    pub(crate) fn limits(self, now_us: u64) -> (u64, u64) {
        match self {
            Self::Offset(offset) => (offset, 0),
            // What is published from now on is not older.
            Self::Time(us) if us > now_us => (0, us),
            _ => (0, 0),
        }
    }
}
