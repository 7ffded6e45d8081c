"""Who trains, who validates, who tests: schemes that divide a cohort by patients."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from panther.cohort.balance import FoldBalance, balance_of, folds_of_sites
from panther.cohort.load import Cohort, load_cohort
from panther.cohort.site_folds import Effort
from panther.cohort.spec import SplitSpec, checked
from panther.cohort.split import Split, fold_notes
from panther.errors import InputError, listed


def make_splits(
    cohort: Cohort | Path | str | pd.DataFrame,
    scheme: str = "kfold",
    k: int = 5,
    *,
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1),
    val: bool = False,
    seed: int = 0,
    **task: Any,
) -> list[Split]:
    """Divide a cohort into training, validation and test parts; a patient is never in two parts.

    Parameters
    ----------
    cohort : Cohort, path or DataFrame
        As `load_cohort` returns it, or a clinical table.
    scheme : "kfold", "site-kfold" or "holdout"
        Folds with the same share of each class (of events and times, of small and large values, of each label), folds that also keep
        every site whole, or one split.
    k : int
        Number of folds.
    shares : tuple of float
        Train, validation and test of a holdout, in parts of whatever sum.
    val : bool
        Whether the next fold of a k-fold validates.
    seed : int
        Same seed and table: same splits.
    **task
        What `load_cohort` takes, where a table is given: `label`, `survival`, `level`, `columns` ...

    Returns
    -------
    list of Split
        Names of the slides or patients of each part; ``cohort.positions(split.train)`` are their rows.

    Examples
    --------
    >>> import pandas as pd
    >>> from panther import make_splits
    >>> table = pd.DataFrame({"slide_id": list("abcdefgh"), "grade": ["high", "low"] * 4})
    >>> [len(split.train) for split in make_splits(table, k=4, label="grade")]
    [6, 6, 6, 6]
    """
    if not isinstance(cohort, Cohort):
        cohort = load_cohort(cohort, **task)
    return balanced_splits(cohort, checked(SplitSpec, scheme=scheme, k=k, shares=shares, val=val, seed=seed))[0]


def balanced_splits(cohort: Cohort, spec: SplitSpec) -> tuple[list[Split], FoldBalance | None]:
    """Splits, and the balance of their test folds (None for a holdout)."""
    if spec.scheme not in SCHEMES:
        raise InputError(f"There is no scheme {spec.scheme!r}; choose {listed(sorted(SCHEMES))}.")
    splits, balance = SCHEMES[spec.scheme](cohort, spec)
    fold_notes(cohort, splits)  # refuses what cannot be learned from; who shows notes asks for them
    return splits, balance


def deal(
    groups: np.ndarray, shares: Sequence[float], rng: np.random.Generator, *, first: int | None = None
) -> np.ndarray:
    """Deal units to parts, group by group, each to the part that lacks most: totals are off by less than one.

    Parameters
    ----------
    groups
        (n,) stratum of each unit.
    shares
        Share of each part; they sum to 1.
    first
        Part that gets the first unit of every group, so that no class is without training samples.
    """
    part, given, wanted = np.empty(len(groups), dtype=np.int64), np.zeros(len(shares)), np.asarray(shares, dtype=float)
    done = 0
    for group in np.unique(groups):
        mine = np.zeros(len(shares))
        for position, unit in enumerate(rng.permutation(np.flatnonzero(groups == group))):
            done += 1
            # within the group first, then over all: a class is spread evenly, and so is the remainder of all classes
            lacking = np.round(wanted * (position + 1) - mine, 9) + 0.1 * np.round(wanted * done - given, 9)
            lacking[wanted == 0] = -np.inf
            choice = first if first is not None and position == 0 else int(lacking.argmax())
            part[unit] = choice
            mine[choice] += 1
            given[choice] += 1
    return part


def _patients(cohort: Cohort) -> tuple[np.ndarray, np.ndarray]:
    """Patient of each sample (n,), and stratum of each patient: the commonest of its samples."""
    _, patient = np.unique([sample.patient for sample in cohort.samples], return_inverse=True)
    groups = cohort.target.strata()
    tally = np.zeros((patient.max() + 1, groups.max() + 1), dtype=int)
    np.add.at(tally, (patient, groups), 1)
    return patient, tally.argmax(1)


def _holdout(cohort: Cohort, spec: SplitSpec) -> tuple[list[Split], None]:
    shares = np.asarray(spec.shares, dtype=float)
    if shares.min() < 0 or not shares[0] or not shares[2] or not np.isfinite(shares).all():
        raise InputError(
            f"Shares {':'.join(f'{s:g}' for s in shares)} leave nobody to train on or to test; give e.g. 80:10:10 or 80:0:20."
        )
    patient, groups = _patients(cohort)
    part = deal(groups, list(shares / shares.sum()), np.random.default_rng(spec.seed), first=0)[patient]
    return [Split(_ids(cohort, part == 0), _ids(cohort, part == 1), {"test": _ids(cohort, part == 2)})], None


def _kfold(cohort: Cohort, spec: SplitSpec) -> tuple[list[Split], FoldBalance]:
    k = _checked_k(spec)
    patient, groups = _patients(cohort)
    if len(groups) < k:
        raise InputError(f"{k} folds need at least {k} patients, but there are {len(groups)}; lower `k=`.")
    fold = deal(groups, [1 / k] * k, np.random.default_rng(spec.seed))[patient]
    return _rotate(cohort, fold, spec), balance_of(cohort.target, fold, k)


def _site_kfold(cohort: Cohort, spec: SplitSpec) -> tuple[list[Split], FoldBalance]:
    k = _checked_k(spec)
    without_site = [sample.patient for sample in cohort.samples if sample.site is None]
    if without_site:
        raise InputError(
            f"{len(without_site)} of {len(cohort)} samples have no site, or several, e.g. {without_site[0]}; "
            f"name the site column, or use the scheme kfold."
        )
    fold, found = folds_of_sites(cohort.target, cohort.sites, k, seed=spec.seed, effort=Effort(seconds=spec.seconds))
    balance = balance_of(cohort.target, fold, k)
    return _rotate(cohort, fold, spec), replace(balance, bound=found.bound, hit_time_limit=found.hit_time_limit)


def _checked_k(spec: SplitSpec) -> int:
    if spec.val and spec.k < 3:
        raise InputError(f"{spec.k} folds are too few; with a validation fold give at least `k=3`.")
    return spec.k


def _rotate(cohort: Cohort, fold: np.ndarray, spec: SplitSpec) -> list[Split]:
    """Every fold is tested once; with validation the next fold validates, so that sites stay apart there too."""
    splits = []
    for i in range(spec.k):
        val = (fold == (i + 1) % spec.k) if spec.val else np.zeros(len(fold), dtype=bool)
        splits.append(Split(_ids(cohort, (fold != i) & ~val), _ids(cohort, val), {"test": _ids(cohort, fold == i)}))
    return splits


def _ids(cohort: Cohort, chosen: np.ndarray) -> tuple[str, ...]:
    return tuple(sample.id for sample, mine in zip(cohort.samples, chosen, strict=True) if mine)


SCHEMES: dict[str, Callable[[Cohort, SplitSpec], tuple[list[Split], FoldBalance | None]]] = {
    "holdout": _holdout,
    "kfold": _kfold,
    "site-kfold": _site_kfold,
}
