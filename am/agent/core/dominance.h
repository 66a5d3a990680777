/* Dominance pruning: candidates of a bid that another one makes useless; see am/agent/bids/dominance.py. The reference
 * is in tests/reference_candidates.py. */
#ifndef THEMIS_AGENT_DOMINANCE_H
#define THEMIS_AGENT_DOMINANCE_H

#include <stdint.h>

/* Candidates with what they need and gain, and what another must gain to replace them. */
typedef struct {
    int64_t count, columns;
    const int16_t *needs; /* count x columns */
    const double *gains, *enough;
} Replaceable;

/* Keeps the `first` candidates in `kept`, and appends every other one that none kept before replaces. Returns their
 * number, and stops as soon as it exceeds `cap`; -1 without memory. */
int64_t cover(const Replaceable *candidates, int64_t first, int64_t cap, int64_t *kept);

/* The candidates of a bid with their values and gains, what they need, the GPUs that they ask for (0: never chosen),
 * and pairs in which the second asks for a little less than the first. */
typedef struct {
    int64_t count, columns, pairs;
    const double *values, *gains;
    const int16_t *needs; /* count x columns */
    const int64_t *gpus, *harder, *easier;
} Candidates;

/* Puts the candidates into `kept` that are worth more than the empty bundle and that no other one dominates: those of
 * fewest needs first, of these the largest gains. Returns their number, -1 without memory. */
int64_t undominated(const Candidates *candidates, double empty_value, int64_t *kept);

/* Small changes of a candidate: one gang less of kind `kind`; `key` is the change of its key. */
typedef struct {
    int64_t count;
    const int64_t *kind, *key;
} Changes;

/* Finds the pairs of candidates in which a change turns the harder into the easier one. Returns their number, -1
 * without memory. Candidates are counts of `kinds` kinds with distinct keys; there is space for a pair of each
 * candidate and change. */
int64_t one_step_variants(const int64_t *keys, const int64_t *candidates, int64_t count, int64_t kinds,
                          const Changes *changes, int64_t *harder, int64_t *easier);

#endif
