//! A disk that knows what a power cut would take: bytes since the last sync of their file, and names
//! since the last sync of their directory.

use loom::sync::atomic::{AtomicUsize, Ordering};
use slipring::internals::{Fs, FsEntry, FsFile, FsLock, OpenHow};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// Loom does not see what is in it, which orders nothing: whoever writes, reads or syncs takes a step
/// that loom sees, so that others get between the steps.
#[derive(Clone)]
pub(crate) struct Disk {
    files: Arc<Mutex<Files>>,
    step: Arc<AtomicUsize>,
}

/// Files by name, with the bytes that are durable: all that is left after a power cut.
pub(crate) type Image = BTreeMap<PathBuf, Vec<u8>>;

#[derive(Default)]
struct Files {
    names: BTreeMap<PathBuf, FileId>,
    durable_names: BTreeMap<PathBuf, FileId>,
    contents: Vec<Content>,
    /// What power cuts would have left when the name of a segment had just been taken away.
    at_removals: Vec<Image>,
}

type FileId = usize;

#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    durable: Vec<u8>,
}

struct Open {
    disk: Disk,
    file: FileId,
}

impl Disk {
    pub(crate) fn new() -> Self {
        Self { files: Arc::default(), step: Arc::new(AtomicUsize::new(0)) }
    }

    /// A disk on which an image is all there is.
    pub(crate) fn of(image: &Image) -> Self {
        let disk = Self::new();
        let mut files = disk.lock();
        for (path, bytes) in image {
            let id = files.contents.len();
            files.contents.push(Content { bytes: bytes.clone(), durable: bytes.clone() });
            files.names.insert(path.clone(), id);
        }
        files.durable_names = files.names.clone();
        drop(files);
        disk
    }

    /// What a power cut would leave now: at least those names that were synced, or also all others.
    pub(crate) fn power_cuts(&self) -> [Image; 2] {
        self.lock().power_cuts()
    }

    /// See [`Files::at_removals`].
    pub(crate) fn take_cuts_at_removals(&self) -> Vec<Image> {
        std::mem::take(&mut self.lock().at_removals)
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn step(&self) -> MutexGuard<'_, Files> {
        // Relaxed: it orders nothing.
        self.step.fetch_add(1, Ordering::Relaxed);
        self.lock()
    }
}

impl Files {
    fn power_cuts(&self) -> [Image; 2] {
        [&self.durable_names, &self.names].map(|names| {
            let durable = |id: &FileId| self.contents[*id].durable.clone();
            names.iter().map(|(path, id)| (path.clone(), durable(id))).collect()
        })
    }
}

impl Fs for Disk {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Box<dyn FsFile>> {
        let mut files = self.lock();
        let file = match (files.names.get(path), how) {
            (Some(_), OpenHow::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(&file), _) => file,
            (None, OpenHow::CreateNew) => {
                files.contents.push(Content::default());
                let file = files.contents.len() - 1;
                files.names.insert(path.to_owned(), file);
                file
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Box::new(Open { disk: self.clone(), file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.step();
        let file = files.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let is_segment = path.extension().is_some_and(|extension| extension == "log");
        let mut files = if is_segment { self.step() } else { self.lock() };
        files.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        if is_segment {
            let cuts = files.power_cuts();
            files.at_removals.extend(cuts);
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FsEntry>> {
        let files = self.lock();
        let inside = files.names.iter().filter(|(path, _)| path.parent() == Some(dir));
        let entry = |(path, id): (&PathBuf, &FileId)| FsEntry {
            name: path.file_name().expect("a name").to_owned(),
            len: files.contents[*id].bytes.len() as u64,
            is_dir: false,
        };
        Ok(inside.map(entry).collect())
    }

    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut files = self.step();
        let is_inside = |path: &PathBuf| path.parent() == Some(dir);
        files.durable_names.retain(|path, _| !is_inside(path));
        let Files { names, durable_names, .. } = &mut *files;
        let inside = names.iter().filter(|(path, _)| is_inside(path));
        durable_names.extend(inside.map(|(path, id)| (path.clone(), *id)));
        Ok(())
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn lock(&self, _: &Path) -> io::Result<Box<dyn FsLock>> {
        unreachable!("a log locks nothing")
    }
}

impl FsFile for Open {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let files = self.disk.lock();
        let bytes = &files.contents[self.file].bytes;
        let from = bytes.len().min(at as usize);
        let count = buf.len().min(bytes.len() - from);
        buf[..count].copy_from_slice(&bytes[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], at: u64) -> io::Result<usize> {
        let mut files = self.disk.step();
        let bytes = &mut files.contents[self.file].bytes;
        let new: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        let end = at as usize + new.len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[at as usize..end].copy_from_slice(&new);
        Ok(new.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut files = self.disk.step();
        let content = &mut files.contents[self.file];
        content.durable.clone_from(&content.bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.lock().contents[self.file].bytes.resize(len as usize, 0);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.lock().contents[self.file].bytes.len() as u64)
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        let bytes = &mut self.disk.lock().contents[self.file].bytes;
        bytes.resize(bytes.len().max((at + len) as usize), 0);
        Ok(())
    }

    fn drop_cache(&self) -> io::Result<()> {
        Ok(())
    }
}
