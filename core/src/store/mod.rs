//! Where messages are kept: the trait, a store in memory, and one on disk.
//!
//! A store has shards, and a shard has one log: records in order of their sequence, from a group
//! that is appended at once to the whole of it. A record is the bytes that it has in a chunk
//! ([`StoredRecord`]); a store keeps those and never makes others.
//!
//! [`DiskStore`] keeps a log in segment files. `segment` and `batch` have the format, `recovery` the
//! rules by which it is opened after a crash, `commit` the group commit. The loom models have the log
//! of one shard (`model`) without what is around it: directories, cursors and metadata.

mod batch;
mod commit;
#[cfg(all(any(test, feature = "conformance"), not(slipring_loom)))]
pub mod conformance;
#[cfg(not(slipring_loom))]
pub(crate) mod cursor;
#[cfg(not(slipring_loom))]
pub(crate) mod cursor_file;
#[cfg(not(slipring_loom))]
pub(crate) mod cursor_journal;
#[cfg(not(slipring_loom))]
mod disk;
mod entropy;
mod error;
#[cfg(not(slipring_loom))]
mod identity;
mod index;
#[cfg(not(slipring_loom))]
mod inspect;
#[cfg(not(slipring_loom))]
mod memory;
#[cfg(not(slipring_loom))]
pub(crate) mod meta;
#[cfg(not(slipring_loom))]
pub(crate) mod meta_db;
#[cfg(not(slipring_loom))]
mod meta_file;
#[cfg(slipring_loom)]
mod model;
mod options;
mod plan;
mod reader;
mod record;
mod records;
mod recovery;
#[cfg(not(slipring_loom))]
mod reserve;
mod retention;
mod sabotage;
mod scan;
mod segment;
mod segments;
mod shard_log;
mod superblock;
#[cfg(not(slipring_loom))]
mod wire;
mod writer;

#[cfg(not(slipring_loom))]
pub use disk::{DiskStore, DiskStoreBuilder};
#[cfg(not(slipring_loom))]
pub(crate) use disk::{boot_of_this_machine, lock_directory};
pub use error::{Damage, StoreError};
#[cfg(not(slipring_loom))]
pub use memory::MemoryStore;
pub use options::{OnDamage, SyncPolicy};
pub use plan::Group;
pub use record::{RecordPlace, StoredRecord};
pub use records::Records;
pub use recovery::Recovery;
pub use retention::{Retained, Retention};

/// For the models and the fuzz targets.
#[doc(hidden)]
pub mod internals {
    pub use super::commit::{Commit, Mark};
    #[cfg(not(slipring_loom))]
    pub use super::inspect::{index, records, segment, superblock};
    #[cfg(slipring_loom)]
    pub use super::model::ModelLog;
}

use std::fmt;
use std::ops::Range;

/// How far a shard's log reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_structs, reason = "made by every implementation")]
pub struct Bounds {
    /// The oldest sequence that can be read.
    pub low: u64,
    /// The sequence that the next record gets.
    pub end: u64,
    /// What is below survives a power cut.
    pub durable: u64,
    /// The least offset at which a partition may begin that the shard does not know, but that had
    /// records before a crash: 0, unless records may have been seen and lost.
    pub first_offset: u64,
}

/// How far a partition reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "made by every implementation")]
pub struct PartitionBounds {
    /// Its number.
    pub partition: u32,
    /// The oldest offset that can be read.
    pub low: u64,
    /// The offset that its next record must have. Never one that it may have had before.
    pub next: u64,
}

/// A place for messages that outlives the memory of the broker, or does not.
///
/// Shards are independent; calls on one may come from any thread. One that appends is not slowed
/// down by those that read or sync. Calls block on the medium and nothing else.
pub trait MessageStore: fmt::Debug + Send + Sync {
    /// How many shards there are, numbered from 0. It does not change in the life of a store.
    fn shards(&self) -> usize;

    /// Appends records, all or none. Their sequences begin where the log ends; in each partition
    /// their offsets go on where it ends, and a partition that is new may begin anywhere. When it
    /// returns, the records can be read and a killed process does not lose them, where the store
    /// is one that outlives the process. See [`commit`](Self::commit) for more.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`] and [`StoreError::Io`]: nothing was stored, and it may be tried again.
    /// [`StoreError::InvalidGroup`]: the caller is wrong. Others: the shard takes no more.
    fn append(&self, shard: usize, group: &Group<'_>) -> Result<(), StoreError>;

    /// Blocks until what is below the sequence `upto` may be acknowledged, as the store's policy
    /// has it. Callers who wait at the same time wait together.
    ///
    /// # Errors
    ///
    /// [`StoreError::Poisoned`]: whether it is stored is not known.
    fn commit(&self, shard: usize, upto: u64) -> Result<(), StoreError>;

    /// Blocks until what is below the sequence `upto` survives a power cut, if the medium can do
    /// that, and says how far it is. An `upto` above the end means the end.
    ///
    /// # Errors
    ///
    /// [`StoreError::Poisoned`]: whether it is stored is not known.
    fn sync(&self, shard: usize, upto: u64) -> Result<u64, StoreError>;

    /// How far the shard's log reaches.
    ///
    /// # Errors
    ///
    /// When there is no such shard, or the store cannot be used.
    fn bounds(&self, shard: usize) -> Result<Bounds, StoreError>;

    /// Every partition that the shard knows, in no order; also those of which nothing is left.
    ///
    /// # Errors
    ///
    /// When there is no such shard, or the store cannot be used.
    fn partitions(&self, shard: usize) -> Result<Vec<PartitionBounds>, StoreError>;

    /// Reads records of these sequences into `into`, in order: at least one if there is one, and
    /// about `max_bytes` of them. Sequences that have expired, or were never given out, are
    /// passed over; [`Records::next`] says where the next read begins. Whatever is returned has
    /// been verified.
    ///
    /// # Errors
    ///
    /// [`StoreError::Expired`] when the first of them has; [`StoreError::Damaged`] when it cannot
    /// be read, with the place where reading can go on.
    fn read(
        &self,
        shard: usize,
        sequences: Range<u64>,
        max_bytes: usize,
        into: &mut Records,
    ) -> Result<(), StoreError>;

    /// The same for offsets of one partition.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read); [`StoreError::Unknown`] for a partition that has no records.
    fn read_partition(
        &self,
        shard: usize,
        partition: u32,
        offsets: Range<u64>,
        max_bytes: usize,
        into: &mut Records,
    ) -> Result<(), StoreError>;

    /// The sequence of the first record published at or after `time_us`, in microseconds since
    /// the Unix epoch; the end of the log if there is none.
    ///
    /// # Errors
    ///
    /// When the medium cannot be read.
    fn sequence_at(&self, shard: usize, time_us: u64) -> Result<u64, StoreError>;

    /// Lets the records expire that `retention`, asked for each partition, does not want at
    /// `now_us`. How exactly it keeps to that is the store's; never is one lost that is wanted.
    ///
    /// # Errors
    ///
    /// When the medium fails. Called again, it goes on.
    fn retain(
        &self,
        shard: usize,
        now_us: u64,
        retention: &dyn Fn(u32) -> Retention,
    ) -> Result<Retained, StoreError>;

    /// Makes everything durable and takes no more.
    ///
    /// # Errors
    ///
    /// When something could not be made durable.
    fn close(&self) -> Result<(), StoreError>;
}
