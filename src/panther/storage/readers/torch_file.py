"""Tensors saved by torch (CLAM's pt_files, slideflow), loaded with weights_only=True: a file is never executed."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError
from panther.storage.readers._base import FileContent, as_coords, as_matrix, readers
from panther.storage.readers._foreign import first_bytes, what_it_is
from panther.types import Bag

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
