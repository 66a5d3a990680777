/* Gangs on which all jobs end by a given time, by first fit; see am/agent/candidates/multifit.py. */
#ifndef THEMIS_AGENT_MULTIFIT_H
#define THEMIS_AGENT_MULTIFIT_H

#include <stdint.h>

typedef struct {
    int jobs, kinds;
    const double *times_s; /* jobs x kinds */
    const double *takes;   /* kinds x kinds: `capacity_taken` */
    const int64_t *gpus;   /* of a gang of each kind */
    const int64_t *most;   /* the most gangs of each kind that fit */
} Fitting;

/* Sets `counts` to gangs of each kind on which all jobs end by `end_s`: at most `gpus` GPUs, that part of the capacity
 * for `max_gpus`, and `max_gangs` gangs. Returns 1, 0 if first fit needs more, -1 if out of memory. */
int fit_jobs(const Fitting *fitting, double end_s, int64_t gpus, int64_t max_gpus, int64_t max_gangs, int64_t *counts);

#endif
