//! Topics as publishers hold them.

use crate::broker::Broker;
use crate::loan::Loan;
use crate::options::Seconds;
use crate::publish::{self, Head};
use crate::receipt::{BatchReceipt, Receipt};
use crate::ticket::Ticket;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};

/// A topic to publish to. Usable from all threads at once. It keeps its broker open.
///
/// >>> import slipring
/// >>> broker = slipring.open()
/// >>> scores = broker.topic("sports/cricket")
/// >>> scores.publish(b"four!", team="IN").offset, scores.publish(b"six!", key="IN").offset
/// (0, 1)
/// >>> scores
/// <slipring.Topic 'sports/cricket'>
#[pyclass(frozen, weakref, module = "slipring")]
pub(crate) struct Topic {
    topic: slipring_core::Topic,
    broker: Py<Broker>,
}

impl Topic {
    pub(crate) fn new(topic: slipring_core::Topic, broker: Py<Broker>) -> Self {
        Self { topic, broker }
    }

    pub(crate) fn core(&self) -> &slipring_core::Topic {
        &self.topic
    }
}

#[pymethods]
impl Topic {
    /// The topic's name.
    #[getter]
    fn name(&self) -> &str {
        self.topic.name()
    }

    /// Whether the messages go into a directory: then publishing may wait for the disk.
    #[getter]
    fn durable(&self) -> bool {
        self.topic.is_durable()
    }

    /// Publishes one message: the bytes of anything bytes-like. Attributes come as keywords, or as a
    /// mapping, which may have any keys. Waits where a subscription that blocks has no room, for at
    /// most `timeout`.
    ///
    /// >>> import slipring
    /// >>> topic = slipring.open().topic("sports/cricket")
    /// >>> topic.publish(b"four!", team="IN").offset
    /// 0
    #[pyo3(signature = (payload, /, *, attributes=None, key=None, id=None, timeout=None, **more))]
    fn publish(
        &self,
        payload: &Bound<'_, PyAny>,
        attributes: Option<&Bound<'_, PyAny>>,
        key: Option<PyBackedStr>,
        id: Option<PyBackedStr>,
        timeout: Option<Seconds>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Receipt> {
        let head = Head::new(key, id, attributes, more)?;
        publish::publish(&self.topic, payload, &head, timeout)
    }

    /// Publishes one message without waiting: raises `WouldBlock` where a subscription that blocks
    /// has no room, or somebody else is publishing right now.
    #[pyo3(signature = (payload, /, *, attributes=None, key=None, id=None, **more))]
    fn try_publish(
        &self,
        payload: &Bound<'_, PyAny>,
        attributes: Option<&Bound<'_, PyAny>>,
        key: Option<PyBackedStr>,
        id: Option<PyBackedStr>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Receipt> {
        let head = Head::new(key, id, attributes, more)?;
        publish::try_publish(&self.topic, payload, &head)
    }

    /// Publishes one message and waits until it survives a power cut, whatever the `sync` of the broker.
    /// In memory that is at once, and the receipt says that it does not. Waits besides as `publish`
    /// does; the disk is waited for without a limit.
    ///
    /// >>> import slipring, tempfile
    /// >>> with tempfile.TemporaryDirectory() as path:
    /// ...     with slipring.open(path, sync=slipring.Sync.OS) as broker:
    /// ...         topic = broker.topic("jobs")
    /// ...         topic.publish(b"mail").durable, topic.publish_sync(b"money").durable
    /// (False, True)
    #[pyo3(signature = (payload, /, *, attributes=None, key=None, id=None, timeout=None, **more))]
    fn publish_sync(
        &self,
        payload: &Bound<'_, PyAny>,
        attributes: Option<&Bound<'_, PyAny>>,
        key: Option<PyBackedStr>,
        id: Option<PyBackedStr>,
        timeout: Option<Seconds>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Receipt> {
        let head = Head::new(key, id, attributes, more)?;
        publish::publish_sync(&self.topic, payload, &head, timeout)
    }

    /// Publishes one message without waiting for its turn: the receipt can be had from the ticket
    /// later. Meant for `open(sequencer=Pinned(...))`, where it makes publishing cost a copy. Tickets of
    /// one thread are published in order. Raises what `loan` raises; other reasons are told by the
    /// ticket.
    #[pyo3(signature = (payload, /, *, attributes=None, key=None, id=None, **more))]
    fn publish_ticket(
        &self,
        payload: &Bound<'_, PyAny>,
        attributes: Option<&Bound<'_, PyAny>>,
        key: Option<PyBackedStr>,
        id: Option<PyBackedStr>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Ticket> {
        let head = Head::new(key, id, attributes, more)?;
        let ticket = publish::ticket(&self.topic, payload, &head)?;
        let broker = self.broker.clone_ref(payload.py());
        Ok(Ticket::new(ticket, self.topic.is_durable(), broker))
    }

    /// Publishes many messages in order, with one call; key and attributes are those of each. The
    /// exception of a batch that ends early has the `receipt` of what was published before.
    ///
    /// >>> import slipring
    /// >>> slipring.open().topic("a").publish_many([b"1", b"2"]).published
    /// 2
    #[pyo3(signature = (payloads, /, *, attributes=None, key=None, timeout=None, **more))]
    fn publish_many(
        &self,
        payloads: &Bound<'_, PyAny>,
        attributes: Option<&Bound<'_, PyAny>>,
        key: Option<PyBackedStr>,
        timeout: Option<Seconds>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<BatchReceipt> {
        let head = Head::new(key, None, attributes, more)?;
        publish::publish_many(&self.topic, payloads, &head, timeout)
    }

    /// The same without waiting: the exception `WouldBlock` has the `receipt` of what was published
    /// before it had to.
    #[pyo3(signature = (payloads, /, *, attributes=None, key=None, **more))]
    fn try_publish_many(
        &self,
        payloads: &Bound<'_, PyAny>,
        attributes: Option<&Bound<'_, PyAny>>,
        key: Option<PyBackedStr>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<BatchReceipt> {
        let head = Head::new(key, None, attributes, more)?;
        publish::try_publish_many(&self.topic, payloads, &head)
    }

    /// Space for a payload of `size` bytes, to be written in place: `with topic.loan(n) as view`
    /// publishes it at the end of the block, without a copy, and nothing if the block raises.
    ///
    /// >>> import slipring
    /// >>> loan = slipring.open().topic("a").loan(3)
    /// >>> with loan as view:
    /// ...     view[:] = b"abc"
    /// >>> loan.receipt.offset
    /// 0
    #[pyo3(signature = (size, /, *, attributes=None, key=None, id=None, timeout=None, **more))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn loan(
        &self,
        py: Python<'_>,
        size: usize,
        attributes: Option<&Bound<'_, PyAny>>,
        key: Option<PyBackedStr>,
        id: Option<PyBackedStr>,
        timeout: Option<Seconds>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Loan> {
        let head = Head::new(key, id, attributes, more)?;
        let loan = publish::loan(py, &self.topic, size, &head)?;
        Ok(Loan::new(loan, size, timeout, self.broker.clone_ref(py)))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.broker)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a topic cannot be pickled: it belongs to a broker in this process",
        ))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<slipring.Topic {}>", self.name().into_pyobject(py)?.repr()?))
    }
}
