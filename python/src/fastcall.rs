//! `Topic.publish` and `Topic.try_publish` as the interpreter calls methods fastest.
//!
//! pyo3 has a tuple and a dict made for every call of a method that takes any keyword. Most publishes
//! give bytes and nothing else: those are done here, and whatever is different goes to the method of
//! pyo3, also what is refused, for nothing was published then.
#![expect(unsafe_code, reason = "the calling convention of the interpreter")]

use crate::publish::LARGE;
use crate::receipt::Receipt;
use crate::topic::Topic;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use std::ffi::{CString, c_int};

const NAMES: [&str; 2] = ["publish", "try_publish"];
/// The methods of pyo3.
static GENERAL: [PyOnceLock<Py<PyAny>>; 2] = [PyOnceLock::new(), PyOnceLock::new()];

/// Puts the fast methods in front of those of pyo3.
pub(crate) fn install(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<Topic>();
    let functions: [ffi::PyCFunctionFastWithKeywords; 2] = [call::<0>, call::<1>];
    for ((name, function), general) in NAMES.iter().zip(functions).zip(&GENERAL) {
        let method = class.getattr(name)?;
        let (signature, words) =
            (method.getattr("__text_signature__")?, method.getattr("__doc__")?);
        // Kept for good: the interpreter points at them.
        let doc = CString::new(format!("{name}{signature}\n--\n\n{words}"))?.into_raw();
        let definition = Box::leak(Box::new(ffi::PyMethodDef {
            ml_name: CString::new(*name)?.into_raw(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: function },
            ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS as c_int,
            ml_doc: doc,
        }));
        // SAFETY: a class, and a definition that stays. It returns a new reference, or NULL with an
        // error set.
        let fast = unsafe {
            let fast = ffi::PyDescr_NewMethod(class.as_type_ptr(), definition);
            Bound::from_owned_ptr_or_err(py, fast)?
        };
        general.get_or_init(py, || method.unbind());
        class.setattr(name, fast)?;
    }
    Ok(())
}

/// # Safety
/// Called by the interpreter as a method of [`Topic`].
unsafe extern "C" fn call<const WHICH: usize>(
    topic: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a method is called attached, on an object of its class, with so many arguments.
    unsafe {
        if count == 1 && keywords.is_null() {
            let py = Python::assume_attached();
            let topic = Borrowed::from_ptr(py, topic).cast_unchecked::<Topic>();
            let payload = Borrowed::from_ptr(py, *arguments).extract::<&[u8]>();
            if let Ok(payload) = payload
                && payload.len() <= LARGE
                && !topic.get().core().is_durable()
                && let Ok(receipt) = topic.get().core().try_publish(payload)
            {
                let receipt = Bound::new(py, Receipt(receipt));
                return receipt.map_or_else(|error| raise(py, error), Bound::into_ptr);
            }
        }
        Python::attach(|py| {
            let result = general::<WHICH>(py, topic, arguments, count, keywords);
            result.unwrap_or_else(|error| raise(py, error))
        })
    }
}

fn raise(py: Python<'_>, error: PyErr) -> *mut ffi::PyObject {
    error.restore(py);
    std::ptr::null_mut()
}

/// # Safety
/// As for [`call`].
#[cold]
unsafe fn general<const WHICH: usize>(
    py: Python<'_>,
    topic: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> PyResult<*mut ffi::PyObject> {
    // SAFETY: passed on: `count` arguments, and behind them one for each keyword.
    let (argument, topic, keywords) = unsafe {
        (
            |at: usize| Borrowed::from_ptr(py, *arguments.add(at)),
            Borrowed::from_ptr(py, topic),
            Borrowed::from_ptr_or_opt(py, keywords),
        )
    };
    let count = count as usize;
    let positional = std::iter::once(topic).chain((0..count).map(argument));
    let positional = PyTuple::new(py, positional.collect::<Vec<_>>())?;
    let named = PyDict::new(py);
    if let Some(keywords) = keywords {
        for (at, keyword) in keywords.cast::<PyTuple>()?.iter_borrowed().enumerate() {
            named.set_item(keyword, argument(count + at))?;
        }
    }
    let method = GENERAL[WHICH].get(py).map(|method| method.bind(py));
    let method = method.unwrap_or_else(|| unreachable!("set before this method was"));
    Ok(method.call(positional, Some(&named))?.into_ptr())
}
