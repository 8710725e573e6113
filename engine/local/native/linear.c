/* Linear layers: int8 weights times int8 activations, each with a scale for 64 columns. Products are summed in
   integers within a group, and groups are added as floats from left to right. So an output depends on its own row
   alone, to the bit. */
#include "dot.h"
#include "tile.h"

#define PANEL_BYTES(columns) ((size_t)(columns) * PANEL)

/* A group of a row; of the last one, which may be shorter, a copy with zeros behind it. */
INLINE const float *group_of(const float *x, int count, float copy[GROUP]) {
    if (count >= GROUP) return x;
    memset(copy, 0, GROUP * sizeof *copy);
    return memcpy(copy, x, count * sizeof *x);
}

/* Quantises one row. A number that is not finite makes its group's scale NaN, so that it shows. All peaks are found
   first: a group's is known after so many steps that the processor has to have other groups to go on with. */
static void quantise_row(const float *x, int columns, int8_t *codes, float *scales, int32_t *sums) {
    const int groups = padded(columns, GROUP) / GROUP;
    float copy[GROUP];
    for (int g = 0; g < groups; g++) {
        const float *from = group_of(x + g * GROUP, columns - g * GROUP, copy);
        ints peaks = {};
        for (int i = 0; i < GROUP; i += WIDTH) peaks = larger_ints((ints)magnitude(load(from + i)), peaks);
        scales[g] = largest_bits(peaks);
    }
    for (int g = 0; g < groups; g++, codes += GROUP) {
        const float *from = group_of(x + g * GROUP, columns - g * GROUP, copy), peak = scales[g];
        const float inverse = peak > 1e-30f ? 127 / peak : 0;
        int32_t fours[GROUP / 4];
        scales[g] = peak / 127 + (peak - peak);
        for (int i = 0; i < GROUP; i += 4 * WIDTH) {
            ints v[4];
            for (int j = 0; j < 4; j++) v[j] = to_ints(nearest(load(from + i + j * WIDTH) * inverse));
            bytes own = narrowed(v);
            ints sum = dot((ints){}, (ints){} + 0x01010101, (ints)own); /* ones as they are: no surplus */
            memcpy(codes + i, &own, sizeof own);
            memcpy(fours + i / 4, &sum, sizeof sum);
        }
        for (int i = 0; i < GROUP / 4; i += PART / 4, sums++)
            *sums = (fours[i] + fours[i + 1]) + (fours[i + 2] + fours[i + 3]);
    }
}

/* x [num_rows][columns] as codes. */
void quantise(const float *x, int num_rows, int columns, struct rows *out) {
    out->columns = padded(columns, GROUP);
    int groups = out->columns / GROUP;
#pragma omp parallel for schedule(static) if (num_rows >= 4)
    for (int r = 0; r < num_rows; r++)
        quantise_row(
            x + (size_t)r * columns, columns, out->codes + (size_t)r * out->columns,
            out->scales + (size_t)r * groups, out->sums + (size_t)r * (out->columns / PART));
}

/* Quantises rows of a weight, [num_rows][inputs], to their places in panels, which begin as zeros; codes are moved up
   by SURPLUS. */
void pack(const float *weight, int num_rows, int inputs, int first_row, int8_t *panels, float *scales) {
    const int columns = padded(inputs, GROUP), groups = columns / GROUP;
    for (int r = 0; r < num_rows; r++, weight += inputs) {
        int row = first_row + r;
        int8_t *panel = panels + row / PANEL * PANEL_BYTES(columns) + row % PANEL * 4;
        for (int g = 0; g < groups; g++) {
            int end = (g + 1) * GROUP < inputs ? (g + 1) * GROUP : inputs;
            float peak = 0;
            for (int k = g * GROUP; k < end; k++) peak = fabsf(weight[k]) > peak ? fabsf(weight[k]) : peak;
            scales[((size_t)row / PANEL * groups + g) * PANEL + row % PANEL] = peak / 127;
            float inverse = peak > 1e-30f ? 127 / peak : 0;
            for (int k = g * GROUP; k < end; k++)
                panel[k / 4 * 4 * PANEL + k % 4] =
                    SURPLUS ^ (int8_t)((weight[k] * inverse + 12582912.0f) - 12582912.0f);
        }
    }
}

/* `rows` rows times a panel; how many is known when it is compiled, so sums stay in registers. Memory is read from
   one end to the other, panel after panel, which is the fastest; the next panel's line is asked for meanwhile. */
INLINE void tile(
    const int rows, const struct matrix *weight, int panel, const struct rows *x, int row, const struct place *place) {
    const int columns = x->columns, groups = columns / GROUP;
    const int8_t *codes = x->codes + (size_t)row * columns;
    const uint8_t *w = weight->panels + panel * PANEL_BYTES(columns);
    floats totals[TILE_ROWS][PARTS] = {};
    for (int g = 0; g < groups; g++) {
        ints sums[TILE_ROWS][PARTS];
        for (int r = 0; r < rows; r++) {
            int surplus = SURPLUS ? SURPLUS * sum_of(x, row + r, g * GROUP, GROUP) : 0;
            for (int v = 0; v < PARTS; v++) sums[r][v] = (ints){} - surplus;
        }
        for (int k = g * GROUP; k < (g + 1) * GROUP; k += 4) {
            ints weights[PARTS];
            prefetch(w + PANEL_BYTES(columns) + (size_t)k * PANEL);
            for (int v = 0; v < PARTS; v++) weights[v] = load_ints(w + (size_t)k * PANEL + v * 4 * WIDTH);
            for (int r = 0; r < rows; r++) {
                int32_t four;
                memcpy(&four, codes + (size_t)r * columns + k, sizeof four);
                for (int v = 0; v < PARTS; v++) sums[r][v] = dot(sums[r][v], weights[v], (ints){} + four);
            }
        }
        for (int v = 0; v < PARTS; v++) {
            floats scale = load(weight->scales + ((size_t)panel * groups + g) * PANEL + v * WIDTH);
            for (int r = 0; r < rows; r++)
                totals[r][v] +=
                    to_floats(sums[r][v]) * (scale * x->scales[(size_t)(row + r) * groups + g]);
        }
    }
    put_tile(rows, PARTS, weight, panel, totals[0], PARTS, place);
}

static void multiply_int8(
    const struct matrix *weight, const struct rows *x, int num_rows, float *out, int stride, int adds) {
    const int panels = padded(weight->outputs, PANEL) / PANEL;
#pragma omp parallel for schedule(static)
    for (int panel = 0; panel < panels; panel++) {
        struct place place = place_of(weight, panel, out, stride, adds);
        int row = 0;
        for (; row + 4 <= num_rows; row += 4, place.out += 4 * place.stride)
            tile(4, weight, panel, x, row, &place);
        switch (num_rows - row) {
        case 3: tile(3, weight, panel, x, row, &place); break;
        case 2: tile(2, weight, panel, x, row, &place); break;
        case 1: tile(1, weight, panel, x, row, &place);
        }
    }
}

multiplier *multiply_codes[Q8 + 1];

/* out [num_rows][outputs] = x weight^T * scales + bias, or that added to what is there. */
void multiply(const struct linear *weight, const struct rows *x, int num_rows, float *out, int adds) {
    for (int i = 0; i < weight->num_matrices; i++) {
        const struct matrix *matrix = &weight->matrices[i];
        if (matrix->format == INT8 && num_rows >= MANY_ROWS && multiply_many(matrix, x, num_rows, out, weight->outputs, adds))
            continue;
        if (matrix->format == INT8)
            multiply_int8(matrix, x, num_rows, out, weight->outputs, adds);
        else
            multiply_codes[matrix->format](matrix, x, num_rows, out, weight->outputs, adds);
    }
}
