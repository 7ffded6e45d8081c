"""Files of tensors: .safetensors with one text about them, and what torch saves. A file is never executed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from panther.errors import InputError
from panther.store import atomic_write


class TensorFileError(ValueError):
    """The file cannot be read as tensors; the caller says what it should have been."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], key: str, about: Mapping[str, Any]) -> None:
    """Write a .safetensors file; the same tensors and values give the same bytes."""
    from safetensors.torch import save_file

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_write(path) as temporary:
        # one metadata key: safetensors writes several in no particular order
        save_file(plain, temporary, {key: json.dumps(about, sort_keys=True)})


def read_tensors(path: Path, key: str, *, with_tensors: bool = True) -> tuple[str | None, dict[str, Tensor]]:
    """Text under ``key`` (None: it is a file of something else) and tensors of a .safetensors file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as handle:
            names = handle.keys() if with_tensors else ()
            return (handle.metadata() or {}).get(key), {name: handle.get_tensor(name).clone() for name in names}
    except (SafetensorError, OSError) as error:
        raise TensorFileError(str(error)) from error


def kind_of(metadata: Mapping[str, str] | None) -> str | None:
    """What of this package a .safetensors file holds, by its header: `prototypes`, `model`, `tissue probe`; None for other files."""
    keys = (key.removeprefix("panther_") for key in metadata or {} if key.startswith("panther_"))
    return next((key.replace("_", " ") for key in keys), None)


def kind_of_file(path: Path) -> str | None:
    """The same of a file that can be read."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as handle:
        return kind_of(handle.metadata())


def write_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write tensors and plain values as torch does."""
    with atomic_write(path) as temporary:
        torch.save(content, temporary)


def read_checkpoint(path: Path) -> Any:
    """Read what `write_checkpoint` wrote."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # truncated, of another program, or a pickle that would run code
        raise TensorFileError(str(error)) from error


def read_network_weights(path: Path) -> Any:
    """Content of a published file of weights, safetensors or torch's."""
    try:
        with path.open("rb") as handle:
            head = handle.read(9)
    except OSError as error:
        raise InputError(f"{path}: the weights cannot be read ({error.strerror}); check `weights=`.") from error
    try:
        if path.suffix == ".safetensors" or head[8:] == b"{":
            from safetensors.torch import load_file

            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # a broken file may raise anything
        raise InputError(
            f"{path}: not a readable file of weights, or damaged, or it holds more than tensors (code is never run); "
            "expected .safetensors, or a state dict saved by torch."
        ) from error
