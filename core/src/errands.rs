//! Errands: what the holder of a baton leaves to be done when it has let go.

use crate::inbox::Inbox;
use crate::sync::Arc;
use arrayvec::ArrayVec;

/// Inboxes whose consumer is to be woken. As a rule they are few, and nothing is allocated.
#[derive(Debug, Default)]
pub(crate) struct Errands {
    few: ArrayVec<Arc<Inbox>, 8>,
    more: Vec<Arc<Inbox>>,
}

impl Errands {
    /// Notes more of them.
    pub(crate) fn extend(&mut self, inboxes: impl Iterator<Item = Arc<Inbox>>) {
        for inbox in inboxes {
            if let Err(full) = self.few.try_push(inbox) {
                self.more.push(full.element());
            }
        }
    }

    /// Wakes them.
    pub(crate) fn run(self) {
        for inbox in self.few.into_iter().chain(self.more) {
            inbox.arrivals.wake();
        }
    }
}
