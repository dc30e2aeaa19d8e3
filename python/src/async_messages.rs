//! Iterating over messages on an event loop.
#![expect(unsafe_code, reason = "a slot of the interpreter's that the bindings have no name for")]

use crate::message::Message;
use crate::subscription::Subscription;
use pyo3::exceptions::{PyRuntimeError, PyStopAsyncIteration};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use pyo3::{PyTraverseError, PyVisit};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

/// What `async for` iterates over, and awaits as well. No generator: that would be over at the first
/// loss; and no coroutine where a message is there, as that would be as dear as all the rest.
#[pyclass(frozen, module = "slipring")]
pub(crate) struct AsyncMessages {
    subscription: Py<Subscription>,
    /// What the last message was awaited by: where nobody has it any more, the next is as well.
    taken: Cell<Option<Py<Taken>>>,
}

// SAFETY: its cell is used attached only, and no code of Python runs meanwhile.
unsafe impl Sync for AsyncMessages {}

impl AsyncMessages {
    pub(crate) fn of(subscription: Py<Subscription>) -> Self {
        Self { subscription, taken: Cell::new(None) }
    }

    /// What gives `message` to who awaits it.
    fn give<'py>(&self, message: Bound<'py, Message>) -> PyResult<Bound<'py, Taken>> {
        let py = message.py();
        let message = Some(Ok(message.unbind()));
        let taken = match self.taken.take() {
            // SAFETY: an object, and attached.
            Some(taken) if unsafe { ffi::Py_REFCNT(taken.as_ptr()) } == 1 => {
                drop(taken.get().0.replace(message));
                taken.into_bound(py)
            }
            _ => Taken::with(py, message)?,
        };
        self.taken.set(Some(taken.clone().unbind()));
        Ok(taken)
    }
}

#[pymethods]
impl AsyncMessages {
    fn __aiter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __anext__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Here, since from here on nothing cancels it before it is handed over.
    fn __await__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.subscription.get().take(py) {
            Ok(Some(message)) => Ok(self.give(message)?.into_any()),
            Ok(None) => {
                let next = py.import("slipring._asyncio")?.getattr("next_message")?;
                next.call1((&self.subscription,))?.call_method0("__await__")
            }
            Err(error) => Ok(Taken::with(py, Some(Err(end_of_iteration(py, error))))?.into_any()),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.subscription)
    }
}

/// The end of an asynchronous iteration, where `error` tells that the subscription is closed.
fn end_of_iteration(py: Python<'_>, error: PyErr) -> PyErr {
    let closed = py.import("slipring._errors").and_then(|module| module.getattr("Closed"));
    match closed {
        Ok(closed) if error.is_instance(py, &closed) => PyStopAsyncIteration::new_err(()),
        Ok(_) => error,
        Err(failed) => failed,
    }
}

/// What comes of awaiting a message, or its failure, that is there. All are of a class derived from
/// this, with the slots that the bindings cannot fill: by `am_send` a result is returned, where
/// otherwise it is an exception.
#[pyclass(frozen, subclass, module = "slipring")]
struct Taken(Cell<Option<PyResult<Py<Message>>>>);

// SAFETY: its cell is used attached only.
unsafe impl Sync for Taken {}

#[pymethods]
impl Taken {
    #[new]
    fn empty() -> Self {
        Self(Cell::new(None))
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }
}

impl Taken {
    fn with(py: Python<'_>, result: Option<PyResult<Py<Message>>>) -> PyResult<Bound<'_, Self>> {
        let taken = Self::class(py)?.bind(py).call0()?.cast_into::<Self>()?;
        taken.get().0.set(result);
        Ok(taken)
    }

    /// The class that all are of.
    fn class(py: Python<'_>) -> PyResult<&Py<PyType>> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        CLASS.get_or_try_init(py, || {
            let slot = |slot, pfunc| ffi::PyType_Slot { slot, pfunc };
            let mut slots = [
                slot(ffi::Py_am_send, Self::send as *mut c_void),
                slot(ffi::Py_tp_iternext, Self::next as *mut c_void),
                slot(0, ptr::null_mut()),
            ];
            let mut spec = ffi::PyType_Spec {
                name: c"slipring.Taken".as_ptr(),
                basicsize: 0,
                itemsize: 0,
                flags: ffi::Py_TPFLAGS_DEFAULT as u32,
                slots: slots.as_mut_ptr(),
            };
            let base = py.get_type::<Self>();
            // SAFETY: slots with functions of their types, and a class that can be derived from. It
            // returns a new reference, or NULL with an error set.
            let class = unsafe {
                let class = ffi::PyType_FromSpecWithBases(&raw mut spec, base.as_ptr());
                Bound::from_owned_ptr_or_err(py, class)?
            };
            Ok(class.cast_into::<PyType>()?.unbind())
        })
    }

    /// The result, with which it is done.
    ///
    /// # Safety
    /// Attached, and `this` is one.
    unsafe fn result(this: *mut ffi::PyObject) -> PyResult<*mut ffi::PyObject> {
        // SAFETY: as for this function.
        let taken =
            unsafe { Borrowed::from_ptr(Python::assume_attached(), this).cast_unchecked::<Self>() };
        match taken.get().0.take() {
            Some(result) => result.map(Py::into_ptr),
            None => Err(PyRuntimeError::new_err("it was awaited before")),
        }
    }

    /// # Safety
    /// Called by the interpreter as the slot `am_send` of its class.
    unsafe extern "C" fn send(
        this: *mut ffi::PyObject,
        _: *mut ffi::PyObject,
        result: *mut *mut ffi::PyObject,
    ) -> ffi::PySendResult {
        // SAFETY: a slot is called attached, with an object of its class and room for the result.
        unsafe {
            match Self::result(this) {
                Ok(message) => {
                    *result = message;
                    ffi::PySendResult::PYGEN_RETURN
                }
                Err(error) => {
                    *result = ptr::null_mut();
                    restore(error);
                    ffi::PySendResult::PYGEN_ERROR
                }
            }
        }
    }

    /// # Safety
    /// Called by the interpreter as the slot `tp_iternext` of its class.
    unsafe extern "C" fn next(this: *mut ffi::PyObject) -> *mut ffi::PyObject {
        // SAFETY: as above. The reference to the message is given up behind its use.
        unsafe {
            match Self::result(this) {
                Ok(message) => {
                    ffi::PyErr_SetObject(ffi::PyExc_StopIteration, message);
                    ffi::Py_DECREF(message);
                }
                Err(error) => restore(error),
            }
        }
        ptr::null_mut()
    }
}

#[cold]
fn restore(error: PyErr) {
    Python::attach(|py| error.restore(py));
}
