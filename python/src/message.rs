//! Messages as Python sees them: buffers over the record where it lies.
#![expect(unsafe_code, reason = "exports the record as a buffer, and lends messages to handlers")]

use crate::buffer::{self, Exported};
use crate::errors::{raise, raise_ack};
use crate::interpreter;
use crate::options::Seconds;
use pyo3::exceptions::PyKeyError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList, PyMemoryView, PyTuple};
use slipring_core::{AckError, Message as CoreMessage, OwnedMessage};
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of a payload that `repr` shows.
const SHOWN: usize = 32;

/// A message. It is a read-only buffer over the payload where it lies: `memoryview(message)` and
/// `numpy.frombuffer(message)` copy nothing, `bytes(message)` copies. It keeps its chunk of the log
/// (64 KiB, or itself if larger) in memory as long as it lives, also when the broker is closed.
///
/// >>> import slipring
/// >>> with slipring.open() as broker:
/// ...     scores = broker.subscribe("sports/*")
/// ...     receipt = broker.publish("sports/cricket", b"four!", team="IN")
/// ...     message = scores.get()
/// >>> message.topic, message.offset, message.attempt
/// ('sports/cricket', 0, 1)
/// >>> bytes(message), memoryview(message)[:4].tobytes()
/// (b'four!', b'four')
#[pyclass(frozen, module = "slipring")]
pub(crate) struct Message(UnsafeCell<Body>);

// SAFETY: all bodies are, and one is replaced only by another of the same record, or while nobody
// else has the message; both attached.
unsafe impl Sync for Message {}

enum Body {
    Kept(OwnedMessage),
    /// While a handler runs, whose worker keeps the record. By reference: it has just been written,
    /// and copying it would wait for that.
    Lent(&'static CoreMessage<'static>),
    Copied(Box<Copied>),
}

/// A message that came out of a pickle.
struct Copied {
    topic: String,
    payload: PyBackedBytes,
    key: Option<String>,
    id: String,
    attributes: Vec<(String, String)>,
    partition: u32,
    offset: u64,
    published_us: u64,
    attempt: u32,
    ack_id: Option<String>,
}

impl From<OwnedMessage> for Message {
    #[inline]
    fn from(message: OwnedMessage) -> Self {
        Self(UnsafeCell::new(Body::Kept(message)))
    }
}

/// The message that a handler is called with, as its only argument. Where the handler has not kept
/// it, the next call uses it again: a call then allocates nothing.
#[derive(Default)]
pub(crate) struct Argument(Option<(Py<PyTuple>, Py<Message>)>);

impl Argument {
    /// The tuple, if there is one.
    pub(crate) fn into_tuple(self) -> Option<Py<PyTuple>> {
        self.0.map(|(tuple, _)| tuple)
    }

    /// Calls `f` with a tuple of the message; `None` if there is no memory for that.
    #[inline]
    pub(crate) fn lend<'py, R>(
        &mut self,
        py: Python<'py>,
        message: &CoreMessage<'_>,
        f: impl FnOnce(&Bound<'py, PyTuple>) -> Option<R>,
    ) -> Option<R> {
        // SAFETY: it is replaced by one that keeps the record before this returns, wherever
        // somebody else still has it; `f` does not unwind, since it calls Python alone.
        let lent = Body::Lent(unsafe {
            std::mem::transmute::<&CoreMessage<'_>, &'static CoreMessage<'static>>(message)
        });
        let (tuple, given) = match self.0.take() {
            Some((tuple, given)) => {
                // SAFETY: as it was kept here, nobody else has it.
                unsafe { *given.get().0.get() = lent };
                (tuple, given)
            }
            None => match Self::first(py, lent) {
                Ok(new) => new,
                Err(error) => {
                    error.restore(py);
                    return None;
                }
            },
        };
        let result = f(tuple.bind(py));
        // One reference is the tuple's and one is `given`.
        if references(given.bind(py)) == 2 && references(tuple.bind(py)) == 1 {
            self.0 = Some((tuple, given));
        } else {
            // SAFETY: attached, so nobody reads it at the moment, and what others have read of it
            // lies in the same record, which it keeps from now on.
            unsafe { *given.get().0.get() = Body::Kept(message.keep()) };
        }
        result
    }

    #[cold]
    fn first(py: Python<'_>, lent: Body) -> PyResult<(Py<PyTuple>, Py<Message>)> {
        let given = Bound::new(py, Message(UnsafeCell::new(lent)))?;
        let tuple = PyTuple::new(py, [&given])?;
        // SAFETY: a new object. It is in no cycle, and between calls nobody must find it.
        unsafe { ffi::PyObject_GC_UnTrack(tuple.as_ptr().cast()) };
        Ok((tuple.unbind(), given.unbind()))
    }
}

fn references<T>(object: &Bound<'_, T>) -> isize {
    // SAFETY: an object that is borrowed; attached.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) }
}

impl Message {
    fn body(&self) -> &Body {
        // SAFETY: see `Sync`; whoever calls is attached.
        unsafe { &*self.0.get() }
    }

    /// The message, unless it is a copy.
    pub(crate) fn core(&self) -> Option<CoreMessage<'_>> {
        match self.body() {
            Body::Kept(message) => Some(message.view()),
            Body::Lent(message) => Some(**message),
            Body::Copied(_) => None,
        }
    }

    /// Partition and offset.
    pub(crate) fn place(&self) -> (u32, u64) {
        (self.partition(), self.offset())
    }

    /// Settles it, which may wait.
    fn settle(
        &self,
        py: Python<'_>,
        settle: impl FnOnce(CoreMessage<'_>) -> Result<(), AckError> + Send,
    ) -> Result<(), AckError> {
        match self.body() {
            // It stays what it is, since whoever calls has it.
            Body::Kept(message) => py.detach(|| settle(message.view())),
            // To be told that its handler's result settles it.
            Body::Lent(message) => settle(**message),
            Body::Copied(_) => Err(AckError::NotLeased),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self.body() {
            Body::Kept(message) => message.payload(),
            Body::Lent(message) => message.payload(),
            Body::Copied(copied) => &copied.payload,
        }
    }

    fn pairs(&self) -> Box<dyn Iterator<Item = (&str, &str)> + '_> {
        match self.body() {
            Body::Kept(message) => Box::new(message.view().attributes()),
            Body::Lent(message) => Box::new(message.attributes()),
            Body::Copied(copied) => {
                Box::new(copied.attributes.iter().map(|(key, value)| (&**key, &**value)))
            }
        }
    }

    fn published_us(&self) -> u64 {
        match self.body() {
            Body::Kept(message) => message.view().published_us(),
            Body::Lent(message) => message.published_us(),
            Body::Copied(copied) => copied.published_us,
        }
    }
}

#[pymethods]
impl Message {
    /// The payload: a read-only memoryview of the record where it lies.
    #[getter]
    fn payload<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(this.as_any())
    }

    /// The name of the topic it was published to.
    #[getter]
    fn topic(&self) -> &str {
        match self.body() {
            Body::Kept(message) => message.topic(),
            Body::Lent(message) => message.topic(),
            Body::Copied(copied) => &copied.topic,
        }
    }

    /// The ordering key, or `None`.
    #[getter]
    fn key(&self) -> Option<&str> {
        match self.body() {
            Body::Kept(message) => message.view().key(),
            Body::Lent(message) => message.key(),
            Body::Copied(copied) => copied.key.as_deref(),
        }
    }

    /// The attributes: a read-only mapping over the record where it lies.
    #[getter]
    fn attributes(this: Py<Self>) -> Attributes {
        Attributes(this)
    }

    /// The publisher's own id, or a UUID derived from the message's place, as text.
    #[getter]
    fn id(&self) -> String {
        match self.body() {
            Body::Kept(message) => message.view().id().to_string(),
            Body::Lent(message) => message.id().to_string(),
            Body::Copied(copied) => copied.id.clone(),
        }
    }

    /// Number of the partition, unique in the broker.
    #[getter]
    fn partition(&self) -> u32 {
        match self.body() {
            Body::Kept(message) => message.view().partition(),
            Body::Lent(message) => message.partition(),
            Body::Copied(copied) => copied.partition,
        }
    }

    /// Position in the partition, from 0.
    #[getter]
    fn offset(&self) -> u64 {
        match self.body() {
            Body::Kept(message) => message.view().offset(),
            Body::Lent(message) => message.offset(),
            Body::Copied(copied) => copied.offset,
        }
    }

    /// Which delivery of the message to this subscription this is, counted from 1. Where messages are
    /// delivered at most once, it is always the first.
    #[getter]
    fn attempt(&self) -> u32 {
        match self.body() {
            Body::Copied(copied) => copied.attempt,
            _ => self.core().map_or(1, |message| message.attempt()),
        }
    }

    /// What names this delivery, as text: by it, an `Acker` settles the message from anywhere. `None`
    /// where it is not to be settled, or a handler's result settles it.
    #[getter]
    fn ack_id(&self) -> Option<String> {
        match self.body() {
            Body::Copied(copied) => copied.ack_id.clone(),
            _ => self.core()?.ack_id().map(|id| id.to_string()),
        }
    }

    /// Settles the message: this subscription does not get it again. False if that had no effect,
    /// because the message was settled before, has expired, or was delivered anew since. Raises
    /// `NotLeased` where messages are delivered at most once, in a handler, and for a copy out of a
    /// pickle.
    fn ack(&self, py: Python<'_>) -> PyResult<bool> {
        let acked = self
            .core()
            .map_or(Err(AckError::NotLeased), |message| interpreter::lend(py, || message.ack()));
        acked.map_err(|error| raise(py, error))
    }

    /// Gives the message back: it has failed, and is delivered again after `delay` (at most 24 hours;
    /// `None`: as the subscription's `Backoff` has it), or goes to the dead letters, if this was its
    /// last attempt. Raises `Stale` if the lease is over, and `NotLeased` as `ack` does.
    #[pyo3(signature = (delay=None))]
    fn nack(&self, py: Python<'_>, delay: Option<Seconds>) -> PyResult<()> {
        let delay = delay.map(|Seconds(delay)| delay);
        let settled = self.settle(py, |message| message.nack(delay));
        settled.map_err(|error| raise_ack(py, error, "delay"))
    }

    /// Gives up on the message: it goes to the dead letters, with `reason` (its first 1,024 bytes),
    /// and is settled. Raises as `nack` does; `Expired` if it is gone; `DeadLetterNotStored` if the
    /// letter could not be stored: then the message will be delivered again.
    #[pyo3(signature = (reason=""))]
    fn dead_letter(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        let settled = self.settle(py, |message| message.dead_letter(reason));
        settled.map_err(|error| raise(py, error))
    }

    /// The lease ends that long from now (10 ms to 600 s) instead of when it would have: the time for
    /// this message alone, which may also be made shorter. Raises as `nack` does.
    fn extend(&self, py: Python<'_>, seconds: Seconds) -> PyResult<()> {
        let extended = match self.core() {
            Some(message) => message.modify_ack_deadline(seconds.0),
            None => Err(AckError::NotLeased),
        };
        extended.map_err(|error| raise_ack(py, error, "seconds"))
    }

    /// When it was published: an aware `datetime` in UTC.
    #[getter]
    fn published_at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.published_us())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let bytes = self.bytes();
        let shown = PyBytes::new(py, &bytes[..bytes.len().min(SHOWN)]).repr()?.to_string();
        let more = if bytes.len() > SHOWN { "..." } else { "" };
        let topic = self.topic().into_pyobject(py)?.repr()?.to_string();
        let again = match self.attempt() {
            1 => String::new(),
            attempt => format!(" attempt={attempt}"),
        };
        Ok(format!(
            "<slipring.Message {topic} offset={}{again} {} bytes {shown}{more}>",
            self.offset(),
            bytes.len()
        ))
    }

    /// A pickle holds a copy of the message.
    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let rebuild = py.import("slipring._slipring")?.getattr("_rebuild_message")?;
        let attributes: Vec<_> = self.pairs().collect();
        let payload = PyBytes::new(py, self.bytes());
        let place = (self.partition(), self.offset(), self.published_us());
        let lease = (self.attempt(), self.ack_id());
        let parts = (self.topic(), payload, self.key(), self.id(), attributes, place, lease);
        Ok((rebuild, parts.into_pyobject(py)?))
    }

    /// # Safety
    /// Called by the interpreter.
    unsafe fn __getbuffer__(
        this: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = this.get().bytes();
        let bytes = Exported::ReadOnly(bytes.as_ptr(), bytes.len());
        // SAFETY: the message keeps its payload, which never changes.
        unsafe { buffer::export(this.into_any(), bytes, view, flags) }
    }
}

/// Makes a message of a pickle.
#[pyfunction(name = "_rebuild_message")]
pub(crate) fn rebuild_message(
    topic: String,
    payload: PyBackedBytes,
    key: Option<String>,
    id: String,
    attributes: Vec<(String, String)>,
    place: (u32, u64, u64),
    lease: (u32, Option<String>),
) -> Message {
    let (partition, offset, published_us) = place;
    let (attempt, ack_id) = lease;
    Message(UnsafeCell::new(Body::Copied(Box::new(Copied {
        topic,
        payload,
        key,
        id,
        attributes,
        partition,
        offset,
        published_us,
        attempt,
        ack_id,
    }))))
}

/// The attributes of a message: a read-only mapping that looks them up in the record.
///
/// >>> import slipring
/// >>> with slipring.open() as broker:
/// ...     scores = broker.subscribe("scores")
/// ...     receipt = broker.publish("scores", b"four!", team="IN")
/// ...     attributes = scores.get().attributes
/// >>> attributes["team"], attributes.get("over"), dict(attributes)
/// ('IN', None, {'team': 'IN'})
#[pyclass(frozen, mapping, module = "slipring")]
pub(crate) struct Attributes(Py<Message>);

impl Attributes {
    fn find(&self, key: &str) -> Option<&str> {
        self.0.get().pairs().find(|&(name, _)| name == key).map(|(_, value)| value)
    }
}

#[pymethods]
impl Attributes {
    fn __len__(&self) -> usize {
        self.0.get().pairs().count()
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> bool {
        key.extract::<&str>().is_ok_and(|key| self.find(key).is_some())
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<&str> {
        let found = key.extract::<&str>().ok().and_then(|key| self.find(key));
        found.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.keys(py)?.into_any().call_method0("__iter__")
    }

    /// The value of `key`, or `default` if there is none.
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.find(key) {
            Some(value) => Ok(Some(value.into_pyobject(py)?.into_any())),
            None => Ok(default),
        }
    }

    /// The keys, in the order in which they were published.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.0.get().pairs().map(|(key, _)| key).collect::<Vec<_>>())
    }

    /// The values, in the order of the keys.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.0.get().pairs().map(|(_, value)| value).collect::<Vec<_>>())
    }

    /// Pairs of key and value.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.0.get().pairs().collect::<Vec<_>>())
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let mine = self.to_dict(py)?;
        match other.cast::<Self>() {
            Ok(other) => mine.eq(other.get().to_dict(py)?),
            Err(_) => mine.eq(other),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Attributes({})", self.to_dict(py)?.repr()?))
    }
}

impl Attributes {
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (key, value) in self.0.get().pairs() {
            dict.set_item(key, value)?;
        }
        Ok(dict)
    }
}
