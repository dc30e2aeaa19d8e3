//! Writing so that of a sector no two halves of a batch exist that came with different calls.
//!
//! What tells a torn write from damage are words that are zero still (see `scan`).
//! That holds as long as the bytes of a batch come into a sector with one call. If a call takes only
//! a part, and another the rest, the disk may tear the sector between what it was after the first
//! call and after the second: then zeros are left in the midst of it, or only some bytes of a word
//! are missing, and both look like damage.

use super::sabotage::sabotaged;
use crate::fs::{FsFile, write_all_at};
use std::io::{self, IoSlice};

/// What a disk writes at once. It may tear one, at a multiple of 8 bytes.
pub(crate) const SECTOR: u64 = 512;
/// How often a write is begun again.
const ATTEMPTS: u32 = 32;
/// As many the kernel takes in one call.
const MAX_BUFFERS: usize = 1024;

/// Why not all was written.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// A write failed. Nobody knows how much of it was done.
    Write(io::Error),
    /// A sync failed: nobody knows what of the file is durable.
    Sync(io::Error),
}

/// Writes all buffers at `at`, where only zeros are: each sector with one call. Where a call stops
/// inside a sector, all is cut off again, durably, and written anew; so nothing of a batch that is
/// given up stays either. That costs a sync; it happens on a full disk, and hardly anywhere else. What
/// never takes all at once gets it in pieces at last: a torn write may then be told as damage.
pub(crate) fn write_sectors_at(
    file: &dyn FsFile,
    bufs: &[IoSlice<'_>],
    at: u64,
) -> Result<(), WriteError> {
    if bufs.len() > MAX_BUFFERS {
        let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        return write_sectors_at(file, &[IoSlice::new(&bytes)], at);
    }
    let bytes: usize = bufs.iter().map(|buf| buf.len()).sum();
    let attempts = if sabotaged("whole_sectors") { 0 } else { ATTEMPTS };
    for _ in 0..attempts {
        let written = write_to_boundary(file, bufs, at, bytes).map_err(WriteError::Write)?;
        if written == bytes {
            return Ok(());
        }
        // Cut off and not overwritten: that could be torn as well.
        file.set_len(at).map_err(WriteError::Write)?;
        file.sync_data().map_err(WriteError::Sync)?;
    }
    write_all_at(file, &mut bufs.to_vec(), at).map_err(WriteError::Write)
}

/// Writes until a call stops elsewhere than between two sectors, and says how many bytes that were.
pub(super) fn write_to_boundary(
    file: &dyn FsFile,
    bufs: &[IoSlice<'_>],
    at: u64,
    bytes: usize,
) -> io::Result<usize> {
    let mut done = file.write_at(bufs, at)?;
    while done < bytes && done > 0 && (at + done as u64).is_multiple_of(SECTOR) {
        let mut rest = bufs.to_vec();
        let mut rest = &mut rest[..];
        IoSlice::advance_slices(&mut rest, done);
        match file.write_at(rest, at + done as u64)? {
            0 => break,
            more => done += more,
        }
    }
    Ok(done)
}
