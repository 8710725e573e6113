/* The layout of keys and values, and the products with them.

   A page holds PAGE positions of a sequence. For each key head lie together

       keys    bf16 [head_dim / 2][PAGE][2]     two neighbouring dimensions of a position
       values  bf16 [PAGE / 2][head_dim][2]     two neighbouring positions of a dimension

   so that every load is one aligned vector of pairs, on any processor: of 32 bits the lower half is
   the first of a pair and the upper half the second, and a float32 with the same value is one shift
   or one mask away. */
#ifndef TTC_PAGES_H
#define TTC_PAGES_H

#include "lanes.h"
#include "step.h"

#define TILE_QUERIES (WIDTH == 16 ? 8 : WIDTH == 8 ? 6 : 4)
#define MOST_QUERIES (WIDTH == 8 ? 6 : 4) /* at once: more would leave no registers for keys and values */
#define QUERY_LANES (WIDTH > TILE_QUERIES ? WIDTH : TILE_QUERIES) /* for a number of each, in whole vectors */
#define PAGE_VECTORS (PAGE / WIDTH)
#define SUMS (WIDTH == 16 ? 16 : 8) /* at once: enough to hide how long an addition takes */

/* Rounds to the nearest bf16, ties to even; a NaN stays one. */
INLINE uint16_t to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

INLINE ints load_pairs(const uint16_t *from) {
    ints v;
    memcpy(&v, __builtin_assume_aligned(from, 4), sizeof v);
    return v;
}

/* The first or the second number of each pair. */
INLINE floats half_of(ints pairs, const int half) {
    return (floats)(half ? pairs & (int32_t)0xffff0000 : pairs << 16);
}

/* Puts the key and the value of a position, [dim] each, into its page. */
INLINE void put_position(int slot, int dim, const float *key, const float *value, uint16_t *keys, uint16_t *values) {
    keys += slot * 2, values += slot / 2 * dim * 2 + slot % 2;
    for (int d = 0; d < dim; d += 2, keys += PAGE * 2, values += 4) {
        keys[0] = to_bf16(key[d]), keys[1] = to_bf16(key[d + 1]);
        values[0] = to_bf16(value[d]), values[2] = to_bf16(value[d + 1]);
    }
}

/* The pages of a chunk, of one key head. */
struct chunk {
    const uint16_t *keys[PAGES], *values[PAGES];
    const float *key_scales[PAGES], *value_scales[PAGES]; /* of codes, else null */
    size_t heads[PAGES];                                  /* which were decoded: of all pages' heads */
    uint16_t *room;                                       /* where they are decoded to, [2][CHUNK][dim] */
};

/* Up to TILE_QUERIES queries that see the same positions of the same chunk, and their states. */
struct tile {
    const float *queries[TILE_QUERIES]; /* [dim] */
    float *values[TILE_QUERIES];        /* [dim] */
    float *peaks[TILE_QUERIES], *masses[TILE_QUERIES];
    float weights[TILE_QUERIES][CHUNK]; /* of positions; before the softmax their scores */
    float kept[QUERY_LANES];            /* what older values are multiplied by */
    int count, first, end;              /* positions from `first` to before `end` are seen */
};

/* The scores of `pages` pages from `page` on for `queries` queries from the tile's `from`th on; how many there are of
   both is known when it is compiled, so sums stay in registers. Dimensions are added from first to last. */
INLINE void score(
    const int queries, const int pages, int from, int page, struct tile *tile, const struct chunk *chunk, int dim) {
    enum { MOST = PAGES * PAGE_VECTORS };
    floats sums[MOST_QUERIES][MOST] = {};
    for (int d = 0; d < dim; d += 2)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) { /* loads anew: pairs are not worth registers */
            floats keys[MOST];
#pragma GCC unroll 16
            for (int v = 0; v < pages * PAGE_VECTORS; v++) {
                const uint16_t *pairs = chunk->keys[page + v / PAGE_VECTORS] + d * PAGE;
                keys[v] = half_of(load_pairs(pairs + v % PAGE_VECTORS * WIDTH * 2), half);
            }
#pragma GCC unroll 6
            for (int q = 0; q < queries; q++) {
                floats query = all(tile->queries[from + q][d + half]);
#pragma GCC unroll 16
                for (int v = 0; v < pages * PAGE_VECTORS; v++) {
                    sums[q][v] += query * keys[v];
                    AT_ONCE(sums[q][v]);
                }
            }
        }
#pragma GCC unroll 6
    for (int q = 0; q < queries; q++)
#pragma GCC unroll 16
        for (int v = 0; v < pages * PAGE_VECTORS; v++)
            store(tile->weights[from + q] + page * PAGE + v * WIDTH, sums[q][v]);
}

/* Adds the weighted values of positions from `first` to before `end` of a page; a whole page where
   that is known when it is compiled. */
INLINE void add_page(
    const int queries, const int vectors, const int whole, floats sums[MOST_QUERIES][SUMS],
    const struct tile *tile, int from, int page, const uint16_t *values, int dim, int first, int end) {
    for (int t = whole ? 0 : first / 2 * 2; t < (whole ? PAGE : end); t += 2)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            if (!whole && (t + half < first || t + half >= end)) continue;
            floats value[SUMS];
#pragma GCC unroll 16
            for (int v = 0; v < vectors; v++)
                value[v] = half_of(load_pairs(values + t * dim + v * WIDTH * 2), half);
#pragma GCC unroll 6
            for (int q = 0; q < queries; q++) {
                floats weight = all(tile->weights[from + q][page * PAGE + t + half]);
#pragma GCC unroll 16
                for (int v = 0; v < vectors; v++) {
                    sums[q][v] += weight * value[v];
                    AT_ONCE(sums[q][v]);
                }
            }
        }
}

/* Adds the weighted values of a chunk to the columns of each of `queries` queries, `vectors` at once; gives the first
   column that is left. Positions are added from first to last; those that are not
   seen are not touched, whatever lies there. */
INLINE int add_columns(
    const int queries, const int vectors, int from, struct tile *tile, const struct chunk *chunk, int dim) {
    int d = 0;
    for (; d + vectors * WIDTH <= dim; d += vectors * WIDTH) {
        floats sums[MOST_QUERIES][SUMS];
#pragma GCC unroll 6
        for (int q = 0; q < queries; q++)
#pragma GCC unroll 16
            for (int v = 0; v < vectors; v++)
                sums[q][v] = load(tile->values[from + q] + d + v * WIDTH) * tile->kept[from + q];
        for (int p = tile->first / PAGE; p * PAGE < tile->end; p++) {
            int first = tile->first - p * PAGE, end = tile->end - p * PAGE;
            const uint16_t *values = chunk->values[p] + d * 2;
            if (first <= 0 && end >= PAGE)
                add_page(queries, vectors, 1, sums, tile, from, p, values, dim, 0, PAGE);
            else
                add_page(
                    queries, vectors, 0, sums, tile, from, p, values, dim, first > 0 ? first : 0,
                    end < PAGE ? end : PAGE);
        }
#pragma GCC unroll 6
        for (int q = 0; q < queries; q++)
#pragma GCC unroll 16
            for (int v = 0; v < vectors; v++) store(tile->values[from + q] + d + v * WIDTH, sums[q][v]);
    }
    return d;
}

/* The same for the columns that are left from `d` on, one vector or number at a time. */
static void add_rest(int d, struct tile *tile, const struct chunk *chunk, int dim) {
    for (int q = 0; q < tile->count; q++) {
        const float *weights = tile->weights[q];
        int i = d;
        for (; i + WIDTH <= dim; i += WIDTH) {
            floats sum = load(tile->values[q] + i) * tile->kept[q];
            for (int t = tile->first; t < tile->end; t++) {
                const uint16_t *pairs = chunk->values[t / PAGE] + (t % PAGE / 2 * dim + i) * 2;
                sum += weights[t] * half_of(load_pairs(pairs), t % 2);
            }
            store(tile->values[q] + i, sum);
        }
        for (; i < dim; i++) {
            float sum = tile->values[q][i] * tile->kept[q];
            for (int t = tile->first; t < tile->end; t++) {
                uint32_t bits = chunk->values[t / PAGE][(t % PAGE / 2 * dim + i) * 2 + t % 2];
                float value;
                bits <<= 16;
                memcpy(&value, &bits, sizeof value);
                sum += weights[t] * value;
            }
            tile->values[q][i] = sum;
        }
    }
}

#endif
