/* The Python face of `branch`. */
#ifndef THEMIS_TABLES_MODULE_H
#define THEMIS_TABLES_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *make_tables(PyObject *self, PyObject *args);
PyObject *run_best_of_tables(PyObject *self, PyObject *args);

#endif
