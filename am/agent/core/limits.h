/* The limits of the packing (docs/design/packing.md). A test compares them with those of tests/reference_packing.py. */
#ifndef THEMIS_AGENT_LIMITS_H
#define THEMIS_AGENT_LIMITS_H

enum {
    MAX_PASSES = 8,      /* ends that MULTIFIT tries: each halves the interval, so 8 leave 1/256 of it */
    FEW_JOBS = 8,        /* at most this many jobs go to branch and bound: ways to place them grow exponentially */
    MAX_STEPS = 20000,   /* of branch and bound: a bid times hundreds of divisions within tens of milliseconds */
    MAX_CHANGES = 40,    /* of one local search: bounds its time; it usually ends earlier, since no change helps */
    FEW_ON_A_GANG = 8,   /* one or two jobs against one or two: at most 36 choices on each of two such gangs */
    MAX_SHAKEN = 3000,   /* random restarts times jobs, for the planner only: it packs few divisions */
    SHAKEN = 4,          /* random exchanges before a restart: few are undone by the search, many lose the packing */
};
static const double NEAR_ENOUGH = 1.001;  /* times the bound: forecasts of ends err by more than 0.1 % */
static const double WORTH_PAIRS = 1.004;  /* times the bound: exchanging pairs takes long, for less than 0.4 % */
static const double LESS = 0.999999999;   /* a change must gain more than rounding errors, or it could be undone */

enum {
    MAX_FILLING = 100,   /* jobs tried for one gang: the search is exponential without it */
    MAX_FILLS = 16,      /* fillings in all, so that close packing takes 1 to 4 ms without looking at a clock */
    FILLING_ROUNDS = 4,  /* fillings for one end by one way, so that prices of jobs left over can work */
    FILLING_WAYS = 3,    /* pairs of PATIENCE and LEAN: which one fits best depends on the jobs */
};
static const double FIRST_SOONER = 0.01;   /* the first end is 1 % before the best: what exchanges leave to be gained */
static const double MIN_SOONER = 0.001;    /* the steps are halved down to the error that NEAR_ENOUGH allows */
static const double PRICE_STEP = 0.1;      /* a job left over counts 10 % more: less needs more rounds, more overshoots */
static const double PATIENCE[] = {1.0, 0.25, 0.1};  /* of the average slack: less packs closer, searches longer */
static const double LEAN[] = {0.0, 0.5, 0.1};       /* how much more long jobs count: they fit worst later */

#endif
