"""Convert bags from any readable layout to any written one: whole files, resumable."""

from dataclasses import dataclass, replace
from os.path import realpath  # Path.resolve() raises for a link onto itself
from pathlib import Path

import torch

from panther.errors import InputError
from panther.limits import check_choice
from panther.storage.readers import open_bag
from panther.storage.writers import BLOCK, DTYPES, sound_blocks, writers
from panther.store import atomic_write
from panther.types import Bag, Openable, PatchSpec


@dataclass(frozen=True)
class Conversion:
    """What to write, and where; called on a bag's reference it says what it did."""

    folder: Path
    to: str
    dtype: str = "keep"
    slide_mpp: float | None = None  # level-0 resolution, for coordinates in micrometres

    def __post_init__(self) -> None:
        writers.entry(self.to)
        check_choice("dtype", self.dtype, ("keep", *DTYPES))
        if self.slide_mpp is not None and not 0.05 <= self.slide_mpp <= 5:
            raise InputError(f"slide_mpp: found {self.slide_mpp}, expected 0.05 to 5 micrometres per pixel")

    def __call__(self, ref: Openable) -> str:
        """Convert one file; 'written', or 'kept' where an earlier run has written these very features."""
        bag = ref.open()
        target = self.folder / f"{bag.slide_id}{writers.entry(self.to).metadata.suffix}"
        for file in ref.files:
            if realpath(target) == realpath(file):
                raise InputError(f"{file}: would be overwritten by its own conversion; choose another output folder.")
        dtype = bag.features.dtype if self.dtype == "keep" else DTYPES[self.dtype]
        bag = self._in_pixels(bag)
        if _finished(target, bag, dtype, keeps_coords=writers.entry(self.to).metadata.coords):
            return "kept"
        with atomic_write(target) as temporary:
            writers[self.to](bag, temporary, dtype)
        return "written"

    def _in_pixels(self, bag: Bag) -> Bag:
        if bag.places is None or bag.spec.coords_unit == "px" or self.slide_mpp is None:
            return bag
        micrometres, mpp = bag.places, self.slide_mpp
        size = None
        if bag.spec.mpp and bag.spec.size:
            size = round(bag.spec.size * bag.spec.mpp / mpp)
        spec: PatchSpec = replace(bag.spec, coords_unit="px", size_level0=size, mpp_level0=mpp)
        return replace(bag, places=lambda: (micrometres().double() / mpp).round().long(), spec=spec)


def _finished(target: Path, bag: Bag, dtype: torch.dtype, *, keeps_coords: bool) -> bool:
    """Whether ``target`` holds the same: every number and all coordinates are compared, since dates say little about copies."""
    if not target.exists():
        return False
    try:
        there = open_bag(target)
    except InputError:
        return False
    if tuple(there.features.shape) != tuple(bag.features.shape) or there.features.dtype != dtype:
        return False
    if keeps_coords and (
        (there.encoder, there.spec.size_level0) != (bag.encoder, bag.spec.size_level0)
        or not there.spec.agrees(bag.spec)
        or not _same_places(there, bag)
    ):
        return False
    return _same_numbers(there, bag, dtype)


def _same_places(there: Bag, bag: Bag) -> bool:
    if there.places is None or bag.places is None:
        return there.places is None and bag.places is None
    return torch.equal(there.places().double(), bag.places().double())


def _same_numbers(there: Bag, bag: Bag, dtype: torch.dtype) -> bool:
    """Compare as bytes."""
    pairs = zip(there.blocks(BLOCK), sound_blocks(bag, dtype), strict=True)
    return all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in pairs)
