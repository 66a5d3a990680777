/* The price of a single resource: the bound is then a convex function of one number, and its least point can be told.
 *
 * As the price falls a bidder goes from nothing over ever larger rows to its best one, by the corners of the upper hull
 * of (use, gain). Each step along a hull has a slope, gain by use, at which it begins to pay. Taken by falling slope,
 * that step at which all capacity is used up has the price.
 */
#include "one_price.h"

#include <stdlib.h>

typedef struct {
    double use, gain;
} Corner;

typedef struct {
    double use, slope;
} Step;

static int by_use(const void *left, const void *right) {
    const Corner *a = left, *b = right;
    if (a->use != b->use) return a->use < b->use ? -1 : 1;
    return a->gain > b->gain ? -1 : a->gain < b->gain;
}

static int by_falling_slope(const void *left, const void *right) {
    const Step *a = left, *b = right;
    return a->slope > b->slope ? -1 : a->slope < b->slope;
}

static double slope_between(const Corner *from, const Corner *to) { return (to->gain - from->gain) / (to->use - from->use); }

/* The corners of a bidder's hull, from nothing on, in the place of its rows, which are sorted; returns how many. */
static int hull_of(Corner *corner, int rows) {
    int top = 0;
    qsort(corner, rows, sizeof *corner, by_use);
    for (int row = 0; row < rows; row++) {
        Corner next = corner[row];
        if (top && next.gain <= corner[top - 1].gain) continue;
        while (top > 1 && slope_between(&corner[top - 2], &corner[top - 1]) <= slope_between(&corner[top - 1], &next)) top--;
        corner[top++] = next;
    }
    return top;
}

static int read_rows(const Problem *problem, int bidder, Corner *corner) {
    int count = 1;
    corner[0] = (Corner){0.0, 0.0};
    for (int row = problem->row_start[bidder]; row < problem->row_start[bidder + 1]; row++) {
        int part = problem->part_start[row];
        double use = part < problem->part_start[row + 1] ? problem->part_use[part] : 0.0;
        corner[count++] = (Corner){use, problem->gain_f[row]};
    }
    return count;
}

void find_one_price(const Problem *problem, int skip, double *price) {
    Corner *corner = malloc(sizeof *corner * ((size_t)problem->rows + 1));
    Step *step = malloc(sizeof *step * ((size_t)problem->rows + 1));
    if (corner && step) {
        int steps = 0;
        for (int bidder = 0; bidder < problem->bidders; bidder++) {
            if (bidder == skip) continue;
            int corners = hull_of(corner, read_rows(problem, bidder, corner));
            for (int c = 1; c < corners; c++)
                step[steps++] = (Step){corner[c].use - corner[c - 1].use, slope_between(&corner[c - 1], &corner[c])};
        }
        qsort(step, steps, sizeof *step, by_falling_slope);
        double used = 0.0;
        *price = 0.0;
        for (int s = 0; s < steps && *price == 0.0; s++) {
            used += step[s].use;
            if (used > 1.0) *price = step[s].slope;
        }
    }
    free(corner);
    free(step);
}
