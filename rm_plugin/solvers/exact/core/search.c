/* Dynamic programme over the bidders, pruned by a bound (docs/design/auction.md, "The search").
 *
 * A state is what the bidders so far use of every resource, with the best gain that reaches it. It is worth at most its
 * gain, plus what is left of the resources at their prices, plus the largest margins of the bidders to come. States
 * worth less than a target are dropped. The target starts just below the bound and sinks until a complete choice reaches
 * it. No state worth the target is ever dropped, so that choice is optimal.
 *
 * Canonical states: if the bidders to come cannot use up what is left of a resource, its use is raised to the level at
 * which it just never binds. States that differ in nothing else become one. A resource that all options together
 * cannot use up is not part of the states at all. Near the bound most resources are of that kind.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shared_pin_costs.h"
#include "completion_bound.h"
#include "problem.h"
#include "hash.h"
#include "lazy_constraints.h"

enum { FEW_VECTORS = 4096 };  /* larger stages free their vectors after a pass */
enum { FIRST_ROOM = 8 };      /* states allocated for a stage at first: most hold a handful */
enum { MAX_COMPLETED = 2 };  /* resources with a completion bound */

typedef struct {
    int64_t gain, tie;
    int32_t gpus, parent, row;
} Node;

/* The states of one stage: nodes, and a vector of `width` numbers for each. Large vectors are freed once used. */
typedef struct {
    int count, room, vector_room;
    Node *node;
    int32_t *vector;
} Stage;

typedef struct {
    const Problem *problem;
    int skip, width, stages; /* stages: one per bidder */
    Limits limits;
    int64_t price[MAX_RESOURCES], bound, target, states;
    int64_t best_pruned, likely_pruned; /* upper bound and estimate of the value of what was pruned */
    int64_t *best; /* by bidder: its largest margin */
    int64_t *margin; /* by row: gain less price of its use */
    Option *option;
    int32_t *option_start; /* by bidder */
    int32_t *order;           /* bidder by stage */
    int64_t *best_to_come;    /* by stage: sum of `best` over the bidders after it */
    int32_t *use_to_come;     /* by stage and resource: the most that the bidders after it use; later of binding ones only */
    int64_t *idle_value;      /* by stage: price of what resources that cannot bind leave */
    int binding;              /* number of resources that may bind; the arrays that follow are of these */
    int32_t resource[MAX_RESOURCES], capacity[MAX_RESOURCES];
    int64_t binding_price[MAX_RESOURCES];
    int32_t *use;             /* by option and binding resource */
    int32_t *seat;            /* by machine: place of its pinned GPUs in the vector while they matter, else -1 */
    Charges charges;          /* costs of shared pins */
    int completions;          /* resources with a completion bound, and their places among those that bind */
    Completion completion[MAX_COMPLETED];
    int completed[MAX_COMPLETED];
    Stage *stage;             /* stages + 1 */
    int32_t *slot;            /* hash table: node index + 1 */
    uint32_t slots, slot_room; /* in use (a power of two), and allocated */
    int status;
} Run;

double monotonic_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void whole_prices(const Problem *problem, const double *price_of_all, int64_t *price) {
    for (int k = 0; k < problem->resources; k++) {
        double each = problem->capacity[k] > 0 ? price_of_all[k] / problem->capacity[k] * problem->unit : 0.0;
        price[k] = (int64_t)each;
    }
}

static int64_t margin_of(const Problem *p, const int64_t *price, int row) {
    int64_t margin = p->gain[row];
    const int32_t *use = p->use + (size_t)row * p->resources;
    for (int k = 0; k < p->resources; k++) margin -= price[k] * use[k];
    return margin;
}

int64_t bound_at(const Problem *problem, int skip, const int64_t *price, int64_t *best) {
    int64_t bound = 0;
    for (int k = 0; k < problem->resources; k++) bound += price[k] * problem->capacity[k];
    for (int i = 0; i < problem->bidders; i++) {
        best[i] = 0;
        if (i == skip) continue;
        for (int row = problem->row_start[i]; row < problem->row_start[i + 1]; row++) {
            int64_t margin = margin_of(problem, price, row);
            if (margin > best[i]) best[i] = margin;
        }
        bound += best[i];
    }
    return bound;
}

/* Computes prices in whole units, the bound and all margins, which all passes of a run share. */
static void price_run(Run *run, const double *price_of_all) {
    const Problem *p = run->problem;
    whole_prices(p, price_of_all, run->price);
    run->bound = bound_at(p, run->skip, run->price, run->best);
    for (int row = 0; row < p->rows; row++) run->margin[row] = margin_of(p, run->price, row);
}

static int by_loss(const void *left, const void *right) {
    const Option *a = left, *b = right;
    if (a->loss != b->loss) return a->loss < b->loss ? -1 : 1;
    return a->row < b->row ? -1 : a->row > b->row;
}

/* Notes that something was pruned, with an upper bound and an estimate of its value. */
static void note_pruned(Run *run, int64_t most, int64_t likely) {
    if (most > run->best_pruned) run->best_pruned = most;
    if (likely > run->likely_pruned) run->likely_pruned = likely;
}

/* Selects rows with a loss of at most the gap, least loss first. The best row left out counts as pruned. */
static void list_options(Run *run, int64_t gap) {
    const Problem *p = run->problem;
    int count = 0;
    for (int i = 0; i < p->bidders; i++) {
        run->option_start[i] = count;
        if (i == run->skip) continue;
        for (int row = p->row_start[i] - 1; row < p->row_start[i + 1]; row++) {
            int nothing = row < p->row_start[i];
            int64_t loss = run->best[i] - (nothing ? 0 : run->margin[row]);
            if (loss <= gap)
                run->option[count++] = (Option){nothing ? -1 : row, loss};
            else
                note_pruned(run, run->bound - loss, run->bound - loss);
        }
        qsort(run->option + run->option_start[i], count - run->option_start[i], sizeof(Option), by_loss);
    }
    run->option_start[p->bidders] = count;
}

static int options_of(const Run *run, int bidder) {
    return run->option_start[bidder + 1] - run->option_start[bidder];
}

/* Orders bidders by number of options, fewest first, so that states stay few. A stable insertion sort. */
static void choose_order(Run *run) {
    run->stages = 0;
    for (int i = 0; i < run->problem->bidders; i++) {
        if (i == run->skip) continue;
        int at = run->stages++;
        for (; at > 0 && options_of(run, run->order[at - 1]) > options_of(run, i); at--)
            run->order[at] = run->order[at - 1];
        run->order[at] = i;
    }
}

static Offer offer_of(const Run *run) {
    return (Offer){run->option, run->option_start, run->order, run->stages};
}

/* Resources that states may have to count: those with a price, and lazy ones that a choice has broken. */
static void find_counted(const Run *run, unsigned char *counted) {
    for (int k = 0; k < run->problem->resources; k++)
        counted[k] = is_held(run->problem, run->price, k);
}

/* The most that an option of a stage uses of a resource, for any pins before it. */
static int64_t most_use(const Run *run, int stage, int row, int k) {
    const Problem *p = run->problem;
    int64_t use = row < 0 ? 0 : p->use[(size_t)row * p->resources + k];
    for (int e = run->charges.start[stage]; e < run->charges.start[stage + 1]; e++) {
        const Event *event = &run->charges.event[e];
        use += dearest_charge(&run->charges, event, k, pin_on(p, row, event->machine));
    }
    return use;
}

static void measure_what_is_to_come(Run *run, const unsigned char *counted, unsigned char *binds) {
    const Problem *p = run->problem;
    int K = p->resources;
    run->best_to_come[run->stages] = 0;
    memset(run->use_to_come + (size_t)run->stages * K, 0, sizeof(int32_t) * K);
    memset(binds, 0, MAX_RESOURCES);
    for (int s = run->stages - 1; s >= 0; s--) {
        int i = run->order[s];
        int32_t *to_come = run->use_to_come + (size_t)s * K;
        memcpy(to_come, to_come + K, sizeof(int32_t) * K);
        run->best_to_come[s] = run->best_to_come[s + 1] + run->best[i];
        int64_t most[MAX_RESOURCES];
        memset(most, 0, sizeof(int64_t) * K);
        for (int c = run->option_start[i]; c < run->option_start[i + 1]; c++) {
            int row = run->option[c].row;
            for (int k = 0; k < K; k++) {
                int64_t use = counted[k] ? most_use(run, s, row, k) : row < 0 ? 0 : p->use[(size_t)row * K + k];
                if (use > most[k]) most[k] = use;
            }
        }
        /* Capped at the capacity, since sums over many bidders may overflow. */
        for (int k = 0; k < K; k++) {
            int too_much = most[k] > p->capacity[k] - to_come[k];
            to_come[k] = too_much ? p->capacity[k] : to_come[k] + (int32_t)most[k];
            binds[k] |= too_much && counted[k];
        }
    }
}

/* Separates the resources that may bind. The price of what the others leave is the same for all states of a stage. */
static void set_binding_apart(Run *run, const unsigned char *binds) {
    const Problem *p = run->problem;
    int K = p->resources;
    run->binding = 0;
    for (int k = 0; k < K; k++) {
        if (!binds[k]) continue;
        run->resource[run->binding] = k;
        run->capacity[run->binding] = p->capacity[k];
        run->binding_price[run->binding++] = run->price[k];
    }
    for (int s = 0; s <= run->stages; s++) {
        const int32_t *to_come = run->use_to_come + (size_t)s * K;
        int32_t *binding = run->use_to_come + (size_t)s * run->binding;
        run->idle_value[s] = 0;
        for (int k = 0; k < K; k++)
            if (!binds[k]) run->idle_value[s] += run->price[k] * to_come[k];
        for (int b = 0; b < run->binding; b++) binding[b] = to_come[run->resource[b]];
    }
}

/* The place of the binding resource with the highest unit price below a price, or -1. */
static int next_to_complete(const Run *run, int64_t below) {
    int chosen = -1;
    for (int b = 0; b < run->binding; b++) {
        int64_t price = run->binding_price[b];
        if (price > 0 && price < below && (chosen < 0 || price > run->binding_price[chosen])) chosen = b;
    }
    return chosen;
}

/* Computes completion bounds for the dearest resources, if that takes little time or less than recent searches. */
static void complete_dearest(Run *run, const Offer *offer, int64_t gap, int beam) {
    enum { LITTLE_WORK = 1 << 20, WORK_A_STATE = 30 };
    int64_t spent = *run->problem->spent, states = run->states > spent ? run->states : spent;
    int64_t most_work = LITTLE_WORK + (beam ? 0 : WORK_A_STATE * states), below = INT64_MAX;
    run->completions = 0;
    for (int at; run->completions < MAX_COMPLETED && (at = next_to_complete(run, below)) >= 0;) {
        Completion *completion = &run->completion[run->completions];
        below = run->binding_price[at];
        int64_t work = lay_out_completion(completion, run->problem, offer, below, gap, run->resource[at]);
        if (work < 0 || work > most_work) continue;
        complete(completion, run->problem, offer, below);
        run->completed[run->completions++] = at;
    }
}

/* Gathers the options' use of binding resources in one array; false without memory. */
static int gather_use(Run *run) {
    const Problem *p = run->problem;
    int options = run->option_start[p->bidders];
    int32_t *use = realloc(run->use, sizeof(int32_t) * ((size_t)options * run->binding + 1));
    if (!use) return 0;
    run->use = use;
    for (int c = 0; c < options; c++) {
        int row = run->option[c].row;
        for (int b = 0; b < run->binding; b++)
            *use++ = row < 0 ? 0 : p->use[(size_t)row * p->resources + run->resource[b]];
    }
    return 1;
}

/* Assigns places in the vector to machines while several bidders to come pin there. Places are reused. */
static int give_seats(Run *run) {
    const Problem *p = run->problem;
    int width = run->binding, shared = 0;
    for (int m = 0; m < p->machines; m++) {
        run->seat[m] = -1;
        shared |= run->charges.closes[m] > run->charges.opens[m];
    }
    /* Usually no machine is shared. */
    for (int s = 0; shared && s < run->stages; s++) {
        for (int m = 0; m < p->machines; m++) {
            if (run->charges.opens[m] != s || run->charges.closes[m] == s) continue;
            int seat = run->binding;
            for (int other = 0; other < p->machines; other++)
                if (run->seat[other] == seat && run->charges.opens[other] <= s && run->charges.closes[other] >= s) {
                    seat++;
                    other = -1;
                }
            run->seat[m] = seat;
            if (seat + 1 > width) width = seat + 1;
        }
    }
    return width;
}

static int better(const Node *a, const Node *b) {
    if (a->gain != b->gain) return a->gain > b->gain;
    if (a->gpus != b->gpus) return a->gpus < b->gpus;
    return a->tie < b->tie;
}

/* Grows the arrays for one more node and vector. */
static int grow_stage(Stage *stage, int width) {
    if (stage->count == stage->room) {
        int room = stage->room ? stage->room * 2 : FIRST_ROOM;
        Node *node = realloc(stage->node, sizeof(Node) * room);
        if (!node) return 0;
        stage->node = node;
        stage->room = room;
    }
    if (stage->count == stage->vector_room) {
        int room = stage->vector_room ? stage->vector_room * 2 : FIRST_ROOM;
        int32_t *vector = realloc(stage->vector, sizeof(int32_t) * (size_t)room * (width ? width : 1));
        if (!vector) return 0;
        stage->vector = vector;
        stage->vector_room = room;
    }
    return 1;
}

static void give_up_vectors(Stage *stage) {
    free(stage->vector);
    stage->vector = NULL;
    stage->vector_room = 0;
}

/* Clears the hash table and sets its number of slots. */
static int clear_slots(Run *run, uint32_t slots) {
    if (slots > run->slot_room) {
        int32_t *slot = realloc(run->slot, sizeof(int32_t) * slots);
        if (!slot) return 0;
        run->slot = slot;
        run->slot_room = slots;
    }
    run->slots = slots;
    memset(run->slot, 0, sizeof(int32_t) * slots);
    return 1;
}

static int rehash(Run *run, const Stage *stage) {
    if (!clear_slots(run, run->slots * 2)) return 0;
    for (int n = 0; n < stage->count; n++) {
        uint64_t at = hash_of(stage->vector + (size_t)n * run->width, run->width);
        while (run->slot[at & (run->slots - 1)]) at++;
        run->slot[at & (run->slots - 1)] = n + 1;
    }
    return 1;
}

/* Sizes the hash table for about as many states as the last stage had: clearing a large table takes long. */
static int slots_after(Run *run, const Stage *stage) {
    uint32_t slots = 64;
    while (slots < (uint32_t)stage->count * 2 && slots < 1u << 30) slots *= 2;
    return clear_slots(run, slots);
}

/* Adds a state to the next stage; of two states with the same vector the better one stays. */
static int put(Run *run, Stage *next, const int32_t *vector, Node node) {
    if ((uint32_t)next->count * 2 >= run->slots && !rehash(run, next)) return 0;
    uint64_t at = hash_of(vector, run->width);
    uint32_t mask = run->slots - 1;
    for (; run->slot[at & mask]; at++) {
        int found = run->slot[at & mask] - 1;
        if (memcmp(next->vector + (size_t)found * run->width, vector, sizeof(int32_t) * run->width)) continue;
        if (better(&node, &next->node[found])) next->node[found] = node;
        return 1;
    }
    if (!grow_stage(next, run->width)) return 0;
    memcpy(next->vector + (size_t)next->count * run->width, vector, sizeof(int32_t) * run->width);
    next->node[next->count] = node;
    run->slot[at & mask] = ++next->count;
    return 1;
}

/* Adds an option's use to a state's vector; false if a resource or a machine has too little left. */
static int use_option(const Run *run, int option, int stage, int32_t *vector) {
    const Problem *p = run->problem;
    const Charges *charges = &run->charges;
    int row = run->option[option].row, B = run->binding;
    const int32_t *use = run->use + (size_t)option * B;
    for (int b = 0; b < B; b++) vector[b] += use[b];
    for (int e = charges->start[stage]; e < charges->start[stage + 1]; e++) {
        const Event *event = &charges->event[e];
        int m = event->machine, pin = pin_on(p, row, m), gpus = pin < 0 ? 0 : p->pin_gpus[pin];
        int before = run->seat[m] >= 0 ? vector[run->seat[m]] : 0;
        if (before + gpus > p->machine_free[m]) return 0;
        for (int b = 0; b < B; b++) vector[b] += charge(charges, event, run->resource[b], before, pin);
        if (run->seat[m] >= 0) vector[run->seat[m]] = before + gpus;
    }
    for (int b = 0; b < B; b++)
        if (vector[b] > run->capacity[b]) return 0;
    return 1;
}

/* Makes a state's vector canonical; returns the most that the state can be worth at the prices. */
static int64_t make_canonical(const Run *run, int stage, int32_t *vector, int64_t gain) {
    int64_t value = gain + run->best_to_come[stage + 1] + run->idle_value[stage + 1];
    const int32_t *to_come = run->use_to_come + (size_t)(stage + 1) * run->binding;
    for (int b = 0; b < run->binding; b++) {
        int level = run->capacity[b] - to_come[b];
        if (vector[b] > level) level = vector[b];
        vector[b] = level;
        value += run->binding_price[b] * (run->capacity[b] - level);
    }
    return value;
}

/* What the completion bounds subtract from the value of a state with a canonical vector. */
static int64_t completion_of(const Run *run, int stage, const int32_t *vector) {
    int64_t most = 0;
    for (int c = 0; c < run->completions; c++) {
        int at = run->completed[c];
        int32_t left = run->capacity[at] - vector[at];
        int32_t to_come = run->use_to_come[(size_t)(stage + 1) * run->binding + at];
        int64_t loss = completion_loss(&run->completion[c], stage + 1, left < to_come ? left : to_come);
        if (loss > most) most = loss;
    }
    return most;
}

/* The least loss of any choice of options, by the completion bounds. */
static int64_t least_loss(const Run *run) {
    int32_t nothing[MAX_RESOURCES] = {0};
    return completion_of(run, -1, nothing);
}

static int out_of_limits(Run *run, const Stage *next) {
    if (run->limits.most_states && run->states + next->count > run->limits.most_states) run->status = SEARCH_TOO_WIDE;
    if (monotonic_s() > run->limits.deadline_s) run->status = SEARCH_OUT_OF_TIME;
    return run->status;
}

static void clear_closed_seats(const Run *run, int stage, int32_t *vector) {
    for (int m = 0; m < run->problem->machines; m++)
        if (run->charges.closes[m] == stage && run->seat[m] >= 0) vector[run->seat[m]] = 0;
}

/* Whether a state after a stage cannot reach the target. A completion bound is exact only up to the gap, and may be too
 * large beyond it. So the bound on the value of a pruned state comes from prices and from the target. */
static int is_pruned(Run *run, int stage, int32_t *vector, int64_t gain) {
    int64_t most = make_canonical(run, stage, vector, gain), likely = most - completion_of(run, stage, vector);
    if (likely >= run->target) return 0;
    note_pruned(run, most < run->target ? most : run->target - 1, likely);
    return 1;
}

static int expand_state(Run *run, int s, int at, int closing, Stage *next) {
    const Stage *now = &run->stage[s];
    const Problem *p = run->problem;
    const int32_t *from = now->vector + (size_t)at * run->width;
    int bidder = run->order[s];
    int32_t vector[run->width + 1];
    memcpy(vector, from, sizeof(int32_t) * run->width);
    int64_t value = make_canonical(run, s - 1, vector, now->node[at].gain);
    for (int c = run->option_start[bidder]; c < run->option_start[bidder + 1]; c++) {
        Option option = run->option[c];
        if (value - option.loss < run->target) {
            note_pruned(run, value - option.loss, value - option.loss);
            break;
        }
        Node node = now->node[at];
        node.parent = at;
        node.row = option.row;
        memcpy(vector, from, sizeof(int32_t) * run->width);
        if (!use_option(run, c, s, vector)) continue;
        if (option.row >= 0) {
            node.gain += p->gain[option.row];
            node.gpus += p->gpus[option.row];
            node.tie += p->tie[option.row];
        }
        if (closing) clear_closed_seats(run, s, vector);
        if (is_pruned(run, s, vector, node.gain)) continue;
        if (!put(run, next, vector, node)) {
            run->status = SEARCH_NO_MEMORY;
            return 0;
        }
    }
    return 1;
}

static int compare_values(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return a < b ? 1 : a > b ? -1 : 0;
}

/* Keeps the `beam` states of the largest value, in order. The result is then a choice without a proof. */
static void narrow(Run *run, int stage, int beam) {
    Stage *now = &run->stage[stage];
    if (now->count <= beam) return;
    int64_t *values = malloc(sizeof(int64_t) * now->count * 2);
    if (!values) return;
    for (int n = 0; n < now->count; n++) {
        const int32_t *vector = now->vector + (size_t)n * run->width;
        values[n] = now->node[n].gain;
        for (int b = 0; b < run->binding; b++) values[n] += run->binding_price[b] * (run->capacity[b] - vector[b]);
        values[n] -= completion_of(run, stage - 1, vector);
    }
    memcpy(values + now->count, values, sizeof(int64_t) * now->count);
    qsort(values + now->count, now->count, sizeof(int64_t), compare_values);
    int64_t least = values[now->count + beam - 1];
    int kept = 0;
    for (int n = 0; n < now->count && kept < beam; n++) {
        if (values[n] < least) continue;
        now->node[kept] = now->node[n];
        memmove(now->vector + (size_t)kept * run->width, now->vector + (size_t)n * run->width,
                sizeof(int32_t) * run->width);
        kept++;
    }
    now->count = kept;
    free(values);
}

/* One pass over all bidders; true if a complete choice reaches the target. */
static int pass(Run *run, int beam) {
    const Problem *p = run->problem;
    Stage *first = &run->stage[0];
    for (int s = 0; s <= run->stages; s++) run->stage[s].count = 0;
    if (!grow_stage(first, run->width)) {
        run->status = SEARCH_NO_MEMORY;
        return 0;
    }
    memset(first->vector, 0, sizeof(int32_t) * (run->width ? run->width : 1));
    if (is_pruned(run, -1, first->vector, 0)) return 0;
    first->node[0] = (Node){0, 0, 0, -1, -1};
    first->count = 1;
    for (int s = 0; s < run->stages; s++) {
        Stage *next = &run->stage[s + 1];
        int closing = 0, seated = run->width > run->binding;
        for (int m = 0; seated && m < p->machines; m++) closing |= run->charges.closes[m] == s && run->seat[m] >= 0;
        if (!slots_after(run, &run->stage[s])) {
            run->status = SEARCH_NO_MEMORY;
            return 0;
        }
        for (int n = 0; n < run->stage[s].count; n++) {
            if (!expand_state(run, s, n, closing, next)) return 0;
            if ((n & 1023) == 1023 && out_of_limits(run, next)) return 0;
        }
        run->states += next->count;
        if (run->stage[s].vector_room > FEW_VECTORS) give_up_vectors(&run->stage[s]);
        if (out_of_limits(run, next)) return 0;
        if (beam) narrow(run, s + 1, beam);
    }
    return run->stage[run->stages].count > 0;
}

static void read_choice(const Run *run, int at, int32_t *choice) {
    for (int i = 0; i < run->problem->bidders; i++) choice[i] = -1;
    for (int s = run->stages; s > 0; s--) {
        choice[run->order[s - 1]] = run->stage[s].node[at].row;
        at = run->stage[s].node[at].parent;
    }
}

static int best_node(const Stage *stage) {
    int at = 0;
    for (int n = 1; n < stage->count; n++)
        if (better(&stage->node[n], &stage->node[at])) at = n;
    return at;
}

static int open_run(Run *run) {
    const Problem *p = run->problem;
    size_t bidders = p->bidders + 1, rows = p->rows + p->bidders + 1;
    run->best = calloc(bidders, sizeof(int64_t));
    run->margin = malloc(sizeof(int64_t) * rows);
    run->option = malloc(sizeof(Option) * rows);
    run->option_start = calloc(bidders + 1, sizeof(int32_t));
    run->order = calloc(bidders, sizeof(int32_t));
    run->best_to_come = calloc(bidders + 1, sizeof(int64_t));
    run->idle_value = calloc(bidders + 1, sizeof(int64_t));
    run->use_to_come = calloc((bidders + 1) * (p->resources + 1), sizeof(int32_t));
    run->seat = malloc(sizeof(int32_t) * (p->machines + 1));
    run->stage = calloc(bidders + 1, sizeof(Stage));
    return run->best && run->margin && run->option && run->option_start && run->order && run->best_to_come &&
           run->idle_value && run->use_to_come && run->seat && run->stage &&
           open_charges(&run->charges, p);
}

static void close_run(Run *run) {
    if (run->stage)
        for (int s = 0; s <= run->problem->bidders; s++) {
            free(run->stage[s].node);
            free(run->stage[s].vector);
        }
    void *all[] = {run->best, run->option, run->option_start, run->order, run->best_to_come, run->use_to_come,
                   run->seat, run->stage,     run->slot,            run->idle_value, run->use,     run->margin};
    close_charges(&run->charges);
    for (int c = 0; c < MAX_COMPLETED; c++) close_completion(&run->completion[c]);
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
}

static void drop_vectors_of_other_width(Run *run, int width) {
    if (width == run->width) return;
    for (int s = 0; s <= run->problem->bidders; s++) {
        free(run->stage[s].node);
        free(run->stage[s].vector);
        run->stage[s] = (Stage){0};
    }
    run->width = width;
}

/* Candidates, order and vectors for a target at `gap` below the bound. */
static void prepare(Run *run, int64_t gap, int beam) {
    unsigned char counted[MAX_RESOURCES], binds[MAX_RESOURCES];
    run->target = run->bound - gap;
    run->best_pruned = run->likely_pruned = INT64_MIN;
    list_options(run, gap);
    choose_order(run);
    find_counted(run, counted);
    Offer offer = offer_of(run);
    int whole = lay_out_charges(&run->charges, &offer, counted);
    if (whole) {
        measure_what_is_to_come(run, counted, binds);
        set_binding_apart(run, binds);
        whole = gather_use(run);
        complete_dearest(run, &offer, gap, beam);
    }
    if (!whole) {
        run->status = SEARCH_NO_MEMORY;
        return;
    }
    drop_vectors_of_other_width(run, give_seats(run));
}

/* Reads the best choice of a pass; false if it breaks a lazy constraint, which is counted from now on. */
static int take_best(Run *run, int32_t *choice, int64_t *value) {
    const Stage *last = &run->stage[run->stages];
    int at = best_node(last);
    read_choice(run, at, choice);
    int breaks = hold_what_breaks(run->problem, run->price, choice);
    if (breaks < 0) run->status = SEARCH_NO_MEMORY;
    *value = last->node[at].gain;
    return !breaks;
}

/* The next gap after a pass without a choice. No choice loses less than `least`.
 *
 * States may grow tenfold when the gap grows by half. So the gap grows in smaller steps once states are many: a step far
 * past the optimum costs more than one more pass. */
static int64_t next_gap(const Run *run, int64_t gap, int64_t least, int64_t states) {
    enum { FEW_STATES = 2000, MANY_STATES = 20000 };
    int is_large = states > MANY_STATES, is_small = states < FEW_STATES;
    int64_t needed = run->bound - run->likely_pruned, next = gap + (gap - least) / (is_large ? 5 : is_small ? 1 : 2);
    if (next <= needed) next = needed + (needed - least) / (is_large ? 16 : 8);
    return next > gap ? next : gap + 1;
}

/* A lower bound on the loss of every choice; the target starts below it. */
static int64_t find_least_loss(Run *run) {
    int64_t gap = (int64_t)(1e-4 * run->problem->unit), *loss = run->problem->loss;
    /* Problems that differ in one bidder lose about as much, so twice the last loss is usually enough. */
    if (2 * *loss > gap) gap = 2 * *loss;
    while (!run->status && gap < run->bound) {
        prepare(run, gap, 0);
        if (run->status || least_loss(run) <= gap) break;
        /* Candidates with larger losses may lose less together. */
        gap *= 4;
    }
    *loss = run->status || gap >= run->bound ? 0 : least_loss(run);
    return *loss;
}

/* Passes with growing gaps until one holds a choice. With a beam that choice has no proof. */
static void sink_target(Run *run, int64_t gap, int beam, int32_t *choice, Outcome *outcome) {
    int64_t least = 0;
    if (!beam) least = find_least_loss(run);
    gap = least + (gap > least / 8 ? gap : least / 8);
    while (!run->status) {
        /* The choice without winners is worth 0, so no target needs to lie below 0. */
        if (gap > run->bound) gap = run->bound;
        prepare(run, gap, beam);
        int64_t before = run->states;
        if (!run->status && pass(run, beam)) {
            if (!take_best(run, choice, &outcome->value)) continue;
            outcome->status = beam ? SEARCH_OUT_OF_TIME : SEARCH_OPTIMAL;
            if (!beam) outcome->bound = outcome->value;
            return;
        }
        if (!run->status && gap == run->bound) run->status = SEARCH_OUT_OF_TIME;
        if (run->status) break;
        /* Everything worth more than what was pruned has been examined. */
        if (!beam && run->best_pruned < outcome->bound) outcome->bound = run->best_pruned;
        if (least_loss(run) > least) least = least_loss(run) < gap ? least_loss(run) : gap;
        gap = beam ? 2 * gap + 1 : next_gap(run, gap, least, run->states - before);
    }
    outcome->status = run->status;
    outcome->value = 0;
    for (int i = 0; i < run->problem->bidders; i++) choice[i] = -1;
}

/* A slowly decaying maximum of the states of recent searches. */
static int64_t spent_now(int64_t before, int64_t states) {
    before -= before / 32;
    return states > before ? states : before;
}

Outcome search(const Problem *problem, int skip, const double *price_of_all, double first_gap, int beam, Limits limits,
               int32_t *choice) {
    Run run = {.problem = problem, .skip = skip, .limits = limits};
    Outcome outcome = {SEARCH_NO_MEMORY, 0, 0, 0};
    if (open_run(&run)) {
        price_run(&run, price_of_all);
        outcome.bound = run.bound;
        sink_target(&run, (int64_t)(first_gap * problem->unit), beam, choice, &outcome);
        outcome.states = run.states;
        if (!beam) *problem->spent = spent_now(*problem->spent, run.states);
    }
    close_run(&run);
    return outcome;
}
