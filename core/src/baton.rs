//! The baton: exclusive ownership of a shard that nobody waits for who does not need an answer,
//! and that does the work of all who came meanwhile in one go.
//!
//! Whoever has something to do in a shard calls [`Baton::run`]. If the baton is free, the caller
//! takes it with one compare-and-swap, does its job, and lets it go with another. If not, the job
//! is left in a list, and the holder, who cannot let go while the list is not empty, does it.
//! (This is flat combining, Hendler et al., SPAA 2010, with the list in the lock word itself.) So a
//! shard has one writer at any moment, whoever it is, and what it owns needs no synchronisation of
//! its own.
//!
//! The lock word holds everything in one modification order, so no wake-up can be lost between a
//! holder that leaves and a job that comes:
//!
//! | word | meaning |
//! |---|---|
//! | null | free, nothing to do |
//! | `HELD` | held, nothing left |
//! | `HELD` and a pointer | held; a stack of jobs, newest first |
//!
//! Two compare-and-swaps are most of what a small publish costs, and each makes the processor wait
//! for all the stores before it. So a thread that has had the baton many times in a row, with
//! nobody else asking, keeps it: the baton is *biased* to it (biased locking, Kawachiya et al.,
//! OOPSLA 2002). The word says `HELD`; the owner marks in `active` when it is at work, with plain
//! stores. Whoever finds the word held and the baton biased *revokes* the bias: takes `owner` away,
//! makes sure by a heavy fence that the owner has noticed or is seen at work, waits for the latter,
//! and is the holder. Each revocation makes it harder to earn the next bias.
//!
//! A holder that has served [`FAIR`] jobs of others makes the owner of the next one the holder and
//! leaves. With a *sequencer*, nobody else ever holds: whoever finds the baton free gives it, with
//! its job, to the sequencer's thread.
//!
//! Pairs: `baton-passed` (the swap that frees the baton or hands it on / the swap that takes it)
//! makes all that was done in the shard visible to the next holder; `job-left` (the swap that
//! leaves a job / the swap that takes the list) makes the job visible; `job-done` (store of DONE
//! or GRANTED / load by the waiting owner) makes its result visible. `bias` ([`light_fence`] of the
//! owner between its store of `active` and its load of `owner` / [`heavy_fence`] of the revoker
//! between its swap of `owner` and its load of `active`): one of them sees the other. `bias-left`
//! (store of `active` by the owner / load by the revoker, and the swaps of `owner`) makes what
//! the owner did visible to the revoker. `bias-set` (a full fence between the swap of `owner` and
//! the look at the word / between leaving a job and the look at `owner`): a job that is left while
//! the baton becomes biased is seen by the owner, or its owner revokes.
#![expect(unsafe_code, reason = "jobs lie on the stacks of the threads that wait for them")]

use crate::sync::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, CachePadded, Ordering, Thread, UnsafeCell,
    current_thread, fence, heavy_fence, light_fence, park, spin_loop, thread_token,
};
use crate::wait::{WaitCell, Waiter};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

/// Jobs of others that one holder does before it hands the baton on.
const FAIR: usize = if cfg!(slipring_loom) { 1 } else { 64 };

/// Looks at the baton before a job is left, and at a job before its owner parks.
const SPINS: usize = if cfg!(slipring_loom) { 0 } else { 64 };

/// Times in a row that a thread must have had the baton to get a bias, at first; and at most,
/// after it was revoked again and again.
const BIAS_AFTER: u32 = if cfg!(slipring_loom) { 1 } else { 64 };
const BIAS_AFTER_MOST: u32 = if cfg!(slipring_loom) { 1 } else { 1 << 20 };

/// Threads that one baton can ever be biased to: the first that earn it. Each has a flag of its
/// own, because a thread whose bias was revoked while it was about to use it still writes its flag,
/// at any time later. A power of two.
const BIASES: usize = 8;

/// What the baton guards.
pub trait Guarded {
    /// What came up while the baton was held and is to be done without it.
    type Errands: Default;

    /// Whether something came up.
    fn has_errands(&self) -> bool;

    /// Moves what came up into `errands`. Called just before the baton is let go.
    fn take_errands(&mut self, errands: &mut Self::Errands);

    /// Does them; no baton is held.
    fn run_errands(errands: Self::Errands);
}

const HELD: usize = 1;

fn held<T>(job: *mut Job<T>) -> *mut Job<T> {
    job.map_addr(|address| address | HELD)
}

fn job_of<T>(word: *mut Job<T>) -> *mut Job<T> {
    word.map_addr(|address| address & !HELD)
}

/// States of a job.
const WAITING: u32 = 0;
/// Its owner is about to park, and has left its thread.
const PARKED: u32 = 1;
const DONE: u32 = 2;
/// Its owner is the holder now, and does it itself.
const GRANTED: u32 = 3;

/// A job in the list. The head is all that the holder knows of it.
#[repr(C)]
struct Job<T> {
    /// The next in the list; written by its owner before it is left, by the holder afterwards.
    next: UnsafeCell<*mut Self>,
    /// Does the job, and tells its owner. The job may be gone afterwards.
    perform: unsafe fn(*mut Self, &mut T),
    /// Makes its owner the holder; `None` if nobody waits for it.
    grant: Option<unsafe fn(*mut Self)>,
}

/// A job whose owner waits for it.
#[repr(C)]
struct WaitedJob<T, F, R> {
    job: Job<T>,
    state: AtomicU32,
    thread: UnsafeCell<Option<Thread>>,
    work: UnsafeCell<Option<F>>,
    result: UnsafeCell<Option<Result<R, Box<dyn Any + Send>>>>,
}

/// A job that nobody waits for.
#[repr(C)]
struct OwnJob<T, F> {
    job: Job<T>,
    work: F,
}

/// Exclusive ownership of a `T` that is passed around.
#[derive(Debug)]
pub struct Baton<T> {
    word: CachePadded<AtomicPtr<Job<T>>>,
    /// The thread that the baton is biased to, and its flag: see [`owner_word`]. 0 for none. Read
    /// at every publish, written rarely.
    owner: CachePadded<AtomicU64>,
    /// Whether that thread is at work: each written by one thread alone.
    active: [CachePadded<AtomicBool>; BIASES],
    /// Where a revoker waits for it.
    left: WaitCell,
    guarded: CachePadded<UnsafeCell<Shared<T>>>,
    /// The thread that alone may hold, if there is one.
    sequencer: std::sync::OnceLock<Thread>,
}

#[derive(Debug)]
struct Shared<T> {
    value: T,
    /// Jobs taken from the word and not done yet, oldest first.
    backlog: *mut Job<T>,
    /// The last holder, and how often in a row it has been that.
    last: u64,
    streak: u32,
    /// The streak that earns a bias.
    bias_after: u32,
    /// Whose flags those in `active` are, 0 for nobody's yet.
    flags: [u64; BIASES],
}

/// What says that a baton is biased to the thread `token`, whose flag is number `flag`.
fn owner_word(token: u64, flag: usize) -> u64 {
    token * BIASES as u64 + flag as u64
}

/// The owner of a bias at work, with its owner word; ends also when the work unwinds.
#[derive(Debug)]
pub struct Entered<'a, T: Guarded>(&'a Baton<T>, u64);

impl<T: Guarded> Entered<'_, T> {
    #[inline(always)]
    fn run<R>(self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the baton is biased to this thread, which is marked as being at work.
        self.0.guarded.with_mut(|shared| work(unsafe { &mut (*shared).value }))
    }
}

impl<T: Guarded> std::ops::Deref for Entered<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: as in `run`; the work ends when `self` is dropped.
        self.0.guarded.with_mut(|shared| unsafe { &(*shared).value })
    }
}

impl<T: Guarded> std::ops::DerefMut for Entered<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed exclusively.
        self.0.guarded.with_mut(|shared| unsafe { &mut (*shared).value })
    }
}

impl<T: Guarded> Drop for Entered<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.has_errands() {
            self.0.end_with_errands(self.1);
        } else {
            self.0.end_as_owner(self.1);
        }
    }
}

// SAFETY: `guarded` is reached by the holder alone, jobs are Send (see `run`, `leave`).
unsafe impl<T: Send> Send for Baton<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Baton<T> {}

impl<T> Shared<T> {
    /// The owner word of the thread `token`, if a flag can be its own.
    #[cold]
    fn owner_word(&mut self, token: u64) -> Option<u64> {
        let flag = self.flags.iter().position(|&whose| whose == token || whose == 0)?;
        self.flags[flag] = token;
        Some(owner_word(token, flag))
    }
}

impl<T: Guarded> Baton<T> {
    /// A free baton over `value`.
    pub fn new(value: T) -> Self {
        Self {
            word: CachePadded::new(AtomicPtr::new(ptr::null_mut())),
            owner: CachePadded::new(AtomicU64::new(0)),
            active: std::array::from_fn(|_| CachePadded::new(AtomicBool::new(false))),
            left: WaitCell::new(),
            guarded: CachePadded::new(UnsafeCell::new(Shared {
                value,
                backlog: ptr::null_mut(),
                last: 0,
                streak: 0,
                bias_after: BIAS_AFTER,
                flags: [0; BIASES],
            })),
            sequencer: std::sync::OnceLock::new(),
        }
    }

    /// Runs `work` on what the baton guards, on this thread or on that of the present holder;
    /// returns when it has run. `work` must not call `run` on the same baton.
    #[inline(always)]
    pub fn run<R: Send>(&self, work: impl FnOnce(&mut T) -> R + Send) -> R {
        if let Some(owner) = self.enter() {
            return owner.run(work);
        }
        if self.sequencer.get().is_none() && self.try_take() {
            return self.run_as_holder(work);
        }
        self.run_contended(work)
    }

    /// What the baton guards, if it is biased to this thread: the short way of [`run`](Self::run).
    #[inline(always)]
    pub fn enter(&self) -> Option<Entered<'_, T>> {
        self.begin_as_owner().map(|owner| Entered(self, owner))
    }

    /// If the baton is biased to this thread, marks it as being at work; its owner word.
    #[inline(always)]
    fn begin_as_owner(&self) -> Option<u64> {
        // Relaxed: looked at again below, and other threads never write this one's token.
        let owner = self.owner.load(Ordering::Relaxed);
        if owner / BIASES as u64 != thread_token() {
            return None;
        }
        self.flag(owner).store(true, Ordering::Relaxed);
        // SYNC bias: pairs with the heavy fence in `revoke`.
        light_fence();
        if self.owner.load(Ordering::Relaxed) == owner {
            return Some(owner);
        }
        self.end_as_owner(owner);
        None
    }

    #[inline(always)]
    fn flag(&self, owner: u64) -> &AtomicBool {
        &self.active[owner as usize % BIASES]
    }

    #[inline(always)]
    fn end_as_owner(&self, owner: u64) {
        // SYNC bias-left: pairs with the loads in `revoke`.
        self.flag(owner).store(false, Ordering::Release);
        // SYNC asleep: pairs with WaitCell::prepare in `revoke`.
        light_fence();
        if self.owner.load(Ordering::Relaxed) != owner {
            self.left.wake();
        }
    }

    #[cold]
    fn end_with_errands(&self, owner: u64) {
        let mut errands = T::Errands::default();
        self.take_errands(&mut errands);
        self.end_as_owner(owner);
        T::run_errands(errands);
    }

    /// Makes the calling thread the holder, if the baton is biased.
    #[cold]
    fn revoke(&self) -> bool {
        if self.owner.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // SYNC bias-left: pairs with the swap in `bias`.
        let owner = self.owner.swap(0, Ordering::AcqRel);
        if owner == 0 {
            return false;
        }
        let active = self.flag(owner);
        // SYNC bias: pairs with `begin_as_owner`.
        heavy_fence();
        let mut looks = 0;
        // SYNC bias-left: pairs with `end_as_owner`.
        while active.load(Ordering::Acquire) {
            looks += 1;
            if looks < SPINS {
                spin_loop();
                continue;
            }
            self.left.prepare(Waiter::this_thread());
            if active.load(Ordering::Acquire) {
                park();
            }
        }
        self.left.cancel(|_| true);
        // SAFETY: this thread is the holder now.
        self.guarded.with_mut(|shared| unsafe {
            (*shared).streak = 0;
            (*shared).bias_after = ((*shared).bias_after * 2).min(BIAS_AFTER_MOST);
        });
        true
    }

    /// Leaves the baton biased to `owner`, this thread, which is the holder. False if jobs have
    /// come, which the thread has still to do.
    #[cold]
    fn bias(&self, owner: u64) -> bool {
        // SYNC bias-left: pairs with the swap in `revoke`. (A swap, so that the changes of `owner`
        // are one chain.)
        self.owner.swap(owner, Ordering::AcqRel);
        // SYNC bias-set: pairs with `revoke_for_job`.
        fence(Ordering::SeqCst);
        if self.word.load(Ordering::Relaxed) == held(ptr::null_mut()) {
            return true;
        }
        // Whoever left a job may have revoked the bias already. Then that thread is the holder, or
        // somebody after it, to whom the baton may even be biased by now.
        self.owner.compare_exchange(owner, 0, Ordering::AcqRel, Ordering::Relaxed).is_err()
    }

    /// After a job was left: makes sure that somebody does it.
    fn revoke_for_job(&self) -> bool {
        // SYNC bias-set: pairs with `bias`.
        fence(Ordering::SeqCst);
        self.revoke()
    }

    /// The same, if the baton is free or becomes free while this thread spins a little; gives the
    /// work back if not. A sequencer never makes anybody wait for long, so it is asked at once.
    ///
    /// # Errors
    /// The work, not done.
    #[inline]
    pub fn try_run<R: Send, F: FnOnce(&mut T) -> R + Send>(&self, work: F) -> Result<R, F> {
        if self.sequencer.get().is_some() {
            return Ok(self.run_contended(work));
        }
        if let Some(owner) = self.enter() {
            return Ok(owner.run(work));
        }
        if self.try_take() || self.spin_and_take() {
            Ok(self.run_as_holder(work))
        } else {
            Err(work)
        }
    }

    #[inline]
    fn try_take(&self) -> bool {
        // SYNC baton-passed: pairs with the swap in `let_go`.
        self.word
            .compare_exchange(
                ptr::null_mut(),
                held(ptr::null_mut()),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    #[cold]
    fn spin_and_take(&self) -> bool {
        if self.revoke() {
            return true;
        }
        for _ in 0..SPINS {
            // Looks before it swaps: a failing swap would take the line from the holder.
            if self.word.load(Ordering::Relaxed).is_null() && self.try_take() {
                return true;
            }
            spin_loop();
        }
        false
    }

    #[inline(never)]
    fn run_as_holder<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        /// Lets go also when `work` unwinds.
        struct Leaving<'a, T: Guarded>(&'a Baton<T>);
        impl<T: Guarded> Drop for Leaving<'_, T> {
            fn drop(&mut self) {
                self.0.leave_baton();
            }
        }
        let leaving = Leaving(self);
        // SAFETY: this thread holds the baton.
        let result = self.guarded.with_mut(|shared| work(unsafe { &mut (*shared).value }));
        drop(leaving);
        result
    }

    /// Does what others left, lets go, and then runs the errands.
    #[inline]
    fn leave_baton(&self) {
        let mut errands = T::Errands::default();
        self.take_errands(&mut errands);
        if !self.let_go() {
            self.serve(&mut errands);
        }
        T::run_errands(errands);
    }

    #[inline]
    fn take_errands(&self, errands: &mut T::Errands) {
        // SAFETY: this thread holds the baton.
        self.guarded.with_mut(|shared| unsafe { (*shared).value.take_errands(errands) });
    }

    /// Lets the baton go, or keeps it by a bias; false if there are jobs to be done first.
    #[inline]
    fn let_go(&self) -> bool {
        let me = thread_token();
        // SAFETY: this thread holds the baton.
        let (busy, owner) = self.guarded.with_mut(|shared| unsafe {
            let shared = &mut *shared;
            shared.streak = if shared.last == me { shared.streak.saturating_add(1) } else { 0 };
            shared.last = me;
            let earned = shared.streak >= shared.bias_after && self.sequencer.get().is_none();
            (!shared.backlog.is_null(), if earned { shared.owner_word(me) } else { None })
        });
        if busy {
            return false;
        }
        if let Some(owner) = owner {
            return self.bias(owner);
        }
        // SYNC baton-passed: pairs with the swap in `try_take`.
        self.word
            .compare_exchange(
                held(ptr::null_mut()),
                ptr::null_mut(),
                Ordering::Release,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Does the jobs of others until none is left, or hands the baton on.
    #[cold]
    fn serve(&self, errands: &mut T::Errands) {
        let mut served = 0;
        loop {
            while let Some(job) = self.next_job() {
                // Others ask for it: no bias.
                // SAFETY: jobs in the list are alive until they are done; the baton is held.
                let grant = unsafe { (*job).grant };
                // SAFETY: the baton is held.
                self.guarded.with_mut(|shared| unsafe { (*shared).last = 0 });
                if let (true, Some(grant)) = (served >= FAIR, grant) {
                    self.take_errands(errands);
                    // SAFETY: the job waits; its owner takes the baton over.
                    unsafe { grant(job) };
                    return;
                }
                served += 1;
                self.perform(job);
            }
            self.take_errands(errands);
            if self.let_go() {
                return;
            }
        }
    }

    /// The oldest job that was left.
    fn next_job(&self) -> Option<*mut Job<T>> {
        // SAFETY: this thread holds the baton.
        self.guarded.with_mut(|shared| unsafe {
            let backlog = &raw mut (*shared).backlog;
            if (*backlog).is_null() {
                // SYNC job-left: pairs with the swap in `leave_job`.
                let mut newest = job_of(self.word.swap(held(ptr::null_mut()), Ordering::Acquire));
                // The stack has the newest on top: turn it over.
                while !newest.is_null() {
                    let next = (*newest).next.with_mut(|next| next.replace(*backlog));
                    *backlog = newest;
                    newest = next;
                }
            }
            let job = *backlog;
            if job.is_null() {
                return None;
            }
            *backlog = (*job).next.with_mut(|next| *next);
            Some(job)
        })
    }

    /// Leaves `job` in the list. True if the baton was free and now belongs to whoever calls: the
    /// job then is not in the list; with a sequencer it is, and the sequencer has been woken.
    fn leave_job(&self, job: *mut Job<T>) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let sequencer = self.sequencer.get();
            let (next, wake) = match (word.is_null(), sequencer) {
                (true, None) => {
                    if self.try_take() {
                        return true;
                    }
                    word = self.word.load(Ordering::Relaxed);
                    continue;
                }
                (true, Some(sequencer)) => (ptr::null_mut(), Some(sequencer)),
                (false, _) => (job_of(word), None),
            };
            // SAFETY: the job is not in the list yet.
            unsafe { (*job).next.with_mut(|slot| *slot = next) };
            // SYNC job-left: pairs with the swap in `next_job`. Also baton-passed: a sequencer
            // that is given the free baton this way continues from the holder who freed it.
            match self.word.compare_exchange(word, held(job), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    if let Some(sequencer) = wake {
                        sequencer.unpark();
                    }
                    return false;
                }
                Err(now) => word = now,
            }
        }
    }

    #[cold]
    fn run_contended<R: Send, F: FnOnce(&mut T) -> R + Send>(&self, work: F) -> R {
        match self.sequencer.get() {
            None if self.spin_and_take() => return self.run_as_holder(work),
            // An errand of the sequencer's own: between its jobs nobody else can hold.
            Some(sequencer) if sequencer.id() == current_thread().id() => {
                // SAFETY: this is the only thread that ever holds, and it is not inside a job.
                return self.guarded.with_mut(|shared| work(unsafe { &mut (*shared).value }));
            }
            _ => {}
        }
        let waited = WaitedJob::<T, F, R> {
            job: Job {
                next: UnsafeCell::new(ptr::null_mut()),
                perform: WaitedJob::<T, F, R>::perform,
                grant: Some(WaitedJob::<T, F, R>::grant),
            },
            state: AtomicU32::new(WAITING),
            thread: UnsafeCell::new(None),
            work: UnsafeCell::new(Some(work)),
            result: UnsafeCell::new(None),
        };
        let job = (&raw const waited).cast_mut().cast::<Job<T>>();
        // This frame stays until the job is done: nothing below returns or unwinds before that.
        let mut is_holder = self.leave_job(job);
        if !is_holder {
            if self.revoke_for_job() {
                // The job is in the list that this thread now has to serve.
                self.leave_baton();
            }
            is_holder = waited.wait() == GRANTED;
        }
        if is_holder {
            // SAFETY: as the holder, or as the owner of a job that is in no list, this thread
            // alone reaches the job.
            let work = waited.work.with_mut(|work| unsafe { (*work).take() });
            return self.run_as_holder(work.unwrap_or_else(|| unreachable!("a job runs once")));
        }
        // SAFETY: the job is done: this thread alone reaches it.
        let result = waited.result.with_mut(|result| unsafe { (*result).take() });
        match result {
            Some(Ok(result)) => result,
            Some(Err(panic)) => resume_unwind(panic),
            None => unreachable!("a job that is done has a result"),
        }
    }

    /// Leaves `work` to be run soon, and does not wait for it: on this thread, if the baton is
    /// free, else on the holder's.
    pub fn leave<F: FnOnce(&mut T) + Send + 'static>(&self, work: F) {
        let own = Box::new(OwnJob {
            job: Job {
                next: UnsafeCell::new(ptr::null_mut()),
                perform: OwnJob::<T, F>::perform,
                grant: None,
            },
            work,
        });
        let job = Box::into_raw(own).cast::<Job<T>>();
        if self.leave_job(job) {
            // SAFETY: the job is in no list; it was boxed as this type just above.
            let own = unsafe { Box::from_raw(job.cast::<OwnJob<T, F>>()) };
            self.run_as_holder(own.work);
        } else if self.revoke_for_job() {
            self.leave_baton();
        }
    }

    /// Makes the calling thread the only one that ever holds: whoever has a job gives it to this
    /// thread, which does them in [`sequence`](Self::sequence). To be called before the baton is
    /// used by anybody else.
    ///
    /// # Panics
    /// If there is a sequencer already.
    pub fn become_sequencer(&self) {
        let first = self.sequencer.set(current_thread()).is_ok();
        assert!(first, "a baton has one sequencer");
    }

    /// The sequencer's loop: does what is left until `stop` says so while nothing is left. Calls
    /// `idle` with whether it has just worked; if not, that may spin, and may park: a job unparks
    /// this thread.
    pub fn sequence(&self, mut idle: impl FnMut(bool), stop: impl Fn() -> bool) {
        loop {
            // SYNC baton-passed, job-left: the baton comes with the first job.
            if self.word.load(Ordering::Acquire).is_null() {
                if !stop() {
                    idle(false);
                    continue;
                }
                // Looked at once more: what was left before the word to stop came is still done.
                if self.word.load(Ordering::Acquire).is_null() {
                    return;
                }
            }
            while !self.let_go() {
                for _ in 0..FAIR {
                    let Some(job) = self.next_job() else { break };
                    self.perform(job);
                }
                // Errands run between jobs, or a steady stream of jobs would put them off for
                // ever. They may come back to the baton: see `run_contended`.
                let mut errands = T::Errands::default();
                self.take_errands(&mut errands);
                T::run_errands(errands);
            }
            idle(true);
        }
    }

    fn perform(&self, job: *mut Job<T>) {
        // SAFETY: jobs in the list are alive until they are done, and this thread holds the baton.
        // A job catches its own panics.
        self.guarded.with_mut(|shared| unsafe { ((*job).perform)(job, &mut (*shared).value) });
    }
}

impl<T, F: FnOnce(&mut T) -> R, R> WaitedJob<T, F, R> {
    /// # Safety
    /// `job` is the head of a `Self` that is alive; the caller holds the baton over `guarded`.
    unsafe fn perform(job: *mut Job<T>, guarded: &mut T) {
        let this = job.cast::<Self>();
        // SAFETY: the owner waits, so the holder alone reaches the job until it is told.
        unsafe {
            let work = (*this).work.with_mut(|work| (*work).take());
            if let Some(work) = work {
                let result = catch_unwind(AssertUnwindSafe(|| work(guarded)));
                (*this).result.with_mut(|slot| *slot = Some(result));
            }
            Self::tell(this, DONE);
        }
    }

    /// # Safety
    /// `job` is the head of a `Self` that is alive; the caller gives its baton away.
    unsafe fn grant(job: *mut Job<T>) {
        // SAFETY: passed on.
        unsafe { Self::tell(job.cast::<Self>(), GRANTED) };
    }

    /// Tells the owner; the job may be gone when this returns.
    unsafe fn tell(this: *mut Self, outcome: u32) {
        // SAFETY: alive until the state below is stored.
        let state = unsafe { &(*this).state };
        // SYNC job-done: pairs with the loads in `wait`.
        if state.compare_exchange(WAITING, outcome, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return;
        }
        // The owner has parked: its thread must be fetched before it may go.
        // SAFETY: PARKED was stored after the thread, and the owner touches it no more.
        let thread = unsafe { (*this).thread.with_mut(|thread| (*thread).take()) };
        state.store(outcome, Ordering::Release);
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    /// Waits until the job is done or the baton is granted; says which.
    fn wait(&self) -> u32 {
        // SYNC job-done: pairs with `tell`.
        for _ in 0..SPINS * 4 {
            let state = self.state.load(Ordering::Acquire);
            if state != WAITING {
                return state;
            }
            spin_loop();
        }
        // SAFETY: the holder reads it only after PARKED.
        self.thread.with_mut(|thread| unsafe { *thread = Some(current_thread()) });
        let parked =
            self.state.compare_exchange(WAITING, PARKED, Ordering::AcqRel, Ordering::Acquire);
        if let Err(state) = parked {
            return state;
        }
        loop {
            park();
            let state = self.state.load(Ordering::Acquire);
            if state != PARKED {
                return state;
            }
        }
    }
}

impl<T, F: FnOnce(&mut T)> OwnJob<T, F> {
    /// # Safety
    /// `job` is the head of a boxed `Self` that nobody else owns.
    unsafe fn perform(job: *mut Job<T>, guarded: &mut T) {
        // SAFETY: passed on.
        let own = unsafe { Box::from_raw(job.cast::<Self>()) };
        // Nobody waits who could be told of a panic; the job's own result says that it was not
        // done when it is dropped.
        drop(catch_unwind(AssertUnwindSafe(|| (own.work)(guarded))));
    }
}
