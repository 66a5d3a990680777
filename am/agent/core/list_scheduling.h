/* List scheduling of GPUs; see am/agent/candidates/list_scheduling.py. */
#ifndef THEMIS_AGENT_LIST_SCHEDULING_H
#define THEMIS_AGENT_LIST_SCHEDULING_H

#include "shapes.h"

/* How many gangs there are of each size and unit. */
typedef struct {
    int64_t most_gpus; /* of a gang */
    int units;
    int64_t *unit; /* each once, the largest first */
    int64_t *many; /* (most_gpus + 1) x units */
} Dealt;

/* Is told what has been dealt at a total of GPUs; 0 to stop. */
typedef int (*Tell)(void *to, int64_t gpus, const Dealt *dealt);

/* Jobs that GPUs are dealt to one by one, longest first. */
typedef struct {
    int64_t jobs;
    const double *work_s;
    const int64_t *shape;   /* of each job */
    const double *slowdown; /* shapes x tasks: S on gangs of so many tasks */
    int64_t tasks;
} Jobs;

/* Parts of an app, each of the jobs of one shape: their work and how many they are. */
typedef struct {
    const double *work_s;
    const int64_t *members;
} Parts;

/* Hand out GPUs by the work of each job, or of each shape of jobs. `tell` receives totals that grow by one, or by the
 * factor `step`. Returns 1, 0 if `tell` stopped it, -1 without memory. */
int deal_by_work(const Jobs *jobs, const Shape *shapes, int64_t many, int64_t most_gpus, double step, Tell tell,
                 void *to);
int deal_in_turn(const Parts *parts, const Shape *shapes, int64_t many, int64_t most_gangs, int64_t most_gpus,
                 double step, Tell tell, void *to);

#endif
