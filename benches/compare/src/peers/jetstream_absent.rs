//! Stands in for `jetstream.rs` where its client is not built in.

use std::path::Path;
use std::time::Duration;

use crate::side::Synced;

/// Never.
pub(crate) fn found(_dir: &Path, _sync: Synced) -> Result<String, String> {
    Err("built without the client of JetStream".to_owned())
}

/// Is not called.
pub(crate) fn publish(_dir: &Path, _sync: Synced, _window: usize, _messages: u64) -> Duration {
    unreachable!("it was not found")
}
