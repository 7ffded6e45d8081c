"""The block `space`: which prototypes touch, and how each lies in regions. A mixture forgets where its patches lie."""

import torch
from torch import Tensor

from panther.aggregators.blocks._base import Columns, EmbeddingBlock
from panther.errors import InputError
from panther.mixture import MixtureFit
from panther.statistics.neighbours import neighbourhood
from panther.types import Places, Rows

OF_PROTOTYPES = ("regions", "size", "border")


class SpaceBlock(EmbeddingBlock):
    """C (C + 1) / 2 enrichments of touching prototypes; then regions, their size and the border of each prototype."""

    needs_places = True

    @staticmethod
    def width(count: int, dim: int) -> int:
        """C (C + 1) / 2 + 3 C."""
        return count * (count + 1) // 2 + len(OF_PROTOTYPES) * count

    @staticmethod
    def layout(count: int, dim: int) -> list[Columns]:
        """`touch` of prototype c and, as its dimension, prototype e; then `regions`, `size` and `border` of each.

        Touches by themselves: beside regions, whose number hangs on how crisp posteriors are, they would count a quarter.
        """
        touch = [(c, "touch", e) for c in range(count) for e in range(c, count)]
        return [touch, [(c, statistic, -1) for statistic in OF_PROTOTYPES for c in range(count)]]

    def forward(self, fit: MixtureFit, x: Rows, places: Places | None) -> Tensor:
        """Read (C (C + 1) / 2 + 3 C,) of the posteriors."""
        if places is None:
            raise InputError(NO_PLACES)
        assert fit.assignment is not None
        # corners too: of real tissue the sides alone are too few pairs to be sure of
        found = neighbourhood(fit.assignment, places, corners=True)
        above = torch.triu_indices(self.count, self.count, device=found.touches.device)
        touch = found.enrichment()[above[0], above[1]]
        own = (found.region_number(), found.region_size(), found.border())
        return torch.cat([touch, *own]).to(fit.mixture.means.dtype)


NO_PLACES = "the block `space` reads where patches lie, but there are no coordinates; extract the features with theirs, or leave it out of `blocks=`."
