/* Folding a chunk into the states of the queries that see it: scores, weights, and the values added. */
#ifndef TTC_FOLD_H
#define TTC_FOLD_H

#include "kv_codes.h"
#include "lanes.h"
#include "pages.h"

#define LEAST -1e30f /* below any score; not infinite, so that differences are numbers */

/* Turns the scores of a tile's positions into weights; the peak and the mass of its states move on.
   Where all of the chunk is seen, and that is known when it is compiled, nothing is masked. */
INLINE void weigh_as(struct tile *tile, const int whole) {
    const int from = whole ? 0 : tile->first / PAGE * PAGE_VECTORS;
    const int to = whole ? CHUNK / WIDTH : (tile->end + PAGE - 1) / PAGE * PAGE_VECTORS;
    float before[QUERY_LANES] = {}, peaks[QUERY_LANES] = {};
    for (int q = 0; q < tile->count; q++) {
        floats most = all(LEAST);
        for (int v = from; v < to; v++) {
            ints position = count_from(v * WIDTH), seen = (position >= tile->first) & (position < tile->end);
            floats scores = load(tile->weights[q] + v * WIDTH);
            most = larger(whole ? scores : choose(seen, scores, all(LEAST)), most);
        }
        float peak = largest_lane(most);
        before[q] = *tile->peaks[q];
        *tile->peaks[q] = peaks[q] = peak > before[q] ? peak : before[q];
    }
    for (int q = 0; q < tile->count; q += WIDTH) {
        floats old = load(before + q), new = load(peaks + q);
        store(tile->kept + q, choose(old == new, all(1), exponential(old - new)));
    }
    for (int q = 0; q < tile->count; q++) {
        float *weights = tile->weights[q];
        floats masses[PARTS] = {};
        for (int v = from; v < to; v++) {
            ints position = count_from(v * WIDTH), seen = (position >= tile->first) & (position < tile->end);
            floats weight = exponential(load(weights + v * WIDTH) - peaks[q]);
            if (!whole) weight = (floats)((ints)weight & seen);
            store(weights + v * WIDTH, weight);
            masses[v % PARTS] += weight;
        }
        *tile->masses[q] = *tile->masses[q] * tile->kept[q] + sum_lanes(masses);
    }
}

static __attribute__((noinline)) void weigh(struct tile *tile) {
    if (tile->first == 0 && tile->end == CHUNK)
        weigh_as(tile, 1);
    else
        weigh_as(tile, 0);
}

#if WIDTH == 16

/* Scores and adds for a known number of queries of a tile, 4 vectors at once. They are functions of their own for each
   number: with other code around it, gcc keeps some sums in memory. */
#define OWN(queries)                                                                                               \
    static __attribute__((noinline)) void score_##queries(                                                         \
        int from, struct tile *tile, const struct chunk *chunk, int dim) {                                         \
        int page = tile->first / PAGE;                                                                             \
        for (; (page + 4) * PAGE <= tile->end; page += 4) score(queries, 4, from, page, tile, chunk, dim);         \
        for (; page * PAGE < tile->end; page++) score(queries, 1, from, page, tile, chunk, dim);                   \
    }                                                                                                              \
    static __attribute__((noinline)) int add_##queries(                                                            \
        int from, struct tile *tile, const struct chunk *chunk, int dim) {                                         \
        return add_columns(queries, 4, from, tile, chunk, dim);                                                    \
    }
OWN(1)
OWN(2)
OWN(3)
OWN(4)
#undef OWN

/* Folds a tile's chunk into its states, and empties it. Weights are found for all queries at once, as those of a few
   wait for each other; there are registers for half as many, so these are scored and added in two parts of much the
   same size. */
static void fold(struct tile *tile, const struct chunk *chunk, int dim) {
    static void (*const scores[])(int, struct tile *, const struct chunk *, int) = {score_1, score_2, score_3, score_4};
    static int (*const adds[])(int, struct tile *, const struct chunk *, int) = {add_1, add_2, add_3, add_4};
    const int count = tile->count, part = count > MOST_QUERIES ? (count + 1) / 2 : count;
    if (count == 0) return;
    scores[part - 1](0, tile, chunk, dim);
    if (part < count) scores[count - part - 1](part, tile, chunk, dim);
    if (chunk->room) scale_positions(tile, chunk->key_scales);
    weigh(tile);
    if (chunk->room) scale_positions(tile, chunk->value_scales);
    const int left = adds[part - 1](0, tile, chunk, dim);
    if (part < count) adds[count - part - 1](part, tile, chunk, dim);
    add_rest(left, tile, chunk, dim);
    tile->count = 0;
}

#else

/* Scores, weighs and adds for a tile of a known number of queries. */
INLINE void fold_by(const int queries, struct tile *tile, const struct chunk *chunk, int dim) {
    const int pages = SUMS / PAGE_VECTORS / queries > 0 ? SUMS / PAGE_VECTORS / queries : 1;
    const int at_once = pages >= 4 ? 4 : pages >= 2 ? 2 : 1, vectors = SUMS / queries > 1 ? SUMS / queries : 2;
    int page = tile->first / PAGE;
    for (; (page + at_once) * PAGE <= tile->end; page += at_once)
        score(queries, at_once, 0, page, tile, chunk, dim);
    for (; page * PAGE < tile->end; page++) score(queries, 1, 0, page, tile, chunk, dim);
    if (chunk->room) scale_positions(tile, chunk->key_scales);
    weigh(tile);
    if (chunk->room) scale_positions(tile, chunk->value_scales);
    add_rest(add_columns(queries, vectors, 0, tile, chunk, dim), tile, chunk, dim);
}

/* Folds a tile's chunk into its states, and empties it. */
static void fold(struct tile *tile, const struct chunk *chunk, int dim) {
    switch (tile->count) {
#if TILE_QUERIES > 4
    case 6: fold_by(6, tile, chunk, dim); break;
    case 5: fold_by(5, tile, chunk, dim); break;
#endif
    case 4: fold_by(4, tile, chunk, dim); break;
    case 3: fold_by(3, tile, chunk, dim); break;
    case 2: fold_by(2, tile, chunk, dim); break;
    case 1: fold_by(1, tile, chunk, dim);
    }
    tile->count = 0;
}

#endif

#endif
