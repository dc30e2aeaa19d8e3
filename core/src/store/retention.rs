//! What may go: per topic by age and bytes, and a segment when nothing in it is wanted any more.

use super::index::PartitionRow;
use crate::config::TopicConfig;
use std::time::Duration;

/// How long the records of a partition are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_structs, reason = "made by whoever keeps the topics")]
pub struct Retention {
    /// Records published longer ago than this many microseconds expire.
    pub max_age_us: Option<u64>,
    /// The oldest records expire while the newer ones have this many bytes without them.
    pub max_bytes: Option<u64>,
}

impl Retention {
    /// Everything expires: the topic was deleted.
    pub const NOTHING: Self = Self { max_age_us: Some(0), max_bytes: Some(0) };

    /// That of a topic.
    pub(crate) fn of(config: TopicConfig) -> Self {
        let us = |age: Duration| u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
        Self { max_age_us: config.retention.map(us), max_bytes: config.retention_bytes }
    }
}

/// What retention did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "made by every implementation")]
pub struct Retained {
    /// The oldest sequence that is still there.
    pub low: u64,
    /// Bytes that were given back.
    pub removed_bytes: u64,
    /// Partitions of which something expired, each with the oldest offset that has not. What
    /// expires is not read any more, at once; the disk has its room back when a whole segment can
    /// go.
    pub lows: Vec<(u32, u64)>,
}

/// Which offset of one partition is the oldest that is kept, going from the newest rows to the
/// oldest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keep {
    retention: Retention,
    now_us: u64,
    newer_bytes: u64,
    /// Whether what is older has expired.
    over: bool,
    /// The oldest offset that is kept.
    pub(super) low: u64,
}

impl Keep {
    /// For a partition whose next offset is `next`.
    pub(super) fn new(retention: Retention, now_us: u64, next: u64) -> Self {
        Self { retention, now_us, newer_bytes: 0, over: false, low: next }
    }

    /// Whether the next older part of the partition is kept.
    pub(super) fn keeps(&mut self, row: &PartitionRow) -> bool {
        let Retention { max_age_us, max_bytes } = self.retention;
        let is_old = max_age_us.is_some_and(|max| row.last_us.saturating_add(max) <= self.now_us);
        let is_much = max_bytes.is_some_and(|max| self.newer_bytes >= max);
        self.over |= is_old || is_much;
        self.newer_bytes += row.bytes;
        if !self.over {
            self.low = row.first_offset;
        }
        !self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> [PartitionRow; 3] {
        [(20, 30, 300), (10, 20, 200), (0, 10, 100)].map(|(first_offset, next_offset, last_us)| {
            PartitionRow { partition: 1, first_offset, next_offset, bytes: 1000, last_us }
        })
    }

    fn low(max_age_us: Option<u64>, max_bytes: Option<u64>) -> u64 {
        let mut keep = Keep::new(Retention { max_age_us, max_bytes }, 350, 30);
        let _ = rows().iter().take_while(|row| keep.keeps(row)).count();
        keep.low
    }

    #[test]
    fn age_and_bytes_expire_the_oldest_parts_first() {
        assert_eq!(low(None, None), 0);
        assert_eq!(low(Some(160), None), 10);
        assert_eq!(low(Some(150), None), 20);
        assert_eq!(low(Some(50), None), 30);
        assert_eq!(low(None, Some(3000)), 0);
        assert_eq!(low(None, Some(2000)), 10);
        assert_eq!(low(None, Some(1001)), 10);
        assert_eq!(low(None, Some(1)), 20);
        assert_eq!(low(None, Some(0)), 30);
        assert_eq!(low(Some(151), Some(1)), 20);
    }
}
