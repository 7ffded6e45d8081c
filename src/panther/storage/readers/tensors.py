"""Feature files that hold one array or named tensors, memory-mapped: NumPy, safetensors, and what torch saves (CLAM's pt_files, slideflow).

Torch's files are loaded with weights_only=True: a file is never executed.
"""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy_format
from torch import Tensor

from panther.errors import InputError, NotABagError
from panther.patches import spec_from
from panther.storage.readers.base import (
    FileContent,
    as_coords,
    as_matrix,
    check_numbers,
    first_bytes,
    mapped,
    readers,
    what_it_is,
)
from panther.storage.tensors import kind_of
from panther.types import Bag


@readers.register("npy")
def npy(file: FileContent) -> Bag | None:
    """Read a .npy file; pickled (object) arrays are refused."""
    if not file.head.startswith(npy_format.MAGIC_PREFIX):
        return None
    try:
        with file.path.open("rb") as handle:
            version = npy_format.read_magic(handle)
            read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
            shape, fortran, dtype = read(handle)
            offset = handle.tell()
        check_numbers(file.path, "the array", dtype)
        rows = (
            mapped(file.path, dtype, offset, shape[::-1]).permute(*range(len(shape))[::-1])
            if fortran
            else mapped(file.path, dtype, offset, shape)
        )
    except (ValueError, EOFError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file.path}: the array is damaged ({str(error).splitlines()[0]}); save it again.") from error
    return Bag(file.slide_id, as_matrix(file.path, rows, "the array"))


@readers.register("safetensors")
def safetensors_file(file: FileContent) -> Bag | None:
    """Read tensors by name; the header, 8 bytes of length and JSON, says which format it is."""
    length = int.from_bytes(file.head[:8], "little")
    if file.head[8:9] != b"{" or (length > file.path.stat().st_size and file.path.suffix != ".safetensors"):
        return None
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file.path, framework="pt") as handle:
            names, metadata = set(handle.keys()), handle.metadata() or {}
            own = kind_of(metadata)
            if own and "features" not in names:
                raise NotABagError(f"{file.path}: holds {own} of this package, not features.")
            name = next((n for n in ("features", "feats") if n in names), None)
            if name is None and len(names) == 1:
                (name,) = names
            if name is None:
                raise InputError(f"{file.path}: tensors {sorted(names)}; expected one called `features`.")
            features, coords = handle.get_tensor(name), handle.get_tensor("coords") if "coords" in names else None
    except SafetensorError as error:
        raise InputError(f"{file.path}: the file is damaged ({error}); save it again.") from error
    rows = as_matrix(file.path, features, name)
    places = as_coords(file.path, coords, int(rows.shape[0]))
    about = {"encoder": metadata.get("encoder"), **json.loads(metadata.get("bag", "{}"))}
    return Bag(file.slide_id, rows, places, spec_from(about.get("patch_spec")), about["encoder"])


ZIP, LEGACY = b"PK\x03\x04", b"\x80\x02\x8a\nl\xfc\x9cF"  # the second until torch 1.6


@readers.register("pt")
def torch_file(file: FileContent) -> Bag | None:
    """Read a tensor, or a dictionary with `features` or `feats` and perhaps `coords`."""
    if not file.head.startswith((ZIP, LEGACY)):
        return None
    if file.head.startswith(ZIP) and file.path.suffix.lower() == ".npz":
        raise InputError(
            f"{file.path}: an archive of arrays (.npz), which is no feature file; save the features with numpy.save or `panther.save_bag`."
        )
    content = _loaded(file.path, file.head.startswith(ZIP))
    coords = content.get("coords") if isinstance(content, dict) else None
    features = as_matrix(file.path, _features(file.path, content), "the tensor")
    _check_size(file.path, coords)
    count = int(features.shape[0])
    if not isinstance(content, dict):
        coords = _slideflow_locations(file.path, count)
    return Bag(file.slide_id, features, as_coords(file.path, coords, count))


def load_tensor(path: Path) -> Tensor:
    """The tensor of a file, or `features` or `feats` of a dictionary, of whatever shape."""
    head = first_bytes(path)
    if not head.startswith((ZIP, LEGACY)):
        raise InputError(f"{path}: {what_it_is(head)}; expected a tensor saved by torch.")
    return _features(path, _loaded(path, head.startswith(ZIP)))


def _loaded(path: Path, zipped: bool) -> Any:
    try:
        if zipped:
            _refuse_compressed(path)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped or None)
    except (MemoryError, InputError):
        raise
    except Exception as error:  # a broken pickle may raise anything
        raise InputError(
            f"{path}: not a plain tensor file, or damaged; only tensors are loaded, code never. Save it again with torch.save(tensor, path)."
        ) from error


def _features(path: Path, content: Any) -> Tensor:
    found = content.get("features", content.get("feats")) if isinstance(content, dict) else content
    if not isinstance(found, Tensor) or found.layout != torch.strided:
        raise InputError(
            f"{path}: holds no plain tensor of features; expected a tensor (N, d) or a dictionary with `features`."
        )
    _check_size(path, found)
    return found.detach()


def _refuse_compressed(path: Path) -> None:
    """`torch.save` never compresses; an archive that is may unpack to any size, and would be mapped as if it were not."""
    with zipfile.ZipFile(path) as archive:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise InputError(f"{path}: a compressed archive, which torch.save does not write; save it again.")


def _check_size(path: Path, tensor: object) -> None:
    """A tensor may repeat one number a billion times (`expand`) in a file of a kilobyte."""
    if isinstance(tensor, Tensor) and tensor.numel() * tensor.element_size() > path.stat().st_size:
        raise InputError(
            f"{path}: declares a tensor {tuple(tensor.shape)}, but the file has {path.stat().st_size:,} bytes; save it again."
        )


def _slideflow_locations(path: Path, count: int) -> Tensor | None:
    index = path.with_suffix(".index.npz")
    if not index.is_file():
        return None
    try:
        with zipfile.ZipFile(index) as archive:
            unpacked = max(entry.file_size for entry in archive.infolist())
        if unpacked > 64 * count + 4096:  # pairs of numbers
            raise ValueError(f"{unpacked:,} bytes for {count:,} patches")
        with index.open("rb") as handle:
            return torch.from_numpy(np.load(handle, allow_pickle=False)["arr_0"].astype(np.int64))
    except Exception as error:  # a broken archive may raise anything
        raise InputError(f"{index}: no locations could be read ({error}); expected `arr_0` (N, 2).") from error
