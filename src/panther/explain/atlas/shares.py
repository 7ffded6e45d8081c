"""How much of the cohort each prototype is: shares over patients, between groups and sites, and which go together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from panther.errors import InputError
from panther.evaluation.intervals import Interval, Resampled, differences, holm, intervals, resample
from panther.explain.proportions import pooled

RESAMPLES = 1000
FEWEST = 3  # patients that a group needs to take part in a test
DIGITS = 6  # of a share that count in a test: a posterior of 1e-20 is not more than one of 1e-30
MOST_VALUES = 8  # of a column of numbers, so that a mean for each is still worth reading


@dataclass(frozen=True)
class Factor:
    """A column of the clinical table, one value per patient; patients without one are not in it."""

    column: str
    values: Mapping[str, str]  # patient -> value as written
    ordered: bool  # numbers of more than two different values: more and less mean something

    @property
    def levels(self) -> list[str]:
        """Different values, numbers by their size."""
        found = set(self.values.values())
        return sorted(found, key=float) if self.ordered else sorted(found)


@dataclass(frozen=True)
class GroupShare:
    """Mean share of one prototype among the patients of one group."""

    column: str
    value: str
    prototype: int
    n: int  # patients
    mean: float
    low: float  # 95 %, over patients; NaN where there is only one
    high: float


@dataclass(frozen=True)
class ShareTest:
    """Does the share of a prototype differ between groups, or change with a number?"""

    column: str
    prototype: int
    test: str
    statistic: float  # U of the first group, H, or rho; NaN where the test is not defined
    p: float
    p_corrected: float  # Holm, over the prototypes of the column


def patient_means(weights: np.ndarray, patients: Sequence[str], patches: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Patients in order, and the pi (P, C) of each from its slides' pi (n, C) and patches (n,): one with ten slides counts once."""
    names, member = np.unique(np.asarray(patients, dtype=str), return_inverse=True)
    means = [pooled(weights[member == p], patches[member == p]) for p in range(len(names))]
    return names.tolist(), np.stack(means)


def mean_intervals(shares: np.ndarray, seed: int = 0, resamples: int = RESAMPLES) -> list[Interval]:
    """Mean of each column of (P, C) and its 95 % percentile interval over patients; no interval from one patient alone."""
    count = shares.shape[1]
    if len(shares) < 2:
        return [Interval(float(shares[:, c].mean()), np.nan, np.nan, 0) for c in range(count)]
    found = intervals(_resampled_means(shares, seed, resamples))
    return [found[str(c)] for c in range(count)]


def difference_intervals(first: np.ndarray, second: np.ndarray, seed: int = 0, resamples: int = RESAMPLES) -> list[Interval]:  # fmt: skip
    """Mean of each column of the first group (P, C) minus that of the second (Q, C), with its 95 % interval over patients.

    The groups have no patient in common, so each is resampled on its own; no interval where one has one patient alone.
    """
    count = first.shape[1]
    if min(len(first), len(second)) < 2:
        return [Interval(float(gap), np.nan, np.nan, 0) for gap in first.mean(0) - second.mean(0)]
    found = differences(_resampled_means(first, seed, resamples), _resampled_means(second, seed + 1, resamples))
    return [found[str(c)] for c in range(count)]


def _resampled_means(shares: np.ndarray, seed: int, resamples: int) -> Resampled:
    def measure(counts: np.ndarray) -> dict[str, np.ndarray]:
        means = (counts @ shares / len(shares)).T
        return dict(zip(map(str, range(len(means))), means, strict=True))

    return resample(measure, np.arange(len(shares)), resamples, seed)


def factor(column: str, by_slide: Mapping[str, str], patient_of: Mapping[str, str], *, categories: bool) -> Factor:
    """Column as one value per patient, from the slides' values that are not missing; ``categories``: numbers are only names."""
    values: dict[str, str] = {}
    for slide, value in sorted(by_slide.items()):
        patient = patient_of[slide]
        if values.setdefault(patient, value) != value:
            raise InputError(
                f"{column}: the slides of patient {patient} have different values, {values[patient]} and {value}; "
                "the atlas compares patients, so correct the table or give another column."
            )
    return Factor(column, values, not categories and _are_numbers(set(values.values())))


def group_shares(column: Factor, patients: Sequence[str], shares: np.ndarray, seed: int = 0) -> list[GroupShare]:
    """Mean share of every prototype in every group, with intervals; nothing for a column of many different numbers."""
    if column.ordered and len(column.levels) > MOST_VALUES:
        return []
    rows = []
    for value in column.levels:
        part = shares[[column.values.get(patient) == value for patient in patients]]
        if not len(part):  # its slides failed
            continue
        for c, interval in enumerate(mean_intervals(part, seed)):
            rows.append(GroupShare(column.column, value, c, len(part), interval.value, interval.low, interval.high))
    return rows


def share_tests(column: Factor, patients: Sequence[str], shares: np.ndarray) -> tuple[list[ShareTest], list[str]]:
    """Test every prototype over patients' shares (P, C); Mann-Whitney for two groups, Kruskal-Wallis for more, Spearman for numbers.

    p-values are Holm's over the C prototypes of this column. Also returns notes: what was left out of the tests, and why.
    """
    shares = np.round(shares, DIGITS)
    here = [i for i, patient in enumerate(patients) if patient in column.values]
    values = np.array([column.values[patients[i]] for i in here])
    if column.ordered:
        name, results = "Spearman", _spearman(values.astype(float), shares[here])
        notes = [] if len(here) >= FEWEST else [f"{column.column}: {len(here)} patients are too few for a test."]
    else:
        levels, sizes = np.unique(values, return_counts=True)
        kept, small = levels[sizes >= FEWEST], levels[sizes < FEWEST]
        notes = _too_few(column.column, kept.tolist(), small.tolist())
        name = "Mann-Whitney" if len(kept) == 2 else "Kruskal-Wallis"
        results = _ranks([shares[here][values == level] for level in kept]) if len(kept) > 1 else []
    corrected = holm([p for _, p in results])
    return [
        ShareTest(column.column, c, name, statistic, p, corrected[c]) for c, (statistic, p) in enumerate(results)
    ], notes


def co_occurrence(weights: np.ndarray, patches: np.ndarray) -> np.ndarray:
    r"""Correlation (C, C) over slides of centred log-ratios of pi (n, C); NaN with fewer than three slides or no variation.

    .. math:: \mathrm{clr}_c = \log \tilde\pi_c - \frac{1}{C} \sum_k \log \tilde\pi_k, \qquad \tilde\pi_c = \pi_c + \frac{1}{2N}

    Shares add up to 1, so in plain shares one large prototype that varies makes all others look as if they went together.
    Logarithms compare ratios instead. Half a patch of the slide's N is added, as 0 has no logarithm. Prototypes that have nothing to do with each
    other still give about -1 / (C - 1), because log-ratios add up to 0.
    """
    count = weights.shape[1]
    if len(weights) < 3 or count < 2:
        return np.full((count, count), np.nan)
    logs = np.log(weights + 0.5 / patches[:, None])
    ratios = logs - logs.mean(1, keepdims=True)
    ratios -= ratios.mean(0)
    size = np.sqrt((ratios**2).sum(0))
    defined = size > 1e-9 * np.sqrt(len(weights))
    scaled = ratios / np.where(defined, size, np.nan)
    return np.clip(scaled.T @ scaled, -1, 1)


def _spearman(values: np.ndarray, shares: np.ndarray) -> list[tuple[float, float]]:
    from scipy import stats

    results = []
    for column in shares.T:
        if len(column) < FEWEST or np.ptp(column) == 0 or np.ptp(values) == 0:
            results.append((np.nan, np.nan))
        else:
            found = stats.spearmanr(values, column)
            results.append((float(found.statistic), float(found.pvalue)))
    return results


def _ranks(groups: Sequence[np.ndarray]) -> list[tuple[float, float]]:
    """Rank test of every column between groups (n_g, C)."""
    from scipy import stats

    test = stats.mannwhitneyu if len(groups) == 2 else stats.kruskal
    results = []
    for c in range(groups[0].shape[1]):
        columns = [group[:, c] for group in groups]
        if np.ptp(np.concatenate(columns)) == 0:  # all the same: there is nothing to rank
            results.append((np.nan, np.nan))
        else:
            found = test(*columns)
            results.append((float(found.statistic), float(found.pvalue)))
    return results


def _too_few(column: str, kept: list[str], small: list[str]) -> list[str]:
    notes = []
    if small:
        shown = ", ".join(small[:5]) + (f" and {len(small) - 5} more" if len(small) > 5 else "")
        notes.append(f"{column}: not tested, with fewer than {FEWEST} patients: {shown}.")
    if len(kept) < 2:
        notes.append(f"{column}: no test, it needs two values with at least {FEWEST} patients each.")
    return notes


def _are_numbers(values: set[str]) -> bool:
    try:
        return len({float(value) for value in values}) > 2 and all(np.isfinite(float(value)) for value in values)
    except ValueError:
        return False
