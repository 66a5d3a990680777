/* The needs of kept candidates are stored column by column in blocks, so that one instruction compares many. */
#include "dominance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64 };

/* Kept candidates. The last block is padded with candidates that need more than any other and gain nothing. */
typedef struct {
    int64_t count, columns;
    int16_t *needs; /* blocks x columns x BLOCK */
    double *gains;
} Kept;

static void keep(Kept *kept, const Replaceable *candidates, int64_t candidate) {
    int64_t at = kept->count++ % BLOCK, block = (kept->count - 1) / BLOCK;
    int16_t *needs = kept->needs + block * kept->columns * BLOCK;
    if (!at)
        for (int64_t n = 0; n < BLOCK; n++) kept->gains[block * BLOCK + n] = -INFINITY;
    if (!at)
        for (int64_t n = 0; n < kept->columns * BLOCK; n++) needs[n] = INT16_MAX;
    for (int64_t column = 0; column < kept->columns; column++)
        needs[column * BLOCK + at] = candidates->needs[candidate * kept->columns + column];
    kept->gains[block * BLOCK + at] = candidates->gains[candidate];
}

/* Whether a candidate of a block replaces another one. */
static int any_replaces(const int16_t *needs, const double *gains, int64_t columns, const int16_t *needed,
                        double enough) {
    int16_t fits[BLOCK];
    for (int n = 0; n < BLOCK; n++) fits[n] = 1;
    for (int64_t column = 0; column < columns; column++) {
        const int16_t *those = needs + column * BLOCK;
        int16_t most = needed[column], any = 0;
        for (int n = 0; n < BLOCK; n++) {
            fits[n] &= those[n] <= most;
            any |= fits[n];
        }
        if (!any) return 0;
    }
    for (int n = 0; n < BLOCK; n++)
        if (fits[n] && gains[n] >= enough) return 1;
    return 0;
}

int64_t cover(const Replaceable *candidates, int64_t first, int64_t cap, int64_t *kept) {
    size_t most = ((size_t)(candidates->count + first) / BLOCK + 1) * BLOCK;
    Kept all = {0, candidates->columns, malloc(sizeof(int16_t) * most * (size_t)(candidates->columns + 1)),
                malloc(sizeof(double) * most)};
    int64_t result = all.needs && all.gains ? 0 : -1;
    for (int64_t n = 0; n < first && !result; n++) keep(&all, candidates, kept[n]);
    for (int64_t candidate = 0; candidate < candidates->count && !result && all.count <= cap; candidate++) {
        int covered = 0;
        for (int64_t block = 0; block * BLOCK < all.count && !covered; block++)
            covered = any_replaces(all.needs + block * all.columns * BLOCK, all.gains + block * BLOCK, all.columns,
                                   candidates->needs + candidate * all.columns, candidates->enough[candidate]);
        if (covered) continue;
        kept[all.count] = candidate;
        keep(&all, candidates, candidate);
    }
    free(all.needs);
    free(all.gains);
    return result ? result : all.count;
}

typedef struct {
    int64_t candidate, needs;
    double gain;
} Ranked;

/* Fewest needs first, then the largest gain, then the order of the candidates. */
static int by_rank(const void *one, const void *other) {
    const Ranked *a = one, *b = other;
    if (a->needs != b->needs) return a->needs < b->needs ? -1 : 1;
    if (a->gain != b->gain) return a->gain > b->gain ? -1 : 1;
    return a->candidate < b->candidate ? -1 : 1;
}

/* Ranks the candidates worth more than the empty bundle and than every one-step variant that asks for a little less. */
static int64_t rank(const Candidates *all, double empty_value, char *wanted, Ranked *ranked) {
    int64_t count = 0;
    for (int64_t n = 0; n < all->count; n++) wanted[n] = all->gpus[n] > 0 && all->values[n] > empty_value;
    for (int64_t pair = 0; pair < all->pairs; pair++)
        if (all->values[all->easier[pair]] >= all->values[all->harder[pair]]) wanted[all->harder[pair]] = 0;
    for (int64_t n = 0; n < all->count; n++) {
        if (!wanted[n]) continue;
        Ranked *next = &ranked[count++];
        *next = (Ranked){n, 0, all->gains[n]};
        for (int64_t column = 0; column < all->columns; column++) next->needs += all->needs[n * all->columns + column];
    }
    qsort(ranked, (size_t)count, sizeof *ranked, by_rank);
    return count;
}

int64_t undominated(const Candidates *all, double empty_value, int64_t *kept) {
    size_t count = (size_t)all->count + 1;
    Ranked *ranked = malloc(sizeof *ranked * count);
    char *wanted = malloc(count);
    double *gains = malloc(sizeof *gains * count);
    int16_t *needs = malloc(sizeof *needs * count * (size_t)(all->columns + 1));
    int64_t result = -1;
    if (ranked && wanted && gains && needs) {
        int64_t found = rank(all, empty_value, wanted, ranked);
        for (int64_t n = 0; n < found; n++) {
            gains[n] = ranked[n].gain;
            memcpy(needs + n * all->columns, all->needs + ranked[n].candidate * all->columns,
                   sizeof *needs * (size_t)all->columns);
        }
        Replaceable sorted = {found, all->columns, needs, gains, gains};
        result = found ? cover(&sorted, 0, found, kept) : 0;
        for (int64_t n = 0; n < result; n++) kept[n] = ranked[kept[n]].candidate;
    }
    free(ranked);
    free(wanted);
    free(gains);
    free(needs);
    return result;
}

/* The slot of a key in a hash table of `slots` slots, a power of two; a free slot holds -1. */
static size_t slot_of(const int64_t *keys, const int64_t *candidate_in, size_t slots, int64_t key) {
    uint64_t hash = (uint64_t)key * UINT64_C(0x9e3779b97f4a7c15);
    size_t slot = (size_t)(hash ^ hash >> 32) & (slots - 1);
    while (candidate_in[slot] >= 0 && keys[candidate_in[slot]] != key) slot = (slot + 1) & (slots - 1);
    return slot;
}

int64_t one_step_variants(const int64_t *keys, const int64_t *candidates, int64_t count, int64_t kinds,
                          const Changes *changes, int64_t *harder, int64_t *easier) {
    size_t slots = 2;
    while (slots < (size_t)count * 2) slots *= 2;
    int64_t *candidate_in = malloc(sizeof(int64_t) * slots), pairs = 0;
    if (!candidate_in) return -1;
    for (size_t slot = 0; slot < slots; slot++) candidate_in[slot] = -1;
    for (int64_t candidate = 0; candidate < count; candidate++)
        candidate_in[slot_of(keys, candidate_in, slots, keys[candidate])] = candidate;
    for (int64_t change = 0; change < changes->count; change++)
        for (int64_t candidate = 0; candidate < count; candidate++) {
            if (!candidates[candidate * kinds + changes->kind[change]]) continue;
            int64_t other = candidate_in[slot_of(keys, candidate_in, slots, keys[candidate] + changes->key[change])];
            if (other < 0) continue;
            harder[pairs] = candidate;
            easier[pairs++] = other;
        }
    free(candidate_in);
    return pairs;
}
