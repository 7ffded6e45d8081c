/* Second part of the compiled kernel: from logits to the assignment. */

#pragma once
#include <math.h>

#include "compiled_memory.h"

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

/* Whether all logits but one are so far below the largest that their posteriors count as zero: exponentials would say the same. */
INLINE int is_alone(const REAL *l, int64_t width, REAL top, REAL far) {
    int near = 0;
    for (int64_t c = 0; c < width; c += LANES) near += __builtin_popcountll(bits_of(load(l + c) - top > far));
    return near == 1;
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
    return bits_of(nan) ? (REAL)NAN : highest(most);
}

/* One for the first prototype that has the largest logit, zeros for the others. */
INLINE void take_all(REAL *a, int64_t width, REAL top) {
    int64_t best = 0;
    uint64_t found;
    while (!(found = bits_of(load(a + best) == top))) best += LANES;
    best += __builtin_ctzll(found);
    for (int64_t c = 0; c < width; c += LANES) store(a + c, (vec){0});
    a[best] = 1;
}

/* Logits to the assignment, in place. Returns the sum of the rows' scores, and each where `scores` is given; marks the odd rows, which
   hold what is not finite. */
static double assign(const Parameters *p, int64_t rows, const Memory *m, char *odd, REAL *scores) {
    int64_t width = m->width;
    REAL negligible = (REAL)p->negligible, temperature = (REAL)p->temperature, cut = (REAL)(log(p->negligible) - 1);
    REAL far = temperature > 1 ? cut * temperature : cut; /* zero both in the posterior and in the score, which has no temperature */
    double score = 0, totals = 1; /* their product: one logarithm for many rows */
    for (int64_t r = 0; r < rows; r++) {
        REAL *a = m->a + r * width, top = largest(a, width);
        double own = top, logarithm = 0;
        odd[r] = !(top - top == 0);
        if (odd[r]) {
            own = unusual(p, a);
        } else if (p->mode == HARD || is_alone(a, width, top, far)) {
            take_all(a, width, top);
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
