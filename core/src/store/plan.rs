//! A group on its way to the disk: checked, and cut into batches, before anything is written.

use super::batch::{BatchHeader, Kind, MAX_BODY, checksum};
use super::error::StoreError;
use super::index::Touch;
use super::record::StoredRecord;
use super::scan;

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
    pub(crate) slices: std::ops::Range<usize>,
    /// Which of the plan's touches are its records.
    pub(crate) touches: std::ops::Range<usize>,
}

/// A group, checked and cut.
#[derive(Debug, Default)]
pub(crate) struct Plan<'a> {
    pub(crate) batches: Vec<Batch>,
    pub(crate) slices: Vec<&'a [u8]>,
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

impl<'a> Plan<'a> {
    /// Checks that the parts are records whose sequences follow each other, and cuts them.
    pub(crate) fn new(group: &Group<'a>, epoch: u32, salt: u32) -> Result<Self, StoreError> {
        let mut plan = Self::default();
        let mut sequence = group.base_sequence;
        let mut open = Open::new(sequence, &plan, salt);
        let mut touches = vec![];
        for part in group.parts {
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
                    open.take(&mut plan, &part[part.len() - rest.len() - run..][..run]);
                    plan.touches.append(&mut touches);
                    open.close(&mut plan, sequence, epoch);
                    open = Open::new(sequence, &plan, salt);
                    run = 0;
                }
                if open.body_len + run == 0 {
                    open.first_us = record.published_us();
                }
                open.last_us = open.last_us.max(record.published_us());
                Self::check_offset(&touches, record)?;
                scan::touch(&mut touches, record);
                run += len;
                sequence += 1;
                rest = behind;
            }
            open.take(&mut plan, &part[part.len() - run..]);
        }
        if plan.touches.is_empty() {
            // Nearly always: one batch.
            plan.touches = touches;
        } else {
            plan.touches.append(&mut touches);
        }
        if sequence > open.base_sequence {
            open.close(&mut plan, sequence, epoch);
        }
        plan.records = sequence - group.base_sequence;
        Ok(plan)
    }

    /// What is one touch is dense; that touches follow each other is the writer's to see.
    fn check_offset(touches: &[Touch], record: StoredRecord<'_>) -> Result<(), StoreError> {
        match touches.last() {
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
    fn new(base_sequence: u64, plan: &Plan<'_>, salt: u32) -> Self {
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

    fn take<'a>(&mut self, plan: &mut Plan<'a>, slice: &'a [u8]) {
        if !slice.is_empty() {
            self.body_len += slice.len();
            self.crc = checksum(self.crc, slice);
            plan.slices.push(slice);
        }
    }

    fn close(&self, plan: &mut Plan<'_>, end_sequence: u64, epoch: u32) {
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
