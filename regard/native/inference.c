// Products of bytes, attention, norms and searches for the best, on CPUs with AVX-512 VNNI or AVX2.
//
// A row's result depends on that row alone: sums of whole numbers are exact in any order, and
// floats are added in an order that does not know the other rows.

#include "vector.h"

#include <stdlib.h>

enum { LEVELS = 127 };

// int8 products ---------------------------------------------------------------------------------

// Vectors of sixteen 32-bit sums, of four bytes of sixteen weights, and four bytes of a row.
// `dot` adds the products of these to those. `MIDDLE` is how much higher weights are stored.
#ifdef __AVX512F__

#define TILE 6
enum { VECTORS = 4, MIDDLE = 128 };
typedef __m512i Ints;
typedef __m512i Word;

static inline Ints load_bytes(const uint8_t *w) { return _mm512_loadu_si512(w); }
static inline Ints no_sum(void) { return _mm512_setzero_si512(); }
static inline Word word(const int8_t *x) { return _mm512_set1_epi32(*(const int32_t *)x); }
static inline Ints dot(Ints sum, Ints w, Word x) { return _mm512_dpbusd_epi32(sum, w, x); }
static inline Floats less_sum(Ints sum, int32_t less) {
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, _mm512_set1_epi32(less)));
}

// Sixteen floats as bytes, which are added to `total`.
static inline Ints round_lanes(Floats v, int8_t *whole, Ints total) {
    __m128i bytes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v));
    _mm_storeu_si128((__m128i *)whole, bytes);
    return _mm512_add_epi32(total, _mm512_cvtepi8_epi32(bytes));
}

// What `MIDDLE` adds to a product of a row.
static inline int32_t excess(Ints total) { return MIDDLE * _mm512_reduce_add_epi32(total); }

#else

// Bytes times bytes are added in pairs to 16 bits: that holds 2 · 127 · 127, so one factor is made
// positive and its sign given to the other.
#define TILE 4
enum { VECTORS = 1, MIDDLE = 0 };
typedef struct { __m256i a, b; } Ints;
typedef struct { __m256i size, sign; } Word;

static inline Ints load_bytes(const uint8_t *w) {
    const __m256i *at = (const __m256i *)w;
    return (Ints){_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}
static inline Ints no_sum(void) { return (Ints){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
static inline Word word(const int8_t *x) {
    __m256i each = _mm256_set1_epi32(*(const int32_t *)x);
    return (Word){_mm256_abs_epi8(each), each};
}
static inline __m256i half_dot(__m256i sum, __m256i w, Word x) {
    __m256i pairs = _mm256_maddubs_epi16(x.size, _mm256_sign_epi8(w, x.sign));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
static inline Ints dot(Ints sum, Ints w, Word x) {
    return (Ints){half_dot(sum.a, w.a, x), half_dot(sum.b, w.b, x)};
}
static inline Floats less_sum(Ints sum, int32_t less) {
    (void)less;  // nothing was added
    return (Floats){_mm256_cvtepi32_ps(sum.a), _mm256_cvtepi32_ps(sum.b)};
}

static inline Ints round_lanes(Floats v, int8_t *whole, Ints total) {
    __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b));
    words = _mm256_permute4x64_epi64(words, 0xD8);
    __m128i low = _mm256_castsi256_si128(words), high = _mm256_extracti128_si256(words, 1);
    _mm_storeu_si128((__m128i *)whole, _mm_packs_epi16(low, high));
    return total;
}

static inline int32_t excess(Ints total) {
    (void)total;
    return 0;
}

#endif

enum { PANEL = LANES * VECTORS };

// A linear map: weights as `pack` made them, the step of each output, a bias or NULL.
typedef struct {
    const uint8_t *packed;
    const float *step, *bias;
    int64_t n, k;
} Map;

// Four bytes of one row of weights.
static inline uint32_t group(const int8_t *row, int64_t k, int64_t g) {
    uint8_t bytes[4];
    for (int64_t i = 0; i < 4; i++) bytes[i] = MIDDLE + (4 * g + i < k ? row[4 * g + i] : 0);
    uint32_t joined;
    memcpy(&joined, bytes, 4);
    return joined;
}

// Rows of a weight (…, k), `rows` of them or all n, → panels of some outputs: [n / panel][k / 4]
// [panel][4] bytes, each `MIDDLE` higher.
static void pack_rows(const int8_t *weight, const int64_t *rows, int64_t n, int64_t k,
                      uint8_t *out) {
    int64_t groups = (k + 3) / 4;
    for (int64_t first = 0; first < n; first += PANEL, out += 4 * groups * PANEL)
        for (int64_t j = 0; j < PANEL; j++) {
            int64_t at = first + j;
            const int8_t *row = at < n ? weight + (rows ? rows[at] : at) * k : NULL;
            for (int64_t g = 0; g < groups; g++) {
                uint32_t bytes = row ? group(row, k, g) : MIDDLE * 0x01010101u;
                memcpy(out + 4 * (g * PANEL + j), &bytes, 4);
            }
        }
}

void pack(const int8_t *weight, int64_t n, int64_t k, uint8_t *out) {
    pack_rows(weight, NULL, n, k, out);
}

// Weight (n, k) → whole numbers and the step of each row: its largest size is 127 steps. What is no
// number is 0.
void to_levels(const float *weight, int64_t n, int64_t k, int8_t *whole, float *step) {
    for (int64_t r = 0; r < n; r++, weight += k, whole += k) {
        Floats most = none();
        Mask odd = 0;
        for (int64_t i = 0; i < k; i += LANES) {
            Floats v = load_some(none(), lanes(k - i), weight + i);
            odd |= differ(v, v);
            most = larger(most, size_of(v));
        }
        step[r] = odd ? NAN : largest_of(most) / LEVELS;
        Floats by = all(step[r]);
        for (int64_t i = 0; i < k; i += LANES) {
            float rounded[LANES];
            Floats v = whole_part(over(load_some(none(), lanes(k - i), weight + i), by));
            v = pick(differ(v, v), none(), v);
            store(rounded, v);
            for (int64_t j = 0; j < LANES && i + j < k; j++) {
                float x = rounded[j];  // a row of the least numbers has step 0
                whole[i + j] = x > LEVELS ? LEVELS : x < -LEVELS ? -LEVELS : (int8_t)x;
            }
        }
    }
}

// Rows as whole numbers: bytes (m, padded), the step of each, and the sum that undoes `MIDDLE`.
typedef struct {
    int8_t *whole;
    float *scale;
    int32_t *sum;
    int64_t padded;
} Rows;

// The bytes that m rows of k numbers take.
static int64_t rows_size(int64_t m, int64_t k) {
    return m * (up_to(k) + sizeof(float) + sizeof(int32_t));
}

static Rows rows_at(void *at, int64_t m, int64_t k) {
    float *scale = at;
    return (Rows){(int8_t *)(scale + 2 * m), scale, (int32_t *)(scale + m), up_to(k)};
}

// A row as whole numbers of its own step.
static void round_row(const float *x, int64_t k, const Rows *rows, int64_t r) {
    Floats most = none();
    Mask odd = 0;
    for (int64_t i = 0; i < k; i += LANES) {
        Floats v = load_some(none(), lanes(k - i), x + i);
        odd |= differ(v, v);
        most = larger(most, size_of(v));
    }
    float peak = odd ? NAN : largest_of(most);
    Floats by = all(peak > 0 ? peak : 1), levels = all(LEVELS);
    Ints total = no_sum();
    for (int64_t i = 0; i < rows->padded; i += LANES) {
        Floats v = times(over(load_some(none(), lanes(k - i), x + i), by), levels);
        total = round_lanes(v, rows->whole + r * rows->padded + i, total);
    }
    rows->sum[r] = excess(total);
    rows->scale[r] = peak / LEVELS;
}

// What becomes of the outputs: as they are, negative ones zero, or added to what is there.
typedef enum { PLAIN, RELU, ADD } Then;

// `count` rows from `row` on times one panel of weights.
static inline __attribute__((always_inline)) void tile(const Map *map, const Rows *rows,
                                                       int64_t first, int64_t row, float *out,
                                                       int64_t stride, Then then, const int count) {
    Ints sums[TILE][VECTORS];
    const int8_t *whole = rows->whole + row * rows->padded;
    int64_t groups = (map->k + 3) / 4;
    const uint8_t *weight = map->packed + first * groups * 4;
#pragma GCC unroll 6
    for (int r = 0; r < count; r++)
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) sums[r][j] = no_sum();
    for (int64_t g = 0; g < groups; g++, weight += 4 * PANEL) {
        Ints w[VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) w[j] = load_bytes(weight + 64 * j);
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            Word x = word(whole + r * rows->padded + 4 * g);
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS; j++) sums[r][j] = dot(sums[r][j], w[j], x);
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) {
        int64_t at = first + LANES * j, left = map->n - at;
        if (left <= 0) break;
        Mask in = lanes(left);
        Floats step = load_some(none(), in, map->step + at);
        Floats bias = map->bias ? load_some(none(), in, map->bias + at) : none();
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            float *to = out + (row + r) * stride + at;
            Floats v = times(less_sum(sums[r][j], rows->sum[row + r]), all(rows->scale[row + r]));
            v = times(v, step);
            if (map->bias) v = plus(v, bias);
            if (then == RELU) v = larger(none(), v);
            if (then == ADD) v = plus(load_some(none(), in, to), v);
            store_some(to, in, v);
        }
    }
}

static void panel(const Map *map, const Rows *rows, int64_t first, int64_t m, float *out,
                  int64_t stride, Then then) {
    int64_t row = 0;
    for (; row + TILE <= m; row += TILE) tile(map, rows, first, row, out, stride, then, TILE);
    switch (m - row) {
#if TILE > 4
        case 5: tile(map, rows, first, row, out, stride, then, 5); break;
        case 4: tile(map, rows, first, row, out, stride, then, 4); break;
#endif
        case 3: tile(map, rows, first, row, out, stride, then, 3); break;
        case 2: tile(map, rows, first, row, out, stride, then, 2); break;
        case 1: tile(map, rows, first, row, out, stride, then, 1); break;
    }
}

// m rows → out (m, n), its rows `stride` floats apart.
static void multiply(const Map *map, const Rows *rows, int64_t m, float *out, int64_t stride,
                     Then then) {
    for (int64_t i = 0; i < map->n; i += PANEL) panel(map, rows, i, m, out, stride, then);
}

// A product that some threads share, by panels.
typedef struct {
    const Map *map;
    const Rows *rows;
    int64_t m, stride;
    float *out;
} Shared;

// The threads are those of torch, which brings GNU's or LLVM's OpenMP; without them there is one.
#pragma weak GOMP_parallel
#pragma weak omp_get_thread_num
#pragma weak omp_get_num_threads
void GOMP_parallel(void (*work)(void *), void *data, unsigned threads, unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);

static void multiply_share(void *data) {
    const Shared *s = data;
    int64_t each = PANEL * omp_get_num_threads();
    for (int64_t i = PANEL * omp_get_thread_num(); i < s->map->n; i += each)
        panel(s->map, s->rows, i, s->m, s->out, s->stride, PLAIN);
}

// x (m, k) → out (m, n). Returns 0, or 1 when there is no memory.
int product(const float *x, Map map, float *out, int64_t m, int threads) {
    void *room = malloc(rows_size(m, map.k) + 1);
    if (!room) return 1;
    Rows rows = rows_at(room, m, map.k);
    for (int64_t r = 0; r < m; r++) round_row(x + r * map.k, map.k, &rows, r);
    Shared shared = {&map, &rows, m, map.n, out};
    if (threads > 1 && m * map.n * map.k > 1 << 20 && GOMP_parallel)
        GOMP_parallel(multiply_share, &shared, threads, 0);
    else
        multiply(&map, &rows, m, out, map.n, PLAIN);
    free(room);
    return 0;
}

// Norms -----------------------------------------------------------------------------------------

// The weight and bias of a layer norm.
typedef struct {
    const float *weight, *bias;
    float eps;
} Norm;

// One row of n numbers, a multiple of sixteen: (x − mean) / sqrt(variance + eps) · weight + bias.
static void normalise_row(const Norm *norm, const float *x, int64_t n, float *out) {
    Floats total = none(), squares = none();
    for (int64_t i = 0; i < n; i += LANES) total = plus(total, load(x + i));
    Floats mean = all(sum_of(total) / n);
    for (int64_t i = 0; i < n; i += LANES) {
        Floats v = minus(load(x + i), mean);
        squares = fused(v, v, squares);
    }
    Floats by = all(1.0f / sqrtf(sum_of(squares) / n + norm->eps));
    for (int64_t i = 0; i < n; i += LANES) {
        Floats v = times(minus(load(x + i), mean), by);
        store(out + i, fused(v, load(norm->weight + i), load(norm->bias + i)));
    }
}

void normalise(const float *x, Norm norm, float *out, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; r++) normalise_row(&norm, x + r * n, n, out + r * n);
}

// Attention -------------------------------------------------------------------------------------

enum { QUERIES = 4, WIDE = 4 };  // that share what is loaded; vectors that are summed at once

// Four sums, their parts in the four quarters of a vector.
#define PAIRS(bits, a, b) bits##_add_ps(bits##_unpacklo_ps(a, b), bits##_unpackhi_ps(a, b))
#define QUARTERS(bits, ab, cd) \
    bits##_add_ps(bits##_shuffle_ps(ab, cd, 0x44), bits##_shuffle_ps(ab, cd, 0xEE))

// The sums of four vectors.
static inline __m128 four_sums(Floats a, Floats b, Floats c, Floats d) {
#ifdef __AVX512F__
    Floats quarters = QUARTERS(_mm512, PAIRS(_mm512, a, b), PAIRS(_mm512, c, d));
#else
    Floats quarters = {QUARTERS(_mm256, PAIRS(_mm256, a.a, b.a), PAIRS(_mm256, c.a, d.a)),
                       QUARTERS(_mm256, PAIRS(_mm256, a.b, b.b), PAIRS(_mm256, c.b, d.b))};
#endif
    __m256 half = both_halves(quarters, add_halves);
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// Keys and values of one head: slot s is `key` or `value` floats times at[s], or times s, away.
typedef struct {
    const float *keys, *values;
    int64_t key, value;
    const int32_t *at;  // NULL: slots in order
} Past;

static inline int64_t slot_of(const Past *past, int64_t s) { return past->at ? past->at[s] : s; }

// `count` vectors of what one head found: weights (span,) times values from their number `i` on.
static inline __attribute__((always_inline)) void average(
    const float *weights, const Past *past, int64_t i, int64_t span, Floats by, float *out,
    const int count) {
    Floats sums[WIDE];
#pragma GCC unroll 4
    for (int j = 0; j < count; j++) sums[j] = none();
    for (int64_t s = 0; s < span; s++) {
        const float *values = past->values + slot_of(past, s) * past->value + i;
        Floats weight = all(weights[s]);
#pragma GCC unroll 4
        for (int j = 0; j < count; j++) sums[j] = fused(weight, load(values + LANES * j), sums[j]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < count; j++) store(out + i + LANES * j, over(sums[j], by));
}

// One head of one query where keys and values lie: q (width,), `span` slots → out (width,). Four
// slots at a time; behind the last one it is taken again, and its score is not looked at. Scores
// become weights, whose sum is returned.
static float attend_head(const float *q, const Past *past, const uint8_t *open, int64_t span,
                         int64_t width, float scale, float *scores, float *out) {
    for (int64_t s = 0; s < span; s += 4) {
        const float *k[4];
        Floats sums[4];
        for (int j = 0; j < 4; j++) {
            k[j] = past->keys + slot_of(past, s + j < span ? s + j : span - 1) * past->key;
            sums[j] = none();
        }
        for (int64_t i = 0; i < width; i += LANES) {
            Floats part = load(q + i);
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) sums[j] = fused(part, load(k[j] + i), sums[j]);
        }
        _mm_storeu_ps(scores + s, four_sums(sums[0], sums[1], sums[2], sums[3]));
    }
    float top, total = weigh(scores, span, up_to(span), open, scale, &top);
    Floats by = all(total);
    int64_t i = 0;
    for (; i + LANES * WIDE <= width; i += LANES * WIDE)
        average(scores, past, i, span, by, out, WIDE);
    for (; i < width; i += LANES) average(scores, past, i, span, by, out, 1);
    return total;
}

// `vectors` vectors of sums for `count` queries: weights (count, n) times rows (n, …), each sum over
// its query's total where there is one.
static inline __attribute__((always_inline)) void combine(
    const float *weights, int64_t stride, const float *rows, int64_t row, int64_t n,
    const float *total, float *out, int64_t step, const int count, const int vectors) {
    Floats sums[QUERIES][WIDE];
#pragma GCC unroll 4
    for (int t = 0; t < count; t++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) sums[t][j] = none();
    for (int64_t i = 0; i < n; i++) {
        Floats x[WIDE];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) x[j] = load(rows + i * row + LANES * j);
#pragma GCC unroll 4
        for (int t = 0; t < count; t++)
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                sums[t][j] = fused(all(weights[t * stride + i]), x[j], sums[t][j]);
    }
#pragma GCC unroll 4
    for (int t = 0; t < count; t++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            if (total) sums[t][j] = over(sums[t][j], all(total[t]));
            store(out + t * step + LANES * j, sums[t][j]);
        }
}

// `count` queries of one head: q (count, width) at `stride` → out (count, width) at `step`.
static inline __attribute__((always_inline)) void attend_some(
    const float *q, int64_t stride, const float *turned, const float *close, const int64_t *seen,
    const uint8_t *const *open, int64_t padded, int64_t width, float scale, float *scores,
    float *out, int64_t step, const int count) {
    for (int64_t s = 0; s < padded; s += LANES * WIDE) {
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
    for (; i + LANES * WIDE <= width; i += LANES * WIDE)
        combine(scores, padded, close + i, width, span, total, out + i, step, count, WIDE);
    for (; i < width; i += LANES)
        combine(scores, padded, close + i, width, span, total, out + i, step, count, 1);
}

// The floats that attention to `span` slots needs as room.
static int64_t attend_size(int64_t span, int64_t width) {
    return (QUERIES + width) * up_to(span) + span * width;
}

// q: `sources` times `queries` rows of `heads` heads, row r at r · stride; out (rows, heads, width)
// without gaps. `heads` / `groups` neighbouring heads share a key. When `causal`, the last query
// sees all slots, the one before it all but the last, and so on. One query a source reads the keys
// where they are; for more, a head's keys and values are brought together first.
static void attend_in(float *scores, const float *q, int64_t stride, Tensor keys, Tensor values,
                      Open open, float *out, int64_t sources, int64_t queries, int64_t heads,
                      int64_t groups, int64_t width, int64_t span, int causal, int many,
                      float scale) {
    int64_t padded = up_to(span), step = heads * width;
    float *turned = scores + QUERIES * padded, *close = turned + width * padded;
    for (int64_t b = 0; b < sources; b++)
        for (int64_t h = 0; h < heads; h++) {
            int64_t g = h / (heads / groups);
            Past past = {place(&keys, b, g), place(&values, b, g), keys.slot, values.slot, NULL};
            if (many) {
                turn(past.keys, keys.slot, span, padded, width, turned);
                copy(past.values, values.slot, span, width, close, width);
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
                    attend_head(from, &past, *may, *seen, width, scale, scores, to);
                else if (count == QUERIES)
                    attend_some(from, stride, turned, close, seen, may, padded, width, scale,
                                scores, to, step, QUERIES);
                else
                    attend_some(from, stride, turned, close, seen, may, padded, width, scale,
                                scores, to, step, 1);
                t += count;
            }
        }
}

// Returns 0, or 1 when there is no memory.
int attend(const float *q, int64_t stride, Tensor keys, Tensor values, Open open, float *out,
           int64_t sources, int64_t queries, int64_t heads, int64_t groups, int64_t width,
           int64_t span, int causal, int many, float scale) {
    float *room = malloc(attend_size(span, width) * sizeof(float));
    if (!room) return 1;
    attend_in(room, q, stride, keys, values, open, out, sources, queries, heads, groups, width,
              span, causal, many, scale);
    free(room);
    return 0;
}

// Rows of scores -------------------------------------------------------------------------------

// Of each row of scores (rows, n): log Σ e^x, where the first of the largest is, and the largest of
// each `chunk` (a multiple of 16): maxima (rows, ⌈n / chunk⌉).
void summary(const float *scores, int64_t stride, int64_t rows, int64_t n, int64_t chunk,
             float *norm, int64_t *best, float *maxima) {
    int64_t chunks = (n + chunk - 1) / chunk;
    Floats never = all(-INFINITY);
    for (int64_t r = 0; r < rows; r++, scores += stride, maxima += chunks) {
        int64_t first = 0;
        for (int64_t c = 0; c < chunks; c++) {
            Floats most = never;
            for (int64_t i = c * chunk; i < (c + 1) * chunk && i < n; i += LANES)
                most = larger(most, load_some(never, lanes(n - i), scores + i));
            maxima[c] = largest_of(most);
            first = maxima[c] > maxima[first] ? c : first;
        }
        float top = maxima[first];
        int64_t at = first * chunk;
        while (at < n - 1 && scores[at] != top) at++;
        best[r] = at;
        Floats total = none(), by = all(top == -INFINITY ? 0 : top);
        for (int64_t i = 0; i < n; i += LANES) {
            Floats x = load_some(never, lanes(n - i), scores + i);
            total = plus(total, pick(differ(x, never), exponential(minus(x, by)), none()));
        }
        norm[r] = (top == -INFINITY ? 0 : top) + logf(sum_of(total));
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

#include "encoder_decoder.h"
