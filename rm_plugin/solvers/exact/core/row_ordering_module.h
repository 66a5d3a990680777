/* What Python asks of rows. */
#ifndef THEMIS_ROW_ORDERING_MODULE_H
#define THEMIS_ROW_ORDERING_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *run_order_rows(PyObject *self, PyObject *args);
PyObject *run_best_on_one_machine(PyObject *self, PyObject *args);

#endif
