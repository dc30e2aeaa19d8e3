//! The lanes of a shard that follow its log.

use crate::inbox::Inbox;
use crate::lane::Lane;
use crate::sync::Arc;

/// Publishes to one partition in a row after which its subscriptions follow the log.
const STREAK: u32 = if cfg!(slipring_loom) { 1 } else { 4 };

/// Lanes that follow the log, because all that is published now is for them: they need not be
/// touched at every publish, only the log's head moves.
///
/// That is so while one partition is published to, and what would drop or wait is foreseen: so many
/// messages as `credit` says fit into each of these lanes.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    /// The partition that is published to, if lanes follow.
    pub(crate) partition: Option<u32>,
    pub(crate) lanes: Vec<(Arc<Inbox>, Arc<Lane>)>,
    pub(crate) credit: u64,
    /// The partition that was published to last, and how often in a row before.
    last: u32,
    streak: u32,
}

impl Followers {
    /// Counts a publish to `partition` that has touched lanes; true where it looks as if letting
    /// them follow the log pays.
    #[inline(always)]
    pub(crate) fn is_streak(&mut self, partition: u32) -> bool {
        if self.last != partition {
            (self.last, self.streak) = (partition, 0);
        }
        self.streak += 1;
        self.streak > STREAK
    }

    /// A streak has to begin anew.
    pub(crate) fn end_streak(&mut self) {
        self.streak = 0;
    }
}
