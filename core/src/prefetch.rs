//! Hints that a line will be needed soon. Each changes nothing but time, whatever the address.
#![expect(unsafe_code, reason = "prefetch instructions")]

/// The line at `address` will be written: fetch it from whoever has it, to own it.
#[inline(always)]
pub(crate) fn for_write(address: usize) {
    // SAFETY: a prefetch faults at no address; where PREFETCHW is unknown, it is a no-op.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags));
    }
    let _ = address;
}

/// The line at `address` will be read.
#[inline(always)]
pub(crate) fn for_read(address: usize) {
    // SAFETY: a prefetch faults at no address.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::with_exposed_provenance(address));
    }
    let _ = address;
}
