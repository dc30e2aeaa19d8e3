//! Iterating over messages on an event loop.

use crate::message::Message;
use crate::subscription::Subscription;
use pyo3::exceptions::{PyRuntimeError, PyStopAsyncIteration, PyStopIteration};
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use std::sync::{Mutex, PoisonError};

/// What `async for` iterates over, and awaits as well. No generator: that would be over at the first
/// loss; and no coroutine where a message is there, as that would be as dear as all the rest.
#[pyclass(frozen, module = "slipring")]
pub(crate) struct AsyncMessages {
    subscription: Py<Subscription>,
}

impl AsyncMessages {
    pub(crate) fn of(subscription: Py<Subscription>) -> Self {
        Self { subscription }
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
        let taken = match self.subscription.get().take(py) {
            Ok(Some(message)) => Ok(message.unbind()),
            Ok(None) => {
                let next = py.import("slipring._asyncio")?.getattr("next_message")?;
                return next.call1((&self.subscription,))?.call_method0("__await__");
            }
            Err(error) => Err(end_of_iteration(py, error)),
        };
        Ok(Bound::new(py, Taken(Mutex::new(Some(taken))))?.into_any())
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

/// What comes of awaiting a message, or its failure, that is there.
#[pyclass(frozen, freelist = 16, module = "slipring")]
struct Taken(Mutex<Option<PyResult<Py<Message>>>>);

#[pymethods]
impl Taken {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self) -> PyResult<()> {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(Ok(message)) => Err(PyStopIteration::new_err(message)),
            Some(Err(error)) => Err(error),
            None => Err(PyRuntimeError::new_err("it was awaited before")),
        }
    }
}
