//! The latest changes of the trie: what lets a shard keep a resolved topic when something changed
//! elsewhere.

use std::sync::Arc; // immutable data only: who reads it got it through a Snapshot

use crate::topic::Pattern;

/// How many of the latest changes are remembered at least; at most twice as many.
pub const RECENT_CHANGES: u64 = 64;

/// The patterns of the latest changes, newest first: a list that grows to [`RECENT_CHANGES`], and
/// the full one before it.
#[derive(Clone, Default)]
pub(crate) struct Recent {
    newer: Option<Arc<Change>>,
    newer_len: u64,
    older: Option<Arc<Change>>,
}

struct Change {
    pattern: Pattern,
    before: Option<Arc<Self>>,
}

impl Recent {
    pub(crate) fn push(&mut self, pattern: Pattern) {
        if self.newer_len == RECENT_CHANGES {
            self.older = self.newer.take();
            self.newer_len = 0;
        }
        self.newer = Some(Arc::new(Change { pattern, before: self.newer.take() }));
        self.newer_len += 1;
    }

    /// Whether one of the last `changes` may be to a pattern that matches; true if that is more than
    /// are remembered.
    pub(crate) fn concern(&self, changes: u64, topic: &str) -> bool {
        let older_len = if self.older.is_some() { RECENT_CHANGES } else { 0 };
        if changes > self.newer_len + older_len {
            return true;
        }
        let mut left = changes;
        for list in [&self.newer, &self.older] {
            let mut next = list.as_deref();
            while let (Some(change), true) = (next, left > 0) {
                if change.pattern.matches(topic) {
                    return true;
                }
                next = change.before.as_deref();
                left -= 1;
            }
        }
        false
    }
}
