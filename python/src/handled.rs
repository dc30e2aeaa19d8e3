//! What a handler of Python makes of a message: told by what it returns or raises.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
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

/// What it makes of a message; and how it failed, if it did.
#[inline]
pub(crate) fn handled(
    py: Python<'_>,
    result: PyResult<Bound<'_, PyAny>>,
) -> (Handled, Option<PyErr>) {
    match result {
        Ok(value) if value.is_none() => (Handled::Success, None),
        result => handled_specially(py, result),
    }
}

#[cold]
fn handled_specially(
    py: Python<'_>,
    result: PyResult<Bound<'_, PyAny>>,
) -> (Handled, Option<PyErr>) {
    let told = || -> PyResult<_> {
        let Classes { retry, dead_letter } = classes(py)?;
        let (retry, dead_letter) = (retry.bind(py), dead_letter.bind(py));
        let (value, error) = match result {
            Ok(value) if !value.is_instance(retry)? && !value.is_instance(dead_letter)? => {
                return Ok((Handled::Success, None));
            }
            Ok(value) => (value.clone(), PyErr::from_value(value)),
            Err(error) => (error.value(py).clone().into_any(), error),
        };
        let handled = if value.is_instance(dead_letter)? {
            Handled::dead_letter(value.str()?)
        } else if value.is_instance(retry)? {
            Handled::retry(value.str()?)
        } else {
            Handled::retry(&error)
        };
        Ok((handled, Some(error)))
    };
    told().unwrap_or_else(|error| (Handled::retry(&error), Some(error)))
}
