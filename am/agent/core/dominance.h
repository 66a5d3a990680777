/* Asks that another makes useless: `plain_neighbours` and `plain_cover` of am/agent/selection.py, of which this is the
 * same in C. */
#ifndef THEMIS_AGENT_DOMINANCE_H
#define THEMIS_AGENT_DOMINANCE_H

#include <stdint.h>

/* Asks with what they need and gain, and what another must gain to stand in for them. */
typedef struct {
    int64_t asks, columns;
    const int16_t *needs; /* asks x columns */
    const double *gains, *enough;
} Asks;

/* How many asks are kept: those in `kept`, so many at first, and all that none kept before stands in for; they are put
 * there behind these. It ends as soon as they are more than `cap`. -1 without memory. */
int64_t cover(const Asks *asks, int64_t first, int64_t cap, int64_t *kept);

/* The candidates of a bid with their values and gains, what they need, the GPUs that they ask for (0: never chosen), and
 * pairs of which the second asks for a little less than the first. */
typedef struct {
    int64_t count, columns, pairs;
    const double *values, *gains;
    const int16_t *needs; /* count x columns */
    const int64_t *gpus, *harder, *easier;
} Candidates;

/* Puts the candidates into `kept` that are worth more than the empty bundle and that no other one dominates: those of
 * fewest needs first, of these the largest gains. Returns their number, -1 without memory. */
int64_t undominated(const Candidates *candidates, double empty_value, int64_t *kept);

/* Small changes of an ask: one gang less of the kind `place`, by which its key changes. */
typedef struct {
    int64_t many;
    const int64_t *place, *key;
} Changes;

/* How many pairs of asks there are of which a change makes the latter of the former; -1 without memory. Asks are counts
 * of so many kinds, told apart by their keys; there is room for a pair of each ask and change. */
int64_t neighbours(const int64_t *keys, const int64_t *asks, int64_t many, int64_t kinds, const Changes *changes,
                   int64_t *harder, int64_t *easier);

#endif
