"""Two sets of prototypes side by side: which are the same, which appeared, vanished or split."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import coo_array
from torch import Tensor

from panther.errors import InputError
from panther.patches import same_encoder
from panther.types import Prototypes


class Match(NamedTuple):
    """Centroids of two sets paired one to one so that the distances add up to the least."""

    first: Tensor  # (k,), k = min(C_a, C_b)
    second: Tensor  # (k,)
    distance: Tensor  # (k,)
    cosine: Tensor  # (k,)


@dataclass(frozen=True)
class Comparison:
    """What became of each prototype of A in B."""

    match: Match
    distance: Tensor  # (C_a, C_b)
    cosine: Tensor  # (C_a, C_b), about the common mean of both sets
    same: tuple[tuple[int, int], ...]
    appeared: tuple[int, ...]  # of B, far from all of A
    vanished: tuple[int, ...]  # of A, far from all of B
    split: dict[int, tuple[int, ...]]  # of A -> several of B
    merged: dict[int, tuple[int, ...]]  # of B -> several of A
    reach: float  # distance up to which two prototypes count as near
    transport: Tensor  # (C_a + 1, C_b + 1), mass moved from A to B; the last row and column match none

    def to_lines(self) -> list[str]:
        """Lines for people."""
        changes = {
            "appeared in B": [f"C{c}" for c in self.appeared],
            "vanished from A": [f"C{c}" for c in self.vanished],
            "split": [f"A C{c} into B {', '.join(f'C{p}' for p in parts)}" for c, parts in self.split.items()],
            "merged": [f"A {', '.join(f'C{p}' for p in parts)} into B C{c}" for c, parts in self.merged.items()],
        }
        flows = []  # where the patches of each prototype of A go
        for c, row in enumerate(self.transport[:-1]):
            targets = [*(f"to B C{j}" for j in range(len(row) - 1)), "match none"]
            order = [j for j in row.argsort(descending=True).tolist() if row[j] >= 5e-4]
            flows.append(f"  A C{c:<3} {', '.join(f'{float(row[j]):.1%} {targets[j]}' for j in order)}")
        return [
            *(
                f"A C{i:<3} = B C{j:<3}  distance {d:.4g}, cosine {c:.3f}{'' if (i, j) in self.same else '  (far)'}"
                for i, j, d, c in zip(*(t.tolist() for t in self.match), strict=True)
            ),
            f"{len(self.same)} of {len(self.match.first)} pairs are the same (closer than {self.reach:.4g})",
            *(f"{what}: {'; '.join(items)}" for what, items in changes.items() if items),
            f"by transport {1 - float(self.transport[:-1, -1].sum()):.0%} of A's patches have a counterpart in B",
            *flows,
        ]

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "matched": [
                {"a": i, "b": j, "distance": d, "cosine": c, "same": (i, j) in self.same}
                for i, j, d, c in zip(*(t.tolist() for t in self.match), strict=True)
            ],
            "appeared": list(self.appeared),
            "vanished": list(self.vanished),
            "split": {str(c): list(parts) for c, parts in self.split.items()},
            "merged": {str(c): list(parts) for c, parts in self.merged.items()},
            "reach": self.reach,
            "transport": self.transport.tolist(),
        }


def match(a: Tensor, b: Tensor) -> Match:
    """Hungarian matching of centroids (C_a, d) and (C_b, d) by Euclidean distance."""
    distance = _distances(a, b)
    rows, columns = linear_sum_assignment(distance.numpy())
    first, second = torch.as_tensor(rows), torch.as_tensor(columns)
    cosine = torch.nn.functional.cosine_similarity(a[first].double(), b[second].double(), dim=-1)
    return Match(first, second, distance[first, second], cosine)


def compare(a: Prototypes, b: Prototypes, *, allow_mixed_resolution: bool = False) -> Comparison:
    """Compare prototypes of the same encoder and, unless ``allow_mixed_resolution``, of patches of one resolution.

    Two prototypes are near when they are closer than half the typical distance between neighbours of the sparser set. A prototype with
    no near one in the other set appeared or vanished; one that is the nearest of several has split or merged.
    """
    basis, other = a.projection.basis, b.projection.basis
    is_same_basis = (basis is None) == (other is None) and (basis is None or other is None or torch.equal(basis, other))
    spaces = [f"{p.dim} dimensions, normalised {p.projection.normalise}" for p in (a, b)]
    differences = {
        f"found encoders {a.encoder!r} and {b.encoder!r}": not same_encoder(a.encoder, b.encoder),
        f"found patches {a.spec.words()} and {b.spec.words()}; `allow_mixed_resolution` compares them": not (
            allow_mixed_resolution or a.spec.agrees(b.spec)
        ),
        f"found {spaces[0]} and {spaces[1]}": spaces[0] != spaces[1],
        "found different PCA projections": not is_same_basis,
    }
    for text, differs in differences.items():
        if differs:
            raise InputError(f"prototypes: {text}, expected two sets of one space")
    centre = torch.cat([a.centroids, b.centroids]).double().mean(0)
    distance = _distances(a.centroids, b.centroids)
    cosine = (
        torch.nn.functional.normalize(a.centroids.double() - centre, dim=-1)
        @ torch.nn.functional.normalize(b.centroids.double() - centre, dim=-1).T
    )
    reach = 0.5 * max(_spacing(a.centroids), _spacing(b.centroids))  # 0 of one prototype each: equal or not
    pairs = match(a.centroids - centre.to(a.centroids), b.centroids - centre.to(b.centroids))
    near = distance <= reach
    return Comparison(
        pairs,
        distance,
        cosine,
        same=tuple((int(i), int(j)) for i, j in zip(pairs.first, pairs.second, strict=True) if near[i, j]),
        appeared=tuple((~near.any(0)).nonzero().flatten().tolist()),
        vanished=tuple((~near.any(1)).nonzero().flatten().tolist()),
        split=_nearest_of_several(distance.argmin(0), near.any(0)),
        merged=_nearest_of_several(distance.argmin(1), near.any(1)),
        reach=reach,
        transport=transport(_shares(a), _shares(b), distance, reach),
    )


def transport(a: Tensor, b: Tensor, distance: Tensor, reach: float) -> Tensor:
    r"""Partial optimal transport (C_a + 1, C_b + 1) between shares (C_a,) and (C_b,); the last row and column are the bin "matches none".

    .. math:: \min_P \sum_{ij} P_{ij} D_{ij} + \frac{r}{2} \Big( \sum_i u_i + \sum_j v_j \Big), \quad
        \sum_j P_{ij} + u_i = a_i, \quad \sum_i P_{ij} + v_j = b_j

    A unit without a counterpart costs as much as one moved by half of r on either side, so nothing moves farther than the reach r.
    """
    rows, columns = distance.shape
    cost = torch.full(
        (rows + 1, columns + 1), reach / 2 + 1e-12, dtype=torch.float64
    )  # equal prototypes match also where r = 0
    cost[:rows, :columns], cost[-1, -1] = distance, 0.0
    ends = torch.cat(
        [torch.arange(rows + 1).repeat_interleave(columns + 1), rows + 1 + torch.arange(columns + 1).repeat(rows + 1)]
    )
    cells = torch.arange((rows + 1) * (columns + 1)).repeat(2)
    sums = coo_array((np.ones(len(cells)), (ends.numpy(), cells.numpy())))
    masses = torch.cat([a, b.sum().reshape(1), b, a.sum().reshape(1)])  # the bins can take everything
    solved = linprog(cost.flatten().numpy(), A_eq=sums, b_eq=masses.numpy(), method="highs")
    return torch.as_tensor(solved.x).reshape(rows + 1, columns + 1)


def _shares(prototypes: Prototypes) -> Tensor:
    """Shares of the training patches; equal ones where they are unknown."""
    mass = prototypes.occupancy
    mass = torch.ones(len(prototypes)) if mass is None or not float(mass.sum()) else mass
    return mass.double() / mass.double().sum()


def _distances(a: Tensor, b: Tensor) -> Tensor:
    return torch.cdist(a.double(), b.double(), compute_mode="donot_use_mm_for_euclid_dist")


def _spacing(centroids: Tensor) -> float:
    """Median distance of a prototype to its nearest neighbour; 0 of one that has none."""
    if len(centroids) < 2:
        return 0.0
    return float(_distances(centroids, centroids).fill_diagonal_(torch.inf).amin(1).median())


def _nearest_of_several(nearest: Tensor, is_near: Tensor) -> dict[int, tuple[int, ...]]:
    """Prototypes that are the nearest of several of the other set, and these."""
    groups: dict[int, list[int]] = {}
    for member in is_near.nonzero().flatten().tolist():
        groups.setdefault(int(nearest[member]), []).append(member)
    return {c: tuple(members) for c, members in groups.items() if len(members) > 1}
