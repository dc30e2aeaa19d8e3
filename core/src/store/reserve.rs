//! Room on the disk that is kept free for when it is full.
//!
//! When an append finds no room, the reserve is given back, so that retention, seals and whoever
//! else writes to the directory can go on; and nothing is appended until the reserve could be
//! taken again.

use super::error::is_full;
use crate::fs::{Fs, FsFile, OpenHow};
use crate::sync::{AtomicBool, Mutex, Ordering};
use std::fmt;
use std::io;
use std::path::Path;

pub(crate) struct Reserve {
    file: Mutex<Option<Box<dyn FsFile>>>,
    bytes: u64,
    is_held: AtomicBool,
}

impl Reserve {
    pub(crate) fn open(fs: &dyn Fs, bytes: u64) -> io::Result<Self> {
        let path = Path::new("reserve");
        let file = if bytes == 0 {
            None
        } else {
            Some(match fs.open(path, OpenHow::ReadWrite) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fs.open(path, OpenHow::CreateNew)?
                }
                outcome => outcome?,
            })
        };
        let is_held = AtomicBool::new(file.is_none());
        Ok(Self { file: Mutex::new(file), bytes, is_held })
    }

    /// Takes the room if it is not held; false if there is not so much.
    #[inline]
    pub(crate) fn hold(&self) -> io::Result<bool> {
        // Relaxed: a hint, which orders nothing.
        Ok(self.is_held.load(Ordering::Relaxed) || self.take()?)
    }

    #[cold]
    fn take(&self) -> io::Result<bool> {
        let file = self.lock();
        let Some(file) = file.as_ref() else { return Ok(true) };
        match file.allocate(0, self.bytes) {
            Ok(()) => {
                self.is_held.store(true, Ordering::Relaxed);
                Ok(true)
            }
            Err(error) if is_full(&error) => {
                // What it got of it may be what others need.
                file.set_len(0)?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives the room back.
    pub(crate) fn release(&self) {
        if let Some(file) = self.lock().as_ref() {
            self.is_held.store(false, Ordering::Relaxed);
            if let Err(error) = file.set_len(0) {
                tracing::warn!(target: "slipring", "the reserve could not be given back: {error}");
            }
        }
    }

    fn lock(&self) -> impl std::ops::DerefMut<Target = Option<Box<dyn FsFile>>> + use<'_> {
        self.file.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl fmt::Debug for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
