/* List scheduling of GPUs; see am/agent/candidates/list_scheduling.py. */
#ifndef THEMIS_AGENT_LIST_SCHEDULING_H
#define THEMIS_AGENT_LIST_SCHEDULING_H

#include "shapes.h"

/* The number of gangs of each size and unit. */
typedef struct {
    int64_t max_gpus; /* of a gang */
    int units;
    int64_t *unit; /* distinct, the largest first */
    int64_t *gangs; /* (max_gpus + 1) x units */
} SizeCounts;

/* Receives the gangs at a total of GPUs. Returns 0 to stop. */
typedef int (*Report)(void *to, int64_t gpus, const SizeCounts *counts);

/* Jobs that receive GPUs one by one, longest first. */
typedef struct {
    int64_t jobs;
    const double *work_s;
    const int64_t *shape;   /* of each job */
    const double *slowdown; /* shapes x tasks: S by the number of tasks */
    int64_t tasks;
} Jobs;

/* The work and the number of the jobs of each shape. */
typedef struct {
    const double *work_s;
    const int64_t *members;
} Parts;

/* Hand out GPUs by the work of each job, or of each shape of jobs. `report` receives totals that grow by one, or by the
 * factor `step`. Returns 1, 0 if `report` stopped it, -1 if out of memory. */
int schedule_by_work(const Jobs *jobs, const Shape *shapes, int64_t shape_count, int64_t max_gpus, double step,
                     Report report, void *to);
int schedule_in_turn(const Parts *parts, const Shape *shapes, int64_t shape_count, int64_t max_gangs, int64_t max_gpus,
                     double step, Report report, void *to);

#endif
