//! A handler's failures, and what it has lost: what is told of them, and to whom.

use crate::contain::drop_quietly;
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

/// What a panic says.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic of an unknown type")
}

/// Logs a failure and tells `on_error` of it, whose own panics stay here.
pub(crate) fn report(
    subscription: u64,
    on_error: &mut Option<Box<OnError>>,
    message: &Message<'_>,
    reason: &str,
    panicked: bool,
) {
    tracing::warn!(subscription, topic = message.topic(), reason, panicked, "a handler failed");
    if let Some(on_error) = on_error {
        let error = HandlerError { message: *message, reason, panicked };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| on_error(error))) {
            tracing::error!(subscription, "on_error panicked");
            drop_quietly(panic);
        }
    }
}

/// Logs a loss and tells `on_lagged` of it, whose panics stay here.
pub(crate) fn tell_loss(subscription: u64, on_lagged: &mut Option<Box<OnLagged>>, lost: u64) {
    tracing::debug!(subscription, lost, "messages were lost");
    if let Some(on_lagged) = on_lagged
        && let Err(panic) = catch_unwind(AssertUnwindSafe(|| on_lagged(lost)))
    {
        tracing::error!(subscription, "on_lagged panicked");
        drop_quietly(panic);
    }
}
