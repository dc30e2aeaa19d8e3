//! One broker shared with native code of the same process: a capsule with a handle of the C ABI and
//! the functions to use it with. `include/slipring_python.h` is the other side.
#![expect(unsafe_code, reason = "memory that C reads")]

use crate::broker::Broker;
use crate::table::{FUNCTIONS, Function};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use slipring_c_abi::broker::slipring_broker;
use std::ffi::{CStr, c_void};

/// As in the header.
const NAME: &CStr = c"slipring.broker";

/// What native code must have been built for: the layout of [`Contents`], and of all that the functions
/// take and give. The table may grow without a new number, and so may what says its own size. Before the
/// first release it is 1, whatever changes. The header takes it from here.
const ABI: u32 = 1;

/// What the capsule points to: `struct slipring_python` of the header.
#[repr(C)]
struct Contents {
    abi: u32,
    functions_len: u32,
    broker: *const slipring_broker,
    functions: *const Function,
    // From here on C does not look.
    _broker: Py<Broker>,
}

/// A capsule that keeps its broker open.
pub(crate) fn new<'py>(broker: &Bound<'py, Broker>) -> PyResult<Bound<'py, PyCapsule>> {
    let contents = Box::into_raw(Box::new(Contents {
        abi: ABI,
        functions_len: FUNCTIONS.len() as u32,
        broker: Box::into_raw(Box::new(slipring_broker::from(broker.get().core().clone()))),
        functions: FUNCTIONS.as_ptr(),
        _broker: broker.clone().unbind(),
    }));
    // SAFETY: attached; the pointer is not NULL, and the name is static.
    let capsule = unsafe { ffi::PyCapsule_New(contents.cast(), NAME.as_ptr(), Some(free)) };
    if capsule.is_null() {
        // SAFETY: made above, and nobody else's.
        unsafe { free_contents(contents.cast()) };
    }
    // SAFETY: a new reference, or NULL with an error set.
    unsafe { Ok(Bound::from_owned_ptr_or_err(broker.py(), capsule)?.cast_into_unchecked()) }
}

/// The capsule's destructor.
unsafe extern "C" fn free(capsule: *mut ffi::PyObject) {
    // SAFETY: called by the interpreter with a capsule that `new` made.
    unsafe { free_contents(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr())) }
}

/// # Safety
/// `contents` is what `new` made, and not used any more.
unsafe fn free_contents(contents: *mut c_void) {
    // SAFETY: passed on.
    let contents = unsafe { Box::from_raw(contents.cast::<Contents>()) };
    // SAFETY: made of a box by `new`.
    let broker = unsafe { Box::from_raw(contents.broker.cast_mut()) };
    // A handle: the broker itself closes with the object of Python.
    drop(broker);
    Python::attach(|_| drop(contents));
}
