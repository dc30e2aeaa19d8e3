//! Suspects: messages that the process before may have died of.
//!
//! What was settled and how often the rest was delivered is noted some time later, and of messages
//! that a handler has at once, no attempt: noting each before would cost every message a system call.
//! So one that kills its process at once would come as new after every start, and never be a dead
//! letter. But what an end that was no close has cut off was in the log by then. Of these messages,
//! each attempt is with the operating system before the message is handed over, and that it is
//! settled before whoever settles it is told: whatever kills the process again is counted, and those
//! beside it are not. As a process can die of a message once without that, a dead letter takes at most
//! one start more than there are attempts.

use crate::archive::Archive;
use crate::ledger::Grant;
use crate::store::cursor::CursorDelta;
use crate::sync::Arc;
use std::collections::BTreeMap;

/// See the module's head.
#[derive(Debug, Clone)]
pub(crate) struct Suspects {
    pub(crate) archive: Arc<Archive>,
    /// By shard: those below are suspects.
    ends: Arc<[u64]>,
    /// Settled, and not noted: shards and sequences.
    settled: Vec<(usize, u64)>,
}

/// What is to be noted at once, by shard.
pub(crate) type Notes = BTreeMap<usize, CursorDelta>;

impl Suspects {
    /// All that lies below `ends`, by shard.
    pub(crate) fn new(archive: &Arc<Archive>, ends: &Arc<[u64]>) -> Self {
        let (archive, ends) = (Arc::clone(archive), Arc::clone(ends));
        Self { archive, ends, settled: Vec::new() }
    }

    /// Whether the message at `sequence` of `shard` is one.
    pub(crate) fn has(&self, shard: usize, sequence: u64) -> bool {
        sequence < self.ends[shard]
    }

    /// The message at `sequence` of `shard` is settled.
    pub(crate) fn settle(&mut self, shard: usize, sequence: u64) {
        if self.has(shard, sequence) {
            self.settled.push((shard, sequence));
        }
    }

    /// Whether something was settled that is not noted.
    pub(crate) fn has_to_note(&self) -> bool {
        !self.settled.is_empty()
    }

    /// What is to be noted before anybody is told of it, with the delivery that is about to be made.
    pub(crate) fn take_notes(&mut self, delivery: Option<(usize, Grant)>) -> Notes {
        let mut notes = Notes::new();
        for (shard, sequence) in self.settled.drain(..) {
            notes.entry(shard).or_default().settled.insert(sequence);
        }
        if let Some((shard, grant)) = delivery.filter(|(shard, to)| self.has(*shard, to.sequence)) {
            let next = u16::try_from(grant.attempt.saturating_add(1)).unwrap_or(u16::MAX);
            notes.entry(shard).or_default().attempts.insert(grant.sequence, next);
        }
        notes
    }
}
