/* The references are `at_tightest` and `at_two_levels` in tests/reference_candidates.py. */
#include "gang_layout.h"

#include <math.h>
#include <string.h>

static int64_t rounded_up(int64_t gpus, int64_t size) { return (gpus + size - 1) / size; }

/* How many gangs fit at the next kind, given what is taken at each level. The others need a looser level. */
static int64_t capacity_for(const int64_t *most, const int64_t *within, const IdenticalGangs *gangs, int64_t next,
                            const int64_t *taken, double tight_part) {
    int64_t first = gangs->kinds[next];
    int is_loosest = next + 1 == gangs->kind_count;
    int64_t capacity = is_loosest ? most[first] : (int64_t)floor(tight_part * (double)most[first] + 1e-9);
    capacity -= rounded_up(taken[within[first]], gangs->gpus);
    for (int64_t n = next + 1; n < gangs->kind_count; n++) {
        int64_t looser = most[gangs->kinds[n]] - rounded_up(taken[within[gangs->kinds[n]]], gangs->gpus);
        if (looser < capacity) capacity = looser;
    }
    return capacity > 0 ? capacity : 0;
}

int place_at_tightest(const int64_t *most, const int64_t *within, int64_t kinds, const IdenticalGangs *gangs,
                      int64_t sizes, double tight_part, int64_t *counts) {
    /* A slot is part of its machine: GPUs taken at a level are taken at all looser ones. */
    int64_t taken[LEVELS] = {0};
    memset(counts, 0, sizeof(int64_t) * (size_t)kinds);
    for (const IdenticalGangs *some = gangs; some < gangs + sizes; some++) {
        int64_t left = some->count;
        for (int64_t next = 0; next < some->kind_count && left; next++) {
            int64_t kind = some->kinds[next], capacity = capacity_for(most, within, some, next, taken, tight_part);
            int64_t here = left < capacity ? left : capacity;
            counts[kind] += here;
            left -= here;
            for (int64_t level = within[kind]; level < LEVELS; level++) taken[level] += here * some->gpus;
        }
        if (left) return 0;
    }
    return 1;
}

int place_at_two_levels(const int64_t *most, int64_t kinds, const IdenticalGangs *gangs, int64_t sizes, int tight,
                        int loose, int64_t loose_count, int64_t *counts) {
    memset(counts, 0, sizeof(int64_t) * (size_t)kinds);
    for (const IdenticalGangs *some = gangs; some < gangs + sizes; some++) {
        int64_t here = loose_count < some->count ? loose_count : some->count;
        loose_count -= here;
        counts[some->kinds[loose]] += here;
        counts[some->kinds[tight]] += some->count - here;
    }
    for (int64_t kind = 0; kind < kinds; kind++)
        if (counts[kind] > most[kind]) return 0;
    return 1;
}
