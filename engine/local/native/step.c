/* One step of a model: every layer for every row, in one call. */
#include "lanes.h"
#include "step.h"

static void normalise_row(const float *x, int n, const float *weight, float eps, float *out) {
    float inverse = inverse_rms(x, n, eps);
    for (int j = 0; j < n; j += WIDTH)
        store_some(out + j, n - j, load_some(x + j, n - j, 0) * inverse * load_some(weight + j, n - j, 0));
}

static void normalise(const struct model *model, const float *x, const int32_t *rows, int num_rows, const float *weight, float *out) {
    const int n = model->hidden;
#pragma omp parallel for schedule(static) if (num_rows >= 8)
    for (int r = 0; r < num_rows; r++)
        normalise_row(x + (size_t)(rows ? rows[r] : r) * n, n, weight, model->norm_eps, out + (size_t)r * n);
}

/* out [rows][n] = silu(gate) * up of [gate, up], [rows][2 n]. */
static void activate(const float *gate_up, int num_rows, int n, float *out) {
#pragma omp parallel for schedule(static) if (num_rows >= 4)
    for (int r = 0; r < num_rows; r++) {
        const float *gate = gate_up + (size_t)r * 2 * n, *up = gate + n;
        float *to = out + (size_t)r * n;
        int i = 0;
        for (; i + WIDTH <= n; i += WIDTH) {
            floats g = load(gate + i);
            store(to + i, g / (1.0f + exponential(-g)) * load(up + i));
        }
        for (; i < n; i++) {
            floats g = all(gate[i]);
            to[i] = (g / (1.0f + exponential(-g)))[0] * up[i];
        }
    }
}

/* Computes a step: writes its keys and values, and the logits of the wanted rows. */
void run_step(const struct model *model, struct step *step) {
    const int n = step->num_rows;
    float *scratch = step->scratch;
    plan_items(step, model->kv_heads);
    for (int l = 0; l < model->num_layers; l++) {
        const struct layer *layer = &model->layers[l];
        normalise(model, step->residual, 0, n, layer->attention_norm, scratch);
        quantise(scratch, n, model->hidden, &step->codes);
        multiply(&layer->qkv, &step->codes, n, step->qkv, 0);
        rotate_and_write(model, layer, step);
        attend(model, layer, step);
        quantise(step->attended, n, model->heads * model->head_dim, &step->codes);
        multiply(&layer->output, &step->codes, n, step->residual, 1);
        normalise(model, step->residual, 0, n, layer->feed_forward_norm, scratch);
        quantise(scratch, n, model->hidden, &step->codes);
        multiply(&layer->gate_up, &step->codes, n, step->gate_up, 0);
        activate(step->gate_up, n, model->feed_forward, scratch);
        quantise(scratch, n, model->feed_forward, &step->codes);
        multiply(&layer->down, &step->codes, n, step->residual, 1);
    }
    normalise(model, step->residual, step->wanted, step->num_wanted, model->norm, scratch);
    quantise(scratch, step->num_wanted, model->hidden, &step->codes);
    multiply(&model->head, &step->codes, step->num_wanted, step->logits, 0);
}
