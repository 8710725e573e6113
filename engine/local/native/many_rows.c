/* Linear layers of many rows on AVX2, to the same bits as in `linear.c`.

   There, one instruction for each product gives the activations the signs of the weights. Here they are split into
   magnitudes and signs once for all outputs. A weight under the mask of a sign is w, or -w - 1: so a sum of products
   lacks the magnitudes of all negative activations, which one addition to a group's sum brings back. Pairs of products
   are at most 2 * 127 * 128, which 16 bits hold. A mask is an operation that any of the processor's units does, and
   weights need no registers: it reads them where they lie.

   A group's weights for all rows come before those of the next one, and so they stay in the first cache (Goto and
   van de Geijn 2008, "Anatomy of high-performance matrix multiplication", section 4). Memory is asked for a later
   group's meanwhile, a line at each step: all lines at once would hold up the loads between them. */
#include <stdlib.h>

#include "dot.h"
#include "tile.h"

#if WIDTH == 8

enum { STRIP_PANELS = 2, STRIP = STRIP_PANELS * PANEL, VECTORS = STRIP / WIDTH, MOST_AT_ONCE = 3, BLOCK_ROWS = 64 };
enum { AHEAD = 4 }; /* groups between the one that is computed with and the one that memory is asked for */

/* A group of a row's codes. */
struct split {
    int32_t magnitudes[GROUP / 4], signs[GROUP / 4]; /* each of four bytes; a sign is 0 or -1 */
};

/* What a group's sums begin with, and what they are multiplied with. */
struct end {
    int32_t negatives; /* the magnitudes of the negative codes added up */
    float scale;
};

/* Rows, split: groups first, so that what is read at once lies together. */
struct splits {
    struct split *groups; /* [columns / GROUP][rows] */
    struct end *ends;     /* likewise */
    const struct rows *rows;
    int num_rows;
};

static void split_row(const struct splits *to, int row) {
    const int columns = to->rows->columns, groups = columns / GROUP;
    const int8_t *codes = to->rows->codes + (size_t)row * columns;
    for (int g = 0; g < groups; g++, codes += GROUP) {
        struct split *split = &to->groups[(size_t)g * to->num_rows + row];
        ints sums = {};
        for (int half = 0; half < 2; half++) {
            bytes own = (bytes)load_ints(codes + half * 32), sign = own < 0, magnitude = absolute(own);
            memcpy(split->magnitudes + half * WIDTH, &magnitude, sizeof magnitude);
            memcpy(split->signs + half * WIDTH, &sign, sizeof sign);
            sums += differences(magnitude & sign, (bytes){});
        }
        to->ends[(size_t)g * to->num_rows + row] = (struct end){
            sums[0] + sums[2] + sums[4] + sums[6], to->rows->scales[(size_t)row * groups + g]};
    }
}

/* Adds a group's products of `rows` rows with `vectors` vectors of outputs to totals, [rows][VECTORS]; all are known
   when it is compiled, so sums stay in registers. `weights` are those of the group, panel by panel, and
   `coming` those that memory is asked for meanwhile. */
INLINE void add_group(
    const int rows, const int vectors, const uint8_t *const *weights, const uint8_t *coming, const floats *scales,
    const struct split *splits, const struct end *ends, floats *totals) {
    const shorts ones = (shorts){} + 1;
    ints sums[MOST_AT_ONCE][VECTORS];
#pragma GCC unroll 3
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sums[r][v] = (ints){} + ends[r].negatives;
#pragma GCC unroll 1
    for (int quad = 0; quad < GROUP / 4; quad++) {
        prefetch(coming + quad * 4 * PANEL);
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++) {
            bytes magnitude = (bytes)((ints){} + splits[r].magnitudes[quad]);
            ints sign = (ints){} + splits[r].signs[quad];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                ints own = load_ints(weights[v / PARTS] + quad * 4 * PANEL + v % PARTS * 4 * WIDTH);
                sums[r][v] += short_products(byte_products(magnitude, (bytes)(own ^ sign)), ones);
                AT_ONCE(sums[r][v]);
            }
        }
    }
#pragma GCC unroll 3
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            totals[r * VECTORS + v] += to_floats(sums[r][v]) * (scales[v] * ends[r].scale);
}

/* Some rows times `panels` panels. */
INLINE void strip(
    const int panels, const struct matrix *weight, int panel, const struct splits *x, int first, int count,
    const struct place *place) {
    const int vectors = panels * PARTS, groups = x->rows->columns / GROUP;
    floats totals[BLOCK_ROWS][VECTORS];
    for (int r = 0; r < count; r++)
        for (int v = 0; v < vectors; v++) totals[r][v] = (floats){};
    for (int g = 0; g < groups; g++) {
        const uint8_t *weights[STRIP_PANELS];
        floats scales[VECTORS];
        for (int p = 0; p < panels; p++) weights[p] = weight->panels + ((size_t)(panel + p) * groups + g) * GROUP * PANEL;
        for (int v = 0; v < vectors; v++)
            scales[v] = load(weight->scales + ((size_t)(panel + v / PARTS) * groups + g) * PANEL + v % PARTS * WIDTH);
        /* From a panel's last groups on to the first ones of the panel in the next strip. */
        const size_t coming = (g + AHEAD < groups ? AHEAD : AHEAD + (STRIP_PANELS - 1) * groups) * GROUP * PANEL;
        for (int r = 0, n; r < count; r += n) {
            const size_t at = (size_t)g * x->num_rows + first + r;
            const uint8_t *next = weights[r ? panels - 1 : 0] + coming;
            n = count - r == 4 || count - r == 2 ? 2 : count - r >= 3 ? 3 : 1;
#define ADD(n) add_group(n, vectors, weights, next, scales, x->groups + at, x->ends + at, totals[r])
            switch (n) {
            case 3: ADD(3); break;
            case 2: ADD(2); break;
            case 1: ADD(1);
            }
        }
    }
    for (int v = 0; v < vectors; v++) {
        floats bias = weight->bias ? load(weight->bias + panel * PANEL + v * WIDTH) : (floats){};
        for (int r = 0; r < count; r++) put(place, r, v * WIDTH, totals[r][v] + bias);
    }
}

int multiply_many(const struct matrix *weight, const struct rows *x, int num_rows, float *out, int stride, int adds) {
    const int panels = padded(weight->outputs, PANEL) / PANEL, strips = (panels + STRIP_PANELS - 1) / STRIP_PANELS;
    const size_t count = (size_t)num_rows * (x->columns / GROUP);
    struct splits splits = {.rows = x, .num_rows = num_rows};
    splits.groups = aligned_alloc(sizeof(struct split), count * (sizeof(struct split) + sizeof(struct end)) + sizeof(struct split));
    if (!splits.groups) return 0;
    splits.ends = (struct end *)(splits.groups + count);
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int r = 0; r < num_rows; r++) split_row(&splits, r);
#pragma omp for schedule(static)
        for (int s = 0; s < strips; s++)
            for (int first = 0; first < num_rows; first += BLOCK_ROWS) {
                int panel = s * STRIP_PANELS, rows = num_rows - first < BLOCK_ROWS ? num_rows - first : BLOCK_ROWS;
                struct place place = place_of(weight, panel, out + (size_t)first * stride, stride, adds);
                if (panel + STRIP_PANELS <= panels)
                    strip(STRIP_PANELS, weight, panel, &splits, first, rows, &place);
                else
                    strip(1, weight, panel, &splits, first, rows, &place);
            }
    }
    free(splits.groups);
    return 1;
}

#else

int multiply_many(const struct matrix *weight, const struct rows *x, int num_rows, float *out, int stride, int adds) {
    return 0;
}

#endif
