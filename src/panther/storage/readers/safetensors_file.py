"""safetensors: `features` (and perhaps `coords`), memory-mapped; metadata may name the encoder."""

import json
from typing import Any

import torch
from torch import Tensor

from panther.errors import InputError
from panther.storage.readers._base import Candidate, as_matrix, readers
from panther.types import Bag, PatchSpec


@readers.register("safetensors")
def safetensors_file(file: Candidate) -> Bag | None:
    """Read tensors by name; the header, 8 bytes of length and JSON, tells the format."""
    length = int.from_bytes(file.head[:8], "little")
    if file.head[8:9] != b"{" or length > file.path.stat().st_size:
        return None
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file.path, framework="pt") as handle:
            names, metadata = set(handle.keys()), handle.metadata() or {}
            if "centroids" in names:
                return None  # a prototype file, not a bag
            name = next((n for n in ("features", "feats") if n in names), None)
            if name is None and len(names) == 1:
                (name,) = names
            if name is None:
                raise InputError(f"{file.path}: tensors {sorted(names)}; expected one called `features`.")
            features, coords = handle.get_tensor(name), handle.get_tensor("coords") if "coords" in names else None
    except SafetensorError as error:
        raise InputError(f"{file.path}: the file is damaged ({error}); save it again.") from error
    rows = as_matrix(file.path, features, name)
    if coords is not None and tuple(coords.shape) != (rows.shape[0], 2):
        raise InputError(
            f"{file.path}: {rows.shape[0]} rows of features but coords {tuple(coords.shape)}; extract them again."
        )
    return Bag(file.slide_id, rows, _constant(coords), _spec(metadata), metadata.get("encoder"))


def _constant(coords: Tensor | None) -> Any:
    return None if coords is None else lambda: coords.to(torch.float64 if coords.is_floating_point() else torch.int64)


def _spec(metadata: dict[str, str]) -> PatchSpec:
    return PatchSpec(**json.loads(metadata["patch_spec"])) if "patch_spec" in metadata else PatchSpec()
