//! The index of a segment: where a sequence is, about; and in which batches a partition is.
//!
//! In memory for the segment that is being written, in a file beside a sealed one. The file is a
//! cache: never synced, never believed without its checks, and made again from the segment when it
//! is missing, damaged, or of another segment (little-endian):
//!
//! ```text
//! header  64 B  magic "SLIPIDX1", base u64, end u64, position u64, salt u32, partitions u32,
//!               marks u32, places u32, body_crc u32, head_crc u32 (of the header, then the table)
//! table   40 B a partition: partition u32, places u32, first_offset u64, next_offset u64,
//!                           bytes u64, last_us u64
//! marks   16 B every 16 KiB: sequence - base u32, position u32, first_us u64
//! places   8 B a batch and partition: offset - first_offset u32, position u32
//! ```

use super::batch::{agree, checksum};
use super::record::{long, word};
use crate::fs::{FsFile, read_full_at};
use ahash::AHashMap;
use std::io;

const MAGIC: &[u8; 8] = b"SLIPIDX1";
const HEADER: usize = 64;
const ROW: usize = 40;
const MARK: usize = 16;
const PLACE: usize = 8;
/// Bytes of a segment from one mark to the next, at least.
const MARK_EVERY: u32 = 16 << 10;

/// Records of one partition in one batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Touch {
    pub(crate) partition: u32,
    pub(crate) first_offset: u64,
    pub(crate) count: u32,
    pub(crate) bytes: u64,
    pub(crate) last_us: u64,
}

/// What a segment holds of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartitionRow {
    pub(crate) partition: u32,
    pub(crate) first_offset: u64,
    /// Behind the last offset; the same as the first if the segment only remembers the partition.
    pub(crate) next_offset: u64,
    pub(crate) bytes: u64,
    pub(crate) last_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    offset: u32,
    position: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SequenceMark {
    sequence: u32,
    position: u32,
    first_us: u64,
}

/// Where the things of a segment are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SegmentIndex {
    base: u64,
    marks: Vec<SequenceMark>,
    by_partition: AHashMap<u32, usize>,
    rows: Vec<(PartitionRow, Vec<Place>)>,
}

impl SegmentIndex {
    pub(crate) fn new(base: u64) -> Self {
        Self { base, ..Self::default() }
    }

    /// Adds a batch of records; called in order.
    pub(crate) fn add_batch(
        &mut self,
        sequence: u64,
        position: u64,
        first_us: u64,
        touches: &[Touch],
    ) {
        let position = position as u32;
        if self.marks.last().is_none_or(|mark| position - mark.position >= MARK_EVERY) {
            let sequence = (sequence - self.base) as u32;
            self.marks.push(SequenceMark { sequence, position, first_us });
        }
        for touch in touches {
            let (row, places) = self.row(touch.partition, touch.first_offset);
            if row.bytes == 0 {
                row.first_offset = touch.first_offset;
            }
            row.next_offset = touch.first_offset + u64::from(touch.count);
            row.bytes += touch.bytes;
            row.last_us = row.last_us.max(touch.last_us);
            if places.last().is_none_or(|place| place.position != position) {
                let offset = (touch.first_offset - row.first_offset) as u32;
                places.push(Place { offset, position });
            }
        }
    }

    /// Remembers the next offset of a partition whose records are elsewhere, or gone.
    pub(crate) fn add_tail(&mut self, partition: u32, next_offset: u64) {
        let (row, places) = self.row(partition, next_offset);
        if places.is_empty() {
            (row.first_offset, row.next_offset) = (next_offset, next_offset);
        }
    }

    fn row(&mut self, partition: u32, first_offset: u64) -> &mut (PartitionRow, Vec<Place>) {
        let rows = &mut self.rows;
        let at = *self.by_partition.entry(partition).or_insert_with(|| {
            let next_offset = first_offset;
            rows.push((
                PartitionRow { partition, first_offset, next_offset, bytes: 0, last_us: 0 },
                vec![],
            ));
            rows.len() - 1
        });
        &mut self.rows[at]
    }

    /// What it holds of each partition, in no order.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = PartitionRow> {
        self.rows.iter().map(|&(row, _)| row)
    }

    /// What it holds of `partition`.
    pub(crate) fn partition(&self, partition: u32) -> Option<PartitionRow> {
        self.by_partition.get(&partition).map(|&at| self.rows[at].0)
    }

    /// Position of a batch at or before that which has `sequence`.
    pub(crate) fn position_of(&self, sequence: u64) -> Option<u64> {
        let wanted = sequence.saturating_sub(self.base);
        let behind = self.marks.partition_point(|mark| u64::from(mark.sequence) <= wanted);
        self.marks[..behind].last().map(|mark| u64::from(mark.position))
    }

    /// Position of a batch before or at the first one that has a record published at or after
    /// `time_us`.
    pub(crate) fn position_at_time(&self, time_us: u64) -> Option<u64> {
        let behind = self.marks.partition_point(|mark| mark.first_us < time_us);
        self.marks[..behind].last().or(self.marks.first()).map(|mark| u64::from(mark.position))
    }

    /// The batches that have records of `partition` from `offset` on: of each the first offset in it,
    /// and its position.
    pub(crate) fn places_of(
        &self,
        partition: u32,
        offset: u64,
    ) -> impl Iterator<Item = (u64, u64)> {
        let found = self.by_partition.get(&partition).map(|&at| &self.rows[at]);
        let (first_offset, places) = found.map_or((0, &[][..]), |(row, places)| {
            let wanted = offset.saturating_sub(row.first_offset);
            let behind = places.partition_point(|place| u64::from(place.offset) <= wanted);
            let from = if offset >= row.next_offset { places.len() } else { behind.max(1) - 1 };
            (row.first_offset, &places[from..])
        });
        places
            .iter()
            .map(move |place| (first_offset + u64::from(place.offset), u64::from(place.position)))
    }

    /// As a file for the sealed segment `of`.
    pub(crate) fn encode(&self, of: IndexOf) -> Vec<u8> {
        let places: usize = self.rows.iter().map(|(_, places)| places.len()).sum();
        let mut head = Vec::with_capacity(HEADER + self.rows.len() * ROW);
        let mut body = Vec::with_capacity(self.marks.len() * MARK + places * PLACE);
        head.extend_from_slice(MAGIC);
        for field in [self.base, of.end, of.position] {
            head.extend_from_slice(&field.to_le_bytes());
        }
        let counts = [self.rows.len(), self.marks.len(), places];
        for field in [of.salt, counts[0] as u32, counts[1] as u32, counts[2] as u32] {
            head.extend_from_slice(&field.to_le_bytes());
        }
        head.resize(HEADER, 0);
        for (row, places) in &self.rows {
            head.extend_from_slice(&row.partition.to_le_bytes());
            head.extend_from_slice(&(places.len() as u32).to_le_bytes());
            for field in [row.first_offset, row.next_offset, row.bytes, row.last_us] {
                head.extend_from_slice(&field.to_le_bytes());
            }
        }
        for mark in &self.marks {
            body.extend_from_slice(&mark.sequence.to_le_bytes());
            body.extend_from_slice(&mark.position.to_le_bytes());
            body.extend_from_slice(&mark.first_us.to_le_bytes());
        }
        for place in self.rows.iter().flat_map(|(_, places)| places) {
            body.extend_from_slice(&place.offset.to_le_bytes());
            body.extend_from_slice(&place.position.to_le_bytes());
        }
        head[48..52].copy_from_slice(&checksum(of.salt, &body).to_le_bytes());
        let crc = head_checksum(&head, of.salt);
        head[52..56].copy_from_slice(&crc.to_le_bytes());
        head.extend_from_slice(&body);
        head
    }

    /// The index in `bytes`, if it verifies and is that of `of`.
    pub(crate) fn decode(bytes: &[u8], base: u64, of: IndexOf) -> Option<Self> {
        let head = Head::decode(bytes, base, of)?;
        let (table, body) = bytes.get(HEADER..)?.split_at_checked(head.partitions * ROW)?;
        let (marks, places) = body.split_at_checked(head.marks * MARK)?;
        if places.len() != head.places * PLACE
            || !agree(head.head_crc, head_checksum(&bytes[..HEADER + table.len()], of.salt))
            || !agree(head.body_crc, checksum(of.salt, body))
        {
            return None;
        }
        let mut index = Self::new(base);
        index.marks.extend(marks.chunks_exact(MARK).map(|mark| SequenceMark {
            sequence: word(mark, 0),
            position: word(mark, 4),
            first_us: long(mark, 8),
        }));
        let mut places = places.chunks_exact(PLACE);
        for (at, row) in table.chunks_exact(ROW).enumerate() {
            let count = word(row, 4) as usize;
            let its = places.by_ref().take(count);
            let its: Vec<_> = its
                .map(|place| Place { offset: word(place, 0), position: word(place, 4) })
                .collect();
            if its.len() != count {
                return None;
            }
            let row = decode_row(row);
            index.by_partition.insert(row.partition, at);
            index.rows.push((row, its));
        }
        Some(index)
    }

    /// The table alone, read from an index file: what the segment holds of each partition.
    pub(crate) fn read_table(
        file: &dyn FsFile,
        base: u64,
        of: IndexOf,
    ) -> io::Result<Option<Vec<PartitionRow>>> {
        let mut bytes = vec![0; HEADER];
        let read = read_full_at(file, &mut bytes, 0)?;
        let Some(head) = Head::decode(&bytes[..read], base, of) else { return Ok(None) };
        let table = head.partitions * ROW;
        if file.len()? < (HEADER + table) as u64 {
            return Ok(None);
        }
        bytes.resize(HEADER + table, 0);
        let read = read_full_at(file, &mut bytes[HEADER..], HEADER as u64)?;
        let verifies = read == table && agree(head.head_crc, head_checksum(&bytes, of.salt));
        Ok(verifies.then(|| bytes[HEADER..].chunks_exact(ROW).map(decode_row).collect()))
    }
}

/// The sealed segment that an index file is of: a file of any other is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexOf {
    pub(crate) end: u64,
    pub(crate) position: u64,
    pub(crate) salt: u32,
}

impl IndexOf {
    /// What an index of it has at most. A row is of a record, or of 16 bytes that name a partition; a
    /// place is of a record.
    pub(crate) fn most_bytes(&self) -> u64 {
        (HEADER as u64).saturating_add(self.position.saturating_mul(4))
    }
}

struct Head {
    partitions: usize,
    marks: usize,
    places: usize,
    body_crc: u32,
    head_crc: u32,
}

impl Head {
    /// The header, before its check: whatever it says, the index is not larger than one can be.
    fn decode(bytes: &[u8], base: u64, of: IndexOf) -> Option<Self> {
        let bytes = bytes.get(..HEADER)?;
        let is_of = bytes.starts_with(MAGIC)
            && long(bytes, 8) == base
            && (long(bytes, 16), long(bytes, 24)) == (of.end, of.position)
            && word(bytes, 32) == of.salt;
        let head = Self {
            partitions: word(bytes, 36) as usize,
            marks: word(bytes, 40) as usize,
            places: word(bytes, 44) as usize,
            body_crc: word(bytes, 48),
            head_crc: word(bytes, 52),
        };
        let bytes = head.partitions * ROW + head.marks * MARK + head.places * PLACE;
        (is_of && (HEADER + bytes) as u64 <= of.most_bytes()).then_some(head)
    }
}

/// Of the header, without the check itself, and the table.
fn head_checksum(head: &[u8], salt: u32) -> u32 {
    checksum(checksum(salt, &head[..52]), &head[56..])
}

fn decode_row(row: &[u8]) -> PartitionRow {
    PartitionRow {
        partition: word(row, 0),
        first_offset: long(row, 8),
        next_offset: long(row, 16),
        bytes: long(row, 24),
        last_us: long(row, 32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: IndexOf = IndexOf { end: 130, position: 90_000, salt: 5 };

    fn index() -> SegmentIndex {
        let mut index = SegmentIndex::new(100);
        let touch = |partition, first_offset, count| Touch {
            partition,
            first_offset,
            count,
            bytes: 64,
            last_us: first_offset,
        };
        index.add_batch(100, 4096, 10, &[touch(1, 7, 4), touch(2, 0, 2), touch(1, 11, 1)]);
        index.add_batch(107, 5000, 20, &[touch(1, 12, 2)]);
        index.add_batch(109, 4096 + (16 << 10), 30, &[touch(3, 0, 21)]);
        index.add_tail(9, 77);
        index
    }

    #[test]
    fn sequences_times_and_partitions_are_found() {
        let index = index();
        assert_eq!(index.position_of(100), Some(4096));
        assert_eq!(index.position_of(108), Some(4096));
        assert_eq!(index.position_of(129), Some(4096 + (16 << 10)));
        assert_eq!(index.position_at_time(0), Some(4096));
        assert_eq!(index.position_at_time(31), Some(4096 + (16 << 10)));
        let places = |partition, offset| index.places_of(partition, offset).collect::<Vec<_>>();
        assert_eq!(places(1, 0), [(7, 4096), (12, 5000)]);
        assert_eq!(places(1, 11), [(7, 4096), (12, 5000)]);
        assert_eq!(places(1, 13), [(12, 5000)]);
        assert_eq!(places(1, 14), []);
        assert_eq!(places(9, 0), []);
        assert_eq!(places(8, 0), []);
        assert_eq!(index.partition(9).map(|row| row.next_offset), Some(77));
    }

    #[test]
    fn an_index_file_reads_back_and_any_flipped_bit_makes_it_worthless() {
        let index = index();
        let bytes = index.encode(OF);
        assert_eq!(SegmentIndex::decode(&bytes, 100, OF).as_ref(), Some(&index));
        assert_eq!(SegmentIndex::decode(&bytes, 100, IndexOf { end: 131, ..OF }), None);
        assert_eq!(SegmentIndex::decode(&bytes, 101, OF), None);
        assert_eq!(SegmentIndex::decode(&bytes, 100, IndexOf { position: 40, ..OF }), None);
        assert_eq!(IndexOf { position: u64::MAX, ..OF }.most_bytes(), u64::MAX);
        // The header's last bytes pad: they are checked, too.
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentIndex::decode(&bytes, 100, OF), None, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(SegmentIndex::decode(&bytes[..len], 100, OF), None, "cut to {len}");
        }
    }
}
