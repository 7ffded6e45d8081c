"""The block `tail`: the patches that no prototype explains. A lesion of 1 % of the tissue drowns in a mixture."""

import torch
from torch import Tensor

from panther.aggregators.blocks._base import Columns, EmbeddingBlock
from panther.errors import InputError
from panther.mixture import STARTING_VARIANCES, EMSettings, MixtureFit
from panther.statistics.tail import tail_of
from panther.types import Places, Prototypes, Rows

SHARE_PRIOR = 1e-3  # added to the share before its logarithm: 0.1 % more or less of nothing is nothing


class TailBlock(EmbeddingBlock):
    """Share of the tail (its logarithm), how far out it lies, the prototypes that are nearest to it, its mean and its variance."""

    needs_scores = True

    def __init__(self, prototypes: Prototypes, settings: EMSettings) -> None:
        super().__init__(prototypes, settings)
        self.edges = _edges(prototypes, settings)

    @staticmethod
    def width(count: int, dim: int) -> int:
        """2 + C + 2 d."""
        return 2 + count + 2 * dim

    @staticmethod
    def layout(count: int, dim: int) -> list[Columns]:
        """`tail_share`, `tail_excess`, `tail_nearest` of each prototype, then `tail_mean` and `tail_variance` of each feature."""
        moments = [(-1, f"tail_{moment}", j) for moment in ("mean", "variance") for j in range(dim)]
        nearest = [(c, "tail_nearest", -1) for c in range(count)]
        return [[(-1, "tail_share", -1), (-1, "tail_excess", -1), *nearest, *moments]]

    def forward(self, fit: MixtureFit, x: Rows, places: Places | None) -> Tensor:
        """Read (2 + C + 2 d,) of the scores, the posteriors and the few rows that are in the tail."""
        assert fit.assignment is not None
        assert fit.scores is not None
        # what is not finite makes the sum so; the bag is refused for it, by whoever looks at the numbers
        if not bool(fit.scores.sum(dtype=torch.float64).isfinite()):
            return fit.mixture.means.new_full((self.width(self.count, self.dim),), torch.nan)
        found = tail_of(x, -fit.scores, fit.assignment, self.edges)
        share = (found.share + SHARE_PRIOR).log()
        numbers = torch.cat([share[None], found.excess[None], found.nearest, found.mean, found.variance])
        return numbers.to(fit.mixture.means.dtype)


def _edges(prototypes: Prototypes, settings: EMSettings) -> tuple[float, float]:
    """What is usual and what is rare for the variance that EM starts from."""
    if prototypes.surprise is None:
        raise InputError(
            "These prototypes do not say how surprising a training patch can be, which the block `tail` compares with: they were fitted "
            "elsewhere. Fit them again with `panther prototypes`, or leave `tail` out of `blocks=`."
        )
    if settings.variance not in STARTING_VARIANCES:
        known = ", ".join(map(str, STARTING_VARIANCES))
        raise InputError(
            f"The block `tail` knows what is surprising for the starting variances {known}, not for {settings.variance}; choose one of them, "
            "or leave `tail` out of `blocks=`."
        )
    usual, rare = prototypes.surprise[STARTING_VARIANCES.index(settings.variance)].tolist()
    return usual, rare
