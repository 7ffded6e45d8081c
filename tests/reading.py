"""Bags that count how often they are opened and how many bytes of them are read."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from panther.storage.readers import open_bag
from panther.types import Bag, Rows


@dataclass
class Counts:
    """What was asked of the files."""

    opened: list[str] = field(default_factory=list)
    bytes: int = 0


@dataclass(frozen=True)
class CountedRows:
    """Rows that count what is read of them."""

    rows: Rows
    counts: Counts

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.rows.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.rows.dtype

    def __getitem__(self, rows: slice) -> torch.Tensor:
        block = self.rows[rows]
        self.counts.bytes += block.numel() * block.element_size()
        return block


def counted(bag: Bag, counts: Counts) -> Bag:
    """The same bag, counting."""
    counts.opened.append(bag.slide_id)
    return replace(bag, features=CountedRows(bag.features, counts))


@dataclass(frozen=True)
class CountedRef:
    """A file of features that counts."""

    path: Path
    counts: Counts

    @property
    def sample(self) -> str:
        return self.path.stem

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    def open(self) -> Bag:
        return counted(open_bag(self.path), self.counts)
