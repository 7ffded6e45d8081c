"""Folds of whole sites, as scikit-learn's own splitters are used."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from panther import make_splits
from panther.cohort.load import load_cohort
from panther.errors import InputError
from panther.estimators.site_kfold import SiteKFold


def data(n=90, seed=0):
    rng = np.random.default_rng(seed)
    sites = np.array([f"site{k}" for k in rng.integers(9, size=n)])
    return rng.normal(size=(n, 3)), rng.choice(["a", "b"], n, p=[0.7, 0.3]), sites


def test_the_folds_are_those_of_the_scheme_site_kfold_for_all_targets_and_random_states():
    import pandas as pd

    x, y, sites = data(40)
    names = [f"s{i:02d}" for i in range(40)]
    cohort = load_cohort(pd.DataFrame({"slide_id": names, "case_id": names, "label": y, "center": sites}), "label")
    made = make_splits(cohort, "site-kfold", 3, seed=4)
    for split, (_, test) in zip(made, SiteKFold(3, random_state=4).split(x, cohort.y, cohort.sites), strict=True):
        np.testing.assert_array_equal(cohort.positions(split.test["test"]), test)
    survival = np.column_stack([np.arange(1, 41), np.arange(40) % 3 == 0])
    for target in (survival, None):
        folds = list(SiteKFold(3).split(x, target, groups=sites))
        np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in folds])), np.arange(40))
        assert not any(set(sites[train]) & set(sites[test]) for train, test in folds)
    scores = cross_val_score(LogisticRegression(), x, y, groups=sites, cv=SiteKFold(3))
    assert scores.shape == (3,)
    one, two = (
        [test.tolist() for _, test in SiteKFold(3, random_state=np.random.RandomState(5)).split(x, y, sites)]
        for _ in range(2)
    )
    assert one == two


@pytest.mark.parametrize(
    ("folds", "with_sites", "culprit"), [(5, False, "groups"), (1, True, "n_splits: 1"), (20, True, "20 folds")]
)
def test_missing_sites_and_invalid_numbers_of_folds_are_refused(folds, with_sites, culprit):
    x, y, sites = data()
    with pytest.raises(InputError, match=culprit):
        next(SiteKFold(folds).split(x, y, sites if with_sites else None))


@pytest.mark.parametrize("nothing", [None, np.nan, "", "nan"])
def test_a_row_without_a_site_is_refused(nothing):
    x, y, sites = data(30)
    inputs = [nothing if i in (4, 9) else site for i, site in enumerate(sites)]
    with pytest.raises(InputError, match=r"2 of 30 rows have no site in `groups=`, e\.g\. row 4"):
        next(SiteKFold(2).split(x, y, inputs))
