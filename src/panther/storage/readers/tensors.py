"""Feature files that hold one array or named tensors, memory-mapped: NumPy, safetensors, and what torch saves (CLAM's pt_files).

Torch's files are loaded with weights_only=True: a file is never executed.
"""

import json
import zipfile
from pathlib import Path
from typing import Any

import torch
from numpy.lib import format as npy_format
from torch import Tensor

from panther.errors import InputError, NotABagError
from panther.patches import spec_from
from panther.storage.readers.base import FileContent, as_matrix, check_numbers, first_bytes, mapped, readers
from panther.storage.tensors import kind_of
from panther.types import Bag


@readers.register("npy")
def npy(file: FileContent) -> Bag | None:
    """A .npy file; pickled (object) arrays are refused."""
    if not file.head.startswith(npy_format.MAGIC_PREFIX):
        return None
    with file.path.open("rb") as handle:
        try:
            version = npy_format.read_magic(handle)
            read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
            shape, fortran, dtype = read(handle)
        except (ValueError, EOFError) as error:  # whose further lines advise to load pickles
            raise InputError(f"the array is damaged ({str(error).splitlines()[0]}); save it again") from error
        check_numbers("the array", dtype)
        rows = mapped(file.path, dtype, handle.tell(), shape[::-1] if fortran else shape)
    return Bag(file.slide_id, as_matrix(rows.permute(*range(rows.ndim)[::-1]) if fortran else rows, "the array"))


@readers.register("safetensors")
def safetensors_file(file: FileContent) -> Bag | None:
    """Tensors by name; the header, 8 bytes of length and JSON, identifies the format."""
    length = int.from_bytes(file.head[:8], "little")
    if file.head[8:9] != b"{" or (length > file.path.stat().st_size and file.path.suffix != ".safetensors"):
        return None
    from safetensors import safe_open

    with safe_open(file.path, framework="pt") as handle:
        names, metadata = list(handle.keys()), handle.metadata() or {}
        kind = kind_of(metadata)
        if kind and "features" not in names:
            raise NotABagError(f"holds {kind} of this package, not features")
        name = next((n for n in ("features", "feats") if n in names), names[0] if len(names) == 1 else None)
        if name is None:
            raise InputError(f"tensors {sorted(names)}, expected one called `features`")
        rows, coords = handle.get_tensor(name), handle.get_tensor("coords") if "coords" in names else None
    rows = as_matrix(rows, name)
    about = {"encoder": metadata.get("encoder"), **json.loads(metadata.get("bag", "{}"))}
    return Bag(file.slide_id, rows, coords, spec_from(about.get("patch_spec")), about["encoder"])


ZIP, LEGACY = b"PK\x03\x04", b"\x80\x02\x8a\nl\xfc\x9cF"  # the second until torch 1.6


@readers.register("pt")
def torch_file(file: FileContent) -> Bag | None:
    """A tensor, or a dictionary with `features` or `feats` and perhaps `coords`."""
    if not file.head.startswith((ZIP, LEGACY)):
        return None
    content = _load(file.path, file.head)
    coords = content.get("coords") if isinstance(content, dict) else None
    _check_size(file.path, coords)
    return Bag(file.slide_id, as_matrix(_features(file.path, content), "the tensor"), coords)


def load_tensor(path: Path) -> Tensor:
    """The tensor of a file, or `features` or `feats` of a dictionary, of whatever shape."""
    head = first_bytes(path)
    if not head.startswith((ZIP, LEGACY)):
        raise InputError(f"begins with {head[:20]!r}, expected a tensor saved by torch")
    return _features(path, _load(path, head))


def _load(path: Path, head: bytes) -> Any:
    zipped = head.startswith(ZIP)
    try:
        if zipped:  # `torch.save` never compresses; a compressed archive may unpack to any size
            with zipfile.ZipFile(path) as archive:
                if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                    raise InputError("a compressed archive, which torch.save does not write; save it again")
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped or None)
    except (MemoryError, InputError):
        raise
    except Exception as error:  # a broken pickle may raise anything
        raise InputError("damaged, or not a plain tensor file; only tensors are loaded, code never") from error


def _features(path: Path, content: Any) -> Tensor:
    tensor = content.get("features", content.get("feats")) if isinstance(content, dict) else content
    if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
        raise InputError("holds no plain tensor, expected a tensor (N, d) or a dictionary with `features`")
    _check_size(path, tensor)
    return tensor.detach()


def _check_size(path: Path, tensor: object) -> None:
    """A tensor may repeat one number a billion times (`expand`) in a file of a kilobyte."""
    if isinstance(tensor, Tensor) and tensor.numel() * tensor.element_size() > path.stat().st_size:
        raise InputError(f"declares a tensor {tuple(tensor.shape)}, but the file has {path.stat().st_size:,} bytes")
