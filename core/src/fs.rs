//! The file system as the durable store sees it: one trait, so that a simulated disk can stand in.
//!
//! Paths are relative to the store's directory; the empty path is that directory itself. What a
//! crash may take: bytes written since the last [`FsFile::sync_data`], and names made, moved or
//! removed since the last [`Fs::sync_dir`] of the directory they are in, in any combination.

use std::ffi::OsString;
use std::fmt;
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
    /// How many bytes the disk has that the directory is on, free or not; the most there are if that
    /// is not known.
    fn disk_bytes(&self) -> io::Result<u64>;
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

/// What the operating system said, and of which file.
#[derive(Debug)]
struct FileError {
    path: PathBuf,
    source: io::Error,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.source)
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Has errors tell the file; their kind stays.
fn of<T>(path: &Path, outcome: Result<T, impl Into<io::Error>>) -> io::Result<T> {
    outcome.map_err(|error| {
        let source = error.into();
        io::Error::new(source.kind(), FileError { path: path.to_owned(), source })
    })
}

/// The operating system's number of an error, also of one that tells its file.
pub(crate) fn os_number(error: &io::Error) -> Option<i32> {
    let of_file = || error.get_ref()?.downcast_ref::<FileError>()?.source.raw_os_error();
    error.raw_os_error().or_else(of_file)
}

/// A directory of the operating system's file system. Errors tell the file they are of.
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
        of(root, create_dirs(root))?;
        // Absolute, because the program may change its working directory later.
        Ok(Self { root: of(root, root.canonicalize())? })
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
        let path = self.path(path)?;
        let file = of(&path, options.open(&path))?;
        Ok(Box::new(RealFile { file, path }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let to = self.path(to)?;
        of(&to, std::fs::rename(self.path(from)?, &to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let path = self.path(path)?;
        of(&path, std::fs::remove_file(&path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FsEntry>> {
        let dir = self.path(dir)?;
        let mut entries = Vec::new();
        for entry in of(&dir, std::fs::read_dir(&dir))? {
            let entry = of(&dir, entry)?;
            match entry.metadata() {
                Ok(meta) => entries.push(FsEntry {
                    name: entry.file_name(),
                    len: meta.len(),
                    is_dir: meta.is_dir(),
                }),
                // Removed since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return of(&entry.path(), Err(error)),
            }
        }
        Ok(entries)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let path = self.path(path)?;
        of(&path, std::fs::create_dir(&path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let path = self.path(path)?;
        of(&path, File::open(&path).and_then(|dir| dir.sync_all()))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FsLock>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let path = self.path(path)?;
        let file = of(&path, options.open(&path))?;
        of(&path, file.try_lock())?;
        Ok(Box::new(RealLock { _file: file }))
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        let disk = of(&self.root, rustix::fs::statvfs(&self.root))?;
        let bytes = disk.f_blocks.saturating_mul(disk.f_frsize);
        Ok(if bytes == 0 { u64::MAX } else { bytes })
    }
}

struct RealFile {
    file: File,
    path: PathBuf,
}

impl RealFile {
    fn call<T>(&self, call: impl Fn(&File) -> rustix::io::Result<T>) -> io::Result<T> {
        of(&self.path, retry_on_intr(|| call(&self.file)))
    }
}

impl FsFile for RealFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        of(&self.path, retry_on_intr(|| rustix::io::pread(&self.file, &mut *buf, at)))
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], at: u64) -> io::Result<usize> {
        /// The kernel refuses more buffers in one call (UIO_MAXIOV).
        const MAX_BUFFERS: usize = 1024;
        if let [buf] = bufs {
            // Without a list, which the kernel would have to copy.
            return self.call(|file| rustix::io::pwrite(file, buf, at));
        }
        let bufs = &bufs[..bufs.len().min(MAX_BUFFERS)];
        self.call(|file| rustix::io::pwritev(file, bufs, at))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.call(|file| rustix::fs::fdatasync(file))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.call(|file| rustix::fs::ftruncate(file, len))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(of(&self.path, self.file.metadata())?.len())
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        let none = FallocateFlags::empty();
        match retry_on_intr(|| rustix::fs::fallocate(&self.file, none, at, len)) {
            Err(rustix::io::Errno::OPNOTSUPP) if self.len()? < at + len => self.set_len(at + len),
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            outcome => of(&self.path, outcome),
        }
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.call(|file| rustix::fs::fadvise(file, 0, None, Advice::DontNeed))
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
    fn an_error_tells_its_file_its_kind_and_its_number() {
        let (dir, fs) = fresh();
        let errors = [
            fs.open(Path::new("x/y"), OpenHow::Read).err(),
            fs.remove(Path::new("x/y")).err(),
            fs.list(Path::new("x/y")).err(),
            fs.create_dir(Path::new("x/y")).err(),
            fs.sync_dir(Path::new("x/y")).err(),
            fs.lock(Path::new("x/y")).err(),
            fs.rename(Path::new("x"), Path::new("x/y")).err(),
        ];
        let path = dir.path().canonicalize().unwrap().join("a/b/x/y");
        for error in errors.map(Option::unwrap) {
            assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
            assert_eq!((error.kind(), os_number(&error)), (io::ErrorKind::NotFound, Some(2)));
        }
        fs.open(Path::new("z"), OpenHow::CreateNew).unwrap();
        let file = fs.open(Path::new("z"), OpenHow::Read).unwrap();
        let error = file.write_at(&[IoSlice::new(b"x")], 0).unwrap_err();
        assert!(error.to_string().contains("a/b/z: "), "{error}");
        assert!(os_number(&error).is_some());
        let error = RealFs::open(&dir.path().join("a/b/z")).unwrap_err();
        assert!(error.to_string().contains("a/b/z: "), "{error}");
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
