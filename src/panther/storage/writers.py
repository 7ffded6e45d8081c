"""Writers of feature files. All write contiguous, uncompressed rows, block by block: read back they are memory-mapped."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.lib import format as npy_format
from torch import Tensor

from panther.errors import InputError, not_finite
from panther.limits import check_choice
from panther.registry import Registry
from panther.storage.bags import BagLike, as_bag
from panther.storage.trident import FeatureRows, write_bag
from panther.store import atomic_write
from panther.types import Bag

BLOCK = 4096  # rows
DTYPES = {"float16": torch.float16, "float32": torch.float32, "float64": torch.float64}

Writer = Callable[[Bag, Path, torch.dtype], None]


@dataclass(frozen=True)
class WriterInfo:
    """What a layout is like."""

    suffix: str
    coords: bool  # whether it has a place for coordinates


writers: Registry[Writer, WriterInfo] = Registry("output format", WriterInfo)


@writers.register("trident", suffix=".h5", coords=True)
def write_trident(bag: Bag, path: Path, dtype: torch.dtype) -> None:
    """TRIDENT's layout: `features` and `coords` with attributes."""
    _trident(bag, path, dtype, sound_blocks(bag, dtype))


def _trident(bag: Bag, path: Path, dtype: torch.dtype, blocks: Iterator[Tensor]) -> None:
    if bag.places is not None and bag.spec.coords_unit != "px":
        raise InputError(
            f"{bag.source}: coordinates are in micrometres but TRIDENT's are level-0 pixels; "
            "give the slides' level-0 resolution with `slide_mpp=0.25`, or write another layout."
        )
    about = {"name": bag.slide_id, **({"encoder": bag.encoder} if bag.encoder else {}), "written_by": "panther-wsi"}
    rows = (block.numpy() for block in blocks)
    coords = None if bag.places is None else (bag.places().numpy(), _geometry(bag))
    write_bag(path, FeatureRows((len(bag), bag.dim), _numpy(bag, dtype), rows, about), coords)


@writers.register("npy", suffix=".npy", coords=False)
def write_npy(bag: Bag, path: Path, dtype: torch.dtype) -> None:
    """Plain NumPy array (N, d); coordinates have no place in it."""
    header = {
        "descr": npy_format.dtype_to_descr(_numpy(bag, dtype)),
        "fortran_order": False,
        "shape": (len(bag), bag.dim),
    }
    with path.open("wb") as handle:
        npy_format.write_array_header_1_0(handle, header)
        for block in sound_blocks(bag, dtype):
            handle.write(block.numpy().tobytes())


@writers.register("safetensors", suffix=".safetensors", coords=True)
def write_safetensors(bag: Bag, path: Path, dtype: torch.dtype) -> None:
    """`features` and `coords`, with encoder and patch geometry as metadata."""
    _safetensors(bag, path, dtype, sound_blocks(bag, dtype))


def _safetensors(bag: Bag, path: Path, dtype: torch.dtype, blocks: Iterator[Tensor]) -> None:
    from safetensors.torch import save_file

    rows = [*blocks]
    tensors = {"features": torch.cat(rows) if rows else torch.empty(0, bag.dim, dtype=dtype)}
    if bag.places is not None:
        tensors["coords"] = bag.places().contiguous()
    metadata = {"patch_spec": json.dumps(asdict(bag.spec), sort_keys=True)}
    save_file(tensors, path, metadata | ({"encoder": bag.encoder} if bag.encoder else {}))


def save_bag(bag: BagLike, path: Path | str, dtype: str | None = None) -> None:
    """Write features as a file that `open_bag` and every command read, e.g. those of `extract`.

    Parameters
    ----------
    bag : Bag, array, tensor, DataFrame or path
        Features (N, d), with coordinates, resolution and encoder where it is a `Bag` that has them.
    path : path
        `*.h5` (TRIDENT's layout), `*.safetensors` or, for features without coordinates, `*.npy`; the slide is called as the file is. It
        appears whole or not at all.
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
    path, one = Path(path), as_bag(bag)
    entry = next((entry for entry in writers if entry.metadata.suffix == path.suffix.lower()), None)
    if entry is None:
        known = ", ".join(entry.metadata.suffix for entry in writers)
        raise InputError(f"{path}: features are written as {known}; give the file one of these endings.")
    if one.places is not None and not entry.metadata.coords:
        raise InputError(f"{path}: coordinates have no place in {path.suffix}; give the file the ending .h5.")
    if one.places is not None and entry.name == "trident" and one.spec.coords_unit != "px":
        raise InputError(
            f"{path}: coordinates in micrometres have no place in .h5; give the file the ending .safetensors."
        )
    if dtype is not None:
        check_choice("dtype", dtype, DTYPES)
    with atomic_write(path) as temporary:
        entry.value(one, temporary, one.features.dtype if dtype is None else DTYPES[dtype])


def store_bag(bag: Bag, folder: Path) -> Path:
    """Write a bag in memory as it is, in its own type, NaN and all: whoever reads the file tells what is wrong with it."""
    narrow = bag.features.dtype == torch.bfloat16  # which HDF5 does not have
    path = folder / f"{bag.slide_id}{'.safetensors' if narrow else '.h5'}"
    blocks = (block.contiguous() for block in bag.blocks(BLOCK))
    with atomic_write(path) as temporary:
        (_safetensors if narrow else _trident)(bag, temporary, bag.features.dtype, blocks)
    return path


def cast(bag: Bag, block: Tensor, dtype: torch.dtype) -> Tensor:
    """Block in the type to be written; numbers that do not fit are refused."""
    out = block.to(dtype).contiguous()
    if dtype == torch.float16 and bool((torch.isinf(out) & torch.isfinite(block)).any()):
        raise InputError(
            f"{bag.source}: features up to {float(block.abs().max()):.3g} do not fit float16; use `dtype=float32`."
        )
    return out


def sound_blocks(bag: Bag, dtype: torch.dtype) -> Iterator[Tensor]:
    """Blocks in the type to be written; NaN and infinite numbers are refused, because nothing that reads features takes them."""
    start = 0
    for block in bag.blocks(BLOCK):
        bad = ~torch.isfinite(block).all(-1)
        if bool(bad.any()):
            raise not_finite(bag.source, start + int(bad.nonzero()[0]))
        start += len(block)
        yield cast(bag, block, dtype)


def _numpy(bag: Bag, dtype: torch.dtype) -> np.dtype:
    if dtype == torch.bfloat16:
        raise InputError(
            f"{bag.source}: NumPy and HDF5 have no bfloat16; give `dtype=float32`, or write safetensors, which has."
        )
    return torch.empty(0, dtype=dtype).numpy().dtype


def _geometry(bag: Bag) -> dict[str, object]:
    spec = bag.spec
    known: dict[str, object] = {"name": bag.slide_id, "overlap": spec.overlap}
    if spec.size is not None:
        known["patch_size"] = spec.size
    if spec.size_level0 is not None:
        known["patch_size_level0"] = spec.size_level0
    if spec.mpp is not None:
        known["target_magnification"] = round(10.0 / spec.mpp, 3)
        if spec.size and spec.size_level0:
            known["level0_magnification"] = round(10.0 / spec.mpp * spec.size_level0 / spec.size, 3)
        if (
            spec.mpp_level0 is not None
        ):  # as `panther slides` writes them: the magnifications are rounded, these are not
            known["panther"] = json.dumps({"level0_mpp": spec.mpp_level0, "mpp": spec.mpp}, sort_keys=True)
    return known
