#include "row_ordering_module.h"

#include <stdlib.h>

#include "one_machine.h"
#include "row_ordering.h"

enum { ARRAYS = 18 };

PyObject *run_order_rows(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer b[ARRAYS];
    int finest, bits;
    if (!PyArg_ParseTuple(args, "iiy*y*y*y*y*y*y*y*y*w*w*w*w*w*w*w*w*w*", &finest, &bits, &b[0], &b[1], &b[2], &b[3],
                          &b[4], &b[5], &b[6], &b[7], &b[8], &b[9], &b[10], &b[11], &b[12], &b[13], &b[14], &b[15],
                          &b[16], &b[17]))
        return NULL;
    FlatRows flat = {.finest = finest,
                 .bits = bits,
                 .bidders = (int)(b[0].len / sizeof(int32_t)) - 1,
                 .rows = (int)(b[3].len / sizeof(double)),
                 .cells = (int)(b[6].len / (3 * sizeof(int32_t))),
                 .pins = (int)(b[8].len / (3 * sizeof(int32_t))),
                 .row_start = b[0].buf,
                 .empty = b[1].buf,
                 .app = b[2].buf,
                 .value = b[3].buf,
                 .index = b[4].buf,
                 .gpus = b[5].buf,
                 .cell = b[6].buf,
                 .place = b[7].buf,
                 .pin = b[8].buf};
    flat.kinds = flat.rows ? (int)(b[14].len / (Py_ssize_t)sizeof(int32_t) / flat.rows) : 0;
    Ordered ordered = {.row_start = b[9].buf,
                       .index = b[10].buf,
                       .gain = b[11].buf,
                       .gpus = b[12].buf,
                       .tie = b[13].buf,
                       .counts = b[14].buf,
                       .pin_start = b[15].buf,
                       .pin_machine = b[16].buf,
                       .pin_gpus = b[17].buf};
    int whole = order_rows(&flat, &ordered);
    for (int n = 0; n < ARRAYS; n++) PyBuffer_Release(&b[n]);
    if (!whole) return PyErr_NoMemory();
    return Py_BuildValue("diiN", ordered.unit, ordered.rows, ordered.pins, PyBool_FromLong(ordered.alike));
}

/* The choice as a dict of the row by the bidder; NULL with an error. */
static PyObject *as_dict(const int32_t *choice, int bidders) {
    PyObject *rows = PyDict_New();
    for (int i = 0; rows && i < bidders; i++) {
        if (choice[i] < 0) continue;
        PyObject *bidder = PyLong_FromLong(i), *row = PyLong_FromLong(choice[i]);
        if (!bidder || !row || PyDict_SetItem(rows, bidder, row) < 0) Py_CLEAR(rows);
        Py_XDECREF(bidder);
        Py_XDECREF(row);
    }
    return rows;
}

PyObject *run_best_on_one_machine(PyObject *self, PyObject *args) {
    (void)self;
    enum { GIVEN = 4 };
    Py_buffer b[GIVEN];
    int free_gpus, skip;
    if (!PyArg_ParseTuple(args, "y*y*y*y*ii", &b[0], &b[1], &b[2], &b[3], &free_gpus, &skip)) return NULL;
    Ranked ranked = {(int)(b[0].len / sizeof(int32_t)) - 1, b[0].buf, b[1].buf, b[2].buf, b[3].buf};
    int32_t *choice = malloc(sizeof *choice * ((size_t)ranked.bidders + 1));
    int whole = choice && best_on_one_machine(&ranked, free_gpus, skip, choice);
    PyObject *rows = whole ? as_dict(choice, ranked.bidders) : PyErr_NoMemory();
    free(choice);
    for (int n = 0; n < GIVEN; n++) PyBuffer_Release(&b[n]);
    return rows;
}
