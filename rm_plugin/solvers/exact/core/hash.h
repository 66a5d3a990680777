/* The hash of a vector of numbers, for open addressing. */
#ifndef THEMIS_HASH_H
#define THEMIS_HASH_H

#include <stdint.h>

static inline uint64_t hash_of(const int32_t *vector, int width) {
    uint64_t hash = 0x9E3779B97F4A7C15ull;
    for (int d = 0; d < width; d++) {
        hash ^= (uint32_t)vector[d];
        hash *= 0xFF51AFD7ED558CCDull;
        hash ^= hash >> 32;
    }
    return hash;
}

#endif
