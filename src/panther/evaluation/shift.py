"""Site shift: how well site and label are predicted from slides, the label also on unseen sites, and the association of site and label.

If prototype proportions predict the site, a model on them may learn hospitals instead of disease.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import entr

from panther.errors import InputError, counted
from panther.storage.embeddings import read_vectors, read_weights

FOLDS, REPEATS = 5, 4  # of the cross-validation
FEWEST = 5  # patients with a value, below which it is left out
CONFOUNDED = 0.3  # Cramer's V of site and label for a warning
DECIDES = 0.9  # Cramer's V from which site and label nearly coincide


@dataclass(frozen=True)
class Readable:
    """Prediction of a column from embeddings: cross-validated balanced accuracy, and that of permuted columns."""

    accuracy: float
    chance: float
    p_value: float
    detectable: float  # 95 % quantile of permuted columns: smaller accuracies are not significant

    def words(self) -> str:
        """For a sentence."""
        return f"{self.accuracy:.2f} (chance {self.chance:.2f}, p = {self.p_value:.3f})"


@dataclass(frozen=True)
class SiteAndLabel:
    """Site and label as predicted from one set of embeddings."""

    site: Readable
    label: Readable | None = None  # among all sites
    label_elsewhere: Readable | None = None  # on unseen sites
    confounding: float | None = None  # Cramer's V of site and label, 0 to 1
    patients: int = 0

    def sentences(self, label: str | None) -> list[str]:
        """The results in sentences."""
        lines = [f"The embeddings predict the site with a balanced accuracy of {self.site.words()}."]
        if self.label is not None:
            lines.append(f"They predict {label} with {self.label.words()}.")
        if self.label_elsewhere is not None:
            lines.append(f"They predict {label} on unseen sites with {self.label_elsewhere.words()}.")
        if self.confounding is not None and self.confounding >= CONFOUNDED:
            how = "The site nearly determines" if self.confounding >= DECIDES else "The site is associated with"
            lines.append(
                f"Warning: {how} {label} (Cramer's V {self.confounding:.2f}, 0 is none): removing the site removes the label as well, and a "
                "model may confuse them. Evaluate on unseen sites."
            )
        return lines


def read_site_and_label(
    x: np.ndarray,
    sites: Sequence[str],
    labels: Sequence[str | None] | None = None,
    *,
    permutations: int = 199,
    seed: int = 0,
) -> SiteAndLabel:
    """Predict the site, and the label where it is known, from rows (n, D), one per patient."""
    x = np.asarray(x, np.float64)
    spread = x.std(0)
    z = (x - x.mean(0))[:, spread > 0] / spread[spread > 0]
    kernel = z @ z.T / max(z.shape[1], 1)  # inner products of standardised rows, on average 1 on the diagonal
    site, kept = _numbered("sites", sites)
    rng = np.random.default_rng(seed)
    by_site = _readable(kernel[np.ix_(kept, kept)], site, _random_folds(len(kept), rng), permutations, rng)
    if labels is None:
        return SiteAndLabel(by_site, patients=len(kept))
    label, rows = _numbered("labels", labels)
    site_names = np.array(sites)[rows]
    kernel = kernel[np.ix_(rows, rows)]
    by_label = _readable(kernel, label, _random_folds(len(rows), rng), permutations, rng)
    folds = [np.flatnonzero(site_names == name) for name in np.unique(site_names)]
    elsewhere = _readable(kernel, label, [folds], permutations, rng) if len(folds) > 1 else None
    return SiteAndLabel(by_site, by_label, elsewhere, cramers_v(site_names.tolist(), label.tolist()), len(kept))


def per_patient(
    x: np.ndarray, patients: Sequence[str], columns: Mapping[str, Sequence[str]]
) -> tuple[np.ndarray, dict[str, list[str]]]:
    """Mean row of each patient, and its columns; a patient whose slides differ in one is refused."""
    names = sorted(set(patients))
    belongs = np.zeros((len(names), len(x)))
    belongs[np.searchsorted(names, patients), np.arange(len(x))] = 1
    by_patient = {column: _constant(column, patients, values) for column, values in columns.items()}
    constant = {column: [value[name] for name in names] for column, value in by_patient.items()}
    return belongs @ x / belongs.sum(1, keepdims=True), constant


def _constant(column: str, patients: Sequence[str], values: Sequence[str]) -> dict[str, str]:
    """Value of each patient; one with slides of two values is refused."""
    value_of: dict[str, str] = {}
    for name, value in zip(patients, values, strict=True):
        if value_of.setdefault(name, value) != value:
            raise InputError(f"Patient {name} has slides with two values of {column} ({value_of[name]} and {value})")
    return value_of


def cramers_v(first: Sequence[object], second: Sequence[object]) -> float:
    """Cramer's V of two columns, with Bergsma's correction (2013) for the bias of small tables."""
    table = pd.crosstab(np.asarray(first), np.asarray(second)).to_numpy(float)
    n, (r, k) = table.sum(), table.shape
    if min(r, k) < 2 or n < 2:
        return 0.0
    expected = table.sum(1, keepdims=True) * table.sum(0) / n
    phi = max(0.0, float(((table - expected) ** 2 / expected).sum()) / n - (r - 1) * (k - 1) / (n - 1))
    r, k = r - (r - 1) ** 2 / (n - 1), k - (k - 1) ** 2 / (n - 1)
    return float(min(1.0, np.sqrt(phi / max(min(r, k) - 1, 1e-12))))


def _numbered(name: str, values: Sequence[str | None]) -> tuple[np.ndarray, np.ndarray]:
    """Values of a column as numbers, and their rows; empty and rare ones are left out, fewer than two are refused."""
    count = Counter(value for value in values if value not in (None, "", "nan"))
    frequent = sorted(str(value) for value, n in count.items() if n >= FEWEST)
    if len(frequent) < 2:
        raise InputError(f"{name}: {counted(values)}, expected two or more with {FEWEST} patients each")
    rows = np.array([row for row, value in enumerate(values) if value in frequent], np.int64)
    return np.searchsorted(frequent, [str(values[row]) for row in rows]), rows


def _random_folds(n: int, rng: np.random.Generator) -> list[list[np.ndarray]]:
    """Rows of the folds of each repeat."""
    return [np.array_split(rng.permutation(n), FOLDS) for _ in range(REPEATS)]


def _readable(
    kernel: np.ndarray, y: np.ndarray, repeats: list[list[np.ndarray]], permutations: int, rng: np.random.Generator
) -> Readable:
    """Ridge regression of an indicator per value; linear in them, so that one matrix per repeat serves all permutations.

    Predictions are about the training rows' mean and without an intercept. An intercept, or a mean over all rows, would reveal the rows left
    out: where a site is left out, almost all of it.
    """
    n = len(y)
    smoother = np.zeros((len(repeats), n, n))
    for repeat, folds in zip(smoother, repeats, strict=True):
        for test in folds:
            train = np.setdiff1d(np.arange(n), test)
            inner, others = kernel[np.ix_(train, train)], kernel[np.ix_(test, train)]
            mean = inner.mean(0)
            centred = inner - mean - mean[:, None] + mean.mean()
            left_out = others - others.mean(1, keepdims=True) - mean + mean.mean()
            repeat[np.ix_(test, train)] = np.linalg.solve(centred + np.eye(len(train)), left_out.T).T
    return _against_chance(smoother, y, permutations, rng)


def _against_chance(smoother: np.ndarray, y: np.ndarray, permutations: int, rng: np.random.Generator) -> Readable:
    accuracy = _balanced_accuracy(smoother, y)
    null = np.array([_balanced_accuracy(smoother, rng.permutation(y)) for _ in range(permutations)])
    p_value = float((1 + (null >= accuracy).sum()) / (1 + permutations))
    return Readable(accuracy, float(null.mean()), p_value, float(np.quantile(null, 0.95)))


def _balanced_accuracy(smoother: np.ndarray, y: np.ndarray) -> float:
    """Mean recall over the values, averaged over the repeats."""
    target = np.eye(y.max() + 1)[y]
    predicted = (smoother @ target / target.mean(0)).argmax(-1)  # (repeats, n)
    return float(((predicted == y) @ (target / target.sum(0))).mean())


ALPHA = 0.01  # significance level of an alarm
DOUBTFUL = 0.05  # significance level of a doubt
TELLING = 0.15  # largest excess over chance that may be missed where "no shift" is to mean something
COLLAPSED = 1.05  # effective number of prototypes of a slide, below which it is collapsed


@dataclass(frozen=True)
class ShiftReport:
    """Prediction of the site from prototype proportions."""

    sites: dict[str, int]  # site -> groups
    left_out: dict[str, int]  # sites with too few groups
    accuracy: float  # cross-validated balanced accuracy
    chance: float  # mean over permutations of the sites
    p_value: float
    detectable: float  # smaller accuracies are not significant
    collapsed: tuple[str, ...]  # samples in a single prototype
    sentence: str

    @property
    def alarm(self) -> bool:
        """Whether the shift is significant."""
        return self.p_value <= ALPHA

    @property
    def doubtful(self) -> bool:
        """Whether a shift cannot be excluded: it is nearly significant, or the cohort is too small to tell."""
        return self.p_value < DOUBTFUL or self.detectable > self.chance + TELLING


def site_shift(
    weights: np.ndarray,
    sites: Sequence[str],
    samples: Sequence[str],
    groups: Sequence[str] | None = None,
    *,
    permutations: int = 999,
    seed: int = 0,
) -> ShiftReport:
    """Predict the site from mixture weights (n, C), compared with permuted sites.

    Samples of a group (patient) are averaged; a patient with slides of two sites is refused.
    """
    bad = np.flatnonzero(~np.isfinite(weights).all(1) | (weights < 0).any(1) | (weights.sum(1) == 0))
    if len(bad):
        raise InputError(f"Proportions of {samples[bad[0]]} (and {len(bad) - 1} more) are NaN, negative or all zero")
    groups = list(groups) if groups is not None else list(samples)
    site_of = _constant("the site", groups, sites)
    names = sorted(site_of)
    total = np.zeros((len(names), weights.shape[1]))
    np.add.at(total, np.searchsorted(names, groups), weights)
    x = np.sqrt(total / total.sum(1, keepdims=True))  # distances of roots are Hellinger's
    y, kept = _numbered("sites", [site_of[group] for group in names])
    count = sorted(Counter(site_of.values()).items())
    judged = {site: n for site, n in count if n >= FEWEST}
    left_out = {site: n for site, n in count if n < FEWEST}
    rng = np.random.default_rng(seed)
    read = _against_chance(_cross_validated_ridge(x[kept], rng), y, permutations, rng)
    effective = np.exp(entr(weights).sum(1))  # numbers of prototypes: the exponential of the entropy
    collapsed = tuple(s for s, number in zip(samples, effective, strict=True) if number < COLLAPSED)
    verdict = "There may be a site shift" if read.p_value < DOUBTFUL else "No site shift found"
    sentence = f"{verdict} in the proportions: balanced accuracy {read.words()}."
    if read.p_value >= DOUBTFUL and read.detectable > read.chance + TELLING:
        sentence = (
            f"{len(kept)} patients are too few to tell whether there is a site shift: balanced accuracy {read.words()}, and "
            f"only one above {read.detectable:.2f} would be significant."
        )
    if read.p_value <= ALPHA:
        sentence = (
            f"Warning: the proportions separate the {len(judged)} sites: balanced accuracy {read.words()}; "
            "split by site (site-preserving folds), and distrust differences between groups that come from different sites."
        )
    if collapsed:
        sentence += f" {len(collapsed)} of {len(samples)} samples collapse into one prototype, e.g. {collapsed[0]}."
    read_as = (read.accuracy, read.chance, read.p_value, read.detectable)
    return ShiftReport(judged, left_out, *read_as, collapsed, sentence)


def _cross_validated_ridge(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Matrices (repeats, n, n) from targets to predictions by ridge regression on the other folds; they serve all permutations."""
    n = len(x)
    smoother = np.zeros((REPEATS, n, n))
    for repeat in smoother:
        for test in np.array_split(rng.permutation(n), FOLDS):
            train = np.setdiff1d(np.arange(n), test)
            centre, scale = x[train].mean(0), x[train].std() or 1.0  # one scale for all prototypes, also rare ones
            a, b = (x[train] - centre) / scale, (x[test] - centre) / scale
            # the intercept is the overall share of each site: that of the other folds would reveal this fold's
            repeat[np.ix_(test, train)] = b @ np.linalg.solve(a.T @ a + np.eye(x.shape[1]), a.T)
    return smoother


CHANGED = 0.05  # smaller changes of balanced accuracy are ignored


@dataclass(frozen=True, eq=False)
class PatientRows:
    """Mean embedding of each patient, with site and label."""

    names: Sequence[str]
    x: np.ndarray  # (n, D)
    sites: Sequence[str]
    labels: Sequence[str] | None

    def only(self, names: set[str]) -> "PatientRows":
        """Rows of these patients."""
        rows = [row for row, name in enumerate(self.names) if name in names]
        labels = None if self.labels is None else [self.labels[row] for row in rows]
        return PatientRows([self.names[r] for r in rows], self.x[rows], [self.sites[r] for r in rows], labels)


def patients_of(path: Path, names: Mapping[str, str | None], like: PatientRows | None = None) -> PatientRows:
    """Patients of an embeddings file, with ``names`` of the columns `site`, `patient` and `label`; only those that are also in ``like``."""
    site, label = str(names["site"]), names["label"]
    samples, _, columns = read_weights(path, site, str(names["patient"]), *([label] if label else []))
    if label is not None and label not in columns:
        read_weights(path, label)  # refuses, and lists the columns
    ids, vectors, _ = read_vectors(path)
    if list(ids) != list(samples):
        raise InputError(f"{path}: weights and vectors have other samples; write it again with `panther embed`.")
    patients = columns.get(str(names["patient"]), samples)
    needed = {column: columns[column] for column in (site, label) if column is not None}
    x, constant = per_patient(np.asarray(vectors, np.float64), patients, needed)
    rows = PatientRows(sorted(set(patients)), x, constant[site], None if label is None else constant[label])
    if like is None:
        return rows
    common = set(rows.names) & set(like.names)
    if not common:
        raise InputError(f"{path}: has no patient in common with the other embeddings")
    return rows.only(common)


def changes(before: SiteAndLabel, after: SiteAndLabel, label: str | None) -> list[str]:
    """Changes of the predictions of site and label."""
    pairs: list[tuple[str, Readable | None, Readable | None]] = [
        ("the site", before.site, after.site),
        (f"{label} among all sites", before.label, after.label),
        (f"{label} on unseen sites", before.label_elsewhere, after.label_elsewhere),
    ]
    lines = []
    for name, old, new in pairs:
        if old is not None and new is not None:
            difference = new.accuracy - old.accuracy
            word = "better" if difference > 0 else "less well"
            word = "as well as before" if abs(difference) < CHANGED else word
            scores = f"{old.accuracy:.2f} before, {new.accuracy:.2f} now (chance {new.chance:.2f})"
            lines.append(f"  {name} is predicted {word}: {scores}")
    return lines
