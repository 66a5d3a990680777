/* The reference is `on_grids` in tests/reference_candidates.py. */
#include "enumeration.h"

#include <stdlib.h>
#include <string.h>

/* The gangs and GPUs that the first kinds of a choice leave. */
typedef struct {
    int64_t gangs, gpus;
} Left;

static const int64_t *first_of(const Grids *grids, int64_t kind) {
    return grids->counts + (kind ? grids->ends[kind - 1] : 0);
}

/* Counts the choices. Each one continues with a count of 0, so their number never falls from kind to kind: too many now
 * are too many at the end. */
static int64_t number_of(const Grids *grids, Left left, int64_t most, Left *lefts, Left *next) {
    int64_t choice_count = 1;
    if (most < 1) return -1;
    lefts[0] = left;
    for (int64_t kind = 0; kind < grids->kinds; kind++) {
        const int64_t *end = grids->counts + grids->ends[kind];
        int64_t more = 0, gpus = grids->gpus[kind];
        for (int64_t n = 0; n < choice_count; n++)
            for (const int64_t *count = first_of(grids, kind); count < end; count++) {
                if (*count > lefts[n].gangs || *count * gpus > lefts[n].gpus) break;
                if (more == most) return -1;
                next[more++] = (Left){lefts[n].gangs - *count, lefts[n].gpus - *count * gpus};
            }
        Left *swapped = lefts;
        lefts = next, next = swapped, choice_count = more;
    }
    return choice_count;
}

static int64_t *write_all(const Grids *grids, int64_t kind, Left left, int64_t *chosen, int64_t *row) {
    if (kind == grids->kinds) {
        memcpy(row, chosen, sizeof(int64_t) * (size_t)grids->kinds);
        return row + grids->kinds;
    }
    const int64_t *end = grids->counts + grids->ends[kind];
    for (const int64_t *count = first_of(grids, kind); count < end; count++) {
        Left rest = {left.gangs - *count, left.gpus - *count * grids->gpus[kind]};
        if (rest.gangs < 0 || rest.gpus < 0) break;
        chosen[kind] = *count;
        row = write_all(grids, kind + 1, rest, chosen, row);
    }
    return row;
}

int64_t choose(const Grids *grids, int64_t gangs, int64_t gpus, int64_t most, int64_t *choices) {
    Left *lefts = malloc(sizeof(Left) * (size_t)(most + 1)), *next = malloc(sizeof(Left) * (size_t)(most + 1));
    int64_t *chosen = malloc(sizeof(int64_t) * (size_t)(grids->kinds + 1)), choice_count = -2;
    if (lefts && next && chosen) choice_count = number_of(grids, (Left){gangs, gpus}, most, lefts, next);
    if (choice_count > 0) write_all(grids, 0, (Left){gangs, gpus}, chosen, choices);
    free(lefts);
    free(next);
    free(chosen);
    return choice_count;
}
