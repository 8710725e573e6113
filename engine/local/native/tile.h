/* What products of all formats have in common: the size of a tile, and where its results go. */
#ifndef TTC_TILE_H
#define TTC_TILE_H

#include "lanes.h"
#include "step.h"

#define TILE_ROWS 4 /* more would leave no registers for the weights */

INLINE int padded(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

/* Lets a line of the next panels come while this one's is computed with. */
INLINE void prefetch(const uint8_t *line) { __builtin_prefetch(line, 0, 2); }

struct place {
    float *out; /* where the tile's first output goes */
    size_t stride;
    int count; /* outputs that are wanted: the last panel may be padded */
    int adds;
};

INLINE struct place place_of(const struct matrix *matrix, int panel, float *out, int stride, int adds) {
    return (struct place){out + matrix->first + panel * PANEL, stride, matrix->outputs - panel * PANEL, adds};
}

INLINE void put(const struct place *place, int r, int first, floats v) {
    float *to = place->out + r * place->stride + first, kept[WIDTH];
    if (first + WIDTH <= place->count) {
        store(to, place->adds ? load(to) + v : v);
        return;
    }
    store(kept, v);
    for (int i = 0; first + i < place->count; i++) to[i] = place->adds ? to[i] + kept[i] : kept[i];
}

/* Puts sums, [rows][apart], of which the first `vectors` count, with the bias where they go. */
INLINE void put_tile(
    const int rows, const int vectors, const struct matrix *matrix, int panel, const floats *totals, const int apart,
    const struct place *place) {
    for (int v = 0; v < vectors; v++) {
        floats bias = matrix->bias ? load(matrix->bias + panel * PANEL + v * WIDTH) : (floats){};
        for (int r = 0; r < rows; r++) put(place, r, v * WIDTH, totals[r * apart + v] + bias);
    }
}

/* The sum of a row's codes from a column on. */
INLINE int32_t sum_of(const struct rows *x, int row, int column, const int columns) {
    const int32_t *from = x->sums + ((size_t)row * x->columns + column) / PART;
    int32_t sum = 0;
    for (int i = 0; i < columns / PART; i++) sum += from[i];
    return sum;
}

#endif
