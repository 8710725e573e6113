/* Attention over pages of keys and values.

   A row meets the chunks that it sees from left to right, and its state (values, peak, mass) is
   folded over them within a segment (Milakov and Gimelshein 2018, arXiv 1805.02867); its segments
   are added from left to right in the end. Chunks and segments are counted from the beginning of a
   sequence, so what a row computes depends on its own sequence alone: it has the same bits whichever
   rows come with it, whether its positions were computed at once or one by one, and whether its
   pages are shared.

   Rows come sorted by their pages, and so those that share a chunk lie together: it is brought into
   the cache once, for one product with all of them (Juravsky et al. 2024, arXiv 2402.05099; over
   trees: Yao et al. 2024, arXiv 2404.00242). */
#include <omp.h>

#include "fold.h"
#include "step.h"

/* One head of one row, in place: RMS norm (with `weight`), rotation of the halves, scale. */
static void turn(float *x, int dim, const float *weight, float eps, const float *cos, const float *sin, float scale) {
    const int half = dim / 2;
    if (weight) {
        float inverse = inverse_rms(x, dim, eps);
        for (int i = 0; i < dim; i += WIDTH)
            store_some(x + i, dim - i, load_some(x + i, dim - i, 0) * inverse * load_some(weight + i, dim - i, 0));
    }
    for (int i = 0; cos && i < half; i += WIDTH) {
        const int count = half - i;
        floats a = load_some(x + i, count, 0), b = load_some(x + half + i, count, 0);
        floats c = load_some(cos + i, count, 0), s = load_some(sin + i, count, 0);
        store_some(x + i, count, a * c - b * s);
        store_some(x + half + i, count, b * c + a * s);
    }
    for (int i = 0; scale != 1 && i < dim; i += WIDTH)
        store_some(x + i, dim - i, load_some(x + i, dim - i, 0) * scale);
}

/* Turns queries and keys, and puts keys and values into the pages of their rows. */
void rotate_and_write(const struct model *model, const struct layer *layer, const struct step *step) {
    const int dim = model->head_dim, heads = model->heads, kv = model->kv_heads;
#pragma omp parallel for schedule(static) if (step->num_rows >= 4)
    for (int k = 0; k < step->num_rows; k++) {
        const struct reader *reader = &step->readers[k];
        float *row = step->qkv + (size_t)reader->row * (heads + 2 * kv) * dim;
        const float *cos = layer->is_rotated ? step->cos + (size_t)reader->position * dim / 2 : 0;
        const float *sin = step->sin + (size_t)reader->position * dim / 2;
        for (int h = 0; h < heads + kv; h++)
            turn(
                row + h * dim, dim, layer->qk_norm ? layer->qk_norm + h * dim : 0, model->norm_eps, cos,
                sin, h < heads ? model->query_scale : 1);
        size_t page = step->pages[reader->table + reader->position / PAGE];
        for (int h = 0; h < kv; h++) {
            const float *key = row + (heads + h) * dim, *value = key + kv * dim;
            const size_t at = page * kv + h, number = at * dim * PAGE;
            const int slot = reader->position % PAGE;
            if (layer->key_scales)
                put_codes(
                    slot, dim, key, value, (int8_t *)layer->keys + number, (int8_t *)layer->values + number,
                    layer->key_scales + at * PAGE, layer->value_scales + at * PAGE);
            else
                put_position(
                    slot, dim, key, value, (uint16_t *)layer->keys + number, (uint16_t *)layer->values + number);
        }
    }
}

/* Cuts the rows of each segment into items, and gives their number. Rows that share the segment's
   first chunk are one item, up to `most` of them. */
static int cut(const struct step *step, int most, struct item *items) {
    int count = 0;
    for (int segment = 0; segment < step->num_segments; segment++) {
        const int shared = (segment * SEGMENT + CHUNK) / PAGE, n = step->num_rows;
        struct item *item = 0;
        for (int k = 0; k < n; k++) {
            const struct reader *reader = &step->readers[k];
            if (reader->position < segment * SEGMENT) continue;
            int rows = item ? k - item->first : 0;
            int joins = reader->shared >= shared ? rows < most
                                                : rows < LEAST_ROWS && (k + 1 == n || reader[1].shared < shared);
            if (!item || item->end != k || !joins) {
                item = &items[count++];
                *item = (struct item){segment, k, k};
            }
            item->end = k + 1;
        }
    }
    return count;
}

/* What threads take one after another. More rows in an item are fewer reads of their pages, and
   fewer items leave threads idle. */
void plan_items(struct step *step, int kv_heads) {
    int most = MOST_ROWS;
    while ((step->num_items = cut(step, most, step->items)) * kv_heads < 4 * omp_get_max_threads() &&
           most > LEAST_ROWS)
        most /= 2;
}

/* Where the state of a row's head in a segment lies. */
static size_t state_of(const struct model *model, const struct step *step, int k, int segment, int head) {
    return ((size_t)k * step->num_segments + segment) * model->heads + head;
}

/* Lets a page of a chunk be that of a head in the pool, by its place among the heads of all pages. Codes are decoded,
   once for all rows that see them. */
static void see_page(const struct layer *layer, size_t head, int dim, int p, struct chunk *chunk) {
    const int count = PAGE * dim;
    if (!chunk->room) {
        chunk->keys[p] = (const uint16_t *)layer->keys + head * count;
        chunk->values[p] = (const uint16_t *)layer->values + head * count;
        return;
    }
    if (chunk->heads[p] == head) return;
    chunk->heads[p] = head;
    uint16_t *keys = chunk->room + p * count, *values = keys + PAGES * count;
    decode((const int8_t *)layer->keys + head * count, count, keys);
    decode((const int8_t *)layer->values + head * count, count, values);
    chunk->keys[p] = keys, chunk->values[p] = values;
    chunk->key_scales[p] = layer->key_scales + head * PAGE;
    chunk->value_scales[p] = layer->value_scales + head * PAGE;
}

/* Has the pages of a chunk that a row does not share with the one before brought near, while that one is computed. It
   is inlined since gcc takes calls of a function away that does nothing else. */
INLINE void fetch(
    const struct layer *layer, const struct step *step, const struct reader *reader, int c, int kv, int head, int dim) {
    int p = reader->shared > c * PAGES ? reader->shared : c * PAGES;
    const int count = PAGE * dim, bytes = layer->key_scales ? count : 2 * count;
    for (; p < (c + 1) * PAGES && p * PAGE <= reader->position; p++) {
        const size_t at = ((size_t)step->pages[reader->table + p] * kv + head) * bytes;
        for (int line = 0; line < bytes; line += 64) {
            __builtin_prefetch((const char *)layer->keys + at + line);
            __builtin_prefetch((const char *)layer->values + at + line);
        }
    }
}

/* One key head of an item. */
static void attend_item(
    const struct model *model, const struct layer *layer, const struct step *step, int head, const struct item *item) {
    const int dim = model->head_dim, kv = model->kv_heads, group = model->heads / kv;
    const size_t width = (size_t)(model->heads + 2 * kv) * dim;
    const struct state *states = &step->states;
    const int tiles = (group + TILE_QUERIES - 1) / TILE_QUERIES;
    const int alike = (group + tiles - 1) / tiles; /* queries of a row that is alone, in tiles of much the same size */
    const int is_coded = layer->key_scales != 0;
    uint16_t room[is_coded ? 2 * CHUNK * dim : 1] __attribute__((aligned(64)));
    struct chunk chunk = {.room = is_coded ? room : 0};
    for (int p = 0; p < PAGES; p++) chunk.heads[p] = SIZE_MAX;
    for (int k = item->first; k < item->end; k++) {
        size_t at = state_of(model, step, k, item->segment, head * group);
        memset(states->values + at * dim, 0, group * dim * sizeof(float));
        for (int g = 0; g < group; g++) states->peaks[at + g] = LEAST, states->masses[at + g] = 0;
    }
    for (int c = item->segment * SEGMENT / CHUNK; c < (item->segment + 1) * SEGMENT / CHUNK; c++) {
        struct tile tile = {.count = 0};
        int is_another = 1, is_alone = 0;
        for (int k = item->first; k < item->end; k++) {
            const struct reader *reader = &step->readers[k];
            const int is_last = k + 1 == item->end || reader[1].shared < (c + 1) * PAGES;
            is_another |= reader->shared < (c + 1) * PAGES;
            int end = reader->position + 1 - c * CHUNK, first = layer->window ? end - layer->window : 0;
            if (end <= 0 || first >= CHUNK) continue;
            end = end < CHUNK ? end : CHUNK;
            first = first > 0 ? first : 0;
            if (is_another || end != tile.end || first != tile.first) {
                fold(&tile, &chunk, dim);
                for (int p = first / PAGE; p * PAGE < end; p++)
                    see_page(layer, (size_t)step->pages[reader->table + c * PAGES + p] * kv + head, dim, p, &chunk);
                tile.first = first, tile.end = end, is_another = 0;
                is_alone = is_last;
                if (is_last && k + 1 < item->end) fetch(layer, step, reader + 1, c, kv, head, dim);
            }
            for (int g = 0; g < group; g++) {
                size_t at = state_of(model, step, k, item->segment, head * group + g);
                tile.queries[tile.count] = step->qkv + reader->row * width + (head * group + g) * dim;
                tile.values[tile.count] = states->values + at * dim;
                tile.peaks[tile.count] = states->peaks + at;
                tile.masses[tile.count] = states->masses + at;
                if (++tile.count == (is_alone ? alike : TILE_QUERIES)) fold(&tile, &chunk, dim);
            }
        }
        fold(&tile, &chunk, dim);
    }
}

/* The attention of one head of one row out of its segments; zeros where it saw nothing. */
static void merge(const struct model *model, const struct layer *layer, const struct step *step, int k, int head) {
    const int dim = model->head_dim, position = step->readers[k].position;
    const int first = layer->window && position >= layer->window ? (position + 1 - layer->window) / SEGMENT : 0;
    const int end = (position + SEGMENT) / SEGMENT; /* none of a row that stands nowhere, at -1 */
    const struct state *states = &step->states;
    float *out = step->attended + ((size_t)step->readers[k].row * model->heads + head) * dim;
    float peak = LEAST, mass = 0;
    for (int s = first; s < end; s++) {
        float other = states->peaks[state_of(model, step, k, s, head)];
        peak = other > peak ? other : peak;
    }
    memset(out, 0, dim * sizeof *out);
    for (int s = first; s < end; s++) {
        size_t at = state_of(model, step, k, s, head);
        float weight = states->peaks[at] == peak ? 1 : exponential(all(states->peaks[at] - peak))[0];
        mass += weight * states->masses[at];
        for (int d = 0; d < dim; d += WIDTH) {
            floats value = load_some(states->values + at * dim + d, dim - d, 0);
            store_some(out + d, dim - d, load_some(out + d, dim - d, 0) + weight * value);
        }
    }
    float inverse = mass > 0 ? 1 / mass : mass; /* a NaN stays one */
    for (int d = 0; d < dim; d += WIDTH) store_some(out + d, dim - d, load_some(out + d, dim - d, 0) * inverse);
}

/* attended [rows][heads head_dim], from the queries in `qkv` and the pages. */
void attend(const struct model *model, const struct layer *layer, const struct step *step) {
#pragma omp parallel for schedule(dynamic, 1)
    for (int i = 0; i < step->num_items * model->kv_heads; i++)
        attend_item(model, layer, step, i % model->kv_heads, &step->items[i / model->kv_heads]);
#pragma omp parallel for schedule(static) if (step->num_rows >= 4)
    for (int i = 0; i < step->num_rows * model->heads; i++)
        merge(model, layer, step, i / model->heads, i % model->heads);
}
