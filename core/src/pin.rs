//! Pinning of threads to cores.

use core_affinity::CoreId;
use std::sync::OnceLock;

/// The CPUs this process may use, as they were before the first thread was pinned: what
/// `core_affinity` lists is the calling thread's own mask, which a pinned parent narrows.
fn allowed() -> &'static [CoreId] {
    static ALLOWED: OnceLock<Vec<CoreId>> = OnceLock::new();
    ALLOWED.get_or_init(|| core_affinity::get_core_ids().unwrap_or_default())
}

/// Notes the allowed CPUs; to be called before any thread is pinned.
pub(crate) fn note_allowed() {
    allowed();
}

/// Pins the calling thread to the CPU at `index` of the allowed ones. Failure is a warning.
pub(crate) fn pin_current_thread(index: usize) -> bool {
    let pinned = allowed().get(index).is_some_and(|&core| core_affinity::set_for_current(core));
    if !pinned {
        tracing::warn!(index, allowed = allowed().len(), "could not pin a thread to a core");
    }
    pinned
}
