//! A shard's log without a store around it, for the loom models. What happens in it is production
//! code.

use super::entropy::Entropy;
use super::options::Options;
use super::segment::StoreId;
use super::shard_log::ShardLog;
use super::spare::Spare;
use super::writer::Home;
use super::{Bounds, Group, PartitionBounds, Records, Recovery, Retained, Retention, StoreError};
use crate::clock::{Clock, TestClock};
use crate::fs::Fs;
use std::ops::Range;
use std::sync::Arc;

/// A log of which each segment takes one group: every append but the first one to it rolls.
#[derive(Debug)]
pub struct ModelLog(ShardLog);

impl ModelLog {
    /// Opens the log on `fs`; with `is_new`, makes it where there is none.
    ///
    /// # Errors
    /// As a store's.
    pub fn open(fs: Arc<dyn Fs>, is_new: bool) -> Result<Self, StoreError> {
        let options = Options { segment_bytes: 0, preallocate_bytes: 0, ..Options::default() };
        ShardLog::open(Home {
            fs,
            dir: "shard".into(),
            id: StoreId(1),
            shard: 0,
            is_new,
            options,
            spare: Spare::default(),
            clock: Clock::from(&TestClock::at(0)),
            entropy: Entropy::new(Some(1)),
            log: 1,
        })
        .map(Self)
    }

    /// What opening it found.
    pub fn recovery(&self) -> &Recovery {
        self.0.recovery()
    }

    /// As [`MessageStore::append`](super::MessageStore::append).
    ///
    /// # Errors
    /// Likewise.
    pub fn append(&self, group: &Group<'_>) -> Result<(), StoreError> {
        self.0.append(group)
    }

    /// As [`MessageStore::sync`](super::MessageStore::sync).
    ///
    /// # Errors
    /// Likewise.
    pub fn sync(&self, upto: u64) -> Result<u64, StoreError> {
        self.0.sync(upto)
    }

    /// As [`MessageStore::bounds`](super::MessageStore::bounds).
    pub fn bounds(&self) -> Bounds {
        self.0.bounds()
    }

    /// As [`MessageStore::partitions`](super::MessageStore::partitions).
    pub fn partitions(&self) -> Vec<PartitionBounds> {
        self.0.partitions()
    }

    /// As [`MessageStore::read`](super::MessageStore::read).
    ///
    /// # Errors
    /// Likewise.
    pub fn read(&self, sequences: Range<u64>, into: &mut Records) -> Result<(), StoreError> {
        self.0.read(sequences, usize::MAX, into)
    }

    /// As [`MessageStore::read_partition`](super::MessageStore::read_partition).
    ///
    /// # Errors
    /// Likewise.
    pub fn read_partition(
        &self,
        partition: u32,
        offsets: Range<u64>,
        into: &mut Records,
    ) -> Result<(), StoreError> {
        self.0.read_partition(partition, offsets, usize::MAX, into)
    }

    /// As [`MessageStore::sequence_at`](super::MessageStore::sequence_at).
    ///
    /// # Errors
    /// Likewise.
    pub fn sequence_at(&self, time_us: u64) -> Result<u64, StoreError> {
        self.0.sequence_at(time_us)
    }

    /// As [`MessageStore::retain`](super::MessageStore::retain), with one retention for all.
    ///
    /// # Errors
    /// Likewise.
    pub fn retain(&self, now_us: u64, retention: Retention) -> Result<Retained, StoreError> {
        self.0.retain(now_us, &|_| retention)
    }
}
