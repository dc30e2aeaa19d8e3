//! What a shard begins with: the memory that it may use, where its log goes on, and what backs that.

use crate::backing::Backing;
use crate::chunk::Pool;
use crate::config::WhenFull;
use crate::sync::Arc;

/// The sequence of a log's first record. The models begin where its low half wraps around.
pub(crate) const FIRST_SEQUENCE: u64 = if cfg!(slipring_loom) { u32::MAX as u64 - 1 } else { 0 };

/// Where a shard's log goes on, and what backs it.
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

/// The memory that a shard may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory<'a> {
    pub(crate) budget: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) pool: &'a Arc<Pool>,
}
