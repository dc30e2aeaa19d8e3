//! Waiting for something that another thread will bring about, without a lost wake-up.
//!
//! Who waits first says so ([`WaitCell::prepare`]), then looks once more, then sleeps. Who brings
//! it about first does so, then asks whether anybody waits ([`WaitCell::is_armed`]). In this
//! store-then-load on both sides lies the danger of missing each other, and a full barrier on both
//! sides excludes it. The bringing side is the hot path of every publish, so the barrier there is
//! the light half of an asymmetric pair, and the waiting side, which is about to spend tens of
//! microseconds anyway, pays for both.
//!
//! Pair `asleep`: [`heavy_fence`] in `prepare` / [`light_fence`] before `is_armed`.

#[cfg(not(slipring_loom))]
use crate::contain::contain;
use crate::sync::{AtomicBool, Mutex, Ordering, Thread, current_thread, heavy_fence, light_fence};
use arrayvec::ArrayVec;

/// How a waiter is told.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "internal")]
pub enum Waiter {
    /// Unpark this thread.
    Thread(Thread),
    /// Wake this task of an async runtime.
    #[cfg(not(slipring_loom))]
    Waker(std::task::Waker),
    /// Make this eventfd readable.
    #[cfg(not(slipring_loom))]
    Event(std::sync::Arc<crate::event::EventFd>),
    /// Queue this work for the delivery workers.
    #[cfg(not(slipring_loom))]
    Work(std::sync::Arc<dyn Schedule>),
}

/// Work that can be queued when its input arrives.
#[cfg(not(slipring_loom))]
pub trait Schedule: std::fmt::Debug + Send + Sync {
    /// Queues it.
    fn schedule(self: std::sync::Arc<Self>);
}

impl Waiter {
    /// The calling thread, which will park.
    pub fn this_thread() -> Self {
        Self::Thread(current_thread())
    }

    fn tell(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            #[cfg(not(slipring_loom))]
            Self::Waker(waker) => {
                // A runtime that fails to wake its task harms that task alone.
                if !contain(|| waker.wake()) {
                    tracing::error!("a waker panicked");
                }
            }
            #[cfg(not(slipring_loom))]
            Self::Event(event) => event.set(),
            #[cfg(not(slipring_loom))]
            Self::Work(work) => work.schedule(),
        }
    }
}

/// Where waiters for one condition are kept.
#[derive(Debug, Default)]
pub struct WaitCell {
    /// Whether `waiters` is not empty; read on the hot path.
    armed: AtomicBool,
    waiters: Mutex<Vec<Waiter>>,
}

impl WaitCell {
    /// A cell in which nobody waits.
    pub fn new() -> Self {
        Self { armed: AtomicBool::new(false), waiters: Mutex::new(Vec::new()) }
    }

    /// Announces a waiter. The caller looks at its condition again afterwards, and sleeps only if
    /// that still does not hold.
    pub fn prepare(&self, waiter: Waiter) {
        self.prepare_and(waiter, || ());
    }

    /// The same, and calls `announce` when the waiter can be seen, before the barrier: to say
    /// elsewhere that there is one.
    pub fn prepare_and(&self, waiter: Waiter, announce: impl FnOnce()) {
        {
            let mut waiters = self.lock();
            waiters.push(waiter);
            // Relaxed: ordered by the fence below.
            self.armed.store(true, Ordering::Relaxed);
        }
        announce();
        // SYNC asleep: pairs with the light fence of whoever makes the condition true.
        heavy_fence();
    }

    /// Takes every waiter back that `is_mine` recognises.
    pub fn cancel(&self, is_mine: impl Fn(&Waiter) -> bool) {
        loop {
            let mut waiters = self.lock();
            let found = waiters.iter().position(&is_mine);
            let cancelled = found.map(|at| waiters.swap_remove(at));
            self.armed.store(!waiters.is_empty(), Ordering::Relaxed);
            drop(waiters);
            match cancelled {
                // Dropping a waker runs foreign code: without the lock.
                #[cfg(not(slipring_loom))]
                Some(Waiter::Waker(waker)) => _ = contain(|| drop(waker)),
                Some(_) => {}
                None => return,
            }
        }
    }

    /// Whether somebody waits whom `is_wanted` recognises.
    pub fn has(&self, is_wanted: impl Fn(&Waiter) -> bool) -> bool {
        self.lock().iter().any(is_wanted)
    }

    /// Whether somebody waits. The caller has made the condition true and then executed
    /// [`light_fence`].
    #[inline]
    pub fn is_armed(&self) -> bool {
        // Relaxed: ordered by the caller's fence.
        self.armed.load(Ordering::Relaxed)
    }

    /// The same, fence included.
    #[inline]
    pub fn is_armed_after_fence(&self) -> bool {
        // SYNC asleep: pairs with `prepare`.
        light_fence();
        self.is_armed()
    }

    /// Tells everybody who waits. Runs foreign code (wakers), so no lock or shard may be held.
    #[cold]
    pub fn wake(&self) {
        let mut left = self.lock().len();
        while left > 0 {
            // A few at a time, and in place: the list keeps its memory, so that a consumer that
            // sleeps and is woken again and again allocates nothing.
            let mut few = ArrayVec::<Waiter, 8>::new();
            {
                let mut waiters = self.lock();
                let count = left.min(few.capacity()).min(waiters.len());
                few.extend(waiters.drain(..count));
                self.armed.store(!waiters.is_empty(), Ordering::Relaxed);
            }
            if few.is_empty() {
                return;
            }
            left -= few.len();
            few.into_iter().for_each(Waiter::tell);
        }
    }

    fn lock(&self) -> impl std::ops::DerefMut<Target = Vec<Waiter>> {
        // The list is whole at every moment, so a panic elsewhere does not spoil it.
        self.waiters.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
