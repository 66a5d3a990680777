/* A market whose rows all name GPUs by machine: every bidder takes one row or none, every machine holds so many GPUs.
 *
 * Gains and ties are whole numbers, so sums do not depend on their order and equals are equal.
 */
#ifndef THEMIS_TABLES_H
#define THEMIS_TABLES_H

#include <stdint.h>

typedef struct {
    int bidders, rows, machines;
    double unit;          /* fixed-point gain of 1.0 */
    int32_t *row_start;   /* [bidders + 1] */
    int64_t *gain;        /* [rows], each positive */
    int32_t *gpus;        /* [rows] */
    int64_t *tie;         /* [rows] */
    int32_t *pin_start;   /* [rows + 1] */
    int32_t *pin_machine; /* [pins], ascending within a row */
    int32_t *pin_gpus;    /* [pins], each positive */
    int32_t *free;        /* [machines] */
    int32_t *bidder;      /* [rows] */
} Tables;

typedef struct {
    int64_t gain, tie;
    int32_t gpus;
} Worth;

/* The order of choices: more gain, then fewer GPUs, then the smaller sum of digests. */
int worth_more(const Worth *a, const Worth *b);

/* What a choice (row by bidder, -1 for none) is worth; false where it does not fit. `used` is scratch [machines]. */
int worth_of(const Tables *tables, const int32_t *choice, Worth *worth, int32_t *used);

/* Whether no choice takes both rows: of one bidder, or more on a machine than it holds. */
int conflict(const Tables *tables, int a, int b);

#endif
