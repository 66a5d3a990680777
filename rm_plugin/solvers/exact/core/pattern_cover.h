/* The covering programme: whether fractions of patterns cover what a choice asks for, by column generation. */
#ifndef THEMIS_PATTERN_COVER_H
#define THEMIS_PATTERN_COVER_H

#include "simplex.h"
#include "group_capacity.h"

typedef struct {
    int groups, items, gangs, pins;
    int32_t *machine_start;                  /* [groups + 1] into the next four */
    int32_t *free, *pinned, *pin_row;        /* [machines]; pin_row: the number of the machine's pin, or -1 */
    int32_t *slot_start, *slot_free;         /* [machines + 1]; [slots] */
    int32_t *times;                          /* [groups]: how many are alike, less those fixed */
    int32_t *size, *in_slot, *gang_size;
    int32_t *left;                           /* [demands]: items, gangs, single GPUs, pins; less what is fixed */
    int64_t *weight, *pin_weight;            /* [demands]; [machines]: what the last duals weigh */
    int32_t *count, *cell_row, *cell_count;  /* scratch */
    Programme programme;
} Cover;

enum { COVER_COVERED = 0, COVER_TOO_MUCH = 1, COVER_UNDECIDED = 2, COVER_NO_MEMORY = 3 };

/* Begins with no pattern fixed. */
void begin_cover(Cover *cover);

/* Adds patterns until fractions of them cover what is left, or the duals prove that they cannot. */
int price_patterns(Cover *cover);

/* The pattern with the largest value, and how often to fix it (0: none); patterns that waste nothing come first. */
int fullest_pattern(const Cover *cover, int32_t *times);

/* How often the last solution takes a pattern, rounded down. */
int32_t whole_times(const Cover *cover, int column);

/* Fixes a pattern `times` times (negative: takes it back) and reduces demands and groups accordingly. */
void fix_pattern(Cover *cover, int column, int times);

/* Excludes a pattern from now on. */
void forbid_pattern(Cover *cover, int column);

/* What a pattern covers of each demand [demands]; returns its group. */
int pattern_of(const Cover *cover, int column, int32_t *numbers);

#endif
