/* The least loss against the bound of prices, by dynamic programming over what is left of one resource.
 *
 * Of a resource of few and dear units, such as whole machines, prices say little: what one unit that stays unused is
 * worth may be more than all else that separates a choice from the bound. Counted exactly that is known at once. */
#include "completion.h"

#include <stdlib.h>

static const int64_t NEVER = INT64_MAX / 4;

void close_completion(Completion *completion) {
    free(completion->loss);
    free(completion->best);
}

static int64_t cells_of(const Problem *problem, const Offer *offer, int resource) {
    return ((int64_t)problem->capacity[resource] + 1) * (offer->stages + 1);
}

int64_t work_to_complete(const Problem *problem, const Offer *offer, int resource) {
    enum { MOST_CELLS = 1 << 21 };
    if (cells_of(problem, offer, resource) > MOST_CELLS) return -1;
    int64_t steps = offer->start[problem->bidders] + offer->stages;
    return steps * ((int64_t)problem->capacity[resource] + 1);
}

static int grow(Completion *completion, int stages) {
    size_t cells = (size_t)(stages + 1) * (completion->capacity + 1);
    if (cells > completion->room) {
        int64_t *loss = realloc(completion->loss, sizeof(int64_t) * cells);
        if (!loss) return 0;
        completion->loss = loss;
        completion->room = cells;
    }
    int64_t *best = realloc(completion->best, sizeof(int64_t) * (completion->capacity + 1));
    if (!best) return 0;
    completion->best = best;
    return 1;
}

/* The losses before a bidder from those after it. */
static void step_back(Completion *completion, const Problem *p, const Offer *offer, int stage) {
    int capacity = completion->capacity, bidder = offer->order[stage], dearest_use = -1;
    int64_t *now = completion->loss + (size_t)stage * (capacity + 1);
    const int64_t *after = now + capacity + 1;
    for (int c = offer->start[bidder]; c < offer->start[bidder + 1]; c++) {
        int row = offer->candidate[c].row;
        int use = row < 0 ? 0 : p->use[(size_t)row * p->resources + completion->resource];
        if (use > capacity) continue;
        while (dearest_use < use) completion->best[++dearest_use] = NEVER;
        if (offer->candidate[c].loss < completion->best[use]) completion->best[use] = offer->candidate[c].loss;
    }
    for (int left = 0; left <= capacity; left++) now[left] = NEVER;
    for (int use = 0; use <= dearest_use; use++) {
        int64_t loss = completion->best[use];
        if (loss == NEVER) continue;
        for (int left = use; left <= capacity; left++) {
            int64_t whole = loss + after[left - use];
            now[left] = whole < now[left] ? whole : now[left];
        }
    }
}

int complete(Completion *completion, const Problem *problem, const Offer *offer, const int64_t *price, int resource) {
    completion->resource = resource;
    completion->capacity = problem->capacity[resource];
    if (!grow(completion, offer->stages)) return 0;
    int64_t *last = completion->loss + (size_t)offer->stages * (completion->capacity + 1);
    for (int left = 0; left <= completion->capacity; left++) last[left] = price[resource] * left;
    for (int stage = offer->stages - 1; stage >= 0; stage--) step_back(completion, problem, offer, stage);
    return 1;
}
