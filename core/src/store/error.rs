//! What a store refuses, and why.

use crate::error::StoreFault;
use crate::fs::os_number;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Why a store did not do what was asked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StoreError {
    /// The disk, or the memory budget, is full. Nothing of the group was stored; the same call
    /// succeeds when there is room again.
    Full,
    /// The operating system refused. Nothing of the group was stored.
    Io(Arc<io::Error>),
    /// Writing to the shard failed in a way after which nobody knows what is on the disk: what was
    /// not yet durable may be lost or not. It takes no more until the store is opened anew.
    Poisoned(Arc<str>),
    /// Bytes are not what was written. They are left as they are.
    Damaged(Arc<Damage>),
    /// What was asked for has been removed by retention; the oldest that can be read is `low`.
    Expired {
        /// A sequence or an offset, as was asked for.
        low: u64,
    },
    /// The group does not follow on what is stored, or a record in it is not one.
    InvalidGroup(&'static str),
    /// The shard, or the partition in it, does not exist.
    Unknown,
    /// Another process, or another store of this one, has the directory.
    Locked,
    /// The directory was written by a version that this one does not know, or is no store.
    Incompatible(Arc<str>),
    /// The store was closed.
    Closed,
    /// The process has forked, and this is the child.
    Forked,
}

/// Where bytes are not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The shard.
    pub shard: usize,
    /// The file, from the store's directory on.
    pub file: String,
    /// Position in the file from which on nothing verifies.
    pub position: u64,
    /// The first sequence (in a read of a partition: offset) that cannot be read.
    pub from: u64,
    /// Where reading can go on behind the damage; `None` if nothing behind it verifies.
    pub resume: Option<u64>,
}

impl From<&StoreError> for StoreFault {
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::Full => Self::Full,
            StoreError::Io(error) => Self::Io(os_number(error)),
            StoreError::Poisoned(_) => Self::Poisoned,
            StoreError::Damaged(_) => Self::Damaged,
            _ => Self::Refused,
        }
    }
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        if is_full(&error) { Self::Full } else { Self::Io(Arc::new(error)) }
    }
}

/// Of a sync that failed, also of one that found the disk full: then bytes may be lost, where
/// [`StoreError::Full`] says that nothing is.
pub(super) fn unsynced(error: io::Error) -> StoreError {
    StoreError::Io(Arc::new(error))
}

/// Whether there is no room: on the disk, in the quota, or for a file of that size.
pub(super) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("no room left for messages"),
            Self::Io(error) => error.fmt(f),
            Self::Poisoned(why) => {
                write!(f, "writing failed, and what is on the disk is unknown: {why}; open it anew")
            }
            Self::Damaged(damage) => damage.fmt(f),
            Self::Expired { low } => write!(f, "expired: the oldest there is has number {low}"),
            Self::InvalidGroup(why) => write!(f, "not a group that can be stored: {why}"),
            Self::Unknown => f.write_str("no such shard or partition"),
            Self::Locked => f.write_str("the store is open elsewhere"),
            Self::Incompatible(why) => write!(f, "not a store that can be opened: {why}"),
            Self::Closed => f.write_str("the store is closed"),
            Self::Forked => f.write_str("the store was opened before this process was forked"),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is damaged from byte {} on: ", self.file, self.position)?;
        match self.resume {
            Some(resume) => write!(f, "{}..{} cannot be read", self.from, resume),
            None => write!(f, "nothing from {} on can be read", self.from),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}
