//! Subscribing: the options that Python gives, and what comes of them.

use crate::broker::Broker;
use crate::errors::raise;
use crate::handler::{Callbacks, Filter, HandlerSubscription};
use crate::options::{self, Seconds};
use crate::subscription::{Functions, Subscription};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyString;
use slipring_core::{DeliveryMode, SubscriptionBuilder};
use std::time::Duration;

/// How long a handler on an event loop has its message before that is renewed.
const LOOP_LEASE: Duration = Duration::from_secs(60);

/// What `Broker.subscribe` was given.
pub(crate) struct Options<'a, 'py> {
    pub(crate) handler: Option<Bound<'py, PyAny>>,
    pub(crate) name: Option<&'a str>,
    pub(crate) filter: Option<&'a Bound<'py, PyAny>>,
    pub(crate) capacity: Option<usize>,
    pub(crate) overflow: Option<&'a Bound<'py, PyAny>>,
    pub(crate) start: Option<&'a Bound<'py, PyAny>>,
    pub(crate) delivery: Option<&'a Bound<'py, PyAny>>,
    pub(crate) visibility_timeout: Option<Seconds>,
    pub(crate) max_delivery_attempts: Option<u32>,
    pub(crate) backoff: Option<&'a Bound<'py, PyAny>>,
    pub(crate) max_outstanding: Option<usize>,
    pub(crate) keys_overtake: bool,
    pub(crate) dead_letter_topic: Option<&'a str>,
    pub(crate) take_over: bool,
    pub(crate) wait: Option<&'a Bound<'py, PyAny>>,
    pub(crate) dedicated_thread: bool,
    pub(crate) circuit_breaker: Option<&'a Bound<'py, PyAny>>,
    pub(crate) on_error: Option<Bound<'py, PyAny>>,
    pub(crate) on_lagged: Option<Bound<'py, PyAny>>,
}

/// Who gets the messages.
enum Consumer {
    Pull,
    Workers(Py<PyAny>),
    /// A coroutine function, and the event loop that it is for.
    Loop(Py<PyAny>, Py<PyAny>),
}

/// Subscribes to `pattern`, and to `more` as well.
pub(crate) fn subscribe<'py>(
    broker: &Bound<'py, Broker>,
    pattern: &str,
    more: &[PyBackedStr],
    mut options: Options<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = broker.py();
    let consumer = options.consumer(py)?;
    let delivery = match options.delivery {
        Some(delivery) => options::delivery(delivery)?,
        None => DeliveryMode::default(),
    };
    let settles = delivery == DeliveryMode::AtLeastOnce;
    let mut shown = pattern.into_pyobject(py)?.repr()?.to_string();
    for pattern in more {
        shown = format!("{shown}, {}", pattern.into_pyobject(py)?.repr()?);
    }
    let mut builder = broker.get().core().subscription(pattern).delivery(delivery);
    for pattern in more {
        builder = builder.pattern(pattern);
    }
    let asked = options.visibility_timeout.take().map(|Seconds(timeout)| timeout);
    let lease = asked.or(matches!(consumer, Consumer::Loop(..)).then_some(LOOP_LEASE));
    builder = match (asked, lease) {
        (Some(lease), _) => builder.visibility_timeout(lease),
        (None, Some(lease)) => builder.usual_visibility_timeout(lease),
        (None, None) => builder,
    };
    let (builder, filter) = options.build(builder)?;
    let on_lagged = options.on_lagged.map(Bound::unbind);
    let on_error = options.on_error.map(Bound::unbind);
    let handle = broker.clone().unbind();
    let subscription = match consumer {
        Consumer::Pull => {
            let core = py.detach(|| builder.open()).map_err(|error| raise(py, error))?;
            let functions = Functions { filter, on_lagged };
            let subscription = Subscription::new(py, core, shown, functions, handle);
            return Ok(Bound::new(py, subscription)?.into_any());
        }
        Consumer::Workers(handler) => {
            let patterns = shown.clone();
            let callbacks = Callbacks { handler, filter, on_error, on_lagged, patterns };
            let core = callbacks.subscribe(broker, builder)?;
            HandlerSubscription::on_workers(core, options.name, shown, handle)
        }
        Consumer::Loop(handler, event_loop) => {
            let core = py.detach(|| builder.open()).map_err(|error| raise(py, error))?;
            let functions = Functions { filter, on_lagged: None };
            let broker = broker.clone().unbind();
            let pulled = Subscription::new(py, core, shown.clone(), functions, broker);
            let pulled = Py::new(py, pulled)?;
            let lease = lease.filter(|_| settles).map(|lease| lease.as_secs_f64());
            let start = py.import("slipring._asyncio")?.getattr("start_handler")?;
            let given = (event_loop, &pulled, handler, on_error, on_lagged, lease);
            let task = start.call1(given)?.unbind();
            HandlerSubscription::on_loop(pulled, task, shown, handle)
        }
    };
    Ok(Bound::new(py, subscription)?.into_any())
}

impl<'a, 'py> Options<'a, 'py> {
    /// Who gets the messages; refuses options that are not for that.
    fn consumer(&mut self, py: Python<'py>) -> PyResult<Consumer> {
        let Some(handler) = self.handler.take() else {
            if self.wait.is_some() || self.dedicated_thread || self.circuit_breaker.is_some() {
                return Err(only_for_workers());
            }
            if self.on_error.is_some() {
                return Err(PyTypeError::new_err("on_error is for handlers"));
            }
            return Ok(Consumer::Pull);
        };
        if !handler.is_callable() {
            return Err(PyTypeError::new_err("a handler is a function"));
        }
        let is_async = py.import("slipring._options")?.call_method1("is_async", (&handler,))?;
        if !is_async.extract::<bool>()? {
            return Ok(Consumer::Workers(handler.unbind()));
        }
        if self.wait.is_some() || self.dedicated_thread || self.circuit_breaker.is_some() {
            return Err(only_for_workers());
        }
        // Asked before anything is subscribed.
        let event_loop = py.import("slipring._asyncio")?.call_method0("running_loop")?;
        Ok(Consumer::Loop(handler.unbind(), event_loop.unbind()))
    }

    /// Gives what remains to the builder; and the filter, if that is a function.
    fn build<'b>(
        &self,
        mut builder: SubscriptionBuilder<'b>,
    ) -> PyResult<(SubscriptionBuilder<'b>, Option<Filter>)>
    where
        'a: 'b,
    {
        let mut function = None;
        if let Some(filter) = self.filter {
            if let Ok(expression) = filter.cast::<PyString>() {
                builder = builder.filter(expression.to_str()?);
            } else if filter.is_callable() {
                function = Some(Filter(filter.clone().unbind()));
            } else {
                return Err(PyTypeError::new_err("a filter is an expression or a function"));
            }
        }
        if let Some(name) = self.name {
            builder = builder.name(name);
        }
        if let Some(topic) = self.dead_letter_topic {
            builder = builder.dead_letter_topic(topic);
        }
        if let Some(capacity) = self.capacity {
            builder = builder.capacity(capacity);
        }
        if let Some(overflow) = self.overflow {
            builder = builder.overflow(options::overflow(overflow)?);
        }
        if let Some(start) = self.start {
            builder = builder.start(options::start(start)?);
        }
        if let Some(attempts) = self.max_delivery_attempts {
            builder = builder.max_delivery_attempts(attempts);
        }
        if let Some(backoff) = self.backoff {
            builder = builder.backoff(options::backoff(backoff)?);
        }
        if let Some(messages) = self.max_outstanding {
            builder = builder.max_outstanding(messages);
        }
        if self.keys_overtake {
            builder = builder.keys_overtake();
        }
        if self.take_over {
            builder = builder.take_over();
        }
        if let Some(wait) = self.wait {
            builder = builder.wait(options::wait(wait)?);
        }
        if self.dedicated_thread {
            builder = builder.dedicated_thread();
        }
        if let Some(breaker) = self.circuit_breaker {
            builder = builder.circuit_breaker(options::circuit_breaker(breaker)?);
        }
        Ok((builder, function))
    }
}

fn only_for_workers() -> PyErr {
    PyTypeError::new_err(
        "wait, dedicated_thread and circuit_breaker are for handlers that are no coroutines",
    )
}
