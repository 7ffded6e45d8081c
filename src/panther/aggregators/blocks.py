"""Optional blocks of PANTHER's embedding: what a mixture cannot see, computed from the same fit and appended to it.

`space`: which prototypes touch, and how each lies in regions; a mixture forgets where its patches lie. `tail`: the patches that no prototype
explains; a lesion of 1 % of the tissue drowns in a mixture.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from panther.errors import InputError, suggestion
from panther.mixture import STARTING_VARIANCES, EMSettings, MixtureFit
from panther.statistics.neighbours import neighbourhood
from panther.statistics.tail import tail_of
from panther.types import Places, Prototypes, Rows

Columns = list[tuple[int, str, int]]  # prototype, statistic and dimension of each number, -1 where it does not apply
OF_PROTOTYPES = ("regions", "size", "border")
SHARE_PRIOR = 1e-3  # added to the share before its logarithm: shares far below 0.1 % are equal
NO_PLACES = "the block `space` reads where patches lie, but there are no coordinates; extract the features with theirs, or leave it out of `blocks=`."


class EmbeddingBlock(nn.Module):
    """Numbers appended to those of the mixture, computed from the fit of one bag."""

    needs_places: bool = False  # whether it reads coordinates
    needs_scores: bool = False  # whether it reads the patches' scores, log p under the mixture that EM starts from

    def __init__(self, prototypes: Prototypes, settings: EMSettings) -> None:
        super().__init__()
        self.count, self.dim = prototypes.centroids.shape

    @staticmethod
    def width(count: int, dim: int) -> int:
        """Number of its columns with C prototypes of d features."""
        raise NotImplementedError

    @staticmethod
    def layout(count: int, dim: int) -> list[Columns]:
        """Columns of what is scaled together, from left to right."""
        raise NotImplementedError

    def columns(self) -> Columns:
        """Prototype, statistic and dimension of each number, -1 where it does not apply."""
        return [column for part in self.layout(self.count, self.dim) for column in part]

    def parts(self) -> list[int]:
        """Sizes of the parts that are scaled separately, from left to right."""
        return [len(part) for part in self.layout(self.count, self.dim)]

    def forward(self, fit: MixtureFit, x: Rows, places: Places | None) -> Tensor:
        """Read numbers (D,) of a bag (N, d), whose fit has kept its assignment, and its scores where they are needed."""
        raise NotImplementedError


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
        # with corners: on real tissue the sides alone give too few pairs
        neighbours = neighbourhood(fit.assignment, places, corners=True)
        above = torch.triu_indices(self.count, self.count, device=neighbours.touches.device)
        touch = neighbours.enrichment()[above[0], above[1]]
        per_prototype = (neighbours.region_number(), neighbours.region_size(), neighbours.border())
        return torch.cat([touch, *per_prototype]).to(fit.mixture.means.dtype)


class TailBlock(EmbeddingBlock):
    """Log share of the tail, its excess, its nearest prototypes, its mean and its variance."""

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
        # NaN and infinity propagate into the sums, for which the bag is refused later
        if not bool(fit.scores.sum(dtype=torch.float64).isfinite()):
            return fit.mixture.means.new_full((self.width(self.count, self.dim),), torch.nan)
        tail = tail_of(x, -fit.scores, fit.assignment, self.edges)
        share = (tail.share + SHARE_PRIOR).log()
        numbers = torch.cat([share[None], tail.excess[None], tail.nearest, tail.mean, tail.variance])
        return numbers.to(fit.mixture.means.dtype)


def _edges(prototypes: Prototypes, settings: EMSettings) -> tuple[float, float]:
    """Usual and rare surprise at the starting variance of EM."""
    if prototypes.surprise is None:
        raise InputError(
            "blocks: `tail` requires prototypes with quantiles of surprise, as `panther prototypes` writes them"
        )
    if settings.variance not in STARTING_VARIANCES:
        known = ", ".join(map(str, STARTING_VARIANCES))
        raise InputError(f"variance: found {settings.variance}, expected {known} with the block `tail`")
    usual, rare = prototypes.surprise[STARTING_VARIANCES.index(settings.variance)].tolist()
    return usual, rare


# in the order of their numbers
BLOCKS: dict[str, type[EmbeddingBlock]] = {"space": SpaceBlock, "tail": TailBlock}


def block_names(blocks: Any) -> list[str]:
    """Names of blocks (`["space"]`, or `"space"`), each once and in their fixed order; unknown ones are refused."""
    names: Sequence[Any] = [name.strip() for name in blocks.split(",")] if isinstance(blocks, str) else blocks
    if not isinstance(names, (list, tuple)):
        raise InputError(f"blocks: found {blocks!r}, expected a list of names, e.g. [{', '.join(BLOCKS)}]")
    for name in names:
        if name not in BLOCKS:
            raise InputError(f"There is no block {name!r}; {suggestion(str(name), BLOCKS)}.")
    return [name for name in BLOCKS if name in names]


def read_places(options: Mapping[str, Any]) -> bool:
    """Whether a block of these settings reads coordinates."""
    return any(BLOCKS[name].needs_places for name in block_names(options.get("blocks") or ()))


def build_blocks(blocks: Any, prototypes: Prototypes, settings: EMSettings) -> list[EmbeddingBlock]:
    """Blocks of these names."""
    return [BLOCKS[name](prototypes, settings) for name in block_names(blocks)]
