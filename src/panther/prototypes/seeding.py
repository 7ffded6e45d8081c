r"""Where K-means starts: greedy k-means++ (Arthur and Vassilvitskii 2007), all restarts from one walk over the sample for each next seed.

Each next seed is drawn with chance :math:`\propto \min_c |z - h_c|^2`; of a few draws the one counts that lowers the sum of these most.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from panther.statistics import block_rows

Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]  # the built-in, or that of a pool of threads


def plus_plus(
    x: Tensor, n_clusters: int, origin: Tensor, energy: Tensor, generators: Sequence[torch.Generator], each: Map = map
) -> list[Tensor]:
    """Seeds (C, d) of every restart, given |x - origin|^2 of all patches; ``each`` maps over blocks of rows."""
    draws = 2 + int(math.log(n_clusters))
    chosen = [[int(torch.randint(len(x), (1,), generator=g))] for g in generators]
    closest = _distances(x, [rows[0] for rows in chosen], origin, energy, each)  # (restarts, m)
    for _ in range(n_clusters - 1):
        candidates = _drawn(closest, generators, draws)  # (restarts, draws)
        tried = _distances(x, candidates.flatten().tolist(), origin, energy, each).view(*candidates.shape, -1)
        torch.minimum(tried, closest.unsqueeze(1), out=tried)
        best = tried.sum(-1, dtype=torch.float64).argmin(-1)  # (restarts,)
        closest = tried.take_along_dim(best.view(-1, 1, 1), 1).squeeze(1)
        for rows, row in zip(chosen, candidates.gather(1, best.unsqueeze(1)).flatten().tolist(), strict=True):
            rows.append(row)
    return [x[rows].clone() for rows in chosen]


def energies(x: Tensor, origin: Tensor) -> Tensor:
    """|x - origin|^2 of all patches, (m,)."""
    return torch.cat([(rows - origin).square_().sum(-1) for rows in x.split(_step(x))])


def _drawn(closest: Tensor, generators: Sequence[torch.Generator], draws: int) -> Tensor:
    chance = closest.cumsum(-1, dtype=torch.float64)  # (restarts, m)
    points = torch.stack([torch.rand(draws, generator=g, dtype=torch.float64) for g in generators]).to(chance)
    return torch.searchsorted(chance, points * chance[:, -1:]).clamp_max_(closest.shape[-1] - 1)


def _distances(x: Tensor, rows: list[int], origin: Tensor, energy: Tensor, each: Map) -> Tensor:
    """(k, m) squared distances to some of the patches, their norms known: |z|^2 - 2 z.p + |p|^2."""
    p = x[rows] - origin
    found = x.new_empty(len(rows), len(x))
    own = energy[rows].unsqueeze(-1)

    def fill(start: int) -> None:
        part = slice(start, start + step)
        cross = p @ (x[part] - origin).T
        torch.add(energy[part] + own, cross, alpha=-2, out=found[:, part]).clamp_min_(0)

    step = _step(x)
    for _ in each(fill, range(0, len(x), step)):
        pass
    return found


def _step(x: Tensor) -> int:
    return block_rows(x.shape[1], x.element_size(), x.device.type)
