/* The limits of the packing; a test compares them with those of tests/reference_packing.py. */
#ifndef THEMIS_AGENT_LIMITS_H
#define THEMIS_AGENT_LIMITS_H

enum { MOST_PASSES = 8, FEW_JOBS = 8, MOST_STEPS = 20000, MOST_CHANGES = 40, FEW_ON_A_GANG = 8, MOST_SHAKEN = 3000, SHAKEN = 4 };
static const double NEAR_ENOUGH = 1.001, WORTH_PAIRS = 1.004, LESS = 0.999999999;

enum { MOST_FILLING = 100, MOST_FILLS = 16, FILLING_ROUNDS = 4, FILLING_WAYS = 3 };
static const double FIRST_SOONER = 0.01, LEAST_SOONER = 0.001, PRICE_STEP = 0.1;
static const double PATIENCE[] = {1.0, 0.25, 0.1}, LEAN[] = {0.0, 0.5, 0.1};

#endif
