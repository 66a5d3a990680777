/* Prices of the resources: the Lagrangian dual of the knapsack, by Newton's method on a smoothed bound.
 *
 * The bound sum_k price_k C_k + sum_i max_r (gain_r - price . use_r) is convex and piecewise linear in the prices. With
 * mu * log sum exp(. / mu) in place of max it is smooth, and a handful of Newton steps with shrinking mu come close to
 * its least point. Any prices give a valid bound, so nothing here needs to be exact; the search is.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

typedef struct {
    const Problem *problem;
    int skip;
    int32_t *core; /* rows worth a look at these prices */
    int32_t *core_start;
    double *margin;            /* of one bidder's rows */
    double *hessian, *scratch; /* [resources * resources] */
    double bound; /* the bound itself, not smoothed, at the point last looked at */
} View;

static double margin_of(const Problem *p, int row, const double *price) {
    double margin = p->gain_f[row];
    for (int n = p->part_start[row]; n < p->part_start[row + 1]; n++)
        margin -= price[p->part_resource[n]] * p->part_use[n];
    return margin;
}

/* Takes rows that lose at most `loss` against the best row of their bidder; returns the bound over all rows. */
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

/* Adds what rows of one bidder use on average and, by pair of resources, together; weighed by their shares. */
static void average_use(const View *view, const int32_t *row, const double *share, int count, double *mean,
                        double *square) {
    const Problem *p = view->problem;
    int K = p->resources;
    memset(mean, 0, sizeof(double) * K);
    memset(square, 0, sizeof(double) * K * K);
    for (int c = 0; c < count; c++) {
        if (share[c] == 0.0) continue;
        int first = p->part_start[row[c]], end = p->part_start[row[c] + 1];
        for (int n = first; n < end; n++) {
            double part = share[c] * p->part_use[n];
            int k = p->part_resource[n];
            mean[k] += part;
            for (int o = first; o <= n; o++) square[k * K + p->part_resource[o]] += part * p->part_use[o];
        }
    }
}

/* The smoothed bound, its gradient and the lower half of its Hessian; without `gradient` only the bound. */
static double smooth_bound(View *view, const double *price, double mu, double *gradient, double *hessian) {
    const Problem *p = view->problem;
    int K = p->resources;
    double total = 0.0, bound = 0.0, *margin = view->margin, mean[MOST_RESOURCES];
    for (int k = 0; k < K; k++) total += price[k];
    for (int k = 0; k < K && gradient; k++) gradient[k] = 1.0;
    if (gradient) memset(hessian, 0, sizeof(double) * K * K);
    bound = total;
    for (int i = 0; i < p->bidders; i++) {
        int first = view->core_start[i], count = view->core_start[i + 1] - first;
        if (!count) continue;
        double best = 0.0, weight;
        for (int c = 0; c < count; c++) {
            margin[c] = margin_of(p, view->core[first + c], price);
            if (margin[c] > best) best = margin[c];
        }
        weight = exp(-best / mu);
        for (int c = 0; c < count; c++) {
            double exponent = (margin[c] - best) / mu;
            margin[c] = exponent < -30.0 ? 0.0 : exp(exponent);
            weight += margin[c];
        }
        total += best + mu * log(weight);
        bound += best;
        if (!gradient) continue;
        average_use(view, view->core + first, margin, count, mean, view->scratch);
        for (int k = 0; k < K; k++) {
            mean[k] /= weight;
            gradient[k] -= mean[k];
            for (int l = 0; l <= k; l++)
                hessian[k * K + l] += (view->scratch[k * K + l] / weight - mean[k] * mean[l]) / mu;
        }
    }
    view->bound = bound;
    return total;
}

/* Solves (H + damping * scale) d = -g over the free prices by Cholesky; prices held at 0 get d = 0. */
static void newton_direction(int K, const double *hessian, const double *gradient, const int *held, double damping,
                             double *direction) {
    double factor[MOST_RESOURCES * MOST_RESOURCES];
    double scale = 1e-9;
    for (int k = 0; k < K; k++) scale += hessian[k * K + k] / K + fabs(gradient[k]);
    double ridge = damping * scale;
    for (int k = 0; k < K; k++) {
        for (int l = 0; l <= k; l++) {
            double sum = held[k] || held[l] ? 0.0 : hessian[k * K + l];
            if (k == l) sum = held[k] ? 1.0 : sum + ridge;
            for (int m = 0; m < l; m++) sum -= factor[k * K + m] * factor[l * K + m];
            if (k == l)
                factor[k * K + k] = sqrt(sum > ridge * 1e-3 ? sum : ridge * 1e-3);
            else
                factor[k * K + l] = sum / factor[l * K + l];
        }
    }
    for (int k = 0; k < K; k++) {
        double sum = held[k] ? 0.0 : -gradient[k];
        for (int m = 0; m < k; m++) sum -= factor[k * K + m] * direction[m];
        direction[k] = sum / factor[k * K + k];
    }
    for (int k = K - 1; k >= 0; k--) {
        double sum = direction[k];
        for (int m = k + 1; m < K; m++) sum -= factor[m * K + k] * direction[m];
        direction[k] = sum / factor[k * K + k];
    }
}

static double promise(int K, const double *price, const double *gradient, const double *direction) {
    double promised = 0.0;
    for (int k = 0; k < K; k++) {
        double to = price[k] + direction[k];
        promised -= gradient[k] * ((to > 0.0 ? to : 0.0) - price[k]);
    }
    return promised;
}

/* How far the smoothed bound can lie above its least, were no best price more than `reach` above the one now. */
static double left_to_gain(int K, const double *price, const double *gradient) {
    const double reach = 0.1;
    double left = 0.0;
    for (int k = 0; k < K; k++) left += gradient[k] > 0.0 ? gradient[k] * price[k] : -gradient[k] * reach;
    return left;
}

static void move(int K, const double *price, const double *direction, double step, double *to) {
    for (int k = 0; k < K; k++) {
        to[k] = price[k] + step * direction[k];
        if (to[k] < 0.0) to[k] = 0.0;
    }
}

/* One damped Newton step; false when none pays any more. Keeps the best prices seen by the bound itself.
 *
 * Where the smoothed bound is nearly straight the Hessian says little and the step is far too long: then damping grows,
 * which turns it towards the gradient and shortens it; it shrinks again with every step that is taken whole. */
static int newton_step(View *view, double *price, double mu, double *damping, double *best_price, double *best_bound) {
    enum { TRIALS = 8 };
    int K = view->problem->resources, held[MOST_RESOURCES];
    double gradient[MOST_RESOURCES], *hessian = view->hessian, direction[MOST_RESOURCES];
    double now = smooth_bound(view, price, mu, gradient, hessian);
    if (view->bound < *best_bound) {
        *best_bound = view->bound;
        memcpy(best_price, price, sizeof(double) * K);
    }
    if (left_to_gain(K, price, gradient) < 0.02 * mu) return 0;
    for (int k = 0; k < K; k++) held[k] = price[k] <= 0.0 && gradient[k] >= 0.0;
    double trial[MOST_RESOURCES];
    for (int tries = 0; tries < TRIALS; tries++) {
        newton_direction(K, hessian, gradient, held, *damping, direction);
        double promised = promise(K, price, gradient, direction);
        for (double step = 1.0; promised > 0.0 && step > 0.3; step *= 0.5) {
            move(K, price, direction, step, trial);
            double then = smooth_bound(view, trial, mu, NULL, NULL);
            if (then >= now - 1e-4 * step * promised) continue;
            if (step == 1.0 && *damping > 1e-9) *damping *= 0.2;
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
    view->hessian = malloc(sizeof(double) * problem->resources * problem->resources);
    view->scratch = malloc(sizeof(double) * problem->resources * problem->resources);
    return view->core && view->core_start && view->margin && view->hessian && view->scratch;
}

void find_prices(const Problem *problem, int skip, double *price_of_all, double first_mu) {
    enum { MOST_STEPS = 12 };
    /* The more bidders, the less one of them matters, and the closer the bound must come. */
    const double last_mu = 3e-4 / problem->bidders, shrink = 0.25;
    const double least_core = 0.8 / problem->bidders;
    View view = {.problem = problem, .skip = skip};
    if (problem->resources && open_view(&view)) {
        double mu = dearest_gain(problem) / 8.0;
        if (first_mu > 0.0 && mu > first_mu) mu = first_mu;
        size_t size = sizeof(double) * problem->resources;
        double best_price[MOST_RESOURCES], stage_price[MOST_RESOURCES], damping = 1e-6, best_bound = INFINITY;
        for (int last = 0; !last; mu *= shrink) {
            last = mu <= last_mu;
            double core_loss = 30.0 * mu > least_core ? 30.0 * mu : least_core, bound = choose_core(&view, price_of_all, core_loss);
            if (bound > best_bound + mu) {
                /* The core of the last stage left out rows that counted. */
                memcpy(price_of_all, best_price, size);
                choose_core(&view, price_of_all, INFINITY);
            } else {
                if (bound < best_bound) best_bound = bound;
                memcpy(best_price, price_of_all, size);
            }
            double seen = INFINITY;
            memcpy(stage_price, price_of_all, size);
            for (int step = 0; step < MOST_STEPS; step++)
                if (!newton_step(&view, price_of_all, mu, &damping, stage_price, &seen)) break;
            memcpy(price_of_all, stage_price, size);
        }
        if (choose_core(&view, price_of_all, 0.0) > best_bound) memcpy(price_of_all, best_price, size);
    }
    free(view.core);
    free(view.core_start);
    free(view.margin);
    free(view.hessian);
    free(view.scratch);
}
