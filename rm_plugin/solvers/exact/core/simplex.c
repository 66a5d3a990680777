/* Revised simplex with the whole inverse of the basis: dual steps while a right side has made a value negative, then
 * primal ones. Programmes have ten to some hundred rows, and columns with a few entries each. */
#include "simplex.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double TINY = 1e-9, TOO_LITTLE = -1e-7, FAR_OFF = 1e-6;
enum { STEPS_A_ROW = 40, STALLED = 60 };

int open_programme(Programme *p, int demands, int groups) {
    int rows = demands + groups;
    *p = (Programme){.demands = demands, .rows = rows};
    p->right = calloc(rows + 1, sizeof(double));
    p->inverse = malloc(sizeof(double) * ((size_t)rows * rows + 1));
    p->value = malloc(sizeof(double) * (rows + 1));
    p->dual = calloc(rows + 1, sizeof(double));
    p->entering = malloc(sizeof(double) * (rows + 1));
    p->pivot = malloc(sizeof(double) * (rows + 1));
    p->basic = malloc(sizeof(int32_t) * (rows + 1));
    p->place = malloc(sizeof(int32_t) * (rows + demands + 1));
    p->start = calloc(1, sizeof(int32_t));
    return p->right && p->inverse && p->value && p->dual && p->entering && p->pivot && p->basic && p->place && p->start;
}

void close_programme(Programme *p) {
    void *all[] = {p->right, p->inverse, p->value, p->dual,  p->entering, p->pivot,
                   p->basic, p->place,   p->start, p->row, p->coefficient, p->banned};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
}

static int grow(void **array, size_t size) {
    void *grown = realloc(*array, size);
    if (grown) *array = grown;
    return grown != NULL;
}

static int room_for(Programme *p, int cells) {
    int first = p->rows + p->demands;
    if (p->columns == p->room) {
        int room = p->room ? 2 * p->room : 64;
        if (!grow((void **)&p->start, sizeof(int32_t) * (room + 1)) || !grow((void **)&p->banned, room) ||
            !grow((void **)&p->place, sizeof(int32_t) * (first + room)))
            return 0;
        p->room = room;
    }
    if (p->cells + cells > p->cell_room) {
        int room = 2 * (p->cell_room + cells);
        if (!grow((void **)&p->row, sizeof(int32_t) * room) || !grow((void **)&p->coefficient, sizeof(double) * room))
            return 0;
        p->cell_room = room;
    }
    return 1;
}

int add_column(Programme *p, int group, int cells, const int32_t *row, const int32_t *coefficient) {
    if (!room_for(p, cells + 1)) return 0;
    for (int n = 0; n < cells; n++) {
        p->row[p->cells] = row[n];
        p->coefficient[p->cells++] = coefficient[n];
    }
    p->row[p->cells] = p->demands + group;
    p->coefficient[p->cells++] = 1.0;
    p->banned[p->columns] = 0;
    p->place[p->rows + p->demands + p->columns] = -1;
    p->start[++p->columns] = p->cells;
    return 1;
}

void restart(Programme *p) {
    int rows = p->rows;
    memset(p->inverse, 0, sizeof(double) * rows * rows);
    for (int n = 0; n < rows + p->demands + p->columns; n++) p->place[n] = -1;
    for (int r = 0; r < rows; r++) {
        /* A demand for nothing is covered: what it gets too much of is basic, and its dual 0. */
        int covered = r < p->demands && p->right[r] <= 0.0;
        p->inverse[(size_t)r * rows + r] = covered ? -1.0 : 1.0;
        p->basic[r] = covered ? rows + r : r;
        p->place[p->basic[r]] = r;
    }
}

/* A variable's column times a vector by rows. */
static double times_column(const Programme *p, int variable, const double *vector) {
    if (variable < p->rows) return vector[variable];
    if (variable < p->rows + p->demands) return -vector[variable - p->rows];
    double sum = 0.0;
    int column = variable - p->rows - p->demands;
    for (int n = p->start[column]; n < p->start[column + 1]; n++) sum += p->coefficient[n] * vector[p->row[n]];
    return sum;
}

static void find_values(Programme *p) {
    for (int r = 0; r < p->rows; r++) {
        const double *inverse = p->inverse + (size_t)r * p->rows;
        double sum = 0.0;
        for (int n = 0; n < p->rows; n++) sum += inverse[n] * p->right[n];
        p->value[r] = sum;
    }
}

/* Only what is missing costs anything, 1 each. */
static void find_duals(Programme *p) {
    memset(p->dual, 0, sizeof(double) * p->rows);
    for (int r = 0; r < p->rows; r++) {
        if (p->basic[r] >= p->demands) continue;
        const double *inverse = p->inverse + (size_t)r * p->rows;
        for (int n = 0; n < p->rows; n++) p->dual[n] += inverse[n];
    }
}

static int may_enter(const Programme *p, int variable) {
    int column = variable - p->rows - p->demands;
    return p->place[variable] < 0 && (column < 0 || !p->banned[column]);
}

static double reduced_cost(const Programme *p, int variable) {
    return (variable < p->demands ? 1.0 : 0.0) - times_column(p, variable, p->dual);
}

static void find_entering(Programme *p, int variable) {
    for (int r = 0; r < p->rows; r++) p->entering[r] = times_column(p, variable, p->inverse + (size_t)r * p->rows);
}

/* The variable takes the place of the one that is basic there; `entering` is its column by the basis. */
static void exchange(Programme *p, int variable, int place) {
    int rows = p->rows;
    double *pivot = p->inverse + (size_t)place * rows, by = 1.0 / p->entering[place];
    for (int n = 0; n < rows; n++) pivot[n] *= by;
    p->value[place] *= by;
    for (int r = 0; r < rows; r++) {
        double factor = p->entering[r];
        if (r == place || factor == 0.0) continue;
        double *inverse = p->inverse + (size_t)r * rows;
        for (int n = 0; n < rows; n++) inverse[n] -= factor * pivot[n];
        p->value[r] -= factor * p->value[place];
    }
    p->place[p->basic[place]] = -1;
    p->basic[place] = variable;
    p->place[variable] = place;
}

/* The entering variable with the best reduced cost; with `first` the first that pays (no cycling); -1 for none. */
static int primal_entering(const Programme *p, int first) {
    double least = -TINY;
    int best = -1;
    for (int variable = 0; variable < p->rows + p->demands + p->columns; variable++) {
        if (!may_enter(p, variable)) continue;
        double cost = reduced_cost(p, variable);
        if (cost >= least) continue;
        best = variable;
        if (first) return best;
        least = cost;
    }
    return best;
}

static int primal_leaving(const Programme *p, int first) {
    double least = INFINITY;
    int best = -1;
    for (int r = 0; r < p->rows; r++) {
        if (p->entering[r] <= TINY) continue;
        double ratio = (p->value[r] > 0.0 ? p->value[r] : 0.0) / p->entering[r];
        int tie = best >= 0 && ratio < least + TINY && ratio > least - TINY;
        if (tie ? first ? p->basic[r] < p->basic[best] : p->entering[r] > p->entering[best] : ratio < least) {
            if (ratio < least) least = ratio;
            best = r;
        }
    }
    return best;
}

static int primal_steps(Programme *p, int most_steps) {
    int stalled = 0;
    for (int step = 0; step < most_steps; step++) {
        find_duals(p);
        int variable = primal_entering(p, stalled > STALLED);
        if (variable < 0) return 1;
        find_entering(p, variable);
        int place = primal_leaving(p, stalled > STALLED);
        if (place < 0) return 0;
        stalled = p->value[place] > TINY ? 0 : stalled + 1;
        exchange(p, variable, place);
    }
    return 0;
}

/* The entering variable of a dual step for a negative value, at the least loss; -1 for none. */
static int dual_entering(const Programme *p) {
    double least = INFINITY, steepest = 0.0;
    int best = -1;
    for (int variable = 0; variable < p->rows + p->demands + p->columns; variable++) {
        if (!may_enter(p, variable)) continue;
        double slope = -times_column(p, variable, p->pivot);
        if (slope <= TINY) continue;
        double cost = reduced_cost(p, variable), ratio = (cost > 0.0 ? cost : 0.0) / slope;
        if (ratio > least - TINY && (ratio > least + TINY || slope <= steepest)) continue;
        least = ratio;
        steepest = slope;
        best = variable;
    }
    return best;
}

static int dual_steps(Programme *p, int most_steps) {
    for (int step = 0; step < most_steps; step++) {
        int place = 0;
        for (int r = 1; r < p->rows; r++)
            if (p->value[r] < p->value[place]) place = r;
        if (p->value[place] >= TOO_LITTLE) return 1;
        find_duals(p);
        memcpy(p->pivot, p->inverse + (size_t)place * p->rows, sizeof(double) * p->rows);
        int variable = dual_entering(p);
        if (variable < 0) return 0;
        find_entering(p, variable);
        exchange(p, variable, place);
    }
    return 0;
}

/* Whether the basis at its values gives the right sides: sums of many steps drift. */
static int holds(Programme *p) {
    memcpy(p->pivot, p->right, sizeof(double) * p->rows);
    for (int r = 0; r < p->rows; r++) {
        int variable = p->basic[r], column = variable - p->rows - p->demands;
        if (variable < p->rows)
            p->pivot[variable] -= p->value[r];
        else if (column < 0)
            p->pivot[variable - p->rows] += p->value[r];
        else
            for (int n = p->start[column]; n < p->start[column + 1]; n++)
                p->pivot[p->row[n]] -= p->coefficient[n] * p->value[r];
    }
    for (int r = 0; r < p->rows; r++)
        if (!(fabs(p->pivot[r]) < FAR_OFF)) return 0;
    return 1;
}

int solve_programme(Programme *p) {
    int most_steps = STEPS_A_ROW * (p->rows + 1);
    for (int attempt = 0; attempt < 2; attempt++) {
        if (attempt) restart(p);
        find_values(p);
        if (!dual_steps(p, most_steps) || !primal_steps(p, most_steps)) continue;
        find_values(p);
        if (holds(p)) return SIMPLEX_DONE;
    }
    return SIMPLEX_STUCK;
}

double missing_of(const Programme *p) {
    double sum = 0.0;
    for (int r = 0; r < p->rows; r++)
        if (p->basic[r] < p->demands) sum += p->value[r];
    return sum;
}

double value_of(const Programme *p, int column) {
    int place = p->place[p->rows + p->demands + column];
    return place < 0 ? 0.0 : p->value[place];
}
