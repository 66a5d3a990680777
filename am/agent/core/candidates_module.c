/* The Python interface of the compiled candidate functions. _candidates.pyi describes the arguments; others raise a
 * ValueError or a TypeError. */
#include "arrays.h"

#include <limits.h>
#include <stdlib.h>

#include "enumeration.h"
#include "dominance.h"
#include "list_scheduling.h"
#include "multifit.h"
#include "gang_layout.h"

static PyObject *fit_by_end(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[5], *result = NULL;
    Py_buffer *times, *takes, *gpus, *most, *out;
    long long max_gpus, max_gangs, gpus_here;
    double end_s;
    Arrays arrays = {.held = 0};
    if (!PyArg_ParseTuple(args, "OOOOLLdLO", &objects[0], &objects[1], &objects[2], &objects[3], &max_gpus,
                          &max_gangs, &end_s, &gpus_here, &objects[4]))
        return NULL;
    if (max_gpus < 1) return PyErr_Format(PyExc_ValueError, "%lld GPUs are not enough for a gang", max_gpus);
    if ((times = array(&arrays, objects[0], is_float64, 2, 0)) &&
        (takes = array(&arrays, objects[1], is_float64, 2, 0)) &&
        agree("kinds", times->shape[1], takes->shape[0]) && agree("kinds", takes->shape[0], takes->shape[1]) &&
        (gpus = array(&arrays, objects[2], is_int64, 1, 0)) && agree("kinds", times->shape[1], gpus->shape[0]) &&
        (most = array(&arrays, objects[3], is_int64, 1, 0)) && agree("kinds", times->shape[1], most->shape[0]) &&
        (out = array(&arrays, objects[4], is_int64, 1, PyBUF_WRITABLE)) &&
        agree("kinds", times->shape[1], out->shape[0])) {
        Fitting fitting = {(int)times->shape[0], (int)times->shape[1], times->buf, takes->buf, gpus->buf, most->buf};
        if (times->shape[0] > INT_MAX || times->shape[1] > INT_MAX) {
            PyErr_SetString(PyExc_ValueError, "too many jobs or kinds");
        } else {
            int fits = fit_jobs(&fitting, end_s, gpus_here, max_gpus, max_gangs, out->buf);
            result = fits < 0 ? PyErr_NoMemory() : PyBool_FromLong(fits);
        }
    }
    release(&arrays);
    return result;
}

/* Whether every level exists. */
static int are_levels(const Py_buffer *within) {
    const int64_t *level = within->buf;
    for (Py_ssize_t n = 0; n < within->shape[0]; n++)
        if (level[n] < 0 || level[n] >= LEVELS) {
            PyErr_Format(PyExc_ValueError, "kind %zd is within level %lld, of which there are %d", n,
                         (long long)level[n], LEVELS);
            return 0;
        }
    return 1;
}

/* A number from 0 to INT_MAX, so that sums do not overflow; -1 with an error set. */
static int64_t number(PyObject *object) {
    long long value = PyLong_AsLongLong(object);
    if (value == -1 && PyErr_Occurred()) return -1;
    if (value >= 0 && value <= INT_MAX) return value;
    PyErr_Format(PyExc_ValueError, "%lld is no number of gangs, GPUs or kinds", value);
    return -1;
}

/* Reads the kinds of a size, at most `most`, into `buffer`. Returns 0 with an error set if a kind does not exist. */
static int read_kinds(PyObject *entry, Py_ssize_t most, Py_ssize_t kinds, IdenticalGangs *gangs, int64_t *buffer) {
    if (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) > most) {
        PyErr_Format(PyExc_ValueError, "the kinds of a size must be a tuple of %zd at most", most);
        return 0;
    }
    gangs->kinds = buffer, gangs->kind_count = PyTuple_GET_SIZE(entry);
    for (Py_ssize_t n = 0; n < gangs->kind_count; n++) {
        if ((buffer[n] = number(PyTuple_GET_ITEM(entry, n))) < 0) return 0;
        if (buffer[n] >= kinds) {
            PyErr_Format(PyExc_ValueError, "kind %lld is not one of %zd", (long long)buffer[n], kinds);
            return 0;
        }
    }
    return 1;
}

/* Reads a size: GPUs, unit and count, and its kinds, which may be none. */
static int read_size(PyObject *size, PyObject *kinds_of, Py_ssize_t most, Py_ssize_t kinds, IdenticalGangs *gangs,
                     int64_t *buffer) {
    if (!PyTuple_Check(size) || PyTuple_GET_SIZE(size) != 3) {
        PyErr_SetString(PyExc_ValueError, "a size must be a tuple of GPUs, unit and count");
        return 0;
    }
    if ((gangs->gpus = number(PyTuple_GET_ITEM(size, 0))) < 0 || (gangs->count = number(PyTuple_GET_ITEM(size, 2))) < 0)
        return 0;
    if (!gangs->gpus) {
        PyErr_SetString(PyExc_ValueError, "a gang must have a GPU");
        return 0;
    }
    PyObject *key = PyTuple_GetSlice(size, 0, 2);
    /* Reading numbers may run Python code, which may delete the entry from the dictionary. */
    PyObject *entry = key ? Py_XNewRef(PyDict_GetItemWithError(kinds_of, key)) : NULL;
    gangs->kinds = buffer, gangs->kind_count = 0;
    int fine = entry ? read_kinds(entry, most, kinds, gangs, buffer) : !PyErr_Occurred();
    Py_XDECREF(key);
    Py_XDECREF(entry);
    return fine;
}

static PyObject *tuple_of(const int64_t *counts, Py_ssize_t kinds) {
    PyObject *tuple = PyTuple_New(kinds);
    for (Py_ssize_t n = 0; tuple && n < kinds; n++) {
        PyObject *count = PyLong_FromLongLong(counts[n]);
        if (!count) Py_CLEAR(tuple);
        else PyTuple_SET_ITEM(tuple, n, count);
    }
    return tuple;
}

/* Appends a candidate to a list. Returns 0 with an error set. */
static int append_candidate(PyObject *candidates, const int64_t *counts, Py_ssize_t kinds) {
    PyObject *candidate = tuple_of(counts, kinds);
    int fine = candidate && !PyList_Append(candidates, candidate);
    Py_XDECREF(candidate);
    return fine;
}

/* The layouts for each part of the tight places, without those that do not fit. */
static PyObject *tightest_layouts(const Py_buffer *most, const Py_buffer *within, const IdenticalGangs *gangs,
                                  Py_ssize_t size_count, PyObject *parts, int64_t *counts) {
    Py_ssize_t kinds = most->shape[0];
    PyObject *candidates = PyList_New(0);
    for (Py_ssize_t n = 0; candidates && n < PyTuple_GET_SIZE(parts); n++) {
        double tight_part = PyFloat_AsDouble(PyTuple_GET_ITEM(parts, n));
        if (tight_part == -1.0 && PyErr_Occurred()) {
            Py_CLEAR(candidates);
        } else if (!(tight_part >= 0.0 && tight_part <= 1.0)) {
            PyErr_SetString(PyExc_ValueError, "a part must be from 0 to 1");
            Py_CLEAR(candidates);
        } else if (place_at_tightest(most->buf, within->buf, kinds, gangs, size_count, tight_part, counts)) {
            if (!append_candidate(candidates, counts, kinds)) Py_CLEAR(candidates);
        }
    }
    return candidates;
}

/* Marks the levels at which a size has a kind of its own. The kinds of a size must be listed by level; a kind of
 * another level may represent it. Returns 0 with an error set if they are not, -1 if a size has no kind, else
 * 1. */
static int levels_of(const Py_buffer *within, const IdenticalGangs *gangs, Py_ssize_t size_count, int *levels) {
    memset(levels, 0, sizeof(int) * LEVELS);
    for (Py_ssize_t n = 0; n < size_count; n++) {
        if (!gangs[n].kind_count) return -1;
        if (gangs[n].kind_count != LEVELS) {
            PyErr_Format(PyExc_ValueError, "a size must have a kind for each of %d levels", LEVELS);
            return 0;
        }
        for (int level = 0; level < LEVELS; level++)
            levels[level] |= ((const int64_t *)within->buf)[gangs[n].kinds[level]] == level;
    }
    return 1;
}

/* The layouts with each of the `loose_counts` gangs at a looser level, and the others at a tighter one. */
static PyObject *two_level_layouts(const Py_buffer *most, const Py_buffer *within, const IdenticalGangs *gangs,
                                   Py_ssize_t size_count, PyObject *loose_counts, int64_t *counts) {
    Py_ssize_t kinds = most->shape[0];
    int levels[LEVELS], known = levels_of(within, gangs, size_count, levels);
    if (!known) return NULL;
    PyObject *candidates = PyList_New(0);
    for (int tight = 0; known > 0 && tight < LEVELS; tight++)
        for (int loose = tight; levels[tight] && loose < LEVELS; loose++) {
            Py_ssize_t layout_count = tight == loose ? 1 : PyTuple_GET_SIZE(loose_counts);
            for (Py_ssize_t n = 0; candidates && levels[loose] && n < layout_count; n++) {
                int64_t loose_count = tight == loose ? 0 : number(PyTuple_GET_ITEM(loose_counts, n));
                if (loose_count < 0) Py_CLEAR(candidates);
                else if (place_at_two_levels(most->buf, kinds, gangs, size_count, tight, loose, loose_count, counts) &&
                         !append_candidate(candidates, counts, kinds))
                    Py_CLEAR(candidates);
            }
        }
    return candidates;
}

/* The layouts at the tightest levels, or by level those at two levels. */
static PyObject *layouts(const Py_buffer *most, const Py_buffer *within, PyObject *kinds_of, PyObject *sizes,
                         PyObject *parts, int by_level) {
    Py_ssize_t kinds = most->shape[0], size_count = PyTuple_GET_SIZE(sizes), read = 0, each = by_level ? LEVELS : kinds;
    PyObject *result = NULL;
    IdenticalGangs *gangs = malloc(sizeof(IdenticalGangs) * (size_count + 1));
    /* The counts of a candidate come first, then the kinds of each size. */
    int64_t *buffer = malloc(sizeof(int64_t) * ((size_t)size_count * each + kinds + 1));
    if (!gangs || !buffer) PyErr_NoMemory();
    else
        while (read < size_count && read_size(PyTuple_GET_ITEM(sizes, read), kinds_of, each, kinds, &gangs[read],
                                        buffer + kinds + (size_t)read * each))
            read++;
    if (gangs && buffer && read == size_count)
        result = by_level ? two_level_layouts(most, within, gangs, size_count, parts, buffer)
                          : tightest_layouts(most, within, gangs, size_count, parts, buffer);
    free(gangs);
    free(buffer);
    return result;
}

static PyObject *layouts_from(PyObject *args, int by_level) {
    PyObject *objects[2], *kinds_of, *sizes, *parts, *result = NULL;
    Py_buffer *most, *within;
    Arrays arrays = {.held = 0};
    if (!PyArg_ParseTuple(args, "OOO!O!O!", &objects[0], &objects[1], &PyDict_Type, &kinds_of, &PyTuple_Type, &sizes,
                          &PyTuple_Type, &parts))
        return NULL;
    if ((most = array(&arrays, objects[0], is_int64, 1, 0)) && (within = array(&arrays, objects[1], is_int64, 1, 0)) &&
        agree("kinds", most->shape[0], within->shape[0]) && are_levels(within))
        result = layouts(most, within, kinds_of, sizes, parts, by_level);
    release(&arrays);
    return result;
}

static PyObject *at_tightest(PyObject *self, PyObject *args) {
    (void)self;
    return layouts_from(args, 0);
}

static PyObject *at_two_levels(PyObject *self, PyObject *args) {
    (void)self;
    return layouts_from(args, 1);
}

/* ---- list scheduling --------------------------------------------------------------------------------------------- */

/* Appends GPUs and the gangs that they make, largest first, to a list; 0 with an error set. */
static int append_gangs(void *to, int64_t gpus, const SizeCounts *counts) {
    PyObject *sizes = PyList_New(0), *entry = NULL;
    for (int64_t size = counts->max_gpus; sizes && size > 0; size--)
        for (int unit = 0; sizes && unit < counts->units; unit++) {
            long long count = counts->gangs[size * counts->units + unit];
            if (!count) continue;
            PyObject *gangs = Py_BuildValue("(LLL)", (long long)size, (long long)counts->unit[unit], count);
            if (!gangs || PyList_Append(sizes, gangs)) Py_CLEAR(sizes);
            Py_XDECREF(gangs);
        }
    PyObject *all = sizes ? PyList_AsTuple(sizes) : NULL;
    if (all) entry = Py_BuildValue("(LN)", (long long)gpus, all);
    int fine = entry && !PyList_Append(to, entry);
    Py_XDECREF(entry);
    Py_XDECREF(sizes);
    return fine;
}

static int are_gpus(long long gpus) {
    if (gpus >= 0 && gpus <= INT_MAX) return 1;
    PyErr_Format(PyExc_ValueError, "GPUs must be from 0 to %d, not %lld", INT_MAX, gpus);
    return 0;
}

/* Whether every job has a shape, and S is given for all gangs that it may get. */
static int have_slowdowns(const Py_buffer *shape_of, const Py_buffer *shapes, const Py_buffer *slowdown,
                          int64_t max_gpus) {
    const Shape *shape = shapes->buf;
    for (Py_ssize_t job = 0; job < shape_of->shape[0]; job++) {
        int64_t number = ((const int64_t *)shape_of->buf)[job];
        if (number < 0 || number >= shapes->shape[0]) {
            PyErr_Format(PyExc_ValueError, "job %zd is of shape %lld of %zd", job, (long long)number, shapes->shape[0]);
            return 0;
        }
    }
    for (Py_ssize_t n = 0; n < shapes->shape[0]; n++) {
        int64_t most = shape[n].largest < max_gpus ? shape[n].largest : max_gpus;
        if (most / shape[n].unit >= slowdown->shape[1]) {
            PyErr_Format(PyExc_ValueError, "there is no slowdown for %lld tasks", (long long)(most / shape[n].unit));
            return 0;
        }
    }
    return 1;
}

/* The list, or an error if out of memory or if an append failed. */
static PyObject *list_or_error(PyObject *list, int result) {
    if (result < 0) PyErr_NoMemory();
    if (result <= 0) Py_CLEAR(list);
    return list;
}

static PyObject *by_work(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[4], *list = NULL;
    Py_buffer *work, *shape_of, *shapes, *slowdown;
    long long max_gpus;
    double step;
    Arrays arrays = {.held = 0};
    if (!PyArg_ParseTuple(args, "OOOOLd", &objects[0], &objects[1], &objects[2], &objects[3], &max_gpus, &step))
        return NULL;
    if (are_gpus(max_gpus) && (work = array(&arrays, objects[0], is_float64, 1, 0)) &&
        (shape_of = array(&arrays, objects[1], is_int64, 1, 0)) && agree("jobs", work->shape[0], shape_of->shape[0]) &&
        (shapes = array(&arrays, objects[2], is_int64, 2, 0)) && are_shapes(shapes) &&
        (slowdown = array(&arrays, objects[3], is_float64, 2, 0)) &&
        agree("shapes", shapes->shape[0], slowdown->shape[0]) &&
        have_slowdowns(shape_of, shapes, slowdown, max_gpus) &&
        (list = PyList_New(0))) {
        Jobs jobs = {work->shape[0], work->buf, shape_of->buf, slowdown->buf, slowdown->shape[1]};
        list = list_or_error(
            list, schedule_by_work(&jobs, shapes->buf, shapes->shape[0], max_gpus, step, append_gangs, list));
    }
    release(&arrays);
    return list;
}

static PyObject *in_turn(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[3], *list = NULL;
    Py_buffer *work, *members, *shapes;
    long long max_gangs, max_gpus;
    double step;
    Arrays arrays = {.held = 0};
    if (!PyArg_ParseTuple(args, "OOOLLd", &objects[0], &objects[1], &objects[2], &max_gangs, &max_gpus, &step))
        return NULL;
    if (are_gpus(max_gpus) && (work = array(&arrays, objects[0], is_float64, 1, 0)) &&
        (members = array(&arrays, objects[1], is_int64, 1, 0)) && agree("shapes", work->shape[0], members->shape[0]) &&
        (shapes = array(&arrays, objects[2], is_int64, 2, 0)) && are_shapes(shapes) &&
        agree("shapes", work->shape[0], shapes->shape[0]) && (list = PyList_New(0))) {
        Parts parts = {work->buf, members->buf};
        list = list_or_error(list, schedule_in_turn(&parts, shapes->buf, shapes->shape[0], max_gangs, max_gpus, step,
                                                    append_gangs, list));
    }
    release(&arrays);
    return list;
}

/* ---- enumeration ------------------------------------------------------------------------------------------------- */

/* Whether each kind has counts that ascend from 0, and gangs of it have GPUs. */
static int are_grids(const Py_buffer *counts, const Py_buffer *ends, const Py_buffer *gpus) {
    const int64_t *count = counts->buf, *end = ends->buf;
    Py_ssize_t at = 0;
    if (ends->shape[0] > MAX_KINDS) {
        PyErr_Format(PyExc_ValueError, "choices are of at most %d kinds, not of %zd", MAX_KINDS, ends->shape[0]);
        return 0;
    }
    for (Py_ssize_t kind = 0; kind < ends->shape[0]; kind++) {
        int fine = ((const int64_t *)gpus->buf)[kind] > 0 && ((const int64_t *)gpus->buf)[kind] <= INT_MAX &&
                   end[kind] > at && end[kind] <= counts->shape[0] && !count[at];
        while (fine && ++at < end[kind]) fine = count[at] > count[at - 1] && count[at] <= INT_MAX;
        if (!fine) {
            PyErr_Format(PyExc_ValueError, "the counts of kind %zd must ascend from 0, and its gangs have GPUs", kind);
            return 0;
        }
    }
    return 1;
}

static PyObject *on_grids(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[4], *result = NULL;
    Py_buffer *counts, *ends, *gpus, *out;
    long long max_gangs, max_gpus;
    Arrays arrays = {.held = 0};
    if (!PyArg_ParseTuple(args, "OOOLLO", &objects[0], &objects[1], &objects[2], &max_gangs, &max_gpus, &objects[3]))
        return NULL;
    if (are_gpus(max_gpus) && (counts = array(&arrays, objects[0], is_int64, 1, 0)) &&
        (ends = array(&arrays, objects[1], is_int64, 1, 0)) && (gpus = array(&arrays, objects[2], is_int64, 1, 0)) &&
        agree("kinds", ends->shape[0], gpus->shape[0]) && are_grids(counts, ends, gpus) &&
        (out = array(&arrays, objects[3], is_int64, 2, PyBUF_WRITABLE)) &&
        agree("kinds", ends->shape[0], out->shape[1])) {
        Grids grids = {ends->shape[0], counts->buf, ends->buf, gpus->buf};
        int64_t written = choose(&grids, max_gangs, max_gpus, out->shape[0], out->buf);
        result = written == -2 ? PyErr_NoMemory() : PyLong_FromLongLong(written);
    }
    release(&arrays);
    return result;
}

/* ---- dominance pruning ------------------------------------------------------------------------------------------- */

static PyObject *uncovered(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[4], *result = NULL;
    Py_buffer *needs, *gains, *enough, *kept;
    long long first, cap;
    Arrays arrays = {.held = 0};
    if (!PyArg_ParseTuple(args, "OOOLLO", &objects[0], &objects[1], &objects[2], &first, &cap, &objects[3]))
        return NULL;
    if ((needs = array(&arrays, objects[0], is_int16, 2, 0)) &&
        (gains = array(&arrays, objects[1], is_float64, 1, 0)) &&
        agree("candidates", needs->shape[0], gains->shape[0]) &&
        (enough = array(&arrays, objects[2], is_float64, 1, 0)) &&
        agree("candidates", needs->shape[0], enough->shape[0]) &&
        (kept = array(&arrays, objects[3], is_int64, 1, PyBUF_WRITABLE)) && first >= 0 &&
        agree("candidates", needs->shape[0] + first, kept->shape[0])) {
        Replaceable candidates = {needs->shape[0], needs->shape[1], needs->buf, gains->buf, enough->buf};
        int64_t *candidate = kept->buf, kept_count = 0;
        while (kept_count < first && candidate[kept_count] >= 0 && candidate[kept_count] < candidates.count)
            kept_count++;
        if (kept_count < first) {
            PyErr_Format(PyExc_ValueError, "candidate %lld is not one of %zd", (long long)candidate[kept_count],
                         needs->shape[0]);
        } else {
            kept_count = cover(&candidates, first, cap, candidate);
            result = kept_count < 0 ? PyErr_NoMemory() : PyLong_FromLongLong(kept_count);
        }
    }
    release(&arrays);
    if (!result && !PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "%lld candidates cannot be kept at first", first);
    return result;
}

/* Whether all candidates of the pairs exist. */
static int are_pairs(const Py_buffer *pairs, Py_ssize_t count) {
    const int64_t *candidate = pairs->buf;
    for (Py_ssize_t n = 0; n < pairs->shape[0]; n++)
        if (candidate[n] < 0 || candidate[n] >= count) {
            PyErr_Format(PyExc_ValueError, "candidate %lld is not one of %zd", (long long)candidate[n], count);
            return 0;
        }
    return 1;
}

static PyObject *undominated_candidates(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[7], *result = NULL;
    Py_buffer *values, *gains, *needs, *gpus, *harder, *easier, *kept;
    double empty_value;
    Arrays arrays = {.held = 0};
    if (!PyArg_ParseTuple(args, "OOOOOOdO", &objects[0], &objects[1], &objects[2], &objects[3], &objects[4],
                          &objects[5], &empty_value, &objects[6]))
        return NULL;
    if ((values = array(&arrays, objects[0], is_float64, 1, 0)) &&
        (gains = array(&arrays, objects[1], is_float64, 1, 0)) &&
        agree("candidates", values->shape[0], gains->shape[0]) &&
        (needs = array(&arrays, objects[2], is_int16, 2, 0)) &&
        agree("candidates", values->shape[0], needs->shape[0]) &&
        (gpus = array(&arrays, objects[3], is_int64, 1, 0)) &&
        agree("candidates", values->shape[0], gpus->shape[0]) &&
        (harder = array(&arrays, objects[4], is_int64, 1, 0)) &&
        (easier = array(&arrays, objects[5], is_int64, 1, 0)) &&
        agree("pairs", harder->shape[0], easier->shape[0]) && are_pairs(harder, values->shape[0]) &&
        are_pairs(easier, values->shape[0]) && (kept = array(&arrays, objects[6], is_int64, 1, PyBUF_WRITABLE)) &&
        agree("candidates", values->shape[0], kept->shape[0])) {
        Candidates all = {values->shape[0], needs->shape[1], harder->shape[0], values->buf, gains->buf,
                          needs->buf, gpus->buf, harder->buf, easier->buf};
        int64_t kept_count = undominated(&all, empty_value, kept->buf);
        result = kept_count < 0 ? PyErr_NoMemory() : PyLong_FromLongLong(kept_count);
    }
    release(&arrays);
    return result;
}

/* Whether the kinds of all changes exist. */
static int are_kinds(const Py_buffer *changed, Py_ssize_t kinds) {
    const int64_t *kind = changed->buf;
    for (Py_ssize_t n = 0; n < changed->shape[0]; n++)
        if (kind[n] < 0 || kind[n] >= kinds) {
            PyErr_Format(PyExc_ValueError, "kind %lld is not one of %zd", (long long)kind[n], kinds);
            return 0;
        }
    return 1;
}

static PyObject *find_one_step_variants(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[6], *result = NULL;
    Py_buffer *keys, *candidates, *changed, *key, *harder, *easier;
    Arrays arrays = {.held = 0};
    if (!PyArg_ParseTuple(args, "OOOOOO", &objects[0], &objects[1], &objects[2], &objects[3], &objects[4], &objects[5]))
        return NULL;
    if ((keys = array(&arrays, objects[0], is_int64, 1, 0)) &&
        (candidates = array(&arrays, objects[1], is_int64, 2, 0)) &&
        agree("candidates", keys->shape[0], candidates->shape[0]) &&
        (changed = array(&arrays, objects[2], is_int64, 1, 0)) &&
        are_kinds(changed, candidates->shape[1]) && (key = array(&arrays, objects[3], is_int64, 1, 0)) &&
        agree("changes", changed->shape[0], key->shape[0]) &&
        (harder = array(&arrays, objects[4], is_int64, 1, PyBUF_WRITABLE)) &&
        agree("pairs", keys->shape[0] * changed->shape[0], harder->shape[0]) &&
        (easier = array(&arrays, objects[5], is_int64, 1, PyBUF_WRITABLE)) &&
        agree("pairs", harder->shape[0], easier->shape[0])) {
        Changes changes = {changed->shape[0], changed->buf, key->buf};
        int64_t pairs = one_step_variants(keys->buf, candidates->buf, candidates->shape[0], candidates->shape[1],
                                          &changes, harder->buf, easier->buf);
        result = pairs < 0 ? PyErr_NoMemory() : PyLong_FromLongLong(pairs);
    }
    release(&arrays);
    return result;
}

static PyMethodDef methods[] = {
    {"fit_by_end", fit_by_end, METH_VARARGS, "First fit under an end: gangs on which all jobs end in time."},
    {"at_tightest", at_tightest, METH_VARARGS, "Candidates with gangs at their tightest levels."},
    {"at_two_levels", at_two_levels, METH_VARARGS, "Candidates with gangs at one level or at two."},
    {"by_work", by_work, METH_VARARGS, "List scheduling: each step goes to the job that would end last."},
    {"in_turn", in_turn, METH_VARARGS, "List scheduling: each step goes to the shape with most work per GPU."},
    {"on_grids", on_grids, METH_VARARGS, "All choices of a count for each kind, within gangs and GPUs."},
    {"one_step_variants", find_one_step_variants, METH_VARARGS,
     "Pairs of candidates of which a small change turns one into the other."},
    {"undominated", undominated_candidates, METH_VARARGS, "Candidates of a bid that no other one dominates."},
    {"uncovered", uncovered, METH_VARARGS, "Candidates that no candidate kept before replaces."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_candidates", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__candidates(void) { return PyModule_Create(&module); }
