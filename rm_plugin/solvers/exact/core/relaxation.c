#include "relaxation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

__extension__ typedef __int128 Wide;

static const double TINY = 1e-9, PIVOT = 1e-7, FAR_OFF = 1e-6;
enum { STEPS_A_LOOK = 16 }; /* at the clock */

int open_relaxation(Relaxation *r, const Tables *t, int most_cliques) {
    int constraints = t->bidders + t->machines, most = constraints + most_cliques;
    *r = (Relaxation){.tables = t, .constraints = constraints, .most_constraints = most};
    r->gain = malloc(sizeof(double) * (t->rows + 1));
    r->right = malloc(sizeof(int32_t) * (most + 1));
    r->clique_start = calloc(most_cliques + 1, sizeof(int32_t));
    r->pivot = malloc(sizeof(double) * (most + 1));
    r->entering = malloc(sizeof(double) * (most + 1));
    r->dual = malloc(sizeof(double) * (most + 1));
    r->slope = malloc(sizeof(double) * (t->rows + most + 1));
    r->price = calloc(most + 1, sizeof(int64_t));
    r->best = malloc(sizeof(int64_t) * (t->bidders + 1));
    r->margin = malloc(sizeof(int64_t) * (t->rows + 1));
    if (!r->gain || !r->right || !r->clique_start || !r->pivot || !r->entering || !r->dual || !r->slope || !r->price ||
        !r->best || !r->margin)
        return 0;
    for (int row = 0; row < t->rows; row++) r->gain[row] = (double)t->gain[row] / t->unit;
    for (int k = 0; k < most; k++) r->right[k] = k < t->bidders || k >= constraints ? 1 : t->free[k - t->bidders];
    /* So that what a row costs, which fits the constraints, never overflows. */
    int64_t all = 1;
    for (int k = 0; k < most; k++) all += r->right[k];
    r->dearest = MOST_BOUND / all;
    return gather_columns(r);
}

void close_relaxation(Relaxation *r) {
    void *all[] = {r->start, r->index,    r->many, r->gain,  r->right, r->clique_start, r->clique_row,
                   r->pivot, r->entering, r->dual, r->slope, r->price, r->best,         r->margin};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
}

int add_clique(Relaxation *r, int count, const int32_t *rows) {
    int first = r->clique_start[r->cliques], needed = first + count;
    if (needed > r->clique_room) {
        int32_t *grown = realloc(r->clique_row, sizeof(int32_t) * 2 * needed);
        if (!grown) return 0;
        r->clique_row = grown;
        r->clique_room = 2 * needed;
    }
    memcpy(r->clique_row + first, rows, sizeof(int32_t) * count);
    r->clique_start[++r->cliques] = needed;
    return 1;
}

int gather_columns(Relaxation *r) {
    const Tables *t = r->tables;
    int cells = t->pin_start[t->rows] + r->clique_start[r->cliques];
    int32_t *start = calloc(t->rows + 2, sizeof(int32_t));
    int32_t *index = malloc(sizeof(int32_t) * (cells + 1)), *many = malloc(sizeof(int32_t) * (cells + 1));
    if (!start || !index || !many) {
        free(start);
        free(index);
        free(many);
        return 0;
    }
    free(r->start);
    free(r->index);
    free(r->many);
    r->start = start;
    r->index = index;
    r->many = many;
    r->constraints = t->bidders + t->machines + r->cliques;
    /* start[row + 1] is where the next cell of the row goes, and so in the end where the row ends. */
    for (int row = 0; row < t->rows; row++) start[row + 2] = t->pin_start[row + 1] - t->pin_start[row];
    for (int n = 0; n < r->clique_start[r->cliques]; n++) start[r->clique_row[n] + 2]++;
    for (int row = 0; row < t->rows; row++) start[row + 2] += start[row + 1];
    for (int row = 0; row < t->rows; row++)
        for (int pin = t->pin_start[row]; pin < t->pin_start[row + 1]; pin++) {
            index[start[row + 1]] = t->bidders + t->pin_machine[pin];
            many[start[row + 1]++] = t->pin_gpus[pin];
        }
    for (int c = 0; c < r->cliques; c++)
        for (int n = r->clique_start[c]; n < r->clique_start[c + 1]; n++) {
            int row = r->clique_row[n];
            index[start[row + 1]] = t->bidders + t->machines + c;
            many[start[row + 1]++] = 1;
        }
    return 1;
}

static size_t rounded(size_t size) { return (size + 15) & ~(size_t)15; }

/* Lays a basis out in its block. */
static void lay_out(Basis *b, int rows, int bidders, int m) {
    char *at = (char *)b + rounded(sizeof *b);
    b->inverse = (double *)at;
    at += rounded(sizeof(double) * m * m);
    b->level = (double *)at;
    at += rounded(sizeof(double) * m);
    b->reduced = (double *)at;
    at += rounded(sizeof(double) * (rows + m));
    b->basic = (int32_t *)at;
    at += rounded(sizeof(int32_t) * m);
    b->live = (int32_t *)at;
    at += rounded(sizeof(int32_t) * (rows + m));
    b->options = (int32_t *)at;
    at += rounded(sizeof(int32_t) * bidders);
    b->alive = (unsigned char *)at;
    at += rounded(rows + m);
    b->placed = (unsigned char *)at;
    at += rounded(rows + m);
    b->size = at - (char *)b;
    b->constraints = m;
}

Basis *new_basis(const Relaxation *r) {
    int rows = r->tables->rows, m = r->constraints, bidders = r->tables->bidders;
    size_t size = rounded(sizeof(Basis)) + rounded(sizeof(double) * m * m) + rounded(sizeof(double) * m) +
                  rounded(sizeof(double) * (rows + m)) + rounded(sizeof(int32_t) * m) +
                  rounded(sizeof(int32_t) * (rows + m)) + rounded(sizeof(int32_t) * bidders) + 2 * rounded(rows + m);
    Basis *b = malloc(size);
    if (!b) return NULL;
    lay_out(b, rows, bidders, m);
    memset(b->alive, 1, rows + m);
    for (int i = 0; i < bidders; i++) b->options[i] = 1 + r->tables->row_start[i + 1] - r->tables->row_start[i];
    list_live(r, b);
    return b;
}

void copy_basis(Basis *to, const Basis *from) {
    size_t head = rounded(sizeof(Basis));
    to->lives = from->lives;
    to->value = from->value;
    memcpy((char *)to + head, (const char *)from + head, from->size - head);
}

void list_live(const Relaxation *r, Basis *b) {
    b->lives = 0;
    for (int v = 0; v < r->tables->rows + b->constraints; v++)
        if (b->alive[v]) b->live[b->lives++] = v;
}

void ban(const Relaxation *r, Basis *b, int variable) {
    const Tables *t = r->tables;
    if (!b->alive[variable]) return;
    b->alive[variable] = 0;
    b->options[variable < t->rows ? t->bidder[variable] : variable - t->rows]--;
}

/* A variable's column times a vector by constraints. */
static double times_column(const Relaxation *r, int variable, const double *vector) {
    const Tables *t = r->tables;
    if (variable >= t->rows) return vector[variable - t->rows];
    double sum = vector[t->bidder[variable]];
    for (int n = r->start[variable]; n < r->start[variable + 1]; n++) sum += r->many[n] * vector[r->index[n]];
    return sum;
}

static double gain_of(const Relaxation *r, int variable) {
    return variable < r->tables->rows ? r->gain[variable] : 0.0;
}

static void find_levels(const Relaxation *r, Basis *b) {
    int m = b->constraints;
    b->value = 0.0;
    for (int k = 0; k < m; k++) {
        const double *inverse = b->inverse + (size_t)k * m;
        double sum = 0.0;
        for (int n = 0; n < m; n++) sum += inverse[n] * r->right[n];
        b->level[k] = sum;
        b->value += sum * gain_of(r, b->basic[k]);
    }
}

static void find_reduced(Relaxation *r, Basis *b) {
    int m = b->constraints;
    memset(r->dual, 0, sizeof(double) * m);
    for (int k = 0; k < m; k++) {
        double gain = gain_of(r, b->basic[k]);
        if (gain == 0.0) continue;
        const double *inverse = b->inverse + (size_t)k * m;
        for (int n = 0; n < m; n++) r->dual[n] += gain * inverse[n];
    }
    for (int n = 0; n < b->lives; n++) {
        int v = b->live[n];
        b->reduced[v] = b->placed[v] ? 0.0 : gain_of(r, v) - times_column(r, v, r->dual);
    }
}

/* The variable takes the place of the one basic there; `entering` is its column by the basis. */
static void exchange(Relaxation *r, Basis *b, int variable, int place) {
    int m = b->constraints;
    double *pivot = b->inverse + (size_t)place * m, by = 1.0 / r->entering[place];
    for (int n = 0; n < m; n++) pivot[n] *= by;
    for (int k = 0; k < m; k++) {
        double factor = r->entering[k];
        if (k == place || factor == 0.0) continue;
        double *inverse = b->inverse + (size_t)k * m;
        for (int n = 0; n < m; n++) inverse[n] -= factor * pivot[n];
    }
    b->placed[b->basic[place]] = 0;
    b->placed[variable] = 1;
    b->basic[place] = variable;
}

static void find_entering(Relaxation *r, const Basis *b, int variable) {
    int m = b->constraints;
    for (int k = 0; k < m; k++) r->entering[k] = times_column(r, variable, b->inverse + (size_t)k * m);
}

void begin_basis(Relaxation *r, Basis *b) {
    const Tables *t = r->tables;
    int m = b->constraints;
    memset(b->inverse, 0, sizeof(double) * m * m);
    memset(b->placed, 0, t->rows + m);
    for (int k = 0; k < m; k++) {
        b->inverse[(size_t)k * m + k] = 1.0;
        b->basic[k] = t->rows + k;
        b->placed[t->rows + k] = 1;
    }
    for (int i = 0; i < t->bidders; i++) {
        int row = t->row_start[i];
        while (row < t->row_start[i + 1] && !b->alive[row]) row++;
        if (row == t->row_start[i + 1]) continue;
        find_entering(r, b, row);
        exchange(r, b, row, i);
    }
    find_levels(r, b);
    find_reduced(r, b);
}

void extend_basis(const Relaxation *r, Basis *to, const Basis *from) {
    int rows = r->tables->rows, before = from->constraints, m = to->constraints;
    memcpy(to->alive, from->alive, rows + before);
    memcpy(to->placed, from->placed, rows + before);
    memcpy(to->options, from->options, sizeof(int32_t) * r->tables->bidders);
    memcpy(to->basic, from->basic, sizeof(int32_t) * before);
    memset(to->inverse, 0, sizeof(double) * m * m);
    for (int k = 0; k < before; k++)
        memcpy(to->inverse + (size_t)k * m, from->inverse + (size_t)k * before, sizeof(double) * before);
    for (int k = before; k < m; k++) {
        double *row = to->inverse + (size_t)k * m;
        int clique = k - r->tables->bidders - r->tables->machines;
        for (int place = 0; place < before; place++) {
            int inside = 0;
            for (int n = r->clique_start[clique]; n < r->clique_start[clique + 1]; n++)
                inside |= r->clique_row[n] == from->basic[place];
            if (inside)
                for (int n = 0; n < before; n++) row[n] -= from->inverse[(size_t)place * before + n];
        }
        row[k] = 1.0;
        to->basic[k] = rows + k;
        to->alive[rows + k] = to->placed[rows + k] = 1;
    }
    list_live(r, to);
}

/* Whether the basis at its levels gives the right sides: sums of many steps drift. */
static int holds(Relaxation *r, const Basis *b) {
    const Tables *t = r->tables;
    int m = b->constraints;
    for (int k = 0; k < m; k++) r->dual[k] = r->right[k];
    for (int k = 0; k < m; k++) {
        int v = b->basic[k];
        if (v >= t->rows) {
            r->dual[v - t->rows] -= b->level[k];
            continue;
        }
        r->dual[t->bidder[v]] -= b->level[k];
        for (int n = r->start[v]; n < r->start[v + 1]; n++) r->dual[r->index[n]] -= r->many[n] * b->level[k];
    }
    for (int k = 0; k < m; k++)
        if (!(fabs(r->dual[k]) < FAR_OFF)) return 0;
    return 1;
}

void refresh(Relaxation *r, Basis *b) {
    find_levels(r, b);
    if (holds(r, b))
        find_reduced(r, b);
    else
        begin_basis(r, b);
}

/* The place that is furthest from what it may be, measured along its edge; -1 when all are right. */
static int leaving(const Basis *b) {
    int m = b->constraints, best = -1;
    double most = 0.0;
    for (int k = 0; k < m; k++) {
        double off = b->level[k] < -TINY ? -b->level[k] : b->alive[b->basic[k]] ? 0.0 : b->level[k];
        if (off <= TINY) continue;
        const double *inverse = b->inverse + (size_t)k * m;
        double norm = 0.0;
        for (int n = 0; n < m; n++) norm += inverse[n] * inverse[n];
        if (off * off > most * norm) {
            most = off * off / norm;
            best = k;
        }
    }
    return best;
}

/* Who enters at the least loss of value; -1 when nobody can. Slopes of everybody alive on the way. */
static int find_next(Relaxation *r, const Basis *b, double sign) {
    double least = INFINITY, steepest = 0.0;
    int best = -1;
    for (int n = 0; n < b->lives; n++) {
        int v = b->live[n];
        if (b->placed[v]) continue;
        double slope = times_column(r, v, r->pivot);
        r->slope[v] = slope;
        slope *= sign;
        if (slope >= -PIVOT) continue;
        double cost = b->reduced[v] < 0.0 ? -b->reduced[v] : 0.0, ratio = cost / -slope;
        if (ratio > least - TINY && (ratio > least + TINY || -slope <= steepest)) continue;
        least = ratio;
        steepest = -slope;
        best = v;
    }
    return best;
}

static void step_to(Relaxation *r, Basis *b, int variable, int place) {
    int m = b->constraints, gone = b->basic[place];
    find_entering(r, b, variable);
    double by = b->reduced[variable] / r->slope[variable], step = b->level[place] / r->entering[place];
    for (int n = 0; n < b->lives; n++) {
        int v = b->live[n];
        if (!b->placed[v]) b->reduced[v] -= by * r->slope[v];
    }
    b->reduced[variable] = 0.0;
    b->reduced[gone] = -by;
    b->value += by * b->level[place];
    for (int k = 0; k < m; k++) b->level[k] -= step * r->entering[k];
    b->level[place] = step;
    exchange(r, b, variable, place);
}

int dual_simplex(Relaxation *r, Basis *b, Until until, int *ray_sign) {
    *ray_sign = 0;
    for (int step = 0; step < until.steps; step++) {
        int place = leaving(b);
        if (place < 0) return RELAX_OPTIMAL;
        if (b->value < until.cutoff) return RELAX_BELOW;
        if (step % STEPS_A_LOOK == 0 && monotonic_s() > until.deadline_s) return RELAX_STOPPED;
        double sign = b->level[place] < 0.0 ? 1.0 : -1.0;
        memcpy(r->pivot, b->inverse + (size_t)place * b->constraints, sizeof(double) * b->constraints);
        int variable = find_next(r, b, sign);
        if (variable < 0) {
            *ray_sign = (int)sign;
            return RELAX_EMPTY;
        }
        step_to(r, b, variable, place);
    }
    return RELAX_STOPPED;
}

void price_by(Relaxation *r, const Basis *b, double far, int ray_sign) {
    const Tables *t = r->tables;
    for (int k = t->bidders; k < b->constraints; k++) {
        double dual = b->placed[t->rows + k] ? 0.0 : -b->reduced[t->rows + k];
        if (ray_sign) dual += far * ray_sign * r->pivot[k];
        double price = dual * t->unit;
        r->price[k] = price <= 0.0 ? 0 : price < (double)r->dearest ? (int64_t)price : r->dearest;
    }
}

int64_t bound_of(Relaxation *r, const Basis *b) {
    const Tables *t = r->tables;
    Wide bound = 0;
    for (int k = t->bidders; k < b->constraints; k++) bound += (Wide)r->price[k] * r->right[k];
    for (int i = 0; i < t->bidders; i++) {
        int64_t best = b->alive[t->rows + i] ? 0 : INT64_MIN;
        for (int row = t->row_start[i]; row < t->row_start[i + 1]; row++) {
            if (!b->alive[row]) continue;
            int64_t margin = t->gain[row];
            for (int n = r->start[row]; n < r->start[row + 1]; n++) margin -= r->price[r->index[n]] * r->many[n];
            r->margin[row] = margin;
            if (margin > best) best = margin;
        }
        r->best[i] = best;
        bound += best;
    }
    return bound > MOST_BOUND ? MOST_BOUND : bound < -MOST_BOUND ? -MOST_BOUND : (int64_t)bound;
}
