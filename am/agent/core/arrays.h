/* Borrows arrays from Python for one call. An array that is not C-contiguous, or has another type or number of
 * dimensions than expected, is a ValueError. */
#ifndef THEMIS_AGENT_ARRAYS_H
#define THEMIS_AGENT_ARRAYS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "shapes.h"

enum { MAX_ARRAYS = 7 };

typedef struct {
    Py_buffer view[MAX_ARRAYS];
    int held;
} Arrays;

static inline void release(Arrays *arrays) {
    while (arrays->held) PyBuffer_Release(&arrays->view[--arrays->held]);
}

static inline int is_int64(const Py_buffer *view) {
    return view->itemsize == sizeof(int64_t) && (!strcmp(view->format, "l") || !strcmp(view->format, "q"));
}

static inline int is_int16(const Py_buffer *view) {
    return view->itemsize == sizeof(int16_t) && !strcmp(view->format, "h");
}

static inline int is_float64(const Py_buffer *view) { return !strcmp(view->format, "d"); }

/* Borrows one more array. Returns NULL with an error set if it has another type or number of dimensions. */
static inline Py_buffer *array(Arrays *arrays, PyObject *object, int (*is_type)(const Py_buffer *), int dimensions,
                               int flags) {
    Py_buffer *view = &arrays->view[arrays->held];
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | flags)) return NULL;
    arrays->held++;
    if (view->ndim == dimensions && is_type(view)) return view;
    PyErr_Format(PyExc_ValueError, "array %d must be of %s in %d dimensions, not of type %s in %d", arrays->held,
                 is_type == is_int64 ? "int64" : is_type == is_int16 ? "int16" : "float64", dimensions,
                 view->format, view->ndim);
    return NULL;
}

static inline int agree(const char *what, Py_ssize_t one, Py_ssize_t two) {
    if (one == two) return 1;
    PyErr_Format(PyExc_ValueError, "the arrays have %zd and %zd %s", one, two, what);
    return 0;
}

/* Whether the shapes are valid. */
static inline int are_shapes(const Py_buffer *shapes) {
    const Shape *shape = shapes->buf;
    if (!agree("numbers of a shape", 3, shapes->shape[1])) return 0;
    for (Py_ssize_t n = 0; n < shapes->shape[0]; n++, shape++)
        if (shape->unit < 1 || shape->smallest < 1 || shape->largest < shape->smallest || shape->largest > INT_MAX ||
            shape->smallest % shape->unit || shape->largest % shape->unit) {
            PyErr_Format(PyExc_ValueError, "gangs of %lld to %lld GPUs in units of %lld are not possible",
                         (long long)shape->smallest, (long long)shape->largest, (long long)shape->unit);
            return 0;
        }
    return 1;
}

#endif
