// What the C files of the package share: vectors of sixteen floats, and the parts of attention.
//
// A vector is one register with AVX-512 and two with AVX2. Both round and add up in the same order,
// so a result has the same bits on either.

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 16 };

#ifdef __AVX512F__

typedef __m512 Floats;
typedef __mmask16 Mask;

static inline Floats load(const float *x) { return _mm512_loadu_ps(x); }
static inline Floats load_some(Floats rest, Mask in, const float *x) {
    return _mm512_mask_loadu_ps(rest, in, x);
}
static inline void store(float *x, Floats v) { _mm512_storeu_ps(x, v); }
static inline void store_some(float *x, Mask in, Floats v) { _mm512_mask_storeu_ps(x, in, v); }
static inline Floats all(float x) { return _mm512_set1_ps(x); }
static inline Floats plus(Floats a, Floats b) { return _mm512_add_ps(a, b); }
static inline Floats minus(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
static inline Floats times(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
static inline Floats over(Floats a, Floats b) { return _mm512_div_ps(a, b); }
static inline Floats fused(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
static inline Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }  // b if one is NaN
static inline Floats size_of(Floats a) { return _mm512_abs_ps(a); }
static inline Floats pick(Mask in, Floats a, Floats b) { return _mm512_mask_mov_ps(b, in, a); }
static inline Mask differ(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ); }

static inline Floats whole_part(Floats x) { return _mm512_roundscale_ps(x, 8); }
static inline Floats power_of_two(Floats y, Floats n) { return _mm512_scalef_ps(y, n); }

static inline __m256 both_halves(Floats a, __m256 (*op)(__m256, __m256)) {
    return op(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}

#else

typedef struct { __m256 a, b; } Floats;
typedef uint16_t Mask;

#define EACH(op, x, y) ((Floats){op((x).a, (y).a), op((x).b, (y).b)})

// All bits of a lane for each bit of a mask.
static inline __m256i spread(unsigned in) {
    __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(in), bits), bits);
}

static inline Floats pick(Mask in, Floats a, Floats b) {
    return (Floats){_mm256_blendv_ps(b.a, a.a, _mm256_castsi256_ps(spread(in))),
                    _mm256_blendv_ps(b.b, a.b, _mm256_castsi256_ps(spread(in >> 8)))};
}
static inline Floats load(const float *x) {
    return (Floats){_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)};
}
static inline Floats load_some(Floats rest, Mask in, const float *x) {
    Floats v = {_mm256_maskload_ps(x, spread(in)), _mm256_maskload_ps(x + 8, spread(in >> 8))};
    return pick(in, v, rest);
}
static inline void store(float *x, Floats v) {
    _mm256_storeu_ps(x, v.a);
    _mm256_storeu_ps(x + 8, v.b);
}
static inline void store_some(float *x, Mask in, Floats v) {
    _mm256_maskstore_ps(x, spread(in), v.a);
    _mm256_maskstore_ps(x + 8, spread(in >> 8), v.b);
}
static inline Floats all(float x) { return (Floats){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline Floats plus(Floats x, Floats y) { return EACH(_mm256_add_ps, x, y); }
static inline Floats minus(Floats x, Floats y) { return EACH(_mm256_sub_ps, x, y); }
static inline Floats times(Floats x, Floats y) { return EACH(_mm256_mul_ps, x, y); }
static inline Floats over(Floats x, Floats y) { return EACH(_mm256_div_ps, x, y); }
static inline Floats fused(Floats x, Floats y, Floats z) {
    return (Floats){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
static inline Floats larger(Floats x, Floats y) { return EACH(_mm256_max_ps, x, y); }
static inline Floats size_of(Floats x) {
    Floats sign = all(-0.0f);
    return EACH(_mm256_andnot_ps, sign, x);
}
static inline Mask differ(Floats x, Floats y) {
    int a = _mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_NEQ_UQ));
    return a | _mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_NEQ_UQ)) << 8;
}

static inline Floats whole_part(Floats x) {
    return (Floats){_mm256_round_ps(x.a, 8), _mm256_round_ps(x.b, 8)};
}
// y 2^n, for n from −126 to 0.
static inline __m256 half_power(__m256 y, __m256 n) {
    __m256i bits = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(y, _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23)));
}
static inline Floats power_of_two(Floats y, Floats n) { return EACH(half_power, y, n); }

static inline __m256 both_halves(Floats x, __m256 (*op)(__m256, __m256)) { return op(x.a, x.b); }

#endif

static inline Floats none(void) { return all(0.0f); }

static inline __m256 add_halves(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
static inline __m256 max_halves(__m256 a, __m256 b) { return _mm256_max_ps(a, b); }

// The sum of a vector: half to half, quarter to quarter, and so on.
static inline float sum_of(Floats x) {
    __m256 half = both_halves(x, add_halves);
    __m128 four = _mm_add_ps(_mm256_extractf128_ps(half, 1), _mm256_castps256_ps128(half));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

static inline float largest_of(Floats x) {
    __m256 half = both_halves(x, max_halves);
    __m128 four = _mm_max_ps(_mm256_extractf128_ps(half, 1), _mm256_castps256_ps128(half));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

// The first `left` lanes, at most all.
static inline Mask lanes(int64_t left) {
    return left >= LANES ? 0xFFFF : left > 0 ? (1u << left) - 1 : 0;
}

// The next multiple of sixteen.
static inline int64_t up_to(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

// e^x for x ≤ 0 to about one unit in the last place: 2^n times a polynomial of the rest. NaN stays.
static inline Floats exponential(Floats x) {
    x = larger(all(-87.0f), x);
    Floats n = whole_part(times(x, all(1.44269504f)));
    Floats r = fused(n, all(-0.693359375f), x);
    r = fused(n, all(2.12194440e-4f), r);
    Floats y = all(1.0f / 5040);
    const float rest[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    for (int i = 0; i < 7; i++) y = fused(y, r, all(rest[i]));
    return power_of_two(y, n);
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
static inline Mask visible(const uint8_t *open, int64_t s, int64_t seen) {
    Mask in = lanes(seen - s);
    if (!open) return in;
#ifdef __AVX512F__
    return _mm_test_epi8_mask(_mm_maskz_loadu_epi8(in, open + s), _mm_set1_epi8(1));
#else
    for (int i = 0; i < LANES; i++)
        if (in >> i & 1 && !(open[s + i] & 1)) in &= ~(1u << i);
    return in;
#endif
}

#ifdef __AVX512F__
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
#endif

// (length, width), rows `slot` floats apart → (width, padded), zeros behind the last. Width and
// padded are multiples of sixteen.
static inline void turn(const float *x, int64_t slot, int64_t length, int64_t padded,
                        int64_t width, float *out) {
#ifdef __AVX512F__
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
#else
    for (int64_t s = 0; s < padded; s++)
        for (int64_t i = 0; i < width; i++)
            out[i * padded + s] = s < length ? x[s * slot + i] : 0;
#endif
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
    Floats never = all(-INFINITY), most = never, by = all(scale);
    for (int64_t s = 0; s < padded; s += LANES) {
        Floats x = pick(visible(open, s, seen), times(load(scores + s), by), never);
        most = larger(most, x);
        store(scores + s, x);
    }
    *top = largest_of(most);
    Floats total = none(), less = all(*top);
    for (int64_t s = 0; s < padded; s += LANES) {
        Floats x = load(scores + s);
        x = pick(differ(x, never), exponential(minus(x, less)), none());
        total = plus(total, x);
        store(scores + s, x);
    }
    return sum_of(total);
}
