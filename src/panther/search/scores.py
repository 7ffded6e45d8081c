r"""How well neighbours share a label, one number per query.

Acc@k
    whether any of the k nearest slides has the label of the query;
mMV@k
    whether the majority of them has; of labels that tie the one whose slide is nearest wins;
mAP@k
    :math:`\frac{1}{\min(k, R)} \sum_{i \le k} r_i P_i`, with :math:`r_i` whether the i-th has the label, :math:`P_i` the share of the first i that
    have, and R slides of the label among all that may be neighbours.

Equally near slides count in the order of their names. A query that has no slide of its label among those that may be neighbours has no right
answer, and is left out. Chance is that of neighbours drawn at random from the slides that may be neighbours, exact: how many of them are of
which class is all that matters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np

from panther.evaluation.intervals import Difference, Measure, Resampled, differences, holm, intervals, resample
from panther.evaluation.metrics import mean_of_defined, ratio
from panther.statistics import Apart, Nearest

if TYPE_CHECKING:
    import pandas as pd


def chance_of_any(own: int, total: int, k: int) -> float:
    r"""Acc@k of a draw: :math:`1 - \binom{N - R}{k} / \binom{N}{k}`, with R of N slides of the right class."""
    k = min(k, total)
    return 1 - comb(total - own, k) / comb(total, k)


def chance_of_precision(own: int, total: int, k: int) -> float:
    r"""AP@k of a draw: :math:`\frac{1}{\min(k, R)} \sum_{i \le k} \frac{R}{N} \frac{1}{i} \big(1 + (i-1) \frac{R-1}{N-1}\big)`."""
    k = min(k, total)
    place = np.arange(1, k + 1)
    others = (own - 1) / (total - 1) if total > 1 else 0.0
    return float((own / total * (1 + (place - 1) * others) / place).sum() / min(k, own))


def chance_of_majority(counts: Sequence[int], own: int, k: int) -> float:
    """Share of draws whose majority is class ``own``, of ``counts`` slides by class; the nearest slide is equally often of each class that ties."""
    return _majority(counts[own], tuple(sorted((*counts[:own], *counts[own + 1 :]))), k)


@lru_cache(maxsize=10_000)
def _majority(own: int, others: tuple[int, ...], k: int) -> float:
    k = min(k, own + sum(others))
    won = 0.0
    for votes in range(1, min(own, k) + 1):
        ways = _ways(others, k - votes, votes)
        won += comb(own, votes) * sum(number / (ties + 1) for ties, number in ways.items())
    return won / comb(own + sum(others), k)


def _ways(others: tuple[int, ...], slots: int, most: int) -> dict[int, int]:
    """In how many ways other classes fill ``slots`` with at most ``most`` each, by how many of them reach it."""
    found = {(slots, 0): 1}
    for count in others:
        nexts: dict[tuple[int, int], int] = {}
        for (left, ties), number in found.items():
            for taken in range(min(count, left, most) + 1):
                key = left - taken, ties + (taken == most)
                nexts[key] = nexts.get(key, 0) + number * comb(count, taken)
        found = nexts
    ways: dict[int, int] = {}
    for (left, ties), number in found.items():
        if left == 0:
            ways[ties] = ways.get(ties, 0) + number
    return ways


METRICS = ("acc", "mmv", "map")
AT = (1, 3, 5, 10)  # numbers of neighbours, as papers report them


@dataclass(frozen=True, eq=False)
class Scores:
    """Numbers of every query that has a right answer: (queries, metrics x k), and what guessing would give."""

    names: tuple[str, ...]  # acc@1, acc@3, ..., mmv@1, ...
    queries: np.ndarray  # (m,) which of the queries
    found: np.ndarray  # (m, names)
    chance: np.ndarray  # (m, names)


def score(
    neighbours: Sequence[Nearest], own: np.ndarray, others: np.ndarray, apart: Sequence[Apart], at: Sequence[int]
) -> Scores:
    """Scores of queries with labels ``own`` (q,), whose neighbours are rows with labels ``others`` (n,); labels are 0, 1, ..."""
    n_classes = int(max(own.max(initial=0), others.max(initial=0))) + 1
    names = tuple(f"{metric}@{k}" for metric in METRICS for k in at)
    kept, found, chance = [], [], []
    for query, near in enumerate(neighbours):
        counts = _candidates(query, others, apart, n_classes)
        right = int(counts[own[query]])
        if right == 0 or len(near.rows) == 0:
            continue
        labels, label = others[near.rows], int(own[query])
        kept.append(query)
        found.append([MEASURES[metric](labels[:k], label, min(k, right)) for metric in METRICS for k in at])
        chance.append([CHANCE[metric](counts.tolist(), label, k) for metric in METRICS for k in at])
    shape = len(kept), len(names)
    return Scores(
        names, np.array(kept, np.int64), np.array(found, float).reshape(shape), np.array(chance, float).reshape(shape)
    )


def any_right(labels: np.ndarray, own: int, most: int) -> float:
    """Whether the label is among those of the nearest."""
    return float((labels == own).any())


def majority_right(labels: np.ndarray, own: int, most: int) -> float:
    """Whether most of the nearest have the label; of labels that tie, that of the nearest slide."""
    votes = np.bincount(labels)
    tied = np.flatnonzero(votes == votes.max())
    return float(next(label for label in labels.tolist() if label in tied) == own)


def average_precision(labels: np.ndarray, own: int, most: int) -> float:
    """Precision at each place where the label is, added up and divided by the ``most`` that there could be."""
    right = labels == own
    precision = np.cumsum(right) / np.arange(1, len(labels) + 1)
    return float(precision[right].sum() / most)


MEASURES: dict[str, Callable[[np.ndarray, int, int], float]] = {
    "acc": any_right,
    "mmv": majority_right,
    "map": average_precision,
}
CHANCE: dict[str, Callable[[list[int], int, int], float]] = {
    "acc": lambda counts, own, k: chance_of_any(counts[own], sum(counts), k),
    "mmv": chance_of_majority,
    "map": lambda counts, own, k: chance_of_precision(counts[own], sum(counts), k),
}


def _candidates(query: int, others: np.ndarray, apart: Sequence[Apart], n_classes: int) -> np.ndarray:
    """How many slides of each label may be neighbours of a query."""
    allowed = np.ones(len(others), bool)
    for groups in apart:
        allowed &= (groups.rows != groups.queries[query]) | (groups.rows < 0)
    return np.bincount(others[allowed], minlength=n_classes)


ALL, MEAN = "all", "mean over classes"  # in place of a class
COMPARED = ["representation", "against", "group", "metric", "k", "difference", "ci_low", "ci_high", "p_value", "p_holm"]


@dataclass(frozen=True, eq=False)
class Queries:
    """Slides that were asked about: what was found, what guessing gives, and whose they are."""

    names: tuple[str, ...]  # acc@1, acc@3, ...
    found: np.ndarray  # (m, names)
    chance: np.ndarray  # (m, names)
    ids: np.ndarray  # (m,)
    labels: np.ndarray  # (m,)
    patients: np.ndarray  # (m,)

    @classmethod
    def of(cls, scores: Scores, ids: Sequence[str], labels: np.ndarray, patients: np.ndarray) -> "Queries":
        """Those that have a right answer."""
        asked = scores.queries
        return cls(scores.names, scores.found, scores.chance, np.array(ids)[asked], labels[asked], patients[asked])

    def take(self, rows: np.ndarray) -> "Queries":
        """Some of them."""
        return Queries(self.names, *(part[rows] for part in self._parts()))

    @staticmethod
    def joined(several: Sequence["Queries"]) -> "Queries":
        """One after the other: those of all folds."""
        parts = zip(*(one._parts() for one in several), strict=True)
        return Queries(several[0].names, *(np.concatenate(part) for part in parts))

    def _parts(self) -> tuple[np.ndarray, ...]:
        return self.found, self.chance, self.ids, self.labels, self.patients


def summarise(
    judged: Mapping[str, Queries], classes: Sequence[str], bootstrap: int, seed: int = 0
) -> "tuple[pd.DataFrame, pd.DataFrame]":
    """Values with intervals over patients and what guessing gives; and every representation against the first."""
    import pandas as pd

    resampled = {name: _resampled(one, classes, bootstrap, seed) for name, one in judged.items()}
    rows = [row for name, one in judged.items() for row in _rows(name, one, classes, resampled[name], bootstrap)]
    first = next(iter(judged))
    others = [name for name in judged if name != first] if bootstrap else []
    pairs = {name: _compared(judged[name], judged[first], classes, bootstrap, seed) for name in others}
    compared = []
    for group in (ALL, MEAN, *classes):
        for metric in judged[first].names:
            found = {name: pair[f"{metric}|{group}"] for name, pair in pairs.items()}
            adjusted = holm([d.p_value for d in found.values()])
            for (name, d), p in zip(found.items(), adjusted, strict=True):
                values = (name, first, group, *_named(metric).values(), d.value, d.low, d.high, d.p_value, p)
                compared.append(dict(zip(COMPARED, values, strict=True)))
    return pd.DataFrame(rows), pd.DataFrame(compared, columns=COMPARED)


def _compared(
    one: Queries, other: Queries, classes: Sequence[str], bootstrap: int, seed: int
) -> Mapping[str, Difference]:
    """Differences on the slides that both were asked about, resampled alike."""
    both, here, there = np.intersect1d(one.ids, other.ids, return_indices=True)
    if len(both) == 0:
        nothing = Difference(np.nan, np.nan, np.nan, 0, np.nan)
        return {f"{metric}|{group}": nothing for metric in one.names for group in (ALL, MEAN, *classes)}
    first, second = (_resampled(side, classes, bootstrap, seed) for side in (one.take(here), other.take(there)))
    return differences(first, second)


def _resampled(one: Queries, classes: Sequence[str], bootstrap: int, seed: int) -> Resampled:
    return resample(_measure(one, classes, one.found), one.patients, max(bootstrap, 1), seed)


def _rows(
    name: str, one: Queries, classes: Sequence[str], resampled: Resampled, bootstrap: int
) -> list[dict[str, Any]]:
    limits = intervals(resampled) if bootstrap else {}
    by_chance = _measure(one, classes, one.chance)(np.ones((1, len(one.labels))))
    sizes = {ALL: len(one.labels), MEAN: len(one.labels)}
    sizes |= {group: int((one.labels == number).sum()) for number, group in enumerate(classes)}
    rows = []
    for group, size in sizes.items():
        for metric in one.names:
            key = f"{metric}|{group}"
            low, high = (limits[key].low, limits[key].high) if limits else (np.nan, np.nan)
            rows.append(
                {"representation": name, "group": group, **_named(metric), "value": resampled.whole[key]}
                | {"ci_low": low, "ci_high": high, "chance": float(by_chance[key][0]), "queries": size}
            )
    return rows


def _measure(one: Queries, classes: Sequence[str], values: np.ndarray) -> Measure:
    """Mean of each metric over the queries as often as they count: of all, of each class, and the mean of these."""
    members = np.stack([one.labels == number for number in range(len(classes))], 1).astype(float)  # (m, classes)

    def measure(counts: np.ndarray) -> dict[str, np.ndarray]:
        found = {}
        sizes = counts @ members
        for column, name in enumerate(one.names):
            of_class = ratio(counts @ (members * values[:, column : column + 1]), sizes)  # (b, classes)
            found[f"{name}|{ALL}"] = ratio(counts @ values[:, column], counts.sum(1))
            found[f"{name}|{MEAN}"] = mean_of_defined(of_class)
            found |= {f"{name}|{group}": of_class[:, number] for number, group in enumerate(classes)}
        return found

    return measure


def _named(metric: str) -> dict[str, Any]:
    kind, k = metric.split("@")
    return {"metric": kind, "k": int(k)}
