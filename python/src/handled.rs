//! What a handler of Python makes of a message: told by what it returns or raises.

use crate::interpreter;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple, PyType};
use slipring_core::Handled;

/// The classes of `slipring/_handled.py`.
struct Classes {
    retry: Py<PyType>,
    dead_letter: Py<PyType>,
}

fn classes(py: Python<'_>) -> PyResult<&Classes> {
    static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();
    CLASSES.get_or_try_init(py, || {
        let module = py.import("slipring._handled")?;
        let class = |name| Ok::<_, PyErr>(module.getattr(name)?.cast_into::<PyType>()?.unbind());
        Ok(Classes { retry: class("Retry")?, dead_letter: class("DeadLetter")? })
    })
}

/// What it makes of a message; and what it has raised, or returned to say that it failed.
#[inline]
pub(crate) fn handled<'py>(
    py: Python<'py>,
    result: PyResult<Bound<'py, PyAny>>,
) -> (Handled, Option<Bound<'py, PyAny>>) {
    match result {
        Ok(value) if value.is_none() => (Handled::Success, None),
        result => handled_specially(py, result),
    }
}

#[cold]
fn handled_specially<'py>(
    py: Python<'py>,
    result: PyResult<Bound<'py, PyAny>>,
) -> (Handled, Option<Bound<'py, PyAny>>) {
    let is_raised = result.is_err();
    let value = result.unwrap_or_else(|error| error.into_value(py).into_bound(py).into_any());
    let class = value.get_type();
    let is = |wanted: fn(&Classes) -> &Py<PyType>| {
        classes(py).and_then(|classes| class.is_subclass(wanted(classes).bind(py)))
    };
    let is_retry = is(|classes| &classes.retry).unwrap_or(false);
    let handled = if is(|classes| &classes.dead_letter).unwrap_or(false) {
        Handled::dead_letter(text(&value))
    } else if is_retry {
        Handled::retry(text(&value))
    } else if is_raised {
        let class = class.name().map_or_else(|_| String::new(), |name| name.to_string());
        Handled::retry(format_args!("{class}: {}", text(&value)))
    } else {
        interpreter::release(value);
        return (Handled::Success, None);
    };
    (handled, Some(value))
}

/// What an exception says.
fn text(value: &Bound<'_, PyAny>) -> String {
    let py = value.py();
    let text = PyTuple::new(py, [value])
        .and_then(|arguments| interpreter::call(&py.get_type::<PyString>(), &arguments))
        .and_then(|text| text.extract());
    text.unwrap_or_else(|_| "its text cannot be told".to_owned())
}
