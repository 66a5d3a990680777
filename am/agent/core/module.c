/* The Python face of the compiled packing; arrays come as buffers of the types that _packing.pyi tells. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>

#include "packing.h"

/* Gangs by kind from counts, no more of a kind than there are jobs; how many. */
static int lay_out(const int64_t *counts, int kinds, int jobs, int64_t *kind) {
    int gangs = 0;
    for (int k = 0; k < kinds; k++) {
        int64_t count = counts[k] < jobs ? counts[k] : jobs;
        for (int64_t n = 0; n < count; n++) kind[gangs++] = k;
    }
    return gangs;
}

static PyObject *times_s(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer alone, counts, out;
    if (!PyArg_ParseTuple(args, "y*y*w*", &alone, &counts, &out)) return NULL;
    int divisions = (int)(out.len / sizeof(double));
    int kinds = divisions ? (int)(counts.len / sizeof(int64_t)) / divisions : 0;
    int jobs = kinds ? (int)(alone.len / sizeof(double)) / kinds : 0;
    size_t most = (size_t)jobs * kinds;
    int64_t *kind = malloc(sizeof(int64_t) * (most + 1));
    double *load_s = calloc(most + 1, sizeof(double));
    Packer *packer = new_packer(alone.buf, jobs, kinds, (int)most);
    int enough = kind && load_s && packer;
    if (enough) {
        Py_BEGIN_ALLOW_THREADS;
        for (int d = 0; d < divisions; d++) {
            int gangs = lay_out((const int64_t *)counts.buf + (size_t)d * kinds, kinds, jobs, kind);
            ((double *)out.buf)[d] = pack(packer, kind, load_s, gangs, NULL);
        }
        Py_END_ALLOW_THREADS;
    }
    free_packer(packer);
    free(kind);
    free(load_s);
    PyBuffer_Release(&alone);
    PyBuffer_Release(&counts);
    PyBuffer_Release(&out);
    if (!enough) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *places(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer alone, kind, load_s, out;
    int kinds;
    if (!PyArg_ParseTuple(args, "y*iy*y*w*", &alone, &kinds, &kind, &load_s, &out)) return NULL;
    int jobs = (int)(out.len / sizeof(int64_t)), gangs = (int)(kind.len / sizeof(int64_t));
    Packer *packer = new_packer(alone.buf, jobs, kinds, gangs);
    double end_s = 0.0;
    int enough = packer != NULL;
    if (enough) end_s = pack(packer, kind.buf, load_s.buf, gangs, out.buf);
    free_packer(packer);
    PyBuffer_Release(&alone);
    PyBuffer_Release(&kind);
    PyBuffer_Release(&load_s);
    PyBuffer_Release(&out);
    return enough ? PyFloat_FromDouble(end_s) : PyErr_NoMemory();
}

static PyMethodDef methods[] = {
    {"times_s", times_s, METH_VARARGS, "When the last job ends, for each division of gangs."},
    {"places", places, METH_VARARGS, "When the last job ends on some gangs, and on which gang each job runs."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_packing", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__packing(void) { return PyModule_Create(&module); }
