/* Rows that may win, from flat lists of the bids' rows: their gains, digests and order. */
#ifndef THEMIS_ROW_ORDERING_H
#define THEMIS_ROW_ORDERING_H

#include <stdint.h>

typedef struct {
    int bidders, rows, kinds, cells, pins;
    int finest, bits;         /* gains are multiples of 2**-finest; the sum of all bidders' best gains needs at most `bits` bits */
    const int32_t *row_start; /* [bidders + 1] */
    const double *empty;      /* [bidders] what winning nothing is worth */
    const int64_t *app;       /* [bidders] digest of its app */
    const double *value;      /* [rows] */
    const int32_t *index;     /* [rows] place in its bid */
    const int32_t *gpus;      /* [rows] */
    const int32_t *cell;      /* [cells, 3] row, kind as it was met, count: gangs that a row asks for */
    const int32_t *place;     /* [kinds met] canonical place of each kind */
    const int32_t *pin;       /* [pins, 3] row, machine, GPUs: by row, and by machine within a row */
} FlatRows;

/* Output arrays, with room for all rows. A bidder's rows are ordered by gain, GPUs and digest, then as in its bid. */
typedef struct {
    int rows, pins;
    int alike;    /* two rows one after the other differ only in which pinned GPUs belong together, or not at all */
    double unit;  /* the gain that is worth 1.0 of the log objective */
    int32_t *row_start, *index;
    int64_t *gain;
    int32_t *gpus;
    int64_t *tie;
    int32_t *counts; /* [rows, kinds] */
    int32_t *pin_start, *pin_machine, *pin_gpus;
} Ordered;

/* Rows as they were ordered. */
typedef struct {
    int bidders;
    const int32_t *row_start;
    const int64_t *gain;
    const int32_t *gpus;
    const int64_t *tie;
} Ranked;

/* False without memory. */
int order_rows(const FlatRows *flat, Ordered *ordered);

#endif
