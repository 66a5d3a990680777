/* Gangs placed at their tightest levels, or at one level or two; see am/agent/candidates/generation.py and
 * enumeration.py. */
#ifndef THEMIS_AGENT_GANG_LAYOUT_H
#define THEMIS_AGENT_GANG_LAYOUT_H

#include "shapes.h"

/* Gangs alike, with the kinds that they may be of, the nearest first. */
typedef struct {
    int64_t gpus, count;
    const int64_t *kinds;
    int64_t many;
} Alike;

/* 1, with the gangs of each kind in `counts`, where there is room for all of them; else 0. Of the room at each level
 * but the farthest of a size no more than the part `near` is taken.
 *
 * most, within: of each kind, how many fit, and the level. */
int lay_gangs(const int64_t *most, const int64_t *within, int64_t kinds, const Alike *gangs, int64_t many, double near,
              int64_t *counts);

/* 1, with the gangs of each kind in `counts`, where no kind has more than fit: the first `away` of them at the level
 * `far`, the others at `near`. The kinds of a size are told by level. */
int lay_apart(const int64_t *most, int64_t kinds, const Alike *gangs, int64_t many, int near, int far, int64_t away,
              int64_t *counts);

#endif
