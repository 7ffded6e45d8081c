"""Writing feature files: contiguous, uncompressed rows, written block by block, which are memory-mapped when read."""

import filecmp
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from os.path import realpath  # Path.resolve() raises for a link onto itself
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.lib import format as npy_format
from torch import Tensor

from panther.errors import InputError, check_choice, not_finite
from panther.rows import LoadedCoords
from panther.storage.bags import BagLike, as_bag
from panther.storage.trident import FeatureRows, write_bag
from panther.store import atomic_write
from panther.types import Bag, Openable

BLOCK = 4096  # rows
DTYPES = {"float16": torch.float16, "float32": torch.float32, "float64": torch.float64}


def _write_h5(
    bag: Bag, path: Path, dtype: torch.dtype, blocks: Iterable[Tensor], *, with_attributes: bool = True
) -> None:
    """`features` and `coords` as TRIDENT writes them; without attributes, as CLAM does."""
    if bag.places is not None and bag.spec.coords_unit != "px":
        remedy = "slide_mpp converts them, safetensors keeps them"
        raise InputError(f"{bag.source}: found coordinates in micrometres, expected pixels of level 0: {remedy}")
    attributes: dict[str, Any] = {}
    if with_attributes:
        encoder = {"encoder": bag.encoder} if bag.encoder else {}
        encoder |= {"checkpoint": bag.checkpoint} if bag.checkpoint else {}
        attributes = {"name": bag.slide_id, **encoder, "written_by": "panther-wsi"}
    coords = None if bag.places is None else (bag.places().numpy(), _geometry(bag) if with_attributes else {})
    rows = FeatureRows((len(bag), bag.dim), _numpy_type(bag, dtype), (block.numpy() for block in blocks), attributes)
    population = bag.population.places().numpy() if bag.population is not None and with_attributes else None
    write_bag(path, rows, coords, population=population)


def _write_npy(bag: Bag, path: Path, dtype: torch.dtype, blocks: Iterable[Tensor]) -> None:
    """Array (N, d) without coordinates."""
    descr = npy_format.dtype_to_descr(_numpy_type(bag, dtype))
    with path.open("wb") as handle:
        shape = (len(bag), bag.dim)
        npy_format.write_array_header_1_0(handle, {"descr": descr, "fortran_order": False, "shape": shape})
        for block in blocks:
            handle.write(block.numpy().tobytes())


def _write_safetensors(bag: Bag, path: Path, dtype: torch.dtype, blocks: Iterable[Tensor]) -> None:
    """`features` and `coords`, with encoder and patch geometry as metadata."""
    from safetensors.torch import save_file

    tensors = {"features": torch.cat([torch.empty(0, bag.dim, dtype=dtype), *blocks])}
    if bag.places is not None:
        tensors["coords"] = bag.places().contiguous()
    # one metadata key: safetensors writes several in no particular order
    save_file(tensors, path, {"bag": json.dumps({"encoder": bag.encoder, "patch_spec": asdict(bag.spec)})})


class Layout(NamedTuple):
    """Ending and writer of a layout."""

    suffix: str
    write: Callable[[Bag, Path, torch.dtype, Iterable[Tensor]], None]


LAYOUTS = {
    "trident": Layout(".h5", _write_h5),
    "clam": Layout(".h5", partial(_write_h5, with_attributes=False)),
    "npy": Layout(".npy", _write_npy),
    "safetensors": Layout(".safetensors", _write_safetensors),
}


def save_bag(bag: BagLike, path: Path | str, dtype: str | None = None) -> None:
    """Write features as a file that `open_bag` and every command read, e.g. those of `extract`.

    Parameters
    ----------
    bag : Bag, array, tensor, DataFrame or path
        Features (N, d), with the coordinates, resolution and encoder of a `Bag`.
    path : path
        `*.h5` (TRIDENT's layout), `*.safetensors` or, for features without coordinates, `*.npy`, named like the slide. It appears whole or
        not at all.
    dtype : {"float16", "float32", "float64"}, optional
        Type of the numbers; by default that of the bag.

    Examples
    --------
    >>> import numpy as np, panther
    >>> features, corners = np.zeros((5, 8), np.float32), np.arange(10).reshape(5, 2)
    >>> panther.save_bag(panther.Bag("slide", features, corners), "slide.h5")
    >>> panther.open_bag("slide.h5").coords.shape
    (5, 2)
    """
    path, bag = Path(path), as_bag(bag)
    layout = next((layout for layout in LAYOUTS.values() if layout.suffix == path.suffix.lower()), None)
    if layout is None:
        raise InputError(f"{path}: found the ending {path.suffix!r}, expected .h5, .npy or .safetensors")
    if bag.places is not None and layout.suffix == ".npy":
        raise InputError(f"{path}: .npy cannot hold coordinates, expected .h5 or .safetensors")
    if dtype is not None:
        check_choice("dtype", dtype, DTYPES)
    numbers = bag.features.dtype if dtype is None else DTYPES[dtype]
    with atomic_write(path) as temporary:
        layout.write(bag, temporary, numbers, finite_blocks(bag, numbers))


def store_bag(bag: Bag, folder: Path) -> Path:
    """Write a bag in memory unchanged, also with NaN, which its readers report."""
    layout = LAYOUTS["safetensors" if bag.features.dtype == torch.bfloat16 else "trident"]  # HDF5 has no bfloat16
    path = folder / f"{bag.slide_id}{layout.suffix}"
    with atomic_write(path) as temporary:
        layout.write(bag, temporary, bag.features.dtype, (block.contiguous() for block in bag.blocks(BLOCK)))
    return path


class _SameContentError(Exception):
    """The file exists already."""


def convert_bag(ref: Openable, *, folder: Path, to: str, dtype: str = "keep", slide_mpp: float | None = None) -> str:
    """Write a bag in another layout; returns "kept" if the same file exists already, else "written"."""
    bag, layout = ref.open(), LAYOUTS[to]
    target = folder / f"{bag.slide_id}{layout.suffix}"
    for file in ref.files:
        if realpath(target) == realpath(file):
            raise InputError(f"{file}: would be overwritten by its own conversion; expected another output folder")
    numbers = bag.features.dtype if dtype == "keep" else DTYPES[dtype]
    if slide_mpp is not None and bag.places is not None and bag.spec.coords_unit != "px":
        spec, places = bag.spec, (bag.places().double() / slide_mpp).round().long()
        size = round(spec.size * spec.mpp / slide_mpp) if spec.mpp and spec.size else None
        spec = replace(spec, coords_unit="px", size_level0=size, mpp_level0=slide_mpp)
        bag = replace(bag, places=LoadedCoords(places), spec=spec)
    with suppress(_SameContentError), atomic_write(target) as temporary:
        layout.write(bag, temporary, numbers, finite_blocks(bag, numbers))
        if not target.exists() or not filecmp.cmp(temporary, target, shallow=False):
            return "written"
        raise _SameContentError
    return "kept"


def finite_blocks(bag: Bag, dtype: torch.dtype) -> Iterator[Tensor]:
    """Blocks in the type to be written; NaN and infinite numbers, which all readers refuse, are refused."""
    start = 0
    for block in bag.blocks(BLOCK):
        bad = ~torch.isfinite(block).all(-1)
        if bool(bad.any()):
            raise not_finite(bag.source, start + int(bad.nonzero()[0]))
        start += len(block)
        out = block.to(dtype).contiguous()
        if not bool(torch.isfinite(out).all()):
            raise InputError(f"{bag.source}: features up to {float(block.abs().max()):.3g} do not fit float16")
        yield out


def _numpy_type(bag: Bag, dtype: torch.dtype) -> np.dtype:
    if dtype == torch.bfloat16:
        raise InputError(f"{bag.source}: found bfloat16, expected dtype=float32, or safetensors")
    return torch.empty(0, dtype=dtype).numpy().dtype


def _geometry(bag: Bag) -> dict[str, object]:
    spec = bag.spec
    known: dict[str, object] = {"name": bag.slide_id, "overlap": spec.overlap}
    known |= {"patch_size": spec.size, "patch_size_level0": spec.size_level0}
    if spec.mpp is not None:
        known["target_magnification"] = round(10.0 / spec.mpp, 3)
        if spec.size and spec.size_level0:
            known["level0_magnification"] = round(10.0 / spec.mpp * spec.size_level0 / spec.size, 3)
        if spec.mpp_level0 is not None:  # as `panther slides` does: unrounded, unlike the magnifications
            known["panther"] = json.dumps({"level0_mpp": spec.mpp_level0, "mpp": spec.mpp}, sort_keys=True)
    return {name: value for name, value in known.items() if value is not None}
