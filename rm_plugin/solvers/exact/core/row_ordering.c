#include "row_ordering.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t gain, tie;
    int32_t gpus, index, row;
} Key;

/* The finaliser of splitmix64: neighbours end far apart. */
static uint64_t mixed(uint64_t number) {
    number = (number + 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
    return (number ^ number >> 27) * 0x94D049BB133111EBull;
}

/* Pairwise summation, as in numpy: the error stays small, and the unit does not depend on the order of additions. */
static double sum_of(const double *number, int count) {
    double sum = 0.0, part[8];
    if (count < 8) {
        for (int n = 0; n < count; n++) sum += number[n];
        return sum;
    }
    if (count > 128) {
        int half = count / 2 - count / 2 % 8;
        return sum_of(number, half) + sum_of(number + half, count - half);
    }
    int n = 8;
    memcpy(part, number, sizeof part);
    for (; n < count - count % 8; n += 8)
        for (int lane = 0; lane < 8; lane++) part[lane] += number[n + lane];
    sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    for (; n < count; n++) sum += number[n];
    return sum;
}

/* Sum of the bidders' best gains, with `rescue` added for those with an empty value of 0. */
static double sum_of_best(const FlatRows *t, const double *gain, int of_size, double rescue, double *best) {
    int some = 0;
    for (int i = 0; i < t->bidders; i++) {
        int first = t->row_start[i], end = t->row_start[i + 1];
        if (first == end) continue;
        double on_top = t->empty[i] == 0.0 ? rescue : 0.0;
        best[some] = -INFINITY;
        for (int row = first; row < end; row++) {
            double here = (of_size ? fabs(gain[row]) : gain[row]) + on_top;
            if (here > best[some]) best[some] = here;
        }
        some++;
    }
    return some ? sum_of(best, some) : 0.0;
}

static void find_gains(const FlatRows *t, double *gain, double *best, Key *key, double *unit) {
    int rescued = 0;
    for (int i = 0; i < t->bidders; i++) {
        double log_empty = t->empty[i] > 0.0 ? log(t->empty[i]) : 0.0;
        for (int row = t->row_start[i]; row < t->row_start[i + 1]; row++) {
            gain[row] = log(t->value[row]) - log_empty;
            rescued |= t->empty[i] == 0.0;
        }
    }
    /* A positive value instead of 0 gains more than everything else together. */
    double rescue = rescued ? 1.0 + 2.0 * sum_of_best(t, gain, 1, 0.0, best) : 0.0;
    double total = sum_of_best(t, gain, 0, rescue, best);
    int digits = t->bits - (int)ceil(log2(total + 1.0));
    *unit = ldexp(1.0, digits < t->finest ? digits : t->finest);
    /* Rounded separately: the rescue's value depends on the market's bidders, but ties between rows must not. */
    int64_t whole = (int64_t)rint(rescue * *unit);
    for (int i = 0; i < t->bidders; i++)
        for (int row = t->row_start[i]; row < t->row_start[i + 1]; row++)
            key[row].gain = (int64_t)rint(gain[row] * *unit) + (t->empty[i] == 0.0 ? whole : 0);
}

/* A digest of 36 bits for each row, from its app and what it asks for. Sums of digests decide ties. */
static void find_digests(const FlatRows *t, const int32_t *counts, uint64_t *pinned, Key *key) {
    for (int pin = 0; pin < t->pins; pin++) {
        const int32_t *p = t->pin + 3 * pin;
        pinned[p[0]] += mixed((uint64_t)p[1] * 65537u + (uint64_t)p[2]);
    }
    for (int i = 0; i < t->bidders; i++)
        for (int row = t->row_start[i]; row < t->row_start[i + 1]; row++) {
            uint64_t digest = (uint64_t)t->app[i];
            for (int kind = 0; kind < t->kinds; kind++)
                digest = mixed(digest + (uint64_t)counts[(size_t)row * t->kinds + kind]);
            key[row].tie = (int64_t)(mixed(digest + pinned[row]) >> 28);
        }
}

static int by_rank(const void *left, const void *right) {
    const Key *a = left, *b = right;
    if (a->gain != b->gain) return a->gain > b->gain ? -1 : 1;
    if (a->gpus != b->gpus) return a->gpus < b->gpus ? -1 : 1;
    if (a->tie != b->tie) return a->tie < b->tie ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static void write_row(const FlatRows *t, const Key *key, const int32_t *counts, const int32_t *pin_start, Ordered *o) {
    int n = o->rows++;
    o->index[n] = key->index;
    o->gain[n] = key->gain;
    o->gpus[n] = key->gpus;
    o->tie[n] = key->tie;
    memcpy(o->counts + (size_t)n * t->kinds, counts + (size_t)key->row * t->kinds, sizeof(int32_t) * t->kinds);
    for (int pin = pin_start[key->row]; pin < pin_start[key->row + 1]; pin++) {
        o->pin_machine[o->pins] = t->pin[3 * pin + 1];
        o->pin_gpus[o->pins++] = t->pin[3 * pin + 2];
    }
    o->pin_start[n + 1] = o->pins;
}

/* The rows that gain something, bidder by bidder, best first. */
static void write_rows(const FlatRows *t, Key *key, const int32_t *counts, const int32_t *pin_start, Ordered *o) {
    o->rows = o->pins = o->alike = 0;
    o->row_start[0] = o->pin_start[0] = 0;
    for (int i = 0; i < t->bidders; i++) {
        int first = t->row_start[i], end = t->row_start[i + 1];
        if (end - first > 1) qsort(key + first, end - first, sizeof *key, by_rank);
        for (int place = first; place < end && key[place].gain > 0; place++) {
            write_row(t, key + place, counts, pin_start, o);
            const Key *before = key + place - 1;
            o->alike |= place > first && before->gain == key[place].gain && before->gpus == key[place].gpus &&
                        before->tie == key[place].tie && o->pin_start[o->rows] > o->pin_start[o->rows - 1];
        }
        o->row_start[i + 1] = o->rows;
    }
}

int order_rows(const FlatRows *t, Ordered *ordered) {
    Key *key = calloc((size_t)t->rows + 1, sizeof *key);
    double *gain = malloc(sizeof *gain * ((size_t)t->rows + 1)), *best = malloc(sizeof *best * ((size_t)t->bidders + 1));
    uint64_t *pinned = calloc((size_t)t->rows + 1, sizeof *pinned);
    int32_t *counts = calloc((size_t)t->rows * t->kinds + 1, sizeof *counts);
    int32_t *pin_start = calloc((size_t)t->rows + 1, sizeof *pin_start);
    int whole = key && gain && best && pinned && counts && pin_start;
    if (whole) {
        for (int cell = 0; cell < t->cells; cell++) {
            const int32_t *c = t->cell + 3 * cell;
            counts[(size_t)c[0] * t->kinds + t->place[c[1]]] += c[2];
        }
        for (int pin = 0; pin < t->pins; pin++) pin_start[t->pin[3 * pin] + 1]++;
        for (int row = 0; row < t->rows; row++) {
            pin_start[row + 1] += pin_start[row];
            key[row].row = row;
            key[row].index = t->index[row];
            key[row].gpus = t->gpus[row];
        }
        find_gains(t, gain, best, key, &ordered->unit);
        find_digests(t, counts, pinned, key);
        write_rows(t, key, counts, pin_start, ordered);
    }
    void *all[] = {key, gain, best, pinned, counts, pin_start};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
    return whole;
}
