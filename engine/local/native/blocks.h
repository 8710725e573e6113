/* Weights with the codes of a GGUF file: the codes are moved, not changed.

   A panel of 16 outputs is a row of blocks of GROUP columns. A block begins with lines of 64 bytes. Four columns of
   16 outputs are a quad, 64 codes; of 4 to 6 bits the lower four of two quads share a line, the first in the lower
   halves of its bytes. Lines with the fifth bits of eight quads follow, or with the fifth and sixth ones of four: in
   each byte, those of the first quad are the lowest. So one load brings codes that lie as `dot` takes them, and
   a shift and a mask free them. Codes of 8 bits are a line for each quad. Then come scales and, where the format
   has them, minima, float16 [GROUP / group][16]: what is read at once lies together.

   A weight is scale * (code - offset) + minimum. */
#ifndef TTC_BLOCKS_H
#define TTC_BLOCKS_H

#include "lanes.h"
#include "step.h"

enum { LINE = 64, QUADS = GROUP / 4 };

INLINE int bits_of(int format) {
    return format <= Q4_MINIMUM ? 4 : format <= Q5_MINIMUM ? 5 : format == Q6 ? 6 : 8;
}

/* Columns that share a scale. */
INLINE int group_of(int format) { return format == Q6 ? 16 : 32; }

INLINE int has_minimum(int format) { return format == Q4_MINIMUM || format == Q5_MINIMUM; }

INLINE int offset_of(int format) { return format == Q4 ? 8 : format == Q5 ? 16 : format == Q6 ? 32 : 0; }

/* What is taken off codes so that the sums of a group's products stay in 16 bits. */
INLINE int centre_of(int format) { return format == Q5_MINIMUM ? 16 : offset_of(format); }

/* Where a block's scales lie, and its minima, and where it ends. */
INLINE size_t scales_at(int format) { return LINE * QUADS * bits_of(format) / 8; }

INLINE size_t minima_at(int format) {
    return scales_at(format) + GROUP / group_of(format) * PANEL * sizeof(uint16_t);
}

INLINE size_t block_bytes(int format) {
    if (format == INT8) return GROUP * PANEL; /* whose scales lie elsewhere */
    return has_minimum(format) ? 2 * minima_at(format) - scales_at(format) : minima_at(format);
}

/* Frees the codes of a line, those of its first quad and those of its second. `upper` holds what is above four bits,
   of these quads the lowest, and is shifted on. Bits of neighbouring bytes are masked out. */
INLINE void free_codes(const int bits, ints line, ints *upper, ints codes[2]) {
    codes[0] = line & 0x0f0f0f0f;
    codes[1] = line >> 4 & 0x0f0f0f0f;
    if (bits == 5) {
        codes[0] |= *upper << 4 & 0x10101010;
        codes[1] |= *upper << 3 & 0x10101010;
        *upper >>= 2;
    } else if (bits == 6) {
        codes[0] |= *upper << 4 & 0x30303030;
        codes[1] |= *upper << 2 & 0x30303030;
        *upper >>= 4;
    }
}

/* Where a group's codes begin in its block, and the bits above four. */
INLINE size_t codes_at(int format, int group) { return group * group_of(format) / 8 * LINE; }

INLINE size_t upper_at(int group) { return (QUADS / 2 + group) * LINE; }

#endif
