//! Files in memory, to be changed at will, that count what is asked of them.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]
#![allow(dead_code, reason = "each test uses some of it")]
#![expect(clippy::disallowed_types, reason = "tests use the standard library's atomics")]

use slipring::internals::{Fs, FsEntry, FsFile, FsLock, OpenHow};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A file system: tens of thousands of stores are opened on copies of one.
#[derive(Clone, Default)]
pub(crate) struct MemoryFs {
    files: Arc<Mutex<BTreeMap<PathBuf, File>>>,
    used: Arc<Mutex<Used>>,
    gate: Arc<Gate>,
}

type File = Arc<Mutex<Vec<u8>>>;

/// What has been asked of a file system.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    pub(crate) opens: usize,
    /// Files that are open.
    pub(crate) open: usize,
    pub(crate) bytes_read: usize,
    /// The most that was asked for at once.
    pub(crate) largest_read: usize,
}

/// Where syncs wait, while it is closed.
#[derive(Default)]
struct Gate {
    /// Whether it is closed, and how many wait.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
    /// Whether the next one panics.
    panics: AtomicBool,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        while state.0 {
            state = self.changed.wait(state).unwrap();
        }
        state.1 -= 1;
    }
}

/// A file that is open.
struct Open {
    file: File,
    fs: MemoryFs,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.fs.used.lock().unwrap().open -= 1;
    }
}

struct NoLock;
impl FsLock for NoLock {}

impl MemoryFs {
    /// What is in a file.
    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        self.files.lock().unwrap()[Path::new(path)].lock().unwrap().clone()
    }

    /// The paths of all files.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.files.lock().unwrap().keys().cloned().collect()
    }

    /// What has been asked of it so far.
    pub(crate) fn used(&self) -> Used {
        *self.used.lock().unwrap()
    }

    /// Lets every sync wait until [`release_syncs`](Self::release_syncs).
    pub(crate) fn hold_syncs(&self) {
        self.gate.state.lock().unwrap().0 = true;
    }

    pub(crate) fn release_syncs(&self) {
        self.gate.state.lock().unwrap().0 = false;
        self.gate.changed.notify_all();
    }

    /// Lets the next sync panic.
    pub(crate) fn panic_at_sync(&self) {
        self.gate.panics.store(true, Ordering::Relaxed);
    }

    /// Blocks until a sync waits.
    pub(crate) fn wait_for_a_sync(&self) {
        let state = self.gate.state.lock().unwrap();
        let limit = Duration::from_secs(60);
        let waited = self.gate.changed.wait_timeout_while(state, limit, |state| state.1 == 0);
        assert!(!waited.unwrap().1.timed_out(), "nothing is synced");
    }

    /// Another file system with the same files, one of them changed.
    pub(crate) fn with(&self, path: &str, bytes: Vec<u8>) -> Self {
        let files = self.files.lock().unwrap();
        let copy = |file: &File| Arc::new(Mutex::new(file.lock().unwrap().clone()));
        let mut files: BTreeMap<_, _> =
            files.iter().map(|(path, file)| (path.clone(), copy(file))).collect();
        files.insert(path.into(), Arc::new(Mutex::new(bytes)));
        Self { files: Arc::new(Mutex::new(files)), ..Self::default() }
    }
}

impl Fs for MemoryFs {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Box<dyn FsFile>> {
        let mut files = self.files.lock().unwrap();
        if how == OpenHow::CreateNew {
            files.insert(path.to_owned(), File::default());
        }
        let file = files.get(path).cloned().ok_or(io::ErrorKind::NotFound)?;
        let mut used = self.used.lock().unwrap();
        used.opens += 1;
        used.open += 1;
        Ok(Box::new(Open { file, fs: self.clone() }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.files.lock().unwrap();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.lock().unwrap().remove(path).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<FsEntry>> {
        let files = self.files.lock().unwrap();
        let inside = files.keys().filter_map(|path| path.strip_prefix(dir).ok());
        let mut entries: Vec<FsEntry> = inside
            .filter_map(|path| {
                let mut parts = path.iter();
                let name = parts.next()?.to_owned();
                Some(FsEntry { name, len: 0, is_dir: parts.next().is_some() })
            })
            .collect();
        entries.dedup();
        Ok(entries)
    }
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn lock(&self, _: &Path) -> io::Result<Box<dyn FsLock>> {
        Ok(Box::new(NoLock))
    }
    fn disk_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

impl FsFile for Open {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let bytes = self.file.lock().unwrap();
        let from = bytes.len().min(at as usize);
        let count = buf.len().min(bytes.len() - from);
        buf[..count].copy_from_slice(&bytes[from..from + count]);
        let mut used = self.fs.used.lock().unwrap();
        used.bytes_read += count;
        used.largest_read = used.largest_read.max(buf.len());
        Ok(count)
    }
    fn write_at(&self, bufs: &[IoSlice<'_>], at: u64) -> io::Result<usize> {
        let mut bytes = self.file.lock().unwrap();
        let new = bufs.iter().flat_map(|buf| buf.iter().copied()).collect::<Vec<u8>>();
        let end = at as usize + new.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[at as usize..end].copy_from_slice(&new);
        Ok(new.len())
    }
    fn sync_data(&self) -> io::Result<()> {
        // Relaxed: a flag that one thread sets for itself.
        assert!(!self.fs.gate.panics.swap(false, Ordering::Relaxed), "the disk's driver");
        self.fs.gate.pass();
        Ok(())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.lock().unwrap().len() as u64)
    }
    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        let end = (at + len) as usize;
        let mut bytes = self.file.lock().unwrap();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        Ok(())
    }
    fn drop_cache(&self) -> io::Result<()> {
        Ok(())
    }
}
