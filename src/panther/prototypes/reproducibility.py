r"""Do the same prototypes come back when other patients are asked? Two fits on disjoint halves, compared patch by patch.

A prototype of one half *comes back* in the other when, of all patches that either of the two calls so, at least half are called so by
both: Jaccard overlap :math:`|A \cap B| / |A \cup B| \ge 1/2` of matched prototypes. Below one half a cluster counts as dissolved (Hennig,
*Cluster-wise assessment of cluster stability*, 2007); above it the partner is the only one possible.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

COMES_BACK = 0.5  # overlap from which a prototype of one half counts as found again in the other


@dataclass(frozen=True)
class FitAgreement:
    """Two assignments of the same patches to C prototypes each."""

    overlap: Tensor  # (C,), Jaccard overlap of each matched pair
    adjusted_rand: float  # agreement of the assignments beyond chance: 0 by chance, 1 the same

    @property
    def come_back(self) -> int:
        """How many prototypes of one side are found again on the other."""
        return int((self.overlap >= COMES_BACK).sum())


def agreement(first: Tensor, second: Tensor, n_prototypes: int) -> FitAgreement:
    """Compare labels (N,) given to the same patches; prototypes are matched so that their overlaps add up to the most."""
    both = torch.bincount(first * n_prototypes + second, minlength=n_prototypes**2).reshape(n_prototypes, -1).double()
    either = both.sum(1, keepdim=True) + both.sum(0) - both
    overlap = both / either.clamp_min(1)  # (C, C)
    rows, columns = linear_sum_assignment(overlap.numpy(), maximize=True)
    return FitAgreement(
        overlap[torch.as_tensor(rows), torch.as_tensor(columns)], float(adjusted_rand_score(first, second))
    )


def random_halves(owner: Tensor, seed: int, number: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of two random halves of the owners (patients or slides), ``number`` times; of the rows where there is one owner only."""
    owners = owner.unique()
    generator = torch.Generator().manual_seed(seed)
    for _ in range(number):
        if len(owners) < 2:
            chosen = torch.rand(len(owner), generator=generator) < 0.5
        else:
            order = torch.randperm(len(owners), generator=generator)
            chosen = torch.isin(owner, owners[order[: len(owners) // 2]])
        yield chosen.nonzero().flatten(), (~chosen).nonzero().flatten()
