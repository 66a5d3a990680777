/* The best choice if only the number of GPUs counts, as on one machine: a knapsack of one resource. */
#ifndef THEMIS_ONE_MACHINE_H
#define THEMIS_ONE_MACHINE_H

#include "row_ordering.h"

/* The row of each bidder but `skip` (-1 for none of them) into `choice`, -1 for none; false without memory.
 *
 * Of equal choices the one of fewer GPUs wins, then the one whose digests sum up to less. */
int best_on_one_machine(const Ranked *ranked, int free_gpus, int skip, int32_t *choice);

#endif
