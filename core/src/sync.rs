//! The only file that names std's or loom's atomics, cells and threads.
//!
//! Everything that the loom models drive is written against these aliases, so the models check the
//! production source and not a copy of it. Loom replaces them under `--cfg slipring_loom`.
//!
//! [`light_fence`] and [`heavy_fence`] are an asymmetric pair: a store-load barrier whose whole
//! cost is moved to the rare side. Light then costs nothing (a compiler barrier) because heavy
//! makes every running thread of the process execute a full barrier (`membarrier(2)`). Where the
//! kernel does not offer that, and under loom, both are `fence(SeqCst)`.
#![expect(unsafe_code, reason = "the membarrier system call, and the cell that loom can watch")]

#[cfg(not(slipring_loom))]
mod imp {
    #![expect(clippy::disallowed_types, reason = "the one place that names them")]

    pub(crate) type AtomicBool = std::sync::atomic::AtomicBool;
    pub(crate) type AtomicU8 = std::sync::atomic::AtomicU8;
    pub(crate) type AtomicU32 = std::sync::atomic::AtomicU32;
    pub(crate) type AtomicU64 = std::sync::atomic::AtomicU64;
    pub(crate) type AtomicUsize = std::sync::atomic::AtomicUsize;
    pub(crate) type AtomicPtr<T> = std::sync::atomic::AtomicPtr<T>;
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::fence;
    pub(crate) use std::sync::{Arc, Mutex};
    pub(crate) use std::thread::{Thread, current as current_thread, park, yield_now};

    /// A cell that several threads reach under a protocol of their own; loom's checks each access.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(slipring_loom)]
mod imp {
    pub(crate) type AtomicBool = loom::sync::atomic::AtomicBool;
    pub(crate) type AtomicU8 = loom::sync::atomic::AtomicU8;
    pub(crate) type AtomicU32 = loom::sync::atomic::AtomicU32;
    pub(crate) type AtomicU64 = loom::sync::atomic::AtomicU64;
    pub(crate) type AtomicUsize = loom::sync::atomic::AtomicUsize;
    pub(crate) type AtomicPtr<T> = loom::sync::atomic::AtomicPtr<T>;
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::fence;
    pub(crate) use loom::sync::{Arc, Mutex};
    pub(crate) use loom::thread::{Thread, current as current_thread, park, yield_now};
}

pub(crate) use imp::*;
pub(crate) use std::sync::atomic::Ordering;

#[cfg(not(any(slipring_loom, miri)))]
mod asymmetric {
    #![expect(clippy::disallowed_types, reason = "a flag of the process, not of a structure")]

    use std::sync::Once;
    use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

    /// Whether the process is registered for expedited membarriers. It only ever turns true, and
    /// every broker turns it true before another thread can use that broker.
    static REGISTERED: AtomicBool = AtomicBool::new(false);

    /// Asks the kernel for expedited membarriers; once per process, before the first broker.
    pub(crate) fn register() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            REGISTERED.store(
                membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED),
                Ordering::Relaxed,
            );
        });
    }

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: membarrier(2) takes three integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    #[inline(always)]
    pub(crate) fn light_fence() {
        if REGISTERED.load(Ordering::Relaxed) {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    #[cold]
    pub(crate) fn heavy_fence() {
        fence(Ordering::SeqCst);
        if REGISTERED.load(Ordering::Relaxed) {
            let done = membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
            debug_assert!(done, "a registered process may always issue a membarrier");
        }
    }
}

#[cfg(any(slipring_loom, miri))]
mod asymmetric {
    use super::{Ordering, fence};

    pub(crate) fn register() {}

    pub(crate) fn light_fence() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy_fence() {
        fence(Ordering::SeqCst);
    }
}

pub(crate) use asymmetric::{heavy_fence, light_fence, register as register_asymmetric_fences};

/// `T` on cache lines of its own: what two threads write must not share a line, nor the pair of
/// lines that the prefetcher fetches together.
pub(crate) type CachePadded<T> = crossbeam_utils::CachePadded<T>;

/// A number that tells this thread from every other that ever was; never 0.
#[inline]
pub(crate) fn thread_token() -> u64 {
    token::THIS_THREAD.with(|token| match token.get() {
        0 => token::assign(token),
        token => token,
    })
}

mod token {
    use std::cell::Cell;

    #[cfg(not(slipring_loom))]
    thread_local! {
        pub(super) static THIS_THREAD: Cell<u64> = const { Cell::new(0) };
    }

    #[cfg(slipring_loom)]
    loom::thread_local! {
        pub(super) static THIS_THREAD: Cell<u64> = Cell::new(0);
    }

    #[cold]
    pub(super) fn assign(token: &Cell<u64>) -> u64 {
        static LAST: std::sync::Mutex<u64> = std::sync::Mutex::new(0);
        let mut last = LAST.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *last += 1;
        token.set(*last);
        *last
    }
}

/// Stores `words`, each with the bits of `tag`, into the first of `slots`. Eight at a time, because
/// the compiler does not unroll loops over atomics.
#[inline(always)]
pub(crate) fn store_all(slots: &[AtomicUsize], words: &[usize], tag: usize, order: Ordering) {
    let (eights, rest) = words.as_chunks::<8>();
    let (whole, others) = slots[..words.len()].as_chunks::<8>();
    for (slots, words) in whole.iter().zip(eights) {
        for (slot, word) in slots.iter().zip(words) {
            slot.store(word | tag, order);
        }
    }
    for (slot, word) in others.iter().zip(rest) {
        slot.store(word | tag, order);
    }
}

/// A count that one thread at a time adds to and others may read: no read-modify-write.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`. The caller is the only writer at the moment.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        // Relaxed: a figure that orders nothing.
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    /// Sets a level, likewise.
    #[inline]
    pub(crate) fn set(&self, level: u64) {
        self.0.store(level, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Deferred reclamation: what is [`defer`](epoch::Guard::defer)red runs when no thread is pinned
/// that was pinned before. crossbeam-epoch; under loom, which cannot model its SeqCst protocol, a
/// reader-writer lock that keeps the same promise.
pub(crate) mod epoch {
    #[cfg(not(slipring_loom))]
    mod imp {
        #[derive(Debug)]
        pub(crate) struct Guard(crossbeam_epoch::Guard);

        #[inline]
        pub(crate) fn pin() -> Guard {
            Guard(crossbeam_epoch::pin())
        }

        /// Runs `f` when every thread that is pinned now has unpinned, on whatever thread notices.
        pub(crate) fn defer(f: impl FnOnce() + Send + 'static) {
            let guard = crossbeam_epoch::pin();
            guard.defer(f);
            // Deferrals are rare (one a chunk) and each holds much memory: do not let them gather.
            guard.flush();
        }
    }

    #[cfg(slipring_loom)]
    mod imp {
        loom::lazy_static! {
            static ref PINS: loom::sync::RwLock<()> = loom::sync::RwLock::new(());
        }

        #[derive(Debug)]
        pub(crate) struct Guard(loom::sync::RwLockReadGuard<'static, ()>);

        pub(crate) fn pin() -> Guard {
            Guard(PINS.read().expect("no model panics while it is pinned"))
        }

        pub(crate) fn defer(f: impl FnOnce() + Send + 'static) {
            drop(PINS.write().expect("no model panics while it is pinned"));
            f();
        }
    }

    pub(crate) use imp::*;
}
