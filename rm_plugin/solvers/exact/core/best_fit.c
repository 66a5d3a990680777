#include <stdlib.h>
#include <string.h>

#include "best_fit.h"

typedef struct {
    const Cluster *cluster;
    int most_free;
    int32_t *free, *slot_free, *rack_free;
    int32_t *head, *next, *previous;        /* machines by free GPUs, as linked lists */
    uint64_t *some;                         /* a bit for each number of free GPUs that some machine has */
    int32_t *member_start, *member;         /* machines by rack */
    int32_t *room;                          /* scratch: units by rack */
    int32_t *asked, *tightest;              /* by machine: its tightest slot for this size, while asked is not 0 */
    int sparing;                            /* gangs in racks take what spoils the least for the others */
    int32_t *size, sizes;                   /* of what must stay whole on one machine */
    int64_t *spoilt;                        /* by rack: what the next gang of `asked_units` would spoil, or -1 */
    int32_t asked_units, asked_unit;
    int32_t *left, *taken;                  /* scratch: by place of a machine in its rack */
    Part *part;
    int32_t parts;
} Packer;

static void unlink_machine(Packer *p, int m) {
    if (p->previous[m] >= 0)
        p->next[p->previous[m]] = p->next[m];
    else
        p->head[p->free[m]] = p->next[m];
    if (p->next[m] >= 0) p->previous[p->next[m]] = p->previous[m];
    if (p->head[p->free[m]] < 0) p->some[p->free[m] / 64] &= ~(1ull << p->free[m] % 64);
}

static void link_machine(Packer *p, int m) {
    int32_t *head = &p->head[p->free[m]];
    p->previous[m] = -1;
    p->next[m] = *head;
    if (*head >= 0) p->previous[*head] = m;
    *head = m;
    p->some[p->free[m] / 64] |= 1ull << p->free[m] % 64;
}

/* The least number of free GPUs, from `gpus` on, that a machine has; -1 for none. */
static int tightest_free(const Packer *p, int gpus) {
    uint64_t from = ~0ull << gpus % 64;
    for (int word = gpus / 64; word <= p->most_free / 64; word++, from = ~0ull) {
        uint64_t bits = p->some[word] & from;
        if (bits) return word * 64 + __builtin_ctzll(bits);
    }
    return -1;
}

static int slot_room(const Packer *p, int m, int slot) {
    return p->slot_free[slot] < p->free[m] ? p->slot_free[slot] : p->free[m];
}

/* The tightest slot of a machine that holds `gpus` GPUs, or -1. Kept while nothing is taken from the machine:
 * gangs of one size come one after the other, and each is put on one machine of many. */
static int tightest_slot(Packer *p, int m, int gpus) {
    if (p->asked[m] == gpus) return p->tightest[m];
    int best = -1;
    for (int slot = p->cluster->slot_start[m]; slot < p->cluster->slot_start[m + 1]; slot++)
        if (slot_room(p, m, slot) >= gpus && (best < 0 || slot_room(p, m, slot) < slot_room(p, m, best))) best = slot;
    p->asked[m] = gpus;
    p->tightest[m] = best;
    return best;
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
    p->asked[m] = 0;
    unlink_machine(p, m);
    p->free[m] -= gpus;
    link_machine(p, m);
    p->rack_free[p->cluster->rack[m]] -= gpus;
    int number = slot >= 0 ? slot - p->cluster->slot_start[m] : -1;
    p->part[p->parts++] = (Part){gang, m, number, gpus};
}

static int in_slot(Packer *p, int gang, int gpus) {
    int best = -1, best_machine = -1;
    for (int m = 0; m < p->cluster->machines; m++) {
        int slot = p->free[m] >= gpus ? tightest_slot(p, m, gpus) : -1;
        if (slot < 0) continue;
        int tighter = best < 0 || slot_room(p, m, slot) < slot_room(p, best_machine, best);
        int equal = best >= 0 && slot_room(p, m, slot) == slot_room(p, best_machine, best);
        if (tighter || (equal && p->free[m] < p->free[best_machine])) {
            best = slot;
            best_machine = m;
        }
    }
    if (best < 0) return 0;
    take(p, gang, best_machine, gpus, best);
    return 1;
}

static int on_machine(Packer *p, int gang, int gpus) {
    int free = tightest_free(p, gpus);
    if (free < 0) return 0;
    int m = p->head[free];
    take(p, gang, m, gpus, tightest_slot(p, m, gpus));
    return 1;
}

/* Takes units in one rack: whole roomiest machines, the last piece where it fits most tightly. */
static void fill_in_rack(Packer *p, int gang, int rack, int units, int unit) {
    while (units) {
        int best = -1, best_units = 0;
        for (int n = p->member_start[rack]; n < p->member_start[rack + 1]; n++) {
            int here = p->free[p->member[n]] / unit;
            if (!here) continue;
            int fits = here >= units, fits_too = best_units >= units;
            if (best < 0 || (fits != fits_too ? fits : fits ? here < best_units : here > best_units)) {
                best = p->member[n];
                best_units = here;
            }
        }
        int taken = best_units < units ? best_units : units;
        take(p, gang, best, taken * unit, -1);
        units -= taken;
    }
}

static int32_t *units_by_rack(Packer *p, int unit) {
    if (unit == 1) return p->rack_free;
    memset(p->room, 0, sizeof(int32_t) * p->cluster->racks);
    for (int m = 0; m < p->cluster->machines; m++) p->room[p->cluster->rack[m]] += p->free[m] / unit;
    return p->room;
}

static int in_rack(Packer *p, int gang, int gpus, int unit) {
    const int32_t *room = units_by_rack(p, unit);
    int best = -1;
    for (int rack = 0; rack < p->cluster->racks; rack++)
        if (room[rack] >= gpus / unit && (best < 0 || room[rack] < room[best])) best = rack;
    if (best < 0) return 0;
    fill_in_rack(p, gang, best, gpus / unit, unit);
    return 1;
}

/* GPUs of parts that a machine with `free` GPUs loses when a unit is taken from it. */
static int64_t spoils(const Packer *p, int free, int unit) {
    int64_t gpus = 0;
    for (int n = 0; n < p->sizes; n++)
        if (p->size[n] > unit) gpus += (int64_t)p->size[n] * (free / p->size[n] - (free - unit) / p->size[n]);
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

/* As `in_rack`, in the rack where that spoils the least. */
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

static int anywhere(Packer *p, int gang, int gpus, int unit) {
    if (on_machine(p, gang, gpus) || in_rack(p, gang, gpus, unit)) return 1;
    int before = p->parts, units = gpus / unit;
    while (units) {
        const int32_t *room = units_by_rack(p, unit);
        int roomiest = 0;
        for (int rack = 1; rack < p->cluster->racks; rack++)
            if (room[rack] > room[roomiest]) roomiest = rack;
        int here = p->cluster->racks ? room[roomiest] : 0;
        if (!here) {
            p->parts = before;
            return 0;
        }
        if (here > units) here = units;
        fill_in_rack(p, gang, roomiest, here, unit);
        units -= here;
    }
    return 1;
}

static int place(Packer *p, int gang, const int32_t *asked) {
    int level = asked[0], gpus = asked[1], unit = asked[2];
    if (level == LEVEL_SLOT) return in_slot(p, gang, gpus);
    if (level == LEVEL_MACHINE) return on_machine(p, gang, gpus);
    if (level == LEVEL_RACK && p->sparing) return in_spared_rack(p, gang, gpus, unit);
    if (level == LEVEL_RACK) return on_machine(p, gang, gpus) || in_rack(p, gang, gpus, unit);
    return anywhere(p, gang, gpus, unit);
}

static int open_packer(Packer *p) {
    const Cluster *c = p->cluster;
    size_t slots = c->slot_start[c->machines];
    for (int m = 0; m < c->machines; m++)
        if (c->free[m] > p->most_free) p->most_free = c->free[m];
    p->free = malloc(sizeof(int32_t) * (c->machines + 1));
    p->slot_free = malloc(sizeof(int32_t) * (slots + 1));
    p->rack_free = calloc(c->racks + 1, sizeof(int32_t));
    p->room = calloc(c->racks + 1, sizeof(int32_t));
    p->spoilt = calloc(c->racks + 1, sizeof(int64_t));
    p->left = malloc(sizeof(int32_t) * (c->machines + 1));
    p->taken = malloc(sizeof(int32_t) * (c->machines + 1));
    p->head = malloc(sizeof(int32_t) * ((size_t)p->most_free + 1));
    p->some = calloc((size_t)p->most_free / 64 + 1, sizeof(uint64_t));
    p->next = malloc(sizeof(int32_t) * (c->machines + 1));
    p->previous = malloc(sizeof(int32_t) * (c->machines + 1));
    p->asked = calloc(c->machines + 1, sizeof(int32_t));
    p->tightest = malloc(sizeof(int32_t) * (c->machines + 1));
    p->member_start = calloc(c->racks + 2, sizeof(int32_t));
    p->member = malloc(sizeof(int32_t) * (c->machines + 1));
    if (!p->free || !p->slot_free || !p->rack_free || !p->room || !p->head || !p->some || !p->next || !p->previous ||
        !p->asked || !p->tightest || !p->member_start || !p->member || !p->spoilt || !p->size ||
        !p->left || !p->taken)
        return 0;
    memcpy(p->free, c->free, sizeof(int32_t) * c->machines);
    memcpy(p->slot_free, c->slot_free, sizeof(int32_t) * slots);
    for (int free = 0; free <= p->most_free; free++) p->head[free] = -1;
    for (int m = c->machines - 1; m >= 0; m--) {
        link_machine(p, m);
        p->rack_free[c->rack[m]] += c->free[m];
        p->member_start[c->rack[m] + 2]++;
    }
    for (int rack = 0; rack < c->racks; rack++) p->member_start[rack + 2] += p->member_start[rack + 1];
    for (int m = 0; m < c->machines; m++) p->member[p->member_start[c->rack[m] + 1]++] = m;
    return 1;
}

static void close_packer(Packer *p) {
    void *all[] = {p->free,     p->slot_free, p->rack_free, p->room,         p->head, p->next,
                   p->previous, p->asked,     p->tightest,  p->member_start, p->member, p->some, p->spoilt, p->size,
                   p->left,     p->taken};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
}

static void find_sizes(Packer *p, int gangs, const int32_t *gang) {
    for (int g = 0; g < gangs; g++) {
        int size = gang[3 * g] == LEVEL_SLOT || gang[3 * g] == LEVEL_MACHINE ? gang[3 * g + 1] : gang[3 * g + 2], n = 0;
        while (n < p->sizes && p->size[n] != size) n++;
        if (n == p->sizes) p->size[p->sizes++] = size;
    }
}

int32_t pack(const Cluster *cluster, int gangs, const int32_t *gang, int sparing, Part *part) {
    Packer packer = {.cluster = cluster, .part = part, .sparing = sparing};
    int32_t result = INT32_MIN;
    packer.size = malloc(sizeof(int32_t) * ((size_t)gangs + 1));
    if (open_packer(&packer)) {
        find_sizes(&packer, gangs, gang);
        int g = 0;
        while (g < gangs && place(&packer, g, gang + 3 * g)) g++;
        result = g == gangs ? packer.parts : -1 - g;
    }
    close_packer(&packer);
    return result;
}
