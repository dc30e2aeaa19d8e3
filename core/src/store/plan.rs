//! A group on its way to the disk: checked, and cut into batches, before anything is written.

use super::batch::{BatchHeader, Kind, MAX_BODY, checksum};
use super::error::StoreError;
use super::index::Touch;
use super::record::StoredRecord;
use super::scan;
use std::ops::Range;

/// Bytes of records after which the next record begins a new batch: what a read of one record has
/// to read and verify.
const BATCH_BYTES: usize = 256 << 10;

/// Records that are stored together, all or none (a crash may still take the last ones of them).
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_structs, reason = "made by whoever appends")]
pub struct Group<'a> {
    /// Sequence of the first record; the others follow without a gap.
    pub base_sequence: u64,
    /// Where the records lie: in each part one or more, one behind the other.
    pub parts: &'a [&'a [u8]],
}

/// A batch to be written.
#[derive(Debug)]
pub(crate) struct Batch {
    /// All but `durable_pos`, which is known last.
    pub(crate) header: BatchHeader,
    /// Which of the plan's slices are its body.
    pub(crate) slices: Range<usize>,
    /// Which of the plan's touches are its records.
    pub(crate) touches: Range<usize>,
}

/// Records of a group that lie in one part, one behind the other.
#[derive(Debug)]
pub(crate) struct Slice {
    part: usize,
    bytes: Range<usize>,
}

impl Slice {
    /// Its bytes in the group it is of.
    pub(crate) fn of<'a>(&self, group: &Group<'a>) -> &'a [u8] {
        &group.parts[self.part][self.bytes.clone()]
    }
}

/// A group, checked and cut. It borrows nothing, and is made again of the next group without taking
/// memory anew.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) batches: Vec<Batch>,
    pub(crate) slices: Vec<Slice>,
    pub(crate) touches: Vec<Touch>,
    pub(crate) records: u64,
    /// Bytes in the file, headers included.
    pub(crate) bytes: u64,
}

/// The batch that is being gathered.
struct Open {
    base_sequence: u64,
    first_slice: usize,
    first_touch: usize,
    body_len: usize,
    crc: u32,
    first_us: u64,
    last_us: u64,
}

impl Plan {
    /// Checks that the parts are records whose sequences follow each other, and cuts them.
    pub(crate) fn make(
        &mut self,
        group: &Group<'_>,
        epoch: u32,
        salt: u32,
    ) -> Result<(), StoreError> {
        self.forget(usize::MAX);
        let mut sequence = group.base_sequence;
        let mut open = Open::new(sequence, self, salt);
        for (number, part) in group.parts.iter().enumerate() {
            let mut rest = *part;
            let mut run = 0;
            while !rest.is_empty() {
                let Some((record, behind)) = StoredRecord::split_first(rest) else {
                    return Err(StoreError::InvalidGroup("a part is not made of whole records"));
                };
                let len = record.bytes().len();
                if record.sequence_low() != sequence as u32 {
                    return Err(StoreError::InvalidGroup("a record is of another sequence"));
                }
                if len > MAX_BODY {
                    return Err(StoreError::InvalidGroup("a record is too large"));
                }
                if open.body_len + run > 0 && open.body_len + run + len > BATCH_BYTES {
                    let end = part.len() - rest.len();
                    open.take(self, group, Slice { part: number, bytes: end - run..end });
                    open.close(self, sequence, epoch);
                    open = Open::new(sequence, self, salt);
                    run = 0;
                }
                if open.body_len + run == 0 {
                    open.first_us = record.published_us();
                }
                open.last_us = open.last_us.max(record.published_us());
                self.check_offset(open.first_touch, record)?;
                scan::touch(&mut self.touches, open.first_touch, record);
                run += len;
                sequence += 1;
                rest = behind;
            }
            open.take(self, group, Slice { part: number, bytes: part.len() - run..part.len() });
        }
        if sequence > open.base_sequence {
            open.close(self, sequence, epoch);
        }
        self.records = sequence - group.base_sequence;
        Ok(())
    }

    /// Is empty again, and keeps the memory for `most` of each.
    pub(crate) fn forget(&mut self, most: usize) {
        self.batches.clear();
        self.slices.clear();
        self.touches.clear();
        self.batches.shrink_to(most);
        self.slices.shrink_to(most);
        self.touches.shrink_to(most);
        self.bytes = 0;
    }

    /// What is one touch is dense; that touches follow each other is the writer's to see.
    fn check_offset(&self, first: usize, record: StoredRecord<'_>) -> Result<(), StoreError> {
        match self.touches[first..].last() {
            Some(last)
                if last.partition == record.partition()
                    && last.first_offset + u64::from(last.count) != record.offset() =>
            {
                Err(StoreError::InvalidGroup("a record is of another offset"))
            }
            _ => Ok(()),
        }
    }
}

impl Open {
    fn new(base_sequence: u64, plan: &Plan, salt: u32) -> Self {
        Self {
            base_sequence,
            first_slice: plan.slices.len(),
            first_touch: plan.touches.len(),
            body_len: 0,
            crc: salt,
            first_us: 0,
            last_us: 0,
        }
    }

    fn take(&mut self, plan: &mut Plan, group: &Group<'_>, slice: Slice) {
        let bytes = slice.of(group);
        if !bytes.is_empty() {
            self.body_len += bytes.len();
            self.crc = checksum(self.crc, bytes);
            plan.slices.push(slice);
        }
    }

    fn close(&self, plan: &mut Plan, end_sequence: u64, epoch: u32) {
        let delta_us = self.last_us - self.first_us.min(self.last_us);
        let header = BatchHeader {
            kind: Kind::Records,
            base_sequence: self.base_sequence,
            body_len: self.body_len as u32,
            record_count: (end_sequence - self.base_sequence) as u32,
            first_us: self.first_us,
            max_delta_ms: u32::try_from(delta_us.div_ceil(1000)).unwrap_or(u32::MAX),
            epoch,
            durable_pos: 0,
            body_crc: self.crc,
        };
        plan.bytes += header.bytes();
        plan.batches.push(Batch {
            header,
            slices: self.first_slice..plan.slices.len(),
            touches: self.first_touch..plan.touches.len(),
        });
    }
}
