//! slipring: the publish/subscribe broker that lives inside your program.
//!
//! A [`Broker`] has topics, to which [`Topic::publish`] publishes, and subscriptions: pulled from a
//! [`Subscription`], or handed to a function ([`SubscriptionBuilder::handler`]). What a subscription
//! wants is told by patterns (see [`Pattern`]) and a [`Filter`]; where it begins, by a [`Start`]
//! position.
//!
//! Delivery is in order per partition, and at least once: messages are
//! [acknowledged](Message::ack), or come again until they are. A subscription may ask for delivery
//! at most once instead ([`DeliveryMode`]); what happens then when it cannot keep up, its
//! [`Overflow`] policy says. Whatever is lost is counted, exactly, and told: see
//! [`RecvError::Lagged`], [`SubscriptionBuilder::on_lagged`], [`Receipt`], [`Metrics`].
//!
//! A broker is in memory ([`Broker::in_memory`]), or has a directory ([`Broker::open`]): then what was
//! published and settled outlives the process.
//!
//! The README has the tour; `docs/ARCHITECTURE.md` follows a message through the code.
#![cfg_attr(
    slipring_loom,
    allow(
        dead_code,
        unused,
        unreachable_pub,
        private_interfaces,
        unfulfilled_lint_expectations,
        reason = "the models have no broker: much is for it alone"
    )
)]

mod acked;
#[cfg(not(slipring_loom))]
mod acker;
mod acks;
mod agenda;
#[cfg(not(slipring_loom))]
mod alarm;
#[cfg(not(slipring_loom))]
mod archive;
mod around;
#[cfg_attr(slipring_loom, path = "backing_none.rs")]
mod backing;
mod backoff;
mod batch;
mod baton;
mod breaker;
#[cfg(not(slipring_loom))]
mod broker;
mod catch_up;
mod chunk;
mod clock;
mod config;
mod contain;
mod copy;
mod dead_letter;
mod dedup;
mod dedup_window;
#[cfg(not(slipring_loom))]
mod durable;
mod errands;
mod error;
mod event;
pub mod filter;
mod followers;
mod fork;
mod fresh;
mod fs;
mod handled;
#[cfg(not(slipring_loom))]
mod handler;
#[cfg(not(slipring_loom))]
mod handler_error;
mod idle;
mod inbox;
mod index;
#[cfg(not(slipring_loom))]
mod inside;
mod interest;
#[cfg(not(slipring_loom))]
mod keeper;
mod kept;
mod kind;
mod lane;
mod leaf;
mod lease;
mod leaves;
mod ledger;
mod ledgers;
#[cfg(not(slipring_loom))]
mod letters;
mod log;
mod lossy;
mod message;
mod message_id;
#[cfg(not(slipring_loom))]
mod metrics;
#[cfg(slipring_loom)]
mod model;
mod next_chunk;
mod once;
mod origin;
mod outage;
mod outcome;
mod overlay;
mod pages;
mod partition;
mod path;
mod pin;
mod prefetch;
#[cfg_attr(slipring_loom, path = "publisher_none.rs")]
mod publisher;
mod queue;
#[cfg(not(slipring_loom))]
mod receipt;
#[cfg(not(slipring_loom))]
mod receiver;
mod recent;
#[cfg(not(slipring_loom))]
mod registry;
mod ring;
#[cfg(not(slipring_loom))]
mod roster;
mod runs;
#[cfg(not(slipring_loom))]
mod sequencer;
mod settled;
mod shard;
mod slab;
mod snapshot;
pub mod store;
#[cfg(not(slipring_loom))]
mod subscribe;
#[cfg(not(slipring_loom))]
mod subscription;
#[cfg_attr(slipring_loom, path = "suspects_none.rs")]
mod suspects;
mod sync;
mod table;
mod tally;
mod terms;
mod threads;
#[cfg(not(slipring_loom))]
mod ticket;
mod topic;
mod tree;
mod trie;
mod wait;
mod waits;
mod wheel;
#[cfg(not(slipring_loom))]
mod worker;

#[cfg(not(slipring_loom))]
pub use acker::Acker;
#[cfg(not(slipring_loom))]
pub use archive::OpenError;
pub use around::Around;
pub use backoff::Backoff;
pub use batch::AsMessage;
pub use breaker::BreakerState;
#[cfg(not(slipring_loom))]
pub use broker::{Broker, BrokerBuilder, PartitionDescription, TopicDescription};
pub use clock::{Clock, TestClock};
pub use config::{
    CircuitBreaker, DeliveryMode, Overflow, Sequencer, Start, TopicConfig, WaitStrategy, WhenFull,
};
#[cfg(not(slipring_loom))]
pub use dead_letter::{
    DEAD_LETTER_ATTEMPTS, DEAD_LETTER_OFFSET, DEAD_LETTER_PARTITION, DEAD_LETTER_REASON,
    DEAD_LETTER_SUBSCRIPTION, DEAD_LETTER_TOPIC,
};
pub use dedup::Deduplicator;
pub use error::{
    AckError, ConfigError, InvalidFilter, InvalidMessage, InvalidName, NameRule, PublishError,
    RecvError, SeekError, StoreFault, SubscribeError, TryRecvError,
};
pub use filter::{Filter, FilterLimits, MAX_FILTER_BYTES, MAX_FILTER_NESTING};
pub use handled::{Handled, HandlerResult};
#[cfg(not(slipring_loom))]
pub use handler_error::HandlerError;
pub use idle::Idle;
pub use kept::OwnedMessages;
pub use lease::{AckId, InvalidAckId};
#[cfg(not(slipring_loom))]
pub use letters::DeadLetters;
pub use message::{Attributes, Message, NewMessage, OwnedMessage};
pub use message_id::MessageId;
#[cfg(not(slipring_loom))]
pub use metrics::{Metrics, ShardMetrics, SubscriptionMetrics, TopicMetrics};
#[cfg(not(slipring_loom))]
pub use publisher::{CommitError, Loan, Topic};
#[cfg(not(slipring_loom))]
pub use receipt::{BatchError, BatchReceipt, Receipt};
#[cfg(not(slipring_loom))]
pub use registry::CloseReport;
#[cfg(not(slipring_loom))]
pub use roster::SubscriptionDescription;
#[cfg(not(slipring_loom))]
pub use subscribe::{
    HandlerSubscription, SubscriptionBuilder, UnsubscribeError, UnsubscribeReason,
};
#[cfg(not(slipring_loom))]
pub use subscription::{Batch, Iter, Subscription};
#[cfg(not(slipring_loom))]
pub use ticket::Ticket;
pub use topic::{MAX_NAME_LEN_BYTES, MAX_NAME_SEGMENTS, Pattern, TopicName, validate_name};

/// The parts, for benchmarks and models. Not covered by semantic versioning.
#[doc(hidden)]
pub mod internals {
    pub use crate::baton::{Baton, Guarded};
    pub use crate::chunk::{
        Appender, CHUNK_BYTES, Chunk, Claim, ClaimArea, FIRST_RECORD, Pins, Pool,
    };
    pub use crate::fs::*;
    pub use crate::interest::{is_inside_filter, refusing_calls};
    pub use crate::kind::{ErrorKind, Kind};
    pub use crate::ledger::{Grant, Ledger, Position, Stale};
    pub use crate::log::{Log, LogWriter};
    pub use crate::message::{Block, EXTENSION_MASK, HAS_ATTRIBUTES, HAS_ID, HAS_KEY};
    #[cfg(slipring_loom)]
    pub use crate::model::*;
    pub use crate::recent::RECENT_CHANGES;
    pub use crate::runs::Span;
    pub use crate::settled::Settled;
    pub use crate::snapshot::Snapshot;
    #[cfg(not(slipring_loom))]
    pub use crate::store::{cursor::*, cursor_file::*, cursor_journal::*, meta::*, meta_db::*};
    pub use crate::wait::{WaitCell, Waiter};
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

/// The programs of the texts are tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[doc = include_str!("../../docs/directory.md")]
struct ReadmeDoctests;
