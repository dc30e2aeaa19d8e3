//! Records and messages that stay where they are, whatever becomes of the log.
//!
//! Kept together, they cost one token per chunk instead of one per message.
#![expect(unsafe_code, reason = "records are read in place in chunk memory")]

use crate::chunk::{Chunk, Pins};
use crate::message::{Context, Message, Record};
use crate::sync::Arc;
use std::fmt;

/// A record with a token of its chunk: it stays where it is, also when it has expired.
#[derive(Debug)]
pub(crate) struct KeptRecord(usize);

impl KeptRecord {
    /// The record at `address`, with a token that was the caller's.
    pub(crate) fn of(address: usize) -> Self {
        Self(address)
    }

    pub(crate) fn record(&self) -> Record<'_> {
        // SAFETY: the token keeps it.
        unsafe { Record::at(self.0) }
    }

    /// The record's address; the token goes to `pins`.
    pub(crate) fn pin(self, pins: &mut Pins) -> usize {
        let address = self.into_address();
        pins.add(address);
        address
    }

    /// The record's address; the token goes to the caller.
    pub(crate) fn into_address(self) -> usize {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for KeptRecord {
    fn drop(&mut self) {
        Chunk::of(self.0).release(1);
    }
}

/// Messages that were kept together, in the order in which they were [pushed](Self::push). They
/// outlive the subscription and the broker, and keep their chunks (64 KiB each) in memory.
///
/// Keeping neighbours of a stream this way costs some nanoseconds each: an atomic operation is due
/// only where the chunk changes.
///
/// ```
/// use slipring::{Broker, OwnedMessages};
///
/// let broker = Broker::in_memory();
/// let mut all = broker.subscribe("**")?;
/// broker.publish("a/b", "one")?;
/// broker.publish("a/c", "two")?;
/// let mut kept = OwnedMessages::default();
/// all.poll(64, |message| kept.push(message))?;
/// drop((all, broker));
/// assert_eq!(kept.get(1).unwrap().payload(), b"two");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct OwnedMessages {
    /// Of records, each in a chunk of `chunks`.
    addresses: Vec<usize>,
    /// One token is held for each entry. No two neighbours are equal.
    chunks: Vec<Chunk>,
    context: Option<Arc<Context>>,
}

impl OwnedMessages {
    /// Keeps `message` as well.
    ///
    /// # Panics
    /// If it is of another broker than those kept before.
    #[inline]
    pub fn push(&mut self, message: &Message<'_>) {
        let context = self.context.get_or_insert_with(|| Arc::clone(message.context));
        assert!(Arc::ptr_eq(context, message.context), "messages of two brokers kept together");
        let address = message.record.address();
        let chunk = Chunk::of(address);
        if self.chunks.last() != Some(&chunk) {
            chunk.grant(1);
            self.chunks.push(chunk);
        }
        self.addresses.push(address);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// The message at `index`.
    pub fn get(&self, index: usize) -> Option<Message<'_>> {
        let (&address, context) = (self.addresses.get(index)?, self.context.as_ref()?);
        // SAFETY: the token held of its chunk keeps the record.
        Some(Message { record: unsafe { Record::at(address) }, context, lease: None })
    }

    /// The messages in order.
    pub fn iter(&self) -> impl Iterator<Item = Message<'_>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl Drop for OwnedMessages {
    fn drop(&mut self) {
        self.chunks.iter().for_each(|chunk| chunk.release(1));
    }
}

impl fmt::Debug for OwnedMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
