#ifndef THEMIS_ONE_PRICE_H
#define THEMIS_ONE_PRICE_H

#include "core.h"

/* The price of the only resource at which the bound is least, without the bidder `skip`; `price` stays without memory. */
void find_one_price(const Problem *problem, int skip, double *price);

#endif
