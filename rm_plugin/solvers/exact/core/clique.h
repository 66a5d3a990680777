/* Cliques: sets of rows of which no choice takes two, where the relaxation takes more than one of them. */
#ifndef THEMIS_CLIQUE_H
#define THEMIS_CLIQUE_H

#include "relaxation.h"

/* Adds violated cliques, those of what the relaxation takes most of first, as far as there is room and time.
 *
 * How many, or -1 without memory. */
int separate_cliques(Relaxation *r, const Basis *b, double deadline_s);

#endif
