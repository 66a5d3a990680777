#include "pattern_cover_module.h"

#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "pattern_cover.h"

static const char CAPSULE[] = "themis.exact.cover";
enum { ARRAYS = 11 };

static void free_cover(Cover *c) {
    if (!c) return;
    void *all[] = {c->machine_start, c->free,   c->pinned,     c->pin_row, c->slot_start, c->slot_free, c->times,   c->size,
                   c->in_slot,       c->gang_size, c->left, c->weight,  c->pin_weight, c->count, c->cell_row, c->cell_count};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
    close_programme(&c->programme);
    free(c);
}

static void free_capsule(PyObject *capsule) { free_cover(PyCapsule_GetPointer(capsule, CAPSULE)); }

static int open_cover(Cover *c, int demands) {
    int machines = c->machine_start[c->groups], most = demands + machines + 1;
    c->weight = calloc(demands + 1, sizeof(int64_t));
    c->pin_weight = calloc(machines + 1, sizeof(int64_t));
    c->count = malloc(sizeof(int32_t) * most);
    c->cell_row = malloc(sizeof(int32_t) * most);
    c->cell_count = malloc(sizeof(int32_t) * most);
    if (!open_programme(&c->programme, demands, c->groups)) return 0;
    begin_cover(c);
    return c->weight && c->pin_weight && c->count && c->cell_row && c->cell_count;
}

PyObject *make_cover(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer b[ARRAYS];
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*y*y*y*", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &b[6], &b[7], &b[8],
                          &b[9], &b[10]))
        return NULL;
    PyObject *capsule = NULL;
    Cover *c = calloc(1, sizeof *c);
    if (c) {
        void **field[ARRAYS] = {(void **)&c->machine_start, (void **)&c->free,     (void **)&c->slot_start,
                                (void **)&c->slot_free,     (void **)&c->pinned,   (void **)&c->pin_row,
                                (void **)&c->times,         (void **)&c->size,     (void **)&c->in_slot,
                                (void **)&c->gang_size,     (void **)&c->left};
        int whole = 1;
        for (int n = 0; n < ARRAYS; n++) whole &= (*field[n] = copy_of(&b[n])) != NULL;
        int demands = (int)(b[10].len / sizeof(int32_t));
        c->groups = (int)(b[6].len / sizeof(int32_t));
        c->items = (int)(b[7].len / sizeof(int32_t));
        c->gangs = (int)(b[9].len / sizeof(int32_t));
        c->pins = demands - c->items - c->gangs - 1;
        if (whole && open_cover(c, demands)) capsule = PyCapsule_New(c, CAPSULE, free_capsule);
    }
    if (!capsule) {
        free_cover(c);
        PyErr_NoMemory();
    }
    for (int n = 0; n < ARRAYS; n++) PyBuffer_Release(&b[n]);
    return capsule;
}

PyObject *run_cover_price(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *capsule;
    Py_buffer dual;
    if (!PyArg_ParseTuple(args, "Ow*", &capsule, &dual)) return NULL;
    Cover *c = PyCapsule_GetPointer(capsule, CAPSULE);
    int answer = COVER_UNDECIDED;
    if (c) {
        Py_BEGIN_ALLOW_THREADS;
        answer = price_patterns(c);
        Py_END_ALLOW_THREADS;
        memcpy(dual.buf, c->programme.dual, dual.len);
    }
    PyBuffer_Release(&dual);
    if (!c) return NULL;
    return answer == COVER_NO_MEMORY ? PyErr_NoMemory() : PyLong_FromLong(answer);
}

PyObject *run_cover_fullest(PyObject *self, PyObject *capsule) {
    (void)self;
    Cover *c = PyCapsule_GetPointer(capsule, CAPSULE);
    if (!c) return NULL;
    int32_t times;
    int column = fullest_pattern(c, &times);
    return Py_BuildValue("ii", column, (int)times);
}

PyObject *run_cover_whole(PyObject *self, PyObject *capsule) {
    (void)self;
    Cover *c = PyCapsule_GetPointer(capsule, CAPSULE);
    PyObject *list = c ? PyList_New(0) : NULL;
    for (int column = 0; list && column < c->programme.columns; column++) {
        int32_t times = whole_times(c, column);
        if (!times) continue;
        PyObject *pair = Py_BuildValue("ii", column, (int)times);
        if (!pair || PyList_Append(list, pair) < 0) Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

PyObject *run_cover_fix(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *capsule;
    int column, times;
    if (!PyArg_ParseTuple(args, "Oii", &capsule, &column, &times)) return NULL;
    Cover *c = PyCapsule_GetPointer(capsule, CAPSULE);
    if (!c) return NULL;
    fix_pattern(c, column, times);
    Py_RETURN_NONE;
}

PyObject *run_cover_forbid(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *capsule;
    int column;
    if (!PyArg_ParseTuple(args, "Oi", &capsule, &column)) return NULL;
    Cover *c = PyCapsule_GetPointer(capsule, CAPSULE);
    if (!c) return NULL;
    forbid_pattern(c, column);
    Py_RETURN_NONE;
}

PyObject *run_cover_pattern(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *capsule;
    int column;
    Py_buffer numbers;
    if (!PyArg_ParseTuple(args, "Oiw*", &capsule, &column, &numbers)) return NULL;
    Cover *c = PyCapsule_GetPointer(capsule, CAPSULE);
    int group = 0;
    if (c && column < 0)
        memcpy(numbers.buf, c->left, numbers.len);
    else if (c)
        group = pattern_of(c, column, numbers.buf);
    PyBuffer_Release(&numbers);
    return c ? PyLong_FromLong(group) : NULL;
}
