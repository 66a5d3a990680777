/* The references are `by_work` and `in_turn` in tests/reference_candidates.py; results are bit-identical. */
#include "list_scheduling.h"

#include <math.h>
#include <stdlib.h>

static void free_counts(SizeCounts *counts, int *unit_of) {
    free(counts->unit);
    free(counts->gangs);
    free(unit_of);
}

/* Allocates counts for gangs of these shapes, all 0, and the index of each shape's unit. NULL if out of memory. */
static int *zero_counts(SizeCounts *counts, const Shape *shapes, int64_t shape_count, int64_t max_gpus) {
    counts->max_gpus = counts->units = 0;
    counts->unit = malloc(sizeof(int64_t) * (size_t)(shape_count + 1));
    int *unit_of = malloc(sizeof(int) * (size_t)(shape_count + 1));
    counts->gangs = NULL;
    for (int64_t n = 0; counts->unit && n < shape_count; n++) {
        int at = 0;
        while (at < counts->units && counts->unit[at] > shapes[n].unit) at++;
        if (at == counts->units || counts->unit[at] != shapes[n].unit) {
            for (int later = counts->units++; later > at; later--) counts->unit[later] = counts->unit[later - 1];
            counts->unit[at] = shapes[n].unit;
        }
        int64_t largest = shapes[n].largest < max_gpus ? shapes[n].largest : max_gpus;
        if (largest > counts->max_gpus) counts->max_gpus = largest;
    }
    counts->gangs = calloc((size_t)(counts->max_gpus + 1) * (size_t)(counts->units + 1), sizeof(int64_t));
    if (!counts->unit || !counts->gangs || !unit_of) {
        free_counts(counts, unit_of);
        return NULL;
    }
    for (int64_t n = 0; n < shape_count; n++)
        for (unit_of[n] = 0; counts->unit[unit_of[n]] != shapes[n].unit;) unit_of[n]++;
    return unit_of;
}

static void add_gangs(SizeCounts *counts, int64_t gpus, int unit, int64_t gangs) {
    counts->gangs[gpus * counts->units + unit] += gangs;
}

/* Whether a total is so much larger than the last reported one that it is reported too. */
static int is_reported(int64_t gpus, double reported, double step) {
    double next = reported + 1.0 > reported * step ? reported + 1.0 : reported * step;
    return (double)gpus > next;
}

/* ---- job by job -------------------------------------------------------------------------------------------------- */

typedef struct {
    double turn;
    int64_t job, gpus;
} Turn;

static int before(const Turn *one, const Turn *two) {
    return one->turn != two->turn ? one->turn < two->turn : one->job < two->job;
}

static void sift(Turn *heap, int64_t size, Turn turn) {
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &turn)) break;
        heap[at] = heap[child];
    }
    heap[at] = turn;
}

static int schedule_jobs(const Jobs *jobs, const Shape *shapes, const int *unit_of, int64_t max_gpus, double step,
                         SizeCounts *counts, Turn *heap, Report report, void *to) {
    int64_t gpus = 0, reported = 0, size = jobs->jobs;
    for (int64_t job = 0; job < size; job++) heap[job] = (Turn){-INFINITY, job, 0};
    while (size) {
        Turn turn = heap[0];
        int64_t number = jobs->shape[turn.job];
        const Shape *shape = &shapes[number];
        int64_t more = turn.gpus ? shape->unit : shape->smallest;
        if (turn.gpus == shape->largest || gpus + more > max_gpus) {
            size--;
            sift(heap, size, heap[size]);
            continue;
        }
        if (gpus && is_reported(gpus + more, (double)reported, step)) {
            reported = gpus;
            if (!report(to, gpus, counts)) return 0;
        }
        if (turn.gpus) add_gangs(counts, turn.gpus, unit_of[number], -1);
        gpus += more, turn.gpus += more;
        add_gangs(counts, turn.gpus, unit_of[number], 1);
        double slowdown = jobs->slowdown[number * jobs->tasks + turn.gpus / shape->unit];
        turn.turn = -jobs->work_s[turn.job] * slowdown / (double)turn.gpus;
        sift(heap, size, turn);
    }
    return gpus ? report(to, gpus, counts) : 1;
}

int schedule_by_work(const Jobs *jobs, const Shape *shapes, int64_t shape_count, int64_t max_gpus, double step,
                     Report report, void *to) {
    SizeCounts counts;
    int *unit_of = zero_counts(&counts, shapes, shape_count, max_gpus);
    Turn *heap = malloc(sizeof(Turn) * (size_t)(jobs->jobs + 1));
    int result = -1;
    if (unit_of && heap) result = schedule_jobs(jobs, shapes, unit_of, max_gpus, step, &counts, heap, report, to);
    free(heap);
    if (unit_of) free_counts(&counts, unit_of);
    return result;
}

/* ---- shape by shape ---------------------------------------------------------------------------------------------- */

/* The gangs and GPUs of a shape; `done` once it takes no more. */
typedef struct {
    double turn;
    int64_t gangs, gpus;
    int done;
} Share;

/* The shape whose turn it is; -1 if none takes more. */
static int64_t next_part(const Parts *parts, const Share *shares, int64_t shape_count) {
    int64_t next = -1;
    for (int64_t n = 0; n < shape_count; n++) {
        if (shares[n].done) continue;
        const Share *best = next < 0 ? NULL : &shares[next];
        if (!best || shares[n].turn < best->turn ||
            (shares[n].turn == best->turn && parts->work_s[n] > parts->work_s[next]))
            next = n;
    }
    return next;
}

/* Reports the gangs of each shape, sized as by `even_sizes` of finish_time.py. A shape has enough GPUs for all its
 * gangs, and no more than they can use. */
static int report_even(const Shape *shapes, const Share *shares, int64_t shape_count, const int *unit_of,
                       SizeCounts *counts, int64_t gpus, Report report, void *to) {
    for (int sign = 1, reported = 1;; sign = -1) {
        for (int64_t n = 0; n < shape_count; n++) {
            const Shape *shape = &shapes[n];
            int64_t gangs = shares[n].gangs, tasks = shares[n].gpus / shape->unit;
            if (!gangs) continue;
            int64_t each = tasks / gangs, more = tasks % gangs;
            if (more) add_gangs(counts, (each + 1) * shape->unit, unit_of[n], sign * more);
            add_gangs(counts, each * shape->unit, unit_of[n], sign * (gangs - more));
        }
        if (sign < 0) return reported;
        reported = report(to, gpus, counts);
    }
}

static int schedule_shapes(const Parts *parts, const Shape *shapes, int64_t shape_count, const int *unit_of,
                           int64_t max_gangs, int64_t max_gpus, double step, SizeCounts *counts, Share *shares,
                           Report report, void *to) {
    int64_t gangs = 0, gpus = 0, reported = 0;
    for (int64_t n = 0; n < shape_count; n++) shares[n] = (Share){-INFINITY, 0, 0, 0};
    for (int64_t n; (n = next_part(parts, shares, shape_count)) >= 0;) {
        Share *share = &shares[n];
        int opens = share->gangs < parts->members[n];
        int64_t more = opens ? shapes[n].smallest : shapes[n].unit;
        int full = !opens && share->gpus >= share->gangs * shapes[n].largest;
        if (full || gpus + more > max_gpus || (opens && gangs == max_gangs)) {
            share->done = 1;
            continue;
        }
        if (is_reported(gpus + more, (double)reported, step) && gpus > reported) {
            reported = gpus;
            if (!report_even(shapes, shares, shape_count, unit_of, counts, gpus, report, to)) return 0;
        }
        gangs += opens, gpus += more;
        share->gangs += opens, share->gpus += more;
        share->turn = -parts->work_s[n] / (double)share->gpus;
    }
    return gpus > reported ? report_even(shapes, shares, shape_count, unit_of, counts, gpus, report, to) : 1;
}

int schedule_in_turn(const Parts *parts, const Shape *shapes, int64_t shape_count, int64_t max_gangs, int64_t max_gpus,
                     double step, Report report, void *to) {
    SizeCounts counts;
    int *unit_of = zero_counts(&counts, shapes, shape_count, max_gpus);
    Share *shares = malloc(sizeof(Share) * (size_t)(shape_count + 1));
    int result = -1;
    if (unit_of && shares)
        result = schedule_shapes(parts, shapes, shape_count, unit_of, max_gangs, max_gpus, step, &counts, shares,
                                 report, to);
    free(shares);
    if (unit_of) free_counts(&counts, unit_of);
    return result;
}
