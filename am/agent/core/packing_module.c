/* The Python interface of the compiled packing. Arrays are C-contiguous buffers of the types and shapes in
 * _packing.pyi. Others raise a ValueError here, since the packing itself does not check. */
#include "arrays.h"

#include <limits.h>
#include <stdlib.h>

#include "schedule_simulation.h"
#include "limits.h"
#include "packing.h"

/* Whether there is a job and a kind, and no more of them than an int can count. */
static int can_be_packed(const Py_buffer *alone) {
    Py_ssize_t jobs = alone->shape[0], kinds = alone->shape[1];
    if (jobs > 0 && kinds > 0 && jobs <= INT_MAX / kinds) return 1;
    PyErr_Format(PyExc_ValueError, "%zd jobs on %zd kinds of gangs cannot be packed", jobs, kinds);
    return 0;
}

/* Whether the kinds of the gangs exist and ascend. */
static int in_order(const int64_t *kind, Py_ssize_t gangs, Py_ssize_t kinds) {
    int64_t last = 0;
    for (Py_ssize_t g = 0; g < gangs; last = kind[g++])
        if (kind[g] < last || kind[g] >= kinds) {
            PyErr_Format(PyExc_ValueError, "gang %zd is of kind %lld: not one of %zd kinds, or not in their order", g,
                         (long long)kind[g], kinds);
            return 0;
        }
    return 1;
}

/* Lists gangs by kind from counts, at most as many of a kind as there are jobs. Returns their number. */
static int lay_out(const int64_t *counts, int kinds, int jobs, int64_t *kind) {
    int gangs = 0;
    for (int k = 0; k < kinds; k++) {
        int64_t count = counts[k] < jobs ? counts[k] : jobs;
        for (int64_t n = 0; n < count; n++) kind[gangs++] = k;
    }
    return gangs;
}

/* For each division the first equal one, which may be itself; NULL if out of memory. */
static Py_ssize_t *first_alike(const Py_buffer *counts) {
    Py_ssize_t divisions = counts->shape[0], kinds = counts->shape[1];
    size_t slots = 2, row = sizeof(int64_t) * (size_t)kinds;
    while (slots < (size_t)divisions * 2) slots *= 2;
    Py_ssize_t *known = calloc(slots, sizeof(Py_ssize_t));
    Py_ssize_t *first = malloc(sizeof(Py_ssize_t) * (size_t)(divisions + 1));
    for (Py_ssize_t d = 0; known && first && d < divisions; d++) {
        const int64_t *division = (const int64_t *)counts->buf + d * kinds;
        uint64_t hash = 0;
        for (Py_ssize_t k = 0; k < kinds; k++)
            hash = (hash ^ hash >> 29 ^ (uint64_t)division[k]) * UINT64_C(0x9e3779b97f4a7c15);
        size_t slot = (size_t)(hash ^ hash >> 32) & (slots - 1);
        while (known[slot] && memcmp((const int64_t *)counts->buf + (known[slot] - 1) * kinds, division, row))
            slot = (slot + 1) & (slots - 1);
        if (!known[slot]) known[slot] = d + 1;
        first[d] = known[slot] - 1;
    }
    if (!known) {
        free(first);
        first = NULL;
    }
    free(known);
    return first;
}

/* `times_s` of checked arrays, or `left_out_s` if an end is given. Returns 0 if out of memory. */
static int time_divisions(const Py_buffer *alone, const Py_buffer *counts, int in_pairs, int closely,
                          const double *end_s, double most_s, const Py_buffer *out) {
    int jobs = (int)alone->shape[0], kinds = (int)alone->shape[1];
    size_t most = (size_t)jobs * kinds;
    int64_t *kind = malloc(sizeof(int64_t) * (most + 1));
    double *load_s = calloc(most + 1, sizeof(double));
    Packer *packer = new_packer(alone->buf, jobs, kinds, (int)most, in_pairs, closely, 0);
    Py_ssize_t *first = end_s ? NULL : first_alike(counts);
    int enough = kind && load_s && packer && (first || end_s);
    if (enough) {
        Py_BEGIN_ALLOW_THREADS;
        for (Py_ssize_t d = 0; d < out->shape[0]; d++) {
            if (first && first[d] < d) {
                ((double *)out->buf)[d] = ((double *)out->buf)[first[d]];
                continue;
            }
            int gangs = lay_out((const int64_t *)counts->buf + d * kinds, kinds, jobs, kind);
            double *result_s = (double *)out->buf + d;
            *result_s = end_s ? left_out(packer, kind, gangs, *end_s, most_s) : pack(packer, kind, load_s, gangs, NULL);
            if (*result_s < most_s) most_s = *result_s;
        }
        Py_END_ALLOW_THREADS;
    }
    free_packer(packer);
    free(kind);
    free(load_s);
    free(first);
    return enough;
}

static PyObject *times_s(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[3], *result = NULL;
    Py_buffer *alone, *counts, *out;
    int in_pairs, closely;
    Arrays arrays = {.held = 0};
    if (!PyArg_ParseTuple(args, "OOppO", &objects[0], &objects[1], &in_pairs, &closely, &objects[2])) return NULL;
    if ((alone = array(&arrays, objects[0], is_float64, 2, 0)) && can_be_packed(alone) &&
        (counts = array(&arrays, objects[1], is_int64, 2, 0)) && agree("kinds", alone->shape[1], counts->shape[1]) &&
        (out = array(&arrays, objects[2], is_float64, 1, PyBUF_WRITABLE)) &&
        agree("divisions", counts->shape[0], out->shape[0]))
        result =
            time_divisions(alone, counts, in_pairs, closely, NULL, 0.0, out) ? Py_NewRef(Py_None) : PyErr_NoMemory();
    release(&arrays);
    return result;
}

static PyObject *left_out_s(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[3], *result = NULL;
    Py_buffer *alone, *counts, *out;
    double end_s, most_s;
    Arrays arrays = {.held = 0};
    if (!PyArg_ParseTuple(args, "OOddO", &objects[0], &objects[1], &end_s, &most_s, &objects[2])) return NULL;
    if ((alone = array(&arrays, objects[0], is_float64, 2, 0)) && can_be_packed(alone) &&
        (counts = array(&arrays, objects[1], is_int64, 2, 0)) && agree("kinds", alone->shape[1], counts->shape[1]) &&
        (out = array(&arrays, objects[2], is_float64, 1, PyBUF_WRITABLE)) &&
        agree("divisions", counts->shape[0], out->shape[0]))
        result = time_divisions(alone, counts, 0, 0, &end_s, most_s, out) ? Py_NewRef(Py_None) : PyErr_NoMemory();
    release(&arrays);
    return result;
}

static PyObject *gangs_of_jobs(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[4], *result = NULL;
    Py_buffer *alone, *kind, *load_s, *out;
    Arrays arrays = {.held = 0};
    if (!PyArg_ParseTuple(args, "OOOO", &objects[0], &objects[1], &objects[2], &objects[3])) return NULL;
    if ((alone = array(&arrays, objects[0], is_float64, 2, 0)) && can_be_packed(alone) &&
        (kind = array(&arrays, objects[1], is_int64, 1, 0)) && in_order(kind->buf, kind->shape[0], alone->shape[1]) &&
        (load_s = array(&arrays, objects[2], is_float64, 1, 0)) && agree("gangs", kind->shape[0], load_s->shape[0]) &&
        (out = array(&arrays, objects[3], is_int64, 1, PyBUF_WRITABLE)) &&
        agree("jobs", alone->shape[0], out->shape[0])) {
        int gangs = (int)kind->shape[0];
        Packer *packer = new_packer(alone->buf, (int)alone->shape[0], (int)alone->shape[1], gangs, 1, 1, MAX_SHAKEN);
        if (packer)
            result = PyFloat_FromDouble(pack(packer, kind->buf, load_s->buf, gangs, out->buf));
        else
            PyErr_NoMemory();
        free_packer(packer);
    }
    release(&arrays);
    return result;
}

/* Whether all waiting jobs exist, and all gangs have GPUs and a level. */
static int are_there(const Py_buffer *queue, Py_ssize_t jobs, const Py_buffer *gangs) {
    const int64_t *waiting = queue->buf, *gang = gangs->buf;
    if (!agree("numbers of a gang", 2, gangs->shape[1])) return 0;
    for (Py_ssize_t n = 0; n < queue->shape[0]; n++)
        if (waiting[n] < 0 || waiting[n] >= jobs) {
            PyErr_Format(PyExc_ValueError, "job %lld is not one of %zd", (long long)waiting[n], jobs);
            return 0;
        }
    for (Py_ssize_t n = 0; n < gangs->shape[0]; n++, gang += 2)
        if (gang[0] < 0 || gang[0] > INT_MAX || gang[1] < 0 || gang[1] >= LEVELS) {
            PyErr_Format(PyExc_ValueError, "there is no gang of %lld GPUs at level %lld", (long long)gang[0],
                         (long long)gang[1]);
            return 0;
        }
    return 1;
}

static PyObject *follow_s(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[5], *result = NULL;
    Py_buffer *shapes, *gpu_s, *queue, *end_s, *gangs;
    long long within;
    double start_s, certain, best_s;
    Arrays arrays = {.held = 0};
    if (!PyArg_ParseTuple(args, "OOOOOLddd", &objects[0], &objects[1], &objects[2], &objects[3], &objects[4], &within,
                          &start_s, &certain, &best_s))
        return NULL;
    if (within < 0 || within >= LEVELS) return PyErr_Format(PyExc_ValueError, "there is no level %lld", within);
    if ((shapes = array(&arrays, objects[0], is_int64, 2, 0)) && are_shapes(shapes) &&
        (gpu_s = array(&arrays, objects[1], is_float64, 2, 0)) && agree("jobs", shapes->shape[0], gpu_s->shape[0]) &&
        agree("levels", LEVELS, gpu_s->shape[1]) && (queue = array(&arrays, objects[2], is_int64, 1, 0)) &&
        (end_s = array(&arrays, objects[3], is_float64, 1, 0)) &&
        (gangs = array(&arrays, objects[4], is_int64, 2, 0)) &&
        agree("gangs", end_s->shape[0], gangs->shape[0]) && are_there(queue, shapes->shape[0], gangs)) {
        Following following = {shapes->buf, gpu_s->buf, queue->buf, queue->shape[0], end_s->buf, gangs->buf,
                               end_s->shape[0], within, start_s};
        double last_s;
        result = follow(&following, certain, best_s, &last_s) ? PyFloat_FromDouble(last_s) : PyErr_NoMemory();
    }
    release(&arrays);
    return result;
}

static PyMethodDef methods[] = {
    {"times_s", times_s, METH_VARARGS, "When the last job ends, for each division of gangs."},
    {"left_out_s", left_out_s, METH_VARARGS, "The time of jobs that do not end in time, for each division of gangs."},
    {"gangs_of_jobs", gangs_of_jobs, METH_VARARGS, "When the last job ends on some gangs, and on which gang each job runs."},
    {"follow_s", follow_s, METH_VARARGS, "When the last job ends if waiting jobs get the GPUs that others leave."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_packing", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__packing(void) { return PyModule_Create(&module); }
