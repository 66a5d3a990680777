/* The best choice of a market of tables: branch and bound on what bidders take, by the relaxation with cliques. */
#ifndef THEMIS_BRANCH_H
#define THEMIS_BRANCH_H

#include "core.h"
#include "relaxation.h"

enum { POOLED = 64 };

/* What both sides of a split lost when tried, for a whole option moved; by bidder and machine, then by option. */
typedef struct {
    double loss[2];
    int32_t tried[2];
} Record;

/* What the problems of a market share: the relaxation, its optimum with all bidders, good choices, losses by splits. */
typedef struct {
    Tables tables;
    int always_ties; /* whether equals are told apart in problems without a bidder too */
    Relaxation relaxation;
    Basis *root;  /* NULL until the first problem */
    int rounds;   /* of cliques so far: problems that run out of time leave some to the next */
    int32_t *pool; /* [POOLED * bidders]: the last choices that were better than those before */
    int pooled;   /* how many ever were */
    Record *record; /* [bidders * machines + rows] */
} Shared;

/* The best choice without the bidder `skip` (-1: with all): row by bidder, -1 for none.
 *
 * A node of the tree keeps a whole basis; those above the one looked at take `most_bytes` at most.
 * SEARCH_TOO_WIDE with a bound equal to the value: no choice is worth more, but too many are worth the same. */
Outcome best_of_tables(Shared *shared, int skip, Limits limits, size_t most_bytes, int32_t *choice);

#endif
