/* Lloyd iterations on a sample in memory, with Elkan's bounds (`prototypes/lloyd.py` says what is right, and why bounds). One thread; distances
   come from the kernel, sums of clusters are in double and follow the patches that change. */

#include <math.h>

#include "compiled_types.h"

#define GATHERED 96 /* rows that are looked at together */

typedef struct {
    const REAL *x; /* (rows, dim) */
    int64_t rows, dim, clusters;
    const REAL *origin; /* (dim) */
    double slack;
    int32_t *label;     /* (rows), -1: none yet */
    REAL *upper;        /* (rows): on the distance to the own centroid */
    REAL *lower;        /* (rows, width): on those to the others; infinite for the own, and beyond the last cluster */
    double *mass;       /* (clusters) */
    double *total;      /* (clusters, dim), about the origin */
    REAL *before;       /* (clusters, dim): centroids that labels and bounds belong to */
    REAL *centroids;    /* (clusters, dim): where they have moved to */
    char *memory;       /* as much as lloyd_memory says */
} Lloyd;

typedef struct {
    Parameters kernel;
    REAL *origin, *linear, *bias; /* of the kernel */
    REAL *shift;                  /* (width) */
    REAL *rows;                   /* (GATHERED, dim) */
    REAL *distances;              /* (GATHERED, clusters) */
    double *unused;               /* (clusters + 1): what the kernel has to say of masses */
    REAL *scratch;
    int64_t width, waiting, index[GATHERED];
} Work;

INLINE char *taken(char **memory, int64_t size) {
    char *own = *memory;
    *memory += (size + 63) / 64 * 64;
    return own;
}

/* Cut the memory into what is needed; returns where it ends. */
static char *cut(const Lloyd *s, Work *w, char *memory) {
    int64_t dim = tiles_of(s->dim) * COLUMNS, panels = (s->clusters + LANES - 1) / LANES, real = sizeof(REAL);
    w->width = panels * LANES;
    w->waiting = 0;
    w->origin = (REAL *)taken(&memory, dim * real);
    w->linear = (REAL *)taken(&memory, w->width * dim * real);
    w->bias = (REAL *)taken(&memory, w->width * real);
    w->shift = (REAL *)taken(&memory, w->width * real);
    w->rows = (REAL *)taken(&memory, GATHERED * s->dim * real);
    w->distances = (REAL *)taken(&memory, GATHERED * s->clusters * real);
    w->unused = (double *)taken(&memory, (s->clusters + 1) * sizeof(double));
    w->kernel = (Parameters){.dim = s->dim, .prototypes = s->clusters, .panels = panels, .mode = DISTANCES, .temperature = 1,
                             .negligible = 1e-30, .origin = w->origin, .linear = w->linear, .bias = w->bias};
    w->scratch = (REAL *)taken(&memory, EXPORT(scratch)(&w->kernel));
    return memory;
}

/* The kernel's parameters of the centroids, -2 p and |p|^2, and how far each has moved. */
static void prepare(const Lloyd *s, Work *w) {
    int64_t dim = tiles_of(s->dim) * COLUMNS;
    memset(w->shift, 0, w->width * sizeof(REAL));
    for (int64_t c = 0; c < s->clusters; c++) {
        REAL *out = w->linear + c / LANES * dim * LANES + c % LANES;
        double norm = 0, moved = 0;
        for (int64_t j = 0; j < s->dim; j++) {
            REAL to = s->centroids[c * s->dim + j], p = to - s->origin[j], step = to - s->before[c * s->dim + j];
            out[j * LANES] = -2 * p;
            norm += (double)p * p;
            moved += (double)step * step;
        }
        w->bias[c] = (REAL)norm;
        w->shift[c] = (REAL)sqrt(moved);
    }
}

INLINE void add_centred(double *restrict total, const REAL *restrict x, const REAL *restrict origin, int64_t dim, double sign) {
    for (int64_t j = 0; j < dim; j++) total[j] += sign * (double)(x[j] - origin[j]);
}

/* Distances of the rows that wait to all centroids, and what follows from them. */
static void look(const Lloyd *s, Work *w) {
    int64_t count = w->waiting, dim = s->dim, clusters = s->clusters;
    const REAL *rows = s->x + w->index[0] * dim;
    if (w->index[count - 1] - w->index[0] != count - 1) {
        for (int64_t i = 0; i < count; i++) memcpy(w->rows + i * dim, s->x + w->index[i] * dim, dim * sizeof(REAL));
        rows = w->rows;
    }
    Slice slice = {(const char *)rows, count, dim * (int64_t)sizeof(REAL), sizeof(REAL) == 4 ? FLOAT32 : FLOAT64, w->distances, 0};
    EXPORT(walk)(&w->kernel, &slice, w->scratch, w->scratch, w->unused, w->unused + clusters);
    for (int64_t i = 0; i < count; i++) {
        int64_t n = w->index[i];
        const REAL *distance = w->distances + i * clusters;
        REAL *low = s->lower + n * w->width;
        int32_t best = 0, old = s->label[n];
        for (int32_t c = 1; c < clusters; c++)
            if (distance[c] < distance[best]) best = c;
        for (int64_t c = 0; c < clusters; c++) low[c] = (REAL)sqrt(distance[c]);
        s->upper[n] = low[best];
        low[best] = (REAL)INFINITY;
        if (best == old) continue;
        s->label[n] = best;
        s->mass[best]++;
        add_centred(s->total + best * dim, rows + i * dim, s->origin, dim, 1);
        if (old < 0) continue;
        s->mass[old]--;
        add_centred(s->total + old * dim, rows + i * dim, s->origin, dim, -1);
    }
    w->waiting = 0;
}

/* Update everything after the centroids moved; patches that cannot have changed are not looked at. */
static void follow(const Lloyd *s, Work *w) {
    REAL slack = (REAL)s->slack;
    for (int64_t n = 0; n < s->rows; n++) {
        REAL *low = s->lower + n * w->width, least;
        vec smallest = (vec){0} + (REAL)INFINITY;
        for (int64_t c = 0; c < w->width; c += LANES) {
            vec bound = load(low + c) - load(w->shift + c);
            store(low + c, bound);
            smallest = pick(bound < smallest, bound, smallest);
        }
        least = smallest[0];
        for (int i = 1; i < LANES; i++) least = smallest[i] < least ? smallest[i] : least;
        if (s->label[n] >= 0) s->upper[n] += w->shift[s->label[n]];
        if (s->upper[n] + slack < least) continue;
        w->index[w->waiting++] = n;
        if (w->waiting == GATHERED) look(s, w);
    }
    if (w->waiting) look(s, w);
}

/* Centroids become the means of their patches. */
static void move(const Lloyd *s) {
    memcpy(s->before, s->centroids, s->clusters * s->dim * sizeof(REAL));
    for (int64_t c = 0; c < s->clusters; c++)
        for (int64_t j = 0; j < s->dim; j++)
            s->centroids[c * s->dim + j] = (REAL)(s->total[c * s->dim + j] / s->mass[c] + (double)s->origin[j]);
}

/* Bytes of memory that a run needs. */
int64_t EXPORT(lloyd_memory)(const Lloyd *s) {
    Work w;
    return (int64_t)(cut(s, &w, 0) - (char *)0);
}

/* Iterate until nothing moves, or at most `most` times; returns how often. A cluster that is empty stops it, with the number negative: its
   centroid is for the caller to move. */
int64_t EXPORT(lloyd)(const Lloyd *s, int64_t most) {
    Work w;
    int64_t size = s->clusters * s->dim;
    memset(s->memory, 0, cut(s, &w, s->memory) - s->memory);
    memcpy(w.origin, s->origin, s->dim * sizeof(REAL));
    for (int64_t done = 1; done <= most; done++) {
        int empty = 0;
        prepare(s, &w);
        follow(s, &w);
        for (int64_t c = 0; c < s->clusters; c++) empty |= s->mass[c] == 0;
        if (empty) {
            memcpy(s->before, s->centroids, size * sizeof(REAL));
            return -done;
        }
        move(s);
        if (memcmp(s->before, s->centroids, size * sizeof(REAL)) == 0) return done;
    }
    return most;
}
