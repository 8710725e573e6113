/* Keys and values as bytes: half the memory, and a little more work.

   Each head of a position has codes from -127 to 127 and one scale, so writing a position never touches another. Codes
   are exact as bf16, so they are multiplied as those are; the scales of keys then go into scores, and those of values
   into weights. Of 64 numbers of a page of `pages.h`, 32 pairs, those of the first 16 are the first two bytes of 16
   words, and those of the others the last two: so one load brings what two whole vectors of pairs are made of. */
#ifndef TTC_KV_CODES_H
#define TTC_KV_CODES_H

#include "pages.h"

/* What the numbers of a head are multiplied by to be codes, and their scale: NaN where one is not finite, so that it
   shows. */
static float inverse_scale(const float *x, int dim, float *scale) {
    floats peaks = {}, faults = {};
    for (int d = 0; d < dim; d += WIDTH) {
        floats v = load_some(x + d, dim - d, 0);
        peaks = larger(magnitude(v), peaks);
        faults += v - v;
    }
    float peak = largest_lane(peaks), fault = 0;
    for (int i = 0; i < WIDTH; i++) fault += faults[i];
    *scale = peak / 127 + fault;
    return peak > 1e-30f ? 127 / peak : 0;
}

INLINE int8_t code_of(float x) { return (int8_t)((x + 12582912.0f) - 12582912.0f); } /* as `nearest` */

/* Where the codes of a pair lie in a page. */
INLINE int place_of_code(int pair) { return pair / 32 * 64 + pair % PAGE * 4 + pair % 32 / PAGE * 2; }

/* Puts the key and the value of a position, [dim] each, into its page, and their scales. */
static void put_codes(
    int slot, int dim, const float *key, const float *value, int8_t *keys, int8_t *values, float *key_scales,
    float *value_scales) {
    const float of_key = inverse_scale(key, dim, key_scales + slot);
    const float of_value = inverse_scale(value, dim, value_scales + slot);
    for (int d = 0; d < dim; d++) {
        keys[place_of_code(d / 2 * PAGE + slot) + d % 2] = code_of(key[d] * of_key);
        values[place_of_code(slot / 2 * dim + d) + slot % 2] = code_of(value[d] * of_value);
    }
}

/* A vector of pairs of bf16, of the codes in two neighbouring bytes of each word. */
INLINE ints pairs_of(ints words, const int byte) {
    ints first = (ints)to_floats(words << (24 - 8 * byte) >> 24), second = (ints)to_floats(words << (16 - 8 * byte) >> 24);
    return (first >> 16 & 0xffff) | second; /* of so small an integer the lower half is zero */
}

/* `count` codes, a multiple of 64, as bf16. */
static void decode(const int8_t *codes, int count, uint16_t *to) {
    for (int i = 0; i < count; i += 64)
        for (int word = 0; word < PAGE; word += WIDTH) {
            ints words = load_ints(codes + i + word * 4), first = pairs_of(words, 0), second = pairs_of(words, 2);
            memcpy(to + i + word * 2, &first, sizeof first);
            memcpy(to + i + (PAGE + word) * 2, &second, sizeof second);
        }
}

/* Multiplies what is known of each position of a tile by the position's scale. */
static void scale_positions(struct tile *tile, const float *const *scales) {
    for (int q = 0; q < tile->count; q++)
        for (int p = tile->first / PAGE; p * PAGE < tile->end; p++)
            for (int v = 0; v < PAGE; v += WIDTH) {
                float *at = tile->weights[q] + p * PAGE + v;
                store(at, load(at) * load(scales[p] + v));
            }
}

#endif
