/* Depth-first search over machines, rack by rack, with a memory of dead ends.
 *
 * On entering a rack the search chooses the rack gangs that it hosts: those in single GPUs only reserve that many GPUs
 * of the rack, the others add their units to the items that must go on its machines. Each machine then takes a pattern
 * of items, largest first. Cluster gangs count as their units. Those in units of one GPU do not count: they
 * fit on any free GPUs, so only their total is checked.
 */
#include "placement_search.h"
#include "hash.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_KINDS = 48, MAX_SLOTS = 64, DEAD_SLOTS = 1 << 14 };
enum { MAX_DEPTH = 16384, SLOT_TRIES_A_STEP = 64 };

typedef struct {
    int32_t size, in_slot, rack_kind; /* rack_kind: the kind of rack gang that it is a unit of, else -1 */
    int32_t kind;                     /* what part[] names */
} ItemClass;

typedef struct {
    const Cluster *cluster;
    int kinds, items, most_steps, steps, slot_tries, width;
    const int32_t *kind;
    ItemClass item[MAX_KINDS];   /* largest first, slot items before others of their size */
    int32_t left[MAX_KINDS];     /* items still to place, by item class */
    int32_t gangs[MAX_KINDS];    /* rack gangs still to host, by kind */
    int32_t *order, *rack_end;    /* machines rack by rack, largest first; by place: one past the rack's last place */
    int32_t *free_after;          /* free GPUs at and after a place */
    int32_t *parts_after;         /* by place and item class: parts of that size that fit at and after it */
    int32_t *dead, *dead_used;    /* dead ends: vectors of `width` numbers, open addressing */
    int32_t dead_count;
    Part *part;
    int32_t parts;
} Search;

static int visit_place(Search *s, int place, int reserve);

static int is_rack_gang(const Search *s, int kind) {
    return s->kind[3 * kind] == LEVEL_RACK && s->kind[3 * kind + 2] < s->kind[3 * kind + 1];
}

static void read_state(const Search *s, int place, int reserve, int32_t *state) {
    state[0] = place;
    state[1] = reserve;
    memcpy(state + 2, s->left, sizeof(int32_t) * s->items);
    memcpy(state + 2 + s->items, s->gangs, sizeof(int32_t) * s->kinds);
}

static uint32_t dead_slot(const Search *s, const int32_t *state, int *found) {
    uint32_t at = (uint32_t)hash_of(state, s->width) & (DEAD_SLOTS - 1);
    while (s->dead_used[at]) {
        if (!memcmp(s->dead + (size_t)at * s->width, state, sizeof(int32_t) * s->width)) {
            *found = 1;
            return at;
        }
        at = (at + 1) & (DEAD_SLOTS - 1);
    }
    *found = 0;
    return at;
}

static __attribute__((noinline)) int is_dead(const Search *s, int place, int reserve) {
    int32_t state[2 + 2 * MAX_KINDS];
    int known;
    read_state(s, place, reserve, state);
    dead_slot(s, state, &known);
    return known;
}

static __attribute__((noinline)) void remember_dead(Search *s, int place, int reserve) {
    if (s->dead_count >= DEAD_SLOTS / 2) return;
    int32_t state[2 + 2 * MAX_KINDS];
    int known;
    read_state(s, place, reserve, state);
    uint32_t at = dead_slot(s, state, &known);
    memcpy(s->dead + (size_t)at * s->width, state, sizeof(int32_t) * s->width);
    s->dead_used[at] = 1;
    s->dead_count++;
}

/* Free GPUs and parts of each size that the machines from `place` on still have must do for what is left. */
static int hopeless(const Search *s, int place, int reserve) {
    int gpus = reserve;
    for (int i = 0; i < s->items; i++) gpus += s->left[i] * s->item[i].size;
    for (int k = 0; k < s->kinds; k++)
        if (s->gangs[k]) gpus += s->gangs[k] * s->kind[3 * k + 1];
    if (gpus > s->free_after[place]) return 1;
    for (int i = 0; i < s->items; i++) {
        int parts = 0;
        for (int j = 0; j <= i; j++) parts += s->left[j] * (s->item[j].size / s->item[i].size);
        if (parts > s->parts_after[(size_t)place * s->items + i]) return 1;
    }
    return 0;
}

/* Whether slot items (counts by class) pack into these slots, largest first, each slot tried once per room.
 *
 * Tries count as steps too, a few at a time; past the limit the answer means nothing, and neither does the search's. */
static int slots_hold(Search *s, int32_t *room, int slots, int32_t *count, int from) {
    while (from < s->items && (!s->item[from].in_slot || !count[from])) from++;
    if (from == s->items) return 1;
    if (++s->slot_tries % SLOT_TRIES_A_STEP == 0) s->steps++;
    if (s->steps > s->most_steps) return 0;
    count[from]--;
    for (int slot = 0; slot < slots; slot++) {
        int tried = room[slot] < s->item[from].size;
        for (int before = 0; before < slot && !tried; before++) tried = room[before] == room[slot];
        if (tried) continue;
        room[slot] -= s->item[from].size;
        if (slots_hold(s, room, slots, count, from)) {
            room[slot] += s->item[from].size;
            count[from]++;
            return 1;
        }
        room[slot] += s->item[from].size;
    }
    count[from]++;
    return 0;
}

/* Whether the slots of a machine hold the pattern's slot items up to a class. Kept out of the frames that recurse. */
static __attribute__((noinline)) int slots_of_machine_hold(Search *s, int machine, const int32_t *pattern, int upto) {
    const Cluster *c = s->cluster;
    int32_t room[MAX_SLOTS], count[MAX_KINDS];
    int slots = 0, any = 0;
    for (int i = 0; i < s->items; i++) {
        count[i] = i <= upto && s->item[i].in_slot ? pattern[i] : 0;
        any |= count[i];
    }
    if (!any) return 1;
    for (int slot = c->slot_start[machine]; slot < c->slot_start[machine + 1]; slot++)
        room[slots++] = c->slot_free[slot];
    return slots_hold(s, room, slots, count, 0);
}

/* Whether a machine has unreserved space for another item: moving the item here would cost nothing. */
static int wasteful(const Search *s, int room, int reserve) {
    for (int i = 0; i < s->items; i++)
        if (s->left[i] && !s->item[i].in_slot && s->item[i].size <= room - reserve) return 1;
    return 0;
}

/* Patterns of one machine, item class by item class, as many as fit first. */
static int fill_machine(Search *s, int place, int item, int32_t *pattern, int room, int reserve) {
    int machine = s->order[place];
    while (item < s->items && (!s->left[item] || s->item[item].size > room)) pattern[item++] = 0;
    if (item == s->items) {
        if (wasteful(s, room, reserve) || s->steps++ > s->most_steps) return 0;
        /* GPUs that the rack still owes to its gangs come first out of what this machine leaves over. */
        int owed = reserve > room ? reserve - room : 0;
        int before = s->parts;
        for (int i = 0; i < s->items; i++)
            for (int n = 0; n < pattern[i]; n++)
                s->part[s->parts++] = (Part){s->item[i].kind, machine, s->item[i].in_slot ? PART_IN_SLOT : PART_ON_MACHINE, s->item[i].size};
        if (visit_place(s, place + 1, owed)) return 1;
        s->parts = before;
        return 0;
    }
    int most = room / s->item[item].size;
    if (most > s->left[item]) most = s->left[item];
    for (int count = most; count >= 0; count--) {
        pattern[item] = count;
        if (s->item[item].in_slot && count && !slots_of_machine_hold(s, machine, pattern, item)) continue;
        s->left[item] -= count;
        int found = fill_machine(s, place, item + 1, pattern, room - count * s->item[item].size, reserve);
        s->left[item] += count;
        if (found || s->steps > s->most_steps) return found;
    }
    return 0;
}

/* Rack gangs that the rack at `place` hosts, kind by kind, as many as fit first. */
static int host_gangs(Search *s, int place, int kind, int room, int reserve) {
    while (kind < s->kinds && !(is_rack_gang(s, kind) && s->gangs[kind])) kind++;
    if (kind == s->kinds) {
        int32_t pattern[MAX_KINDS];
        return fill_machine(s, place, 0, pattern, s->cluster->free[s->order[place]], reserve);
    }
    int gpus = s->kind[3 * kind + 1], unit = s->kind[3 * kind + 2], item = -1;
    for (int i = 0; i < s->items; i++)
        if (s->item[i].rack_kind == kind) item = i;
    int most = room / gpus < s->gangs[kind] ? room / gpus : s->gangs[kind];
    for (int count = most; count >= 0; count--) {
        int before = s->parts;
        for (int n = 0; n < count; n++) s->part[s->parts++] = (Part){kind, s->order[place], PART_IN_RACK, gpus};
        s->gangs[kind] -= count;
        if (item >= 0) s->left[item] += count * (gpus / unit);
        int found = host_gangs(s, place, kind + 1, room - count * gpus, reserve + (item < 0 ? count * gpus : 0));
        if (item >= 0) s->left[item] -= count * (gpus / unit);
        s->gangs[kind] += count;
        if (!found) s->parts = before;
        if (found || s->steps > s->most_steps) return found;
    }
    return 0;
}

static int all_placed(const Search *s) {
    for (int i = 0; i < s->items; i++)
        if (s->left[i]) return 0;
    for (int k = 0; k < s->kinds; k++)
        if (s->gangs[k]) return 0;
    return 1;
}

/* The search from a place on; `reserve`: GPUs that the rack of the place before still owes to its gangs. */
static int visit_place(Search *s, int place, int reserve) {
    int machines = s->cluster->machines;
    int starts = place == machines || place == 0 || s->rack_end[place - 1] == place;
    if (starts && place > 0) {
        if (reserve) return 0;
        for (int i = 0; i < s->items; i++)
            if (s->item[i].rack_kind >= 0 && s->left[i]) return 0;
    }
    if (!reserve && all_placed(s)) return 1;
    if (place == machines || hopeless(s, place, reserve)) return 0;
    if (reserve > s->free_after[place] - s->free_after[s->rack_end[place]]) return 0;
    if (is_dead(s, place, reserve)) return 0;
    int32_t pattern[MAX_KINDS];
    int found = starts ? host_gangs(s, place, 0, s->free_after[place] - s->free_after[s->rack_end[place]], 0)
                       : fill_machine(s, place, 0, pattern, s->cluster->free[s->order[place]], reserve);
    if (!found && s->steps <= s->most_steps) remember_dead(s, place, reserve);
    return found;
}

static void add_item(Search *s, int kind, int size, int in_slot, int rack_kind, int count) {
    int at = s->items++;
    for (; at > 0 && (s->item[at - 1].size < size || (s->item[at - 1].size == size && s->item[at - 1].in_slot < in_slot));
         at--) {
        s->item[at] = s->item[at - 1];
        s->left[at] = s->left[at - 1];
    }
    s->item[at] = (ItemClass){size, in_slot, rack_kind, kind};
    s->left[at] = count;
}

static void list_items(Search *s, const int32_t *count) {
    for (int k = 0; k < s->kinds; k++) {
        int level = s->kind[3 * k], gpus = s->kind[3 * k + 1], unit = s->kind[3 * k + 2];
        if (!count[k]) continue;
        if (is_rack_gang(s, k)) {
            s->gangs[k] = count[k];
            if (unit > 1) add_item(s, k, unit, 0, k, 0);
        } else if (level == LEVEL_SLOT) {
            add_item(s, k, gpus, 1, -1, count[k]);
        } else if (unit > 1 || level == LEVEL_MACHINE) {
            add_item(s, k, unit, 0, -1, count[k] * (gpus / unit));
        }
    }
}

static int by_rack_and_size(const Cluster *c, int a, int b) {
    if (c->rack[a] != c->rack[b]) return c->rack[a] < c->rack[b];
    if (c->free[a] != c->free[b]) return c->free[a] > c->free[b];
    return a < b;
}

static void order_machines(Search *s) {
    const Cluster *c = s->cluster;
    for (int m = 0; m < c->machines; m++) {
        int at = m;
        for (; at > 0 && by_rack_and_size(c, m, s->order[at - 1]); at--) s->order[at] = s->order[at - 1];
        s->order[at] = m;
    }
    for (int place = c->machines - 1; place >= 0; place--) {
        int last = place == c->machines - 1 || c->rack[s->order[place]] != c->rack[s->order[place + 1]];
        s->rack_end[place] = last ? place + 1 : s->rack_end[place + 1];
        s->free_after[place] = s->free_after[place + 1] + c->free[s->order[place]];
        for (int i = 0; i < s->items; i++)
            s->parts_after[(size_t)place * s->items + i] =
                s->parts_after[(size_t)(place + 1) * s->items + i] + c->free[s->order[place]] / s->item[i].size;
    }
}

int fit(const Cluster *cluster, int kinds, const int32_t *kind, const int32_t *count, int most_steps, Part *part,
        int32_t *parts) {
    /* The search recurses over machines, and on each over the sizes asked for. */
    int sizes = 2;
    for (int k = 0; k < kinds; k++) sizes += count[k] > 0;
    if (kinds > MAX_KINDS || cluster->machines > MAX_DEPTH / sizes) return FIT_UNKNOWN;
    for (int m = 0; m < cluster->machines; m++)
        if (cluster->slot_start[m + 1] - cluster->slot_start[m] > MAX_SLOTS) return FIT_UNKNOWN;
    Search *s = calloc(1, sizeof *s);
    if (!s) return FIT_NO_MEMORY;
    int gpus = 0, free_gpus = 0, result = FIT_NO_MEMORY;
    for (int k = 0; k < kinds; k++) gpus += count[k] * kind[3 * k + 1];
    for (int m = 0; m < cluster->machines; m++) free_gpus += cluster->free[m];
    s->cluster = cluster;
    s->kinds = kinds;
    s->kind = kind;
    s->most_steps = most_steps;
    s->part = part;
    list_items(s, count);
    s->width = 2 + s->items + kinds;
    size_t places = cluster->machines + 1;
    s->order = malloc(sizeof(int32_t) * places);
    s->rack_end = calloc(places, sizeof(int32_t));
    s->free_after = calloc(places, sizeof(int32_t));
    s->parts_after = calloc(places * (s->items + 1), sizeof(int32_t));
    s->dead = malloc(sizeof(int32_t) * DEAD_SLOTS * s->width);
    s->dead_used = calloc(DEAD_SLOTS, sizeof(int32_t));
    if (s->order && s->rack_end && s->free_after && s->parts_after && s->dead && s->dead_used) {
        order_machines(s);
        int found = gpus <= free_gpus && visit_place(s, 0, 0);
        result = found ? FIT_YES : s->steps > s->most_steps ? FIT_UNKNOWN : FIT_NO;
        *parts = s->parts;
    }
    void *all[] = {s->order, s->rack_end, s->free_after, s->parts_after, s->dead, s->dead_used, s};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
    return result;
}
