//! The interpreter: it has to be the main one, and it ends, with brokers still open and handlers
//! still running.
//!
//! Brokers close when `atexit` says so, while their threads can still take the interpreter; after
//! that, none takes it any more. A handler that is still running then is left behind: where it next
//! needs the interpreter, that ends its thread by unwinding it, which must not reach the frames of
//! Rust.
#![expect(
    unsafe_code,
    reason = "asks for the interpreter's number, and makes calls that may unwind"
)]

use crate::broker::{Broker, Shared};
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyWeakrefReference};
use std::cell::{Cell, OnceCell};
use std::hint::black_box;
use std::mem::transmute;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// A broker that is open.
struct Known {
    shared: Weak<Shared>,
    /// To its object.
    reference: Py<PyWeakrefReference>,
}

/// Locked only with the interpreter at hand, and while no code of Python runs.
static BROKERS: Mutex<Vec<Known>> = Mutex::new(Vec::new());

fn brokers() -> MutexGuard<'static, Vec<Known>> {
    BROKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a broker: it is closed at the end, or when nobody has its object any more.
pub(crate) fn note(broker: &Bound<'_, Broker>, shared: Weak<Shared>) -> PyResult<()> {
    static CLOSE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = broker.py();
    let close = || Ok::<_, PyErr>(wrap_pyfunction!(close_forgotten, py)?.into_any().unbind());
    let close = CLOSE.get_or_try_init(py, close)?.bind(py);
    let reference = PyWeakrefReference::new_with(broker, close)?.unbind();
    brokers().push(Known { shared, reference });
    Ok(())
}

fn close(py: Python<'_>, shared: Option<Arc<Shared>>) {
    py.detach(|| shared.map(|shared| shared.broker.close(Duration::ZERO)));
}

/// Closes the broker that `reference` was to. The collector calls this before it takes anything
/// apart, and when this returns, no handler is called any more: none sees itself taken apart.
#[pyfunction]
fn close_forgotten(reference: &Bound<'_, PyAny>) {
    let known = {
        let mut brokers = brokers();
        let at = brokers.iter().position(|known| known.reference.is(reference));
        at.map(|at| brokers.swap_remove(at))
    };
    close(reference.py(), known.and_then(|known| known.shared.upgrade()));
}

#[pyfunction]
fn close_all(py: Python<'_>) {
    let brokers = std::mem::take(&mut *brokers());
    for known in &brokers {
        close(py, known.shared.upgrade());
    }
    Entering::end(py);
}

/// Accepts the main interpreter alone, and has the brokers closed at its end.
pub(crate) fn register(py: Python<'_>) -> PyResult<()> {
    // SAFETY: the thread is attached, so there is a current interpreter.
    if unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) } != 0 {
        return Err(PyImportError::new_err(
            "slipring cannot be imported in a subinterpreter: its threads call the main one",
        ));
    }
    let close_all = wrap_pyfunction!(close_all, py)?;
    py.import("atexit")?.call_method1("register", (close_all,))?;
    let keywords = PyDict::new(py);
    keywords.set_item("after_in_child", wrap_pyfunction!(forget_entering, py)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&keywords)).map(drop)
}

/// A function of the interpreter's that may unwind the thread. Its declaration among the bindings says
/// that it does not, and where the linker optimises, one declaration holds for all callers, who would
/// lose what guards them. So the compiler is not told which function it is.
macro_rules! unwinding {
    ($function:ident, fn($($argument:ty),*) $(-> $result:ty)?) => {{
        let function: unsafe extern "C" fn($($argument),*) $(-> $result)? = ffi::$function;
        let function = black_box(function);
        // SAFETY: the same signature; one that may unwind can be called as one that may.
        unsafe {
            transmute::<
                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?,
            >(function)
        }
    }};
}

/// How many threads are about to take the interpreter; and [`ENDING`], if none may any more.
static ENTERING: AtomicUsize = AtomicUsize::new(0);
const ENDING: usize = 1 << (usize::BITS - 1);

/// A thread that is about to take the interpreter.
///
/// One that is new to it must not come while it ends, or the process crashes. One that it knows, and
/// that waits for it then, is stopped.
struct Entering;

impl Entering {
    fn new() -> Option<Self> {
        // Made first, so that it is taken back.
        let entering = Self;
        let before = ENTERING.fetch_add(1, Ordering::SeqCst);
        (before & ENDING == 0).then_some(entering)
    }

    /// Lets none in any more, when this has returned.
    fn end(py: Python<'_>) {
        ENTERING.fetch_or(ENDING, Ordering::SeqCst);
        py.detach(|| {
            while ENTERING.load(Ordering::SeqCst) != ENDING {
                std::thread::yield_now();
            }
        });
    }
}

/// In the child of a fork: the threads that were about to are in the parent.
#[pyfunction]
fn forget_entering() {
    ENTERING.store(0, Ordering::SeqCst);
}

impl Drop for Entering {
    fn drop(&mut self) {
        ENTERING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Who lends the interpreter to the core that the thread is in, while that is quick.
#[derive(Clone, Copy)]
enum Lender {
    /// Nobody: the thread has not got it, or code of Python runs.
    Nobody,
    /// A thread of Python's, which has called.
    Caller,
    /// A thread of the broker's, which has messages for functions of Python.
    Worker,
}

thread_local! {
    static LENDER: Cell<Lender> = const { Cell::new(Lender::Nobody) };
}

#[inline]
fn lending<R>(lender: Lender, work: impl FnOnce() -> R) -> R {
    lending_after(lender, |_| work())
}

/// The same, told who has lent it before.
#[inline]
fn lending_after<R>(lender: Lender, work: impl FnOnce(Lender) -> R) -> R {
    struct Before<'a>(&'a Cell<Lender>, Lender);
    impl Drop for Before<'_> {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    LENDER.with(|current| {
        let before = Before(current, current.replace(lender));
        work(before.1)
    })
}

/// Does `work`, which calls the core, with the interpreter at hand; other threads of Python run where
/// the core [waits](let_others_run).
#[inline]
pub(crate) fn lend<R>(_py: Python<'_>, work: impl FnOnce() -> R) -> R {
    lending(Lender::Caller, work)
}

/// The same on a thread of the broker's; `None` at the interpreter's end. What calls Python inside is
/// done by [`inside`].
pub(crate) fn lend_to_worker<R>(work: impl FnOnce() -> R) -> Option<R> {
    attach(|_| {
        ThreadState::keep();
        lending(Lender::Worker, work)
    })
}

/// Keeps what the interpreter knows of a thread of the broker's until the thread ends. It would be made
/// anew for each run of messages, with a stack of calls that is mapped and unmapped.
struct ThreadState(ffi::PyGILState_STATE);

thread_local! {
    static THREAD_STATE: OnceCell<ThreadState> = const { OnceCell::new() };
}

impl ThreadState {
    /// Keeps that of the calling thread, which is attached.
    fn keep() {
        // SAFETY: attached. It is given back when the thread ends.
        let keep = || Self(unsafe { ffi::PyGILState_Ensure() });
        THREAD_STATE.with(|kept| _ = kept.get_or_init(keep));
    }
}

impl Drop for ThreadState {
    fn drop(&mut self) {
        let ensure = unwinding!(PyGILState_Ensure, fn() -> ffi::PyGILState_STATE);
        let release = unwinding!(PyGILState_Release, fn(ffi::PyGILState_STATE));
        // At the end of the interpreter, that takes it apart.
        let Some(entering) = Entering::new() else { return };
        let stop = Stop;
        // SAFETY: the interpreter has not ended. Both are given back on the thread that took them, in
        // turn; the last may run what objects of the thread's leave to their classes.
        unsafe {
            let outer = ensure();
            drop(entering);
            release(self.0);
            release(outer);
        }
        std::mem::forget(stop);
    }
}

/// Calls code of Python, where a [worker](lend_to_worker) has messages for it.
#[inline]
pub(crate) fn inside<R>(work: impl FnOnce(Python<'_>) -> R) -> R {
    lending_after(Lender::Nobody, |before| match before {
        // SAFETY: it lends what it has, and where it waits without, nobody lends.
        Lender::Worker => work(unsafe { Python::assume_attached() }),
        _ => Python::attach(work),
    })
}

/// Does `work` with the interpreter, on a thread of the broker's; `None` at the interpreter's end.
pub(crate) fn attach<R>(work: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    let entering = Entering::new()?;
    Python::try_attach(|py| {
        drop(entering);
        lending(Lender::Nobody, || work(py))
    })
}

/// Does `wait`, which the core has to wait in, while other threads of Python run: what is called
/// around the waits of brokers.
pub(crate) fn let_others_run(wait: &mut dyn FnMut()) {
    /// It stays on its thread, without the interpreter.
    struct Detached<'a>(&'a mut dyn FnMut());
    // SAFETY: as above; and it has no object of Python.
    unsafe impl Send for Detached<'_> {}
    impl Detached<'_> {
        fn run(self) {
            (self.0)();
        }
    }
    let lender = LENDER.get();
    if matches!(lender, Lender::Nobody) {
        return wait();
    }
    let wait = Detached(wait);
    let mut entering = None;
    lending(Lender::Nobody, || {
        Python::attach(|py| {
            py.detach(|| {
                wait.run();
                if matches!(lender, Lender::Worker) {
                    entering = Entering::new();
                    if entering.is_none() {
                        stop();
                    }
                }
            });
        });
    });
    drop(entering);
}

/// Stops the thread, one of the broker's that comes back after the interpreter's end.
fn stop() -> ! {
    loop {
        std::thread::park();
    }
}

/// Stops the thread for good instead of letting it unwind further.
struct Stop;

impl Drop for Stop {
    fn drop(&mut self) {
        stop();
    }
}

/// Calls `function` on a thread that the interpreter may end in the middle of it. All that can run
/// code of Python on threads of the broker's is done by this and by [`release`].
pub(crate) fn call<'py>(
    function: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    try_call(function, arguments).ok_or_else(|| PyErr::fetch(function.py()))
}

/// The same; `None` with the error set.
#[inline]
pub(crate) fn try_call<'py>(
    function: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
) -> Option<Bound<'py, PyAny>> {
    // A reference of its own: to the collector, what runs is no garbage.
    let function = function.clone();
    let call_object = unwinding!(
        PyObject_CallObject,
        fn(*mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject
    );
    let stop = Stop;
    // SAFETY: both are objects, and the thread is attached. It returns a new reference, or NULL with
    // an error set.
    let result = unsafe { call_object(function.as_ptr(), arguments.as_ptr()) };
    std::mem::forget(stop);
    // SAFETY: as above.
    unsafe { Bound::from_owned_ptr_or_opt(function.py(), result) }
}

/// The same for arguments and a result that nobody else needs.
pub(crate) fn call_for_nothing<'py>(
    function: &Bound<'py, PyAny>,
    arguments: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
) -> PyResult<()> {
    let arguments = arguments.into_pyobject(function.py())?;
    let result = call(function, &arguments).map(release);
    release(arguments);
    result
}

/// Drops an object, which may run what is left to it by its class.
pub(crate) fn release<T>(object: Bound<'_, T>) {
    let dec_ref = unwinding!(Py_DecRef, fn(*mut ffi::PyObject));
    let stop = Stop;
    // SAFETY: the reference is given up, attached.
    unsafe { dec_ref(object.into_ptr()) };
    std::mem::forget(stop);
}

/// Reports an error that nobody can be told of.
pub(crate) fn unraisable(py: Python<'_>, error: PyErr) {
    let write = unwinding!(PyErr_WriteUnraisable, fn(*mut ffi::PyObject));
    error.restore(py);
    let stop = Stop;
    // SAFETY: the thread is attached, and an error is set.
    unsafe { write(std::ptr::null_mut()) };
    std::mem::forget(stop);
}
