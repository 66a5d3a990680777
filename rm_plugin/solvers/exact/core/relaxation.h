/* The linear relaxation of a market of tables, solved by a dual simplex from wherever it was left.
 *
 * Constraints: a row a bidder, the free GPUs of every machine, then cliques: rows of which a choice takes one at most.
 * Variables: the rows, then what every constraint leaves over; what a bidder's leaves over is the option of no row. An
 * option that is not `alive` is held at 0. Floats steer only: what is proven is proven by `bound_of` in whole numbers.
 */
#ifndef THEMIS_RELAXATION_H
#define THEMIS_RELAXATION_H

#include <stddef.h>

#include "tables.h"

typedef struct {
    const Tables *tables;
    int constraints, most_constraints, cliques;
    int32_t *start;  /* [rows + 1]: what each row uses of the constraints that are no bidder's */
    int32_t *index;
    int32_t *many;
    double *gain;    /* [rows], of 1.0 */
    int32_t *right;  /* [constraints] */
    int32_t *clique_start, *clique_row; /* [cliques + 1], and the rows of each */
    int clique_room;
    int64_t dearest; /* no price is higher */
    /* Scratch. */
    double *pivot, *entering, *dual;    /* [constraints] */
    double *slope;                      /* [variables] */
    int64_t *price, *best, *margin;     /* [constraints], [bidders], [rows] */
} Relaxation;

/* A basis and what is alive, in one block, so that it is copied at once. */
typedef struct {
    int lives, constraints;
    double value;         /* of the basis */
    double *inverse;      /* [constraints * constraints] */
    double *level;        /* [constraints]: of the basic variables */
    double *reduced;      /* [variables] */
    int32_t *basic;       /* [constraints] */
    int32_t *live;        /* [lives]: variables that are alive, ascending */
    int32_t *options;     /* [bidders]: how many are alive, with the option of no row */
    unsigned char *alive; /* [variables] */
    unsigned char *placed; /* [variables]: whether it is basic */
    size_t size;
} Basis;

enum { RELAX_OPTIMAL, RELAX_BELOW, RELAX_EMPTY, RELAX_STOPPED };

int open_relaxation(Relaxation *r, const Tables *tables, int most_cliques);
void close_relaxation(Relaxation *r);

/* One more clique; false without memory. The columns follow with `gather_columns`. */
int add_clique(Relaxation *r, int count, const int32_t *rows);
int gather_columns(Relaxation *r);

/* A basis for as many constraints as there are now, with everything alive; NULL without memory. */
Basis *new_basis(const Relaxation *r);
void copy_basis(Basis *to, const Basis *from);

/* A dual feasible basis from nothing: every bidder at its best row. */
void begin_basis(Relaxation *r, Basis *b);

/* The same basis with the constraints added since. */
void extend_basis(const Relaxation *r, Basis *to, const Basis *from);

void ban(const Relaxation *r, Basis *b, int variable);
void list_live(const Relaxation *r, Basis *b);

/* Values and reduced costs anew from the inverse; from nothing where that has drifted. */
void refresh(Relaxation *r, Basis *b);

/* What ends a run of the simplex early. */
typedef struct {
    double cutoff;     /* of the value */
    int steps;
    double deadline_s; /* on the monotonic clock */
} Until;

/* Dual simplex, until optimal, worth less than the cutoff, shown empty (then `ray` is the pivot row), or stopped. */
int dual_simplex(Relaxation *r, Basis *b, Until until, int *ray_sign);

/* Whole prices by the duals plus `far` times the ray, into r->price. */
void price_by(Relaxation *r, const Basis *b, double far, int ray_sign);

#define MOST_BOUND (INT64_MAX / 4)

/* No choice of what is alive is worth more: by r->price; r->margin by row and r->best by bidder on the way.
 *
 * MOST_BOUND stands for all larger ones too: more than any choice is worth, but no bound of what options lose. */
int64_t bound_of(Relaxation *r, const Basis *b);

#endif
