"""Metrics of numbers against scipy and scikit-learn; counts are rows repeated."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from panther.evaluation.metrics import counted_ranks, value_metrics
from panther.evaluation.verdicts import group_names, worst_groups

RNG = np.random.default_rng(0)


def numbers(n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Values with ties, around a large mean."""
    truth = RNG.integers(8, size=n) + 1e6
    return truth, truth + np.round(RNG.normal(0, 2, n))


def oracle(truth: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    return {
        "pearson": stats.pearsonr(truth, predicted).statistic,
        "spearman": stats.spearmanr(truth, predicted).statistic,
        "r2": sk.r2_score(truth, predicted),
        "mae": sk.mean_absolute_error(truth, predicted),
    }


def test_counts_are_rows_repeated_so_often():
    truth, predicted = numbers()
    drawn = RNG.integers(30, size=(50, 30))
    counts = np.stack([np.bincount(rows, minlength=30) for rows in drawn]).astype(float)
    found = value_metrics(truth, predicted, counts)
    for i, rows in enumerate(drawn):
        assert {k: v[i] for k, v in found.items()} == pytest.approx(oracle(truth[rows], predicted[rows]), abs=1e-9)
    ranks = counted_ranks(predicted, counts)
    for i, rows in enumerate(drawn):
        np.testing.assert_array_equal(ranks[i][np.sort(rows)], stats.rankdata(predicted[np.sort(rows)]))


def test_constant_values_have_no_correlation_and_a_constant_truth_no_r2():
    truth = np.array([1.0, 2.0, 3.0])
    found = value_metrics(truth, np.full(3, 0.1))
    assert np.isnan([found["pearson"], found["spearman"]]).all()
    assert np.isfinite([found["r2"], found["mae"]]).all()
    alone = value_metrics(truth, truth, np.array([[0.0, 4.0, 0.0]]))
    assert np.isnan([alone["pearson"][0], alone["r2"][0]]).all()
    assert alone["mae"][0] == 0


def test_many_numbers_are_cut_into_thirds_and_texts_stay():
    import pandas as pd

    ages = pd.Series([str(age) for age in range(30, 60)] + [""])
    names = group_names(ages, "age")
    assert names.value_counts().drop("").tolist() == [10, 10, 10]
    assert names.iloc[-1] == ""
    assert names.iloc[0].startswith("up to")
    few = pd.Series(["1", "2", "1"])
    assert group_names(few, "stage").tolist() == ["1", "2", "1"]


def test_the_worst_group_is_named_and_small_ones_are_not_counted():
    import pandas as pd

    def summary(metric):
        rows = [("", "", 0.7, 90), ("sex: f", "sex", 0.6, 40), ("sex: m", "sex", 0.8, 50), ("sex: x", "sex", 0.1, 3)]
        table = pd.DataFrame(rows, columns=["subgroup", "by", "mean", "patients"])
        return table.assign(metric=metric, ci_low=table["mean"] - 0.1, ci_high=np.nan)

    (said,) = worst_groups(summary("c_index"))
    assert said.startswith("Worst of 2 groups by sex: f 0.600 [0.500, nan] (40 patients); best m 0.800")
    assert "1 of fewer than 10 patients not counted" in said
    (said,) = worst_groups(summary("mae"))
    assert said.startswith("Worst of 2 groups by sex: m 0.800")
