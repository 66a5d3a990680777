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
    const double *value, *most;     /* the price of a second of each job, and the highest of it and all later jobs */
    int count, steps;
    int *chosen, *best, chosen_count, best_count;
    double best_value, best_s;
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
    int low = at, high = f->count;
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
static void choose(Filling *f, int at, double used_s, double value) {
    if (value > f->best_value) {
        f->best_value = value, f->best_s = used_s, f->best_count = f->chosen_count;
        memcpy(f->best, f->chosen, sizeof(int) * f->chosen_count);
    }
    for (int n = at; f->best_s < f->enough_s && (n = first_that_fits(f, n, used_s)) < f->count; n++) {
        if (value + smaller(f->capacity_s - used_s, f->after_s[n]) * f->most[n] <= f->best_value) return;
        if (++f->steps > MAX_FILLING) return;
        f->chosen[f->chosen_count++] = f->job[n];
        choose(f, n + 1, used_s + f->time_s[n], value + f->time_s[n] * f->value[n]);
        f->chosen_count--;
    }
}

/* The jobs without a gang, the longest on a kind first: their numbers, times and prices. */
typedef struct {
    int *job, count;
    double *time_s, *price;
} Left;

/* Finds the best choice of the remaining jobs for a gang, and puts them there. */
static int fill(Packer *p, const Left *left, int gang, double capacity_s, double enough_s, double lean) {
    int skipped = 0;
    while (skipped < left->count && left->time_s[skipped] > capacity_s) skipped++;
    int count = left->count - skipped;
    const double *time_s = left->time_s + skipped, *price = left->price + skipped;
    double *after_s = p->filling_s + 2 * p->jobs, *value = after_s + p->jobs + 1, *most = value + p->jobs + 1;
    for (int n = 0; n < count; n++) value[n] = price[n] * (1.0 + lean * (time_s[n] / capacity_s));
    after_s[count] = most[count] = 0.0;
    for (int n = count - 1; n >= 0; n--) {
        after_s[n] = after_s[n + 1] + time_s[n];
        most[n] = larger(most[n + 1], value[n]);
    }
    Filling f = {.capacity_s = capacity_s, .enough_s = enough_s, .job = left->job + skipped, .time_s = time_s,
                 .after_s = after_s, .value = value, .most = most, .count = count, .chosen = p->filling + p->jobs,
                 .best = p->filling + 2 * p->jobs};
    choose(&f, 0, 0.0, 0.0);
    for (int n = 0; n < f.best_count; n++) p->gang_of[f.best[n]] = gang;
    return f.best_count;
}

/* Lists the jobs without a gang. */
static Left all_left(Packer *p, int64_t kind) {
    Left left = {.job = p->filling, .time_s = p->filling_s, .price = p->filling_s + p->jobs};
    const int *order = p->longest + (size_t)kind * p->jobs;
    for (int n = 0; n < p->jobs; n++) {
        int job = order[n];
        if (p->gang_of[job] >= 0) continue;
        left.job[left.count] = job;
        left.time_s[left.count] = time_of(p, job, kind);
        left.price[left.count++] = p->price[job];
    }
    return left;
}

/* Drops the jobs that have a gang by now. */
static void still_left(const Packer *p, Left *left) {
    int count = 0;
    for (int n = 0; n < left->count; n++) {
        if (p->gang_of[left->job[n]] >= 0) continue;
        left->job[count] = left->job[n], left->time_s[count] = left->time_s[n], left->price[count++] = left->price[n];
    }
    left->count = count;
}

int fill_by(Packer *p, double end_s, int way) {
    double weight = 0.0, most_work = 0.0, work = p->work_after[0];
    for (int g = 0; g < p->gangs; g++) {
        weight += p->weight[p->kind[g]];
        most_work += p->weight[p->kind[g]] * (end_s - p->start_s[g]);
    }
    Left left = {.count = p->jobs};
    for (int job = 0; job < p->jobs; job++) p->gang_of[job] = -1;
    for (int g = 0; g < p->gangs && left.count; g++) {
        /* Gangs of one kind are adjacent. */
        if (!g || p->kind[g] != p->kind[g - 1]) left = all_left(p, p->kind[g]);
        double capacity_s = end_s - p->start_s[g];
        double slack_s = weight > 0.0 ? larger(0.0, (most_work - work) / weight) : 0.0;
        weight -= p->weight[p->kind[g]], most_work -= p->weight[p->kind[g]] * capacity_s;
        if (capacity_s <= 0.0) continue;
        int filled = fill(p, &left, g, capacity_s, capacity_s - PATIENCE[way] * slack_s, LEAN[way]);
        const int *best = p->filling + 2 * p->jobs;
        for (int n = 0; n < filled; n++) work -= p->work_after[best[n]] - p->work_after[best[n] + 1];
        if (filled) still_left(p, &left);
    }
    return left.count;
}
