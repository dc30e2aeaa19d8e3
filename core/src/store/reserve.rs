//! Room on the disk that is kept free for when it is full.
//!
//! When something finds no room, the reserve is given back, so that opening, retention, seals, cursors
//! and metadata can go on; and nothing is appended until the reserve could be taken again.

use super::error::is_full;
use super::sabotage::sabotaged;
use crate::fs::{Fs, FsEntry, FsFile, FsLock, OpenHow};
use crate::sync::{AtomicBool, Mutex, Ordering};
use std::fmt;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

pub(crate) struct Reserve {
    file: Mutex<Option<Box<dyn FsFile>>>,
    bytes: u64,
    is_held: AtomicBool,
}

impl Reserve {
    pub(crate) fn open(fs: &dyn Fs, bytes: u64) -> io::Result<Self> {
        let path = Path::new("reserve");
        let file = match fs.open(path, OpenHow::ReadWrite) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && bytes > 0 => {
                Some(fs.open(path, OpenHow::CreateNew)?)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            outcome => Some(outcome?),
        };
        if let Some(file) = &file
            && file.len()? > bytes
        {
            // It was opened with more before.
            file.set_len(bytes)?;
        }
        let file = file.filter(|_| bytes > 0);
        let is_held = AtomicBool::new(file.is_none());
        Ok(Self { file: Mutex::new(file), bytes, is_held })
    }

    /// Takes the room if it is not held; false if there is not so much.
    #[inline]
    pub(crate) fn hold(&self) -> io::Result<bool> {
        // Relaxed: a hint, which orders nothing.
        Ok(self.is_held.load(Ordering::Relaxed) || self.take()?)
    }

    /// Whether it is held, as far as this thread knows.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    #[cold]
    fn take(&self) -> io::Result<bool> {
        let file = self.lock();
        let Some(file) = file.as_ref() else { return Ok(true) };
        // Synced: a power cut must not take it away.
        let sync = || if sabotaged("reserve_sync") { Ok(()) } else { file.sync_data() };
        match file.allocate(0, self.bytes).and_then(|()| sync()) {
            Ok(()) => {
                self.is_held.store(true, Ordering::Relaxed);
                Ok(true)
            }
            Err(error) if is_full(&error) => {
                // What it got of it may be what others need.
                give_back(&**file)?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives the room back.
    pub(crate) fn release(&self) {
        if sabotaged("reserve_release") {
            return;
        }
        if let Some(file) = self.lock().as_ref() {
            self.is_held.store(false, Ordering::Relaxed);
            if let Err(error) = give_back(&**file) {
                tracing::warn!(target: "slipring", "the reserve could not be given back: {error}");
            }
        }
    }

    fn lock(&self) -> impl std::ops::DerefMut<Target = Option<Box<dyn FsFile>>> + use<'_> {
        self.file.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Does what finds no room once more, with the room that is kept for it.
    fn make_room<T>(&self, run: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match run() {
            Err(error) if is_full(&error) => {
                self.release();
                run()
            }
            outcome => outcome,
        }
    }
}

/// Synced, because some file systems have the room again only then.
fn give_back(file: &dyn FsFile) -> io::Result<()> {
    if file.len()? == 0 {
        return Ok(());
    }
    file.set_len(0)?;
    file.sync_data()
}

/// The directory for who may use the reserve: what finds the disk full has the reserve given back, and
/// is done again. Not for messages.
#[derive(Clone)]
pub(crate) struct RoomFs {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) reserve: Arc<Reserve>,
}

impl Fs for RoomFs {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Box<dyn FsFile>> {
        let file = self.reserve.make_room(|| self.fs.open(path, how))?;
        Ok(Box::new(RoomFile { file, reserve: Arc::clone(&self.reserve) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.reserve.make_room(|| self.fs.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.reserve.make_room(|| self.fs.remove(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FsEntry>> {
        self.fs.list(dir)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.reserve.make_room(|| self.fs.create_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.fs.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FsLock>> {
        self.reserve.make_room(|| self.fs.lock(path))
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        self.fs.disk_bytes()
    }
}

struct RoomFile {
    file: Box<dyn FsFile>,
    reserve: Arc<Reserve>,
}

impl FsFile for RoomFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buf, at)
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], at: u64) -> io::Result<usize> {
        self.reserve.make_room(|| self.file.write_at(bufs, at))
    }

    /// As it is: what a sync that failed was to write may be lost, and another would hide that.
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.reserve.make_room(|| self.file.set_len(len))
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        self.reserve.make_room(|| self.file.allocate(at, len))
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.file.drop_cache()
    }
}

impl fmt::Debug for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
