//! Knowing messages again.

use crate::message::Message;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use slipring_core::{Deduplicator as CoreDeduplicator, Message as CoreMessage};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Knows the last `capacity` messages again by their ids: for consumers that get messages at least once
/// and want to act on each but once. 25 bytes or so a message. Usable from all threads at once.
///
/// >>> import slipring
/// >>> broker = slipring.open()
/// >>> jobs = broker.subscribe("jobs")
/// >>> seen = slipring.Deduplicator(1000)
/// >>> for id in ["x", "y", "x"]:
/// ...     receipt = broker.publish("jobs", b"", id=id)
/// >>> [seen.is_new(jobs.get()) for _ in range(3)]
/// [True, True, False]
/// >>> len(seen)
/// 2
#[pyclass(frozen, module = "slipring")]
pub(crate) struct Deduplicator(Mutex<CoreDeduplicator>);

impl Deduplicator {
    /// Locked only with the interpreter at hand, and not while anything else is called.
    fn known(&self) -> MutexGuard<'_, CoreDeduplicator> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn core<'m>(message: &'m Bound<'_, Message>) -> PyResult<CoreMessage<'m>> {
    let told = "a message out of a pickle is not known again: ask before it is pickled";
    message.get().core().ok_or_else(|| PyTypeError::new_err(told))
}

#[pymethods]
impl Deduplicator {
    #[new]
    fn new(capacity: usize) -> Self {
        Self(Mutex::new(CoreDeduplicator::new(capacity)))
    }

    /// Whether the message is none of those it knows. It knows it from now on. To be asked before
    /// acting; a message that could not be acted on is to be forgotten.
    fn is_new(&self, message: &Bound<'_, Message>) -> PyResult<bool> {
        let message = core(message)?;
        Ok(self.known().is_new(&message))
    }

    /// Forgets the message, so that it is new again.
    fn forget(&self, message: &Bound<'_, Message>) -> PyResult<()> {
        let message = core(message)?;
        self.known().forget(&message);
        Ok(())
    }

    fn __len__(&self) -> usize {
        self.known().len()
    }

    fn __repr__(&self) -> String {
        format!("<slipring.Deduplicator of {} messages>", self.known().len())
    }
}
