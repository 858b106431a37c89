// What the C files of the package share: vectors of sixteen floats.

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

enum { LANES = 16 };

// The first `left` lanes, at most all.
static inline __mmask16 lanes(int64_t left) {
    return left >= LANES ? 0xFFFF : left > 0 ? (1u << left) - 1 : 0;
}

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
