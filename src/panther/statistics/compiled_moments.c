/* Sums of a few rows that lie anywhere, weighed, about an origin (the reference is `tail.py`). */

#include "compiled_types.h"

INLINE void add_row(const int kind, const char *restrict x, int64_t dim, REAL weight, const REAL *restrict origin,
                    REAL *restrict total, REAL *restrict square) {
    for (int64_t j = 0; j < dim; j++) {
        REAL z = widened(kind, x, j) - origin[j];
        total[j] += weight * z;
        square[j] += weight * z * z;
    }
}

/* Add rows `index` of x (strides in bytes) to total and square (dim). */
void EXPORT(moments)(const char *x, int64_t stride, int64_t kind, const int64_t *index, const REAL *weight, int64_t rows, int64_t dim,
                     const REAL *origin, REAL *total, REAL *square) {
    for (int64_t r = 0; r < rows; r++) {
        const char *row = x + index[r] * stride;
        switch (kind) {
        case FLOAT32: add_row(FLOAT32, row, dim, weight[r], origin, total, square); break;
        case FLOAT16: add_row(FLOAT16, row, dim, weight[r], origin, total, square); break;
        case BFLOAT16: add_row(BFLOAT16, row, dim, weight[r], origin, total, square); break;
        case FLOAT64: add_row(FLOAT64, row, dim, weight[r], origin, total, square); break;
        }
    }
}
