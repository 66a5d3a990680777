/* What searches leave out until a choice shows that it matters: resources without a price, and tables of pinned GPUs.
 *
 * Left out, a search allows more than the problem does. Its best choice is the problem's as soon as it breaks nothing;
 * one that does tells what must be counted from then on. States differ in what is counted, and little of it matters.
 */
#ifndef THEMIS_LAZY_CONSTRAINTS_H
#define THEMIS_LAZY_CONSTRAINTS_H

#include "problem.h"

/* Whether a resource is counted where it may bind, at prices in whole units. */
static inline int is_held(const Problem *problem, const int64_t *price, int k) {
    return price[k] > 0 || problem->held[k];
}

/* Counts from now on what a choice (row by bidder, -1 for none) breaks: 1 if there is such, 0 if not, -1: no memory. */
int hold_what_breaks(const Problem *problem, const int64_t *price, const int32_t *choice);

#endif
