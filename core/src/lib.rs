//! slipring: the publish/subscribe broker that lives inside your program.

mod baton;
mod breaker;
#[cfg(not(slipring_loom))]
mod broker;
mod chunk;
mod clock;
mod config;
mod error;
mod event;
mod filter;
mod fork;
mod idle;
mod inbox;
mod interest;
mod lane;
mod leaf;
mod log;
mod lossy;
mod message;
mod overlay;
mod path;
mod pin;
mod prefetch;
#[cfg(not(slipring_loom))]
mod publisher;
mod recent;
mod ring;
mod shard;
mod snapshot;
#[cfg(not(slipring_loom))]
mod subscription;
mod sync;
mod topic;
mod trie;
mod wait;
#[cfg(not(slipring_loom))]
mod worker;

pub use breaker::BreakerState;
#[cfg(not(slipring_loom))]
pub use broker::{
    Broker, BrokerBuilder, CloseReport, HandlerSubscription, PartitionDescription,
    SubscriptionBuilder, TopicDescription,
};
pub use clock::{Clock, TestClock};
pub use config::{CircuitBreaker, Overflow, Sequencer, Start, WaitStrategy, WhenFull};
pub use error::{
    ConfigError, InvalidFilter, InvalidMessage, InvalidName, NameRule, PublishError, RecvError,
    SubscribeError, TryRecvError,
};
pub use filter::{Filter, FilterLimits, MAX_FILTER_BYTES, MAX_FILTER_NESTING};
pub use idle::Idle;
pub use message::{Attributes, Message, MessageId, NewMessage, OwnedMessage};
#[cfg(not(slipring_loom))]
pub use publisher::{BatchError, BatchReceipt, CommitError, Loan, Receipt, Ticket, Topic};
#[cfg(not(slipring_loom))]
pub use subscription::{Batch, Iter, Subscription};
pub use topic::{MAX_NAME_LEN_BYTES, MAX_NAME_SEGMENTS, Pattern, TopicName, validate_name};
#[cfg(not(slipring_loom))]
pub use worker::{HandlerError, HandlerResult};

/// The parts, for benchmarks and models. Not covered by semantic versioning.
#[doc(hidden)]
pub mod internals {
    pub use crate::baton::{Baton, Guarded};
    pub use crate::chunk::{
        Appender, CHUNK_BYTES, Chunk, Claim, ClaimArea, FIRST_RECORD, Pins, Pool,
    };
    pub use crate::log::{Log, LogWriter};
    pub use crate::recent::RECENT_CHANGES;
    pub use crate::snapshot::Snapshot;
    pub use crate::wait::{WaitCell, Waiter};
    /// What a filter asks for attributes.
    pub mod filter {
        pub use crate::filter::Attributes;
    }
    /// The ring of `DropOldest`.
    pub mod lossy {
        pub use crate::lossy::*;
    }
    /// The plain ring.
    pub mod ring {
        pub use crate::ring::*;
    }

    pub use crate::trie::{Merged, Trie, TrieStats};
}
