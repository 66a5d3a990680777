#include "tables_module.h"

#include <stdlib.h>
#include <string.h>

#include "branch.h"
#include "buffer.h"

static const char CAPSULE[] = "themis.exact.tables";
enum { ARRAYS = 8 };

static void free_shared(Shared *s) {
    if (!s) return;
    Tables *t = &s->tables;
    void *all[] = {t->row_start, t->gain, t->gpus,   t->tie,  t->pin_start, t->pin_machine,
                   t->pin_gpus,  t->free, t->bidder, s->root, s->pool,      s->record};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
    close_relaxation(&s->relaxation);
    free(s);
}

static void free_capsule(PyObject *capsule) { free_shared(PyCapsule_GetPointer(capsule, CAPSULE)); }

static int open_shared(Shared *s) {
    Tables *t = &s->tables;
    enum { MOST_CLIQUES = 120 }; /* 57 were found in the market of 168 GPUs that is hardest */
    t->bidder = malloc(sizeof(int32_t) * (t->rows + 1));
    s->pool = malloc(sizeof(int32_t) * ((size_t)POOLED * t->bidders + 1));
    s->record = calloc((size_t)t->bidders * t->machines + t->rows + 1, sizeof(Record));
    if (!t->bidder || !s->pool || !s->record) return 0;
    for (int i = 0; i < t->bidders; i++)
        for (int row = t->row_start[i]; row < t->row_start[i + 1]; row++) t->bidder[row] = i;
    return open_relaxation(&s->relaxation, t, MOST_CLIQUES);
}

PyObject *make_tables(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer b[ARRAYS];
    double unit;
    int always_ties;
    if (!PyArg_ParseTuple(args, "dpy*y*y*y*y*y*y*y*", &unit, &always_ties, &b[0], &b[1], &b[2], &b[3], &b[4], &b[5],
                          &b[6], &b[7]))
        return NULL;
    PyObject *capsule = NULL;
    Shared *s = calloc(1, sizeof *s);
    if (s) {
        Tables *t = &s->tables;
        void **field[ARRAYS] = {(void **)&t->row_start, (void **)&t->gain,      (void **)&t->gpus,
                                (void **)&t->tie,       (void **)&t->pin_start, (void **)&t->pin_machine,
                                (void **)&t->pin_gpus,  (void **)&t->free};
        int whole = 1;
        for (int n = 0; n < ARRAYS; n++) whole &= (*field[n] = copy_of(&b[n])) != NULL;
        t->unit = unit;
        s->always_ties = always_ties;
        t->bidders = (int)(b[0].len / sizeof(int32_t)) - 1;
        t->rows = (int)(b[1].len / sizeof(int64_t));
        t->machines = (int)(b[7].len / sizeof(int32_t));
        if (whole && open_shared(s)) capsule = PyCapsule_New(s, CAPSULE, free_capsule);
    }
    if (!capsule) {
        free_shared(s);
        PyErr_NoMemory();
    }
    for (int n = 0; n < ARRAYS; n++) PyBuffer_Release(&b[n]);
    return capsule;
}

PyObject *run_best_of_tables(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *capsule;
    Py_buffer choice;
    int skip;
    double seconds;
    long long most_nodes, most_bytes;
    if (!PyArg_ParseTuple(args, "OidLLw*", &capsule, &skip, &seconds, &most_nodes, &most_bytes, &choice)) return NULL;
    Shared *s = PyCapsule_GetPointer(capsule, CAPSULE);
    Outcome outcome = {0};
    if (s && (skip < -1 || skip >= s->tables.bidders || choice.len != (Py_ssize_t)sizeof(int32_t) * s->tables.bidders)) {
        PyErr_SetString(PyExc_ValueError, "a bidder that is not there, or a choice of another length");
        s = NULL;
    }
    if (s) {
        Limits limits = {monotonic_s() + seconds, most_nodes};
        Py_BEGIN_ALLOW_THREADS;
        outcome = best_of_tables(s, skip, limits, (size_t)most_bytes, choice.buf);
        Py_END_ALLOW_THREADS;
    }
    PyBuffer_Release(&choice);
    if (!s) return NULL;
    if (outcome.status == SEARCH_NO_MEMORY) return PyErr_NoMemory();
    return Py_BuildValue("iLLL", outcome.status, (long long)outcome.value, (long long)outcome.bound,
                         (long long)outcome.states);
}
