"""What all readers share: the registry, a look at the file, checks of what was read."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError
from panther.registry import Registry
from panther.types import Bag, Rows

BAG_SUFFIXES = (
    ".h5",
    ".hdf5",
    ".pt",
    ".pth",
    ".npy",
    ".safetensors",
)  # by these a broken file is known as a broken bag


class NotABagError(InputError):
    """The file is sound but holds no features, e.g. coordinates only."""


@dataclass(frozen=True)
class Candidate:
    """A file that may be a bag."""

    path: Path
    head: bytes  # its first bytes

    @property
    def slide_id(self) -> str:
        """Name of the file without its ending; further dots belong to the name (TCGA barcodes)."""
        return self.path.stem

    @cached_property
    def h5(self) -> Any:
        """File opened as HDF5, or None."""
        if not self.head.startswith(b"\x89HDF\r\n\x1a\n"):
            return None
        import h5py

        return h5py.File(self.path, "r")

    def close(self) -> None:
        """Close the HDF5 file if it was opened."""
        if self.__dict__.get("h5") is not None:
            self.h5.close()


Reader = Callable[[Candidate], Bag | None]  # None: this content is not mine
readers: Registry[Reader] = Registry("feature file format")


def open_bag(path: Path | str) -> Bag:
    """Open one feature file, whatever its layout; features stay on disk until they are asked for."""
    path = Path(path)
    try:
        with path.open("rb") as handle:
            head = handle.read(16)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions.") from error
    if not head:
        raise InputError(f"{path}: the file is empty (0 bytes); extract its features again.")
    candidate = Candidate(path, head)
    try:
        for entry in readers:
            bag = entry.value(candidate)
            if bag is not None:
                return replace(_checked(bag), path=path, format=entry.name)
        if candidate.h5 is not None:
            raise NotABagError(
                f"{path}: no dataset `features` or `feats` among {sorted(candidate.h5)}; coordinate files are not bags: "
                "give the folder with the features."
            )
    except OSError as error:
        raise InputError(
            f"{path}: the file is damaged ({_first_sentence(error)}); extract its features again."
        ) from error
    finally:
        candidate.close()
    raise NotABagError(f"{path}: no features found; expected one of the layouts {', '.join(readers.names())}.")


def mapped(path: Path, dtype: np.dtype, offset: int, shape: tuple[int, ...]) -> Tensor:
    """Tensor over a part of a file, read from disk as it is touched."""
    if 0 in shape:
        return torch.from_numpy(np.empty(shape, dtype.newbyteorder("=")))
    # mode "c": private copy on write, so that torch gets the writable memory it wants and the file stays untouched
    array = np.memmap(path, dtype, "c", offset, shape)
    return torch.from_numpy(array if dtype.isnative else array.astype(dtype.newbyteorder("=")))


def as_matrix(path: Path, rows: Rows, name: str) -> Rows:
    """(N, d) from (N, d) or (1, N, d); anything else is refused."""
    shape = tuple(rows.shape)
    if len(shape) == 3 and shape[0] == 1 and isinstance(rows, Tensor):
        return rows[0]
    if len(shape) != 2:
        raise InputError(f"{path}: {name} has shape {shape}; expected (N, d) or (1, N, d), one row a patch.")
    return rows


def _checked(bag: Bag) -> Bag:
    if not bag.features.dtype.is_floating_point:
        raise InputError(f"{bag.slide_id}: features are {bag.features.dtype}; expected floating-point numbers.")
    if bag.dim == 0:
        raise InputError(
            f"{bag.slide_id}: features have no columns (shape {tuple(bag.features.shape)}); extract them again."
        )
    return bag


def _first_sentence(error: Exception) -> str:
    return str(error).split("(", 1)[-1].rstrip(")") if "(" in str(error) else str(error)
