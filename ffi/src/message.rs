//! Messages: as they are published, as they are received, and kept.
#![expect(unsafe_code, reason = "exported names, and views that point at what they are views of")]

use crate::handle::{self, Caller};
use crate::last_error::Failure;
use crate::panic::{entry, free, guarded};
use crate::status::slipring_status;
use slipring_core::{AsMessage, Message, NewMessage, OwnedMessage};
use std::ffi::c_char;
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
    /// Whether it is a payload and nothing else.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        let texts = [self.key, self.id];
        let all =
            texts.iter().fold(self.attributes_len, |all, text| all | text.data as usize | text.len);
        all == 0
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

/// A message where it lies: reading it copies nothing. Valid as long as the function says that it
/// came from; `slipring_message_keep` makes it outlive that. It will not grow, so that arrays of it
/// can cross. Other threads may read it meanwhile.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct slipring_message {
    /// The payload; never NULL.
    pub payload: *const u8,
    /// Bytes of the payload.
    pub payload_len: usize,
    /// Name of the topic.
    pub topic: slipring_text_view,
    /// The ordering key; `data` is NULL if it has none.
    pub key: slipring_text_view,
    /// Position in the partition, from 0.
    pub offset: u64,
    /// When it was published: microseconds since the Unix epoch.
    pub published_us: u64,
    /// Number of the partition, unique in the broker.
    pub partition: u32,
    /// How many attributes it has.
    pub attributes_len: u32,
    /// Which delivery of the message to this subscription this is, from 1. Always 1 where messages
    /// are delivered at most once.
    pub attempt: u32,
    /// Not used: 0.
    pub reserved: u32,
    /// For the library. A copy of this struct is as good as the struct, and lives as long.
    pub internal: *const std::ffi::c_void,
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

const NO_TEXT: slipring_text_view = slipring_text_view { data: ptr::null(), len: 0 };

fn attribute_view((key, value): (&str, &str)) -> slipring_attribute {
    slipring_attribute { key: text_view(key), value: text_view(value) }
}

/// Makes views of messages of one broker. Neighbours are mostly of one topic, so that its name need
/// not be looked up again.
#[derive(Debug)]
pub(crate) struct Viewer {
    /// Of the message before; `u32::MAX` before the first, which no partition is.
    partition: u32,
    /// The name of that partition's topic. It is where the broker's messages find it: there it stays
    /// as long as there is one of them, since a broker forgets no partition, and gives no number away
    /// twice, also where topics are deleted.
    topic: slipring_text_view,
}

// SAFETY: a name is only read, and by whoever has a message of the broker.
unsafe impl Send for Viewer {}

impl Viewer {
    pub(crate) fn new() -> Self {
        Self { partition: u32::MAX, topic: NO_TEXT }
    }

    /// The view of a message; lives as long as the reference.
    #[inline(always)]
    pub(crate) fn view(&mut self, message: &Message<'_>) -> slipring_message {
        let partition = message.partition();
        if partition != self.partition {
            *self = Self { partition, topic: text_view(message.topic()) };
        }
        view_with(message, self.topic)
    }
}

/// The view of a message; lives as long as the reference.
#[inline]
pub(crate) fn view(message: &Message<'_>) -> slipring_message {
    view_with(message, text_view(message.topic()))
}

#[inline(always)]
fn view_with(message: &Message<'_>, topic: slipring_text_view) -> slipring_message {
    let payload = message.payload();
    slipring_message {
        payload: payload.as_ptr(),
        payload_len: payload.len(),
        topic,
        key: message.key().map_or(NO_TEXT, text_view),
        offset: message.offset(),
        published_us: message.published_us(),
        partition: message.partition(),
        attributes_len: message.attributes().len() as u32,
        attempt: message.attempt(),
        reserved: 0,
        internal: ptr::from_ref(message).cast(),
    }
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
    pub(crate) fn message(self, view: *const slipring_message) -> Result<&'c Message<'c>, Failure> {
        let view = self.get(view, "message")?;
        self.get(view.internal.cast::<Message<'c>>(), "message.internal")
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

    /// The messages of a batch, if all are payloads and nothing else, and none is wrong: then they need
    /// not be made into others.
    #[inline]
    pub(crate) fn payloads(self, batch: &'c [slipring_new_message]) -> Option<&'c [Payload]> {
        // Without a branch for each.
        let all = batch.iter().fold(true, |all, new| {
            let is_there = !new.payload.is_null() & (new.payload_len <= isize::MAX as usize);
            all & new.is_plain() & (is_there | (new.payload_len == 0))
        });
        // SAFETY: of one layout.
        all.then(|| unsafe { slice::from_raw_parts(batch.as_ptr().cast(), batch.len()) })
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
            if new.is_plain() {
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
