"""Files of tensors: .safetensors with JSON metadata, and torch's. Code in a file is never executed."""

import io
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from panther.errors import InputError
from panther.storage.files import first_sentence, read_errors
from panther.store import atomic_write


class TensorFileError(ValueError):
    """The file cannot be read as tensors; callers add what it should be."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], key: str, about: Mapping[str, Any]) -> None:
    """Write a .safetensors file; the same tensors and values give the same bytes."""
    from safetensors.torch import save_file

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_write(path) as temporary:
        # one metadata key: safetensors writes several in no particular order
        save_file(plain, temporary, {key: json.dumps(about, sort_keys=True)})


def read_tensors(path: Path, key: str, *, with_tensors: bool = True) -> tuple[str | None, dict[str, Tensor]]:
    """Metadata ``key`` (None: another kind of file) and tensors of a .safetensors file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as handle:
            names = handle.keys() if with_tensors else ()
            return (handle.metadata() or {}).get(key), {name: handle.get_tensor(name).clone() for name in names}
    except (SafetensorError, OSError) as error:
        raise TensorFileError(str(error)) from error


def kind_of(metadata: Mapping[str, str] | None) -> str | None:
    """Kind of this package's .safetensors file, by its metadata: `prototypes`, `model`, `tissue probe`; None for other files."""
    keys = (key.removeprefix("panther_") for key in metadata or {} if key.startswith("panther_"))
    return next((key.replace("_", " ") for key in keys), None)


def kind_of_file(path: Path) -> str | None:
    """Kind of a readable .safetensors file."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as handle:
        return kind_of(handle.metadata())


def read_network_weights(path: Path) -> Any:
    """Content of a published file of weights, safetensors or torch's."""
    with read_errors(
        path, "file of weights", "expected .safetensors, or a state dict saved by torch (code is never run)"
    ):
        with path.open("rb") as handle:
            head = handle.read(9)
        if path.suffix == ".safetensors" or head[8:] == b"{":
            from safetensors.torch import load_file

            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)


Kinds = Mapping[str, tuple[type, ...]]  # field -> allowed types; a field that may be None may be missing


def parse_about(path: Path, text: str, kinds: Kinds, newest: int, remedy: str) -> dict[str, Any]:
    """Return the fields of a file's metadata; missing fields, other types and newer formats are refused."""
    damaged = f"{path}: the file is damaged"
    try:
        about = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{damaged} (its metadata is not JSON); {remedy}") from error
    if not isinstance(about, dict):
        raise InputError(f"{damaged} (its metadata is no list of fields); {remedy}")
    written = about.get("format")
    if type(written) is not int or written < 1:
        raise InputError(f"{damaged} (its format is {written!r:.40}); {remedy}")
    if written > newest:
        version = about.get("version") if isinstance(about.get("version"), str) else "of a later format"
        raise InputError(f"{path}: written by a newer panther-wsi ({version}); update this one")
    for name, types in kinds.items():
        value = about.get(name)
        if type(value) not in types:
            what = f"is {value!r:.40}" if name in about else "is missing"
            raise InputError(f"{damaged} ({name} {what}); {remedy}")
    return about


def check_tensor(
    path: Path,
    name: str,
    tensor: Tensor | None,
    shape: tuple[int | None, ...],
    remedy: str,
    *,
    least: float | None = None,
) -> None:
    """Refuse a tensor of another shape (None: any length), with NaN or infinite numbers, or with numbers below ``least``."""
    if tensor is None:
        return
    fits = tensor.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, tensor.shape, strict=True))
    if not fits or 0 in tensor.shape or not tensor.is_floating_point():
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise InputError(
            f"{path}: {name} are {tuple(tensor.shape)} of {tensor.dtype}, expected floats ({wanted}); {remedy}"
        )
    if not bool(torch.isfinite(tensor).all()):
        raise InputError(f"{path}: {name} hold NaN or infinite numbers; {remedy}")
    if least is not None and bool((tensor < least).any()):
        raise InputError(f"{path}: {name} hold numbers below {least:g}; {remedy}")


# names that a pickle of arrays needs, in old and new versions of numpy
_ARRAYS = {"_reconstruct", "scalar"}
_ALLOWED = {
    *((module, name) for module in ("numpy.core.multiarray", "numpy._core.multiarray") for name in _ARRAYS),
    *((module, "_frombuffer") for module in ("numpy.core.numeric", "numpy._core.numeric")),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),  # how old protocols write bytes
    ("collections", "OrderedDict"),
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return super().find_class(module, name)


def load_arrays(path: Path) -> Any:
    """Load numpy arrays in plain containers; refuse a pickle that names anything else."""
    try:
        return _ArraysOnly(io.BytesIO(path.read_bytes())).load()
    except Exception as error:  # a broken pickle may raise anything
        what = "damaged, or more than numpy arrays in plain containers (code in a file is never run)"
        raise InputError(f"{path}: {what}: {first_sentence(error)}") from error
