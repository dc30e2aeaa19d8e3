//! What becomes of a publish.

use crate::dedup_window::{Earlier, Settlements};
use crate::error::{PublishError, StoreFault};
use crate::inbox::Inbox;
use crate::lane::Lane;
use crate::queue::Pushed;
use crate::sync::Arc;

/// How many subscriptions a publish was for, and what became of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) matched: u64,
    pub(crate) enqueued: u64,
    pub(crate) dropped: u64,
}

impl Outcome {
    #[inline(always)]
    pub(crate) fn add(&mut self, matched: u64, pushed: Pushed) {
        self.matched += matched;
        self.enqueued += pushed.enqueued();
        self.dropped += pushed.dropped();
    }
}

/// What became of the messages of one [`Core::append`].
#[derive(Debug)]
pub(crate) struct Appended {
    /// How many of them were published: always the first ones.
    pub(crate) count: usize,
    pub(crate) first_offset: u64,
    pub(crate) outcome: Outcome,
    /// Why the rest was not.
    pub(crate) stop: Option<Stop>,
}

/// Why a message was not published.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A subscription that asked to be waited for has no room.
    Blocked(Arc<Inbox>, Arc<Lane>),
    /// It was published before, and is there.
    Duplicate(Earlier),
    /// A message with its id is being published in another shard.
    Pending(Settlements),
    /// The memory budget is used up by messages that are still queued, or the disk is full.
    Full,
    /// What backs the log did not take it.
    Store(StoreFault),
    /// The system has no memory.
    NoMemory,
    /// The topic was deleted.
    Deleted,
    Closed,
}

impl Stop {
    /// The place of the message that was published before, where that is why.
    pub(crate) fn earlier(self) -> Result<Earlier, PublishError> {
        Err(match self {
            Self::Duplicate(earlier) => return Ok(earlier),
            Self::Blocked(..) | Self::Pending(_) => PublishError::WouldBlock,
            Self::Full => PublishError::Full,
            Self::Store(fault) => PublishError::Store(fault),
            Self::NoMemory => PublishError::NoMemory,
            Self::Deleted => PublishError::TopicDeleted,
            Self::Closed => PublishError::Closed,
        })
    }
}

impl From<StoreFault> for Stop {
    fn from(fault: StoreFault) -> Self {
        if fault == StoreFault::Full { Self::Full } else { Self::Store(fault) }
    }
}
