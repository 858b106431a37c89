// word2vec (Mikolov 2013): examples drawn from a text, and one step of learning for each.
//
// An example is whole numbers in a row:
//   inputs, targets, then the rows of the input matrix, then 2 · row of the output matrix + label.
// Drawing depends on seed, epoch and place only, and steps are made in the order of the text, so
// the result does not know who drew the examples.

#include <stdint.h>

enum { LANES = 16, MOST = 64, STEPS = 1024, REACH = 8 };  // as word2vec.py has them

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

static inline vec load(const float *at) { return *(const loose *)at; }
static inline void store(float *at, vec x) { *(loose *)at = x; }

// Drawing ---------------------------------------------------------------------------------------

static const uint64_t GOLDEN = 0x9E3779B97F4A7C15u;

// SplitMix64's finaliser (Steele 2014).
static inline uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

typedef struct {
    const int32_t *ids;     // the text
    const uint64_t *keep;   // (V,) a word stays where 32 random bits are below this
    const uint32_t *alias;  // (V, 2) Walker's tables of the noise: a threshold, another word
    int64_t vocab, window, negative, cbow;
} Draw;

// The targets of a word: itself and some noise.
static inline int32_t *put_targets(const Draw *d, int32_t word, uint64_t *state, int32_t *out) {
    *out++ = 2 * word + 1;
    for (int64_t n = 0; n < d->negative; n++) {
        uint64_t bits = mix(*state += GOLDEN);
        int32_t noise = (bits >> 32) * d->vocab >> 32;
        const uint32_t *row = d->alias + 2 * noise;
        if ((uint32_t)bits >= row[0]) noise = row[1];
        if (noise != word) *out++ = 2 * noise;
    }
    return out;
}

// Examples of the sentences that begin at `bounds`; returns how many numbers were written.
int64_t draw(const Draw *d, const int64_t *bounds, int64_t sentences, uint64_t key,
             int32_t *words, uint64_t *places, int32_t *out) {
    int32_t *begin = out;
    for (int64_t s = 0; s < sentences; s++) {
        int64_t length = 0;
        for (int64_t at = bounds[s]; at < bounds[s + 1]; at++) {
            uint64_t state = mix(key + (uint64_t)at * GOLDEN);
            if (mix(state + GOLDEN) >> 32 >= d->keep[d->ids[at]]) continue;
            words[length] = d->ids[at];
            places[length++] = state;
        }
        for (int64_t at = 0; at < length; at++) {
            uint64_t state = places[at] + 2 * GOLDEN;
            int64_t reach = 1 + ((mix(state) >> 32) * d->window >> 32);
            int64_t first = at < reach ? 0 : at - reach;
            int64_t last = at + reach < length ? at + reach : length - 1;
            if (first == last) continue;
            if (d->cbow) {  // one example: all words around → the word
                int32_t *head = out;
                out += 2;
                for (int64_t n = first; n <= last; n++)
                    if (n != at) *out++ = words[n];
                head[0] = last - first;
                int32_t *targets = out;
                out = put_targets(d, words[at], &state, out);
                head[1] = out - targets;
                continue;
            }
            for (int64_t n = first; n <= last; n++) {  // one example for each word around
                if (n == at) continue;
                out[0] = 1;
                out[2] = words[at];
                int32_t *end = put_targets(d, words[n], &state, out + 3);
                out[1] = end - out - 3;
                out = end;
            }
        }
    }
    return out - begin;
}

// Learning --------------------------------------------------------------------------------------

typedef float half __attribute__((vector_size(2 * LANES)));
typedef float quarter __attribute__((vector_size(LANES)));

// Lanes n, n + 4, n + 8 and n + 12 first, so that no lane leaves the registers.
static inline float sum(vec x) {
    union { vec all; half halves[2]; } a = {x};
    union { half all; quarter halves[2]; } b = {a.halves[0] + a.halves[1]};
    quarter c = b.halves[0] + b.halves[1];
    return (c[0] + c[2]) + (c[1] + c[3]);
}

// 1 / (1 + exp(−x)) between the entries of a table (STEPS + 2,) from −REACH to REACH.
static inline float sigmoid(float x, const float *table) {
    float place = (x + REACH) * (STEPS / (2.0f * REACH));
    place = place > 0 ? (place < STEPS ? place : STEPS) : 0;  // what is no number is 0 too
    int whole = (int)place;
    return table[whole] + (place - whole) * (table[whole + 1] - table[whole]);
}

// One step of h (width,) against its targets; what h should change by is left in `error`. Rows may
// be the same: all is computed from what they were.
static inline void step(const float *h, float *error, float *out, const int32_t *targets,
                        int count, int64_t width, float lr, const float *table) {
    float *rows[MOST], rates[MOST];
    for (int t = 0; t < count; t++) rows[t] = out + (int64_t)(targets[t] >> 1) * width;
    for (int t = 0; t < count; t++) {
        vec total = load(h) * load(rows[t]);
        for (int64_t i = LANES; i < width; i += LANES) total += load(h + i) * load(rows[t] + i);
        rates[t] = lr * ((targets[t] & 1) - sigmoid(sum(total), table));
    }
    for (int64_t i = 0; i < width; i += LANES) {
        vec own = load(h + i), change = {0};
        for (int t = 0; t < count; t++) change += rates[t] * load(rows[t] + i);
        for (int t = 0; t < count; t++) store(rows[t] + i, load(rows[t] + i) + rates[t] * own);
        store(error + i, change);
    }
}

// The rows of an example, for the step after this one.
static inline void fetch(const int32_t *example, const float *in, const float *out, int64_t width) {
    const int32_t *row = example + 2, *targets = row + example[0], *end = targets + example[1];
    for (; row < end; row++) {
        const float *at = row < targets ? in + *row * width : out + (int64_t)(*row >> 1) * width;
        for (int64_t i = 0; i < width; i += LANES) __builtin_prefetch(at + i, 1);
    }
}

// Learn from `size` numbers of examples; `work` is (2, width).
void learn(const int32_t *examples, int64_t size, float *in, float *out, int64_t width, float lr,
           const float *table, float *work) {
    const int32_t *end = examples + size;
    float *mean = work, *error = work + width;
    while (examples < end) {
        int32_t inputs = examples[0], count = examples[1];
        const int32_t *rows = examples + 2, *targets = rows + inputs, *next = targets + count;
        if (next < end) fetch(next, in, out, width);
        const float *h = in + rows[0] * width;
        if (inputs > 1) {
            for (int64_t i = 0; i < width; i += LANES) {
                vec total = {0};
                for (int32_t n = 0; n < inputs; n++) total += load(in + rows[n] * width + i);
                store(mean + i, total / (float)inputs);
            }
            h = mean;
        }
        step(h, error, out, targets, count, width, lr, table);
        // The whole error for each input, as in the authors' code, not its share of the mean.
        for (int32_t n = 0; n < inputs; n++) {
            float *row = in + rows[n] * width;
            for (int64_t i = 0; i < width; i += LANES) store(row + i, load(row + i) + load(error + i));
        }
        examples = next;
    }
}
