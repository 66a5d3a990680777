/* Shares of what several bidders' pins on one machine use together. */
#ifndef THEMIS_PIN_SHARES_H
#define THEMIS_PIN_SHARES_H

#include "problem.h"

/* Sets p->least, and p->use with it, for the problem without `skip`, at prices in whole units (NULL: none); 1 if that
 * changed anything, 0 if not, -1: no memory. */
int share_pins(Problem *problem, int skip, const int64_t *price);

#endif
