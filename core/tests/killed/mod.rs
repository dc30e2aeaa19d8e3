//! What a killed process leaves of its directory: the operating system has all that was written.

use std::path::Path;
use tempfile::TempDir;

/// The directory as it is now, elsewhere.
pub(crate) fn what_a_kill_leaves(dir: &Path) -> TempDir {
    let left = tempfile::tempdir().expect("a directory");
    copy(dir, left.path());
    left
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir(&to).expect("is made");
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("is copied");
        }
    }
}
