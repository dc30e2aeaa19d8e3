//! The archive: what a broker keeps in its directory beside messages, and how that is found again.
//!
//! Three things are kept, each in its own way: messages in the store, topics and subscriptions in the
//! metadata, what subscriptions have settled in the cursor journal. They are written one after the
//! other in an order in which any crash in between leaves something whole:
//!
//! - a topic is in the metadata before it has a message;
//! - a subscription's cursors are in the journal before it is in the metadata: cursors of nobody are
//!   forgotten when the archive is opened;
//! - a message is in the store before it is shown, so before it can be settled. A power cut may take
//!   the message and leave what settled it: what a cursor says of sequences that the store does not
//!   have is forgotten as well, before they are given away again.

use crate::error::{ConfigError, StoreFault};
use crate::fs::{Fs, FsLock};
use crate::kind::{ErrorKind, Kind};
use crate::ledger::Position;
use crate::outage::Outage;
use crate::store::cursor::{
    Cursor, CursorChange, CursorDelta, CursorKey, MAX_ATTEMPTS, MAX_WINDOW,
};
use crate::store::cursor_journal::{
    CursorJournal, IfDamaged, IfMissing, JournalError, JournalOptions, Staged,
};
use crate::store::meta::{Change, Contents, NextIds, SubscriptionRecord, TopicRecord};
use crate::store::meta_db::{MetaError, Metadata};
use crate::store::{MessageStore, OnDamage, Records, StoreError, StoredRecord};
use crate::sync::Arc;
use roaring::RoaringTreemap;
use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Set in the number of a cursor that is no subscription's, but tells which dead letters of a
/// partition have been cleared.
const CLEARED: u64 = 1 << 63;

/// Changes of cursors after which all of them are written anew.
const SNAPSHOT_CHANGES: u64 = 1 << 14;
/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// How long messages may stay that are too old, by the broker's clock.
const RETENTION: Duration = Duration::from_secs(5);

/// See the module's head.
pub(crate) struct Archive {
    pub(crate) store: Arc<dyn MessageStore>,
    metadata: Metadata,
    journal: CursorJournal,
    /// Whether the process before has come to its end in order.
    pub(crate) was_closed: bool,
    /// Held by whoever moves cursors elsewhere than on, and while they are moved on. Taken before
    /// the control mutex.
    moving: Mutex<()>,
    /// When messages were last let go.
    retained_at: Mutex<Option<Duration>>,
    /// On the directory, where the store has none.
    lock: Mutex<Option<Box<dyn FsLock>>>,
    /// While topics and subscriptions cannot be changed, cursors not be noted, and messages not be
    /// let go.
    changing: Outage,
    noting: Outage,
    pub(crate) retaining: Outage,
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Archive {
    /// Opens what is beside `store`, whose number is `id` (0 if it has none), in a directory that is
    /// locked; makes it if the store is new.
    ///
    /// # Errors
    /// What is missing or damaged. Nothing was changed then that was acknowledged.
    pub(crate) fn open(
        fs: Arc<dyn Fs>,
        store: Arc<dyn MessageStore>,
        id: u128,
        lock: Option<Box<dyn FsLock>>,
        on_damage: OnDamage,
    ) -> Result<Self, StoreError> {
        let metadata = match Metadata::open(Arc::clone(&fs)) {
            Err(MetaError::Missing) => {
                if has_records(&*store)? {
                    return Err(MetaError::Missing.into());
                }
                Metadata::create(Arc::clone(&fs), if id == 0 { random() } else { id })?
            }
            opened => opened?,
        };
        let contents = metadata.contents();
        if id != 0 && contents.store != id {
            return Err(StoreError::Incompatible("its metadata is of another store".into()));
        }
        let options = JournalOptions {
            if_missing: if contents.is_ready { IfMissing::Refuse } else { IfMissing::Create },
            if_damaged: match on_damage {
                OnDamage::Refuse => IfDamaged::Refuse,
                OnDamage::Skip => IfDamaged::KeepValid,
            },
            // Suspects come with two changes each: their bytes say when it is time.
            snapshot_changes: SNAPSHOT_CHANGES,
            ..JournalOptions::default()
        };
        let (journal, report) = CursorJournal::open(fs, contents.store, options)?;
        if report.damaged.is_some() {
            tracing::error!(?report, "what was settled last may be delivered again");
        }
        if !contents.is_ready {
            metadata.commit(&[Change::Ready])?;
        }
        let archive = Self {
            store,
            metadata,
            journal,
            was_closed: report.was_closed,
            moving: Mutex::default(),
            retained_at: Mutex::default(),
            lock: Mutex::new(lock),
            changing: Outage::default(),
            noting: Outage::default(),
            retaining: Outage::default(),
        };
        archive.forget_what_is_gone(&contents)?;
        Ok(archive)
    }

    /// Forgets cursors of nobody, and what others say of sequences that the store does not have.
    fn forget_what_is_gone(&self, contents: &Contents) -> Result<(), StoreError> {
        let shards = self.store.shards();
        let ends = (0..shards).map(|shard| Ok(self.store.bounds(shard)?.end));
        let ends = ends.collect::<Result<Vec<_>, StoreError>>()?;
        let known: HashSet<u64> = contents.subscriptions.values().map(|record| record.id).collect();
        let mut last = None;
        for key in self.journal.keys().into_iter().filter(|key| key.subscription & CLEARED == 0) {
            let change = match ends.get(key.shard as usize) {
                Some(&end) if known.contains(&key.subscription) => {
                    let short = |cursor: Option<&Cursor>| below(cursor?, end);
                    match self.journal.look(key, short) {
                        Some(cursor) => CursorChange::Replace(cursor),
                        None => continue,
                    }
                }
                _ => CursorChange::Forget,
            };
            last = Some(self.journal.stage(key, &change)?);
        }
        last.map_or(Ok(()), |last| Ok(self.journal.commit(last)?))
    }

    /// Calls `see` with each record of `shard` that was published at `from_us` or later, in order.
    /// What is damaged is passed over.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) fn for_each_since(
        &self,
        shard: usize,
        from_us: u64,
        mut see: impl FnMut(StoredRecord<'_>),
    ) -> Result<(), StoreError> {
        let end = self.store.bounds(shard)?.end;
        let mut next = self.store.sequence_at(shard, from_us)?;
        let mut records = Records::new();
        while next < end {
            let read = self.store.read(shard, next..end, READ_BYTES, &mut records);
            let behind = match read {
                Ok(()) => {
                    records.iter().for_each(|(_, record)| see(record));
                    records.next()
                }
                Err(StoreError::Expired { low }) => low,
                Err(StoreError::Damaged(damage)) => {
                    tracing::error!(shard, %damage, "ids that were published may not be known");
                    damage.resume.unwrap_or(end)
                }
                Err(error) => return Err(error),
            };
            next = behind.max(next + 1);
        }
        Ok(())
    }

    /// Topics and subscriptions.
    pub(crate) fn contents(&self) -> Contents {
        self.metadata.contents()
    }

    /// Numbers for what is new.
    pub(crate) fn next_ids(&self) -> NextIds {
        self.metadata.next_ids()
    }

    /// The subscription `name`, as it was written down.
    pub(crate) fn subscription(&self, name: &str) -> Option<SubscriptionRecord> {
        self.metadata.subscription(name)
    }

    /// The topic `name`, as it was written down.
    pub(crate) fn topic(&self, name: &str) -> Option<TopicRecord> {
        self.metadata.topic(name)
    }

    /// As [`change`](Self::change), for whoever is told everything.
    pub(crate) fn commit(&self, changes: &[Change]) -> Result<(), StoreError> {
        Ok(self.metadata.commit(changes)?)
    }

    /// Changes topics and subscriptions; durable when it returns, which takes some syncs.
    pub(crate) fn change(&self, changes: &[Change]) -> Result<(), StoreFault> {
        let changed = self.metadata.commit(changes).map_err(StoreError::from);
        told(&self.changing, "topics and subscriptions", changed)
    }

    /// Whether it is time to let go what is too old; asked at `now`, it is not again for a while.
    pub(crate) fn retention_is_due(&self, now: Duration) -> bool {
        let mut retained_at = self.retained_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = retained_at.is_none_or(|at| now >= at + RETENTION);
        if is_due {
            *retained_at = Some(now);
        }
        is_due
    }

    /// Nobody else moves cursors as long as the guard lives.
    pub(crate) fn moving(&self) -> MutexGuard<'_, ()> {
        // It guards nothing that could be left half done.
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the subscription of this number has settled, by shard. A shard that was never noted
    /// begins at `unknown`.
    pub(crate) fn positions(
        &self,
        subscription: u64,
        unknown: impl Fn(usize) -> u64,
    ) -> Vec<Position> {
        let position = |shard: usize| {
            let key = CursorKey { subscription, shard: shard as u32 };
            match self.journal.cursor(key) {
                Some(cursor) => Position {
                    floor: cursor.floor(),
                    settled: cursor.settled().clone(),
                    attempts: cursor.attempts().clone(),
                },
                None => Position { floor: unknown(shard), ..Position::default() },
            }
        };
        (0..self.store.shards()).map(position).collect()
    }

    /// The subscription has settled what is below `floors`, by shard, and nothing else: durable when
    /// it returns. The caller keeps others from moving it.
    pub(crate) fn place(&self, subscription: u64, floors: &[u64]) -> Result<(), StoreFault> {
        let before = (0..self.store.shards())
            .map(|shard| self.journal.cursor(CursorKey { subscription, shard: shard as u32 }));
        let before: Vec<_> = before.collect();
        self.stage_all(subscription, |shard| CursorChange::Replace(Cursor::new(floors[shard])))
            .inspect_err(|_| {
                // What was staged is written sometime, and so is that it does not hold.
                let _ = self.stage_all(subscription, |shard| match &before[shard] {
                    Some(cursor) => CursorChange::Replace(cursor.clone()),
                    None => CursorChange::Forget,
                });
            })
    }

    /// The subscription is no more.
    pub(crate) fn forget(&self, subscription: u64) -> Result<(), StoreFault> {
        self.stage_all(subscription, |_| CursorChange::Forget)
    }

    fn stage_all(
        &self,
        subscription: u64,
        change: impl Fn(usize) -> CursorChange,
    ) -> Result<(), StoreFault> {
        let mut last = Ok(None);
        for shard in 0..self.store.shards() {
            let key = CursorKey { subscription, shard: shard as u32 };
            last = last.and_then(|_| self.journal.stage(key, &change(shard)).map(Some));
        }
        let staged = last
            .and_then(|last| last.map_or(Ok(()), |last| self.journal.commit(last)))
            .map_err(StoreError::from);
        told(&self.noting, NOTES, staged)
    }

    /// Moves the cursor of a subscription on to `position`, in memory. False if there was no room
    /// for all its attempts. Takes time for what has changed, and for a bit of each message between
    /// the first and the last that is not settled.
    pub(crate) fn advance(
        &self,
        subscription: u64,
        shard: usize,
        position: Position,
    ) -> Result<bool, StoreFault> {
        let key = CursorKey { subscription, shard: shard as u32 };
        let (delta, is_all) = self.journal.look(key, |cursor| match cursor {
            Some(cursor) => delta(cursor, position),
            None => (None, true),
        });
        let Some(delta) = delta else { return Ok(is_all) };
        let staged = self.journal.stage(key, &CursorChange::Advance(delta));
        staged.map(|_| is_all).map_err(|error| self.unnoted(error.into()))
    }

    /// Notes more of a subscription, by shard; given to the operating system when it returns.
    pub(crate) fn note_at_once(
        &self,
        subscription: u64,
        notes: impl IntoIterator<Item = (usize, CursorDelta)>,
    ) -> Result<(), StoreFault> {
        let mut noted = Ok(Staged::default());
        for (shard, delta) in notes {
            let key = CursorKey { subscription, shard: shard as u32 };
            match self.journal.stage(key, &CursorChange::Advance(delta)) {
                // There is no such cursor any more, or it has no place for it.
                Err(JournalError::Refused(_)) => {}
                staged => noted = noted.and(staged),
            }
        }
        let noted = noted.and_then(|staged| self.journal.write(staged));
        noted.map_err(|error| self.unnoted(error.into()))
    }

    /// The dead letters that have been cleared, by partition.
    pub(crate) fn cleared(&self) -> impl Iterator<Item = (u32, Position)> {
        let cursors = self.journal.cursors().into_iter();
        cursors.filter(|(key, _)| key.subscription & CLEARED != 0).map(|(key, cursor)| {
            let settled = cursor.settled().clone();
            let position = Position { floor: cursor.floor(), settled, ..Position::default() };
            (key.subscription as u32, position)
        })
    }

    /// The dead letter at `offset` of `partition` has been cleared, of which all below `low` have
    /// expired; given to the operating system when it returns.
    pub(crate) fn clear(&self, partition: u32, offset: u64, low: u64) -> Result<(), StoreFault> {
        let key = CursorKey { subscription: CLEARED | u64::from(partition), shard: 0 };
        let begin = CursorChange::Replace(Cursor::new(0));
        let settled = RoaringTreemap::from_iter([offset]);
        let change =
            CursorChange::Advance(CursorDelta { floor: low, settled, ..CursorDelta::default() });
        let _moving = self.moving();
        let begun = match self.journal.cursor(key) {
            None => self.journal.stage(key, &begin).map(drop),
            Some(_) => Ok(()),
        };
        let cleared = begun
            .and_then(|()| self.journal.stage(key, &change))
            .and_then(|staged| self.journal.write(staged));
        told(&self.noting, NOTES, cleared.map_err(StoreError::from))
    }

    /// Gives all cursors to the operating system; with `durable`, makes them survive a power cut.
    pub(crate) fn write(&self, durable: bool) -> Result<(), StoreFault> {
        let last = self.journal.last();
        let written = if durable { self.journal.commit(last) } else { self.journal.write(last) };
        told(&self.noting, NOTES, written.map_err(StoreError::from))
    }

    fn unnoted(&self, error: StoreError) -> StoreFault {
        let fault = StoreFault::from(&error);
        let _ = told::<()>(&self.noting, NOTES, Err(error));
        fault
    }

    /// Makes everything durable and takes no more. Without `is_end` somebody still has messages, and
    /// the next opening takes it for a crash.
    pub(crate) fn close(&self, is_end: bool) -> Result<(), StoreFault> {
        // Both, also when one fails.
        let stored = self.store.close();
        let noted = if is_end { self.journal.close() } else { self.journal.stop() };
        let noted = noted.map_err(StoreError::from);
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        stored.and(noted).map_err(|error| {
            tracing::error!(%error, "the directory could not be closed in order");
            StoreFault::from(&error)
        })
    }
}

/// A number for a store that has none.
fn random() -> u128 {
    let half = || u128::from(RandomState::new().build_hasher().finish());
    (half() << 64 | half()).max(1)
}

/// What the journal has.
const NOTES: &str = "what was settled";

/// The fault that is told to callers. What is behind it goes to the log: once, and once more when it
/// is over.
fn told<T>(outage: &Outage, what: &str, done: Result<T, StoreError>) -> Result<T, StoreFault> {
    match &done {
        Ok(_) if outage.ends() => tracing::info!("{what} can be written down again"),
        Err(error) if outage.begins() => tracing::error!(%error, "{what} cannot be written down"),
        _ => {}
    }
    done.map_err(|error| StoreFault::from(&error))
}

fn has_records(store: &dyn MessageStore) -> Result<bool, StoreError> {
    for shard in 0..store.shards() {
        if store.bounds(shard)?.end > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What of `position` the `cursor` does not have, if anything, and whether that is all.
fn delta(cursor: &Cursor, position: Position) -> (Option<CursorDelta>, bool) {
    let Position { floor, mut settled, mut attempts } = position;
    settled -= cursor.settled();
    settled.remove_range(..cursor.floor());
    // What lies further up is not wanted (what was taken there is refused before), so it does no
    // harm to look at it again.
    let end = floor.max(cursor.floor()).saturating_add(MAX_WINDOW);
    settled.remove_range(end..);
    attempts.split_off(&end);
    attempts.retain(|sequence, next| cursor.attempts().get(sequence) != Some(next));
    let is_all = attempts.len() + cursor.attempts().len() <= MAX_ATTEMPTS;
    if !is_all {
        attempts.clear();
    }
    let is_new = floor > cursor.floor() || !settled.is_empty() || !attempts.is_empty();
    (is_new.then_some(CursorDelta { floor, settled, attempts }), is_all)
}

/// What `cursor` says of sequences below `end`; `None` if that is all it says.
fn below(cursor: &Cursor, end: u64) -> Option<Cursor> {
    let is_beyond = |last: Option<u64>| last.is_some_and(|last| last >= end);
    let attempts = cursor.attempts();
    if cursor.floor() <= end
        && !is_beyond(cursor.settled().max())
        && !is_beyond(attempts.last_key_value().map(|(sequence, _)| *sequence))
    {
        return None;
    }
    let mut settled = cursor.settled().clone();
    settled.remove_range(end..);
    let attempts = attempts.range(..end).map(|(&sequence, &attempt)| (sequence, attempt)).collect();
    let mut short = Cursor::new(cursor.floor().min(end));
    let kept = CursorDelta { floor: 0, settled, attempts };
    // What was within the limits is so with less above the same floor.
    let _ = short.advance(&kept);
    Some(short)
}

impl From<MetaError> for StoreError {
    fn from(error: MetaError) -> Self {
        match error {
            MetaError::Full => Self::Full,
            MetaError::Io(error) => Self::Io(error),
            MetaError::Poisoned(why) => Self::Poisoned(why),
            error => Self::Incompatible(error.to_string().into()),
        }
    }
}

impl From<JournalError> for StoreError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Full => Self::Full,
            JournalError::Io(error) => Self::Io(error),
            JournalError::Poisoned(why) => Self::Poisoned(why),
            JournalError::Closed => Self::Closed,
            error => Self::Incompatible(error.to_string().into()),
        }
    }
}

/// Why a directory could not be opened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting is wrong.
    Config(ConfigError),
    /// What is in the directory, or the directory itself.
    Store(StoreError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(error) => Some(error),
            Self::Store(error) => Some(error),
        }
    }
}

impl From<ConfigError> for OpenError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Kind for OpenError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Config(error) => error.kind(),
            Self::Store(StoreError::Full) => ErrorKind::Full,
            Self::Store(StoreError::Locked) => ErrorKind::Locked,
            Self::Store(StoreError::Damaged(_)) => ErrorKind::Damaged,
            Self::Store(StoreError::Incompatible(_)) => ErrorKind::Incompatible,
            Self::Store(_) => ErrorKind::Store,
        }
    }
}
