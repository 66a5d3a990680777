/* The limits of packing_plain.py, which a test compares. */
#ifndef THEMIS_AGENT_LIMITS_H
#define THEMIS_AGENT_LIMITS_H

enum { MOST_PASSES = 8, FEW_JOBS = 8, MOST_STEPS = 20000, MOST_CHANGES = 40, FEW_ON_A_GANG = 8, MOST_SHAKEN = 3000, SHAKEN = 4, MOST_FILLING = 2000 };
static const double NEAR_ENOUGH = 1.001, WORTH_PAIRS = 1.004, LESS = 0.999999999;

#endif
