"""What embeddings are, found from their numbers: a pipeline hands rows on without a word about how they were made."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from panther.aggregators.blocks import BLOCKS
from panther.errors import InputError
from panther.models.blocks.joint_scaling import Part
from panther.models.named import Named

SUM_TOLERANCE = 1e-3  # shares of a slide add up to 1, in float16 as well
PANTHER = Named(name="panther")


@dataclass(frozen=True)
class _Layout:
    """A mixture of C components in d dimensions, and the optional blocks that follow it."""

    count: int
    dim: int
    blocks: tuple[str, ...]

    def parts(self) -> list[Part]:
        token = [("weight", -1), *((s, j) for s in ("mean", "variance") for j in range(self.dim))]
        own = Part([(c, statistic, j) for c in range(self.count) for statistic, j in token], PANTHER)
        beside = [part for name in self.blocks for part in BLOCKS[name].layout(self.count, self.dim)]
        return [own, *(Part(columns, PANTHER, optional=True) for columns in beside)]

    def fits(self, x: np.ndarray) -> bool:
        """Whether the shares, which stand at equal distances, add up to 1 in every row."""
        token = 1 + 2 * self.dim
        shares = x[:, : self.count * token : token]
        return bool((shares >= 0).all() and np.abs(shares.sum(1) - 1).max() < SUM_TOLERANCE)


def panther_parts(x: np.ndarray, n_prototypes: int | None = None) -> list[Part] | None:
    """Mixture and blocks that embeddings (n, D) consist of, as `Panther` makes them with the readout `all`.

    Without ``n_prototypes``, C is found from the numbers. None where no C fits, i.e. the rows are something else.
    """
    for layout in _layouts(x.shape[1], n_prototypes):
        if layout.fits(x):
            return layout.parts()
    if n_prototypes is not None:
        raise InputError(
            f"The rows have {x.shape[1]} numbers, which are no mixtures of n_prototypes={n_prototypes}: expected C (1 + 2 d) numbers, of each "
            "prototype its share, mean and variance, the shares adding up to 1, and after them those of the blocks "
            f"{' and '.join(BLOCKS)} where they were asked for. Give the embeddings of Panther with readout='all', or leave n_prototypes out."
        )
    return None


def _layouts(width: int, n_prototypes: int | None) -> Iterator[_Layout]:
    """All that have this width; those without blocks first, then many prototypes before few."""
    for number in range(len(BLOCKS) + 1):
        for blocks in combinations(BLOCKS, number):
            for count in [n_prototypes] if n_prototypes is not None else range(width // 3, 0, -1):
                dim = _dimensions(width, count, blocks)
                if dim:
                    yield _Layout(count, dim, blocks)


def _dimensions(width: int, count: int, blocks: Sequence[str]) -> int:
    """Features d with which an embedding has this width, which grows with d by the same number each; 0 where there is none."""
    none, one = (count * (1 + 2 * d) + sum(BLOCKS[name].width(count, d) for name in blocks) for d in (0, 1))
    return 0 if (width - none) % (one - none) else max((width - none) // (one - none), 0)
