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

/* FORMAT is one of `step.h`, and a library holds one alone: those of all take a compiler ten seconds. */
enum {
    LINE = 64,
    QUADS = GROUP / 4,
    BITS = FORMAT <= Q4_MINIMUM ? 4 : FORMAT <= Q5_MINIMUM ? 5 : FORMAT == Q6 ? 6 : 8,
    COLUMNS = FORMAT == Q6 ? 16 : 32, /* of a group: they share a scale */
    HAS_MINIMUM = FORMAT == Q4_MINIMUM || FORMAT == Q5_MINIMUM,
    OFFSET = FORMAT == Q4 ? 8 : FORMAT == Q5 ? 16 : FORMAT == Q6 ? 32 : 0,
    /* What is taken off codes so that the sums of a group's products stay in 16 bits. */
    CENTRE = FORMAT == Q5_MINIMUM ? 16 : OFFSET,
    /* Where a block's scales lie, and its minima, and where it ends. */
    SCALES_AT = LINE * QUADS * BITS / 8,
    MINIMA_AT = SCALES_AT + GROUP / COLUMNS * PANEL * 2,
    BLOCK_BYTES = HAS_MINIMUM ? 2 * MINIMA_AT - SCALES_AT : MINIMA_AT
};

/* Frees the codes of a line, those of its first quad and those of its second. `upper` holds what is above four bits,
   of these quads the lowest, and is shifted on. Bits of neighbouring bytes are masked out. */
INLINE void free_codes(ints line, ints *upper, ints codes[2]) {
    codes[0] = line & 0x0f0f0f0f;
    codes[1] = line >> 4 & 0x0f0f0f0f;
    if (BITS == 5) {
        codes[0] |= *upper << 4 & 0x10101010;
        codes[1] |= *upper << 3 & 0x10101010;
        *upper >>= 2;
    } else if (BITS == 6) {
        codes[0] |= *upper << 4 & 0x30303030;
        codes[1] |= *upper << 2 & 0x30303030;
        *upper >>= 4;
    }
}

/* Where a group's codes begin in its block, and the bits above four. */
INLINE size_t codes_at(int group) { return group * COLUMNS / 8 * LINE; }

INLINE size_t upper_at(int group) { return (QUADS / 2 + group) * LINE; }

#endif
