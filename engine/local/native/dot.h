/* Sums of four products of bytes in every lane of 32 bits: exact, so equal on every processor. */
#ifndef TTC_DOT_H
#define TTC_DOT_H

#include "lanes.h"

/* What `dot` adds too much for each unit of the activations' sum. The VNNI instructions multiply unsigned with signed
   bytes, so weights lie in memory moved up by it, and the surplus is taken off again. */
#if WIDTH == 16
#define SURPLUS 128
#else
#define SURPLUS 0
#endif

/* sums + the dot products of four bytes of `weights`, moved up by SURPLUS, with four of `activations`, lane by lane.
   Bytes lie in [-127, 127], so the 16-bit sums of pairs on AVX2 cannot saturate. */
INLINE ints dot(ints sums, ints weights, ints activations) {
#if WIDTH == 16
    return add_products(sums, (bytes)weights, (bytes)activations);
#elif WIDTH == 8
    shorts pairs = byte_products(absolute((bytes)weights), give_signs((bytes)activations, (bytes)weights));
    ints sum = sums + short_products(pairs, (shorts){} + 1);
    AT_ONCE(sum); /* else gcc puts all additions off, and products do not fit registers */
    return sum;
#else
    for (int byte = 24; byte >= 0; byte -= 8)
        sums += ((weights << byte) >> 24) * ((activations << byte) >> 24);
    return sums;
#endif
}

/* The same for codes that are not negative, of few bits. On AVX2 a lane is two sums of 16 bits, which takes half the
   instructions; they may overflow on the way, but not in the end, as `start_few` takes off the codes' centre: a sum
   is over half of a group, and 16 * 127 * 15, 16 * 127 * 16 and 8 * 127 * 32 are below 2^15. `widened` adds the two. */
INLINE ints dot_few(ints sums, ints weights, ints activations) {
#if WIDTH == 8
    shorts sum = (shorts)sums + byte_products((bytes)weights, (bytes)activations);
    AT_ONCE(sum); /* else gcc puts all additions off, and products do not fit registers */
    return (ints)sum;
#else
    return dot(sums, weights, activations);
#endif
}

INLINE ints widened(ints sums) {
#if WIDTH == 8
    return short_products((shorts)sums, (shorts){} + 1);
#else
    return sums;
#endif
}

/* What a lane's sums begin with: less `centre` for each unit of the activations. */
INLINE int32_t start_few(const int8_t *activations, int count, int centre) {
    int32_t first = 0, second = 0; /* of each four, the sums of two */
    for (int i = 0; i < count; i += 4) {
        first += activations[i] + activations[i + 1];
        second += activations[i + 2] + activations[i + 3];
    }
#if WIDTH == 8
    return (uint16_t)(-centre * first) | (int32_t)((uint32_t)(-centre * second) << 16);
#else
    return -centre * (first + second);
#endif
}

#endif
