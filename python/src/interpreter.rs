//! The interpreter: it has to be the main one, and it ends, with brokers still open and handlers
//! still running.
//!
//! Brokers close when `atexit` says so, while their threads can still take the interpreter. A
//! handler that is still running then is left behind: where it next needs the interpreter, that
//! ends its thread by unwinding it, which must not reach the frames of Rust.
#![expect(
    unsafe_code,
    reason = "asks for the interpreter's number, and makes calls that may unwind"
)]

use crate::broker::{Broker, Shared};
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyWeakrefReference};
use std::cell::Cell;
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
    py.import("atexit")?.call_method1("register", (close_all,)).map(drop)
}

unsafe extern "C-unwind" {
    fn PyObject_CallObject(
        callable: *mut ffi::PyObject,
        arguments: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
}

thread_local! {
    /// What was given to the thread for holding the interpreter.
    static HELD: Cell<Option<ffi::PyGILState_STATE>> = const { Cell::new(None) };
}

/// Lets the thread hold the interpreter until it [lets go](let_go), whatever takes it in between;
/// false at the interpreter's end. Called, as `let_go` is, where nothing else holds it.
pub(crate) fn hold() -> bool {
    // SAFETY: takes nothing, and never fails.
    if HELD.get().is_none() && unsafe { ffi::Py_IsInitialized() } != 0 {
        // SAFETY: there is an interpreter. Given back by `let_go`, on this thread. If it ends
        // meanwhile, this never returns.
        HELD.set(Some(unsafe { ffi::PyGILState_Ensure() }));
    }
    HELD.get().is_some()
}

/// See [`hold`]. Nothing where the thread does not.
pub(crate) fn let_go() {
    if let Some(state) = HELD.take() {
        // SAFETY: of this thread's `hold`, inside of which all else is over.
        unsafe { ffi::PyGILState_Release(state) }
    }
}

/// Stops the thread for good instead of letting it unwind further.
struct Stop;

impl Drop for Stop {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Calls `function` on a thread that the interpreter may end in the middle of it.
pub(crate) fn call<'py>(
    function: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    // A reference of its own: to the collector, what runs is no garbage.
    let function = function.clone();
    let stop = Stop;
    // SAFETY: both are objects, and the thread is attached. It returns a new reference, or NULL with
    // an error set.
    let result = unsafe { PyObject_CallObject(function.as_ptr(), arguments.as_ptr()) };
    std::mem::forget(stop);
    // SAFETY: as above.
    unsafe { Bound::from_owned_ptr_or_err(function.py(), result) }
}
