/* Sums of four products of bytes in every lane of 32 bits: exact, so equal on every processor. */
#ifndef TTC_DOT_H
#define TTC_DOT_H

#include "lanes.h"

/* What `dot` adds too much for each unit of the activations' sum. The VNNI instructions multiply
   unsigned with signed bytes, so weights are moved up by 128 and the surplus is taken off again. */
#if defined(__AVX512VNNI__) && !defined(TTC_PORTABLE)
#define SURPLUS 128
#else
#define SURPLUS 0
#endif

/* sums + the dot products of four bytes of `weights` with four of `activations`, lane by lane.
   Bytes lie in [-127, 127], so the 16-bit sums of pairs on AVX2 cannot saturate. */
INLINE ints dot(ints sums, ints weights, ints activations) {
#if defined(__AVX512VNNI__) && !defined(TTC_PORTABLE)
    __m512i moved = _mm512_xor_si512((__m512i)weights, _mm512_set1_epi8((char)0x80));
    return (ints)_mm512_dpbusd_epi32((__m512i)sums, moved, (__m512i)activations);
#elif defined(__AVX2__) && !defined(TTC_PORTABLE)
    __m256i w = (__m256i)weights;
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8((__m256i)activations, w));
    return sums + (ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#else
    for (int byte = 24; byte >= 0; byte -= 8)
        sums += ((weights << byte) >> 24) * ((activations << byte) >> 24);
    return sums;
#endif
}

/* The same for codes that are not negative, of few bits: on AVX2 the sums of two products stay in 16 bits, where
   four codes of 4 bits and more take half the instructions. `FEW(bits)` calls in a row cannot overflow; then
   `widened` makes the sums whole. (2 * 127 * 15 * 8, 2 * 127 * 31 * 4 and 2 * 127 * 63 * 2 are below 2^15.) */
#define FEW(bits) ((bits) == 4 ? 8 : (bits) == 5 ? 4 : 2)

INLINE ints dot_few(ints sums, ints weights, ints activations) {
#if defined(__AVX512VNNI__) && !defined(TTC_PORTABLE)
    return (ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)weights, (__m512i)activations);
#elif defined(__AVX2__) && !defined(TTC_PORTABLE)
    __m256i pairs = _mm256_maddubs_epi16((__m256i)weights, (__m256i)activations);
    __m256i sum = _mm256_add_epi16((__m256i)sums, pairs);
    __asm__("" : "+x"(sum)); /* else gcc puts all additions off, and products do not fit registers */
    return (ints)sum;
#else
    return dot(sums, weights, activations);
#endif
}

INLINE ints widened(ints sums) {
#if defined(__AVX2__) && !defined(__AVX512VNNI__) && !defined(TTC_PORTABLE)
    return (ints)_mm256_madd_epi16((__m256i)sums, _mm256_set1_epi16(1));
#else
    return sums;
#endif
}

#endif
