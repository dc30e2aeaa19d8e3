//! Memory of large tables, in large pages: a look-up at random then needs no walk through the page
//! tables to find its line.
#![expect(unsafe_code, reason = "advice about pages")]

/// What a large page holds where there are any.
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// An empty vector with room for `capacity`, on large pages as far as it covers them and the system
/// has them. Where it has not, nothing but time is lost.
pub(crate) fn large_vec<T>(capacity: usize) -> Vec<T> {
    let mut vec = Vec::with_capacity(capacity);
    let room: &mut [std::mem::MaybeUninit<T>] = vec.spare_capacity_mut();
    let (start, bytes) = (room.as_mut_ptr().addr(), size_of_val(room));
    let first = start.next_multiple_of(LARGE_PAGE_BYTES);
    let end = (start + bytes) / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
    #[cfg(not(miri))]
    if first < end {
        let first = room.as_mut_ptr().wrapping_byte_add(first - start);
        // SAFETY: the range lies inside an allocation of ours; the advice changes no content.
        unsafe { libc::madvise(first.cast(), end - first.addr(), libc::MADV_HUGEPAGE) };
    }
    #[cfg(miri)]
    let _ = (first, end);
    vec
}
