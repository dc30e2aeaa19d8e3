//! A store in memory: the trait in its simplest form, for tests and for what need not last.

use super::error::StoreError;
use super::plan::{Group, Plan};
use super::record::StoredRecord;
use super::records::Records;
use super::retention::{Retained, Retention};
use super::{Bounds, MessageStore, PartitionBounds};
use crate::sync::Mutex;
use ahash::AHashMap;
use std::collections::VecDeque;
use std::ops::Range;

/// Messages in memory, each a copy of its own; they are gone with the store.
#[derive(Debug)]
pub struct MemoryStore {
    shards: Vec<Mutex<Shard>>,
    /// Bytes of records that a shard may hold.
    budget: usize,
}

#[derive(Debug, Default)]
struct Shard {
    low: u64,
    /// From `low` on; `None` where one has expired.
    records: VecDeque<Option<Box<[u8]>>>,
    partitions: AHashMap<u32, Partition>,
    bytes: usize,
    closed: bool,
}

#[derive(Debug, Default)]
struct Partition {
    /// The oldest offset.
    low: u64,
    next: u64,
    bytes: u64,
    /// Sequences of the offsets from `low` on.
    sequences: VecDeque<u64>,
}

impl MemoryStore {
    /// A store of `shards` shards that may hold `budget_bytes` of records together, shared evenly.
    pub fn new(shards: usize, budget_bytes: usize) -> Self {
        let budget = budget_bytes / shards.max(1);
        Self { shards: (0..shards).map(|_| Mutex::default()).collect(), budget }
    }

    fn shard(
        &self,
        shard: usize,
    ) -> Result<impl std::ops::DerefMut<Target = Shard> + use<'_>, StoreError> {
        let shard = self.shards.get(shard).ok_or(StoreError::Unknown)?;
        Ok(shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

impl Shard {
    fn end(&self) -> u64 {
        self.low + self.records.len() as u64
    }

    fn record(&self, sequence: u64) -> Option<StoredRecord<'_>> {
        let bytes = self.records[(sequence - self.low) as usize].as_deref()?;
        Some(StoredRecord::split_first(bytes).expect("whole when it was appended").0)
    }
}

impl Partition {
    fn oldest_len(&self, records: &VecDeque<Option<Box<[u8]>>>, low: u64) -> (u64, usize) {
        let bytes = self.sequences.front().and_then(|&at| records[(at - low) as usize].as_deref());
        let record = bytes.and_then(StoredRecord::split_first).map(|(record, _)| record);
        record.map_or((0, 0), |record| (record.published_us(), record.bytes().len()))
    }
}

impl MessageStore for MemoryStore {
    fn shards(&self) -> usize {
        self.shards.len()
    }

    fn append(&self, shard: usize, group: &Group<'_>) -> Result<(), StoreError> {
        let mut shard = self.shard(shard)?;
        if shard.closed {
            return Err(StoreError::Closed);
        }
        if group.base_sequence != shard.end() {
            return Err(StoreError::InvalidGroup("it does not begin where the log ends"));
        }
        let mut plan = Plan::default();
        plan.make(group, 0, 0)?;
        let mut nexts: AHashMap<u32, u64> = AHashMap::new();
        for touch in &plan.touches {
            let stored = shard.partitions.get(&touch.partition).map(|partition| partition.next);
            let next = nexts.get(&touch.partition).copied().or(stored);
            if next.is_some_and(|next| next != touch.first_offset) {
                return Err(StoreError::InvalidGroup("a record is of another offset"));
            }
            nexts.insert(touch.partition, touch.first_offset + u64::from(touch.count));
        }
        let bytes: usize = group.parts.iter().map(|part| part.len()).sum();
        if shard.bytes + bytes > self.budget {
            return Err(StoreError::Full);
        }
        let records = group.parts.iter().flat_map(|part| super::scan::records(part));
        for (sequence, record) in (group.base_sequence..).zip(records) {
            let partition = shard.partitions.entry(record.partition()).or_default();
            if partition.sequences.is_empty() {
                partition.low = record.offset();
            }
            partition.next = record.offset() + 1;
            partition.bytes += record.bytes().len() as u64;
            partition.sequences.push_back(sequence);
            shard.records.push_back(Some(record.bytes().into()));
        }
        shard.bytes += bytes;
        Ok(())
    }

    fn commit(&self, shard: usize, _upto: u64) -> Result<(), StoreError> {
        self.shard(shard).map(drop)
    }

    fn sync(&self, shard: usize, upto: u64) -> Result<u64, StoreError> {
        let end = self.shard(shard)?.end();
        Ok(upto.min(end).max(end))
    }

    fn bounds(&self, shard: usize) -> Result<Bounds, StoreError> {
        let shard = self.shard(shard)?;
        Ok(Bounds { low: shard.low, end: shard.end(), durable: shard.end(), first_offset: 0 })
    }

    fn partitions(&self, shard: usize) -> Result<Vec<PartitionBounds>, StoreError> {
        let shard = self.shard(shard)?;
        let bounds = shard.partitions.iter().map(|(&number, partition)| PartitionBounds {
            partition: number,
            low: partition.low,
            next: partition.next,
        });
        Ok(bounds.collect())
    }

    fn read(
        &self,
        shard: usize,
        sequences: Range<u64>,
        max_bytes: usize,
        into: &mut Records,
    ) -> Result<(), StoreError> {
        let shard = self.shard(shard)?;
        into.clear();
        if sequences.start < shard.low {
            return Err(StoreError::Expired { low: shard.low });
        }
        let mut next = sequences.start;
        let mut taken = 0;
        while next < sequences.end.min(shard.end()) && (taken == 0 || taken < max_bytes) {
            if let Some(record) = shard.record(next) {
                into.push(next, record);
                taken += record.bytes().len();
            }
            next += 1;
        }
        into.set_next(next);
        Ok(())
    }

    fn read_partition(
        &self,
        shard: usize,
        partition: u32,
        offsets: Range<u64>,
        max_bytes: usize,
        into: &mut Records,
    ) -> Result<(), StoreError> {
        let shard = self.shard(shard)?;
        into.clear();
        let partition = shard.partitions.get(&partition).ok_or(StoreError::Unknown)?;
        if offsets.start < partition.low {
            return Err(StoreError::Expired { low: partition.low });
        }
        let mut next = offsets.start;
        let mut taken = 0;
        while next < offsets.end.min(partition.next) && (taken == 0 || taken < max_bytes) {
            let sequence = partition.sequences[(next - partition.low) as usize];
            let record = shard.record(sequence).expect("not expired: not below the low offset");
            into.push(sequence, record);
            taken += record.bytes().len();
            next += 1;
        }
        into.set_next(next);
        Ok(())
    }

    fn sequence_at(&self, shard: usize, time_us: u64) -> Result<u64, StoreError> {
        let shard = self.shard(shard)?;
        let is_at = |&sequence: &u64| {
            shard.record(sequence).is_some_and(|record| record.published_us() >= time_us)
        };
        Ok((shard.low..shard.end()).find(is_at).unwrap_or(shard.end()))
    }

    fn retain(
        &self,
        shard: usize,
        now_us: u64,
        retention: &dyn Fn(u32) -> Retention,
    ) -> Result<Retained, StoreError> {
        let mut shard = self.shard(shard)?;
        let Shard { low, records, partitions, bytes, .. } = &mut *shard;
        let mut lows = vec![];
        let mut removed = 0;
        for (&number, partition) in partitions {
            let Retention { max_age_us, max_bytes } = retention(number);
            let before = partition.low;
            while !partition.sequences.is_empty() {
                let (published_us, len) = partition.oldest_len(records, *low);
                let is_old =
                    max_age_us.is_some_and(|max| published_us.saturating_add(max) <= now_us);
                let is_much = max_bytes.is_some_and(|max| partition.bytes - len as u64 >= max);
                if !is_old && !is_much {
                    break;
                }
                let sequence = partition.sequences.pop_front().expect("not empty");
                records[(sequence - *low) as usize] = None;
                partition.low += 1;
                partition.bytes -= len as u64;
                removed += len;
            }
            if partition.low > before {
                lows.push((number, partition.low));
            }
        }
        *bytes -= removed;
        while let Some(None) = records.front() {
            records.pop_front();
            *low += 1;
        }
        lows.sort_unstable();
        Ok(Retained { low: *low, removed_bytes: removed as u64, lows })
    }

    fn close(&self) -> Result<(), StoreError> {
        (0..self.shards.len()).try_for_each(|shard| {
            self.shard(shard)?.closed = true;
            Ok(())
        })
    }
}
