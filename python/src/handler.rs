//! Functions of Python that get messages: handlers, filters, and who is told of failures and losses.

use crate::batch::Messages;
use crate::broker::{Broker, Shared};
use crate::errors::{error, raise};
use crate::handled::handled;
use crate::interpreter;
use crate::message::{Argument, Message};
use crate::options::Seconds;
use crate::signals::interruptible;
use crate::subscription::Subscription;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBool, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use slipring_core::{
    Around, Handled, HandlerResult, HandlerSubscription as CoreSubscription, RecvError, StoreFault,
    SubscriptionBuilder,
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// Writes an error to the logger `slipring`; or, where it is `None`, what is over.
pub(crate) fn log(text: &str, error: Bound<'_, PyAny>) {
    let py = error.py();
    let log = py.import("slipring._logging").and_then(|module| module.getattr("log"));
    if let Err(failed) = log.and_then(|log| interpreter::call_for_nothing(&log, (text, error))) {
        interpreter::unraisable(py, failed);
    }
}

fn value(py: Python<'_>, error: PyErr) -> Bound<'_, PyAny> {
    error.into_value(py).into_bound(py).into_any()
}

/// A filter that is a function: it runs where the message is received.
pub(crate) struct Filter(pub(crate) Py<PyAny>);

impl Filter {
    /// Whether it wants `message`. One that raises does not, and that is logged.
    pub(crate) fn wants(&self, message: &Bound<'_, Message>) -> PyResult<bool> {
        Ok(self.wants_argument(&PyTuple::new(message.py(), [message])?))
    }

    /// The same for the message in `arguments`.
    fn wants_argument(&self, arguments: &Bound<'_, PyTuple>) -> bool {
        let py = arguments.py();
        let answer = interpreter::call(self.0.bind(py), arguments);
        let is_wanted = answer.and_then(|answer| match answer.cast::<PyBool>() {
            Ok(answer) => Ok(answer.is_true()),
            Err(_) => {
                let answer = PyTuple::new(py, [answer])?;
                let is_true = interpreter::call(&py.get_type::<PyBool>(), &answer);
                interpreter::release(answer);
                is_true?.is_truthy()
            }
        });
        is_wanted.unwrap_or_else(|error| {
            let text = "a filter function failed; the message counts as not wanted";
            log(text, value(py, error));
            false
        })
    }

    /// Those of `messages` that it wants.
    pub(crate) fn wanted(&self, py: Python<'_>, messages: &Messages) -> PyResult<Messages> {
        let mut wanted = messages.same_kind();
        for message in messages.iter() {
            if self.wants(&Bound::new(py, Message::from(message.keep()))?)? {
                wanted.push(&message);
            } else {
                not_wanted(&message);
            }
        }
        Ok(wanted)
    }
}

/// Settles a message that a filter does not want.
pub(crate) fn not_wanted(message: &slipring_core::Message<'_>) {
    // Where that fails it need not be settled, or comes again, and to the filter.
    _ = message.ack();
}

/// What goes around all handlers: a worker takes the interpreter for what has come for any of them.
fn around_handlers() -> &'static Around {
    static AROUND: OnceLock<Around> = OnceLock::new();
    AROUND.get_or_init(|| {
        Around::new(|run| {
            // At the end of the interpreter nothing is handled any more.
            if interpreter::lend_to_worker(run).is_none() {
                std::thread::park();
            }
        })
    })
}

/// What a handler has made of a message, in a word: more would be copied from memory, and that waits
/// until it has been written.
struct Made(Option<Box<Handled>>);

impl HandlerResult for Made {
    #[inline]
    fn into_handled(self) -> Handled {
        self.0.map_or(Handled::Success, |handled| *handled)
    }
}

/// What is made of a message by a handler that has returned something, or raised: then that is set.
#[cold]
fn specially<'py>(
    py: Python<'py>,
    result: Option<Bound<'py, PyAny>>,
) -> (Handled, Option<Bound<'py, PyAny>>) {
    handled(py, result.ok_or_else(|| PyErr::fetch(py)))
}

/// What a handler subscription calls.
pub(crate) struct Callbacks {
    pub(crate) handler: Py<PyAny>,
    pub(crate) filter: Option<Filter>,
    pub(crate) on_error: Option<Py<PyAny>>,
    pub(crate) on_lagged: Option<Py<PyAny>>,
    pub(crate) patterns: String,
}

impl Callbacks {
    /// Subscribes: the functions are called on delivery workers.
    pub(crate) fn subscribe(
        self,
        broker: &Bound<'_, Broker>,
        builder: SubscriptionBuilder<'_>,
    ) -> PyResult<CoreSubscription> {
        let py = broker.py();
        // Here, since importing runs code that is not guarded on a thread of the broker's.
        py.import("slipring._logging")?;
        let handler = Arc::new(Called::new(self, broker.get().shared()));
        let [on_error, on_lagged, on_unreadable] = [(); 3].map(|()| Arc::clone(&handler));
        // What the handler raised last, on its way to who is told.
        let raised = Arc::new(Mutex::new(None::<Py<PyAny>>));
        let raises = Arc::clone(&raised);
        let mut argument = Attached(Some(Argument::default()));
        let builder = builder
            .around(around_handlers())
            .on_error(move |failure| {
                let error = raised.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some(error) = error else { return };
                let message = failure.message.keep();
                interpreter::attach(|py| {
                    on_error.get().failed(py, message.into(), error.into_bound(py));
                });
            })
            .on_lagged(move |lost| {
                interpreter::attach(|py| on_lagged.get().lagged(py, lost));
            })
            .on_unreadable(move |fault| {
                interpreter::attach(|py| on_unreadable.get().unreadable(py, fault));
            });
        let handle = move |message: &slipring_core::Message<'_>| {
            interpreter::inside(|py| {
                let result = handler.get().handle(py, message, argument.get_mut());
                if result.as_ref().is_some_and(|value| value.is_none()) {
                    return Made(None);
                }
                let (handled, failure) = specially(py, result);
                if let Some(failure) = failure {
                    let mut raises = raises.lock().unwrap_or_else(PoisonError::into_inner);
                    *raises = Some(failure.unbind());
                }
                Made(Some(Box::new(handled)))
            })
        };
        py.detach(|| builder.handler(handle)).map_err(|error| raise(py, error))
    }

    /// Lets go of the functions, which may run what is left to them by their classes.
    fn release(self, py: Python<'_>) {
        let Self { handler, filter, on_error, on_lagged, .. } = self;
        let rest = [filter.map(|Filter(function)| function), on_error, on_lagged];
        for function in rest.into_iter().flatten().chain([handler]) {
            interpreter::release(function.into_bound(py));
        }
    }

    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.handler)?;
        visit.call(self.filter.as_ref().map(|filter| &filter.0))?;
        visit.call(&self.on_error)?;
        visit.call(&self.on_lagged)
    }

    #[inline]
    fn handle<'py>(
        &self,
        py: Python<'py>,
        message: &slipring_core::Message<'_>,
        argument: &mut Argument,
    ) -> Option<Bound<'py, PyAny>> {
        argument.lend(py, message, |arguments| {
            if self.filter.as_ref().is_some_and(|filter| !filter.wants_argument(arguments)) {
                return Some(py.None().into_bound(py));
            }
            interpreter::try_call(self.handler.bind(py), arguments)
        })
    }

    fn failed(&self, py: Python<'_>, message: Message, error: Bound<'_, PyAny>) {
        let Ok(message) = Bound::new(py, message) else { return };
        match &self.on_error {
            None => {
                let text = format!(
                    "the handler of {} failed on {}",
                    self.patterns,
                    message.repr().map_or_else(|_| "a message".into(), |text| text.to_string())
                );
                log(&text, error);
            }
            Some(on_error) => {
                let told = interpreter::call_for_nothing(on_error.bind(py), (message, error));
                if let Err(failed) = told {
                    log("an on_error function failed", value(py, failed));
                }
            }
        }
    }

    fn lagged(&self, py: Python<'_>, lost: u64) {
        let Some(on_lagged) = &self.on_lagged else { return };
        if let Err(failed) = interpreter::call_for_nothing(on_lagged.bind(py), (lost,)) {
            log("an on_lagged function failed", value(py, failed));
        }
    }

    /// Says why messages cannot be read at the moment, or that they can be again.
    fn unreadable(&self, py: Python<'_>, fault: Option<StoreFault>) {
        let messages = format!("messages for the handler of {}", self.patterns);
        match fault {
            Some(fault) => {
                let error = raise(py, RecvError::Store(fault));
                log(&format!("{messages} cannot be read, which is tried again"), value(py, error));
            }
            None => log(&format!("{messages} can be read again"), py.None().into_bound(py)),
        }
    }
}

/// Functions that a handler subscription calls, for as long as it does.
struct Called {
    callbacks: Attached<Arc<Callbacks>>,
    broker: Weak<Shared>,
}

impl Called {
    fn new(callbacks: Callbacks, broker: &Arc<Shared>) -> Self {
        let callbacks = Arc::new(callbacks);
        broker.add(&callbacks);
        Self { callbacks: Attached(Some(callbacks)), broker: Arc::downgrade(broker) }
    }

    fn get(&self) -> &Callbacks {
        self.callbacks.get()
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        interpreter::attach(|_| {
            if let Some(broker) = self.broker.upgrade() {
                broker.remove(self.callbacks.get());
            }
        });
    }
}

/// Objects of Python that are let go of with the interpreter at hand, on whichever thread that
/// happens.
struct Attached<T: Release>(Option<T>);

/// Lets go of objects of Python on a thread of the broker's.
trait Release {
    fn release(self, py: Python<'_>);
}

impl Release for Arc<Callbacks> {
    fn release(self, py: Python<'_>) {
        if let Some(callbacks) = Self::into_inner(self) {
            callbacks.release(py);
        }
    }
}

impl Release for Argument {
    fn release(self, py: Python<'_>) {
        if let Some(arguments) = self.into_tuple() {
            interpreter::release(arguments.into_bound(py));
        }
    }
}

impl<T: Release> Attached<T> {
    fn get(&self) -> &T {
        self.0.as_ref().unwrap_or_else(|| unreachable!("taken only when dropped"))
    }

    fn get_mut(&mut self) -> &mut T {
        self.0.as_mut().unwrap_or_else(|| unreachable!("taken only when dropped"))
    }
}

impl<T: Release> Drop for Attached<T> {
    fn drop(&mut self) {
        let objects = self.0.take();
        // Where there is no interpreter any more, they are left to the process's end.
        interpreter::attach(|py| objects.map(|objects| objects.release(py)));
    }
}

/// A subscription whose messages go to a function. It goes on, also when this object is forgotten,
/// until it or the broker is closed.
///
/// >>> import slipring, threading
/// >>> got = threading.Event()
/// >>> broker = slipring.open()
/// >>> with broker.subscribe("scores", handler=lambda message: got.set()) as cheering:
/// ...     receipt = broker.publish("scores", b"four!")
/// ...     got.wait(10)
/// True
/// >>> broker.publish("scores", b"six!").matched
/// 0
#[pyclass(frozen, weakref, module = "slipring")]
pub(crate) struct HandlerSubscription {
    kind: Kind,
    id: u64,
    name: Option<String>,
    patterns: String,
    broker: Py<Broker>,
}

enum Kind {
    /// On the delivery workers. `None` once it is closed.
    Workers(Mutex<Option<CoreSubscription>>),
    /// On an event loop: a task that takes from the subscription.
    Task(Py<Subscription>, Py<PyAny>),
}

impl HandlerSubscription {
    pub(crate) fn on_workers(
        subscription: CoreSubscription,
        name: Option<&str>,
        patterns: String,
        broker: Py<Broker>,
    ) -> Self {
        let (id, name) = (subscription.id(), name.map(str::to_owned));
        let kind = Kind::Workers(Mutex::new(Some(subscription)));
        Self { kind, id, name, patterns, broker }
    }

    pub(crate) fn on_loop(
        subscription: Py<Subscription>,
        task: Py<PyAny>,
        patterns: String,
        broker: Py<Broker>,
    ) -> Self {
        let (id, name) = (subscription.get().id, subscription.get().name.clone());
        let kind = Kind::Task(subscription, task);
        Self { kind, id, name, patterns, broker }
    }
}

#[pymethods]
impl HandlerSubscription {
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

    /// Messages queued and not handed to the handler yet.
    #[getter]
    fn queued(&self, py: Python<'_>) -> u64 {
        match &self.kind {
            Kind::Workers(subscription) => {
                let subscription = subscription.lock_py_attached(py);
                let subscription = subscription.unwrap_or_else(PoisonError::into_inner);
                subscription.as_ref().map_or(0, CoreSubscription::queued)
            }
            Kind::Task(subscription, _) => subscription.get().queued(py),
        }
    }

    /// Unsubscribes: when this returns, the handler does not run any more. What was queued is thrown
    /// away; but one that has a name and delivers at least once goes on without a consumer. Raises
    /// `Timeout` if the handler was still running after `timeout`; it is not called again. From
    /// inside the handler itself it returns at once, and the handler is not called again.
    ///
    /// A handler that is a coroutine is never waited for: it would need the event loop. Where it is
    /// awaiting something it goes on to its end, and it is not called again.
    #[pyo3(signature = (timeout=None))]
    fn close(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<()> {
        let subscription = match &self.kind {
            Kind::Workers(subscription) => {
                let subscription = subscription.lock_py_attached(py);
                subscription.unwrap_or_else(PoisonError::into_inner).take()
            }
            Kind::Task(subscription, _) => {
                subscription.get().close(py);
                None
            }
        };
        let Some(subscription) = subscription else { return Ok(()) };
        let timeout = timeout.map_or(Duration::MAX, |Seconds(timeout)| timeout);
        let ended = interruptible(py, move || subscription.unsubscribe_timeout(timeout).is_ok())?;
        if ended { Ok(()) } else { Err(error(py, "Timeout", "the handler is still running")) }
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py, None)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a subscription cannot be pickled: it belongs to a broker in this process",
        ))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Kind::Task(subscription, task) = &self.kind {
            visit.call(subscription)?;
            visit.call(task)?;
        }
        visit.call(&self.broker)
    }

    fn __repr__(&self) -> String {
        format!("<slipring.HandlerSubscription {} {}>", self.id, self.patterns)
    }
}

impl Drop for HandlerSubscription {
    fn drop(&mut self) {
        if let Kind::Workers(subscription) = &mut self.kind {
            let subscription = subscription.get_mut().unwrap_or_else(PoisonError::into_inner);
            if let Some(subscription) = subscription.take() {
                subscription.detach();
            }
        }
    }
}
