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

use crate::broker::Shared;
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

static BROKERS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Notes a broker, to be closed at the end.
pub(crate) fn note(broker: Weak<Shared>) {
    let mut brokers = BROKERS.lock().unwrap_or_else(PoisonError::into_inner);
    brokers.retain(|known| known.strong_count() > 0);
    brokers.push(broker);
}

#[pyfunction]
fn close_all(py: Python<'_>) {
    let brokers = std::mem::take(&mut *BROKERS.lock().unwrap_or_else(PoisonError::into_inner));
    py.detach(|| {
        for broker in brokers.iter().filter_map(Weak::upgrade) {
            broker.broker.close(Duration::ZERO);
        }
    });
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
    let stop = Stop;
    // SAFETY: both are objects, and the thread is attached. It returns a new reference, or NULL with
    // an error set.
    let result = unsafe { PyObject_CallObject(function.as_ptr(), arguments.as_ptr()) };
    std::mem::forget(stop);
    // SAFETY: as above.
    unsafe { Bound::from_owned_ptr_or_err(function.py(), result) }
}
