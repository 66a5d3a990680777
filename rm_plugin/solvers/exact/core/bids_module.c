/* Converts bids, which are Python objects, to flat numbers in one pass: most of a large auction's data. */
#include "bids_module.h"

#include <stdint.h>

/* A growing buffer of bytes. */
typedef struct {
    char *byte;
    size_t used, room;
} Flat;

static int append(Flat *flat, const void *bytes, size_t size) {
    if (flat->used + size > flat->room) {
        size_t room = 2 * flat->room + size + 256;
        char *byte = PyMem_Realloc(flat->byte, room);
        if (!byte) return PyErr_NoMemory(), 0;
        flat->byte = byte, flat->room = room;
    }
    memcpy(flat->byte + flat->used, bytes, size);
    flat->used += size;
    return 1;
}

static int append_int(Flat *flat, int32_t number) { return append(flat, &number, sizeof number); }

static int append_three(Flat *flat, int32_t one, int32_t two, int32_t three) {
    int32_t all[] = {one, two, three};
    return append(flat, all, sizeof all);
}

/* A known gang object: the number of its kind, its count and its total GPUs. It is identified by
 * its address, and kept alive meanwhile: agents use one object for many rows. */
typedef struct {
    PyObject *gang;
    int32_t kind, count, gpus;
} Met;

enum { ROW_START, EMPTY, VALUE, INDEX, GPUS, CELL, PIN, FLATS };

typedef struct {
    PyObject *machines, *learn; /* borrowed */
    int32_t total, rows;
    Flat flat[FLATS];
    Met *met; /* open addressing; `room` is a power of two */
    size_t known, room;
} Reader;

static PyObject *EMPTY_VALUE, *ROWS, *ROW_VALUE, *PINNED, *COUNTS, *GANGS;

static int have_names(void) {
    struct {
        PyObject **name;
        const char *text;
    } all[] = {{&EMPTY_VALUE, "empty_value"}, {&ROWS, "rows"},     {&ROW_VALUE, "value"},
               {&PINNED, "pinned"},           {&COUNTS, "counts"}, {&GANGS, "gangs"}};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (!*all[n].name && !(*all[n].name = PyUnicode_InternFromString(all[n].text))) return 0;
    return 1;
}

static Met *place_of(const Reader *r, PyObject *gang) {
    size_t place = ((uintptr_t)gang >> 4) * 0x9E3779B97F4A7C15ull >> 20;
    for (;; place++) {
        Met *met = r->met + (place & (r->room - 1));
        if (!met->gang || met->gang == gang) return met;
    }
}

static int make_room(Reader *r) {
    if (2 * r->known < r->room) return 1;
    Met *before = r->met;
    size_t old_room = r->room;
    r->room = old_room ? 2 * old_room : 64;
    r->met = PyMem_Calloc(r->room, sizeof *r->met);
    if (!r->met) {
        r->met = before, r->room = old_room;
        return PyErr_NoMemory(), 0;
    }
    for (size_t n = 0; n < old_room; n++)
        if (before[n].gang) *place_of(r, before[n].gang) = before[n];
    PyMem_Free(before);
    return 1;
}

/* False with an error set. */
static int is_tuple(PyObject *object, const char *what) {
    if (object && !PyTuple_Check(object)) PyErr_Format(PyExc_TypeError, "%s must be a tuple", what);
    return object && PyTuple_Check(object);
}

/* NULL with an error set. The result is valid until the next call. */
static const Met *meet(Reader *r, PyObject *gang) {
    if (!make_room(r)) return NULL;
    Met *met = place_of(r, gang);
    if (!met->gang) {
        PyObject *value = PyObject_CallOneArg(r->learn, gang);
        int kind, count, gpus;
        int read = is_tuple(value, "what is learnt of a gang") && PyArg_ParseTuple(value, "iii", &kind, &count, &gpus);
        Py_XDECREF(value);
        if (!read) return NULL;
        *met = (Met){Py_NewRef(gang), kind, count, gpus};
        r->known++;
    }
    return met;
}

/* A tuple's attribute that is a tuple, as a new reference; NULL with an error set. */
static PyObject *tuple_of(PyObject *object, PyObject *name) {
    PyObject *tuple = PyObject_GetAttr(object, name);
    if (tuple && !PyTuple_Check(tuple)) {
        PyErr_Format(PyExc_TypeError, "%U must be a tuple", name);
        Py_CLEAR(tuple);
    }
    return tuple;
}

static int number_of(PyObject *object, PyObject *name, double *number) {
    PyObject *value = PyObject_GetAttr(object, name);
    if (!value) return 0;
    *number = PyFloat_AsDouble(value);
    Py_DECREF(value);
    return *number != -1.0 || !PyErr_Occurred();
}

/* Adds the pins of a row; `gpus` passes what there is where one asks for more than its machine has. False on errors. */
static int read_pins(Reader *r, PyObject *counts, int64_t *gpus) {
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(counts); n++) {
        PyObject *machine, *here, *pin = PyTuple_GET_ITEM(counts, n), *value;
        int position, free, past;
        if (!is_tuple(pin, "a pin") || !PyArg_ParseTuple(pin, "OO", &machine, &value)) return 0;
        long long count = PyLong_AsLongLongAndOverflow(value, &past);
        if (count == -1 && PyErr_Occurred()) return 0;
        here = PyDict_GetItemWithError(r->machines, machine);
        if (!here && PyErr_Occurred()) return 0;
        if (here && !(is_tuple(here, "a machine") && PyArg_ParseTuple(here, "ii", &position, &free))) return 0;
        if (!here || past || count <= 0 || count > free) {
            *gpus = (int64_t)r->total + 1;
            return 1;
        }
        *gpus += count;
        if (!append_three(&r->flat[PIN], r->rows, position, (int32_t)count)) return 0;
    }
    return 1;
}

static int read_gangs(Reader *r, PyObject *gangs, int64_t *gpus) {
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(gangs); n++) {
        const Met *met = meet(r, PyTuple_GET_ITEM(gangs, n));
        if (!met || !append_three(&r->flat[CELL], r->rows, met->kind, met->count)) return 0;
        *gpus += met->gpus;
    }
    return 1;
}

/* Adds a row that is worth more than winning nothing, and removes it again if it asks for more than is free. */
static int read_row(Reader *r, PyObject *row, double value, int32_t index) {
    size_t cells = r->flat[CELL].used, pins = r->flat[PIN].used;
    int64_t gpus = 0;
    PyObject *pinned = PyObject_GetAttr(row, PINNED), *counts = pinned ? tuple_of(pinned, COUNTS) : NULL;
    PyObject *gangs = counts ? tuple_of(row, GANGS) : NULL;
    int whole = gangs && read_pins(r, counts, &gpus) && read_gangs(r, gangs, &gpus);
    Py_XDECREF(pinned);
    Py_XDECREF(counts);
    Py_XDECREF(gangs);
    if (!whole) return 0;
    if (gpus > r->total) {
        r->flat[CELL].used = cells, r->flat[PIN].used = pins;
        return 1;
    }
    r->rows++;
    return append(&r->flat[VALUE], &value, sizeof value) && append_int(&r->flat[INDEX], index) &&
           append_int(&r->flat[GPUS], (int32_t)gpus);
}

static int read_bid(Reader *r, PyObject *bid) {
    double empty, value;
    if (!number_of(bid, EMPTY_VALUE, &empty)) return 0;
    PyObject *rows = tuple_of(bid, ROWS);
    int whole = rows && append(&r->flat[EMPTY], &empty, sizeof empty);
    for (Py_ssize_t n = 0; whole && n < PyTuple_GET_SIZE(rows); n++) {
        PyObject *row = PyTuple_GET_ITEM(rows, n);
        whole = number_of(row, ROW_VALUE, &value) && (value <= empty || read_row(r, row, value, (int32_t)n));
    }
    Py_XDECREF(rows);
    return whole && append_int(&r->flat[ROW_START], r->rows);
}

PyObject *run_read_bids(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *bids, *result = NULL;
    Reader r = {.rows = 0};
    if (!PyArg_ParseTuple(args, "O!O!iO", &PyTuple_Type, &bids, &PyDict_Type, &r.machines, &r.total, &r.learn))
        return NULL;
    int whole = have_names() && append_int(&r.flat[ROW_START], 0);
    for (Py_ssize_t n = 0; whole && n < PyTuple_GET_SIZE(bids); n++) whole = read_bid(&r, PyTuple_GET_ITEM(bids, n));
    if (whole && (result = PyTuple_New(FLATS)))
        for (int n = 0; result && n < FLATS; n++) {
            PyObject *bytes = PyBytes_FromStringAndSize(r.flat[n].byte, (Py_ssize_t)r.flat[n].used);
            if (bytes)
                PyTuple_SET_ITEM(result, n, bytes);
            else
                Py_CLEAR(result);
        }
    for (int n = 0; n < FLATS; n++) PyMem_Free(r.flat[n].byte);
    for (size_t n = 0; n < r.room; n++) Py_XDECREF(r.met[n].gang);
    PyMem_Free(r.met);
    return result;
}
