//! Messages: what a publisher hands over, the record it becomes, and the view a subscriber reads.
//!
//! A record is laid out once, in a chunk, and is the same bytes in a segment file (little-endian,
//! padded to 8 bytes):
//!
//! ```text
//!  0               8              16       20       24       28       32
//! +---------------+--------------+--------+--------+--------+--------+----------- ... ---------+
//! | offset    u64 | published_us | parti- | seq    | payload| flags 8|  extension  |  payload  |
//! |               |          u64 | tion   | low u32| len u32| ext 24 |  (ext*8 B)  |           |
//! +---------------+--------------+--------+--------+--------+--------+----------- ... ---------+
//!
//! extension: [key: u16 len, bytes] [id: u16 len, bytes] [u16 count, (u16 klen, u16 vlen, k, v)*]
//!            each part present if its flag is set; the whole padded to 8 bytes
//! ```
#![expect(unsafe_code, reason = "records are read and written in place in chunk memory")]

pub(crate) use crate::chunk::AHEAD;
use crate::chunk::{Chunk, Claim};
use crate::config::Limits;
use crate::copy::copy_fresh;
use crate::error::{AckError, InvalidMessage};
use crate::filter::same_bytes;
use crate::lease::{AckId, Leased, Settle};
use crate::message_id::MessageId;
use crate::sync::{Arc, AtomicBool, AtomicU64, Ordering, PlainArc, watched};
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

const _: () = assert!(cfg!(target_endian = "little"), "records are little-endian in memory");

/// Bytes of a record before its extension.
pub(crate) const RECORD_HEADER: usize = 32;

/// In a record's flags: it has a key.
pub const HAS_KEY: u32 = 1 << 24;
/// In a record's flags: it has an id of its own.
pub const HAS_ID: u32 = 1 << 25;
/// In a record's flags: it has attributes.
pub const HAS_ATTRIBUTES: u32 = 1 << 26;
/// Beside a record's flags: the length of the extension, in units of 8 bytes.
pub const EXTENSION_MASK: u32 = (1 << 24) - 1;

/// A message on its way in: everything is borrowed, so a refused publish takes nothing away.
///
/// ```
/// use slipring::NewMessage;
/// let message = NewMessage::new(b"21.5").key("sensor-7").attributes(&[("unit", "celsius")]);
/// assert_eq!(message.payload, b"21.5");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewMessage<'a> {
    /// Opaque bytes; may be empty.
    pub payload: &'a [u8],
    /// Ordering key: messages with the same key share a partition and keep their order.
    pub key: Option<&'a str>,
    /// The publisher's own message id, in place of the derived one.
    pub id: Option<&'a str>,
    /// Attributes, in the order in which they are stored.
    pub attributes: &'a [(&'a str, &'a str)],
}

impl<'a> NewMessage<'a> {
    /// A message of `payload` alone.
    pub fn new(payload: &'a [u8]) -> Self {
        Self { payload, ..Self::default() }
    }

    /// With the ordering key `key`.
    #[must_use]
    pub fn key(self, key: &'a str) -> Self {
        Self { key: Some(key), ..self }
    }

    /// With the message id `id`, 1..=255 bytes. A topic may store it once: see
    /// [`TopicConfig::dedup_window`](crate::TopicConfig::dedup_window).
    #[must_use]
    pub fn id(self, id: &'a str) -> Self {
        Self { id: Some(id), ..self }
    }

    /// With these attributes. A key that occurs twice is refused at publish.
    #[must_use]
    pub fn attributes(self, attributes: &'a [(&'a str, &'a str)]) -> Self {
        Self { attributes, ..self }
    }

    /// Checks the message against `limits` and measures it.
    #[inline]
    pub(crate) fn layout(&self, limits: &Limits) -> Result<Layout, InvalidMessage> {
        self.layout_of(self.payload.len(), limits)
    }

    /// The same for a payload of `payload_len` bytes that is yet to be written.
    #[inline]
    pub(crate) fn layout_of(
        &self,
        payload_len: usize,
        limits: &Limits,
    ) -> Result<Layout, InvalidMessage> {
        if payload_len > limits.payload_bytes {
            return Err(InvalidMessage::PayloadTooLarge {
                bytes: payload_len,
                limit: limits.payload_bytes,
            });
        }
        let mut layout = Layout { payload_len: payload_len as u32, meta: 0 };
        if !self.is_plain() {
            if self.attributes.len() > Limits::ATTRIBUTES {
                return Err(InvalidMessage::TooManyAttributes { count: self.attributes.len() });
            }
            layout.meta = self.measure_extension()?;
        }
        Ok(layout)
    }

    /// Measures a message that was checked before, or is the broker's own.
    pub(crate) fn measure(&self) -> Result<Layout, InvalidMessage> {
        Ok(Layout { payload_len: self.payload.len() as u32, meta: self.measure_extension()? })
    }

    /// Whether it is a payload and nothing else: one branch for all, in the loops over a batch.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        let address = |text: Option<&str>| text.map_or(0, |text| text.as_ptr() as usize);
        address(self.key) | address(self.id) | self.attributes.len() == 0
    }

    /// Flags and length of what is there besides the payload.
    #[cold]
    pub(crate) fn measure_extension(&self) -> Result<u32, InvalidMessage> {
        let mut bytes = 0;
        let mut flags = 0;
        if let Some(key) = self.key {
            if key.len() > Limits::KEY_BYTES {
                return Err(InvalidMessage::KeyTooLong { bytes: key.len() });
            }
            bytes += 2 + key.len();
            flags |= HAS_KEY;
        }
        if let Some(id) = self.id {
            if id.is_empty() || id.len() > Limits::ID_BYTES {
                return Err(InvalidMessage::IdLength { bytes: id.len() });
            }
            bytes += 2 + id.len();
            flags |= HAS_ID;
        }
        if !self.attributes.is_empty() {
            if self.attributes.len() > Limits::ATTRIBUTES + Limits::SYSTEM_ATTRIBUTES {
                return Err(InvalidMessage::TooManyAttributes { count: self.attributes.len() });
            }
            bytes += 2;
            for (index, &(key, value)) in self.attributes.iter().enumerate() {
                if key.is_empty() || key.len() > Limits::ATTRIBUTE_KEY_BYTES {
                    return Err(InvalidMessage::AttributeKeyLength { index, bytes: key.len() });
                }
                if value.len() > Limits::ATTRIBUTE_VALUE_BYTES {
                    return Err(InvalidMessage::AttributeValueTooLong {
                        index,
                        bytes: value.len(),
                    });
                }
                // At most 100 attributes: comparing them all is cheaper than a set.
                if self.attributes[..index].iter().any(|&(before, _)| before == key) {
                    return Err(InvalidMessage::DuplicateAttribute { index });
                }
                bytes += 4 + key.len() + value.len();
            }
            flags |= HAS_ATTRIBUTES;
        }
        // The limits bound it far below 2^24 words.
        Ok(flags | bytes.div_ceil(8) as u32)
    }
}

impl<'a> From<&'a [u8]> for NewMessage<'a> {
    fn from(payload: &'a [u8]) -> Self {
        Self::new(payload)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for NewMessage<'a> {
    fn from(payload: &'a [u8; N]) -> Self {
        Self::new(payload)
    }
}

impl<'a> From<&'a str> for NewMessage<'a> {
    fn from(payload: &'a str) -> Self {
        Self::new(payload.as_bytes())
    }
}

impl<'a> From<&'a Vec<u8>> for NewMessage<'a> {
    fn from(payload: &'a Vec<u8>) -> Self {
        Self::new(payload)
    }
}

impl<'a> From<&'a String> for NewMessage<'a> {
    fn from(payload: &'a String) -> Self {
        Self::new(payload.as_bytes())
    }
}

/// The measures of a record that has been checked against the limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) payload_len: u32,
    /// Flags and the extension's length, as in the header.
    pub(crate) meta: u32,
}

impl Layout {
    fn extension(self) -> usize {
        (self.meta & EXTENSION_MASK) as usize * 8
    }

    /// Flags and the extension's length, as in the header.
    pub(crate) fn meta(self) -> u32 {
        self.meta
    }

    /// Bytes of the whole record, a multiple of 8.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        (RECORD_HEADER + self.extension() + self.payload_len as usize + 7) & !7
    }
}

#[repr(C)]
struct Header {
    offset: u64,
    published_us: u64,
    partition: u32,
    sequence_low: u32,
    payload_len: u32,
    meta: u32,
}

const _: () = assert!(size_of::<Header>() == RECORD_HEADER);

/// The place of a record: what the shard decides.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) published_us: u64,
    pub(crate) partition: u32,
    pub(crate) sequence_low: u32,
}

impl Place {
    /// Partition and sequence as they are in the header.
    #[inline(always)]
    pub(crate) fn tag(self) -> u64 {
        halves(self.partition, self.sequence_low)
    }
}

#[inline(always)]
fn halves(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Writes `message` as a record at `at`.
///
/// # Safety
/// `at` is aligned to 8 and `layout.bytes()` bytes there belong to the caller alone; `layout` is
/// that of `message`.
#[inline]
pub(crate) unsafe fn write(at: *mut u8, message: &NewMessage<'_>, layout: Layout, place: Place) {
    // SAFETY: passed on.
    let payload = unsafe { write_head(at, message, layout, place) };
    // SAFETY: the payload's bytes lie inside the record, and the source is another allocation.
    unsafe { copy_fresh(message.payload.as_ptr(), payload, message.payload.len()) };
}

/// Writes all but the payload; returns where that goes.
///
/// # Safety
/// As for [`write`].
#[inline]
pub(crate) unsafe fn write_head(
    at: *mut u8,
    message: &NewMessage<'_>,
    layout: Layout,
    place: Place,
) -> *mut u8 {
    // SAFETY: passed on.
    unsafe { write_header(at, message, layout, [place.offset, place.published_us, place.tag()]) }
}

/// The same, with the place in the words that go into the header.
///
/// # Safety
/// As for [`write`].
#[inline(always)]
pub(crate) unsafe fn write_header(
    at: *mut u8,
    message: &NewMessage<'_>,
    layout: Layout,
    [offset, published_us, tag]: [u64; 3],
) -> *mut u8 {
    watched::write(at as usize);
    // Two fields a store: a header made elsewhere and copied would be read before it is written
    // back, and every store takes room in the store buffer, which is what limits a batch.
    let header = [offset, published_us, tag, halves(layout.payload_len, layout.meta)];
    // SAFETY: the header's bytes are the caller's, and `at` is aligned to 8.
    unsafe { at.cast::<[u64; 4]>().write(header) };
    if layout.meta != 0 {
        // SAFETY: the extension follows the header inside the record.
        unsafe { write_extension(at.add(RECORD_HEADER), message) };
    }
    // SAFETY: inside the record.
    unsafe { at.add(RECORD_HEADER + layout.extension()) }
}

/// Writes all but the payload into `claim`, which is as large as `layout` says; returns the offset
/// in it at which the payload goes.
///
/// # Panics
/// If the claim is too small.
pub(crate) fn write_claim(
    claim: &Claim,
    message: &NewMessage<'_>,
    layout: Layout,
    partition: u32,
) -> usize {
    assert!(claim.bytes() >= layout.bytes(), "a claim for another layout");
    let place = Place { partition, ..Place::default() };
    // SAFETY: the claim is large enough (checked), aligned, and written by its owner alone.
    let payload = unsafe { write_head(claim.at(), message, layout, place) };
    payload as usize - claim.at() as usize
}

/// The id of the message that was written into `claim`.
pub(crate) fn claimed_id(claim: &Claim) -> Option<&str> {
    // SAFETY: the claim's owner has written the head of a record, and keeps it.
    unsafe { Record::at(claim.at() as usize) }.id()
}

/// # Safety
/// `at` has room for the extension that `message` was measured for.
#[cold]
unsafe fn write_extension(at: *mut u8, message: &NewMessage<'_>) {
    let mut at = at;
    let mut put = |bytes: &[u8]| {
        // SAFETY: the parts written add up to what was measured.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
            at = at.add(bytes.len());
        }
    };
    for text in [message.key, message.id].into_iter().flatten() {
        put(&(text.len() as u16).to_le_bytes());
        put(text.as_bytes());
    }
    if !message.attributes.is_empty() {
        put(&(message.attributes.len() as u16).to_le_bytes());
        for &(key, value) in message.attributes {
            put(&(key.len() as u16).to_le_bytes());
            put(&(value.len() as u16).to_le_bytes());
            put(key.as_bytes());
            put(value.as_bytes());
        }
    }
}

/// Gives a record that was written into a claim its place.
///
/// # Safety
/// `at` is a record written by [`write_head`] that nobody else reads yet.
pub(crate) unsafe fn stamp(at: *mut u8, place: Place) {
    watched::write(at as usize);
    let header = at.cast::<Header>();
    // SAFETY: the record is the caller's alone.
    let header = unsafe { &mut *header };
    header.offset = place.offset;
    header.published_us = place.published_us;
    header.sequence_low = place.sequence_low;
}

/// A record in chunk memory, for as long as `'a` keeps the chunk.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Record<'a> {
    at: *const u8,
    keeps: PhantomData<&'a [u8]>,
}

impl<'a> Record<'a> {
    /// The record at `address`.
    ///
    /// # Safety
    /// A whole record is there, and stays there unchanged for `'a` (a token of its chunk is held).
    #[inline]
    pub(crate) unsafe fn at(address: usize) -> Self {
        Self { at: ptr::with_exposed_provenance(address), keeps: PhantomData }
    }

    /// The records at these addresses.
    ///
    /// # Safety
    /// As for [`at`](Self::at), for each.
    #[inline]
    pub(crate) unsafe fn all_at(addresses: &[*const u8]) -> &[Self] {
        // SAFETY: a record is its address; passed on.
        unsafe { std::slice::from_raw_parts(addresses.as_ptr().cast(), addresses.len()) }
    }

    #[inline]
    fn header(self) -> &'a Header {
        watched::read(self.address());
        // SAFETY: `at` promises a record for 'a.
        unsafe { &*self.at.cast::<Header>() }
    }

    pub(crate) fn address(self) -> usize {
        self.at as usize
    }

    pub(crate) fn partition(self) -> u32 {
        self.header().partition
    }

    pub(crate) fn offset(self) -> u64 {
        self.header().offset
    }

    pub(crate) fn published_us(self) -> u64 {
        self.header().published_us
    }

    /// The low half of the record's sequence.
    #[inline]
    pub(crate) fn sequence_low(self) -> u32 {
        self.header().sequence_low
    }

    /// Whether its topic does not want it any more.
    pub(crate) fn has_expired(self, context: &Context) -> bool {
        let entry = &context.partitions[self.partition() as usize];
        // Relaxed: neither is late or early by anything that matters.
        self.offset() < entry.low.load(Ordering::Relaxed)
            || self.published_us() < entry.from_us.load(Ordering::Relaxed)
    }

    /// Its size, in bytes: to where the next one may begin.
    pub(crate) fn bytes(self) -> usize {
        let header = self.header();
        let extension = (header.meta & EXTENSION_MASK) as usize * 8;
        (RECORD_HEADER + extension + header.payload_len as usize).next_multiple_of(8)
    }

    #[inline]
    pub(crate) fn payload(self) -> &'a [u8] {
        let header = self.header();
        let skip = RECORD_HEADER + (header.meta & EXTENSION_MASK) as usize * 8;
        // SAFETY: the payload lies there, inside the record.
        unsafe { std::slice::from_raw_parts(self.at.add(skip), header.payload_len as usize) }
    }

    fn extension(self) -> &'a [u8] {
        let len = (self.header().meta & EXTENSION_MASK) as usize * 8;
        // SAFETY: the extension lies there, inside the record.
        unsafe { std::slice::from_raw_parts(self.at.add(RECORD_HEADER), len) }
    }

    fn has(self, flag: u32) -> bool {
        self.header().meta & flag != 0
    }

    pub(crate) fn key(self) -> Option<&'a str> {
        self.has(HAS_KEY).then(|| text(self.extension(), 0).0)
    }

    pub(crate) fn id(self) -> Option<&'a str> {
        let skip = if self.has(HAS_KEY) { text(self.extension(), 0).1 } else { 0 };
        self.has(HAS_ID).then(|| text(self.extension(), skip).0)
    }

    pub(crate) fn attribute(self, key: &str) -> Option<&'a str> {
        self.attributes()
            .find(|&(name, _)| same_bytes(name.as_bytes(), key.as_bytes()))
            .map(|(_, value)| value)
    }

    #[inline]
    pub(crate) fn attributes(self) -> Attributes<'a> {
        if self.has(HAS_ATTRIBUTES) {
            self.some_attributes()
        } else {
            Attributes { bytes: &[], left: 0 }
        }
    }

    #[inline(never)]
    fn some_attributes(self) -> Attributes<'a> {
        let extension = self.extension();
        let mut at = 0;
        for flag in [HAS_KEY, HAS_ID] {
            if self.has(flag) {
                at = text(extension, at).1;
            }
        }
        Attributes { left: short(extension, at), bytes: &extension[at + 2..] }
    }
}

/// The first `count` of these addresses.
///
/// # Safety
/// They have been written.
#[inline(always)]
pub(crate) unsafe fn written(addresses: &[MaybeUninit<*const u8>], count: usize) -> &[*const u8] {
    let first = addresses[..count].as_ptr().cast();
    // SAFETY: the caller answers for what is in them.
    unsafe { std::slice::from_raw_parts(first, count) }
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Record(partition {}, offset {})", self.partition(), self.offset())
    }
}

fn short(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// The text at `at`, and where it ends.
fn text(bytes: &[u8], at: usize) -> (&str, usize) {
    let end = at + 2 + short(bytes, at);
    (utf8(&bytes[at + 2..end]), end)
}

fn utf8(bytes: &[u8]) -> &str {
    // SAFETY: the extension was written from `&str`s, and recovery verifies what comes from disk.
    unsafe { std::str::from_utf8_unchecked(bytes) }
}

/// The attributes of a message, in the order in which they were published.
#[derive(Debug, Clone)]
pub struct Attributes<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let (key, value) = (short(self.bytes, 0), short(self.bytes, 2));
        let (head, rest) = self.bytes[4..].split_at(key + value);
        self.bytes = rest;
        Some((utf8(&head[..key]), utf8(&head[key..])))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Attributes<'_> {}

/// What a message needs to tell its topic and its id: shared by all messages of a broker.
#[derive(Debug)]
pub(crate) struct Context {
    /// By partition number. Only ever grows: readers index it without a lock.
    pub(crate) partitions: boxcar::Vec<PartitionEntry>,
    /// Random, so that ids of different stores differ; the low 48 bits count.
    pub(crate) store: u64,
}

/// What all may know of a partition.
#[derive(Debug)]
pub(crate) struct PartitionEntry {
    /// Its topic's name.
    pub(crate) topic: PlainArc<str>,
    /// Whether its topic was deleted: its messages are not replayed any more.
    pub(crate) deleted: AtomicBool,
    /// The oldest offset, and the oldest publish time, that its topic still wants: what is below is not
    /// replayed either, also while it is still somewhere.
    pub(crate) low: AtomicU64,
    pub(crate) from_us: AtomicU64,
    /// How old its messages may become, in microseconds.
    pub(crate) max_age_us: AtomicU64,
}

impl PartitionEntry {
    pub(crate) fn new(topic: PlainArc<str>, deleted: bool) -> Self {
        let (low, from_us, max_age_us) =
            (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Self { topic, deleted: AtomicBool::new(deleted), low, from_us, max_age_us }
    }
}

/// A message where it lies, in the memory of the log: reading it copies nothing.
///
/// [`keep`](Self::keep) makes it outlive the call or the borrow that it came with.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    pub(crate) record: Record<'a>,
    pub(crate) context: &'a Arc<Context>,
    /// What settles it, where it is delivered at least once.
    pub(crate) lease: Option<&'a Leased>,
}

// SAFETY: a record is never written while it can be read; the context is Sync.
unsafe impl Send for Message<'_> {}
// SAFETY: as above.
unsafe impl Sync for Message<'_> {}

impl<'a> Message<'a> {
    /// The payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.record.payload()
    }

    /// Where it lies: 32 bytes that say how what is behind them is laid out, for bindings.
    #[doc(hidden)]
    #[inline]
    pub fn record(&self) -> *const u8 {
        self.record.at
    }

    /// Another message of the same delivery, by where it [lies](Self::record).
    ///
    /// # Safety
    /// `record` came with this, in a [`Block`], and is as valid.
    #[doc(hidden)]
    #[inline]
    pub unsafe fn another(&self, record: *const u8) -> Self {
        Self { record: Record { at: record, keeps: PhantomData }, ..*self }
    }

    /// The name of the topic it was published to.
    pub fn topic(&self) -> &'a str {
        &self.context.partitions[self.record.partition() as usize].topic
    }

    /// The ordering key.
    pub fn key(&self) -> Option<&'a str> {
        self.record.key()
    }

    /// The attributes, in the order in which they were published. Allocates nothing.
    pub fn attributes(&self) -> Attributes<'a> {
        self.record.attributes()
    }

    /// The value of the attribute `key`.
    pub fn attribute(&self, key: &str) -> Option<&'a str> {
        self.record.attribute(key)
    }

    /// Number of the partition, unique in the broker.
    pub fn partition(&self) -> u32 {
        self.record.partition()
    }

    /// Position in the partition; dense, from 0.
    pub fn offset(&self) -> u64 {
        self.record.offset()
    }

    /// When it was published: microseconds since the Unix epoch.
    pub fn published_us(&self) -> u64 {
        self.record.published_us()
    }

    /// The message's id: the publisher's own, or one derived from its place.
    pub fn id(&self) -> MessageId<'a> {
        match self.record.id() {
            Some(own) => MessageId::given(own),
            None => MessageId::derived(self.context.store, self.partition(), self.offset()),
        }
    }

    /// Keeps the message past the call or borrow it came with, without copying it: its whole chunk
    /// (64 KiB, or the message alone if larger) stays in memory until the last one kept of it is
    /// dropped. Costs one atomic operation; and an allocation, if the message is to be settled.
    pub fn keep(&self) -> OwnedMessage {
        Chunk::of(self.record.address()).grant(1);
        OwnedMessage {
            address: self.record.address(),
            context: Arc::clone(self.context),
            lease: self.lease.map(|lease| Box::new(lease.clone())),
        }
    }

    /// Which delivery of the message to this subscription this is, counted from 1. Where messages
    /// are delivered at most once, it is always the first.
    pub fn attempt(&self) -> u32 {
        self.lease.map_or(1, |lease| lease.attempt)
    }

    /// What names this delivery, where it is to be settled: see
    /// [`Acker`](crate::Acker).
    pub fn ack_id(&self) -> Option<AckId> {
        self.lease.filter(|lease| lease.by.is_some()).map(|lease| lease.id)
    }

    fn settle(&self) -> Result<(&'a dyn Settle, AckId), AckError> {
        let lease = self.lease.ok_or(AckError::NotLeased)?;
        let by = lease.by.as_deref().ok_or(AckError::NotLeased)?;
        Ok((by, lease.id))
    }

    /// Settles the message: this subscription does not get it again. `false` if that had no effect,
    /// because the message was settled before, has expired, or was delivered anew since.
    ///
    /// # Errors
    /// [`AckError::NotLeased`], [`AckError::Closed`], [`AckError::InsideFilter`] or
    /// [`AckError::Forked`].
    pub fn ack(&self) -> Result<bool, AckError> {
        let (by, id) = self.settle()?;
        by.ack(id)
    }

    /// Gives the message back: it has failed, and is delivered again after `delay` (at most 24
    /// hours; `None`: as the subscription's [`Backoff`](crate::Backoff) has it), or goes to the dead
    /// letters, if this was its last attempt.
    ///
    /// # Errors
    /// [`AckError::Stale`], if the lease is over: see also [`ack`](Self::ack).
    /// [`AckError::OutOfRange`].
    pub fn nack(&self, delay: Option<Duration>) -> Result<(), AckError> {
        let (by, id) = self.settle()?;
        by.nack(id, delay)
    }

    /// Gives up on the message: it goes to the dead letters, with `reason` (its first 1,024 bytes),
    /// and is settled.
    ///
    /// # Errors
    /// As [`nack`](Self::nack); [`AckError::DeadLetter`] if the dead letter could not be stored:
    /// then the message is not settled, and will be delivered again. [`AckError::Expired`].
    pub fn dead_letter(&self, reason: &str) -> Result<(), AckError> {
        let (by, id) = self.settle()?;
        by.dead_letter(id, reason)
    }

    /// The lease ends `by` from now (10 ms to 600 s) instead of when it would have: the time for
    /// this message alone, which may also be made shorter.
    ///
    /// # Errors
    /// As [`nack`](Self::nack).
    pub fn modify_ack_deadline(&self, by: Duration) -> Result<(), AckError> {
        let (settle, id) = self.settle()?;
        settle.extend(id, by)
    }
}

/// Some messages that are handed over together, for bindings: what they have in common, and where each
/// lies.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// At least one.
    pub(crate) records: &'a [Record<'a>],
    pub(crate) context: &'a Arc<Context>,
    /// One of each, or one of all, or none.
    pub(crate) leases: &'a [Leased],
}

impl<'a> Block<'a> {
    /// The most messages there can be.
    pub const MOST: usize = if cfg!(slipring_loom) { 2 } else { 64 };

    #[inline(always)]
    pub(crate) fn of(message: &'a Message<'_>) -> Self {
        let Message { ref record, context, lease } = *message;
        let leases = lease.map_or(&[][..], std::slice::from_ref);
        Self { records: std::slice::from_ref(record), context, leases }
    }

    /// The first message.
    #[inline(always)]
    pub fn first(&self) -> Message<'a> {
        Message { record: self.records[0], context: self.context, lease: self.leases.first() }
    }

    /// Whether they were delivered together, so that [`first`](Self::first) tells of all what is not in
    /// their records.
    #[inline(always)]
    pub fn is_one_delivery(&self) -> bool {
        self.leases.len() <= 1
    }

    /// All messages.
    pub fn messages(&self) -> impl ExactSizeIterator<Item = Message<'a>> + use<'a> {
        let Self { records, context, leases } = *self;
        let lease = move |at: usize| leases.get(at).or(leases.first());
        records.iter().enumerate().map(move |(at, &record)| Message {
            record,
            context,
            lease: lease(at),
        })
    }

    /// Where the messages lie.
    #[inline(always)]
    pub fn records(&self) -> impl ExactSizeIterator<Item = *const u8> + use<'a> {
        self.records.iter().map(|record| record.at)
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("topic", &self.topic())
            .field("offset", &self.offset())
            .field("payload_bytes", &self.payload().len())
            .finish_non_exhaustive()
    }
}

/// A message that was kept. It outlives the subscription and the broker.
pub struct OwnedMessage {
    /// Of a record, in a chunk of which this holds one token.
    address: usize,
    context: Arc<Context>,
    lease: Option<Box<Leased>>,
}

impl OwnedMessage {
    /// The message, to be read.
    pub fn view(&self) -> Message<'_> {
        Message {
            // SAFETY: the token held keeps the record.
            record: unsafe { Record::at(self.address) },
            context: &self.context,
            lease: self.lease.as_deref(),
        }
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        self.view().payload()
    }

    /// The name of the topic it was published to.
    pub fn topic(&self) -> &str {
        self.view().topic()
    }
}

impl Clone for OwnedMessage {
    fn clone(&self) -> Self {
        self.view().keep()
    }
}

impl Drop for OwnedMessage {
    fn drop(&mut self) {
        Chunk::of(self.address).release(1);
    }
}

impl AsRef<[u8]> for OwnedMessage {
    fn as_ref(&self) -> &[u8] {
        self.payload()
    }
}

impl fmt::Debug for OwnedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

#[cfg(test)]
#[cfg(not(slipring_loom))]
mod tests {
    use super::*;

    static BYTES: [u8; 140] = {
        let mut bytes = [0; 140];
        let mut at = 0;
        while at < bytes.len() {
            bytes[at] = at as u8;
            at += 1;
        }
        bytes
    };

    /// Writes `message` into memory of its own and hands the record to `read`.
    fn round_trip(message: NewMessage<'_>, read: impl FnOnce(Record<'_>)) {
        let layout = message.layout(&Limits::default()).unwrap();
        let mut memory = vec![0u64; layout.bytes() / 8];
        let at = memory.as_mut_ptr().cast::<u8>();
        at.expose_provenance();
        let place = Place { offset: 17, published_us: 99, partition: 3, sequence_low: 5 };
        // SAFETY: the memory is large enough, aligned and ours.
        unsafe { write(at, &message, layout, place) };
        // SAFETY: a whole record that lives as long as `memory`.
        read(unsafe { Record::at(at as usize) });
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let attributes = [("region", "IN"), ("empty", ""), ("ключ", "значение")];
        for key in [None, Some(""), Some("key")] {
            for id in [None, Some("own-id")] {
                for attributes in [&attributes[..0], &attributes[..]] {
                    for payload in (0..140).map(|len| &BYTES[..len]) {
                        let message = NewMessage { payload, key, id, attributes };
                        round_trip(message, |record| {
                            assert_eq!(record.payload(), payload);
                            assert_eq!(record.key(), key);
                            assert_eq!(record.id(), id);
                            assert_eq!(record.attributes().collect::<Vec<_>>(), attributes);
                            assert_eq!((record.partition(), record.offset()), (3, 17));
                            assert_eq!((record.published_us(), record.sequence_low()), (99, 5));
                        });
                    }
                }
            }
        }
    }
}
