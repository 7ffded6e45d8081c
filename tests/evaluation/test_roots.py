"""Roots are those of scipy."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from panther.evaluation.roots import bracketed_root

FUNCTIONS = {
    "cubic": (lambda x: x**3 - 2 * x - 5, 2.0, 3.0),
    "steep": (lambda x: math.atan(1e6 * (x - 0.1)), -4.0, 3.0),
    "exponential": (lambda x: math.exp(x) - 1e3, -7.0, 7.0),
    "at an end": (lambda x: x, 0.0, 1.0),
    "at the other end": (lambda x: x - 1, 0.0, 1.0),
    "from above": (lambda x: math.cos(x) - x, 2.0, -1.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("xtol", [1e-3, 1e-10, 1e-13])
def test_roots_are_scipys(name, xtol):
    function, low, high = FUNCTIONS[name]
    assert bracketed_root(function, low, high, xtol) == pytest.approx(brentq(function, low, high, xtol=xtol), rel=1e-14)


def test_random_sums_of_exponentials_have_scipys_roots():
    rng = np.random.default_rng(0)
    for _ in range(100):
        rates, wanted = rng.normal(size=5), rng.uniform(4, 6)

        def function(x, rates=rates, wanted=wanted):
            return float(np.exp(np.abs(rates) * x).sum() - wanted)

        expected = brentq(function, -9, 9, xtol=1e-10)
        assert bracketed_root(function, -9, 9, 1e-10) == pytest.approx(expected, rel=1e-12)


def test_what_has_no_root_between_the_ends_is_refused():
    with pytest.raises(ValueError, match="same sign"):
        bracketed_root(lambda x: x * x + 1, -1, 1, 1e-6)
    with pytest.raises(ValueError, match="no root"):  # scipy gives up as well
        bracketed_root(lambda x: (x - 0.3) ** 9, -1, 2, 1e-13)
