//! Records as bytes outside a chunk: measured, checked, and made without unsafe code.
//!
//! The layout is that of `message`, byte for byte. A record that was read is checked as a whole
//! before anybody sees it, since a view of it in a chunk trusts its lengths and its text.

use crate::config::Limits;
use crate::error::InvalidMessage;
use crate::message::{EXTENSION_MASK, HAS_ATTRIBUTES, HAS_ID, HAS_KEY, NewMessage, RECORD_HEADER};
use std::fmt;

/// The place of a record: what the shard decides when it puts a message in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the header of a record has these and no more")]
pub struct RecordPlace {
    /// Number of the partition, unique in the broker.
    pub partition: u32,
    /// Position in the partition; dense, from 0.
    pub offset: u64,
    /// Position in the shard. A record holds its low 32 bits.
    pub sequence: u64,
    /// When it was published: microseconds since the Unix epoch.
    pub published_us: u64,
}

/// One whole record: the bytes that a chunk, a store and a segment file have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StoredRecord<'a>(&'a [u8]);

impl<'a> StoredRecord<'a> {
    /// The record at the front of `bytes`, and what follows it. `None` if its length is not
    /// credible: it says less than a header, or more than there is.
    #[inline]
    pub(crate) fn split_first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let header = bytes.first_chunk::<RECORD_HEADER>()?;
        let payload = word(header, 24) as usize;
        let extension = (word(header, 28) & EXTENSION_MASK) as usize * 8;
        let len = (RECORD_HEADER + extension).checked_add(payload)?.checked_next_multiple_of(8)?;
        (len <= bytes.len()).then(|| {
            let (record, rest) = bytes.split_at(len);
            (Self(record), rest)
        })
    }

    /// The record that `bytes` are, if they are exactly one and all its parts are in order.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let (record, rest) = Self::split_first(bytes)?;
        (rest.is_empty() && record.is_sound()).then_some(record)
    }

    /// Each of the records that lie one behind the other in `bytes`; `None`, at last, if what is
    /// left is not one whose parts are in order.
    pub fn all(mut bytes: &'a [u8]) -> impl Iterator<Item = Option<Self>> {
        std::iter::from_fn(move || {
            if bytes.is_empty() {
                return None;
            }
            let first = Self::split_first(bytes).filter(|(record, _)| record.is_sound());
            bytes = first.map_or(&[], |(_, rest)| rest);
            Some(first.map(|(record, _)| record))
        })
    }

    /// The record that these bytes are, which were checked before.
    pub(super) fn marked(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether the parts of the extension fill it as the flags say, and its text is UTF-8.
    #[inline]
    pub(crate) fn is_sound(self) -> bool {
        // All flags clear and no extension: the usual record, done with one look.
        word(self.header(), 28) == 0 || self.has_sound_extension().is_some()
    }

    fn has_sound_extension(self) -> Option<()> {
        let meta = word(self.header(), 28);
        let len = (meta & EXTENSION_MASK) as usize * 8;
        let extension = &self.0[RECORD_HEADER..RECORD_HEADER + len];
        if meta & !(EXTENSION_MASK | HAS_KEY | HAS_ID | HAS_ATTRIBUTES) != 0 {
            return None;
        }
        let mut rest = extension;
        for flag in [HAS_KEY, HAS_ID] {
            if meta & flag != 0 {
                let len = take_short(&mut rest)?;
                take_text(&mut rest, len)?;
            }
        }
        if meta & HAS_ATTRIBUTES != 0 {
            for _ in 0..take_short(&mut rest)? {
                let (key, value) = (take_short(&mut rest)?, take_short(&mut rest)?);
                take_text(&mut rest, key)?;
                take_text(&mut rest, value)?;
            }
        }
        (rest.len() < 8).then_some(())
    }

    fn header(self) -> &'a [u8; RECORD_HEADER] {
        self.0.first_chunk().expect("as long as a header: checked when it was made")
    }

    /// The whole record.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Position in the partition.
    #[inline]
    pub fn offset(self) -> u64 {
        long(self.header(), 0)
    }

    /// When it was published: microseconds since the Unix epoch.
    #[inline]
    pub fn published_us(self) -> u64 {
        long(self.header(), 8)
    }

    /// Number of the partition.
    #[inline]
    pub fn partition(self) -> u32 {
        word(self.header(), 16)
    }

    /// The low half of the sequence.
    #[inline]
    pub fn sequence_low(self) -> u32 {
        word(self.header(), 20)
    }

    /// The message's id, where the publisher gave it one.
    pub fn id(self) -> Option<&'a str> {
        let mut rest = &self.0[RECORD_HEADER..];
        let meta = word(self.header(), 28);
        let mut text = || {
            let len = take_short(&mut rest)?;
            rest.split_off(..len)
        };
        if meta & HAS_KEY != 0 {
            text()?;
        }
        let id = (meta & HAS_ID != 0).then(text)??;
        std::str::from_utf8(id).ok()
    }

    /// The payload.
    pub fn payload(self) -> &'a [u8] {
        let payload = word(self.header(), 24) as usize;
        let extension = (word(self.header(), 28) & EXTENSION_MASK) as usize * 8;
        &self.0[RECORD_HEADER + extension..][..payload]
    }

    /// Appends `message` as a record to `into`. Bytes that only pad are zero.
    ///
    /// # Errors
    ///
    /// When the message breaks a limit (payloads up to 64 MiB are allowed here); then `into` is as
    /// it was.
    pub fn encode(
        message: &NewMessage<'_>,
        place: RecordPlace,
        into: &mut Vec<u8>,
    ) -> Result<(), InvalidMessage> {
        let limits = Limits { payload_bytes: Limits::MAX_PAYLOAD_BYTES };
        let layout = message.layout(&limits)?;
        into.reserve(layout.bytes());
        let start = into.len();
        into.extend_from_slice(&place.offset.to_le_bytes());
        into.extend_from_slice(&place.published_us.to_le_bytes());
        into.extend_from_slice(&place.partition.to_le_bytes());
        into.extend_from_slice(&(place.sequence as u32).to_le_bytes());
        into.extend_from_slice(&(message.payload.len() as u32).to_le_bytes());
        into.extend_from_slice(&layout.meta().to_le_bytes());
        for text in [message.key, message.id].into_iter().flatten() {
            into.extend_from_slice(&(text.len() as u16).to_le_bytes());
            into.extend_from_slice(text.as_bytes());
        }
        if !message.attributes.is_empty() {
            into.extend_from_slice(&(message.attributes.len() as u16).to_le_bytes());
            for &(key, value) in message.attributes {
                into.extend_from_slice(&(key.len() as u16).to_le_bytes());
                into.extend_from_slice(&(value.len() as u16).to_le_bytes());
                into.extend_from_slice(key.as_bytes());
                into.extend_from_slice(value.as_bytes());
            }
        }
        into.resize((into.len() - start).next_multiple_of(8) + start, 0);
        into.extend_from_slice(message.payload);
        into.resize(start + layout.bytes(), 0);
        Ok(())
    }
}

impl fmt::Debug for StoredRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredRecord(partition {}, offset {})", self.partition(), self.offset())
    }
}

/// The `u32` at `at`, which is inside.
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The `u64` at `at`, which is inside.
pub(super) fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn take_short(rest: &mut &[u8]) -> Option<usize> {
    rest.split_off(..2).map(|bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
}

fn take_text(rest: &mut &[u8], len: usize) -> Option<()> {
    std::str::from_utf8(rest.split_off(..len)?).ok().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: RecordPlace =
        RecordPlace { partition: 3, offset: 17, sequence: (9 << 32) + 5, published_us: 99 };

    fn full() -> NewMessage<'static> {
        NewMessage::new(b"payload").key("k").id("an id").attributes(&[("ä", ""), ("b", "ü")])
    }

    #[test]
    fn what_is_encoded_is_read_back() {
        for message in [NewMessage::new(b""), NewMessage::new(b"12345678"), full()] {
            let mut bytes = vec![];
            StoredRecord::encode(&message, PLACE, &mut bytes).unwrap();
            let record = StoredRecord::new(&bytes).unwrap();
            assert_eq!((record.payload(), record.id()), (message.payload, message.id));
            assert_eq!((record.partition(), record.offset()), (3, 17));
            assert_eq!((record.published_us(), record.sequence_low()), (99, 5));
            assert_eq!(record.bytes().len() % 8, 0);
        }
    }

    #[test]
    fn a_record_that_was_cut_or_has_a_broken_extension_is_refused() {
        let mut bytes = vec![];
        StoredRecord::encode(&full(), PLACE, &mut bytes).unwrap();
        for len in 0..bytes.len() {
            assert_eq!(StoredRecord::new(&bytes[..len]), None, "cut to {len}");
        }
        let broken = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            StoredRecord::new(&bytes).is_none()
        };
        assert!(broken(RECORD_HEADER, 255), "the key's length");
        assert!(broken(RECORD_HEADER + 2, 0xff), "the key's text");
        assert!(broken(31, 0xff), "unknown flags");
        assert!(broken(28, 100), "the extension's length");
        assert!(broken(31, 1), "an extension that is longer than its parts");
    }
}
