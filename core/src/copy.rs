//! Copying payloads into records: what a publish mostly does.
#![expect(unsafe_code, reason = "bytes are copied to where there is room, unaligned")]

use std::ptr;

/// Copies `len` bytes; without a call for the sizes that matter most.
///
/// # Safety
/// As for [`ptr::copy_nonoverlapping`].
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    type Word = [u64; 4];
    const WORD: usize = size_of::<Word>();
    // SAFETY: every use below stays inside the `len` bytes, as its condition says.
    let word = |at: usize| unsafe {
        to.add(at).cast::<Word>().write_unaligned(from.add(at).cast::<Word>().read_unaligned());
    };
    if (WORD..=2 * WORD).contains(&len) {
        // Two words, which may overlap.
        word(0);
        word(len - WORD);
    } else if (2 * WORD..=4 * WORD).contains(&len) {
        word(0);
        word(WORD);
        word(len - 2 * WORD);
        word(len - WORD);
    } else {
        // SAFETY: passed on.
        unsafe { ptr::copy_nonoverlapping(from, to, len) };
    }
}

/// The same for bytes that have probably just been written, in words or larger: where a load takes in
/// more than one store, it waits until those have left the store buffer, behind all others.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
pub(crate) unsafe fn copy_fresh(from: *const u8, to: *mut u8, len: usize) {
    const HALF: usize = 32;
    if !(HALF..=2 * HALF).contains(&len) {
        // SAFETY: passed on.
        return unsafe { copy(from, to, len) };
    }
    for at in [0, 16, len - HALF, len - HALF + 16] {
        // SAFETY: sixteen of the `len` bytes, some of them perhaps twice.
        unsafe { to.add(at).cast::<[u64; 2]>().write_unaligned(load_pair(from.add(at))) };
    }
}

/// Two words, by a load for each, which the compiler does not join.
///
/// # Safety
/// They may be read.
#[inline(always)]
unsafe fn load_pair(at: *const u8) -> [u64; 2] {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let pair: std::arch::x86_64::__m128i;
        // SAFETY: loads of what may be read.
        unsafe {
            std::arch::asm!(
                "movq {pair}, [{at}]",
                "movhps {pair}, [{at} + 8]",
                pair = out(xmm_reg) pair,
                at = in(reg) at,
                options(pure, readonly, nostack, preserves_flags)
            );
            // SAFETY: the same bytes.
            std::mem::transmute::<std::arch::x86_64::__m128i, [u64; 2]>(pair)
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: passed on.
    unsafe {
        at.cast::<[u64; 2]>().read_unaligned()
    }
}
