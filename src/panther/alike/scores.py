r"""How well neighbours share a label, one number per query.

Acc@k
    whether any of the k nearest slides has the label of the query;
mMV@k
    whether the majority of them has; of labels that tie the one whose slide is nearest wins;
mAP@k
    :math:`\frac{1}{\min(k, R)} \sum_{i \le k} r_i P_i`, with :math:`r_i` whether the i-th has the label, :math:`P_i` the share of the first i that
    have, and R slides of the label among all that may be neighbours.

Equally near slides count in the order of their names. A query that has no slide of its label among those that may be neighbours has no right
answer, and is left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from panther.alike.chance import chance_of_any, chance_of_majority, chance_of_precision
from panther.statistics import Apart, Nearest

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
