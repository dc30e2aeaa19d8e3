//! The boundary: no panic leaves it, and what goes wrong inside becomes a status.
#![expect(unsafe_code, reason = "lets the pointers of the caller in")]

use crate::handle::Caller;
use crate::last_error::{self, Failure};
use crate::status::slipring_status;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of an entry. What it has changed when it panics is only what the broker keeps
/// consistent itself, or is freed with the handle.
///
/// # Safety
/// All pointers that `body` hands to the [`Caller`] come from the caller of the entry, who uses
/// them as the header says.
#[inline]
pub(crate) unsafe fn entry(
    body: impl FnOnce(Caller<'_>) -> Result<(), Failure>,
) -> slipring_status {
    // SAFETY: the caller's promise is the same.
    let caller = unsafe { Caller::new() };
    match catch_unwind(AssertUnwindSafe(|| body(caller))) {
        Ok(Ok(())) => slipring_status::SLIPRING_OK,
        Ok(Err(failure)) => failure.status(),
        Err(panic) => panicked(panic),
    }
}

/// The entry that frees a handle and sets the pointer to NULL.
///
/// # Safety
/// As for [`entry`].
pub(crate) unsafe fn free<T>(handle: *mut *mut T) {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            drop(c.take(handle));
            Ok(())
        })
    };
}

/// Runs the body of an entry that returns a plain value, `otherwise` if it panics.
#[inline]
pub(crate) fn guarded<R>(otherwise: R, body: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(panic) => {
            panicked(panic);
            otherwise
        }
    }
}

#[cold]
fn panicked(panic: Box<dyn Any + Send>) -> slipring_status {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "of unknown cause",
    };
    last_error::set(format_args!("panic: {text}"), None);
    // Dropping it could panic again.
    std::mem::forget(panic);
    slipring_status::SLIPRING_EPANIC
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status_with_its_text() {
        // SAFETY: no pointer is used.
        let status = unsafe { entry(|_| panic!("on purpose")) };
        assert_eq!(status, slipring_status::SLIPRING_EPANIC);
        let mut buffer = [0u8; 64];
        // SAFETY: the buffer is as long as said.
        let len =
            unsafe { last_error::slipring_last_error(buffer.as_mut_ptr().cast(), buffer.len()) };
        assert_eq!(&buffer[..len], b"panic: on purpose");
        assert_eq!(guarded(7, || panic!("again")), 7);
    }
}
