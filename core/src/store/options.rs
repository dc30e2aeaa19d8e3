//! How a disk store is set up.

use super::spare::MOST_ZEROS;
use std::time::Duration;

/// When an appended message counts as stored.
///
/// Under none of them does a killed process lose anything: bytes are given to the operating system
/// before a call returns. They differ in what a power cut may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SyncPolicy {
    /// When the disk has it. Whoever waits at the same time shares one sync.
    #[default]
    Always,
    /// When the operating system has it; the disk follows at this interval (at least a millisecond).
    /// A power cut takes what was stored in the last interval, and a sync's time more.
    Interval(Duration),
    /// When the operating system has it; it decides when the disk follows. On Linux that is half a
    /// minute, unless it was told otherwise.
    Os,
}

/// What a store does when it is opened and the newest bytes of a shard are not what was written.
/// Damage further back is found when it is read, and keeps nothing else from being read or stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnDamage {
    /// The shard is read only: every append is answered with
    /// [`StoreError::Damaged`](super::StoreError::Damaged).
    #[default]
    Refuse,
    /// It goes on in a new segment, above every place that may have been given out. The damage stays
    /// as it is, and reads tell of it.
    Skip,
}

/// Bytes that a segment can have at least.
pub(super) const MIN_SEGMENT: u64 = 64 << 10;

/// The settings of a disk store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) sync: SyncPolicy,
    pub(crate) on_damage: OnDamage,
    /// A segment that has more is not written to again.
    pub(crate) segment_bytes: u64,
    /// A segment that is older is not written to again, so that retention gets at it.
    pub(crate) segment_age: Duration,
    /// Bytes of a segment that are reserved on the disk at once.
    pub(crate) preallocate_bytes: u64,
    /// Whether that is a whole one.
    pub(crate) whole_segments: bool,
    /// Bytes that are kept free for what must go on when the disk is full.
    pub(crate) reserve_bytes: u64,
    /// The boot of the machine, 0 if unknown.
    pub(crate) boot: u128,
    /// Whether records are seen by others before they are committed.
    pub(crate) shows_early: bool,
}

impl Options {
    /// The same on a disk of `bytes`, where each kind of room has at most an eighth of that: so a
    /// small disk is used, and has whole segments to give back when it is full.
    pub(crate) fn on_disk_of(self, bytes: u64, shards: u32) -> Self {
        let share = bytes / 8;
        let of_shard = share / u64::from(shards);
        Self {
            segment_bytes: self.segment_bytes.min(of_shard.max(MIN_SEGMENT)),
            preallocate_bytes: self.preallocate_bytes.min(of_shard),
            whole_segments: self.preallocate_bytes >= self.segment_bytes,
            reserve_bytes: self.reserve_bytes.min(share),
            ..self
        }
    }

    /// Bytes that are written with zeros before records are.
    pub(super) fn zeros_ahead(&self) -> u64 {
        match self.sync {
            // Each sync takes them along, but not in every one a page is new.
            SyncPolicy::Always => MOST_ZEROS as u64,
            // They stay in the processor's cache until the records come.
            SyncPolicy::Interval(_) | SyncPolicy::Os => 64 << 10,
        }
    }

    /// Bytes of zeros that the file of a segment is made with, where it is not made in haste.
    pub(super) fn spare_bytes(&self) -> Option<u64> {
        (self.whole_segments && self.sync == SyncPolicy::Always).then_some(self.segment_bytes)
    }

    /// Whether a record that a power cut takes may have been seen: then its place is not given out
    /// again.
    pub(crate) fn gives_up_places(&self) -> bool {
        self.shows_early || self.sync != SyncPolicy::Always
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sync: SyncPolicy::Always,
            on_damage: OnDamage::Refuse,
            segment_bytes: 64 << 20,
            // An eighth of the retention that a topic has by default.
            segment_age: Duration::from_secs(21 * 3600),
            preallocate_bytes: 32 << 20,
            whole_segments: false,
            reserve_bytes: 64 << 20,
            boot: 0,
            shows_early: false,
        }
    }
}
