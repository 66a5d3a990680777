/* The limits of packing.py, which a test compares. */
#ifndef THEMIS_AGENT_LIMITS_H
#define THEMIS_AGENT_LIMITS_H

enum { MOST_PASSES = 8, FEW_JOBS = 8, MOST_STEPS = 20000 };
static const double NEAR_ENOUGH = 1.001;

#endif
