//! Starting threads of the broker's own.

use std::io;
use std::thread::{Builder, JoinHandle};
use tracing::dispatcher;
use tracing::subscriber::NoSubscriber;

/// Starts a thread that tells its events to whom the caller's are told: a subscriber that is set
/// for the opening thread alone gets those of the whole broker.
pub(crate) fn spawn(
    name: String,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let events = dispatcher::get_default(Clone::clone);
    Builder::new().name(name).spawn(move || {
        // One that is set for the whole process later is not to be hidden.
        if events.is::<NoSubscriber>() {
            work();
        } else {
            dispatcher::with_default(&events, work);
        }
    })
}
