"""How good predictions are: metrics, intervals, comparisons, correction for many tests, shift between sites. Arrays in, numbers out."""
