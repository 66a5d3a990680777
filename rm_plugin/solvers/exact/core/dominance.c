#include "dominance.h"

/* Number of kept rows to compare with: all in agents' bids. Without a bound the time would be quadratic. */
enum { MAX_COMPARED = 1000 };

static int needs_no_more(const Rows *rows, int a, int b) {
    const int32_t *left = rows->need + (size_t)a * rows->needs, *right = rows->need + (size_t)b * rows->needs;
    for (int n = 0; n < rows->needs; n++)
        if (left[n] > right[n]) return 0;
    int other = rows->pin_start[b], end = rows->pin_start[b + 1];
    for (int pin = rows->pin_start[a]; pin < rows->pin_start[a + 1]; pin++) {
        while (other < end && rows->pin_machine[other] < rows->pin_machine[pin]) other++;
        if (other == end || rows->pin_machine[other] != rows->pin_machine[pin]) return 0;
        if (rows->pin_gpus[pin] > rows->pin_gpus[other]) return 0;
    }
    return 1;
}

void prune(const Rows *rows, unsigned char *keep, int32_t *scratch) {
    for (int i = 0; i < rows->bidders; i++) {
        int kept = 0;
        for (int row = rows->row_start[i]; row < rows->row_start[i + 1]; row++) {
            int beaten = 0;
            /* The rows kept last are nearest in gain, and most likely to dominate this one. */
            int last = kept > MAX_COMPARED ? kept - MAX_COMPARED : 0;
            for (int n = kept - 1; n >= last && !beaten; n--) beaten = needs_no_more(rows, scratch[n], row);
            keep[row] = !beaten;
            if (!beaten) scratch[kept++] = row;
        }
    }
}
