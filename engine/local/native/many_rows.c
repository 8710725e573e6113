/* Linear layers of many rows, to the same bits as in `linear.c`.

   A group's weights for all rows come before those of the next one, and so they stay in the first cache (Goto and
   van de Geijn 2008, "Anatomy of high-performance matrix multiplication", section 4). Memory is asked for a later
   group's meanwhile, some lines at each step: all at once would hold up the loads between them.

   On AVX2, `dot` takes an instruction for each product to give the activations the signs of the weights. Here they are
   split into magnitudes and signs once for all outputs. A weight under the mask of a sign is w, or -w - 1: so a sum of
   products lacks the magnitudes of all negative activations, which one addition to a group's sum brings back. Pairs of
   products are at most 2 * 127 * 128, which 16 bits hold. A mask is an operation that any of the processor's units
   does, and weights need no registers: it reads them where they lie. */
#include <stdlib.h>

#include "dot.h"
#include "tile.h"

#if WIDTH > 4

enum { STRIP_PANELS = WIDTH == 16 ? 4 : 2, VECTORS = STRIP_PANELS * PARTS, MOST_AT_ONCE = WIDTH == 16 ? 4 : 3 };
enum { BLOCK_ROWS = 64, QUADS = GROUP / 4 };
enum { AHEAD = 4, LINES = STRIP_PANELS / 2 };
/* AHEAD: groups between the one that is computed with and the one that memory is asked for. LINES: of memory, that
   are asked for at a step, so that the first two tiles ask for all. */

/* A group of a row's codes, four by four. */
struct split {
    int32_t fours[QUADS];
#if WIDTH == 8
    int32_t signs[QUADS]; /* of each code 0 or -1; `fours` has its magnitude */
#endif
};

/* What a group's sums begin with, and what they are multiplied with. */
struct end {
    int32_t start;
    float scale;
};

/* Rows, split: groups first, so that what is read at once lies together. */
struct splits {
    struct split *groups; /* [columns / GROUP][rows] */
    struct end *ends;     /* likewise */
    const struct rows *rows;
    int num_rows;
};

/* Splits a group's codes; gives what its sums begin with. */
INLINE int32_t split_group(const struct splits *x, int row, int group, struct split *to) {
    const int8_t *codes = x->rows->codes + (size_t)row * x->rows->columns + group * GROUP;
#if WIDTH == 16
    memcpy(to->fours, codes, GROUP);
    return -SURPLUS * sum_of(x->rows, row, group * GROUP, GROUP);
#else
    ints sums = {};
    for (int half = 0; half < 2; half++) {
        bytes own = (bytes)load_ints(codes + half * 32), sign = own < 0, magnitude = absolute(own);
        memcpy(to->fours + half * WIDTH, &magnitude, sizeof magnitude);
        memcpy(to->signs + half * WIDTH, &sign, sizeof sign);
        sums += differences(magnitude & sign, (bytes){});
    }
    return sums[0] + sums[2] + sums[4] + sums[6];
#endif
}

static void split_row(const struct splits *to, int row) {
    const int groups = to->rows->columns / GROUP;
    for (int g = 0; g < groups; g++) {
        size_t at = (size_t)g * to->num_rows + row;
        int32_t start = split_group(to, row, g, &to->groups[at]);
        to->ends[at] = (struct end){start, to->rows->scales[(size_t)row * groups + g]};
    }
}

/* sums + the products of four columns. */
INLINE ints add_quad(ints sums, ints weights, const struct split *split, int quad) {
#if WIDTH == 16
    return dot(sums, weights, (ints){} + split->fours[quad]);
#else
    bytes magnitude = (bytes)((ints){} + split->fours[quad]);
    bytes masked = (bytes)(weights ^ ((ints){} + split->signs[quad]));
    sums += short_products(byte_products(magnitude, masked), (shorts){} + 1);
    AT_ONCE(sums);
    return sums;
#endif
}

/* Adds a group's products of `rows` rows with `vectors` vectors of outputs to totals, [rows][VECTORS]; all are known
   when it is compiled, so sums stay in registers. `weights` are those of the group, panel by panel, and
   `coming` where those begin that memory is asked for meanwhile. */
INLINE void add_group(
    const int rows, const int vectors, const uint8_t *const *weights, const uint8_t *const *coming,
    const floats *scales, const struct split *splits, const struct end *ends, floats *totals) {
    ints sums[MOST_AT_ONCE][VECTORS];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sums[r][v] = (ints){} + ends[r].start;
#pragma GCC unroll 1
    for (int quad = 0; quad < QUADS; quad++) {
#pragma GCC unroll 2
        for (int i = 0; i < LINES; i++) prefetch(coming[i] + quad * 4 * PANEL);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                ints own = load_ints(weights[v / PARTS] + quad * 4 * PANEL + v % PARTS * 4 * WIDTH);
                sums[r][v] = add_quad(sums[r][v], own, splits + r, quad);
            }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            totals[r * VECTORS + v] += to_floats(sums[r][v]) * (scales[v] * ends[r].scale);
}

/* A function for each size; on AVX-512 of its own: with other code around it, gcc keeps some sums in memory. */
#if WIDTH == 16
#define APART static __attribute__((noinline))
#else
#define APART INLINE
#endif
#define ADD(name, rows, panels)                                                                          \
    APART void name(                                                                                     \
        const uint8_t *const *weights, const uint8_t *const *coming, const floats *scales,               \
        const struct split *splits, const struct end *ends, floats *totals) {                            \
        add_group(rows, (panels) * PARTS, weights, coming, scales, splits, ends, totals);                \
    }
ADD(add_1, 1, 1)
ADD(add_2, 2, 1)
ADD(add_3, 3, 1)
ADD(add_1_strip, 1, STRIP_PANELS)
ADD(add_2_strip, 2, STRIP_PANELS)
ADD(add_3_strip, 3, STRIP_PANELS)
#if WIDTH == 16
ADD(add_4, 4, 1)
ADD(add_4_strip, 4, STRIP_PANELS)
#endif
#undef ADD

/* How many of `count` rows are computed at once: one alone takes as long as two. */
INLINE int at_once(int count) {
    if (MOST_AT_ONCE == 3 && count == 4) return 2;
    return count < MOST_AT_ONCE ? count : MOST_AT_ONCE;
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
            const uint8_t *next[LINES];
            for (int i = 0, p = r / MOST_AT_ONCE; i < LINES; i++, p += 2)
                next[i] = weights[p < panels ? p : panels - 1] + coming;
            n = at_once(count - r);
#define ADD(n) (panels == 1 ? add_##n : add_##n##_strip)(weights, next, scales, x->groups + at, x->ends + at, totals[r])
            switch (n) {
#if WIDTH == 16
            case 4: ADD(4); break;
#endif
            case 3: ADD(3); break;
            case 2: ADD(2); break;
            case 1: ADD(1);
            }
        }
    }
    put_tile(count, vectors, weight, panel, totals[0], VECTORS, place);
}

int multiply_many(const struct matrix *weight, const struct rows *x, int num_rows, float *out, int stride, int adds) {
    const int panels = padded(weight->outputs, PANEL) / PANEL, strips = (panels + STRIP_PANELS - 1) / STRIP_PANELS;
    const size_t count = (size_t)num_rows * (x->columns / GROUP);
    struct splits splits = {.rows = x, .num_rows = num_rows};
    /* Whole structures: C11 wants a multiple of the alignment, and some libraries give nothing otherwise. */
    const size_t ends = (count * sizeof(struct end) / sizeof(struct split) + 1) * sizeof(struct split);
    splits.groups = aligned_alloc(sizeof(struct split), count * sizeof(struct split) + ends);
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
                    for (; panel < panels; panel++, place.out += PANEL, place.count -= PANEL)
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
