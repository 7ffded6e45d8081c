"""Where the numbers of an HDF5 dataset lie: in the file itself, all of them written, and no more than the file can hold.

HDF5 gives zeros for what was never written and for sources that are missing, and follows links into any file of the machine. Neither is
features.

Through h5py each chunk costs a call of Python. For 15,000 x 1024 numbers in chunks of one row, as CLAM and TRIDENT write them, opening and
reading with `chunk_iter` takes 2.5 times as long (110 instead of 43 ms, medians of 20, interleaved), so the nodes of the index are read as
arrays. Only the index of such files is known (HDF5 File Format Specification, version 1 B-trees); others are left to the library.
"""

import math
import os
import struct
import threading
import weakref
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from panther.errors import InputError

MOST_TIMES = 100  # no features compress to a hundredth
SMALL = 64 << 20  # bytes that any machine has to spare


def local_dataset(h5: Any, name: str) -> Any:
    """Dataset of that name at the root, or None (a group is not one); one that a link fetches from another file is refused."""
    import h5py

    if h5 is None:
        return None
    link = h5.get(name, getlink=True)
    if isinstance(link, h5py.ExternalLink):
        raise _elsewhere(name, link.filename)
    data = h5.get(name)
    if not isinstance(data, h5py.Dataset):
        return None
    if data.file.filename != h5.filename:  # a soft link through a group that is an external link
        raise _elsewhere(name, data.file.filename)
    return data


def check_storage(data: Any) -> None:
    """Refuse a dataset whose numbers are not all written in its file, or that declares more than the file can hold."""
    name = data.name.rpartition("/")[2]
    if data.external:
        raise _elsewhere(name, data.external[0][0])
    if data.is_virtual:
        _check_virtual(data, name)
    elif data.chunks is not None and 0 not in data.shape:
        _check_chunks(data, name)
    elif 0 not in data.shape and data.id.get_storage_size() == 0:
        raise InputError(f"{name} was never written; the extraction broke off: run it again")


def _check_chunks(data: Any, name: str) -> None:
    grid = [-(-n // c) for n, c in zip(data.shape, data.chunks, strict=True)]
    needed, there = math.prod(grid), data.id.get_num_chunks()
    if there < needed:
        where = _first_gap(data, grid) if there < 10_000_000 else f"{needed - there:,} of {needed:,} chunks"
        raise InputError(f"{where} of {name} were never written; the extraction broke off: run it again")
    size, itemsize = Path(data.file.filename).stat().st_size, data.dtype.itemsize
    declared, chunk = math.prod(data.shape) * itemsize, math.prod(data.chunks) * itemsize
    if declared > max(MOST_TIMES * size, SMALL) or chunk > max(psutil.virtual_memory().available // 2, SMALL):
        raise InputError(f"{name} declares {declared:,} bytes in chunks of {chunk:,}, but the file has {size:,}")


def _first_gap(data: Any, grid: list[int]) -> str:
    """First rows that were never written."""
    axis = max(data.ndim - 2, 0)
    step, whole = data.chunks[axis], math.prod(grid) // grid[axis]
    written: Counter[int] = Counter()
    data.id.chunk_iter(lambda info: written.update([info.chunk_offset[axis] // step]))
    first = next(number for number in range(grid[axis]) if written[number] < whole)
    last = next((number for number in sorted(written) if number > first and written[number] == whole), grid[axis])
    return f"rows {first * step:,} to {min(last * step, data.shape[axis]) - 1:,} of {data.shape[axis]:,}"


def _check_virtual(data: Any, name: str) -> None:
    import h5py

    mapped, path = 0, Path(data.file.filename)
    for source in data.virtual_sources():
        mapped += source.vspace.get_select_npoints()
        file = path if source.file_name == "." else path.parent / source.file_name
        if "%" in source.file_name or not file.resolve().is_relative_to(path.parent.resolve()):
            raise _elsewhere(name, source.file_name)
        if not file.is_file():
            raise InputError(f"{name} is made of {source.file_name}, which is not in the same folder")
        with h5py.File(file, "r") as other:
            part = local_dataset(other, source.dset_name)
            if part is None or part.is_virtual:
                raise InputError(f"{name} is made of {source.dset_name} in {file.name}, which is no plain dataset")
            check_storage(part)
            if not _covers(part.shape, source):
                raise InputError(f"{name} is made of more rows than {file.name} has ({part.shape})")
    if mapped < math.prod(data.shape):
        raise InputError(f"{name} has {data.shape} numbers, but only {mapped:,} of them have a source")


def _covers(shape: tuple[int, ...], source: Any) -> bool:
    """Whether the part that is taken of a source lies within it."""
    import h5py

    if source.src_space.get_select_type() == h5py.h5s.SEL_ALL:
        return math.prod(shape) >= source.vspace.get_select_npoints()
    return all(stop < n for stop, n in zip(source.src_space.get_select_bounds()[1], shape, strict=True))


def _elsewhere(name: str, other: str) -> InputError:
    return InputError(f"{name} lies in another file ({other}), expected its numbers in this one")


LAYOUT_MESSAGE, CHUNKED = 8, 2
NODE = 64  # entries that a node has room for, unless the writer has chosen another number


class StoredBytes:
    """A file that is read at any place, by several threads if need be. (A map of it would cost a page fault for every 16 chunks.)"""

    def __init__(self, path: Path) -> None:
        self._handle, self._lock = path.open("rb", buffering=0), threading.Lock()
        weakref.finalize(self, self._handle.close)

    def read_into(self, memory: Any, offset: int) -> None:
        """Fill a buffer with what lies at a byte offset."""
        view, done = memoryview(memory).cast("B"), 0
        with self._lock:
            self._handle.seek(offset)
            while done < len(view):
                count = self._handle.readinto(view[done:])
                if not count:
                    raise EOFError(f"it ends before byte {offset + len(view):,}")
                done += count

    def read(self, offset: int, size: int) -> bytes:
        """Bytes at an offset."""
        with self._lock:
            self._handle.seek(offset)
            data = self._handle.read(size)
        if len(data) < size:
            raise EOFError(f"it ends before byte {offset + size:,}")
        return data

    def identity(self) -> tuple[int, ...]:
        """What tells this file from one that took its place, or was written anew."""
        status = os.fstat(self._handle.fileno())
        return status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(frozen=True)
class ChunkOffsets:
    """Where each chunk of rows begins, and in which state of the file; to be sent to other processes with it."""

    offsets: np.ndarray  # (chunks,), bytes
    identity: tuple[int, ...]

    def file(self, path: Path) -> StoredBytes:
        """File that the offsets are of."""
        file = StoredBytes(path)
        if file.identity() != self.identity:
            raise InputError(f"{path}: the file was changed after it was opened; run the command again")
        return file


def chunk_offsets(path: Path, dataset: Any) -> ChunkOffsets:
    """Places of the chunks of a dataset (N, d) whose chunks are whole rows, neither compressed nor missing."""
    import h5py

    file, needed = StoredBytes(path), -(-dataset.shape[0] // dataset.chunks[0])
    places = None
    if dataset.file.id.get_create_plist().get_sizes() == (8, 8):  # bytes of an address and of a length
        places = chunk_places(file, int(h5py.h5o.get_info(dataset.id).addr), needed)
    if places is None or len(places[0]) < needed:
        check_storage(dataset)
        places = _places_by_library(dataset)
    first, address = places
    number = first[:, 0] // dataset.chunks[0]
    there = (number >= 0) & (number < needed)  # else the index is damaged, and some place stays empty
    offsets = np.full(needed, -1, np.int64)
    offsets[number[there]] = address[there]
    identity = file.identity()
    if offsets.min() < 0 or offsets.max() + math.prod(dataset.chunks) * dataset.dtype.itemsize > identity[1]:
        raise InputError("its chunks lie outside of the file; copy or extract it again")
    return ChunkOffsets(offsets, identity)


def _places_by_library(dataset: Any) -> tuple[np.ndarray, np.ndarray]:
    infos: list[Any] = []
    dataset.id.chunk_iter(infos.append)
    return np.array([info.chunk_offset for info in infos]), np.array([info.byte_offset for info in infos])


def chunk_places(file: StoredBytes, header: int, most: int) -> tuple[np.ndarray, np.ndarray] | None:
    """First element (n, rank) and byte offset (n,) of every chunk, in no order.

    None where the index is of another kind, or damaged, or names more than ``most`` chunks.
    """
    try:
        layout = _layout_message(file, header)
        if layout is None:
            return None
        rank, root = layout
        entry = np.dtype([("size", "<u4"), ("mask", "<u4"), ("first", "<i8", (rank + 1,)), ("address", "<i8")])
        entries = np.array([(0, 0, [0] * (rank + 1), root)], entry)
        for level in range(struct.unpack("<5xB", file.read(root, 6))[0], -1, -1):
            entries = np.frombuffer(_children(file, entries["address"].tolist(), level, entry.itemsize, most), entry)
    except (EOFError, OSError, ValueError, OverflowError, struct.error):
        return None
    return entries["first"][:, :rank], entries["address"]


def _children(file: StoredBytes, nodes: list[int], level: int, entry: int, most: int) -> bytes:
    """Entries of all nodes of one level; no level has more than there are chunks, or a damaged tree could grow without end."""
    parts, count = [], 0
    for node in nodes:
        content = file.read(node, 24 + NODE * entry)
        signature, kind, height, used = struct.unpack_from("<4sBBH", content)
        count += used
        if signature != b"TREE" or kind != 1 or height != level or used > NODE or count > most:
            raise ValueError("no index of chunks")
        parts.append(content[24 : 24 + used * entry])
    return b"".join(parts)


def _layout_message(file: StoredBytes, header: int) -> tuple[int, int] | None:
    """Rank of a chunked dataset and the address of its index."""
    version, _, _, _, size = struct.unpack("<BBHII", file.read(header, 12))
    if version != 1:
        return None
    messages, at = file.read(header + 16, size), 0
    while at + 8 <= size:
        kind, length = struct.unpack_from("<HH", messages, at)
        if kind == LAYOUT_MESSAGE:
            version, layout, rank, address = struct.unpack_from("<BBBq", messages, at + 8)
            return (rank - 1, address) if (version, layout) == (3, CHUNKED) else None
        at += 8 + length
    return None
