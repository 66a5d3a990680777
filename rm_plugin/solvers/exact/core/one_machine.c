#include "one_machine.h"

#include <stdlib.h>

/* The best gain of the bidders so far, by the number of GPUs that their rows use. */
typedef struct {
    int64_t gain, tie; /* a gain of -1: no rows use exactly that number */
} Best;

static int beats(Best one, Best other) {
    return one.gain != other.gain ? one.gain > other.gain : one.tie < other.tie;
}

/* Adds a bidder. The most GPUs come first, so that entries of fewer are still those of the bidders before. */
static void add_bidder(const Ranked *r, int bidder, int free_gpus, Best *best, int32_t *won) {
    for (int gpus = free_gpus; gpus >= 0; gpus--) {
        won[gpus] = -1;
        for (int row = r->row_start[bidder]; row < r->row_start[bidder + 1]; row++) {
            int left = gpus - r->gpus[row];
            if (left < 0 || best[left].gain < 0) continue;
            Best with = {best[left].gain + r->gain[row], best[left].tie + r->tie[row]};
            if (beats(with, best[gpus])) best[gpus] = with, won[gpus] = row;
        }
    }
}

int best_on_one_machine(const Ranked *r, int free_gpus, int skip, int32_t *choice) {
    size_t totals = (size_t)free_gpus + 1;
    Best *best = malloc(sizeof *best * totals);
    int32_t *won = malloc(sizeof *won * (totals * r->bidders + 1));
    int whole = best && won;
    if (whole) {
        for (int gpus = 0; gpus <= free_gpus; gpus++) best[gpus] = (Best){gpus ? -1 : 0, 0};
        for (int i = 0; i < r->bidders; i++)
            if (i != skip) add_bidder(r, i, free_gpus, best, won + totals * i);
        int gpus = 0;
        for (int other = 1; other <= free_gpus; other++)
            if (best[other].gain > best[gpus].gain) gpus = other;
        for (int i = r->bidders - 1; i >= 0; i--) {
            choice[i] = i == skip ? -1 : won[totals * i + gpus];
            if (choice[i] >= 0) gpus -= r->gpus[choice[i]];
        }
    }
    free(best);
    free(won);
    return whole;
}
