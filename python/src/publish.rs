//! Publishing, whoever offers it: what goes with a payload, and how it waits.

use crate::buffer::Bytes;
use crate::errors::{raise, raise_batch};
use crate::options::Seconds;
use crate::receipt::{BatchReceipt, Receipt};
use crate::signals::Signals;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use slipring_core::{NewMessage, PublishError, Ticket, Topic};

/// Bytes beyond which copying takes so long that other threads of Python should run meanwhile.
pub(crate) const LARGE: usize = 128 << 10;

/// What a message carries besides its payload.
pub(crate) struct Head {
    key: Option<PyBackedStr>,
    id: Option<PyBackedStr>,
    attributes: Vec<(PyBackedStr, PyBackedStr)>,
}

impl Head {
    /// `attributes` is a mapping; `more` are those that were given as keywords.
    #[inline]
    pub(crate) fn new(
        key: Option<PyBackedStr>,
        id: Option<PyBackedStr>,
        attributes: Option<&Bound<'_, PyAny>>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut head = Self { key, id, attributes: Vec::new() };
        for given in attributes.into_iter().chain(more.map(|more| more.as_any())) {
            head.add(given)?;
        }
        Ok(head)
    }

    #[cold]
    fn add(&mut self, attributes: &Bound<'_, PyAny>) -> PyResult<()> {
        for pair in attributes.call_method0("items")?.try_iter()? {
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
            let text = |part: &Bound<'_, PyAny>| {
                part.extract::<PyBackedStr>().map_err(|_| {
                    let found = part.get_type();
                    PyTypeError::new_err(format!(
                        "attributes are str, not {found}: {key} = {value}"
                    ))
                })
            };
            self.attributes.push((text(&key)?, text(&value)?));
        }
        Ok(())
    }

    fn pairs(&self) -> Vec<(&str, &str)> {
        self.attributes.iter().map(|(key, value)| (&**key, &**value)).collect()
    }

    /// The message of this and `payload`, where `attributes` are its [`Self::pairs`].
    fn message<'a>(
        &'a self,
        payload: &'a [u8],
        attributes: &'a [(&'a str, &'a str)],
    ) -> NewMessage<'a> {
        NewMessage { payload, key: self.key.as_deref(), id: self.id.as_deref(), attributes }
    }
}

/// Publishes one message, waiting for at most `timeout`.
#[inline]
pub(crate) fn publish(
    topic: &Topic,
    payload: &Bound<'_, PyAny>,
    head: &Head,
    timeout: Option<Seconds>,
) -> PyResult<Receipt> {
    let payload = Bytes::of(payload)?;
    // The disk is not waited for with the interpreter at hand.
    if payload.get().len() <= LARGE && !topic.is_durable() {
        match try_bytes(topic, payload.get(), head) {
            Ok(receipt) => return Ok(Receipt(receipt)),
            Err(PublishError::WouldBlock) => {}
            Err(error) => return Err(raise(payload.py(), error)),
        }
    }
    wait_to_publish(topic, &payload, head, timeout)
}

/// Publishes one message without waiting.
pub(crate) fn try_publish(
    topic: &Topic,
    payload: &Bound<'_, PyAny>,
    head: &Head,
) -> PyResult<Receipt> {
    let py = payload.py();
    let payload = Bytes::of(payload)?;
    try_bytes(topic, payload.get(), head).map(Receipt).map_err(|error| raise(py, error))
}

#[inline]
fn try_bytes(
    topic: &Topic,
    payload: &[u8],
    head: &Head,
) -> Result<slipring_core::Receipt, PublishError> {
    if head.attributes.is_empty() {
        topic.try_publish(head.message(payload, &[]))
    } else {
        topic.try_publish(head.message(payload, &head.pairs()))
    }
}

#[cold]
fn wait_to_publish(
    topic: &Topic,
    payload: &Bytes<'_, '_>,
    head: &Head,
    timeout: Option<Seconds>,
) -> PyResult<Receipt> {
    let py = payload.py();
    let signals = Signals::default();
    let pairs = head.pairs();
    let message = head.message(payload.get(), &pairs);
    let timeout = timeout.map(|Seconds(timeout)| timeout);
    let result = py.detach(|| topic.publish_while(message, timeout, &|| signals.go_on()));
    signals.check()?;
    result.map(Receipt).map_err(|error| raise(py, error))
}

/// Publishes one message, and waits until it survives a power cut.
pub(crate) fn publish_sync(
    topic: &Topic,
    payload: &Bound<'_, PyAny>,
    head: &Head,
    timeout: Option<Seconds>,
) -> PyResult<Receipt> {
    let py = payload.py();
    let payload = Bytes::of(payload)?;
    let signals = Signals::default();
    let pairs = head.pairs();
    let message = head.message(payload.get(), &pairs);
    let timeout = timeout.map(|Seconds(timeout)| timeout);
    let result = py.detach(|| topic.publish_sync_while(message, timeout, &|| signals.go_on()));
    signals.check()?;
    result.map(Receipt).map_err(|error| raise(py, error))
}

/// Publishes one message when its turn comes.
pub(crate) fn ticket(topic: &Topic, payload: &Bound<'_, PyAny>, head: &Head) -> PyResult<Ticket> {
    let py = payload.py();
    let payload = Bytes::of(payload)?;
    let pairs = head.pairs();
    let message = head.message(payload.get(), &pairs);
    py.detach(|| topic.publish_ticket(message)).map_err(|error| raise(py, error))
}

/// Publishes many messages in order, waiting for at most `timeout` for each.
pub(crate) fn publish_many(
    topic: &Topic,
    payloads: &Bound<'_, PyAny>,
    head: &Head,
    timeout: Option<Seconds>,
) -> PyResult<BatchReceipt> {
    let timeout = timeout.map(|Seconds(timeout)| timeout);
    with_messages(payloads, head, |messages, bytes| {
        let py = payloads.py();
        let mut receipt = slipring_core::BatchReceipt::default();
        if bytes <= LARGE && !topic.is_durable() {
            match topic.try_publish_batch(messages) {
                Ok(receipt) => return Ok(BatchReceipt(receipt)),
                Err(error) if error.reason == PublishError::WouldBlock => receipt = error.receipt,
                Err(error) => return Err(raise_batch(py, error)),
            }
        }
        let signals = Signals::default();
        let rest = &messages[receipt.published..];
        let result = py.detach(|| topic.publish_batch_while(rest, timeout, &|| signals.go_on()));
        signals.check()?;
        match result {
            Ok(last) => Ok(BatchReceipt(sum(receipt, last))),
            Err(mut error) => {
                error.receipt = sum(receipt, error.receipt);
                Err(raise_batch(py, error))
            }
        }
    })
}

/// The same without waiting.
pub(crate) fn try_publish_many(
    topic: &Topic,
    payloads: &Bound<'_, PyAny>,
    head: &Head,
) -> PyResult<BatchReceipt> {
    with_messages(payloads, head, |messages, _| {
        let published = topic.try_publish_batch(messages);
        published.map(BatchReceipt).map_err(|error| raise_batch(payloads.py(), error))
    })
}

/// Calls `publish` with the messages of `payloads`, and how many bytes they have.
fn with_messages<R>(
    payloads: &Bound<'_, PyAny>,
    head: &Head,
    publish: impl FnOnce(&[NewMessage<'_>], usize) -> PyResult<R>,
) -> PyResult<R> {
    let py = payloads.py();
    // A copy, which nobody changes while this waits.
    let payloads = match payloads.cast::<PyList>() {
        Ok(list) => list.to_tuple(),
        Err(_) => PyTuple::new(py, payloads.try_iter()?.collect::<PyResult<Vec<_>>>()?)?,
    };
    let pairs = head.pairs();
    let mut bytes = 0;
    let mut messages = Vec::with_capacity(payloads.len());
    // Buffers are a vector of their own; most payloads are `bytes`, which need none.
    let plain = payloads.iter_borrowed().all(|payload| payload.is_instance_of::<PyBytes>());
    let objects: Vec<_> = if plain { Vec::new() } else { payloads.iter().collect() };
    let buffers = objects.iter().map(Bytes::of).collect::<PyResult<Vec<_>>>()?;
    let mut add = |payload| {
        let message: NewMessage<'_> = head.message(payload, &pairs);
        bytes += message.payload.len();
        messages.push(message);
    };
    if plain {
        for index in 0..payloads.len() {
            add(payloads.get_borrowed_item(index)?.extract::<&[u8]>()?);
        }
    }
    buffers.iter().for_each(|buffer| add(buffer.get()));
    publish(&messages, bytes)
}

/// The receipt of both parts of a batch.
fn sum(
    first: slipring_core::BatchReceipt,
    second: slipring_core::BatchReceipt,
) -> slipring_core::BatchReceipt {
    let mut sum = first;
    sum.published += second.published;
    sum.first = first.first.or(second.first);
    sum.matched += second.matched;
    sum.enqueued += second.enqueued;
    sum.dropped += second.dropped;
    sum.durable = second.durable && (first.durable || first.published == 0);
    sum
}

/// Space for a payload of `bytes` bytes.
pub(crate) fn loan(
    py: Python<'_>,
    topic: &Topic,
    bytes: usize,
    head: &Head,
) -> PyResult<slipring_core::Loan> {
    topic.loan_for(&head.message(&[], &head.pairs()), bytes).map_err(|error| raise(py, error))
}
