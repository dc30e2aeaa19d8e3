//! The baton: every job runs exactly once, alone, and its result is its owner's.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use slipring::internals::{Baton, Guarded};
use slipring_loom_tests::check;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Counts jobs; each leaves an errand.
#[derive(Debug, Default)]
struct Count {
    jobs: u32,
    errands: Vec<Arc<AtomicU32>>,
}

impl Guarded for Count {
    type Errands = Vec<Arc<AtomicU32>>;

    fn has_errands(&self) -> bool {
        !self.errands.is_empty()
    }

    fn take_errands(&mut self, errands: &mut Self::Errands) {
        errands.append(&mut self.errands);
    }

    fn run_errands(errands: Self::Errands) {
        for errand in errands {
            errand.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Memory that goes with a job: written before it is left, by the job, and read afterwards.
struct Memory(UnsafeCell<u32>);

// SAFETY: who has the job has the memory; loom checks it.
unsafe impl Sync for Memory {}

impl Memory {
    fn new() -> Self {
        let memory = Self(UnsafeCell::new(1));
        memory.step(1);
        memory
    }

    /// Moves from `expected` to the next number.
    fn step(&self, expected: u32) {
        // SAFETY: as above.
        self.0.with_mut(|value| unsafe {
            assert_eq!(*value, expected);
            *value += 1;
        });
    }
}

fn run_one(baton: &Baton<Count>) -> u32 {
    let memory = Memory::new();
    let order = baton.run(|count| {
        memory.step(2);
        count.jobs += 1;
        count.jobs
    });
    memory.step(3);
    order
}

fn compete(threads: usize, rounds: usize, preemptions: usize) {
    check(preemptions, move || {
        let baton = Arc::new(Baton::new(Count::default()));
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let baton = Arc::clone(&baton);
                thread::spawn(move || (0..rounds).map(|_| run_one(&baton)).collect::<Vec<_>>())
            })
            .collect();
        let mut orders: Vec<u32> = (0..rounds).map(|_| run_one(&baton)).collect();
        for other in others {
            orders.extend(other.join().unwrap());
        }
        orders.sort_unstable();
        let all = (threads * rounds) as u32;
        assert_eq!(orders, (1..=all).collect::<Vec<_>>(), "each job ran once, alone");
        assert_eq!(baton.run(|count| count.jobs), all);
    });
}

#[test]
fn two_threads_lose_no_job() {
    compete(2, 2, 4);
}

/// With three, the holder serves one job and grants the baton to the owner of the next.
#[test]
fn three_threads_lose_no_job() {
    compete(3, 1, 3);
}

/// Each thread earns the bias whenever it comes twice in a row, and the others revoke it: also one
/// whose own bias was revoked while it was about to use it.
fn compete_for_the_bias(threads: usize, rounds: [usize; 3], preemptions: usize) {
    check(preemptions, move || {
        let baton = Arc::new(Baton::new(Count::default()));
        // Biased to this thread.
        assert_eq!((run_one(&baton), run_one(&baton)), (1, 2));
        let others: Vec<_> = (1..threads)
            .map(|thread| {
                let baton = Arc::clone(&baton);
                thread::spawn(move || {
                    (0..rounds[thread]).for_each(|_| _ = run_one(&baton));
                })
            })
            .collect();
        (0..rounds[0]).for_each(|_| _ = run_one(&baton));
        others.into_iter().for_each(|other| other.join().unwrap());
        let all = 2 + rounds[..threads].iter().sum::<usize>() as u32;
        assert_eq!(baton.run(|count| count.jobs), all, "each job ran once, alone");
    });
}

#[test]
fn a_revoked_owner_disturbs_no_later_one() {
    compete_for_the_bias(2, [1, 3, 0], 3);
}

#[test]
fn two_threads_take_the_bias_from_each_other() {
    compete_for_the_bias(2, [3, 3, 0], 2);
}

#[test]
fn three_threads_take_the_bias_from_each_other() {
    compete_for_the_bias(3, [1, 2, 1], 2);
}

/// A holder that leaves the baton biased finds a job: it serves only if the bias is still its own.
#[test]
fn a_bias_that_was_revoked_at_once_is_not_taken_back() {
    check(3, || {
        let baton = Arc::new(Baton::new(Count::default()));
        run_one(&baton);
        let others = [3, 1].map(|rounds| {
            let baton = Arc::clone(&baton);
            thread::spawn(move || (0..rounds).for_each(|_| _ = run_one(&baton)))
        });
        run_one(&baton);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(baton.run(|count| count.jobs), 6);
    });
}

#[test]
fn a_job_that_is_left_revokes_the_bias() {
    check(3, || {
        let baton = Arc::new(Baton::new(Count::default()));
        let theirs = Arc::clone(&baton);
        run_one(&baton);
        let other = thread::spawn(move || theirs.leave(|count| count.jobs += 1));
        (0..2).for_each(|_| _ = run_one(&baton));
        other.join().unwrap();
        assert_eq!(baton.run(|count| count.jobs), 4);
    });
}

/// A thread that parks may wake for no reason: it then looks whether its job is done.
#[test]
fn a_stray_wake_up_changes_nothing() {
    check(3, || {
        let baton = Arc::new(Baton::new(Count::default()));
        let owners = [0, 1].map(|_| {
            let baton = Arc::clone(&baton);
            thread::spawn(move || run_one(&baton))
        });
        // Loom lets a thread that joins be woken wrongly: this one wakes others, and parks nowhere.
        owners.iter().for_each(|owner| owner.thread().unpark());
        let mut orders = owners.map(|owner| owner.join().unwrap());
        orders.sort_unstable();
        assert_eq!(orders, [1, 2]);
    });
}

#[test]
fn a_job_that_nobody_waits_for_is_done() {
    check(3, || {
        let baton = Arc::new(Baton::new(Count::default()));
        let others = [0, 1].map(|_| {
            let baton = Arc::clone(&baton);
            thread::spawn(move || {
                let memory = Memory::new();
                baton.leave(move |count| {
                    memory.step(2);
                    count.jobs += 1;
                });
            })
        });
        run_one(&baton);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(baton.run(|count| count.jobs), 3);
    });
}

#[test]
fn errands_are_run_whoever_holds() {
    check(3, || {
        let baton = Arc::new(Baton::new(Count::default()));
        let done = Arc::new(AtomicU32::new(0));
        let others = [0, 1].map(|_| {
            let (baton, done) = (Arc::clone(&baton), Arc::clone(&done));
            thread::spawn(move || baton.run(|count| count.errands.push(done)))
        });
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(done.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_try_gives_the_work_back_or_does_it() {
    check(3, || {
        let baton = Arc::new(Baton::new(Count::default()));
        let theirs = Arc::clone(&baton);
        let other = thread::spawn(move || run_one(&theirs));
        let tried = baton.try_run(|count| count.jobs += 1).is_ok();
        other.join().unwrap();
        assert_eq!(baton.run(|count| count.jobs), 1 + u32::from(tried));
    });
}

#[test]
fn a_panic_goes_to_the_owner_of_the_job() {
    check(3, || {
        let baton = Arc::new(Baton::new(Count::default()));
        let theirs = Arc::clone(&baton);
        let other = thread::spawn(move || {
            // Not `panic!`, which would print every time.
            let work = || theirs.run(|_| resume_unwind(Box::new(17)));
            let panic = catch_unwind(AssertUnwindSafe(work)).unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&17));
        });
        run_one(&baton);
        other.join().unwrap();
        assert_eq!(run_one(&baton), 2, "the baton is free afterwards");
    });
}

/// As `SequencerThread` does it: one thread holds, parks when nothing is left, and stops when told.
#[test]
fn a_sequencer_does_every_job() {
    check(3, || {
        let baton = Arc::new(Baton::new(Count::default()));
        baton.become_sequencer();
        let stopped = Arc::new(AtomicU32::new(0));
        let errands = Arc::new(AtomicU32::new(0));
        let sequencer = thread::current();
        let others = [0, 1].map(|n| {
            let (baton, stopped) = (Arc::clone(&baton), Arc::clone(&stopped));
            let (sequencer, errands) = (sequencer.clone(), Arc::clone(&errands));
            thread::spawn(move || {
                if n == 0 {
                    run_one(&baton);
                } else {
                    baton.leave(|count| {
                        count.jobs += 1;
                        count.errands.push(errands);
                    });
                }
                stopped.fetch_add(1, Ordering::AcqRel);
                sequencer.unpark();
            })
        });
        baton.sequence(
            |worked| {
                if !worked {
                    thread::park();
                }
            },
            || stopped.load(Ordering::Acquire) == 2,
        );
        assert_eq!(errands.load(Ordering::Relaxed), 1, "errands are run between jobs");
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(baton.run(|count| count.jobs), 2);
    });
}
