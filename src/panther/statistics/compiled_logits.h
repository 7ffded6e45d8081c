/* First part of the compiled kernel: rows are centred, and their logits made. */

#pragma once
#include "compiled_memory.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

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
