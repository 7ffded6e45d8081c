"""Folds that keep sites apart, as a scikit-learn splitter."""

from collections.abc import Iterator
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils.validation import check_array, column_or_1d

from panther.cohort.splits import folds_of_sites
from panther.cohort.targets import Classes, Survival, Target, no_outcome
from panther.errors import InputError
from panther.storage.tables import is_missing


class SiteKFold(BaseCrossValidator):
    """K folds of whole sites, balanced in classes, or in events and times, by an integer programme.

    Like `StratifiedGroupKFold`, but optimal instead of greedy, and also for survival. Slides of a patient are of one site, so patients are
    separated as well.

    Parameters
    ----------
    n_splits : int
        Number of folds; there must be as many sites.
    random_state : int, RandomState or None
        Same seed and data: same folds.
    seconds : float
        Longest time for the solver.

    Examples
    --------
    >>> import numpy as np
    >>> from panther import SiteKFold
    >>> x, y = np.zeros((8, 2)), np.array(["high", "low"] * 4)
    >>> sites = np.repeat(["A", "B", "C", "D"], 2)
    >>> for train, test in SiteKFold(n_splits=2).split(x, y, groups=sites):
    ...     print(len(train), len(test), set(sites[train]) & set(sites[test]))
    4 4 set()
    4 4 set()
    """

    # scikit-learn's metadata routing: a pipeline hands `groups` to `split` by itself
    __metadata_request__split: ClassVar = {"groups": True}

    def __init__(self, n_splits: int = 5, *, random_state: Any = 0, seconds: float = 30.0) -> None:
        self.n_splits = n_splits
        self.random_state = random_state
        self.seconds = seconds

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Number of folds."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows of the training and of the test part of every fold.

        Parameters
        ----------
        X : sequence of length n
            Embeddings or bags.
        y : (n,) labels or (n, 2) times and events, optional
            Target to balance; without it only the numbers of rows are balanced.
        groups : (n,) sites
            Rows of a site stay in one fold.

        Yields
        ------
        train, test : (n_train,) and (n_test,) arrays of row numbers
        """
        yield from super().split(X, y, groups)

    def _iter_test_masks(self, X: Any = None, y: Any = None, groups: Any = None) -> Iterator[np.ndarray]:
        if groups is None:
            raise InputError("groups: missing, expected the site of each row")
        if self.n_splits < 2:
            raise InputError(f"n_splits: {self.n_splits}, expected at least 2")
        labels = pd.Series(column_or_1d(np.asarray(groups, dtype=object)))
        sites = labels.where(labels.notna(), "").astype(str)
        missing = np.flatnonzero(is_missing(sites))
        if len(missing):
            raise InputError(f"{len(missing)} of {len(sites)} rows have no site in `groups=`, e.g. row {missing[0]}")
        target: Target = no_outcome(len(sites))
        if y is not None:
            y = check_array(y, dtype=None, ensure_2d=False, allow_nd=False)
            if y.ndim == 2 and y.shape[1] == 2:
                target = Survival(y[:, 0].astype(np.float64), y[:, 1].astype(bool))
            else:
                names, numbers = np.unique(column_or_1d(y), return_inverse=True)
                target = Classes(tuple(map(str, names)), numbers.astype(np.int64))
        seed = seed_of(self.random_state)
        fold, _ = folds_of_sites(target, sites.to_numpy(), self.n_splits, seed=seed, seconds=self.seconds)
        for number in range(self.n_splits):
            yield fold == number


def seed_of(random_state: Any) -> int:
    """Seed of scikit-learn's `random_state`: a number itself; otherwise drawn from the RandomState, or from numpy's for None."""
    if isinstance(random_state, Integral):
        return int(random_state)
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(2**31 - 1))
