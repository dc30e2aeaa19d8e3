//! Catching up: what a reader that is behind has taken from the log, or from what backs it.

use crate::backing::Recalled;
use crate::chunk::{Chunk, Pins};
use crate::error::StoreFault;
use crate::grace;
use crate::interest::{Interest, Scan, Standing};
use crate::kept::KeptRecord;
use crate::log::Log;
use crate::message::Context;
use crate::sync::Arc;

/// Records that are taken from the log in one go.
pub(crate) const SCAN_BATCH: u64 = 256;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct CatchUp {
    scan: Scan,
    /// Addresses of records, with a token each: those from `at` on are left.
    taken: Vec<usize>,
    at: usize,
    /// The lane is live; only a loss before that has still to be told.
    pub(crate) is_over: bool,
}

/// What came of a look into the log.
#[derive(Debug)]
pub(crate) struct Scanned {
    /// Where to look next.
    pub(crate) next: u64,
    /// Records that would have been wanted, or may have been, and are not there any more.
    pub(crate) expired: u64,
    /// Of what was taken, published at or behind the sequence that was asked about.
    pub(crate) recent: u64,
}

impl CatchUp {
    /// Decides what is wanted as `scan` does.
    pub(crate) fn new(scan: Scan) -> Self {
        Self { scan, ..Self::default() }
    }

    /// The next record that was taken; its token goes to the caller.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<usize> {
        let address = *self.taken.get(self.at)?;
        self.at += 1;
        Some(address)
    }

    /// How many records are left.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.taken.len() - self.at
    }

    /// Gives the tokens of what is left to `pins`; how many.
    pub(crate) fn leave_to(mut self, pins: &mut Pins) -> u64 {
        let mut count = 0;
        while let Some(address) = self.pop() {
            pins.add(address);
            count += 1;
        }
        count
    }

    /// Lets go what is left.
    pub(crate) fn clear(&mut self) {
        while let Some(address) = self.pop() {
            Chunk::of(address).release(1);
        }
        self.taken.clear();
        self.at = 0;
    }

    /// Takes what `interest` wants of `cursor..head`, some of it, where nothing is left of before: only
    /// records, or only what has expired, so that a loss is told where it is. Counts what of it is
    /// at `recent` or behind.
    pub(crate) fn scan(
        &mut self,
        log: &Log,
        recalled: &mut Recalled,
        (cursor, head): (u64, u64),
        recent: u64,
        interest: &Interest,
        context: &Arc<Context>,
    ) -> Result<Scanned, StoreFault> {
        self.clear();
        let mut scanned = Scanned { next: cursor, expired: 0, recent: 0 };
        let mut candidates: Vec<(u64, KeptRecord)> = Vec::new();
        let oldest = log.oldest();
        if oldest > cursor
            && let Some(backing) = log.backing()
        {
            // Removed from there; what of it is still in memory has expired as well.
            scanned.next = oldest.min(head);
            let removed = scanned.next - cursor;
            scanned.expired = removed.min(backing.most_removed(interest, context));
        } else {
            let pinned = grace::pin();
            while scanned.next < head.min(cursor + SCAN_BATCH) {
                let Some(record) = log.pinned_record(scanned.next, &pinned) else { break };
                match self.scan.standing(record, interest, context) {
                    Standing::Foreign => {}
                    Standing::There if scanned.expired == 0 => {
                        let Some(kept) = log.keep(scanned.next, &pinned) else { break };
                        candidates.push((scanned.next, kept));
                    }
                    Standing::Expired if candidates.is_empty() => scanned.expired += 1,
                    _ => break,
                }
                scanned.next += 1;
            }
        }
        if scanned.next == cursor
            && let Some(backing) = log.backing()
        {
            if !recalled.is_left_at(cursor) {
                backing.read(cursor..log.low().max(cursor + 1), recalled)?;
            }
            let (mut records, behind, lost) = recalled.take_all();
            scanned.next = behind;
            // Nobody knows any more which of it was wanted.
            scanned.expired = lost;
            while let Some((sequence, kept)) = records.pop_front() {
                match self.scan.standing(kept.record(), interest, context) {
                    Standing::Foreign => {}
                    Standing::There if scanned.expired == 0 => candidates.push((sequence, kept)),
                    Standing::Expired if candidates.is_empty() => scanned.expired += 1,
                    _ => {
                        scanned.next = sequence;
                        records.push_front((sequence, kept));
                        recalled.leave(records, behind);
                        break;
                    }
                }
            }
        }
        // Unpinned: while a filter runs, what others let go must not wait for it.
        for (sequence, kept) in candidates {
            if interest.selects(kept.record(), context) {
                self.taken.push(kept.into_address());
                scanned.recent += u64::from(sequence >= recent);
            }
        }
        Ok(scanned)
    }
}
