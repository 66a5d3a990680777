/* The most weight that a group of machines can hold, and the pattern that reaches it. */
#ifndef THEMIS_GROUP_CAPACITY_H
#define THEMIS_GROUP_CAPACITY_H

#include <stdint.h>

typedef struct {
    int machines;
    const int32_t *free;       /* [machines]: free GPUs */
    const int32_t *slot_start; /* [machines + 1] */
    const int32_t *slot_free;
    const int32_t *pinned;     /* [machines]: GPUs that a pin takes there, 0 for none */
    const int64_t *pin_weight; /* [machines] */
} Group;

typedef struct {
    int items, gangs;
    const int32_t *size;          /* [items]: stay whole on one machine */
    const int32_t *in_slot;       /* [items]: in one slot of it */
    const int64_t *weight;        /* [items] */
    const int32_t *gang_size;     /* [gangs]: anywhere in the group, in single GPUs */
    const int64_t *gang_weight;   /* [gangs] */
    int64_t single_weight;        /* of one GPU anywhere */
} Weights;

/* Returns the most weight, or -1 without memory. `count` gets how many of each item, then of each gang, then single
 * GPUs, then 1 or 0 for the pin of each machine. */
int64_t weigh(const Group *group, const Weights *weights, int32_t *count);

/* The most weight of items on each machine in `gpus` GPUs, into value[m * width + gpus]; false without memory. */
int room_values(const Group *group, const Weights *weights, int width, int64_t *value);

/* The most weight of gangs and single GPUs in up to `most` GPUs anywhere, into value[0 .. most]; into `gang`, unless it is
 * NULL, the gang added last, -1 for a single GPU. */
void fill_values(const Weights *weights, int most, int64_t *value, int32_t *gang);

#endif
