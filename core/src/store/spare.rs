//! The file of the segment to come, written with zeros before it is needed.
//!
//! Where every append waits for a sync, room that was reserved and never written makes each of them
//! wait for two: of the bytes, and of the note that they were written. A file that is full of zeros
//! already has nothing to note. But writing it takes the disk as long as the records will, so the
//! store's thread does it when little is appended; whoever comes too early makes a plain file.

use super::error::is_full;
use crate::fs::{Fs, FsFile, OpenHow, write_all_at};
use crate::sync::Mutex;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

/// Zeros that are written at once, and the most that go ahead of records in a file that is not full
/// of them.
pub(super) const MOST_ZEROS: usize = 1 << 20;
pub(super) static ZEROS: [u8; MOST_ZEROS] = [0; MOST_ZEROS];

/// See the module's head. Of the name that it has, opening a store leaves nothing.
#[derive(Default)]
pub(crate) struct Spare(Mutex<Option<Box<dyn FsFile>>>);

impl Spare {
    /// The file, until it gets another name.
    pub(crate) fn path(dir: &Path) -> PathBuf {
        dir.join("spare.log.tmp")
    }

    /// Makes one of `bytes`, if there is the room. Only one thread at a time does.
    pub(crate) fn make(&self, fs: &dyn Fs, dir: &Path, bytes: u64) -> io::Result<()> {
        if self.lock().is_some() {
            return Ok(());
        }
        match made(fs, &Self::path(dir), bytes) {
            Ok(file) => *self.lock() = Some(file),
            Err(error) => {
                let _ = fs.remove(&Self::path(dir));
                // It is for others then.
                return if is_full(&error) { Ok(()) } else { Err(error) };
            }
        }
        Ok(())
    }

    /// The file, if there is one.
    pub(crate) fn take(&self) -> Option<Box<dyn FsFile>> {
        self.lock().take()
    }

    /// Gives its room back; whether there was one.
    pub(crate) fn give_up(&self, fs: &dyn Fs, dir: &Path) -> bool {
        let had_one = self.take().is_some();
        if had_one {
            // What stays is removed when the store is opened.
            let _ = fs.remove(&Self::path(dir));
        }
        had_one
    }

    fn lock(&self) -> impl std::ops::DerefMut<Target = Option<Box<dyn FsFile>>> + use<'_> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn made(fs: &dyn Fs, path: &Path, bytes: u64) -> io::Result<Box<dyn FsFile>> {
    // Of an attempt that failed.
    let _ = fs.remove(path);
    let file = fs.open(path, OpenHow::CreateNew)?;
    file.allocate(0, bytes)?;
    for at in (0..bytes).step_by(MOST_ZEROS) {
        let zeros = &ZEROS[..(bytes - at).min(MOST_ZEROS as u64) as usize];
        write_all_at(&*file, &mut [IoSlice::new(zeros)], at)?;
    }
    // So that the sync which makes it a segment has little to do.
    file.sync_data()?;
    Ok(file)
}
