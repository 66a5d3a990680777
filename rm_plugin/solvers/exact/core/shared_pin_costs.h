/* The cost of shared pins beyond their shares, charged as the search comes to each bidder. */
#ifndef THEMIS_SHARED_PIN_COSTS_H
#define THEMIS_SHARED_PIN_COSTS_H

#include <stddef.h>

#include "problem.h"

typedef struct {
    int32_t row; /* -1: nothing */
    int64_t loss;
} Option;

/* The options of a pass, and the order of its stages, one a bidder. */
typedef struct {
    const Option *option;
    const int32_t *start; /* by bidder */
    const int32_t *order; /* bidder by stage */
    int stages;
} Offer;

/* A stage whose bidder may pin on a machine. Two tables of [resources * (free + 1)] give the least that P GPUs pinned
 * there before and after the stage use beyond the shares, for any pins of the bidders to come. */
typedef struct {
    int machine;
    size_t before, after;
} Event;

typedef struct {
    const Problem *problem;
    int events, room;
    Event *event;
    int32_t *start;          /* by stage: its first event */
    int32_t *opens, *closes; /* by machine: first and last stage that pins there, -1 for none */
    size_t size;
    int32_t *table;
} Charges;

/* False without memory. */
int open_charges(Charges *charges, const Problem *problem);
void close_charges(Charges *charges);

/* Lays out the events of machines that are `charged`, for resources that are `counted`. */
int lay_out_charges(Charges *charges, const Offer *offer, const unsigned char *counted);

/* A row's pin on a machine, or -1. */
static inline int pin_on(const Problem *p, int row, int machine) {
    for (int pin = row < 0 ? 0 : p->pin_start[row]; row >= 0 && pin < p->pin_start[row + 1]; pin++)
        if (p->pin_machine[pin] == machine) return pin;
    return -1;
}

/* What a pin (-1: none) uses beyond its share, with `pinned` GPUs pinned before. */
static inline int32_t charge(const Charges *charges, const Event *event, int k, int pinned, int pin) {
    const Problem *p = charges->problem;
    size_t at = (size_t)k * (p->machine_free[event->machine] + 1) + pinned;
    int32_t before = charges->table[event->before + at];
    if (pin < 0) return charges->table[event->after + at] - before;
    return charges->table[event->after + at + p->pin_gpus[pin]] - before - p->least[(size_t)pin * p->resources + k];
}

/* The most that `charge` may be, over all GPUs pinned before. */
int32_t dearest_charge(const Charges *charges, const Event *event, int k, int pin);

#endif
