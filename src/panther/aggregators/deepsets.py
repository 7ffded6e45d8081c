"""DeepSets: the mean of all patches, d numbers."""

from panther.aggregators._base import aggregators
from panther.aggregators.pooling import Mean


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
    """The mean, as the paper's baselines have it: of the features as the prototypes see them, on which it does not depend otherwise."""
