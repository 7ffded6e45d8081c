/* What the C files share: names of functions that say what they were compiled for, numbers as they are stored, vectors, and the kernel
   that others call. */

#pragma once
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define JOIN_(name, suffix) name##_##suffix
#define JOIN(name, suffix) JOIN_(name, suffix)
#define EXPORT(name) JOIN(name, SUFFIX)
#define INLINE static inline __attribute__((always_inline))

enum kind { FLOAT32, FLOAT16, BFLOAT16, FLOAT64 };

#if defined(__AVX512F__)
#define VECTOR 64
#elif defined(__AVX2__)
#define VECTOR 32
#else
#define VECTOR 16
#endif
#define LANES ((int)(VECTOR / sizeof(REAL)))
#define COLUMNS 16 /* of a tile: what lies together in memory, a cache line of floats */

typedef REAL vec __attribute__((vector_size(VECTOR)));
typedef INTEGER mask __attribute__((vector_size(VECTOR))); /* of comparisons, and the bits of a vec */
typedef REAL anywhere __attribute__((vector_size(VECTOR), aligned(1), may_alias));
typedef INTEGER mask_anywhere __attribute__((vector_size(VECTOR), aligned(1), may_alias));

INLINE vec load(const REAL *p) { return *(const anywhere *)p; }
INLINE void store(REAL *p, vec v) { *(anywhere *)p = v; }
INLINE vec pick(mask which, vec a, vec b) { return (vec)(((mask)a & which) | ((mask)b & ~which)); }

/* Bit i: whether lane i of a comparison holds. */
INLINE uint64_t bits_of(mask which) {
#if defined(__AVX512F__)
    return sizeof(REAL) == 4 ? _mm512_movepi32_mask((__m512i)which) : _mm512_movepi64_mask((__m512i)which);
#elif defined(__AVX2__)
    return (uint64_t)(sizeof(REAL) == 4 ? _mm256_movemask_ps((__m256)which) : _mm256_movemask_pd((__m256d)which));
#else
    uint64_t bits = 0;
    for (int i = 0; i < LANES; i++) bits |= (uint64_t)(which[i] & 1) << i;
    return bits;
#endif
}

/* Largest lane; none may be NaN. */
INLINE REAL highest(vec v) {
#if defined(__AVX512F__)
    return sizeof(REAL) == 4 ? (REAL)_mm512_reduce_max_ps((__m512)v) : (REAL)_mm512_reduce_max_pd((__m512d)v);
#else
    REAL top = v[0];
    for (int i = 1; i < LANES; i++) top = v[i] > top ? v[i] : top;
    return top;
#endif
}

INLINE vec square_root(vec v) {
#if defined(__AVX512F__)
    return sizeof(REAL) == 4 ? (vec)_mm512_sqrt_ps((__m512)v) : (vec)_mm512_sqrt_pd((__m512d)v);
#elif defined(__AVX2__)
    return sizeof(REAL) == 4 ? (vec)_mm256_sqrt_ps((__m256)v) : (vec)_mm256_sqrt_pd((__m256d)v);
#else
    for (int i = 0; i < LANES; i++) v[i] = (REAL)__builtin_sqrt((double)v[i]);
    return v;
#endif
}

/* exp(x) for x from -87 (float) or -700 (double) to 0: 2^n times a polynomial on [-log(2)/2, log(2)/2]. */
INLINE vec exponential(vec x) {
    static const REAL over[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                                1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1, 1};
    const int is_float = sizeof(REAL) == 4, bits = is_float ? 23 : 52, first = is_float ? 6 : 0;
    const REAL round = (REAL)(is_float ? 0x1.8p23 : 0x1.8p52);
    const REAL high = (REAL)(is_float ? 0x1.62ep-1 : 0x1.62e42fefap-1), low = (REAL)(0x1.62e42fefa39efp-1 - (double)high);
    vec shifted = x * (REAL)1.44269504088896340736 + round;
    vec n = shifted - round;
    vec rest = x - n * high - n * low;
    vec sum = (vec){0} + over[first];
#pragma GCC unroll 14
    for (int i = first + 1; i < 14; i++) sum = sum * rest + over[i];
    return (vec)((mask)sum + ((mask)shifted << bits));
}

INLINE int64_t tiles_of(int64_t dim) { return (dim + COLUMNS - 1) / COLUMNS; }
INLINE int64_t panels_of(int64_t prototypes) { return (prototypes + LANES - 1) / LANES; }

typedef float float_ __attribute__((aligned(1), may_alias));
typedef double double_ __attribute__((aligned(1), may_alias));
typedef uint16_t half_ __attribute__((aligned(1), may_alias));

INLINE float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

INLINE float from_half(uint16_t h) {
    float f = from_bits((uint32_t)(h & 0x7fff) << 13) * 0x1p112f; /* right also for subnormal numbers */
    uint32_t bits;
    memcpy(&bits, &f, 4);
    bits |= (h & 0x7fff) >= 0x7c00 ? 0x7f800000u : 0;
    return from_bits(bits | (uint32_t)(h & 0x8000) << 16);
}

INLINE REAL widened(const int kind, const char *x, int64_t j) {
    switch (kind) {
    case FLOAT16: return (REAL)from_half(((const half_ *)x)[j]);
    case BFLOAT16: return (REAL)from_bits((uint32_t)((const half_ *)x)[j] << 16);
    case FLOAT64: return (REAL)((const double_ *)x)[j];
    default: return (REAL)((const float_ *)x)[j];
    }
}

/* ---- the kernel (compiled_kernel.c) ------------------------------------------------------------------------------------------------- */

enum mode { SOFT, HARD, DISTANCES };

typedef struct {
    int64_t dim, prototypes;
    int64_t mode, squares;
    double temperature, negligible;
    const REAL *origin;    /* (tiles * COLUMNS), filled up with zeros */
    const REAL *linear;    /* (panels, tiles * COLUMNS, LANES), filled up with zeros; a panel is LANES prototypes */
    const REAL *quadratic; /* the same; NULL without */
    const REAL *bias;      /* (panels * LANES), the last one filled up with -inf */
    const REAL *common;    /* (tiles * COLUMNS), filled up with zeros: of the squares, for the score alone; NULL without */
} Parameters;

typedef struct {
    const char *x;
    int64_t rows, stride, kind; /* stride in bytes */
    REAL *assignment;           /* (rows, prototypes) or NULL; with DISTANCES the distances */
    REAL *scores;               /* (rows) or NULL */
    int64_t first;              /* which row of the whole the first one is */
    int64_t begun;              /* units that a thread has begun to walk */
} Slice;

typedef struct {
    double *mass, *score, *total, *square; /* (prototypes), (1), (prototypes, dim) twice */
    int64_t merged;                        /* rows whose sums are in */
    int64_t stopped;                       /* not 0: a thread has failed, the others need not go on */
} Sums;

int64_t EXPORT(scratch)(const Parameters *p);
void EXPORT(walk)(const Parameters *p, Slice *x, char *scratch, Sums *sums);
