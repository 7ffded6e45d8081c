/* Lloyd iterations on a sample in memory, with Elkan's bounds (`prototypes/lloyd.py` says what is right, and why bounds). One thread; several
   runs on the same sample take their steps together, so that a block of rows is read once for all of them.

   Labels are those of the kernel's distances. A row whose bounds leave a few centroids is compared with these alone, by products of its own; the
   kernel decides where that could change its label, or where the difference is not far above what rounding can make of it. Sums of clusters are
   in double and follow the rows that change. */

#include <float.h>
#include <math.h>

#include "compiled_types.h"

#define BLOCK 96 /* rows that all runs look at before the next ones are read */
#define CHAINS 4
#define AHEAD 2  /* rows that are on their way while one is centred */
#define LONG 128 /* dimensions from which a row is compared with single centroids: the kernel takes all of them as fast when rows are short */
#define EPSILON (sizeof(REAL) == 4 ? (REAL)FLT_EPSILON : (REAL)DBL_EPSILON)
#define WORK ((int64_t)(sizeof(Work) + 63) / 64 * 64)
#define ROUNDING 8 /* times epsilon and the root of the dimensions: what a squared distance may be wrong, of the squares that it is made of */

enum state { RUNNING, SETTLED, EMPTY };

typedef struct {
    const REAL *x; /* (rows, dim) */
    int64_t rows, dim, clusters;
    const REAL *origin; /* (dim) */
    const REAL *energy; /* (rows): squared distances to the origin */
    int32_t *label;     /* (rows), -1: none yet */
    REAL *upper;        /* (rows): on the distance to the own centroid */
    REAL *lower;        /* (rows, width): on those to the others; infinite for the own, and beyond the last cluster */
    double *mass;       /* (clusters) */
    double *total;      /* (clusters, dim), about the origin */
    REAL *before;       /* (clusters, dim): centroids that labels and bounds belong to */
    REAL *centroids;    /* (clusters, dim): where they have moved to */
    char *memory;       /* as much as lloyd_memory says, aligned to 64 */
    int64_t left;       /* iterations that it may still make */
    int64_t state;      /* EMPTY: a cluster has no rows; its centroid is for the caller to move */
} Lloyd;

typedef struct {
    Parameters kernel;
    REAL *origin, *linear, *bias; /* of the kernel: rows that it is given are centred, so that its origin is zero */
    REAL *points;                 /* (clusters, wide): -2 times the centroids about the origin, filled up with zeros; |p|^2 is the bias */
    REAL *shift;                  /* (width): how far they have moved */
    REAL *block;                  /* (BLOCK, wide): rows about the origin; of the first run, for all of them */
    REAL *gathered;               /* (BLOCK, wide): rows for the kernel */
    REAL *distances;              /* (BLOCK, clusters) */
    char *scratch;
    int64_t wide, width; /* dimensions and clusters, filled up */
    REAL doubt;          /* ROUNDING and so on */
    REAL largest;        /* of |p|^2 */
    int64_t *near;       /* (width + 1): those that may be nearer than the own one */
    int64_t waiting, index[BLOCK];
} Work;

typedef struct {
    int64_t start, count;
    REAL *z;            /* (count, wide): rows about the origin, filled up with zeros ... */
    char wanted[BLOCK]; /* ... which somebody looks at */
} Block;

INLINE char *taken(char **memory, int64_t size) {
    char *own = *memory;
    *memory += (size + 63) / 64 * 64;
    return own;
}

/* Cut the memory into what is needed; returns where it ends. */
static char *cut(const Lloyd *s, Work *w, char *memory) {
    int64_t wide = tiles_of(s->dim) * COLUMNS, panels = panels_of(s->clusters), real = sizeof(REAL);
    w->wide = wide;
    w->width = panels * LANES;
    w->origin = (REAL *)taken(&memory, wide * real);
    w->linear = (REAL *)taken(&memory, w->width * wide * real);
    w->bias = (REAL *)taken(&memory, w->width * real);
    w->points = (REAL *)taken(&memory, s->clusters * wide * real);
    w->shift = (REAL *)taken(&memory, w->width * real);
    w->block = (REAL *)taken(&memory, BLOCK * wide * real);
    w->gathered = (REAL *)taken(&memory, BLOCK * wide * real);
    w->distances = (REAL *)taken(&memory, BLOCK * s->clusters * real);
    w->near = (int64_t *)taken(&memory, (w->width + 1) * sizeof(int64_t));
    w->kernel = (Parameters){.dim = wide, .prototypes = s->clusters, .mode = DISTANCES, .temperature = 1,
                             .negligible = 1e-30, .origin = w->origin, .linear = w->linear, .bias = w->bias};
    w->scratch = taken(&memory, EXPORT(scratch)(&w->kernel));
    w->doubt = (REAL)(ROUNDING * sqrt((double)s->dim)) * EPSILON;
    return memory;
}

/* Parameters of the centroids, -2 p and |p|^2, and how far each has moved. */
static void prepare(const Lloyd *s, Work *w) {
    w->largest = 0;
    for (int64_t c = 0; c < s->clusters; c++) {
        REAL *panel = w->linear + c / LANES * w->wide * LANES + c % LANES, *point = w->points + c * w->wide;
        double norm = 0, moved = 0;
        for (int64_t j = 0; j < s->dim; j++) {
            REAL to = s->centroids[c * s->dim + j], p = to - s->origin[j], step = to - s->before[c * s->dim + j];
            panel[j * LANES] = point[j] = -2 * p;
            norm += (double)p * p;
            moved += (double)step * step;
        }
        w->bias[c] = (REAL)norm;
        w->shift[c] = (REAL)sqrt(moved);
        w->largest = w->bias[c] > w->largest ? w->bias[c] : w->largest;
    }
}

/* Rows of the block about the origin, as far as somebody looks at them. Rows are often a page each, which the processor does not read ahead. */
static void centre(const Lloyd *s, int64_t wide, const Block *b) {
    int64_t rows[BLOCK], count = 0;
    for (int64_t i = 0; i < b->count; i++)
        if (b->wanted[i]) rows[count++] = i;
    for (int64_t k = -AHEAD; k < count; k++) {
        if (k + AHEAD < count)
            for (int64_t j = 0; j < s->dim; j += 64 / (int64_t)sizeof(REAL)) __builtin_prefetch(s->x + (b->start + rows[k + AHEAD]) * s->dim + j);
        if (k < 0) continue;
        const REAL *restrict x = s->x + (b->start + rows[k]) * s->dim;
        REAL *restrict z = b->z + rows[k] * wide;
        for (int64_t j = 0; j < s->dim; j++) z[j] = x[j] - s->origin[j];
        for (int64_t j = s->dim; j < wide; j++) z[j] = 0;
    }
}

INLINE void add(double *restrict total, const REAL *restrict z, int64_t dim, double sign) {
    for (int64_t j = 0; j < dim; j++) total[j] += sign * (double)z[j];
}

/* Smallest lane; none may be NaN. */
INLINE REAL lowest(vec v) { return -highest(-v); }

/* Bounds of a row from its squared distances to all centroids, filled up with infinite ones. Returns the nearest centroid. */
static int32_t set_bounds(const Lloyd *s, const Work *w, int64_t n, const REAL *distance) {
    REAL least;
    const vec infinite = (vec){0} + (REAL)INFINITY;
    vec nearest = infinite;
    mask lanes;
    int64_t best = 0;
    for (int i = 0; i < LANES; i++) lanes[i] = i;
    for (int64_t c = 0; c < w->width; c += LANES) {
        vec own = load(distance + c);
        nearest = pick(own < nearest, own, nearest);
    }
    least = lowest(nearest);
    for (int64_t c = w->width - LANES; c >= 0; c -= LANES) { /* the first of equals */
        uint64_t found = bits_of(load(distance + c) == least);
        if (found) best = c + __builtin_ctzll(found);
    }
    if (best >= s->clusters) best = 0; /* where no distance is a number */
    s->upper[n] = (REAL)sqrt(distance[best]);
    for (int64_t c = 0; c < w->width; c += LANES)
        store(s->lower + n * w->width + c, pick(lanes == (INTEGER)(best - c), infinite, square_root(load(distance + c))));
    return (int32_t)best;
}

/* The kernel's distances of the rows that wait to all centroids, and what follows from them. */
static void look(const Lloyd *s, Work *w, const Block *b) {
    int64_t count = w->waiting, wide = w->wide, clusters = s->clusters;
    const REAL *rows = b->z + w->index[0] * wide;
    if (w->index[count - 1] - w->index[0] != count - 1) {
        for (int64_t i = 0; i < count; i++) memcpy(w->gathered + i * wide, b->z + w->index[i] * wide, wide * sizeof(REAL));
        rows = w->gathered;
    }
    Slice slice = {(const char *)rows, count, wide * (int64_t)sizeof(REAL), sizeof(REAL) == 4 ? FLOAT32 : FLOAT64, w->distances};
    EXPORT(walk)(&w->kernel, &slice, w->scratch, 0);
    for (int64_t i = 0; i < count; i++) {
        int64_t n = b->start + w->index[i];
        const REAL *distance = w->distances + i * clusters;
        REAL filled[w->width];
        if (clusters < w->width) {
            for (int64_t c = 0; c < w->width; c++) filled[c] = c < clusters ? distance[c] : (REAL)INFINITY;
            distance = filled;
        }
        int32_t best = set_bounds(s, w, n, distance), old = s->label[n];
        if (best == old) continue;
        s->label[n] = best;
        s->mass[best]++;
        add(s->total + best * s->dim, rows + i * wide, s->dim, 1);
        if (old < 0) continue;
        s->mass[old]--;
        add(s->total + old * s->dim, rows + i * wide, s->dim, -1);
    }
}

/* Sum of the lanes, in whatever order is fastest: what is decided by it is not decided where rounding could matter. */
INLINE REAL sum_of(vec v) {
#if defined(__AVX512F__)
    return sizeof(REAL) == 4 ? (REAL)_mm512_reduce_add_ps((__m512)v) : (REAL)_mm512_reduce_add_pd((__m512d)v);
#else
    REAL sum = 0;
    for (int i = 0; i < LANES; i++) sum += v[i];
    return sum;
#endif
}

/* Squared distance of a centred row to a centroid. */
static REAL squared(const Work *w, const REAL *restrict z, REAL energy, int64_t c) {
    const REAL *restrict point = w->points + c * w->wide;
    const int64_t wide = w->wide, chains = CHAINS * LANES; /* sums that do not wait for each other */
    vec sums[CHAINS] = {0};
    int64_t j = 0;
    for (; j + chains <= wide; j += chains)
#pragma GCC unroll 8
        for (int k = 0; k < CHAINS; k++) sums[k] += load(z + j + k * LANES) * load(point + j + k * LANES);
    for (; j < wide; j += LANES) sums[0] += load(z + j) * load(point + j);
    for (int k = 1; k < CHAINS; k++) sums[0] += sums[k];
    REAL found = energy + w->bias[c] + sum_of(sums[0]);
    return found < 0 ? 0 : found;
}

/* Whether what is at least `low` away is surely farther than what is at most `high` away. */
INLINE int farther(REAL low, REAL high, REAL doubt) { return low > high && (low - high) * (low + high) > doubt; }

/* Whether a row surely keeps its label: it is compared with its own centroid, and with those that may be nearer, if they are few. */
static int stays(const Lloyd *s, const Work *w, int64_t n, const REAL *z, REAL doubt) {
    int64_t near = 0;
    REAL *low = s->lower + n * w->width, energy = s->energy[n], mine = squared(w, z, energy, s->label[n]), upper = (REAL)sqrt(mine);
    int sure = 1;
    s->upper[n] = upper;
    for (int64_t c = 0; c < w->width; c += LANES) {
        vec bound = load(low + c);
        mask close = ~((bound > upper) & ((bound - upper) * (bound + upper) > doubt));
        for (uint64_t left = bits_of(close); left; left &= left - 1) w->near[near++] = c + __builtin_ctzll(left);
    }
    if (2 * near > s->clusters) return 0;
    for (int64_t i = 0; i < near; i++) {
        REAL other = squared(w, z, energy, w->near[i]);
        low[w->near[i]] = (REAL)sqrt(other);
        sure &= other - mine > doubt;
    }
    return sure;
}

/* Update the bounds of a block after the centroids moved, and note the rows that may have changed. */
static void follow(const Lloyd *s, Work *w, Block *b) {
    w->waiting = 0;
    for (int64_t i = 0; i < b->count; i++) {
        int64_t n = b->start + i;
        REAL *low = s->lower + n * w->width, doubt = w->doubt * (s->energy[n] + w->largest), least;
        vec smallest = (vec){0} + (REAL)INFINITY;
        for (int64_t c = 0; c < w->width; c += LANES) {
            vec bound = load(low + c) * (1 - EPSILON) - load(w->shift + c); /* rounding must not raise it */
            store(low + c, bound);
            smallest = pick(bound < smallest, bound, smallest);
        }
        least = lowest(smallest);
        if (s->label[n] >= 0) s->upper[n] = (s->upper[n] + w->shift[s->label[n]]) * (1 + EPSILON);
        if (farther(least, s->upper[n], doubt)) continue;
        b->wanted[i] = 1;
        w->index[w->waiting++] = i;
    }
}

/* Labels of the rows that were noted. */
static void decide(const Lloyd *s, Work *w, const Block *b) {
    int64_t noted = w->waiting;
    w->waiting = 0;
    for (int64_t i = 0; i < noted; i++) {
        int64_t row = w->index[i], n = b->start + row;
        REAL doubt = w->doubt * (s->energy[n] + w->largest);
        if (s->label[n] < 0 || s->dim < LONG || !stays(s, w, n, b->z + row * w->wide, doubt)) w->index[w->waiting++] = row;
    }
    if (w->waiting) look(s, w, b);
}

/* Centroids become the means of their patches; says whether there is more to do. */
static void move(Lloyd *s) {
    int64_t size = s->clusters * s->dim, empty = 0;
    s->left--;
    for (int64_t c = 0; c < s->clusters; c++) empty |= s->mass[c] == 0;
    memcpy(s->before, s->centroids, size * sizeof(REAL));
    if (empty) {
        s->state = EMPTY;
        return;
    }
    for (int64_t c = 0; c < s->clusters; c++)
        for (int64_t j = 0; j < s->dim; j++)
            s->centroids[c * s->dim + j] = (REAL)(s->total[c * s->dim + j] / s->mass[c] + (double)s->origin[j]);
    if (s->left == 0 || memcmp(s->before, s->centroids, size * sizeof(REAL)) == 0) s->state = SETTLED;
}

/* Bytes of memory that a run needs. */
int64_t EXPORT(lloyd_memory)(const Lloyd *s) {
    Work w;
    return (int64_t)(cut(s, &w, (char *)0 + WORK) - (char *)0);
}

/* Iterate runs on the same sample until each of them has settled, has no iterations left, or has an empty cluster. */
void EXPORT(lloyd)(Lloyd *runs, int64_t count) {
    int64_t running = 0;
    for (int64_t r = 0; r < count; r++) {
        Work *w = (Work *)runs[r].memory;
        char *end = cut(runs + r, w, runs[r].memory + WORK);
        memset(runs[r].memory + WORK, 0, end - runs[r].memory - WORK);
        running += runs[r].state == RUNNING;
    }
    while (running) {
        for (int64_t r = 0; r < count; r++)
            if (runs[r].state == RUNNING) prepare(runs + r, (Work *)runs[r].memory);
        for (int64_t start = 0; start < runs->rows; start += BLOCK) {
            Block block = {start, runs->rows - start < BLOCK ? runs->rows - start : BLOCK, ((Work *)runs->memory)->block, {0}};
            for (int64_t r = 0; r < count; r++)
                if (runs[r].state == RUNNING) follow(runs + r, (Work *)runs[r].memory, &block);
            centre(runs, ((Work *)runs->memory)->wide, &block);
            for (int64_t r = 0; r < count; r++)
                if (runs[r].state == RUNNING) decide(runs + r, (Work *)runs[r].memory, &block);
        }
        for (int64_t r = 0; r < count; r++)
            if (runs[r].state == RUNNING) {
                move(runs + r);
                running -= runs[r].state != RUNNING;
            }
    }
}
