//! The file of the segment to come, written with zeros before it is needed.
//!
//! Where every append waits for a sync, room that was reserved and never written makes each of them
//! wait for two: of the bytes, and of the note that they were written. A file that is full of zeros
//! already has nothing to note. But writing it takes the disk as long as the records will, so the
//! store's thread does it when little is appended; whoever comes too early makes a plain file.
//!
//! Each has a name of its own, which only who has the file removes or gives away: one may be made
//! while another becomes a segment. Opening a store removes what is left of them.

use super::error::is_full;
use crate::fs::{Fs, FsFile, OpenHow, write_all_at};
use crate::sync::Mutex;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

/// Zeros that are written at once, and the most that go ahead of records in a file that is not full
/// of them.
pub(super) const MOST_ZEROS: usize = 1 << 20;
pub(super) static ZEROS: [u8; MOST_ZEROS] = [0; MOST_ZEROS];

/// Such a file.
pub(crate) struct SpareFile {
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn FsFile>,
}

impl SpareFile {
    /// Makes one of `bytes` in `dir`, unless there is not the room, or `goes_on` says no. No other file
    /// ever had the name that the random `number` gives.
    pub(super) fn make(
        fs: &dyn Fs,
        dir: &Path,
        number: u64,
        bytes: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> io::Result<Option<Self>> {
        let path = dir.join(format!("spare-{number:016x}.log.tmp"));
        let file = fs.open(&path, OpenHow::CreateNew)?;
        let spare = Self { path, file };
        match spare.fill(bytes, goes_on) {
            Ok(true) => Ok(Some(spare)),
            // The room is for others then.
            Err(error) if !is_full(&error) => {
                spare.remove(fs);
                Err(error)
            }
            _ => {
                spare.remove(fs);
                Ok(None)
            }
        }
    }

    fn fill(&self, bytes: u64, goes_on: &dyn Fn() -> bool) -> io::Result<bool> {
        self.file.allocate(0, bytes)?;
        for at in (0..bytes).step_by(MOST_ZEROS) {
            if !goes_on() {
                return Ok(false);
            }
            let zeros = &ZEROS[..(bytes - at).min(MOST_ZEROS as u64) as usize];
            write_all_at(&*self.file, &mut [IoSlice::new(zeros)], at)?;
        }
        // So that the sync which makes it a segment has little to do.
        self.file.sync_data()?;
        Ok(true)
    }

    pub(super) fn remove(self, fs: &dyn Fs) {
        // What stays is removed when the store is opened.
        let _ = fs.remove(&self.path);
    }
}

/// The place for one.
#[derive(Default)]
pub(crate) struct Spare(Mutex<Option<SpareFile>>);

impl Spare {
    pub(super) fn is_there(&self) -> bool {
        self.lock().is_some()
    }

    /// Keeps `made`, unless there is one.
    pub(super) fn put(&self, fs: &dyn Fs, made: SpareFile) {
        let mut place = self.lock();
        match &*place {
            Some(_) => made.remove(fs),
            None => *place = Some(made),
        }
    }

    /// The file, if there is one.
    pub(super) fn take(&self) -> Option<SpareFile> {
        self.lock().take()
    }

    /// Gives its room back; whether there was one.
    pub(super) fn give_up(&self, fs: &dyn Fs) -> bool {
        match self.take() {
            Some(spare) => {
                spare.remove(fs);
                true
            }
            None => false,
        }
    }

    fn lock(&self) -> impl std::ops::DerefMut<Target = Option<SpareFile>> + use<'_> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
