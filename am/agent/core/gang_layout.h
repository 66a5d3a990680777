/* Gangs placed at their tightest levels, or at one level or two; see am/agent/candidates/list_scheduling.py
 * and enumeration.py. */
#ifndef THEMIS_AGENT_GANG_LAYOUT_H
#define THEMIS_AGENT_GANG_LAYOUT_H

#include "shapes.h"

/* Identical gangs, with the kinds that they may have, the tightest first. */
typedef struct {
    int64_t gpus, count;
    const int64_t *kinds;
    int64_t kind_count;
} IdenticalGangs;

/* Sets `counts` to the gangs of each kind if all gangs fit. At each level but the loosest of a size, at most the part
 * `tight_part` of the capacity is taken. Returns 1, else 0.
 *
 * most, within: how many gangs of each kind fit, and its level. */
int place_at_tightest(const int64_t *most, const int64_t *within, int64_t kinds, const IdenticalGangs *gangs,
                      int64_t sizes, double tight_part, int64_t *counts);

/* Sets `counts` to the gangs of each kind: the first `loose_count` gangs at the level `loose`, the others at `tight`.
 * The kinds of a size are listed by level. Returns 1, or 0 if a kind has more gangs than fit. */
int place_at_two_levels(const int64_t *most, int64_t kinds, const IdenticalGangs *gangs, int64_t sizes, int tight,
                        int loose, int64_t loose_count, int64_t *counts);

#endif
