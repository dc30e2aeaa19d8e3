//! A failure that may go on for a long time, and is told once: when it begins, and when it is over.

use crate::sync::{AtomicBool, Ordering};

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Outage(AtomicBool);

impl Outage {
    /// Something has failed: whether that is to be told.
    pub(crate) fn begins(&self) -> bool {
        // Relaxed, here and below: it orders nothing, and whoever swaps it is the only one to tell.
        !self.0.swap(true, Ordering::Relaxed)
    }

    /// Something has succeeded: whether it is to be told that it does again.
    #[inline]
    pub(crate) fn ends(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_when_it_begins_and_when_it_is_over() {
        let outage = Outage::default();
        assert!(!outage.ends());
        for _ in 0..2 {
            assert!(outage.begins());
            assert!(!outage.begins());
            assert!(outage.ends());
            assert!(!outage.ends());
        }
    }
}
