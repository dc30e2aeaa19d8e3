//! Delivery workers: the threads that run handlers.
//!
//! A handler subscription is a [`Task`]. Arrivals queue it, a worker takes it from the queue and
//! runs its handler over what has come, and goes back for the next. A task is with one worker at a
//! time, so its messages are handled in order.
//!
//! The queue is one for all workers. So a handler that blocks holds up its own worker and nobody
//! else's messages, as long as another worker is free; where none is, the supervisor sees within
//! [`STALL`] that the queue does not move, and starts another worker, which leaves again when it
//! is not needed.
//!
//! What goes [around](Around) a task goes around all tasks that have it and that come next in the
//! queue. So a worker that has taken the lock of an interpreter goes on for as long as there is
//! something to do with it, and does not pass it to and fro with whoever else waits for it.
//!
//! | state of a task | who moves it on |
//! |---|---|
//! | idle: waits for arrivals | whoever brings them, to queued |
//! | queued | the worker that takes it, to running |
//! | running | its worker, to idle or queued |
//! | running, with news | its worker, to queued |
//! | ended: unsubscribed or closed | nobody |

use crate::acks::Acks;
use crate::agenda::Agenda;
use crate::around::Around;
use crate::breaker::{Breaker, BreakerState};
use crate::clock::Clock;
use crate::config::{CircuitBreaker, WaitStrategy};
use crate::contain::contain;
use crate::handler::{Handler, Run};
use crate::handler_error::Listeners;
use crate::idle::Idle;
use crate::inbox::{Inbox, InboxState};
use crate::inside;
use crate::lane::Next;
use crate::receiver::Receiver;
use crate::sync::{Arc, AtomicBool, AtomicU8, AtomicU64, Counter, Ordering};
use crate::threads;
use crate::wait::{Schedule, Waiter};
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long queued work may wait before another worker is started.
const STALL: Duration = Duration::from_millis(10);

/// Workers that are started at a time: what waits may get stuck as well.
const BURST: usize = 8;

/// Workers there can be, however many handlers block.
const MAX_WORKERS: usize = 512;

/// Messages a task handles before others get their turn.
const SLICE: usize = 256;

/// Looks in vain at a task's inbox before its worker leaves it.
const LINGER: u32 = 200;

/// How long a worker stays inside one call of what goes around tasks.
const STAY: Duration = Duration::from_millis(2);

/// How long a task rests when the store cannot be read.
const UNREADABLE: Duration = Duration::from_secs(1);

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const ACTIVE: u8 = 2;
const ACTIVE_WITH_NEWS: u8 = 3;
const ENDED: u8 = 4;

/// What belongs to whoever runs a task.
struct Running {
    receiver: Receiver,
    handler: Box<dyn Handler>,
    listeners: Listeners,
    breaker: Breaker,
    /// Dedicated threads wait by themselves.
    idle: Idle,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("receiver", &self.receiver).finish_non_exhaustive()
    }
}

/// A handler subscription.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) acks: Option<Arc<Acks>>,
    pool: std::sync::Weak<Workers>,
    around: Option<Around>,
    state: AtomicU8,
    /// Taken by whoever made the state ACTIVE; `None` when the task has ended for good.
    running: Mutex<Option<Running>>,
    /// Whether what it was running with has been dropped, and where that is waited for.
    is_dropped: Mutex<bool>,
    dropped: Condvar,
    pub(crate) failures: Counter,
    pub(crate) panics: Counter,
    pub(crate) breaker: AtomicU8,
}

/// Handlers' panics are caught inside, so no lock is ever poisoned by user code.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a handler subscription is set up.
pub(crate) struct TaskConfig {
    pub(crate) handler: Box<dyn Handler>,
    pub(crate) listeners: Listeners,
    pub(crate) around: Option<Around>,
    pub(crate) breaker: Option<CircuitBreaker>,
    pub(crate) wait: WaitStrategy,
}

impl Task {
    pub(crate) fn new(receiver: Receiver, config: TaskConfig, pool: &Arc<Workers>) -> Arc<Self> {
        Arc::new(Self {
            inbox: Arc::clone(&receiver.inbox),
            acks: receiver.acked.as_ref().map(|acked| Arc::clone(&acked.acks)),
            pool: Arc::downgrade(pool),
            around: config.around,
            state: AtomicU8::new(IDLE),
            running: Mutex::new(Some(Running {
                idle: Idle::for_queue(config.wait, receiver.inbox.capacity),
                receiver,
                handler: config.handler,
                listeners: config.listeners,
                breaker: Breaker::new(config.breaker),
            })),
            is_dropped: Mutex::new(false),
            dropped: Condvar::new(),
            failures: Counter::default(),
            panics: Counter::default(),
            breaker: AtomicU8::new(BreakerState::Closed as u8),
        })
    }

    pub(crate) fn breaker_state(&self) -> BreakerState {
        match self.breaker.load(Ordering::Relaxed) {
            0 => BreakerState::Closed,
            1 => BreakerState::Open,
            _ => BreakerState::HalfOpen,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        lock(&self.running)
    }

    /// Whether the calling thread is inside this task's handler.
    pub(crate) fn is_own_thread(&self) -> bool {
        inside::is_inside(self.inbox.id)
    }

    /// Ends the task: its handler does not run any more when this returns, except when it is the
    /// handler that calls; then it does not run again. It has been dropped as well, except when a
    /// handler calls: that must not wait for what was captured, which may be waiting for it. False
    /// if it was still running at `deadline`.
    pub(crate) fn end(&self, deadline: Option<Instant>) -> bool {
        self.inbox.advance(InboxState::Ended);
        self.inbox.wake_all();
        if self.is_own_thread() {
            // Its worker looks at the inbox's state when the handler has returned.
            return true;
        }
        let running = loop {
            match self.running.try_lock() {
                Ok(running) => break running,
                Err(std::sync::TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(std::sync::TryLockError::WouldBlock) => {
                    if !self.wait_for_handler(deadline) {
                        return false;
                    }
                }
            }
        };
        self.finish(running);
        inside::is_inside_any() || self.wait_for_drop(deadline)
    }

    /// Waits until what the task was running with has been dropped, perhaps by another thread.
    fn wait_for_drop(&self, deadline: Option<Instant>) -> bool {
        let mut is_dropped = lock(&self.is_dropped);
        while !*is_dropped {
            is_dropped = match deadline.map(|d| d.saturating_duration_since(Instant::now())) {
                None => self.dropped.wait(is_dropped).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return false,
                Some(left) => {
                    let waited = self.dropped.wait_timeout(is_dropped, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }

    /// Waits until the task's worker lets go of it.
    fn wait_for_handler(&self, deadline: Option<Instant>) -> bool {
        let Some(deadline) = deadline else {
            drop(self.lock());
            return true;
        };
        // Whichever thread has the lock tells when it has let go of it: a worker after every task
        // that is not open any more, a dedicated thread when it ends.
        let free = || !matches!(self.running.try_lock(), Err(std::sync::TryLockError::WouldBlock));
        match self.pool.upgrade() {
            Some(pool) => pool.wait_until(deadline, |_| free()),
            None => free(),
        }
    }

    /// Drops what the task was running with: queued messages are thrown away, the handler dropped.
    /// Without the lock: what a handler has captured may wait for another one, which may be ending
    /// this task.
    fn finish(&self, mut running: MutexGuard<'_, Option<Running>>) {
        self.state.store(ENDED, Ordering::Release);
        let ended = running.take();
        drop(running);
        if let Some(mut ended) = ended {
            // What the handler has captured may end subscriptions when it is dropped, this one too.
            let _inside = inside::Inside::enter(self.inbox.id);
            ended.receiver.discard();
            // What panics when it is dropped harms nobody else, nor what is dropped with it.
            let Running { handler, listeners, .. } = ended;
            let quiet = contain(|| drop(handler)) & listeners.release();
            if !quiet {
                tracing::error!(
                    subscription = self.inbox.number,
                    "what a handler captured panicked"
                );
            }
            *lock(&self.is_dropped) = true;
            self.dropped.notify_all();
        }
    }

    /// Handles up to a slice of messages; what to do with the task next.
    fn run(self: &Arc<Self>, clock: &Clock, most: usize) -> After {
        let mut guard = self.lock();
        let mut after = After::More;
        if let Some(running) = guard.as_mut() {
            match running.breaker.admits(clock.now(), most) {
                Ok(admitted) => after = self.handle_up_to(admitted, running, clock),
                Err(until) => after = After::Pause(until),
            }
            self.breaker.store(running.breaker.state() as u8, Ordering::Relaxed);
        }
        // Also where that was the last message there is: somebody waits for the handler's end.
        if guard.is_none() || self.inbox.state() == InboxState::Ended {
            self.finish(guard);
            self.inbox.wake_all();
            return After::Ended;
        }
        after
    }

    /// Handles what there is, inside what goes around that.
    fn run_inside(self: &Arc<Self>, around: &Around, pool: &Workers) -> After {
        if !self.is_ready() {
            return After::Empty(0);
        }
        // To get inside may take long, and to leave as well.
        pool.tell_free(self);
        let mut after = After::More;
        around.call(self.inbox.number, &mut || {
            // Counted from here: it may have taken long to get inside.
            let until = Instant::now() + STAY;
            after = self.run(&pool.clock, SLICE);
            while after == After::More && Instant::now() < until {
                after = self.run(&pool.clock, SLICE);
            }
            pool.tell_free(self);
        });
        after
    }

    /// Whether running it is not for nothing.
    fn is_ready(&self) -> bool {
        if self.inbox.state() == InboxState::Ended {
            return true;
        }
        self.lock().as_mut().is_none_or(|running| {
            let is_empty = running.receiver.is_empty();
            if is_empty {
                running.receiver.leave();
            }
            !is_empty
        })
    }

    /// Handles up to `most` messages, as long as the subscription has not ended.
    fn handle_up_to(&self, most: usize, running: &mut Running, clock: &Clock) -> After {
        let mut left = most;
        let mut after = After::More;
        self.breaker.store(running.breaker.state() as u8, Ordering::Relaxed);
        let _inside = inside::Inside::enter(self.inbox.id);
        while left > 0 && self.inbox.state() != InboxState::Ended {
            let mut run = Run::default();
            let Running { receiver, handler, .. } = running;
            let ended = catch_unwind(AssertUnwindSafe(|| handler.run(receiver, left, &mut run)));
            left -= run.count;
            let (instead, panic) = match ended {
                Ok(ended) => (ended.err(), None),
                Err(panic) if run.count > 0 => (None, Some(panic)),
                Err(panic) => resume_unwind(panic), // No handler's.
            };
            if !self.note(run, panic, running, clock) {
                break;
            }
            match instead {
                None => {}
                Some(Next::Lagged(lost)) => running.listeners.lagged(self.inbox.number, lost),
                Some(Next::Failed(fault)) => {
                    running.listeners.unreadable(self.inbox.number, Some(fault));
                    after = After::Pause(clock.now() + UNREADABLE);
                    break;
                }
                Some(_) => {
                    // All shards have been looked at since.
                    running.listeners.unreadable(self.inbox.number, None);
                    running.receiver.leave();
                    after = After::Empty(most - left);
                    break;
                }
            }
        }
        running.receiver.end_slice();
        after
    }

    /// Takes note of what the handler has made of messages, the last of which may have failed: that is a
    /// reason to try again where it panicked. False if its breaker says to pause.
    fn note(
        &self,
        mut run: Run,
        panic: Option<Box<dyn Any + Send>>,
        running: &mut Running,
        clock: &Clock,
    ) -> bool {
        let Running { receiver, listeners, breaker, .. } = running;
        if let Some(panic) = panic {
            run.panic_with_last(panic);
        }
        self.failures.add(run.count_failed() as u64);
        self.panics.add(u64::from(run.panicked));
        run.note(self.inbox.number, receiver, listeners, breaker, clock)
    }

    /// Goes to sleep until something arrives; false if it has already.
    fn sleep(self: &Arc<Self>) -> bool {
        self.inbox.await_arrivals(Waiter::Work(Arc::clone(self) as _));
        if !self.has_nothing() || self.inbox.state() == InboxState::Ended {
            self.inbox.arrivals.cancel(|waiter| matches!(waiter, Waiter::Work(_)));
            return false;
        }
        // What has come meanwhile has queued the task, or left word.
        self.state.compare_exchange(ACTIVE, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether nothing has come; then it is woken for what becomes due by itself.
    fn has_nothing(&self) -> bool {
        self.lock().as_mut().is_none_or(|running| {
            running.receiver.set_alarm();
            running.receiver.is_empty()
        })
    }

    /// The loop of a handler that has a thread of its own.
    pub(crate) fn run_dedicated(self: &Arc<Self>, pool: &Workers) {
        let clock = &pool.clock;
        loop {
            // Asked before the look that finds it empty: then nothing comes any more.
            let closed = self.inbox.state() == InboxState::Closed;
            let after = match &self.around {
                None => self.run(clock, SLICE),
                Some(around) => self.run_inside(around, pool),
            };
            match after {
                After::Ended => return,
                After::More => {}
                After::Pause(until) => self.pause(clock, until),
                After::Empty(handled) => {
                    if closed {
                        return self.finish(self.lock());
                    }
                    let park = self.lock().as_mut().is_some_and(|running| {
                        running.idle.found(handled);
                        running.idle.pause()
                    });
                    if park {
                        self.inbox.await_arrivals(Waiter::this_thread());
                        if self.has_nothing() && self.inbox.state() == InboxState::Open {
                            thread::park();
                        }
                        let me = thread::current().id();
                        self.inbox.arrivals.cancel(
                            |waiter| matches!(waiter, Waiter::Thread(other) if other.id() == me),
                        );
                    }
                    continue;
                }
            }
            if let Some(running) = self.lock().as_mut() {
                running.idle.found(SLICE);
            }
        }
    }

    /// Parks the dedicated thread until `until`, or until the subscription ends.
    fn pause(&self, clock: &Clock, until: Duration) {
        let me = thread::current();
        self.inbox.space.prepare(Waiter::Thread(me.clone()));
        if self.inbox.state() != InboxState::Ended {
            clock.park_until(Some(until));
        }
        self.inbox
            .space
            .cancel(|waiter| matches!(waiter, Waiter::Thread(other) if other.id() == me.id()));
    }

    /// Whether nothing is queued for it and its handler does not run.
    pub(crate) fn is_drained(&self) -> bool {
        match self.running.try_lock() {
            Ok(mut running) => running.as_mut().is_none_or(|running| running.receiver.is_empty()),
            Err(_) => false,
        }
    }
}

impl Schedule for Task {
    fn schedule(self: Arc<Self>) {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            let next = match state {
                IDLE => QUEUED,
                ACTIVE => ACTIVE_WITH_NEWS,
                _ => return,
            };
            match self.state.compare_exchange(state, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if next == QUEUED => {
                    if let Some(pool) = self.pool.upgrade() {
                        pool.push(self);
                    }
                    return;
                }
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
    }
}

/// What a worker does with a task that it has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// There is more: queue it again.
    More,
    /// All that had come was handled: so many.
    Empty(usize),
    /// Its breaker is open until then.
    Pause(Duration),
    Ended,
}

/// The pool of delivery workers, with its supervisor.
#[derive(Debug)]
pub(crate) struct Workers {
    queue: Mutex<Queue>,
    /// Told when there is work, or when it is time to stop.
    work: Condvar,
    clock: Clock,
    /// Workers that are always there.
    base: usize,
    /// Index into the allowed CPUs of the first worker, if they are to be pinned.
    pin_first: Option<usize>,
    /// Tasks in the queue; read without the lock by workers that linger.
    queued: AtomicU64,
    stopping: AtomicBool,
    supervisor: std::sync::OnceLock<Thread>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Threads that have not ended.
    alive: Mutex<usize>,
    /// Told when a thread ends, and when a worker lets go of a task that is not open any more.
    progress: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    tasks: VecDeque<Arc<Task>>,
    /// Since when the oldest of them has waited.
    waiting_since: Option<Instant>,
    /// Tasks whose breaker is open, by when to try them.
    paused: Agenda<Arc<Task>>,
    /// Whether the supervisor looks again within [`STALL`] by itself.
    is_watched: bool,
    workers: usize,
    idle: usize,
    started: usize,
}

impl Workers {
    /// Starts `base` workers and their supervisor.
    ///
    /// # Errors
    /// What the system says when it has no thread left.
    pub(crate) fn start(
        base: usize,
        pin_first: Option<usize>,
        clock: Clock,
    ) -> std::io::Result<Arc<Self>> {
        let pool = Arc::new(Self {
            queue: Mutex::default(),
            work: Condvar::new(),
            clock,
            base,
            pin_first,
            queued: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            supervisor: std::sync::OnceLock::new(),
            threads: Mutex::default(),
            alive: Mutex::default(),
            progress: Condvar::new(),
        });
        let supervisor = pool.spawn("slipring-supervisor".into(), Self::supervise)?;
        // Set before any work can be pushed.
        let _ = pool.supervisor.set(supervisor);
        for _ in 0..base {
            if let Err(error) = pool.start_worker() {
                pool.stop(Instant::now());
                return Err(error);
            }
        }
        Ok(pool)
    }

    /// Starts a thread and keeps count of it.
    fn spawn(
        self: &Arc<Self>,
        name: String,
        work: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> std::io::Result<Thread> {
        *self.alive() += 1;
        let pool = Arc::clone(self);
        let spawned = threads::spawn(name, move || {
            /// Counts the thread as gone, however it goes.
            struct Leaving(Arc<Workers>);
            impl Drop for Leaving {
                fn drop(&mut self) {
                    *self.0.alive() -= 1;
                    self.0.progress.notify_all();
                }
            }
            let leaving = Leaving(pool);
            work(&leaving.0);
        });
        match spawned {
            Ok(handle) => {
                let thread = handle.thread().clone();
                let mut threads =
                    self.threads.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                threads.retain(|thread| !thread.is_finished());
                threads.push(handle);
                Ok(thread)
            }
            Err(error) => {
                *self.alive() -= 1;
                Err(error)
            }
        }
    }

    fn alive(&self) -> MutexGuard<'_, usize> {
        self.alive.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits until `done`, asked whenever something has moved, or until `deadline`.
    pub(crate) fn wait_until(&self, deadline: Instant, done: impl Fn(usize) -> bool) -> bool {
        let mut alive = self.alive();
        loop {
            if done(*alive) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            alive = match self.progress.wait_timeout(alive, left) {
                Ok((alive, _)) => alive,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No foreign code runs under this lock.
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn start_worker(self: &Arc<Self>) -> std::io::Result<()> {
        let number = {
            let mut queue = self.lock();
            queue.workers += 1;
            queue.started += 1;
            queue.started - 1
        };
        let started = self.spawn(format!("slipring-{number}"), move |pool| {
            if let Some(first) = pool.pin_first {
                crate::pin::pin_current_thread(first + number % pool.base);
            }
            pool.work();
        });
        if started.is_err() {
            self.lock().workers -= 1;
        }
        started.map(drop)
    }

    /// Starts a thread for one handler alone.
    pub(crate) fn start_dedicated(self: &Arc<Self>, task: Arc<Task>) -> std::io::Result<()> {
        let name = format!("slipring-handler-{}", task.inbox.number);
        self.spawn(name, move |pool| task.run_dedicated(pool)).map(drop)
    }

    /// Queues a task whose state is QUEUED.
    fn push(&self, task: Arc<Task>) {
        let mut queue = self.lock();
        queue.tasks.push_back(task);
        queue.waiting_since.get_or_insert_with(Instant::now);
        self.queued.store(queue.tasks.len() as u64, Ordering::Relaxed);
        // Idle workers have perhaps been notified already, and not woken up yet.
        let unwatched = queue.tasks.len() > queue.idle && !queue.is_watched;
        let somebody_waits = queue.idle > 0;
        drop(queue);
        if somebody_waits {
            self.work.notify_one();
        }
        if unwatched {
            self.call_supervisor();
        }
    }

    fn call_supervisor(&self) {
        if let Some(supervisor) = self.supervisor.get() {
            supervisor.unpark();
        }
    }

    /// A worker's loop.
    fn work(&self) {
        while let Some(task) = self.take() {
            match task.around.clone() {
                None => {
                    let after = self.run(&task);
                    self.leave(task, after);
                }
                Some(around) => self.run_around(task, &around),
            }
        }
    }

    /// Ends a worker's turn with a task, which came to `after`.
    fn leave(&self, task: Arc<Task>, after: After) {
        self.settle(Arc::clone(&task), after);
        self.tell_free(&task);
    }

    /// Tells whoever waits for the end of a task that its worker has let go of it.
    fn tell_free(&self, task: &Task) {
        // It may have found the task locked just now, and waits to look again. The lock orders that
        // look and this one: one of the two sees what the other did.
        drop(self.alive());
        if task.inbox.state() != InboxState::Open {
            self.progress.notify_all();
        }
    }

    /// The next task; `None` when the worker is to leave.
    fn take(&self) -> Option<Arc<Task>> {
        let mut queue = self.lock();
        loop {
            if let Some(task) = self.pop(&mut queue) {
                return Some(task);
            }
            let superfluous = queue.workers > self.base && queue.idle > 0;
            if self.stopping.load(Ordering::Acquire) || superfluous {
                queue.workers -= 1;
                return None;
            }
            queue.idle += 1;
            queue = self.work.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
            queue.idle -= 1;
        }
    }

    fn pop(&self, queue: &mut Queue) -> Option<Arc<Task>> {
        let task = queue.tasks.pop_front()?;
        queue.waiting_since = (!queue.tasks.is_empty()).then(Instant::now);
        self.queued.store(queue.tasks.len() as u64, Ordering::Relaxed);
        task.state.store(ACTIVE, Ordering::Release);
        Some(task)
    }

    /// The next task, if it can be run inside the call of `around` that the worker is in.
    fn take_inside(&self, around: &Around) -> Option<Arc<Task>> {
        let mut queue = self.lock();
        let next = queue.tasks.front().and_then(|task| task.around.as_ref());
        let shares = next.is_some_and(|next| next.is(around));
        if shares { self.pop(&mut queue) } else { None }
    }

    /// Runs a task and those behind it that share what goes around it, in as few calls of that as
    /// possible.
    fn run_around(&self, task: Arc<Task>, around: &Around) {
        let mut at_hand = Some(task);
        while let Some(task) = at_hand.clone() {
            if !task.is_ready() && !self.linger(&task) {
                return self.leave(task, After::Empty(0));
            }
            // To get inside may take long.
            self.tell_free(&task);
            if !around.call(task.inbox.number, &mut || self.run_inside(&mut at_hand, around)) {
                // Its turn comes again, and so do the others'.
                return at_hand.into_iter().for_each(|task| self.leave(task, After::More));
            }
        }
    }

    /// Runs the task at hand, and those behind it that share `around`, which this is called inside.
    /// What is at hand at the end is to be looked at again.
    fn run_inside(&self, at_hand: &mut Option<Arc<Task>>, around: &Around) {
        let until = Instant::now() + STAY;
        while let Some(task) = at_hand {
            let after = task.run(&self.clock, SLICE);
            let others_wait = self.queued.load(Ordering::Relaxed) > 0;
            match after {
                After::More if !others_wait => self.tell_free(task),
                After::Empty(_) if !others_wait => return self.tell_free(task),
                after => {
                    self.leave(Arc::clone(task), after);
                    *at_hand = self.take_inside(around);
                }
            }
            if Instant::now() >= until {
                return;
            }
        }
    }

    /// Waits a little for messages of a task that has none; whether there are some.
    fn linger(&self, task: &Task) -> bool {
        let mut idle = Idle::for_queue(WaitStrategy::BusySpin, task.inbox.capacity);
        for _ in 0..LINGER {
            if self.queued.load(Ordering::Relaxed) > 0 {
                return false;
            }
            idle.pause();
            if task.is_ready() {
                return true;
            }
        }
        false
    }

    /// Runs a task until it is empty and stays so for a little, or others wait.
    fn run(&self, task: &Arc<Task>) -> After {
        let mut idle = Idle::for_queue(WaitStrategy::BusySpin, task.inbox.capacity);
        let mut looks = 0;
        loop {
            match task.run(&self.clock, SLICE) {
                After::More => {
                    idle.found(SLICE);
                    looks = 0;
                    if self.queued.load(Ordering::Relaxed) > 0 {
                        return After::More;
                    }
                }
                After::Empty(handled)
                    if looks < LINGER && self.queued.load(Ordering::Relaxed) == 0 =>
                {
                    idle.found(handled);
                    looks = if handled > 0 { 0 } else { looks + 1 };
                    idle.pause();
                }
                after => return after,
            }
        }
    }

    fn settle(&self, task: Arc<Task>, after: After) {
        match after {
            After::Ended => {}
            After::More => self.requeue(task),
            After::Empty(_) => {
                if !task.sleep() && task.state.load(Ordering::Acquire) != ENDED {
                    self.requeue(task);
                }
            }
            After::Pause(until) => {
                // It stays ACTIVE, so arrivals do not queue it; the supervisor does.
                self.lock().paused.add(until, task);
                self.call_supervisor();
            }
        }
    }

    fn requeue(&self, task: Arc<Task>) {
        task.state.store(QUEUED, Ordering::Release);
        self.push(task);
    }

    /// The supervisor's loop: starts workers where work waits too long, and queues tasks whose
    /// pause is over. Sleeps as long as there is nothing of the kind.
    fn supervise(self: &Arc<Self>) {
        while !self.stopping.load(Ordering::Acquire) {
            let now = self.clock.now();
            let mut due = Vec::new();
            let (stalled, waiting, next_pause) = {
                let mut queue = self.lock();
                while let Some(task) = queue.paused.take_due(now) {
                    due.push(task);
                }
                let waited = queue.waiting_since.map(|since| since.elapsed());
                let short = queue.tasks.len().saturating_sub(queue.idle);
                let stalled = waited.is_some_and(|waited| waited >= STALL);
                queue.is_watched = short > 0 && waited.is_some();
                (
                    if stalled { short.min(BURST).min(MAX_WORKERS - queue.workers) } else { 0 },
                    queue.is_watched,
                    queue.paused.next(),
                )
            };
            let woken = !due.is_empty();
            for task in due {
                self.requeue(task);
            }
            for _ in 0..stalled {
                if let Err(error) = self.start_worker() {
                    tracing::error!(%error, "handlers block, and no worker can be started");
                    break;
                }
            }
            if woken {
                continue;
            }
            if waiting {
                thread::park_timeout(STALL);
            } else {
                self.clock.park_until(next_pause);
            }
        }
    }

    /// Stops all threads when they are done with what they are at; waits for those that are, until
    /// `deadline`. False if some thread is still inside a handler.
    pub(crate) fn stop(&self, deadline: Instant) -> bool {
        {
            let mut queue = self.lock();
            self.stopping.store(true, Ordering::Release);
            queue.paused.clear();
        }
        self.work.notify_all();
        self.call_supervisor();
        let threads = std::mem::take(
            &mut *self.threads.lock().unwrap_or_else(|poisoned| poisoned.into_inner()),
        );
        // Called from a handler, its own thread cannot be waited for.
        let me = thread::current().id();
        let own = threads.iter().filter(|handle| handle.thread().id() == me).count();
        let all = self.wait_until(deadline, |alive| alive <= own);
        for handle in threads {
            if handle.thread().id() != me && (all || handle.is_finished()) {
                drop(handle.join());
            }
        }
        all
    }
}
