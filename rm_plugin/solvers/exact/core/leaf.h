/* What is left near a bound, tried one by one: cheaper than a relaxation where few options are left.
 *
 * A choice is worth the bound, less what its options lose against the best of their bidders at the prices, less what it
 * leaves over of every constraint at its price. The options to come can only fill so much: most of that is known early.
 */
#ifndef THEMIS_LEAF_H
#define THEMIS_LEAF_H

#include "relaxation.h"

typedef struct {
    int32_t row; /* -1: nothing */
    int64_t loss;
} Option;

typedef struct {
    const Relaxation *relax;
    Option *option;                /* [options]: bidder by bidder, least loss first */
    int32_t *first, *order;        /* [bidders + 1], [bidders]: of the bidders that are not decided */
    int32_t *resource;             /* [width]: constraints that may be broken or have a price */
    int64_t *price;                /* [width] */
    int32_t *use, *level, *to_come; /* [options * width]; [bidders + 1, width] by depth: used, and what may follow */
    int32_t *choice, *most;        /* [bidders], [constraints] */
    int width, depths, steps, most_steps;
    int64_t bound;
    const int64_t *least;
    void (*found)(void *, const int32_t *);
    void *whom;
} Leaf;

enum { MOST_OPTIONS = 256 };

int open_leaf(Leaf *leaf, const Relaxation *relax, int constraints);
void close_leaf(Leaf *leaf);

/* Tells `found` all choices of what is alive that are worth at least `*least`, which may rise on the way.
 *
 * By the prices, margins and `bound` that `bound_of` left; false where that takes more than `most_steps`. */
int try_all(Leaf *leaf, const Basis *b, int64_t bound, int most_steps);

#endif
