/* First part of the compiled kernel: rows are centred, and their logits made. */

#pragma once
#include "compiled_memory.h"

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

static const int64_t sizes[] = {4, 2, 2, 8}; /* bytes of a number, by kind */

/* `tall` rows, of which `real` are there, tiles `from` to `to`; the others are zeros, as are columns beyond the last. With `common` their
   weighed squares too, while the rows are on their way from memory. */
INLINE void centre_rows(const int kind, const int common, int64_t tall, int64_t real, const Parameters *p, const char *x,
                        int64_t stride, int64_t from, int64_t to, REAL *z, REAL *squares, const Memory *m) {
    vec sum[TALL] = {{0}};
    for (int64_t t = from; t < to; t++) {
        const REAL *origin = p->origin + t * COLUMNS;
        const char *row = x + t * COLUMNS * sizes[kind];
        REAL *tile = z + t * m->apart;
        int64_t left = p->dim - t * COLUMNS;
        for (int64_t r = 0; r < real; r++, row += stride) {
            if (left >= COLUMNS)
                centre_tile(kind, row, origin, tile + r * COLUMNS);
            else
                for (int64_t j = 0; j < COLUMNS; j++) tile[r * COLUMNS + j] = j < left ? widened(kind, row, j) - origin[j] : 0;
        }
        memset(tile + real * COLUMNS, 0, (tall - real) * COLUMNS * sizeof(REAL));
        for (int j = 0; common && j < COLUMNS; j += LANES) {
            vec weight = load(p->common + t * COLUMNS + j);
#pragma GCC unroll 12
            for (int r = 0; r < TALL; r++) {
                vec own = load(tile + r * COLUMNS + j);
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
                                             int64_t from, int64_t to, const Memory *m) {
    int64_t left = x->rows - start - first, real = left < tall ? left : tall;
    const char *row = x->x + (start + first) * x->stride;
    REAL *z = m->z + first * COLUMNS, *squares = m->common + first;
    switch (x->kind * 2 + (p->common != 0)) {
#define KIND(kind)                                                                                                                 \
    case 2 * kind: centre_rows(kind, 0, tall, real, p, row, x->stride, from, to, z, squares, m); break;                            \
    case 2 * kind + 1: centre_rows(kind, 1, tall, real, p, row, x->stride, from, to, z, squares, m); break;
        KIND(FLOAT32) KIND(FLOAT16) KIND(BFLOAT16) KIND(FLOAT64)
    }
}

/* ---- logits ------------------------------------------------------------------------------------------------------------------------ */

/* The rows as they are stored: these, of which every tile but the first is centred while the one before it is multiplied, and those that
   come later, on their way from memory meanwhile. */
typedef struct {
    const char *now, *later;
    int64_t stride, size;
    int64_t whole; /* tiles that are full */
} Stored;

#define CENTRED -1 /* instead of a kind: nothing is left to centre */

/* Logits of `tall` rows += some tiles of them times one or two panels; with a quadratic term z (L + z Q). After every `deep` tiles the sums
   are added to those in memory: short chains of additions keep digits. */
INLINE void product(const int tall, const int wide, const int quadratic, const int kind, const Parameters *p, int64_t first,
                    int64_t row, int64_t from, int64_t to, int64_t deep, const Memory *m, const Stored *x) {
    int64_t panel = m->tiles * COLUMNS * LANES;
    REAL *out = m->a + row * m->width + first * LANES;
    vec sum[TALL][2];
    for (int64_t t = from, until = from; t < to; t++) {
        if (t == until) {
            until += deep;
#pragma GCC unroll 12
            for (int r = 0; r < tall; r++)
                for (int v = 0; v < wide; v++) sum[r][v] = (vec){0};
        }
        REAL *z = m->z + t * m->apart + row * COLUMNS;
        const REAL *l = p->linear + first * panel + t * COLUMNS * LANES;
        const REAL *q = quadratic ? p->quadratic + first * panel + t * COLUMNS * LANES : 0;
        int64_t then = t + 1;
        int another = kind != CENTRED && then < x->whole;
#pragma GCC unroll 16
        for (int k = 0; k < COLUMNS; k++, l += LANES, q += quadratic ? LANES : 0) {
            vec lk[2], qk[2];
            for (int v = 0; v < wide; v++) {
                lk[v] = load(l + v * panel);
                if (quadratic) qk[v] = load(q + v * panel);
            }
            /* a row for every column: there are fewer rows, and room between the multiply-adds */
            if (k < tall && x) __builtin_prefetch(x->later + k * x->stride + t * COLUMNS * x->size, 0, 2);
            if (k < tall && another)
                centre_tile(kind, x->now + k * x->stride + then * COLUMNS * x->size, p->origin + then * COLUMNS,
                            z + m->apart + k * COLUMNS);
#pragma GCC unroll 12
            for (int r = 0; r < tall; r++) {
                REAL zk = z[r * COLUMNS + k];
                for (int v = 0; v < wide; v++) sum[r][v] += quadratic ? zk * (lk[v] + zk * qk[v]) : zk * lk[v];
            }
        }
        if (t + 1 == until || t + 1 == to) {
#pragma GCC unroll 12
            for (int r = 0; r < tall; r++)
                for (int v = 0; v < wide; v++) {
                    REAL *to_row = out + r * m->width + v * LANES;
                    store(to_row, load(to_row) + sum[r][v]);
                }
        }
    }
}

typedef void Product(const Parameters *, int64_t, int64_t, int64_t, int64_t, int64_t, const Memory *, const Stored *);

/* A function of its own for each tile, which gives the compiler all registers. */
#define PRODUCT(name, tall, wide, quadratic, kind)                                                                                 \
    static __attribute__((noinline)) void name(const Parameters *p, int64_t first, int64_t row, int64_t from, int64_t to,         \
                                               int64_t deep, const Memory *m, const Stored *x) {                                   \
        product(tall, wide, quadratic, kind, p, first, row, from, to, deep, m, x);                                                 \
    }
#define PRODUCTS(name, kind)                                                                                                       \
    PRODUCT(linear_one_##name, TALL, 1, 0, kind)                                                                                   \
    PRODUCT(linear_two_##name, TALL, 2, 0, kind)                                                                                   \
    PRODUCT(quadratic_one_##name, SMALL, 1, 1, kind)                                                                               \
    PRODUCT(quadratic_two_##name, SMALL, 2, 1, kind)                                                                               \
    static Product *const products_##name[] = {linear_one_##name, linear_two_##name, quadratic_one_##name, quadratic_two_##name};
PRODUCTS(centred, CENTRED)
PRODUCTS(float32, FLOAT32) /* the kinds that features are stored in; rows of others are centred first */
PRODUCTS(float16, FLOAT16)

/* Centre the rows of a block and make their logits. The first panels meet rows that are being centred; the others meet the whole block,
   piece by piece, so that a piece of them stays in the first-level cache. */
static void logits(const Parameters *p, const Slice *x, int64_t start, int64_t rows, const Memory *m) {
    Product *const *own = x->kind == FLOAT32 ? products_float32 : x->kind == FLOAT16 ? products_float16 : products_centred;
    int64_t quadratic = p->quadratic != 0, tall = quadratic ? SMALL : TALL, whole = p->dim / COLUMNS;
    int64_t deep = PANEL_BYTES / (2 * VECTOR) / COLUMNS / (1 + quadratic);
    for (int64_t row = 0; row < rows; row += tall) {
        const char *now = x->x + (start + row) * x->stride;
        Stored stored = {now, now + 2 * tall * x->stride, x->stride, sizes[x->kind], whole};
        Product *const *products = own;
        if (p->common || start + row + tall > x->rows) products = products_centred;
        if (products == products_centred || whole == 0) {
            centre(tall, p, x, start, row, 0, m->tiles, m);
        } else {
            centre(tall, p, x, start, row, 0, 1, m);
            centre(tall, p, x, start, row, whole, m->tiles, m);
        }
        for (int64_t r = row; r < row + tall; r++) memcpy(m->a + r * m->width, p->bias, m->width * sizeof(REAL));
        products[2 * quadratic + (m->panels > 1)](p, 0, row, 0, m->tiles, deep, m, &stored);
    }
    for (int64_t first = 2; first < m->panels; first += 2)
        for (int64_t t = 0; t < m->tiles; t += deep)
            for (int64_t row = 0; row < rows; row += tall)
                products_centred[2 * quadratic + (m->panels > first + 1)](p, first, row, t, t + deep < m->tiles ? t + deep : m->tiles,
                                                                          deep, m, 0);
}
