/* Linear layers with the codes of a GGUF file. As in `linear.c`, products are summed in integers within a group,
   and groups are added as floats from left to right; how codes come to where they are multiplied decides no bits. */
#include <stdlib.h>

#include "blocks.h"
#include "dot.h"
#include "tile.h"

int32_t bytes_of_block(int format) { return block_bytes(format); }

/* Moves rows of codes, [num_rows][inputs], with scales and minima for each group, to their places in panels,
   which begin as zeros. `inputs` is a multiple of the group. */
void pack_blocks(
    int format, const uint8_t *codes, const uint16_t *scales, const uint16_t *minima, int num_rows,
    int inputs, int first_row, uint8_t *panels) {
    const int bits = bits_of(format), more = bits - 4, group = group_of(format);
    const size_t size = block_bytes(format), blocks = padded(inputs, GROUP) / GROUP;
    for (int r = first_row; r < first_row + num_rows; r++) {
        uint8_t *block = panels + r / PANEL * blocks * size, *at = block + r % PANEL * 4;
        for (int first = 0; first < inputs; first += GROUP, at += size) {
            int count = inputs - first < GROUP ? inputs - first : GROUP;
            for (int quad = 0; quad < count / 4; quad++, codes += 4) {
                uint32_t four, line;
                memcpy(&four, codes, 4);
                if (bits == 8) {
                    memcpy(at + quad * LINE, &four, 4);
                    continue;
                }
                uint8_t *to = at + quad / 2 * LINE;
                memcpy(&line, to, 4);
                line |= (four & 0x0f0f0f0f) << quad % 2 * 4;
                memcpy(to, &line, 4);
                if (!more) continue;
                const int quads = more == 1 ? 8 : 4;
                to = at + (QUADS / 2 + quad / quads) * LINE;
                memcpy(&line, to, 4);
                line |= (four >> 4 & (more == 1 ? 0x01010101 : 0x03030303)) << quad % quads * more;
                memcpy(to, &line, 4);
            }
            uint8_t *beside = block + first / GROUP * size + r % PANEL * sizeof(uint16_t);
            for (int g = 0; g < count / group; g++, beside += PANEL * sizeof(uint16_t)) {
                memcpy(beside + scales_at(format), scales++, sizeof(uint16_t));
                if (minima) memcpy(beside + minima_at(format), minima++, sizeof(uint16_t));
            }
        }
    }
}

/* Where a tile reads its weights, from its first panel on. */
struct source {
    const uint8_t *blocks; /* with the scales, and packed codes */
    const uint8_t *codes;  /* as bytes, [GROUP / 4][16][4] for each block */
    size_t panel_bytes, codes_panel_bytes, codes_block_bytes;
};

/* `rows` rows times `panels` panels. Codes are freed in registers if they are packed, or are bytes, signed or not.
   Where they are packed the format is known, too, when it is compiled. `few` lines of two quads are added before
   sums are widened. */
INLINE void tile(
    const int is_packed, const int is_signed, const int few, const int format, const int rows, const int panels,
    const struct matrix *matrix, const struct source *from, int panel, const struct rows *x, int row,
    const struct place *place) {
    const int vectors = panels * PARTS, bits = bits_of(format), group = group_of(format);
    const int8_t *activations = x->codes + (size_t)row * x->columns;
    floats totals[TILE_ROWS][TILE_VECTORS] = {};
    for (int b = 0; b < x->columns / GROUP; b++) {
        const uint8_t *block = from->blocks + b * block_bytes(format);
        const uint8_t *bytes = from->codes + b * from->codes_block_bytes;
        for (int g = 0; g < GROUP / group; g++) {
            ints sums[TILE_ROWS][TILE_VECTORS], upper[TILE_VECTORS];
            int32_t total[TILE_ROWS];
            for (int r = 0; r < rows; r++) {
                total[r] = sum_of(x, row + r, b * GROUP + g * group, group);
                ints surplus = (ints){} + (is_signed ? SURPLUS : offset_of(format)) * total[r];
                for (int v = 0; v < vectors; v++) sums[r][v] = -surplus;
            }
            for (int v = 0; is_packed && bits > 4 && v < vectors; v++)
                upper[v] = load_ints(
                    block + v / PARTS * from->panel_bytes + upper_at(g) + v % PARTS * 4 * WIDTH);
            for (int line = 0; line < group / 8;) {
                ints some[TILE_ROWS][TILE_VECTORS] = {};
#pragma GCC unroll 1
                for (int i = 0; i < few; i++, line++, activations += 8) {
                    ints codes[TILE_VECTORS][2];
                    for (int v = 0; v < vectors; v++) {
                        size_t at = v % PARTS * 4 * WIDTH + line * LINE;
                        if (is_packed) {
                            at += v / PARTS * from->panel_bytes + codes_at(format, g);
                            free_codes(bits, load_ints(block + at), &upper[v], codes[v]);
                        } else {
                            at += v / PARTS * from->codes_panel_bytes + (line + g * group / 4) * LINE;
                            codes[v][0] = load_ints(bytes + at);
                            codes[v][1] = load_ints(bytes + at + LINE);
                        }
                    }
                    for (int half = 0; half < 2; half++)
                        for (int r = 0; r < rows; r++) {
                            int32_t four;
                            memcpy(&four, activations + (size_t)r * x->columns + half * 4, sizeof four);
                            for (int v = 0; v < vectors; v++)
                                if (is_signed)
                                    sums[r][v] = dot(sums[r][v], codes[v][half], (ints){} + four);
                                else
                                    some[r][v] = dot_few(some[r][v], codes[v][half], (ints){} + four);
                        }
                }
                for (int r = 0; !is_signed && r < rows; r++)
                    for (int v = 0; v < vectors; v++) sums[r][v] += widened(some[r][v]);
            }
            for (int v = 0; v < vectors; v++) {
                const uint8_t *beside = block + v / PARTS * from->panel_bytes +
                    (g * PANEL + v % PARTS * WIDTH) * sizeof(uint16_t);
                floats scale = load_halves((const uint16_t *)(beside + scales_at(format)));
                floats minimum = {};
                if (has_minimum(format)) minimum = load_halves((const uint16_t *)(beside + minima_at(format)));
                for (int r = 0; r < rows; r++) {
                    float unit = x->scales[(size_t)(row + r) * (x->columns / GROUP) + b];
                    totals[r][v] += to_floats(sums[r][v]) * (scale * unit);
                    if (has_minimum(format)) totals[r][v] += minimum * (unit * (float)total[r]);
                }
            }
        }
    }
    put_tile(rows, vectors, matrix, panel, totals[0], place);
}

/* The codes of panels as bytes, once for all rows. */
INLINE void unpack(const int format, const struct source *from, int panels, int blocks, uint8_t *to) {
    for (int p = 0; p < panels; p++)
        for (int b = 0; b < blocks; b++)
            for (int g = 0; g < GROUP / group_of(format); g++) {
                const uint8_t *block = from->blocks + p * from->panel_bytes + b * block_bytes(format);
                for (int part = 0; part < PARTS; part++) {
                    const size_t beside = part * 4 * WIDTH;
                    ints codes[2], upper = {};
                    if (bits_of(format) > 4) upper = load_ints(block + upper_at(g) + beside);
                    for (int line = 0; line < group_of(format) / 8; line++) {
                        ints packed = load_ints(block + codes_at(format, g) + line * LINE + beside);
                        free_codes(bits_of(format), packed, &upper, codes);
                        memcpy(to + 2 * line * LINE + beside, &codes[0], sizeof *codes);
                        memcpy(to + (2 * line + 1) * LINE + beside, &codes[1], sizeof *codes);
                    }
                }
                to += group_of(format) / 4 * LINE;
            }
}

INLINE void rows_of_bytes(
    const int is_signed, const int panels, const struct matrix *matrix, const struct source *from,
    int panel, const struct rows *x, int num_rows, struct place place) {
    const int format = matrix->format;
    int row = 0;
#define ROWS(n, few, format) tile(0, is_signed, few, format, n, panels, matrix, from, panel, x, row, &place)
    for (; row + 4 <= num_rows; row += 4, place.out += 4 * place.stride)
        if (is_signed)
            ROWS(4, 4, Q8);
        else if (format == Q4)
            ROWS(4, 4, Q4);
        else if (format == Q4_MINIMUM)
            ROWS(4, 4, Q4_MINIMUM);
        else if (format == Q5)
            ROWS(4, 2, Q5);
        else if (format == Q5_MINIMUM)
            ROWS(4, 2, Q5_MINIMUM);
        else
            ROWS(4, 1, Q6);
    switch (num_rows - row) {
    case 3: ROWS(3, 1, format); break;
    case 2: ROWS(2, 1, format); break;
    case 1: ROWS(1, 1, format);
    }
}

/* `room` holds the codes of `panels` panels, where there are many rows. */
INLINE void strip(
    const int panels, const struct matrix *matrix, int panel, const struct rows *x, int num_rows,
    uint8_t *room, struct place place) {
    const int blocks = x->columns / GROUP;
    struct source from = {.codes_block_bytes = GROUP * PANEL};
    from.panel_bytes = blocks * block_bytes(matrix->format);
    from.codes_panel_bytes = blocks * from.codes_block_bytes;
    from.blocks = matrix->panels + panel * from.panel_bytes;
    from.codes = room;
    if (matrix->format == Q8) {
        from.codes = from.blocks;
        from.codes_panel_bytes = from.panel_bytes;
        from.codes_block_bytes = block_bytes(Q8);
        rows_of_bytes(1, panels, matrix, &from, panel, x, num_rows, place);
        return;
    }
    switch (matrix->format) {
#define ALONE(format) tile(1, 0, FEW(bits_of(format)) / 2, format, 1, panels, matrix, &from, panel, x, r, &place)
#define CASE(format) \
    case format: \
        if (room) \
            unpack(format, &from, panels, blocks, room); \
        else \
            for (int r = 0; r < num_rows; r++, place.out += place.stride) ALONE(format); \
        break
        CASE(Q4);
        CASE(Q4_MINIMUM);
        CASE(Q5);
        CASE(Q5_MINIMUM);
        CASE(Q6);
    }
    if (room) rows_of_bytes(0, panels, matrix, &from, panel, x, num_rows, place);
}

void multiply_blocks(
    const struct matrix *matrix, const struct rows *x, int num_rows, float *out, int stride, int adds) {
    int panels = padded(matrix->outputs, PANEL) / PANEL;
    int count = (panels + TILE_PANELS - 1) / TILE_PANELS;
#pragma omp parallel
    {
        uint8_t *room = 0; /* without one, each row unpacks for itself, to the same bits */
        if (num_rows > 1 && matrix->format != Q8)
            room = aligned_alloc(LINE, (size_t)TILE_PANELS * PANEL * x->columns);
#pragma omp for schedule(static)
        for (int s = 0; s < count; s++) {
            int panel = s * TILE_PANELS;
            if (TILE_PANELS == 1 || panel + TILE_PANELS <= panels)
                strip(TILE_PANELS, matrix, panel, x, num_rows, room, place_of(matrix, panel, out, stride, adds));
            else
                for (; panel < panels; panel++)
                    strip(1, matrix, panel, x, num_rows, room, place_of(matrix, panel, out, stride, adds));
        }
        free(room);
    }
}
