r"""How sure is a number, and is one method better than another? Patients are resampled, never their slides.

A resample says how often each row counts. A measure is a function from such counts to named numbers, so all metrics of one set of
predictions, and all methods on the same patients, share the same resamples. Where a resample does not define a metric (one class only, no
events) it is left out of that metric and counted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from panther.errors import InputError

Measure = Callable[[np.ndarray], Mapping[str, np.ndarray]]  # counts (resamples, rows) -> named numbers (resamples,)
BLOCK = 4_000_000  # counts that are in memory together: 32 MB
EXACT = 50  # folds up to which a signed-rank test counts all signs
FEW = 100  # resamples, below which the ends of an interval hang on one or two of them


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


@dataclass(frozen=True, eq=False)
class Resampled:
    """Every metric on all rows, and on resamples of their patients."""

    whole: Mapping[str, float]
    drawn: Mapping[str, np.ndarray]  # (resamples,), NaN where the metric is not defined


def resample_counts(patients: Sequence[object] | np.ndarray, number: int, seed: int) -> Iterator[np.ndarray]:
    """How often each row counts (b, n) in `number` draws of patients with replacement, in blocks; all rows of a patient count alike."""
    names, member = np.unique(np.asarray(patients).astype(str), return_inverse=True)
    if len(names) == 0:
        raise InputError("There are no patients to resample.")
    rng = np.random.default_rng(seed)
    most = max(1, BLOCK // len(member))
    for start in range(0, number, most):
        drawn = rng.integers(len(names), size=(min(most, number - start), len(names)))
        drawn += len(names) * np.arange(len(drawn))[:, None]
        counts = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
        yield counts.astype(np.float64)[:, member]


def resample(measure: Measure, patients: Sequence[object] | np.ndarray, number: int = 1000, seed: int = 0) -> Resampled:
    """Measure all rows, and `number` resamples of their patients; the same patients and seed give the same resamples."""
    whole = measure(np.ones((1, len(patients))))
    blocks = [measure(counts) for counts in resample_counts(patients, number, seed)]
    if not blocks:  # of no resamples there are no intervals and no p-values
        blocks = [{name: np.empty(0) for name in whole}]
    return Resampled(
        {name: float(value[0]) for name, value in whole.items()},
        {name: np.concatenate([block[name] for block in blocks]) for name in whole},
    )


def about_resamples(number: int) -> str | None:
    """What so few resamples are worth; None where they are enough."""
    if number == 0:
        return "There are no intervals over patients and no p-values by resampling them, because the study says `bootstrap: 0`."
    if number < FEW:
        return f"Intervals and p-values over patients are rough: the study says `bootstrap: {number}`, where 1000 resamples are usual."
    return None


def intervals(resampled: Resampled, level: float = 0.95) -> dict[str, Interval]:
    """Percentile interval of every metric over patients."""
    return {name: Interval(value, *_limits(resampled.drawn[name], level)) for name, value in resampled.whole.items()}


def differences(first: Resampled, second: Resampled, level: float = 0.95) -> dict[str, Difference]:
    r"""Difference of every metric between two sets of predictions for the same rows, resampled alike.

    The p-value is twice the share of resamples on the wrong side of 0, with the data themselves counted as one more that is,
    :math:`2 (\min(\#\{d \le 0\}, \#\{d \ge 0\}) + 1) / (n + 1)`: at least :math:`2 / (n + 1)`, at most 1.
    """
    found = {}
    for name in [name for name in first.whole if name in second.whole]:
        values = first.drawn[name] - second.drawn[name]
        values = values[~np.isnan(values)]
        wrong = min(int((values <= 0).sum()), int((values >= 0).sum()))
        p = min(1.0, 2 * (wrong + 1) / (len(values) + 1)) if len(values) else np.nan
        found[name] = Difference(first.whole[name] - second.whole[name], *_limits(values, level), p)
    return found


def wilcoxon(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p-value of the signed-rank test over folds, one value per fold (average its seeds first).

    It cannot fall below :func:`smallest_wilcoxon`: 0.0625 with five folds. Exact up to 50 folds of different sizes of difference, normal else:
    the numbers of `scipy.stats`, which takes half a second to import.
    """
    if len(first) != len(second) or len(first) < 2:
        raise InputError(f"The Wilcoxon test pairs the folds of two methods; there are {len(first)} and {len(second)}.")
    difference = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    difference = difference[~np.isnan(difference)]
    difference = difference[difference != 0]
    if len(difference) == 0:
        return 1.0
    n = len(difference)
    sizes, member, ties = np.unique(np.abs(difference), return_inverse=True, return_counts=True)
    rank = (np.cumsum(ties) - (ties - 1) / 2)[member]
    gained = float(rank[difference > 0].sum())
    if n <= EXACT and len(sizes) == n:
        ways = np.array([1])  # subsets of the ranks with each sum; at most 2^50, so integers hold them
        for one in range(1, n + 1):
            ways = np.concatenate([ways, np.zeros(one, int)]) + np.concatenate([np.zeros(one, int), ways])
        tail = min(int(ways[: int(gained) + 1].sum()), int(ways[int(gained) :].sum()))
        return min(1.0, 2 * tail / 2**n)
    variance = (n * (n + 1) * (2 * n + 1) - 0.5 * float((ties**3 - ties).sum())) / 24
    return float(2 * ndtr(-abs((gained - n * (n + 1) / 4) / np.sqrt(variance))))


def smallest_wilcoxon(folds: int) -> float:
    r"""Smallest p-value that the signed-rank test can give: :math:`2 / 2^n`, all n folds on one side."""
    return float(2.0 ** (1 - folds))


def _limits(values: np.ndarray, level: float) -> tuple[float, float, int]:
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return np.nan, np.nan, 0
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high), len(values)
