"""What our own files say of themselves, checked on reading: a changed file is refused by name, not met as a crash later."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from panther.errors import InputError

Kinds = Mapping[str, tuple[type, ...]]  # field -> types that it may have; a field that may be None may be missing


def parse_about(path: Path, text: str, kinds: Kinds, newest: int, remedy: str) -> dict[str, Any]:
    """Return the fields of a file's metadata; one that is missing or of another type is refused, and so is a newer format."""
    try:
        about = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: the file is damaged (its metadata is not JSON); {remedy}.") from error
    if not isinstance(about, dict):
        raise InputError(f"{path}: the file is damaged (its metadata is no list of fields); {remedy}.")
    written = about.get("format")
    if isinstance(written, bool) or not isinstance(written, int) or written < 1:
        raise InputError(f"{path}: the file is damaged (its format is {written!r:.40}); {remedy}.")
    if written > newest:
        version = about.get("version") if isinstance(about.get("version"), str) else "of a later format"
        raise InputError(f"{path}: written by a newer panther-wsi ({version}); update this one.")
    for name, types in kinds.items():
        value = about.get(name)
        wrong = not isinstance(value, types) or (isinstance(value, bool) and bool not in types)
        if wrong and not (value is None and type(None) in types):
            found = "is missing" if name not in about else f"is {value!r:.40}"
            raise InputError(f"{path}: the file is damaged ({name} {found}); {remedy}.")
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
    """Refuse a tensor of another shape (None: any length), or that holds NaN, infinite or, with ``least``, smaller numbers."""
    if tensor is None:
        return
    fits = tensor.ndim == len(shape) and all(
        want in (None, have) for want, have in zip(shape, tensor.shape, strict=True)
    )
    if not fits or 0 in tensor.shape or not tensor.is_floating_point():
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise InputError(
            f"{path}: {name} has shape {tuple(tensor.shape)} and type {tensor.dtype}; expected ({wanted}) of floating-point numbers: {remedy}."
        )
    if not bool(torch.isfinite(tensor).all()):
        raise InputError(f"{path}: {name} hold NaN or infinite numbers; {remedy}.")
    if least is not None and bool((tensor < least).any()):
        raise InputError(f"{path}: {name} hold numbers below {least:g}; {remedy}.")
