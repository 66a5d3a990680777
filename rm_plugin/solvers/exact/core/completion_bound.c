/* The least loss against the price bound, by dynamic programming over what is left of one resource.
 *
 * Prices say little about a resource with few and dear units, such as whole machines: one idle unit may cost more than
 * everything else that separates a choice from the bound. Exact counting removes that blind spot. */
#include "completion_bound.h"

#include <stdlib.h>

/* Losses are rounded down to 32 bits, which takes a quarter of the time. They remain lower bounds. */
enum { MAX_LOSS = 1 << 28 };

void close_completion(Completion *completion) {
    free(completion->loss);
    free(completion->best);
    free(completion->lowest);
    free(completion->highest);
}

static int use_of(const Completion *completion, const Problem *p, int row) {
    return row < 0 ? 0 : p->use[(size_t)row * p->resources + completion->resource];
}

/* The least and the most that the bidders from each stage on use, capped at the capacity. */
static void find_uses(Completion *completion, const Problem *p, const Offer *offer) {
    int32_t *lowest = completion->lowest, *highest = completion->highest;
    lowest[offer->stages] = highest[offer->stages] = 0;
    for (int s = offer->stages - 1; s >= 0; s--) {
        int bidder = offer->order[s], least = completion->capacity, most = 0;
        for (int c = offer->start[bidder]; c < offer->start[bidder + 1]; c++) {
            int use = use_of(completion, p, offer->option[c].row);
            if (use < least) least = use;
            if (use > most) most = use;
        }
        int room = completion->capacity - highest[s + 1];
        highest[s] = highest[s + 1] + (most < room ? most : room);
        room = completion->capacity - lowest[s + 1];
        lowest[s] = lowest[s + 1] + (least < room ? least : room);
    }
}

/* The range of what may be left at each stage if the loss is at most the gap; returns the approximate steps. */
static int64_t find_ranges(Completion *completion, const Offer *offer, int64_t price, int64_t gap) {
    int64_t idle = gap / price, work = 0;
    int32_t least = completion->lowest[0];
    for (int s = 0; s <= offer->stages; s++) {
        int64_t highest = completion->highest[s] + idle, left = completion->capacity - (least - completion->lowest[s]);
        if (highest > left) highest = left;
        completion->highest[s] = (int32_t)highest;
        int count = s < offer->stages ? offer->start[offer->order[s] + 1] - offer->start[offer->order[s]] : 1;
        if (highest >= completion->lowest[s]) work += (count + 1) * (highest - completion->lowest[s] + 1);
    }
    return work;
}

static int grow(Completion *completion, const Problem *problem, const Offer *offer) {
    size_t stages = offer->stages + 1;
    if (!completion->lowest) {
        completion->lowest = malloc(sizeof(int32_t) * (problem->bidders + 1));
        completion->highest = malloc(sizeof(int32_t) * (problem->bidders + 1));
    }
    size_t cells = stages * (completion->capacity + 1);
    if (cells > completion->room) {
        free(completion->loss);
        completion->loss = malloc(sizeof(int32_t) * cells);
        completion->room = completion->loss ? cells : 0;
    }
    int32_t *best = realloc(completion->best, sizeof(int32_t) * (completion->capacity + 1));
    if (best) completion->best = best;
    return best && completion->loss && completion->lowest && completion->highest;
}

int64_t lay_out_completion(Completion *completion, const Problem *problem, const Offer *offer, int64_t price,
                           int64_t gap, int resource) {
    enum { MAX_CELLS = 1 << 21 };
    completion->resource = resource;
    completion->capacity = problem->capacity[resource];
    if (((int64_t)completion->capacity + 1) * (offer->stages + 1) > MAX_CELLS) return -1;
    if (!grow(completion, problem, offer)) return -1;
    for (completion->shift = 0; gap >> completion->shift >= MAX_LOSS;) completion->shift++;
    find_uses(completion, problem, offer);
    return find_ranges(completion, offer, price, gap);
}

/* One bidder's least loss by use; returns its largest use. */
static int find_best(Completion *completion, const Problem *p, const Offer *offer, int bidder) {
    int most = -1;
    for (int c = offer->start[bidder]; c < offer->start[bidder + 1]; c++) {
        int use = use_of(completion, p, offer->option[c].row);
        if (use > completion->capacity) continue;
        while (most < use) completion->best[++most] = NEVER;
        int32_t loss = (int32_t)(offer->option[c].loss >> completion->shift);
        if (loss < completion->best[use]) completion->best[use] = loss;
    }
    return most;
}

/* Computes the losses before a bidder from those after it. */
static void step_back(Completion *completion, const Problem *p, const Offer *offer, int stage) {
    int most = find_best(completion, p, offer, offer->order[stage]);
    int32_t *now = completion->loss + (size_t)stage * (completion->capacity + 1);
    const int32_t *after = now + completion->capacity + 1;
    int lowest = completion->lowest[stage], highest = completion->highest[stage];
    for (int left = lowest; left <= highest; left++) now[left] = NEVER;
    for (int use = 0; use <= most; use++) {
        int32_t loss = completion->best[use];
        if (loss == NEVER) continue;
        int first = completion->lowest[stage + 1], last = completion->highest[stage + 1];
        if (first < lowest - use) first = lowest - use;
        if (last > highest - use) last = highest - use;
        int32_t *restrict to = now + use;
        for (int left = first; left <= last; left++) {
            int32_t whole = loss + after[left];
            to[left] = whole < to[left] ? whole : to[left];
        }
    }
}

void complete(Completion *completion, const Problem *problem, const Offer *offer, int64_t price) {
    int32_t *last = completion->loss + (size_t)offer->stages * (completion->capacity + 1);
    for (int left = completion->lowest[offer->stages]; left <= completion->highest[offer->stages]; left++) {
        int64_t idle = price * left >> completion->shift;
        last[left] = idle < NEVER ? (int32_t)idle : NEVER;
    }
    for (int stage = offer->stages - 1; stage >= 0; stage--) step_back(completion, problem, offer, stage);
}
