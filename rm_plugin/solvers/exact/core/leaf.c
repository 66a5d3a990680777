#include "leaf.h"

#include <stdlib.h>
#include <string.h>

int open_leaf(Leaf *l, const Relaxation *r, int constraints) {
    const Tables *t = r->tables;
    size_t bidders = t->bidders + 1, width = constraints + 1;
    l->relax = r;
    l->option = malloc(sizeof(Option) * (MOST_OPTIONS + 1));
    l->first = malloc(sizeof(int32_t) * bidders);
    l->order = malloc(sizeof(int32_t) * bidders);
    l->resource = malloc(sizeof(int32_t) * width);
    l->price = malloc(sizeof(int64_t) * width);
    l->use = malloc(sizeof(int32_t) * (MOST_OPTIONS + 1) * width);
    l->level = malloc(sizeof(int32_t) * (bidders + 1) * width);
    l->to_come = malloc(sizeof(int32_t) * (bidders + 1) * width);
    l->choice = malloc(sizeof(int32_t) * bidders);
    l->most = malloc(sizeof(int32_t) * width);
    return l->option && l->first && l->order && l->resource && l->price && l->use && l->level && l->to_come &&
           l->choice && l->most;
}

void close_leaf(Leaf *l) {
    void *all[] = {l->option, l->first, l->order,   l->resource, l->price,
                   l->use,    l->level, l->to_come, l->choice,   l->most};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
}

/* Bidders with several options, those with fewest first; what the others take is decided. */
static void order_bidders(Leaf *l, const Basis *b) {
    const Tables *t = l->relax->tables;
    l->depths = 0;
    for (int i = 0; i < t->bidders; i++) {
        l->choice[i] = -1;
        if (b->options[i] < 2) continue;
        int at = l->depths++;
        for (; at > 0 && b->options[l->order[at - 1]] > b->options[i]; at--) l->order[at] = l->order[at - 1];
        l->order[at] = i;
    }
}

static int list_option(Leaf *l, int count, int begin, Option option) {
    int at = count;
    for (; at > begin && l->option[at - 1].loss > option.loss; at--) l->option[at] = l->option[at - 1];
    l->option[at] = option;
    return count + 1;
}

static int list_options(Leaf *l, const Basis *b) {
    const Tables *t = l->relax->tables;
    int count = 0;
    for (int d = 0; d < l->depths; d++) {
        int i = l->order[d];
        l->first[d] = count;
        if (count + b->options[i] > MOST_OPTIONS) return 0;
        for (int row = t->row_start[i]; row < t->row_start[i + 1]; row++)
            if (b->alive[row])
                count = list_option(l, count, l->first[d], (Option){row, l->relax->best[i] - l->relax->margin[row]});
        if (b->alive[t->rows + i]) count = list_option(l, count, l->first[d], (Option){-1, l->relax->best[i]});
    }
    l->first[l->depths] = count;
    return 1;
}

/* Sets apart the constraints that count; what the decided use of them, at depth 0. */
static void choose_resources(Leaf *l, const Basis *b, int32_t *seat) {
    const Relaxation *r = l->relax;
    const Tables *t = r->tables;
    int32_t *used = l->level;
    memset(used, 0, sizeof(int32_t) * b->constraints);
    memset(l->most, 0, sizeof(int32_t) * b->constraints);
    for (int i = 0; i < t->bidders; i++) {
        if (b->options[i] > 1) continue;
        for (int row = t->row_start[i]; row < t->row_start[i + 1]; row++) {
            if (!b->alive[row]) continue;
            l->choice[i] = row;
            for (int n = r->start[row]; n < r->start[row + 1]; n++) used[r->index[n]] += r->many[n];
        }
    }
    for (int o = 0; o < l->first[l->depths]; o++) {
        int row = l->option[o].row;
        if (row >= 0)
            for (int n = r->start[row]; n < r->start[row + 1]; n++) l->most[r->index[n]] += r->many[n];
    }
    l->width = 0;
    for (int k = t->bidders; k < b->constraints; k++) {
        int counts = r->price[k] > 0 || used[k] + l->most[k] > r->right[k];
        seat[k] = counts ? l->width : -1;
        if (!counts) continue;
        used[l->width] = used[k];
        l->price[l->width] = r->price[k];
        l->resource[l->width++] = k;
    }
}

static void gather_use(Leaf *l, const int32_t *seat) {
    const Relaxation *r = l->relax;
    int width = l->width;
    memset(l->use, 0, sizeof(int32_t) * (size_t)l->first[l->depths] * width);
    for (int o = 0; o < l->first[l->depths]; o++) {
        int row = l->option[o].row;
        if (row < 0) continue;
        for (int n = r->start[row]; n < r->start[row + 1]; n++)
            if (seat[r->index[n]] >= 0) l->use[(size_t)o * width + seat[r->index[n]]] = r->many[n];
    }
    memset(l->to_come + (size_t)l->depths * width, 0, sizeof(int32_t) * width);
    for (int d = l->depths - 1; d >= 0; d--) {
        int32_t *to_come = l->to_come + (size_t)d * width;
        for (int k = 0; k < width; k++) {
            int most = 0;
            for (int o = l->first[d]; o < l->first[d + 1]; o++)
                if (l->use[(size_t)o * width + k] > most) most = l->use[(size_t)o * width + k];
            to_come[k] = to_come[width + k] + most;
        }
    }
}

/* What is used with one option more, and the worth that is surely left over then; -1 where it does not fit. */
static int64_t use_option(const Leaf *l, int depth, int option) {
    int width = l->width;
    const int32_t *before = l->level + (size_t)depth * width, *use = l->use + (size_t)option * width;
    const int32_t *to_come = l->to_come + (size_t)(depth + 1) * width;
    int32_t *after = l->level + (size_t)(depth + 1) * width;
    int64_t idle = 0;
    for (int k = 0; k < width; k++) {
        int left = l->relax->right[l->resource[k]] - before[k] - use[k];
        if (left < 0) return -1;
        after[k] = before[k] + use[k];
        if (left > to_come[k]) idle += l->price[k] * (left - to_come[k]);
    }
    return idle;
}

static int try_from(Leaf *l, int depth, int64_t loss) {
    if (depth == l->depths) {
        l->found(l->whom, l->choice);
        return 1;
    }
    for (int o = l->first[depth]; o < l->first[depth + 1]; o++) {
        int64_t with = loss + l->option[o].loss;
        if (with > l->bound - *l->least) break;
        if (++l->steps > l->most_steps) return 0;
        int64_t idle = use_option(l, depth, o);
        if (idle < 0 || with + idle > l->bound - *l->least) continue;
        l->choice[l->order[depth]] = l->option[o].row;
        if (!try_from(l, depth + 1, with)) return 0;
    }
    return 1;
}

int try_all(Leaf *l, const Basis *b, int64_t bound, int most_steps) {
    l->bound = bound;
    l->steps = 0;
    l->most_steps = most_steps;
    order_bidders(l, b);
    if (!list_options(l, b)) return 0;
    int32_t *seat = l->most;
    choose_resources(l, b, seat);
    gather_use(l, seat);
    return try_from(l, 0, 0);
}
