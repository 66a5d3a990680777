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
} Alike;

/* Sets `counts` to the gangs of each kind if all gangs fit. At each level but the loosest of a size, at most the part
 * `near` of the capacity is taken. Returns 1, else 0.
 *
 * most, within: how many gangs of each kind fit, and its level. */
int lay_gangs(const int64_t *most, const int64_t *within, int64_t kinds, const Alike *gangs, int64_t sizes, double near,
              int64_t *counts);

/* Sets `counts` to the gangs of each kind: the first `away` gangs at the level `far`, the others at `near`. The
 * kinds of a size are listed by level. Returns 1, or 0 if a kind has more gangs than fit. */
int lay_apart(const int64_t *most, int64_t kinds, const Alike *gangs, int64_t sizes, int near, int far, int64_t away,
              int64_t *counts);

#endif
