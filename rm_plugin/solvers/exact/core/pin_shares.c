/* Shares of shared pins, by sequential lifting.
 *
 * If several bidders pin on a machine, what a pin uses may depend on the others: the first GPU of eight takes a part of
 * eight, the second takes nothing more. The knapsack needs sums. So each bidder i receives shares s_i(p) for p GPUs,
 * such that the shares of any pins that fit never exceed what these use together. Bidders receive the most they can, one
 * after the other. Those that would lose most without their pin come first: they are the likeliest to pin. */
#include "pin_shares.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    int bidder, first, end; /* the bidder's pins on the machine, as places in machine_pin */
    int64_t loss;           /* its loss at these prices if it does not pin there */
} Part;

typedef struct {
    Problem *problem;
    int skip;
    const int64_t *price;
    int64_t *margin; /* by row */
    Part *part;
    int32_t *rest, *next; /* [resources * (free + 1)]: what is left for P pinned GPUs of bidders to come */
    char *seen;           /* [free + 1] */
} Share;

static int64_t cost_of(const Share *share, const int32_t *use) {
    int64_t cost = 0;
    for (int k = 0; k < share->problem->resources && share->price; k++) cost += share->price[k] * use[k];
    return cost;
}

static void find_margins(Share *share) {
    const Problem *p = share->problem;
    for (int row = 0; row < p->rows; row++)
        share->margin[row] = p->gain[row] - cost_of(share, p->use + (size_t)row * p->resources);
}

/* Margin of a bidder's best row that pins on the machine, without the pin's cost, less that of its best other row. */
static int64_t loss_without(const Share *share, int bidder, int first, int end) {
    const Problem *p = share->problem;
    int64_t with = 0, without = 0;
    int n = first;
    for (int row = p->row_start[bidder]; row < p->row_start[bidder + 1]; row++) {
        int64_t margin = share->margin[row];
        if (n < end && p->pin_row[p->machine_pin[n]] == row) {
            margin += cost_of(share, p->least + (size_t)p->machine_pin[n++] * p->resources);
            if (margin > with) with = margin;
        } else if (margin > without) {
            without = margin;
        }
    }
    return with - without;
}

static int by_loss(const void *left, const void *right) {
    const Part *a = left, *b = right;
    if (a->loss != b->loss) return a->loss > b->loss ? -1 : 1;
    return a->bidder - b->bidder;
}

/* The bidders that pin on a machine, in the order in which they receive shares. The bidder left out comes last. */
static int find_parts(Share *share, int machine) {
    const Problem *p = share->problem;
    int parts = 0;
    for (int n = p->machine_pin_start[machine]; n < p->machine_pin_start[machine + 1];) {
        int bidder = p->pin_bidder[p->machine_pin[n]], first = n;
        while (n < p->machine_pin_start[machine + 1] && p->pin_bidder[p->machine_pin[n]] == bidder) n++;
        int64_t loss = bidder == share->skip ? INT64_MIN : loss_without(share, bidder, first, n);
        share->part[parts++] = (Part){bidder, first, n, loss};
    }
    qsort(share->part, parts, sizeof(Part), by_loss);
    return parts;
}

/* Gives a bidder's pins the most that the rest of the table allows, and updates the rest. */
static int give(Share *share, int machine, const Part *part) {
    Problem *p = share->problem;
    int width = p->machine_free[machine] + 1, K = p->resources, changed = 0;
    memcpy(share->next, share->rest, sizeof(int32_t) * K * width);
    memset(share->seen, 0, width);
    for (int n = part->first; n < part->end; n++) {
        int pin = p->machine_pin[n], gpus = p->pin_gpus[pin];
        if (gpus >= width) continue;
        int32_t *least = p->least + (size_t)pin * K, *use = p->use + (size_t)p->pin_row[pin] * K;
        for (int k = 0; k < K; k++) {
            int32_t now = share->rest[k * width + gpus];
            changed |= now != least[k];
            use[k] += now - least[k];
            least[k] = now;
        }
        if (share->seen[gpus]) continue;
        share->seen[gpus] = 1;
        for (int k = 0; k < K; k++) {
            const int32_t *rest = share->rest + k * width;
            int32_t *next = share->next + k * width;
            for (int others = 0; others + gpus < width; others++)
                if (rest[others + gpus] - rest[gpus] < next[others]) next[others] = rest[others + gpus] - rest[gpus];
        }
    }
    int32_t *swap = share->rest;
    share->rest = share->next;
    share->next = swap;
    return changed;
}

static int most_width(const Problem *p) {
    int width = 1;
    for (int m = 0; m < p->machines; m++)
        if (p->machine_free[m] + 1 > width) width = p->machine_free[m] + 1;
    return width;
}

/* Shares are recomputed if that takes a few milliseconds at most; on huge machines the first ones stay. */
static int takes_long(const Problem *p) {
    int64_t steps = 0;
    for (int m = 0; m < p->machines; m++)
        steps += (int64_t)(p->machine_pin_start[m + 1] - p->machine_pin_start[m]) * (p->machine_free[m] + 1);
    return steps * p->resources > 20000000;
}

int share_pins(Problem *problem, int skip, const int64_t *price) {
    Share share = {.problem = problem, .skip = skip, .price = price};
    if (!problem->machines || (price && takes_long(problem))) return 0;
    int width = most_width(problem), changed = -1;
    share.margin = malloc(sizeof(int64_t) * (problem->rows + 1));
    share.part = malloc(sizeof(Part) * (problem->bidders + 1));
    share.rest = malloc(sizeof(int32_t) * (problem->resources + 1) * width);
    share.next = malloc(sizeof(int32_t) * (problem->resources + 1) * width);
    share.seen = malloc(width);
    if (share.margin && share.part && share.rest && share.next && share.seen) {
        changed = 0;
        find_margins(&share);
        for (int m = 0; m < problem->machines; m++) {
            int parts = find_parts(&share, m);
            size_t cells = (size_t)problem->table_start[m + 1] - problem->table_start[m];
            memcpy(share.rest, problem->table + problem->table_start[m], sizeof(int32_t) * cells);
            for (int n = 0; n < parts; n++) changed |= give(&share, m, &share.part[n]);
        }
    }
    void *all[] = {share.margin, share.part, share.rest, share.next, share.seen};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
    return changed;
}
