"""Writers of feature files. All write contiguous, uncompressed rows, block by block: read back they are memory-mapped."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.lib import format as npy_format
from torch import Tensor

from panther.errors import InputError
from panther.registry import Registry
from panther.types import Bag

BLOCK = 4096  # rows

Writer = Callable[[Bag, Path, torch.dtype], None]
writers: Registry[Writer] = Registry("output format")


@writers.register("trident", suffix=".h5", coords=True)
def write_trident(bag: Bag, path: Path, dtype: torch.dtype) -> None:
    """TRIDENT's layout: `features` and `coords` with attributes."""
    import h5py

    with h5py.File(path, "w") as file:
        features = file.create_dataset("features", (len(bag), bag.dim), _numpy(bag, dtype))
        features.attrs["name"] = bag.slide_id
        if bag.encoder:
            features.attrs["encoder"] = bag.encoder
        features.attrs["written_by"] = "panther-wsi"
        start = 0
        for block in _blocks(bag, dtype):
            features[start : start + len(block)] = block.numpy()
            start += len(block)
        if bag.places is not None:
            if bag.spec.coords_unit != "px":
                raise InputError(
                    f"{bag.source}: coordinates are in micrometres but TRIDENT's are level-0 pixels; "
                    "give the slides' level-0 resolution with `mpp=0.25`, or write another layout."
                )
            coords = file.create_dataset("coords", data=bag.places().numpy().astype(np.int64))
            coords.attrs.update(_geometry(bag))


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
        for block in _blocks(bag, dtype):
            handle.write(block.numpy().tobytes())


@writers.register("safetensors", suffix=".safetensors", coords=True)
def write_safetensors(bag: Bag, path: Path, dtype: torch.dtype) -> None:
    """`features` and `coords`, with encoder and patch geometry as metadata."""
    from safetensors.torch import save_file

    tensors = {"features": torch.cat([*_blocks(bag, dtype)]) if len(bag) else torch.empty(0, bag.dim, dtype=dtype)}
    if bag.places is not None:
        tensors["coords"] = bag.places().contiguous()
    metadata = {"patch_spec": json.dumps(asdict(bag.spec), sort_keys=True)}
    save_file(tensors, path, metadata | ({"encoder": bag.encoder} if bag.encoder else {}))


def cast(bag: Bag, block: Tensor, dtype: torch.dtype) -> Tensor:
    """Block in the type to be written; numbers that do not fit are refused."""
    out = block.to(dtype).contiguous()
    if dtype == torch.float16 and bool((torch.isinf(out) & torch.isfinite(block)).any()):
        raise InputError(
            f"{bag.source}: features up to {float(block.abs().max()):.3g} do not fit float16; use `dtype=float32`."
        )
    return out


def _blocks(bag: Bag, dtype: torch.dtype) -> Iterator[Tensor]:
    return (cast(bag, block, dtype) for block in bag.blocks(BLOCK))


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
