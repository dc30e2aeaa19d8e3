//! One writer publishes an immutable value to many readers, who look whether it has moved with a
//! single load.
//!
//! A reader keeps an `Arc` of the value beside the version it read *before* loading it:
//!
//! ```text
//! if snapshot.version() != seen { seen = snapshot.version(); value = snapshot.load(); }
//! ```
//!
//! A value loaded after its version is at least as new as that version; the other order could
//! keep an old value under a new version for ever.
//!
//! SYNC pairs:
//! - `snapshot-version`: [`Snapshot::store`] (release) with [`Snapshot::version`] (acquire). Who
//!   sees the version sees the value stored before it, through [`Snapshot::load`], and everything
//!   the writer did before. This is what makes a publish that starts after `subscribe` has
//!   returned see the subscription.

use std::fmt;

#[cfg(not(slipring_loom))]
use arc_swap::ArcSwap;
use crossbeam_utils::CachePadded;

use crate::sync::{Arc, AtomicU64, Ordering};

/// A shared cell holding the current `Arc<T>`; see the module's head.
pub struct Snapshot<T> {
    /// How often the value was replaced. Written by the one writer, read by everybody on every
    /// publish, so it has a cache line of its own.
    version: CachePadded<AtomicU64>,
    #[cfg(not(slipring_loom))]
    value: ArcSwap<T>,
    /// Loom cannot follow arc-swap; what is modelled is the order of value and version.
    #[cfg(slipring_loom)]
    value: crate::sync::Mutex<Arc<T>>,
}

impl<T> Snapshot<T> {
    /// A cell that holds `value`, at version 0.
    pub fn new(value: Arc<T>) -> Self {
        Self {
            version: CachePadded::new(AtomicU64::new(0)),
            #[cfg(not(slipring_loom))]
            value: ArcSwap::new(value),
            #[cfg(slipring_loom)]
            value: crate::sync::Mutex::new(value),
        }
    }

    /// The current value. The cold way: it counts a reference; ask [`Snapshot::version`] first.
    pub fn load(&self) -> Arc<T> {
        #[cfg(not(slipring_loom))]
        return self.value.load_full();
        #[cfg(slipring_loom)]
        return Arc::clone(&self.value.lock().expect("no panic happens under this lock"));
    }

    /// The version: one load. A [`Snapshot::load`] that follows gives this version's value or a
    /// newer one.
    #[inline(always)]
    pub fn version(&self) -> u64 {
        // SYNC snapshot-version: pairs with Snapshot::store
        self.version.load(Ordering::Acquire)
    }

    /// Replaces the value, then moves the version on. Callers take turns (the broker's control
    /// mutex); readers are never held up.
    pub fn store(&self, value: Arc<T>) {
        #[cfg(not(slipring_loom))]
        self.value.store(value);
        #[cfg(slipring_loom)]
        {
            *self.value.lock().expect("no panic happens under this lock") = value;
        }
        // SYNC snapshot-version: pairs with Snapshot::version
        self.version.fetch_add(1, Ordering::Release);
    }
}

impl<T> fmt::Debug for Snapshot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("version", &self.version()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    /// Goal: under every interleaving that happens, the value is at least as new as the version.
    #[test]
    fn a_value_loaded_after_its_version_is_not_older() {
        let rounds: u64 = if cfg!(miri) { 200 } else { 100_000 };
        let snapshot = Snapshot::new(Arc::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=rounds).for_each(|value| snapshot.store(Arc::new(value))));
            scope.spawn(|| {
                while snapshot.version() < rounds {
                    let version = snapshot.version();
                    assert!(*snapshot.load() >= version);
                    crate::sync::spin_loop();
                }
            });
        });
        assert_eq!((*snapshot.load(), snapshot.version()), (rounds, rounds));
    }
}
