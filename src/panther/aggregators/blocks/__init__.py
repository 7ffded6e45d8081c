"""Optional blocks of PANTHER's embedding: what a mixture cannot see, read from the same fit and put beside it."""

from collections.abc import Mapping, Sequence
from typing import Any

from panther.aggregators.blocks._base import EmbeddingBlock
from panther.aggregators.blocks.space import SpaceBlock
from panther.aggregators.blocks.tail import TailBlock
from panther.errors import InputError, suggestion
from panther.mixture import EMSettings
from panther.types import Prototypes

__all__ = ["BLOCKS", "EmbeddingBlock", "build_blocks", "read_places"]

# in the order in which they follow the mixture's numbers
BLOCKS: dict[str, type[EmbeddingBlock]] = {"space": SpaceBlock, "tail": TailBlock}


def block_names(asked: Any) -> list[str]:
    """Names of blocks (`["space"]`, or `"space"`), each once and in their fixed order; unknown ones are refused."""
    names: Sequence[Any] = [name.strip() for name in asked.split(",")] if isinstance(asked, str) else asked
    if not isinstance(names, (list, tuple)):
        raise InputError(f"blocks is {asked!r}; expected is a list of names, e.g. [{', '.join(BLOCKS)}].")
    for name in names:
        if name not in BLOCKS:
            raise InputError(f"There is no block {name!r}; {suggestion(str(name), BLOCKS)}.")
    return [name for name in BLOCKS if name in names]


def read_places(options: Mapping[str, Any]) -> bool:
    """Whether a block among these settings reads where patches lie."""
    return any(BLOCKS[name].needs_places for name in block_names(options.get("blocks") or ()))


def build_blocks(asked: Any, prototypes: Prototypes, settings: EMSettings) -> list[EmbeddingBlock]:
    """Blocks of these names."""
    return [BLOCKS[name](prototypes, settings) for name in block_names(asked)]
