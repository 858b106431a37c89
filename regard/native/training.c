// Attention and GELU with their gradients in float32, on CPUs with AVX-512.
//
// A head's products are small: 24 queries at a time stay in the cache with all they need, and what
// lies behind a causal mask is not computed. Each head is done by one thread, in one order: the
// bits do not depend on the number of threads.

#include "vector.h"

#include <stdlib.h>

enum { ROWS = 6, VECTORS = 4, PANEL = LANES * VECTORS, QUERIES = 24 };

// Products --------------------------------------------------------------------------------------

// c (rows, 16 · vectors) = or += a (rows, depth) b (depth, 16 · vectors); a[r, i] is at
// r · down + i · along, rows of b and c are `over` and `under` floats apart.
static inline __attribute__((always_inline)) void tile(
    const float *a, int64_t down, int64_t along, const float *b, int64_t over, int64_t depth,
    float *c, int64_t under, int add, const int rows, const int vectors) {
    __m512 sums[ROWS][VECTORS];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            sums[r][j] = add ? _mm512_loadu_ps(c + r * under + LANES * j) : _mm512_setzero_ps();
    for (int64_t i = 0; i < depth; i++, a += along, b += over) {
        __m512 row[VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) row[j] = _mm512_loadu_ps(b + LANES * j);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            __m512 x = _mm512_set1_ps(a[r * down]);
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++) sums[r][j] = _mm512_fmadd_ps(x, row[j], sums[r][j]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) _mm512_storeu_ps(c + r * under + LANES * j, sums[r][j]);
}

static inline __attribute__((always_inline)) void panel(
    const float *a, int64_t down, int64_t along, const float *b, int64_t over, int64_t depth,
    float *c, int64_t under, int64_t rows, int add, const int vectors) {
    int64_t r = 0;
    for (; r + ROWS <= rows; r += ROWS)
        tile(a + r * down, down, along, b, over, depth, c + r * under, under, add, ROWS, vectors);
    for (; r + 2 <= rows; r += 2)
        tile(a + r * down, down, along, b, over, depth, c + r * under, under, add, 2, vectors);
    if (r < rows)
        tile(a + r * down, down, along, b, over, depth, c + r * under, under, add, 1, vectors);
}

// c (rows, columns) = or += a (rows, depth) b (depth, columns); `columns` is a multiple of 16.
static void product(const float *a, int64_t down, int64_t along, const float *b, int64_t over,
                    float *c, int64_t under, int64_t rows, int64_t columns, int64_t depth,
                    int add) {
    int64_t j = 0;
    for (; j + PANEL <= columns; j += PANEL)
        panel(a, down, along, b + j, over, depth, c + j, under, rows, add, VECTORS);
    for (; j < columns; j += LANES)
        panel(a, down, along, b + j, over, depth, c + j, under, rows, add, 1);
}

// Attention -------------------------------------------------------------------------------------

typedef struct {
    Tensor q, k, v, out;  // out is z
    Open open;
    float *norm;  // (batch, heads, T): log Σ e^score
    int64_t batch, heads, groups, queries, keys, width;
    int causal;  // the last query sees all keys, the one before it all but the last …
    float scale;
} Attention;

typedef struct {
    Tensor out, q, k, v;  // the gradient by z, and those by q, k and v
} Gradients;

// How many keys query `t` may see, masks apart.
static inline int64_t reach(const Attention *a, int64_t t) {
    return a->causal ? a->keys - a->queries + t + 1 : a->keys;
}

static inline int64_t fewer(int64_t a, int64_t b) { return a < b ? a : b; }

// The heads of group `g`: they share keys and values.
static void look(const Attention *a, int64_t b, int64_t g, float *room) {
    int64_t padded = up_to(a->keys), width = a->width, share = a->heads / a->groups;
    float *turned = room, *values = turned + width * padded, *scores = values + a->keys * width;
    turn(place(&a->k, b, g), a->k.slot, a->keys, padded, width, turned);
    copy(place(&a->v, b, g), a->v.slot, a->keys, width, values, width);
    for (int64_t h = g * share; h < (g + 1) * share; h++) {
        const float *q = place(&a->q, b, h);
        float *out = place(&a->out, b, h), *norm = a->norm + (b * a->heads + h) * a->queries;
        for (int64_t t = 0; t < a->queries; t += QUERIES) {
            int64_t rows = fewer(QUERIES, a->queries - t), seen = reach(a, t + rows - 1);
            int64_t wide = up_to(seen);
            product(q + t * a->q.slot, a->q.slot, 1, turned, padded, scores, padded, rows, wide,
                    width, 0);
            float by[QUERIES];
            for (int64_t r = 0; r < rows; r++) {
                float top, sum = weigh(scores + r * padded, reach(a, t + r), wide,
                                       open_to(&a->open, b, t + r), a->scale, &top);
                norm[t + r] = top + logf(sum);
                by[r] = 1 / sum;
            }
            product(scores, padded, 1, values, width, out + t * a->out.slot, a->out.slot, rows,
                    width, seen, 0);
            for (int64_t r = 0; r < rows; r++) {
                float *row = out + (t + r) * a->out.slot;
                for (int64_t i = 0; i < width; i++) row[i] *= by[r];
            }
        }
    }
}

// Weights P of one query from its scores, and from ∂P the gradient by the scores:
// scale P (∂P − Σ ∂z z). Both (padded,), zero where the query may not see.
static void weigh_back(const Attention *a, int64_t b, int64_t t, int64_t padded, float norm,
                       float mean, float *weights, float *slopes) {
    __m512 by = _mm512_set1_ps(a->scale), less = _mm512_set1_ps(norm), even = _mm512_set1_ps(mean);
    const uint8_t *open = open_to(&a->open, b, t);
    int64_t seen = reach(a, t);
    for (int64_t s = 0; s < padded; s += LANES) {
        __mmask16 in = visible(open, s, seen);
        __m512 x = _mm512_sub_ps(_mm512_mul_ps(_mm512_loadu_ps(weights + s), by), less);
        x = _mm512_maskz_mov_ps(in, exponential(_mm512_min_ps(_mm512_setzero_ps(), x)));
        __m512 slope = _mm512_sub_ps(_mm512_loadu_ps(slopes + s), even);
        _mm512_storeu_ps(weights + s, x);
        _mm512_storeu_ps(slopes + s, _mm512_maskz_mul_ps(in, _mm512_mul_ps(x, by), slope));
    }
}

static void look_back(const Attention *a, const Gradients *d, int64_t b, int64_t g, float *room) {
    int64_t padded = up_to(a->keys), width = a->width, share = a->heads / a->groups;
    int64_t all = a->keys * width, longest = a->queries * width;
    float *turned_k = room, *turned_v = turned_k + width * padded;
    float *keys = turned_v + width * padded, *by_k = keys + all, *by_v = by_k + all;
    float *q = by_v + all, *by_z = q + longest, *weights = by_z + longest;
    float *slopes = weights + QUERIES * padded;
    const float *k = place(&a->k, b, g), *v = place(&a->v, b, g);
    turn(k, a->k.slot, a->keys, padded, width, turned_k);
    turn(v, a->v.slot, a->keys, padded, width, turned_v);
    copy(k, a->k.slot, a->keys, width, keys, width);
    memset(by_k, 0, 2 * all * sizeof(float));
    for (int64_t h = g * share; h < (g + 1) * share; h++) {
        const float *z = place(&a->out, b, h), *norm = a->norm + (b * a->heads + h) * a->queries;
        float *by_q = place(&d->q, b, h);
        copy(place(&a->q, b, h), a->q.slot, a->queries, width, q, width);
        copy(place(&d->out, b, h), d->out.slot, a->queries, width, by_z, width);
        for (int64_t t = 0; t < a->queries; t += QUERIES) {
            int64_t rows = fewer(QUERIES, a->queries - t), seen = reach(a, t + rows - 1);
            int64_t wide = up_to(seen);
            const float *q_t = q + t * width, *z_t = by_z + t * width;
            product(q_t, width, 1, turned_k, padded, weights, padded, rows, wide, width, 0);
            product(z_t, width, 1, turned_v, padded, slopes, padded, rows, wide, width, 0);
            for (int64_t r = 0; r < rows; r++) {
                __m512 sum = _mm512_setzero_ps();
                for (int64_t i = 0; i < width; i += LANES)
                    sum = _mm512_fmadd_ps(_mm512_loadu_ps(z_t + r * width + i),
                                          _mm512_loadu_ps(z + (t + r) * a->out.slot + i), sum);
                weigh_back(a, b, t + r, wide, norm[t + r], _mm512_reduce_add_ps(sum),
                           weights + r * padded, slopes + r * padded);
            }
            product(slopes, padded, 1, keys, width, by_q + t * d->q.slot, d->q.slot, rows, width,
                    seen, 0);
            product(slopes, 1, padded, q_t, width, by_k, width, seen, width, rows, 1);
            product(weights, 1, padded, z_t, width, by_v, width, seen, width, rows, 1);
        }
    }
    copy(by_k, width, a->keys, width, place(&d->k, b, g), d->k.slot);
    copy(by_v, width, a->keys, width, place(&d->v, b, g), d->v.slot);
}

// All heads, there or (with `d`) back, with room for `size` floats each. 1 when there is no memory.
static int look_at_all(const Attention *a, const Gradients *d, int64_t size, int threads) {
    int failed = 0;
#pragma omp parallel num_threads(threads) if (threads > 1) reduction(| : failed)
    {
        float *room = aligned_alloc(64, up_to(size) * sizeof(float));
        failed = !room;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < a->batch * a->groups; i++) {
            if (room && d) look_back(a, d, i / a->groups, i % a->groups, room);
            if (room && !d) look(a, i / a->groups, i % a->groups, room);
        }
        free(room);
    }
    return failed;
}

// z = softmax(scale q kᵀ) v. Returns 0, or 1 when there is no memory.
int attention_forward(Attention a, int threads) {
    int64_t padded = up_to(a.keys);
    return look_at_all(&a, NULL, (a.width + QUERIES) * padded + a.keys * a.width, threads);
}

int attention_backward(Attention a, Gradients d, int threads) {
    int64_t padded = up_to(a.keys), rows = 3 * a.keys + 2 * a.queries;
    return look_at_all(&a, &d, 2 * (a.width + QUERIES) * padded + rows * a.width, threads);
}

// GELU ------------------------------------------------------------------------------------------

// The logistic function of 2u, u = √(2/π) (x + 0.044715 x³), of sixteen x: half of 1 + tanh u.
static inline __m512 gate(__m512 x, __m512 *square) {
    *square = _mm512_mul_ps(x, x);
    __m512 u = _mm512_fmadd_ps(*square, _mm512_set1_ps(0.0713548162726f),
                               _mm512_set1_ps(1.59576912161f));
    u = _mm512_mul_ps(u, x);
    __m512 size = _mm512_abs_ps(u), zero = _mm512_setzero_ps(), one = _mm512_set1_ps(1);
    __mmask16 near = _mm512_cmp_ps_mask(size, _mm512_set1_ps(87), _CMP_NGT_UQ);
    __m512 e = _mm512_maskz_mov_ps(near, exponential(_mm512_sub_ps(zero, size)));
    __m512 share = _mm512_div_ps(one, _mm512_add_ps(one, e));
    __mmask16 below = _mm512_cmp_ps_mask(u, zero, _CMP_LT_OQ);
    return _mm512_mask_mul_ps(share, below, share, e);
}

void gelu_forward(const float *x, float *out, int64_t count, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t i = 0; i < count; i += LANES) {
        __mmask16 in = lanes(count - i);
        __m512 v = _mm512_maskz_loadu_ps(in, x + i), square;
        _mm512_mask_storeu_ps(out + i, in, _mm512_mul_ps(v, gate(v, &square)));
    }
}

// σ + x σ (1 − σ) (2u)′, times the gradient by the result.
void gelu_backward(const float *x, const float *pull, float *out, int64_t count, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t i = 0; i < count; i += LANES) {
        __mmask16 in = lanes(count - i);
        __m512 v = _mm512_maskz_loadu_ps(in, x + i), square, share = gate(v, &square);
        __m512 rise = _mm512_fmadd_ps(square, _mm512_set1_ps(3 * 0.0713548162726f),
                                      _mm512_set1_ps(1.59576912161f));
        // First what is zero for a large x, whose cube may be infinite.
        __m512 rest = _mm512_mul_ps(_mm512_mul_ps(v, _mm512_fnmadd_ps(share, share, share)), rise);
        __m512 slope = _mm512_add_ps(share, rest);
        _mm512_mask_storeu_ps(out + i, in, _mm512_mul_ps(slope, _mm512_maskz_loadu_ps(in, pull + i)));
    }
}
