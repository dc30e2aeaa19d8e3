//! The core's errors as the exceptions of `slipring/_errors.py`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use slipring_core::internals::{ErrorKind, Kind};
use slipring_core::{
    AckError, BatchError, ConfigError, InvalidAckId, InvalidFilter, InvalidMessage, InvalidName,
    OpenError, PublishError, RecvError, SeekError, SubscribeError,
};
use std::fmt::Display;

/// The exception class of a kind. Complete: a new kind does not compile without one.
fn class_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::AtMostOnce => "AtMostOnce",
        ErrorKind::Closed => "Closed",
        ErrorKind::Damaged => "Damaged",
        ErrorKind::Disconnected => "Disconnected",
        // Nobody asks for a message without saying for how long.
        ErrorKind::Empty | ErrorKind::Timeout => "Timeout",
        ErrorKind::Forked => "Forked",
        ErrorKind::Full => "Full",
        ErrorKind::Incompatible => "Incompatible",
        ErrorKind::InsideFilter => "InsideFilter",
        ErrorKind::InvalidFilter => "InvalidFilter",
        ErrorKind::InvalidMessage => "InvalidMessage",
        ErrorKind::InvalidName => "InvalidName",
        ErrorKind::InvalidSubscriptionName => "InvalidSubscriptionName",
        ErrorKind::Lagged => "Lagged",
        ErrorKind::Locked => "Locked",
        ErrorKind::NameInUse => "NameInUse",
        ErrorKind::NoMemory => "NoMemory",
        ErrorKind::NoThread => "NoThread",
        ErrorKind::NotLeased => "NotLeased",
        ErrorKind::OutOfRange => "OutOfRange",
        ErrorKind::Stale => "Stale",
        ErrorKind::Store => "StoreError",
        ErrorKind::TopicDeleted => "TopicDeleted",
        ErrorKind::TopicExists => "TopicExists",
        ErrorKind::UnknownAckId => "UnknownAckId",
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
    /// The class of an error that is more special than its kind.
    fn class_name(&self) -> Option<&'static str> {
        None
    }

    /// Gives them to the exception.
    fn describe(&self, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        Ok(())
    }
}

/// The exception that an error of the core is in Python.
pub(crate) fn raise<E: Kind + Details + Display>(py: Python<'_>, error: E) -> PyErr {
    let described = || {
        let class_name = error.class_name().unwrap_or_else(|| class_name(error.kind()));
        let exception = exception(py, class_name, &error)?;
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

/// The exception of what could not be settled, where `setting` is the time that was given.
pub(crate) fn raise_ack(py: Python<'_>, error: AckError, setting: &str) -> PyErr {
    let raised = raise(py, error);
    let AckError::OutOfRange { min_ms, max_ms, .. } = error else { return raised };
    match out_of_range(raised.value(py), setting, seconds(min_ms), seconds(max_ms)) {
        Ok(()) => raised,
        Err(error) => error,
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

impl Details for AckError {
    fn class_name(&self) -> Option<&'static str> {
        match self {
            Self::Expired => Some("Expired"),
            Self::DeadLetter(_) => Some("DeadLetterNotStored"),
            _ => None,
        }
    }

    fn describe(&self, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        match *self {
            Self::DeadLetter(reason) => {
                let py = exception.py();
                exception.setattr("__cause__", raise(py, reason).into_value(py))
            }
            _ => Ok(()),
        }
    }
}

impl Details for InvalidAckId {}

impl Details for SeekError {}

impl Details for OpenError {
    fn describe(&self, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        match self {
            Self::Config(error) => error.describe(exception),
            _ => Ok(()),
        }
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
    fn class_name(&self) -> Option<&'static str> {
        let is_different = matches!(self, Self::Different | Self::DifferentSetting { .. });
        is_different.then_some("DifferentSubscription")
    }

    fn describe(&self, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        match self {
            Self::InvalidPattern(error) | Self::InvalidDeadLetterTopic(error) => {
                error.describe(exception)
            }
            Self::InvalidFilter(error) => error.describe(exception),
            // In the unit that it is given in.
            Self::OutOfRange { setting: setting @ "visibility_timeout", min, max } => {
                let (min, max) = (seconds(*min), seconds(*max));
                let text = format!("{setting} must be {min} to {max} seconds");
                exception.setattr("args", (text,))?;
                out_of_range(exception, setting, min, max)
            }
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

fn out_of_range<'py>(
    exception: &Bound<'py, PyAny>,
    setting: &str,
    min: impl IntoPyObject<'py>,
    max: impl IntoPyObject<'py>,
) -> PyResult<()> {
    exception.setattr("setting", setting)?;
    exception.setattr("min", min)?;
    exception.setattr("max", max)
}
