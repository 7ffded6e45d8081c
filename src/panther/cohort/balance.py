"""How alike folds are: the groups that every fold should hold in the same proportions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from panther.cohort.load import Cohort
from panther.cohort.site_folds import Effort, SiteFolds, imbalance, imbalance_by_row, site_preserving
from panther.cohort.split import Split
from panther.cohort.targets import Target


@dataclass(frozen=True)
class FoldBalance:
    """How alike test folds are: share of patients that would have to change their fold, 0 is perfect."""

    imbalance: float
    by_row: Mapping[str, float]
    bound: float | None = None  # no folds of this scheme can be better; None where it was not computed
    hit_time_limit: bool = False


def balance_of(target: Target, fold: np.ndarray, k: int) -> FoldBalance:
    """Balance of any folds, (n,) numbers, of samples with this target."""
    rows = target.indicators()
    counts = np.column_stack(list(rows.values()))
    by_row = dict(zip(rows, map(float, imbalance_by_row(counts, fold, k)), strict=True))
    return FoldBalance(imbalance(counts, fold, k), by_row)


def balance_of_tests(cohort: Cohort, splits: Sequence[Split]) -> FoldBalance | None:
    """Balance over folds whose tests do not overlap, else None; external cohorts do not count."""
    tests = [cohort.positions(split.test.get("test", ())) for split in splits]
    everybody = np.concatenate(tests)
    if len(splits) < 2 or len(set(everybody)) < len(everybody):
        return None
    fold = np.repeat(np.arange(len(tests)), [len(test) for test in tests])
    return balance_of(cohort.target.take(everybody), fold, len(splits))


def folds_of_sites(
    target: Target, sites: Sequence[Any] | np.ndarray, k: int, *, seed: int = 0, effort: Effort | None = None
) -> tuple[np.ndarray, SiteFolds]:
    """Fold (n,) of rows with this target, whole sites in one fold, and how good the folds are."""
    names, site = np.unique([str(name) for name in sites], return_inverse=True)
    rows = target.indicators()
    counts = np.zeros((len(names), len(rows)))
    np.add.at(counts, site, np.column_stack(list(rows.values())))
    needed = np.array([row in ("samples", "events") for row in rows])
    found = site_preserving(counts, needed, k, seed=seed, effort=effort)
    return found.fold[site], found
