// What the C files of the package share: vectors of sixteen floats, and the parts of attention.

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 16 };

// The first `left` lanes, at most all.
static inline __mmask16 lanes(int64_t left) {
    return left >= LANES ? 0xFFFF : left > 0 ? (1u << left) - 1 : 0;
}

// The next multiple of sixteen.
static inline int64_t up_to(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

// e^x for x ≤ 0 to about one unit in the last place: 2^n times a polynomial of the rest. NaN stays.
static inline __m512 exponential(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-87.0f), x);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 y = _mm512_set1_ps(1.0f / 5040);
    const float rest[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    for (int i = 0; i < 7; i++) y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(rest[i]));
    return _mm512_scalef_ps(y, n);
}

// A tensor (batch, heads, length, width): floats between its batches, heads and positions.
typedef struct {
    float *at;
    int64_t batch, head, slot;
} Tensor;

static inline float *place(const Tensor *x, int64_t b, int64_t h) {
    return x->at + b * x->batch + h * x->head;
}

// Which keys may be seen: 1 or 0, bytes between the rows of two batches and of two queries.
typedef struct {
    const uint8_t *at;  // NULL: all
    int64_t batch, query;
} Open;

// The keys that query `t` of batch `b` may see; NULL: all.
static inline const uint8_t *open_to(const Open *open, int64_t b, int64_t t) {
    return open->at ? open->at + b * open->batch + t * open->query : NULL;
}

// The lanes from key `s` on that may be seen, of the first `seen`.
static inline __mmask16 visible(const uint8_t *open, int64_t s, int64_t seen) {
    __mmask16 in = lanes(seen - s);
    return open ? _mm_test_epi8_mask(_mm_maskz_loadu_epi8(in, open + s), _mm_set1_epi8(1)) : in;
}

// Sixteen vectors change rows for columns.
static inline void turn_square(__m512 x[LANES]) {
    __m512 y[LANES];
    for (int i = 0; i < LANES; i += 2) {
        y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4)
        for (int j = 0; j < 2; j++) {
            __m512d a = _mm512_castps_pd(y[i + j]), b = _mm512_castps_pd(y[i + j + 2]);
            x[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            x[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    for (int i = 0; i < LANES; i += 8)
        for (int j = i; j < i + 4; j++) {
            y[j] = _mm512_shuffle_f32x4(x[j], x[j + 4], 0x88);
            y[j + 4] = _mm512_shuffle_f32x4(x[j], x[j + 4], 0xDD);
        }
    for (int i = 0; i < 8; i++) {
        x[i] = _mm512_shuffle_f32x4(y[i], y[i + 8], 0x88);
        x[i + 8] = _mm512_shuffle_f32x4(y[i], y[i + 8], 0xDD);
    }
}

// (length, width), rows `slot` floats apart → (width, padded), zeros behind the last. Width and
// padded are multiples of sixteen.
static inline void turn(const float *x, int64_t slot, int64_t length, int64_t padded,
                        int64_t width, float *out) {
    for (int64_t s = 0; s < padded; s += LANES)
        for (int64_t i = 0; i < width; i += LANES) {
            __m512 square[LANES];
            for (int64_t j = 0; j < LANES; j++)
                square[j] = s + j < length ? _mm512_loadu_ps(x + (s + j) * slot + i)
                                           : _mm512_setzero_ps();
            turn_square(square);
            for (int64_t j = 0; j < LANES; j++)
                _mm512_storeu_ps(out + (i + j) * padded + s, square[j]);
        }
}

// (length, width), rows `slot` floats apart → rows `under` floats apart.
static inline void copy(const float *x, int64_t slot, int64_t length, int64_t width, float *out,
                        int64_t under) {
    for (int64_t s = 0; s < length; s++) memcpy(out + s * under, x + s * slot, 4 * width);
}

// Scores (padded,) of one query → e^(scale score − top), zero for keys that it may not see; their
// sum is returned. `top` is the largest of scale score.
static inline float weigh(float *scores, int64_t seen, int64_t padded, const uint8_t *open,
                          float scale, float *top) {
    __m512 none = _mm512_set1_ps(-INFINITY), most = none, by = _mm512_set1_ps(scale);
    for (int64_t s = 0; s < padded; s += LANES) {
        __mmask16 in = visible(open, s, seen);
        __m512 x = _mm512_mask_mul_ps(none, in, _mm512_loadu_ps(scores + s), by);
        most = _mm512_max_ps(most, x);
        _mm512_storeu_ps(scores + s, x);
    }
    *top = _mm512_reduce_max_ps(most);
    __m512 total = _mm512_setzero_ps(), less = _mm512_set1_ps(*top);
    for (int64_t s = 0; s < padded; s += LANES) {
        __m512 x = _mm512_loadu_ps(scores + s);
        __mmask16 in = _mm512_cmp_ps_mask(x, none, _CMP_NEQ_UQ);
        x = _mm512_maskz_mov_ps(in, exponential(_mm512_sub_ps(x, less)));
        total = _mm512_add_ps(total, x);
        _mm512_storeu_ps(scores + s, x);
    }
    return _mm512_reduce_add_ps(total);
}
