"""Names for pieces of work that are equal in every process: what is computed, with which settings, on which item."""

import hashlib
from collections.abc import Callable, Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

PLAIN = (str, int, float, bool, type(None))


def describe(value: Any) -> Any:
    """A value as plain ones: the same wherever an equal one is described. Files count by their names, not by what they hold."""
    for kind, words in KINDS:
        if isinstance(value, kind):
            return words(value)
    if is_dataclass(value) and not isinstance(value, type):
        return [_kind(value), {one.name: describe(getattr(value, one.name)) for one in fields(value)}]
    if callable(value) and hasattr(value, "__qualname__"):
        return [value.__module__, value.__qualname__]
    return [_kind(value), describe(getattr(value, "__dict__", str(value)))]


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _numbers(array: np.ndarray) -> list[Any]:
    if array.dtype == object:
        return ["array", list(array.shape), describe(array.ravel().tolist())]
    content = hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()
    return ["array", list(array.shape), array.dtype.str, content]


def _tensor(tensor: torch.Tensor) -> list[Any]:
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    return [str(tensor.dtype), list(tensor.shape), _numbers(plain.view(torch.uint8).numpy())]


def _partial(call: "partial[Any]") -> list[Any]:
    return ["call", describe(call.func), describe(call.args), describe(call.keywords)]


# the first that fits
KINDS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (Enum, lambda value: [_kind(value), value.name]),
    (PLAIN, lambda value: value),
    (bytes, lambda value: ["bytes", hashlib.blake2b(value, digest_size=16).hexdigest()]),
    (Path, str),
    (torch.Tensor, _tensor),
    (np.ndarray, _numbers),
    (np.generic, lambda value: value.item()),
    (partial, _partial),
    (Mapping, lambda value: [[describe(key), describe(one)] for key, one in value.items()]),
    (Set, lambda value: sorted((describe(one) for one in value), key=str)),
    ((list, tuple), lambda value: [describe(one) for one in value]),
)
