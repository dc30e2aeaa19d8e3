//! Every error of the crate: hand-made enums, one per family of operations.
//!
//! Each names what was wrong where it entered, so that a message can be shown to a person as is.

use std::fmt;

/// A topic name or pattern that breaks the rules, with the place where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidName {
    /// Byte position in the text at which the rule is broken.
    pub position: usize,
    /// The rule that is broken.
    pub reason: NameRule,
}

/// The rules of topic names and patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NameRule {
    /// The text is empty.
    Empty,
    /// The text is longer than 1,024 bytes; the position is the first byte too many.
    TooLong,
    /// There are more than 32 segments; the position is where the 33rd begins.
    TooManySegments,
    /// A segment is empty: a leading, trailing or double `/`.
    EmptySegment,
    /// A control character.
    ControlCharacter,
    /// The text is not UTF-8 (only reachable where bytes come from another language).
    NotUtf8,
    /// A `*` in a topic name.
    WildcardInName,
    /// A `*` that is not a whole segment: only `*` and `**` are wildcards.
    PartialWildcard,
    /// A name that begins with `$`, which only the system may create.
    Reserved,
}

impl NameRule {
    /// The rule in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "must not be empty",
            Self::TooLong => "longer than 1024 bytes",
            Self::TooManySegments => "more than 32 segments",
            Self::EmptySegment => "empty segment (leading, trailing or double '/')",
            Self::ControlCharacter => "control character",
            Self::NotUtf8 => "not UTF-8",
            Self::WildcardInName => "'*' is not allowed in a topic name",
            Self::PartialWildcard => "'*' must be a whole segment: '*' or '**'",
            Self::Reserved => "names that begin with '$' belong to the system",
        }
    }
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid name at byte {}: {}", self.position, self.reason.as_str())
    }
}

impl std::error::Error for InvalidName {}

/// A filter expression that cannot be read, with the place where reading stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidFilter {
    /// Byte position in the expression.
    pub position: usize,
    /// What was found or missing there, in words.
    pub reason: String,
}

impl fmt::Display for InvalidFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid filter at byte {}: {}", self.position, self.reason)
    }
}

impl std::error::Error for InvalidFilter {}

/// A message that breaks a limit. Nothing of it was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidMessage {
    /// The payload is larger than the broker allows.
    PayloadTooLarge {
        /// Its size.
        bytes: usize,
        /// The broker's limit.
        limit: usize,
    },
    /// The ordering key is longer than 1,024 bytes.
    KeyTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The message id is not 1..=255 bytes.
    IdLength {
        /// Its length.
        bytes: usize,
    },
    /// More than 100 attributes.
    TooManyAttributes {
        /// How many.
        count: usize,
    },
    /// An attribute's key is not 1..=256 bytes.
    AttributeKeyLength {
        /// Which attribute.
        index: usize,
        /// Its key's length.
        bytes: usize,
    },
    /// An attribute's value is longer than 1,024 bytes.
    AttributeValueTooLong {
        /// Which attribute.
        index: usize,
        /// Its value's length.
        bytes: usize,
    },
    /// An attribute has the key of an earlier one.
    DuplicateAttribute {
        /// Which attribute.
        index: usize,
    },
}

impl fmt::Display for InvalidMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PayloadTooLarge { bytes, limit } => {
                write!(f, "payload of {bytes} bytes is over the limit of {limit}")
            }
            Self::KeyTooLong { bytes } => {
                write!(f, "ordering key of {bytes} bytes is over the limit of 1024")
            }
            Self::IdLength { bytes } => write!(f, "message id of {bytes} bytes: 1 to 255 allowed"),
            Self::TooManyAttributes { count } => {
                write!(f, "{count} attributes are over the limit of 100")
            }
            Self::AttributeKeyLength { index, bytes } => {
                write!(f, "key of attribute {index} has {bytes} bytes: 1 to 256 allowed")
            }
            Self::AttributeValueTooLong { index, bytes } => {
                write!(f, "value of attribute {index} has {bytes} bytes: up to 1024 allowed")
            }
            Self::DuplicateAttribute { index } => {
                write!(f, "attribute {index} has the key of an earlier one")
            }
        }
    }
}

impl std::error::Error for InvalidMessage {}

/// Why the store did not do its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreFault {
    /// The operating system refused, with this error number if it gave one. It may be tried again.
    Io(Option<i32>),
    /// Writing failed in a way after which nobody knows what is on the disk. Nothing is taken until
    /// the broker is opened anew.
    Poisoned,
    /// The disk has other bytes than were written, so the shard can only be read.
    Damaged,
    /// There is no room.
    Full,
    /// The system has no memory left for what was read.
    NoMemory,
    /// The store is closed, or refused what it was asked for.
    Refused,
}

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(Some(number)) => std::io::Error::from_raw_os_error(*number).fmt(f),
            Self::Io(None) => f.write_str("input or output failed"),
            Self::Poisoned => f.write_str("a write failed: open the broker anew"),
            Self::Damaged => f.write_str("the log on the disk is damaged"),
            Self::Full => f.write_str("the disk is full"),
            Self::NoMemory => f.write_str("the system has no memory left"),
            Self::Refused => f.write_str("it takes no more"),
        }
    }
}

impl std::error::Error for StoreFault {}

/// Why a message was not published. It is still the caller's: a publish borrows what it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishError {
    /// The topic's name is not valid.
    InvalidName(InvalidName),
    /// The message breaks a limit.
    InvalidMessage(InvalidMessage),
    /// There is no such topic, and the broker does not create topics by publishing.
    UnknownTopic,
    /// The topic was deleted.
    TopicDeleted,
    /// A subscription that asked to be waited for has no room, or the shard was busy.
    WouldBlock,
    /// The same, until the time given was over.
    Timeout,
    /// The memory budget is used up by messages that are still queued, and the broker was told to
    /// refuse rather than to let them expire; or the disk is full.
    Full,
    /// The message could not be stored. With [`StoreFault::Poisoned`] it may have been all the same,
    /// and be delivered; otherwise nothing was published.
    Store(StoreFault),
    /// The system has no memory left.
    NoMemory,
    /// The broker is closed.
    Closed,
    /// The call came from inside a filter function, during which a shard is held.
    InsideFilter,
    /// The process has forked and this is the child, where the broker's threads do not exist.
    Forked,
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidName(error) => error.fmt(f),
            Self::InvalidMessage(error) => error.fmt(f),
            Self::UnknownTopic => f.write_str("no such topic"),
            Self::TopicDeleted => f.write_str("the topic was deleted"),
            Self::WouldBlock => f.write_str("publishing would have to wait"),
            Self::Timeout => f.write_str("timed out waiting for a subscription's queue"),
            Self::Full => f.write_str("no room: the memory budget or the disk is used up"),
            Self::Store(fault) => write!(f, "the message could not be stored: {fault}"),
            Self::NoMemory => f.write_str("the system has no memory left"),
            Self::Closed => f.write_str("the broker is closed"),
            Self::InsideFilter => f.write_str("a filter function may not call the broker"),
            Self::Forked => f.write_str("the broker was opened before this process was forked"),
        }
    }
}

impl std::error::Error for PublishError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::InvalidName(error) => Some(error),
            Self::InvalidMessage(error) => Some(error),
            Self::Store(fault) => Some(fault),
            _ => None,
        }
    }
}

impl From<StoreFault> for PublishError {
    fn from(fault: StoreFault) -> Self {
        if fault == StoreFault::Full { Self::Full } else { Self::Store(fault) }
    }
}

impl From<InvalidName> for PublishError {
    fn from(error: InvalidName) -> Self {
        Self::InvalidName(error)
    }
}

impl From<InvalidMessage> for PublishError {
    fn from(error: InvalidMessage) -> Self {
        Self::InvalidMessage(error)
    }
}

/// Why a subscription could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscribeError {
    /// A pattern is not valid.
    InvalidPattern(InvalidName),
    /// The filter expression is not valid.
    InvalidFilter(InvalidFilter),
    /// The name is not 1..=255 bytes of `[A-Za-z0-9._~+%-]`.
    InvalidSubscriptionName {
        /// Byte position of the first character that is not allowed.
        position: usize,
    },
    /// A subscription of this name exists, and has a consumer.
    NameInUse,
    /// A subscription of this name exists, with other patterns or another delivery mode.
    Different,
    /// A subscription of this name exists, and keeps another value of a setting that was asked for.
    DifferentSetting {
        /// Its name.
        setting: &'static str,
    },
    /// The name of the topic for dead letters is not valid.
    InvalidDeadLetterTopic(InvalidName),
    /// A setting is out of its range.
    OutOfRange {
        /// Its name.
        setting: &'static str,
        /// The least it can be.
        min: u64,
        /// The most it can be.
        max: u64,
    },
    /// An [`Overflow`](crate::Overflow) policy was given to a subscription that delivers at least
    /// once, where nothing overflows: leave it out, or ask for
    /// [`DeliveryMode::AtMostOnce`](crate::DeliveryMode::AtMostOnce).
    OverflowAtLeastOnce,
    /// The broker is closed.
    Closed,
    /// The call came from inside a filter function.
    InsideFilter,
    /// The process has forked and this is the child.
    Forked,
    /// A thread could not be started.
    NoThread,
    /// A subscription that outlives the process cannot have a function as its filter.
    FilterNotKept,
    /// The subscription could not be written down.
    Store(StoreFault),
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidPattern(error) => error.fmt(f),
            Self::InvalidFilter(error) => error.fmt(f),
            Self::InvalidSubscriptionName { position } => write!(
                f,
                "invalid subscription name at byte {position}: 1 to 255 of [A-Za-z0-9._~+%-]"
            ),
            Self::NameInUse => f.write_str("a subscription of this name exists"),
            Self::Different => {
                f.write_str("the subscription of this name has other patterns or another mode")
            }
            Self::DifferentSetting { setting } => {
                write!(f, "the subscription of this name was made with another {setting}")
            }
            Self::InvalidDeadLetterTopic(error) => error.fmt(f),
            Self::OutOfRange { setting, min, max } => {
                write!(f, "{setting} must be in {min}..={max}")
            }
            Self::OverflowAtLeastOnce => f.write_str(
                "an overflow policy is for delivery at most once: ask for that, or leave it out",
            ),
            Self::Closed => f.write_str("the broker is closed"),
            Self::InsideFilter => f.write_str("a filter function may not call the broker"),
            Self::Forked => f.write_str("the broker was opened before this process was forked"),
            Self::NoThread => f.write_str("a thread could not be started"),
            Self::FilterNotKept => f.write_str(
                "a subscription that outlives the process cannot have a function as its filter",
            ),
            Self::Store(fault) => write!(f, "the subscription could not be stored: {fault}"),
        }
    }
}

impl std::error::Error for SubscribeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::InvalidPattern(error) => Some(error),
            Self::InvalidFilter(error) => Some(error),
            _ => None,
        }
    }
}

impl From<PublishError> for SubscribeError {
    /// Of the reasons why a broker cannot be called at all.
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::InsideFilter => Self::InsideFilter,
            PublishError::Forked => Self::Forked,
            _ => Self::Closed,
        }
    }
}

/// Why there is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecvError {
    /// So many messages were lost at this place of the stream. The next call goes on behind it.
    Lagged(u64),
    /// The broker is closed and everything queued was delivered.
    Closed,
    /// The subscription's queue stayed full for longer than it allows; everything queued was
    /// delivered.
    Disconnected,
    /// The next message is in the store, which cannot be read now. It is not lost: the next call
    /// tries again.
    Store(StoreFault),
    /// The call came from inside a filter function.
    InsideFilter,
    /// The process has forked and this is the child.
    Forked,
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lagged(count) => write!(f, "{count} messages were lost"),
            Self::Closed => f.write_str("the broker is closed"),
            Self::Disconnected => f.write_str("disconnected: the queue stayed full for too long"),
            Self::Store(fault) => write!(f, "the store cannot be read: {fault}"),
            Self::InsideFilter => f.write_str("a filter function may not call the broker"),
            Self::Forked => f.write_str("the broker was opened before this process was forked"),
        }
    }
}

impl std::error::Error for RecvError {}

/// Why a look for a message found none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TryRecvError {
    /// Nothing is queued now.
    Empty,
    /// As for a call that waits.
    Recv(RecvError),
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("nothing is queued"),
            Self::Recv(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TryRecvError {}

impl From<RecvError> for TryRecvError {
    fn from(error: RecvError) -> Self {
        Self::Recv(error)
    }
}

/// Why a message could not be settled, given back or kept longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AckError {
    /// There is no lease on the message: it came from a subscription that delivers at most once, or
    /// went to a handler, whose result settles it.
    NotLeased,
    /// The lease is over: its deadline has passed, or the message was settled or given back.
    Stale,
    /// The ack id is of another subscription, or from before it was sought or opened anew.
    UnknownAckId,
    /// The time is out of its range.
    OutOfRange {
        /// What was asked for, in milliseconds.
        requested_ms: u64,
        /// The least it can be, in milliseconds.
        min_ms: u64,
        /// The most it can be, in milliseconds.
        max_ms: u64,
    },
    /// The message expired from the log.
    Expired,
    /// The dead letter could not be stored, and so the message was not settled.
    DeadLetter(PublishError),
    /// The subscription has ended.
    Ended,
    /// The broker has closed, and with it the directory in which it would have to be noted: nothing
    /// was settled or given back, and the message comes again when that is opened again.
    Closed,
    /// The call came from inside a filter function.
    InsideFilter,
    /// The process has forked and this is the child.
    Forked,
}

impl fmt::Display for AckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeased => f.write_str("there is no lease on the message"),
            Self::Stale => f.write_str("the lease is over"),
            Self::UnknownAckId => f.write_str("the ack id is not of this subscription's present"),
            Self::OutOfRange { requested_ms, min_ms, max_ms } => {
                write!(f, "{requested_ms} ms is not in {min_ms}..={max_ms}")
            }
            Self::Expired => f.write_str("the message has expired from the log"),
            Self::DeadLetter(error) => write!(f, "the dead letter could not be stored: {error}"),
            Self::Ended => f.write_str("the subscription has ended"),
            Self::Closed => f.write_str("the broker is closed"),
            Self::InsideFilter => f.write_str("a filter function may not call the broker"),
            Self::Forked => f.write_str("the broker was opened before this process was forked"),
        }
    }
}

impl std::error::Error for AckError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::DeadLetter(error) => Some(error),
            _ => None,
        }
    }
}

/// Why a subscription could not be sought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeekError {
    /// It delivers at most once: what it has handed over is gone.
    AtMostOnce,
    /// It has ended, or the broker has.
    Ended,
    /// The place could not be written down: the subscription is where it was.
    Store(StoreFault),
    /// The call came from inside a filter function.
    InsideFilter,
    /// The process has forked and this is the child.
    Forked,
}

impl fmt::Display for SeekError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Store(fault) => return write!(f, "the place could not be stored: {fault}"),
            Self::AtMostOnce => "a subscription that delivers at most once cannot be sought",
            Self::Ended => "the subscription has ended",
            Self::InsideFilter => "a filter function may not call the broker",
            Self::Forked => "the broker was opened before this process was forked",
        })
    }
}

impl std::error::Error for SeekError {}

/// Why a broker could not be made, or a topic not be managed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A setting is out of its range.
    OutOfRange {
        /// Its name.
        setting: &'static str,
        /// The least it can be.
        min: u64,
        /// The most it can be.
        max: u64,
    },
    /// The topic's name is not valid.
    InvalidName(InvalidName),
    /// The topic exists.
    TopicExists,
    /// The topic does not exist.
    UnknownTopic,
    /// There is no subscription of this name.
    UnknownSubscription,
    /// The subscription has a consumer.
    SubscriptionInUse,
    /// The subscription delivers at most once.
    AtMostOnce,
    /// The broker cannot be called: see the reason.
    Unavailable(PublishError),
    /// A thread could not be started.
    NoThread,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { setting, min, max } => {
                write!(f, "{setting} must be in {min}..={max}")
            }
            Self::InvalidName(error) => error.fmt(f),
            Self::TopicExists => f.write_str("the topic exists"),
            Self::UnknownTopic => f.write_str("no such topic"),
            Self::UnknownSubscription => f.write_str("no such subscription"),
            Self::SubscriptionInUse => f.write_str("the subscription has a consumer"),
            Self::AtMostOnce => f.write_str("the subscription delivers at most once"),
            Self::Unavailable(error) => error.fmt(f),
            Self::NoThread => f.write_str("a thread could not be started"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl From<InvalidName> for ConfigError {
    fn from(error: InvalidName) -> Self {
        Self::InvalidName(error)
    }
}

impl From<PublishError> for ConfigError {
    fn from(error: PublishError) -> Self {
        Self::Unavailable(error)
    }
}
