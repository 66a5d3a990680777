#include "clique.h"

#include <stdlib.h>
#include <string.h>

#include "core.h"

static const double VIOLATED = 0.02, LIKELY = -0.5;
enum { A_ROUND = 30 };

typedef struct {
    const Tables *tables;
    int count;         /* rows that the relaxation takes a part of, the largest first */
    int32_t *row;
    double *level;
    unsigned char *apart; /* [count * count]: whether they conflict */
    int32_t *member;   /* a clique under construction, as rows */
    int32_t *likely;   /* rows alive with little loss, least loss first */
    int likely_count;
} Support;

static int gather(Support *s, const Basis *b) {
    const Tables *t = s->tables;
    for (int k = 0; k < b->constraints; k++)
        if (b->basic[k] < t->rows && b->level[k] > 1e-6) {
            int at = s->count++;
            for (; at > 0 && s->level[at - 1] < b->level[k]; at--) {
                s->level[at] = s->level[at - 1];
                s->row[at] = s->row[at - 1];
            }
            s->level[at] = b->level[k];
            s->row[at] = b->basic[k];
        }
    s->apart = malloc((size_t)s->count * s->count + 1);
    if (!s->apart) return 0;
    for (int a = 0; a < s->count; a++)
        for (int c = 0; c < s->count; c++) s->apart[a * s->count + c] = a != c && conflict(t, s->row[a], s->row[c]);
    return 1;
}

typedef struct {
    double reduced;
    int32_t row;
} Likely;

static int by_reduced(const void *left, const void *right) {
    const Likely *a = left, *b = right;
    if (a->reduced != b->reduced) return a->reduced > b->reduced ? -1 : 1;
    return a->row < b->row ? -1 : 1;
}

static int list_likely(Support *s, const Basis *b) {
    Likely *likely = malloc(sizeof(Likely) * (b->lives + 1));
    if (!likely) return 0;
    for (int n = 0; n < b->lives; n++) {
        int row = b->live[n];
        if (row < s->tables->rows && b->reduced[row] > LIKELY)
            likely[s->likely_count++] = (Likely){b->reduced[row], row};
    }
    qsort(likely, s->likely_count, sizeof(Likely), by_reduced);
    for (int n = 0; n < s->likely_count; n++) s->likely[n] = likely[n].row;
    free(likely);
    return 1;
}

/* The clique that grows from two rows, the largest first: its members as positions; what the relaxation takes of it. */
static double grow(const Support *s, int seed, int mate, int32_t *position, int *count) {
    double sum = s->level[seed] + s->level[mate];
    position[0] = seed;
    position[1] = mate;
    *count = 2;
    for (int a = 0; a < s->count; a++) {
        int all = 1;
        for (int n = 0; n < *count && all; n++) all = s->apart[a * s->count + position[n]];
        if (!all) continue;
        position[(*count)++] = a;
        sum += s->level[a];
    }
    return sum;
}

/* All other rows that conflict with every member join. */
static int lifted(Support *s, const int32_t *position, int count) {
    for (int n = 0; n < count; n++) s->member[n] = s->row[position[n]];
    for (int l = 0; l < s->likely_count; l++) {
        int row = s->likely[l], all = 1;
        for (int n = 0; n < count && all; n++) all = s->member[n] != row && conflict(s->tables, s->member[n], row);
        if (all) s->member[count++] = row;
    }
    return count;
}

static int of_one_bidder(const Support *s, const int32_t *position, int count) {
    for (int n = 1; n < count; n++)
        if (s->tables->bidder[s->row[position[n]]] != s->tables->bidder[s->row[position[0]]]) return 0;
    return 1;
}

static int same_as_before(const Relaxation *r, int first, int count, const int32_t *member) {
    for (int c = first; c < r->cliques; c++)
        if (r->clique_start[c + 1] - r->clique_start[c] == count &&
            !memcmp(r->clique_row + r->clique_start[c], member, sizeof(int32_t) * count))
            return 1;
    return 0;
}

static int by_number(const void *left, const void *right) {
    return *(const int32_t *)left - *(const int32_t *)right;
}

static int add_violated(Relaxation *r, Support *s, double deadline_s) {
    int first = r->cliques, room = r->most_constraints - s->tables->bidders - s->tables->machines - first;
    int32_t *position = malloc(sizeof(int32_t) * (s->count + 1));
    if (!position) return -1;
    int pairs = s->count * s->count;
    for (int pair = 0; pair < pairs && r->cliques - first < A_ROUND && r->cliques - first < room; pair++) {
        int seed = pair / s->count, mate = pair % s->count, count;
        if (mate == 0 && monotonic_s() > deadline_s) break;
        if (mate <= seed || !s->apart[pair]) continue;
        if (grow(s, seed, mate, position, &count) < 1.0 + VIOLATED || of_one_bidder(s, position, count)) continue;
        count = lifted(s, position, count);
        qsort(s->member, count, sizeof(int32_t), by_number);
        if (same_as_before(r, first, count, s->member)) continue;
        if (!add_clique(r, count, s->member)) {
            free(position);
            return -1;
        }
    }
    free(position);
    return r->cliques - first;
}

int separate_cliques(Relaxation *r, const Basis *b, double deadline_s) {
    const Tables *t = r->tables;
    Support s = {.tables = t};
    s.row = malloc(sizeof(int32_t) * (b->constraints + 1));
    s.level = malloc(sizeof(double) * (b->constraints + 1));
    s.member = malloc(sizeof(int32_t) * (t->rows + 1));
    s.likely = malloc(sizeof(int32_t) * (t->rows + 1));
    int added = -1;
    if (s.row && s.level && s.member && s.likely && gather(&s, b) && list_likely(&s, b)) added = add_violated(r, &s, deadline_s);
    free(s.row);
    free(s.level);
    free(s.member);
    free(s.likely);
    free(s.apart);
    return added;
}
