#include "lazy_constraints.h"

#include <stdlib.h>

typedef struct {
    int64_t *used;   /* [resources], finally by the tables */
    int64_t *more;   /* [machines * resources]: use of pins by table beyond their shares */
    int32_t *pinned; /* [machines] */
} Count;

static void count_rows(const Problem *p, const int32_t *choice, Count *count) {
    for (int i = 0; i < p->bidders; i++) {
        if (choice[i] < 0) continue;
        for (int k = 0; k < p->resources; k++) count->used[k] += p->use[(size_t)choice[i] * p->resources + k];
        for (int pin = p->pin_start[choice[i]]; pin < p->pin_start[choice[i] + 1]; pin++) {
            int m = p->pin_machine[pin];
            count->pinned[m] += p->pin_gpus[pin];
            for (int k = 0; k < p->resources; k++)
                count->more[(size_t)m * p->resources + k] -= p->least[(size_t)pin * p->resources + k];
        }
    }
}

/* Adds the tables' use; true if more is pinned on a machine than it has. */
static int count_tables(const Problem *p, Count *count) {
    int breaks = 0;
    for (int m = 0; m < p->machines; m++) {
        int pinned = count->pinned[m], free = p->machine_free[m];
        if (pinned > free) breaks = p->charged[m] = 1;
        if (!pinned || pinned > free) continue;
        for (int k = 0; k < p->resources; k++) {
            int64_t *more = &count->more[(size_t)m * p->resources + k];
            *more += p->table[p->table_start[m] + k * (free + 1) + pinned];
            count->used[k] += *more;
        }
    }
    return breaks;
}

/* Counts a broken resource from now on; if it was counted, charges the machines whose pins exceed their shares. */
static void hold(const Problem *p, const int64_t *price, int k, const Count *count) {
    if (!is_held(p, price, k)) {
        p->held[k] = 1;
        return;
    }
    for (int m = 0; m < p->machines; m++)
        if (count->more[(size_t)m * p->resources + k] > 0) p->charged[m] = 1;
}

int hold_what_breaks(const Problem *problem, const int64_t *price, const int32_t *choice) {
    size_t resources = problem->resources + 1, machines = problem->machines + 1;
    Count count = {calloc(resources, sizeof(int64_t)), calloc(machines * resources, sizeof(int64_t)),
                   calloc(machines, sizeof(int32_t))};
    int breaks = -1;
    if (count.used && count.more && count.pinned) {
        count_rows(problem, choice, &count);
        breaks = count_tables(problem, &count);
        for (int k = 0; k < problem->resources; k++) {
            if (count.used[k] <= problem->capacity[k]) continue;
            hold(problem, price, k, &count);
            breaks = 1;
        }
    }
    free(count.used);
    free(count.more);
    free(count.pinned);
    return breaks;
}
