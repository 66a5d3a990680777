/* The references are `lay_out` and `lay_apart` in tests/reference_candidates.py. */
#include "gang_layout.h"

#include <math.h>
#include <string.h>

static int64_t rounded_up(int64_t gpus, int64_t size) { return (gpus + size - 1) / size; }

/* How many gangs fit at the next kind, given what is taken at each level. The others need a looser level. */
static int64_t room_for(const int64_t *most, const int64_t *within, const Alike *gangs, int64_t next,
                        const int64_t *taken, double near) {
    int64_t first = gangs->kinds[next];
    int64_t room = next + 1 < gangs->kind_count ? (int64_t)floor(near * (double)most[first] + 1e-9) : most[first];
    room -= rounded_up(taken[within[first]], gangs->gpus);
    for (int64_t n = next + 1; n < gangs->kind_count; n++) {
        int64_t farther = most[gangs->kinds[n]] - rounded_up(taken[within[gangs->kinds[n]]], gangs->gpus);
        if (farther < room) room = farther;
    }
    return room > 0 ? room : 0;
}

int lay_gangs(const int64_t *most, const int64_t *within, int64_t kinds, const Alike *gangs, int64_t sizes, double near,
              int64_t *counts) {
    /* A slot is part of its machine: GPUs taken at a level are taken at all looser ones. */
    int64_t taken[LEVELS] = {0};
    memset(counts, 0, sizeof(int64_t) * (size_t)kinds);
    for (const Alike *some = gangs; some < gangs + sizes; some++) {
        int64_t left = some->count;
        for (int64_t next = 0; next < some->kind_count && left; next++) {
            int64_t kind = some->kinds[next], room = room_for(most, within, some, next, taken, near);
            int64_t here = left < room ? left : room;
            counts[kind] += here;
            left -= here;
            for (int64_t level = within[kind]; level < LEVELS; level++) taken[level] += here * some->gpus;
        }
        if (left) return 0;
    }
    return 1;
}

int lay_apart(const int64_t *most, int64_t kinds, const Alike *gangs, int64_t sizes, int near, int far, int64_t away,
              int64_t *counts) {
    memset(counts, 0, sizeof(int64_t) * (size_t)kinds);
    for (const Alike *some = gangs; some < gangs + sizes; some++) {
        int64_t farther = away < some->count ? away : some->count;
        away -= farther;
        counts[some->kinds[far]] += farther;
        counts[some->kinds[near]] += some->count - farther;
    }
    for (int64_t kind = 0; kind < kinds; kind++)
        if (counts[kind] > most[kind]) return 0;
    return 1;
}
