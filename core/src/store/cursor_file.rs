//! The bytes of a cursor journal's file: a sector that says what it is, a snapshot, then batches.
//!
//! ```text
//! file:  0 magic "SLIPCUR1" | 8 major u16, minor u16 | 12 incompat u32 | 16 compat u32 | 20 zero
//!       24 store u128 | 40 generation u64 | 48 salt u64 | 56 snapshot_end u64 | 64 len u64
//!       zeros | 508 crc u32
//! batch: 0 magic u32 | 4 kind u32 | 8 number u64 | 16 body_len u32 | 20 body_crc u32
//!       24 durable_pos u64 | 32 durable_len u32 (in pages) | 36 header_crc u32
//!       body, zeros to a multiple of 8, 8 zeros
//! ```
//!
//! The file gets its name when it is durable up to `snapshot_end`, with room for `len` bytes in all.
//! Each batch tells up to where, and to what length, the file was durable when it was made: a batch
//! that does not verify below that is damage, and so is a file that is shorter.
//!
//! Batches are whitened: XORed with numbers that the salt and the position give. So no word of a
//! batch that was written is zero (once in 2^64), while one that was not written is: a batch with a
//! zero word was torn, one that has none and does not verify is damaged. And nothing from another
//! file, or from another place in this one, verifies. The 8 bytes at the end of a batch are there to
//! be torn in place of its last word, of which only some bytes might be missing.
//!
//! A mark is a batch that says nothing but how far the file is durable. It fills a page of its own,
//! so that what takes a sector cannot take both it and what it vouches for.

use std::collections::BTreeMap;

use super::cursor::{self, Cursor, CursorKey};
use super::entropy::split_mix;
use super::sabotage::sabotaged;

/// Bytes before the first batch.
pub(super) const FILE_HEADER: usize = 512;
const BATCH_HEADER: usize = 40;
/// Behind the body of a batch.
const TRAILER: usize = 8;
/// Where marks lie, and what they fill; the unit of `durable_len`.
pub(super) const PAGE: u64 = 4096;
/// The most bytes of changes in a batch.
pub(super) const MAX_BODY: usize = 64 << 20;

const FILE_MAGIC: &[u8; 8] = b"SLIPCUR1";
const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"SLCB");
const MAJOR: u16 = 1;

/// What the first sector says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) store: u128,
    pub(super) generation: u64,
    pub(super) salt: u64,
    pub(super) snapshot_end: u64,
    pub(super) len: u64,
}

/// What a batch says beside its changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchHeader {
    pub(super) kind: Kind,
    pub(super) number: u64,
    pub(super) durable_pos: u64,
    pub(super) durable_len: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Changes = 0,
    Mark = 1,
}

/// What a file says.
#[derive(Debug, PartialEq)]
pub(super) struct Decoded {
    pub(super) header: FileHeader,
    pub(super) cursors: BTreeMap<CursorKey, Cursor>,
    /// Behind the last batch that verifies.
    pub(super) end: u64,
    pub(super) tail: Tail,
    /// Whether the last batch that verifies is a mark.
    pub(super) is_marked: bool,
}

/// How a file ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// Nothing follows.
    Clean,
    /// The beginning of a batch that was never acknowledged.
    Torn,
    /// What does not verify: it was acknowledged.
    Damaged,
    /// What does not verify, and was acknowledged or not.
    Doubtful,
}

/// Why nothing of a file can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unusable {
    Damaged,
    Version(String),
}

impl FileHeader {
    pub(super) fn encode(&self) -> [u8; FILE_HEADER] {
        let mut bytes = [0; FILE_HEADER];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, FILE_MAGIC);
        put(8, &MAJOR.to_le_bytes());
        put(24, &self.store.to_le_bytes());
        put(40, &self.generation.to_le_bytes());
        put(48, &self.salt.to_le_bytes());
        put(56, &self.snapshot_end.to_le_bytes());
        put(64, &self.len.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..FILE_HEADER - 4]);
        bytes[FILE_HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Unusable> {
        let bytes = bytes.first_chunk::<FILE_HEADER>().ok_or(Unusable::Damaged)?;
        let verifies = sabotaged("cursor_file_crc")
            || word(bytes, FILE_HEADER - 4) == crc32c::crc32c(&bytes[..FILE_HEADER - 4]);
        if !verifies || !bytes.starts_with(FILE_MAGIC) {
            return Err(Unusable::Damaged);
        }
        let (major, incompat) = (word(bytes, 8) as u16, word(bytes, 12));
        if major != MAJOR || incompat != 0 {
            let what = format!("format {major} with flags {incompat:#x}");
            return Err(Unusable::Version(what));
        }
        Ok(Self {
            store: u128::from(long(bytes, 24)) | u128::from(long(bytes, 32)) << 64,
            generation: long(bytes, 40),
            salt: long(bytes, 48),
            snapshot_end: long(bytes, 56),
            len: long(bytes, 64),
        })
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("callers have checked the length"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("callers have checked the length"))
}

/// Whitens bytes that stand at `at`, or takes that away again.
fn whiten(salt: u64, at: u64, bytes: &mut [u8]) {
    for (word, position) in bytes.chunks_mut(8).zip((at / 8)..) {
        let key = split_mix(salt.wrapping_add(position)).to_le_bytes();
        word.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
    }
}

/// Bytes of a batch with a body of so many.
pub(super) fn batch_len(body_len: usize) -> u64 {
    (BATCH_HEADER + body_len.next_multiple_of(8) + TRAILER) as u64
}

/// A batch as it is written at `at`, which is a multiple of 8.
pub(super) fn encode_batch(salt: u64, at: u64, header: &BatchHeader, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; batch_len(body.len()) as usize];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &BATCH_MAGIC.to_le_bytes());
    put(4, &(header.kind as u32).to_le_bytes());
    put(8, &header.number.to_le_bytes());
    put(16, &(body.len() as u32).to_le_bytes());
    put(20, &crc32c::crc32c(body).to_le_bytes());
    put(24, &header.durable_pos.to_le_bytes());
    put(32, &((header.durable_len / PAGE) as u32).to_le_bytes());
    put(BATCH_HEADER, body);
    let crc = crc32c::crc32c(&bytes[..36]);
    bytes[36..40].copy_from_slice(&crc.to_le_bytes());
    whiten(salt, at, &mut bytes);
    bytes
}

/// A mark as it is written at `at`, the beginning of a page.
pub(super) fn encode_mark(salt: u64, at: u64, header: &BatchHeader) -> Vec<u8> {
    let body = [0; PAGE as usize - BATCH_HEADER - TRAILER];
    encode_batch(salt, at, header, &body)
}

/// A batch header that verifies, with the length and the check of its body.
fn decode_header(salt: u64, at: u64, bytes: &[u8]) -> Option<(BatchHeader, usize, u32)> {
    let mut bytes = *bytes.get(at as usize..)?.first_chunk::<BATCH_HEADER>()?;
    // The magic alone first: this is asked at every word behind a batch that does not verify.
    let mut magic = *bytes.first_chunk::<8>()?;
    whiten(salt, at, &mut magic);
    if word(&magic, 0) != BATCH_MAGIC {
        return None;
    }
    whiten(salt, at, &mut bytes);
    let verifies =
        sabotaged("cursor_header_crc") || word(&bytes, 36) == crc32c::crc32c(&bytes[..36]);
    if !verifies {
        return None;
    }
    let kind = match word(&bytes, 4) {
        0 => Kind::Changes,
        1 => Kind::Mark,
        _ => return None,
    };
    let body_len = word(&bytes, 16) as usize;
    let header = BatchHeader {
        kind,
        number: long(&bytes, 8),
        durable_pos: long(&bytes, 24),
        durable_len: u64::from(word(&bytes, 32)) * PAGE,
    };
    (body_len <= MAX_BODY).then_some((header, body_len, word(&bytes, 20)))
}

/// Reads a whole file. Any bytes may be given.
pub(super) fn decode(bytes: &[u8]) -> Result<Decoded, Unusable> {
    let header = FileHeader::decode(bytes)?;
    let scan = Scan { bytes, salt: header.salt };
    let mut cursors = BTreeMap::new();
    let mut end = FILE_HEADER as u64;
    let mut durable_len = header.len;
    let mut number = 0;
    let mut is_marked = false;
    loop {
        let at = scan.batch_at(end);
        let Some((batch, body)) = scan.batch(at) else { break };
        if batch.number != number || apply_all(&mut cursors, batch.kind, &body).is_none() {
            break;
        }
        number += 1;
        is_marked = batch.kind == Kind::Mark;
        durable_len = durable_len.max(batch.durable_len);
        end = at + batch_len(body.len());
    }
    let is_short = !sabotaged("cursor_len_check") && (bytes.len() as u64) < durable_len;
    let tail = if is_short || end < header.snapshot_end || scan.is_durable_beyond(end) {
        Tail::Damaged
    } else {
        scan.tail(end)
    };
    Ok(Decoded { header, cursors, end, tail, is_marked })
}

fn apply_all(cursors: &mut BTreeMap<CursorKey, Cursor>, kind: Kind, body: &[u8]) -> Option<()> {
    if kind == Kind::Mark {
        return Some(());
    }
    for (key, change) in cursor::decode(body)? {
        cursor::apply(cursors, key, &change).ok()?;
    }
    Some(())
}

struct Scan<'a> {
    bytes: &'a [u8],
    salt: u64,
}

impl Scan<'_> {
    /// Where the batch behind `end` begins: there, or with the next page if that is a mark.
    fn batch_at(&self, end: u64) -> u64 {
        let page = end.next_multiple_of(PAGE);
        let is_mark = |(header, ..): (BatchHeader, usize, u32)| {
            header.kind == Kind::Mark && header.durable_pos == end
        };
        if decode_header(self.salt, page, self.bytes).is_some_and(is_mark) { page } else { end }
    }

    /// The batch at `at`, if it verifies.
    fn batch(&self, at: u64) -> Option<(BatchHeader, Vec<u8>)> {
        let (header, body_len, body_crc) = decode_header(self.salt, at, self.bytes)?;
        let start = at + BATCH_HEADER as u64;
        let whole = self.bytes.get(at as usize..(at + batch_len(body_len)) as usize)?;
        let mut body = whole[BATCH_HEADER..][..body_len].to_vec();
        whiten(self.salt, start, &mut body);
        let verifies = sabotaged("cursor_body_crc") || crc32c::crc32c(&body) == body_crc;
        verifies.then_some((header, body))
    }

    /// Whether a batch behind `end` says that more was durable.
    fn is_durable_beyond(&self, end: u64) -> bool {
        !sabotaged("cursor_watermark")
            && (end..self.bytes.len() as u64).step_by(8).any(|at| {
                decode_header(self.salt, at, self.bytes)
                    .is_some_and(|(header, ..)| header.durable_pos > end)
            })
    }

    /// What is behind the last batch, where nothing says that more was durable.
    fn tail(&self, end: u64) -> Tail {
        let rest = &self.bytes[end as usize..];
        let claimed = decode_header(self.salt, end, self.bytes);
        let claimed = claimed.map_or(batch_len(1), |(_, len, _)| batch_len(len)) as usize;
        if rest.iter().all(|byte| *byte == 0) {
            Tail::Clean
        } else if rest.len() < claimed || rest[..claimed].chunks(8).any(|word| word == [0; 8]) {
            Tail::Torn
        } else {
            Tail::Doubtful
        }
    }
}

/// For fuzzing. Takes any bytes as a file; then as the body of a batch in a file that verifies, which
/// must give what was put in.
///
/// # Panics
///
/// If the decoder contradicts the encoder.
pub fn decode_any_journal(bytes: &[u8]) {
    drop(decode(bytes));
    let Some(changes) = cursor::decode(bytes) else { return };
    let mut body = vec![];
    changes.iter().for_each(|(key, change)| cursor::encode(&mut body, *key, change));
    assert_eq!(cursor::decode(&body).as_ref(), Some(&changes));
    let len = FILE_HEADER as u64 + batch_len(body.len());
    let header =
        FileHeader { store: 1, generation: 1, salt: 7, snapshot_end: FILE_HEADER as u64, len };
    let batch = BatchHeader { kind: Kind::Changes, number: 0, durable_pos: 0, durable_len: 0 };
    let mut file = header.encode().to_vec();
    file.extend(encode_batch(header.salt, FILE_HEADER as u64, &batch, &body));
    let mut cursors = BTreeMap::new();
    let fits =
        changes.iter().all(|(key, change)| cursor::apply(&mut cursors, *key, change).is_ok());
    let found = decode(&file).expect("the header verifies");
    if fits {
        assert_eq!((found.cursors, found.tail), (cursors, Tail::Clean));
    } else {
        assert_eq!(found.tail, Tail::Doubtful);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: FileHeader =
        FileHeader { store: 5, generation: 3, salt: 99, snapshot_end: 512, len: 8192 };

    /// A file of batches that forget cursors, padded to its length.
    fn file(batches: &[&[u8]], durable_pos: u64) -> Vec<u8> {
        let mut file = HEADER.encode().to_vec();
        for (number, body) in (0..).zip(batches) {
            let at = file.len() as u64;
            let batch = BatchHeader { kind: Kind::Changes, number, durable_pos, durable_len: 8192 };
            file.extend(encode_batch(HEADER.salt, at, &batch, body));
        }
        file.resize(8192, 0);
        file
    }

    /// Forgets a cursor again and again.
    const BODY: &[u8] = &[3, 1, 1, 3, 1, 1, 3, 1, 1, 3, 1, 1, 3, 1, 1, 3, 1, 1];

    fn tail_of(file: &[u8]) -> Tail {
        decode(file).unwrap().tail
    }

    #[test]
    fn a_batch_that_was_not_written_to_its_end_is_torn_at_every_place() {
        let whole = file(&[BODY, BODY], 0);
        assert_eq!(tail_of(&whole), Tail::Clean);
        let second = FILE_HEADER + batch_len(BODY.len()) as usize;
        let end = second + batch_len(BODY.len()) as usize;
        for cut in second..second + BATCH_HEADER + BODY.len() {
            let mut torn = whole.clone();
            torn[cut..end].fill(0);
            let found = decode(&torn).unwrap();
            let expected = if cut == second { Tail::Clean } else { Tail::Torn };
            assert_eq!((found.end, found.tail), (second as u64, expected), "{cut}");
        }
        // Its words may also arrive in another order.
        for word in (second..end - TRAILER).step_by(8) {
            let mut torn = whole.clone();
            torn[word..word + 8].fill(0);
            assert_eq!(tail_of(&torn), Tail::Torn, "{word}");
        }
    }

    #[test]
    fn what_was_changed_after_it_was_written_is_never_taken_for_torn() {
        let whole = file(&[BODY, BODY], 0);
        let second = FILE_HEADER + batch_len(BODY.len()) as usize;
        for at in second..second + batch_len(BODY.len()) as usize - TRAILER {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                let tail = tail_of(&flipped);
                // The pad behind the body is not checked, and says nothing.
                let is_pad = at >= second + BATCH_HEADER + BODY.len();
                let expected = if is_pad { Tail::Clean } else { Tail::Doubtful };
                assert_eq!(tail, expected, "bit {bit} of {at}");
            }
        }
    }

    #[test]
    fn below_what_was_durable_everything_is_damage() {
        let second = FILE_HEADER as u64 + batch_len(BODY.len());
        let mut bytes = file(&[BODY, BODY], second);
        bytes[FILE_HEADER..second as usize].fill(0);
        assert_eq!(tail_of(&bytes), Tail::Damaged);
        assert_eq!(tail_of(&file(&[BODY], 0)[..8191]), Tail::Damaged);
    }

    #[test]
    fn unknown_versions_and_flags_are_refused() {
        for (at, byte) in [(8, 2), (12, 1)] {
            let mut bytes = file(&[], 0);
            bytes[at] = byte;
            let crc = crc32c::crc32c(&bytes[..FILE_HEADER - 4]);
            bytes[FILE_HEADER - 4..FILE_HEADER].copy_from_slice(&crc.to_le_bytes());
            assert!(matches!(decode(&bytes), Err(Unusable::Version(_))));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_file_or_refused(bytes: Vec<u8>) {
            decode_any_journal(&bytes);
            let mut file = file(&[], 0);
            let len = bytes.len().min(4096);
            file[FILE_HEADER..FILE_HEADER + len].copy_from_slice(&bytes[..len]);
            drop(decode(&file));
        }
    }
}
