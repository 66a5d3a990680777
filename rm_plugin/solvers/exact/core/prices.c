/* Prices of the resources: the Lagrangian dual of the knapsack, by Newton's method on a smoothed bound.
 *
 * The bound sum_k price_k C_k + sum_i max_r (gain_r - price . use_r) is convex and piecewise linear in the prices. With
 * mu * log sum exp(. / mu) in place of max it is smooth, and a handful of Newton steps with shrinking mu come close to
 * its least point. Any prices give a valid bound, so nothing here needs to be exact; the search is.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "problem.h"

/* A row that is this many times mu better than the bidder's others has all of its weight. */
static const double SURE = 30.0;

typedef struct {
    const Problem *problem;
    int skip;
    int32_t *core; /* rows near the best of their bidder at these prices */
    int32_t *core_start;
    double *margin;            /* of one bidder's rows */
    double *share;             /* by place in the core: softmax weight among its bidder's rows, at the last point */
    double *hessian, *scratch; /* [free prices * free prices] */
    int free_prices, free_price[MAX_RESOURCES]; /* those not held at 0 */
    int seat[MAX_RESOURCES];                    /* the place among them, or -1 */
    double bound; /* the bound itself, not smoothed, at the last point */
} View;

static double margin_of(const Problem *p, int row, const double *price) {
    double margin = p->gain_f[row];
    for (int n = p->part_start[row]; n < p->part_start[row + 1]; n++)
        margin -= price[p->part_resource[n]] * p->part_use[n];
    return margin;
}

/* Selects the rows that lose at most `loss` against their bidder's best row; returns the bound over all rows. */
static double choose_core(View *view, const double *price, double loss) {
    const Problem *p = view->problem;
    int count = 0;
    double bound = 0.0;
    for (int k = 0; k < p->resources; k++) bound += price[k];
    for (int i = 0; i < p->bidders; i++) {
        view->core_start[i] = count;
        if (i == view->skip) continue;
        int first = p->row_start[i], end = p->row_start[i + 1];
        double best = 0.0;
        for (int row = first; row < end; row++) {
            view->margin[row - first] = margin_of(p, row, price);
            if (view->margin[row - first] > best) best = view->margin[row - first];
        }
        for (int row = first; row < end; row++)
            if (view->margin[row - first] >= best - loss) view->core[count++] = row;
        bound += best;
    }
    view->core_start[p->bidders] = count;
    return bound;
}

/* The smoothed bound. With `gradient`, also its gradient and the weights of rows. */
static double smooth_bound(View *view, const double *price, double mu, double *gradient) {
    const Problem *p = view->problem;
    int K = p->resources;
    double total = 0.0, bound = 0.0;
    for (int k = 0; k < K; k++) total += price[k];
    for (int k = 0; k < K && gradient; k++) gradient[k] = 1.0;
    bound = total;
    for (int i = 0; i < p->bidders; i++) {
        int first = view->core_start[i], count = view->core_start[i + 1] - first;
        if (!count) continue;
        double best = 0.0, weight, *share = view->share + first;
        for (int c = 0; c < count; c++) {
            share[c] = margin_of(p, view->core[first + c], price);
            if (share[c] > best) best = share[c];
        }
        /* Most bidders have one row near the best, which clearly wins or loses: no exponentials needed. */
        weight = best > SURE * mu ? 0.0 : best == 0.0 ? 1.0 : exp(-best / mu);
        for (int c = 0; c < count; c++) {
            double exponent = (share[c] - best) / mu;
            share[c] = exponent < -SURE ? 0.0 : exponent == 0.0 ? 1.0 : exp(exponent);
            weight += share[c];
        }
        total += weight == 1.0 ? best : best + mu * log(weight);
        bound += best;
        for (int c = 0; c < count && gradient; c++) {
            share[c] /= weight;
            if (share[c] == 0.0) continue;
            int row = view->core[first + c];
            for (int n = p->part_start[row]; n < p->part_start[row + 1]; n++)
                gradient[p->part_resource[n]] -= share[c] * p->part_use[n];
        }
    }
    view->bound = bound;
    return total;
}

/* Adds a row's use, weighted, to the mean and to the second moments (lower half), over free prices. */
static void average_use(const View *view, int row, double share, double *mean, double *square) {
    const Problem *p = view->problem;
    int F = view->free_prices, seat[MAX_RESOURCES], count = 0;
    double use[MAX_RESOURCES];
    for (int n = p->part_start[row]; n < p->part_start[row + 1]; n++) {
        if (view->seat[p->part_resource[n]] < 0) continue;
        use[count] = p->part_use[n];
        seat[count++] = view->seat[p->part_resource[n]];
    }
    for (int n = 0; n < count; n++) {
        double part = share * use[n];
        mean[seat[n]] += part;
        for (int o = 0; o <= n; o++) square[seat[n] * F + seat[o]] += part * use[o];
    }
}

/* The lower half of the smoothed bound's Hessian over the free prices, from the weights of the last gradient. */
static void curve(View *view, double mu) {
    const Problem *p = view->problem;
    int F = view->free_prices;
    double mean[MAX_RESOURCES], *square = view->scratch;
    memset(view->hessian, 0, sizeof(double) * F * F);
    for (int i = 0; i < p->bidders; i++) {
        if (view->core_start[i] == view->core_start[i + 1]) continue;
        memset(mean, 0, sizeof(double) * F);
        memset(square, 0, sizeof(double) * F * F);
        for (int c = view->core_start[i]; c < view->core_start[i + 1]; c++)
            if (view->share[c] > 0.0) average_use(view, view->core[c], view->share[c], mean, square);
        for (int f = 0; f < F; f++)
            for (int g = 0; g <= f; g++) view->hessian[f * F + g] += (square[f * F + g] - mean[f] * mean[g]) / mu;
    }
}

/* Fixes prices that are 0 and would not rise. */
static void hold_prices(View *view, const double *price, const double *gradient) {
    view->free_prices = 0;
    for (int k = 0; k < view->problem->resources; k++) {
        int held = price[k] <= 0.0 && gradient[k] >= 0.0;
        view->seat[k] = held ? -1 : view->free_prices;
        if (!held) view->free_price[view->free_prices++] = k;
    }
}

/* Solves (H + damping * scale) d = -g over the free prices by Cholesky; prices held at 0 get d = 0. */
static void newton_direction(const View *view, const double *gradient, double damping, double *direction) {
    double factor[MAX_RESOURCES * MAX_RESOURCES], step[MAX_RESOURCES];
    double scale = 1e-9;
    int F = view->free_prices, K = view->problem->resources;
    for (int k = 0; k < K; k++) scale += fabs(gradient[k]);
    for (int f = 0; f < F; f++) scale += view->hessian[f * F + f] / K;
    double ridge = damping * scale;
    for (int f = 0; f < F; f++) {
        for (int g = 0; g <= f; g++) {
            double sum = view->hessian[f * F + g] + (f == g ? ridge : 0.0);
            for (int m = 0; m < g; m++) sum -= factor[f * F + m] * factor[g * F + m];
            factor[f * F + g] = f == g ? sqrt(sum > ridge * 1e-3 ? sum : ridge * 1e-3) : sum / factor[g * F + g];
        }
    }
    for (int f = 0; f < F; f++) {
        double sum = -gradient[view->free_price[f]];
        for (int m = 0; m < f; m++) sum -= factor[f * F + m] * step[m];
        step[f] = sum / factor[f * F + f];
    }
    for (int f = F - 1; f >= 0; f--) {
        double sum = step[f];
        for (int m = f + 1; m < F; m++) sum -= factor[m * F + f] * step[m];
        step[f] = sum / factor[f * F + f];
    }
    for (int k = 0; k < K; k++) direction[k] = view->seat[k] < 0 ? 0.0 : step[view->seat[k]];
}

static double promise(int K, const double *price, const double *gradient, const double *direction) {
    double promised = 0.0;
    for (int k = 0; k < K; k++) {
        double to = price[k] + direction[k];
        promised -= gradient[k] * ((to > 0.0 ? to : 0.0) - price[k]);
    }
    return promised;
}

/* By how much the smoothed bound can exceed its minimum if no best price is more than `reach` above its present one. */
static double left_to_gain(int K, const double *price, const double *gradient) {
    const double reach = 0.1;
    double left = 0.0;
    for (int k = 0; k < K; k++) left += gradient[k] > 0.0 ? gradient[k] * price[k] : -gradient[k] * reach;
    return left;
}

static void move(int K, const double *price, const double *direction, double *to) {
    for (int k = 0; k < K; k++) {
        to[k] = price[k] + direction[k];
        if (to[k] < 0.0) to[k] = 0.0;
    }
}

/* One damped Newton step; false if no step pays. Keeps the prices with the best bound seen.
 *
 * Where the smoothed bound is nearly straight the Hessian says little and the step is far too long: then damping grows,
 * which turns it towards the gradient and shortens it; it shrinks again with every step that is taken. */
static int newton_step(View *view, double *price, double mu, double *damping, double *best_price, double *best_bound) {
    enum { TRIALS = 8 };
    int K = view->problem->resources;
    double gradient[MAX_RESOURCES], direction[MAX_RESOURCES];
    double now = smooth_bound(view, price, mu, gradient);
    if (view->bound < *best_bound) {
        *best_bound = view->bound;
        memcpy(best_price, price, sizeof(double) * K);
    }
    if (left_to_gain(K, price, gradient) < 0.02 * mu) return 0;
    hold_prices(view, price, gradient);
    curve(view, mu);
    double trial[MAX_RESOURCES];
    for (int tries = 0; tries < TRIALS; tries++) {
        newton_direction(view, gradient, *damping, direction);
        double promised = promise(K, price, gradient, direction);
        move(K, price, direction, trial);
        if (promised > 0.0 && smooth_bound(view, trial, mu, NULL) < now - 1e-4 * promised) {
            if (*damping > 1e-9) *damping *= 0.2;
            memcpy(price, trial, sizeof(double) * K);
            return 1;
        }
        *damping *= 10.0;
    }
    return 0;
}

static double dearest_gain(const Problem *problem) {
    double dearest = 0.0;
    for (int row = 0; row < problem->rows; row++)
        if (problem->gain_f[row] > dearest) dearest = problem->gain_f[row];
    return dearest;
}

static int open_view(View *view) {
    const Problem *problem = view->problem;
    int most = 0;
    for (int i = 0; i < problem->bidders; i++) {
        int rows = problem->row_start[i + 1] - problem->row_start[i];
        if (rows > most) most = rows;
    }
    view->core = malloc(sizeof(int32_t) * (problem->rows + 1));
    view->core_start = malloc(sizeof(int32_t) * (problem->bidders + 1));
    view->margin = malloc(sizeof(double) * (most + 1));
    view->share = malloc(sizeof(double) * (problem->rows + 1));
    view->hessian = malloc(sizeof(double) * problem->resources * problem->resources);
    view->scratch = malloc(sizeof(double) * problem->resources * problem->resources);
    return view->core && view->core_start && view->margin && view->share && view->hessian && view->scratch;
}

void find_prices(const Problem *problem, int skip, double *price_of_all, double first_mu) {
    enum { MAX_STEPS = 12 };
    /* The more bidders, the less each matters, and the closer the bound must come. */
    const double last_mu = 3e-4 / problem->bidders, shrink = 0.25;
    const double least_core = 0.8 / problem->bidders;
    View view = {.problem = problem, .skip = skip};
    if (problem->resources && open_view(&view)) {
        double mu = dearest_gain(problem) / 8.0;
        if (first_mu > 0.0 && mu > first_mu) mu = first_mu;
        size_t size = sizeof(double) * problem->resources;
        double best_price[MAX_RESOURCES], stage_price[MAX_RESOURCES], damping = 1e-6, best_bound = INFINITY;
        for (int last = 0; !last; mu *= shrink) {
            last = mu <= last_mu;
            double core_loss = 30.0 * mu > least_core ? 30.0 * mu : least_core, bound = choose_core(&view, price_of_all, core_loss);
            if (bound > best_bound + mu) {
                /* The core of the last stage left out rows that mattered. */
                memcpy(price_of_all, best_price, size);
                choose_core(&view, price_of_all, INFINITY);
            } else {
                if (bound < best_bound) best_bound = bound;
                memcpy(best_price, price_of_all, size);
            }
            double seen = INFINITY;
            memcpy(stage_price, price_of_all, size);
            for (int step = 0; step < MAX_STEPS; step++)
                if (!newton_step(&view, price_of_all, mu, &damping, stage_price, &seen)) break;
            memcpy(price_of_all, stage_price, size);
        }
        if (choose_core(&view, price_of_all, 0.0) > best_bound) memcpy(price_of_all, best_price, size);
    }
    free(view.core);
    free(view.core_start);
    free(view.margin);
    free(view.share);
    free(view.hessian);
    free(view.scratch);
}
