"""Exact bounds of perfect scores."""

import numpy as np
import pytest
from scipy import stats

from panther.evaluation.intervals import exact_lower, exact_lower_balanced, is_perfect


@pytest.mark.parametrize("patients", [1, 5, 30, 58, 400])
def test_the_bound_of_n_right_of_n_is_that_of_clopper_and_pearson(patients):
    expected = stats.binomtest(patients, patients).proportion_ci(0.95, method="exact").low
    assert exact_lower(patients) == pytest.approx(expected, abs=1e-12)


def test_the_bound_of_balanced_accuracy_is_the_worst_that_explains_the_result():
    counts = np.array([6, 20, 50])
    found = exact_lower_balanced(counts)
    share = np.random.default_rng(0).dirichlet(np.full(3, 0.5), 50_000)  # who bears how much of the unlikeliness
    recalls = np.exp(np.log(0.025) * share / counts)
    np.testing.assert_allclose((recalls**counts).prod(1), 0.025)
    assert recalls.mean(1).min() >= found
    assert recalls.mean(1).min() == pytest.approx(found, abs=1e-4)


def test_one_class_and_classes_of_one_size_are_the_simple_bound():
    assert exact_lower_balanced([25]) == pytest.approx(exact_lower(25))
    assert exact_lower_balanced([10, 10, 10]) == pytest.approx(exact_lower(30))


def test_a_small_class_leaves_much_open_however_large_the_others_are():
    assert exact_lower_balanced([3, 1000]) < 0.66
    assert exact_lower_balanced([3, 1000]) > 0.5
    assert exact_lower_balanced([0, 1000]) == 0.0
    assert exact_lower(0) == 0.0


def test_perfect_is_1_and_nothing_less():
    assert is_perfect(float(np.mean([1.0] * 7)), "c_index")
    assert not is_perfect(0.9999, "c_index")
    assert not is_perfect(np.nan, "c_index")
    assert not is_perfect(3.0, "mae")
