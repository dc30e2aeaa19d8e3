//! The frame of a batch: a header of 64 bytes before the records of one write (little-endian).
//!
//! ```text
//!  0 magic u32 | 4 header_len u16 | 6 flags u16 |  8 base_sequence u64
//! 16 body_len u32 | 20 record_count u32         | 24 first_us u64
//! 32 max_delta_ms u32 | 36 epoch u32            | 40 durable_pos u64
//! 48 reserved u64                               | 56 body_crc u32 | 60 header_crc u32
//! ```
//!
//! Both checks are CRC-32C, begun with the salt of the segment, so that a block of another file
//! never passes. The header has a check of its own, so that no length is believed, and nothing
//! allocated or skipped, before it is verified. `durable_pos` is what tells damage from a torn
//! write: bytes below it were on the disk when the batch was made.
//!
//! On the disk each word of a header is XORed with a number that the salt gives. So no word of one
//! that was written is zero (but once in 2^64), and where one is, the write did not come to its end.

use super::entropy::split_mix;
use super::record::{long, word};
use super::sabotage::sabotaged;

/// Bytes of a batch header.
pub(crate) const HEADER: usize = 64;
/// The most bytes of records that one batch may have: a record of the largest payload there can be.
pub(crate) const MAX_BODY: usize = 65 << 20;

const MAGIC: u32 = u32::from_le_bytes(*b"SLRB");

/// What a batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Records.
    Records,
    /// The last of its segment.
    Seal,
    /// Next offsets of partitions whose last records are about to be removed.
    Tails,
}

impl Kind {
    fn flags(self) -> u16 {
        match self {
            Self::Records => 0,
            Self::Seal => 1,
            Self::Tails => 2,
        }
    }

    fn of(flags: u16) -> Option<Self> {
        [Self::Records, Self::Seal, Self::Tails].into_iter().find(|kind| kind.flags() == flags)
    }
}

/// A batch header in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) kind: Kind,
    /// Sequence of the first record; of a control batch, the one that comes next.
    pub(crate) base_sequence: u64,
    pub(crate) body_len: u32,
    /// 0 in control batches.
    pub(crate) record_count: u32,
    /// Publish time of the first record.
    pub(crate) first_us: u64,
    /// Milliseconds from there to the latest, rounded up.
    pub(crate) max_delta_ms: u32,
    pub(crate) epoch: u32,
    /// Position in this file below which everything was durable when this was made; 0 if even the
    /// file before it was not known to be.
    pub(crate) durable_pos: u64,
    pub(crate) body_crc: u32,
}

impl BatchHeader {
    pub(crate) fn encode(&self, salt: u32) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC.to_le_bytes());
        put(4, &(HEADER as u16).to_le_bytes());
        put(6, &self.kind.flags().to_le_bytes());
        put(8, &self.base_sequence.to_le_bytes());
        put(16, &self.body_len.to_le_bytes());
        put(20, &self.record_count.to_le_bytes());
        put(24, &self.first_us.to_le_bytes());
        put(32, &self.max_delta_ms.to_le_bytes());
        put(36, &self.epoch.to_le_bytes());
        put(40, &self.durable_pos.to_le_bytes());
        put(56, &self.body_crc.to_le_bytes());
        let crc = checksum(salt, &bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        whiten(&mut bytes, salt);
        bytes
    }

    /// The header in the first 64 of `bytes`, if it verifies and is of a format that is known.
    pub(crate) fn decode(bytes: &[u8], salt: u32) -> Option<Self> {
        let bytes = bytes.first_chunk::<HEADER>()?;
        // This alone first: it is asked at every word behind a batch that does not verify.
        if word(bytes, 0) ^ key(salt, 0) as u32 != MAGIC {
            return None;
        }
        let mut bytes = *bytes;
        whiten(&mut bytes, salt);
        let bytes = &bytes;
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        if !sabotaged("header_crc") && !agree(word(bytes, 60), checksum(salt, &bytes[..60])) {
            return None;
        }
        let body_len = word(bytes, 16);
        let is_credible = usize::from(short(4)) == HEADER
            && body_len as usize <= MAX_BODY
            && body_len.is_multiple_of(8);
        let kind = Kind::of(short(6)).filter(|_| is_credible)?;
        Some(Self {
            kind,
            base_sequence: long(bytes, 8),
            body_len,
            record_count: word(bytes, 20),
            first_us: long(bytes, 24),
            max_delta_ms: word(bytes, 32),
            epoch: word(bytes, 36),
            durable_pos: long(bytes, 40),
            body_crc: word(bytes, 56),
        })
    }

    /// Whether `body` is the one that this header was made for.
    pub(crate) fn verifies(&self, body: &[u8], salt: u32) -> bool {
        body.len() == self.body_len as usize
            && (sabotaged("body_crc") || agree(self.body_crc, checksum(salt, body)))
    }

    /// Bytes of the whole batch.
    pub(crate) fn bytes(&self) -> u64 {
        HEADER as u64 + u64::from(self.body_len)
    }

    /// The sequence behind its last record.
    pub(crate) fn end_sequence(&self) -> u64 {
        self.base_sequence.saturating_add(u64::from(self.record_count))
    }

    /// No record of it was published later: microseconds since the Unix epoch.
    pub(crate) fn last_us(&self) -> u64 {
        self.first_us.saturating_add(u64::from(self.max_delta_ms) * 1000)
    }
}

/// XORs the words of a header with numbers that the salt gives, or takes that away again.
fn whiten(bytes: &mut [u8; HEADER], salt: u32) {
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.iter_mut().zip(key(salt, at).to_le_bytes()).for_each(|(byte, key)| *byte ^= key);
    }
}

/// The number for word `at`. The fuzzer would not find it, and has none.
fn key(salt: u32, at: usize) -> u64 {
    if cfg!(fuzzing) { 0 } else { split_mix(u64::from(salt) << 32 | at as u64) }
}

/// Whether a check agrees with what it was made of. Under the fuzzer it always does.
pub(crate) fn agree(stored: u32, computed: u32) -> bool {
    cfg!(fuzzing) || stored == computed
}

/// CRC-32C of `bytes`, begun with `salt`.
pub(crate) fn checksum(salt: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(salt, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> BatchHeader {
        BatchHeader {
            kind: Kind::Records,
            base_sequence: 7,
            body_len: 80,
            record_count: 2,
            first_us: 5,
            max_delta_ms: 3,
            epoch: 1,
            durable_pos: 4096,
            body_crc: 9,
        }
    }

    #[test]
    fn a_header_reads_back_under_its_own_salt_alone() {
        let bytes = header().encode(11);
        assert_eq!(BatchHeader::decode(&bytes, 11), Some(header()));
        assert_eq!(BatchHeader::decode(&bytes, 12), None);
    }

    #[test]
    fn no_word_of_a_header_is_zero_on_the_disk() {
        let empty = BatchHeader { base_sequence: 0, durable_pos: 0, ..header() };
        let seal = BatchHeader { kind: Kind::Seal, body_len: 0, record_count: 0, ..empty };
        for salt in 0..1000 {
            let bytes = seal.encode(salt);
            assert!(bytes.chunks_exact(8).all(|word| word != [0; 8]), "salt {salt}");
        }
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let bytes = header().encode(11);
        for bit in 0..HEADER * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BatchHeader::decode(&bytes, 11), None, "bit {bit}");
        }
    }
}
