"""Numbers and several labels from tables: what is read, what is refused, and folds that hold them alike."""

import numpy as np
import pandas as pd
import pytest

from panther import make_splits
from panther.cohort.load import load_cohort
from panther.cohort.spec import SplitSpec
from panther.cohort.splits import Split, balanced_splits, check
from panther.errors import InputError


def table(n: int = 60, **columns) -> pd.DataFrame:
    names = [f"P{i:03d}" for i in range(n)]
    return pd.DataFrame({"slide_id": names, "case_id": names, **columns})


def test_numbers_are_read_and_rows_without_one_are_dropped():
    cohort = load_cohort(table(4, tils=["1.5", "", "-3", "2e3"]), value="tils")
    assert cohort.target.values.tolist() == [1.5, -3.0, 2000.0]
    assert cohort.report.dropped == {"no tils": 1}
    assert cohort.y.tolist() == [1.5, -3.0, 2000.0]
    assert "3 values from -3 to 2000" in cohort.report.outcome


def test_labels_are_read_in_numbers_and_words_and_may_be_missing():
    inputs = table(4, a=["1", "0", "", ""], b=["wt", "Mutated", "", "wt"])
    cohort = load_cohort(inputs, labels=["a", "b"])
    np.testing.assert_array_equal(cohort.target.values, [[1, 0], [0, 1], [np.nan, 0]])
    assert cohort.report.dropped == {"none of a, b": 1}
    assert cohort.target.counts() == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("columns", "task", "words"),
    [
        ({"v": ["1", "high", "3"]}, {"value": "v"}, ["v", "not a number", "high", "line 3"]),
        ({"v": ["1", "inf", "3"]}, {"value": "v"}, ["not a number", "inf"]),
        ({"v": ["2", "2", "2"]}, {"value": "v"}, ["all 3 samples have the value 2"]),
        ({"v": ["", "", ""]}, {"value": "v"}, ["none of the 3 rows"]),
        ({"v": ["1", "2", "3"]}, {"value": "w"}, ["w"]),
        ({"v": ["1", "2", "3"]}, {"value": "v", "label": "v"}, ["one of label, survival"]),
        ({"a": ["1", "0", "2"]}, {"labels": ["a"]}, ["a says 2"]),
        ({"a": ["1", "1", ""]}, {"labels": ["a"]}, ["label a: yes for all 2"]),
        ({"a": ["1", "0", ""], "b": ["", "", ""]}, {"labels": ["a", "b"]}, ["label b: not known of any"]),
        ({"a": ["1", "0", ""]}, {"labels": ["a", "a"]}, ["'a' is repeated"]),
    ],
)
def test_unusable_targets_are_refused_by_name(columns, task, words):
    with pytest.raises(InputError) as refused:
        load_cohort(table(3, **columns), **task)
    assert all(word in str(refused.value) for word in words)


def test_folds_balance_small_and_large_values():
    values = np.random.default_rng(0).exponential(10, 100)
    cohort = load_cohort(table(100, v=values.astype(str)), value="v")
    tests = [cohort.positions(split.test["test"]) for split in make_splits(cohort, k=5)]
    tally = np.array([np.bincount(cohort.target.strata()[rows], minlength=4) for rows in tests])
    assert (tally == 5).all()


@pytest.mark.parametrize("scheme", ["kfold", "site-kfold"])
def test_folds_balance_every_label(scheme):
    rng = np.random.default_rng(1)
    chance = [0.5, 0.2, 0.1]
    labels = {f"g{k}": (rng.random(200) < p).astype(int).astype(str) for k, p in enumerate(chance)}
    cohort = load_cohort(
        table(200, **labels, tissue_source_site=[f"s{i % 20}" for i in range(200)]), labels=list(labels)
    )
    splits, balance = balanced_splits(cohort, SplitSpec(scheme=scheme, k=5, seconds=2))
    positive = np.array([cohort.target.take(cohort.positions(s.test["test"])).positive for s in splits])
    expected = positive.sum(0) / 5
    assert (np.abs(positive - expected) <= np.maximum(3, 0.25 * expected)).all()
    assert set(balance.by_row) >= {"samples", "with g0", "without g2"}


def test_a_part_without_both_sides_is_refused_for_training_and_noted_for_a_test():
    cohort = load_cohort(table(4, a=["1", "0", "1", "1"], v=["1", "2", "3", "3"]), labels=["a"])
    ids = cohort.ids
    with pytest.raises(InputError, match="training does not have both, samples with and without, of the label a"):
        check(cohort, Split(ids[2:], (), {"test": ids[:2]}), "fold 0")
    assert "test does not have both" in check(cohort, Split(ids[:2], (), {"test": ids[2:]}), "fold 0")[0]
    numbers = load_cohort(table(4, v=["1", "2", "3", "3"]), value="v")
    with pytest.raises(InputError, match="all 2 training samples have the same value"):
        check(numbers, Split(ids[2:], (), {"test": ids[:2]}), "fold 0")
