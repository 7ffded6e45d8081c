"""How well something (the site, the label) can be read off slides, here and on sites that were not learned from; and whether the two are one."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from panther.errors import InputError, counted
from panther.limits import check_seed, check_whole

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
        said = [f"The site can be read off the embeddings with a balanced accuracy of {self.site.words()}."]
        if self.label is not None:
            said.append(f"{label} can be read with {self.label.words()}.")
        if self.label_elsewhere is not None:
            said.append(f"{label} of a site that was not learned from can be read with {self.label_elsewhere.words()}.")
        if self.confounding is not None and self.confounding >= CONFOUNDED:
            said.append(confounded(self.confounding, str(label)))
        return said


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
    if len(np.unique(site)) < 2:
        raise InputError(
            f"A site shift needs at least two sites with {FEWEST} patients each; found {counted(sites)}. Give another column."
        )
    rng = np.random.default_rng(seed)
    read = _readable(kernel[np.ix_(kept, kept)], site, _random_folds, permutations, rng)
    if labels is None:
        return SiteAndLabel(read, patients=len(kept))
    label, rows = _numbered(labels)
    if len(np.unique(label)) < 2:
        raise InputError(
            f"A label needs at least two values with {FEWEST} patients each; found {counted(labels)}. Give another column."
        )
    own = np.array(sites)[rows]
    here = _readable(kernel[np.ix_(rows, rows)], label, _random_folds, permutations, rng)
    elsewhere = None
    if len(np.unique(own)) > 1:
        by_site = [np.flatnonzero(own == name) for name in np.unique(own)]
        elsewhere = _readable(kernel[np.ix_(rows, rows)], label, lambda n, rng: [by_site], permutations, rng)
    return SiteAndLabel(read, here, elsewhere, cramers_v(own.tolist(), label.tolist()), len(kept))


def per_patient(
    x: np.ndarray, patients: Sequence[str], columns: Mapping[str, Sequence[str]]
) -> tuple[np.ndarray, dict[str, list[str]]]:
    """Mean row of each patient, and its columns; a patient whose slides differ in one is refused."""
    names = sorted(set(patients))
    where = {name: row for row, name in enumerate(names)}
    belongs = np.zeros((len(names), len(x)))
    belongs[[where[name] for name in patients], np.arange(len(x))] = 1
    found: dict[str, list[str]] = {}
    for column, values in columns.items():
        own: dict[str, str] = {}
        for name, value in zip(patients, values, strict=True):
            if own.setdefault(name, value) != value:
                raise InputError(
                    f"Patient {name} has slides with two values of {column} ({own[name]} and {value}); correct the table."
                )
        found[column] = [own[name] for name in names]
    return belongs @ x / belongs.sum(1, keepdims=True), found


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
    accuracy = _balanced_accuracy(smoother, y)
    null = np.array([_balanced_accuracy(smoother, rng.permutation(y)) for _ in range(permutations)])
    return Readable(accuracy, float(null.mean()), float((1 + (null >= accuracy).sum()) / (1 + permutations)))


def _ridge(own: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Matrix (m, n) from targets of training rows to effects on others, about the training rows' mean and without an intercept.

    An intercept, or a mean over everybody, would tell what the rows left out are like: where a site is left out, next to all of it.
    """
    mean = own.mean(0)
    centred = own - mean - mean[:, None] + mean.mean()
    theirs = others - others.mean(1, keepdims=True) - mean + mean.mean()
    return np.asarray(np.linalg.solve(centred + np.eye(len(own)), theirs.T).T)


def _balanced_accuracy(smoother: np.ndarray, y: np.ndarray) -> float:
    """Mean recall over the values, averaged over the repeats."""
    target = np.eye(y.max() + 1)[y]
    predicted = (smoother @ target / target.mean(0)).argmax(-1)  # (repeats, n)
    return float(((predicted == y) @ (target / target.sum(0))).mean())
