/* The most that this processor does of three things that a step is made of: reading memory, products
   of bytes, and products of floats. What a step is measured against (Williams et al. 2009, "Roofline").

   Products stay in registers, and there are enough independent sums to hide an instruction's latency.
   Each uses the cheapest sequence that the processor has, also where the kernels cannot: a fused
   multiply-add rounds otherwise than they have to. So no kernel can be above its roof. */
#include "dot.h"
#include <stddef.h>

#define SUMS 10 /* independent sums: latency times instructions per cycle, on all processors known */

/* Lets the compiler believe that a register has changed, so that nothing is computed beforehand. */
#if defined(__AVX512F__)
#define CHANGE(v) __asm__ volatile("" : "+v"(v))
#elif defined(__x86_64__)
#define CHANGE(v) __asm__ volatile("" : "+x"(v))
#elif defined(__aarch64__)
#define CHANGE(v) __asm__ volatile("" : "+w"(v))
#else
#define CHANGE(v) __asm__ volatile("" : "+m"(v))
#endif

/* Reads `count` floats with `threads` threads; the result is of no interest. */
int32_t read_memory(const int32_t *from, size_t count, int threads) {
    const size_t block = 4096; /* bytes of one iteration: a page, which the hardware fetches ahead */
    const size_t each = block / sizeof *from, vectors = each / WIDTH;
    int32_t all_bits = 0;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(| : all_bits)
    for (size_t b = 0; b < count / each; b++) {
        ints bits[8] = {};
        for (size_t v = 0; v < vectors; v += 8)
#pragma GCC unroll 8
            for (size_t i = 0; i < 8; i++) {
                ints loaded;
                memcpy(&loaded, from + b * each + (v + i) * WIDTH, sizeof loaded);
                bits[i] |= loaded;
            }
        for (int i = 0; i < 8; i++) all_bits |= bits[i][0];
    }
    return all_bits;
}

/* Sums + products of bytes, with the fewest instructions; on AVX2 the kernels' own `dot` also has to
   move signs, as only one side may be signed. */
INLINE ints fastest_dot(ints sums, ints weights, ints activations) {
#if WIDTH == 16
    return add_products(sums, (bytes)weights, (bytes)activations);
#elif WIDTH == 8
    return sums + short_products(byte_products((bytes)weights, (bytes)activations), (shorts){} + 1);
#else
    return dot(sums, weights, activations);
#endif
}

/* Multiplies bytes `rounds` times on each thread. Gives the multiplications of one thread. */
double multiply_bytes(int64_t rounds, int threads) {
#pragma omp parallel num_threads(threads)
    {
        ints sums[SUMS] = {}, weights = (ints){} + 0x01010101, activations = (ints){} + 0x02010201;
        for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 10
            for (int i = 0; i < SUMS; i++) {
                CHANGE(activations);
                sums[i] = fastest_dot(sums[i], weights, activations);
            }
        }
#pragma GCC unroll 10
        for (int i = 0; i < SUMS; i++) CHANGE(sums[i]);
    }
    return (double)rounds * SUMS * WIDTH * 4;
}

#if defined(__AVX512BF16__) && WIDTH == 16
#define PRODUCTS (2 * WIDTH)
#define FASTEST "vdpbf16ps"
#elif defined(__FMA__) && WIDTH > 4
#define PRODUCTS WIDTH
#define FASTEST "vfmadd231ps"
#else
#define PRODUCTS WIDTH
#endif

/* sum + a * b, or sums of two products of bf16. */
INLINE floats fastest_product(floats sum, floats a, floats b) {
#ifdef FASTEST
    __asm__(FASTEST " %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
#else
    return sum + a * b;
#endif
}

/* Multiplies floats, or bf16 where the processor can, likewise. */
double multiply_floats(int64_t rounds, int threads) {
#pragma omp parallel num_threads(threads)
    {
        floats sums[SUMS] = {}, a = {}, b = {};
        for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 10
            for (int i = 0; i < SUMS; i++) {
                CHANGE(a);
                sums[i] = fastest_product(sums[i], a, b);
            }
        }
#pragma GCC unroll 10
        for (int i = 0; i < SUMS; i++) CHANGE(sums[i]);
    }
    return (double)rounds * SUMS * PRODUCTS;
}
