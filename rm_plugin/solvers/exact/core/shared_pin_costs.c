/* Costs of shared pins beyond their shares (pin_shares.c), bidder by bidder.
 *
 * Let t be a machine's table, and P the GPUs pinned there so far. The final use is at least phi(P) plus the shares of
 * the bidders to come, with phi(P) the minimum of t(P + F) - share(F) over what they may pin, F. A state counts phi(P),
 * so it is never dropped wrongly. With no bidder to come phi is t. */
#include "shared_pin_costs.h"

#include <stdlib.h>
#include <string.h>

int open_charges(Charges *charges, const Problem *problem) {
    *charges = (Charges){.problem = problem};
    charges->start = malloc(sizeof(int32_t) * (problem->bidders + 2));
    charges->opens = malloc(sizeof(int32_t) * (problem->machines + 1));
    charges->closes = malloc(sizeof(int32_t) * (problem->machines + 1));
    return charges->start && charges->opens && charges->closes;
}

void close_charges(Charges *charges) {
    void *all[] = {charges->event, charges->start, charges->opens, charges->closes, charges->table};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
}

static int add_event(Charges *charges, int machine) {
    if (charges->events == charges->room) {
        int room = charges->room ? charges->room * 2 : 64;
        Event *event = realloc(charges->event, sizeof(Event) * room);
        if (!event) return 0;
        charges->event = event;
        charges->room = room;
    }
    charges->event[charges->events++] = (Event){.machine = machine};
    return 1;
}

static int find_events(Charges *charges, const Offer *offer) {
    const Problem *p = charges->problem;
    charges->events = 0;
    for (int m = 0; m < p->machines; m++) charges->opens[m] = charges->closes[m] = -1;
    for (int s = 0; s < offer->stages; s++) {
        charges->start[s] = charges->events;
        int bidder = offer->order[s];
        for (int c = offer->start[bidder]; c < offer->start[bidder + 1]; c++) {
            int row = offer->option[c].row;
            if (row < 0) continue;
            for (int pin = p->pin_start[row]; pin < p->pin_start[row + 1]; pin++) {
                int m = p->pin_machine[pin];
                if (charges->closes[m] == s || !p->charged[m]) continue;
                if (charges->opens[m] < 0) charges->opens[m] = s;
                charges->closes[m] = s;
                if (!add_event(charges, m)) return 0;
            }
        }
    }
    charges->start[offer->stages] = charges->events;
    return 1;
}

static size_t cells_of(const Problem *p, int machine) {
    return (size_t)p->resources * (p->machine_free[machine] + 1);
}

/* Offsets of the tables of events: those of a machine in sequence, the last one the machine's own table. */
static int place_tables(Charges *charges) {
    const Problem *p = charges->problem;
    size_t size = 0;
    for (int m = 0; m < p->machines; m++) {
        if (charges->opens[m] < 0) continue;
        for (int e = charges->start[charges->opens[m]]; e < charges->start[charges->closes[m] + 1]; e++) {
            if (charges->event[e].machine != m) continue;
            charges->event[e].before = size;
            size += cells_of(p, m);
            charges->event[e].after = size;
        }
        size += cells_of(p, m);
    }
    if (size > charges->size) {
        int32_t *table = realloc(charges->table, sizeof(int32_t) * size);
        if (!table) return 0;
        charges->table = table;
        charges->size = size;
    }
    return 1;
}

static void lower(const Charges *charges, const Event *event, int pin, const unsigned char *counted) {
    const Problem *p = charges->problem;
    int width = p->machine_free[event->machine] + 1, gpus = p->pin_gpus[pin];
    for (int k = 0; k < p->resources; k++) {
        if (!counted[k]) continue;
        int32_t *before = charges->table + event->before + (size_t)k * width;
        const int32_t *after = charges->table + event->after + (size_t)k * width;
        int32_t share = p->least[(size_t)pin * p->resources + k];
        for (int pinned = 0; pinned + gpus < width; pinned++)
            if (after[pinned + gpus] - share < before[pinned]) before[pinned] = after[pinned + gpus] - share;
    }
}

int lay_out_charges(Charges *charges, const Offer *offer, const unsigned char *counted) {
    const Problem *p = charges->problem;
    if (!find_events(charges, offer) || !place_tables(charges)) return 0;
    for (int s = offer->stages - 1; s >= 0; s--)
        for (int e = charges->start[s]; e < charges->start[s + 1]; e++) {
            const Event *event = &charges->event[e];
            int m = event->machine, bidder = offer->order[s];
            size_t cells = cells_of(p, m);
            if (charges->closes[m] == s)
                memcpy(charges->table + event->after, p->table + p->table_start[m], sizeof(int32_t) * cells);
            memcpy(charges->table + event->before, charges->table + event->after, sizeof(int32_t) * cells);
            for (int c = offer->start[bidder]; c < offer->start[bidder + 1]; c++) {
                int pin = pin_on(p, offer->option[c].row, m);
                if (pin >= 0) lower(charges, event, pin, counted);
            }
        }
    return 1;
}

int32_t dearest_charge(const Charges *charges, const Event *event, int k, int pin) {
    const Problem *p = charges->problem;
    int most_pinned = p->machine_free[event->machine] - (pin < 0 ? 0 : p->pin_gpus[pin]);
    int32_t dearest = 0;
    for (int pinned = 0; pinned <= most_pinned; pinned++) {
        int32_t each = charge(charges, event, k, pinned, pin);
        if (each > dearest) dearest = each;
    }
    return dearest;
}
