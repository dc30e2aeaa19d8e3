//! Receipts of messages whose turn has not come yet.

use crate::broker::Broker;
use crate::errors::raise;
use crate::receipt::Receipt;
use crate::signals::interruptible;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use slipring_core::{Receipt as CoreReceipt, Ticket as CoreTicket};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The receipt of a message that is being published, from `Topic.publish_ticket`. The message is
/// published also if this is forgotten.
///
/// >>> import slipring
/// >>> broker = slipring.open(sequencer=slipring.Pinned(0))
/// >>> ticket = broker.topic("ticks").publish_ticket(b"98.4")
/// >>> ticket.wait().offset, ticket.try_receipt().offset
/// (0, 0)
#[pyclass(frozen, weakref, module = "slipring")]
pub(crate) struct Ticket {
    state: Mutex<State>,
    /// Whether the disk is waited for.
    is_durable: bool,
    broker: Py<Broker>,
}

enum State {
    Open(CoreTicket),
    /// A call waits for it, or was interrupted.
    Taken,
    Done(CoreReceipt),
}

impl Ticket {
    pub(crate) fn new(ticket: CoreTicket, is_durable: bool, broker: Py<Broker>) -> Self {
        Self { state: Mutex::new(State::Open(ticket)), is_durable, broker }
    }

    /// Locked only with the interpreter at hand, and not while anything else is called.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Ticket {
    /// The receipt if the message has been published, else `None`. Before `wait` it does not say that
    /// it is durable. Raises why the message was not published, which for a subscription that blocks
    /// is `WouldBlock`.
    fn try_receipt(&self, py: Python<'_>) -> PyResult<Option<Receipt>> {
        let receipt = match &*self.state() {
            State::Open(ticket) => ticket.try_receipt(),
            State::Taken => Ok(None),
            State::Done(receipt) => Ok(Some(*receipt)),
        };
        Ok(receipt.map_err(|error| raise(py, error))?.map(Receipt))
    }

    /// Waits for the receipt; with a directory, as the broker's `sync` has it. Raises as
    /// `try_receipt`, and `RuntimeError` while another thread waits for it, or after it was
    /// interrupted or has failed.
    fn wait(&self, py: Python<'_>) -> PyResult<Receipt> {
        let ticket = {
            let mut state = self.state();
            match std::mem::replace(&mut *state, State::Taken) {
                State::Open(ticket) => ticket,
                State::Taken => {
                    return Err(PyRuntimeError::new_err("the ticket is used up, or waited for"));
                }
                State::Done(receipt) => {
                    *state = State::Done(receipt);
                    return Ok(Receipt(receipt));
                }
            }
        };
        // Waiting may take a thread of its own, which is not worth it for what is there.
        let receipt = match ticket.try_receipt() {
            Ok(Some(receipt)) if !self.is_durable => Ok(receipt),
            Err(error) => Err(error),
            Ok(_) => interruptible(py, move || ticket.wait())?,
        };
        let receipt = receipt.map_err(|error| raise(py, error))?;
        *self.state() = State::Done(receipt);
        Ok(Receipt(receipt))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.broker)
    }

    fn __repr__(&self) -> String {
        let told = match &*self.state() {
            State::Open(_) => "open",
            State::Taken => "taken",
            State::Done(_) => "done",
        };
        format!("<slipring.Ticket {told}>")
    }
}
