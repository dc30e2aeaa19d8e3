//! Reading a shard's log with `pread`, every batch verified.
//!
//! A mapped file would be faster by one copy, and would kill the program when the disk fails.

use super::batch::{BatchHeader, HEADER, Kind};
use super::error::{Damage, StoreError};
use super::record::StoredRecord;
use super::records::{Hint, HintPlace, Records};
use super::scan::{self, Window};
use super::segment::{FIRST_BATCH, Segment};
use super::segments::Segments;
use super::writer::Home;
use crate::fs::{FsFile, read_full_at};
use std::ops::Range;

/// Bytes that are read at once, at least.
const LEAST: usize = 32 << 10;
/// The same, where a batch is read for the sake of one partition.
const LEAST_OF_BATCH: usize = 4 << 10;
/// The same, at most, where a read does not go on where the one before has stopped.
const MOST_AT_FIRST: usize = 64 << 10;
/// The same, at most: what a reader may hold in memory without asking.
const MOST: usize = 4 << 20;

/// Whether a record has expired, though it is still there.
pub(super) type IsExpired<'a> = &'a dyn Fn(StoredRecord<'_>) -> bool;

/// Reads records of `sequences`, whose start is not below the log and whose end is not above it.
pub(super) fn sequences(
    home: &Home,
    segments: &Segments,
    sequences: Range<u64>,
    max_bytes: usize,
    is_expired: Option<IsExpired<'_>>,
    into: &mut Records,
) -> Result<(), StoreError> {
    let mut from = sequences.start;
    loop {
        // Also of the bytes of records that were read and have expired.
        into.clear();
        into.set_next(from.min(sequences.end));
        if from >= sequences.end {
            return Ok(());
        }
        let Some((segment, next)) = segments.of(from) else {
            return Err(StoreError::Expired { low: segments.low() });
        };
        let extent = segment.extent();
        if from >= extent.sequence && !extent.damaged {
            // Given up between two segments.
            let Some(next) = next else { return Ok(()) };
            from = next.max(from + 1);
            continue;
        }
        let wanted = Wanted { sequences: from..sequences.end, max_bytes, is_expired };
        segment_part(home, &segment, next, &wanted, into)?;
        debug_assert!(into.next() > from, "a read goes on");
        if !into.is_empty() {
            return Ok(());
        }
        from = into.next();
    }
}

struct Wanted<'a> {
    sequences: Range<u64>,
    max_bytes: usize,
    is_expired: Option<IsExpired<'a>>,
}

/// What stands in a buffer that was read from a segment.
enum Step {
    Batch(BatchHeader),
    /// A batch, or its header, of which so many bytes more must be read.
    Short(usize),
    /// Nothing that verifies.
    Bad,
}

/// `bytes` were read at a batch, from which on the segment has `left` bytes.
fn step(bytes: &[u8], left: u64, salt: u32) -> Step {
    if left < HEADER as u64 {
        return Step::Bad;
    }
    if bytes.len() < HEADER {
        return Step::Short(HEADER - bytes.len());
    }
    match BatchHeader::decode(bytes, salt) {
        Some(header) if header.bytes() > left => Step::Bad,
        Some(header) if header.bytes() > bytes.len() as u64 => {
            Step::Short(header.bytes() as usize - bytes.len())
        }
        Some(header) => Step::Batch(header),
        None => Step::Bad,
    }
}

/// Reads from one segment, which has the first of the sequences wanted.
fn segment_part(
    home: &Home,
    segment: &Segment,
    next_base: Option<u64>,
    wanted: &Wanted<'_>,
    into: &mut Records,
) -> Result<(), StoreError> {
    let (end, salt) = (segment.extent().position, segment.header.salt);
    let from = wanted.sequences.start;
    let file = segment.file(&*home.fs)?;
    let hint =
        match into.hint(home.log, from) {
            Some(Hint {
                segment: base, place: HintPlace::Batch { position, sequence }, ..
            }) if base == segment.base() => Some((position, sequence)),
            _ => None,
        };
    let start = match hint {
        Some((position, _)) => position,
        None => {
            segment.with_index(&*home.fs, |index| index.position_of(from))?.unwrap_or(FIRST_BATCH)
        }
    };
    // Who begins somewhere may want one record only.
    let most_at_once = if hint.is_some() { MOST } else { MOST_AT_FIRST };
    let at_once = wanted.max_bytes.clamp(LEAST, most_at_once);
    let mut expected = hint.map(|(_, sequence)| sequence);
    let mut at = 0;
    while into.next() < wanted.sequences.end && start + (at as u64) < end {
        let left = end - start - at as u64;
        let in_order = |header: &BatchHeader| match expected {
            Some(expected) => header.base_sequence == expected,
            None => header.base_sequence <= from,
        };
        let header = match step(&into.filled()[at..], left, salt) {
            // The next read begins there.
            Step::Short(_) if into.next() > from => return Ok(()),
            Step::Short(more) => {
                let position = start + into.used() as u64;
                let most = (end - position) as usize;
                if read_more(&*file, into, position, more.max(at_once).min(most))? > 0 {
                    continue;
                }
                None
            }
            Step::Batch(header) => Some(header).filter(in_order),
            Step::Bad => None,
        };
        let is_good = header.is_some_and(|header| {
            let is_passed = header.kind != Kind::Records || header.end_sequence() <= from;
            is_passed || mark(&header, at + HEADER, salt, wanted, into)
        });
        let Some(header) = header.filter(|_| is_good) else {
            if into.next() > from {
                return Ok(());
            }
            return Err(damaged(home, segment, &*file, start + at as u64, from, next_base)?);
        };
        at += header.bytes() as usize;
        expected = Some(header.end_sequence());
        if header.end_sequence() > from {
            let next = header.end_sequence().min(wanted.sequences.end);
            into.set_next(next);
            let is_whole = next == header.end_sequence();
            let back = if is_whole { 0 } else { header.bytes() };
            let position = start + at as u64 - back;
            let sequence = if is_whole { next } else { header.base_sequence };
            into.set_hint(Hint {
                log: home.log,
                next,
                segment: segment.base(),
                place: HintPlace::Batch { position, sequence },
            });
        }
    }
    if into.next() == from {
        // Only control batches were left, which can be where damage was skipped.
        into.set_next(next_base.unwrap_or(wanted.sequences.end));
    }
    Ok(())
}

/// Reads `len` bytes more behind what is in the buffer, and says how many there were.
fn read_more(
    file: &dyn FsFile,
    into: &mut Records,
    position: u64,
    len: usize,
) -> Result<usize, StoreError> {
    let used = into.used();
    let read = read_full_at(file, into.grow(len), position)?;
    into.shrink_to(used + read);
    Ok(read)
}

/// Verifies a batch whose body is in the buffer at `at`, and marks its records that are wanted;
/// false if it does not verify, and then none is.
fn mark(
    header: &BatchHeader,
    at: usize,
    salt: u32,
    wanted: &Wanted<'_>,
    into: &mut Records,
) -> bool {
    let len = header.body_len as usize;
    let body = &into.filled()[at..at + len];
    if !header.verifies(body, salt) || !scan::is_sound(header, body) {
        return false;
    }
    let mut place = at;
    for sequence in header.base_sequence..header.end_sequence() {
        let (record, _) =
            StoredRecord::split_first(&into.filled()[place..at + len]).expect("a sound body");
        let bytes = record.bytes().len();
        if wanted.sequences.contains(&sequence)
            && !wanted.is_expired.is_some_and(|is_expired| is_expired(record))
        {
            into.mark(sequence, place, bytes);
        }
        place += bytes;
    }
    true
}

/// The error for bytes at `position` that do not verify, with the place where reading can go on.
fn damaged(
    home: &Home,
    segment: &Segment,
    file: &dyn FsFile,
    position: u64,
    from: u64,
    next_base: Option<u64>,
) -> Result<StoreError, StoreError> {
    let end = segment.extent().position;
    let mut window = Window::new(file);
    let salt = segment.header.salt;
    let behind = scan::resume(&mut window, position + 8, end, from + 1, salt)?;
    let resume = behind.map(|(_, batch)| batch.base_sequence).or(next_base);
    let damage = Damage {
        shard: home.shard,
        file: segment.path.to_string_lossy().into_owned(),
        position,
        from,
        resume,
    };
    tracing::error!(target: "slipring", "{damage}");
    Ok(damage.into())
}

/// Reads records of a partition from the offset `offsets.start` on, which it has not expired, up to
/// where it ends.
pub(super) fn partition(
    home: &Home,
    segments: &Segments,
    partition: u32,
    offsets: Range<u64>,
    max_bytes: usize,
    into: &mut Records,
) -> Result<(), StoreError> {
    into.clear();
    into.set_next(offsets.start);
    let base = match into.hint(home.log, offsets.start) {
        Some(Hint { segment, place: HintPlace::Partition(of), .. }) if of == partition => segment,
        _ => 0,
    };
    let wanted = OfPartition { partition, end: offsets.end, max_bytes };
    for segment in segments.from(base) {
        let is_full = partition_part(home, segments, &segment, &wanted, into)?;
        let place = HintPlace::Partition(partition);
        let hint = Hint { log: home.log, next: into.next(), segment: segment.base(), place };
        into.set_hint(hint);
        if is_full {
            break;
        }
    }
    Ok(())
}

struct OfPartition {
    partition: u32,
    end: u64,
    max_bytes: usize,
}

/// Reads what one segment has of a partition, from `into.next()` on; true if no more is wanted.
fn partition_part(
    home: &Home,
    segments: &Segments,
    segment: &Segment,
    wanted: &OfPartition,
    into: &mut Records,
) -> Result<bool, StoreError> {
    /// Batches that are looked up at once: a partition can have as many as it has records.
    const PLACES: usize = 32;
    let is_full =
        |into: &Records| into.next() >= wanted.end || into.used() >= wanted.max_bytes.max(1);
    while !is_full(into) {
        let found = segment.with_index(&*home.fs, |index| {
            let row = index.partition(wanted.partition)?;
            let places = index.places_of(wanted.partition, into.next()).take(PLACES + 1);
            Some((row, places.collect::<Vec<_>>())).filter(|(_, places)| !places.is_empty())
        })?;
        segments.used(segment);
        let Some((row, places)) = found else { return Ok(false) };
        // What lies between two segments was given up.
        into.set_next(into.next().max(row.first_offset));
        let file = segment.file(&*home.fs)?;
        let mut window = Window::reading(&*file, wanted.max_bytes.clamp(LEAST_OF_BATCH, MOST));
        for (at, &(_, position)) in places.iter().take(PLACES).enumerate() {
            if is_full(into) {
                return Ok(true);
            }
            let next = into.next();
            let gap = match scan::any_batch(&mut window, position, segment.header.salt)? {
                Some((header, body)) => take_partition(&header, body, wanted, into),
                None => None,
            };
            if gap.is_none() && into.next() > next {
                continue;
            }
            if !into.is_empty() {
                // The next read begins there.
                return Ok(true);
            }
            let behind = places.get(at + 1).map_or(row.next_offset, |&(offset, _)| offset);
            let resume = Some(gap.unwrap_or(behind)).filter(|&resume| resume < wanted.end);
            let file = segment.path.to_string_lossy().into_owned();
            let damage = Damage { shard: home.shard, file, position, from: next, resume };
            tracing::error!(target: "slipring", "{damage}");
            return Err(damage.into());
        }
    }
    Ok(true)
}

/// Takes the records of a batch that are wanted. If there is a gap before the first of them, says
/// behind which offset.
fn take_partition(
    header: &BatchHeader,
    body: &[u8],
    wanted: &OfPartition,
    into: &mut Records,
) -> Option<u64> {
    for (sequence, record) in (header.base_sequence..).zip(scan::records(body)) {
        let (offset, next) = (record.offset(), into.next());
        if record.partition() != wanted.partition || offset < next || offset >= wanted.end {
            continue;
        }
        if offset > next {
            return Some(offset);
        }
        into.push(sequence, record);
        into.set_next(next + 1);
    }
    None
}
