//! The ledgers of a subscription, one for each shard, and what is so of all of them: what
//! acknowledgements keep behind their mutex.

use crate::inbox::Inbox;
use crate::lane::Lane;
use crate::ledger::Ledger;
use crate::suspects::Suspects;
use crate::terms::Terms;
use std::time::Duration;

/// How far the messages that are taken may be ahead of the first one that is not settled.
const WINDOW: u64 = 1 << 23;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Ledgers {
    /// By shard, from the first message on.
    pub(crate) by_shard: Box<[Option<Ledger>]>,
    /// Tells the present ack ids from those of earlier inboxes.
    pub(crate) incarnation: u16,
    /// Another inbox goes on.
    pub(crate) is_over: bool,
    /// What is settled has been written down for the last time.
    pub(crate) is_sealed: bool,
    /// What is settled, or how often something was delivered, since that was last asked.
    pub(crate) has_changed: bool,
    /// What is to be handed over with care.
    pub(crate) suspects: Option<Suspects>,
    /// Nothing could be delivered once before something was settled.
    pub(crate) was_full: bool,
    /// The alarm that is set.
    pub(crate) alarm: Option<Duration>,
    /// For jitter: the state of a generator that nobody needs to be unable to guess.
    pub(crate) random: u64,
}

impl Ledgers {
    /// Whether a suspect is left that is not settled; if not, none is one any more.
    pub(crate) fn check_suspects(&mut self) -> bool {
        let Some(suspects) = &self.suspects else { return false };
        let mut ledgers = self.by_shard.iter().enumerate();
        let is_left = suspects.has_to_note()
            || ledgers.any(|(shard, ledger)| {
                ledger.as_ref().is_some_and(|ledger| suspects.has(shard, ledger.floor()))
            });
        if !is_left {
            self.suspects = None;
        }
        is_left
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.by_shard.iter().flatten().all(Ledger::is_quiet)
    }

    pub(crate) fn has_room(&self, terms: &Terms) -> bool {
        !self.is_over
            && !self.is_sealed
            && self.leased() < terms.max_outstanding
            && !self.is_stretched()
    }

    /// Whether so much is settled behind a message that is not, that more could not be noted.
    pub(crate) fn is_stretched(&self) -> bool {
        let mut ledgers = self.by_shard.iter().flatten();
        ledgers.any(|ledger| ledger.next() - ledger.floor() >= WINDOW)
    }

    pub(crate) fn leased(&self) -> usize {
        self.by_shard.iter().flatten().map(Ledger::leased).sum()
    }

    /// Messages from `shard` that may be leased at a time, as others are leased now.
    pub(crate) fn most_leased(&self, shard: usize, terms: &Terms) -> usize {
        let leased_here = self.by_shard[shard].as_ref().map_or(0, Ledger::leased);
        terms.max_outstanding.saturating_sub(self.leased() - leased_here)
    }

    /// When something from `shard` is due next; in the past if it is.
    pub(crate) fn next_due_of(&self, shard: usize, terms: &Terms) -> Option<Duration> {
        self.by_shard[shard].as_ref()?.next_due(self.most_leased(shard, terms))
    }

    pub(crate) fn next_due(&self, terms: &Terms) -> Option<Duration> {
        if self.is_sealed {
            return None;
        }
        (0..self.by_shard.len()).filter_map(|shard| self.next_due_of(shard, terms)).min()
    }

    /// The ledger of `shard`, made if need be, with the lane that its messages come from.
    pub(crate) fn ledger<'a>(
        &'a mut self,
        inbox: &'a Inbox,
        shard: usize,
    ) -> Option<(&'a mut Ledger, &'a Lane)> {
        let lane = inbox.lane(shard).filter(|_| !self.is_over)?;
        self.has_changed = true;
        let ledger = self.by_shard[shard].get_or_insert_with(|| Ledger::new(lane.origin));
        Some((ledger, lane))
    }

    /// The next random number (Marsaglia: "Xorshift RNGs", 2003).
    pub(crate) fn random(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as u32
    }
}
