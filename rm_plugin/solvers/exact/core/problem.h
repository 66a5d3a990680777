/* The knapsack of a market, as all files of the core share it (docs/design/auction.md).
 *
 * Each bidder takes one row or none, rows use resources, and gains add up. Gains, ties and prices are whole numbers
 * (fixed point), so sums do not depend on their order, and equal sums are equal.
 *
 * What GPUs pinned on a machine by several bidders use together is given by a table, which need not be additive. A
 * row's `use` counts its share of the table (pin_shares.h); shares never sum up to more than the table says. If the best
 * choice breaks a resource by the tables, searches charge the pins of the machines concerned by table from then on.
 */
#ifndef THEMIS_PROBLEM_H
#define THEMIS_PROBLEM_H

#include <stdint.h>

enum { MAX_RESOURCES = 160 };

typedef struct {
    int bidders, rows, resources, machines; /* machines: only those whose pins are charged by table */
    int32_t *row_start;                     /* [bidders + 1] */
    int64_t *gain;                          /* [rows], each positive */
    int32_t *gpus;                          /* [rows] */
    int64_t *tie;                           /* [rows] */
    int32_t *use;                           /* [rows * resources], with the shares of shared pins */
    int32_t *capacity;                      /* [resources] */
    int32_t *pin_start;                     /* [rows + 1] */
    int32_t *pin_machine;                   /* [pins] */
    int32_t *pin_gpus;                      /* [pins] */
    int32_t *machine_free;                  /* [machines] */
    int32_t *table_start;                   /* [machines + 1] into `table`, resources * (free + 1) entries each */
    int32_t *table;                         /* use of resource k by P pinned GPUs: [k * (free + 1) + P] */
    int32_t *least;                         /* [pins * resources]: the share of a pin, as `use` counts it */
    int32_t *pin_row, *pin_bidder;          /* [pins] */
    int32_t *machine_pin_start;             /* [machines + 1] into the next: pins by machine */
    int32_t *machine_pin;
    unsigned char *charged; /* [machines]: whether searches charge pins by table; set as they find it necessary */
    unsigned char *held;    /* [resources]: whether searches count a resource without a price; set likewise */
    int64_t *spent;         /* [1]: about the states that recent searches kept */
    int64_t *loss;          /* [1]: the least loss of a choice in the last search */
    int32_t *part_start;                    /* [rows + 1] into the next two: use by row, resources ascending */
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
    int64_t bound; /* upper bound on the value of any choice */
    int64_t states;
} Outcome;

double monotonic_s(void);

/* Minimises the bound U over the prices, from the prices given, without the bidder at `skip`.
 *
 * `first_mu`: how far off the prices may be, in log value per bidder; 0 if nothing is known. */
void find_prices(const Problem *problem, int skip, double *price_of_all, double first_mu);

/* The best choice at these prices (in units of gain for the whole capacity): row by bidder, -1 for none. */
Outcome search(const Problem *problem, int skip, const double *price_of_all, double first_gap, int beam, Limits limits,
               int32_t *choice);

/* The largest margin of each bidder at these prices, into `best`; returns the bound U. */
int64_t bound_at(const Problem *problem, int skip, const int64_t *price, int64_t *best);

void whole_prices(const Problem *problem, const double *price_of_all, int64_t *price);

#endif
