/* Placement search: whether gangs fit on machines, decided within a number of steps. */
#ifndef THEMIS_PLACEMENT_SEARCH_H
#define THEMIS_PLACEMENT_SEARCH_H

#include "best_fit.h"

enum { PART_IN_RACK = -2, PART_ON_MACHINE = -1, PART_IN_SLOT = 0 };
enum { FIT_NO = 0, FIT_YES = 1, FIT_UNKNOWN = 2, FIT_NO_MEMORY = 3 };

/* Kinds of gangs (level, gpus, unit; three numbers each) and how many of each there are.
 *
 * Machines may be in any order. With FIT_YES, part[] (space for twice the free GPUs) gives the place of everything
 * that must stay whole: slot, machine and unit items by machine (`slot` identifies them, not the number of the slot),
 * and rack gangs by any machine of their rack. `gang` is the kind. Cluster gangs in single GPUs fit on any free GPUs. */
int fit(const Cluster *cluster, int kinds, const int32_t *kind, const int32_t *count, int most_steps, Part *part,
        int32_t *parts);

#endif
