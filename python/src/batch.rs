//! Messages received together.

use crate::message::Message;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySlice};
use slipring_core::{Message as CoreMessage, OwnedMessage, OwnedMessages};

/// Messages received together: a sequence that makes a `Message` where one is asked for.
///
/// >>> import slipring
/// >>> with slipring.open() as broker:
/// ...     jobs = broker.subscribe("jobs")
/// ...     receipt = broker.publish_many("jobs", [b"one", b"two"])
/// ...     batch = jobs.get_many(10)
/// >>> len(batch), batch[1].offset, batch.payloads(), batch.join()
/// (2, 1, [b'one', b'two'], b'onetwo')
#[pyclass(frozen, sequence, weakref, module = "slipring")]
pub(crate) struct Batch(Messages);

/// Messages kept together.
pub(crate) enum Messages {
    Plain(OwnedMessages),
    /// Each with its lease.
    Leased(Vec<OwnedMessage>),
}

impl Messages {
    pub(crate) fn new(leased: bool) -> Self {
        if leased { Self::Leased(Vec::new()) } else { Self::Plain(OwnedMessages::default()) }
    }

    /// None, to be of the same kind.
    pub(crate) fn same_kind(&self) -> Self {
        Self::new(matches!(self, Self::Leased(_)))
    }

    pub(crate) fn push(&mut self, message: &CoreMessage<'_>) {
        match self {
            Self::Plain(messages) => messages.push(message),
            Self::Leased(messages) => messages.push(message.keep()),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        match self {
            Self::Plain(messages) => messages.len(),
            Self::Leased(messages) => messages.len(),
        }
    }

    fn get(&self, index: usize) -> Option<CoreMessage<'_>> {
        match self {
            Self::Plain(messages) => messages.get(index),
            Self::Leased(messages) => messages.get(index).map(OwnedMessage::view),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = CoreMessage<'_>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl From<Messages> for Batch {
    fn from(messages: Messages) -> Self {
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
        let payloads = self.0.iter().map(|message| PyBytes::new(py, message.payload()));
        PyList::new(py, payloads.collect::<Vec<_>>())
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
