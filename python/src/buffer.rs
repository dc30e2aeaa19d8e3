//! Bytes that cross: any buffer as a payload on the way in, records as buffers on the way out.
#![expect(unsafe_code, reason = "the buffer protocol")]

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::{ptr, slice};

/// The bytes of an object that has some, which stay where they are as long as this lives.
pub(crate) struct Bytes<'a, 'py> {
    py: Python<'py>,
    bytes: &'a [u8],
    /// Where they are not those of a `bytes` object, which never change.
    view: Option<View>,
}

impl<'a, 'py> Bytes<'a, 'py> {
    /// # Errors
    /// `TypeError` if it has no bytes, `BufferError` if they do not lie in one piece.
    #[inline]
    pub(crate) fn of(object: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self { py: object.py(), bytes: bytes.as_bytes(), view: None });
        }
        Self::of_buffer(object)
    }

    #[cold]
    fn of_buffer(object: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("a payload is bytes-like, not str: encode it"));
        }
        let view = View::of(object)?;
        let buffer = &*view.buffer;
        let bytes = if buffer.len == 0 {
            &[]
        } else {
            // SAFETY: a simple buffer is so many bytes at `buf`, until it is released. That nobody
            // changes them meanwhile is the caller's business, as with every user of buffers.
            unsafe { slice::from_raw_parts(buffer.buf.cast::<u8>(), buffer.len as usize) }
        };
        Ok(Self { py: object.py(), bytes, view: Some(view) })
    }

    #[inline]
    pub(crate) fn py(&self) -> Python<'py> {
        self.py
    }

    /// The bytes.
    #[inline]
    pub(crate) fn get(&self) -> &[u8] {
        debug_assert!(self.view.as_ref().is_none_or(|v| v.buffer.len as usize == self.bytes.len()));
        self.bytes
    }
}

/// A buffer that is released when this is dropped, which is while attached: it does not outlive the
/// [`Bytes`] that it is part of.
struct View {
    /// In a box, because exporters may point into it.
    buffer: Box<ffi::Py_buffer>,
}

impl View {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut buffer = Box::new(MaybeUninit::<ffi::Py_buffer>::uninit());
        // SAFETY: an object and room for a buffer; attached, as the object shows.
        let got = unsafe {
            ffi::PyObject_GetBuffer(object.as_ptr(), buffer.as_mut_ptr(), ffi::PyBUF_SIMPLE)
        };
        if got != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: filled in, as it returned 0.
        Ok(Self { buffer: unsafe { buffer.assume_init() } })
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: got from PyObject_GetBuffer, and released this once.
        unsafe { ffi::PyBuffer_Release(&raw mut *self.buffer) };
    }
}

/// Bytes of `owner` that it exports to Python.
pub(crate) enum Exported {
    /// They never change.
    ReadOnly(*const u8, usize),
    /// Python may write them.
    Writable(*mut u8, usize),
}

/// Fills in a buffer over bytes of `owner`.
///
/// # Safety
/// `view` is what `__getbuffer__` was given; the bytes stay as long as `owner`, and as the way they
/// are exported says.
pub(crate) unsafe fn export(
    owner: Bound<'_, PyAny>,
    bytes: Exported,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("no room for a buffer"));
    }
    let (at, len, read_only) = match bytes {
        Exported::ReadOnly(at, len) => (at.cast_mut(), len, 1),
        Exported::Writable(at, len) => (at, len, 0),
    };
    // SAFETY: passed on; it takes a reference to the owner, and refuses to make what is read-only
    // writable.
    let filled = unsafe {
        (*view).obj = ptr::null_mut();
        ffi::PyBuffer_FillInfo(view, owner.as_ptr(), at.cast(), len as isize, read_only, flags)
    };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py())) }
}
