"""Arrays as users have them (of torch, numpy, pandas, HDF5, lists) as tensors: shared where possible, refused where they mean nothing."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError

MATRIX = "expected floating-point numbers (N, d), one row per patch"


def as_matrix(what: str, given: Any, expected: str = MATRIX) -> Tensor:
    """Tensor (N, d) of floating-point numbers from anything (N, d) or (1, N, d); messages call it ``what``."""
    tensor = as_tensor(what, given, expected)
    if tensor.ndim == 3 and len(tensor) == 1:
        tensor = tensor[0]
    if tensor.ndim != 2 or not tensor.is_floating_point():
        raise InputError(f"{what} has shape {tuple(tensor.shape)} and type {tensor.dtype}; {expected}.")
    return tensor


def as_tensor(what: str, given: Any, expected: str = MATRIX) -> Tensor:
    """Tensor of numbers, whatever their shape and type; it shares the memory of an array that torch can read."""
    if isinstance(given, Tensor):
        return given
    if not isinstance(given, (list, tuple)):
        return _of_array(what, _numpy(what, given, expected), expected)
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:  # rows of different lengths, or what is no number
        raise InputError(f"{what} is a list that is no table of numbers; {expected}.") from error


def _numpy(what: str, given: Any, expected: str) -> np.ndarray:
    """Array of numpy; a table of pandas is one where all its columns are numbers."""
    if np.ma.is_masked(given):
        raise InputError(
            f"{what} is a masked array, and a mask cannot be kept; leave out the masked rows first, or fill what is masked."
        )
    if not hasattr(given, "__array__"):
        raise InputError(f"{what} is {_named(given)}; {expected}.")
    if hasattr(given, "select_dtypes"):
        others = given.columns.difference(given.select_dtypes("number").columns)
        if len(others):
            raise InputError(f"{what} has a column {others[0]!r} that holds no numbers; leave it out: {expected}.")
        if any(not isinstance(dtype, np.dtype) for dtype in given.dtypes):  # pandas' own types, which may lack values
            return given.to_numpy(np.float64, na_value=np.nan)
    return np.asarray(given)


def _of_array(what: str, array: np.ndarray, expected: str) -> Tensor:
    if array.dtype.kind not in "fiub" or (array.dtype.kind == "f" and array.itemsize > 8):
        kind = "Python objects" if array.dtype.kind == "O" else str(array.dtype)
        raise InputError(f"{what} is an array of {kind}; {expected}.")
    if not array.dtype.isnative or any(step < 0 or step % array.itemsize for step in array.strides):
        array = np.array(array, array.dtype.newbyteorder("="), order="C")  # torch reads neither
    return torch.from_numpy(array if array.flags.writeable else np.asarray(_Shared(array)))


@dataclass(frozen=True)
class Held:
    """Coordinates in memory, handed out when called."""

    coords: Tensor

    def __call__(self) -> Tensor:
        """Return (N, 2)."""
        return self.coords


def as_places(what: str, given: Any, count: int) -> Held:
    """Coordinates of ``count`` patches from an array (N, 2)."""
    expected = f"expected are coordinates ({count}, 2), the upper left corner of each patch"
    coords = as_tensor(f"The places of {what}", given, expected)
    if tuple(coords.shape) != (count, 2):
        raise InputError(f"The places of {what} have shape {tuple(coords.shape)}; {expected}.")
    return Held(coords.to(torch.float64 if coords.is_floating_point() else torch.int64))


def as_centroids(given: Any) -> Tensor:
    """Centroids (C, d) from an array (C, d) or (1, C, d) of finite numbers."""
    expected = "expected are prototypes, a file of them, or their centroids, floating-point numbers (C, d)"
    centroids = as_matrix("What is given as prototypes", given, expected)
    if 0 in centroids.shape:
        raise InputError(f"What is given as prototypes has shape {tuple(centroids.shape)}; {expected}.")
    if not bool(torch.isfinite(centroids).all()):
        raise InputError("The prototypes hold NaN or infinite numbers; fit them again.")
    return centroids


class _Shared:
    """The memory of a read-only array, e.g. of a file, for torch, which warns of it; nothing here writes to features."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array  # keeps the memory
        about = array.__array_interface__
        self.__array_interface__ = {**about, "data": (about["data"][0], False)}


def _named(given: Any) -> str:
    return "None" if given is None else f"a {type(given).__name__}"
