"""Tensors saved by torch (CLAM's pt_files, slideflow), loaded with weights_only=True: a file is never executed."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError
from panther.storage.readers._base import Candidate, as_coords, as_matrix, readers
from panther.types import Bag

ZIP, LEGACY = b"PK\x03\x04", b"\x80\x02\x8a\nl\xfc\x9cF"  # the second until torch 1.6


@readers.register("pt")
def torch_file(file: Candidate) -> Bag | None:
    """Read a tensor, or a dictionary with `features` or `feats` and perhaps `coords`."""
    if not file.head.startswith((ZIP, LEGACY)):
        return None
    try:
        content = torch.load(file.path, map_location="cpu", weights_only=True, mmap=file.head.startswith(ZIP) or None)
    except MemoryError:
        raise
    except Exception as error:  # a broken pickle may raise anything
        raise InputError(
            f"{file.path}: not a plain tensor file, or damaged; only tensors are loaded, code never. Save it again with torch.save(tensor, path)."
        ) from error
    coords = content.get("coords") if isinstance(content, dict) else _slideflow_locations(file.path)
    if isinstance(content, dict):
        content = content.get("features", content.get("feats"))
    if not isinstance(content, Tensor) or content.layout != torch.strided:
        raise InputError(
            f"{file.path}: holds no plain tensor of features; expected a tensor (N, d) or a dictionary with `features`."
        )
    features = as_matrix(file.path, content.detach(), "the tensor")
    return Bag(file.slide_id, features, as_coords(file.path, coords, int(features.shape[0])))


def _slideflow_locations(path: Path) -> Tensor | None:
    index = path.with_suffix(".index.npz")
    if not index.is_file():
        return None
    try:
        with index.open("rb") as handle:
            return torch.from_numpy(np.load(handle, allow_pickle=False)["arr_0"].astype(np.int64))
    except Exception as error:  # a broken archive may raise anything
        raise InputError(f"{index}: no locations could be read ({error}); expected `arr_0` (N, 2).") from error
