//! The file system as the durable store sees it: one trait, so that a simulated disk can stand in.
//!
//! Paths are relative to the store's directory; the empty path is that directory itself. What a
//! crash may take: bytes written since the last [`FsFile::sync_data`], and names made, moved or
//! removed since the last [`Fs::sync_dir`] of the directory they are in, in any combination.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Advice, FallocateFlags};
use rustix::io::retry_on_intr;

/// What a call may ask of a file system.
///
/// Every call blocks until the kernel has answered, and none answers `Interrupted`.
#[expect(clippy::missing_errors_doc, reason = "each gives what the operating system says")]
pub trait Fs: Send + Sync + 'static {
    /// Opens a file.
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Box<dyn FsFile>>;
    /// Gives a file another name, in one step; a file that has that name already is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Takes a file's name away. Who has it open still reads it.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// What is in a directory, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<FsEntry>>;
    /// Makes a directory in one that exists; `AlreadyExists` when the name is taken.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable, and what was removed from it gone.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the file if need be and locks it against everybody else, also in other processes;
    /// `WouldBlock` when it is locked. The lock ends when it is dropped, or with the process.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FsLock>>;
}

/// An open file. All its calls name a position: there is no cursor to share.
#[expect(clippy::missing_errors_doc, reason = "each gives what the operating system says")]
#[expect(clippy::len_without_is_empty, reason = "asks the operating system, and can fail")]
pub trait FsFile: Send + Sync {
    /// Reads what is there, up to the buffer's length; 0 only at or behind the end of the file.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes the buffers one behind the other and says how many bytes were taken; that may be
    /// less than all (see [`write_all_at`]).
    fn write_at(&self, bufs: &[IoSlice<'_>], at: u64) -> io::Result<usize>;
    /// Makes the bytes and the length durable. After a failure nothing is known of what was written
    /// since the last success, and a later success says nothing about it: the kernel may have
    /// dropped those pages and marked them clean.
    fn sync_data(&self) -> io::Result<()>;
    /// Cuts the file, or makes it longer with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Reserves room for a range, so that writing there cannot find the disk full. The file becomes
    /// at least `at + len` long, and reads as zeros where it was not written. On file systems that
    /// cannot reserve it only becomes longer.
    fn allocate(&self, at: u64, len: u64) -> io::Result<()>;
    /// Asks that later reads come from the disk, not from memory. Only synced bytes can be dropped.
    fn drop_cache(&self) -> io::Result<()>;
}

/// A held lock; dropping it lets go.
pub trait FsLock: Send + Sync {}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an implementation must know all of them")]
pub enum OpenHow {
    /// To be read; it must exist.
    Read,
    /// To be read and written; it must exist.
    ReadWrite,
    /// To be read and written; `AlreadyExists` when the name is taken.
    CreateNew,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsEntry {
    /// The last part of its path.
    pub name: OsString,
    /// Length in bytes; means nothing for a directory.
    pub len: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// Writes all buffers, in as many calls as it takes. On an error nobody knows how much was written.
///
/// # Errors
///
/// What [`FsFile::write_at`] says; `WriteZero` when it takes nothing.
pub fn write_all_at(
    file: &dyn FsFile,
    mut bufs: &mut [IoSlice<'_>],
    mut at: u64,
) -> io::Result<()> {
    IoSlice::advance_slices(&mut bufs, 0);
    while !bufs.is_empty() {
        let written = file.write_at(bufs, at)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        at += written as u64;
        IoSlice::advance_slices(&mut bufs, written);
    }
    Ok(())
}

/// Reads until the buffer is full or the file ends, and says how much that was.
///
/// # Errors
///
/// What [`FsFile::read_at`] says.
pub fn read_full_at(file: &dyn FsFile, buf: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match file.read_at(&mut buf[filled..], at + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// A directory of the operating system's file system.
#[derive(Debug, Clone)]
pub struct RealFs {
    root: PathBuf,
}

impl RealFs {
    /// The directory, made durably with all its parents if it is not there yet.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    pub fn open(root: &Path) -> io::Result<Self> {
        create_dirs(root)?;
        // Absolute, because the program may change its working directory later.
        Ok(Self { root: root.canonicalize()? })
    }

    /// The directory's absolute path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, path: &Path) -> io::Result<PathBuf> {
        if path.components().all(|part| matches!(part, Component::Normal(_))) {
            return Ok(self.root.join(path));
        }
        let why = format!("{} leads out of the store's directory", path.display());
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }
}

/// Makes the missing directories of a path, top first, each synced into its parent.
fn create_dirs(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(Path::new(""));
    create_dirs(parent)?;
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        outcome => outcome?,
    }
    File::open(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?.sync_all()
}

impl Fs for RealFs {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Box<dyn FsFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(how != OpenHow::Read).create_new(how == OpenHow::CreateNew);
        // Messages are the user's business alone.
        options.mode(0o600);
        Ok(Box::new(RealFile(options.open(self.path(path)?)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(self.path(from)?, self.path(to)?)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(self.path(path)?)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FsEntry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(self.path(dir)?)? {
            let entry = entry?;
            match entry.metadata() {
                Ok(meta) => entries.push(FsEntry {
                    name: entry.file_name(),
                    len: meta.len(),
                    is_dir: meta.is_dir(),
                }),
                // Removed since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir(self.path(path)?)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(self.path(path)?)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FsLock>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(self.path(path)?)?;
        file.try_lock()?;
        Ok(Box::new(RealLock { _file: file }))
    }
}

struct RealFile(File);

impl FsFile for RealFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::io::pread(&self.0, &mut *buf, at))?)
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], at: u64) -> io::Result<usize> {
        /// The kernel refuses more buffers in one call (UIO_MAXIOV).
        const MAX_BUFFERS: usize = 1024;
        let bufs = &bufs[..bufs.len().min(MAX_BUFFERS)];
        Ok(retry_on_intr(|| rustix::io::pwritev(&self.0, bufs, at))?)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::fdatasync(&self.0))?)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::ftruncate(&self.0, len))?)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        match retry_on_intr(|| rustix::fs::fallocate(&self.0, FallocateFlags::empty(), at, len)) {
            Err(rustix::io::Errno::OPNOTSUPP) if self.len()? < at + len => self.set_len(at + len),
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    fn drop_cache(&self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(&self.0, 0, None, Advice::DontNeed)?)
    }
}

/// Closing the file unlocks it.
struct RealLock {
    _file: File,
}

impl FsLock for RealLock {}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> (tempfile::TempDir, RealFs) {
        let dir = tempfile::tempdir().unwrap();
        let fs = RealFs::open(&dir.path().join("a/b")).unwrap();
        (dir, fs)
    }

    #[test]
    fn bytes_written_in_pieces_are_read_back() {
        let (_dir, fs) = fresh();
        let file = fs.open(Path::new("x"), OpenHow::CreateNew).unwrap();
        let pieces: Vec<Vec<u8>> = (0..3000_u32).map(|n| n.to_le_bytes().to_vec()).collect();
        let mut bufs: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        write_all_at(&*file, &mut bufs, 10).unwrap();
        file.sync_data().unwrap();
        file.drop_cache().unwrap();
        assert_eq!(file.len().unwrap(), 10 + 12000);
        let mut read = vec![1; 20000];
        assert_eq!(read_full_at(&*file, &mut read, 0).unwrap(), 12010);
        assert_eq!(read[..10], [0; 10]);
        assert_eq!(read[10..12010], pieces.concat());
    }

    #[test]
    fn reserved_room_reads_as_zeros_and_a_cut_file_is_short() {
        let (_dir, fs) = fresh();
        let file = fs.open(Path::new("x"), OpenHow::CreateNew).unwrap();
        file.allocate(100, 5000).unwrap();
        assert_eq!(file.len().unwrap(), 5100);
        file.allocate(0, 10).unwrap();
        assert_eq!(file.len().unwrap(), 5100);
        file.set_len(7).unwrap();
        let mut read = [1; 20];
        assert_eq!(read_full_at(&*file, &mut read, 0).unwrap(), 7);
        assert_eq!(read[..7], [0; 7]);
    }

    #[test]
    fn each_way_of_opening_wants_the_file_there_or_not_there() {
        let (_dir, fs) = fresh();
        let kind = |how| fs.open(Path::new("x"), how).err().map(|error| error.kind());
        assert_eq!(kind(OpenHow::Read), Some(io::ErrorKind::NotFound));
        assert_eq!(kind(OpenHow::ReadWrite), Some(io::ErrorKind::NotFound));
        assert_eq!(kind(OpenHow::CreateNew), None);
        assert_eq!(kind(OpenHow::CreateNew), Some(io::ErrorKind::AlreadyExists));
        assert_eq!(kind(OpenHow::ReadWrite), None);
        let file = fs.open(Path::new("x"), OpenHow::Read).unwrap();
        assert!(file.write_at(&[IoSlice::new(b"x")], 0).is_err());
    }

    #[test]
    fn names_are_listed_moved_and_removed() {
        let (_dir, fs) = fresh();
        fs.create_dir(Path::new("d")).unwrap();
        for name in ["d/1", "d/2"] {
            fs.open(Path::new(name), OpenHow::CreateNew).unwrap().set_len(3).unwrap();
        }
        fs.rename(Path::new("d/1"), Path::new("d/3")).unwrap();
        fs.remove(Path::new("d/2")).unwrap();
        fs.sync_dir(Path::new("d")).unwrap();
        fs.sync_dir(Path::new("")).unwrap();
        let three = FsEntry { name: "3".into(), len: 3, is_dir: false };
        assert_eq!(fs.list(Path::new("d")).unwrap(), [three]);
        let root = fs.list(Path::new("")).unwrap();
        assert_eq!((root.len(), root[0].is_dir), (1, true));
    }

    #[test]
    fn a_lock_excludes_until_it_is_dropped() {
        let (_dir, fs) = fresh();
        let lock = fs.lock(Path::new("LOCK")).unwrap();
        let error = fs.lock(Path::new("LOCK")).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        fs.lock(Path::new("LOCK")).unwrap();
    }

    #[test]
    fn a_path_cannot_leave_the_directory() {
        let (_dir, fs) = fresh();
        for path in ["/etc/passwd", "../x", "d/../../x"] {
            let error = fs.open(Path::new(path), OpenHow::Read).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
