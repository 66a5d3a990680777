/* Gangs on which all jobs end by a given time, by first fit; see am/agent/candidates/multifit.py. */
#ifndef THEMIS_AGENT_MULTIFIT_H
#define THEMIS_AGENT_MULTIFIT_H

#include <stdint.h>

typedef struct {
    int jobs, kinds;
    const double *times_s; /* jobs x kinds */
    const double *takes;   /* kinds x kinds: of how many gangs of each kind a gang of one takes the room */
    const int64_t *gpus;   /* of a gang of each kind */
    const int64_t *most;   /* gangs of each kind for which there is room at most */
} Fitting;

/* 1, with the gangs of each kind in `counts`, where all jobs end in time on so many GPUs and gangs at most and on that
 * part of all room; 0 where they do not, -1 without memory. */
int fit_jobs(const Fitting *fitting, double end_s, int64_t gpus, int64_t most_gpus, int64_t most_gangs, int64_t *counts);

#endif
