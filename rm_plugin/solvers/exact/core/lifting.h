/* Lifting: the largest weights of pinned GPUs with which a cut stays valid. */
#ifndef THEMIS_LIFTING_H
#define THEMIS_LIFTING_H

#include "group_capacity.h"

/* Returns the group's capacity, which is the most weight that it can hold, or -1 without memory.
 *
 * Sets taken[m * width + p] to the weight of p pinned GPUs on machine m, at least that of the group's own pin there.
 * With these weights no choice of pins and items exceeds the group's capacity. `width` exceeds the free GPUs of every
 * machine; entries past them repeat the last one. */
int64_t lift(const Group *group, const Weights *weights, int width, int32_t *taken);

#endif
