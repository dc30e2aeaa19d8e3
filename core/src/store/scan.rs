//! Reading a segment file batch by batch, and saying exactly what stands where that ends.

use super::batch::{BatchHeader, HEADER, Kind};
use super::index::{SegmentIndex, Touch};
use super::record::{StoredRecord, long, word};
use super::sabotage::sabotaged;
use super::sector::SECTOR;
use super::segment::{FIRST_BATCH, SegmentHeader};
use crate::fs::{FsFile, read_full_at};
use std::io;

/// Bytes that a scan reads at once.
const READ: usize = 1 << 20;
/// A sector is torn between such pieces.
const WORD: usize = 8;

/// A part of a file in memory, which moves forward.
pub(crate) struct Window<'a> {
    file: &'a dyn FsFile,
    bytes: Vec<u8>,
    /// Position of the first byte.
    at: u64,
    /// Bytes to be read at once, if no more are asked for.
    at_once: usize,
}

impl<'a> Window<'a> {
    /// For who reads all of it.
    pub(crate) fn new(file: &'a dyn FsFile) -> Self {
        Self::reading(file, READ)
    }

    /// For who reads so many bytes at once.
    pub(crate) fn reading(file: &'a dyn FsFile, at_once: usize) -> Self {
        Self { file, bytes: vec![], at: 0, at_once }
    }

    /// `len` bytes from `position` on, or fewer where the file ends.
    pub(crate) fn get(&mut self, position: u64, len: usize) -> io::Result<&[u8]> {
        let end = self.at + self.bytes.len() as u64;
        if position < self.at || position + len as u64 > end {
            self.bytes.resize(len.max(self.at_once), 0);
            let read = read_full_at(self.file, &mut self.bytes, position)?;
            self.bytes.truncate(read);
            self.at = position;
        }
        let from = (position - self.at) as usize;
        Ok(&self.bytes[from..(from + len).min(self.bytes.len())])
    }
}

/// The whole batch at `position`, with its body; `None` if nothing there verifies as the batch that
/// begins with `sequence`.
pub(crate) fn batch<'w>(
    window: &'w mut Window<'_>,
    position: u64,
    sequence: u64,
    salt: u32,
) -> io::Result<Option<(BatchHeader, &'w [u8])>> {
    let found = any_batch(window, position, salt)?;
    Ok(found.filter(|(header, _)| header.base_sequence == sequence || sabotaged("chain")))
}

/// The same, whatever it begins with.
pub(crate) fn any_batch<'w>(
    window: &'w mut Window<'_>,
    position: u64,
    salt: u32,
) -> io::Result<Option<(BatchHeader, &'w [u8])>> {
    let Some(header) = BatchHeader::decode(window.get(position, HEADER)?, salt) else {
        return Ok(None);
    };
    let body = window.get(position + HEADER as u64, header.body_len as usize)?;
    Ok((header.verifies(body, salt) && is_sound(&header, body)).then_some((header, body)))
}

/// Whether a body that verifies is what the header calls it. Only an error of a writer, or malice,
/// can make it another thing; nobody who reads records shall have to think of that.
pub(crate) fn is_sound(header: &BatchHeader, body: &[u8]) -> bool {
    match header.kind {
        Kind::Records => {
            let mut rest = body;
            let mut sequence = header.base_sequence;
            while let Some((record, behind)) = StoredRecord::split_first(rest) {
                if record.sequence_low() != sequence as u32 || !record.is_sound() {
                    return false;
                }
                sequence += 1;
                rest = behind;
            }
            rest.is_empty() && sequence == header.end_sequence() && header.record_count > 0
        }
        Kind::Seal => body.is_empty() && header.record_count == 0,
        Kind::Tails => body.len().is_multiple_of(16) && header.record_count == 0,
    }
}

/// The records of a sound body.
pub(crate) fn records(body: &[u8]) -> impl Iterator<Item = StoredRecord<'_>> {
    let mut rest = body;
    std::iter::from_fn(move || {
        let (record, behind) = StoredRecord::split_first(rest)?;
        rest = behind;
        Some(record)
    })
}

/// Next offsets of partitions, as the body of a control batch.
pub(crate) fn encode_tails(tails: impl Iterator<Item = (u32, u64)>) -> Vec<u8> {
    tails
        .flat_map(|(partition, next)| {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&partition.to_le_bytes());
            bytes[8..].copy_from_slice(&next.to_le_bytes());
            bytes
        })
        .collect()
}

/// Puts a batch into the index of its segment.
pub(crate) fn add_to_index(
    index: &mut SegmentIndex,
    header: &BatchHeader,
    position: u64,
    body: &[u8],
) {
    match header.kind {
        Kind::Records => {
            let mut touches = vec![];
            for record in records(body) {
                touch(&mut touches, 0, record);
            }
            index.add_batch(header.base_sequence, position, header.first_us, &touches);
        }
        Kind::Tails => {
            for tail in body.chunks_exact(16) {
                index.add_tail(word(tail, 0), long(tail, 8));
            }
        }
        Kind::Seal => {}
    }
}

/// Notes a record of the batch whose touches begin at `first`; records of one partition that follow
/// each other are one touch.
pub(crate) fn touch(touches: &mut Vec<Touch>, first: usize, record: StoredRecord<'_>) {
    let (partition, bytes) = (record.partition(), record.bytes().len() as u64);
    match touches[first..].last_mut() {
        Some(last) if last.partition == partition => {
            last.count += 1;
            last.bytes += bytes;
            last.last_us = last.last_us.max(record.published_us());
        }
        _ => touches.push(Touch {
            partition,
            first_offset: record.offset(),
            count: 1,
            bytes,
            last_us: record.published_us(),
        }),
    }
}

/// The index of a sealed segment, made from its batches, and whether all of them verify. What does
/// not is left out.
pub(crate) fn index(
    file: &dyn FsFile,
    header: &SegmentHeader,
    end: u64,
) -> io::Result<(SegmentIndex, bool)> {
    let mut index = SegmentIndex::new(header.base);
    let mut window = Window::new(file);
    let (mut position, mut sequence) = (FIRST_BATCH, header.base);
    let mut is_whole = true;
    while position < end {
        if let Some((batch, body)) = batch(&mut window, position, sequence, header.salt)? {
            add_to_index(&mut index, &batch, position, body);
            position += batch.bytes();
            sequence = batch.end_sequence();
            continue;
        }
        is_whole = false;
        match resume(&mut window, position + 8, end, sequence, header.salt)? {
            Some((at, batch)) => (position, sequence) = (at, batch.base_sequence),
            None => break,
        }
    }
    Ok((index, is_whole))
}

/// The next whole batch from `position` on that does not go back behind `sequence`.
pub(crate) fn resume(
    window: &mut Window<'_>,
    mut position: u64,
    end: u64,
    sequence: u64,
    salt: u32,
) -> io::Result<Option<(u64, BatchHeader)>> {
    while position + HEADER as u64 <= end {
        let header = BatchHeader::decode(window.get(position, HEADER)?, salt);
        if let Some(header) = header.filter(|header| header.base_sequence >= sequence)
            && any_batch(window, position, salt)?.is_some()
        {
            return Ok(Some((position, header)));
        }
        position += 8;
    }
    Ok(None)
}

/// Where a scan of a segment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Behind a seal.
    Sealed,
    /// Nothing but zeros follow.
    End,
    /// What follows has holes, as a write has that did not come to its end.
    Torn,
    /// What follows was written whole and has changed since.
    Changed,
}

/// What a scan of a whole segment file found.
#[derive(Debug)]
pub(crate) struct Scan {
    /// Behind the last batch of the unbroken run.
    pub(crate) position: u64,
    pub(crate) sequence: u64,
    /// Everything below was durable, says the newest header that verifies, also behind the end.
    pub(crate) durable_pos: u64,
    pub(crate) stop: Stop,
    /// Of the unbroken run.
    pub(crate) index: SegmentIndex,
    /// Behind the last batch that verifies at all.
    pub(crate) last_sequence: u64,
    pub(crate) file_len: u64,
}

/// Scans a segment from its first batch on.
pub(crate) fn segment(file: &dyn FsFile, header: &SegmentHeader) -> io::Result<Scan> {
    let salt = header.salt;
    let file_len = file.len()?;
    let mut window = Window::new(file);
    let mut scan = Scan {
        position: FIRST_BATCH,
        sequence: header.base,
        durable_pos: 0,
        stop: Stop::End,
        index: SegmentIndex::new(header.base),
        last_sequence: header.base,
        file_len,
    };
    while let Some((batch, body)) = batch(&mut window, scan.position, scan.sequence, salt)? {
        add_to_index(&mut scan.index, &batch, scan.position, body);
        scan.durable_pos = scan.durable_pos.max(batch.durable_pos);
        scan.position += batch.bytes();
        scan.sequence = batch.end_sequence();
        if batch.kind == Kind::Seal {
            scan.stop = Stop::Sealed;
            break;
        }
    }
    scan.last_sequence = scan.sequence;
    let Some(first_byte) = first_non_zero(&mut window, scan.position, file_len)? else {
        return Ok(scan);
    };
    scan.stop = match scan.stop {
        Stop::Sealed => Stop::Changed,
        _ if has_hole(&mut window, scan.position, first_byte, file_len, salt)? => Stop::Torn,
        _ => Stop::Changed,
    };
    // A header behind the end may say that what is before it was durable.
    let mut at = scan.position + 8;
    while let Some((found, batch)) = resume(&mut window, at, file_len, scan.sequence, salt)? {
        // A batch of one group with what is torn says nothing new; nor may one speak of itself.
        scan.durable_pos = scan.durable_pos.max(batch.durable_pos.min(found));
        scan.last_sequence = scan.last_sequence.max(batch.end_sequence());
        at = found + batch.bytes();
    }
    Ok(scan)
}

/// Behind the last byte from `from` on that is not zero; `from` if there is none.
pub(crate) fn end_of_bytes(file: &dyn FsFile, from: u64, end: u64) -> io::Result<u64> {
    let mut window = Window::new(file);
    let (mut at, mut last) = (from, from);
    while let Some(first) = first_non_zero(&mut window, at, end)? {
        let len = (end - first).min(READ as u64) as usize;
        let bytes = window.get(first, len)?;
        let here = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
        last = first + here as u64;
        at = first + bytes.len() as u64;
    }
    Ok(last)
}

fn first_non_zero(window: &mut Window<'_>, from: u64, end: u64) -> io::Result<Option<u64>> {
    let mut at = from;
    while at < end {
        let bytes = window.get(at, (end - at).min(READ as u64) as usize)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        // By words: room that was reserved is megabytes of zeros.
        let (words, rest) = bytes.as_chunks::<8>();
        let zeros = words.iter().take_while(|word| **word == [0; 8]).count() * 8;
        if zeros < words.len() * 8 || rest.iter().any(|&byte| byte != 0) {
            let first = bytes[zeros..].iter().take_while(|&&byte| byte == 0).count();
            return Ok(Some(at + (zeros + first) as u64));
        }
        at += bytes.len() as u64;
    }
    Ok(None)
}

/// Whether the batch at `position`, which does not verify, lacks something: its header is zero, or
/// it goes beyond the file, or nothing follows its header; or its part in some sector begins or
/// ends with zeros, as where that sector was not written, or only its other side was; or its last
/// record ends with a zero, as where the write stopped in the last word.
fn has_hole(
    window: &mut Window<'_>,
    position: u64,
    first_byte: u64,
    file_len: u64,
    salt: u32,
) -> io::Result<bool> {
    let header_end = position + HEADER as u64;
    if first_byte >= header_end || header_end > file_len {
        return Ok(true);
    }
    let header = BatchHeader::decode(window.get(position, HEADER)?, salt);
    // Of a header that does not verify, no length is believed: the header alone is looked at.
    let end = header.map_or(header_end, |header| position + header.bytes());
    if end > file_len || (header.is_none() && first_non_zero(window, end, file_len)?.is_none()) {
        return Ok(true);
    }
    let mut at = position;
    while at < end {
        let next = (at / SECTOR * SECTOR + SECTOR).min(end);
        let part = window.get(at, (next - at) as usize)?;
        let is_zero = |word: Option<&[u8; WORD]>| word == Some(&[0; WORD]);
        if is_zero(part.first_chunk()) || is_zero(part.last_chunk()) {
            return Ok(true);
        }
        at = next;
    }
    let Some(header) = header else { return Ok(false) };
    let body = window.get(header_end, header.body_len as usize)?;
    // Where the lengths do not add up, more than the last word is wrong.
    let len: usize = records(body).map(|record| record.bytes().len()).sum();
    let adds_up = len == body.len() && records(body).count() == header.record_count as usize;
    let last = records(body).last().filter(|_| adds_up);
    Ok(last.is_some_and(|record| record.payload().last() == Some(&0)))
}
