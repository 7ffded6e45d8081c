"""Shares of the prototypes in slides, patients and groups: read from embeddings or tables, pooled, compared."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from panther.errors import InputError, error_context, listed
from panther.evaluation.intervals import Interval, Resampled, differences, holm, intervals, resample
from panther.storage.embeddings import EmbeddingTable, is_in_memory, of_memory, read_weights
from panther.storage.files import read_errors
from panther.storage.tables import is_missing, plain_labels, read_csv, with_points

if TYPE_CHECKING:
    import anndata
    import pandas as pd

SAME = 1e-6  # proportions that differ by less are equal: one patch in a million
RESAMPLES = 1000
FEWEST = 3  # patients that a group needs to take part in a test
DIGITS = 6  # of a share that count in a test: a posterior of 1e-20 is not more than one of 1e-30
MOST_VALUES = 8  # of a column of numbers, so that a mean for each is still worth reading


class Proportions(NamedTuple):
    """Prototype proportions of slides, or of patients."""

    samples: list[str]
    pi: np.ndarray  # (n, C)
    patches: np.ndarray | None  # (n,), None: not known


def pooled(pi: np.ndarray, patches: np.ndarray) -> np.ndarray:
    r"""Proportions (C,) of a patient from pi (n, C) and the numbers of patches (n,) of its slides.

    .. math:: \pi_c = \sum_s N_s \pi_{sc} / \sum_s N_s

    That is the pi of all patches together, whatever the number of slides.
    """
    return (patches / patches.sum()) @ pi


def as_proportions(source: "Path | str | pd.DataFrame | EmbeddingTable | anndata.AnnData") -> Proportions:
    """Proportions of slides.

    Embeddings (a table, AnnData, or their file, .h5ad or .zarr), the atlas (pi.csv: slide, patient, n_patches, C0, C1, ...), or a data frame.
    """
    import pandas as pd

    if is_in_memory(source):
        embeddings = of_memory(source)
        if embeddings.weights is None:
            raise InputError("The embeddings have no proportions of prototypes; embed with panther.")
        patches = embeddings.columns.get("n_patches")
        counts = None if patches is None else np.array(patches, float)
        return Proportions(list(embeddings.samples), embeddings.weights, counts)
    if isinstance(source, pd.DataFrame):
        named = source if "slide" in source.columns else source.rename_axis("slide").reset_index()
        return _from_frame("the proportions", named)
    path = Path(source)  # type: ignore[arg-type]
    if path.suffix.lower() != ".csv":
        samples, pi, columns = read_weights(path, "n_patches")
        return Proportions(samples, pi.astype(np.float64), np.array(columns["n_patches"], float))
    with read_errors(path, "table of proportions"):
        table = read_csv(path, words=("slide", "patient"))
    return _from_frame(str(path), table)


def _from_frame(source: str, table: "pd.DataFrame") -> Proportions:
    import pandas as pd

    names = [f"C{c}" for c in range(sum(bool(re.fullmatch(r"C\d+", str(name))) for name in table.columns))]
    if "slide" not in table.columns or not names or not set(names) <= set(table.columns):
        raise InputError(
            f"{source}: found the columns {listed(table.columns)}, expected slide, C0, C1, ... as in pi.csv"
        )
    pi = table[names].apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
    samples = table["slide"].astype(str)
    counts = None
    if "n_patches" in table.columns:
        counts = pd.to_numeric(table["n_patches"], errors="coerce").to_numpy(np.float64)
    wrong = {
        "a proportion that is no number from 0 to 1": ~((pi >= -SAME) & (pi <= 1 + SAME)).all(1),
        "a slide for the second time": samples.duplicated().to_numpy(),
        "no number above 0 in n_patches": counts is not None and ~(np.isfinite(counts) & (counts > 0)),
    }
    for what, rows in wrong.items():
        if np.any(rows):
            raise InputError(f"{source}: line {int(np.argmax(rows)) + 2} holds {what}")
    return Proportions(samples.tolist(), pi, counts)


@dataclass(frozen=True)
class Factor:
    """A column of the clinical table, one value per patient; patients without one are not in it."""

    column: str
    values: Mapping[str, str]  # patient -> value as written
    ordered: bool  # numbers of more than two different values: more and less mean something

    @property
    def levels(self) -> list[str]:
        """Different values, numbers by their size."""
        return sorted(set(self.values.values()), key=float if self.ordered else None)


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
    """Test of a difference between groups in the share of a prototype, or of a trend with a number."""

    column: str
    prototype: int
    test: str
    statistic: float  # U of the first group, H, or rho; NaN where the test is not defined
    p: float
    p_corrected: float  # Holm, over the prototypes of the column


def patient_means(weights: np.ndarray, patients: Sequence[str], patches: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Sorted patients, and the pi (P, C) of each from its slides' pi (n, C) and patches (n,)."""
    names, member = np.unique(np.asarray(patients, dtype=str), return_inverse=True)
    means = [pooled(weights[member == p], patches[member == p]) for p in range(len(names))]
    return names.tolist(), np.stack(means)


def mean_intervals(shares: np.ndarray, seed: int = 0, resamples: int = RESAMPLES) -> list[Interval]:
    """Mean of each column of (P, C) and its 95 % percentile interval over patients; no interval from one patient alone."""
    if len(shares) < 2:
        return [Interval(float(mean), np.nan, np.nan, 0) for mean in shares.mean(0)]
    return list(intervals(_resampled_means(shares, seed, resamples)).values())


def difference_intervals(first: np.ndarray, second: np.ndarray, seed: int = 0, resamples: int = RESAMPLES) -> list[Interval]:  # fmt: skip
    """Mean of each column of the first group (P, C) minus that of the second (Q, C), with its 95 % interval over patients.

    The groups have no patient in common and are resampled independently; no interval where one has a single patient.
    """
    if min(len(first), len(second)) < 2:
        return [Interval(float(gap), np.nan, np.nan, 0) for gap in first.mean(0) - second.mean(0)]
    resampled = (_resampled_means(first, seed, resamples), _resampled_means(second, seed + 1, resamples))
    return list(differences(*resampled).values())


def _resampled_means(shares: np.ndarray, seed: int, resamples: int) -> Resampled:
    def measure(counts: np.ndarray) -> dict[str, np.ndarray]:
        means = (counts @ shares / len(shares)).T
        return dict(zip(map(str, range(len(means))), means, strict=True))

    return resample(measure, np.arange(len(shares)), resamples, seed)


def factor_of(rows: "pd.DataFrame", name: str, source: str, patients: Mapping[str, str], *, categories: bool) -> Factor:
    """Column of the clinical table with one value per patient; ``categories``: numbers are only names."""
    if name not in rows.columns:
        raise InputError(f"{source}: found no column {name!r}, expected one of {listed(rows.columns)}")
    texts = plain_labels(rows[name] if categories else with_points(rows[name], name, source))
    present = texts[~is_missing(texts)]
    if present.empty:
        raise InputError(f"{source}: the column {name!r} is empty for all {len(rows)} slides")
    with error_context(source):
        return factor(name, dict(present), patients, categories=categories)


def factor(column: str, by_slide: Mapping[str, str], patient_of: Mapping[str, str], *, categories: bool) -> Factor:
    """One value per patient from the slides' values that are not missing; ``categories``: numbers are only names."""
    values: dict[str, str] = {}
    for slide, value in sorted(by_slide.items()):
        patient = patient_of[slide]
        if values.setdefault(patient, value) != value:
            raise InputError(
                f"{column}: the slides of patient {patient} have different values, {values[patient]} and {value}"
            )
    try:
        numbers = {float(value) for value in set(values.values())}
    except ValueError:
        numbers = set()
    return Factor(column, values, not categories and len(numbers) > 2 and all(map(np.isfinite, numbers)))


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
    known = [i for i, patient in enumerate(patients) if patient in column.values]
    values = np.array([column.values[patients[i]] for i in known])
    notes = []
    if column.ordered:
        name, groups = "Spearman", [values.astype(float)]
        if len(known) < FEWEST:
            notes.append(f"{column.column}: {len(known)} patients are too few for a test.")
    else:
        levels, sizes = np.unique(values, return_counts=True)
        kept, small = levels[sizes >= FEWEST], levels[sizes < FEWEST]
        if len(small):
            notes.append(f"{column.column}: not tested, with fewer than {FEWEST} patients: {listed(small, 5)}.")
        if len(kept) < 2:
            notes.append(f"{column.column}: no test, it needs two values with at least {FEWEST} patients each.")
            return [], notes
        name = "Mann-Whitney" if len(kept) == 2 else "Kruskal-Wallis"
        groups = [values == level for level in kept]
    results = [_test(name, groups, column_shares) for column_shares in shares[known].T]
    corrected = holm([p for _, p in results])
    rows = zip(results, corrected, strict=True)
    return [ShareTest(column.column, c, name, *result, p) for c, (result, p) in enumerate(rows)], notes


def _test(name: str, groups: Sequence[np.ndarray], shares: np.ndarray) -> tuple[float, float]:
    """Statistic and p-value of the patients' shares (P,) of one prototype; NaN where all are the same."""
    from scipy import stats

    if name == "Spearman":
        (numbers,) = groups
        if len(shares) < FEWEST or np.ptp(shares) == 0 or np.ptp(numbers) == 0:
            return np.nan, np.nan
        result = stats.spearmanr(numbers, shares)
    else:
        parts = [shares[group] for group in groups]
        if np.ptp(np.concatenate(parts)) == 0:
            return np.nan, np.nan
        result = (stats.mannwhitneyu if name == "Mann-Whitney" else stats.kruskal)(*parts)
    return float(result.statistic), float(result.pvalue)


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
