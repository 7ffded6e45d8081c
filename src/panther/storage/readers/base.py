"""The registry of feature file formats, and the checks that all readers share.

A reader raises errors without the name of the file; `open_bag` adds it once.
"""

import errno
import math
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError, NotABagError, error_context
from panther.machine import reading
from panther.registry import Nothing, Registry
from panther.storage.files import first_sentence
from panther.storage.names import as_text
from panther.storage.readers.h5_storage import local_dataset
from panther.types import Bag, Rows

H5_SUFFIXES = (".h5", ".hdf5")
STORE = ".zarr"  # a folder that is one file to its users: wsidata's features, or an OME-Zarr image
# a damaged file with one of these endings is a damaged bag
BAG_SUFFIXES = (*H5_SUFFIXES, ".pt", ".pth", ".npy", ".safetensors", STORE)

NOT_THE_FILE = (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN)  # short of memory or handles, not damage
NUMBERS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
HEAD = 512  # bytes that identify the format


@dataclass(frozen=True)
class FileContent:
    """A file that may be a bag."""

    path: Path
    head: bytes  # its first bytes

    @property
    def slide_id(self) -> str:
        """Name of the file without its ending; further dots belong to the name (TCGA barcodes)."""
        return as_text(self.path.stem) or self.path.stem

    @cached_property
    def h5(self) -> Any:
        """File opened as HDF5, or None."""
        import h5py

        is_h5 = self.head.startswith(b"\x89HDF\r\n\x1a\n")
        if not is_h5 and self.path.suffix.lower() in H5_SUFFIXES:
            is_h5 = h5py.is_hdf5(self.path)  # after a user block
        return h5py.File(self.path, "r") if is_h5 else None

    def dataset(self, name: str) -> Any:
        """Dataset at the root of the HDF5 file, or None."""
        return local_dataset(self.h5, name)

    @cached_property
    def geometry(self) -> Any:
        """Attributes of `coords`, which may be a group."""
        return self.h5["coords"].attrs if "coords" in self.h5 else {}

    def close(self) -> None:
        """Close the HDF5 file if it was opened."""
        if self.__dict__.get("h5") is not None:
            self.h5.close()


Reader = Callable[[FileContent], Bag | None]  # None: a file of another format
readers: Registry[Reader, Nothing] = Registry("feature file format", Nothing)


def open_bag(path: Path | str, *, encoder_name: str | None = None, allow_mixed_resolution: bool = False) -> Bag:
    """Open a feature file of any layout; features stay on disk until they are read.

    Parameters
    ----------
    path : path
        File of TRIDENT, CLAM or STAMP, a `.npy`, `.pt` or `.safetensors` file, or a store of wsidata (`.zarr`), recognised by its content.
    encoder_name : str, optional
        Encoder of the features, if the file names another or none; of a store with several tables the one to use.
    allow_mixed_resolution : bool, default=False
        Whether the patches may be combined with prototypes, models and slides of another resolution.

    Returns
    -------
    Bag
        Features (N, d) and, if the file has them, coordinates and the size of patches.

    Examples
    --------
    >>> import numpy as np, panther
    >>> np.save("slide.npy", np.zeros((5, 8), np.float32))
    >>> bag = panther.open_bag("slide.npy")
    >>> len(bag), bag.dim
    (5, 8)
    """
    path = Path(path)
    with error_context(path):
        try:
            with reading():
                if is_store(path):
                    from panther.storage.readers.wsidata import read_store

                    bag = read_store(path, encoder_name)
                else:
                    bag = _read_file(path)
        except (InputError, MemoryError):
            raise
        except BlockingIOError as error:  # HDF5 locks what it writes
            raise InputError("another process is writing to it; wait until it has finished") from error
        except Exception as error:  # a broken file may raise anything
            if isinstance(error, OSError) and error.errno in NOT_THE_FILE:
                raise InputError(f"cannot be read now ({error.strerror}); use fewer `workers=`") from error
            raise InputError(f"the file is damaged ({first_sentence(error)}); extract its features again") from error
    return replace(bag, encoder=encoder_name or bag.encoder, allow_mixed_resolution=allow_mixed_resolution)


def is_store(path: Path) -> bool:
    """Whether it is a folder of zarr."""
    return path.suffix.lower() == STORE and path.is_dir()


def _read_file(path: Path) -> Bag:
    content = FileContent(path, first_bytes(path))
    try:
        for entry in readers:
            bag = entry.value(content)
            if bag is not None:
                if bag.features.dtype not in NUMBERS or bag.dim == 0:
                    shape, dtype = tuple(bag.features.shape), bag.features.dtype
                    raise InputError(f"features are {shape} of {dtype}, expected floating-point numbers (N, d)")
                return replace(bag, path=path, format=entry.name)
        if content.h5 is not None:
            names = sorted(content.h5)
            is_coordinates = not {"features", "feats"} & set(names) and content.dataset("coords") is not None
            problem = NotABagError if is_coordinates else InputError  # any other may be a damaged bag
            raise problem(f"no dataset `features` or `feats` among {names}")
    finally:
        content.close()
    raise InputError(f"begins with {content.head[:20]!r}, expected one of the layouts {', '.join(readers.names())}")


def mapped(path: Path, dtype: np.dtype, offset: int, shape: tuple[int, ...]) -> Tensor:
    """Memory-mapped tensor over a part of a file."""
    if 0 in shape:
        return torch.from_numpy(np.empty(shape, dtype.newbyteorder("=")))
    needed, size = offset + math.prod(shape) * dtype.itemsize, path.stat().st_size
    if needed > size or min(shape) < 0:
        raise InputError(f"declares an array {shape} of {needed:,} bytes, but the file has {size:,}; copy it again")
    # mode "c": copy on write, because torch needs writable memory
    array = np.memmap(path, dtype, "c", offset, shape)
    return torch.from_numpy(array if dtype.isnative else array.astype(dtype.newbyteorder("=")))


def check_numbers(name: str, dtype: np.dtype) -> None:
    """Refuse types other than float16, float32 and float64."""
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise InputError(f"{name} holds {dtype}, expected floating-point numbers (float16, float32 or float64)")


def as_matrix(rows: Rows, name: str) -> Rows:
    """(N, d) from (N, d) or (1, N, d); anything else is refused."""
    shape = tuple(rows.shape)
    if len(shape) == 3 and shape[0] == 1 and isinstance(rows, Tensor):
        return rows[0]
    if len(shape) != 2:
        raise InputError(f"{name} has shape {shape}, expected (N, d) or (1, N, d), one row per patch")
    return rows


def first_bytes(path: Path) -> bytes:
    """First bytes of a regular file; broken links, pipes, and files without permission or content are refused."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            kind = "a folder" if path.is_dir() else "a pipe or a device"
            raise InputError(f"cannot be read, it is {kind}; expected a feature file")
        with path.open("rb") as handle:
            head = handle.read(HEAD)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})") from error
    if not head:
        raise InputError("the file is empty (0 bytes); extract its features again")
    return head
