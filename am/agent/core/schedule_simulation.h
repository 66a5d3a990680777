/* Simulates jobs that start on the GPUs that earlier jobs leave; see am/jobs/division.py. */
#ifndef THEMIS_AGENT_SCHEDULE_SIMULATION_H
#define THEMIS_AGENT_SCHEDULE_SIMULATION_H

#include "shapes.h"

typedef struct {
    const Shape *shape;    /* of each job */
    const double *gpu_s;   /* jobs x levels: seconds on one GPU there */
    const int64_t *queue;  /* the jobs that wait, in order */
    int64_t waiting;
    const double *end_s;   /* when the jobs end that run */
    const int64_t *gangs;  /* their GPUs and level */
    int64_t running;
    int64_t within;        /* the level of all GPUs */
    double start_s;
} Following;

/* 1, with when the last job ends, or the first end that times `surely` is no sooner than `best_s` where there is one; 0
 * without memory. */
int follow(const Following *following, double surely, double best_s, double *last_s);

#endif
