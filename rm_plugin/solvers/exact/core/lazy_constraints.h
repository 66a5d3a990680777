/* Lazy constraints: resources without a price, and tables of shared pins, are left out until a choice breaks them.
 *
 * Without them a search allows more than the problem does. If its best choice breaks none, it is the problem's optimum.
 * If it breaks some, these are counted from then on. States then differ in fewer numbers, and few constraints matter.
 */
#ifndef THEMIS_LAZY_CONSTRAINTS_H
#define THEMIS_LAZY_CONSTRAINTS_H

#include "problem.h"

/* Whether searches count a resource, at prices in whole units. */
static inline int is_held(const Problem *problem, const int64_t *price, int k) {
    return price[k] > 0 || problem->held[k];
}

/* Marks what a choice (row by bidder, -1 for none) breaks. Returns 1 if it breaks something, 0 if not, -1: no memory. */
int hold_what_breaks(const Problem *problem, const int64_t *price, const int32_t *choice);

#endif
