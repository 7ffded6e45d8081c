"""How well the site and the label can be read off slides, also on sites that were not learned from, and whether site and label coincide.

If the site can be read off the prototype proportions, a model on them may learn hospitals instead of disease.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from panther.errors import InputError, check_seed, check_whole, counted
from panther.storage.embeddings import read_vectors, read_weights

FOLDS, REPEATS = 5, 4  # of the cross-validation
FEWEST = 5  # patients that a value needs to be read
CONFOUNDED = 0.3  # Cramer's V from which site and label are worth a warning
DECIDES = 0.9  # ... from which the one is next to the other


@dataclass(frozen=True)
class Readable:
    """How well a column can be read off rows: cross-validated balanced accuracy beside what permuted columns give."""

    accuracy: float
    chance: float
    p_value: float

    def words(self) -> str:
        """In one bracket."""
        return f"{self.accuracy:.2f} (chance {self.chance:.2f}, p = {self.p_value:.3f})"


@dataclass(frozen=True)
class SiteAndLabel:
    """What can be read off one set of embeddings."""

    site: Readable
    label: Readable | None = None  # among all sites
    label_elsewhere: Readable | None = None  # on sites that were not learned from
    confounding: float | None = None  # Cramer's V of site and label, 0 to 1
    patients: int = 0

    def sentences(self, label: str | None) -> list[str]:
        """What it means."""
        lines = [f"The site can be read off the embeddings with a balanced accuracy of {self.site.words()}."]
        if self.label is not None:
            lines.append(f"{label} can be read with {self.label.words()}.")
        if self.label_elsewhere is not None:
            lines.append(
                f"{label} of a site that was not learned from can be read with {self.label_elsewhere.words()}."
            )
        if self.confounding is not None and self.confounding >= CONFOUNDED:
            lines.append(confounded(self.confounding, str(label)))
        return lines


def confounded(v: float, label: str) -> str:
    """What a high association of site and label means."""
    how = "The site nearly decides" if v >= DECIDES else "Site goes with"
    return (
        f"Warning: {how} {label} (Cramer's V {v:.2f}, 0 would be none): what removes the site then removes the label as well, and a model "
        "may read the one for the other. Judge on sites that were not learned from."
    )


def read_site_and_label(
    x: np.ndarray,
    sites: Sequence[str],
    labels: Sequence[str | None] | None = None,
    *,
    permutations: int = 199,
    seed: int = 0,
) -> SiteAndLabel:
    """Read the site, and the label where it is known, off rows (n, D), one per patient."""
    check_seed(seed)
    check_whole("permutations", permutations, 1, 1_000_000)
    kernel = _gram(x)
    site, kept = _numbered(sites)
    _check_two("sites", np.unique(site), sites)
    rng = np.random.default_rng(seed)
    read = _readable(kernel[np.ix_(kept, kept)], site, _random_folds, permutations, rng)
    if labels is None:
        return SiteAndLabel(read, patients=len(kept))
    label, rows = _numbered(labels)
    _check_two("labels", np.unique(label), labels)
    site_names = np.array(sites)[rows]
    here = _readable(kernel[np.ix_(rows, rows)], label, _random_folds, permutations, rng)
    elsewhere = None
    if len(np.unique(site_names)) > 1:
        by_site = [np.flatnonzero(site_names == name) for name in np.unique(site_names)]
        elsewhere = _readable(kernel[np.ix_(rows, rows)], label, lambda n, rng: [by_site], permutations, rng)
    return SiteAndLabel(read, here, elsewhere, cramers_v(site_names.tolist(), label.tolist()), len(kept))


def per_patient(
    x: np.ndarray, patients: Sequence[str], columns: Mapping[str, Sequence[str]]
) -> tuple[np.ndarray, dict[str, list[str]]]:
    """Mean row of each patient, and its columns; a patient whose slides differ in one is refused."""
    names = sorted(set(patients))
    where = {name: row for row, name in enumerate(names)}
    belongs = np.zeros((len(names), len(x)))
    belongs[[where[name] for name in patients], np.arange(len(x))] = 1
    by_patient = {column: _constant(column, patients, values) for column, values in columns.items()}
    kept = {column: [value[name] for name in names] for column, value in by_patient.items()}
    return belongs @ x / belongs.sum(1, keepdims=True), kept


def _constant(column: str, patients: Sequence[str], values: Sequence[str]) -> dict[str, str]:
    """Value of each patient; one with slides of two values is refused."""
    value_of: dict[str, str] = {}
    for name, value in zip(patients, values, strict=True):
        if value_of.setdefault(name, value) != value:
            raise InputError(f"Patient {name} has slides with two values of {column} ({value_of[name]} and {value})")
    return value_of


def _check_two(what: str, values: Sequence[object] | np.ndarray, every: Sequence[object]) -> None:
    if len(values) < 2:
        raise InputError(f"{what}: {counted(every)}, expected two or more with {FEWEST} patients each")


def cramers_v(one: Sequence[object], other: Sequence[object]) -> float:
    """Cramer's V of two columns, corrected for what chance gives small tables (Bergsma 2013)."""
    a, b = (np.unique(np.array(list(map(str, values))), return_inverse=True)[1] for values in (one, other))
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1)
    n, (r, k) = table.sum(), table.shape
    if min(r, k) < 2 or n < 2:
        return 0.0
    expected = table.sum(1, keepdims=True) * table.sum(0) / n
    phi = max(0.0, float(((table - expected) ** 2 / expected).sum()) / n - (r - 1) * (k - 1) / (n - 1))
    r, k = r - (r - 1) ** 2 / (n - 1), k - (k - 1) ** 2 / (n - 1)
    return float(min(1.0, np.sqrt(phi / max(min(r, k) - 1, 1e-12))))


def _numbered(values: Sequence[str | None]) -> tuple[np.ndarray, np.ndarray]:
    """Values as numbers, and the rows that have one which is not too rare."""
    count = Counter(value for value in values if value not in (None, "", "nan"))
    judged = sorted(str(value) for value, n in count.items() if n >= FEWEST)
    rows = np.array([row for row, value in enumerate(values) if value in judged], np.int64)
    return np.searchsorted(judged, [str(values[row]) for row in rows]), rows


def _gram(x: np.ndarray) -> np.ndarray:
    """Products of rows (n, n), every column with the same weight, on average 1 on the diagonal."""
    x = np.asarray(x, np.float64)
    spread = x.std(0)
    z = (x - x.mean(0))[:, spread > 0] / spread[spread > 0]
    return np.asarray(z @ z.T / max(z.shape[1], 1))


_Folds = Callable[[int, np.random.Generator], list[list[np.ndarray]]]  # of each repeat


def _random_folds(n: int, rng: np.random.Generator) -> list[list[np.ndarray]]:
    return [np.array_split(rng.permutation(n), FOLDS) for _ in range(REPEATS)]


def _readable(
    kernel: np.ndarray, y: np.ndarray, folds: _Folds, permutations: int, rng: np.random.Generator
) -> Readable:
    """Ridge regression of one column per value; it is linear in them, so one matrix per repeat serves all permutations."""
    n = len(y)
    repeats = folds(n, rng)
    smoother = np.zeros((len(repeats), n, n))
    for repeat, parts in zip(smoother, repeats, strict=True):
        for test in parts:
            train = np.setdiff1d(np.arange(n), test)
            repeat[np.ix_(test, train)] = _ridge(kernel[np.ix_(train, train)], kernel[np.ix_(test, train)])
    return _against_chance(smoother, y, permutations, rng)


def _against_chance(smoother: np.ndarray, y: np.ndarray, permutations: int, rng: np.random.Generator) -> Readable:
    accuracy = _balanced_accuracy(smoother, y)
    null = np.array([_balanced_accuracy(smoother, rng.permutation(y)) for _ in range(permutations)])
    return Readable(accuracy, float(null.mean()), float((1 + (null >= accuracy).sum()) / (1 + permutations)))


def _ridge(kernel: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Matrix (m, n) from targets of training rows to effects on others, about the training rows' mean and without an intercept.

    An intercept, or a mean over all rows, would reveal the rows left out: where a site is left out, next to all of it.
    """
    mean = kernel.mean(0)
    centred = kernel - mean - mean[:, None] + mean.mean()
    theirs = others - others.mean(1, keepdims=True) - mean + mean.mean()
    return np.asarray(np.linalg.solve(centred + np.eye(len(kernel)), theirs.T).T)


def _balanced_accuracy(smoother: np.ndarray, y: np.ndarray) -> float:
    """Mean recall over the values, averaged over the repeats."""
    target = np.eye(y.max() + 1)[y]
    predicted = (smoother @ target / target.mean(0)).argmax(-1)  # (repeats, n)
    return float(((predicted == y) @ (target / target.sum(0))).mean())


ALPHA = 0.01  # chance of a false alarm
DOUBTFUL = 0.05  # below it the result is not reassuring
COLLAPSED = 1.05  # effective number of prototypes below which a slide counts as collapsed


@dataclass(frozen=True)
class ShiftReport:
    """How well the site can be read off the proportions."""

    sites: dict[str, int]  # site -> groups, those that were judged
    left_out: dict[str, int]  # sites with too few
    accuracy: float  # cross-validated balanced accuracy
    chance: float  # mean over permutations of the sites
    p_value: float
    collapsed: tuple[str, ...]  # samples that lie in one prototype
    sentence: str

    @property
    def alarm(self) -> bool:
        """Whether there is a shift to worry about."""
        return self.p_value <= ALPHA

    @property
    def doubtful(self) -> bool:
        """Whether there may be one, too."""
        return self.p_value < DOUBTFUL


def site_shift(
    weights: np.ndarray,
    sites: Sequence[str],
    samples: Sequence[str],
    groups: Sequence[str] | None = None,
    *,
    permutations: int = 999,
    seed: int = 0,
) -> ShiftReport:
    """Predict the site from mixture weights (n, C), against the same with permuted sites.

    Samples of one group (patient) stay together, in folds and in permutations; a patient with slides of two sites is refused.
    """
    bad = np.flatnonzero(~np.isfinite(weights).all(1) | (weights < 0).any(1) | (weights.sum(1) == 0))
    if len(bad):
        raise InputError(f"Proportions of {samples[bad[0]]} (and {len(bad) - 1} more) are NaN, negative or all zero")
    check_seed(seed)
    check_whole("permutations", permutations, 1, 1_000_000)
    groups = list(groups) if groups is not None else list(samples)
    site_of = _constant("the site", groups, sites)
    names = sorted(site_of)
    mean = {g: np.zeros(weights.shape[1]) for g in names}
    for group, row in zip(groups, weights, strict=True):
        mean[group] += row
    x = np.sqrt(np.stack([mean[g] / mean[g].sum() for g in names]))  # on this scale distances are Hellinger's
    y = np.array([site_of[g] for g in names])
    count = Counter(y.tolist())
    judged = {site: n for site, n in sorted(count.items()) if n >= FEWEST}
    _check_two("sites", list(judged), y.tolist())
    keep = np.isin(y, list(judged))
    x, y = x[keep], np.searchsorted(list(judged), y[keep])  # sites as numbers
    rng = np.random.default_rng(seed)
    read = _against_chance(_cross_validated_ridge(x, rng), y, permutations, rng)
    collapsed = tuple(s for s, row in zip(samples, weights, strict=True) if _effective(row) < COLLAPSED)
    left_out = {site: n for site, n in sorted(count.items()) if site not in judged}
    verdict = "There may be a site shift" if read.p_value < DOUBTFUL else "No site shift found"
    sentence = f"{verdict} in the proportions: balanced accuracy {read.words()}."
    if read.p_value <= ALPHA:
        sentence = (
            f"Warning: the proportions separate the {len(judged)} sites: balanced accuracy {read.words()}; "
            "split by site (site-preserving folds), and distrust differences between groups that come from different sites."
        )
    if collapsed:
        sentence += f" {len(collapsed)} of {len(samples)} samples collapse into one prototype, e.g. {collapsed[0]}."
    return ShiftReport(judged, left_out, read.accuracy, read.chance, read.p_value, collapsed, sentence)


def _cross_validated_ridge(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Matrices (repeats, n, n) that turn targets into predictions by ridge regression on the other folds.

    Ridge regression is linear in the targets, so the matrices serve for all permutations of them.
    """
    n = len(x)
    smoother = np.zeros((REPEATS, n, n))
    for repeat in smoother:
        for test in np.array_split(rng.permutation(n), FOLDS):
            train = np.setdiff1d(np.arange(n), test)
            centre, scale = x[train].mean(0), x[train].std() or 1.0  # one scale: a rare prototype must not be blown up
            a, b = (x[train] - centre) / scale, (x[test] - centre) / scale
            # the intercept is the share of each site overall: that of the other folds would tell what this fold lacks
            repeat[np.ix_(test, train)] = b @ np.linalg.solve(a.T @ a + np.eye(x.shape[1]), a.T)
    return smoother


def _effective(row: np.ndarray) -> float:
    p = row[row > 0]
    return float(np.exp(-(p * np.log(p)).sum()))


CHANGED = 0.05  # a smaller change of balanced accuracy is none


@dataclass(frozen=True, eq=False)
class PatientRows:
    """Mean embedding of each patient, with site and label."""

    names: Sequence[str]
    x: np.ndarray  # (n, D)
    sites: Sequence[str]
    labels: Sequence[str] | None

    def of(self, names: set[str]) -> "PatientRows":
        """Only those patients."""
        rows = [row for row, name in enumerate(self.names) if name in names]
        labels = None if self.labels is None else [self.labels[row] for row in rows]
        return PatientRows([self.names[r] for r in rows], self.x[rows], [self.sites[r] for r in rows], labels)


def patients_of(path: Path, names: Mapping[str, str | None], like: PatientRows | None = None) -> PatientRows:
    """Patients of an embeddings file, by the ``names`` of the columns of site, patient and label; only those that are in ``like`` too."""
    site, label = str(names["site"]), names["label"]
    samples, _, columns = read_weights(path, site, str(names["patient"]), *([label] if label else []))
    if label is not None and label not in columns:
        read_weights(path, label)  # refuses, naming the columns that there are
    ids, vectors, _ = read_vectors(path)
    if list(ids) != list(samples):
        raise InputError(f"{path}: its parts name other samples; write it again with `panther embed`.")
    patients = columns.get(str(names["patient"]), samples)
    kept = {site: columns[site]} | ({} if label is None else {label: columns[label]})
    x, per_name = per_patient(np.asarray(vectors, np.float64), patients, kept)
    rows = PatientRows(sorted(set(patients)), x, per_name[site], None if label is None else per_name[label])
    if like is None:
        return rows
    common = set(rows.names) & set(like.names)
    if not common:
        raise InputError(f"{path}: has no patient in common with the other embeddings")
    return rows.of(common)


def changes(before: SiteAndLabel, after: SiteAndLabel, label: str | None) -> list[str]:
    """What has become harder or easier to read."""
    pairs: list[tuple[str, Readable | None, Readable | None]] = [
        ("the site", before.site, after.site),
        (f"{label} among all sites", before.label, after.label),
        (f"{label} on sites that were not learned from", before.label_elsewhere, after.label_elsewhere),
    ]
    lines = []
    for what, one, other in pairs:
        if one is not None and other is not None:
            difference = other.accuracy - one.accuracy
            word = "better" if difference > 0 else "less well"
            word = "as well as before" if abs(difference) < CHANGED else word
            scores = f"{one.accuracy:.2f} before, {other.accuracy:.2f} now (chance {other.chance:.2f})"
            lines.append(f"  {what} is read {word}: {scores}")
    return lines
