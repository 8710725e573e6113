/* Attention over pages of keys and values.

   A row meets its pages from left to right, and its state (values, peak, mass) is folded over them
   (Milakov and Gimelshein 2018, arXiv 1805.02867). What it meets depends on its own sequence alone,
   so a result has the same bits whichever rows come with it, whether its positions were computed at
   once or one by one, and whether its pages are shared. Rows of a block that share pages meet them
   one after another, while they are in the cache (Juravsky et al. 2024, arXiv 2402.05099). */
#include "lanes.h"
#include "step.h"

#define BLOCK_ROWS 8
#define MAX_GROUP 16 /* query heads of a key head that are folded together */
#define MAX_DIM 256

/* One head of one row, in place: RMS norm (with `weight`), rotation of the halves, scale. */
static void turn(float *x, int dim, const float *weight, float eps, const float *cos, const float *sin, float scale) {
    if (weight) {
        float inverse = inverse_rms(x, dim, eps);
        for (int i = 0; i < dim; i++) x[i] = x[i] * inverse * weight[i];
    }
    if (cos)
        for (int i = 0; i < dim / 2; i++) {
            float a = x[i], b = x[dim / 2 + i];
            x[i] = a * cos[i] - b * sin[i];
            x[dim / 2 + i] = b * cos[i] + a * sin[i];
        }
    for (int i = 0; i < dim; i++) x[i] *= scale;
}

/* Turns queries and keys, and puts keys and values into the pages of their rows. */
void rotate_and_write(const struct model *model, const struct layer *layer, const struct step *step) {
    const int dim = model->head_dim, heads = model->heads, kv = model->kv_heads;
#pragma omp parallel for schedule(static) if (step->num_rows >= 4)
    for (int r = 0; r < step->num_rows; r++) {
        float *row = step->qkv + (size_t)r * (heads + 2 * kv) * dim;
        const float *cos = layer->is_rotated ? step->cos + (size_t)r * dim / 2 : 0;
        const float *sin = step->sin + (size_t)r * dim / 2;
        for (int h = 0; h < heads + kv; h++)
            turn(
                row + h * dim, dim, layer->qk_norm ? layer->qk_norm + h * dim : 0, model->norm_eps, cos,
                sin, h < heads ? model->query_scale : 1);
        int slot = step->positions[r] % PAGE;
        size_t page = step->pages[step->tables[r] + step->positions[r] / PAGE];
        for (int h = 0; h < kv; h++) {
            float *keys = layer->keys + (page * kv + h) * dim * PAGE + slot;
            float *values = layer->values + ((page * kv + h) * PAGE + slot) * dim;
            for (int d = 0; d < dim; d++) keys[d * PAGE] = row[(heads + h) * dim + d];
            memcpy(values, row + (heads + kv + h) * dim, dim * sizeof *values);
        }
    }
}

struct state {
    float peak, mass;
    float values[MAX_DIM];
};

/* The pages of a chunk, of one key head. */
struct chunk {
    const float *keys[PAGES];   /* [dim][PAGE] each */
    const float *values[PAGES]; /* [PAGE][dim] each */
};

/* The scores of a chunk's positions; query [dim]. */
INLINE void score(const float *query, const struct chunk *chunk, int dim, floats scores[CHUNK / WIDTH]) {
    for (int half = 0; half < CHUNK / WIDTH; half += 8) { /* eight sums fit into registers */
        floats sums[8] = {};
        for (int d = 0; d < dim; d++) {
            floats q = all(query[d]);
#pragma GCC unroll 8
            for (int v = 0; v < 8 && v < CHUNK / WIDTH; v++)
                sums[v] += q * load(
                    chunk->keys[(half + v) * WIDTH / PAGE] + d * PAGE + (half + v) * WIDTH % PAGE);
        }
        for (int v = 0; v < 8 && v < CHUNK / WIDTH; v++) scores[half + v] = sums[v];
    }
}

/* Adds weighted values to the columns of `out` from `d` on, `vectors` at once, which stay in
   registers; gives the first column that is left. */
INLINE int gather_by(
    const int vectors, int d, float *out, const float *weights, int first, int end, const float *values,
    int dim) {
    for (; d + vectors * WIDTH <= dim; d += vectors * WIDTH) {
        floats sums[8];
        for (int v = 0; v < vectors; v++) sums[v] = load(out + d + v * WIDTH);
        for (int t = first; t < end; t++) {
            floats w = all(weights[t]);
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++) sums[v] += w * load(values + t * dim + d + v * WIDTH);
        }
        for (int v = 0; v < vectors; v++) store(out + d + v * WIDTH, sums[v]);
    }
    return d;
}

/* Adds weighted values to `out` [dim]. */
INLINE void gather(float *out, const float *weights, int first, int end, const float *values, int dim) {
    int d = gather_by(8, 0, out, weights, first, end, values, dim);
    d = gather_by(4, d, out, weights, first, end, values, dim);
    d = gather_by(1, d, out, weights, first, end, values, dim);
    for (int t = first; t < end; t++)
        for (int i = d; i < dim; i++) out[i] += weights[t] * values[t * dim + i];
}

/* Folds the positions [first, end) of a chunk into a state. */
static void fold(
    struct state *state, const float *query, const struct chunk *chunk, int dim, int first, int end) {
    floats scores[CHUNK / WIDTH], peaks = all(-INFINITY);
    score(query, chunk, dim, scores);
    for (int v = 0; v < CHUNK / WIDTH; v++) {
        ints position = count_from(v * WIDTH);
        scores[v] = choose((position >= first) & (position < end), scores[v], all(-INFINITY));
        peaks = larger(scores[v], peaks);
    }
    float peak = largest_lane(peaks);
    if (!(peak > state->peak)) peak = state->peak;
    float weights[CHUNK];
    floats masses[PARTS] = {};
    for (int v = 0; v < CHUNK / WIDTH; v++) {
        ints position = count_from(v * WIDTH);
        ints seen = (position >= first) & (position < end);
        floats weight = (floats)((ints)exponential(scores[v] - peak) & seen);
        store(weights + v * WIDTH, weight);
        masses[v % PARTS] += weight;
    }
    float kept = exponential(all(state->peak - peak))[0];
    state->peak = peak;
    state->mass = state->mass * kept + sum_lanes(masses);
    for (int d = 0; d < dim; d++) state->values[d] *= kept;
    for (int p = first / PAGE; p * PAGE < end; p++) {
        int from = first - p * PAGE, to = end - p * PAGE;
        gather(
            state->values, weights + p * PAGE, from > 0 ? from : 0, to < PAGE ? to : PAGE,
            chunk->values[p], dim);
    }
}

/* One key head of a block of rows. */
static void attend_block(
    const struct model *model, const struct layer *layer, const struct step *step, int head, int first_row,
    int end_row) {
    const int dim = model->head_dim, kv = model->kv_heads, group = model->heads / kv;
    const size_t width = (size_t)(model->heads + 2 * kv) * dim;
    struct state states[BLOCK_ROWS][MAX_GROUP];
    for (int r = 0; r < end_row - first_row; r++)
        for (int g = 0; g < group; g++) {
            states[r][g].peak = -1e30f;
            states[r][g].mass = 0;
            memset(states[r][g].values, 0, dim * sizeof(float));
        }
    int last = 0;
    for (int r = first_row; r < end_row; r++) last = step->positions[r] > last ? step->positions[r] : last;
    for (int chunk = 0; chunk <= last / CHUNK; chunk++)
        for (int r = first_row; r < end_row; r++) {
            int end = step->positions[r] + 1 - chunk * CHUNK;
            int first = layer->window ? end - layer->window : 0;
            if (end <= 0 || first >= CHUNK) continue;
            struct chunk its;
            for (int p = 0; p < PAGES; p++) { /* pages that are not there yet are hidden */
                int there = p * PAGE < end ? p : 0;
                size_t page = step->pages[step->tables[r] + chunk * PAGES + there];
                its.keys[p] = layer->keys + (page * kv + head) * dim * PAGE;
                its.values[p] = layer->values + (page * kv + head) * dim * PAGE;
            }
            const float *query = step->qkv + r * width + (size_t)head * group * dim;
            for (int g = 0; g < group; g++)
                fold(
                    &states[r - first_row][g], query + g * dim, &its, dim, first > 0 ? first : 0,
                    end < CHUNK ? end : CHUNK);
        }
    for (int r = first_row; r < end_row; r++)
        for (int g = 0; g < group; g++) {
            float *out = step->attended + ((size_t)r * model->heads + head * group + g) * dim;
            const struct state *state = &states[r - first_row][g];
            float inverse = 1 / state->mass;
            for (int d = 0; d < dim; d++) out[d] = state->values[d] * inverse;
        }
}

/* attended [rows][heads head_dim], from the queries in `qkv` and the pages. */
void attend(const struct model *model, const struct layer *layer, const struct step *step) {
    int blocks = (step->num_rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
#pragma omp parallel for schedule(dynamic, 1)
    for (int item = 0; item < blocks * model->kv_heads; item++) {
        int first = item / model->kv_heads * BLOCK_ROWS;
        int end = first + BLOCK_ROWS < step->num_rows ? first + BLOCK_ROWS : step->num_rows;
        attend_block(model, layer, step, item % model->kv_heads, first, end);
    }
}
