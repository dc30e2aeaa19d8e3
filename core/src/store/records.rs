//! The buffer that reads fill: whole records, each with its sequence.

use super::record::StoredRecord;
use std::fmt;

/// Records that were read, in order. Kept and filled again, it allocates nothing after a while.
///
/// The bytes of every record begin at a multiple of 8, as in a chunk.
#[derive(Default)]
pub struct Records {
    /// Words, because records are aligned to 8.
    words: Vec<u64>,
    /// Bytes in use.
    used: usize,
    entries: Vec<Entry>,
    next: u64,
    /// Where a disk store goes on.
    hint: Option<Hint>,
}

/// Where the next read goes on, if it is the one that is expected: of this log, from `next` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hint {
    pub(super) log: u64,
    pub(super) next: u64,
    /// Base of the segment.
    pub(super) segment: u64,
    pub(super) place: HintPlace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HintPlace {
    /// The batch that has the sequence: its position, and the first sequence in it.
    Batch { position: u64, sequence: u64 },
    /// Of a partition; where in the segment is for its index to say.
    Partition(u32),
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    sequence: u64,
    /// In words.
    at: u32,
    /// In bytes.
    len: u32,
}

impl Records {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties it; its memory is kept.
    pub fn clear(&mut self) {
        self.used = 0;
        self.entries.clear();
        self.next = 0;
    }

    /// Appends a copy of a record.
    pub fn push(&mut self, sequence: u64, record: StoredRecord<'_>) {
        let bytes = record.bytes();
        let at = self.used;
        self.grow(bytes.len()).copy_from_slice(bytes);
        self.mark(sequence, at, bytes.len());
    }

    /// Makes `len` more bytes for a read to fill; what is in them is not said.
    pub(super) fn grow(&mut self, len: usize) -> &mut [u8] {
        let start = self.used;
        self.used += len;
        // Never shrunk, so a buffer in use is zeroed once.
        let words = self.used.div_ceil(8);
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
        &mut bytemuck::cast_slice_mut(&mut self.words)[start..start + len]
    }

    /// Takes back what was made by [`grow`](Self::grow) and not filled.
    pub(super) fn shrink_to(&mut self, used: usize) {
        self.used = used;
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    pub(super) fn filled(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.used]
    }

    /// Notes that a whole, checked record lies at `at`.
    #[inline]
    pub(super) fn mark(&mut self, sequence: u64, at: usize, len: usize) {
        debug_assert!(at.is_multiple_of(8) && at + len <= self.used, "inside, and aligned");
        self.entries.push(Entry { sequence, at: (at / 8) as u32, len: len as u32 });
    }

    /// Says where the next read goes on: a sequence, or an offset in the partition that was read.
    pub fn set_next(&mut self, next: u64) {
        self.next = next;
    }

    /// Where the next read goes on: behind the last record, and behind any that have expired since.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Keeps a hint for the next read. Emptying the buffer does not lose it.
    pub(super) fn set_hint(&mut self, hint: Hint) {
        self.hint = Some(hint);
    }

    /// The hint for a read of `log` from `next` on, if there is one.
    pub(super) fn hint(&self, log: u64, next: u64) -> Option<Hint> {
        self.hint.filter(|hint| (hint.log, hint.next) == (log, next))
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Each record with its sequence, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, StoredRecord<'_>)> {
        let bytes = self.filled();
        self.entries.iter().map(|entry| {
            let bytes = &bytes[entry.at as usize * 8..][..entry.len as usize];
            (entry.sequence, StoredRecord::marked(bytes))
        })
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records")
            .field("len", &self.len())
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
