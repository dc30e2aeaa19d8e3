//! slipring: the publish/subscribe broker that lives inside your program.

pub mod error;
mod overlay;
mod snapshot;
mod sync;
mod topic;
mod trie;

pub use topic::{MAX_NAME_LEN_BYTES, MAX_NAME_SEGMENTS, Pattern, TopicName, validate_name};

/// The parts, for benchmarks and models. Not covered by semantic versioning.
#[doc(hidden)]
pub mod internals {
    pub use crate::snapshot::Snapshot;
    pub use crate::trie::{Merged, RECENT_CHANGES, Trie, TrieStats};
}
