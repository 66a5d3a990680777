/* Rows that another row of the same bidder makes useless: of no less value, and asking for no more of anything. */
#ifndef THEMIS_DOMINANCE_H
#define THEMIS_DOMINANCE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    int bidders, needs;
    const int32_t *row_start; /* [bidders + 1]; the rows of a bidder stand best first */
    const int32_t *need;      /* [rows * needs] */
    const int32_t *pin_start, *pin_machine, *pin_gpus; /* by row; machines ascending */
} Rows;

/* Sets keep[row] to 1 or 0, by the thousand rows kept last before it; `scratch` has room for the rows of one bidder. */
void prune(const Rows *rows, unsigned char *keep, int32_t *scratch);

#endif
