/* Gang after gang is given those of the jobs left that leave least of its time over. Every sum is made in the order in
 * which least_slack.py makes it, so that both tell the same to the last bit. */
#include "least_slack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "limits.h"

/* What a gang is filled with: candidates from the longest to the shortest, and the best choice of them so far. */
typedef struct {
    double capacity_s, enough_s; /* the time that there is, and how much of it is enough */
    const int *job;
    const double *time_s, *after_s; /* of each candidate, and of it and all after it */
    const double *worth, *most;     /* of a second of each, and the most of it and all after it */
    int many, steps;
    int *chosen, *best, chosen_many, best_many;
    double best_worth, best_s;
} Filling;

int make_room_to_fill(Packer *p) {
    size_t jobs = (size_t)p->jobs;
    p->longest = malloc(sizeof(int) * jobs * p->kinds);
    p->filling = malloc(sizeof(int) * jobs * 3);
    p->filling_s = malloc(sizeof(double) * (jobs + 1) * 4);
    p->price = malloc(sizeof(double) * jobs);
    if (!p->longest || !p->filling || !p->filling_s || !p->price) return 0;
    for (int k = 0; k < p->kinds; k++) {
        int *order = p->longest + k * jobs;
        for (int job = 0; job < p->jobs; job++) {
            int at = job;
            for (; at && time_of(p, order[at - 1], k) < time_of(p, job, k); at--) order[at] = order[at - 1];
            order[at] = job;
        }
    }
    return 1;
}

/* Tries the candidates from `at` on beside those chosen, as long as that may be worth more than the best choice. */
static void choose(Filling *f, int at, double used_s, double worth) {
    if (worth > f->best_worth) {
        f->best_worth = worth, f->best_s = used_s, f->best_many = f->chosen_many;
        memcpy(f->best, f->chosen, sizeof(int) * f->chosen_many);
    }
    for (int n = at; n < f->many && f->best_s < f->enough_s; n++) {
        if (worth + smaller(f->capacity_s - used_s, f->after_s[n]) * f->most[n] <= f->best_worth) return;
        double with_s = used_s + f->time_s[n];
        if (with_s > f->capacity_s) continue;
        if (++f->steps > MOST_FILLING) return;
        f->chosen[f->chosen_many++] = f->job[n];
        choose(f, n + 1, with_s, worth + f->time_s[n] * f->worth[n]);
        f->chosen_many--;
    }
}

/* The best choice found for a gang of a kind: its jobs are put there. */
static int fill(Packer *p, int gang, double capacity_s, double enough_s, double lean) {
    int64_t kind = p->kind[gang];
    int *job = p->filling, many = 0;
    double *time_s = p->filling_s, *after_s = time_s + p->jobs + 1, *worth = after_s + p->jobs + 1;
    double *most = worth + p->jobs + 1;
    for (int n = 0; n < p->jobs; n++) {
        int next = p->longest[(size_t)kind * p->jobs + n];
        if (p->place[next] >= 0 || time_of(p, next, kind) > capacity_s) continue;
        job[many] = next, time_s[many++] = time_of(p, next, kind);
    }
    after_s[many] = most[many] = 0.0;
    for (int n = many - 1; n >= 0; n--) {
        worth[n] = p->price[job[n]] * (1.0 + lean * (time_s[n] / capacity_s));
        after_s[n] = after_s[n + 1] + time_s[n];
        most[n] = larger(most[n + 1], worth[n]);
    }
    Filling f = {.capacity_s = capacity_s, .enough_s = enough_s, .job = job, .time_s = time_s, .after_s = after_s,
                 .worth = worth, .most = most, .many = many, .chosen = job + p->jobs, .best = job + 2 * p->jobs};
    choose(&f, 0, 0.0, 0.0);
    for (int n = 0; n < f.best_many; n++) p->place[f.best[n]] = gang;
    return f.best_many;
}

int fill_by(Packer *p, double end_s, int way) {
    double weight = 0.0, room = 0.0, work = p->work_after[0];
    for (int g = 0; g < p->gangs; g++) {
        weight += p->weight[p->kind[g]];
        room += p->weight[p->kind[g]] * (end_s - p->start_s[g]);
    }
    int left = p->jobs;
    for (int job = 0; job < p->jobs; job++) p->place[job] = -1;
    for (int g = 0; g < p->gangs && left; g++) {
        double capacity_s = end_s - p->start_s[g];
        double slack_s = weight > 0.0 ? larger(0.0, (room - work) / weight) : 0.0;
        weight -= p->weight[p->kind[g]], room -= p->weight[p->kind[g]] * capacity_s;
        if (capacity_s <= 0.0) continue;
        int filled = fill(p, g, capacity_s, capacity_s - PATIENCE[way] * slack_s, LEAN[way]);
        const int *best = p->filling + 2 * p->jobs;
        for (int n = 0; n < filled; n++) work -= p->work_after[best[n]] - p->work_after[best[n] + 1];
        left -= filled;
    }
    return left;
}
