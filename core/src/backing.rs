//! What backs a shard's log where messages outlive the memory of the broker: its part of the store.
//!
//! Whoever holds the shard's baton appends to it before the log shows a record. So all that the log
//! has let go of is in the store; a reader that is behind takes it from there, into chunks of its own,
//! which are no part of the log's memory.

use crate::around::AroundWaits;
use crate::chunk::{CHUNK_BYTES, FIRST_RECORD, Pool};
use crate::error::StoreFault;
use crate::interest::Interest;
use crate::kept::KeptRecord;
use crate::message::{Context, Message, OwnedMessage};
use crate::outage::Outage;
use crate::store::{Group, MessageStore, Records, StoreError, StoredRecord};
use crate::sync::{Arc, AtomicU64, Ordering};
use std::collections::VecDeque;
use std::ops::Range;

/// Bytes of records that fit into one chunk.
const CHUNK_ROOM: usize = CHUNK_BYTES - FIRST_RECORD;

/// Bytes that a reader takes at a time. A batch of which only a part was read is read again, which of
/// less is more; of twice as much, a cold disk was read a quarter slower.
const READ_BYTES: usize = 2 * CHUNK_ROOM;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Backing {
    store: Arc<dyn MessageStore>,
    shard: usize,
    pool: Arc<Pool>,
    context: Arc<Context>,
    around_waits: AroundWaits,
    /// The oldest sequence that the store has: what is below was removed.
    low: AtomicU64,
    /// While nothing can be appended, or read.
    appending: Outage,
    reading: Outage,
}

/// Records that were read back, and not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Recalled {
    ready: VecDeque<(u64, KeptRecord)>,
    /// Where to read on: between the last record and this there is nothing.
    next: u64,
    /// How much of that was there, and is not any more. Sequences that a crash has left unused were
    /// nobody's.
    lost: u64,
    /// What is [left](Self::leave) from this sequence on is all there is.
    left_at: Option<u64>,
    buffer: Records,
}

/// What is at a sequence.
#[derive(Debug)]
pub(crate) enum Recall {
    Record(KeptRecord),
    /// Nothing any more, nor anywhere before this.
    Gone(u64),
}

impl Backing {
    /// The part of shard `shard`, as far as it goes back to `low`.
    pub(crate) fn new(
        store: Arc<dyn MessageStore>,
        shard: usize,
        low: u64,
        pool: &Arc<Pool>,
        context: &Arc<Context>,
        around_waits: &AroundWaits,
    ) -> Self {
        let (pool, context) = (Arc::clone(pool), Arc::clone(context));
        let (around_waits, low) = (around_waits.clone(), AtomicU64::new(low));
        let (appending, reading) = (Outage::default(), Outage::default());
        Self { store, shard, pool, context, around_waits, low, appending, reading }
    }

    /// The oldest sequence that can be read.
    #[inline]
    pub(crate) fn low(&self) -> u64 {
        // Relaxed: a read of what has been removed says so.
        self.low.load(Ordering::Relaxed)
    }

    /// The same, also where that has just been removed and was not [told](Self::removed_below).
    pub(crate) fn low_now(&self) -> u64 {
        if let Ok(bounds) = self.store.bounds(self.shard) {
            self.removed_below(bounds.low);
        }
        self.low()
    }

    /// What is below `low` has been removed.
    pub(crate) fn removed_below(&self, low: u64) {
        self.low.fetch_max(low, Ordering::Relaxed);
    }

    /// How many messages there can have been with these sequences.
    fn most_of(&self, sequences: Range<u64>) -> u64 {
        let all = sequences.end.saturating_sub(sequences.start);
        all.saturating_sub(self.store.given_up(self.shard, sequences).unwrap_or(0))
    }

    /// How many messages of topics that `interest` wants can have been among `sequences`, which
    /// are gone: no more than there were, nor more than have ever been removed.
    pub(crate) fn most_removed(
        &self,
        sequences: Range<u64>,
        interest: &Interest,
        context: &Context,
    ) -> u64 {
        let most = self.most_of(sequences);
        let Ok(partitions) = self.store.partitions(self.shard) else { return most };
        let wanted = partitions.iter().filter(|bounds| {
            let entry = context.partitions.get(bounds.partition as usize);
            entry.is_some_and(|entry| {
                !entry.deleted.load(Ordering::Relaxed) && interest.matches_topic(&entry.topic)
            })
        });
        most.min(wanted.map(|bounds| bounds.low).sum())
    }

    /// Stores the records in `bytes`, the first of which has the sequence `base_sequence`.
    pub(crate) fn append(&self, base_sequence: u64, bytes: &[u8]) -> Result<(), StoreFault> {
        let group = Group { base_sequence, parts: &[bytes] };
        match self.store.append(self.shard, &group) {
            Ok(()) => {
                if self.appending.ends() {
                    tracing::info!(shard = self.shard, "messages are stored again");
                }
                Ok(())
            }
            Err(error) => {
                if self.appending.begins() {
                    tracing::warn!(shard = self.shard, %error, "messages cannot be stored");
                }
                Err(StoreFault::from(&error))
            }
        }
    }

    /// The first sequence that was published at `time_us` or later.
    pub(crate) fn sequence_at(&self, time_us: u64) -> Result<u64, StoreError> {
        self.store.sequence_at(self.shard, time_us)
    }

    /// Reads records of `sequences`, from the first on, as many as fit into a few chunks.
    pub(crate) fn read(
        &self,
        sequences: Range<u64>,
        into: &mut Recalled,
    ) -> Result<(), StoreFault> {
        let Recalled { ready, next, lost, left_at, buffer } = into;
        ready.clear();
        *left_at = None;
        *lost = 0;
        let Range { start, end } = sequences;
        let read =
            self.around_waits.run(|| self.store.read(self.shard, sequences, READ_BYTES, buffer));
        let behind = match read {
            Ok(()) if !is_of(buffer, start..end) => {
                tracing::error!(shard = self.shard, "the store has read what was not asked for");
                return Err(StoreFault::Damaged);
            }
            Ok(()) => {
                if self.reading.ends() {
                    tracing::info!(shard = self.shard, "messages can be read again");
                }
                self.take(buffer, ready)?;
                buffer.next()
            }
            Err(StoreError::Expired { low }) => {
                self.removed_below(low);
                *lost = self.most_of(start..low.min(end));
                low
            }
            Err(StoreError::Damaged(damage)) => {
                // Told as a loss: what does not verify is never given out.
                tracing::error!(shard = self.shard, %damage, "messages cannot be read");
                let behind = damage.resume.unwrap_or(end).min(end);
                *lost = self.most_of(start..behind);
                behind
            }
            Err(error) => {
                if self.reading.begins() {
                    tracing::error!(shard = self.shard, %error, "messages cannot be read now");
                }
                return Err(StoreFault::from(&error));
            }
        };
        *next = behind.clamp(start + 1, end.max(start + 1));
        Ok(())
    }

    /// The messages of a partition with these offsets, in order. A few chunks of them are in memory at
    /// a time. Ends early where they cannot be read.
    pub(crate) fn messages_of<'a>(
        &'a self,
        partition: u32,
        offsets: Range<u64>,
        context: &'a Arc<Context>,
    ) -> impl Iterator<Item = OwnedMessage> + 'a {
        let (mut next, mut recalled) = (offsets.start, Recalled::default());
        std::iter::from_fn(move || {
            loop {
                if let Some((_, kept)) = recalled.ready.pop_front() {
                    let message = Message { record: kept.record(), context, lease: None };
                    return Some(message.keep());
                }
                let Recalled { ready, buffer, .. } = &mut recalled;
                if next >= offsets.end {
                    return None;
                }
                let offsets = next..offsets.end;
                let read =
                    self.store.read_partition(self.shard, partition, offsets, CHUNK_ROOM, buffer);
                match read {
                    Ok(()) if buffer.is_empty() => return None,
                    Ok(()) if buffer.next() <= next => return None,
                    Ok(()) => {
                        next = buffer.next();
                        self.take(buffer, ready).ok()?;
                    }
                    Err(StoreError::Expired { low }) if low > next => next = low,
                    Err(StoreError::Damaged(damage))
                        if damage.resume.is_some_and(|at| at > next) =>
                    {
                        next = damage.resume?;
                    }
                    Err(StoreError::Unknown) => return None,
                    Err(error) => {
                        tracing::error!(shard = self.shard, %error, "messages cannot be read");
                        return None;
                    }
                }
            }
        })
    }

    /// Moves what was read into chunks.
    fn take(
        &self,
        records: &Records,
        ready: &mut VecDeque<(u64, KeptRecord)>,
    ) -> Result<(), StoreFault> {
        // A store that is not ours may have any partition; one that is has no other.
        let known = |record: &StoredRecord<'_>| {
            (record.partition() as usize) < self.context.partitions.count()
        };
        let all: Vec<_> = records.iter().filter(|(_, record)| known(record)).collect();
        let mut rest = &all[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|(_, record)| {
                bytes += record.bytes().len();
                bytes <= CHUNK_ROOM
            });
            let (now, later) = rest.split_at(fits.count().max(1));
            let bytes = now.iter().map(|(_, record)| record.bytes());
            let Some(copies) = Pool::copies(&self.pool, bytes) else {
                return Err(StoreFault::NoMemory);
            };
            ready.extend(
                now.iter().zip(copies).map(|((sequence, _), at)| (*sequence, KeptRecord::of(at))),
            );
            rest = later;
        }
        Ok(())
    }
}

/// Whether a read of `sequences` can have read this: a store may be the user's.
fn is_of(records: &Records, sequences: Range<u64>) -> bool {
    let mut next = sequences.start;
    let in_order = records.iter().all(|(sequence, record)| {
        let is_next = sequence >= next && record.sequence_low() == sequence as u32;
        next = sequence.saturating_add(1);
        is_next
    });
    in_order && next <= sequences.end && records.next() >= next.max(sequences.start + 1)
}

impl Recalled {
    /// The record at `sequence`. Where it has not been read yet, reads from there on, up to `end` at
    /// most, for the calls that follow.
    pub(crate) fn take(
        &mut self,
        backing: &Backing,
        sequence: u64,
        end: u64,
    ) -> Result<Recall, StoreFault> {
        self.left_at = None;
        while self.ready.front().is_some_and(|(first, _)| *first < sequence) {
            self.ready.pop_front();
        }
        if self.ready.is_empty() || self.ready.front().is_some_and(|(first, _)| *first > sequence) {
            backing.read(sequence..end.max(sequence + 1), self)?;
        }
        match self.ready.pop_front() {
            Some((first, record)) if first == sequence => Ok(Recall::Record(record)),
            Some((first, record)) => {
                self.ready.push_front((first, record));
                Ok(Recall::Gone(first))
            }
            None => Ok(Recall::Gone(self.next)),
        }
    }

    /// All that was read, where to read on, and how much before that has been lost.
    pub(crate) fn take_all(&mut self) -> (VecDeque<(u64, KeptRecord)>, u64, u64) {
        (std::mem::take(&mut self.ready), self.next, std::mem::take(&mut self.lost))
    }

    /// Gives back what was taken and not used: all there is from the first of `records` to `next`.
    pub(crate) fn leave(&mut self, records: VecDeque<(u64, KeptRecord)>, next: u64) {
        self.left_at = records.front().map(|(first, _)| *first);
        (self.ready, self.next) = (records, next);
    }

    /// Whether what was left begins at `sequence`, and nothing else was read since.
    pub(crate) fn is_left_at(&self, sequence: u64) -> bool {
        self.left_at == Some(sequence)
    }
}
