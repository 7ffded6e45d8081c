/* Assign and accumulate in one pass over rows: the compiled kernel (docs/decisions/0011-compiled-kernel.md).

   This file is compiled once for every instruction set and for float and double; the flags say which (hatch_build.py). It knows vectors
   of VECTOR bytes and nothing else of the machine, save the conversion of half precision. `compiled.py` calls it; the torch kernel says
   what is right, also for numbers that are not finite.

   Rows are cut into units of UNIT rows, whose sums are of type REAL and merged in double, in the order of the rows; a unit is cut into
   blocks of rows that stay in the second-level cache between their logits and their sums. Threads take units by turns. No result depends
   on their number. */

#include <math.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compiled_types.h"

#if defined(__AVX512F__)
#define TALL 12 /* rows of the register tile of the logits ... */
#define SMALL 8 /* ... and with a quadratic term, which needs more registers */
#define WIDE 8  /* prototypes of the register tile of the sums */
#else
#define TALL 6
#define SMALL 4
#define WIDE 6
#endif
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define UNIT 512           /* rows whose sums are of type REAL */
#define ROWS 24            /* blocks are a multiple of it: both register tiles fit */
#define MOST_ROWS 120      /* of a block; their numbers fit into a byte */
#define BLOCK_BYTES 409600 /* of a block, at the most, where ROWS rows are fewer */
#define PANEL_BYTES 16384  /* of the parameters that stay in the first-level cache */

/* ---- memory of one thread ---------------------------------------------------------------------------------------------------------- */

INLINE int64_t block_rows(int64_t dim) {
    int64_t rows = BLOCK_BYTES / (int64_t)sizeof(REAL) / COLUMNS / tiles_of(dim) / ROWS * ROWS;
    return rows < ROWS ? ROWS : rows > MOST_ROWS ? MOST_ROWS : rows;
}

typedef struct {
    int64_t tiles, block, width;
    int64_t apart;     /* of two tiles: not a multiple of 64 lines, or they would compete for the same places of the cache */
    double *mass;      /* (width): of a unit */
    REAL *part;        /* (tiles, 1 or 2, prototypes, COLUMNS): sums of a unit, totals and, where asked for, squares */
    REAL *z;           /* (tiles, block, COLUMNS): centred rows, filled up with zeros; a tile lies on one page of memory */
    REAL *a;           /* (block, width): logits, then the assignment */
    REAL *packed;      /* (block, width): columns of the assignment that are mostly not zero ... */
    REAL *squared;     /* (block, COLUMNS): one tile, squared */
    REAL *common;      /* (block): squares of the rows, weighed by what all prototypes have in common; zeros where there is nothing */
    int *columns;      /* (width): ... which columns these are */
    int *counts;       /* (width): rows listed for each of the other columns */
    uint8_t *listed;   /* (width, block): the rows */
} Memory;

/* Numbers of the sums of a unit. */
INLINE int64_t part_size(const Parameters *p) {
    return p->mode == DISTANCES ? 0 : tiles_of(p->dim) * (1 + p->squares) * p->prototypes * COLUMNS;
}

INLINE Memory memory_of(const Parameters *p, char *scratch) {
    Memory m = {.tiles = tiles_of(p->dim), .block = block_rows(p->dim), .width = p->panels * LANES, .mass = (double *)scratch};
    m.apart = (m.block + 1) * COLUMNS;
    m.part = (REAL *)(m.mass + m.width);
    m.z = m.part + part_size(p);
    m.a = m.z + m.tiles * m.apart;
    m.packed = m.a + m.block * m.width;
    m.squared = m.packed + m.block * m.width;
    m.common = m.squared + m.block * COLUMNS;
    m.columns = (int *)(m.common + m.block);
    m.counts = m.columns + m.width;
    m.listed = (uint8_t *)(m.counts + m.width);
    return m;
}

/* Bytes that a thread needs as scratch. */
int64_t EXPORT(scratch)(const Parameters *p) {
    Memory m = memory_of(p, 0);
    return (int64_t)(intptr_t)m.listed + m.width * m.block;
}

/* ---- centring ---------------------------------------------------------------------------------------------------------------------- */

/* z = x - origin of COLUMNS numbers, widened first into memory of their own: the compiler need not fear that z overlaps x. */
INLINE void centre_tile(const int kind, const char *x, const REAL *origin, REAL *z) {
    REAL wide[COLUMNS];
    int j = 0;
#if defined(__AVX512F__)
    if (kind == FLOAT16 && sizeof(REAL) == 4) { /* all of them by one instruction */
        _mm512_storeu_ps((float *)wide, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)x)));
        j = COLUMNS;
    }
#endif
#if defined(__AVX2__)
    for (; kind == FLOAT16 && j < COLUMNS; j += 8) {
        float eight[8];
        _mm256_storeu_ps(eight, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + 2 * j))));
        for (int i = 0; i < 8; i++) wide[j + i] = (REAL)eight[i];
    }
#endif
    for (; j < COLUMNS; j++) wide[j] = widened(kind, x, j);
    for (int v = 0; v < COLUMNS; v += LANES) store(z + v, load(wide + v) - load(origin + v));
}

/* `tall` rows, of which `real` are there, tile by tile; the others are zeros, as are columns beyond the last. With `common` their weighed
   squares too, while the rows are on their way from memory. */
INLINE void centre_rows(const int kind, const int common, int64_t tall, int64_t real, const Parameters *p, const char *x,
                        int64_t stride, REAL *z, REAL *squares, const Memory *m) {
    static const int64_t sizes[] = {4, 2, 2, 8};
    const REAL *origin = p->origin, *k = p->common;
    vec sum[TALL] = {{0}};
    for (int64_t left = p->dim; left > 0; left -= COLUMNS, x += COLUMNS * sizes[kind], origin += COLUMNS, z += m->apart) {
        const char *row = x;
        for (int64_t r = 0; r < real; r++, row += stride) {
            if (left >= COLUMNS)
                centre_tile(kind, row, origin, z + r * COLUMNS);
            else
                for (int64_t j = 0; j < COLUMNS; j++) z[r * COLUMNS + j] = j < left ? widened(kind, row, j) - origin[j] : 0;
        }
        memset(z + real * COLUMNS, 0, (tall - real) * COLUMNS * sizeof(REAL));
        for (int j = 0; common && j < COLUMNS; j += LANES, k += LANES) {
            vec weight = load(k);
#pragma GCC unroll 12
            for (int r = 0; r < TALL; r++) {
                vec own = load(z + r * COLUMNS + j);
                sum[r] += own * own * weight;
            }
        }
    }
    for (int64_t r = 0; r < tall; r++) {
        squares[r] = 0;
        for (int i = 0; common && i < LANES; i++) squares[r] += sum[r][i];
    }
}

static __attribute__((noinline)) void centre(int64_t tall, const Parameters *p, const Slice *x, int64_t start, int64_t first,
                                             const Memory *m) {
    int64_t left = x->rows - start - first, real = left < tall ? left : tall;
    const char *row = x->x + (start + first) * x->stride;
    REAL *z = m->z + first * COLUMNS, *squares = m->common + first;
    switch (x->kind * 2 + (p->common != 0)) {
#define KIND(kind)                                                                                                                 \
    case 2 * kind: centre_rows(kind, 0, tall, real, p, row, x->stride, z, squares, m); break;                                      \
    case 2 * kind + 1: centre_rows(kind, 1, tall, real, p, row, x->stride, z, squares, m); break;
        KIND(FLOAT32) KIND(FLOAT16) KIND(BFLOAT16) KIND(FLOAT64)
    }
}

/* ---- logits ------------------------------------------------------------------------------------------------------------------------ */

typedef struct {
    const char *x; /* rows that come next, fetched from memory while these are computed; NULL: none */
    int64_t stride, size;
} Ahead;

/* Logits of `tall` rows += some tiles of them times one or two panels; with a quadratic term z (L + z Q). */
INLINE void product(const int tall, const int wide, const int quadratic, const Parameters *p, int64_t first, int64_t row,
                    int64_t from, int64_t to, const Memory *m, Ahead ahead) {
    int64_t panel = m->tiles * COLUMNS * LANES;
    REAL *out = m->a + row * m->width + first * LANES;
    vec sum[TALL][2];
    for (int r = 0; r < tall; r++)
        for (int v = 0; v < wide; v++) sum[r][v] = (vec){0};
    for (int64_t t = from; t < to; t++) {
        const REAL *z = m->z + t * m->apart + row * COLUMNS;
        const REAL *l = p->linear + first * panel + t * COLUMNS * LANES;
        const REAL *q = quadratic ? p->quadratic + first * panel + t * COLUMNS * LANES : 0;
        if (ahead.x)
            for (int r = 0; r < tall; r++) __builtin_prefetch(ahead.x + r * ahead.stride + t * COLUMNS * ahead.size, 0, 3);
        for (int k = 0; k < COLUMNS; k++, l += LANES, q += quadratic ? LANES : 0) {
            vec lk[2], qk[2];
            for (int v = 0; v < wide; v++) {
                lk[v] = load(l + v * panel);
                if (quadratic) qk[v] = load(q + v * panel);
            }
#pragma GCC unroll 12
            for (int r = 0; r < tall; r++) {
                REAL zk = z[r * COLUMNS + k];
                for (int v = 0; v < wide; v++) sum[r][v] += quadratic ? zk * (lk[v] + zk * qk[v]) : zk * lk[v];
            }
        }
    }
    for (int r = 0; r < tall; r++)
        for (int v = 0; v < wide; v++) {
            REAL *to_row = out + r * m->width + v * LANES;
            store(to_row, load(to_row) + sum[r][v]);
        }
}

typedef void Product(const Parameters *, int64_t, int64_t, int64_t, int64_t, const Memory *, Ahead);

/* A function of its own for each tile, which gives the compiler all registers. */
#define PRODUCT(name, tall, wide, quadratic)                                                                                       \
    static __attribute__((noinline)) void name(const Parameters *p, int64_t first, int64_t row, int64_t from, int64_t to,         \
                                               const Memory *m, Ahead ahead) {                                                     \
        product(tall, wide, quadratic, p, first, row, from, to, m, ahead);                                                         \
    }
PRODUCT(linear_one, TALL, 1, 0)
PRODUCT(linear_two, TALL, 2, 0)
PRODUCT(quadratic_one, SMALL, 1, 1)
PRODUCT(quadratic_two, SMALL, 2, 1)

/* Centre the rows of a block and make their logits. The first panels meet rows that have just been centred; the others meet the whole
   block, piece by piece, so that a piece of them stays in the first-level cache. */
static void logits(const Parameters *p, const Slice *x, int64_t start, int64_t rows, const Memory *m) {
    static const int64_t sizes[] = {4, 2, 2, 8};
    Product *one = p->quadratic ? quadratic_one : linear_one, *two = p->quadratic ? quadratic_two : linear_two;
    int64_t tall = p->quadratic ? SMALL : TALL, deep = PANEL_BYTES / (2 * VECTOR) / COLUMNS / (p->quadratic ? 2 : 1);
    Ahead none = {0}, ahead = {0, x->stride, sizes[x->kind]};
    for (int64_t row = 0; row < rows; row += tall) {
        centre(tall, p, x, start, row, m);
        for (int64_t r = row; r < row + tall; r++) memcpy(m->a + r * m->width, p->bias, m->width * sizeof(REAL));
        ahead.x = x->x + (start + row + tall) * x->stride;
        for (int64_t t = 0; t < m->tiles; t += deep)
            (p->panels > 1 ? two : one)(p, 0, row, t, t + deep < m->tiles ? t + deep : m->tiles, m, ahead);
    }
    for (int64_t first = 2; first < p->panels; first += 2)
        for (int64_t t = 0; t < m->tiles; t += deep)
            for (int64_t row = 0; row < rows; row += tall)
                (p->panels > first + 1 ? two : one)(p, first, row, t, t + deep < m->tiles ? t + deep : m->tiles, m, none);
}

/* ---- assignment -------------------------------------------------------------------------------------------------------------------- */

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

/* Logits to the assignment, in place. Returns the sum of the rows' scores, and each where `scores` is given; marks the odd rows, which
   hold what is not finite. */
static double assign(const Parameters *p, int64_t rows, const Memory *m, char *odd, REAL *scores) {
    int64_t width = m->width;
    REAL negligible = (REAL)p->negligible, temperature = (REAL)p->temperature, cut = (REAL)(log(p->negligible) - 1);
    double score = 0, totals = 1; /* their product: one logarithm for many rows */
    for (int64_t r = 0; r < rows; r++) {
        REAL *a = m->a + r * width, top = largest(a, width);
        double own = top, logarithm = 0;
        odd[r] = !(top - top == 0);
        if (odd[r]) {
            own = unusual(p, a);
        } else if (p->mode == HARD) {
            int64_t best = 0;
            while (a[best] != top) best++;
            memset(a, 0, width * sizeof(REAL));
            a[best] = 1;
        } else {
            REAL total = exponentials(a, m->packed, width, top, 1, cut);
            totals *= total;
            if (scores && total != 1) logarithm = log(total); /* mostly it is 1, and a logarithm slow */
            if (temperature != 1) total = exponentials(a, m->packed, width, top, temperature, cut);
            for (int64_t c = 0; c < width; c += LANES) {
                vec q = load(m->packed + c) / total;
                store(a + c, pick(q > negligible, q, (vec){0}));
            }
        }
        own += m->common[r];
        score += own;
        if (scores) scores[r] = (REAL)(own + logarithm);
        if (r % 16 == 15) {
            score += log(totals);
            totals = 1;
        }
    }
    return score + log(totals);
}

/* ---- sums -------------------------------------------------------------------------------------------------------------------------- */

/* Add the listed rows of a tile, weighed by one column of the assignment, to one prototype's sums (COLUMNS each). */
INLINE void add_listed(const int squares, const REAL *z, const REAL *a, int64_t width, const uint8_t *list, int count,
                       REAL *total, REAL *square) {
    enum { VECTORS = COLUMNS / LANES };
    vec one[VECTORS], two[VECTORS];
    for (int v = 0; v < VECTORS; v++) {
        one[v] = load(total + v * LANES);
        if (squares) two[v] = load(square + v * LANES);
    }
    for (int i = 0; i < count; i++) {
        const REAL *row = z + list[i] * COLUMNS, weight = a[list[i] * width];
        for (int v = 0; v < VECTORS; v++) {
            vec x = load(row + v * LANES), weighed = weight * x;
            one[v] += weighed;
            if (squares) two[v] += weighed * x;
        }
    }
    for (int v = 0; v < VECTORS; v++) {
        store(total + v * LANES, one[v]);
        if (squares) store(square + v * LANES, two[v]);
    }
}

/* Sums of `wide` prototypes += packed columns (rows, wide) transposed, times two vectors of a tile's rows: x and y, or x and its square,
   which the first to need it writes to y. */
INLINE void multiply(const int wide, const int fresh, const REAL *packed, int64_t width, const REAL *x, REAL *y, int64_t rows,
                     const int *columns, REAL *left, REAL *right) {
    vec sum[WIDE][2];
    for (int c = 0; c < wide; c++) sum[c][0] = sum[c][1] = (vec){0};
    for (int64_t r = 0; r < rows; r++) {
        vec xr = load(x + r * COLUMNS), yr;
        if (fresh)
            store(y + r * COLUMNS, yr = xr * xr);
        else
            yr = load(y + r * COLUMNS);
#pragma GCC unroll 8
        for (int c = 0; c < wide; c++) {
            REAL weight = packed[r * width + c];
            sum[c][0] += weight * xr;
            sum[c][1] += weight * yr;
        }
    }
    for (int c = 0; c < wide; c++) {
        int64_t at = columns[c] * COLUMNS;
        store(left + at, load(left + at) + sum[c][0]);
        if (right) store(right + at, load(right + at) + sum[c][1]);
    }
}

/* The same for all prototypes that own a part of many rows. */
INLINE void multiply_all(const int squares, const Memory *m, int64_t count, const REAL *x, REAL *y, int64_t rows, REAL *left,
                         REAL *right) {
    for (int64_t c = 0, wide; c < count; c += wide) {
        int64_t times = (count - c + WIDE - 1) / WIDE;
        wide = (count - c + times - 1) / times;
        switch (wide * 2 + (squares && c == 0)) {
#define CASE(n)                                                                                                                    \
    case 2 * n:                                                                                                                    \
        multiply(n, 0, m->packed + c, m->width, x, y, rows, m->columns + c, left, right);                                          \
        break;                                                                                                                     \
    case 2 * n + 1:                                                                                                                \
        multiply(n, 1, m->packed + c, m->width, x, y, rows, m->columns + c, left, right);                                          \
        break;
            CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if WIDE == 8
            CASE(7) CASE(8)
#endif
        }
    }
}

/* Sort the columns of the assignment: lists of rows for those that are mostly zero, the others packed. Zeros are skipped, except in
   odd rows: 0 * inf is NaN. Returns how many are packed. */
static int64_t sort_columns(const Parameters *p, int64_t rows, const char *odd, const Memory *m) {
    int64_t packed = 0;
    for (int64_t c = 0; c < p->prototypes; c++) {
        uint8_t *list = m->listed + c * m->block;
        int count = 0;
        for (int64_t r = 0; r < rows; r++) {
            list[count] = (uint8_t)r;
            count += odd[r] | (m->a[r * m->width + c] != 0);
        }
        m->counts[c] = count;
        if (3 * count >= rows) {
            for (int64_t r = 0; r < rows; r++) m->packed[r * m->width + packed] = m->a[r * m->width + c];
            m->columns[packed++] = (int)c;
            m->counts[c] = 0;
        }
    }
    return packed;
}

/* Add the sums of one block to those of its unit, tile by tile. */
INLINE void add(const int squares, const Parameters *p, const Memory *m, int64_t rows, const char *odd) {
    int64_t size = p->prototypes * COLUMNS, packed;
    REAL *part = m->part;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < p->prototypes; c++) m->mass[c] += m->a[r * m->width + c];
    packed = sort_columns(p, rows, odd, m);
    for (int64_t t = 0; t < m->tiles; t++, part += size * (1 + squares)) {
        const REAL *z = m->z + t * m->apart;
        for (int64_t c = 0; c < p->prototypes; c++)
            if (m->counts[c])
                add_listed(squares, z, m->a + c, m->width, m->listed + c * m->block, m->counts[c], part + c * COLUMNS,
                           part + size + c * COLUMNS);
        if (packed)
            for (int j = 0; j < COLUMNS; j += squares ? LANES : 2 * LANES) {
                if (squares)
                    multiply_all(1, m, packed, z + j, m->squared + j, rows, part + j, part + size + j);
                else
                    multiply_all(0, m, packed, z + j, (REAL *)z + (j + LANES) % COLUMNS, rows, part + j,
                                 j + LANES < COLUMNS ? part + j + LANES : 0);
            }
    }
}

/* ---- what compiled.py calls -------------------------------------------------------------------------------------------------------- */

static void write_distances(const Parameters *p, int64_t rows, const Memory *m) {
    for (int64_t r = 0; r < rows; r++) {
        vec sum = {0};
        for (int64_t t = 0; t < m->tiles; t++)
            for (int j = 0; j < COLUMNS; j += LANES) {
                vec x = load(m->z + t * m->apart + r * COLUMNS + j);
                sum += x * x;
            }
        REAL energy = 0;
        for (int i = 0; i < LANES; i++) energy += sum[i];
        for (int64_t c = 0; c < p->prototypes; c++) {
            REAL squared = energy + m->a[r * m->width + c];
            m->a[r * m->width + c] = squared < 0 ? 0 : squared; /* NaN stays */
        }
    }
}

/* Changes with the arguments of these functions and of those of the other C files; compiled.py knows the same number. */
int EXPORT(interface)(void) { return 9; }

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

/* Rows from `start` to `end`, at most UNIT: their sums to `part` and `mass`. Returns the sum of their scores. */
static double walk_unit(const Parameters *p, const Slice *x, int64_t start, int64_t end, const Memory *m) {
    char odd[MOST_ROWS];
    double score = 0;
    memset(m->mass, 0, m->width * sizeof(double));
    memset(m->part, 0, part_size(p) * sizeof(REAL));
    for (; start < end; start += m->block) {
        int64_t rows = end - start < m->block ? end - start : m->block;
        logits(p, x, start, rows, m);
        if (p->mode == DISTANCES) {
            write_distances(p, rows, m);
        } else {
            score += assign(p, rows, m, odd, x->scores ? x->scores + start : 0);
            if (p->squares)
                add(1, p, m, rows, odd);
            else
                add(0, p, m, rows, odd);
        }
        if (x->assignment)
            for (int64_t r = 0; r < rows; r++)
                memcpy(x->assignment + (start + r) * p->prototypes, m->a + r * m->width, p->prototypes * sizeof(REAL));
    }
    return score;
}

/* Add the sums of a unit to those of the whole. */
static void merge(const Parameters *p, double score, const Memory *m, Sums *sums) {
    const REAL *part = m->part;
    for (int64_t t = 0; t < p->dim; t += COLUMNS)
        for (int64_t which = 0; which <= p->squares; which++)
            for (int64_t c = 0; c < p->prototypes; c++, part += COLUMNS) {
                double *sum = (which ? sums->square : sums->total) + c * p->dim + t;
                if (t + COLUMNS <= p->dim)
                    for (int j = 0; j < COLUMNS; j++) sum[j] += part[j];
                else
                    for (int j = 0; j < p->dim - t; j++) sum[j] += part[j];
            }
    for (int64_t c = 0; c < p->prototypes; c++) sums->mass[c] += m->mass[c];
    *sums->score += score;
}

/* Walk the units of a slice that no other thread has begun. The order of the rows is the order of the sums, so a thread waits for its
   turn before it adds its own; where another one has failed, the turn never comes. Without `sums` for distances. */
void EXPORT(walk)(const Parameters *p, Slice *x, char *scratch, Sums *sums) {
    Memory m = memory_of(p, scratch);
    int64_t start;
    while ((start = UNIT * __atomic_fetch_add(&x->begun, 1, __ATOMIC_RELAXED)) < x->rows) {
        int64_t end = start + UNIT < x->rows ? start + UNIT : x->rows, turn = x->first + start;
        double score = walk_unit(p, x, start, end, &m);
        if (p->mode == DISTANCES) continue;
        while (__atomic_load_n(&sums->merged, __ATOMIC_ACQUIRE) != turn) {
            if (__atomic_load_n(&sums->stopped, __ATOMIC_RELAXED)) return;
            sched_yield();
        }
        merge(p, score, &m, sums);
        __atomic_store_n(&sums->merged, x->first + end, __ATOMIC_RELEASE);
    }
}
