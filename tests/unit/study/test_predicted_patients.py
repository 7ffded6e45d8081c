"""What methods predicted of each patient: means over seeds and folds, ranks among those tested together."""

import numpy as np
import pandas as pd
import pytest

from panther.study.patients import classified, mean_over_methods, ranked


def test_probabilities_are_means_over_seeds():
    rows = [("A", 1, "x", "a", 0.9), ("A", 2, "x", "a", 0.2), ("A", 1, "y", "b", 0.3), ("B", 1, "x", "a", 0.4)]
    table = pd.DataFrame(rows, columns=["row", "seed", "sample", "label", "probability_a"])
    table = table.assign(patient=table["sample"], fold=0, probability_b=1 - table["probability_a"])
    result = classified(table, ["A", "B"], ["a", "b"])
    assert result.samples == ["x", "y"]
    assert result.predicted.tolist() == [[0, 1], [1, -1]]  # B never met y
    np.testing.assert_allclose(result.of_truth, [[0.55, 0.7], [0.4, np.nan]])
    np.testing.assert_allclose(mean_over_methods(result.of_truth), [0.475, 0.7])


def test_a_truth_that_is_no_class_of_the_study_is_not_judged():
    table = pd.DataFrame(
        {"row": "A", "seed": 1, "fold": 0, "sample": ["x"], "patient": ["x"], "label": ["other"], "probability_a": 1.0}
    )
    result = classified(table, ["A"], ["a"])
    assert result.truth.tolist() == [-1]
    assert np.isnan(result.of_truth).all()


def test_ranks_compare_those_that_one_model_met():
    # the second fold's model counts risk in thousands; its patients are compared with each other only
    rows = [(0, "p", 10, True, 0.3), (0, "q", 20, True, 0.1), (0, "r", 30, False, 0.2)]
    rows += [(1, "s", 5, True, 1000.0), (1, "t", 50, True, 9000.0), (2, "u", 7, True, 1.0)]
    table = pd.DataFrame(rows, columns=["fold", "sample", "time", "event", "risk"]).assign(row="A", seed=1)
    result = ranked(table.assign(patient=table["sample"]), ["A"])
    np.testing.assert_allclose(result.rank[0], [1, 0, 0.5, 0, 1, np.nan])
    # q dies before r is lost from sight, with the lower risk; alone in its fold, u is in no pair
    np.testing.assert_allclose(result.wrong[0], [0, 0.5, 0.5, 1, 1, np.nan])


@pytest.mark.parametrize("values", [np.full((2, 3), np.nan), np.empty((0, 3))])
def test_a_mean_of_nothing_is_not_known(values):
    assert np.isnan(mean_over_methods(values)).all()
