//! Notices `fork`: in the child, a broker's threads are gone and its locks may be held for ever.
//!
//! One page of the process is marked `MADV_WIPEONFORK`, so the kernel zeroes it in the child: no
//! handler is registered, and asking costs one load.
#![expect(unsafe_code, reason = "a page shared with the kernel")]

use crate::sync::{AtomicU32, Ordering};
use std::sync::OnceLock;

/// The generation of processes that a broker belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Generation {
    mark: u32,
    /// Where the mark of the present process is.
    page: &'static AtomicU32,
}

impl Generation {
    /// That of the present process.
    pub(crate) fn current() -> Self {
        let page = page();
        let mark = page.load(Ordering::Relaxed);
        if mark != 0 {
            return Self { mark, page };
        }
        // The first broker of this process, or of this child of a fork: a mark never used before
        // in its ancestry, since the counter is inherited.
        static LAST: std::sync::Mutex<u32> = std::sync::Mutex::new(0);
        let mut last = LAST.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *last += 1;
        let mark = match page.compare_exchange(0, *last, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => *last,
            Err(mark) => mark,
        };
        Self { mark, page }
    }

    /// Whether the process has forked since, and this is the child.
    #[inline]
    pub(crate) fn is_over(self) -> bool {
        self.page.load(Ordering::Relaxed) != self.mark
    }
}

fn page() -> &'static AtomicU32 {
    static PAGE: OnceLock<&'static AtomicU32> = OnceLock::new();
    PAGE.get_or_init(wiped_page)
}

#[cfg(not(any(miri, slipring_loom)))]
fn wiped_page() -> &'static AtomicU32 {
    let bytes = 4096;
    // SAFETY: an anonymous mapping at an address of the kernel's choice.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    // SAFETY: the mapping just made. Kernels before 4.14 refuse; then forks go unnoticed.
    if page == libc::MAP_FAILED || unsafe { libc::madvise(page, bytes, libc::MADV_WIPEONFORK) } != 0
    {
        tracing::warn!("the kernel does not tell of forks: do not use a broker in a forked child");
    }
    if page == libc::MAP_FAILED {
        return Box::leak(Box::new(AtomicU32::new(0)));
    }
    // SAFETY: the page is zeroed, aligned, and never unmapped.
    unsafe { &*page.cast::<AtomicU32>() }
}

#[cfg(any(miri, slipring_loom))]
fn wiped_page() -> &'static AtomicU32 {
    Box::leak(Box::new(AtomicU32::new(0)))
}
