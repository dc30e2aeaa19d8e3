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
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
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
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use loom::thread::{Thread, current as current_thread, park, yield_now};
}

pub(crate) use imp::*;
pub(crate) use std::sync::atomic::Ordering;

/// A reference count that the models have no reason to watch: what it counts does not depend on it
/// for its order.
pub(crate) use std::sync::Arc as PlainArc;

#[cfg(not(slipring_loom))]
pub(crate) use std::sync::OnceLock;

/// std's, which loom does not see, with its ordering beside it. Its callers take turns to set it.
#[cfg(slipring_loom)]
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    is_set: AtomicBool,
}

#[cfg(slipring_loom)]
impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        Self { value: std::sync::OnceLock::new(), is_set: AtomicBool::new(false) }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
    }

    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if self.get().is_none() {
            let set = self.value.set(make()).is_ok();
            assert!(set, "a cell that its callers set in turns");
            self.is_set.store(true, Ordering::Release);
        }
        self.value.get().expect("set just above, or found set")
    }
}

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

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Deferred reclamation: what is [`defer`](epoch::Guard::defer)red runs when no thread is pinned
/// that was pinned before. crossbeam-epoch; under loom, which cannot model its SeqCst protocol, a
/// list of who is pinned that keeps the same promise and orders no more than that.
pub(crate) mod epoch {
    #[cfg(slipring_loom)]
    use super::Ordering;

    #[cfg(not(slipring_loom))]
    mod imp {
        #[derive(Debug)]
        pub(crate) struct Guard(
            #[expect(dead_code, reason = "kept for its drop")] crossbeam_epoch::Guard,
        );

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
        use std::sync::Mutex;

        type Work = Box<dyn FnOnce() + Send>;

        /// Who is pinned, and what waits for whom. Loom does not see it, so it orders nothing:
        /// what crossbeam-epoch orders is what the fences and `UNPINS` below order.
        #[derive(Default)]
        struct Pinned {
            next: u64,
            active: Vec<u64>,
            deferred: Vec<(Vec<u64>, Work)>,
        }

        loom::lazy_static! {
            static ref PINNED: Mutex<Pinned> = Mutex::default();
            static ref UNPINS: super::super::AtomicU64 = super::super::AtomicU64::new(0);
        }

        fn pinned() -> std::sync::MutexGuard<'static, Pinned> {
            PINNED.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
        }

        #[derive(Debug)]
        pub(crate) struct Guard(u64);

        pub(crate) fn pin() -> Guard {
            let id = {
                let mut pinned = pinned();
                pinned.next += 1;
                let id = pinned.next;
                pinned.active.push(id);
                id
            };
            // What was hidden before it was deferred is hidden from whoever pins afterwards.
            super::super::fence(super::Ordering::SeqCst);
            Guard(id)
        }

        impl Drop for Guard {
            fn drop(&mut self) {
                UNPINS.fetch_add(1, super::Ordering::Release);
                let ready: Vec<Work> = {
                    let mut pinned = pinned();
                    pinned.active.retain(|id| *id != self.0);
                    pinned.deferred.iter_mut().for_each(|(ids, _)| ids.retain(|id| *id != self.0));
                    let all = std::mem::take(&mut pinned.deferred);
                    let (ready, rest) = all.into_iter().partition(|(ids, _)| ids.is_empty());
                    pinned.deferred = rest;
                    Vec::into_iter(ready).map(|(_, work)| work).collect()
                };
                ready.into_iter().for_each(run);
            }
        }

        pub(crate) fn defer(f: impl FnOnce() + Send + 'static) {
            super::super::fence(super::Ordering::SeqCst);
            // Whoever runs it sees what was done before it was deferred.
            UNPINS.fetch_add(0, super::Ordering::Release);
            let ids = pinned().active.clone();
            if ids.is_empty() {
                run(Box::new(f));
            } else {
                pinned().deferred.push((ids, Box::new(f)));
            }
        }

        fn run(work: Work) {
            // Everybody who was pinned has read what they read.
            UNPINS.fetch_add(0, super::Ordering::Acquire);
            work();
        }
    }

    pub(crate) use imp::*;
}

/// Lets loom watch the memory of records, which are raw bytes that it does not see: beside each
/// record that is written under loom lies a cell, and every access to the record is one to that
/// cell. Two accesses that nothing orders then fail the model. Elsewhere it is nothing.
pub(crate) mod watched {
    #[cfg(slipring_loom)]
    mod imp {
        use loom::cell::UnsafeCell;
        use std::collections::BTreeMap;
        use std::sync::{Arc, Mutex};

        loom::lazy_static! {
            static ref CELLS: Mutex<BTreeMap<usize, Arc<UnsafeCell<()>>>> = Mutex::default();
        }

        fn cell(address: usize) -> Arc<UnsafeCell<()>> {
            let mut cells = CELLS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            Arc::clone(cells.entry(address).or_insert_with(|| Arc::new(UnsafeCell::new(()))))
        }

        /// The record at `address` is read.
        pub(crate) fn read(address: usize) {
            cell(address).with(|_| ());
        }

        /// The record at `address` is written.
        pub(crate) fn write(address: usize) {
            cell(address).with_mut(|_| ());
        }

        /// The memory from `address` on goes back to the system.
        pub(crate) fn free(address: usize, bytes: usize) {
            let mut cells = CELLS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let mut gone = cells.split_off(&address);
            let mut behind = gone.split_off(&(address + bytes));
            cells.append(&mut behind);
            drop(cells);
            if !std::thread::panicking() {
                gone.values().for_each(|cell| cell.with_mut(|_| ()));
            }
        }
    }

    #[cfg(not(slipring_loom))]
    mod imp {
        #[inline(always)]
        pub(crate) fn read(_: usize) {}

        #[inline(always)]
        pub(crate) fn write(_: usize) {}

        #[inline(always)]
        pub(crate) fn free(_: usize, _: usize) {}
    }

    pub(crate) use imp::*;
}
