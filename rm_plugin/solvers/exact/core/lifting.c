/* Sequential lifting, machine by machine: the weight of p pinned GPUs is the capacity less the most weight that the
 * group can hold in addition to them. Machines before have lifted weights, those after the original ones. */
#include "lifting.h"

#include <stdlib.h>

typedef struct {
    const Group *group;
    int total, width;
    int64_t *room;   /* [machines * width]: the most on a machine, by number of its GPUs */
    int64_t *leave;  /* [machines * width]: the same with pinned GPUs, by number of GPUs left over */
    int64_t *before; /* [total + 1]: the most on the machines so far by number of GPUs they left over, or -1 */
    int64_t *after;  /* [(machines + 1) * (total + 1)]: the most on machines from m on and in what all leave over, by
                        the part of it that those before m left over */
} Lift;

static void leave_as_pinned(Lift *l, int m) {
    const Group *g = l->group;
    const int64_t *room = l->room + (size_t)m * l->width;
    for (int left = 0; left <= g->free[m]; left++) {
        int64_t most = room[g->free[m] - left];
        int beside = g->free[m] - left - g->pinned[m];
        if (g->pinned[m] && beside >= 0 && room[beside] + g->pin_weight[m] > most) most = room[beside] + g->pin_weight[m];
        l->leave[(size_t)m * l->width + left] = most;
    }
}

static void leave_as_lifted(Lift *l, int m, const int32_t *taken) {
    const Group *g = l->group;
    const int64_t *room = l->room + (size_t)m * l->width;
    for (int left = 0; left <= g->free[m]; left++) {
        int64_t most = 0;
        for (int pinned = 0; pinned <= g->free[m] - left; pinned++)
            if (taken[pinned] + room[g->free[m] - left - pinned] > most)
                most = taken[pinned] + room[g->free[m] - left - pinned];
        l->leave[(size_t)m * l->width + left] = most;
    }
}

static void look_ahead(Lift *l, const Weights *weights) {
    const Group *g = l->group;
    fill_values(weights, l->total, l->after + (size_t)g->machines * (l->total + 1), NULL);
    int before = l->total;
    for (int m = g->machines - 1; m >= 0; m--) {
        int64_t *now = l->after + (size_t)m * (l->total + 1), *next = now + l->total + 1;
        before -= g->free[m];
        for (int gpus = 0; gpus <= before; gpus++) {
            now[gpus] = 0;
            for (int left = 0; left <= g->free[m]; left++) {
                int64_t value = l->leave[(size_t)m * l->width + left] + next[gpus + left];
                if (value > now[gpus]) now[gpus] = value;
            }
        }
    }
}

/* The most weight that the group can hold in addition to `pinned` GPUs on a machine. */
static int64_t most_beside(const Lift *l, int m, int pinned, int before) {
    const int64_t *room = l->room + (size_t)m * l->width, *next = l->after + (size_t)(m + 1) * (l->total + 1);
    int64_t most = 0;
    for (int gpus = 0; gpus <= before; gpus++) {
        if (l->before[gpus] < 0) continue;
        for (int left = 0; left <= l->group->free[m] - pinned; left++) {
            int64_t value = l->before[gpus] + room[l->group->free[m] - pinned - left] + next[gpus + left];
            if (value > most) most = value;
        }
    }
    return most;
}

static void pass_machine(Lift *l, int m, int before) {
    const int64_t *leave = l->leave + (size_t)m * l->width;
    int free_gpus = l->group->free[m];
    for (int gpus = before + free_gpus; gpus >= 0; gpus--) {
        int64_t most = -1;
        for (int left = gpus > before ? gpus - before : 0; left <= free_gpus && left <= gpus; left++)
            if (l->before[gpus - left] >= 0 && l->before[gpus - left] + leave[left] > most)
                most = l->before[gpus - left] + leave[left];
        l->before[gpus] = most;
    }
}

static int64_t lift_all(Lift *l, const Weights *weights, int32_t *taken) {
    const Group *g = l->group;
    for (int m = 0; m < g->machines; m++) leave_as_pinned(l, m);
    look_ahead(l, weights);
    int64_t most = l->after[0];
    int before = 0;
    l->before[0] = 0;
    for (int m = 0; m < g->machines; m++) {
        int32_t *here = taken + (size_t)m * l->width;
        here[0] = 0;
        for (int pinned = 1; pinned < l->width; pinned++)
            here[pinned] = pinned > g->free[m] ? here[pinned - 1] : (int32_t)(most - most_beside(l, m, pinned, before));
        leave_as_lifted(l, m, here);
        pass_machine(l, m, before);
        before += g->free[m];
    }
    return most;
}

int64_t lift(const Group *group, const Weights *weights, int width, int32_t *taken) {
    Lift l = {.group = group, .width = width};
    for (int m = 0; m < group->machines; m++) l.total += group->free[m];
    size_t cells = (size_t)group->machines * width + 1;
    l.room = malloc(sizeof(int64_t) * cells);
    l.leave = malloc(sizeof(int64_t) * cells);
    l.before = malloc(sizeof(int64_t) * (l.total + 1));
    l.after = malloc(sizeof(int64_t) * (l.total + 1) * (group->machines + 1));
    int64_t most = -1;
    if (l.room && l.leave && l.before && l.after && room_values(group, weights, width, l.room))
        most = lift_all(&l, weights, taken);
    free(l.room);
    free(l.leave);
    free(l.before);
    free(l.after);
    return most;
}
