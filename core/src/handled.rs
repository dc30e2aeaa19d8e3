//! What a handler makes of a message.

use std::fmt;

/// What a handler makes of a message. All but success counts as a failure; where messages are
/// delivered at most once, that is all it does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a binding gives each its number")]
pub enum Handled {
    /// It is done with.
    Success,
    /// It is to be delivered again after the subscription's [`Backoff`](crate::Backoff), unless this
    /// was its last attempt; then it goes to the dead letters.
    Retry {
        /// Why, in words.
        reason: String,
    },
    /// It goes to the dead letters.
    DeadLetter {
        /// Why, in words: the first 1,024 bytes are kept with it.
        reason: String,
    },
}

impl Handled {
    /// To be delivered again, because of `reason`.
    pub fn retry(reason: impl fmt::Display) -> Self {
        Self::Retry { reason: reason.to_string() }
    }

    /// To be given up on, because of `reason`.
    pub fn dead_letter(reason: impl fmt::Display) -> Self {
        Self::DeadLetter { reason: reason.to_string() }
    }
}

/// What can be returned by a handler: nothing, a [`Handled`], or a result whose error is a reason
/// to try again.
pub trait HandlerResult {
    /// What it makes of the message.
    fn into_handled(self) -> Handled;
}

impl HandlerResult for () {
    fn into_handled(self) -> Handled {
        Handled::Success
    }
}

impl HandlerResult for Handled {
    fn into_handled(self) -> Handled {
        self
    }
}

impl<E: fmt::Display> HandlerResult for Result<(), E> {
    fn into_handled(self) -> Handled {
        match self {
            Ok(()) => Handled::Success,
            Err(error) => Handled::retry(error),
        }
    }
}
