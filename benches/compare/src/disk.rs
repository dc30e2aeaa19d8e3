//! What a disk can do with bare files: the floors of section E.
#![expect(unsafe_code, reason = "posix_fadvise")]

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of one read of a file that is read from its beginning to its end.
const READ: usize = 1 << 20;

/// Removes the directory with all that is in it, and makes it anew.
pub(crate) fn empty(dir: &Path) {
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(dir).expect("the directory is made");
}

/// A new file, of which `written` bytes are there already.
fn new_file(dir: &Path, written: usize) -> File {
    empty(dir);
    let options = OpenOptions::new().create_new(true).write(true).open(dir.join("bare"));
    let file = options.expect("a file is made");
    let zeros = vec![0; READ];
    for at in (0..written).step_by(READ) {
        file.write_all_at(&zeros, at as u64).expect("it is written");
    }
    file.sync_all().expect("it is synced");
    file
}

/// Appends `writes` times so many bytes, and has each on the disk before the next one; into a file
/// whose bytes are there already, or one that grows.
pub(crate) fn append_and_sync(dir: &Path, writes: u64, bytes: usize, is_there: bool) -> Duration {
    let file = new_file(dir, if is_there { writes as usize * bytes } else { 0 });
    each(&file, writes, bytes, |file| file.sync_data().expect("it is synced"))
}

/// Appends `writes` times so many bytes, and leaves them to the system.
pub(crate) fn append(dir: &Path, writes: u64, bytes: usize) -> Duration {
    each(&new_file(dir, 0), writes, bytes, |_| ())
}

fn each(file: &File, writes: u64, bytes: usize, then: impl Fn(&File)) -> Duration {
    let buffer = vec![7; bytes];
    let began = Instant::now();
    for number in 0..writes {
        file.write_all_at(&buffer, number * bytes as u64).expect("it is written");
        then(file);
    }
    began.elapsed()
}

/// Reads all `files` from beginning to end.
pub(crate) fn read(files: &[PathBuf]) -> Duration {
    let mut buffer = vec![0; READ];
    let began = Instant::now();
    for path in files {
        let file = File::open(path).expect("a file opens");
        let mut at = 0;
        loop {
            let count = file.read_at(&mut buffer, at).expect("it is read");
            if count == 0 {
                break;
            }
            black_box(&buffer);
            at += count as u64;
        }
    }
    began.elapsed()
}

/// The segments of the log in a directory of slipring's, in order.
pub(crate) fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join("shard-000")).expect("a log has a directory");
    let paths = entries.map(|entry| entry.expect("it is listed").path());
    let mut segments: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
    segments.sort();
    segments
}

/// Has the system forget what it holds of the `files` in memory.
pub(crate) fn forget(files: &[PathBuf]) {
    for path in files {
        let file = File::open(path).expect("a file opens");
        // What is not on the disk cannot be forgotten.
        file.sync_all().expect("it is synced");
        // SAFETY: advice about a file that is open.
        let refused =
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(refused, 0, "{}", io::Error::from_raw_os_error(refused));
    }
}

/// The name of the file system that the directory is on.
pub(crate) fn file_system(dir: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let dir = dir.canonicalize().unwrap_or_default();
    let of = |line: &str| {
        let (mount, kind) = line.split_once(" - ")?;
        let point = Path::new(mount.split(' ').nth(4)?);
        dir.starts_with(point).then(|| {
            (point.components().count(), kind.split(' ').next().unwrap_or_default().to_owned())
        })
    };
    // Of two at one place, the later one hides the other.
    let deepest = mounts.lines().filter_map(of).max_by_key(|(depth, _)| *depth);
    deepest.map_or_else(|| "an unknown file system".to_owned(), |(_, kind)| kind)
}
