//! Messages: as they are published, as they are received, and kept.
#![expect(unsafe_code, reason = "exported names, and views that point at what they are views of")]

use crate::handle::{self, Caller};
use crate::last_error::Failure;
use crate::panic::{entry, free, guarded};
use crate::status::slipring_status;
use slipring_core::internals::Block;
use slipring_core::{AsMessage, Message, NewMessage, OwnedMessage};
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::slice;

/// A text: UTF-8, not ending in NUL.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_text_view {
    /// Its first byte; NULL where there is no text.
    pub data: *const c_char,
    /// Its length in bytes.
    pub len: usize,
}

/// An attribute of a message.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_attribute {
    /// 1 to 256 bytes.
    pub key: slipring_text_view,
    /// Up to 1024 bytes.
    pub value: slipring_text_view,
}

/// A message to be published. Everything in it is borrowed for the call alone. All zeroes is a
/// message without anything. It will not grow, so that arrays of it can cross.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_new_message {
    /// Opaque bytes; may be NULL if `payload_len` is 0.
    pub payload: *const u8,
    /// Bytes of the payload.
    pub payload_len: usize,
    /// Ordering key, up to 1024 bytes: messages with the same key share a partition and keep their
    /// order. `data` NULL: none.
    pub key: slipring_text_view,
    /// An id of the publisher's own, 1 to 255 bytes. `data` NULL: one is derived from the place.
    pub id: slipring_text_view,
    /// Up to 100 attributes with different keys; may be NULL if there are none.
    pub attributes: *const slipring_attribute,
    /// How many attributes.
    pub attributes_len: usize,
}

impl slipring_new_message {
    /// 0 if it is a payload and nothing else.
    #[inline(always)]
    fn others(&self) -> usize {
        let texts = [self.key, self.id];
        texts.iter().fold(self.attributes_len, |all, text| all | text.data as usize | text.len)
    }
}

/// A message that is a payload and nothing else, and was [checked](Caller::payloads).
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Payload(slipring_new_message);

// SAFETY: the caller leaves what it points to alone while the call lasts.
unsafe impl Sync for Payload {}

// SAFETY: the caller's bytes, as above, and nothing else is done.
unsafe impl AsMessage for Payload {
    #[inline(always)]
    fn as_message(&self) -> NewMessage<'_> {
        let first = NonNull::new(self.0.payload.cast_mut()).unwrap_or(NonNull::dangling());
        // SAFETY: checked; where it was NULL, it is empty.
        NewMessage::new(unsafe { slice::from_raw_parts(first.as_ptr(), self.0.payload_len) })
    }
}

/// How a message lies in memory, and in the files of a directory: this, the extension (key, id and
/// attributes), and the payload. For the functions that read a message; laid out for ever.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_record {
    /// Position in the partition.
    pub offset: u64,
    /// When it was published: microseconds since the Unix epoch.
    pub published_us: u64,
    /// Number of the partition.
    pub partition: u32,
    /// For the library.
    pub sequence_low: u32,
    /// Bytes of the payload.
    pub payload_len: u32,
    /// The `slipring_record_meta`.
    pub meta: u32,
}

/// What the `meta` of a `slipring_record` says.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_enums, reason = "C has no others")]
#[repr(u32)]
pub enum slipring_record_meta {
    /// These bits are the length of the extension, in units of 8 bytes.
    SLIPRING_RECORD_EXTENSION = 16777215,
    /// The extension has a key: 16 bits of length, little-endian, and text. The first part.
    SLIPRING_RECORD_KEY = 16777216,
    /// It has an id: the same. Behind the key.
    SLIPRING_RECORD_ID = 33554432,
    /// It has attributes: 16 bits of how many, and for each 16 bits of its name's length, 16 of its
    /// value's, and both texts. Behind the id.
    SLIPRING_RECORD_ATTRIBUTES = 67108864,
}

const _: () = {
    use slipring_core::internals::{EXTENSION_MASK, HAS_ATTRIBUTES, HAS_ID, HAS_KEY};
    use slipring_record_meta::*;
    assert!(SLIPRING_RECORD_EXTENSION as u32 == EXTENSION_MASK);
    assert!(SLIPRING_RECORD_KEY as u32 == HAS_KEY);
    assert!(SLIPRING_RECORD_ID as u32 == HAS_ID);
    assert!(SLIPRING_RECORD_ATTRIBUTES as u32 == HAS_ATTRIBUTES);
};

/// A message where it lies: reading it, with the `slipring_message_` functions, copies nothing. Valid
/// as long as the function says that it came from; `slipring_message_keep` makes it outlive that. A
/// copy of this struct is as good as the struct, and lives as long. It will not grow, so that arrays of
/// it can cross. Other threads may read it meanwhile.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_message {
    /// Where it lies.
    pub record: *const slipring_record,
    /// How it was delivered; for the library.
    pub delivery: *const c_void,
}

/// A message that was kept: it outlives the subscription and the broker. Usable from all threads at
/// once. Free it with `slipring_kept_free`.
#[derive(Debug)]
pub struct slipring_kept {
    /// Borrows from `message`, which does not move: it is in the handle's box.
    view: Option<Message<'static>>,
    message: OwnedMessage,
}

pub(crate) fn text_view(text: &str) -> slipring_text_view {
    slipring_text_view { data: text.as_ptr().cast(), len: text.len() }
}

pub(crate) const NO_TEXT: slipring_text_view = slipring_text_view { data: ptr::null(), len: 0 };

fn attribute_view((key, value): (&str, &str)) -> slipring_attribute {
    slipring_attribute { key: text_view(key), value: text_view(value) }
}

/// The view of a message; lives as long as the reference.
#[inline(always)]
pub(crate) fn view(message: &Message<'_>) -> slipring_message {
    view_at(message.record(), message)
}

/// The same of another message of the same delivery.
#[inline(always)]
fn view_at(record: *const u8, delivery: &Message<'_>) -> slipring_message {
    slipring_message { record: record.cast(), delivery: ptr::from_ref(delivery).cast() }
}

/// Calls `f` with the views of several messages.
#[inline(always)]
pub(crate) fn with_views<R>(block: &Block<'_>, f: impl FnOnce(&[slipring_message]) -> R) -> R {
    if !block.is_one_delivery() {
        return with_views_of_each(block, f);
    }
    let mut views = [const { MaybeUninit::uninit() }; Block::MOST];
    let delivery = block.first();
    let records = block.records();
    let count = records.len().min(views.len());
    for (view, record) in views.iter_mut().zip(records) {
        view.write(view_at(record, &delivery));
    }
    // SAFETY: so many were written.
    f(unsafe { slice::from_raw_parts(views.as_ptr().cast(), count) })
}

#[cold]
#[inline(never)]
fn with_views_of_each<R>(block: &Block<'_>, f: impl FnOnce(&[slipring_message]) -> R) -> R {
    let messages: Vec<_> = block.messages().collect();
    let views: Vec<_> = messages.iter().map(view).collect();
    f(&views)
}

/// Makes a message outlive its borrow.
///
/// # Safety
/// It is not used any more when what it borrows from is given up.
pub(crate) unsafe fn extend(message: Message<'_>) -> Message<'static> {
    // SAFETY: only the lifetime changes, and the caller answers for it.
    unsafe { std::mem::transmute::<Message<'_>, Message<'static>>(message) }
}

impl<'c> Caller<'c> {
    /// The message that a view is of.
    #[inline]
    pub(crate) fn message(self, view: *const slipring_message) -> Result<Message<'c>, Failure> {
        let view = self.get(view, "message")?;
        self.get(view.record, "message.record")?;
        let delivery = self.get(view.delivery.cast::<Message<'c>>(), "message.delivery")?;
        // SAFETY: a view is made of a delivery and a record of it, and the caller has not changed it.
        Ok(unsafe { delivery.another(view.record.cast()) })
    }

    fn view_text(self, view: slipring_text_view, what: &str) -> Result<&'c str, Failure> {
        self.text(view.data, view.len, what)
    }

    /// Calls `f` with the message that `new` describes, its attributes in `room`.
    pub(crate) fn new_message<'r>(
        self,
        new: &slipring_new_message,
        room: &'r mut Vec<(&'c str, &'c str)>,
    ) -> Result<NewMessage<'r>, Failure>
    where
        'c: 'r,
    {
        room.clear();
        let mut message = self.head(new)?;
        if new.attributes_len > 0 {
            self.attributes(new, room)?;
            message.attributes = room;
        }
        Ok(message)
    }

    /// The message that `new` describes, without its attributes.
    #[inline]
    fn head(self, new: &slipring_new_message) -> Result<NewMessage<'c>, Failure> {
        Ok(NewMessage {
            payload: self.array(new.payload, new.payload_len, "payload")?,
            key: self.optional_text(new.key.data, new.key.len, "key")?,
            id: self.optional_text(new.id.data, new.id.len, "id")?,
            attributes: &[],
        })
    }

    #[cold]
    fn attributes(
        self,
        new: &slipring_new_message,
        room: &mut Vec<(&'c str, &'c str)>,
    ) -> Result<(), Failure> {
        let attributes = self.array(new.attributes, new.attributes_len, "attributes")?;
        if attributes.len() > MOST_ATTRIBUTES {
            return Err(Failure::error(
                slipring_status::SLIPRING_EMESSAGE,
                format_args!("{} attributes are over the limit of 100", attributes.len()),
            ));
        }
        for attribute in attributes {
            let key = self.view_text(attribute.key, "attribute key")?;
            room.push((key, self.view_text(attribute.value, "attribute value")?));
        }
        Ok(())
    }

    /// The messages of a batch, if all are payloads and nothing else, and none is wrong, and a length that
    /// none is above: then they need not be made into others, nor looked at again.
    #[inline]
    pub(crate) fn payloads(
        self,
        batch: &'c [slipring_new_message],
    ) -> Option<(&'c [Payload], usize)> {
        // One look at all of them, and no branch for each. No length has a bit that is not in `longest`.
        let (mut others, mut longest, mut any_null) = (0, 0, false);
        for new in batch {
            others |= new.others();
            longest |= new.payload_len;
            any_null |= new.payload.is_null();
        }
        (others == 0 && !any_null && longest <= isize::MAX as usize).then(|| {
            // SAFETY: of one layout.
            (unsafe { slice::from_raw_parts(batch.as_ptr().cast(), batch.len()) }, longest)
        })
    }

    /// The messages of a batch, with the attributes of all in `room`.
    pub(crate) fn new_messages<'r>(
        self,
        batch: &'c [slipring_new_message],
        room: &'r mut Vec<(&'c str, &'c str)>,
    ) -> Result<Vec<NewMessage<'r>>, Failure>
    where
        'c: 'r,
    {
        let mut messages: Vec<NewMessage<'r>> = Vec::with_capacity(batch.len());
        for new in batch {
            // What is mostly there is put together in its place: a copy of a struct that was just
            // written waits for the writes.
            let payload = self.array(new.payload, new.payload_len, "payload")?;
            if new.others() == 0 {
                messages.push(NewMessage::new(payload));
                continue;
            }
            messages.push(self.head(new)?);
            if new.attributes_len > 0 {
                self.attributes(new, room)?;
            }
        }
        let mut rest: &'r [(&'c str, &'c str)] = room;
        if !rest.is_empty() {
            for (message, new) in messages.iter_mut().zip(batch) {
                (message.attributes, rest) = rest.split_at(new.attributes_len);
            }
        }
        Ok(messages)
    }
}

/// The broker checks the exact limits; this bounds what is copied before it is asked.
const MOST_ATTRIBUTES: usize = 100;

/// The functions that the header has inline, for languages that read no headers.
macro_rules! inline_in_the_header {
    ($($name:ident -> $type:ty: |$message:ident| $read:expr, $otherwise:expr;)*) => {$(
        /// See the header.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(message: *const slipring_message) -> $type {
            let mut value = $otherwise;
            // SAFETY: the caller's pointers, used as the header says.
            unsafe {
                entry(|c| {
                    let $message = c.message(message)?;
                    value = $read;
                    Ok(())
                })
            };
            value
        }
    )*};
}

inline_in_the_header! {
    slipring_message_payload -> *const u8: |message| message.payload().as_ptr(), ptr::null();
    slipring_message_payload_len -> usize: |message| message.payload().len(), 0;
    slipring_message_key -> slipring_text_view: |message| {
        message.key().map_or(NO_TEXT, text_view)
    }, NO_TEXT;
    slipring_message_offset -> u64: |message| message.offset(), 0;
    slipring_message_published_us -> u64: |message| message.published_us(), 0;
    slipring_message_partition -> u32: |message| message.partition(), 0;
}

/// The name of its topic; it lives as long as the message. `data` is NULL if `message` is NULL. Does
/// not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_message_topic(
    message: *const slipring_message,
) -> slipring_text_view {
    let mut topic = NO_TEXT;
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            topic = text_view(c.message(message)?.topic());
            Ok(())
        })
    };
    topic
}

/// Which delivery of the message to this subscription this is, from 1. Always 1 where messages are
/// delivered at most once. 0 if `message` is NULL. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_message_attempt(message: *const slipring_message) -> u32 {
    let mut attempt = 0;
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            attempt = c.message(message)?.attempt();
            Ok(())
        })
    };
    attempt
}

/// The value of the attribute `key`; it lives as long as the message. SLIPRING_EMPTY if it has
/// none. Errors: EINVAL, EUTF8. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_message_attribute(
    message: *const slipring_message,
    key: *const c_char,
    key_len: usize,
    value: *mut slipring_text_view,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let message = c.message(message)?;
            let key = c.text(key, key_len, "key")?;
            let value = c.out(value, "value")?;
            let found = message.attribute(key);
            let found = found.ok_or(Failure::outcome(slipring_status::SLIPRING_EMPTY))?;
            value.write(text_view(found));
            Ok(())
        })
    }
}

/// All attributes, in the order in which they were published: writes up to `attributes_len` of them
/// to `attributes`, which may be NULL if that is 0, and how many the message has to `count`, which
/// may be NULL. They live as long as the message. Errors: EINVAL. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_message_attributes(
    message: *const slipring_message,
    attributes: *mut slipring_attribute,
    attributes_len: usize,
    count: *mut usize,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let message = c.message(message)?;
            let attributes = c.out_array(attributes, attributes_len, "attributes")?;
            let count = c.optional_out(count, "count")?;
            count.write(attributes.fill(message.attributes().map(attribute_view)));
            Ok(())
        })
    }
}

/// Copies the message's id to `buffer`, ending in NUL, and returns its length without the NUL,
/// which may be more than fits: the publisher's own id, or a UUID made of the message's place. 256
/// bytes are always enough. 0 if `message` is NULL. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_message_id(
    message: *const slipring_message,
    buffer: *mut c_char,
    buffer_len: usize,
) -> usize {
    guarded(0, || {
        let mut len = 0;
        // SAFETY: the caller's pointers, used as the header says.
        unsafe {
            entry(|c| {
                let id = c.message(message)?.id().to_string();
                len = handle::copy_text(&id, buffer, buffer_len);
                Ok(())
            })
        };
        len
    })
}

/// Keeps a message past the call that it came with, without copying it: 64 KiB of memory around it,
/// or the message alone if it is larger, stay until the last one kept of them is freed. Errors:
/// EINVAL. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_message_keep(
    message: *const slipring_message,
    kept: *mut *mut slipring_kept,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let message = c.message(message)?;
            c.out(kept, "kept")?.give_box(keep(message.keep()));
            Ok(())
        })
    }
}

pub(crate) fn keep(message: OwnedMessage) -> Box<slipring_kept> {
    let mut kept = Box::new(slipring_kept { view: None, message });
    // SAFETY: it is used as long as the handle lives, which has what it borrows from.
    kept.view = Some(unsafe { extend(kept.message.view()) });
    kept
}

/// The message that was kept; it lives as long as the handle. Errors: EINVAL. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_kept_message(
    kept: *const slipring_kept,
    message: *mut slipring_message,
) -> slipring_status {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe {
        entry(|c| {
            let kept = c.get(kept, "kept")?;
            let message = c.out(message, "message")?;
            if let Some(kept) = &kept.view {
                message.write(view(kept));
            }
            Ok(())
        })
    }
}

/// Frees a kept message and sets the pointer to NULL. NULL, or a pointer to NULL, is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_kept_free(kept: *mut *mut slipring_kept) {
    // SAFETY: the caller's pointers, used as the header says.
    unsafe { free(kept) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whose header has these inline never calls them.
    #[test]
    fn what_is_inline_in_the_header_takes_null_and_views_of_nothing() {
        let empty = slipring_message { record: ptr::null(), delivery: ptr::null() };
        for message in [ptr::null(), &raw const empty] {
            // SAFETY: NULL, or a view of nothing, which they look for.
            unsafe {
                assert!(slipring_message_payload(message).is_null());
                assert_eq!(slipring_message_payload_len(message), 0);
                assert!(slipring_message_key(message).data.is_null());
                assert_eq!(slipring_message_offset(message), 0);
                assert_eq!(slipring_message_published_us(message), 0);
                assert_eq!(slipring_message_partition(message), 0);
            }
        }
    }
}
