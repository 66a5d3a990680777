/* The state that the ways of packing share: the jobs, the gangs, and the best packing so far. */
#ifndef THEMIS_AGENT_PACKER_H
#define THEMIS_AGENT_PACKER_H

#include <stddef.h>
#include <stdint.h>

#include "packing.h"

struct Packer {
    const double *times_s; /* jobs x kinds */
    double *column_s;      /* the same, kinds x jobs */
    int jobs, kinds, gangs;
    const int64_t *kind; /* of each gang; gangs of one kind are adjacent */
    double *load_s, *start_s;
    int *heap, *first;     /* gangs by kind, each kind a heap by load; where each kind begins */
    int *used, used_kinds; /* the kinds with a gang, in order, and their number */
    int *open;             /* the first gang of each kind that has time for the shortest job */
    double *shortest_s;    /* the shortest job on each kind */
    double *fastest_s;     /* each job on its fastest kind */
    double *weight, *work_after;
    int64_t *gang_of, *best; /* the gang of each job: now (-1: none), and in the best packing */
    int *head, *next, *jobs_on; /* the jobs of each gang: the first, the next after each job, their number */
    int steps;
    int in_pairs, shaken; /* whether pairs of jobs are exchanged; restarts for each job */
    int closely;          /* whether gangs are also filled one after the other, which uses the next arrays */
    int *longest, *filling; /* the jobs by kind, the longest first; the jobs that fit a gang, and choices of them */
    double *filling_s, *price; /* their times and prices; how often each job was left over, which raises its price */
    double least_s;
};

/* Like fmax and fmin, whose library calls took a quarter of the time of packing. No time is NaN. */
static inline double larger(double one, double two) { return one > two ? one : two; }
static inline double smaller(double one, double two) { return one < two ? one : two; }

static inline double time_of(const Packer *p, int job, int64_t kind) { return p->times_s[(size_t)job * p->kinds + kind]; }

#endif
