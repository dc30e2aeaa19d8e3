// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A broker of Python, used by C and C++ in the same process: an extension module gets the capsule of
// `broker.capsule()` and calls the functions of slipring.h, without linking libslipring.
//
//     #include <Python.h>
//     #include <slipring_python.h>
//
//     static PyObject *start(PyObject *module, PyObject *capsule) {
//         const slipring_broker *broker = slipring_python_import(capsule);
//         if (broker == NULL) return NULL; // an exception is set
//         slipring_broker_publish(broker, SLIPRING_TEXT("a/b"), SLIPRING_BYTES("x"), NULL);
//
// The handle lives as long as the capsule: keep a reference to that, or to what was made of the
// handle (a topic, a subscription), which outlives it. Every source file imports for itself.
//
// What can wait is called without the interpreter's lock (Py_BEGIN_ALLOW_THREADS). Filter functions
// run while a shard is held: they must not take the lock. Other callbacks may (PyGILState_Ensure).
//
// Made by `cargo xtask header`: do not edit.

#ifndef SLIPRING_PYTHON_H
#define SLIPRING_PYTHON_H

#ifndef Py_PYTHON_H
#error "include Python.h before slipring_python.h"
#endif

#include "slipring.h"

// What an extension and the package must agree on: the layout of `slipring_python`, and all that the
// functions take and give (structs, records). A release that changes one of these, other than by
// adding at an end, raises it; before the first release it is 1.
#define SLIPRING_PYTHON_ABI @ABI@
// How many functions this header knows. A library that has fewer is refused.
#define SLIPRING_PYTHON_FUNCTIONS @COUNT@

// The functions of slipring.h, in an order that never changes; new ones come last.
typedef struct slipring_functions {
@MEMBERS@
} slipring_functions;

// What the capsule points to.
typedef struct slipring_python {
    // SLIPRING_PYTHON_ABI of the library.
    uint32_t abi;
    // SLIPRING_PYTHON_FUNCTIONS of the library.
    uint32_t functions_len;
    // The broker: not to be freed.
    const slipring_broker *broker;
    const slipring_functions *functions;
} slipring_python;

// Set by `slipring_python_import`.
static const slipring_python *slipring_python_api = NULL;

// The broker of a capsule; NULL with an exception set if it is no such capsule (ValueError), or of a
// library that does not fit this header (ImportError). Call it before any function of slipring.h, with
// the interpreter's lock.
static inline const slipring_broker *slipring_python_import(PyObject *capsule) {
    const slipring_python *api =
        (const slipring_python *)PyCapsule_GetPointer(capsule, "slipring.broker");
    if (api == NULL) return NULL;
    if (api->abi != SLIPRING_PYTHON_ABI || api->functions_len < SLIPRING_PYTHON_FUNCTIONS) {
        PyErr_Format(PyExc_ImportError,
                     "this extension was built for %s slipring: with ABI %d and %d functions, where "
                     "the one that is installed has ABI %u and %u",
                     api->abi > SLIPRING_PYTHON_ABI ? "an older" : "a newer", SLIPRING_PYTHON_ABI,
                     SLIPRING_PYTHON_FUNCTIONS, (unsigned)api->abi, (unsigned)api->functions_len);
        return NULL;
    }
    // The functions are those of the module, so any capsule's will do; what they are reached through
    // must outlive this capsule.
    static slipring_python kept;
    kept = *api;
    slipring_python_api = &kept;
    return api->broker;
}

@MACROS@

#endif // SLIPRING_PYTHON_H
