/* What the bidders to come lose at least, counted exactly in one resource and by prices in all others. */
#ifndef THEMIS_COMPLETION_H
#define THEMIS_COMPLETION_H

#include "charges.h"

typedef struct {
    int resource, capacity;
    size_t room;
    int64_t *loss; /* [(stages + 1) * (capacity + 1)]: by stage to come and what is left of the resource */
    int64_t *best; /* [capacity + 1]: the least loss of one bidder, by what it uses */
} Completion;

void close_completion(Completion *completion);

/* About how many steps it takes to count a resource so; -1 where that would take too much memory. */
int64_t work_to_complete(const Problem *problem, const Offer *offer, int resource);

/* Counts a resource. False without memory. */
int complete(Completion *completion, const Problem *problem, const Offer *offer, const int64_t *price, int resource);

/* By so much is a state at a stage worth less than prices tell, with so much left of the resource. */
static inline int64_t completion_loss(const Completion *completion, int stage, int left) {
    return completion->loss[(size_t)stage * (completion->capacity + 1) + left];
}

#endif
