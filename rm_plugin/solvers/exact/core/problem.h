/* The compiled part of the exact winner determination: values shared by its files.
 *
 * A problem is a multiple-choice knapsack: every bidder takes one row or none, rows use resources, and gains add up.
 * Gains, ties and prices are whole numbers (fixed point), so sums do not depend on their order and equals are equal.
 *
 * GPUs pinned on a machine that several bidders pin use resources by a table that need not be additive. A row's `use`
 * counts a share of them, such that shares never sum up to more than the table says. The search leaves it at that until
 * the best choice so far breaks a limit by the tables; from then on it carries the GPUs pinned so far on the machines
 * that do it in its states and charges the rest when it comes to it. Few machines of many ever need that.
 */
#ifndef THEMIS_PROBLEM_H
#define THEMIS_PROBLEM_H

#include <stdint.h>

enum { MOST_RESOURCES = 160 };

typedef struct {
    int bidders, rows, resources, machines; /* machines: only those whose pins are charged by table */
    int32_t *row_start;                     /* [bidders + 1] */
    int64_t *gain;                          /* [rows], each positive */
    int32_t *gpus;                          /* [rows] */
    int64_t *tie;                           /* [rows] */
    int32_t *use;                           /* [rows * resources], pins charged by table by their shares */
    int32_t *capacity;                      /* [resources] */
    int32_t *pin_start;                     /* [rows + 1] */
    int32_t *pin_machine;                   /* [pins] */
    int32_t *pin_gpus;                      /* [pins] */
    int32_t *machine_free;                  /* [machines] */
    int32_t *table_start;                   /* [machines + 1] into `table`, resources * (free + 1) entries each */
    int32_t *table;                         /* what P pinned GPUs use of resource k: [k * (free + 1) + P] */
    int32_t *least;                         /* [pins * resources]: what `use` counts of a pin, its share (shares.h) */
    int32_t *pin_row, *pin_bidder;          /* [pins] */
    int32_t *machine_pin_start;             /* [machines + 1] into the next: pins by machine */
    int32_t *machine_pin;
    unsigned char *charged; /* [machines]: whether searches charge pins there by table; grows with what they find */
    unsigned char *held;    /* [resources]: whether searches count a resource without a price; grows likewise */
    int64_t *spent;         /* [1]: about as many states as searches of late kept: the next will be much alike */
    int64_t *loss;          /* [1]: what every choice of the last one lost at least against its bound, likewise */
    int32_t *part_start;                    /* [rows + 1] into the next two: what a row uses, resources ascending */
    int32_t *part_resource;
    double *part_use;                       /* use / capacity */
    double *gain_f;                         /* [rows]: gain as a float, in units of `unit` */
    double unit;                            /* fixed-point gain of 1.0 */
} Problem;

typedef struct {
    double deadline_s; /* on the monotonic clock */
    int64_t most_states;
} Limits;

enum { SEARCH_OPTIMAL = 0, SEARCH_OUT_OF_TIME = 1, SEARCH_TOO_WIDE = 2, SEARCH_NO_MEMORY = 3 };

typedef struct {
    int status;
    int64_t value; /* of the choice, SEARCH_OPTIMAL: the optimum */
    int64_t bound; /* no choice is worth more */
    int64_t states;
} Outcome;

double monotonic_s(void);

/* Lowers sum_k price_k * capacity_k + sum_i max_r (gain - price . use) from the prices given; `skip` is left out.
 *
 * `first_mu` tells how far off they may be, in log value a bidder: 0 for prices from nowhere. */
void find_prices(const Problem *problem, int skip, double *price_of_all, double first_mu);

/* The best choice at these prices (in units of gain for the whole capacity): row by bidder, -1 for none. */
Outcome search(const Problem *problem, int skip, const double *price_of_all, double first_gap, int beam, Limits limits,
               int32_t *choice);

/* For each bidder the most that it can add at these prices; returns the bound. */
int64_t bound_at(const Problem *problem, int skip, const int64_t *price, int64_t *best);

void whole_prices(const Problem *problem, const double *price_of_all, int64_t *price);

#endif
