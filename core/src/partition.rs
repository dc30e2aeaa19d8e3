//! A partition: the unit of order, and where its messages go.
#![expect(unsafe_code, reason = "partitions are owned by whoever holds their shard's baton")]

use crate::config::Overflow;
use crate::dedup_window::{DedupWindow, Earlier, Settlements};
use crate::inbox::Inbox;
use crate::lane::{Held, Lane};
use crate::sync::{Arc, Counter, PlainArc, UnsafeCell};
use std::sync::OnceLock;

/// A partition: the unit of order. What changes in it is owned by its shard's holder.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) id: u32,
    pub(crate) shard: usize,
    pub(crate) topic: PlainArc<str>,
    pub(crate) state: UnsafeCell<PartitionState>,
    /// The offset of the next message: as many were published.
    pub(crate) next_offset: Counter,
    /// The ids that its topic knows again, from when it first was to know any.
    pub(crate) window: OnceLock<PlainArc<DedupWindow>>,
    /// Messages that were not stored because they were published before.
    pub(crate) duplicates: Counter,
}

// SAFETY: the cell is reached with `Held` alone.
unsafe impl Sync for Partition {}

/// The version of no snapshot.
pub(crate) const UNRESOLVED: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct PartitionState {
    pub(crate) deleted: bool,
    /// While lanes follow the log: first those that do.
    pub(crate) route: Vec<Target>,
    /// How many those are.
    pub(crate) followers: usize,
    /// Others could follow as well, but did not when they were asked.
    pub(crate) is_incomplete: bool,
    /// One of `route` may make a publisher wait,
    pub(crate) may_block: bool,
    /// and one of those that do not follow.
    pub(crate) rest_may_block: bool,
    /// One of `route` has a policy that ends subscriptions; or messages are stored, or known again.
    pub(crate) is_special: bool,
    /// The snapshot and the trie that `route` is of.
    pub(crate) snapshot_version: u64,
    pub(crate) trie_version: u64,
}

/// A subscription that a partition's messages go to.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) lane: Arc<Lane>,
    pub(crate) filtered: bool,
    /// Whether it may make a publisher wait.
    pub(crate) blocks: bool,
}

impl Target {
    /// Whether all that is published is for it, and nothing happens to others, or to what comes
    /// later, when it is full.
    pub(crate) fn is_followable(&self) -> bool {
        !self.filtered
            && !self.inbox.is_settled_later()
            && matches!(self.inbox.overflow, Overflow::DropNewest | Overflow::Block { .. })
    }
}

impl PartitionState {
    /// Those of the route that a publish has to look at.
    #[inline(always)]
    pub(crate) fn targets(&self, following: bool) -> &[Target] {
        if following { &self.route[self.followers..] } else { &self.route }
    }

    /// Whether one of those may make a publisher wait.
    #[inline(always)]
    pub(crate) fn may_block(&self, following: bool) -> bool {
        if following { self.rest_may_block } else { self.may_block }
    }
}

impl Partition {
    pub(crate) fn new(id: u32, shard: usize, topic: PlainArc<str>) -> Self {
        Self {
            id,
            shard,
            topic,
            state: UnsafeCell::new(PartitionState {
                deleted: false,
                route: Vec::new(),
                followers: 0,
                is_incomplete: false,
                may_block: false,
                rest_may_block: false,
                is_special: false,
                snapshot_version: UNRESOLVED,
                trie_version: 0,
            }),
            next_offset: Counter::default(),
            window: OnceLock::new(),
            duplicates: Counter::default(),
        }
    }

    /// Before the next message, it is found out anew where it goes.
    pub(crate) fn unresolve(&self, held: &mut Held) {
        assert_eq!(self.shard, held.shard, "a partition stays on its shard");
        // SAFETY: checked just above; the baton is held.
        self.state.with_mut(|state| unsafe { (*state).snapshot_version = UNRESOLVED });
    }

    /// Waits until something has become of messages that were being published to its topic. Not to be
    /// called with a baton.
    pub(crate) fn wait_for_pending(&self, before: Settlements) {
        if let Some(window) = self.window.get() {
            window.wait(before);
        }
    }

    /// Where its next message goes.
    pub(crate) fn next_place(&self) -> Earlier {
        Earlier { partition: self.id, offset: self.next_offset.get() }
    }

    /// The ids that are known again, if any are to be.
    #[inline(always)]
    pub(crate) fn window(&self) -> Option<&DedupWindow> {
        self.window.get().map(|window| &**window).filter(|window| window.is_on())
    }
}
