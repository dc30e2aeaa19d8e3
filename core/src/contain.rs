//! Containing the panics of foreign code: handlers, filters, wakers, and whatever they captured.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs foreign code that has nothing to return; false if it panicked.
pub(crate) fn contain(work: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(()) => true,
        Err(panic) => {
            drop_quietly(panic);
            false
        }
    }
}

/// Drops a panic's payload, which may panic itself when it is dropped.
pub(crate) fn drop_quietly(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}
