/* What the kernels compute on. The structures are mirrored in `library.py`. */
#ifndef TTC_STEP_H
#define TTC_STEP_H

#include <stdint.h>

enum { GROUP = 64, PART = 16, PANEL = 16, PAGE = 16, CHUNK = 64, SEGMENT = 256, PAGES = CHUNK / PAGE };
/* GROUP: columns of activations that share a scale. PART: columns of which the sum is known.
   PANEL: output columns that lie together.
   PAGE: positions whose keys and values lie together. CHUNK: positions that are folded at once.
   SEGMENT: positions that are folded one chunk after another. */
enum { MOST_ROWS = 64, LEAST_ROWS = 8 }; /* of an item; see `plan_items` */

/* How a matrix is written. INT8: codes of our own, a scale for GROUP columns of each output. Others are the
   codes of a GGUF file, of so many bits; see `blocks.h`. */
enum { INT8, Q4, Q4_MINIMUM, Q5, Q5_MINIMUM, Q6, Q8 };

/* Outputs of a linear layer that are written alike, as panels. Of INT8 they are [outputs / 16][inputs / 4][16][4]:
   what one load of a vector brings is what one instruction multiplies, see `dot`. Inputs are padded to a
   multiple of 64 and outputs to one of 16, with zeros. */
struct matrix {
    const uint8_t *panels;
    const float *scales; /* of INT8: [outputs / 16][inputs / GROUP][16] */
    const float *bias;   /* [outputs, padded], or null */
    int32_t outputs, first; /* how many, and the first one's place among those of the layer */
    int32_t format;
};

struct linear {
    const struct matrix *matrices;
    int32_t num_matrices, outputs; /* of all */
};

/* Rows of int8 codes with a scale for each GROUP columns. */
struct rows {
    int8_t *codes; /* [rows][columns] */
    float *scales; /* [rows][columns / GROUP] */
    int32_t *sums; /* [rows][columns / PART], of the codes */
    int32_t columns; /* padded to a multiple of GROUP */
};

struct layer {
    struct linear qkv, output, gate_up, down;
    const float *attention_norm, *feed_forward_norm; /* [hidden] */
    const float *qk_norm;                            /* [heads + kv_heads][head_dim], or null */
    void *keys, *values; /* [pages][kv_heads][a page of one head], bf16 as in `pages.h`, or codes as in `kv_codes.h` */
    float *key_scales, *value_scales; /* of codes: [pages][kv_heads][PAGE]; else null */
    int32_t is_rotated, window;       /* a window of 0 is none */
};

struct model {
    const struct layer *layers;
    struct linear head;
    const float *norm;
    float norm_eps, query_scale;
    int32_t num_layers, hidden, heads, kv_heads, head_dim, feed_forward;
};

/* A row of a step, as it reads pages. Readers are sorted by what is in their tables of pages. */
struct reader {
    int32_t row;      /* where it lies in everything else */
    int32_t position; /* in its sequence */
    int32_t table;    /* where its sequence's pages begin in `pages` */
    int32_t shared;   /* pages from the beginning on that it has in common with the reader before */
};

/* Readers that are attended to in one segment of their sequences, one after another. */
struct item {
    int32_t segment, first, end;
};

/* What is known of each reader, segment and head while its chunks are folded. */
struct state {
    float *values;         /* [readers][segments][heads][head_dim] */
    float *peaks, *masses; /* [readers][segments][heads] */
};

/* One step: tokens of many sequences, each a row. */
struct step {
    float *residual;        /* [rows][hidden]: the embeddings, and then each layer's result */
    const float *cos, *sin; /* [positions][head_dim / 2] */
    const struct reader *readers; /* [rows] */
    const int32_t *pages;
    const int32_t *wanted; /* [num_wanted] rows whose logits are wanted */
    float *logits;         /* [num_wanted][vocab] */
    float *qkv;            /* [rows][(heads + 2 kv_heads) head_dim] */
    float *attended;       /* [rows][heads head_dim] */
    float *gate_up;        /* [rows][2 feed_forward] */
    float *scratch;        /* [rows][the widest of hidden, heads head_dim and feed_forward] */
    struct rows codes;     /* room for the widest */
    struct state states;
    struct item *items;    /* room for [segments][rows] */
    int32_t num_rows, num_wanted, num_segments, num_items;
};

void quantise(const float *x, int num_rows, int columns, struct rows *out);
void multiply(const struct linear *weight, const struct rows *x, int num_rows, float *out, int adds);
/* As `multiply`, of one matrix of INT8 and of MANY_ROWS rows or more, which is more than one tile of `linear.c` has.
   Says whether it is done: it takes memory, and portable loops have one way for all. */
enum { MANY_ROWS = 5 };
int multiply_many(const struct matrix *matrix, const struct rows *x, int num_rows, float *out, int stride, int adds);
/* As `multiply`, of one matrix with the codes of a file. */
typedef void multiplier(const struct matrix *matrix, const struct rows *x, int num_rows, float *out, int stride, int adds);
multiplier multiply_blocks;
extern multiplier *multiply_codes[Q8 + 1]; /* that of each format, where its library is loaded: few models need one */
void plan_items(struct step *step, int kv_heads);
void rotate_and_write(const struct model *model, const struct layer *layer, const struct step *step);
void attend(const struct model *model, const struct layer *layer, const struct step *step);

#endif
