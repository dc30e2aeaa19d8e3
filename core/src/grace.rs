//! Grace periods: when has everybody stopped looking who may have seen what is hidden now?
//!
//! Whoever reads what another thread may take away *pins* meanwhile: makes the count of its thread's
//! slot odd, and even again afterwards. Whoever takes something away hides it first and then begins a
//! [`Grace`]: it notes the odd counts, mostly none, and is over when each of them has changed. (This is
//! read-copy-update with a counter a thread, McKenney and Slingwine, PDCS 1998.) Nobody else has to do
//! anything for that: no epoch moves, and nothing is carried along.
//!
//! Pairs: `hidden` (full fences: of the reader, between its count and its reads; of whoever hides,
//! between that and the look at the counts): the reader does not find it, or its count is seen to be
//! odd. `looked` (a release of the count / its load by [`Grace`]) makes all that was read while pinned
//! happen before what follows the grace.

use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, fence};
use std::marker::PhantomData;
use std::sync::PoisonError;

/// Where a thread shows whether it is pinned. Written by its thread alone.
#[derive(Debug)]
struct Slot {
    /// Odd while it is.
    pins: AtomicU64,
    /// How many guards there are.
    depth: AtomicU32,
    /// Whether a thread has it. Those of threads that have ended are used again.
    taken: AtomicBool,
}

impl Slot {
    fn pin(&self) {
        // Relaxed, here and below: its own thread's.
        let depth = self.depth.load(Ordering::Relaxed);
        self.depth.store(depth + 1, Ordering::Relaxed);
        if depth == 0 {
            // SYNC looked: as in `unpin`, for whoever sees this and not that.
            self.pins.store(self.pins.load(Ordering::Relaxed) + 1, Ordering::Release);
            // SYNC hidden: pairs with Grace::begin.
            fence(Ordering::SeqCst);
        }
    }

    fn unpin(&self) {
        let depth = self.depth.load(Ordering::Relaxed) - 1;
        self.depth.store(depth, Ordering::Relaxed);
        if depth == 0 {
            // SYNC looked: pairs with Grace.
            self.pins.store(self.pins.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
    }

    fn leave(&self) {
        // Release: whoever takes it goes on with its counts.
        self.taken.store(false, Ordering::Release);
    }
}

#[cfg(not(slipring_loom))]
mod statics {
    use super::{AtomicBool, AtomicU32, AtomicU64, Ordering, Retired, Slot};
    use crate::sync::CachePadded;

    pub(super) static SLOTS: Slots = Slots(boxcar::Vec::new());
    pub(super) static RETIRED: Retired = Retired::new();

    /// The slots of all threads.
    pub(super) struct Slots(boxcar::Vec<CachePadded<Slot>>);

    impl Slots {
        pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
            self.0.iter().map(|(_, slot)| &**slot)
        }

        /// A slot that nobody has.
        pub(super) fn take(&self) -> &Slot {
            let free = self.iter().find(|slot| {
                // Acquire: pairs with `leave`.
                !slot.taken.load(Ordering::Relaxed) && !slot.taken.swap(true, Ordering::Acquire)
            });
            free.unwrap_or_else(|| {
                let slot = Slot {
                    pins: AtomicU64::new(0),
                    depth: AtomicU32::new(0),
                    taken: AtomicBool::new(true),
                };
                &self.0[self.0.push(CachePadded::new(slot))]
            })
        }
    }

    /// The slot of this thread, given back at its end.
    struct Mine(&'static Slot);

    impl Drop for Mine {
        fn drop(&mut self) {
            self.0.leave();
        }
    }

    thread_local! {
        static MINE: Mine = Mine(SLOTS.take());
    }

    /// This thread's slot; `None` at the thread's very end.
    #[inline]
    pub(super) fn mine() -> Option<&'static Slot> {
        MINE.try_with(|mine| mine.0).ok()
    }
}

/// Loom must see each slot made before it is looked at, and has few threads.
#[cfg(slipring_loom)]
mod statics {
    use super::{AtomicBool, AtomicU32, AtomicU64, PoisonError, Retired, Slot};
    use std::sync::Mutex;

    loom::lazy_static! {
        pub(super) static ref SLOTS: Slots = Slots::new();
        pub(super) static ref RETIRED: Retired = Retired::new();
    }

    loom::thread_local! {
        static MINE: &'static Slot = SLOTS.take();
    }

    pub(super) struct Slots {
        all: [Slot; 5],
        taken: Mutex<usize>,
    }

    impl Slots {
        fn new() -> Self {
            let slot = |_| Slot {
                pins: AtomicU64::new(0),
                depth: AtomicU32::new(0),
                taken: AtomicBool::new(true),
            };
            Self { all: std::array::from_fn(slot), taken: Mutex::new(0) }
        }

        pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
            let taken = *self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            self.all[..taken].iter()
        }

        pub(super) fn take(&self) -> &Slot {
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            *taken += 1;
            &self.all[*taken - 1]
        }
    }

    pub(super) fn mine() -> Option<&'static Slot> {
        Some(MINE.with(|mine| *mine))
    }
}

use statics::{RETIRED, SLOTS};

/// What this thread finds is not taken away as long as it lives.
#[derive(Debug)]
pub(crate) struct Guard {
    slot: &'static Slot,
    /// Whether the slot is for this guard alone.
    is_own: bool,
    /// It stays on its thread.
    thread: PhantomData<*const ()>,
}

/// Pins this thread.
#[inline]
pub(crate) fn pin() -> Guard {
    let (slot, is_own) = match statics::mine() {
        Some(slot) => (slot, false),
        None => (SLOTS.take(), true),
    };
    slot.pin();
    Guard { slot, is_own, thread: PhantomData }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        self.slot.unpin();
        if self.is_own {
            self.slot.leave();
        }
        // Relaxed: who misses it leaves it to the next.
        if RETIRED.is_waiting.load(Ordering::Relaxed) {
            RETIRED.run();
        }
    }
}

/// The time until everybody has unpinned who was pinned when it began.
#[derive(Debug)]
pub(crate) struct Grace(Vec<(&'static Slot, u64)>);

impl Grace {
    /// What has been hidden before is found by nobody, when it is over, and all that was done with it
    /// has happened before.
    pub(crate) fn begin() -> Self {
        // SYNC hidden: pairs with Slot::pin.
        fence(Ordering::SeqCst);
        // SYNC looked: pairs with Slot::unpin.
        let pins = SLOTS.iter().map(|slot| (slot, slot.pins.load(Ordering::Acquire)));
        Self(pins.filter(|(_, pins)| !pins.is_multiple_of(2)).collect())
    }

    /// Whether it is.
    pub(crate) fn is_over(&mut self) -> bool {
        // SYNC looked: pairs with Slot::unpin.
        self.0.retain(|(slot, pins)| slot.pins.load(Ordering::Acquire) == *pins);
        self.0.is_empty()
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// What is to be done at the end of a grace period that its beginner does not wait for.
#[derive(Debug)]
struct Retired {
    is_waiting: AtomicBool,
    list: Mutex<Vec<Waiting>>,
}

struct Waiting(Grace, Work);

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Retired {
    #[cfg(not(slipring_loom))]
    const fn new() -> Self {
        Self { is_waiting: AtomicBool::new(false), list: Mutex::new(Vec::new()) }
    }

    #[cfg(slipring_loom)]
    fn new() -> Self {
        Self { is_waiting: AtomicBool::new(false), list: Mutex::new(Vec::new()) }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, waiting: impl IntoIterator<Item = Waiting>) {
        self.list().extend(waiting);
        // Relaxed: a hint.
        self.is_waiting.store(true, Ordering::Relaxed);
    }

    /// Does what is due.
    #[cold]
    fn run(&self) {
        // Before the list is taken, so that what comes then is not forgotten.
        self.is_waiting.store(false, Ordering::Relaxed);
        let all = std::mem::take(&mut *self.list());
        let mut rest = Vec::new();
        for Waiting(mut grace, work) in all {
            if grace.is_over() {
                work();
            } else {
                rest.push(Waiting(grace, work));
            }
        }
        if !rest.is_empty() {
            self.add(rest);
        }
    }
}

/// Runs `work` when every thread that is pinned now has unpinned, on whatever thread notices.
pub(crate) fn defer(work: impl FnOnce() + Send + 'static) {
    let grace = Grace::begin();
    RETIRED.add([Waiting(grace, Box::new(work))]);
    RETIRED.run();
}
