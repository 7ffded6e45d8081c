"""ProtoCounts: number of patches of each prototype, C numbers."""

from collections.abc import Callable

import torch
from torch import Tensor

from panther.aggregators._base import aggregators
from panther.errors import check_choice
from panther.statistics import distances_to_prototypes
from panther.types import Aggregator, Prototypes, Rows, SlideEmbedding

SCALE: dict[str, Callable[[Tensor], Tensor]] = {
    "raw": lambda mass: mass,  # text of the paper
    "fraction": lambda mass: mass / mass.sum(-1, keepdim=True),
    "l2": lambda mass: mass / mass.norm(dim=-1, keepdim=True),  # published code
}


@aggregators.register(
    "protocounts",
    title="ProtoCounts",
    permutation_invariant=True,
    duplication_invariant=lambda module: module.scale != "raw",
    differentiable=False,
    options=("scale",),
    variants=({}, {"scale": "fraction"}, {"scale": "l2"}),
    tokens=lambda options: True,
)
class ProtoCounts(Aggregator):
    """Hard assignment to the nearest prototype; only the mass is kept.

    Parameters
    ----------
    prototypes : Prototypes
        Centroids.
    scale : str
        `raw` counts, `fraction` of the patches, or `l2`-normalised counts.
    """

    def __init__(self, prototypes: Prototypes, scale: str = "raw") -> None:
        super().__init__()
        check_choice("scale", scale, SCALE)
        self.scale = scale
        self.register_buffer("centroids", prototypes.centroids.clone())
        self.out_dim = len(prototypes)

    def forward(self, x: Rows, mask: Tensor | None = None, *, with_assignment: bool = False) -> SlideEmbedding:
        """Count."""
        distances = distances_to_prototypes(x, self.get_buffer("centroids"), mask)
        return self.read(distances, mask, with_assignment=with_assignment)

    def read(self, distances: Tensor, mask: Tensor | None = None, *, with_assignment: bool = False) -> SlideEmbedding:
        """Count from squared distances (..., N, C)."""
        least, index = distances.min(-1)  # (..., N)
        real = torch.ones_like(least) if mask is None else mask.to(least)
        mass = distances.new_zeros(*distances.shape[:-2], self.out_dim, dtype=torch.float64)
        mass.scatter_add_(-1, index, real.double())
        # argmin of NaN is also an index
        mass = torch.where(least.isfinite().all(-1, keepdim=True), mass, torch.nan)
        counts, weights = (SCALE[scale](mass).to(distances) for scale in (self.scale, "fraction"))
        kept = None
        if with_assignment:
            kept = torch.nn.functional.one_hot(index, self.out_dim).to(distances) * real.unsqueeze(-1)
        return SlideEmbedding(counts, counts.unsqueeze(-1), kept, {"mass": mass, "weights": weights})

    def columns(self) -> list[tuple[int, str, int]]:
        """Each number is the count of one prototype."""
        return [(c, "count", -1) for c in range(self.out_dim)]
