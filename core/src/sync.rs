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
    pub(crate) type AtomicU32 = std::sync::atomic::AtomicU32;
    pub(crate) type AtomicU64 = std::sync::atomic::AtomicU64;
    pub(crate) type AtomicUsize = std::sync::atomic::AtomicUsize;
    pub(crate) type AtomicPtr<T> = std::sync::atomic::AtomicPtr<T>;
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::{Arc, Condvar, Mutex};
    pub(crate) use std::thread;

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
    pub(crate) type AtomicU32 = loom::sync::atomic::AtomicU32;
    pub(crate) type AtomicU64 = loom::sync::atomic::AtomicU64;
    pub(crate) type AtomicUsize = loom::sync::atomic::AtomicUsize;
    pub(crate) type AtomicPtr<T> = loom::sync::atomic::AtomicPtr<T>;
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::{Arc, Condvar, Mutex};
    pub(crate) use loom::thread;
}

pub(crate) use imp::*;
pub(crate) use std::sync::atomic::Ordering;
