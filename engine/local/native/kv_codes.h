/* Keys and values as bytes: half the memory, and a little more work.

   Each head of a position has codes from -127 to 127 and one scale, so writing a position never touches another. Pages
   lie as in `pages.h`, with a code for each number. Codes are exact as bf16, so they are multiplied as those are; the
   scales of keys then go into scores, and those of values into weights. */
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

/* Puts the key and the value of a position, [dim] each, into its page, and their scales. */
static void put_codes(
    int slot, int dim, const float *key, const float *value, int8_t *keys, int8_t *values, float *key_scales,
    float *value_scales) {
    const float of_key = inverse_scale(key, dim, key_scales + slot);
    const float of_value = inverse_scale(value, dim, value_scales + slot);
    keys += slot * 2, values += slot / 2 * dim * 2 + slot % 2;
    for (int d = 0; d < dim; d += 2, keys += PAGE * 2, values += 4) {
        keys[0] = code_of(key[d] * of_key), keys[1] = code_of(key[d + 1] * of_key);
        values[0] = code_of(value[d] * of_value), values[2] = code_of(value[d + 1] * of_value);
    }
}

/* `count` codes as bf16. */
static void decode(const int8_t *codes, int count, uint16_t *to) {
    for (int i = 0; i < count; i += WIDTH) {
        int8_t some __attribute__((vector_size(WIDTH)));
        memcpy(&some, codes + i, sizeof some);
        ints bits = (ints)to_floats(__builtin_convertvector(some, ints)) >> 16;
        halves numbers = __builtin_convertvector(bits, halves);
        memcpy(to + i, &numbers, sizeof numbers);
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
