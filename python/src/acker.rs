//! Settling messages from elsewhere: by ack id.

use crate::broker::Broker;
use crate::errors::{raise, raise_ack};
use crate::handled::handled;
use crate::handler::log;
use crate::interpreter;
use crate::message::Message;
use crate::options::Seconds;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use pyo3::{PyTraverseError, PyVisit};
use slipring_core::{AckError, AckId, Acker as CoreAcker};

/// Settles messages of one subscription by their ack ids, from any thread. It does not keep the
/// subscription.
///
/// >>> import slipring
/// >>> broker = slipring.open()
/// >>> jobs = broker.subscribe("jobs/*", delivery=slipring.DeliveryMode.AT_LEAST_ONCE)
/// >>> receipt = broker.publish("jobs/mail", b"send it")
/// >>> id = jobs.get().ack_id
/// >>> acker = jobs.acker()
/// >>> acker.ack(id), acker.ack(id)
/// (True, False)
#[pyclass(frozen, weakref, module = "slipring")]
pub(crate) struct Acker {
    acker: CoreAcker,
    broker: Py<Broker>,
}

impl Acker {
    pub(crate) fn new(acker: CoreAcker, broker: Py<Broker>) -> Self {
        Self { acker, broker }
    }
}

fn parse(py: Python<'_>, id: &str) -> PyResult<AckId> {
    id.parse().map_err(|error| raise(py, error))
}

/// What became of each of several: an exception where that is one.
fn outcomes<'py, R: IntoPyObject<'py> + Send>(
    py: Python<'py>,
    ids: &[String],
    setting: &str,
    settle: impl Fn(&AckId) -> Result<R, AckError> + Send,
) -> PyResult<Bound<'py, PyList>> {
    let ids = ids.iter().map(|id| parse(py, id)).collect::<PyResult<Vec<_>>>()?;
    let outcomes: Vec<_> = py.detach(|| ids.iter().map(settle).collect());
    let list = PyList::empty(py);
    for outcome in outcomes {
        match outcome {
            Ok(value) => list.append(value)?,
            Err(error) => list.append(raise_ack(py, error, setting).into_value(py))?,
        }
    }
    Ok(list)
}

/// Settles `message` as what a handler has returned or raised tells; and gives the failure, if it is
/// one. Without an `acker` it was delivered at most once.
#[pyfunction(name = "_settle")]
pub(crate) fn settle<'py>(
    acker: Option<&Bound<'py, Acker>>,
    message: &Bound<'py, Message>,
    returned: Bound<'py, PyAny>,
    raised: Option<Bound<'py, PyAny>>,
) -> Option<Bound<'py, PyAny>> {
    let py = message.py();
    let result = raised.map_or(Ok(returned), |error| Err(PyErr::from_value(error)));
    let (handled, failure) = handled(py, result);
    let id = message.get().core().and_then(|message| message.ack_id());
    if let (Some(acker), Some(id)) = (acker, id) {
        let acker = &acker.get().acker;
        // Any other error: somebody else has the message by now, or it is gone.
        if let Err(error @ AckError::DeadLetter(_)) = py.detach(|| acker.settle(&id, &handled)) {
            let error = raise(py, error).into_value(py).into_bound(py);
            log("a dead letter is not stored", error.into_any());
        }
    }
    failure
}

#[pymethods]
impl Acker {
    /// Settles the message: see `Message.ack`. Raises `UnknownAckId` for an id of another
    /// subscription, here and in the other methods.
    fn ack(&self, py: Python<'_>, id: &str) -> PyResult<bool> {
        let id = parse(py, id)?;
        interpreter::lend(py, || self.acker.ack(&id)).map_err(|error| raise(py, error))
    }

    /// Gives the message back: see `Message.nack`.
    #[pyo3(signature = (id, delay=None))]
    fn nack(&self, py: Python<'_>, id: &str, delay: Option<Seconds>) -> PyResult<()> {
        let (id, delay) = (parse(py, id)?, delay.map(|Seconds(delay)| delay));
        py.detach(|| self.acker.nack(&id, delay)).map_err(|error| raise_ack(py, error, "delay"))
    }

    /// Gives up on the message: see `Message.dead_letter`.
    #[pyo3(signature = (id, reason=""))]
    fn dead_letter(&self, py: Python<'_>, id: &str, reason: &str) -> PyResult<()> {
        let id = parse(py, id)?;
        py.detach(|| self.acker.dead_letter(&id, reason)).map_err(|error| raise(py, error))
    }

    /// The lease now ends that long from now: see `Message.extend`.
    fn extend(&self, py: Python<'_>, id: &str, seconds: Seconds) -> PyResult<()> {
        let extended = self.acker.modify_ack_deadline(&parse(py, id)?, seconds.0);
        extended.map_err(|error| raise_ack(py, error, "seconds"))
    }

    /// Settles all of `ids`. What became of each, in their order: what `ack` returns, or the
    /// exception that it raises.
    fn ack_all<'py>(&self, py: Python<'py>, ids: Vec<String>) -> PyResult<Bound<'py, PyList>> {
        outcomes(py, &ids, "", |id| self.acker.ack(id))
    }

    /// Gives all of `ids` back. What became of each, in their order: `None` or an exception.
    #[pyo3(signature = (ids, delay=None))]
    fn nack_all<'py>(
        &self,
        py: Python<'py>,
        ids: Vec<String>,
        delay: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyList>> {
        let delay = delay.map(|Seconds(delay)| delay);
        outcomes(py, &ids, "delay", |id| self.acker.nack(id, delay).map(|()| None::<bool>))
    }

    /// Moves the ends of the leases of all of `ids`. What became of each, in their order: `None` or
    /// an exception.
    fn extend_all<'py>(
        &self,
        py: Python<'py>,
        ids: Vec<String>,
        seconds: Seconds,
    ) -> PyResult<Bound<'py, PyList>> {
        outcomes(py, &ids, "seconds", |id| {
            self.acker.modify_ack_deadline(id, seconds.0).map(|()| None::<bool>)
        })
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "an acker cannot be pickled: it belongs to a broker in this process",
        ))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.broker)
    }
}
