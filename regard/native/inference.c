// Products of bytes, attention and searches for the best, on CPUs with AVX-512 VNNI.
//
// A row's result depends on that row alone: sums of whole numbers are exact in any order, and
// floats are added in an order that does not know the other rows.

#include "vector.h"

#include <stdlib.h>

enum { VECTORS = 4, PANEL = LANES * VECTORS, TILE = 6, LEVELS = 127, MIDDLE = 128 };

// int8 products ---------------------------------------------------------------------------------

// Weight (n, k) → panels of 64 outputs: [n / 64][k / 4][64][4] bytes, each 128 higher.
void pack(const int8_t *weight, int64_t n, int64_t k, uint8_t *out) {
    int64_t groups = (k + 3) / 4;
    for (int64_t first = 0; first < n; first += PANEL)
        for (int64_t g = 0; g < groups; g++)
            for (int64_t j = 0; j < PANEL; j++)
                for (int64_t i = 0; i < 4; i++) {
                    int inside = first + j < n && 4 * g + i < k;
                    *out++ = MIDDLE + (inside ? weight[(first + j) * k + 4 * g + i] : 0);
                }
}

// A row as whole numbers of its own step, which is returned; their sum undoes the 128 above.
static float round_row(const float *x, int64_t k, int64_t padded, int8_t *whole, int32_t *sum) {
    __m512 most = _mm512_setzero_ps();
    __mmask16 odd = 0;
    for (int64_t i = 0; i < k; i += LANES) {
        __mmask16 in = lanes(k - i);
        __m512 v = _mm512_maskz_loadu_ps(in, x + i);
        odd |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
        most = _mm512_max_ps(most, _mm512_abs_ps(v));
    }
    float peak = odd ? NAN : _mm512_reduce_max_ps(most);
    __m512 by = _mm512_set1_ps(peak > 0 ? peak : 1), levels = _mm512_set1_ps(LEVELS);
    __m512i total = _mm512_setzero_si512();
    for (int64_t i = 0; i < padded; i += LANES) {
        __mmask16 in = lanes(k - i);
        __m512 v = _mm512_mul_ps(_mm512_div_ps(_mm512_maskz_loadu_ps(in, x + i), by), levels);
        __m128i bytes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v));
        total = _mm512_add_epi32(total, _mm512_cvtepi8_epi32(bytes));
        _mm_storeu_si128((__m128i *)(whole + i), bytes);
    }
    *sum = MIDDLE * _mm512_reduce_add_epi32(total);
    return peak / LEVELS;
}

typedef struct {
    const int8_t *whole;  // (m, padded)
    const float *scale;   // (m,)
    const int32_t *sum;   // (m,)
    const float *step;    // (n,)
    const float *bias;    // (n,) or NULL
    float *out;           // (m, n)
    int64_t n, padded, groups;
} Product;

// `count` rows from `row` on times one panel of weights.
static inline __attribute__((always_inline)) void tile(
    const Product *p, const uint8_t *weight, int64_t first, int64_t row, const int count) {
    __m512i sums[TILE][VECTORS];
    const int8_t *whole = p->whole + row * p->padded;
#pragma GCC unroll 6
    for (int r = 0; r < count; r++)
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) sums[r][j] = _mm512_setzero_si512();
    for (int64_t g = 0; g < p->groups; g++, weight += 4 * PANEL) {
        __m512i w[VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) w[j] = _mm512_loadu_si512(weight + 64 * j);
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            __m512i x = _mm512_set1_epi32(*(const int32_t *)(whole + r * p->padded + 4 * g));
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS; j++) sums[r][j] = _mm512_dpbusd_epi32(sums[r][j], w[j], x);
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) {
        int64_t at = first + LANES * j, left = p->n - at;
        if (left <= 0) break;
        __mmask16 in = lanes(left);
        __m512 step = _mm512_maskz_loadu_ps(in, p->step + at);
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            __m512i sum = _mm512_sub_epi32(sums[r][j], _mm512_set1_epi32(p->sum[row + r]));
            __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(p->scale[row + r]));
            v = _mm512_mul_ps(v, step);
            if (p->bias) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(in, p->bias + at));
            _mm512_mask_storeu_ps(p->out + (row + r) * p->n + at, in, v);
        }
    }
}

static void panel(const Product *p, const uint8_t *weight, int64_t first, int64_t m) {
    int64_t row = 0;
    for (; row + TILE <= m; row += TILE) tile(p, weight, first, row, TILE);
    switch (m - row) {
        case 5: tile(p, weight, first, row, 5); break;
        case 4: tile(p, weight, first, row, 4); break;
        case 3: tile(p, weight, first, row, 3); break;
        case 2: tile(p, weight, first, row, 2); break;
        case 1: tile(p, weight, first, row, 1); break;
    }
}

// x (m, k) → out (m, n); `packed` is what `pack` made. Returns 0, or 1 when there is no memory.
int product(const float *x, const uint8_t *packed, const float *step, const float *bias, float *out,
            int64_t m, int64_t n, int64_t k, int threads) {
    int64_t padded = up_to(k), groups = (k + 3) / 4;
    int8_t *whole = malloc(m * (padded + sizeof(float) + sizeof(int32_t)) + 1);
    if (!whole) return 1;
    float *scale = (float *)(whole + m * padded);
    int32_t *sum = (int32_t *)(scale + m);
    for (int64_t r = 0; r < m; r++)
        scale[r] = round_row(x + r * k, k, padded, whole + r * padded, sum + r);
    Product p = {whole, scale, sum, step, bias, out, n, padded, groups};
    int64_t panels = (n + PANEL - 1) / PANEL, size = groups * 4 * PANEL;
    if (threads > 1 && m * n * k > 1 << 20) {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t i = 0; i < panels; i++) panel(&p, packed + i * size, i * PANEL, m);
    } else {
        for (int64_t i = 0; i < panels; i++) panel(&p, packed + i * size, i * PANEL, m);
    }
    free(whole);
    return 0;
}

// Attention -------------------------------------------------------------------------------------

enum { QUERIES = 4 };  // that share what is loaded

// The sums of four vectors.
static inline __m128 four_sums(__m512 a, __m512 b, __m512 c, __m512 d) {
    __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    __m512 low = _mm512_shuffle_ps(ab, cd, 0x44), high = _mm512_shuffle_ps(ab, cd, 0xEE);
    __m512 all = _mm512_add_ps(low, high);  // a part of each sum in each quarter
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// `count` vectors of what one head found: weights (span,), values at `slot` → out.
static inline __attribute__((always_inline)) void average(
    const float *weights, const float *values, int64_t slot, int64_t span, __m512 by, float *out,
    const int count) {
    __m512 sums[VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < count; j++) sums[j] = _mm512_setzero_ps();
    for (int64_t s = 0; s < span; s++) {
        __m512 weight = _mm512_set1_ps(weights[s]);
#pragma GCC unroll 4
        for (int j = 0; j < count; j++)
            sums[j] = _mm512_fmadd_ps(weight, _mm512_loadu_ps(values + s * slot + LANES * j),
                                      sums[j]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < count; j++)
        _mm512_storeu_ps(out + LANES * j, _mm512_div_ps(sums[j], by));
}

// One head of one query where keys and values lie, `key` and `value` floats apart: q (width,),
// `span` slots → out (width,). Four slots at a time; behind the last one it is taken again, and its
// score is not looked at.
static void attend_head(const float *q, const float *keys, int64_t key, const float *values,
                        int64_t value, const uint8_t *open, int64_t span, int64_t width,
                        float scale, float *scores, float *out) {
    for (int64_t s = 0; s < span; s += 4) {
        const float *k[4];
        __m512 sums[4];
        for (int j = 0; j < 4; j++) {
            k[j] = keys + (s + j < span ? s + j : span - 1) * key;
            sums[j] = _mm512_setzero_ps();
        }
        for (int64_t i = 0; i < width; i += LANES) {
            __m512 part = _mm512_loadu_ps(q + i);
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                sums[j] = _mm512_fmadd_ps(part, _mm512_loadu_ps(k[j] + i), sums[j]);
        }
        _mm_storeu_ps(scores + s, four_sums(sums[0], sums[1], sums[2], sums[3]));
    }
    float top;
    __m512 by = _mm512_set1_ps(weigh(scores, span, up_to(span), open, scale, &top));
    int64_t i = 0;
    for (; i + LANES * VECTORS <= width; i += LANES * VECTORS)
        average(scores, values + i, value, span, by, out + i, VECTORS);
    for (; i < width; i += LANES) average(scores, values + i, value, span, by, out + i, 1);
}

// `vectors` vectors of sums for `count` queries: weights (count, n) times rows (n, …), each sum over
// its query's total where there is one.
static inline __attribute__((always_inline)) void combine(
    const float *weights, int64_t stride, const float *rows, int64_t row, int64_t n,
    const float *total, float *out, int64_t step, const int count, const int vectors) {
    __m512 sums[QUERIES][VECTORS];
#pragma GCC unroll 4
    for (int t = 0; t < count; t++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) sums[t][j] = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i++) {
        __m512 x[VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) x[j] = _mm512_loadu_ps(rows + i * row + LANES * j);
#pragma GCC unroll 4
        for (int t = 0; t < count; t++)
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                sums[t][j] =
                    _mm512_fmadd_ps(_mm512_set1_ps(weights[t * stride + i]), x[j], sums[t][j]);
    }
#pragma GCC unroll 4
    for (int t = 0; t < count; t++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            if (total) sums[t][j] = _mm512_div_ps(sums[t][j], _mm512_set1_ps(total[t]));
            _mm512_storeu_ps(out + t * step + LANES * j, sums[t][j]);
        }
}

// `count` queries of one head: q (count, width) at `stride` → out (count, width) at `step`.
static inline __attribute__((always_inline)) void attend_some(
    const float *q, int64_t stride, const float *turned, const float *close, const int64_t *seen,
    const uint8_t *const *open, int64_t padded, int64_t width, float scale, float *scores,
    float *out, int64_t step, const int count) {
    for (int64_t s = 0; s < padded; s += LANES * VECTORS) {
        const float *keys = turned + s;
        float *to = scores + s;
        switch ((padded - s) / LANES) {
            case 1: combine(q, stride, keys, padded, width, NULL, to, padded, count, 1); break;
            case 2: combine(q, stride, keys, padded, width, NULL, to, padded, count, 2); break;
            case 3: combine(q, stride, keys, padded, width, NULL, to, padded, count, 3); break;
            default: combine(q, stride, keys, padded, width, NULL, to, padded, count, 4);
        }
    }
    float total[QUERIES], top;
    for (int t = 0; t < count; t++)
        total[t] = weigh(scores + t * padded, seen[t], padded, open[t], scale, &top);
    int64_t i = 0, span = seen[count - 1];
    for (; i + LANES * VECTORS <= width; i += LANES * VECTORS)
        combine(scores, padded, close + i, width, span, total, out + i, step, count, VECTORS);
    for (; i < width; i += LANES)
        combine(scores, padded, close + i, width, span, total, out + i, step, count, 1);
}

// q: `sources` times `queries` rows of `heads` heads, row r at r · stride; out (rows, heads, width)
// without gaps. `heads` / `groups` neighbouring heads share a key. When `causal`, the last query
// sees all slots, the one before it all but the last, and so on. One query a source reads the keys
// where they are; for more, a head's keys and values are brought together first.
int attend(const float *q, int64_t stride, Tensor keys, Tensor values, Open open, float *out,
           int64_t sources, int64_t queries, int64_t heads, int64_t groups, int64_t width,
           int64_t span, int causal, int many, float scale) {
    int64_t padded = up_to(span), step = heads * width;
    float *scores = malloc((QUERIES * padded + width * padded + span * width) * sizeof(float));
    if (!scores) return 1;
    float *turned = scores + QUERIES * padded, *close = turned + width * padded;
    for (int64_t b = 0; b < sources; b++)
        for (int64_t h = 0; h < heads; h++) {
            int64_t g = h / (heads / groups);
            const float *k = place(&keys, b, g), *v = place(&values, b, g);
            if (many) {
                turn(k, keys.slot, span, padded, width, turned);
                copy(v, values.slot, span, width, close, width);
            }
            for (int64_t t = 0; t < queries;) {
                int count = many && queries >= QUERIES ? QUERIES : 1;
                if (t > queries - count) t = queries - count;  // some of the last once more
                const float *from = q + (b * queries + t) * stride + h * width;
                float *to = out + (b * queries + t) * step + h * width;
                int64_t seen[QUERIES];
                const uint8_t *may[QUERIES];
                for (int n = 0; n < count; n++) {
                    seen[n] = causal ? span - queries + t + n + 1 : span;
                    may[n] = open_to(&open, b, t + n);
                }
                if (!many)
                    attend_head(from, k, keys.slot, v, values.slot, *may, *seen, width, scale,
                                scores, to);
                else if (count == QUERIES)
                    attend_some(from, stride, turned, close, seen, may, padded, width, scale,
                                scores, to, step, QUERIES);
                else
                    attend_some(from, stride, turned, close, seen, may, padded, width, scale,
                                scores, to, step, 1);
                t += count;
            }
        }
    free(scores);
    return 0;
}

// Rows of scores -------------------------------------------------------------------------------

// Of each row of scores (rows, n): log Σ e^x, where the first of the largest is, and the largest of
// each `chunk` (a multiple of 16): maxima (rows, ⌈n / chunk⌉).
void summary(const float *scores, int64_t stride, int64_t rows, int64_t n, int64_t chunk,
             float *norm, int64_t *best, float *maxima) {
    int64_t chunks = (n + chunk - 1) / chunk;
    __m512 none = _mm512_set1_ps(-INFINITY);
    for (int64_t r = 0; r < rows; r++, scores += stride, maxima += chunks) {
        int64_t first = 0;
        for (int64_t c = 0; c < chunks; c++) {
            __m512 most = none;
            for (int64_t i = c * chunk; i < (c + 1) * chunk && i < n; i += LANES) {
                __mmask16 in = lanes(n - i);
                most = _mm512_max_ps(most, _mm512_mask_loadu_ps(none, in, scores + i));
            }
            maxima[c] = _mm512_reduce_max_ps(most);
            first = maxima[c] > maxima[first] ? c : first;
        }
        float top = maxima[first];
        int64_t at = first * chunk;
        while (at < n - 1 && scores[at] != top) at++;
        best[r] = at;
        __m512 total = _mm512_setzero_ps(), by = _mm512_set1_ps(top == -INFINITY ? 0 : top);
        for (int64_t i = 0; i < n; i += LANES) {
            __mmask16 in = lanes(n - i);
            __m512 x = _mm512_mask_loadu_ps(none, in, scores + i);
            __mmask16 seen = _mm512_cmp_ps_mask(x, none, _CMP_NEQ_UQ);
            total = _mm512_add_ps(
                total, _mm512_maskz_mov_ps(seen, exponential(_mm512_sub_ps(x, by))));
        }
        norm[r] = (top == -INFINITY ? 0 : top) + logf(_mm512_reduce_add_ps(total));
    }
}

typedef struct { float total, score; int64_t prefix, token; } Continuation;

static inline int before(const Continuation *a, const Continuation *b) {
    if (a->total != b->total) return a->total > b->total;
    return a->prefix == b->prefix && a->score > b->score;  // else who came first stays first
}

// The `count` best continuations of each source: of its `prefixes` rows of scores (…, n) with their
// norms and chunk maxima, as `summary` makes them, where a prefix has come to `sofar`. Best first,
// of equals the earlier prefix, then the higher score, then the lower token. Fewer than `count`
// possible ones are followed by -INFINITY, 0, 0.
int continuations(const float *scores, int64_t stride, int64_t sources, int64_t prefixes, int64_t n,
                  int64_t chunk, const float *norm, const float *maxima, const float *sofar,
                  int64_t count, float *value, int64_t *parent, int64_t *token) {
    int64_t chunks = (n + chunk - 1) / chunk;
    Continuation *best = malloc((count + 1) * sizeof(Continuation));
    if (!best) return 1;
    for (int64_t a = 0; a < sources; a++) {
        int64_t held = 0;
        for (int64_t p = 0; p < prefixes; p++) {
            int64_t row = a * prefixes + p;
            const float *x = scores + row * stride;
            for (int64_t c = 0; c < chunks; c++) {
                float most = maxima[row * chunks + c] - norm[row] + sofar[row];
                if (most == -INFINITY || (held == count && most < best[count - 1].total)) continue;
                for (int64_t i = c * chunk; i < (c + 1) * chunk && i < n; i++) {
                    Continuation new = {x[i] - norm[row] + sofar[row], x[i], p, i};
                    if (new.total == -INFINITY) continue;
                    if (held == count && !before(&new, best + count - 1)) continue;
                    int64_t at = held;
                    for (; at && before(&new, best + at - 1); at--) best[at] = best[at - 1];
                    best[at] = new;
                    held += held < count;
                }
            }
        }
        for (int64_t r = 0; r < count; r++) {
            value[a * count + r] = r < held ? best[r].total : -INFINITY;
            parent[a * count + r] = r < held ? best[r].prefix : 0;
            token[a * count + r] = r < held ? best[r].token : 0;
        }
    }
    free(best);
    return 0;
}

// Rows of a cache ------------------------------------------------------------------------------

// Row r of each tensor becomes what row from[r] was, as far as `size` floats of its `stride`. The
// rows of a group come from one group, and groups stay in their order, so that none is overwritten
// before it was read; copies of a group stay in a core's cache. Returns 0 when it is done.
int reorder(float *const *tensors, int64_t count, const int64_t *from, int64_t rows, int64_t group,
            int64_t stride, int64_t size) {
    for (int64_t r = 0; r < rows; r++) {
        int64_t before = r < group ? -1 : from[r - group] / group;
        if (from[r] / group <= before || from[r] / group != from[r - r % group] / group) return 1;
    }
    float *kept = malloc(group * size * sizeof(float) + 1);
    if (!kept) return 1;
    for (int64_t t = 0; t < count; t++)
        for (int64_t first = 0; first < rows; first += group) {
            for (int64_t r = first; r < first + group; r++)
                if (from[r] != r)
                    memcpy(kept + (r - first) * size, tensors[t] + from[r] * stride, 4 * size);
            for (int64_t r = first; r < first + group; r++)
                if (from[r] != r)
                    memcpy(tensors[t] + r * stride, kept + (r - first) * size, 4 * size);
        }
    free(kept);
    return 0;
}
