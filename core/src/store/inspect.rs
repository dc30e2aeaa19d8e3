//! The decoders on bytes in memory, for the fuzz targets: whatever the bytes are, they come to an
//! end, allocate no more than the bytes ask for, and what they accept is sound.
#![expect(clippy::missing_panics_doc, reason = "what a fuzz target finds is a panic")]

use super::index::{IndexOf, SegmentIndex};
use super::record::StoredRecord;
use super::scan;
use super::segment::{SegmentHeader, StoreId};
use super::superblock;
use crate::fs::FsFile;
use std::io::{self, IoSlice};

/// A file that is only read.
struct Bytes<'a>(&'a [u8]);

impl FsFile for Bytes<'_> {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let from = usize::try_from(at).map_or(self.0.len(), |at| at.min(self.0.len()));
        let count = buf.len().min(self.0.len() - from);
        buf[..count].copy_from_slice(&self.0[from..from + count]);
        Ok(count)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn write_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn drop_cache(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Scans `bytes` as a whole segment file; the end of the run that verifies, if they are one.
pub fn segment(bytes: &[u8]) -> Option<u64> {
    let header = SegmentHeader::decode(bytes).ok()?;
    let file = Bytes(bytes);
    let scan = scan::segment(&file, &header).ok()?;
    assert!(scan.position <= scan.file_len.max(4096), "it ends inside the file");
    let (index, _) = scan::index(&file, &header, scan.file_len).ok()?;
    for row in index.partitions() {
        assert!(row.first_offset <= row.next_offset, "offsets go forward");
    }
    Some(scan.position)
}

/// Reads `bytes` as an index file; how many partitions it has.
pub fn index(bytes: &[u8]) -> Option<usize> {
    let field = |at: usize| bytes.get(at..at + 8).map(|field| super::record::long(field, 0));
    let (base, end, position) = (field(8)?, field(16)?, field(24)?);
    let of = IndexOf { end, position, salt: field(32)? as u32 };
    let table = SegmentIndex::read_table(&Bytes(bytes), base, of).ok()?;
    let index = SegmentIndex::decode(bytes, base, of)?;
    let positions = index.partitions().flat_map(|row| index.places_of(row.partition, 0));
    assert!(positions.count() <= bytes.len(), "no more places than bytes");
    Some(table?.len())
}

/// Reads `bytes` as a slot of a superblock.
pub fn superblock(bytes: &[u8]) -> bool {
    let Some(slot) = bytes.first_chunk::<{ superblock::SLOT }>() else { return false };
    let id = u128::from_le_bytes(slot[16..32].try_into().expect("16 bytes"));
    superblock::decode(slot, StoreId(id), super::record::word(slot, 48)).is_some()
}

/// Reads `bytes` as records; how many are sound.
pub fn records(bytes: &[u8]) -> usize {
    StoredRecord::all(bytes)
        .map_while(|record| record)
        .map(|record| {
            assert!(record.payload().len() < record.bytes().len());
            assert_eq!(StoredRecord::new(record.bytes()), Some(record));
        })
        .count()
}
