/* Gang after gang filled up to an end with as little time left over as a search of so many steps finds. Every sum is
 * made in the order in which least_slack.py makes it, so that both tell the same to the last bit. */
#include "least_slack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "limits.h"

typedef struct {
    double capacity_s; /* the time that the gang has */
    double enough_s;   /* with so much of it used the search ends */
    double lean;       /* how much more each second of a job counts for each second that it is longer */
    int many, steps;
    int *job; /* candidates, the longest first; their times; and the sum of those from each on */
    double *time_s, *after_s;
    int *chosen, *best, chosen_many, best_many;
    double most, used_s; /* the worth of the best choice, and the time that it takes */
} Filling;

static double worth(const Filling *f, double time_s) { return time_s * (1.0 + f->lean * time_s); }

/* All choices of the candidates from `at` on beside those chosen, as long as they may be better than the best. */
static void choose(Filling *f, int at, double used_s, double sum) {
    if (sum > f->most) {
        f->most = sum, f->used_s = used_s, f->best_many = f->chosen_many;
        memcpy(f->best, f->chosen, sizeof(int) * f->chosen_many);
    }
    for (int n = at; n < f->many && f->used_s < f->enough_s; n++) {
        double rest_s = fmin(f->capacity_s - used_s, f->after_s[n]);
        if (sum + rest_s * (1.0 + f->lean * f->time_s[n]) <= f->most) return;
        double with_s = used_s + f->time_s[n];
        if (with_s > f->capacity_s) continue;
        if (++f->steps > MOST_FILLING) return;
        f->chosen[f->chosen_many++] = f->job[n];
        choose(f, n + 1, with_s, sum + worth(f, f->time_s[n]));
        f->chosen_many--;
    }
}

static void find_candidates(const Packer *p, int64_t kind, Filling *f) {
    f->many = 0;
    for (int n = 0; n < p->jobs; n++) {
        int job = p->longest[(size_t)kind * p->jobs + n];
        double time_s = time_of(p, job, kind);
        if (p->place[job] >= 0 || time_s > f->capacity_s) continue;
        f->job[f->many] = job, f->time_s[f->many++] = time_s;
    }
    f->after_s[f->many] = 0.0;
    for (int n = f->many - 1; n >= 0; n--) f->after_s[n] = f->after_s[n + 1] + f->time_s[n];
}
long fill_steps;
int fill_by(Packer *p, double end_s, double patience, double lean) {
    double weight = 0.0, room = 0.0, work = p->work_after[0];
    for (int g = 0; g < p->gangs; g++) {
        weight += p->weight[p->kind[g]];
        room += p->weight[p->kind[g]] * (end_s - p->start_s[g]);
    }
    for (int job = 0; job < p->jobs; job++) p->place[job] = -1;
    Filling f = {.job = p->filling, .chosen = p->filling + p->jobs, .best = p->filling + 2 * p->jobs, .time_s = p->filled_s, .after_s = p->filled_s + p->jobs};
    int left = p->jobs;
    for (int g = 0; g < p->gangs && left; g++) {
        double weighs = p->weight[p->kind[g]];
        double slack_s = weight > 0.0 ? fmax(0.0, (room - work) / weight) : 0.0;
        f.capacity_s = end_s - p->start_s[g];
        f.enough_s = f.capacity_s - patience * slack_s;
        weight -= weighs, room -= weighs * f.capacity_s;
        if (f.capacity_s <= 0.0) continue;
        f.lean = lean / f.capacity_s;
        find_candidates(p, p->kind[g], &f);
        f.chosen_many = f.best_many = f.steps = 0, f.most = f.used_s = 0.0;
        choose(&f, 0, 0.0, 0.0);
        fill_steps += f.steps;
        for (int n = 0; n < f.best_many; n++) {
            p->place[f.best[n]] = g;
            work -= p->work_after[f.best[n]] - p->work_after[f.best[n] + 1];
        }
        left -= f.best_many;
    }
    return left;
}
