/* What EM does between two walks over the patches (`mixture.py` says what is right): small, but twenty calls of torch, each of which finds
   the caches emptied by the walk, cost a tenth of it, and torch's own threads would keep a core busy waiting after them. */

#include <math.h>

#include "compiled_types.h"

/* Their logarithms' sum: that of a product, taken before it could leave the range of a double. */
static double sum_of_logarithms(const double *x, int64_t count) {
    double sum = 0, product = 1;
    for (int64_t j = 0; j < count; j++) {
        product *= x[j];
        if (!(product > 1e-100 && product < 1e100)) {
            sum += log(product);
            product = 1;
        }
    }
    return sum + log(product);
}

/* E-step: factors of the logits, linear and quadratic (dim, count) and bias (count), of weights (count), means (count, dim) and variances
   of the same shape or, shared by the components, (1, dim), where quadratic is NULL. */
void EXPORT(factors)(int64_t count, int64_t dim, const double *weights, const double *means, const double *variances, REAL *linear,
                     REAL *quadratic, REAL *bias) {
    double constant = dim * log(2 * M_PI), logarithms = 0;
    for (int64_t c = 0; c < count; c++) {
        const double *mean = means + c * dim, *variance = variances + (quadratic ? c * dim : 0);
        double distance = 0, weight = weights[c] > 0 ? log(weights[c]) : weights[c] == 0 ? -INFINITY : 0;
        if (c == 0 || quadratic) logarithms = sum_of_logarithms(variance, dim);
        for (int64_t j = 0; j < dim; j++) {
            double over = 1 / variance[j], slope = mean[j] * over;
            distance += mean[j] * slope;
            linear[j * count + c] = (REAL)slope;
            if (quadratic) quadratic[j * count + c] = (REAL)(-0.5 * over);
        }
        bias[c] = (REAL)(weight - 0.5 * (distance + logarithms + constant));
    }
}

/* M-step: weights (count), means and variances (count, dim) of the sums, with pseudo-count tau on centres (count, dim) and the starting
   variance (dim), which a component without mass keeps. */
void EXPORT(maximise)(int64_t count, int64_t dim, double tau, const double *mass, const double *total, const double *square,
                      const double *restrict centres, const double *restrict start, double *restrict weights, double *restrict means,
                      double *restrict variances) {
    double whole = 0;
    for (int64_t c = 0; c < count; c++) whole += mass[c] + tau;
    for (int64_t c = 0; c < count; c++, total += dim, square += dim, centres += dim, means += dim, variances += dim) {
        double own = mass[c] + tau;
        weights[c] = own / whole;
        if (own == 0) {
            memcpy(means, centres, dim * sizeof(double));
            memcpy(variances, start, dim * sizeof(double));
            continue;
        }
        for (int64_t j = 0; j < dim; j++) {
            double mean = (total[j] + tau * centres[j]) / own;
            double second = (square[j] + tau * (start[j] + centres[j] * centres[j])) / own, spread = second - mean * mean;
            means[j] = mean;
            variances[j] = spread < 0 ? 0 : spread; /* NaN stays */
        }
    }
}

/* Whether a component of more than one patch lies farther from the origin than `most` variances, squared. */
int64_t EXPORT(far_out)(int64_t count, int64_t dim, double most, const double *mass, const double *means, const double *variances) {
    for (int64_t c = 0; c < count; c++, means += dim, variances += dim) {
        double distance = 0, spread = 0;
        if (!(mass[c] > 1.5 && mass[c] < INFINITY)) continue;
        for (int64_t j = 0; j < dim; j++) {
            distance += means[j] * means[j];
            spread += variances[j];
        }
        if (distance > most * spread) return 1;
    }
    return 0;
}
