#include "branch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clique.h"
#include "leaf.h"

/* Found by trying on markets of 168 GPUs. `SURE_TRIALS` splits of a node are tried in any case, the others until both
 * sides were `KNOWN` times. */
enum { ROUNDS = 8, TRIED = 24, TRIAL_STEPS = 12, KNOWN = 8, SURE_TRIALS = 2 };
enum { STEPS = 100000 };
/* Nodes kept only for what is as good as the best choice, past which it is no longer looked for: bidders alike have
 * factorials of such choices. */
enum { MOST_TIED = 10000 };
static const double WHOLE = 1e-6, CLOSE = 1e-9, UNTRIED = 0.05;

/* A part of a bidder's options: one of them, or with a machine all rows that name it. */
typedef struct {
    int bidder, machine, option;
    double weight, score;
    uint64_t digest; /* of the options that the relaxation takes a part of */
} Split;

typedef struct {
    Shared *shared;
    const Tables *tables;
    Relaxation *relax;
    Limits limits;
    size_t most_bytes;
    int status, depths;
    int ties;      /* whether equal choices are told apart */
    int64_t nodes, tied; /* tied: relaxations whose bound was the best choice's gain */
    Worth best;
    int64_t wanted; /* what a choice must gain to be of interest */
    int32_t *best_choice, *choice, *used;
    int32_t *least, *least_sum, *many; /* [bidders * machines], [machines], [machines] */
    double *weight;                    /* [machines] */
    uint64_t *digest;                  /* [machines] */
    double *level;                     /* [variables]: by the basis looked at */
    Basis **node, *trial;              /* by depth */
    Leaf leaf;
    double leaf_bits;                  /* so many bits of options are tried one by one: more after it worked */
} Search;

/* Good choices, and the best one. */

static void keep_in_pool(Search *s, const int32_t *choice) {
    int bidders = s->tables->bidders;
    memcpy(s->shared->pool + (size_t)(s->shared->pooled++ % POOLED) * bidders, choice, sizeof(int32_t) * bidders);
}

/* Whether equals were given up, as too many nodes have nothing better. */
static int ties_are_open(const Search *s) { return s->ties && s->tied > MOST_TIED; }

static void offer(Search *s, const int32_t *choice) {
    Worth worth;
    if (!worth_of(s->tables, choice, &worth, s->used) || !worth_more(&worth, &s->best)) return;
    if (worth.gain > s->best.gain) s->tied = 0;
    s->best = worth;
    s->wanted = worth.gain + (!s->ties || ties_are_open(s));
    memcpy(s->best_choice, choice, sizeof(int32_t) * s->tables->bidders);
    keep_in_pool(s, choice);
}

static void use_row(const Search *s, int row, int sign) {
    const Tables *t = s->tables;
    for (int pin = t->pin_start[row]; pin < t->pin_start[row + 1]; pin++)
        s->used[t->pin_machine[pin]] += sign * t->pin_gpus[pin];
}

static int fits(const Search *s, int row) {
    const Tables *t = s->tables;
    for (int pin = t->pin_start[row]; pin < t->pin_start[row + 1]; pin++)
        if (s->used[t->pin_machine[pin]] + t->pin_gpus[pin] > t->free[t->pin_machine[pin]]) return 0;
    return 1;
}

/* Every bidder but `skip` to the best row that what the others leave has room for, until nobody changes. */
static void improve(Search *s, int skip, int32_t *choice) {
    const Tables *t = s->tables;
    Worth worth;
    if (!worth_of(t, choice, &worth, s->used)) return;
    for (int changed = 1; changed;) {
        changed = 0;
        for (int i = 0; i < t->bidders; i++) {
            if (i == skip) continue;
            int before = choice[i], row = t->row_start[i], end = before < 0 ? t->row_start[i + 1] : before;
            if (before >= 0) use_row(s, before, -1);
            while (row < end && !fits(s, row)) row++;
            if (row < end && (before < 0 || t->gain[row] > t->gain[before])) {
                choice[i] = row;
                changed = 1;
            }
            if (choice[i] >= 0) use_row(s, choice[i], 1);
        }
    }
    offer(s, choice);
}

static void begin_from_pool(Search *s, int skip) {
    int bidders = s->tables->bidders, count = s->shared->pooled < POOLED ? s->shared->pooled : POOLED;
    int32_t *kept = malloc(sizeof(int32_t) * ((size_t)count * bidders + 1));
    if (!kept) return;
    memcpy(kept, s->shared->pool, sizeof(int32_t) * (size_t)count * bidders);
    for (int n = 0; n < count; n++) {
        int32_t *choice = kept + (size_t)n * bidders;
        if (skip >= 0) choice[skip] = -1;
        improve(s, skip, choice);
    }
    free(kept);
}

/* What follows from what is alive. */

/* What each bidder takes of every machine whatever it chooses; their sums. */
static void find_least(Search *s, const Basis *b) {
    const Tables *t = s->tables;
    memset(s->least, 0, sizeof(int32_t) * (size_t)t->bidders * t->machines);
    memset(s->least_sum, 0, sizeof(int32_t) * t->machines);
    for (int i = 0; i < t->bidders; i++) {
        if (b->alive[t->rows + i]) continue;
        int32_t *least = s->least + (size_t)i * t->machines;
        memset(s->many, 0, sizeof(int32_t) * t->machines);
        for (int row = t->row_start[i]; row < t->row_start[i + 1]; row++) {
            if (!b->alive[row]) continue;
            for (int pin = t->pin_start[row]; pin < t->pin_start[row + 1]; pin++) {
                int m = t->pin_machine[pin];
                if (!s->many[m]++ || t->pin_gpus[pin] < least[m]) least[m] = t->pin_gpus[pin];
            }
        }
        for (int m = 0; m < t->machines; m++) {
            if (s->many[m] < b->options[i]) least[m] = 0;
            s->least_sum[m] += least[m];
        }
    }
}

static int has_room(const Search *s, int row) {
    const Tables *t = s->tables;
    const int32_t *least = s->least + (size_t)t->bidder[row] * t->machines;
    for (int pin = t->pin_start[row]; pin < t->pin_start[row + 1]; pin++) {
        int m = t->pin_machine[pin];
        if (s->least_sum[m] - least[m] + t->pin_gpus[pin] > t->free[m]) return 0;
    }
    return 1;
}

/* Bans rows that what the others take in any case leaves no room for; false where a bidder has no option left. */
static int propagate(Search *s, Basis *b) {
    const Tables *t = s->tables;
    for (int changed = 1; changed;) {
        changed = 0;
        for (int i = 0; i < t->bidders; i++)
            if (!b->options[i]) return 0;
        find_least(s, b);
        for (int row = 0; row < t->rows; row++)
            if (b->alive[row] && !has_room(s, row)) {
                ban(s->relax, b, row);
                changed = 1;
            }
    }
    return 1;
}

static int decided(const Search *s, const Basis *b) {
    for (int i = 0; i < s->tables->bidders; i++)
        if (b->options[i] > 1) return 0;
    return 1;
}

static void offer_decided(Search *s, const Basis *b) {
    const Tables *t = s->tables;
    for (int i = 0; i < t->bidders; i++) {
        s->choice[i] = -1;
        for (int row = t->row_start[i]; row < t->row_start[i + 1]; row++)
            if (b->alive[row]) s->choice[i] = row;
    }
    offer(s, s->choice);
}

/* The relaxation's answer: levels by variable, and the choice that it makes where it is whole. */
static int read_levels(Search *s, const Basis *b) {
    const Tables *t = s->tables;
    int whole = 1;
    memset(s->level, 0, sizeof(double) * (t->rows + b->constraints));
    for (int i = 0; i < t->bidders; i++) s->choice[i] = -1;
    for (int k = 0; k < b->constraints; k++) {
        int v = b->basic[k];
        s->level[v] = b->level[k];
        if (v >= t->rows || b->level[k] < WHOLE) continue;
        if (b->level[k] < 1.0 - WHOLE)
            whole = 0;
        else
            s->choice[t->bidder[v]] = v;
    }
    return whole;
}

/* Bans options that lose too much against the bound to be part of anything as good as the best choice. */
static int ban_losers(Search *s, Basis *b, int64_t bound) {
    const Tables *t = s->tables;
    int banned = 0;
    int64_t spare = bound - s->wanted;
    for (int i = 0; i < t->bidders; i++) {
        if (b->alive[t->rows + i] && s->relax->best[i] > spare) {
            ban(s->relax, b, t->rows + i);
            banned++;
        }
        for (int row = t->row_start[i]; row < t->row_start[i + 1]; row++)
            if (b->alive[row] && s->relax->best[i] - s->relax->margin[row] > spare) {
                ban(s->relax, b, row);
                banned++;
            }
    }
    return banned;
}

static double cutoff_of(const Search *s) {
    double best = (double)s->best.gain / s->tables->unit;
    return best - CLOSE * (1.0 + fabs(best));
}

/* Whether whole numbers prove that nothing alive is as good as the best choice, after a run that ended like that. */
static int proven_worse(Search *s, Basis *b, int status, int ray_sign) {
    if (status != RELAX_BELOW && status != RELAX_EMPTY) return 0;
    price_by(s->relax, b, 0.0, 0);
    if (status == RELAX_EMPTY) {
        double gap = b->value - cutoff_of(s), far = 1e-3 + 4.0 * (gap > 0.0 ? gap : 0.0);
        for (int tries = 0; tries < 4; tries++, far *= 100.0) {
            price_by(s->relax, b, far, ray_sign);
            if (bound_of(s->relax, b) < s->wanted) return 1;
        }
        return 0;
    }
    return bound_of(s->relax, b) < s->wanted;
}

static void offer_to(void *search, const int32_t *choice) { offer(search, choice); }

/* Tries all that is alive where that is likely to be little. */
static int tried_all(Search *s, const Basis *b, int64_t bound) {
    double bits = 0.0;
    for (int i = 0; i < s->tables->bidders; i++) bits += log2(b->options[i]);
    if (bits > s->leaf_bits) return 0;
    /* So that a leaf takes no longer than the few trials of splits that it saves, each of some steps of the simplex. */
    int all = try_all(&s->leaf, b, bound, b->constraints * b->constraints);
    s->leaf_bits += all ? 0.1 : -0.3;
    return all;
}

/* Solves the relaxation of a node and draws what follows; false when nothing in it can be better than the best. */
static int settle(Search *s, Basis *b) {
    double cutoff = cutoff_of(s);
    for (;;) {
        if (!propagate(s, b)) return 0;
        if (decided(s, b)) {
            offer_decided(s, b);
            return 0;
        }
        list_live(s->relax, b);
        int ray_sign, status = dual_simplex(s->relax, b, (Until){cutoff, STEPS, s->limits.deadline_s}, &ray_sign);
        if (proven_worse(s, b, status, ray_sign)) return 0;
        if (status == RELAX_BELOW) {
            cutoff = -INFINITY;
            continue;
        }
        if (status != RELAX_OPTIMAL) return 1;
        price_by(s->relax, b, 0.0, 0);
        int64_t bound = bound_of(s->relax, b);
        if (read_levels(s, b)) offer(s, s->choice);
        if (bound == MOST_BOUND) return 1;
        if (bound == s->best.gain) s->tied++;
        if (ties_are_open(s)) s->wanted = s->best.gain + 1;
        if (bound < s->wanted) return 0;
        if (!ban_losers(s, b, bound)) return !tried_all(s, b, bound);
    }
}

/* Where to branch. */

static int in_part(const Search *s, const Split *split, int option) {
    const Tables *t = s->tables;
    if (split->machine < 0) return option == split->option;
    if (option >= t->rows) return 0;
    for (int pin = t->pin_start[option]; pin < t->pin_start[option + 1]; pin++)
        if (t->pin_machine[pin] == split->machine) return 1;
    return 0;
}

/* Leaves a bidder the options inside the split, or those outside. */
static void take_side(Search *s, Basis *b, const Split *split, int inside) {
    const Tables *t = s->tables;
    int i = split->bidder;
    for (int row = t->row_start[i]; row < t->row_start[i + 1]; row++)
        if (b->alive[row] && in_part(s, split, row) != inside) ban(s->relax, b, row);
    if (b->alive[t->rows + i] && in_part(s, split, t->rows + i) != inside) ban(s->relax, b, t->rows + i);
}

static Record *record_of(const Search *s, const Split *split) {
    const Tables *t = s->tables;
    size_t at = split->machine < 0 ? (size_t)t->bidders * t->machines + split->option
                                   : (size_t)split->bidder * t->machines + split->machine;
    return s->shared->record + at;
}

/* What a side is likely to lose, by what it lost before; a guess where it was never tried. */
static double likely_loss(const Search *s, const Split *split, int inside) {
    const Record *record = record_of(s, split);
    double moved = inside ? 1.0 - split->weight : split->weight;
    return moved * (record->tried[inside] ? record->loss[inside] / record->tried[inside] : UNTRIED);
}

static double score_of(double outside, double inside) {
    return outside < 1e6 && inside < 1e6 ? outside * inside : 1e6;
}

/* Puts a split among the likely best, unless one of the bidder parts what the relaxation takes in the same way. */
static void propose(const Search *s, Split *splits, int *count, Split split) {
    if (split.weight < 0.02 || split.weight > 0.98) return;
    for (int n = 0; n < *count; n++)
        if (splits[n].bidder == split.bidder && splits[n].digest == split.digest) return;
    split.score = score_of(likely_loss(s, &split, 0), likely_loss(s, &split, 1));
    int at = *count < TRIED ? (*count)++ : TRIED;
    for (; at > 0 && splits[at - 1].score < split.score; at--)
        if (at < TRIED) splits[at] = splits[at - 1];
    if (at < TRIED) splits[at] = split;
}

static uint64_t digest_of(int option) { return (uint64_t)(option + 1) * 0x9E3779B97F4A7C15u; }

static void propose_for(Search *s, const Basis *b, int i, Split *splits, int *count) {
    const Tables *t = s->tables;
    memset(s->weight, 0, sizeof(double) * t->machines);
    memset(s->digest, 0, sizeof(uint64_t) * t->machines);
    memset(s->many, 0, sizeof(int32_t) * t->machines);
    for (int row = t->row_start[i]; row < t->row_start[i + 1]; row++) {
        if (!b->alive[row]) continue;
        for (int pin = t->pin_start[row]; pin < t->pin_start[row + 1]; pin++) s->many[t->pin_machine[pin]]++;
        if (s->level[row] <= WHOLE) continue;
        for (int pin = t->pin_start[row]; pin < t->pin_start[row + 1]; pin++) {
            s->weight[t->pin_machine[pin]] += s->level[row];
            s->digest[t->pin_machine[pin]] += digest_of(row);
        }
    }
    for (int m = 0; m < t->machines; m++)
        /* With all of the bidder's options inside, one side would be the node itself. */
        if (s->many[m] < b->options[i])
            propose(s, splits, count, (Split){.bidder = i, .machine = m, .weight = s->weight[m], .digest = s->digest[m]});
    for (int row = t->row_start[i]; row < t->row_start[i + 1]; row++)
        if (b->alive[row] && s->level[row] > WHOLE)
            propose(s, splits, count, (Split){i, -1, row, s->level[row], 0.0, digest_of(row)});
}

/* Where the relaxation is whole but others are not ruled out: what it takes, or whatever is alive, against the rest. */
static Split any_split(const Search *s, const Basis *b) {
    const Tables *t = s->tables;
    int i = 0, option = -1;
    while (b->options[i] < 2) i++;
    for (int row = t->row_start[i]; row < t->row_start[i + 1]; row++)
        if (b->alive[row] && (option < 0 || s->level[row] > s->level[option])) option = row;
    return (Split){.bidder = i, .machine = -1, .option = option};
}

/* Tries both sides of a split for a few steps: the loss of value of each, or that it can be ruled out (`worse`). */
static double try_side(Search *s, const Basis *b, const Split *split, int inside, int *worse) {
    copy_basis(s->trial, b);
    take_side(s, s->trial, split, inside);
    list_live(s->relax, s->trial);
    Until until = {cutoff_of(s), TRIAL_STEPS, s->limits.deadline_s};
    int ray_sign, status = dual_simplex(s->relax, s->trial, until, &ray_sign);
    *worse = proven_worse(s, s->trial, status, ray_sign);
    double loss = b->value - s->trial->value, moved = inside ? 1.0 - split->weight : split->weight;
    if (status == RELAX_EMPTY) return INFINITY;
    if (loss < 1e-7) loss = 1e-7;
    record_of(s, split)->loss[inside] += loss / moved;
    record_of(s, split)->tried[inside]++;
    return loss;
}

static int has_time(Search *s) {
    if (monotonic_s() > s->limits.deadline_s) s->status = SEARCH_OUT_OF_TIME;
    return s->status == SEARCH_OPTIMAL;
}

static int is_known(const Search *s, const Split *split) {
    const Record *record = record_of(s, split);
    return record->tried[0] >= KNOWN && record->tried[1] >= KNOWN;
}

/* The split that costs both sides most; 0 where instead a side was ruled out and the node became smaller. */
static int choose_split(Search *s, Basis *b, Split *best, int *first_side) {
    const Tables *t = s->tables;
    Split splits[TRIED + 1];
    int count = 0;
    read_levels(s, b);
    for (int i = 0; i < t->bidders; i++)
        if (b->options[i] > 1) propose_for(s, b, i, splits, &count);
    *first_side = 1;
    *best = any_split(s, b);
    double most = -1.0;
    for (int n = 0, trials = 0; n < count && has_time(s); n++) {
        double outside = likely_loss(s, &splits[n], 0), inside = likely_loss(s, &splits[n], 1);
        if (trials < SURE_TRIALS || !is_known(s, &splits[n])) {
            int worse[2];
            trials++;
            outside = try_side(s, b, &splits[n], 0, &worse[0]);
            inside = try_side(s, b, &splits[n], 1, &worse[1]);
            if (worse[0] || worse[1]) {
                take_side(s, b, &splits[n], !worse[1]);
                if (worse[0] && worse[1]) b->options[splits[n].bidder] = 0;
                return 0;
            }
        }
        if (score_of(outside, inside) <= most) continue;
        most = score_of(outside, inside);
        *best = splits[n];
        *first_side = inside <= outside;
    }
    return 1;
}

/* The tree. */

static Basis *node_at(Search *s, int depth) {
    if (depth >= s->depths) {
        Basis **grown = realloc(s->node, sizeof(Basis *) * 2 * (depth + 1));
        if (!grown) return NULL;
        s->node = grown;
        for (int d = s->depths; d < 2 * (depth + 1); d++) s->node[d] = NULL;
        s->depths = 2 * (depth + 1);
    }
    if (!s->node[depth]) s->node[depth] = new_basis(s->relax);
    return s->node[depth];
}

static int may_go_on(Search *s, int depth) {
    s->nodes++;
    if (depth * s->trial->size > s->most_bytes) s->status = SEARCH_TOO_WIDE;
    if (s->limits.most_states && s->nodes > s->limits.most_states) s->status = SEARCH_TOO_WIDE;
    return has_time(s);
}

static void explore(Search *s, int depth) {
    Basis *b = s->node[depth];
    Split split;
    int first_side;
    do {
        if (!may_go_on(s, depth) || !settle(s, b)) return;
    } while (!choose_split(s, b, &split, &first_side));
    for (int turn = 0; turn < 2 && s->status == SEARCH_OPTIMAL; turn++) {
        Basis *child = node_at(s, depth + 1);
        if (!child) {
            s->status = SEARCH_NO_MEMORY;
            return;
        }
        copy_basis(child, b);
        take_side(s, child, &split, turn ? !first_side : first_side);
        list_live(s->relax, child);
        refresh(s->relax, child);
        explore(s, depth + 1);
    }
}

/* Rounds the relaxation step by step: the option that it takes most of is taken, until it is whole. */
static void dive(Search *s, int skip) {
    const Tables *t = s->tables;
    Basis *b = node_at(s, 1);
    if (!b) {
        s->status = SEARCH_NO_MEMORY;
        return;
    }
    copy_basis(b, s->node[0]);
    while (may_go_on(s, 1) && settle(s, b)) {
        int option = -1;
        if (read_levels(s, b)) break;
        for (int row = 0; row < t->rows; row++)
            if (b->alive[row] && b->options[t->bidder[row]] > 1 && (option < 0 || s->level[row] > s->level[option]))
                option = row;
        if (option < 0) break;
        take_side(s, b, &(Split){.bidder = t->bidder[option], .machine = -1, .option = option}, 1);
    }
    int32_t *choice = malloc(sizeof(int32_t) * (t->bidders + 1));
    if (!choice) return;
    memcpy(choice, s->best_choice, sizeof(int32_t) * t->bidders);
    improve(s, skip, choice);
    free(choice);
}

/* The root with the constraints that were added since; false without memory. */
static int extend_root(Shared *shared) {
    Relaxation *r = &shared->relaxation;
    Basis *next = new_basis(r);
    if (!next) return 0;
    extend_basis(r, next, shared->root);
    free(shared->root);
    shared->root = next;
    refresh(r, next);
    return 1;
}

/* The relaxation with all bidders, tightened by cliques as far as time allows; false without memory. */
static int find_root(Shared *shared, double deadline_s) {
    Relaxation *r = &shared->relaxation;
    if (!shared->root) {
        shared->root = new_basis(r);
        if (!shared->root) return 0;
        begin_basis(r, shared->root);
    }
    for (;;) {
        if (shared->root->constraints < r->constraints && !extend_root(shared)) return 0;
        int ray_sign, status = dual_simplex(r, shared->root, (Until){-INFINITY, STEPS, deadline_s}, &ray_sign);
        if (status != RELAX_OPTIMAL || shared->rounds == ROUNDS) return 1;
        int added = separate_cliques(r, shared->root, deadline_s);
        if (added < 0 || (added > 0 && !gather_columns(r))) return 0;
        if (!added && monotonic_s() > deadline_s) return 1;
        shared->rounds = added ? shared->rounds + 1 : ROUNDS;
    }
}

static int open_search(Search *s) {
    const Tables *t = s->tables;
    s->best_choice = malloc(sizeof(int32_t) * (t->bidders + 1));
    s->choice = malloc(sizeof(int32_t) * (t->bidders + 1));
    s->used = malloc(sizeof(int32_t) * (t->machines + 1));
    s->least = malloc(sizeof(int32_t) * ((size_t)t->bidders * t->machines + 1));
    s->least_sum = malloc(sizeof(int32_t) * (t->machines + 1));
    s->many = malloc(sizeof(int32_t) * (t->machines + 1));
    s->level = malloc(sizeof(double) * (t->rows + s->relax->constraints + 1));
    s->weight = malloc(sizeof(double) * (t->machines + 1));
    s->digest = malloc(sizeof(uint64_t) * (t->machines + 1));
    s->trial = new_basis(s->relax);
    s->leaf.least = &s->wanted;
    s->leaf.found = offer_to;
    s->leaf.whom = s;
    s->leaf_bits = 16.0;
    return open_leaf(&s->leaf, s->relax, s->relax->constraints) && s->best_choice && s->choice && s->used && s->least &&
           s->least_sum && s->many && s->weight && s->digest && s->level && s->trial && node_at(s, 0);
}

static void close_search(Search *s) {
    for (int d = 0; d < s->depths; d++) free(s->node[d]);
    close_leaf(&s->leaf);
    void *all[] = {s->best_choice, s->choice, s->used,  s->least, s->least_sum, s->many,
                   s->weight,      s->digest, s->level, s->trial, s->node};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
}

static int64_t root_bound(Search *s, int skip) {
    Relaxation *r = s->relax;
    Basis *b = s->node[0];
    int ray_sign;
    copy_basis(b, s->shared->root);
    if (skip >= 0)
        for (int row = s->tables->row_start[skip]; row < s->tables->row_start[skip + 1]; row++) ban(r, b, row);
    list_live(r, b);
    refresh(r, b);
    dual_simplex(r, b, (Until){-INFINITY, STEPS, s->limits.deadline_s}, &ray_sign);
    price_by(r, b, 0.0, 0);
    return bound_of(r, b);
}

Outcome best_of_tables(Shared *shared, int skip, Limits limits, size_t most_bytes, int32_t *choice) {
    Search s = {.shared = shared, .tables = &shared->tables, .relax = &shared->relaxation};
    s.limits = limits;
    s.most_bytes = most_bytes;
    s.ties = skip < 0 || shared->always_ties;
    Outcome outcome = {.status = SEARCH_NO_MEMORY};
    if (find_root(shared, limits.deadline_s) && open_search(&s)) {
        outcome.bound = root_bound(&s, skip);
        for (int i = 0; i < s.tables->bidders; i++) s.best_choice[i] = -1;
        s.wanted = !s.ties;
        begin_from_pool(&s, skip);
        dive(&s, skip);
        explore(&s, 0);
        if (s.status == SEARCH_OPTIMAL) {
            outcome.bound = s.best.gain;
            if (ties_are_open(&s)) s.status = SEARCH_TOO_WIDE;
        }
        outcome.status = s.status;
        outcome.value = s.best.gain;
        outcome.states = s.nodes;
        memcpy(choice, s.best_choice, sizeof(int32_t) * s.tables->bidders);
    }
    close_search(&s);
    return outcome;
}
