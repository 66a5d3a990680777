/* Jobs on gangs that run one job at a time; see am/agent/packing/makespan.py. */
#ifndef THEMIS_AGENT_PACKING_H
#define THEMIS_AGENT_PACKING_H

#include <stdint.h>

typedef struct Packer Packer;

/* Allocates a packer for these numbers of jobs, kinds and gangs. Returns NULL if out of memory.
 *
 * in_pairs: also exchange pairs of jobs.
 * closely: also fill gangs one after the other.
 * shaken: restarts of the iterated local search, for each job. */
Packer *new_packer(const double *times_s, int jobs, int kinds, int max_gangs, int in_pairs, int closely,
                   int shaken);
void free_packer(Packer *packer);

/* Packs all jobs and returns the end of the last one, infinite if a job can run on no gang. Gangs are ordered by kind;
 * each is free from its load on. Sets `gang` to the gang of each job, -1 if it can run on none. */
double pack(Packer *packer, const int64_t *kind, const double *load_s, int gangs, int64_t *gang);

/* Packs jobs by first fit on free gangs and returns the sum of the times, on their fastest kinds, of the jobs that find
 * no gang on which they end in time. Stops counting at `most_s`. */
double left_out(Packer *packer, const int64_t *kind, int gangs, double end_s, double most_s);

#endif
