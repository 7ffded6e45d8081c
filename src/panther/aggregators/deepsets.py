"""DeepSets: the mean of all patches, d numbers."""

from torch import Tensor

from panther.aggregators._base import aggregators
from panther.statistics import accumulate, compute_dtype, everything
from panther.types import Aggregator, Prototypes, Rows, SlideEmbedding


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
class DeepSets(Aggregator):
    """Everything is assigned to one; the prototypes only serve as the origin that keeps digits."""

    def __init__(self, prototypes: Prototypes) -> None:
        super().__init__()
        self.register_buffer("origin", prototypes.centroids.mean(0))
        self.out_dim = prototypes.dim

    def forward(self, x: Rows, mask: Tensor | None = None, *, with_assignment: bool = False) -> SlideEmbedding:
        """Return the mean."""
        origin = self.get_buffer("origin").to(compute_dtype(x.dtype))
        sums, assignment, _ = accumulate(
            x, everything, origin, mask=mask, squares=False, keep_assignment=with_assignment
        )
        mean = (sums.total / sums.mass.unsqueeze(-1) + origin).to(origin.dtype)  # (..., 1, d)
        return SlideEmbedding(mean.squeeze(-2), None, assignment)

    def columns(self) -> list[tuple[int, str, int]]:
        """Each number is the mean of one dimension."""
        return [(-1, "mean", j) for j in range(self.out_dim)]
