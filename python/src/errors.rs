//! The core's errors as the exceptions of `slipring/_errors.py`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use slipring_core::internals::{ErrorKind, Kind};
use slipring_core::{
    BatchError, ConfigError, InvalidFilter, InvalidMessage, InvalidName, PublishError, RecvError,
    SubscribeError,
};
use std::fmt::Display;

/// The exception class of a kind. Complete: a new kind does not compile without one.
fn class_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::AtMostOnce => "AtMostOnce",
        ErrorKind::Closed => "Closed",
        ErrorKind::Disconnected => "Disconnected",
        // Nobody asks for a message without saying for how long.
        ErrorKind::Empty | ErrorKind::Timeout => "Timeout",
        ErrorKind::Forked => "Forked",
        ErrorKind::Full => "Full",
        ErrorKind::InsideFilter => "InsideFilter",
        ErrorKind::InvalidFilter => "InvalidFilter",
        ErrorKind::InvalidMessage => "InvalidMessage",
        ErrorKind::InvalidName => "InvalidName",
        ErrorKind::InvalidSubscriptionName => "InvalidSubscriptionName",
        ErrorKind::Lagged => "Lagged",
        ErrorKind::NameInUse => "NameInUse",
        ErrorKind::NoMemory => "NoMemory",
        ErrorKind::NoThread => "NoThread",
        ErrorKind::OutOfRange => "OutOfRange",
        ErrorKind::TopicDeleted => "TopicDeleted",
        ErrorKind::TopicExists => "TopicExists",
        ErrorKind::UnknownSubscription => "UnknownSubscription",
        ErrorKind::UnknownTopic => "UnknownTopic",
        ErrorKind::WouldBlock => "WouldBlock",
    }
}

/// The exception `name` of the package, saying `text`.
pub(crate) fn exception<'py>(
    py: Python<'py>,
    name: &str,
    text: impl Display,
) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("slipring._errors").map(Bound::unbind))?;
    module.bind(py).getattr(name)?.cast_into::<PyType>()?.call1((text.to_string(),))
}

/// The same, ready to be raised.
pub(crate) fn error(py: Python<'_>, name: &str, text: impl Display) -> PyErr {
    exception(py, name, text).map_or_else(|error| error, PyErr::from_value)
}

/// An error of the core that has attributes of its own.
pub(crate) trait Details {
    /// Gives them to the exception.
    fn describe(&self, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        Ok(())
    }
}

/// The exception that an error of the core is in Python.
pub(crate) fn raise<E: Kind + Details + Display>(py: Python<'_>, error: E) -> PyErr {
    let described = || {
        let exception = exception(py, class_name(error.kind()), &error)?;
        if let Some(position) = error.position() {
            exception.setattr("position", position)?;
        }
        error.describe(&exception)?;
        Ok(PyErr::from_value(exception))
    };
    described().unwrap_or_else(|error| error)
}

/// The exception of a batch that ended early: the reason's, with the receipt of what was published.
pub(crate) fn raise_batch(py: Python<'_>, error: BatchError) -> PyErr {
    let raised = raise(py, error.reason);
    let receipt = crate::receipt::BatchReceipt(error.receipt);
    match raised.value(py).setattr("receipt", receipt) {
        Ok(()) => raised,
        Err(error) => error,
    }
}

impl Details for InvalidName {
    fn describe(&self, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let rule = exception.py().import("slipring._options")?.getattr("NameRule")?;
        exception.setattr("reason", rule.call1((self.reason.as_str(),))?)
    }
}

impl Details for InvalidFilter {
    fn describe(&self, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        exception.setattr("reason", &self.reason)
    }
}

impl Details for InvalidMessage {
    fn describe(&self, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let (index, bytes, limit) = match *self {
            Self::PayloadTooLarge { bytes, limit } => (None, Some(bytes), Some(limit)),
            Self::KeyTooLong { bytes } | Self::IdLength { bytes } => (None, Some(bytes), None),
            Self::AttributeKeyLength { index, bytes }
            | Self::AttributeValueTooLong { index, bytes } => (Some(index), Some(bytes), None),
            Self::DuplicateAttribute { index } => (Some(index), None, None),
            _ => (None, None, None),
        };
        exception.setattr("index", index)?;
        exception.setattr("size", bytes)?;
        exception.setattr("limit", limit)
    }
}

impl Details for PublishError {
    fn describe(&self, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        match self {
            Self::InvalidName(error) => error.describe(exception),
            Self::InvalidMessage(error) => error.describe(exception),
            _ => Ok(()),
        }
    }
}

impl Details for SubscribeError {
    fn describe(&self, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        match self {
            Self::InvalidPattern(error) => error.describe(exception),
            Self::InvalidFilter(error) => error.describe(exception),
            Self::OutOfRange { setting, min, max } => out_of_range(exception, setting, *min, *max),
            _ => Ok(()),
        }
    }
}

impl Details for RecvError {
    fn describe(&self, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        match self {
            Self::Lagged(count) => exception.setattr("count", count),
            _ => Ok(()),
        }
    }
}

impl Details for ConfigError {
    fn describe(&self, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        match self {
            Self::OutOfRange { setting, min, max } => out_of_range(exception, setting, *min, *max),
            Self::InvalidName(error) => error.describe(exception),
            Self::Unavailable(error) => error.describe(exception),
            _ => Ok(()),
        }
    }
}

fn out_of_range(exception: &Bound<'_, PyAny>, setting: &str, min: u64, max: u64) -> PyResult<()> {
    exception.setattr("setting", setting)?;
    exception.setattr("min", min)?;
    exception.setattr("max", max)
}
