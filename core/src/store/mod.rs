//! Where messages are kept: the trait, a store in memory, and one on disk.
//!
//! A broker that is opened on a directory makes its own [`DiskStore`]; to set that up, give it a
//! [`DiskStoreBuilder`]. This module is for who keeps messages somewhere else, by a [`MessageStore`]
//! of his own (the suite that it must pass is `conformance`, behind the feature of that name), and
//! for tools that look into a directory while no broker has it.
//!
//! A store has shards, and a shard has one log: records in the order of their *sequence*. Each record
//! belongs to a partition, of which there are many in a shard, and has an *offset* there. Both are
//! dense, and neither is ever given out twice: what a crash may have taken from somebody who has
//! seen it is left out, and the log goes on above. A [`StoredRecord`] is the bytes that a message has
//! in the broker's memory; a store keeps those and never makes others. Records are appended in
//! [`Group`]s, all or none, by one at a time; any number may read.
//!
//! ```
//! use slipring::NewMessage;
//! use slipring::store::{
//!     DiskStore, Group, MessageStore, RecordPlace, Records, StoredRecord,
//! };
//!
//! # let scratch = tempfile::tempdir()?;
//! # let dir = scratch.path().join("messages");
//! let store = DiskStore::builder().open(&dir)?;
//! let place = RecordPlace { partition: 7, offset: 0, sequence: 0, published_us: 1 };
//! let mut bytes = vec![];
//! StoredRecord::encode(&NewMessage::new(b"hello"), place, &mut bytes)?;
//! store.append(0, &Group { base_sequence: 0, parts: &[&bytes] })?;
//! store.commit(0, 1)?; // now a power cut does not take it
//!
//! let mut records = Records::new();
//! store.read(0, 0..u64::MAX, 1 << 20, &mut records)?;
//! let (sequence, record) = records.iter().next().expect("one was stored");
//! assert_eq!((sequence, record.payload()), (0, &b"hello"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A directory
//!
//! ```text
//! LOCK                            held by the one process that has the store open
//! store                           the store's id, and how many shards it has
//! reserve                         room that is kept for when the disk is full
//! shard-000/superblock            two slots: where the log begins, and how far it is known to be good
//! shard-000/<sequence>.log        a segment: the records from that sequence on
//! shard-000/<sequence>.idx        its index; made again if it is not there
//! shard-000/<sequence>.<n>.torn   what a crash left half written, cut off and kept; the last eight
//! shard-000/spare-<n>.log.tmp     the file of a segment to come, where they are made ahead
//! ```
//!
//! With the defaults that is 97 MiB when a store of one shard has its first record, and 32 MiB more for
//! each other shard: 64 MiB of [reserve](DiskStoreBuilder::reserve_bytes), which is kept for a full disk,
//! and 32 MiB that are [reserved ahead](DiskStoreBuilder::preallocate_bytes) in the newest
//! [segment](DiskStoreBuilder::segment_bytes). Those three settings make it less, and so does a disk of
//! less than 512 MiB, of which each has at most an eighth.
//!
//! A broker adds `metadata.redb` (topics and subscriptions) and `cursors/` (what is settled). Files
//! that are none of these are left alone. All numbers in them are little-endian; every part is under
//! a CRC-32C, which is verified whenever it is read. A file of a later format is refused.
//!
//! # What is promised
//!
//! | | [`Always`](SyncPolicy::Always) | [`Interval`](SyncPolicy::Interval) | [`Os`](SyncPolicy::Os) |
//! |---|---|---|---|
//! | the process is killed | nothing is lost | nothing is lost | nothing is lost |
//! | the power goes | nothing that was committed | the last interval | what the system had not written |
//! | a sync fails | the shard takes no more until it is opened again | the same | the same |
//! | bytes change on the disk | it is told, and never read as something else | the same | the same |
//!
//! Opening a store after a crash reads its newest segments. What a write did not bring to its end is
//! cut off; what was whole once, and is not any more, is [`Damage`]: it is left as it is, and the rest
//! can be read. How the two are told apart, and what else is done, is said in the source of `recovery`;
//! `segment` and `batch` have the format, and `commit` has the group commit.

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
mod gaps;
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
mod sector;
mod segment;
mod segments;
mod shard_log;
mod spare;
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
/// Shards are independent; calls on one may come from any thread. The broker appends to a shard from
/// one thread at a time, and that one must not have to wait for those that read, sync or let
/// expire. Calls may block on the medium, and on nothing else.
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
    /// has it: by default, until it is [synced](Self::sync). Callers who wait at the same time wait
    /// together.
    ///
    /// # Errors
    ///
    /// [`StoreError::Poisoned`]: whether it is stored is not known.
    fn commit(&self, shard: usize, upto: u64) -> Result<(), StoreError> {
        self.sync(shard, upto).map(drop)
    }

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

    /// How many of `sequences` were given up after a crash, as far as that is known: if there ever were
    /// records under them, it took them, so that they have not expired. Asked for sequences that are
    /// not there any more.
    ///
    /// # Errors
    ///
    /// When there is no such shard, or the store cannot be used.
    fn given_up(&self, shard: usize, sequences: Range<u64>) -> Result<u64, StoreError> {
        let _ = (shard, sequences);
        Ok(0)
    }

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

    /// The same for offsets of one partition. Going on where the last read with the same buffer
    /// stopped costs what it gives; beginning anywhere may look at every part of the log first.
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
    /// the Unix epoch; the end of the log if there is none. Where time stamps go back, because the
    /// clock was set while no broker had the store, it may be a later one.
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

    /// Bytes that the records of a shard take on the medium; 0 where that is not known. Asked for
    /// figures.
    ///
    /// # Errors
    ///
    /// When there is no such shard, or the store cannot be used.
    fn stored_bytes(&self, shard: usize) -> Result<u64, StoreError> {
        let _ = shard;
        Ok(0)
    }

    /// Makes everything durable and takes no more. Whether it can still be read is the store's.
    ///
    /// # Errors
    ///
    /// When something could not be made durable.
    fn close(&self) -> Result<(), StoreError>;
}
