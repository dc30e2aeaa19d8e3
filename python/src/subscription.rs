//! Subscriptions whose messages are fetched.

use crate::acker::Acker;
use crate::async_messages::AsyncMessages;
use crate::batch::{Batch, Messages};
use crate::broker::Broker;
use crate::errors::{error, raise};
use crate::handler::{Filter, not_wanted};
use crate::interpreter;
use crate::message::Message;
use crate::options::{self, Seconds, deadline};
use crate::signals::wait_readable;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};
use slipring_core::{RecvError, Subscription as CoreSubscription, TryRecvError};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// A subscription whose messages are fetched: one at a time, many at a time, by iterating, or by
/// awaiting. Several threads and tasks may share it; each message goes to one of them.
///
/// >>> import slipring
/// >>> with slipring.open() as broker:
/// ...     sub = broker.subscribe("a")
/// ...     receipt = broker.publish_many("a", [b"1", b"2", b"3"])
/// ...     bytes(sub.get()), sub.queued
/// (b'1', 2)
/// >>> [bytes(message) for message in sub]
/// [b'2', b'3']
#[pyclass(frozen, weakref, module = "slipring")]
pub(crate) struct Subscription {
    /// `None` once it is closed. Never locked while waiting for a message, nor while Python code runs.
    subscription: Mutex<Option<CoreSubscription>>,
    /// Whether messages are delivered at least once.
    settles: bool,
    pub(crate) id: u64,
    pub(crate) name: Option<String>,
    patterns: String,
    /// Locked only with the interpreter at hand, and while no code of Python runs.
    functions: Mutex<Functions>,
    is_filtered: bool,
    /// Readable while there is something to receive. A duplicate of the subscription's own, so that
    /// who waits for it is woken also by its closing, and does not wait for another file then.
    event: OnceLock<OwnedFd>,
    /// Tasks that wait, by event loop; kept by `slipring/_asyncio.py`.
    waiting: Py<PyDict>,
    broker: Py<Broker>,
}

/// What a subscription calls.
#[derive(Default)]
pub(crate) struct Functions {
    pub(crate) filter: Option<Filter>,
    pub(crate) on_lagged: Option<Py<PyAny>>,
}

impl Subscription {
    pub(crate) fn new(
        py: Python<'_>,
        subscription: CoreSubscription,
        patterns: String,
        functions: Functions,
        broker: Py<Broker>,
    ) -> Self {
        Self {
            id: subscription.id(),
            settles: subscription.acker().is_some(),
            name: subscription.name().map(str::to_owned),
            subscription: Mutex::new(Some(subscription)),
            patterns,
            is_filtered: functions.filter.is_some(),
            functions: Mutex::new(functions),
            event: OnceLock::new(),
            waiting: PyDict::new(py).unbind(),
            broker,
        }
    }

    fn functions(&self) -> MutexGuard<'_, Functions> {
        self.functions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn filter(&self, py: Python<'_>) -> Option<Filter> {
        if !self.is_filtered {
            return None;
        }
        self.functions().filter.as_ref().map(|Filter(function)| Filter(function.clone_ref(py)))
    }

    fn lock<'a>(&'a self, py: Python<'_>) -> MutexGuard<'a, Option<CoreSubscription>> {
        self.subscription.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    fn event(&self, py: Python<'_>) -> PyResult<BorrowedFd<'_>> {
        if let Some(event) = self.event.get() {
            return Ok(event.as_fd());
        }
        let mut subscription = self.lock(py);
        let subscription = subscription.as_mut().ok_or_else(|| closed(py))?;
        let event = subscription.event_fd()?.try_clone_to_owned()?;
        Ok(self.event.get_or_init(|| event).as_fd())
    }

    /// Deals with what is no message: `Ok` if there was a loss, and it was told.
    #[cold]
    fn tell(&self, py: Python<'_>, error: RecvError) -> PyResult<()> {
        let on_lagged = self.functions().on_lagged.as_ref().map(|function| function.clone_ref(py));
        match (on_lagged, error) {
            (Some(on_lagged), RecvError::Lagged(count)) => {
                interpreter::call_for_nothing(on_lagged.bind(py), (count,))
            }
            _ => Err(raise(py, error)),
        }
    }

    /// Does `work`, which receives, unless it is closed.
    #[inline]
    fn try_to<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut CoreSubscription) -> R,
    ) -> PyResult<R> {
        let mut subscription = self.lock(py);
        let subscription = subscription.as_mut().ok_or_else(|| closed(py))?;
        Ok(interpreter::lend(py, || work(subscription)))
    }

    /// The next message that is there.
    pub(crate) fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Message>>> {
        loop {
            let taken = self
                .try_to(py, |subscription| subscription.try_recv().map(|message| message.keep()))?;
            match taken {
                Ok(message) => {
                    let message = Bound::new(py, Message::from(message))?;
                    match self.filter(py) {
                        Some(filter) if !filter.wants(&message)? => {
                            message.get().core().iter().for_each(not_wanted);
                        }
                        _ => return Ok(Some(message)),
                    }
                }
                Err(TryRecvError::Recv(error)) => self.tell(py, error)?,
                Err(_) => return Ok(None),
            }
        }
    }

    /// The next message; `None` if there is none by `deadline`.
    fn wait_for<'py>(
        &self,
        py: Python<'py>,
        deadline: Option<Instant>,
    ) -> PyResult<Option<Bound<'py, Message>>> {
        loop {
            if let Some(message) = self.take(py)? {
                return Ok(Some(message));
            }
            if !wait_readable(py, self.event(py)?, deadline)? {
                return Ok(None);
            }
        }
    }

    /// Up to `most` messages that are there.
    fn take_many(&self, py: Python<'_>, most: usize) -> PyResult<Messages> {
        loop {
            let mut messages = Messages::new(self.settles);
            let polled = self.try_to(py, |subscription| {
                subscription.poll(most, |message| messages.push(message))
            })?;
            match polled {
                Ok(0) => return Ok(messages),
                Ok(_) => {
                    if let Some(filter) = self.filter(py) {
                        messages = filter.wanted(py, &messages)?;
                    }
                    if !messages.is_empty() {
                        return Ok(messages);
                    }
                }
                Err(error) => self.tell(py, error)?,
            }
        }
    }
}

fn closed(py: Python<'_>) -> PyErr {
    error(py, "Closed", "the subscription is closed")
}

#[pymethods]
impl Subscription {
    /// Number of the subscription, unique in the broker.
    #[getter]
    fn id(&self) -> u64 {
        self.id
    }

    /// The name it was given, or `None`.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Messages queued and not received. What was published before the subscription began, or before
    /// it last sought, may not be counted yet: whether there is something, receiving tells.
    #[getter]
    pub(crate) fn queued(&self, py: Python<'_>) -> u64 {
        self.lock(py).as_ref().map_or(0, CoreSubscription::queued)
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.lock(py).is_none()
    }

    /// The next message, waiting for it for at most `timeout`; raises `Timeout` then.
    #[pyo3(signature = (timeout=None))]
    fn get<'py>(&self, py: Python<'py>, timeout: Option<Seconds>) -> PyResult<Bound<'py, Message>> {
        self.wait_for(py, deadline(timeout))?
            .ok_or_else(|| error(py, "Timeout", "no message came in time"))
    }

    /// Up to `n` messages: those that are there, or else, waiting for it for at most `timeout`, at
    /// least one. Empty if none came in time.
    ///
    /// >>> import slipring
    /// >>> sub = slipring.open().subscribe("a")
    /// >>> len(sub.get_many(100, timeout=0))
    /// 0
    #[pyo3(signature = (n, timeout=None))]
    fn get_many(&self, py: Python<'_>, n: usize, timeout: Option<Seconds>) -> PyResult<Batch> {
        let deadline = deadline(timeout);
        loop {
            let messages = self.take_many(py, n)?;
            if n == 0 || !messages.is_empty() {
                return Ok(messages.into());
            }
            if !wait_readable(py, self.event(py)?, deadline)? {
                return Ok(messages.into());
            }
        }
    }

    /// The next message if there is one now, else `None`.
    fn get_nowait<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Message>>> {
        self.take(py)
    }

    /// Waits for the next message on the running event loop.
    fn aget<'py>(this: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        this.py().import("slipring._asyncio")?.call_method1("get", (this,))
    }

    /// Waits for at least one and takes up to `n` messages on the running event loop.
    fn aget_many<'py>(this: Bound<'py, Self>, n: usize) -> PyResult<Bound<'py, PyAny>> {
        this.py().import("slipring._asyncio")?.call_method1("get_many", (this, n))
    }

    /// A descriptor that is readable exactly while something can be received: for `selectors` and
    /// event loops. Level-triggered; not to be read from. It stays the same, and open as long as the
    /// subscription object.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.event(py).map(|event| event.as_raw_fd())
    }

    /// Settles its messages by their ack ids, from any thread. Raises `AtMostOnce` where there is
    /// nothing to settle.
    fn acker(&self, py: Python<'_>) -> PyResult<Acker> {
        let acker = self.lock(py).as_ref().ok_or_else(|| closed(py))?.acker();
        match acker {
            Some(acker) => Ok(Acker::new(acker, self.broker.clone_ref(py))),
            None => Err(error(
                py,
                "AtMostOnce",
                "a subscription that delivers at most once has no acks",
            )),
        }
    }

    /// Goes on from `start`, which may lie before what was received: what is there is delivered anew.
    /// All that was received and not settled is forgotten, and its ack ids are stale.
    ///
    /// >>> import slipring
    /// >>> broker = slipring.open()
    /// >>> jobs = broker.subscribe("jobs", delivery=slipring.DeliveryMode.AT_LEAST_ONCE)
    /// >>> receipt = broker.publish("jobs", b"mail")
    /// >>> jobs.get().ack()
    /// True
    /// >>> jobs.seek(slipring.Start.EARLIEST)
    /// >>> bytes(jobs.get())
    /// b'mail'
    fn seek(&self, py: Python<'_>, start: &Bound<'_, PyAny>) -> PyResult<()> {
        let start = options::start(start)?;
        let mut subscription = self.lock(py);
        let subscription = subscription.as_mut().ok_or_else(|| closed(py))?;
        py.detach(|| subscription.seek(start)).map_err(|error| raise(py, error))
    }

    /// Unsubscribes; one that has a name and delivers at least once goes on without a consumer. Who
    /// waits for a message meanwhile is told `Closed`.
    pub(crate) fn close(&self, py: Python<'_>) {
        let subscription = self.lock(py).take();
        py.detach(move || drop(subscription));
    }

    /// Tasks that wait, by event loop.
    #[getter]
    fn _waiting(&self) -> &Py<PyDict> {
        &self.waiting
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Message>>> {
        self.wait_for(py, None).or_else(|error| {
            let closed = py.import("slipring._errors")?.getattr("Closed")?;
            if error.is_instance(py, &closed) { Ok(None) } else { Err(error) }
        })
    }

    fn __aiter__(this: Py<Self>) -> AsyncMessages {
        AsyncMessages::of(this)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a subscription cannot be pickled: it belongs to a broker in this process",
        ))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let functions = self.functions();
        visit.call(functions.filter.as_ref().map(|Filter(function)| function))?;
        visit.call(&functions.on_lagged)?;
        visit.call(&self.waiting)?;
        visit.call(&self.broker)
    }

    fn __clear__(&self) {
        let functions = std::mem::take(&mut *self.functions());
        drop(functions);
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let closed = if self.closed(py) { " closed" } else { "" };
        format!("<slipring.Subscription {} {}{closed}>", self.id, self.patterns)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let subscription =
            self.subscription.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if subscription.is_some() {
            // Unsubscribing waits for shards.
            Python::attach(|py| py.detach(move || drop(subscription)));
        }
    }
}
