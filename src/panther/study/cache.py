"""What a study keeps on disk is read before it is used again: a damaged file is reported, removed and made anew."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from panther.models.model import read_about
from panther.storage.files import DAMAGE, read_array, read_arrays, read_json
from panther.storage.prototypes import load_prototypes
from panther.storage.tensors import TensorFileError, read_checkpoint


def load_predictions(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """What a model was, and its predictions of each part: ids and arrays."""
    arrays = read_arrays(path)
    parts: dict[str, dict[str, np.ndarray]] = {}
    for name, values in arrays.items():
        if "/" in name:
            part, field = name.rsplit("/", 1)
            parts.setdefault(part, {})[field] = values
    return json.loads(str(arrays["about"])), parts


def load_embeddings(path: Path) -> tuple[np.ndarray, list[str]]:
    """Matrix (n, out_dim) as a memory map, and the names of its rows, which are in the .json beside it."""
    matrix = read_array(path)
    samples = read_json(path.with_suffix(".json"))["samples"]
    if matrix.ndim != 2 or len(matrix) != len(samples):
        raise ValueError(f"a matrix {matrix.shape} for {len(samples)} samples")
    return matrix, samples


def load_failures(path: Path) -> dict[str, str]:
    """Who is missing among stored embeddings, and why; nobody is where there are none."""
    return dict(read_json(path.with_suffix(".json"))["failures"]) if path.exists() else {}


READERS: dict[str, Callable[[Path], Any]] = {
    "prototypes": load_prototypes,
    "embeddings": load_embeddings,
    "models": read_about,  # its tensors are checked where it is used
    "predictions": load_predictions,
}


def discard_damaged(kind: str, path: Path) -> str | None:
    """Remove a stored result that cannot be read; returns a sentence about it, None where it is sound or not there."""
    if not path.exists():
        return None
    try:
        READERS[kind](path)
    except DAMAGE as error:
        reason = str(error).removeprefix(f"{path}: ").split("; ")[0].rstrip(".") or "it is cut short"
        path.unlink()
        return f"{path.name} in the cache was damaged ({reason}) and is made anew."
    return None


def sound_checkpoint(path: Path) -> Path:
    """Where a training may go on; what lies there and cannot be read is removed, and the training starts anew."""
    if path.exists():
        try:
            read_checkpoint(path)
        except TensorFileError:
            path.unlink()
    return path
