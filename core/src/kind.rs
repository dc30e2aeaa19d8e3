//! What an error is, across the families of `error.rs`: for bindings, which give each kind a number
//! of their own.
//!
//! The enums of `error.rs` may grow, so that outside this crate no match over them can be complete.
//! Here it is: a new variant does not compile before it has a kind, and a new kind does not compile
//! in a binding before it has a number there.

use crate::error::{
    AckError, ConfigError, InvalidFilter, InvalidName, PublishError, RecvError, SeekError,
    SubscribeError, TryRecvError,
};
use crate::lease::InvalidAckId;

/// The kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "it is there to be matched completely")]
#[expect(missing_docs, reason = "named after the variants of the public errors")]
pub enum ErrorKind {
    AtMostOnce,
    Closed,
    Damaged,
    Disconnected,
    Empty,
    Forked,
    Full,
    InsideFilter,
    InvalidFilter,
    InvalidMessage,
    InvalidName,
    InvalidSubscriptionName,
    Incompatible,
    Lagged,
    Locked,
    NameInUse,
    NoMemory,
    NoThread,
    NotLeased,
    OutOfRange,
    Stale,
    Store,
    Timeout,
    TopicDeleted,
    TopicExists,
    UnknownAckId,
    UnknownSubscription,
    UnknownTopic,
    WouldBlock,
}

/// An error that has a kind, and perhaps a place in what was given.
pub trait Kind {
    /// What it is.
    fn kind(&self) -> ErrorKind;

    /// The byte at which a text breaks the rules.
    fn position(&self) -> Option<usize> {
        None
    }
}

impl Kind for InvalidName {
    fn kind(&self) -> ErrorKind {
        ErrorKind::InvalidName
    }

    fn position(&self) -> Option<usize> {
        Some(self.position)
    }
}

impl Kind for InvalidFilter {
    fn kind(&self) -> ErrorKind {
        ErrorKind::InvalidFilter
    }

    fn position(&self) -> Option<usize> {
        Some(self.position)
    }
}

impl Kind for PublishError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidName(_) => ErrorKind::InvalidName,
            Self::InvalidMessage(_) => ErrorKind::InvalidMessage,
            Self::UnknownTopic => ErrorKind::UnknownTopic,
            Self::TopicDeleted => ErrorKind::TopicDeleted,
            Self::WouldBlock => ErrorKind::WouldBlock,
            Self::Timeout => ErrorKind::Timeout,
            Self::Full => ErrorKind::Full,
            Self::Store(_) => ErrorKind::Store,
            Self::NoMemory => ErrorKind::NoMemory,
            Self::Closed => ErrorKind::Closed,
            Self::InsideFilter => ErrorKind::InsideFilter,
            Self::Forked => ErrorKind::Forked,
        }
    }

    fn position(&self) -> Option<usize> {
        match self {
            Self::InvalidName(error) => error.position(),
            _ => None,
        }
    }
}

impl Kind for SubscribeError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidPattern(_) => ErrorKind::InvalidName,
            Self::InvalidFilter(_) => ErrorKind::InvalidFilter,
            Self::InvalidSubscriptionName { .. } => ErrorKind::InvalidSubscriptionName,
            Self::NameInUse | Self::Different | Self::DifferentSetting { .. } => {
                ErrorKind::NameInUse
            }
            Self::InvalidDeadLetterTopic(_) => ErrorKind::InvalidName,
            Self::OutOfRange { .. } | Self::OverflowAtLeastOnce => ErrorKind::OutOfRange,
            Self::Closed => ErrorKind::Closed,
            Self::InsideFilter => ErrorKind::InsideFilter,
            Self::Forked => ErrorKind::Forked,
            Self::NoThread => ErrorKind::NoThread,
            Self::FilterNotKept => ErrorKind::InvalidFilter,
            Self::Store(_) => ErrorKind::Store,
        }
    }

    fn position(&self) -> Option<usize> {
        match self {
            Self::InvalidPattern(error) => error.position(),
            Self::InvalidFilter(error) => error.position(),
            Self::InvalidSubscriptionName { position } => Some(*position),
            Self::InvalidDeadLetterTopic(error) => error.position(),
            _ => None,
        }
    }
}

impl Kind for RecvError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Lagged(_) => ErrorKind::Lagged,
            Self::Closed => ErrorKind::Closed,
            Self::Disconnected => ErrorKind::Disconnected,
            Self::Store(_) => ErrorKind::Store,
            Self::InsideFilter => ErrorKind::InsideFilter,
            Self::Forked => ErrorKind::Forked,
        }
    }
}

impl Kind for TryRecvError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Empty => ErrorKind::Empty,
            Self::Recv(error) => error.kind(),
        }
    }
}

impl Kind for AckError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotLeased => ErrorKind::NotLeased,
            // There is nothing left that could be done about the message.
            Self::Stale | Self::Expired | Self::Ended => ErrorKind::Stale,
            Self::UnknownAckId => ErrorKind::UnknownAckId,
            Self::OutOfRange { .. } => ErrorKind::OutOfRange,
            Self::DeadLetter(error) => error.kind(),
            Self::Closed => ErrorKind::Closed,
            Self::InsideFilter => ErrorKind::InsideFilter,
            Self::Forked => ErrorKind::Forked,
        }
    }
}

impl Kind for InvalidAckId {
    fn kind(&self) -> ErrorKind {
        ErrorKind::UnknownAckId
    }

    fn position(&self) -> Option<usize> {
        Some(self.position)
    }
}

impl Kind for SeekError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::AtMostOnce => ErrorKind::AtMostOnce,
            Self::Ended => ErrorKind::Closed,
            Self::Store(_) => ErrorKind::Store,
            Self::InsideFilter => ErrorKind::InsideFilter,
            Self::Forked => ErrorKind::Forked,
        }
    }
}

impl Kind for ConfigError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::OutOfRange { .. } => ErrorKind::OutOfRange,
            Self::InvalidName(_) => ErrorKind::InvalidName,
            Self::TopicExists => ErrorKind::TopicExists,
            Self::UnknownTopic => ErrorKind::UnknownTopic,
            Self::UnknownSubscription => ErrorKind::UnknownSubscription,
            Self::SubscriptionInUse => ErrorKind::NameInUse,
            Self::AtMostOnce => ErrorKind::AtMostOnce,
            Self::Unavailable(error) => error.kind(),
            Self::NoThread => ErrorKind::NoThread,
        }
    }

    fn position(&self) -> Option<usize> {
        match self {
            Self::InvalidName(error) => error.position(),
            Self::Unavailable(error) => error.position(),
            _ => None,
        }
    }
}
