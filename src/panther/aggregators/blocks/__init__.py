"""Optional blocks of PANTHER's embedding: what a mixture cannot see, read from the same fit and put beside it."""

from collections.abc import Callable, Sequence
from typing import Any

from panther.aggregators.blocks._base import EmbeddingBlock
from panther.aggregators.blocks.space import SpaceBlock
from panther.errors import InputError, suggestion
from panther.mixture import EMSettings
from panther.types import Prototypes

__all__ = ["BLOCKS", "EmbeddingBlock", "build_blocks"]

# in the order in which they follow the mixture's numbers
BLOCKS: dict[str, Callable[[Prototypes, EMSettings], EmbeddingBlock]] = {"space": SpaceBlock}


def build_blocks(asked: Any, prototypes: Prototypes, settings: EMSettings) -> list[EmbeddingBlock]:
    """Blocks of these names (`["space"]`, or `"space"`), each once and in their fixed order."""
    names: Sequence[Any] = [name.strip() for name in asked.split(",")] if isinstance(asked, str) else asked
    if not isinstance(names, (list, tuple)):
        raise InputError(f"blocks is {asked!r}; expected is a list of names, e.g. [{', '.join(BLOCKS)}].")
    for name in names:
        if name not in BLOCKS:
            raise InputError(f"There is no block {name!r}; {suggestion(str(name), BLOCKS)}.")
    return [make(prototypes, settings) for name, make in BLOCKS.items() if name in names]
