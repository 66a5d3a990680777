/* Places gangs by best fit, one after the other. Success proves that they fit.
 *
 * The level of a gang is the loosest that it may span. It gets the tightest level at which there is a place, by the rule
 * of `themis.placement` with S that grows from level to level. Machines and racks are numbered in the order of their ids.
 *
 * - `sparing`, in a rack: unit by unit on the machine that spoils the fewest GPUs of whole parts, then the one with
 *   fewer free GPUs, then the smaller number; in the rack that spoils the fewest in all, then the smaller number. */
#ifndef THEMIS_BEST_FIT_H
#define THEMIS_BEST_FIT_H

#include <stdint.h>

enum { LEVEL_SLOT = 0, LEVEL_MACHINE = 1, LEVEL_RACK = 2, LEVEL_CLUSTER = 3 };

typedef struct {
    int machines, racks;
    const int32_t *free;       /* [machines]: free GPUs, pinned ones left out */
    const int32_t *rack;       /* [machines] */
    const int32_t *slot_start; /* [machines + 1] */
    const int32_t *slot_free;  /* [slots] */
} Cluster;

/* Part of a gang: GPUs of one machine, of one slot where slot >= 0. */
typedef struct {
    int32_t gang, machine, slot, gpus;
} Part;

/* Places gangs (level, gpus, unit; three numbers each) in the order given; with `sparing` gangs in racks go where they
 * spoil the fewest whole parts of the sizes that others ask for.
 *
 * Returns the number of parts written, at most one a GPU; -1 - g when gang g found no place; INT32_MIN: no memory. */
int32_t pack(const Cluster *cluster, int gangs, const int32_t *gang, int sparing, Part *part);

#endif
