/* Vectors as wide as the processor has them, and the instructions of x86 that have no operator.

   <immintrin.h> has these and thousands more: reading it takes a compiler half a second, which is as long as it takes
   for what most files of the kernels do themselves. */
#ifndef TTC_INSTRUCTIONS_H
#define TTC_INSTRUCTIONS_H

#include <stdint.h>

#if defined(__AVX512VNNI__) && !defined(TTC_PORTABLE)
#define WIDTH 16
#elif defined(__AVX2__) && !defined(TTC_PORTABLE)
#define WIDTH 8
#else
#define WIDTH 4 /* of any processor: operators alone */
#endif

typedef float floats __attribute__((vector_size(4 * WIDTH)));
typedef int32_t ints __attribute__((vector_size(4 * WIDTH)));
typedef int8_t bytes __attribute__((vector_size(4 * WIDTH)));
typedef uint16_t shorts __attribute__((vector_size(4 * WIDTH))); /* without signs, so that a sum may overflow */
typedef uint16_t halves __attribute__((vector_size(2 * WIDTH))); /* the bits of float16 */
typedef int8_t quarter __attribute__((vector_size(WIDTH))); /* of `bytes` */

#define INLINE static inline __attribute__((always_inline))

/* Functions of one instruction. Assemblers for x86 write the operands from last to first. */
#define UNARY(name, result, instruction, operand) \
    INLINE result name(operand a) { \
        result r; \
        __asm__(instruction " %1, %0" : "=v"(r) : "v"(a)); \
        return r; \
    }
#define BINARY(name, result, instruction, operand) \
    INLINE result name(operand a, operand b) { \
        result r; \
        __asm__(instruction " %2, %1, %0" : "=v"(r) : "v"(a), "v"(b)); \
        return r; \
    }

#if WIDTH > 4
BINARY(larger, floats, "vmaxps", floats) /* a > b ? a : b, lane by lane */
BINARY(smaller, floats, "vminps", floats) /* a < b ? a : b */
BINARY(larger_ints, ints, "vpmaxsd", ints)
BINARY(shorts_of, shorts, "vpackssdw", ints) /* of a and b, in each 128 bits of them */
BINARY(bytes_of, bytes, "vpacksswb", shorts) /* likewise */
BINARY(ordered, ints, "vpermd", ints) /* the lanes of b that a names */
#endif

#if WIDTH == 16

UNARY(widen_halves, floats, "vcvtph2ps", halves)

/* sums + the products of four bytes, those of `a` without signs, added up. */
INLINE ints add_products(ints sums, bytes a, bytes b) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b));
    return sums;
}

/* Whether a bit is set. */
INLINE int any(ints v) {
    uint16_t lanes;
    __asm__("vptestmd %1, %1, %0" : "=Yk"(lanes) : "v"(v));
    return lanes != 0;
}

#elif WIDTH == 8

#ifdef __F16C__
UNARY(widen_halves, floats, "vcvtph2ps", halves)
#endif
UNARY(absolute, bytes, "vpabsb", bytes)
BINARY(give_signs, bytes, "vpsignb", bytes) /* a; -a where b is negative, 0 where it is 0 */
BINARY(byte_products, shorts, "vpmaddubsw", bytes) /* of two neighbours, added up; `a` has no signs */
BINARY(short_products, ints, "vpmaddwd", shorts) /* the same; both have signs */
BINARY(differences, ints, "vpsadbw", bytes) /* |a - b| without signs, of eight neighbours added up in 64 bits */

/* Whether a lane's sign is set. */
INLINE int any(ints v) {
    int signs;
    __asm__("vpmovmskb %1, %0" : "=r"(signs) : "v"(v));
    return signs != 0;
}

#else

INLINE floats larger(floats a, floats b) {
    ints is_larger = a > b;
    return (floats)(((ints)a & is_larger) | ((ints)b & ~is_larger));
}

INLINE ints larger_ints(ints a, ints b) {
    ints is_larger = a > b;
    return (a & is_larger) | (b & ~is_larger);
}

INLINE floats smaller(floats a, floats b) {
    ints is_smaller = a < b;
    return (floats)(((ints)a & is_smaller) | ((ints)b & ~is_smaller));
}

INLINE int any(ints v) { return (v[0] | v[1] | v[2] | v[3]) != 0; }

#endif

#endif
