r"""How sure is a number, and is one method better than another? Patients are resampled, never their slides.

A measure is a function from rows to named numbers so all metrics of one set
of predictions share the same resamples. Where a resample does not define a metric (one class only, no events) it is left
out of that metric and counted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from panther.errors import InputError

Measure = Callable[[np.ndarray], Mapping[str, float]]  # rows -> named numbers


@dataclass(frozen=True)
class Interval:
    """A value and its percentile interval."""

    value: float
    low: float
    high: float
    resamples: int  # those that defined the metric


@dataclass(frozen=True)
class Difference(Interval):
    """First minus second, on the same resamples of patients."""

    p_value: float  # two-sided


def resamples(patients: Sequence[object] | np.ndarray, number: int, seed: int) -> Iterator[np.ndarray]:
    """Rows of `number` draws of patients with replacement; every row of a drawn patient comes along."""
    names, member = np.unique(np.asarray(patients).astype(str), return_inverse=True)
    if len(names) == 0:
        raise InputError("There are no patients to resample.")
    order = np.argsort(member, kind="stable")
    sizes = np.bincount(member, minlength=len(names))
    first = np.cumsum(sizes) - sizes
    rng = np.random.default_rng(seed)
    for _ in range(number):
        drawn = rng.integers(len(names), size=len(names))
        length = sizes[drawn]
        within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        yield order[np.repeat(first[drawn], length) + within]


def bootstrap(
    measure: Measure, patients: Sequence[object] | np.ndarray, number: int = 1000, seed: int = 0, level: float = 0.95
) -> dict[str, Interval]:
    """Percentile interval of every metric over patients."""
    whole = measure(np.arange(len(patients)))
    drawn = _table([measure(rows) for rows in resamples(patients, number, seed)], whole)
    return {name: Interval(float(whole[name]), *_limits(drawn[name], level)) for name in whole}


def paired_bootstrap(
    first: Measure,
    second: Measure,
    patients: Sequence[object] | np.ndarray,
    number: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, Difference]:
    r"""Difference of every metric between two sets of predictions for the same rows.

    The p-value is twice the share of resamples on the wrong side of 0, with the data themselves counted as one more that is,
    :math:`2 (\min(\#\{d \le 0\}, \#\{d \ge 0\}) + 1) / (n + 1)`: at least :math:`2 / (n + 1)`, at most 1.
    """
    every = np.arange(len(patients))
    whole = _minus(first(every), second(every))
    drawn = _table([_minus(first(rows), second(rows)) for rows in resamples(patients, number, seed)], whole)
    found = {}
    for name in whole:
        values = drawn[name][~np.isnan(drawn[name])]
        wrong = min(int((values <= 0).sum()), int((values >= 0).sum()))
        p = min(1.0, 2 * (wrong + 1) / (len(values) + 1)) if len(values) else np.nan
        found[name] = Difference(float(whole[name]), *_limits(values, level), p)
    return found


def wilcoxon(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p-value of the signed-rank test over folds, one value per fold (average its seeds first).

    It cannot fall below :func:`smallest_wilcoxon`: 0.0625 with five folds.
    """
    from scipy import stats

    if len(first) != len(second) or len(first) < 2:
        raise InputError(f"The Wilcoxon test pairs the folds of two methods; there are {len(first)} and {len(second)}.")
    difference = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    difference = difference[~np.isnan(difference)]
    difference = difference[difference != 0]
    if len(difference) == 0:
        return 1.0
    tied = len(np.unique(np.abs(difference))) < len(difference)
    method = "exact" if len(difference) <= 50 and not tied else "approx"
    return float(stats.wilcoxon(difference, method=method).pvalue)


def smallest_wilcoxon(folds: int) -> float:
    r"""Smallest p-value that the signed-rank test can give: :math:`2 / 2^n`, all n folds on one side."""
    return float(2.0 ** (1 - folds))


def _minus(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    return {name: first[name] - second[name] for name in first if name in second}


def _table(
    rows: list[Mapping[str, float]] | list[dict[str, float]], names: Mapping[str, float]
) -> dict[str, np.ndarray]:
    return {name: np.array([row[name] for row in rows], np.float64) for name in names}


def _limits(values: np.ndarray, level: float) -> tuple[float, float, int]:
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return np.nan, np.nan, 0
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high), len(values)
