/* Simulates waiting jobs that start on the GPUs that earlier jobs leave; see am/jobs/gpu_division.py. */
#ifndef THEMIS_AGENT_SCHEDULE_SIMULATION_H
#define THEMIS_AGENT_SCHEDULE_SIMULATION_H

#include "shapes.h"

typedef struct {
    const Shape *shape;    /* of each job */
    const double *gpu_s;   /* jobs x levels: seconds on one GPU there */
    const int64_t *queue;  /* the waiting jobs, in order */
    int64_t waiting;
    const double *end_s;   /* ends of the running jobs */
    const int64_t *gangs;  /* their GPUs and level */
    int64_t running;
    int64_t within;        /* the level of all GPUs */
    double start_s;
} Following;

/* Sets `last_s` to the end of the last job. Stops early at an end that, times `certain`, is not before `best_s`, and
 * sets that one. Returns 1, or 0 if out of memory. */
int follow(const Following *following, double certain, double best_s, double *last_s);

#endif
