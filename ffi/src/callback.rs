//! Functions of the caller, and the user data that comes with them.
#![expect(unsafe_code, reason = "calls functions of the caller")]

use crate::message::{self, slipring_message};
use slipring_core::Message;
use std::ffi::{c_char, c_void};

/// Is called with an array of messages, at least one, which are valid until it returns.
///
/// A function that is called by the library must return: it must not `longjmp`, end its thread or
/// let a C++ exception out.
pub type slipring_messages_fn = Option<
    unsafe extern "C" fn(user: *mut c_void, messages: *const slipring_message, count: usize),
>;

/// Says whether a message is wanted: not 0 for yes.
pub type slipring_filter_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, message: *const slipring_message) -> i32>;

/// Handles a message: returns a `slipring_handled`, or any other number if it failed.
pub type slipring_handler_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, message: *const slipring_message) -> i32>;

/// Handles an array of messages, at least one, which are valid until it returns. What it makes of each
/// is a `slipring_handled`: what it has written to the message's place in `handled`, which has as many,
/// or what it returns, where that is SLIPRING_AS_RETURNED, as all of them are before the call. Any other
/// number is a failure.
pub type slipring_batch_handler_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        messages: *const slipring_message,
        count: usize,
        handled: *mut i32,
    ) -> i32,
>;

/// Is told how many messages were lost before the next one.
pub type slipring_lagged_fn = Option<unsafe extern "C" fn(user: *mut c_void, lost: u64)>;

/// Is told of a message that the handler failed on, what it returned, and why: as text that does
/// not end in NUL, what it has told `slipring_handler_reason`.
pub type slipring_failed_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        message: *const slipring_message,
        returned: i32,
        reason: *const c_char,
        reason_len: usize,
    ),
>;

/// Is told an event of the broker: how much it matters, a `slipring_log_level`, and what it was, as
/// text that does not end in NUL.
pub type slipring_log_fn = Option<
    unsafe extern "C" fn(user: *mut c_void, level: u32, text: *const c_char, text_len: usize),
>;

/// Lets go of user data.
pub type slipring_user_free_fn = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// The user data of callbacks; let go of exactly once, when this is dropped.
#[derive(Debug)]
pub(crate) struct User {
    user: *mut c_void,
    free: slipring_user_free_fn,
}

// SAFETY: the header says which threads user data is used and let go of on, and the caller has
// accepted that by giving it.
unsafe impl Send for User {}
// SAFETY: the same.
unsafe impl Sync for User {}

impl User {
    pub(crate) fn new(user: *mut c_void, free: slipring_user_free_fn) -> Self {
        Self { user, free }
    }

    /// Calls a function that answers with a number; 0 if there is no function.
    #[inline]
    pub(crate) fn ask(&self, function: slipring_handler_fn, message: &slipring_message) -> i32 {
        // SAFETY: a function of the caller, given for this.
        function.map_or(0, |function| unsafe { function(self.user, message) })
    }

    /// Calls a filter function.
    pub(crate) fn wants(&self, function: slipring_filter_fn, message: &Message<'_>) -> bool {
        self.ask(function, &message::view(message)) != 0
    }

    pub(crate) fn log(&self, function: slipring_log_fn, level: u32, text: &str) {
        if let Some(function) = function {
            // SAFETY: a function of the caller, given for this.
            unsafe { function(self.user, level, text.as_ptr().cast(), text.len()) }
        }
    }

    /// Calls a function that answers with a number for each message, or one for all; 0 if there is no
    /// function.
    #[inline]
    pub(crate) fn ask_all(
        &self,
        function: slipring_batch_handler_fn,
        messages: &[slipring_message],
        answers: &mut [i32],
    ) -> i32 {
        let count = messages.len().min(answers.len());
        function.map_or(0, |function| {
            // SAFETY: a function of the caller, given for this; both arrays have as many.
            unsafe { function(self.user, messages.as_ptr(), count, answers.as_mut_ptr()) }
        })
    }

    #[inline]
    pub(crate) fn tell(&self, function: slipring_messages_fn, messages: &[slipring_message]) {
        if let Some(function) = function {
            // SAFETY: a function of the caller, given for this.
            unsafe { function(self.user, messages.as_ptr(), messages.len()) }
        }
    }

    pub(crate) fn tell_lagged(&self, function: slipring_lagged_fn, lost: u64) {
        if let Some(function) = function {
            // SAFETY: a function of the caller, given for this.
            unsafe { function(self.user, lost) }
        }
    }

    pub(crate) fn tell_failed(
        &self,
        function: slipring_failed_fn,
        message: &Message<'_>,
        returned: i32,
        reason: &str,
    ) {
        let view = message::view(message);
        if let Some(function) = function {
            let (reason, len) = (reason.as_ptr().cast(), reason.len());
            // SAFETY: a function of the caller, given for this.
            unsafe { function(self.user, &raw const view, returned, reason, len) }
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: a function of the caller, given for this, and called this once.
            unsafe { free(self.user) }
        }
    }
}
