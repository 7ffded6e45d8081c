/* Sinkhorn's iterations on one bag's costs (`aggregators/ot.py` says what they are, and is what is right). One thread; one pass over the
   kernel in each iteration. */

#include <float.h>
#include <math.h>

#include "compiled_types.h"

typedef struct {
    const REAL *cost; /* (rows, count), divided by epsilon */
    int64_t rows, count, iterations, check_every;
    double tolerance, large;
    REAL *kernel;     /* (rows, width): exp(potentials - cost), each row divided by its largest, filled up with zeros */
    REAL *potentials; /* (width), zeros at the start */
    REAL *scaling;    /* (width), filled up with zeros */
    REAL *marginal;   /* (width): of the plan with exact rows */
    double violation; /* at the end: total variation between that and the uniform one */
} Transport;

#define MIN_EXPONENT (sizeof(REAL) == 4 ? -87 : -700) /* what is smaller counts as zero */

/* The kernel anew, from the potentials; the scaling is 1 again. */
static void renew(const Transport *t, int64_t width) {
    for (int64_t c = 0; c < t->count; c++) t->scaling[c] = 1;
    for (int64_t n = 0; n < t->rows; n++) {
        const REAL *cost = t->cost + n * t->count;
        REAL *row = t->kernel + n * width, top = -(REAL)INFINITY;
        for (int64_t c = 0; c < t->count; c++) {
            row[c] = t->potentials[c] - cost[c];
            top = row[c] > top ? row[c] : top;
        }
        for (int64_t c = t->count; c < width; c++) row[c] = -(REAL)INFINITY;
        for (int64_t c = 0; c < width; c += LANES) {
            vec x = load(row + c) - top; /* NaN becomes zero too: the row's sum is then 0, and all that follows NaN */
            mask seen = x > (REAL)MIN_EXPONENT;
            store(row + c, pick(seen, exponential(pick(seen, x, (vec){0})), (vec){0}));
        }
    }
}

/* Column marginal of the plan whose rows are exact: scaling * K^T (a / (K scaling)). */
static void measure(const Transport *t, int64_t width) {
    REAL share = (REAL)1 / t->rows;
    memset(t->marginal, 0, width * sizeof(REAL));
    for (int64_t n = 0; n < t->rows; n++) {
        const REAL *row = t->kernel + n * width;
        vec sum = {0};
        REAL total = 0, u;
        for (int64_t c = 0; c < width; c += LANES) sum += load(row + c) * load(t->scaling + c);
        for (int i = 0; i < LANES; i++) total += sum[i];
        u = share / total;
        for (int64_t c = 0; c < width; c += LANES) store(t->marginal + c, load(t->marginal + c) + load(row + c) * u);
    }
    for (int64_t c = 0; c < width; c += LANES) store(t->marginal + c, load(t->marginal + c) * load(t->scaling + c));
}

static double violation(const Transport *t) {
    double sum = 0;
    for (int64_t c = 0; c < t->count; c++) sum += fabs((double)t->marginal[c] - 1.0 / t->count);
    return sum / 2;
}

/* Iterate; returns how often. */
int64_t EXPORT(sinkhorn)(Transport *t) {
    int64_t width = (t->count + LANES - 1) / LANES * LANES, done;
    REAL tiny = sizeof(REAL) == 4 ? (REAL)FLT_MIN : (REAL)DBL_MIN;
    memset(t->scaling, 0, width * sizeof(REAL));
    renew(t, width);
    for (done = 1; done <= t->iterations; done++) {
        REAL low = (REAL)INFINITY, high = 0;
        measure(t, width);
        if (done % t->check_every == 0 && violation(t) < t->tolerance) break;
        for (int64_t c = 0; c < t->count; c++) {
            REAL marginal = t->marginal[c] < tiny ? tiny : t->marginal[c], scaled = t->scaling[c] / t->count / marginal;
            t->scaling[c] = scaled;
            low = scaled < low ? scaled : low;
            high = scaled > high ? scaled : high;
        }
        if (low < 1 / t->large || high > t->large) { /* before they overflow */
            for (int64_t c = 0; c < t->count; c++) {
                REAL moved = (REAL)log((double)t->scaling[c]);
                t->potentials[c] += moved < -500 ? -500 : moved > 500 ? 500 : moved;
            }
            renew(t, width);
        }
    }
    for (int64_t c = 0; c < t->count; c++) t->potentials[c] += (REAL)log((double)t->scaling[c]);
    renew(t, width);
    measure(t, width);
    t->violation = violation(t);
    return done > t->iterations ? t->iterations : done;
}
