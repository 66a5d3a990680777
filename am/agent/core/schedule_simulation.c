/* The reference is `plain_ends_s` in tests/unit/am/jobs/test_gpu_division.py; results are bit-identical. */
#include "schedule_simulation.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    double end_s;
    int64_t gpus, level;
} End;

static int sooner(const End *one, const End *two) {
    if (one->end_s != two->end_s) return one->end_s < two->end_s;
    return one->gpus != two->gpus ? one->gpus < two->gpus : one->level < two->level;
}

static void push(End *heap, int64_t *count, End end) {
    int64_t at = (*count)++;
    for (int64_t parent; at && sooner(&end, &heap[parent = (at - 1) / 2]); at = parent) heap[at] = heap[parent];
    heap[at] = end;
}

static End pop(End *heap, int64_t *count) {
    End first = heap[0], last = heap[--*count];
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < *count; at = child) {
        if (child + 1 < *count && sooner(&heap[child + 1], &heap[child])) child++;
        if (!sooner(&heap[child], &last)) break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return first;
}

/* The gang that gets the next task: the smallest that may grow, ties: the first. Returns -1 if none may grow. */
static int64_t next_turn(const int64_t *sizes, const int64_t *full, int64_t count) {
    int64_t next = -1;
    for (int64_t n = 0; n < count; n++)
        if (!full[n] && (next < 0 || sizes[n] < sizes[next])) next = n;
    return next;
}

/* `share_evenly`: sets the sizes of the gangs of the first jobs. Returns the number of gangs. */
static int64_t share(const Following *following, int64_t first, int64_t gpus, int64_t *sizes, int64_t *full) {
    const int64_t *queue = following->queue + first;
    int64_t count = 0;
    for (; first + count < following->waiting; count++) {
        const Shape *shape = &following->shape[queue[count]];
        if (shape->smallest > gpus) break;
        gpus -= shape->smallest;
        sizes[count] = shape->smallest;
        full[count] = shape->smallest >= shape->largest;
    }
    for (int64_t next; gpus && (next = next_turn(sizes, full, count)) >= 0;) {
        const Shape *shape = &following->shape[queue[next]];
        full[next] = shape->unit > gpus;
        if (full[next]) continue;
        gpus -= shape->unit;
        sizes[next] += shape->unit;
        full[next] = sizes[next] >= shape->largest;
    }
    return count;
}

static double latest(const End *heap, int64_t count) {
    double latest_s = heap[0].end_s;
    for (int64_t n = 1; n < count; n++) latest_s = heap[n].end_s > latest_s ? heap[n].end_s : latest_s;
    return latest_s;
}

static double follow_on(const Following *following, double certain, double best_s, End *heap, int64_t *sizes,
                        int64_t *full) {
    int64_t count = 0, served = 0, idle = 0;
    double last_s = 0.0;
    for (int64_t n = 0; n < following->running; n++)
        push(heap, &count, (End){following->end_s[n], following->gangs[2 * n], following->gangs[2 * n + 1]});
    while (count) {
        if (served == following->waiting) return latest(heap, count);
        End end = pop(heap, &count);
        last_s = end.end_s;
        if (last_s * certain >= best_s) return last_s;
        int64_t starting = share(following, served, idle + end.gpus, sizes, full), left = end.gpus;
        for (int64_t n = 0; n < starting; n++) {
            left -= sizes[n];
            int64_t looser = end.level > following->within ? end.level : following->within;
            int64_t level = sizes[n] == 1 ? 0 : left >= 0 ? end.level : looser;
            double alone_s = following->gpu_s[following->queue[served + n] * LEVELS + level] / (double)sizes[n];
            push(heap, &count, (End){last_s + following->start_s + alone_s, sizes[n], level});
        }
        idle += end.gpus;
        for (int64_t n = 0; n < starting; n++) idle -= sizes[n];
        served += starting;
    }
    return served < following->waiting ? INFINITY : last_s;
}

int follow(const Following *following, double certain, double best_s, double *last_s) {
    size_t most = (size_t)(following->waiting + following->running + 1);
    End *heap = malloc(sizeof(End) * most);
    int64_t *sizes = malloc(sizeof(int64_t) * most), *full = malloc(sizeof(int64_t) * most);
    int enough = heap && sizes && full;
    if (enough) *last_s = follow_on(following, certain, best_s, heap, sizes, full);
    free(heap);
    free(sizes);
    free(full);
    return enough;
}
