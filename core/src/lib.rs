//! slipring: the publish/subscribe broker that lives inside your program.

mod baton;
mod chunk;
mod clock;
mod config;
pub mod error;
mod event;
mod inbox;
mod interest;
mod lane;
mod filter;
mod log;
mod lossy;
mod message;
mod overlay;
mod ring;
mod shard;
mod snapshot;
mod sync;
mod topic;
mod trie;
mod wait;

pub use filter::{Filter, FilterLimits};
pub use message::NewMessage;
pub use topic::{MAX_NAME_LEN_BYTES, MAX_NAME_SEGMENTS, Pattern, TopicName, validate_name};

/// The parts, for benchmarks and models. Not covered by semantic versioning.
#[doc(hidden)]
pub mod internals {
    pub use crate::snapshot::Snapshot;
    pub use crate::trie::{Merged, RECENT_CHANGES, Trie, TrieStats};
}
