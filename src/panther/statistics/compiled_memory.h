/* The compiled kernel's tiles of registers, and the memory of one thread. */

#pragma once
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

#define UNIT 512           /* rows whose sums are of type REAL */
#define ROWS 24            /* blocks are a multiple of it: both register tiles fit */
#define MOST_ROWS 120      /* of a block; their numbers fit into a byte */
#define BLOCK_BYTES 409600 /* of a block, at the most, where ROWS rows are fewer */
#define PANEL_BYTES 16384  /* of the parameters that stay in the first-level cache */

INLINE int64_t block_rows(int64_t dim) {
    int64_t rows = BLOCK_BYTES / (int64_t)sizeof(REAL) / COLUMNS / tiles_of(dim) / ROWS * ROWS;
    return rows < ROWS ? ROWS : rows > MOST_ROWS ? MOST_ROWS : rows;
}

typedef struct {
    int64_t tiles, block, width, panels;
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
    Memory m = {.tiles = tiles_of(p->dim), .block = block_rows(p->dim), .panels = panels_of(p->prototypes), .mass = (double *)scratch};
    m.width = m.panels * LANES;
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
