#include <stdlib.h>
#include <string.h>

#include "best_fit.h"

typedef struct {
    const Cluster *cluster;
    int32_t *free, *slot_free;
    int32_t size;                           /* the size that `tightness` is of */
    int64_t *tightness;                     /* by machine: see `tightness_of` */
    int last;                               /* the machine of the last gang if that took a slot of it, else -1 */
    int32_t no_slot, no_machine;            /* sizes from which on none holds a gang: GPUs are only taken */
    int32_t *member_start, *member;         /* machines by rack */
    int32_t *units_in;                      /* scratch: free units by rack */
    int sparing;                            /* gangs in racks take what spoils the least for the others */
    int32_t *part_size, part_sizes;         /* of what must stay whole on one machine */
    int64_t *spoilt;                        /* by rack: what the next gang of `asked_units` would spoil, or -1 */
    int32_t asked_units, asked_unit;
    int32_t *left, *taken;                  /* scratch: by place of a machine in its rack */
    Part *part;
    int32_t parts;
} Packer;

/* The tightest slot of a machine that holds `gpus` GPUs, or -1; `room` receives its free GPUs. Some of the machine's GPUs
 * may be pinned in slots that are not known, so a slot has at most as many free GPUs as the machine. */
static int tightest_slot(const Packer *p, int m, int gpus, int *room) {
    int best = -1;
    for (int slot = p->cluster->slot_start[m]; slot < p->cluster->slot_start[m + 1]; slot++) {
        int here = p->slot_free[slot] < p->free[m] ? p->slot_free[slot] : p->free[m];
        if (here < gpus || (best >= 0 && here >= *room)) continue;
        best = slot;
        *room = here;
    }
    return best;
}

/* The order in which machines give a slot for `size` GPUs: its free GPUs, then the machine's. */
static int64_t tightness_of(const Packer *p, int m) {
    int room = 0;
    return tightest_slot(p, m, p->size, &room) < 0 ? INT64_MAX : (int64_t)room << 32 | p->free[m];
}

/* Takes GPUs of a machine out of slots: of the tightest that holds them, else of the smallest first. */
static void drain_slots(Packer *p, int m, int gpus) {
    while (gpus) {
        int slot = -1;
        for (int s = p->cluster->slot_start[m]; s < p->cluster->slot_start[m + 1]; s++) {
            int free = p->slot_free[s];
            if (!free) continue;
            if (slot < 0) {
                slot = s;
                continue;
            }
            int fits = free >= gpus, fits_too = p->slot_free[slot] >= gpus;
            if (fits != fits_too ? fits : free < p->slot_free[slot]) slot = s;
        }
        int taken = p->slot_free[slot] < gpus ? p->slot_free[slot] : gpus;
        p->slot_free[slot] -= taken;
        gpus -= taken;
    }
}

static void take(Packer *p, int gang, int m, int gpus, int slot) {
    if (slot >= 0)
        p->slot_free[slot] -= gpus;
    else
        drain_slots(p, m, gpus);
    p->free[m] -= gpus;
    p->tightness[m] = tightness_of(p, m);
    p->last = -1;
    int number = slot >= 0 ? slot - p->cluster->slot_start[m] : -1;
    p->part[p->parts++] = (Part){gang, m, number, gpus};
}

static int in_slot(Packer *p, int gang, int gpus) {
    int best = -1, room = 0;
    int64_t tightest = INT64_MAX;
    if (gpus >= p->no_slot) return 0;
    if (p->size != gpus) {
        p->size = gpus;
        p->last = -1;
        for (int m = 0; m < p->cluster->machines; m++) p->tightness[m] = tightness_of(p, m);
    }
    /* The slot that gave the last gang of this size has become tighter still, if it holds one more. */
    if (p->last >= 0 && p->tightness[p->last] < INT64_MAX)
        best = p->last;
    else
        for (int m = 0; m < p->cluster->machines; m++)
            if (p->tightness[m] < tightest) tightest = p->tightness[best = m];
    if (best < 0) {
        p->no_slot = gpus;
        return 0;
    }
    int slot = tightest_slot(p, best, gpus, &room);
    take(p, gang, best, gpus, slot);
    if (p->slot_free[slot] >= gpus) p->last = best;
    return 1;
}

static int on_machine(Packer *p, int gang, int gpus) {
    int best = -1;
    if (gpus >= p->no_machine) return 0;
    for (int m = 0; m < p->cluster->machines; m++)
        if (p->free[m] >= gpus && (best < 0 || p->free[m] < p->free[best])) best = m;
    if (best < 0) {
        p->no_machine = gpus;
        return 0;
    }
    take(p, gang, best, gpus, -1);
    return 1;
}

/* The holder that takes the next units: the one that holds all `wanted` most tightly, else the one with the most; ties:
 * the smaller number. Returns -1 if all are empty. */
static int next_holder(const int32_t *units, int holders, int wanted) {
    int best = -1;
    for (int n = 0; n < holders; n++) {
        if (!units[n]) continue;
        int fits = units[n] >= wanted, fits_too = best >= 0 && units[best] >= wanted;
        if (best < 0 || (fits != fits_too ? fits : fits ? units[n] < units[best] : units[n] > units[best])) best = n;
    }
    return best;
}

static void fill_in_rack(Packer *p, int gang, int rack, int units, int unit) {
    int first = p->member_start[rack], count = p->member_start[rack + 1] - first;
    for (int n = 0; n < count; n++) p->left[n] = p->free[p->member[first + n]] / unit;
    while (units) {
        int best = next_holder(p->left, count, units);
        int taken = p->left[best] < units ? p->left[best] : units;
        take(p, gang, p->member[first + best], taken * unit, -1);
        p->left[best] -= taken;
        units -= taken;
    }
}

/* In the rack that holds all units most tightly; of several racks, if it may span them, the largest whole. */
static int in_racks(Packer *p, int gang, int units, int unit, int may_span) {
    int64_t total = 0;
    memset(p->units_in, 0, sizeof(int32_t) * p->cluster->racks);
    for (int m = 0; m < p->cluster->machines; m++)
        p->units_in[p->cluster->rack[m]] += unit == 1 ? p->free[m] : p->free[m] / unit;
    for (int rack = 0; rack < p->cluster->racks; rack++) total += p->units_in[rack];
    if (total < units) return 0;
    while (units) {
        int rack = next_holder(p->units_in, p->cluster->racks, units), here = p->units_in[rack];
        if (here < units && !may_span) return 0;
        if (here > units) here = units;
        fill_in_rack(p, gang, rack, here, unit);
        p->units_in[rack] -= here;
        units -= here;
    }
    return 1;
}

/* GPUs of parts that a machine with `free` GPUs loses when a unit is taken from it. */
static int64_t spoils(const Packer *p, int free, int unit) {
    int64_t gpus = 0;
    for (int n = 0; n < p->part_sizes; n++)
        if (p->part_size[n] > unit) gpus += (int64_t)p->part_size[n] * (free / p->part_size[n] - (free - unit) / p->part_size[n]);
    return gpus;
}

/* Takes units in one rack one by one, each where it spoils the least (with `gang` < 0 it only returns how much). */
static int64_t take_sparingly(Packer *p, int gang, int rack, int units, int unit) {
    int64_t spoilt = 0;
    int first = p->member_start[rack], count = p->member_start[rack + 1] - first;
    int32_t *left = p->left + first, *taken = p->taken + first;
    for (int n = 0; n < count; n++) left[n] = p->free[p->member[first + n]];
    memset(taken, 0, sizeof(int32_t) * count);
    for (; units; units--) {
        int best = -1;
        int64_t least = 0;
        for (int n = 0; n < count; n++) {
            if (left[n] < unit) continue;
            int64_t here = spoils(p, left[n], unit);
            if (best >= 0 && (here > least || (here == least && left[n] >= left[best]))) continue;
            best = n;
            least = here;
        }
        if (best < 0) return -1;
        left[best] -= unit;
        taken[best] += unit;
        spoilt += least;
    }
    for (int n = 0; n < count && gang >= 0; n++)
        if (taken[n]) take(p, gang, p->member[first + n], taken[n], -1);
    return spoilt;
}

/* In the rack where that spoils the least. */
static int in_spared_rack(Packer *p, int gang, int gpus, int unit) {
    int units = gpus / unit, best = -1;
    if (p->asked_units != units || p->asked_unit != unit)
        for (int rack = 0; rack < p->cluster->racks; rack++) p->spoilt[rack] = take_sparingly(p, -1, rack, units, unit);
    p->asked_units = units;
    p->asked_unit = unit;
    for (int rack = 0; rack < p->cluster->racks; rack++)
        if (p->spoilt[rack] >= 0 && (best < 0 || p->spoilt[rack] < p->spoilt[best])) best = rack;
    if (best < 0) return 0;
    take_sparingly(p, gang, best, units, unit);
    p->spoilt[best] = take_sparingly(p, -1, best, units, unit);
    return 1;
}

static int place(Packer *p, int gang, const int32_t *asked) {
    int level = asked[0], gpus = asked[1], unit = asked[2];
    if (level == LEVEL_RACK && p->sparing) return in_spared_rack(p, gang, gpus, unit);
    if (in_slot(p, gang, gpus)) return 1;
    if (level >= LEVEL_MACHINE && on_machine(p, gang, gpus)) return 1;
    return level >= LEVEL_RACK && in_racks(p, gang, gpus / unit, unit, level == LEVEL_CLUSTER);
}

static int open_packer(Packer *p, int gangs) {
    const Cluster *c = p->cluster;
    size_t slots = c->slot_start[c->machines];
    p->free = malloc(sizeof(int32_t) * (c->machines + 1));
    p->slot_free = malloc(sizeof(int32_t) * (slots + 1));
    p->tightness = malloc(sizeof(int64_t) * (c->machines + 1));
    p->member_start = calloc(c->racks + 2, sizeof(int32_t));
    p->member = malloc(sizeof(int32_t) * (c->machines + 1));
    p->units_in = calloc(c->racks + 1, sizeof(int32_t));
    p->part_size = malloc(sizeof(int32_t) * ((size_t)gangs + 1));
    p->spoilt = calloc(c->racks + 1, sizeof(int64_t));
    p->left = malloc(sizeof(int32_t) * (c->machines + 1));
    p->taken = malloc(sizeof(int32_t) * (c->machines + 1));
    if (!p->free || !p->slot_free || !p->tightness || !p->member_start || !p->member || !p->units_in || !p->part_size ||
        !p->spoilt || !p->left || !p->taken)
        return 0;
    memcpy(p->free, c->free, sizeof(int32_t) * c->machines);
    memcpy(p->slot_free, c->slot_free, sizeof(int32_t) * slots);
    for (int m = 0; m < c->machines; m++) p->member_start[c->rack[m] + 2]++;
    for (int rack = 0; rack < c->racks; rack++) p->member_start[rack + 2] += p->member_start[rack + 1];
    for (int m = 0; m < c->machines; m++) p->member[p->member_start[c->rack[m] + 1]++] = m;
    return 1;
}

static void close_packer(Packer *p) {
    void *all[] = {p->free,     p->slot_free, p->tightness, p->member_start, p->member,
                   p->units_in, p->part_size, p->spoilt,    p->left,         p->taken};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
}

static void find_sizes(Packer *p, int gangs, const int32_t *gang) {
    for (int g = 0; g < gangs; g++) {
        int size = gang[3 * g] == LEVEL_SLOT || gang[3 * g] == LEVEL_MACHINE ? gang[3 * g + 1] : gang[3 * g + 2], n = 0;
        while (n < p->part_sizes && p->part_size[n] != size) n++;
        if (n == p->part_sizes) p->part_size[p->part_sizes++] = size;
    }
}

int32_t pack(const Cluster *cluster, int gangs, const int32_t *gang, int sparing, Part *part) {
    Packer packer = {.cluster = cluster, .part = part, .sparing = sparing, .last = -1};
    packer.no_slot = packer.no_machine = INT32_MAX;
    int32_t result = INT32_MIN;
    if (open_packer(&packer, gangs)) {
        find_sizes(&packer, gangs, gang);
        int g = 0;
        while (g < gangs && place(&packer, g, gang + 3 * g)) g++;
        result = g == gangs ? packer.parts : -1 - g;
    }
    close_packer(&packer);
    return result;
}
