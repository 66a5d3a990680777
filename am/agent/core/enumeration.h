/* All choices of counts from grids; see am/agent/candidates/enumeration.py. */
#ifndef THEMIS_AGENT_ENUMERATION_H
#define THEMIS_AGENT_ENUMERATION_H

#include <stdint.h>

/* The recursion has one level for each kind. */
enum { MAX_KINDS = 10000 };

/* The counts of each kind of gang, ascending from 0, one kind after the other; the end of each kind's counts; the GPUs
 * of a gang of each kind. */
typedef struct {
    int64_t kinds;
    const int64_t *counts, *ends, *gpus;
} Grids;

/* Writes all choices within `gangs` gangs and `gpus` GPUs as rows. Returns their number, -1 if they exceed `most`,
 * -2 if out of memory. */
int64_t choose(const Grids *grids, int64_t gangs, int64_t gpus, int64_t most, int64_t *choices);

#endif
