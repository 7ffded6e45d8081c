"""Site-preserving folds: against all assignments there are, against the shipped folds, and on awkward sites."""

import itertools
import time

import numpy as np
import pytest

from panther.cohort.load import load_cohort
from panther.cohort.site_folds import imbalance, site_preserving
from panther.cohort.spec import SplitSpec
from panther.cohort.split_files import assign, read_splits
from panther.cohort.splits import balance_of, balanced_splits, shared_sites
from panther.errors import InputError

NONE_NEEDED = np.zeros(3, dtype=bool)


def sites(n: int, seed: int, rows: int = 3) -> np.ndarray:
    counts = np.random.default_rng(seed).poisson(6, (n, rows)) + 1.0
    counts[:, 0] = counts.sum(1)
    return counts


@pytest.mark.parametrize("seed", range(4))
def test_no_assignment_of_eight_sites_is_better(seed):
    counts = sites(8, seed)
    best = min(imbalance(counts, np.array(fold), 3) for fold in itertools.product(range(3), repeat=8))
    fold, bound, _ = site_preserving(counts, NONE_NEEDED, 3, seed=seed)
    assert imbalance(counts, fold, 3) == pytest.approx(best, rel=2e-4)
    assert bound <= best + 1e-9


def test_imbalance_is_the_share_that_would_have_to_move():
    counts = np.array([[3.0], [1.0]])
    assert imbalance(counts, np.array([0, 1]), 2) == pytest.approx(1 / 4)  # one of four changes its fold
    assert imbalance(counts, np.array([0, 0]), 2) == pytest.approx(2 / 4)
    assert imbalance(np.ones((6, 2)), np.arange(6) % 3, 3) == 0


def test_the_search_is_reproducible_where_the_solver_is_stopped_at_once():
    counts = sites(40, 0, rows=6)
    one, bound, _ = site_preserving(counts, np.zeros(6, dtype=bool), 5, seed=3, nodes=1)
    two, _, _ = site_preserving(counts, np.zeros(6, dtype=bool), 5, seed=3, nodes=1)
    np.testing.assert_array_equal(one, two)
    worst_of_random = min(imbalance(counts, np.random.default_rng(i).integers(5, size=40), 5) for i in range(200))
    assert bound <= imbalance(counts, one, 5) < worst_of_random / 2


def test_every_fold_gets_an_event_where_the_sites_allow_it():
    counts = np.array([[100.0, 9], [100, 0], [2, 1], [1, 1], [100, 0]])  # events sit in the small sites
    needed = np.array([True, True])
    result, _, _ = site_preserving(counts, needed, 3)
    for fold in range(3):
        assert counts[result == fold, 1].sum() > 0
    assert set(site_preserving(counts, needed, 5)[0]) == set(range(5))


def test_more_folds_than_sites_is_refused():
    with pytest.raises(InputError, match="6 folds need at least 6 sites: found 5"):
        site_preserving(sites(5, 0), NONE_NEEDED, 6)


def test_kirc_is_balanced_better_than_the_shipped_folds_in_seconds(shared_data):
    files = read_splits(shared_data / "tables" / "survival")
    cohort = load_cohort(files.table(external=False), survival="dss")
    inputs, _ = assign(files, cohort)
    shipped = np.zeros(len(cohort), dtype=int)
    for number, split in enumerate(inputs):
        shipped[cohort.positions(split.test["test"])] = number
    start = time.perf_counter()
    made, balance = balanced_splits(cohort, SplitSpec(scheme="site-kfold", k=5, seed=0))
    assert time.perf_counter() - start < 20
    reference = balance_of(cohort.target, shipped, 5)
    assert balance.imbalance < reference.imbalance
    assert balance.imbalance <= balance.bound * 1.001  # the solver proves that there is nothing better
    assert all(shared_sites(cohort, split) == [] for split in made)
    assert sorted(name for split in made for name in split.test["test"]) == sorted(cohort.ids)
