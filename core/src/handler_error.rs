//! A handler's failures, what it has lost, and what it cannot read: what is told of them, and to whom.

use crate::contain::{contain, drop_quietly};
use crate::error::StoreFault;
use crate::message::Message;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A handler's failure, as it is reported to `on_error`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct HandlerError<'a> {
    /// The message that was not handled.
    pub message: Message<'a>,
    /// What the handler returned, or what it panicked with.
    pub reason: &'a str,
    /// Whether it panicked.
    pub panicked: bool,
}

/// A function that is told of failures.
pub(crate) type OnError = dyn FnMut(HandlerError<'_>) + Send;

/// A function that is told of losses.
pub(crate) type OnLagged = dyn FnMut(u64) + Send;

/// A function that is told why messages cannot be read at the moment, and, by `None`, that they can be
/// again.
pub(crate) type OnUnreadable = dyn FnMut(Option<StoreFault>) + Send;

/// What a panic says.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic of an unknown type")
}

/// Who is told what becomes of a handler's messages; all of it is logged as well. What they panic with
/// stays here.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) on_error: Option<Box<OnError>>,
    pub(crate) on_lagged: Option<Box<OnLagged>>,
    pub(crate) on_unreadable: Option<Box<OnUnreadable>>,
    /// Whether it was told last that messages cannot be read.
    is_unreadable: bool,
}

impl Listeners {
    /// Tells of a failure.
    pub(crate) fn failed(
        &mut self,
        subscription: u64,
        message: &Message<'_>,
        reason: &str,
        panicked: bool,
    ) {
        tracing::warn!(subscription, topic = message.topic(), reason, panicked, "a handler failed");
        if let Some(on_error) = &mut self.on_error {
            let error = HandlerError { message: *message, reason, panicked };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| on_error(error))) {
                tracing::error!(subscription, "on_error panicked");
                drop_quietly(panic);
            }
        }
    }

    /// Tells of a loss.
    pub(crate) fn lagged(&mut self, subscription: u64, lost: u64) {
        tracing::debug!(subscription, lost, "messages were lost");
        if let Some(on_lagged) = &mut self.on_lagged
            && let Err(panic) = catch_unwind(AssertUnwindSafe(|| on_lagged(lost)))
        {
            tracing::error!(subscription, "on_lagged panicked");
            drop_quietly(panic);
        }
    }

    /// Tells why messages cannot be read, or that they can be again, where that is news.
    pub(crate) fn unreadable(&mut self, subscription: u64, fault: Option<StoreFault>) {
        if self.is_unreadable == fault.is_some() {
            return;
        }
        self.is_unreadable = fault.is_some();
        match fault {
            Some(error) => tracing::error!(
                subscription,
                %error,
                "messages for a handler cannot be read, which is tried again"
            ),
            None => tracing::info!(subscription, "messages for a handler can be read again"),
        }
        if let Some(on_unreadable) = &mut self.on_unreadable
            && let Err(panic) = catch_unwind(AssertUnwindSafe(|| on_unreadable(fault)))
        {
            tracing::error!(subscription, "on_unreadable panicked");
            drop_quietly(panic);
        }
    }

    /// Lets go of them; whether none has panicked.
    pub(crate) fn release(self) -> bool {
        contain(|| drop(self.on_error))
            & contain(|| drop(self.on_lagged))
            & contain(|| drop(self.on_unreadable))
    }
}
