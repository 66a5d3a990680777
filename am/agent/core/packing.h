/* Jobs on gangs that run one job at a time; see am/agent/packing/makespan.py. */
#ifndef THEMIS_AGENT_PACKING_H
#define THEMIS_AGENT_PACKING_H

#include <stdint.h>

typedef struct Packer Packer;

/* Room for so many jobs, kinds and gangs; NULL without memory. `in_pairs`: jobs change places two for two as well;
 * `closely`: gangs are filled one after the other as well; `shaken`: how often, times jobs, they go on from the best way once some drawn jobs have. */
Packer *new_packer(const double *times_s, int jobs, int kinds, int most_gangs, int in_pairs, int closely,
                   int shaken);
void free_packer(Packer *packer);

/* When the last job ends on these gangs, ordered by kind, each free once its load has passed: `gang` has the place of
 * each job, -1 where it can nowhere run. Infinite where a job can nowhere run. */
double pack(Packer *packer, const int64_t *kind, const double *load_s, int gangs, int64_t *gang);

/* The time, on the fastest kinds, of the jobs that do not find a gang on which they end in time, put as first fit puts
 * them on gangs that are free; once a job is left out, counted as far as `most_s`. */
double left_out(Packer *packer, const int64_t *kind, int gangs, double end_s, double most_s);

#endif
