"""Feature files in HDF5; rows that are stored contiguously or in uncompressed chunks are read from the file, others through h5py.

TRIDENT: `features` (N, d) with the encoder's name, `coords` at level 0 with the patch geometry as attributes. CLAM (and others): the same without
attributes. PANTHER's published data: `features` (1, N, d). STAMP: `feats` (N, d), `coords` in micrometres; newer files say so in root attributes.
"""

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from panther.errors import InputError
from panther.machine import reading
from panther.rows import check_coords_shape
from panther.storage.files import first_sentence
from panther.storage.readers.base import FileContent, check_numbers, mapped, readers
from panther.storage.readers.h5_storage import ChunkOffsets, StoredBytes, check_storage, chunk_offsets
from panther.storage.trident import ALL_COORDS
from panther.types import Bag, PatchSpec, Population, Rows


def text(value: Any) -> str | None:
    """Attribute as text; C libraries write bytes."""
    return value.decode() if isinstance(value, bytes) else None if value is None else str(value)


def h5_bag(file: FileContent, name: str, spec: PatchSpec, encoder: str | None) -> Bag:
    """Bag of the dataset ``name`` and, where the file has them, ``coords``."""
    features, coords = h5_rows(file.path, file.dataset(name)), file.dataset("coords")
    if coords is not None:
        check_storage(coords)
        check_coords_shape("coords", coords.shape, int(features.shape[0]))
    places = None if coords is None else Coordinates(file.path)
    every = None if places is None else file.dataset(ALL_COORDS)
    population = None
    if every is not None:
        check_storage(every)
        check_coords_shape(ALL_COORDS, every.shape, total := max(int(every.shape[0]), int(features.shape[0])))
        population = Population(total, Coordinates(file.path, ALL_COORDS))
    return Bag(file.slide_id, features, places, spec, encoder, population=population)


def h5_rows(path: Path, dataset: Any) -> Rows:
    """Rows of a dataset (N, d) or (1, N, d)."""
    name, dtype, shape = dataset.name[1:], dataset.dtype, dataset.shape
    if len(shape) == 1:
        raise InputError(f"{name} is one vector of {shape[0]} numbers, of a slide and not of patches: see `embeddings`")
    if len(shape) == 3 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) != 2:
        raise InputError(f"{name} has shape {dataset.shape}, expected (N, d) or (1, N, d), one row per patch")
    check_numbers(name, dtype)
    in_user_block = dataset.file.userblock_size > 0  # versions of HDF5 count offsets with or without it
    by_rows = dataset.chunks is not None and dataset.chunks == (dataset.chunks[0], shape[1]) and 0 not in shape
    if by_rows and not in_user_block and dtype.isnative and dataset.id.get_create_plist().get_nfilters() == 0:
        return ChunkedRows(path, dataset.name, shape, dtype, chunk_offsets(path, dataset), dataset.chunks[0])
    check_storage(dataset)
    if 0 in shape:
        return mapped(path, dtype, 0, shape)
    offset = None if in_user_block else dataset.id.get_offset()
    if offset is not None:
        return mapped(path, dtype, offset, shape)
    return H5Rows(path, dataset.name, shape, dtype)


@dataclass(frozen=True)
class Coordinates:
    """Coordinates, read when called."""

    path: Path
    name: str = "coords"

    def __call__(self) -> Tensor:
        """Return (N, 2)."""
        import h5py

        with reading(), h5py.File(self.path, "r") as file:
            array = file[self.name][...]
        return torch.from_numpy(array.reshape(-1, 2).astype(np.float64 if array.dtype.kind == "f" else np.int64))


@dataclass(frozen=True)
class StoredRows:
    """Rows of an array in a file, which is opened when they are first read."""

    path: Path
    name: str
    shape: tuple[int, int]
    numpy_dtype: np.dtype

    @property
    def dtype(self) -> torch.dtype:
        """Type of the numbers as stored."""
        return torch.from_numpy(np.empty(0, self.numpy_dtype.newbyteorder("="))).dtype

    def __getstate__(self) -> dict[str, Any]:
        """Without open files: another process opens them again."""
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}


CHUNK_CACHE = 32 << 20  # bytes; a chunk that does not fit is unpacked again for every block of it that is read


@dataclass(frozen=True)
class H5Rows(StoredRows):
    """Rows through h5py: compressed, or chunked across columns."""

    @cached_property
    def _dataset(self) -> Any:
        import h5py

        return h5py.File(self.path, "r", rdcc_nbytes=CHUNK_CACHE)[self.name]

    def __getitem__(self, rows: slice) -> Tensor:
        try:
            with reading():
                block = self._dataset[rows] if self._dataset.ndim == 2 else self._dataset[0, rows]
        except OSError as error:
            raise unreadable(self.path, rows, error) from error
        return torch.from_numpy(block.astype(self.numpy_dtype.newbyteorder("="), copy=False))


@dataclass(frozen=True)
class ChunkedRows(StoredRows):
    """Rows of an uncompressed dataset chunked by rows (CLAM: one row per chunk), read at the offsets of the chunks.

    h5py looks up every chunk in a tree for every read, which costs as much as a whole EM step; here offsets are listed once and adjacent chunks
    are read together.
    """

    chunks: ChunkOffsets
    rows_per_chunk: int

    @cached_property
    def _file(self) -> StoredBytes:
        return self.chunks.file(self.path)

    @cached_property
    def _offsets(self) -> np.ndarray:
        """Byte offset of each row."""
        inside = np.arange(self.rows_per_chunk) * self._row_bytes
        return (self.chunks.offsets[:, None] + inside).reshape(-1)[: self.shape[0]]

    @property
    def _row_bytes(self) -> int:
        return self.shape[1] * self.numpy_dtype.itemsize

    def __getitem__(self, rows: slice) -> Tensor:
        out = torch.from_numpy(np.empty((len(self._offsets[rows]), self.shape[1]), self.numpy_dtype))
        self.read_into(rows, out)
        return out

    def read_into(self, rows: slice, out: Tensor) -> None:
        """Read rows into a contiguous tensor of this type."""
        starts = self._offsets[rows]
        flat, size = out.view(-1).view(torch.uint8).numpy().data, self._row_bytes
        first = 0
        try:
            with reading():
                for last in [*(np.flatnonzero(np.diff(starts) != size) + 1).tolist(), len(starts)]:
                    if first < last:
                        self._file.read_into(flat[first * size : last * size], int(starts[first]))
                    first = last
        except (EOFError, OSError) as error:
            raise unreadable(self.path, rows, error) from error


def unreadable(path: Path, rows: slice, error: Exception) -> InputError:
    """Error for rows that cannot be read."""
    return InputError(f"{path}: rows {rows.start} to {rows.stop} cannot be read ({first_sentence(error)})")


# attributes of features that `panther slides` and `panther convert` write, and TRIDENT does not
OURS = {"weights", "written_by"}


@readers.register("trident")
def trident(file: FileContent) -> Bag | None:
    """TRIDENT's layout; its attributes distinguish it from CLAM's."""
    if _layout(file) != "trident":
        return None
    attributes = dict(file.dataset("features").attrs)
    name = text(attributes.get("encoder"))
    if name == "ctranspath" and not OURS & set(attributes):
        name = "chief-ctranspath"  # TRIDENT's ctranspath has the weights of CHIEF
    digests = [text(attributes[key]) or "" for key in ("weights", "transform") if key in attributes]
    bag = h5_bag(file, "features", _spec(dict(file.geometry)), name)
    checkpoint = text(attributes.get("checkpoint")) or "-".join(digest[:12] for digest in digests)
    return replace(bag, checkpoint=checkpoint or None)


@readers.register("clam")
def clam(file: FileContent) -> Bag | None:
    """Features without attributes."""
    return h5_bag(file, "features", PatchSpec(), None) if _layout(file) == "clam" else None


@readers.register("batched")
def batched(file: FileContent) -> Bag | None:
    """Features with a leading dimension of one."""
    return h5_bag(file, "features", PatchSpec(), None) if _layout(file) == "batched" else None


def _layout(file: FileContent) -> str | None:
    """Layout of a file with `features`."""
    features = file.dataset("features")
    if features is None or features.ndim == 3:
        return None if features is None else "batched"
    attributes = features.attrs
    is_trident = "encoder" in attributes or "name" in attributes or "patch_size_level0" in file.geometry
    return "trident" if is_trident else "clam"


def _spec(geometry: dict[str, Any]) -> PatchSpec:
    exact = json.loads(text(geometry.get("panther")) or "{}")  # of `panther slides`: magnifications are rounded
    size, size_level0, overlap = (
        None if (value := geometry.get(name)) is None else int(value)
        for name in ("patch_size", "patch_size_level0", "overlap")
    )
    mpp, mpp_level0 = (  # 20x is 0.5 um/px
        10.0 / float(power) if (power := geometry.get(name)) and float(power) > 0 else None
        for name in ("target_magnification", "level0_magnification")
    )
    if mpp is None and mpp_level0 and size and size_level0:
        mpp = mpp_level0 * size_level0 / size
    mpp = exact.get("mpp") or mpp
    return PatchSpec(mpp, size, size_level0=size_level0, overlap=overlap or 0, mpp_level0=exact.get("level0_mpp"))


@readers.register("stamp")
def stamp(file: FileContent) -> Bag | None:
    """STAMP's layout."""
    if file.dataset("feats") is None:
        return None
    attributes = file.h5.attrs
    micrometres, pixels = attributes.get("tile_size_um"), attributes.get("tile_size_px")
    mpp = float(micrometres) / float(pixels) if micrometres and pixels else None
    spec = PatchSpec(mpp, int(pixels) if pixels else None, coords_unit="um")
    return h5_bag(file, "feats", spec, text(attributes.get("extractor")))
