//! The thread's last error: text and position.
#![expect(unsafe_code, reason = "exported names")]

use crate::handle;
use crate::panic::guarded;
use crate::status::slipring_status;
use std::cell::RefCell;
use std::ffi::c_char;
use std::fmt::{Display, Write as _};

/// A call that ends without success. Its text, if it has one, is the thread's last error already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    status: slipring_status,
}

impl Failure {
    /// An outcome that is no error and leaves the last error as it is.
    pub(crate) fn outcome(status: slipring_status) -> Self {
        Self { status }
    }

    /// An error with its text.
    #[cold]
    pub(crate) fn error(status: slipring_status, text: impl Display) -> Self {
        Self::error_at(status, None, text)
    }

    /// An error with its text and the place in what was given.
    #[cold]
    pub(crate) fn error_at(
        status: slipring_status,
        position: Option<usize>,
        text: impl Display,
    ) -> Self {
        set(text, position);
        Self { status }
    }

    #[cold]
    pub(crate) fn invalid(text: impl Display) -> Self {
        Self::error(slipring_status::SLIPRING_EINVAL, text)
    }

    pub(crate) fn status(self) -> slipring_status {
        self.status
    }
}

struct LastError {
    text: String,
    position: Option<usize>,
}

thread_local! {
    static LAST: RefCell<LastError> =
        const { RefCell::new(LastError { text: String::new(), position: None }) };
}

/// Notes an error. Does nothing in a thread that is ending.
#[cold]
pub(crate) fn set(text: impl Display, position: Option<usize>) {
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            last.text.clear();
            // Writing to a String cannot fail.
            let _ = write!(last.text, "{text}");
            last.position = position;
        }
    });
}

fn read<R>(f: impl FnOnce(&LastError) -> R) -> Option<R> {
    LAST.try_with(|last| last.try_borrow().ok().map(|last| f(&last))).ok().flatten()
}

/// Copies the text of the last error of this thread to `buffer`, ending in NUL, and returns its
/// length without the NUL, which may be more than fits: `buffer_len` bytes are never exceeded, and
/// what is cut off are whole UTF-8 characters. `buffer` may be NULL to ask for the length.
///
/// Set by every function that returns a negative status, and left as it is by all others; empty
/// before the first error. Never fails; does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_last_error(buffer: *mut c_char, buffer_len: usize) -> usize {
    guarded(0, || {
        // SAFETY: the caller gives a buffer of that length, or NULL.
        let copy = |text: &str| unsafe { handle::copy_text(text, buffer, buffer_len) };
        read(|last| copy(&last.text)).unwrap_or_else(|| copy(""))
    })
}

/// The place that the last error of this thread is about: the byte of a text at which it breaks the
/// rules, of a name, a pattern or a filter expression. `SIZE_MAX` if it has none. Never fails; does
/// not wait.
#[unsafe(no_mangle)]
pub extern "C" fn slipring_last_error_position() -> usize {
    guarded(usize::MAX, || read(|last| last.position).flatten().unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    /// Asks for the last error while it is being written.
    struct Asking<'a>(&'a RefCell<[u8; 4]>);

    impl Display for Asking<'_> {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            let mut buffer = self.0.borrow_mut();
            // SAFETY: the buffer is as long as said.
            let len = unsafe { slipring_last_error(buffer.as_mut_ptr().cast(), buffer.len()) };
            assert_eq!(len, 0);
            Ok(())
        }
    }

    #[test]
    fn where_the_text_cannot_be_read_an_empty_one_is_left() {
        let buffer = RefCell::new(*b"old!");
        set(Asking(&buffer), None);
        assert_eq!(buffer.into_inner()[0], 0);
    }
}
