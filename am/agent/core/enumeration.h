/* All choices of counts from grids; see am/agent/candidates/enumeration.py. */
#ifndef THEMIS_AGENT_ENUMERATION_H
#define THEMIS_AGENT_ENUMERATION_H

#include <stdint.h>

/* Choices are written kind by kind, each a call in that of the one before. */
enum { MOST_KINDS = 10000 };

/* Counts of each kind of gang, ascending from 0, one kind after the other; where each kind's end; the GPUs of a
 * gang. */
typedef struct {
    int64_t kinds;
    const int64_t *counts, *ends, *gpus;
} Grids;

/* How many choices there are within so many gangs and GPUs, with the choices, each a row, in their order; -1 where they
 * are more than `most`, -2 without memory. */
int64_t choose(const Grids *grids, int64_t gangs, int64_t gpus, int64_t most, int64_t *choices);

#endif
