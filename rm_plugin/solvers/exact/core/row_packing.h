/* Places the gangs of chosen rows by best fit, on what their pins leave free. */
#ifndef THEMIS_ROW_PACKING_H
#define THEMIS_ROW_PACKING_H

#include "best_fit.h"

typedef struct {
    int rows, kinds;
    const int32_t *row;                                /* [rows] */
    const int32_t *shape;                              /* [kinds, 3] level, gpus, unit */
    const int32_t *order;                              /* [kinds] kinds in the order of placing */
    const int32_t *counts;                             /* [rows of the market, kinds] */
    const int32_t *pin_start, *pin_machine, *pin_gpus; /* by row of the market */
} Chosen;

/* Places all gangs of the rows, kind by kind; `owner` receives the row of each. The arrays have room for a gang and a part for
 * every GPU that is free.
 *
 * Returns the number of parts; -1 - kind when the first gang that found no place is of it; -1 - kinds where pins take
 * more than is free; INT32_MIN: no memory. */
int32_t pack_chosen(const Cluster *cluster, const Chosen *chosen, int sparing, Part *part, int32_t *owner);

#endif
