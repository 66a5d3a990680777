/* Completion bound: the least loss of the bidders to come, exact in one resource and by prices in all others. */
#ifndef THEMIS_COMPLETION_BOUND_H
#define THEMIS_COMPLETION_BOUND_H

#include "shared_pin_costs.h"

enum { NEVER = 1 << 29 };

typedef struct {
    int resource, capacity, shift;
    size_t room;
    int32_t *loss; /* [(stages + 1) * (capacity + 1)]: by stage and what is left, in units of 2^shift */
    int32_t *lowest, *highest; /* [stages + 1]: range of what may be left; outside it the loss exceeds the gap */
    int32_t *best;             /* [capacity + 1]: the least loss of one bidder, by what it uses */
} Completion;

void close_completion(Completion *completion);

/* Prepares the bound for a resource with a price. Returns the approximate number of steps, -1 for too much memory. */
int64_t lay_out_completion(Completion *completion, const Problem *problem, const Offer *offer, int64_t price,
                           int64_t gap, int resource);

/* Computes the prepared bound. A loss beyond the gap may have any value beyond the gap. */
void complete(Completion *completion, const Problem *problem, const Offer *offer, int64_t price);

/* What a state with `left` of the resource is worth less than prices say. Exact up to the gap. */
static inline int64_t completion_loss(const Completion *completion, int stage, int left) {
    int inside = left >= completion->lowest[stage] && left <= completion->highest[stage];
    int32_t loss = inside ? completion->loss[(size_t)stage * (completion->capacity + 1) + left] : NEVER;
    return (int64_t)loss << completion->shift;
}

#endif
