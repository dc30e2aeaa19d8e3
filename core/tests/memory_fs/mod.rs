//! Files in memory, to be changed at will.
#![expect(clippy::unwrap_used, reason = "a failed helper fails its test")]

use slipring::internals::{Fs, FsEntry, FsFile, FsLock, OpenHow};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A file system: tens of thousands of stores are opened on copies of one.
#[derive(Clone, Default)]
pub(crate) struct MemoryFs(Arc<Mutex<BTreeMap<PathBuf, File>>>);

#[derive(Clone, Default)]
struct File(Arc<Mutex<Vec<u8>>>);

struct NoLock;
impl FsLock for NoLock {}

impl MemoryFs {
    /// What is in a file.
    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        self.0.lock().unwrap()[Path::new(path)].0.lock().unwrap().clone()
    }

    /// Another file system with the same files, one of them changed.
    pub(crate) fn with(&self, path: &str, bytes: Vec<u8>) -> Self {
        let files = self.0.lock().unwrap();
        let copy = |file: &File| File(Arc::new(Mutex::new(file.0.lock().unwrap().clone())));
        let mut files: BTreeMap<_, _> =
            files.iter().map(|(path, file)| (path.clone(), copy(file))).collect();
        files.insert(path.into(), File(Arc::new(Mutex::new(bytes))));
        Self(Arc::new(Mutex::new(files)))
    }
}

impl Fs for MemoryFs {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Box<dyn FsFile>> {
        let mut files = self.0.lock().unwrap();
        if how == OpenHow::CreateNew {
            files.insert(path.to_owned(), File::default());
        }
        let file = files.get(path).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(file))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.0.lock().unwrap();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.lock().unwrap().remove(path).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<FsEntry>> {
        let files = self.0.lock().unwrap();
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
}

impl FsFile for File {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let bytes = self.0.lock().unwrap();
        let from = bytes.len().min(at as usize);
        let count = buf.len().min(bytes.len() - from);
        buf[..count].copy_from_slice(&bytes[from..from + count]);
        Ok(count)
    }
    fn write_at(&self, bufs: &[IoSlice<'_>], at: u64) -> io::Result<usize> {
        let mut bytes = self.0.lock().unwrap();
        let new = bufs.iter().flat_map(|buf| buf.iter().copied()).collect::<Vec<u8>>();
        let end = at as usize + new.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[at as usize..end].copy_from_slice(&new);
        Ok(new.len())
    }
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().len() as u64)
    }
    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        let end = (at + len) as usize;
        let mut bytes = self.0.lock().unwrap();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        Ok(())
    }
    fn drop_cache(&self) -> io::Result<()> {
        Ok(())
    }
}
