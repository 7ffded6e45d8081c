/* Third part of the compiled kernel: sums of rows, weighed by the assignment. */

#pragma once
#include "compiled_memory.h"

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
