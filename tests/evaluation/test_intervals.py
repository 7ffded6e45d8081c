"""Resampling patients: coverage, pairing, and rows that travel with their patient."""

import numpy as np
import pytest
from scipy import stats

from panther.errors import InputError
from panther.evaluation import intervals as module
from panther.evaluation.intervals import (
    Difference,
    Interval,
    differences,
    intervals,
    resample,
    resample_counts,
    smallest_wilcoxon,
    wilcoxon,
)


def mean_of(values):
    return lambda counts: {"mean": counts @ values / counts.sum(-1)}


def interval(measure, patients, number=1000, seed=0) -> Interval:
    (found,) = intervals(resample(measure, patients, number, seed)).values()
    return found


def paired(first, second, patients, number=1000, seed=0) -> Difference:
    (found,) = differences(*(resample(side, patients, number, seed) for side in (first, second))).values()
    return found


def test_all_rows_of_a_drawn_patient_count_alike():
    patients = np.array(["a", "b", "a", "c", "b", "a"])
    (counts,) = resample_counts(patients, 50, seed=0)
    for patient in "abc":
        assert (np.ptp(counts[:, patients == patient], axis=1) == 0).all()
    assert (counts[:, [0, 1, 3]].sum(1) == 3).all()


def test_resamples_are_those_of_one_draw_of_patients_after_the_other_whatever_the_block(monkeypatch):
    patients = np.random.default_rng(1).integers(0, 37, 90)
    names, member = np.unique(patients.astype(str), return_inverse=True)
    rng = np.random.default_rng(3)
    expected = [np.bincount(rng.integers(len(names), size=len(names)), minlength=len(names))[member] for _ in range(25)]
    for block in (module.BLOCK, 7 * 90, 1):
        monkeypatch.setattr(module, "BLOCK", block)
        np.testing.assert_array_equal(np.concatenate(list(resample_counts(patients, 25, seed=3))), expected)


def test_the_interval_of_a_mean_is_the_normal_one():
    values = np.random.default_rng(0).normal(3, 2, 400)
    found = interval(mean_of(values), np.arange(400), 4000)
    half = 1.96 * values.std() / 20
    assert found.value == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.03)
    assert found.resamples == 4000


def test_intervals_cover_the_truth_as_often_as_they_say():
    covered = 0
    for seed in range(200):
        values = np.random.default_rng(seed).normal(0, 1, 60)
        found = interval(mean_of(values), np.arange(60), 200, seed)
        covered += found.low <= 0 <= found.high
    assert 0.88 <= covered / 200 <= 0.99


def test_slides_of_one_patient_do_not_make_the_interval_narrower():
    values = np.random.default_rng(0).normal(size=50)
    copies, patients = np.tile(values, 10), np.tile(np.arange(50), 10)
    once = interval(mean_of(values), np.arange(50), 500)
    often = interval(mean_of(copies), patients, 500)
    assert (often.high - often.low) == pytest.approx(once.high - once.low, rel=0.2)


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(0).normal(size=50)
    assert interval(mean_of(values), np.arange(50), 100, 3) == interval(mean_of(values), np.arange(50), 100, 3)


def test_undefined_resamples_are_left_out_and_counted():
    positive = np.array([True, False, False, False])
    found = interval(lambda counts: {"m": np.where(counts[:, positive].any(1), 1.0, np.nan)}, np.arange(4), 300)
    assert 150 < found.resamples < 280
    never = interval(lambda counts: {"m": np.full(len(counts), np.nan)}, np.arange(4), 20)
    assert never.resamples == 0
    assert np.isnan(never.low)


def test_pairing_sees_a_small_difference_that_separate_intervals_do_not():
    rng = np.random.default_rng(0)
    hard = rng.normal(0, 5, 200)  # what makes patients differ is common to both methods
    better, worse = hard + 0.3 + rng.normal(0, 0.3, 200), hard
    found = paired(mean_of(better), mean_of(worse), np.arange(200), 1000)
    assert found.low > 0
    assert found.p_value < 0.01
    alone = interval(mean_of(better), np.arange(200), 1000)
    assert alone.low < hard.mean() < alone.high


def test_equal_methods_do_not_differ():
    values = np.random.default_rng(0).normal(size=40)
    found = paired(mean_of(values), mean_of(values), np.arange(40), 100)
    assert (found.value, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_p_values_are_uniform_when_nothing_differs():
    p_values = []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        a, b = rng.normal(size=40), rng.normal(size=40)
        p_values.append(paired(mean_of(a), mean_of(b), np.arange(40), 150, seed).p_value)
    assert np.mean(np.array(p_values) < 0.1) < 0.22
    assert 0.35 < np.mean(p_values) < 0.65


def test_the_p_value_counts_the_data_themselves_on_both_sides():
    values = np.full(30, 0.5)  # every resample is on one side
    found = paired(mean_of(values), mean_of(values - 1), np.arange(30), 99)
    assert found.p_value == pytest.approx(2 / 100)
    mixed = np.random.default_rng(1).normal(0.1, 1.0, 50)
    found = paired(mean_of(mixed), mean_of(mixed * 0), np.arange(50), 400)
    drawn = resample(mean_of(mixed), np.arange(50), 400).drawn["mean"]
    assert found.p_value == pytest.approx(2 * (np.sum(drawn <= 0) + 1) / 401)


@pytest.mark.parametrize("tied", [False, True])
def test_wilcoxon_is_to_the_last_digit_that_of_scipy(tied):
    rng = np.random.default_rng(0)
    for folds in (2, 3, 5, 8, 15, 50, 51, 80):
        for _ in range(10):
            difference = rng.integers(-4, 5, folds) / 8 if tied else rng.normal(0.3, 1, folds)
            kept = difference[difference != 0]
            if len(kept) > 0:
                exact = len(kept) <= 50 and len(np.unique(np.abs(kept))) == len(kept)
                expected = stats.wilcoxon(kept, method="exact" if exact else "approx").pvalue
                assert wilcoxon(difference, np.zeros(folds)) == expected


def test_wilcoxon_over_folds_is_scipys_and_says_nothing_about_equal_folds():
    a, b = [0.7, 0.71, 0.69, 0.75, 0.73], [0.65, 0.70, 0.66, 0.71, 0.67]
    assert wilcoxon(a, b) == pytest.approx(stats.wilcoxon(a, b).pvalue)
    assert wilcoxon(a, b) == pytest.approx(0.0625)
    assert wilcoxon(a, a) == 1.0
    assert wilcoxon([0.5, 0.6, 0.5], [0.5, 0.5, 0.6]) == pytest.approx(1.0)  # ties and zeros
    assert [smallest_wilcoxon(n) for n in (5, 10)] == pytest.approx(
        [wilcoxon(np.arange(1.0, n + 1), np.zeros(n)) for n in (5, 10)]
    )
    with pytest.raises(InputError, match="pairs the folds"):
        wilcoxon([0.1], [0.2])


def test_nobody_to_resample_is_refused():
    with pytest.raises(InputError, match="no patients"):
        next(resample_counts([], 1, 0))
