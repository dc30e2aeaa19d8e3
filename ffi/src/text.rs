//! Texts that the library makes and the caller frees.
#![expect(unsafe_code, reason = "exported names")]

use crate::message::{slipring_text_view, text_view};
use crate::panic::{entry, free};
use crate::status::slipring_status;

/// A text made by the library. Free it with `slipring_text_free`.
#[derive(Debug)]
pub struct slipring_text {
    text: String,
}

impl slipring_text {
    /// Of `text`; ends in NUL behind its length, for those who want that.
    pub(crate) fn new(mut text: String) -> Self {
        text.push('\0');
        Self { text }
    }

    /// Each of `lines`, and a newline behind it.
    pub(crate) fn lines(lines: &[String]) -> Self {
        Self::new(lines.iter().flat_map(|line| [line, "\n"]).collect())
    }
}

/// What is in a text; it lives as long as the handle, and a NUL is behind its length. Errors:
/// EINVAL. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_text_get(
    text: *const slipring_text,
    view: *mut slipring_text_view,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let text = c.get(text, "text")?;
            c.out(view, "view")?.write(text_view(text.text.trim_end_matches('\0')));
            Ok(())
        })
    }
}

/// Frees a text and sets the pointer to NULL. NULL, or a pointer to NULL, is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_text_free(text: *mut *mut slipring_text) {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { free(text) }
}
