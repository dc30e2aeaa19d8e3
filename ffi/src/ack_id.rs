//! Ack ids: values that name one delivery of one message.
#![expect(unsafe_code, reason = "exported names")]

use crate::handle;
use crate::last_error::Failure;
use crate::message::slipring_message;
use crate::panic::{entry, guarded};
use crate::status::slipring_status;
use slipring_core::{AckError, AckId};
use std::ffi::c_char;

/// Names one delivery of one message to one subscription: by it, and a `slipring_acker`, the message
/// can be settled from anywhere. A value: it may be copied, compared byte by byte and stored. It
/// will not grow, so that arrays of it can cross.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_ack_id {
    /// Opaque.
    pub bytes: [u8; 24],
}

impl From<AckId> for slipring_ack_id {
    fn from(id: AckId) -> Self {
        Self { bytes: id.to_bytes() }
    }
}

impl slipring_ack_id {
    pub(crate) fn read(&self) -> Result<AckId, Failure> {
        Ok(AckId::from_bytes(self.bytes)?)
    }
}

/// The ack ids of an array of messages: `ids` has room for as many. Errors: EINVAL, ENOTLEASED if
/// one of them is not to be settled. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_ack_ids(
    messages: *const slipring_message,
    messages_len: usize,
    ids: *mut slipring_ack_id,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let messages = c.array(messages, messages_len, "messages")?;
            let ids = c.out_array(ids, messages_len, "ids")?;
            let read = messages.iter().map(|view| -> Result<slipring_ack_id, Failure> {
                Ok(c.message(view)?.ack_id().ok_or(AckError::NotLeased)?.into())
            });
            let read = read.collect::<Result<Vec<_>, _>>()?;
            ids.fill(read.into_iter());
            Ok(())
        })
    }
}

/// Copies an ack id as text to `buffer`, ending in NUL, and returns its length without the NUL,
/// which is 48 characters of `[0-9a-f]`. 0 if `id` is NULL or damaged. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_ack_id_text(
    id: *const slipring_ack_id,
    buffer: *mut c_char,
    buffer_len: usize,
) -> usize {
    guarded(0, || {
        let mut len = 0;
        // SAFETY: the caller's pointers, used as the header says.
        unsafe {
            entry(|c| {
                let text = c.get(id, "id")?.read()?.to_string();
                len = handle::copy_text(&text, buffer, buffer_len);
                Ok(())
            })
        };
        len
    })
}

/// Reads an ack id from its text. Errors: EINVAL, EUTF8, EACKID with the byte where it stops being
/// one. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_ack_id_parse(
    text: *const c_char,
    text_len: usize,
    id: *mut slipring_ack_id,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let text = c.text(text, text_len, "text")?;
            let out = c.out(id, "id")?;
            out.write(text.parse::<AckId>()?.into());
            Ok(())
        })
    }
}
