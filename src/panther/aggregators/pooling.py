"""Simple pooling over patches, the baselines of all other representations."""

import torch
from torch import Tensor

from panther.aggregators._base import aggregators
from panther.errors import InputError
from panther.statistics import accumulate, compute_dtype, everything
from panther.statistics.blocks import blocks, check_patches
from panther.types import Aggregator, Basis, Ragged, Rows, SlideEmbedding


class _Pooling(Aggregator):
    """Numbers per feature, over all patches."""

    statistics: tuple[str, ...]

    def __init__(self, basis: Basis) -> None:
        super().__init__()
        self.dim = basis.dim
        self.out_dim = len(self.statistics) * self.dim

    def columns(self) -> list[tuple[int, str, int]]:
        """Each number is a statistic of one feature."""
        return [(-1, statistic, j) for statistic in self.statistics for j in range(self.dim)]


@aggregators.register(
    "mean",
    title="Mean",
    permutation_invariant=True,
    duplication_invariant=True,
    differentiable=True,
    options=(),
    variants=({},),
    tokens=lambda options: False,
    needs_prototypes=False,
)
class Mean(_Pooling):
    """The mean of all patches, d numbers."""

    statistics = ("mean",)

    def forward(self, x: Rows, mask: Tensor | None = None, *, with_assignment: bool = False) -> SlideEmbedding:
        """Return the mean."""
        mean, _, assignment = _moments(x, mask, squares=False, keep_assignment=with_assignment)
        return SlideEmbedding(mean, None, assignment)


@aggregators.register(
    "deepsets",
    title="DeepSets",
    permutation_invariant=True,
    duplication_invariant=True,
    differentiable=True,
    options=(),
    variants=({},),
    tokens=lambda options: False,
)
class DeepSets(Mean):
    """DeepSets of the paper: the mean of the features in the projection of the prototypes."""


@aggregators.register(
    "mean-std",
    title="Mean-std",
    permutation_invariant=True,
    duplication_invariant=True,
    differentiable=True,
    options=(),
    variants=({},),
    tokens=lambda options: False,
    needs_prototypes=False,
)
class MeanStd(_Pooling):
    """Mean and standard deviation of every feature over all patches, 2d numbers."""

    statistics = ("mean", "std")

    def forward(self, x: Rows, mask: Tensor | None = None, *, with_assignment: bool = False) -> SlideEmbedding:
        """Return mean and standard deviation, concatenated."""
        mean, variance, assignment = _moments(x, mask, squares=True, keep_assignment=with_assignment)
        # the square root has no gradient at 0: a constant feature has deviation 0 and no gradient
        deviation = torch.where(variance > 0, variance, 1.0).sqrt() * (variance > 0)
        return SlideEmbedding(torch.cat([mean, deviation], -1), None, assignment)


class _Largest(_Pooling):
    """Mean of the k largest values of every feature."""

    k: int

    def forward(self, x: Rows, mask: Tensor | None = None, *, with_assignment: bool = False) -> SlideEmbedding:
        """Keep the largest values of every feature in one pass."""
        check_patches(x, mask)
        kept = _largest(x, mask, self.k)  # (..., k, d)
        there = kept != -torch.inf
        mean = torch.where(there, kept, 0.0).sum(-2) / there.sum(-2)
        return SlideEmbedding(mean, None, _share_of_largest(x, kept) if with_assignment else None)


@aggregators.register(
    "max",
    title="Max",
    permutation_invariant=True,
    duplication_invariant=True,
    differentiable=True,
    options=(),
    variants=({},),
    tokens=lambda options: False,
    needs_prototypes=False,
)
class Max(_Largest):
    """The largest value of every feature over all patches, d numbers."""

    statistics = ("max",)
    k = 1


@aggregators.register(
    "top-k",
    title="Top-k",
    permutation_invariant=True,
    duplication_invariant=False,
    differentiable=True,
    options=("k",),
    variants=({}, {"k": 3}),
    tokens=lambda options: False,
    needs_prototypes=False,
)
class TopK(_Largest):
    """The mean of the ``k`` largest values of every feature over all patches, d numbers; of all patches if there are fewer."""

    statistics = ("top",)

    def __init__(self, basis: Basis, k: int = 10) -> None:
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise InputError(f"k: found {k!r}, expected a number of patches, 1 or more")
        super().__init__(basis)
        self.k = k


def _moments(
    x: Rows, mask: Tensor | None, *, squares: bool, keep_assignment: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Mean and variance (..., d) over the patches, summed in float64 about one of them, which keeps digits for large means."""
    check_patches(x, mask)
    origin = _a_patch(x, mask).to(compute_dtype(x.dtype))
    sums, assignment, _ = accumulate(x, everything, origin, mask=mask, squares=squares, keep_assignment=keep_assignment)
    shift = (sums.total / sums.mass.unsqueeze(-1)).squeeze(-2)  # (..., d)
    variance = (sums.square / sums.mass.unsqueeze(-1)).squeeze(-2) - shift.square()
    return (shift + origin).to(origin.dtype), variance.clamp_min(0).to(origin.dtype), assignment


def _a_patch(x: Rows, mask: Tensor | None) -> Tensor:
    """The first real patch (d,) of the first bag."""
    if isinstance(x, Ragged):
        return x.rows[0].detach()
    if len(x.shape) == 2:
        return x[0:1][0].detach()
    first = 0 if mask is None else int(mask[0].int().argmax())
    return x[0:1][0, first].detach()


def _largest(x: Rows, mask: Tensor | None, k: int) -> Tensor:
    """The k largest values of every feature, largest first (..., k, d); -inf where there are fewer patches."""
    if isinstance(x, Ragged):
        return torch.stack([_largest(bag, None, k) for bag in x.bags()])
    patch = _a_patch(x, mask).to(compute_dtype(x.dtype))
    kept = patch.new_full((*map(int, x.shape[:-2]), k, len(patch)), -torch.inf)
    for block, real in blocks(x, mask, patch):
        # infinity is refused like NaN: NaN is the largest value, so it appears in the result
        values = torch.where(block.isfinite(), block.to(patch.dtype), torch.nan)
        values = values if real is None else values.masked_fill(~real.unsqueeze(-1), -torch.inf)
        kept = torch.cat([kept, values], -2).topk(k, -2).values
    return kept


def _share_of_largest(x: Rows, kept: Tensor) -> Tensor:
    """Share of features (..., N, 1) of which each patch is among the largest."""
    if isinstance(x, Ragged):
        return torch.cat([_share_of_largest(bag, largest) for bag, largest in zip(x.bags(), kept, strict=True)])
    least = torch.where(kept == -torch.inf, torch.inf, kept).amin(-2, keepdim=True)
    shares = [(block.to(kept.dtype) >= least).to(kept.dtype).mean(-1) for block, _ in blocks(x, None, kept[..., 0, :])]
    return torch.cat(shares, -1).unsqueeze(-1)
