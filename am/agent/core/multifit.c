/* Sums have a fixed order, so that results are bit-identical to tests/reference_candidates.py. */
#include "multifit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The loads of the gangs of one kind, as a heap: the least first. */
typedef struct {
    double *load_s;
    int64_t count;
} Heap;

static void add(Heap *heap, double load_s) {
    int64_t at = heap->count++;
    for (; at && load_s < heap->load_s[(at - 1) / 2]; at = (at - 1) / 2) heap->load_s[at] = heap->load_s[(at - 1) / 2];
    heap->load_s[at] = load_s;
}

/* Replaces the least load by a larger or equal one. */
static void raise_least(Heap *heap, double load_s) {
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count && heap->load_s[child + 1] < heap->load_s[child]) child++;
        if (!(heap->load_s[child] < load_s)) break;
        heap->load_s[at] = heap->load_s[child];
    }
    heap->load_s[at] = load_s;
}

/* The first kind with an open gang that has time for the job; -1 if there is none. */
static int open_with_time(const Fitting *f, const Heap *heaps, const double *times_s, double end_s) {
    for (int k = 0; k < f->kinds; k++)
        if (heaps[k].count && heaps[k].load_s[0] + times_s[k] <= end_s) return k;
    return -1;
}

static int has_room(const Fitting *f, int kind, const double *left) {
    const double *takes = f->takes + (size_t)kind * f->kinds;
    for (int k = 0; k < f->kinds; k++)
        if (!(takes[k] <= left[k])) return 0;
    return 1;
}

/* Returns the first kind that has free capacity for a gang and on which the job ends in time; -1 if there is none. */
static int smallest(const Fitting *f, const double *times_s, double end_s, int64_t gpus, const double *left) {
    for (int k = 0; k < f->kinds; k++)
        if (times_s[k] <= end_s && f->gpus[k] <= gpus && has_room(f, k, left)) return k;
    return -1;
}

static int put_all(const Fitting *f, double end_s, int64_t gpus, int64_t gangs, Heap *heaps, double *left) {
    for (int job = 0; job < f->jobs; job++) {
        const double *times_s = f->times_s + (size_t)job * f->kinds;
        int kind = open_with_time(f, heaps, times_s, end_s);
        if (kind >= 0) {
            raise_least(&heaps[kind], heaps[kind].load_s[0] + times_s[kind]);
            continue;
        }
        kind = smallest(f, times_s, end_s, gpus, left);
        if (kind < 0 || gangs <= 0) return 0;
        add(&heaps[kind], times_s[kind]);
        const double *takes = f->takes + (size_t)kind * f->kinds;
        for (int k = 0; k < f->kinds; k++) left[k] -= takes[k];
        gangs--, gpus -= f->gpus[kind];
    }
    return 1;
}

int fit_jobs(const Fitting *f, double end_s, int64_t gpus, int64_t max_gpus, int64_t max_gangs, int64_t *counts) {
    size_t kinds = (size_t)f->kinds;
    Heap *heaps = malloc(sizeof(Heap) * (kinds + 1));
    double *loads_s = malloc(sizeof(double) * (kinds * f->jobs + 1)), *left = malloc(sizeof(double) * (kinds + 1));
    int fits = -1;
    if (heaps && loads_s && left) {
        for (size_t k = 0; k < kinds; k++) {
            heaps[k] = (Heap){loads_s + k * f->jobs, 0};
            left[k] = ceil((double)(f->most[k] * gpus) / (double)max_gpus);
        }
        fits = put_all(f, end_s, gpus, max_gangs, heaps, left);
        for (size_t k = 0; k < kinds; k++) counts[k] = heaps[k].count;
    }
    free(heaps);
    free(loads_s);
    free(left);
    return fits;
}
