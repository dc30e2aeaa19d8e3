//! Messages received together.

use crate::message::Message;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySlice};
use slipring_core::OwnedMessages;

/// Messages received together: a sequence that makes a `Message` where one is asked for.
#[pyclass(frozen, sequence, weakref, module = "slipring")]
pub(crate) struct Batch(OwnedMessages);

impl From<OwnedMessages> for Batch {
    fn from(messages: OwnedMessages) -> Self {
        Self(messages)
    }
}

impl Batch {
    fn at(&self, index: usize) -> Option<Message> {
        self.0.get(index).map(|message| message.keep().into())
    }
}

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let len = self.0.len() as isize;
        if let Ok(slice) = index.cast::<PySlice>() {
            let slice = slice.indices(len)?;
            let indices = (0..slice.slicelength as isize).map(|at| slice.start + at * slice.step);
            let messages: Vec<_> = indices.filter_map(|at| self.at(at as usize)).collect();
            return Ok(PyList::new(py, messages)?.into_any());
        }
        let index: isize = index.extract()?;
        let index = if index < 0 { index + len } else { index };
        let message = usize::try_from(index).ok().and_then(|index| self.at(index));
        match message {
            Some(message) => Ok(Bound::new(py, message)?.into_any()),
            None => Err(PyIndexError::new_err("a message behind the end of the batch")),
        }
    }

    fn __iter__(this: Py<Self>) -> BatchIterator {
        BatchIterator { batch: this, at: 0 }
    }

    /// The payloads as a list of `bytes`: the quickest way to many small ones.
    fn payloads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let payloads = (0..self.0.len()).filter_map(|index| self.0.get(index));
        let payloads: Vec<_> =
            payloads.map(|message| PyBytes::new(py, message.payload())).collect();
        PyList::new(py, payloads)
    }

    /// All payloads one behind the other: `numpy.frombuffer(batch.join(), dtype)` of records of one
    /// size is an array of them.
    fn join<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.0.iter().map(|message| message.payload().len()).sum();
        PyBytes::new_with(py, bytes, |mut room| {
            for message in self.0.iter() {
                let (at, rest) = room.split_at_mut(message.payload().len());
                at.copy_from_slice(message.payload());
                room = rest;
            }
            Ok(())
        })
    }

    fn __repr__(&self) -> String {
        format!("<slipring.Batch of {}>", self.0.len())
    }
}

/// An iterator over the messages of a batch.
#[pyclass(module = "slipring")]
pub(crate) struct BatchIterator {
    batch: Py<Batch>,
    at: usize,
}

#[pymethods]
impl BatchIterator {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&mut self) -> Option<Message> {
        let message = self.batch.get().at(self.at)?;
        self.at += 1;
        Some(message)
    }
}
