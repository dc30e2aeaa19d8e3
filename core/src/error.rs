//! Every error of the crate: hand-made enums, one per family of operations.
//!
//! Each names what was wrong where it entered, so that a message can be shown to a person as is.

use std::fmt;

/// A topic name or pattern that breaks the rules, with the place where it does.
#[derive(Debug, Clone, PartialEq, Eq)]
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
