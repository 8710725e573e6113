/* What the kernels do with vectors, by the compiler's vector extensions.

   A sum that runs across lanes goes over 16 of them, whatever the width, and they are added in one
   order. With -ffp-contract=off (a fused multiply-add rounds once less) every float below is then
   the same to the bit on every processor, for any number of rows and threads. */
#ifndef TTC_LANES_H
#define TTC_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "instructions.h"

#define LANES 16
#define PARTS (LANES / WIDTH)

/* Lets what was added to a vector be computed before what follows. Without it gcc mixes many additions on AVX2, and
   their sums do not fit the 16 registers. */
#if WIDTH == 8
#define AT_ONCE(v) __asm__("" : "+x"(v))
#else
#define AT_ONCE(v)
#endif

INLINE floats load(const float *from) {
    floats v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE ints load_ints(const void *from) {
    ints v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE void store(float *to, floats v) { memcpy(to, &v, sizeof v); }

INLINE floats all(float x) { return x - (floats){}; }

/* The same of `count` numbers, if they are fewer than a vector has. */
INLINE floats load_some(const float *from, int count, float fill) {
    if (count >= WIDTH) return load(from);
    floats v = all(fill);
    memcpy(&v, from, count * sizeof *from);
    return v;
}

INLINE void store_some(float *to, int count, floats v) {
    if (count >= WIDTH)
        store(to, v);
    else
        memcpy(to, &v, count * sizeof *to);
}

INLINE floats choose(ints mask, floats yes, floats no) {
    return (floats)(((ints)yes & mask) | ((ints)no & ~mask));
}

INLINE floats magnitude(floats v) { return (floats)((ints)v & 0x7fffffff); }

/* Lane numbers from `first` on. */
INLINE ints count_from(int first) {
    static const int32_t numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return load_ints(numbers) + first;
}

/* Rounds to the nearest integer, ties to even, for magnitudes below 2^22: the constant leaves no
   bits for a fraction. */
INLINE floats nearest(floats v) { return (v + 12582912.0f) - 12582912.0f; }

INLINE ints to_ints(floats v) { return __builtin_convertvector(v, ints); }

INLINE floats to_floats(ints v) { return __builtin_convertvector(v, floats); }

/* Four vectors of numbers that fit a byte, as bytes one after another. */
INLINE bytes narrowed(const ints v[4]) {
#if WIDTH > 4
#if WIDTH == 16
    const ints order = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
#else
    const ints order = {0, 4, 1, 5, 2, 6, 3, 7};
#endif
    return (bytes)ordered(order, (ints)bytes_of(shorts_of(v[0], v[1]), shorts_of(v[2], v[3])));
#else
    quarter parts[4];
    for (int i = 0; i < 4; i++) parts[i] = __builtin_convertvector(v[i], quarter);
    bytes all_parts;
    memcpy(&all_parts, parts, sizeof all_parts);
    return all_parts;
#endif
}

/* exp, within 2 units in the last place from -87 on, and exp(-87) below that: the power of two goes
   into the exponent, and a Taylor polynomial takes the rest, which is below ln(2) / 2. */
INLINE floats exponential(floats x) {
    x = larger(x, all(-87.0f));
    x = smaller(x, all(88.0f));
    floats n = nearest(x * 1.44269504f);
    floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts */
    floats p = all(1.0f / 5040);
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return (floats)((ints)p + (to_ints(n) << 23));
}

/* The sum of 16 lanes, in one order: one half of them is added to the other, until one is left. */
INLINE float sum_lanes(const floats lanes[PARTS]) {
    floats v[PARTS];
    memcpy(v, lanes, sizeof v);
    for (int half = PARTS / 2; half; half /= 2)
        for (int i = 0; i < half; i++) v[i] += v[i + half];
#if WIDTH == 16 /* in registers: gcc would take each lane out on its own */
    typedef float eight __attribute__((vector_size(32)));
    typedef float four __attribute__((vector_size(16)));
    typedef int32_t order __attribute__((vector_size(16)));
    eight halves[2];
    four x[2];
    memcpy(halves, v, sizeof halves);
    halves[0] += halves[1];
    memcpy(x, halves, sizeof x);
    x[0] += x[1];
    x[0] += __builtin_shuffle(x[0], (order){2, 3, 2, 3});
    return x[0][0] + x[0][1];
#else
    float x[WIDTH];
    store(x, v[0]);
    for (int half = WIDTH / 2; half; half /= 2)
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
#endif
}

/* 1 over the root mean square of n numbers (Zhang and Sennrich 2019, arXiv 1910.07467, equation 4). */
INLINE float inverse_rms(const float *x, int n, float eps) {
    floats squares[PARTS] = {};
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int p = 0; p < PARTS; p++) {
            floats v = load(x + i + p * WIDTH);
            squares[p] += v * v;
        }
    float rest[LANES];
    memcpy(rest, squares, sizeof rest);
    for (int j = 0; i + j < n; j++) rest[j] += x[i + j] * x[i + j];
    memcpy(squares, rest, sizeof rest);
    return 1 / sqrtf(sum_lanes(squares) / n + eps);
}

/* Float16 to float, which is exact. Multiplying by 2^112 moves the exponent to its new bias, also of the
   numbers below the normal ones. */
INLINE floats load_halves(const uint16_t *from) {
    halves from_memory;
    memcpy(&from_memory, from, sizeof from_memory);
#if WIDTH == 16 || (WIDTH == 8 && defined(__F16C__))
    return widen_halves(from_memory);
#else
    ints bits = __builtin_convertvector(from_memory, ints), moved = (bits & 0x7fff) << 13;
    ints finite = (ints)((floats)moved * 0x1p112f);
    ints is_finite = (bits & 0x7c00) != 0x7c00;
    return (floats)((finite & is_finite) | ((moved | 0x7f800000) & ~is_finite) | (bits & 0x8000) << 16);
#endif
}

INLINE float largest_lane(floats v) {
#if WIDTH == 16 /* of two halves at a time */
    v = larger(__builtin_shuffle(v, (ints){8, 9, 10, 11, 12, 13, 14, 15}), v);
    v = larger(__builtin_shuffle(v, (ints){4, 5, 6, 7}), v);
    v = larger(__builtin_shuffle(v, (ints){2, 3}), v);
    v = larger(__builtin_shuffle(v, (ints){1}), v);
    return v[0];
#else
    float most = v[0];
    for (int i = 1; i < WIDTH; i++) most = v[i] > most ? v[i] : most;
    return most;
#endif
}

/* The largest of numbers without a sign, by their bits: they have the order of the numbers, and infinity and then NaN
   lie above those that are finite (IEEE 754-2019, section 5.10). */
INLINE float largest_bits(ints v) {
#if WIDTH == 16 /* of two halves at a time */
    v = larger_ints(__builtin_shuffle(v, (ints){8, 9, 10, 11, 12, 13, 14, 15}), v);
    v = larger_ints(__builtin_shuffle(v, (ints){4, 5, 6, 7}), v);
    v = larger_ints(__builtin_shuffle(v, (ints){2, 3}), v);
    v = larger_ints(__builtin_shuffle(v, (ints){1}), v);
    int32_t most = v[0];
#else
    int32_t most = v[0];
    for (int i = 1; i < WIDTH; i++) most = v[i] > most ? v[i] : most;
#endif
    float x;
    memcpy(&x, &most, sizeof x);
    return x;
}

#endif
