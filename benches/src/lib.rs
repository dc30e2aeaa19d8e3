//! Criterion benchmarks of slipring itself; the peers are in `compare/`.

pub mod routing_input;
pub mod routing_model;

/// Lets the allocator give what is free back to the system, so that resident memory tells what is
/// in use.
#[expect(unsafe_code, reason = "the allocator's own call")]
pub fn give_memory_back() {
    // SAFETY: malloc_trim(3) may be called at any time, from any thread.
    unsafe { libc::malloc_trim(0) };
}
