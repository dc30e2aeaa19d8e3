//! What is counted of lanes and shards, each figure by one owner alone; and of acknowledgements.

use crate::sync::{AtomicU64, Counter};

/// Counted by the holder.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Dropped because the ring was full (`DropNewest`, `Disconnect`).
    pub(crate) dropped_newest: Counter,
    /// Displaced by newer ones (`DropOldest`).
    pub(crate) dropped_oldest: Counter,
    /// Dropped because the publisher's wait timed out (`Block`).
    pub(crate) dropped_timeout: Counter,
    /// Left in the log for a reader that was catching up.
    pub(crate) deferred: Counter,
    /// Of those, moved into the ring by the holder.
    pub(crate) moved: Counter,
    /// Of those, expired unread.
    pub(crate) deferred_expired: Counter,
}

/// Counted by the reader.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) delivered: Counter,
    /// When the last of them was published.
    pub(crate) last_us: Counter,
    /// Expired while they were in the ring.
    pub(crate) expired: Counter,
    /// Taken from the log by the reader, of those that the holder deferred.
    pub(crate) undeferred: Counter,
    /// Taken from the log and published before the subscription began.
    pub(crate) replayed: Counter,
    /// Still queued when the subscription ended.
    pub(crate) discarded: Counter,
    /// Taken from the log or a lossy ring and not delivered yet: a level, not a sum.
    pub(crate) buffered: Counter,
}

/// Of a shard, counted by whoever holds its baton.
#[derive(Debug, Default)]
pub(crate) struct ShardFigures {
    /// Records that have expired from memory.
    pub(crate) expired: Counter,
    /// Chunk bytes that the log retains.
    pub(crate) retained_bytes: Counter,
}

/// Of acknowledgements, counted by whoever does it.
#[derive(Debug, Default)]
pub(crate) struct AckFigures {
    pub(crate) acked: AtomicU64,
    pub(crate) redelivered: AtomicU64,
    pub(crate) dead_lettered: AtomicU64,
    /// Expired from the log unsettled, after they had been delivered.
    pub(crate) expired_leases: AtomicU64,
}
