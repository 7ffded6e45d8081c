"""Features of several encoders (or magnifications) of the same patches as one bag: rows are matched by the patches' coordinates."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError
from panther.storage.bags import Listing
from panther.types import Bag, Openable, Rows


@dataclass(frozen=True)
class SideBySide:
    """Rows (N, d1 + d2 + ...) of several sources with the same patches."""

    parts: tuple[Rows, ...]
    orders: tuple[Tensor | None, ...]  # which row of a part belongs to each patch; None: they are in the same order

    @property
    def shape(self) -> tuple[int, int]:
        """(N, sum of d)."""
        return int(self.parts[0].shape[0]), sum(int(part.shape[1]) for part in self.parts)

    @property
    def dtype(self) -> torch.dtype:
        """Common type of the parts."""
        dtype = self.parts[0].dtype
        for part in self.parts[1:]:
            dtype = torch.promote_types(dtype, part.dtype)
        return dtype

    @cached_property
    def _ordered(self) -> list[Rows]:
        """Parts in the order of the first; one in another order is held in memory."""
        there = slice(0, self.shape[0])
        return [
            part if order is None else part[there][order] for part, order in zip(self.parts, self.orders, strict=True)
        ]

    def __getitem__(self, rows: slice) -> Tensor:
        return torch.cat([part[rows].to(self.dtype) for part in self._ordered], -1)


@dataclass(frozen=True)
class JoinedRef:
    """Features of one slide from several encoders."""

    sample: str
    refs: tuple[Openable, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """Files of all."""
        return tuple(file for ref in self.refs for file in ref.files)

    def open(self) -> Bag:
        """The bag, lazily read; patches that are not the same are refused."""
        bags = [ref.open() for ref in self.refs]
        first = bags[0]
        orders = tuple(_order(first, bag) for bag in bags)
        rows = SideBySide(tuple(bag.features for bag in bags), orders)
        names = [bag.encoder for bag in bags if bag.encoder]
        encoder = " + ".join(names) if len(names) == len(bags) else None
        any_resolution = all(bag.any_resolution for bag in bags)
        return Bag(first.slide_id, rows, first.places, first.spec, encoder, "joined", first.path, any_resolution)


def join_listings(listings: Sequence[Listing]) -> Listing:
    """Slides that all have."""
    found = [{ref.sample: ref for ref in listing.refs} for listing in listings]
    common = [name for name in found[0] if all(name in refs for refs in found)]
    problems = {name: why for listing in listings for name, why in listing.problems.items()}
    return Listing(tuple(JoinedRef(name, tuple(refs[name] for refs in found)) for name in common), problems)


def _order(first: Bag, other: Bag) -> Tensor | None:
    """Rows of ``other`` in the order of the first bag's patches; None where they are in it already."""
    if other is first:
        return None
    if first.coords is None or other.coords is None:
        lacking = first if first.coords is None else other
        raise InputError(
            f"{lacking.source}: has no coordinates, so its patches cannot be matched with another encoder's."
        )
    where, there = np.asarray(first.coords), np.asarray(other.coords)
    if where.shape == there.shape and bool((where == there).all()):
        return None
    own, theirs = np.lexsort(where.T), np.lexsort(there.T)
    if where.shape != there.shape or not bool((where[own] == there[theirs]).all()):
        raise InputError(
            f"{other.path or other.source}: its {len(there)} patches are not the {len(where)} of {first.path or first.source} "
            "(their coordinates differ); extract both encoders' features at the same patches."
        )
    order = np.empty(len(own), np.int64)
    order[own] = theirs
    return torch.from_numpy(order)
