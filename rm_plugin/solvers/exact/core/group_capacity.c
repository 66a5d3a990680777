/* Three nested knapsacks: items in the slots and on the machine, by GPUs left over; leftovers added up over machines;
 * gangs and single GPUs in what is left over in all. */
#include "group_capacity.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FREE = 512 };

typedef struct {
    int64_t value[MAX_FREE + 1]; /* by GPUs used at most */
    int32_t item[MAX_FREE + 1];  /* what was added last: an item, or -1 for one GPU left empty */
} Sack;

/* Any number of the items of one sort in g GPUs, for g = 0 .. most. */
static void fill_sack(const Weights *w, int in_slot, int most, Sack *sack) {
    sack->value[0] = 0;
    sack->item[0] = -1;
    for (int gpus = 1; gpus <= most; gpus++) {
        sack->value[gpus] = sack->value[gpus - 1];
        sack->item[gpus] = -1;
        for (int i = 0; i < w->items; i++) {
            if (w->in_slot[i] != in_slot || w->size[i] > gpus) continue;
            int64_t value = sack->value[gpus - w->size[i]] + w->weight[i];
            if (value > sack->value[gpus]) {
                sack->value[gpus] = value;
                sack->item[gpus] = i;
            }
        }
    }
}

static void count_sack(const Weights *w, const Sack *sack, int gpus, int32_t *count) {
    while (gpus > 0) {
        int item = sack->item[gpus];
        if (item >= 0) count[item]++;
        gpus -= item >= 0 ? w->size[item] : 1;
    }
}

/* The most weight of slot items that use `used` GPUs at most; with `count`, the items too. */
static int64_t best_in_slots(const Group *g, int m, const Weights *w, const Sack *inside, int used, int32_t *count) {
    int64_t value[MAX_FREE + 1] = {0};
    int slots = g->slot_start[m + 1] - g->slot_start[m];
    int16_t(*chosen)[MAX_FREE + 1] = count ? calloc(slots + 1, sizeof *chosen) : NULL;
    for (int slot = 0; slot < slots; slot++) {
        int room = g->slot_free[g->slot_start[m] + slot];
        for (int gpus = used; gpus > 0; gpus--)
            for (int here = 1; here <= room && here <= gpus; here++)
                if (value[gpus - here] + inside->value[here] > value[gpus]) {
                    value[gpus] = value[gpus - here] + inside->value[here];
                    if (chosen) chosen[slot][gpus] = (int16_t)here;
                }
    }
    if (chosen) {
        int gpus = used;
        for (int slot = slots - 1; slot >= 0; slot--) {
            count_sack(w, inside, chosen[slot][gpus], count);
            gpus -= chosen[slot][gpus];
        }
    }
    free(chosen);
    return value[used];
}

typedef struct {
    const Group *group;
    const Weights *weights;
    Sack inside, anywhere;
    int any_inside;
} Scale;

/* The most weight on a machine in `room` GPUs, and how many of them go to slot items. */
static int64_t best_on_machine(const Scale *s, int m, int room, int *in_slots) {
    *in_slots = 0;
    if (!s->any_inside) return s->anywhere.value[room];
    int64_t best = -1;
    for (int used = 0; used <= room; used++) {
        int64_t value = best_in_slots(s->group, m, s->weights, &s->inside, used, NULL) + s->anywhere.value[room - used];
        if (value > best) {
            best = value;
            *in_slots = used;
        }
    }
    return best;
}

/* The same with `left` GPUs left over, pinned or not. */
static int64_t best_leaving(const Scale *s, int m, int left, int *pinned, int *in_slots) {
    const Group *g = s->group;
    int64_t best = best_on_machine(s, m, g->free[m] - left, in_slots);
    *pinned = 0;
    if (g->pinned[m] && g->free[m] - left >= g->pinned[m]) {
        int used;
        int64_t value = g->pin_weight[m] + best_on_machine(s, m, g->free[m] - left - g->pinned[m], &used);
        if (value > best) {
            best = value;
            *pinned = 1;
            *in_slots = used;
        }
    }
    return best;
}

static void count_machine(const Scale *s, int m, int left, int32_t *count) {
    const Weights *w = s->weights;
    int pinned, in_slots;
    best_leaving(s, m, left, &pinned, &in_slots);
    int room = s->group->free[m] - left - (pinned ? s->group->pinned[m] : 0);
    if (in_slots) best_in_slots(s->group, m, w, &s->inside, in_slots, count);
    count_sack(w, &s->anywhere, room - in_slots, count);
    count[w->items + w->gangs + 1 + m] = pinned;
}

void fill_values(const Weights *w, int most, int64_t *value, int32_t *gang) {
    value[0] = 0;
    for (int gpus = 1; gpus <= most; gpus++) {
        int last = -1;
        value[gpus] = value[gpus - 1] + w->single_weight;
        for (int n = 0; n < w->gangs; n++)
            if (w->gang_size[n] <= gpus && value[gpus - w->gang_size[n]] + w->gang_weight[n] > value[gpus]) {
                value[gpus] = value[gpus - w->gang_size[n]] + w->gang_weight[n];
                last = n;
            }
        if (gang) gang[gpus] = last;
    }
}

typedef struct {
    int64_t *value, *fill; /* by GPUs left over so far; fill: weight in them */
    int32_t *gang;
    int16_t *left; /* [machines, total + 1]: what the machine leaves over of that many GPUs */
} Tables;

static int64_t weigh_with(Scale *s, Tables *t, int total, int32_t *count) {
    const Group *g = s->group;
    const Weights *w = s->weights;
    int so_far = 0, pinned, in_slots;
    t->value[0] = 0;
    for (int m = 0; m < g->machines; m++) {
        int64_t leaving[MAX_FREE + 1];
        for (int left = 0; left <= g->free[m]; left++) leaving[left] = best_leaving(s, m, left, &pinned, &in_slots);
        int16_t *choice = t->left + (size_t)m * (total + 1);
        for (int gpus = so_far + g->free[m]; gpus >= 0; gpus--) {
            int64_t best = -1;
            for (int left = 0; left <= g->free[m] && left <= gpus; left++)
                if (gpus - left <= so_far && t->value[gpus - left] + leaving[left] > best) {
                    best = t->value[gpus - left] + leaving[left];
                    choice[gpus] = (int16_t)left;
                }
            t->value[gpus] = best;
        }
        so_far += g->free[m];
    }
    fill_values(w, total, t->fill, t->gang);
    int best = 0;
    for (int gpus = 1; gpus <= total; gpus++)
        if (t->value[gpus] + t->fill[gpus] > t->value[best] + t->fill[best]) best = gpus;
    for (int gpus = best; gpus > 0; gpus -= t->gang[gpus] >= 0 ? w->gang_size[t->gang[gpus]] : 1)
        count[w->items + (t->gang[gpus] >= 0 ? t->gang[gpus] : w->gangs)]++;
    int gpus = best;
    for (int m = g->machines - 1; m >= 0; m--) {
        int left = t->left[(size_t)m * (total + 1) + gpus];
        count_machine(s, m, left, count);
        gpus -= left;
    }
    return t->value[best] + t->fill[best];
}

static void set_scale(Scale *scale, const Group *group, const Weights *weights, int largest) {
    scale->group = group;
    scale->weights = weights;
    for (int i = 0; i < weights->items; i++) scale->any_inside |= weights->in_slot[i];
    fill_sack(weights, 1, largest, &scale->inside);
    fill_sack(weights, 0, largest, &scale->anywhere);
}

int room_values(const Group *group, const Weights *weights, int width, int64_t *value) {
    int largest = 0, in_slots;
    for (int m = 0; m < group->machines; m++)
        if (group->free[m] > largest) largest = group->free[m];
    Scale *scale = largest <= MAX_FREE ? calloc(1, sizeof *scale) : NULL;
    if (!scale) return 0;
    set_scale(scale, group, weights, largest);
    for (int m = 0; m < group->machines; m++)
        for (int room = 0; room <= group->free[m]; room++)
            value[(size_t)m * width + room] = best_on_machine(scale, m, room, &in_slots);
    free(scale);
    return 1;
}

int64_t weigh(const Group *group, const Weights *weights, int32_t *count) {
    int total = 0, largest = 0;
    for (int m = 0; m < group->machines; m++) {
        total += group->free[m];
        if (group->free[m] > largest) largest = group->free[m];
    }
    memset(count, 0, sizeof(int32_t) * (weights->items + weights->gangs + 1 + group->machines));
    Scale *scale = largest <= MAX_FREE ? calloc(1, sizeof *scale) : NULL;
    Tables tables = {malloc(sizeof(int64_t) * (total + 1)), malloc(sizeof(int64_t) * (total + 1)),
                     malloc(sizeof(int32_t) * (total + 1)), malloc(sizeof(int16_t) * (total + 1) * (group->machines + 1))};
    int64_t most = -1;
    if (scale && tables.value && tables.fill && tables.gang && tables.left) {
        set_scale(scale, group, weights, largest);
        most = weigh_with(scale, &tables, total, count);
    }
    free(scale);
    free(tables.value);
    free(tables.fill);
    free(tables.gang);
    free(tables.left);
    return most;
}
