/* Cliques: sets of rows of which no choice takes two, where the relaxation takes more than one of them. */
#ifndef THEMIS_CLIQUE_H
#define THEMIS_CLIQUE_H

#include "relaxation.h"

/* Adds the most violated cliques, as far as there is room; how many, or -1 without memory. */
int separate_cliques(Relaxation *r, const Basis *b);

#endif
