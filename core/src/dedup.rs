//! Knowing a message again: for consumers that get messages at least once and want to act on each
//! but once.

use crate::message::Message;
use ahash::RandomState;
use std::collections::{HashSet, VecDeque};

/// Remembers the ids of the last messages, as many as it was made for, and tells whether one was
/// seen before. 25 bytes or so a message; every call costs O(1).
///
/// Ids are remembered as 64-bit hashes that differ from process to process: among a million
/// remembered ones, a new message is taken for one of them once in 10^13.
///
/// ```
/// use slipring::{Broker, Deduplicator, NewMessage};
///
/// let broker = Broker::in_memory();
/// let mut all = broker.subscribe("a")?;
/// let mut seen = Deduplicator::new(1000);
/// for id in ["x", "y", "x"] {
///     broker.publish("a", NewMessage::new(b"").id(id))?;
/// }
/// for is_new in [true, true, false] {
///     let message = all.recv()?;
///     assert_eq!(seen.is_new(&message), is_new);
///     message.ack()?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Deduplicator {
    capacity: usize,
    known: HashSet<u64, RandomState>,
    /// In the order in which they were first seen.
    order: VecDeque<u64>,
}

impl Deduplicator {
    /// Remembers the last `capacity` messages; at least one.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            known: HashSet::with_hasher(RandomState::new()),
            order: VecDeque::new(),
        }
    }

    /// Whether the message is none of those remembered. It is from now on.
    ///
    /// Ask before acting, and [`forget`](Self::forget) the message if that fails and it is to come
    /// again.
    pub fn is_new(&mut self, message: &Message<'_>) -> bool {
        let hash = self.hash(message);
        if !self.known.insert(hash) {
            return false;
        }
        if self.order.len() == self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.order.push_back(hash);
        true
    }

    /// Forgets the message, so that it will be new again. O(1) for the one that was new last.
    pub fn forget(&mut self, message: &Message<'_>) {
        let hash = self.hash(message);
        if self.known.remove(&hash)
            && let Some(at) = self.order.iter().rposition(|&other| other == hash)
        {
            self.order.remove(at);
        }
    }

    /// How many messages are remembered.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn hash(&self, message: &Message<'_>) -> u64 {
        self.known.hasher().hash_one(message.id())
    }
}
