/* Each gang gets those remaining jobs that leave the least of its time over. Sums have a fixed order, so that
 * results are bit-identical to tests/reference_least_slack.py. */
#include "least_slack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "limits.h"

/* The state of filling one gang: jobs from the longest to the shortest, and the best choice of them so far. */
typedef struct {
    double capacity_s, enough_s; /* the time of the gang, and the used time that suffices */
    const int *job;
    const double *time_s, *after_s; /* of each job, and of it and all later jobs together */
    const double *worth, *most;     /* the price of a second of each job, and the highest of it and all later jobs */
    int many, steps;
    int *chosen, *best, chosen_many, best_many;
    double best_worth, best_s;
} Filling;

int make_room_to_fill(Packer *p) {
    size_t jobs = (size_t)p->jobs;
    p->longest = malloc(sizeof(int) * jobs * p->kinds);
    p->filling = malloc(sizeof(int) * jobs * 3);
    p->filling_s = malloc(sizeof(double) * (jobs + 1) * 5);
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

/* The first job from `at` on that fits into the time left. No later job takes longer. */
static int first_that_fits(const Filling *f, int at, double used_s) {
    int low = at, high = f->many;
    if (at >= high || !(used_s + f->time_s[at] > f->capacity_s)) return at;
    if (used_s + f->time_s[high - 1] > f->capacity_s) return high;
    while (low < high) {
        int middle = (low + high) / 2;
        if (used_s + f->time_s[middle] > f->capacity_s)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Tries the jobs from `at` on in addition to the chosen ones, as long as that may be worth more than the best choice.
 * The bound never rises from one job to the next, so jobs that do not fit need no check of it. */
static void choose(Filling *f, int at, double used_s, double worth) {
    if (worth > f->best_worth) {
        f->best_worth = worth, f->best_s = used_s, f->best_many = f->chosen_many;
        memcpy(f->best, f->chosen, sizeof(int) * f->chosen_many);
    }
    for (int n = at; f->best_s < f->enough_s && (n = first_that_fits(f, n, used_s)) < f->many; n++) {
        if (worth + smaller(f->capacity_s - used_s, f->after_s[n]) * f->most[n] <= f->best_worth) return;
        if (++f->steps > MAX_FILLING) return;
        f->chosen[f->chosen_many++] = f->job[n];
        choose(f, n + 1, used_s + f->time_s[n], worth + f->time_s[n] * f->worth[n]);
        f->chosen_many--;
    }
}

/* Lists the jobs without a place, the longest on a kind first: their numbers, times and prices. */
typedef struct {
    int *job, many;
    double *time_s, *price;
} Left;

/* Finds the best choice of the remaining jobs for a gang, and puts them there. */
static int fill(Packer *p, const Left *left, int gang, double capacity_s, double enough_s, double lean) {
    int skipped = 0;
    while (skipped < left->many && left->time_s[skipped] > capacity_s) skipped++;
    int many = left->many - skipped;
    const double *time_s = left->time_s + skipped, *price = left->price + skipped;
    double *after_s = p->filling_s + 2 * p->jobs, *worth = after_s + p->jobs + 1, *most = worth + p->jobs + 1;
    for (int n = 0; n < many; n++) worth[n] = price[n] * (1.0 + lean * (time_s[n] / capacity_s));
    after_s[many] = most[many] = 0.0;
    for (int n = many - 1; n >= 0; n--) {
        after_s[n] = after_s[n + 1] + time_s[n];
        most[n] = larger(most[n + 1], worth[n]);
    }
    Filling f = {.capacity_s = capacity_s, .enough_s = enough_s, .job = left->job + skipped, .time_s = time_s,
                 .after_s = after_s, .worth = worth, .most = most, .many = many, .chosen = p->filling + p->jobs,
                 .best = p->filling + 2 * p->jobs};
    choose(&f, 0, 0.0, 0.0);
    for (int n = 0; n < f.best_many; n++) p->place[f.best[n]] = gang;
    return f.best_many;
}

/* Lists the jobs without a place. */
static Left all_left(Packer *p, int64_t kind) {
    Left left = {.job = p->filling, .time_s = p->filling_s, .price = p->filling_s + p->jobs};
    const int *order = p->longest + (size_t)kind * p->jobs;
    for (int n = 0; n < p->jobs; n++) {
        int job = order[n];
        if (p->place[job] >= 0) continue;
        left.job[left.many] = job;
        left.time_s[left.many] = time_of(p, job, kind);
        left.price[left.many++] = p->price[job];
    }
    return left;
}

/* Drops the jobs that have a place by now. */
static void still_left(const Packer *p, Left *left) {
    int many = 0;
    for (int n = 0; n < left->many; n++) {
        if (p->place[left->job[n]] >= 0) continue;
        left->job[many] = left->job[n], left->time_s[many] = left->time_s[n], left->price[many++] = left->price[n];
    }
    left->many = many;
}

int fill_by(Packer *p, double end_s, int way) {
    double weight = 0.0, room = 0.0, work = p->work_after[0];
    for (int g = 0; g < p->gangs; g++) {
        weight += p->weight[p->kind[g]];
        room += p->weight[p->kind[g]] * (end_s - p->start_s[g]);
    }
    Left left = {.many = p->jobs};
    for (int job = 0; job < p->jobs; job++) p->place[job] = -1;
    for (int g = 0; g < p->gangs && left.many; g++) {
        /* Gangs of one kind are adjacent. */
        if (!g || p->kind[g] != p->kind[g - 1]) left = all_left(p, p->kind[g]);
        double capacity_s = end_s - p->start_s[g];
        double slack_s = weight > 0.0 ? larger(0.0, (room - work) / weight) : 0.0;
        weight -= p->weight[p->kind[g]], room -= p->weight[p->kind[g]] * capacity_s;
        if (capacity_s <= 0.0) continue;
        int filled = fill(p, &left, g, capacity_s, capacity_s - PATIENCE[way] * slack_s, LEAN[way]);
        const int *best = p->filling + 2 * p->jobs;
        for (int n = 0; n < filled; n++) work -= p->work_after[best[n]] - p->work_after[best[n] + 1];
        if (filled) still_left(p, &left);
    }
    return left.many;
}
