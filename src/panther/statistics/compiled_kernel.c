/* Assign and accumulate in one pass over rows: the compiled kernel (docs/decisions/0011-compiled-kernel.md).

   This file is compiled once for every instruction set and for float and double; the flags say which (hatch_build.py). It knows vectors
   of VECTOR bytes and nothing else of the machine, save the conversion of half precision. `compiled.py` calls it; the torch kernel says
   what is right, also for numbers that are not finite.

   A slice of rows is cut into units of UNIT rows, whose sums are of type REAL and handed on in double by `merge`, in the order of the
   rows; a unit is cut into blocks of rows that stay in the second-level cache between their logits and their sums. No result depends
   on the number of threads. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define VECTOR 64
#define TALL 12 /* rows of the register tile of the logits ... */
#define SMALL 8 /* ... and with a quadratic term, which needs more registers */
#define WIDE 8  /* prototypes of the register tile of the sums */
#elif defined(__AVX2__)
#define VECTOR 32
#define TALL 6
#define SMALL 4
#define WIDE 6
#else
#define VECTOR 16
#define TALL 6
#define SMALL 4
#define WIDE 6
#endif
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define LANES ((int)(VECTOR / sizeof(REAL)))
#define UNIT 512
#define ROWS 24             /* blocks are a multiple of it: both register tiles fit */
#define MOST_ROWS 120       /* of a block */
#define BLOCK_BYTES 262144  /* of a block, at the most, where ROWS rows are fewer */
#define PANEL_BYTES 16384   /* of the parameters that stay in the first-level cache */
#define JOIN_(name, suffix) name##_##suffix
#define JOIN(name, suffix) JOIN_(name, suffix)
#define EXPORT(name) __attribute__((visibility("default"))) JOIN(name, SUFFIX)
#define INLINE static inline __attribute__((always_inline))

typedef REAL vec __attribute__((vector_size(VECTOR)));
typedef INTEGER mask __attribute__((vector_size(VECTOR))); /* of comparisons, and the bits of a vec */
typedef REAL anywhere __attribute__((vector_size(VECTOR), aligned(1), may_alias));

INLINE vec load(const REAL *p) { return *(const anywhere *)p; }
INLINE void store(REAL *p, vec v) { *(anywhere *)p = v; }

enum kind { FLOAT32, FLOAT16, BFLOAT16, FLOAT64 };
enum mode { SOFT, HARD, DISTANCES };

typedef struct {
    int64_t dim, prototypes, panels; /* panels: of LANES prototypes each, the last one filled up with bias -inf */
    int64_t mode, squares;
    double temperature, negligible;
    const REAL *origin;    /* (dim) */
    const REAL *linear;    /* (panels, dim, LANES) */
    const REAL *quadratic; /* the same; NULL without */
    const REAL *bias;      /* (panels * LANES) */
} Parameters;

typedef struct {
    const char *x;
    int64_t rows, stride, kind; /* stride in bytes */
    REAL *assignment;           /* (rows, prototypes) or NULL; with DISTANCES the distances */
} Slice;

/* ---- memory of one thread ---------------------------------------------------------------------------------------------------------- */

INLINE int64_t padded(int64_t dim) { return (dim + LANES - 1) / LANES * LANES; }

INLINE int64_t block_rows(int64_t dim) {
    int64_t rows = BLOCK_BYTES / (int64_t)sizeof(REAL) / padded(dim) / ROWS * ROWS;
    return rows < ROWS ? ROWS : rows > MOST_ROWS ? MOST_ROWS : rows;
}

typedef struct {
    REAL *z;      /* (block, padded dim): centred rows */
    REAL *a;      /* (block, width): logits, then the assignment */
    REAL *packed; /* (block, width): columns of the assignment that are mostly not zero */
    int *columns; /* (width): which columns these are */
    REAL *tile;   /* (block, 2 LANES): a few columns of the block, and their squares */
} Memory;

INLINE Memory memory_of(REAL *scratch, int64_t dim, int64_t width) {
    int64_t block = block_rows(dim);
    Memory m = {.z = scratch};
    m.a = m.z + block * padded(dim);
    m.packed = m.a + block * width;
    m.tile = m.packed + block * width;
    m.columns = (int *)(m.tile + block * 2 * LANES);
    return m;
}

/* Numbers of type REAL that a thread needs as scratch. */
int64_t EXPORT(scratch)(int64_t dim, int64_t prototypes) {
    int64_t width = padded(prototypes);
    return block_rows(dim) * (padded(dim) + 2 * width + 2 * LANES) + width;
}

/* ---- centring ---------------------------------------------------------------------------------------------------------------------- */

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

/* z = x - origin, widened first; filled up with zeros. */
static void centre(const char *restrict x, int64_t kind, int64_t dim, const REAL *restrict origin, REAL *restrict z) {
    int64_t j = 0;
    switch (kind) {
    case FLOAT32:
        for (; j < dim; j++) z[j] = (REAL)((const float_ *)x)[j] - origin[j];
        break;
    case FLOAT64:
        for (; j < dim; j++) z[j] = (REAL)((const double_ *)x)[j] - origin[j];
        break;
    case BFLOAT16:
        for (; j < dim; j++) z[j] = (REAL)from_bits((uint32_t)((const half_ *)x)[j] << 16) - origin[j];
        break;
    case FLOAT16:
#if defined(__AVX2__)
        for (; j + 8 <= dim; j += 8) {
            float wide[8];
            _mm256_storeu_ps(wide, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + 2 * j))));
            for (int i = 0; i < 8; i++) z[j + i] = (REAL)wide[i] - origin[j + i];
        }
#endif
        for (; j < dim; j++) z[j] = (REAL)from_half(((const half_ *)x)[j]) - origin[j];
    }
    for (; j < padded(dim); j++) z[j] = 0;
}

/* ---- logits ------------------------------------------------------------------------------------------------------------------------ */

/* out (tall, wide LANES) += z (tall, depth) times one or two panels; with a quadratic term z (L + z Q). */
INLINE void product(const int tall, const int wide, const int quadratic, const REAL *z, int64_t stride, const REAL *l,
                    const REAL *q, int64_t panel, int64_t depth, REAL *out, int64_t width) {
    vec sum[TALL][2];
    for (int r = 0; r < tall; r++)
        for (int v = 0; v < wide; v++) sum[r][v] = (vec){0};
    for (int64_t k = 0; k < depth; k++) {
        vec lk[2], qk[2];
        for (int v = 0; v < wide; v++) {
            lk[v] = load(l + v * panel + k * LANES);
            if (quadratic) qk[v] = load(q + v * panel + k * LANES);
        }
#pragma GCC unroll 12
        for (int r = 0; r < tall; r++) {
            REAL zk = z[r * stride + k];
            for (int v = 0; v < wide; v++) sum[r][v] += quadratic ? zk * (lk[v] + zk * qk[v]) : zk * lk[v];
        }
    }
    for (int r = 0; r < tall; r++)
        for (int v = 0; v < wide; v++) store(out + r * width + v * LANES, load(out + r * width + v * LANES) + sum[r][v]);
}

INLINE void products(const int tall, const int wide, const int quadratic, const Parameters *p, int64_t first, int64_t k,
                     int64_t depth, int64_t rows, const Memory *m) {
    int64_t dp = padded(p->dim), width = p->panels * LANES, panel = p->dim * LANES, at = first * panel + k * LANES;
    for (int64_t r = 0; r < rows; r += tall)
        product(tall, wide, quadratic, m->z + r * dp + k, dp, p->linear + at, quadratic ? p->quadratic + at : 0, panel, depth,
                m->a + r * width + first * LANES, width);
}

static void logits(const Parameters *p, int64_t rows, const Memory *m) {
    int64_t width = p->panels * LANES, quadratic = p->quadratic != 0;
    int64_t deep = PANEL_BYTES / (2 * VECTOR) / (1 + quadratic);
    for (int64_t r = 0; r < rows; r++) memcpy(m->a + r * width, p->bias, width * sizeof(REAL));
    for (int64_t first = 0; first < p->panels; first += 2)
        for (int64_t k = 0; k < p->dim; k += deep) {
            int64_t depth = p->dim - k < deep ? p->dim - k : deep;
            if (first + 1 == p->panels)
                quadratic ? products(SMALL, 1, 1, p, first, k, depth, rows, m) : products(TALL, 1, 0, p, first, k, depth, rows, m);
            else
                quadratic ? products(SMALL, 2, 1, p, first, k, depth, rows, m) : products(TALL, 2, 0, p, first, k, depth, rows, m);
        }
}

/* ---- assignment -------------------------------------------------------------------------------------------------------------------- */

INLINE vec pick(mask which, vec a, vec b) { return (vec)(((mask)a & which) | ((mask)b & ~which)); }

/* exp(x) for x from -100 to 0: 2^n times a polynomial on [-log(2)/2, log(2)/2]. */
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

/* out = exp((l - top) / temperature); exponents are cut where the result counts as zero anyway. Returns their sum. */
INLINE REAL exponentials(const REAL *l, REAL *out, int64_t width, REAL top, REAL temperature, REAL cut) {
    vec sum = {0};
    for (int64_t c = 0; c < width; c += LANES) {
        vec x = load(l + c) - top;
        if (temperature != 1) x /= temperature;
        x = exponential(pick(x > cut, x, (vec){0} + cut));
        store(out + c, x);
        sum += x;
    }
    REAL total = 0;
    for (int i = 0; i < LANES; i++) total += sum[i];
    return total;
}

/* A row with a logit that is NaN, or whose largest is infinite: what torch makes of it. */
static REAL unusual(const Parameters *p, REAL *a) {
    REAL top = a[0];
    int64_t best = 0;
    for (int64_t c = 1; c < p->prototypes && top == top; c++)
        if (!(a[c] <= top)) top = a[best = c];
    for (int64_t c = 0; c < p->prototypes; c++) /* inf - inf is NaN: so is the whole softmax */
        a[c] = p->mode == SOFT ? (REAL)NAN : (REAL)(c == best);
    return p->mode == SOFT ? (REAL)NAN : top;
}

/* Largest logit of a row; NaN if one is NaN. */
INLINE REAL largest(const REAL *l, int64_t width) {
    vec most = (vec){0} - (REAL)INFINITY;
    mask nan = {0};
    for (int64_t c = 0; c < width; c += LANES) {
        vec x = load(l + c);
        most = pick(x > most, x, most);
        nan |= x != x;
    }
    REAL top = most[0];
    int64_t any = nan[0];
    for (int i = 1; i < LANES; i++) {
        top = most[i] > top ? most[i] : top;
        any |= nan[i];
    }
    return any ? (REAL)NAN : top;
}

/* Logits to the assignment, in place. Returns the sum of the rows' scores; marks the odd rows, which hold what is not finite. */
static double assign(const Parameters *p, int64_t rows, const Memory *m, char *odd) {
    int64_t width = p->panels * LANES;
    REAL negligible = (REAL)p->negligible, temperature = (REAL)p->temperature, cut = (REAL)(log(p->negligible) - 1);
    double score = 0, totals = 1; /* their product: one logarithm for many rows */
    for (int64_t r = 0; r < rows; r++) {
        REAL *a = m->a + r * width, top = largest(a, width);
        odd[r] = !(top - top == 0);
        if (odd[r]) {
            score += unusual(p, a);
        } else if (p->mode == HARD) {
            int64_t best = 0;
            while (a[best] != top) best++;
            memset(a, 0, width * sizeof(REAL));
            a[best] = 1;
            score += top;
        } else {
            REAL total = exponentials(a, m->packed, width, top, 1, cut);
            totals *= total;
            score += top;
            if (temperature != 1) total = exponentials(a, m->packed, width, top, temperature, cut);
            for (int64_t c = 0; c < width; c += LANES) {
                vec q = load(m->packed + c) / total;
                store(a + c, pick(q > negligible, q, (vec){0}));
            }
        }
        if (r % 16 == 15) {
            score += log(totals);
            totals = 1;
        }
    }
    return score + log(totals);
}

/* ---- sums -------------------------------------------------------------------------------------------------------------------------- */

/* Add the rows of a list, weighed by column c of the assignment, to one prototype's sums. */
INLINE void add_columns(const int vectors, const int squares, const REAL *z, int64_t dp, const REAL *a, int64_t width,
                        const int *list, int count, REAL *total, REAL *square) {
    vec one[4], two[4];
    for (int v = 0; v < vectors; v++) {
        one[v] = load(total + v * LANES);
        if (squares) two[v] = load(square + v * LANES);
    }
    for (int i = 0; i < count; i++) {
        const REAL *row = z + list[i] * dp, weight = a[list[i] * width];
        for (int v = 0; v < vectors; v++) {
            vec x = load(row + v * LANES), weighed = weight * x;
            one[v] += weighed;
            if (squares) two[v] += weighed * x;
        }
    }
    for (int v = 0; v < vectors; v++) {
        store(total + v * LANES, one[v]);
        if (squares) store(square + v * LANES, two[v]);
    }
}

static void add_listed(const Parameters *p, const Memory *m, int64_t c, const int *list, int count, REAL *total, REAL *square) {
    int64_t dp = padded(p->dim), width = p->panels * LANES, j = 0;
    const REAL *a = m->a + c;
    total += c * dp, square += c * dp;
    for (; j + 4 * LANES <= dp; j += 4 * LANES)
        p->squares ? add_columns(4, 1, m->z + j, dp, a, width, list, count, total + j, square + j)
                   : add_columns(4, 0, m->z + j, dp, a, width, list, count, total + j, 0);
    for (; j < dp; j += LANES)
        p->squares ? add_columns(1, 1, m->z + j, dp, a, width, list, count, total + j, square + j)
                   : add_columns(1, 0, m->z + j, dp, a, width, list, count, total + j, 0);
}

/* Sums of `wide` prototypes += packed columns (rows, wide) transposed, times the tile (rows, 2 LANES). */
INLINE void multiply(const int wide, const REAL *packed, int64_t stride, const REAL *tile, int64_t rows, const int *columns,
                     int64_t dp, REAL *left, REAL *right) {
    vec sum[WIDE][2];
    for (int c = 0; c < wide; c++) sum[c][0] = sum[c][1] = (vec){0};
    for (int64_t r = 0; r < rows; r++) {
        vec x = load(tile + r * 2 * LANES), y = load(tile + r * 2 * LANES + LANES);
#pragma GCC unroll 8
        for (int c = 0; c < wide; c++) {
            REAL weight = packed[r * stride + c];
            sum[c][0] += weight * x;
            sum[c][1] += weight * y;
        }
    }
    for (int c = 0; c < wide; c++) {
        int64_t at = columns[c] * dp;
        store(left + at, load(left + at) + sum[c][0]);
        if (right) store(right + at, load(right + at) + sum[c][1]);
    }
}

/* Prototypes that own a part of many rows: a matrix product, a few columns of the block (and their squares) at a time. */
static void add_packed(const Parameters *p, const Memory *m, int64_t rows, int64_t count, REAL *total, REAL *square) {
    int64_t dp = padded(p->dim), stride = p->panels * LANES;
    for (int64_t j = 0; j < dp; j += p->squares ? LANES : 2 * LANES) {
        REAL *right = p->squares ? square + j : j + LANES < dp ? total + j + LANES : 0;
        for (int64_t r = 0; r < rows; r++) {
            const REAL *x = m->z + r * dp + j;
            store(m->tile + r * 2 * LANES, load(x));
            store(m->tile + r * 2 * LANES + LANES, p->squares ? load(x) * load(x) : right ? load(x + LANES) : (vec){0});
        }
        for (int64_t c = 0, wide; c < count; c += wide) {
            int64_t tiles = (count - c + WIDE - 1) / WIDE;
            wide = (count - c + tiles - 1) / tiles;
            switch (wide) {
#define CASE(n)                                                                                                                    \
    case n:                                                                                                                        \
        multiply(n, m->packed + c, stride, m->tile, rows, m->columns + c, dp, total + j, right);                                   \
        break;
                CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if WIDE == 8
                CASE(7) CASE(8)
#endif
            }
        }
    }
}

/* Sums of one block. Zeros of the assignment are skipped, except in odd rows: 0 * inf is NaN. */
static void add(const Parameters *p, const Memory *m, int64_t rows, const char *odd, double *mass, REAL *total, REAL *square) {
    int64_t width = p->panels * LANES, packed = 0;
    int list[MOST_ROWS];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < p->prototypes; c++) mass[c] += m->a[r * width + c];
    for (int64_t c = 0; c < p->prototypes; c++) {
        int listed = 0;
        for (int64_t r = 0; r < rows; r++) {
            list[listed] = (int)r;
            listed += odd[r] | (m->a[r * width + c] != 0);
        }
        if (3 * listed < rows) {
            if (listed) add_listed(p, m, c, list, listed, total, square);
        } else {
            for (int64_t r = 0; r < rows; r++) m->packed[r * width + packed] = m->a[r * width + c];
            m->columns[packed++] = (int)c;
        }
    }
    if (packed) add_packed(p, m, rows, packed, total, square);
}

/* ---- what compiled.py calls ---------------------------------------------------------------------------------------------------------- */

static void write_distances(const Parameters *p, int64_t rows, const Memory *m) {
    int64_t dp = padded(p->dim), width = p->panels * LANES;
    for (int64_t r = 0; r < rows; r++) {
        vec sum[2] = {{0}, {0}};
        const REAL *z = m->z + r * dp;
        for (int64_t j = 0, v = 0; j < dp; j += LANES, v ^= 1) sum[v] += load(z + j) * load(z + j);
        REAL energy = 0;
        for (int i = 0; i < LANES; i++) energy += sum[0][i] + sum[1][i];
        for (int64_t c = 0; c < p->prototypes; c++) {
            REAL squared = energy + m->a[r * width + c];
            m->a[r * width + c] = squared < 0 ? 0 : squared; /* NaN stays */
        }
    }
}

/* Changes with the arguments of these functions; compiled.py knows the same number. */
int EXPORT(interface)(void) { return 1; }

/* Whether this processor has the instructions that this copy was compiled for. */
int EXPORT(usable)(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
#if defined(__AVX512F__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#elif defined(__AVX2__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#else
    return 1;
#endif
}

/* Walk a slice. Sums of each unit of UNIT rows are written to `parts`: (units, 1 or 2, prototypes, padded dim), the totals and, where
   asked for, the squares. mass (prototypes) and score (1) are overwritten. */
void EXPORT(walk)(const Parameters *p, const Slice *x, REAL *scratch, REAL *parts, double *mass, double *score) {
    int64_t dp = padded(p->dim), width = p->panels * LANES, block = block_rows(p->dim), size = p->prototypes * dp;
    Memory m = memory_of(scratch, p->dim, width);
    char odd[MOST_ROWS];
    for (int64_t c = 0; c < p->prototypes; c++) mass[c] = 0;
    *score = 0;
    for (int64_t unit = 0; unit < x->rows; unit += UNIT, parts += size * (1 + p->squares)) {
        int64_t end = unit + UNIT < x->rows ? unit + UNIT : x->rows;
        if (p->mode != DISTANCES) memset(parts, 0, size * (1 + p->squares) * sizeof(REAL));
        for (int64_t start = unit; start < end; start += block) {
            int64_t rows = end - start < block ? end - start : block;
            for (int64_t r = 0; r < rows; r++) centre(x->x + (start + r) * x->stride, x->kind, p->dim, p->origin, m.z + r * dp);
            for (int64_t r = rows; r % ROWS; r++) memset(m.z + r * dp, 0, dp * sizeof(REAL));
            logits(p, (rows + ROWS - 1) / ROWS * ROWS, &m);
            if (p->mode == DISTANCES) {
                write_distances(p, rows, &m);
            } else {
                *score += assign(p, rows, &m, odd);
                add(p, &m, rows, odd, mass, parts, parts + size);
            }
            if (x->assignment)
                for (int64_t r = 0; r < rows; r++)
                    memcpy(x->assignment + (start + r) * p->prototypes, m.a + r * width, p->prototypes * sizeof(REAL));
        }
    }
}

/* Add the sums of a slice's units to those of the whole, in double and in order: total and square (prototypes, dim). */
void EXPORT(merge)(const Parameters *p, int64_t rows, const REAL *parts, double *total, double *square) {
    int64_t dp = padded(p->dim);
    for (int64_t unit = 0; unit < rows; unit += UNIT)
        for (int64_t which = 0; which <= p->squares; which++)
            for (int64_t c = 0; c < p->prototypes; c++, parts += dp) {
                double *sum = (which ? square : total) + c * p->dim;
                for (int64_t j = 0; j < p->dim; j++) sum[j] += parts[j];
            }
}
