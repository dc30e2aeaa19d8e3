// An extension module in C++ that publishes ticks to a broker of Python: it writes them into the
// broker's memory, and Python reads them there, as an array.

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <slipring_python.h>

#include <cstring>

namespace {

struct Tick {
    double price;
    int64_t size;
};

// Publishes `frames` messages of `count` ticks each.
slipring_status publish_frames(const slipring_topic *topic, long frames, long count) {
    double price = 100;
    for (long frame = 0; frame < frames; ++frame) {
        slipring_loan *loan = nullptr;
        uint8_t *at = nullptr;
        const size_t bytes = static_cast<size_t>(count) * sizeof(Tick);
        slipring_status status = slipring_topic_loan(topic, nullptr, bytes, &loan, &at);
        if (status != SLIPRING_OK) return status;
        for (long n = 0; n < count; ++n) {
            const Tick tick = {price, n};
            std::memcpy(at + static_cast<size_t>(n) * sizeof tick, &tick, sizeof tick);
            price += 0.25;
        }
        status = slipring_loan_commit(&loan, nullptr);
        if (status != SLIPRING_OK) {
            slipring_loan_abort(&loan);
            return status;
        }
    }
    return SLIPRING_OK;
}

PyObject *raise(slipring_status status) {
    char text[256];
    const size_t length = slipring_last_error(text, sizeof text);
    const char *words = status < 0 && length > 0 ? text : slipring_status_str(status);
    PyErr_SetString(PyExc_RuntimeError, words);
    return nullptr;
}

PyObject *publish(PyObject *, PyObject *arguments) {
    PyObject *capsule = nullptr;
    const char *name = nullptr;
    Py_ssize_t name_len = 0;
    long frames = 0;
    long count = 0;
    if (!PyArg_ParseTuple(arguments, "Os#ll", &capsule, &name, &name_len, &frames, &count)) {
        return nullptr;
    }
    if (frames < 0 || count < 0) {
        PyErr_SetString(PyExc_ValueError, "frames and count are not negative");
        return nullptr;
    }
    const slipring_broker *broker = slipring_python_import(capsule);
    if (broker == nullptr) return nullptr;
    slipring_topic *topic = nullptr;
    slipring_status status =
        slipring_broker_topic(broker, name, static_cast<size_t>(name_len), &topic);
    if (status != SLIPRING_OK) return raise(status);
    // A subscription may have no room: others run meanwhile.
    Py_BEGIN_ALLOW_THREADS
    status = publish_frames(topic, frames, count);
    Py_END_ALLOW_THREADS
    PyObject *result = status == SLIPRING_OK ? Py_NewRef(Py_None) : raise(status);
    slipring_topic_free(&topic);
    return result;
}

PyMethodDef methods[] = {
    {"publish", publish, METH_VARARGS,
     "publish(capsule, topic, frames, count)\n--\n\nPublishes frames of ticks to a topic."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "ticks", "Publishes ticks.", 0, methods, nullptr, nullptr, nullptr, nullptr,
};

} // namespace

PyMODINIT_FUNC PyInit_ticks() { return PyModule_Create(&module); }
