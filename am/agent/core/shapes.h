/* Shapes of jobs as Python passes them, and the number of locality levels. */
#ifndef THEMIS_AGENT_SHAPES_H
#define THEMIS_AGENT_SHAPES_H

#include <stdint.h>

enum { LEVELS = 4 };

/* GPUs of the smallest gang, of a task, and of the largest gang; the first and the last are multiples of the second. */
typedef struct {
    int64_t smallest, unit, largest;
} Shape;

#endif
