r"""What guessing would give: neighbours drawn at random from the slides that may be neighbours.

Exact, because how many of them are of which class is all that matters.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import comb

import numpy as np


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
