//! What a publisher that blocks waits for.

use crate::config::Overflow;
use crate::inbox::{Inbox, InboxState};
use std::time::Duration;

/// Since when a publisher has been waiting for which subscriptions that block: each has a time of
/// its own, from when this publisher first found it full.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    pub(crate) now: Duration,
    /// By id of the subscription. As a rule there is one, and nothing is allocated.
    first: Option<(u64, Duration)>,
    more: Vec<(u64, Duration)>,
}

impl Waits {
    /// Since when `inbox` has been waited for, if it has.
    pub(crate) fn since(&self, inbox: &Inbox) -> Option<Duration> {
        let mut all = self.first.iter().chain(&self.more);
        all.find(|(id, _)| *id == inbox.id).map(|(_, since)| *since)
    }

    /// Nobody is waited for any more.
    pub(crate) fn end(&mut self) {
        self.first = None;
        self.more.clear();
    }

    pub(crate) fn begin(&mut self, inbox: &Inbox) {
        let noted = (inbox.id, self.now);
        match self.first {
            None => self.first = Some(noted),
            Some(_) if self.since(inbox).is_none() => self.more.push(noted),
            Some(_) => {}
        }
    }

    /// Whether `inbox` must have room before anything is published to it.
    #[inline]
    pub(crate) fn must_wait(&self, inbox: &Inbox) -> bool {
        let Overflow::Block { timeout } = inbox.overflow else { return false };
        let waited = |since| self.now.saturating_sub(since);
        let is_patient = |most| self.since(inbox).map_or(Duration::ZERO, waited) < most;
        timeout.is_none_or(is_patient) && inbox.state() == InboxState::Open
    }
}

/// How many messages may be published at once.
pub(crate) struct Room {
    pub(crate) most: usize,
    /// The filters of subscriptions that block must be asked first.
    pub(crate) ask_filters: bool,
}
