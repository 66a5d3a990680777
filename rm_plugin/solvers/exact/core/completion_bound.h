/* What the bidders to come lose at least, counted exactly in one resource and by prices in all others. */
#ifndef THEMIS_COMPLETION_BOUND_H
#define THEMIS_COMPLETION_BOUND_H

#include "shared_pin_costs.h"

enum { NEVER = 1 << 29 };

typedef struct {
    int resource, capacity, shift;
    size_t room;
    int32_t *loss; /* [(stages + 1) * (capacity + 1)]: by stage to come and what is left, in units of 2^shift */
    int32_t *lowest, *highest; /* [stages + 1]: what may be left; with less or more, more than the gap is lost */
    int32_t *best;             /* [capacity + 1]: the least loss of one bidder, by what it uses */
} Completion;

void close_completion(Completion *completion);

/* Makes ready to count a resource with a price: about how many steps that takes, or -1 where it is too much memory. */
int64_t lay_out_completion(Completion *completion, const Problem *problem, const Offer *offer, int64_t price,
                           int64_t gap, int resource);

/* Counts what was laid out. A loss past the gap may be told as any past the gap: it is no bound of what is lost. */
void complete(Completion *completion, const Problem *problem, const Offer *offer, int64_t price);

/* By so much is a state at a stage worth less than prices tell, with so much left of the resource; exact to the gap. */
static inline int64_t completion_loss(const Completion *completion, int stage, int left) {
    int inside = left >= completion->lowest[stage] && left <= completion->highest[stage];
    int32_t loss = inside ? completion->loss[(size_t)stage * (completion->capacity + 1) + left] : NEVER;
    return (int64_t)loss << completion->shift;
}

#endif
