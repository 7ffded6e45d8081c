"""Resampling of patients: coverage, pairing, several rows per patient; exact bounds of perfect scores."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from panther.evaluation import intervals as module
from panther.evaluation.intervals import (
    Difference,
    Interval,
    best_of,
    differences,
    exact_lower,
    exact_lower_balanced,
    intervals,
    is_perfect,
    over_folds,
    resample,
    resample_counts,
    sign_test,
)


def mean_of(values):
    return lambda counts: {"mean": counts @ values / counts.sum(-1)}


def interval(measure, patients, number=1000, seed=0) -> Interval:
    (result,) = intervals(resample(measure, patients, number, seed)).values()
    return result


def paired(first, second, patients, number=1000, seed=0) -> Difference:
    (result,) = differences(*(resample(side, patients, number, seed) for side in (first, second))).values()
    return result


def test_rows_of_a_drawn_patient_have_equal_counts():
    patients = np.array(["a", "b", "a", "c", "b", "a"])
    (counts,) = resample_counts(patients, 50, seed=0)
    for patient in "abc":
        assert (np.ptp(counts[:, patients == patient], axis=1) == 0).all()
    assert (counts[:, [0, 1, 3]].sum(1) == 3).all()


def test_resamples_do_not_depend_on_the_size_of_blocks(monkeypatch):
    patients = np.random.default_rng(1).integers(0, 37, 90)
    names, member = np.unique(patients.astype(str), return_inverse=True)
    rng = np.random.default_rng(3)
    expected = [np.bincount(rng.integers(len(names), size=len(names)), minlength=len(names))[member] for _ in range(25)]
    for block in (module.BLOCK, 7 * 90, 1):
        monkeypatch.setattr(module, "BLOCK", block)
        np.testing.assert_array_equal(np.concatenate(list(resample_counts(patients, 25, seed=3))), expected)


def test_intervals_cover_the_truth_as_often_as_they_say():
    covered = 0
    for seed in range(200):
        values = np.random.default_rng(seed).normal(0, 1, 60)
        result = interval(mean_of(values), np.arange(60), 200, seed)
        covered += result.low <= 0 <= result.high
    assert 0.88 <= covered / 200 <= 0.99


def test_undefined_resamples_are_left_out_and_counted():
    positive = np.array([True, False, False, False])
    result = interval(lambda counts: {"m": np.where(counts[:, positive].any(1), 1.0, np.nan)}, np.arange(4), 300)
    assert 150 < result.resamples < 280
    never = interval(lambda counts: {"m": np.full(len(counts), np.nan)}, np.arange(4), 20)
    assert never.resamples == 0
    assert np.isnan(never.low)


def test_the_p_value_counts_the_data_themselves_on_both_sides():
    values = np.full(30, 0.5)  # every resample is on one side
    result = paired(mean_of(values), mean_of(values - 1), np.arange(30), 99)
    assert result.p_value == pytest.approx(2 / 100)
    mixed = np.random.default_rng(1).normal(0.1, 1.0, 50)
    result = paired(mean_of(mixed), mean_of(mixed * 0), np.arange(50), 400)
    drawn = resample(mean_of(mixed), np.arange(50), 400).drawn["mean"]
    assert result.p_value == pytest.approx(2 * (np.sum(drawn <= 0) + 1) / 401)


@pytest.mark.parametrize(("won", "lost"), [(4, 0), (5, 2), (3, 3), (1, 8)])
def test_the_sign_test_is_the_binomial_test_of_scipy(won, lost):
    assert sign_test(won, lost) == pytest.approx(stats.binomtest(won, won + lost).pvalue)
    assert sign_test(won, lost) == sign_test(lost, won)


@pytest.mark.parametrize("folds", [2, 5, 10])
def test_over_folds_the_variance_is_that_of_nadeau_and_bengio(folds):
    drawn = resample(mean_of(np.random.default_rng(0).normal(size=100)), np.arange(100), 500)
    spread = over_folds(drawn, 100, 100 / folds)
    ratio = spread.drawn["mean"].var() / drawn.drawn["mean"].var()
    assert ratio == pytest.approx((1 / folds + 1 / (folds - 1)) / (1 / folds))
    assert spread.drawn["mean"].mean() == pytest.approx(drawn.drawn["mean"].mean())
    assert spread.whole == drawn.whole


def test_the_best_of_many_equal_rows_is_corrected_for_its_selection():
    above, errors = [], []
    for seed in range(100):
        values = np.random.default_rng(seed).normal(size=(10, 50))
        rows = [resample(mean_of(sample), np.arange(50), 200) for sample in values]
        result = best_of(rows, "mean")
        above.append((max(intervals(row)["mean"].low for row in rows) > 0, result.low > 0))
        errors.append((max(row.whole["mean"] for row in rows), result.value))
    assert np.mean(above, axis=0)[0] > 0.15  # as it is
    assert np.mean(above, axis=0)[1] <= 0.07
    as_it_is, corrected = np.mean(errors, axis=0)
    assert corrected < 0.4 * as_it_is


def test_a_row_that_is_surely_best_needs_no_correction_and_without_resamples_there_is_none():
    values = np.random.default_rng(0).normal(size=80)
    rows = [resample(mean_of(values + shift), np.arange(80), 300) for shift in (0, 9, -9)]
    none = [resample(mean_of(np.arange(4.0) + n), np.arange(4), 0) for n in range(2)]
    assert np.isnan([best_of(none, "mean").value, best_of(none, "mean").low]).all()
    assert over_folds(none[0], 4, 2).drawn["mean"].size == 0
    result = best_of(rows, "mean")
    assert result.value == pytest.approx(rows[1].whole["mean"], abs=0.03)
    least = best_of(
        [resample(mean_of(-values - shift), np.arange(80), 300) for shift in (0, 9, -9)], "mean", lower=True
    )
    assert (least.value, least.low, least.high) == pytest.approx((-result.value, -result.high, -result.low))


@pytest.mark.parametrize("page", ["docs/tutorials/demo.md", "docs/how-to/studies.md", "docs/how-to/report.md"])
def test_pages_have_the_caption_of_the_tables(page):
    text = (Path(__file__).parents[3] / page).read_text(encoding="utf-8")
    assert module.CAPTION in " ".join(text.split())


@pytest.mark.parametrize("patients", [1, 5, 30, 58, 400])
def test_the_bound_of_n_right_of_n_is_that_of_clopper_and_pearson(patients):
    expected = stats.binomtest(patients, patients).proportion_ci(0.95, method="exact").low
    assert exact_lower(patients) == pytest.approx(expected, abs=1e-12)
    perfect = [is_perfect(mean, "c_index") for mean in (float(np.mean([1.0] * 7)), 0.9999, np.nan)]
    assert perfect == [True, False, False]
    assert not is_perfect(3.0, "mae")


def test_the_bound_of_balanced_accuracy_is_the_worst_that_explains_the_result():
    counts = np.array([6, 20, 50])
    result = exact_lower_balanced(counts)
    share = np.random.default_rng(0).dirichlet(np.full(3, 0.5), 50_000)  # who bears how much of the unlikeliness
    recalls = np.exp(np.log(0.025) * share / counts)
    np.testing.assert_allclose((recalls**counts).prod(1), 0.025)
    assert recalls.mean(1).min() >= result
    assert recalls.mean(1).min() == pytest.approx(result, abs=1e-4)
