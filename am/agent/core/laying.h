/* Gangs laid as near as there is room: `_Nearest.laid_out` of am/agent/filled.py, of which this is the same in C. */
#ifndef THEMIS_AGENT_LAYING_H
#define THEMIS_AGENT_LAYING_H

#include <stdint.h>

enum { LEVELS = 4 };

/* Gangs alike, with the kinds that they may be of, the nearest first. */
typedef struct {
    int64_t gpus, count;
    const int64_t *kinds;
    int64_t many;
} Alike;

/* 1, with the gangs of each kind in `counts`, where there is room for all of them; else 0. Of the room at each level but
 * the farthest of a size no more than the part `near` is taken.
 *
 * most, within: of each kind, how many fit, and the level. */
int lay_gangs(const int64_t *most, const int64_t *within, int64_t kinds, const Alike *gangs, int64_t many, double near,
              int64_t *counts);

#endif
