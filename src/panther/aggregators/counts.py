"""ProtoCounts: how many patches each prototype has, C numbers."""

from collections.abc import Callable

import torch
from torch import Tensor

from panther.aggregators._base import aggregators
from panther.limits import check_choice
from panther.statistics import accumulate, compute_dtype, nearest
from panther.types import Aggregator, Prototypes, Rows, SlideEmbedding

SCALE: dict[str, Callable[[Tensor], Tensor]] = {
    "raw": lambda mass: mass,  # as the paper's text says
    "fraction": lambda mass: mass / mass.sum(-1, keepdim=True),
    "l2": lambda mass: mass / mass.norm(dim=-1, keepdim=True),  # as the published code does
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
        centroids = self.get_buffer("centroids").to(compute_dtype(x.dtype))
        origin = centroids.mean(0)
        sums, assignment, _ = accumulate(
            x, nearest(centroids - origin), origin, mask=mask, squares=False, keep_assignment=with_assignment
        )
        # a patch with NaN has some nearest prototype too; the sums tell what the counts do not
        mass = torch.where(sums.total.isfinite().all(-1), sums.mass, torch.nan)
        counts = SCALE[self.scale](mass).to(origin.dtype)
        weights = SCALE["fraction"](mass).to(origin.dtype)
        return SlideEmbedding(counts, counts.unsqueeze(-1), assignment, {"mass": mass, "weights": weights})

    def columns(self) -> list[tuple[int, str, int]]:
        """Each number is the count of one prototype."""
        return [(c, "count", -1) for c in range(self.out_dim)]
