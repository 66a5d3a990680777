/* A revised simplex for the covering programme, which grows by columns.
 *
 * Minimises the sum of the uncovered demands. A column covers some of each demand and takes one unit of its group, of
 * which there is a limited number. The arithmetic is floating point; callers check results in whole numbers.
 */
#ifndef THEMIS_SIMPLEX_H
#define THEMIS_SIMPLEX_H

#include <stdint.h>

typedef struct {
    int demands, rows;          /* rows: demands, then groups */
    double *right;              /* [rows]: how much is asked for, how many are there */
    double *inverse;            /* [rows * rows]: of the basis */
    double *value;              /* [rows]: of the basic variables */
    double *dual;               /* [rows] */
    double *entering, *pivot;   /* [rows]: scratch */
    int32_t *basic;             /* [rows]: variables of the basis: missing of a demand or what is left of a group, then
                                   what a demand gets too much of, then columns */
    int32_t *place;             /* by variable: where it stands in the basis, or -1 */
    int32_t columns, room, cells, cell_room;
    int32_t *start;             /* [columns + 1] into the next two */
    int32_t *row;
    double *coefficient;
    unsigned char *banned;      /* by column */
} Programme;

enum { SIMPLEX_DONE = 0, SIMPLEX_STUCK = 1 };

/* Allocates a programme; false without memory. The caller sets the right-hand sides, then restarts it. */
int open_programme(Programme *p, int demands, int groups);
void close_programme(Programme *p);

/* Adds a column of a group: rows (ascending, the group's not among them) and how much it covers; false without memory. */
int add_column(Programme *p, int group, int cells, const int32_t *row, const int32_t *coefficient);

/* Restarts from the basis in which every demand is uncovered. */
void restart(Programme *p);

/* Solves from the last basis, also after the right-hand sides changed. */
int solve_programme(Programme *p);

/* The sum of uncovered demands of the solution. */
double missing_of(const Programme *p);

/* The value of a column in the solution. */
double value_of(const Programme *p, int column);

#endif
