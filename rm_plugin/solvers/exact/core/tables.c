#include "tables.h"

#include <string.h>

int worth_more(const Worth *a, const Worth *b) {
    if (a->gain != b->gain) return a->gain > b->gain;
    if (a->gpus != b->gpus) return a->gpus < b->gpus;
    return a->tie < b->tie;
}

int worth_of(const Tables *t, const int32_t *choice, Worth *worth, int32_t *used) {
    *worth = (Worth){0, 0, 0};
    memset(used, 0, sizeof(int32_t) * t->machines);
    for (int i = 0; i < t->bidders; i++) {
        int row = choice[i];
        if (row < 0) continue;
        for (int pin = t->pin_start[row]; pin < t->pin_start[row + 1]; pin++) {
            used[t->pin_machine[pin]] += t->pin_gpus[pin];
            if (used[t->pin_machine[pin]] > t->free[t->pin_machine[pin]]) return 0;
        }
        worth->gain += t->gain[row];
        worth->gpus += t->gpus[row];
        worth->tie += t->tie[row];
    }
    return 1;
}

int conflict(const Tables *t, int a, int b) {
    if (t->bidder[a] == t->bidder[b]) return 1;
    int other = t->pin_start[b], end = t->pin_start[b + 1];
    for (int pin = t->pin_start[a]; pin < t->pin_start[a + 1]; pin++) {
        int machine = t->pin_machine[pin];
        while (other < end && t->pin_machine[other] < machine) other++;
        if (other == end) return 0;
        if (t->pin_machine[other] == machine && t->pin_gpus[pin] + t->pin_gpus[other] > t->free[machine]) return 1;
    }
    return 0;
}
