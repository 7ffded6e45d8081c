r"""Attribution as free functions: contributions of groups of an embedding's numbers to a model's output.

All of them share out :math:`f(x) - f(m)`, where m is the mean training embedding, among P players; player p owns the columns
with ``member == p``. Functions f take rows (B, D) and give (B, K), in float64.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import comb
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

BESIDE = "beside C"  # and the number of the other
BLOCK = {"regions": "space", "size": "space", "border": "space"}  # statistic -> its name in charts
Function = Callable[[Tensor], Tensor]  # (B, D) -> (B, K)

NUMBERS = 1 << 22  # of an embedding evaluated at a time, 32 MB
STATISTICS = {"weight": "pi", "mean": "mu", "variance": "Sigma"}  # as the paper writes them


def partner(statistic: str) -> int | None:
    """The other prototype of a pair; None where the statistic is of one alone."""
    return int(statistic.removeprefix(BESIDE)) if statistic.startswith(BESIDE) else None


def owners(prototype: int, statistic: str) -> dict[int, float]:
    """Prototypes that a player belongs to, and their shares: half of a pair is each one's; none where it belongs to the whole slide."""
    other = partner(statistic)
    if prototype < 0:
        return {}
    return {prototype: 1.0} if other is None or other == prototype else {prototype: 0.5, other: 0.5}


def ownership(players: Sequence[tuple[int, str]]) -> np.ndarray:
    """Share (P, C) of each player that belongs to each prototype."""
    owned = [owners(*player) for player in players]
    shares = np.zeros((len(owned), 1 + max((c for part in owned for c in part), default=-1)))
    for row, part in zip(shares, owned, strict=True):
        row[list(part)] = list(part.values())
    return shares


def by_block(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], float]:
    """Mean absolute contributions of rows of `attribution.json`, by (name in charts, prototype)."""
    size: dict[tuple[str, int], float] = {}
    for row in rows:
        statistic = row["statistic"]
        block = "tail" if statistic.startswith("tail") else BLOCK.get(statistic, statistic)
        for c, share in owners(row["prototype"], statistic).items():
            key = block if partner(statistic) is None else "space", c
            size[key] = size.get(key, 0.0) + share * float(row["mean_absolute"])
    return size


def largest_pairs(rows: Iterable[Mapping[str, Any]], most: int) -> list[Mapping[str, Any]]:
    """Rows of touching prototypes, those that move the output most first."""
    pairs = [row for row in rows if partner(row["statistic"]) is not None and row["mean_absolute"] > 0]
    return sorted(pairs, key=lambda row: -row["mean_absolute"])[:most]


class Players(NamedTuple):
    """Players of a prediction: one per prototype and statistic, and per pair of prototypes that touch."""

    names: tuple[tuple[int, str], ...]  # (prototype, statistic), P of them
    member: Tensor  # (D,), the player that owns each number

    def __len__(self) -> int:
        return len(self.names)


def players_of(columns: Sequence[tuple[int, str, int]]) -> Players:
    """Players of an embedding whose numbers are (prototype, statistic, dimension), in the embedding's order."""
    owner = [
        (prototype, f"{BESIDE}{j}" if statistic == "touch" else STATISTICS.get(statistic, statistic))
        for prototype, statistic, j in columns
    ]
    names = tuple(dict.fromkeys(owner))
    where = {name: p for p, name in enumerate(names)}
    return Players(names, torch.tensor([where[player] for player in owner]))


def linear_shares(slope: Tensor, x: Tensor, mean: Tensor, member: Tensor) -> Tensor:
    r"""Exact shares (K, P) of a linear function with slopes (K, D) in one embedding x (D,), :math:`\phi_p = \sum_{j \in p} w_j (x_j - m_j)`."""
    values = slope * (x - mean)
    return torch.zeros(len(values), int(member.max()) + 1, dtype=values.dtype).index_add(1, member, values)


def shapley_by_enumeration(f: Function, x: Tensor, mean: Tensor, member: Tensor) -> Tensor:
    r"""Exact Shapley values (K, P) of one embedding x (D,), by all :math:`2^P` coalitions.

    .. math:: \phi_p = \sum_{S \not\ni p} \frac{|S|!\,(P - |S| - 1)!}{P!} \big(v(S \cup p) - v(S)\big),
              \quad v(S) = f(x \text{ on } S,\ m \text{ elsewhere})
    """
    size = int(member.max()) + 1
    coalitions = (torch.arange(2**size)[:, None] >> torch.arange(size)) & 1  # (2^P, P)
    values = _values(f, coalitions.bool(), x, mean, member)  # (2^P, K)
    order = coalitions.sum(1)  # |S|
    with_p = torch.tensor([1 / (size * comb(size - 1, max(s - 1, 0))) for s in range(size + 1)], dtype=torch.float64)
    without = torch.tensor(
        [1 / (size * comb(size - 1, min(s, size - 1))) for s in range(size + 1)], dtype=torch.float64
    )
    weight = torch.where(coalitions.bool(), with_p[order][:, None], -without[order][:, None])  # (2^P, P)
    return values.T @ weight


def shapley_by_permutation(
    f: Function, x: Tensor, mean: Tensor, member: Tensor, orders: np.ndarray
) -> tuple[Tensor, Tensor]:
    r"""Shapley values (K, P) of one embedding x (D,) from orders (R, P) in which players enter, and their standard errors.

    Along one order the steps telescope to :math:`f(x) - f(m)`, so the values add up to it whatever R is. Orders come in antithetic pairs
    (one and its reverse, see :func:`antithetic_orders`): the error is that of the pairs' means.
    """
    rank = torch.as_tensor(np.argsort(orders, 1))  # (R, P), when a player enters
    size = rank.shape[1]
    steps = torch.arange(size + 1)
    inside = rank[:, None, :] < steps[:, None]  # (R, P + 1, P)
    values = _values(f, inside.reshape(-1, size), x, mean, member).unflatten(0, inside.shape[:2])  # (R, P + 1, K)
    gains = values.diff(dim=1)  # (R, P, K), in the order of entering
    by_player = gains.gather(1, rank[..., None].expand(-1, -1, gains.shape[-1]))  # (R, P, K)
    pairs = by_player.unflatten(0, (-1, 2)).mean(1)  # (R / 2, P, K)
    error = pairs.std(0) / len(pairs) ** 0.5 if len(pairs) > 1 else torch.full_like(pairs[0], torch.nan)
    return pairs.mean(0).T, error.T


def antithetic_orders(size: int, pairs: int, seed: int) -> np.ndarray:
    """Orders (2 pairs, P), each followed by its reverse."""
    rng = np.random.default_rng(seed)
    forward = np.stack([rng.permutation(size) for _ in range(pairs)])
    return np.stack([forward, forward[:, ::-1]], 1).reshape(-1, size)


def _values(f: Function, inside: Tensor, x: Tensor, mean: Tensor, member: Tensor) -> Tensor:
    """Evaluate f (n, K) where the players inside (n, P) have x and the others the mean."""
    blocks = inside.split(max(1, NUMBERS // len(x)))
    with torch.no_grad():
        return torch.cat([f(torch.where(block[:, member], x, mean)) for block in blocks])
