/* Draws a token of each row of logits, and measures the row's distribution.

   The draw is an exponential race: the token with the least E / w wins, E exponential noise and w the
   token's weight, and so each wins by its share of all weight (Gumbel-max on another scale: Gumbel
   1954; Maddison et al. 2014, arXiv 1411.0030). E = -ln(1 - u) is at least u, so a token whose u is
   above w times the best ratio so far has lost without its logarithm: about twenty are taken for a
   row of a hundred thousand. u is a hash of (key, token), and never comes from a generator with a
   state. Rows are independent: what is drawn in one depends on no other. */
#include "lanes.h"

#include <omp.h>

enum { BLOCK = 256, RADIX = 2048 };

struct draw {
    uint64_t key;
    const int32_t *seen, *counts; /* tokens that are penalised, and how often the output holds each */
    const int32_t *biased;        /* tokens to whose logits `biases` are added, each there once */
    const float *biases;
    const uint32_t *allowed; /* a bit for each token; null allows all */
    float temperature, top_p, min_p; /* temperature 0 is greedy; 1 and 0 keep all */
    float repetition, presence, frequency;
    int32_t top_k; /* 0 keeps all */
    int32_t num_top, num_seen, num_biased;
    int32_t moments; /* whether entropy and self-certainty are asked for */
};

struct drawn {
    double logprob, normaliser; /* ln of the sum of exp(logit - peak) */
    double entropy, certainty;
    float peak;
    int32_t token; /* -1 where there is none: the peak is NaN, or no token is allowed */
};

typedef uint32_t words __attribute__((vector_size(4 * WIDTH)));

/* Mixes by multiplications and shifts (constants: Wellons's hash-prospector, `lowbias32`), the key's
   halves before and between them. */
INLINE words hash(words token, uint64_t key) {
    words x = token * 0x9E3779B1u + (uint32_t)key;
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= (x >> 15) ^ (uint32_t)(key >> 32);
    x *= 0x846CA68Bu;
    return x ^ (x >> 16);
}

/* exp, and 0 from -87 down, -infinity included. */
INLINE floats weigh(floats x) { return (floats)((ints)exponential(x) & (x > -87.0f)); }

/* The greatest logit; NaN where one is NaN or +infinity, or all are -infinity. */
static float peak_of(const float *logits, int vocab) {
    floats peaks = all(-INFINITY), faults = {};
    for (int i = 0; i < vocab; i += WIDTH) {
        floats v = load_some(logits + i, vocab - i, -INFINITY);
        peaks = larger(v, peaks);
        faults = choose((v == v) & (v < INFINITY), faults, all(NAN));
    }
    float peak = largest_lane(peaks);
    for (int i = 0; i < WIDTH; i++) peak += faults[i];
    return peak > -INFINITY ? peak : NAN;
}

/* The row's own normaliser, and with `moments` its entropy and self-certainty (logsumexp - mean -
   ln V; Kang et al. 2025, arXiv 2502.18581); logits of -infinity are no tokens. Its weights go to
   `weights`, unless that is null. */
INLINE void sum_up(const float *logits, int vocab, struct drawn *out, float *weights, int moments) {
    double mass = 0, moment = 0, sum = 0;
    int64_t count = 0;
    for (int start = 0; start < vocab; start += BLOCK) {
        floats masses[PARTS] = {}, products[PARTS] = {}, sums[PARTS] = {};
        ints counts = {};
        for (int i = start; i < start + BLOCK && i < vocab; i += LANES)
            for (int p = 0; p < PARTS && i + p * WIDTH < vocab; p++) {
                int at = i + p * WIDTH;
                floats x = load_some(logits + at, vocab - at, -INFINITY) - out->peak;
                floats w = weigh(x);
                if (weights) store_some(weights + at, vocab - at, w);
                masses[p] += w;
                if (!moments) continue;
                ints real = x > -INFINITY;
                floats d = (floats)((ints)x & real);
                products[p] += w * d;
                sums[p] += d;
                counts -= real;
            }
        mass += sum_lanes(masses);
        moment += sum_lanes(products);
        sum += sum_lanes(sums);
        for (int i = 0; moments && i < WIDTH; i++) count += counts[i];
    }
    out->normaliser = log(mass);
    if (!moments) return;
    out->entropy = fmax(0, out->normaliser - moment / mass);
    out->certainty = fmax(0, out->normaliser - sum / count - log((double)count));
}

static void measure(const float *logits, int vocab, struct drawn *out, float *weights, int moments) {
    if (moments)
        sum_up(logits, vocab, out, weights, 1);
    else if (weights)
        sum_up(logits, vocab, out, weights, 0);
    else
        sum_up(logits, vocab, out, 0, 0);
}

static uint32_t bits_of(float weight) {
    uint32_t bits;
    memcpy(&bits, &weight, sizeof bits);
    return bits;
}

/* The greatest weight such that those that reach it number `rank`, or have the share `share` of the
   mass of all that reach `floor`. Weights are at least 0, so their bits are ordered as they are: three
   rounds of buckets over 11, 11 and 10 bits find it. */
static float floor_for(const float *weights, int vocab, float floor, int64_t rank, double share) {
    double masses[RADIX];
    int64_t counts[RADIX];
    double total = 0, mass = 0;
    int64_t count = 0;
    for (int i = 0; rank == 0 && i < vocab; i++)
        if (weights[i] >= floor) total += weights[i];
    uint32_t prefix = 0, known = 0;
    static const int shifts[] = {21, 10, 0};
    for (int round = 0; round < 3; round++) {
        int shift = shifts[round], size = round < 2 ? RADIX : RADIX / 2;
        memset(masses, 0, sizeof masses);
        memset(counts, 0, sizeof counts);
        for (int i = 0; i < vocab; i++) {
            uint32_t bits = bits_of(weights[i]);
            if (weights[i] < floor || (bits & known) != prefix) continue;
            counts[bits >> shift & (size - 1)]++;
            masses[bits >> shift & (size - 1)] += weights[i];
        }
        int bucket = size - 1;
        for (; bucket > 0; bucket--) {
            int64_t reached = count + counts[bucket];
            double gained = mass + masses[bucket];
            if (counts[bucket] && (rank ? reached >= rank : gained >= share * total)) break;
            count = reached;
            mass = gained;
        }
        prefix |= (uint32_t)bucket << shift;
        known |= (uint32_t)(size - 1) << shift;
    }
    float found;
    memcpy(&found, &prefix, sizeof found);
    return found > floor ? found : floor;
}

/* Logits with a bias, less their penalties (Keskar et al. 2019, arXiv 1909.05858; bias, presence and
   frequency as in OpenAI's API), and -infinity where a token is not allowed. */
static void adjust(const float *logits, int vocab, const struct draw *draw, float *adjusted) {
    memcpy(adjusted, logits, vocab * sizeof *logits);
    for (int i = 0; i < draw->num_biased; i++) adjusted[draw->biased[i]] += draw->biases[i];
    for (int i = 0; i < draw->num_seen; i++) {
        float *x = adjusted + draw->seen[i], count = draw->counts[i];
        float scaled = *x > 0 ? *x / draw->repetition : *x * draw->repetition;
        *x = scaled - (count * draw->frequency + (count > 0 ? draw->presence : 0));
    }
    for (int start = 0; draw->allowed && start < vocab; start += 32) {
        uint32_t word = draw->allowed[start / 32];
        int count = vocab - start < 32 ? vocab - start : 32;
        for (int i = 0; word != 0xFFFFFFFF && i < count; i++)
            if (!(word >> i & 1)) adjusted[start + i] = -INFINITY;
    }
}

/* The weights of a row at a temperature, which may take the place of its logits. */
static void weigh_all(const float *logits, int vocab, float temperature, float peak, float *weights) {
    float inverse = 1 / fmaxf(temperature, 1e-30f);
    for (int i = 0; i < vocab; i += WIDTH)
        store_some(
            weights + i, vocab - i,
            weigh((load_some(logits + i, vocab - i, -INFINITY) - peak) * inverse));
}

/* Sets weights below the filters' floor to 0: top_k, top_p of what that left, min_p. What ties with
   the last one kept is kept. */
static void filter(float *weights, int vocab, const struct draw *draw) {
    float kept = 0, share = 0;
    if (draw->top_k > 0 && draw->top_k < vocab) kept = floor_for(weights, vocab, 0, draw->top_k, 0);
    if (draw->top_p < 1) share = floor_for(weights, vocab, kept, 0, draw->top_p);
    float floor = fmaxf(fmaxf(kept, share), draw->min_p);
    for (int i = 0; floor > 0 && i < vocab; i += WIDTH) {
        floats w = load_some(weights + i, vocab - i, 0);
        store_some(weights + i, vocab - i, choose(w < floor, (floats){}, w));
    }
}

static int32_t race(const float *weights, int vocab, uint64_t key) {
    const double unit = 1 / 4294967296.0;
    double best = INFINITY;
    int32_t winner = -1;
    floats bound = all(INFINITY);
    for (int i = 0; i < vocab; i += WIDTH) {
        floats w = load_some(weights + i, vocab - i, 0);
        words bits = hash((words)count_from(i), key);
        /* As floats, halved so that they fit signed integers. */
        floats u = to_floats((ints)(bits >> 1)) * 4.6566129e-10f;
        ints open = (u <= w * bound) & (w > 0);
        if (!any(open)) continue;
        for (int j = 0; j < WIDTH; j++)
            if (open[j]) {
                double ratio = -log1p(-((double)bits[j] + 0.5) * unit) / w[j];
                if (ratio < best) {
                    best = ratio;
                    winner = i + j;
                }
            }
        bound = all((float)best * 1.0001f);
    }
    return winner;
}

static int32_t first_of(const float *logits, int vocab, float peak) {
    int32_t i = 0;
    while (i + WIDTH <= vocab && !any(load(logits + i) == all(peak))) i += WIDTH;
    for (; i < vocab; i++)
        if (logits[i] == peak) return i;
    return -1;
}

/* The greatest `count` logits, the greatest first. */
static void greatest(const float *logits, int vocab, int count, float *top) {
    for (int i = 0; i < count; i++) top[i] = -INFINITY;
    for (int i = 0; i < vocab; i++) {
        if (logits[i] <= top[count - 1]) continue;
        int place = count - 1;
        for (; place > 0 && top[place - 1] < logits[i]; place--) top[place] = top[place - 1];
        top[place] = logits[i];
    }
}

/* What is measured of one row; its peak is NaN where its logits are not finite. */
static void measure_row(
    const float *logits, int vocab, struct drawn *out, float *weights, int moments) {
    out->token = -1;
    out->peak = peak_of(logits, vocab);
    if (out->peak == out->peak) measure(logits, vocab, out, weights, moments);
}

/* What is measured of rows [rows][vocab]. */
void measure_rows(const float *logits, int rows, int vocab, struct drawn *out) {
#pragma omp parallel for schedule(dynamic, 1) if (rows > 1)
    for (int r = 0; r < rows; r++) measure_row(logits + (size_t)r * vocab, vocab, &out[r], 0, 0);
}

static void sample_row(
    const float *logits, int vocab, const struct draw *draw, struct drawn *out, float *weights) {
    int is_adjusted = draw->num_seen || draw->num_biased || draw->allowed;
    int is_plain = draw->temperature == 1 && !is_adjusted;
    measure_row(logits, vocab, out, is_plain ? weights : 0, draw->moments);
    if (out->peak != out->peak) return;
    const float *from = is_adjusted ? weights : logits;
    float peak = out->peak;
    if (is_adjusted) {
        adjust(logits, vocab, draw, weights);
        peak = peak_of(weights, vocab);
        if (peak != peak) return;
    }
    if (draw->temperature == 0)
        out->token = first_of(from, vocab, peak);
    else {
        if (!is_plain) weigh_all(from, vocab, draw->temperature, peak, weights);
        filter(weights, vocab, draw);
        out->token = race(weights, vocab, draw->key);
    }
    out->logprob = (double)(logits[out->token] - out->peak) - out->normaliser;
}

/* A token for each row, drawn as `draws` says. `scratch` is [threads][vocab], `top` [rows][most]. */
void sample(
    const float *logits, int rows, int vocab, const struct draw *draws, struct drawn *out, float *scratch,
    float *top, int most) {
#pragma omp parallel for schedule(dynamic, 1) if (rows > 1)
    for (int r = 0; r < rows; r++) {
        const float *row = logits + (size_t)r * vocab;
        sample_row(row, vocab, &draws[r], &out[r], scratch + (size_t)omp_get_thread_num() * vocab);
        if (draws[r].num_top) greatest(row, vocab, draws[r].num_top, top + (size_t)r * most);
    }
}
