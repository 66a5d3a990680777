#include "pattern_cover.h"

#include <string.h>

enum { ROUNDS = 60 };
static const double FINE = 1e6;     /* duals are weighed in millionths */
static const double ENOUGH = 0.6;   /* a cut is taken once its violation is this part of the largest possible */
static const double NOTHING = 1e-6, THIN = 0.15;

static int demands_of(const Cover *c) { return c->items + c->gangs + 1 + c->pins; }

/* Sets remaining demands and groups as right-hand sides. */
static void set_right(Cover *c) {
    int demands = demands_of(c);
    for (int d = 0; d < demands; d++) c->programme.right[d] = c->left[d] > 0 ? c->left[d] : 0;
    for (int g = 0; g < c->groups; g++) c->programme.right[demands + g] = c->times[g];
}

void begin_cover(Cover *c) {
    set_right(c);
    restart(&c->programme);
}

/* Rounds the duals down to whole weights; returns the weight of the remaining demands. */
static int64_t set_weights(Cover *c) {
    int first_pin = c->items + c->gangs + 1, demands = demands_of(c);
    int64_t asked = 0;
    for (int d = 0; d < demands; d++) {
        double dual = c->programme.dual[d];
        c->weight[d] = dual > 0.0 ? (int64_t)(dual * FINE + NOTHING) : 0;
        if (c->left[d] > 0) asked += c->weight[d] * c->left[d];
    }
    for (int m = 0; m < c->machine_start[c->groups]; m++)
        c->pin_weight[m] = c->pin_row[m] >= 0 ? c->weight[first_pin + c->pin_row[m]] : 0;
    return asked;
}

static int64_t weigh_group(Cover *c, int group) {
    int first = c->machine_start[group];
    Group machines = {c->machine_start[group + 1] - first, c->free + first, c->slot_start + first, c->slot_free,
                      c->pinned + first, c->pin_weight + first};
    Weights weights = {c->items, c->gangs, c->size, c->in_slot, c->weight, c->gang_size, c->weight + c->items,
                       c->weight[c->items + c->gangs]};
    return weigh(&machines, &weights, c->count);
}

/* Converts the last pattern to the cells of a column; returns their number. */
static int read_cells(Cover *c, int group) {
    int first = c->items + c->gangs + 1, cells = 0;
    int machines = c->machine_start[group + 1] - c->machine_start[group];
    for (int n = 0; n < first + machines; n++) {
        if (!c->count[n]) continue;
        c->cell_row[cells] = n < first ? n : first + c->pin_row[c->machine_start[group] + n - first];
        c->cell_count[cells++] = c->count[n];
    }
    return cells;
}

static int is_forbidden(const Cover *c, int group, int cells) {
    const Programme *p = &c->programme;
    for (int column = 0; column < p->columns; column++) {
        int start = p->start[column];
        if (!p->banned[column] || p->start[column + 1] - start != cells + 1) continue;
        int same = p->row[start + cells] == p->demands + group;
        for (int n = 0; n < cells && same; n++)
            same = p->row[start + n] == c->cell_row[n] && p->coefficient[start + n] == c->cell_count[n];
        if (same) return 1;
    }
    return 0;
}

/* Adds each group's heaviest pattern if its reduced cost is negative; subtracts their weights from `excess`. */
static int add_patterns(Cover *c, int64_t *excess, int *added) {
    for (int group = 0; group < c->groups; group++) {
        if (!c->times[group]) continue;
        int64_t most = weigh_group(c, group);
        if (most < 0) return 0;
        *excess -= most * c->times[group];
        double paid = -c->programme.dual[c->programme.demands + group];
        if ((double)most <= (paid > 0.0 ? paid : 0.0) * FINE + 1.0) continue;
        int cells = read_cells(c, group);
        if (is_forbidden(c, group, cells)) continue;
        if (!add_column(&c->programme, group, cells, c->cell_row, c->cell_count)) return 0;
        *added = 1;
    }
    return 1;
}

int price_patterns(Cover *c) {
    set_right(c);
    for (int round = 0; round < ROUNDS; round++) {
        if (solve_programme(&c->programme) != SIMPLEX_DONE) return COVER_UNDECIDED;
        double missing = missing_of(&c->programme);
        if (missing < NOTHING) return COVER_COVERED;
        int64_t excess = set_weights(c);
        int added = 0;
        if (!add_patterns(c, &excess, &added)) return COVER_NO_MEMORY;
        if ((double)excess > ENOUGH * missing * FINE || !added) break;
    }
    return COVER_TOO_MUCH;
}

static int within_left(const Cover *c, int column) {
    const Programme *p = &c->programme;
    for (int n = p->start[column]; n < p->start[column + 1]; n++)
        if (p->row[n] < c->items + c->gangs && p->coefficient[n] > c->left[p->row[n]]) return 0;
    return 1;
}

int fullest_pattern(const Cover *c, int32_t *times) {
    int tight = -1, best = -1;
    double most_tight = THIN, most = NOTHING;
    for (int column = 0; column < c->programme.columns; column++) {
        double value = value_of(&c->programme, column);
        if (value > most) {
            most = value;
            best = column;
        }
        /* A pattern that covers more than is left wastes GPUs. */
        if (value > most_tight && within_left(c, column)) {
            most_tight = value;
            tight = column;
        }
    }
    double value = tight >= 0 ? most_tight : most;
    *times = best < 0 ? 0 : value < 1.0 ? 1 : (int32_t)(value + NOTHING);
    return tight >= 0 ? tight : best;
}

int32_t whole_times(const Cover *c, int column) {
    double value = value_of(&c->programme, column);
    return value > 0.0 ? (int32_t)(value + NOTHING) : 0;
}

void fix_pattern(Cover *c, int column, int times) {
    const Programme *p = &c->programme;
    for (int n = p->start[column]; n < p->start[column + 1]; n++) {
        if (p->row[n] < p->demands)
            c->left[p->row[n]] -= (int32_t)p->coefficient[n] * times;
        else
            c->times[p->row[n] - p->demands] -= times;
    }
}

void forbid_pattern(Cover *c, int column) {
    c->programme.banned[column] = 1;
    begin_cover(c);
}

int pattern_of(const Cover *c, int column, int32_t *numbers) {
    const Programme *p = &c->programme;
    memset(numbers, 0, sizeof(int32_t) * p->demands);
    int last = p->start[column + 1] - 1;
    for (int n = p->start[column]; n < last; n++) numbers[p->row[n]] = (int32_t)p->coefficient[n];
    return p->row[last] - p->demands;
}
