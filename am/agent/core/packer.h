/* What the ways of packing share: the jobs, the gangs, and the best way so far. */
#ifndef THEMIS_AGENT_PACKER_H
#define THEMIS_AGENT_PACKER_H

#include <stddef.h>
#include <stdint.h>

#include "packing.h"

struct Packer {
    const double *times_s; /* jobs x kinds */
    double *column_s;      /* the same, kinds x jobs */
    int jobs, kinds, gangs;
    const int64_t *kind; /* of each gang; gangs of one kind lie side by side */
    double *load_s, *start_s;
    int *heap, *first;     /* gangs by kind, each kind a heap by load; where each kind begins */
    int *used, used_kinds; /* the kinds of which there is a gang, in their order; how many */
    int *open;             /* the first gang of each kind that has time for the shortest job */
    double *shortest_s;    /* the shortest job on each kind */
    double *fastest_s;     /* each job on its fastest kind */
    double *weight, *work_after;
    int64_t *place, *best;
    int *head, *next, *many; /* the jobs of each gang: the first, the next after each job, how many */
    int steps;
    int in_pairs, shaken; /* jobs change places in pairs as well, and so many, times jobs, by chance */
    int closely; /* gangs are filled one after the other as well, for which there is this room: */
    int *longest, *filling; /* the jobs by kind, the longest first; those that may be put on a gang, and choices of them */
    double *filling_s, *price; /* their times and worths; how often each job was left over, by what it is worth more */
    double least_s;
};

/* As fmax and fmin, which are calls into a library for what is a comparison, and took a quarter of the time of packing.
 * No time is not a number. */
static inline double larger(double one, double two) { return one > two ? one : two; }
static inline double smaller(double one, double two) { return one < two ? one : two; }

static inline double time_of(const Packer *p, int job, int64_t kind) { return p->times_s[(size_t)job * p->kinds + kind]; }

#endif
