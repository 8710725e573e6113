/* Linear layers with the codes of a GGUF file. As in `linear.c`, products are summed in integers within a group,
   and groups are added as floats from left to right; how codes come to where they are multiplied decides no bits. */
#include <stdlib.h>

#include "blocks.h"
#include "dot.h"
#include "tile.h"

/* So many that it pays to unpack codes beforehand, as measured. On AVX2, where products take more instructions, four
   bits are freed in registers about as fast as bytes are read again, and five are not. */
#define UNPACKED_ROWS (WIDTH != 8 ? 12 : BITS == 4 ? 64 : BITS == 5 ? 8 : 12)

int32_t bytes_of_block(void) { return BLOCK_BYTES; }

/* Moves rows of codes, [num_rows][inputs], with scales and minima for each group, to their places in panels,
   which begin as zeros. Codes of 8 bits are moved up by SURPLUS. `inputs` is a multiple of the group. */
void pack_blocks(
    const uint8_t *codes, const uint16_t *scales, const uint16_t *minima, int num_rows,
    int inputs, int first_row, uint8_t *panels) {
    const int more = BITS - 4;
    const size_t blocks = padded(inputs, GROUP) / GROUP;
    for (int r = first_row; r < first_row + num_rows; r++) {
        uint8_t *block = panels + r / PANEL * blocks * BLOCK_BYTES, *at = block + r % PANEL * 4;
        for (int first = 0; first < inputs; first += GROUP, at += BLOCK_BYTES) {
            int count = inputs - first < GROUP ? inputs - first : GROUP;
            for (int quad = 0; quad < count / 4; quad++, codes += 4) {
                uint32_t four, line;
                memcpy(&four, codes, 4);
                if (BITS == 8) {
                    four ^= 0x01010101u * SURPLUS;
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
            uint8_t *beside = block + first / GROUP * BLOCK_BYTES + r % PANEL * sizeof(uint16_t);
            for (int g = 0; g < count / COLUMNS; g++, beside += PANEL * sizeof(uint16_t)) {
                memcpy(beside + SCALES_AT, scales++, sizeof(uint16_t));
                if (minima) memcpy(beside + MINIMA_AT, minima++, sizeof(uint16_t));
            }
        }
    }
}

/* What a group of columns of one row brings besides its codes: the same for all outputs. */
struct term {
    int32_t start, rest; /* of sums of products */
    float unit, sum;     /* the scale of its codes, and that times their sum */
};

/* Terms of `rows` rows from `row` on, [groups][rows]. */
static void find_terms(const struct rows *x, int row, int rows, struct term *terms) {
    for (int k = 0; k < x->columns; k += COLUMNS)
        for (int r = row; r < row + rows; r++, terms++) {
            int32_t sum = sum_of(x, r, k, COLUMNS);
            terms->start = FORMAT == Q8 ? -SURPLUS * sum : start_few(x->codes + (size_t)r * x->columns + k, COLUMNS, CENTRE);
            terms->rest = (CENTRE - OFFSET) * sum;
            terms->unit = x->scales[(size_t)r * (x->columns / GROUP) + k / GROUP];
            terms->sum = terms->unit * (float)sum;
        }
}

/* Where a tile reads the weights of its panel. */
struct source {
    const uint8_t *blocks; /* with the scales, and packed codes */
    const uint8_t *codes;  /* as bytes, [GROUP / 4][16][4] for each block */
    size_t panel_bytes, codes_block_bytes;
    const struct term *terms; /* of all rows, tile by tile */
};

/* Adds what a group of a block brings. Packed codes are freed in registers, so that memory is read while it is
   computed. */
INLINE void add_group(
    const int is_packed, const int rows, const struct source *from, int b, const int g, const int8_t *activations,
    size_t columns, const struct term *terms, floats totals[TILE_ROWS][PARTS]) {
    const uint8_t *block = from->blocks + b * BLOCK_BYTES;
    const uint8_t *bytes = from->codes + b * from->codes_block_bytes + g * COLUMNS / 4 * LINE;
    ints sums[TILE_ROWS][PARTS], upper[PARTS];
    const size_t share = (BLOCK_BYTES / (GROUP / COLUMNS) + LINE - 1) / LINE * LINE;
    for (size_t at = 0; at < share; at += LINE) prefetch(block + from->panel_bytes + g * share + at);
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < PARTS; v++) sums[r][v] = (ints){} + terms[r].start;
    for (int v = 0; is_packed && BITS > 4 && v < PARTS; v++)
        upper[v] = load_ints(block + upper_at(g) + v * 4 * WIDTH);
    for (int line = 0; line < COLUMNS / 8; line++, activations += 8) {
        ints codes[PARTS][2];
        for (int v = 0; v < PARTS; v++) {
            if (is_packed)
                free_codes(load_ints(block + codes_at(g) + line * LINE + v * 4 * WIDTH), &upper[v], codes[v]);
            else
                for (int half = 0; half < 2; half++)
                    codes[v][half] = load_ints(bytes + (2 * line + half) * LINE + v * 4 * WIDTH);
        }
        for (int half = 0; half < 2; half++)
            for (int r = 0; r < rows; r++) {
                int32_t four;
                memcpy(&four, activations + r * columns + half * 4, sizeof four);
                for (int v = 0; v < PARTS; v++)
                    if (FORMAT == Q8)
                        sums[r][v] = dot(sums[r][v], codes[v][half], (ints){} + four);
                    else
                        sums[r][v] = dot_few(sums[r][v], codes[v][half], (ints){} + four);
            }
    }
    for (int v = 0; v < PARTS; v++) {
        const uint8_t *beside = block + (g * PANEL + v * WIDTH) * sizeof(uint16_t);
        floats scale = load_halves((const uint16_t *)(beside + SCALES_AT)), minimum = {};
        if (HAS_MINIMUM) minimum = load_halves((const uint16_t *)(beside + MINIMA_AT));
        for (int r = 0; r < rows; r++) {
            ints sum = FORMAT == Q8 ? sums[r][v] : widened(sums[r][v]);
            if (CENTRE != OFFSET) sum += terms[r].rest;
            totals[r][v] += to_floats(sum) * (scale * terms[r].unit);
            if (HAS_MINIMUM) totals[r][v] += minimum * terms[r].sum;
        }
    }
}

/* `rows` rows times a panel. What decides which instructions there are is known when it is compiled. */
INLINE void tile(
    const int is_packed, const int rows, const struct matrix *matrix, const struct source *from, int panel,
    const struct rows *x, int row, const struct place *place) {
    const int8_t *activations = x->codes + (size_t)row * x->columns;
    const struct term *terms = from->terms + (size_t)row * (x->columns / COLUMNS);
    floats totals[TILE_ROWS][PARTS] = {};
    for (int b = 0; b < x->columns / GROUP; b++)
        for (int g = 0; g < GROUP / COLUMNS; g++, activations += COLUMNS, terms += rows)
            add_group(is_packed, rows, from, b, g, activations, x->columns, terms, totals);
    put_tile(rows, PARTS, matrix, panel, totals[0], PARTS, place);
}

/* The codes of a panel as bytes, once for all rows. */
INLINE void unpack(const struct source *from, int blocks, uint8_t *to) {
    for (int b = 0; b < blocks; b++)
        for (int g = 0; g < GROUP / COLUMNS; g++) {
            const uint8_t *block = from->blocks + b * BLOCK_BYTES;
            for (int part = 0; part < PARTS; part++) {
                const size_t beside = part * 4 * WIDTH;
                ints codes[2], upper = {};
                if (BITS > 4) upper = load_ints(block + upper_at(g) + beside);
                for (int line = 0; line < COLUMNS / 8; line++) {
                    ints packed = load_ints(block + codes_at(g) + line * LINE + beside);
                    free_codes(packed, &upper, codes);
                    memcpy(to + 2 * line * LINE + beside, &codes[0], sizeof *codes);
                    memcpy(to + (2 * line + 1) * LINE + beside, &codes[1], sizeof *codes);
                }
            }
            to += COLUMNS / 4 * LINE;
        }
}

/* All rows times a panel. `room` holds the panel's codes as bytes, where there are many rows. */
static __attribute__((noinline)) void strip(
    const struct matrix *matrix, int panel, const struct rows *x, int num_rows, const struct term *terms, uint8_t *room,
    struct place place) {
    const int blocks = x->columns / GROUP, is_packed = FORMAT != Q8;
    struct source from = {.codes = room, .codes_block_bytes = GROUP * PANEL, .terms = terms};
    from.panel_bytes = blocks * BLOCK_BYTES;
    from.blocks = matrix->panels + panel * from.panel_bytes;
    if (!is_packed) {
        from.codes = from.blocks;
        from.codes_block_bytes = BLOCK_BYTES;
    }
    if (is_packed && room) unpack(&from, blocks, room);
    int row = 0;
#define ROWS(n, is_packed) tile(is_packed, n, matrix, &from, panel, x, row, &place)
    for (; row + TILE_ROWS <= num_rows; row += TILE_ROWS, place.out += TILE_ROWS * place.stride)
        if (from.codes)
            ROWS(TILE_ROWS, 0);
        else if (is_packed)
            ROWS(TILE_ROWS, 1);
    switch (num_rows - row) {
    case 3: ROWS(3, is_packed); break;
    case 2: ROWS(2, is_packed); break;
    case 1: ROWS(1, is_packed);
    }
}

/* `terms` is room for those of all rows. */
static void multiply_rows(
    const struct matrix *matrix, const struct rows *x, int num_rows, struct term *terms, float *out, int stride, int adds) {
    const int panels = padded(matrix->outputs, PANEL) / PANEL, groups = x->columns / COLUMNS;
    const int is_few = num_rows <= TILE_ROWS; /* so few that threads would take longer to meet than one to find all */
    if (is_few) find_terms(x, 0, num_rows, terms);
#pragma omp parallel
    {
        if (!is_few) {
#pragma omp for schedule(static)
            for (int row = 0; row < num_rows; row += TILE_ROWS) {
                int rows = num_rows - row < TILE_ROWS ? num_rows - row : TILE_ROWS;
                find_terms(x, row, rows, terms + (size_t)row * groups);
            }
        }
        uint8_t *room = 0; /* without one, each tile unpacks for itself, to the same bits */
        if (num_rows >= UNPACKED_ROWS && FORMAT != Q8)
            room = aligned_alloc(LINE, (size_t)PANEL * x->columns);
#pragma omp for schedule(static) nowait
        for (int panel = 0; panel < panels; panel++)
            strip(matrix, panel, x, num_rows, terms, room, place_of(matrix, panel, out, stride, adds));
        free(room);
    }
}

void multiply_blocks(
    const struct matrix *matrix, const struct rows *x, int num_rows, float *out, int stride, int adds) {
    const int columns = x->columns, groups = columns / COLUMNS;
    struct term *terms = malloc((size_t)num_rows * groups * sizeof *terms);
    if (terms) {
        multiply_rows(matrix, x, num_rows, terms, out, stride, adds);
        free(terms);
        return;
    }
    /* Without memory, tile after tile with terms on the stack: to the same bits, as rows know nothing of each other. */
    for (int row = 0; row < num_rows; row += TILE_ROWS, out += TILE_ROWS * (size_t)stride) {
        const int rows = num_rows - row < TILE_ROWS ? num_rows - row : TILE_ROWS;
        const struct rows some = {
            x->codes + (size_t)row * columns, x->scales + (size_t)row * (columns / GROUP),
            x->sums + (size_t)row * (columns / PART), columns};
        struct term few[TILE_ROWS * groups];
        multiply_rows(matrix, &some, rows, few, out, stride, adds);
    }
}
