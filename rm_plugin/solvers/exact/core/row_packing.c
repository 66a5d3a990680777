#include "row_packing.h"

#include <stdlib.h>
#include <string.h>

/* Sets `left` to the free GPUs without those that the rows pin. Returns their sum, or -1 if pins exceed the free GPUs
 * of a machine. */
static int64_t left_beside(const Cluster *cluster, const Chosen *c, int32_t *left) {
    int64_t gpus = 0;
    memcpy(left, cluster->free, sizeof(int32_t) * cluster->machines);
    for (int n = 0; n < c->rows; n++)
        for (int pin = c->pin_start[c->row[n]]; pin < c->pin_start[c->row[n] + 1]; pin++)
            left[c->pin_machine[pin]] -= c->pin_gpus[pin];
    for (int m = 0; m < cluster->machines; m++) {
        if (left[m] < 0) return -1;
        gpus += left[m];
    }
    return gpus;
}

/* Lists gangs in the order of placing, with the kind and the row of each. Sets `one_more` to the kind of the first gang
 * beyond `most`, or to -1. */
static int32_t list_gangs(const Chosen *c, int64_t most, int32_t *gang, int32_t *kind_of, int32_t *owner, int *one_more) {
    int32_t gangs = 0;
    *one_more = -1;
    for (int place = 0; place < c->kinds; place++) {
        int kind = c->order[place];
        for (int n = 0; n < c->rows; n++)
            for (int more = c->counts[(size_t)c->row[n] * c->kinds + kind]; more > 0; more--) {
                if (gangs == most) {
                    *one_more = kind;
                    return gangs;
                }
                memcpy(gang + 3 * (size_t)gangs, c->shape + 3 * (size_t)kind, 3 * sizeof(int32_t));
                kind_of[gangs] = kind;
                owner[gangs++] = c->row[n];
            }
    }
    return gangs;
}

/* Packs the gangs. Returns the number of parts, or -1 - kind of the gang that did not fit. */
static int32_t pack_listed(const Cluster *beside, const Chosen *c, int64_t gpus, int32_t *gang, int32_t *kind_of,
                           int sparing, Part *part, int32_t *owner) {
    int one_more;
    int32_t gangs = list_gangs(c, gpus, gang, kind_of, owner, &one_more);
    int32_t parts = pack(beside, gangs, gang, sparing, part);
    if (parts < 0 && parts != INT32_MIN) return -1 - kind_of[-1 - parts];
    return parts >= 0 && one_more >= 0 ? -1 - one_more : parts;
}

int32_t pack_chosen(const Cluster *cluster, const Chosen *c, int sparing, Part *part, int32_t *owner) {
    int32_t *left = malloc(sizeof(int32_t) * ((size_t)cluster->machines + 1)), result = INT32_MIN;
    if (!left) return result;
    int64_t gpus = left_beside(cluster, c, left);
    int32_t *gang = malloc(sizeof(int32_t) * (3 * (size_t)(gpus > 0 ? gpus : 0) + 3));
    int32_t *kind_of = malloc(sizeof(int32_t) * ((size_t)(gpus > 0 ? gpus : 0) + 1));
    Cluster beside = *cluster;
    beside.free = left;
    if (gang && kind_of)
        result = gpus < 0 ? -1 - c->kinds : pack_listed(&beside, c, gpus, gang, kind_of, sparing, part, owner);
    free(left);
    free(gang);
    free(kind_of);
    return result;
}
