//! The origin of a shard's log: where it goes on, and what backs it.

use crate::backing::Backing;

/// The sequence of a log's first record. The models begin where its low half wraps around.
pub(crate) const FIRST_SEQUENCE: u64 = if cfg!(slipring_loom) { u32::MAX as u64 - 1 } else { 0 };

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) sequence: u64,
    pub(crate) backing: Option<Backing>,
}

impl Origin {
    /// A log of its own.
    pub(crate) fn new() -> Self {
        Self { sequence: FIRST_SEQUENCE, backing: None }
    }
}
