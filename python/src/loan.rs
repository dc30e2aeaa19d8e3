//! A payload that is written in place.
#![expect(unsafe_code, reason = "exports the loan as a buffer")]

use crate::broker::Broker;
use crate::buffer::{self, Exported};
use crate::errors::raise;
use crate::options::Seconds;
use crate::receipt::Receipt;
use crate::signals::Signals;
use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use pyo3::{PyTraverseError, PyVisit};
use slipring_core::{CommitError, Loan as CoreLoan};
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Space for a payload in the memory of the broker: a context manager, whose `with` block writes
/// into the memoryview it gets. What the block raises gives the space back, and nothing is published.
///
/// >>> import slipring
/// >>> broker = slipring.open()
/// >>> frames = broker.subscribe("frames")
/// >>> loan = broker.topic("frames").loan(8)
/// >>> with loan as view:
/// ...     view[:] = b"in place"
/// >>> bytes(frames.get()), loan.receipt.enqueued
/// (b'in place', 1)
#[pyclass(frozen, module = "slipring")]
pub(crate) struct Loan {
    state: Mutex<State>,
    size: usize,
    timeout: Option<Duration>,
    broker: Py<Broker>,
}

struct State {
    /// Gone once it is published.
    loan: Option<CoreLoan>,
    /// What the block writes into.
    view: Option<Py<PyMemoryView>>,
    entered: bool,
    /// Buffers over the loan that have not been released.
    exports: usize,
    receipt: Option<Py<Receipt>>,
}

impl Loan {
    pub(crate) fn new(
        loan: CoreLoan,
        size: usize,
        timeout: Option<Seconds>,
        broker: Py<Broker>,
    ) -> Self {
        let state =
            State { loan: Some(loan), view: None, entered: false, exports: 0, receipt: None };
        Self {
            state: Mutex::new(state),
            size,
            timeout: timeout.map(|Seconds(timeout)| timeout),
            broker,
        }
    }

    /// Locked only with the interpreter at hand, and not while anything else is called.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Loan {
    /// The receipt, once the block has ended well.
    #[getter]
    fn receipt(&self, py: Python<'_>) -> Option<Py<Receipt>> {
        self.state().receipt.as_ref().map(|receipt| receipt.clone_ref(py))
    }

    fn __enter__<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        if std::mem::replace(&mut this.get().state().entered, true) {
            return Err(PyRuntimeError::new_err("a loan is written once: take another"));
        }
        let view = PyMemoryView::from(this.as_any())?;
        this.get().state().view = Some(view.clone().unbind());
        Ok(view)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        class: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let view = self.state().view.take();
        let released = view.map_or(Ok(()), |view| view.call_method0(py, "release").map(drop));
        if !class.is_none() {
            return Ok(());
        }
        if released.is_err() || self.state().exports > 0 {
            return Err(PyBufferError::new_err(
                "the loan is still in use by an array or a view made of it, so it was not \
                 published: delete those before the end of the block",
            ));
        }
        let Some(loan) = self.state().loan.take() else { return Ok(()) };
        let signals = Signals::default();
        let result = py.detach(|| loan.commit_while(self.timeout, &|| signals.go_on()));
        signals.check()?;
        let receipt = result.map_err(|CommitError { reason, .. }| raise(py, reason))?;
        let receipt = Py::new(py, Receipt(receipt))?;
        self.state().receipt = Some(receipt);
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.broker)?;
        visit.call(&self.state().view)
    }

    fn __repr__(&self) -> String {
        format!("<slipring.Loan of {} bytes>", self.size)
    }

    /// # Safety
    /// Called by the interpreter.
    unsafe fn __getbuffer__(
        this: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let at = {
            let mut state = this.get().state();
            if !state.entered {
                return Err(PyBufferError::new_err("a loan is written inside its `with` block"));
            }
            match &mut state.loan {
                Some(loan) => loan.as_mut_ptr(),
                None => return Err(PyBufferError::new_err("the loan is used up")),
            }
        };
        let bytes = Exported::Writable(at, this.get().size);
        // SAFETY: the loan stays in place until all exports are released, and nobody else looks at
        // its bytes before.
        unsafe { buffer::export(this.clone().into_any(), bytes, view, flags)? };
        this.get().state().exports += 1;
        Ok(())
    }

    /// # Safety
    /// Called by the interpreter.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.state().exports -= 1;
    }
}
