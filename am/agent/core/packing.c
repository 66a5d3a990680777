/* Packs jobs on gangs in five ways and keeps the best result. Sums have a fixed order, so that results are bit-
 * identical to tests/reference_packing.py. */
#include "packing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "least_slack.h"
#include "limits.h"
#include "packer.h"

static void find_shortest_and_fastest(Packer *p) {
    for (int k = 0; k < p->kinds; k++) {
        double *column_s = p->column_s + (size_t)k * p->jobs;
        p->shortest_s[k] = INFINITY;
        for (int job = 0; job < p->jobs; job++) {
            column_s[job] = time_of(p, job, k);
            p->shortest_s[k] = smaller(p->shortest_s[k], column_s[job]);
        }
    }
    for (int job = 0; job < p->jobs; job++) {
        p->fastest_s[job] = INFINITY;
        for (int k = 0; k < p->kinds; k++) p->fastest_s[job] = smaller(p->fastest_s[job], time_of(p, job, k));
    }
}

Packer *new_packer(const double *times_s, int jobs, int kinds, int max_gangs, int in_pairs, int closely,
                   int shaken) {
    Packer *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->times_s = times_s, p->jobs = jobs, p->kinds = kinds, p->in_pairs = in_pairs, p->closely = closely, p->shaken = shaken;
    size_t gangs = (size_t)max_gangs + 1;
    p->load_s = malloc(sizeof(double) * gangs);
    p->start_s = malloc(sizeof(double) * gangs);
    p->heap = malloc(sizeof(int) * gangs);
    p->first = malloc(sizeof(int) * (kinds + 1));
    p->open = malloc(sizeof(int) * (kinds + 1));
    p->used = malloc(sizeof(int) * (kinds + 1));
    p->shortest_s = malloc(sizeof(double) * (kinds + 1));
    p->fastest_s = malloc(sizeof(double) * (jobs + 1));
    p->column_s = malloc(sizeof(double) * ((size_t)jobs * kinds + 1));
    p->weight = malloc(sizeof(double) * (kinds + 1));
    p->work_after = malloc(sizeof(double) * (jobs + 1));
    p->gang_of = malloc(sizeof(int64_t) * (jobs + 1));
    p->best = malloc(sizeof(int64_t) * (jobs + 1));
    p->head = malloc(sizeof(int) * gangs);
    p->next = malloc(sizeof(int) * (jobs + 1));
    p->jobs_on = malloc(sizeof(int) * gangs);
    if (p->load_s && p->start_s && p->heap && p->first && p->open && p->shortest_s && p->fastest_s && p->weight &&
        p->work_after && p->gang_of && p->best && p->head && p->next && p->jobs_on && p->column_s && p->used &&
        (!closely || make_room_to_fill(p))) {
        find_shortest_and_fastest(p);
        return p;
    }
    free_packer(p);
    return NULL;
}

void free_packer(Packer *p) {
    if (!p) return;
    void *all[] = {p->load_s, p->start_s,    p->heap,  p->first, p->open, p->shortest_s, p->fastest_s,
                   p->weight, p->work_after, p->gang_of, p->best,  p->head, p->next,       p->jobs_on,
                   p->longest, p->filling, p->filling_s, p->price, p->column_s, p->used};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
    free(p);
}

static void keep(Packer *p, double end_s) {
    p->least_s = end_s;
    memcpy(p->best, p->gang_of, sizeof(int64_t) * p->jobs);
}

static double latest(const Packer *p) {
    double latest_s = 0.0;
    for (int g = 0; g < p->gangs; g++) latest_s = larger(latest_s, p->load_s[g]);
    return latest_s;
}

/* ---- longest first ----------------------------------------------------------------------------------------------- */

static int before(const Packer *p, int one, int two) {
    return p->load_s[one] < p->load_s[two] || (p->load_s[one] == p->load_s[two] && one < two);
}

static void sift(const Packer *p, int *heap, int size, int at) {
    int gang = heap[at];
    for (int child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && before(p, heap[child + 1], heap[child])) child++;
        if (!before(p, heap[child], gang)) break;
        heap[at] = heap[child];
    }
    heap[at] = gang;
}

static void schedule_longest_first(Packer *p) {
    memcpy(p->load_s, p->start_s, sizeof(double) * p->gangs);
    for (int g = 0; g < p->gangs; g++) p->heap[g] = g;
    for (int k = 0; k < p->kinds; k++) {
        int size = p->first[k + 1] - p->first[k];
        for (int at = size / 2 - 1; at >= 0; at--) sift(p, p->heap + p->first[k], size, at);
    }
    double latest_s = latest(p);
    for (int job = 0; job < p->jobs; job++) {
        double end_s = INFINITY;
        int kind = -1;
        for (int n = 0; n < p->used_kinds; n++) {
            int k = p->used[n];
            double here_s = p->load_s[p->heap[p->first[k]]] + time_of(p, job, k);
            if (here_s < end_s) end_s = here_s, kind = k;
        }
        if (kind < 0) {
            latest_s = INFINITY;
            p->gang_of[job] = -1;
            continue;
        }
        int *heap = p->heap + p->first[kind];
        p->gang_of[job] = heap[0];
        p->load_s[heap[0]] = end_s;
        latest_s = larger(latest_s, end_s);
        sift(p, heap, p->first[kind + 1] - p->first[kind], 0);
    }
    keep(p, latest_s);
}

/* ---- a lower bound on the end ------------------------------------------------------------------------------------ */

/* Weights each gang by the speed of the last job on it: the least work of all jobs over the weight of all gangs. */
static double bound(Packer *p) {
    double longest_s = 0.0, speed = 0.0, used = 0.0;
    int last = p->jobs - 1;
    for (int k = 0; k < p->kinds; k++) {
        double time_s = time_of(p, last, k);
        p->weight[k] = isfinite(time_s) && time_s > 0.0 ? 1.0 / time_s : 0.0;
    }
    for (int g = 0; g < p->gangs; g++) {
        speed += p->weight[p->kind[g]];
        used += p->weight[p->kind[g]] * p->start_s[g];
        longest_s = larger(longest_s, p->start_s[g]);
    }
    p->work_after[p->jobs] = 0.0;
    for (int job = last; job >= 0; job--) {
        double least_s = INFINITY, least = INFINITY;
        for (int n = 0; n < p->used_kinds; n++) {
            int k = p->used[n];
            double time_s = time_of(p, job, k);
            if (!isfinite(time_s)) continue;
            least_s = smaller(least_s, time_s);
            least = smaller(least, p->weight[k] * time_s);
        }
        longest_s = larger(longest_s, least_s);
        p->work_after[job] = p->work_after[job + 1] + least;
    }
    return speed > 0.0 ? larger(longest_s, (p->work_after[0] + used) / speed) : longest_s;
}

/* ---- first fit under an end -------------------------------------------------------------------------------------- */

static int first_fit(Packer *p, int kind, double time_s, double end_s) {
    int *open = &p->open[kind], last = p->first[kind + 1];
    /* Skip gangs without time for any job. */
    while (*open < last && p->load_s[*open] > end_s - p->shortest_s[kind]) (*open)++;
    for (int g = *open; g < last; g++)
        if (p->load_s[g] <= end_s - time_s) return g;
    return -1;
}

static int fit_by(Packer *p, double end_s) {
    memcpy(p->load_s, p->start_s, sizeof(double) * p->gangs);
    memcpy(p->open, p->first, sizeof(int) * p->kinds);
    for (int job = 0; job < p->jobs; job++) {
        int at = -1;
        for (int n = 0; n < p->used_kinds && at < 0; n++) {
            int k = p->used[n];
            double time_s = time_of(p, job, k);
            if (time_s <= end_s) at = first_fit(p, k, time_s, end_s);
        }
        if (at < 0) return 0;
        p->gang_of[job] = at;
        p->load_s[at] += time_of(p, job, p->kind[at]);
    }
    return 1;
}

/* `fit_by` that leaves out jobs without a gang. Returns the sum of their times on the fastest kinds, up to `most_s`. */
static double leave_out(Packer *p, double end_s, double most_s) {
    double sum_s = 0.0;
    memset(p->load_s, 0, sizeof(double) * p->gangs);
    memcpy(p->open, p->first, sizeof(int) * p->kinds);
    for (int job = 0; job < p->jobs && (sum_s < most_s || sum_s == 0.0); job++) {
        int at = -1;
        for (int n = 0; n < p->used_kinds && at < 0; n++) {
            int k = p->used[n];
            double time_s = time_of(p, job, k);
            if (time_s <= end_s) at = first_fit(p, k, time_s, end_s);
        }
        if (at < 0)
            sum_s += p->fastest_s[job];
        else
            p->load_s[at] += time_of(p, job, p->kind[at]);
    }
    return sum_s;
}

static void bisect_end(Packer *p, double low_s) {
    double high_s = p->least_s;
    for (int pass = 0; pass < MAX_PASSES && high_s > NEAR_ENOUGH * low_s; pass++) {
        double middle_s = 0.5 * (low_s + high_s);
        double end_s = fit_by(p, middle_s) ? latest(p) : INFINITY;
        /* Rounding may put the sum of the times above the end. */
        if (end_s < p->least_s) keep(p, end_s);
        if (end_s <= middle_s)
            high_s = end_s;
        else
            low_s = middle_s;
    }
}

/* ---- exchanges of jobs ------------------------------------------------------------------------------------------- */

typedef struct {
    int job, second;      /* the jobs that go to another gang; -1 for none */
    int other, third, to; /* the jobs that come in exchange, -1 for none, and that gang */
    double end_s;         /* the later end of the two gangs after the exchange */
} Change;

static void add_up_loads(Packer *p) {
    memcpy(p->load_s, p->start_s, sizeof(double) * p->gangs);
    for (int job = 0; job < p->jobs; job++) p->load_s[p->gang_of[job]] += time_of(p, job, p->kind[p->gang_of[job]]);
}

/* Improves `best` to the exchange of a job that brings the end of its gang forward most. */
static Change best_change(const Packer *p, int job, Change best) {
    int64_t from = p->gang_of[job], kind = p->kind[from];
    double rest_s = p->load_s[from] - time_of(p, job, kind);
    for (int g = 0; g < p->gangs && rest_s < best.end_s; g++) {
        double there_s = p->load_s[g] + time_of(p, job, p->kind[g]);
        if (there_s < best.end_s && g != from) best = (Change){job, -1, -1, -1, g, larger(rest_s, there_s)};
    }
    if (rest_s >= best.end_s) return best;
    const double *mine_s = p->column_s + (size_t)kind * p->jobs;
    for (int other = 0; other < p->jobs; other++) {
        double with_s = rest_s + mine_s[other];
        if (with_s >= best.end_s) continue;
        int g = (int)p->gang_of[other];
        double there_s = p->load_s[g] - time_of(p, other, p->kind[g]) + time_of(p, job, p->kind[g]);
        if (there_s < best.end_s && g != from) best = (Change){job, -1, other, -1, g, larger(with_s, there_s)};
    }
    return best;
}

static void list_by_gang(Packer *p) {
    for (int g = 0; g < p->gangs; g++) p->head[g] = -1, p->jobs_on[g] = 0;
    for (int job = p->jobs - 1; job >= 0; job--) {
        int64_t g = p->gang_of[job];
        p->next[job] = p->head[g], p->head[g] = job, p->jobs_on[g]++;
    }
}

/* The jobs of a gang, with the time of each there and on another gang. */
typedef struct {
    int job[FEW_ON_A_GANG], count;
    double here_s[FEW_ON_A_GANG], there_s[FEW_ON_A_GANG];
} Members;

static void list_members(const Packer *p, int gang, int64_t other_kind, Members *its) {
    int64_t kind = p->kind[gang];
    its->count = 0;
    for (int job = p->head[gang]; job >= 0; job = p->next[job]) {
        its->here_s[its->count] = time_of(p, job, kind);
        its->there_s[its->count] = time_of(p, job, other_kind);
        its->job[its->count++] = job;
    }
}

/* Finds the best exchange of one job, or of two if `second` is not -1, for zero, one or two jobs of gang `to`. */
static Change best_exchange(const Members *its, int job, int second, int to, double rest_s, double there_s,
                            Change best) {
    if (rest_s >= best.end_s) return best;
    if (there_s < best.end_s) best = (Change){job, second, -1, -1, to, larger(rest_s, there_s)};
    for (int n = 0; n < its->count; n++) {
        double with_s = rest_s + its->there_s[n], without_s = there_s - its->here_s[n];
        if (with_s >= best.end_s) continue;
        if (without_s < best.end_s) best = (Change){job, second, its->job[n], -1, to, larger(with_s, without_s)};
        for (int m = n + 1; m < its->count; m++) {
            double end_s = larger(with_s + its->there_s[m], without_s - its->here_s[m]);
            if (end_s < best.end_s) best = (Change){job, second, its->job[n], its->job[m], to, end_s};
        }
    }
    return best;
}

/* The best exchange of up to two jobs of gang `from` for up to two jobs of the first other gang that has one. */
static Change first_exchange(Packer *p, int from, Change best) {
    list_by_gang(p);
    if (p->jobs_on[from] > FEW_ON_A_GANG) return best;
    Members mine = {.count = 0}, its;
    int64_t kind = -1;
    for (int g = 0; g < p->gangs && best.job < 0; g++) {
        if (g == from || p->jobs_on[g] > FEW_ON_A_GANG) continue;
        if (p->kind[g] != kind) kind = p->kind[g], list_members(p, from, kind, &mine);
        list_members(p, g, p->kind[from], &its);
        for (int n = 0; n < mine.count; n++) {
            double rest_s = p->load_s[from] - mine.here_s[n], there_s = p->load_s[g] + mine.there_s[n];
            best = best_exchange(&its, mine.job[n], -1, g, rest_s, there_s, best);
            for (int m = n + 1; m < mine.count; m++)
                best = best_exchange(&its, mine.job[n], mine.job[m], g, rest_s - mine.here_s[m],
                                     there_s + mine.there_s[m], best);
        }
    }
    return best;
}

static void move(Packer *p, int job, int to) {
    if (job < 0) return;
    p->load_s[p->gang_of[job]] -= time_of(p, job, p->kind[p->gang_of[job]]);
    p->load_s[to] += time_of(p, job, p->kind[to]);
    p->gang_of[job] = to;
}

static void change(Packer *p, Change best) {
    int from = (int)p->gang_of[best.job];
    move(p, best.job, best.to);
    move(p, best.second, best.to);
    move(p, best.other, from);
    move(p, best.third, from);
}

/* Moves jobs off the gang that ends last, or exchanges them for shorter ones, as long as that helps. */
static void search_locally(Packer *p, double low_s) {
    add_up_loads(p);
    for (int turn = 0; turn < MAX_CHANGES; turn++) {
        int last = 0;
        for (int g = 1; g < p->gangs; g++)
            if (p->load_s[g] > p->load_s[last]) last = g;
        if (p->load_s[last] <= NEAR_ENOUGH * low_s) break;
        Change best = {-1, -1, -1, -1, -1, p->load_s[last] * LESS};
        for (int job = 0; job < p->jobs; job++)
            if (p->gang_of[job] == last) best = best_change(p, job, best);
        if (best.job < 0 && p->in_pairs && p->load_s[last] > WORTH_PAIRS * low_s) best = first_exchange(p, last, best);
        if (best.job < 0) break;
        change(p, best);
    }
    add_up_loads(p);
    double end_s = latest(p);
    if (end_s < p->least_s) keep(p, end_s);
}

static int drawn_job(uint64_t *state, int jobs) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)jobs);
}

/* Iterated local search: exchanges some random jobs of the best packing, and improves from there. */
static void iterate_local_search(Packer *p, double low_s) {
    uint64_t state = 1;
    for (int n = 0; n < p->shaken / p->jobs && p->least_s > NEAR_ENOUGH * low_s; n++) {
        memcpy(p->gang_of, p->best, sizeof(int64_t) * p->jobs);
        for (int swap = 0; swap < SHAKEN; swap++) {
            int one = drawn_job(&state, p->jobs), two = drawn_job(&state, p->jobs);
            int64_t here = p->gang_of[one], there = p->gang_of[two];
            if (!isfinite(time_of(p, one, p->kind[there])) || !isfinite(time_of(p, two, p->kind[here]))) continue;
            p->gang_of[one] = there, p->gang_of[two] = here;
        }
        search_locally(p, low_s);
    }
}

/* ---- minimum bin slack ------------------------------------------------------------------------------------------- */

/* Puts each job that is left over where it ends earliest. */
static void place_left_over(Packer *p) {
    memcpy(p->load_s, p->start_s, sizeof(double) * p->gangs);
    for (int job = 0; job < p->jobs; job++)
        if (p->gang_of[job] >= 0) p->load_s[p->gang_of[job]] += time_of(p, job, p->kind[p->gang_of[job]]);
    for (int job = 0; job < p->jobs; job++) {
        if (p->gang_of[job] >= 0) continue;
        int at = 0;
        double end_s = INFINITY;
        for (int g = 0; g < p->gangs; g++) {
            double here_s = p->load_s[g] + time_of(p, job, p->kind[g]);
            if (here_s < end_s) end_s = here_s, at = g;
        }
        p->gang_of[job] = at, p->load_s[at] = end_s;
    }
}

/* Whether all jobs end by `end_s`. Tries one way after the other; jobs that were left over get a higher price. */
static int fill_by_each_way(Packer *p, double end_s, double low_s, int *fills) {
    for (int way = 0; way < FILLING_WAYS; way++) {
        for (int job = 0; job < p->jobs; job++) p->price[job] = 1.0;
        for (int n = 0; n < FILLING_ROUNDS && *fills < MAX_FILLS; n++) {
            ++*fills;
            int left = fill_by(p, end_s, way);
            for (int job = 0; job < p->jobs; job++)
                if (p->gang_of[job] < 0) p->price[job] += PRICE_STEP;
            place_left_over(p);
            search_locally(p, low_s);
            if (!left || p->least_s <= end_s) return 1;
        }
    }
    return 0;
}

static void pack_closely(Packer *p, double low_s) {
    double sooner = FIRST_SOONER;
    for (int fills = 0; fills < MAX_FILLS && sooner >= MIN_SOONER && p->least_s > NEAR_ENOUGH * low_s;)
        if (!fill_by_each_way(p, larger(low_s, p->least_s * (1.0 - sooner)), low_s, &fills)) sooner *= 0.5;
}

/* ---- branch and bound -------------------------------------------------------------------------------------------- */

static int seen_before(const Packer *p, int gang) {
    for (int g = p->first[p->kind[gang]]; g < gang; g++)
        if (p->load_s[g] == p->load_s[gang]) return 1;
    return 0;
}

static void branch(Packer *p, int job, double latest_s, double used, double speed) {
    if (latest_s >= p->least_s || used + p->work_after[job] >= speed * p->least_s) return;
    if (job == p->jobs) {
        keep(p, latest_s);
        return;
    }
    for (int g = 0; g < p->gangs; g++) {
        double time_s = time_of(p, job, p->kind[g]), before_s = p->load_s[g];
        if (!(before_s + time_s < p->least_s) || seen_before(p, g)) continue;
        if (++p->steps > MAX_STEPS) return;
        p->load_s[g] = before_s + time_s;
        p->gang_of[job] = g;
        branch(p, job + 1, larger(latest_s, p->load_s[g]), used + p->weight[p->kind[g]] * time_s, speed);
        p->load_s[g] = before_s;
    }
}

static void search(Packer *p) {
    double speed = 0.0, used = 0.0;
    memcpy(p->load_s, p->start_s, sizeof(double) * p->gangs);
    for (int g = 0; g < p->gangs; g++) {
        speed += p->weight[p->kind[g]];
        used += p->weight[p->kind[g]] * p->start_s[g];
    }
    p->steps = 0;
    branch(p, 0, latest(p), used, speed);
}

static void lay_out_by_kind(Packer *p, const int64_t *kind, int gangs) {
    p->kind = kind, p->gangs = gangs;
    for (int k = 0, g = 0; k <= p->kinds; k++) {
        while (g < gangs && kind[g] < k) g++;
        p->first[k] = g;
    }
    p->used_kinds = 0;
    for (int k = 0; k < p->kinds; k++)
        if (p->first[k] < p->first[k + 1]) p->used[p->used_kinds++] = k;
}

double left_out(Packer *p, const int64_t *kind, int gangs, double end_s, double most_s) {
    lay_out_by_kind(p, kind, gangs);
    return leave_out(p, end_s, most_s);
}

double pack(Packer *p, const int64_t *kind, const double *load_s, int gangs, int64_t *gang_of) {
    lay_out_by_kind(p, kind, gangs);
    memcpy(p->start_s, load_s, sizeof(double) * gangs);
    schedule_longest_first(p);
    if (isfinite(p->least_s)) {
        double low_s = bound(p);
        if (p->least_s > NEAR_ENOUGH * low_s) bisect_end(p, low_s);
        if (p->least_s > NEAR_ENOUGH * low_s) {
            memcpy(p->gang_of, p->best, sizeof(int64_t) * p->jobs);
            search_locally(p, low_s);
        }
        if (p->jobs > FEW_JOBS && p->closely) pack_closely(p, low_s);
        if (p->jobs > FEW_JOBS) iterate_local_search(p, low_s);
        if (p->jobs <= FEW_JOBS && p->least_s > low_s) search(p);
    }
    if (gang_of) memcpy(gang_of, p->best, sizeof(int64_t) * p->jobs);
    return p->least_s;
}
