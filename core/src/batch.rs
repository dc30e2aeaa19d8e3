//! Batches: messages as their publisher has them, whatever their type.
#![expect(unsafe_code, reason = "messages are written into memory that was measured for them")]

use crate::config::Limits;
use crate::copy::copy;
use crate::error::InvalidMessage;
use crate::message::{self, Layout, NewMessage, Place};
use crate::prefetch;
use crate::sync::{AtomicUsize, Ordering};
use std::fmt;

/// What can be published in a batch: a [`NewMessage`], or a payload alone, as bytes or as text.
///
/// Payloads need no `NewMessage` to be made of each first, which for small ones takes as long as
/// publishing them.
///
/// # Safety
/// As long as it is borrowed, [`as_message`](Self::as_message) returns the same message each time. It
/// is called while the shard is held, so it does not panic, wait, or call the broker.
pub unsafe trait AsMessage: Sync {
    /// The message.
    fn as_message(&self) -> NewMessage<'_>;
}

// SAFETY: a copy of what is borrowed.
unsafe impl AsMessage for NewMessage<'_> {
    #[inline(always)]
    fn as_message(&self) -> NewMessage<'_> {
        *self
    }
}

macro_rules! payloads {
    ($([$($parameter:tt)*] $type:ty => $bytes:expr;)*) => {$(
        // SAFETY: bytes that are borrowed, and nothing else is done.
        unsafe impl<$($parameter)*> AsMessage for $type {
            #[inline(always)]
            fn as_message(&self) -> NewMessage<'_> {
                let bytes: fn(&Self) -> &[u8] = $bytes;
                NewMessage::new(bytes(self))
            }
        }
    )*};
}

payloads! {
    [] [u8] => |payload| payload;
    [const N: usize] [u8; N] => |payload| payload;
    [] Vec<u8> => Vec::as_slice;
    [] str => str::as_bytes;
    [] String => |text| text.as_bytes();
}

// SAFETY: as what it refers to.
unsafe impl<M: AsMessage + ?Sized> AsMessage for &M {
    #[inline(always)]
    fn as_message(&self) -> NewMessage<'_> {
        (**self).as_message()
    }
}

/// Messages of one type. What is done for each of them in a loop is compiled for the type, so that the
/// shard need not be.
trait Messages: Sync {
    fn get(&self, at: usize) -> NewMessage<'_>;

    /// See [`Batch::check`].
    fn check(&self, limits: &Limits) -> Result<(), InvalidMessage>;

    /// See [`Batch::write`].
    unsafe fn write(
        &self,
        of: (usize, usize),
        room: (*mut u8, usize),
        place: Place,
        slots: &[AtomicUsize],
    ) -> (usize, *mut u8);
}

impl<M: AsMessage> Messages for &[M] {
    fn get(&self, at: usize) -> NewMessage<'_> {
        self[at].as_message()
    }

    fn check(&self, limits: &Limits) -> Result<(), InvalidMessage> {
        // Ordinary ones, without a branch for each; then one by one.
        let ordinary = self.iter().fold(true, |ordinary, message| {
            let message = message.as_message();
            ordinary & message.is_plain() & (message.payload.len() <= limits.payload_bytes)
        });
        if ordinary {
            return Ok(());
        }
        self.iter().try_for_each(|message| message.as_message().layout(limits).map(drop))
    }

    // A function of its own, so that all it works with stays in registers: what limits a batch is the
    // room in the store buffer, and a spilled variable takes it as a field of a record does.
    #[inline(never)]
    unsafe fn write(
        &self,
        (first, last): (usize, usize),
        (mut at, end): (*mut u8, usize),
        place: Place,
        slots: &[AtomicUsize],
    ) -> (usize, *mut u8) {
        let mut count = 0;
        let Place { mut offset, published_us, .. } = place;
        let mut tag = place.tag();
        for (message, slot) in self[first..last].iter().zip(slots) {
            let message = message.as_message();
            let mut layout = Layout { payload_len: message.payload.len() as u32, meta: 0 };
            if !message.is_plain() {
                let Ok(meta) = message.measure_extension() else { break };
                layout.meta = meta;
            }
            let bytes = layout.bytes();
            if bytes > end - at as usize {
                break;
            }
            prefetch::for_write(at as usize + message::AHEAD);
            prefetch::for_write(at as usize + message::AHEAD + 64);
            let words = [offset, published_us, tag];
            // SAFETY: the caller's room, below whose end it ends.
            unsafe {
                let payload = message::write_header(at, &message, layout, words);
                copy(message.payload.as_ptr(), payload, message.payload.len());
            }
            // SYNC slot-reused: pairs with Log::address.
            slot.store(at as usize, Ordering::Release);
            at = at.wrapping_add(bytes);
            offset += 1;
            // The sequence is the upper half: its carry is lost, as it should be.
            tag = tag.wrapping_add(1 << 32);
            count += 1;
        }
        (count, at)
    }
}

/// Messages that are payloads and nothing else, of which none is longer than `longest`: looking at each
/// has been done.
pub(crate) struct Payloads<'a, M> {
    pub(crate) messages: &'a [M],
    pub(crate) longest: usize,
}

impl<M: AsMessage> Messages for Payloads<'_, M> {
    fn get(&self, at: usize) -> NewMessage<'_> {
        self.messages[at].as_message()
    }

    fn check(&self, limits: &Limits) -> Result<(), InvalidMessage> {
        if self.longest <= limits.payload_bytes { Ok(()) } else { self.messages.check(limits) }
    }

    unsafe fn write(
        &self,
        of: (usize, usize),
        room: (*mut u8, usize),
        place: Place,
        slots: &[AtomicUsize],
    ) -> (usize, *mut u8) {
        // SAFETY: passed on.
        unsafe { self.messages.write(of, room, place, slots) }
    }
}

/// Messages to be published in order, or some of them.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    messages: &'a dyn Messages,
    first: usize,
    end: usize,
}

impl<'a> Batch<'a> {
    #[inline]
    pub(crate) fn of<M: AsMessage>(messages: &'a &[M]) -> Self {
        Self { messages, first: 0, end: messages.len() }
    }

    #[inline]
    pub(crate) fn of_payloads<M: AsMessage>(payloads: &'a Payloads<'_, M>) -> Self {
        Self { messages: payloads, first: 0, end: payloads.messages.len() }
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.end - self.first
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.first == self.end
    }

    /// The first message, if there is one.
    #[inline]
    pub(crate) fn first(self) -> Option<NewMessage<'a>> {
        (!self.is_empty()).then(|| self.messages.get(self.first))
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = NewMessage<'a>> {
        (self.first..self.end).map(|at| self.messages.get(at))
    }

    /// All but the first `count`, which there are.
    #[inline]
    pub(crate) fn skip(self, count: usize) -> Self {
        debug_assert!(count <= self.len(), "so many are there");
        Self { first: self.first + count, ..self }
    }

    /// The first `most`, or all if they are fewer.
    #[inline]
    pub(crate) fn take(self, most: usize) -> Self {
        Self { end: self.first + most.min(self.len()), ..self }
    }

    /// Checks all of them; the first one that is wrong tells why.
    #[inline]
    pub(crate) fn check(self, limits: &Limits) -> Result<(), InvalidMessage> {
        self.messages.check(limits)
    }

    /// Writes the records one behind the other from the start of `room` on: as many as fit below its end
    /// and into `slots` of the log's index, which get the address of each; `place` is that of the
    /// first. Returns how many, and where the next one goes.
    ///
    /// # Safety
    /// As for [`message::write`], for all of `room`; the messages have been [checked](Self::check).
    #[inline]
    pub(crate) unsafe fn write(
        self,
        room: (*mut u8, usize),
        place: Place,
        slots: &[AtomicUsize],
    ) -> (usize, *mut u8) {
        // SAFETY: passed on.
        unsafe { self.messages.write((self.first, self.end), room, place, slots) }
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
