"""Shares, tests and co-occurrence against independent computations."""

from itertools import chain, combinations

import numpy as np
import pytest
from scipy import stats

from panther.errors import InputError
from panther.evaluation.intervals import holm
from panther.explain.shares import (
    Factor,
    co_occurrence,
    factor,
    group_shares,
    mean_intervals,
    patient_means,
    share_tests,
)


def test_holm_is_the_closed_test_of_bonferroni():
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 7):
        p = np.round(rng.random(size) ** 3, 2)
        subsets = list(chain.from_iterable(combinations(range(size), n) for n in range(1, size + 1)))
        closed = [max(min(1, len(s) * min(p[list(s)])) for s in subsets if i in s) for i in range(size)]
        np.testing.assert_allclose(holm(p.tolist()), closed)
    assert holm([0.04, np.nan, 0.01])[::2] == [0.04, 0.02]  # a test that is not defined does not count
    assert np.isnan(holm([np.nan]))[0]
    assert holm([]) == []


def cohort(n=24, seed=1):
    return [f"p{i:02d}" for i in range(n)], np.random.default_rng(seed).dirichlet([4, 2, 1], n)


@pytest.mark.parametrize("groups", [2, 3])
def test_groups_are_tested_as_scipy_does_over_patients(groups):
    patients, shares = cohort()
    values = {patient: "abc"[i % groups] for i, patient in enumerate(patients)}
    tests, notes = share_tests(factor("g", values, {p: p for p in patients}, categories=False), patients, shares)
    oracle = {2: stats.mannwhitneyu, 3: stats.kruskal}[groups]
    for c, one in enumerate(tests):
        found = oracle(*(shares[i::groups, c] for i in range(groups)))
        assert (one.statistic, one.p) == pytest.approx((found.statistic, found.pvalue))
    assert [one.p_corrected for one in tests] == holm([one.p for one in tests])
    assert {one.test for one in tests} == {{2: "Mann-Whitney", 3: "Kruskal-Wallis"}[groups]}
    assert notes == []


def test_numbers_are_tested_by_rank_correlation_unless_they_are_names():
    patients, shares = cohort()
    ages = {patient: str(40 + 7 * i % 31) for i, patient in enumerate(patients)}
    same = {p: p for p in patients}
    numbers = factor("age", ages, same, categories=False)
    tests, _ = share_tests(numbers, patients, shares)
    found = stats.spearmanr([float(ages[p]) for p in patients], shares[:, 1])
    assert tests[1].test == "Spearman"
    assert (tests[1].statistic, tests[1].p) == pytest.approx((found.statistic, found.pvalue))
    assert group_shares(numbers, patients, shares) == []  # 24 means of one patient each
    assert not factor("site", ages, same, categories=True).ordered
    assert not factor("label", {p: str(i % 2) for i, p in enumerate(patients)}, same, categories=False).ordered
    few = factor("grade", {p: str(10 * (i % 3)) for i, p in enumerate(patients)}, same, categories=False)
    assert [one.value for one in group_shares(few, patients, shares)[::3]] == ["0", "10", "20"]


def test_small_groups_and_flat_shares_have_no_test():
    patients, shares = cohort(10)
    shares[:, 2] = 10.0 ** -np.arange(20, 30)  # nothing, in ten different ways
    few = Factor("g", {p: "x" if i < 5 else ("y" if i < 9 else "z") for i, p in enumerate(patients)}, False)
    tests, (note,) = share_tests(few, patients, shares)
    assert note == "g: not tested, with fewer than 3 patients: z."
    assert {one.test for one in tests} == {"Mann-Whitney"}
    assert np.isnan([tests[2].p, tests[2].p_corrected]).all()
    one, notes = share_tests(Factor("g", dict.fromkeys(patients, "x"), False), patients, shares)
    assert one == []
    assert "needs two values" in notes[0]


def test_a_patient_with_many_slides_counts_once_and_its_slides_by_their_patches():
    weights = np.array([[1.0, 0.0]] * 9 + [[0.0, 1.0]])
    assert np.isnan(mean_intervals(weights[:1])[0].low)  # one patient tells nothing about others
    names, shares = patient_means(weights, ["a"] * 9 + ["b"], np.arange(1, 11))
    assert names == ["a", "b"]
    np.testing.assert_allclose(shares.mean(0), [0.5, 0.5])
    # two slides of 30 and 10 patches, all of C0 and all of C1, are 40 patches of which 30 are C0
    assert patient_means(np.eye(2), ["a", "a"], np.array([30, 10]))[1].tolist() == [[0.75, 0.25]]
    with pytest.raises(InputError, match="patient p"):  # whose slides have different values
        factor("g", {"s": "x", "t": "y"}, {"s": "p", "t": "p"}, categories=False)


def test_co_occurrence_does_not_mistake_one_large_prototype_for_company_of_the_others():
    rng = np.random.default_rng(0)
    amount = np.exp(
        rng.normal(0, 1, (4000, 5)) * [1.5, 0.5, 0.5, 0.5, 0.5] + [4, 0, 0, 0, 0]
    )  # independent of each other
    pi = amount / amount.sum(1, keepdims=True)
    plain = np.corrcoef(pi[:, 1:].T)[np.triu_indices(4, 1)]
    patches = np.full(4000, 1e9)
    ratios = np.log(pi) - np.log(pi).mean(1, keepdims=True)
    np.testing.assert_allclose(co_occurrence(pi, patches), np.corrcoef(ratios.T), atol=1e-5)
    assert plain.min() > 0.5
    together = amount.copy()
    together[:, 2] = together[:, 1] * np.exp(rng.normal(0, 0.05, 4000))
    found = co_occurrence(together / together.sum(1, keepdims=True), patches)
    assert found[1, 2] > 0.95
    assert found[0, 1] < 0


def test_co_occurrence_of_too_few_slides_or_a_constant_is_not_defined():
    _, pi = cohort(5)
    assert np.isnan(co_occurrence(pi[:2], np.ones(2))).all()
    still = np.tile([0.2, 0.3, 0.5], (5, 1))
    assert np.isnan(co_occurrence(still, np.full(5, 100))).all()
    assert np.isfinite(co_occurrence(np.eye(3)[[0, 1, 2, 0, 1]], np.full(5, 100))).all()  # zeros have no logarithm
