/* The Python face of `cover`. */
#ifndef THEMIS_PATTERN_COVER_MODULE_H
#define THEMIS_PATTERN_COVER_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *make_cover(PyObject *self, PyObject *args);
PyObject *run_cover_price(PyObject *self, PyObject *args);
PyObject *run_cover_fullest(PyObject *self, PyObject *args);
PyObject *run_cover_whole(PyObject *self, PyObject *capsule);
PyObject *run_cover_fix(PyObject *self, PyObject *args);
PyObject *run_cover_forbid(PyObject *self, PyObject *args);
PyObject *run_cover_pattern(PyObject *self, PyObject *args);

#endif
