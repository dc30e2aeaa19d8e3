//! What makes a broker with a directory go on where it was: topics and subscriptions are found again,
//! new ones are written down, and so is what has been settled.

use crate::acks::Acks;
use crate::archive::Archive;
use crate::backoff::Backoff;
use crate::config::{DeliveryMode, Overflow, Start};
use crate::contain::contain;
use crate::dedup_window::{DedupLimits, Earlier};
use crate::error::{PublishError, StoreFault};
use crate::filter::Filter;
use crate::inbox::{Inbox, Queue};
use crate::interest::{Interest, Scan, Selector};
use crate::lane::Replay;
use crate::ledger::Position;
use crate::message::PartitionEntry;
use crate::publisher::TopicEntry;
use crate::registry::Registry;
use crate::shard::Partition;
use crate::store::meta::{
    Change, Contents, DeliveryRecord, PartitionRecord, SubscriptionRecord, TopicRecord,
};
use crate::store::{Retention, StoreError};
use crate::suspects::Suspects;
use crate::sync::{Arc, Ordering};
use crate::terms::Terms;
use crate::topic::Pattern;
use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

impl Registry {
    /// Makes the topics and subscriptions of `archive`, which the broker has just been opened with.
    ///
    /// # Errors
    /// What cannot be what was written.
    pub(crate) fn restore(self: &Arc<Self>, archive: &Arc<Archive>) -> Result<(), StoreError> {
        let contents = archive.contents();
        self.restore_topics(archive, &contents)?;
        // What had expired before has so again before anybody reads.
        if !contain(|| self.retain_when_due()) {
            // The store may be the user's. The keeper tries again.
            tracing::error!("the store panicked when it was to let messages go");
        }
        self.restore_windows(archive)?;
        for (partition, position) in archive.cleared() {
            self.cleared.restore(partition, position);
        }
        // Each opening is another epoch: earlier ack ids are stale from the start.
        let again = contents.subscriptions.iter().map(|(name, record)| {
            let epoch = record.epoch.wrapping_add(1).max(1);
            let record = SubscriptionRecord { epoch, ..record.clone() };
            (name.clone(), record)
        });
        let again: Vec<_> = again.collect();
        let changes: Vec<_> = again
            .iter()
            .map(|(name, record)| Change::PutSubscription(name.clone(), record.clone()))
            .collect();
        if !changes.is_empty() {
            archive.commit(&changes)?;
        }
        self.control().last_id = contents.next.subscription;
        let ends: Arc<[u64]> = self.engine.shards.iter().map(|shard| shard.log.head()).collect();
        let suspects = (!archive.was_closed).then(|| Suspects::new(archive, &ends));
        for (name, record) in &again {
            self.restore_subscription(archive, name, record, suspects.clone())?;
        }
        Ok(())
    }

    fn restore_topics(&self, archive: &Archive, contents: &Contents) -> Result<(), StoreError> {
        let wrong = |why: &str| StoreError::Incompatible(why.into());
        let shards = self.engine.shards.len();
        let mut names: Vec<Option<Arc<str>>> = vec![None; contents.next.partition as usize];
        for (name, record) in &contents.topics {
            let name: Arc<str> = name.as_str().into();
            for partition in &record.partitions {
                let known = names.get_mut(partition.id as usize);
                *known.ok_or_else(|| wrong("a partition has no number"))? = Some(Arc::clone(&name));
                if partition.shard as usize >= shards {
                    return Err(wrong("a partition is on no shard"));
                }
            }
        }
        for name in names {
            // Of a topic that was deleted, messages may still be in the store.
            let deleted = name.is_none();
            let topic = name.unwrap_or_else(|| "".into());
            self.engine.context.partitions.push(PartitionEntry::new(topic, deleted));
        }
        let mut next_offsets = HashMap::new();
        let mut first_offsets = Vec::new();
        for shard in 0..shards {
            first_offsets.push(archive.store.bounds(shard)?.first_offset);
            for bounds in archive.store.partitions(shard)? {
                next_offsets.insert(bounds.partition, bounds.next);
                if let Some(entry) = self.engine.context.partitions.get(bounds.partition as usize) {
                    // Relaxed: nobody else is there yet.
                    entry.low.store(bounds.low, Ordering::Relaxed);
                }
            }
        }
        let mut topics = self.topics_mut();
        for (name, record) in &contents.topics {
            let name: Arc<str> = name.as_str().into();
            let partitions = record.partitions.iter().map(|&PartitionRecord { id, shard }| {
                let shard = shard as usize;
                let partition = Partition::new(id, shard, Arc::clone(&name));
                let next = next_offsets.get(&id).copied().unwrap_or(first_offsets[shard]);
                partition.next_offset.set(next);
                partition
            });
            let retention = Retention {
                max_age_us: record.retention_ms.map(|ms| ms.saturating_mul(1000)),
                max_bytes: record.retention_bytes,
            };
            let entry = TopicEntry::new(Arc::clone(&name), partitions.collect(), retention);
            let most = |ids| usize::try_from(ids).unwrap_or(usize::MAX);
            entry.set_dedup(record.dedup_window_ms.map(|ms| DedupLimits {
                window_us: ms.saturating_mul(1000),
                most_ids: record.dedup_ids.map_or(usize::MAX, most),
            }));
            topics.insert(name, Arc::new(entry));
        }
        self.control().next_shard = contents.next.partition as usize % shards;
        Ok(())
    }

    /// Finds the ids that topics know again in what was published within their windows.
    ///
    /// # Errors
    /// When the store fails. What is damaged is passed over.
    fn restore_windows(&self, archive: &Archive) -> Result<(), StoreError> {
        let now_us = self.engine.clock.unix_us();
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        let mut from_us = vec![None; self.engine.shards.len()];
        let mut windows = HashMap::new();
        for topic in topics.values() {
            let Some(window) = topic.window() else { continue };
            let Some(limits) = window.lock().limits() else { continue };
            let since_us = now_us.saturating_sub(limits.window_us);
            for partition in &topic.partitions {
                let from_us = &mut from_us[partition.shard];
                *from_us = Some(from_us.map_or(since_us, |earliest: u64| earliest.min(since_us)));
                windows.insert(partition.id, (window, since_us));
            }
        }
        for (shard, from_us) in from_us.into_iter().enumerate() {
            let Some(from_us) = from_us else { continue };
            archive.for_each_since(shard, from_us, |record| {
                let window = windows.get(&record.partition());
                let window = window.filter(|(_, since_us)| record.published_us() >= *since_us);
                if let (Some((window, _)), Some(id)) = (window, record.id()) {
                    let place = Earlier { partition: record.partition(), offset: record.offset() };
                    window.lock().note(id, place, record.published_us());
                }
            })?;
        }
        topics
            .values()
            .filter_map(|topic| topic.window())
            .for_each(|window| window.lock().arrange());
        Ok(())
    }

    fn restore_subscription(
        self: &Arc<Self>,
        archive: &Archive,
        name: &str,
        record: &SubscriptionRecord,
        suspects: Option<Suspects>,
    ) -> Result<(), StoreError> {
        let wrong = || StoreError::Incompatible(format!("the subscription `{name}`").into());
        let patterns = record.patterns.iter().map(|text| Pattern::new(text));
        let patterns = patterns.collect::<Result<Vec<_>, _>>().map_err(|_| wrong())?;
        let filter =
            record.filter.as_deref().map(Filter::parse).transpose().map_err(|_| wrong())?;
        let (from_offset, from_us) = match record.start {
            Start::Offset(offset) => (offset, 0),
            Start::Time(us) => (0, us),
            _ => (0, 0),
        };
        let selector = filter.map(Selector::Expression);
        let inbox = Arc::new(Inbox::new(
            record.id,
            Some(name.into()),
            Interest::new(patterns, selector, from_offset, from_us),
            Queue {
                overflow: Overflow::DropNewest,
                delivery: DeliveryMode::AtLeastOnce,
                capacity: record.delivery.capacity as usize,
            },
            self.engine.shards.len(),
            self.engine.clock.unix_us(),
        ));
        let dead_letters = record.delivery.dead_letters.as_deref();
        let acks = self.settled_by(&inbox, terms_of(&record.delivery), dead_letters);
        let shards = &self.engine.shards;
        // A shard of which nothing was noted: nothing has come from it.
        let positions = archive.positions(record.id, |shard| shards[shard].log.head());
        acks.restore(positions, record.epoch, suspects);
        let replay = |cursor| Replay { cursor, scan: Scan::default() };
        let replays = acks.cursors().into_iter().map(replay).collect();
        let mut control = self.register(&inbox, None, Some(acks)).map_err(|_| wrong())?;
        if let Some(known) = control.subscriptions.get_mut(&record.id) {
            known.is_offline = true;
        }
        self.begin(control, &inbox, Some(replays));
        Ok(())
    }

    /// Writes a new topic down.
    pub(crate) fn keep_topic(
        &self,
        name: &str,
        partitions: &[(u32, usize)],
        retention: Retention,
        dedup: Option<DedupLimits>,
    ) -> Result<(), PublishError> {
        let Some(archive) = &self.archive else { return Ok(()) };
        let partitions = partitions.iter();
        let (retention_ms, retention_bytes) = record_of(retention);
        let (dedup_window_ms, dedup_ids) = dedup_record_of(dedup);
        let record = TopicRecord {
            id: archive.next_ids().topic,
            partitions: partitions
                .map(|&(id, shard)| PartitionRecord { id, shard: shard as u32 })
                .collect(),
            retention_ms,
            retention_bytes,
            priority: 0,
            dedup_window_ms,
            dedup_ids,
        };
        Ok(archive.change(&[Change::PutTopic(name.to_owned(), record)])?)
    }

    /// Writes down how long the messages of a topic are kept from now on, and which are known again.
    pub(crate) fn change_topic(
        &self,
        name: &str,
        retention: Retention,
        dedup: Option<DedupLimits>,
    ) -> Result<(), PublishError> {
        let Some(archive) = &self.archive else { return Ok(()) };
        let Some(record) = archive.topic(name) else { return Ok(()) };
        let (retention_ms, retention_bytes) = record_of(retention);
        let (dedup_window_ms, dedup_ids) = dedup_record_of(dedup);
        let record =
            TopicRecord { retention_ms, retention_bytes, dedup_window_ms, dedup_ids, ..record };
        Ok(archive.change(&[Change::PutTopic(name.to_owned(), record)])?)
    }

    /// Notes that there is no such topic any more.
    pub(crate) fn forget_topic(&self, name: &str) -> Result<(), PublishError> {
        let Some(archive) = &self.archive else { return Ok(()) };
        Ok(archive.change(&[Change::RemoveTopic(name.to_owned())])?)
    }

    /// Writes a new subscription down that begins at `floors`, by shard. Durable when it returns.
    pub(crate) fn keep_subscription(
        &self,
        acks: &Acks,
        name: &str,
        record: SubscriptionRecord,
        floors: &[u64],
    ) -> Result<(), StoreFault> {
        let Some(archive) = &self.archive else { return Ok(()) };
        let _moving = archive.moving();
        if !self.knows(&acks.inbox) {
            // Somebody has deleted it already.
            return Ok(());
        }
        archive.place(acks.number(), floors)?;
        let record = SubscriptionRecord { id: acks.number(), epoch: 0, ..record };
        archive.change(&[Change::PutSubscription(name.to_owned(), record)])
    }

    /// The subscription `name` goes on from `floors`, by shard, where it was told to begin at `start`.
    /// The caller keeps its cursors from moving.
    pub(crate) fn move_subscription(
        &self,
        acks: &Acks,
        name: &str,
        start: Start,
        floors: &[u64],
    ) -> Result<(), StoreFault> {
        let Some(archive) = &self.archive else { return Ok(()) };
        let before = archive.subscription(name);
        let put = |record: SubscriptionRecord| {
            archive.change(&[Change::PutSubscription(name.to_owned(), record)])
        };
        if let Some(record) = &before {
            put(SubscriptionRecord { start, ..record.clone() })?;
        }
        archive.place(acks.number(), floors).inspect_err(|_| {
            // It begins where it did before; what is told is the first failure.
            let _ = before.map(put);
        })
    }

    /// Nobody else writes down that a durable subscription comes, goes or moves as long as the guard
    /// lives. Taken before the control mutex.
    pub(crate) fn moving(&self) -> Option<MutexGuard<'_, ()>> {
        self.archive.as_deref().map(Archive::moving)
    }

    /// There is no subscription `name` any more. The caller holds [`moving`](Self::moving).
    pub(crate) fn forget_subscription(&self, name: &str, acks: &Acks) -> Result<(), StoreFault> {
        let Some(archive) = self.archive.as_ref().filter(|_| acks.is_durable()) else {
            return Ok(());
        };
        archive.change(&[Change::RemoveSubscription(name.to_owned())])?;
        if archive.forget(acks.number()).is_err() {
            // Whoever opens the directory forgets cursors of nobody: see `Archive::open`.
            tracing::warn!(name, "cursors of a deleted subscription stay until the next opening");
        }
        Ok(())
    }

    /// Writes down that the dead letter at `offset` of `partition` has been cleared.
    pub(crate) fn note_cleared(&self, (partition, offset): (u32, u64)) -> Result<(), PublishError> {
        let Some(archive) = &self.archive else { return Ok(()) };
        let entry = self.engine.context.partitions.get(partition as usize);
        // Relaxed: see `Record::has_expired`.
        let low = entry.map_or(0, |entry| entry.low.load(Ordering::Relaxed));
        Ok(archive.clear(partition, offset, low)?)
    }

    /// Writes down what has been settled. With `durable`, also what subscriptions that nothing has
    /// come for have let pass; and all of it survives a power cut. Failures are told to the log, and
    /// it is tried again.
    pub(crate) fn note_settled(&self, durable: bool) {
        let Some(archive) = &self.archive else { return };
        // The archive has told it.
        let _ = self.try_to_note_settled(archive, durable);
    }

    pub(crate) fn try_to_note_settled(
        &self,
        archive: &Archive,
        durable: bool,
    ) -> Result<(), StoreFault> {
        let moving = archive.moving();
        let mut noted = Ok(());
        for (acks, passed) in self.durable_subscriptions(durable) {
            let Some(positions) = acks.changes() else { continue };
            for (shard, position) in positions.into_iter().enumerate() {
                let passed = passed.get(shard).copied().flatten();
                let passed = passed.map(|floor| Position { floor, ..Position::default() });
                // Where nothing is for it any more, that says more than what it has settled.
                let Some(position) = passed.or(position) else { continue };
                let is_all = archive.advance(acks.number(), shard, position);
                if is_all != Ok(true) {
                    acks.change_all(shard);
                }
                // One that cannot be noted keeps no other from it.
                noted = noted.and(is_all.map(drop));
            }
        }
        drop(moving);
        archive.write(durable).and(noted)
    }

    /// The durable subscriptions of which something was settled; with `idle`, all of them, and for
    /// each shard the sequence below which it is known to have nothing to do.
    fn durable_subscriptions(&self, idle: bool) -> Vec<(Arc<Acks>, Vec<Option<u64>>)> {
        let control = self.control();
        let durable = control.subscriptions.values().filter_map(|known| {
            let acks = known.acks.as_ref().filter(|acks| acks.is_durable())?;
            let has_changed = acks.take_changed();
            if !idle {
                return has_changed.then(|| (Arc::clone(acks), Vec::new()));
            }
            // Asked first: a shard that has no lane afterwards has had nothing below for it.
            let passed = self.engine.shards.iter().enumerate().map(|(shard, of)| {
                let head = of.log.queued();
                match known.inbox.lane(shard) {
                    None => Some(head),
                    // Nobody takes anything meanwhile, as long as control is held.
                    Some(lane) if known.is_offline && lane.is_exhausted() && acks.is_quiet() => {
                        Some(head)
                    }
                    Some(_) => None,
                }
            });
            Some((Arc::clone(acks), passed.collect()))
        });
        durable.collect()
    }

    /// Lets go what is older than its topic wants it, unless that was done just now.
    pub(crate) fn retain_when_due(&self) {
        let Some(archive) = &self.archive else { return };
        if archive.retention_is_due(self.engine.clock.now()) {
            self.retain(archive);
        }
    }

    fn retain(&self, archive: &Archive) {
        let wanted = {
            let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
            // Under the lock: partitions have their numbers before their topic is among these.
            let count = self.engine.context.partitions.count();
            let mut wanted = vec![Retention::NOTHING; count];
            for entry in topics.values() {
                let of_topic = entry.retention();
                let count = entry.partitions.len() as u64;
                let max_bytes = of_topic.max_bytes.map(|bytes| bytes.div_ceil(count));
                for partition in &entry.partitions {
                    wanted[partition.id as usize] = Retention { max_bytes, ..of_topic };
                }
            }
            wanted
        };
        let now_us = self.engine.clock.unix_us();
        for (of, (_, entry)) in wanted.iter().zip(self.engine.context.partitions.iter()) {
            // Relaxed: see `Record::has_expired`.
            let from_us = of.max_age_us.map_or(0, |age| now_us.saturating_sub(age));
            entry.max_age_us.store(of.max_age_us.unwrap_or(u64::MAX), Ordering::Relaxed);
            entry.from_us.store(from_us, Ordering::Relaxed);
        }
        // One that is not known here yet has just been made.
        let wanted = |partition: u32| wanted.get(partition as usize).copied().unwrap_or_default();
        let mut has_failed = false;
        for (index, shard) in self.engine.shards.iter().enumerate() {
            match archive.store.retain(index, now_us, &wanted) {
                Ok(retained) => {
                    for (partition, low) in retained.lows {
                        if let Some(entry) = self.engine.context.partitions.get(partition as usize)
                        {
                            // Relaxed: see `Record::has_expired`.
                            entry.low.fetch_max(low, Ordering::Relaxed);
                        }
                    }
                    if let Some(backing) = shard.log.backing() {
                        backing.removed_below(retained.low);
                    }
                }
                Err(error) => {
                    has_failed = true;
                    if archive.retaining.begins() {
                        tracing::warn!(shard = index, %error, "messages cannot be let go");
                    }
                }
            }
        }
        if !has_failed && archive.retaining.ends() {
            tracing::info!("messages can be let go again");
        }
    }

    /// Writes everything down and lets the directory go; `is_end` as in [`Archive::close`].
    pub(crate) fn close_archive(&self, is_end: bool) -> Result<(), StoreFault> {
        let Some(archive) = &self.archive else { return Ok(()) };
        if let Some(keeper) = self.keeper.get() {
            keeper.stop();
        }
        for known in self.control().subscriptions.values() {
            // What is told as settled is settled before this, and so noted by what follows.
            known.acks.iter().filter(|acks| acks.is_durable()).for_each(|acks| acks.seal());
        }
        let noted = self.try_to_note_settled(archive, true);
        let closed = archive.close(is_end);
        noted.and(closed)
    }
}

/// Milliseconds and bytes, as they are written down.
fn record_of(retention: Retention) -> (Option<u64>, Option<u64>) {
    (retention.max_age_us.map(|us| us.div_ceil(1000)), retention.max_bytes)
}

/// Milliseconds and a number, likewise.
fn dedup_record_of(dedup: Option<DedupLimits>) -> (Option<u64>, Option<u64>) {
    let ids = dedup.filter(|limits| limits.most_ids < usize::MAX);
    (dedup.map(|limits| limits.window_us / 1000), ids.map(|limits| limits.most_ids as u64))
}

/// What is written down of how a subscription delivers.
pub(crate) fn delivery_record(
    terms: &Terms,
    capacity: usize,
    dead_letters: Option<&str>,
) -> DeliveryRecord {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (backoff_min, backoff_max, jitter) = terms.backoff.parts();
    DeliveryRecord {
        at_least_once: true,
        visibility_ms: ms(terms.visibility),
        max_attempts: terms.max_attempts,
        backoff_min_ms: ms(backoff_min),
        backoff_max_ms: ms(backoff_max),
        jitter,
        keys_wait: terms.keys_wait,
        dead_letters: dead_letters.map(str::to_owned),
        capacity: capacity as u64,
        outstanding: terms.max_outstanding as u64,
    }
}

fn terms_of(record: &DeliveryRecord) -> Terms {
    let ms = Duration::from_millis;
    let backoff = Backoff::new(ms(record.backoff_min_ms), ms(record.backoff_max_ms));
    Terms {
        visibility: ms(record.visibility_ms),
        max_attempts: record.max_attempts,
        backoff: if record.jitter { backoff.jitter() } else { backoff },
        max_outstanding: record.outstanding as usize,
        keys_wait: record.keys_wait,
        is_durable: true,
    }
}
