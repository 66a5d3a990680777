/* Lifting: the largest weights of pinned GPUs with which a cut stays valid. */
#ifndef THEMIS_LIFTING_H
#define THEMIS_LIFTING_H

#include "group_capacity.h"

/* Returns the most weight that the group holds, or -1 without memory.
 *
 * taken[m * width + p] gets what p pinned GPUs on machine m count as (no less than the pin of the group there), such
 * that no choice of pins and items weighs more than the group holds. `width` is larger than any machine's free GPUs;
 * beyond them it goes on unchanged. */
int64_t lift(const Group *group, const Weights *weights, int width, int32_t *taken);

#endif
