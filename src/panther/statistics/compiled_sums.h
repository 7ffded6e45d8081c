/* Third part of the compiled kernel: sums of rows, weighed by the assignment. */

#pragma once
#include "compiled_memory.h"

/* Columns of the assignment that are mostly not zero, side by side (rows, width); which ones they are, `columns` of the memory says. */
typedef struct {
    const REAL *a;
    int64_t count;
} Dense;

#define TOGETHER (4 * LANES > COLUMNS ? 4 * LANES / COLUMNS : 1) /* tiles whose listed rows are added in one loop */

/* Add the listed rows of some tiles, weighed by one column of the assignment, to one prototype's sums; those of the next tile lie `next`
   numbers farther. */
INLINE void add_listed(const int tiles, const int squares, const Memory *m, const REAL *z, const REAL *a, const uint8_t *list, int count,
                       REAL *total, REAL *square, int64_t next) {
    enum { VECTORS = COLUMNS / LANES };
    vec one[TOGETHER * VECTORS], two[TOGETHER * VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < tiles * VECTORS; v++) {
        int64_t at = v / VECTORS * next + v % VECTORS * LANES;
        one[v] = load(total + at);
        if (squares) two[v] = load(square + at);
    }
    for (int i = 0; i < count; i++) {
        const REAL *row = z + list[i] * COLUMNS, weight = a[list[i] * m->width];
#pragma GCC unroll 8
        for (int v = 0; v < tiles * VECTORS; v++) {
            vec x = load(row + v / VECTORS * m->apart + v % VECTORS * LANES), weighed = weight * x;
            one[v] += weighed;
            if (squares) two[v] += weighed * x;
        }
    }
#pragma GCC unroll 8
    for (int v = 0; v < tiles * VECTORS; v++) {
        int64_t at = v / VECTORS * next + v % VECTORS * LANES;
        store(total + at, one[v]);
        if (squares) store(square + at, two[v]);
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
INLINE void multiply_all(const int squares, const Memory *m, Dense dense, const REAL *x, REAL *y, int64_t rows, REAL *left, REAL *right) {
    for (int64_t c = 0, wide; c < dense.count; c += wide) {
        int64_t times = (dense.count - c + WIDE - 1) / WIDE;
        wide = (dense.count - c + times - 1) / times;
        switch (wide * 2 + (squares && c == 0)) {
#define CASE(n)                                                                                                                    \
    case 2 * n: multiply(n, 0, dense.a + c, m->width, x, y, rows, m->columns + c, left, right); break;                             \
    case 2 * n + 1: multiply(n, 1, dense.a + c, m->width, x, y, rows, m->columns + c, left, right); break;
            CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if WIDE == 8
            CASE(7) CASE(8)
#endif
        }
    }
}

/* Lanes of a row of the assignment that count: zeros are skipped, except in odd rows, where 0 * inf is NaN. */
INLINE mask counts_of(const Memory *m, const char *odd, int64_t r, int64_t c) {
    return odd[r] ? (mask){0} - 1 : load(m->a + r * m->width + c) != 0;
}

/* Sort the columns of the assignment: lists of rows for those that are mostly zero, the others side by side. */
static Dense sort_columns(const Parameters *p, int64_t rows, const char *odd, const Memory *m) {
    INTEGER many[m->width], is_listed[m->width];
    Dense dense = {m->a, 0};
    memset(many, 0, sizeof many);
    memset(m->counts, 0, m->width * sizeof(int));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < m->width; c += LANES) *(mask_anywhere *)(many + c) -= counts_of(m, odd, r, c);
    for (int64_t c = 0; c < m->width; c++) {
        is_listed[c] = c < p->prototypes && 3 * many[c] < rows ? -1 : 0;
        if (c < p->prototypes && !is_listed[c]) m->columns[dense.count++] = (int)c;
    }
    if (dense.count == p->prototypes) return dense;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < m->width; c += LANES)
            for (uint64_t left = bits_of(counts_of(m, odd, r, c) & *(mask_anywhere *)(is_listed + c)); left; left &= left - 1) {
                int64_t own = c + __builtin_ctzll(left);
                m->listed[own * m->block + m->counts[own]++] = (uint8_t)r;
            }
    for (int64_t c = 0; c < dense.count; c++)
        for (int64_t r = 0; r < rows; r++) m->packed[r * m->width + c] = m->a[r * m->width + m->columns[c]];
    dense.a = m->packed;
    return dense;
}

/* Add the sums of one block to those of its unit, some tiles at a time. */
INLINE void add(const int squares, const Parameters *p, const Memory *m, int64_t rows, const char *odd) {
    int64_t size = p->prototypes * COLUMNS, next = size * (1 + squares);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < p->prototypes; c++) m->mass[c] += m->a[r * m->width + c];
    Dense dense = sort_columns(p, rows, odd, m);
    for (int64_t t = 0, tiles; t < m->tiles; t += tiles) {
        const REAL *z = m->z + t * m->apart;
        REAL *part = m->part + t * next;
        tiles = t + TOGETHER <= m->tiles ? TOGETHER : 1;
        for (int64_t c = 0; c < p->prototypes; c++, part += COLUMNS) {
            const uint8_t *list = m->listed + c * m->block;
            if (m->counts[c] == 0) continue;
            if (tiles == TOGETHER)
                add_listed(TOGETHER, squares, m, z, m->a + c, list, m->counts[c], part, part + size, next);
            else
                add_listed(1, squares, m, z, m->a + c, list, m->counts[c], part, part + size, next);
        }
    }
    for (int64_t t = 0; dense.count && t < m->tiles; t++) {
        const REAL *z = m->z + t * m->apart;
        REAL *part = m->part + t * next;
        for (int j = 0; j < COLUMNS; j += squares ? LANES : 2 * LANES) {
            if (squares)
                multiply_all(1, m, dense, z + j, m->squared + j, rows, part + j, part + size + j);
            else
                multiply_all(0, m, dense, z + j, (REAL *)z + (j + LANES) % COLUMNS, rows, part + j,
                             j + LANES < COLUMNS ? part + j + LANES : 0);
        }
    }
}
