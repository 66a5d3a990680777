/* The Python interface of the core. Arrays are buffers of the types in _core.pyi. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>

#include "bids_module.h"
#include "buffer.h"
#include "row_packing.h"
#include "problem.h"
#include "pattern_cover_module.h"
#include "placement_search.h"
#include "lifting.h"
#include "dominance.h"
#include "row_ordering_module.h"
#include "pin_shares.h"
#include "group_capacity.h"

static const char CAPSULE[] = "themis.exact.problem";

static void free_problem(Problem *p) {
    if (!p) return;
    void *all[] = {p->row_start,   p->gain,         p->gpus,        p->tie,   p->use,   p->capacity, p->pin_start,
                   p->pin_machine, p->pin_gpus,     p->machine_free, p->table_start, p->table, p->least, p->part_start, p->part_resource, p->part_use, p->gain_f, p->charged, p->held, p->spent, p->loss, p->pin_row, p->pin_bidder, p->machine_pin_start, p->machine_pin};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
    free(p);
}

static void free_capsule(PyObject *capsule) { free_problem(PyCapsule_GetPointer(capsule, CAPSULE)); }

/* Floats that the prices are found with; false without memory. */
static int measure(Problem *p) {
    size_t cells = (size_t)p->rows * p->resources, parts = 0;
    void *before[] = {p->part_start, p->part_resource, p->part_use, p->gain_f};
    for (size_t n = 0; n < sizeof before / sizeof *before; n++) free(before[n]);
    for (size_t cell = 0; cell < cells; cell++) parts += p->use[cell] != 0;
    p->part_start = calloc(p->rows + 1, sizeof(int32_t));
    p->part_resource = malloc(sizeof(int32_t) * (parts + 1));
    p->part_use = malloc(sizeof(double) * (parts + 1));
    p->gain_f = malloc(sizeof(double) * (p->rows + 1));
    if (!p->part_start || !p->part_resource || !p->part_use || !p->gain_f) return 0;
    int at = 0;
    for (int row = 0; row < p->rows; row++) {
        for (int k = 0; k < p->resources; k++) {
            int use = p->use[(size_t)row * p->resources + k];
            if (!use) continue;
            p->part_resource[at] = k;
            p->part_use[at++] = p->capacity[k] > 0 ? (double)use / p->capacity[k] : 0.0;
        }
        p->part_start[row + 1] = at;
    }
    for (int row = 0; row < p->rows; row++) p->gain_f[row] = (double)p->gain[row] / p->unit;
    return 1;
}

/* Whose pins there are, and which on each machine. */
static int order_pins(Problem *p) {
    int pins = p->pin_start[p->rows];
    p->pin_row = malloc(sizeof(int32_t) * (pins + 1));
    p->pin_bidder = malloc(sizeof(int32_t) * (pins + 1));
    p->machine_pin_start = calloc(p->machines + 2, sizeof(int32_t));
    p->machine_pin = malloc(sizeof(int32_t) * (pins + 1));
    p->least = calloc((size_t)pins * p->resources + 1, sizeof(int32_t));
    if (!p->pin_row || !p->pin_bidder || !p->machine_pin_start || !p->machine_pin || !p->least) return 0;
    for (int i = 0; i < p->bidders; i++)
        for (int row = p->row_start[i]; row < p->row_start[i + 1]; row++)
            for (int pin = p->pin_start[row]; pin < p->pin_start[row + 1]; pin++) {
                p->pin_row[pin] = row;
                p->pin_bidder[pin] = i;
                p->machine_pin_start[p->pin_machine[pin] + 2]++;
            }
    for (int m = 0; m < p->machines; m++) p->machine_pin_start[m + 2] += p->machine_pin_start[m + 1];
    for (int pin = 0; pin < pins; pin++) p->machine_pin[p->machine_pin_start[p->pin_machine[pin] + 1]++] = pin;
    return 1;
}

enum { ARRAYS = 12 };

static PyObject *make_problem(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer b[ARRAYS];
    double unit;
    if (!PyArg_ParseTuple(args, "dy*y*y*y*y*y*y*y*y*y*y*y*", &unit, &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &b[6],
                          &b[7], &b[8], &b[9], &b[10], &b[11]))
        return NULL;
    PyObject *capsule = NULL;
    Problem *p = calloc(1, sizeof *p);
    if (p) {
        void **field[ARRAYS] = {(void **)&p->row_start,    (void **)&p->gain,        (void **)&p->gpus,
                                (void **)&p->tie,          (void **)&p->use,         (void **)&p->capacity,
                                (void **)&p->pin_start,    (void **)&p->pin_machine, (void **)&p->pin_gpus,
                                (void **)&p->machine_free, (void **)&p->table_start, (void **)&p->table};
        int whole = 1;
        for (int n = 0; n < ARRAYS; n++) whole &= (*field[n] = copy_of(&b[n])) != NULL;
        p->unit = unit;
        p->bidders = (int)(b[0].len / sizeof(int32_t)) - 1;
        p->rows = (int)(b[1].len / sizeof(int64_t));
        p->resources = (int)(b[5].len / sizeof(int32_t));
        p->machines = (int)(b[9].len / sizeof(int32_t));
        p->charged = calloc(p->machines + 1, 1);
        p->held = calloc(p->resources + 1, 1);
        p->spent = calloc(1, sizeof(int64_t));
        p->loss = calloc(1, sizeof(int64_t));
        whole &= p->charged && p->held && p->spent && p->loss;
        if (p->resources > MAX_RESOURCES)
            PyErr_SetString(PyExc_ValueError, "too many resources");
        else if (whole && order_pins(p) && share_pins(p, -1, NULL) >= 0 && measure(p))
            capsule = PyCapsule_New(p, CAPSULE, free_capsule);
    }
    if (!capsule) {
        free_problem(p);
        if (!PyErr_Occurred()) PyErr_NoMemory();
    }
    for (int n = 0; n < ARRAYS; n++) PyBuffer_Release(&b[n]);
    return capsule;
}

static PyObject *run_prices(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *capsule;
    Py_buffer price;
    int skip;
    double first_mu;
    if (!PyArg_ParseTuple(args, "Oiw*d", &capsule, &skip, &price, &first_mu)) return NULL;
    Problem *p = PyCapsule_GetPointer(capsule, CAPSULE);
    if (p) {
        Py_BEGIN_ALLOW_THREADS;
        find_prices(p, skip, price.buf, first_mu);
        Py_END_ALLOW_THREADS;
    }
    PyBuffer_Release(&price);
    if (!p) return NULL;
    Py_RETURN_NONE;
}

static PyObject *run_share(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *capsule;
    Py_buffer price;
    int skip, changed = 0;
    if (!PyArg_ParseTuple(args, "Oiy*", &capsule, &skip, &price)) return NULL;
    Problem *p = PyCapsule_GetPointer(capsule, CAPSULE);
    if (p) {
        int64_t whole[MAX_RESOURCES];
        whole_prices(p, price.buf, whole);
        changed = share_pins(p, skip, whole);
        if (changed > 0 && !measure(p)) changed = -1;
    }
    PyBuffer_Release(&price);
    if (!p) return NULL;
    return changed < 0 ? PyErr_NoMemory() : PyBool_FromLong(changed);
}

static PyObject *run_search(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *capsule;
    Py_buffer price, choice;
    int skip, beam;
    double first_gap, seconds;
    long long most_states;
    if (!PyArg_ParseTuple(args, "Oiy*didLw*", &capsule, &skip, &price, &first_gap, &beam, &seconds, &most_states,
                          &choice))
        return NULL;
    Problem *p = PyCapsule_GetPointer(capsule, CAPSULE);
    Outcome outcome = {0};
    if (p) {
        Limits limits = {monotonic_s() + seconds, most_states};
        Py_BEGIN_ALLOW_THREADS;
        outcome = search(p, skip, price.buf, first_gap, beam, limits, choice.buf);
        Py_END_ALLOW_THREADS;
    }
    PyBuffer_Release(&price);
    PyBuffer_Release(&choice);
    if (!p) return NULL;
    if (outcome.status == SEARCH_NO_MEMORY) return PyErr_NoMemory();
    return Py_BuildValue("iLLL", outcome.status, (long long)outcome.value, (long long)outcome.bound,
                         (long long)outcome.states);
}

static PyObject *run_losses(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *capsule;
    Py_buffer price, loss;
    int skip;
    if (!PyArg_ParseTuple(args, "Oiy*w*", &capsule, &skip, &price, &loss)) return NULL;
    Problem *p = PyCapsule_GetPointer(capsule, CAPSULE);
    int64_t bound = 0, whole[MAX_RESOURCES], *best = p ? malloc(sizeof(int64_t) * (p->bidders + 1)) : NULL;
    if (best) {
        whole_prices(p, price.buf, whole);
        bound = bound_at(p, skip, whole, best);
        int64_t *of_row = loss.buf;
        for (int i = 0; i < p->bidders; i++)
            for (int row = p->row_start[i]; row < p->row_start[i + 1]; row++) {
                of_row[row] = best[i] - p->gain[row];
                for (int k = 0; k < p->resources; k++)
                    of_row[row] += whole[k] * p->use[(size_t)row * p->resources + k];
            }
    }
    PyBuffer_Release(&price);
    PyBuffer_Release(&loss);
    if (!p) return NULL;
    if (!best) return PyErr_NoMemory();
    free(best);
    return PyLong_FromLongLong(bound);
}

static PyObject *run_bounds(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *capsule;
    Py_buffer price, bound;
    if (!PyArg_ParseTuple(args, "Oy*w*", &capsule, &price, &bound)) return NULL;
    Problem *p = PyCapsule_GetPointer(capsule, CAPSULE);
    if (p) {
        int64_t full, whole[MAX_RESOURCES], *without = bound.buf;
        whole_prices(p, price.buf, whole);
        full = bound_at(p, -1, whole, without);
        for (int i = 0; i < p->bidders; i++) without[i] = full - without[i];
    }
    PyBuffer_Release(&price);
    PyBuffer_Release(&bound);
    if (!p) return NULL;
    Py_RETURN_NONE;
}

static PyObject *run_pack_chosen(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer b[13];
    int racks, sparing;
    if (!PyArg_ParseTuple(args, "iy*y*y*y*y*y*y*y*y*y*y*pw*w*", &racks, &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &b[6],
                          &b[7], &b[8], &b[9], &b[10], &sparing, &b[11], &b[12]))
        return NULL;
    Cluster cluster = {(int)(b[0].len / sizeof(int32_t)), racks, b[0].buf, b[1].buf, b[2].buf, b[3].buf};
    Chosen chosen = {.rows = (int)(b[4].len / sizeof(int32_t)),
                     .kinds = (int)(b[6].len / sizeof(int32_t)),
                     .row = b[4].buf,
                     .shape = b[5].buf,
                     .order = b[6].buf,
                     .counts = b[7].buf,
                     .pin_start = b[8].buf,
                     .pin_machine = b[9].buf,
                     .pin_gpus = b[10].buf};
    int32_t parts = pack_chosen(&cluster, &chosen, sparing, b[11].buf, b[12].buf);
    for (int n = 0; n < 13; n++) PyBuffer_Release(&b[n]);
    if (parts == INT32_MIN) return PyErr_NoMemory();
    return PyLong_FromLong(parts);
}

static PyObject *run_fit(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer free_gpus, rack, slot_start, slot_free, kind, count, part;
    int racks, most_steps;
    if (!PyArg_ParseTuple(args, "iy*y*y*y*y*y*iw*", &racks, &free_gpus, &rack, &slot_start, &slot_free, &kind, &count,
                          &most_steps, &part))
        return NULL;
    Cluster cluster = {(int)(free_gpus.len / sizeof(int32_t)), racks, free_gpus.buf, rack.buf, slot_start.buf,
                       slot_free.buf};
    int32_t parts = 0;
    int answer;
    Py_BEGIN_ALLOW_THREADS;
    answer = fit(&cluster, (int)(count.len / sizeof(int32_t)), kind.buf, count.buf, most_steps, part.buf, &parts);
    Py_END_ALLOW_THREADS;
    Py_buffer *all[] = {&free_gpus, &rack, &slot_start, &slot_free, &kind, &count, &part};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) PyBuffer_Release(all[n]);
    if (answer == FIT_NO_MEMORY) return PyErr_NoMemory();
    return Py_BuildValue("ii", answer, (int)parts);
}

/* Reads machines, a cut's weights and an output array; -1 with an exception set. The caller releases all of b. */
static int read_weighing(PyObject *args, Py_buffer b[11], Group *group, Weights *weights) {
    long long single_weight;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*y*y*Lw*", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &b[6], &b[7],
                          &b[8], &b[9], &single_weight, &b[10]))
        return -1;
    *group = (Group){(int)(b[0].len / sizeof(int32_t)), b[0].buf, b[1].buf, b[2].buf, b[3].buf, b[4].buf};
    *weights = (Weights){(int)(b[5].len / sizeof(int32_t)), (int)(b[8].len / sizeof(int32_t)), b[5].buf, b[6].buf,
                         b[7].buf, b[8].buf, b[9].buf, single_weight};
    return 0;
}

static PyObject *run_weigh(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer b[11];
    Group group;
    Weights weights;
    if (read_weighing(args, b, &group, &weights) < 0) return NULL;
    int64_t most = weigh(&group, &weights, b[10].buf);
    for (int n = 0; n < 11; n++) PyBuffer_Release(&b[n]);
    if (most < 0) return PyErr_NoMemory();
    return PyLong_FromLongLong(most);
}

static PyObject *run_lift(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer b[11];
    Group group;
    Weights weights;
    if (read_weighing(args, b, &group, &weights) < 0) return NULL;
    int width = group.machines ? (int)(b[10].len / sizeof(int32_t)) / group.machines : 1;
    int64_t most = lift(&group, &weights, width, b[10].buf);
    for (int n = 0; n < 11; n++) PyBuffer_Release(&b[n]);
    if (most < 0) return PyErr_NoMemory();
    return PyLong_FromLongLong(most);
}

static PyObject *run_prune(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer row_start, need, pin_start, pin_machine, pin_gpus, keep;
    int needs;
    if (!PyArg_ParseTuple(args, "y*iy*y*y*y*w*", &row_start, &needs, &need, &pin_start, &pin_machine, &pin_gpus, &keep))
        return NULL;
    Rows rows = {(int)(row_start.len / sizeof(int32_t)) - 1, needs,           row_start.buf, need.buf, pin_start.buf,
                 pin_machine.buf,                            pin_gpus.buf};
    int32_t *scratch = malloc(sizeof(int32_t) * (keep.len + 1));
    if (scratch) prune(&rows, keep.buf, scratch);
    free(scratch);
    Py_buffer *all[] = {&row_start, &need, &pin_start, &pin_machine, &pin_gpus, &keep};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) PyBuffer_Release(all[n]);
    if (!scratch) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyMethodDef METHODS[] = {
    {"problem", make_problem, METH_VARARGS, "A knapsack from its arrays."},
    {"prices", run_prices, METH_VARARGS, "Improve prices in place."},
    {"share", run_share, METH_VARARGS, "Recomputes the shares of shared pins; whether any changed."},
    {"search", run_search, METH_VARARGS, "The best choice: (status, value, bound, states)."},
    {"fit", run_fit, METH_VARARGS, "Whether gangs fit: (answer, parts)."},
    {"lift", run_lift, METH_VARARGS, "What pinned GPUs may count as; the most weight that the group holds."},
    {"losses", run_losses, METH_VARARGS, "What each row loses against the upper bound, which is returned."},
    {"bounds", run_bounds, METH_VARARGS, "The bound without each bidder."},
    {"pack_chosen", run_pack_chosen, METH_VARARGS, "The gangs of chosen rows on machines by best fit."},
    {"cover", make_cover, METH_VARARGS, "A cover: groups of machines, and what is asked of them."},
    {"cover_price", run_cover_price, METH_VARARGS, "Whether fractions of patterns make up what is left, and the duals."},
    {"cover_fullest", run_cover_fullest, METH_O, "The pattern taken most of: (pattern, times)."},
    {"cover_whole", run_cover_whole, METH_O, "Patterns taken at least once: [(pattern, times)]."},
    {"cover_fix", run_cover_fix, METH_VARARGS, "Fixes a pattern."},
    {"cover_forbid", run_cover_forbid, METH_VARARGS, "Excludes a pattern."},
    {"cover_pattern", run_cover_pattern, METH_VARARGS, "What a pattern covers; its group is returned."},
    {"weigh", run_weigh, METH_VARARGS, "The most weight that a group of machines holds."},
    {"read_bids", run_read_bids, METH_VARARGS, "Rows of bids that may win, as flat numbers."},
    {"order_rows", run_order_rows, METH_VARARGS, "Rows that may win, best first: (unit, rows, pins, alike)."},
    {"best_on_one_machine", run_best_on_one_machine, METH_VARARGS, "The best rows where only GPUs count."},
    {"prune", run_prune, METH_VARARGS, "Marks rows that no other of their bidder beats."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_core", NULL, -1, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void) { return PyModule_Create(&MODULE); }
