"""What the numbers of a row are: one representation of a slide, or several side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

from panther.aggregators import aggregators, build
from panther.cohort.covariates import COVARIATES
from panther.feature_space import Basis
from panther.mil import networks
from panther.models.blocks.reduction import GIVEN, made_by
from panther.models.named import Named
from panther.models.share_weighted import Columns

CONCAT = "concat"  # several representations side by side
UNMADE = {
    GIVEN: "value",
    COVARIATES: COVARIATES,
}  # what no method of ours makes of patches -> what its numbers are called


@dataclass(frozen=True, eq=False)
class Block:
    """One representation: how it is made, and what it stands on."""

    method: Named
    basis: Basis  # prototypes; else the width of features, or of given vectors

    def columns(self) -> Columns:
        """Prototype, statistic and dimension of each number."""
        return list(chain.from_iterable(self.parts()))

    def parts(self) -> list[Columns]:
        """Columns of what is scaled by itself, from left to right: all of them, or the method's own and those of each of its optional blocks."""
        if self.method.name in UNMADE:
            return [[(-1, UNMADE[self.method.name], j) for j in range(self.basis.dim)]]
        made = made_by(self.method)
        module = build(made.name, self.basis, made.options)
        columns, ends = module.columns(), list(accumulate(module.parts()))
        return [columns[end - width : end] for width, end in zip(module.parts(), ends, strict=True)]


def columns_of(blocks: Sequence[Block]) -> list[tuple[int, str, int]]:
    """Columns of blocks side by side."""
    return list(chain.from_iterable(block.columns() for block in blocks))


def reads_coordinates(method: Named) -> bool:
    """Whether a method reads the coordinates of patches."""
    made = made_by(method)
    return made.name in aggregators and aggregators.entry(made.name).metadata.reads_places(made.options)


def needs_prototypes(method: Named) -> bool:
    """Whether a method stands on prototypes."""
    registry = networks if method.name in networks else aggregators
    return method.name in registry and registry.entry(method.name).metadata.needs_prototypes
