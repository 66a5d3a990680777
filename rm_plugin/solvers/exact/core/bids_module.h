/* What Python asks of bids. */
#ifndef THEMIS_BIDS_MODULE_H
#define THEMIS_BIDS_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *run_read_bids(PyObject *self, PyObject *args);

#endif
