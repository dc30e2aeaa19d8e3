//! slipring: the publish/subscribe broker that lives inside your program.

pub mod error;
mod leaf;
mod overlay;
mod path;
mod recent;
mod snapshot;
mod sync;
mod topic;
mod trie;

pub use topic::{MAX_NAME_LEN_BYTES, MAX_NAME_SEGMENTS, Pattern, TopicName, validate_name};

/// The parts, for benchmarks and models. Not covered by semantic versioning.
#[doc(hidden)]
pub mod internals {
    pub use crate::recent::RECENT_CHANGES;
    pub use crate::snapshot::Snapshot;
    pub use crate::trie::{Merged, Trie, TrieStats};
}
