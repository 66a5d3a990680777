/* The Python face of what is compiled of bids' asks. _asking.pyi tells what arguments are; any other is a ValueError or a
 * TypeError. */
#include "arrays.h"

#include <limits.h>
#include <stdlib.h>

#include "fitting.h"
#include "laying.h"

static PyObject *ask_by(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[5], *result = NULL;
    Py_buffer *times, *takes, *gpus, *most, *out;
    long long most_gpus, most_gangs, gpus_here;
    double end_s;
    Arrays arrays = {.held = 0};
    if (!PyArg_ParseTuple(args, "OOOOLLdLO", &objects[0], &objects[1], &objects[2], &objects[3], &most_gpus, &most_gangs,
                          &end_s, &gpus_here, &objects[4]))
        return NULL;
    if (most_gpus < 1) return PyErr_Format(PyExc_ValueError, "%lld GPUs cannot be asked for", most_gpus);
    if ((times = array(&arrays, objects[0], is_float64, 2, 0)) && (takes = array(&arrays, objects[1], is_float64, 2, 0)) &&
        agree("kinds", times->shape[1], takes->shape[0]) && agree("kinds", takes->shape[0], takes->shape[1]) &&
        (gpus = array(&arrays, objects[2], is_int64, 1, 0)) && agree("kinds", times->shape[1], gpus->shape[0]) &&
        (most = array(&arrays, objects[3], is_int64, 1, 0)) && agree("kinds", times->shape[1], most->shape[0]) &&
        (out = array(&arrays, objects[4], is_int64, 1, PyBUF_WRITABLE)) &&
        agree("kinds", times->shape[1], out->shape[0])) {
        Fitting fitting = {(int)times->shape[0], (int)times->shape[1], times->buf, takes->buf, gpus->buf, most->buf};
        if (times->shape[0] > INT_MAX || times->shape[1] > INT_MAX) {
            PyErr_SetString(PyExc_ValueError, "too many jobs or kinds");
        } else {
            int fits = fit_jobs(&fitting, end_s, gpus_here, most_gpus, most_gangs, out->buf);
            result = fits < 0 ? PyErr_NoMemory() : PyBool_FromLong(fits);
        }
    }
    release(&arrays);
    return result;
}

/* Whether every level is one that there is. */
static int are_levels(const Py_buffer *within) {
    const int64_t *level = within->buf;
    for (Py_ssize_t n = 0; n < within->shape[0]; n++)
        if (level[n] < 0 || level[n] >= LEVELS) {
            PyErr_Format(PyExc_ValueError, "kind %zd is within level %lld, of which there are %d", n, (long long)level[n],
                         LEVELS);
            return 0;
        }
    return 1;
}

/* A number of 0 or more that leaves room to add some up. */
static int64_t number(PyObject *object) {
    long long value = PyLong_AsLongLong(object);
    if (value == -1 && PyErr_Occurred()) return -1;
    if (value >= 0 && value <= INT_MAX) return value;
    PyErr_Format(PyExc_ValueError, "%lld is no number of gangs, GPUs or kinds", value);
    return -1;
}

/* The kinds that a size may be of, as numbers into `room`; 0 and an error set where they are none that there are. */
static int read_kinds(PyObject *told, Py_ssize_t kinds, Alike *gangs, int64_t *room) {
    if (!PyTuple_Check(told) || PyTuple_GET_SIZE(told) > kinds) {
        PyErr_SetString(PyExc_ValueError, "the kinds of a size must be a tuple, each of them once");
        return 0;
    }
    gangs->kinds = room, gangs->many = PyTuple_GET_SIZE(told);
    for (Py_ssize_t n = 0; n < gangs->many; n++) {
        if ((room[n] = number(PyTuple_GET_ITEM(told, n))) < 0) return 0;
        if (room[n] >= kinds) {
            PyErr_Format(PyExc_ValueError, "kind %lld is not one of %zd", (long long)room[n], kinds);
            return 0;
        }
    }
    return 1;
}

/* One of the sizes: GPUs, unit and count, with the kinds that it may be of, none where it is of no kind. */
static int read_size(PyObject *size, PyObject *kinds_of, Py_ssize_t kinds, Alike *gangs, int64_t *room) {
    if (!PyTuple_Check(size) || PyTuple_GET_SIZE(size) != 3) {
        PyErr_SetString(PyExc_ValueError, "a size must be a tuple of GPUs, unit and count");
        return 0;
    }
    if ((gangs->gpus = number(PyTuple_GET_ITEM(size, 0))) < 0 || (gangs->count = number(PyTuple_GET_ITEM(size, 2))) < 0)
        return 0;
    if (!gangs->gpus) {
        PyErr_SetString(PyExc_ValueError, "a gang must have a GPU");
        return 0;
    }
    PyObject *key = PyTuple_GetSlice(size, 0, 2);
    PyObject *told = key ? PyDict_GetItemWithError(kinds_of, key) : NULL;
    Py_XDECREF(key);
    gangs->kinds = room, gangs->many = 0;
    return told ? read_kinds(told, kinds, gangs, room) : !PyErr_Occurred();
}

static PyObject *tuple_of(const int64_t *counts, Py_ssize_t many) {
    PyObject *tuple = PyTuple_New(many);
    for (Py_ssize_t n = 0; tuple && n < many; n++) {
        PyObject *count = PyLong_FromLongLong(counts[n]);
        if (!count) Py_CLEAR(tuple);
        else PyTuple_SET_ITEM(tuple, n, count);
    }
    return tuple;
}

/* The asks for each part of the near places, those left out for which there is no room. */
static PyObject *laid(const Py_buffer *most, const Py_buffer *within, const Alike *gangs, Py_ssize_t many,
                      PyObject *parts, int64_t *counts) {
    Py_ssize_t kinds = most->shape[0];
    PyObject *asks = PyList_New(0);
    for (Py_ssize_t n = 0; asks && n < PyTuple_GET_SIZE(parts); n++) {
        double near = PyFloat_AsDouble(PyTuple_GET_ITEM(parts, n));
        if (near == -1.0 && PyErr_Occurred()) {
            Py_CLEAR(asks);
        } else if (!(near >= 0.0 && near <= 1.0)) {
            PyErr_SetString(PyExc_ValueError, "a part must be from 0 to 1");
            Py_CLEAR(asks);
        } else if (lay_gangs(most->buf, within->buf, kinds, gangs, many, near, counts)) {
            PyObject *ask = tuple_of(counts, kinds);
            if (!ask || PyList_Append(asks, ask)) Py_CLEAR(asks);
            Py_XDECREF(ask);
        }
    }
    return asks;
}

static PyObject *lay_out(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[2], *kinds_of, *sizes, *parts, *result = NULL;
    Py_buffer *most, *within;
    Arrays arrays = {.held = 0};
    if (!PyArg_ParseTuple(args, "OOO!O!O!", &objects[0], &objects[1], &PyDict_Type, &kinds_of, &PyTuple_Type, &sizes,
                          &PyTuple_Type, &parts))
        return NULL;
    if ((most = array(&arrays, objects[0], is_int64, 1, 0)) && (within = array(&arrays, objects[1], is_int64, 1, 0)) &&
        agree("kinds", most->shape[0], within->shape[0]) && are_levels(within)) {
        Py_ssize_t kinds = most->shape[0], many = PyTuple_GET_SIZE(sizes), read = 0;
        Alike *gangs = malloc(sizeof(Alike) * (many + 1));
        int64_t *room = malloc(sizeof(int64_t) * ((size_t)(many + 1) * kinds + 1));
        if (!gangs || !room) PyErr_NoMemory();
        else
            while (read < many && read_size(PyTuple_GET_ITEM(sizes, read), kinds_of, kinds, &gangs[read],
                                            room + (size_t)(read + 1) * kinds))
                read++;
        if (gangs && room && read == many) result = laid(most, within, gangs, many, parts, room);
        free(gangs);
        free(room);
    }
    release(&arrays);
    return result;
}

static PyMethodDef methods[] = {
    {"ask_by", ask_by, METH_VARARGS, "Gangs on which jobs end by a time, if there are any."},
    {"lay_out", lay_out, METH_VARARGS, "Asks that lay gangs as near as there is room, for parts of the near places."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_asking", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__asking(void) { return PyModule_Create(&module); }
