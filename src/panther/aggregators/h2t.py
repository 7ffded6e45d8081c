"""H2T: the mean of the patches nearest to each prototype, C d numbers."""

import torch
from torch import Tensor

from panther.aggregators._base import aggregators, per_prototype_means
from panther.statistics import accumulate, compute_dtype, nearest
from panther.types import Aggregator, Projection, Prototypes, Rows, SlideEmbedding


@aggregators.register(
    "h2t",
    title="H2T",
    permutation_invariant=True,
    duplication_invariant=True,
    differentiable=False,
    options=("normalise",),
    variants=({}, {"normalise": False}),
    tokens=lambda options: True,
)
class H2T(Aggregator):
    """Hard assignment, mean per prototype; zeros for a prototype that the slide lacks (its mass in `aux` is 0).

    Parameters
    ----------
    prototypes : Prototypes
        Centroids.
    normalise : bool
        L2-normalise features and prototypes first, as the paper ran it.
    """

    def __init__(self, prototypes: Prototypes, normalise: bool = True) -> None:
        super().__init__()
        self.projection = Projection(normalise=normalise)
        self.register_buffer("centroids", prototypes.centroids.clone())
        self.out_dim = prototypes.centroids.numel()

    def forward(self, x: Rows, mask: Tensor | None = None, *, with_assignment: bool = False) -> SlideEmbedding:
        """Average the patches of each prototype."""
        return self.read(self.projection.view(x), mask, with_assignment=with_assignment)

    def read(self, x: Rows, mask: Tensor | None = None, *, with_assignment: bool = False) -> SlideEmbedding:
        """Average patches that are normalised already, if the method normalises."""
        centroids = self.projection(self.get_buffer("centroids").to(compute_dtype(x.dtype)))
        origin = centroids.mean(0)
        sums, assignment, _ = accumulate(
            x,
            nearest(centroids - origin),
            origin,
            mask=mask,
            squares=False,
            keep_assignment=with_assignment,
        )
        mass = sums.mass.unsqueeze(-1)
        means = torch.where(mass > 0, sums.total / mass.clamp_min(1) + origin, 0.0).to(origin.dtype)
        weights = (sums.mass / sums.mass.sum(-1, keepdim=True)).to(origin.dtype)
        return SlideEmbedding(means.flatten(-2), means, assignment, {"mass": sums.mass, "weights": weights})

    def columns(self) -> list[tuple[int, str, int]]:
        """Each number is one dimension of a prototype's mean."""
        return list(per_prototype_means(*self.get_buffer("centroids").shape))
