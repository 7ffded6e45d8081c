"""Where the numbers of an HDF5 dataset lie: in the file itself, all of them written, and no more than the file can hold.

HDF5 gives zeros for what was never written and for sources that are missing, and follows links into any file of the machine. Neither is
features.

Through h5py each chunk costs a call of Python: 20 ms for the 15,000 chunks of one row each that CLAM and TRIDENT write, more than
embedding the slide. So the nodes of the index are read as arrays. Only the index of such files is known (HDF5 File Format
Specification, version 1 B-trees); whatever looks different is left to the library.
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

from panther.errors import InputError

MOST_TIMES = 100  # no features compress to a hundredth
SMALL = 64 << 20  # bytes that any machine has to spare


def own_dataset(h5: Any, name: str) -> Any:
    """Dataset of that name at the root, or None (a group is not one); one that a link fetches from another file is refused."""
    import h5py

    if h5 is None:
        return None
    link = h5.get(name, getlink=True)
    if isinstance(link, h5py.ExternalLink):
        raise _elsewhere(h5.filename, name, link.filename)
    found = h5.get(name)
    if not isinstance(found, h5py.Dataset):
        return None
    if found.file.filename != h5.filename:  # a soft link through a group that is an external link
        raise _elsewhere(h5.filename, name, found.file.filename)
    return found


def check_storage(path: Path, data: Any) -> None:
    """Refuse a dataset whose numbers are not all written in this file, or that declares more than the file can hold."""
    name = data.name.rpartition("/")[2]
    if data.external:
        raise _elsewhere(path, name, data.external[0][0])
    if data.is_virtual:
        _check_virtual(path, data, name)
    elif 0 in data.shape:
        return
    elif data.chunks is None:
        if data.id.get_storage_size() == 0:
            raise _unwritten(path, name, 0, _rows(data), _rows(data))
    else:
        _check_chunks(path, data, name)


def _rows(data: Any) -> int:
    return int(data.shape[data.ndim - 2]) if data.ndim > 1 else int(data.shape[0])


def _check_chunks(path: Path, data: Any, name: str) -> None:
    grid = [-(-n // c) for n, c in zip(data.shape, data.chunks, strict=True)]
    needed, there = math.prod(grid), data.id.get_num_chunks()
    if there < needed:
        first, last = _first_gap(data, grid) if there < 10_000_000 else (0, _rows(data))
        raise _unwritten(path, name, first, last, _rows(data))
    size, itemsize = path.stat().st_size, data.dtype.itemsize
    declared, chunk = math.prod(data.shape) * itemsize, math.prod(data.chunks) * itemsize
    if declared > max(MOST_TIMES * size, SMALL) or chunk > max(_memory() // 2, SMALL):
        raise InputError(
            f"{path}: {name} declares {declared:,} bytes in chunks of {chunk:,}, but the file has {size:,}; no features compress "
            "like that. Extract them again."
        )


def _first_gap(data: Any, grid: list[int]) -> tuple[int, int]:
    """First rows that were never written, from and to (not included)."""
    axis = data.ndim - 2 if data.ndim > 1 else 0
    step, whole = data.chunks[axis], math.prod(grid) // grid[axis]
    written: Counter[int] = Counter()

    def note(info: Any) -> None:
        written[info.chunk_offset[axis] // step] += 1

    data.id.chunk_iter(note)
    first = next(number for number in range(grid[axis]) if written[number] < whole)
    last = next((number for number in sorted(written) if number > first and written[number] == whole), grid[axis])
    return first * step, min(last * step, _rows(data))


def _check_virtual(path: Path, data: Any, name: str) -> None:
    import h5py

    mapped = 0
    for source in data.virtual_sources():
        mapped += source.vspace.get_select_npoints()
        file = path if source.file_name == "." else path.parent / source.file_name
        if "%" in source.file_name or not file.resolve().is_relative_to(path.parent.resolve()):
            raise _elsewhere(path, name, source.file_name)
        if not file.is_file():
            raise InputError(
                f"{path}: {name} is made of {source.file_name}, which is not there; put it beside the file."
            )
        with h5py.File(file, "r") as other:
            part = own_dataset(other, source.dset_name)
            if part is None or part.is_virtual:
                raise InputError(
                    f"{path}: {name} is made of {source.dset_name} in {file.name}, which is no plain dataset."
                )
            check_storage(file, part)
            if not _covers(part.shape, source):
                raise InputError(f"{path}: {name} is made of more rows than {file.name} has ({part.shape}).")
    if mapped < math.prod(data.shape):
        raise InputError(f"{path}: {name} has {data.shape} numbers, but only {mapped:,} of them have a source.")


def _covers(shape: tuple[int, ...], source: Any) -> bool:
    """Whether the part that is taken of a source lies within it."""
    import h5py

    if source.src_space.get_select_type() == h5py.h5s.SEL_ALL:
        return math.prod(shape) >= source.vspace.get_select_npoints()
    return all(stop < n for stop, n in zip(source.src_space.get_select_bounds()[1], shape, strict=True))


def _elsewhere(path: Path | str, name: str, other: str) -> InputError:
    return InputError(
        f"{path}: {name} lies in another file ({other}); only numbers in the file itself are read: copy them into it."
    )


def _unwritten(path: Path, name: str, first: int, last: int, rows: int) -> InputError:
    return InputError(
        f"{path}: rows {first:,} to {last - 1:,} of {rows:,} of {name} were never written; the extraction broke off: run it again."
    )


def _memory() -> int:
    import psutil

    return int(psutil.virtual_memory().available)


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
            found = self._handle.read(size)
        if len(found) < size:
            raise EOFError(f"it ends before byte {offset + size:,}")
        return found

    def identity(self) -> tuple[int, ...]:
        """What tells this file from one that took its place, or was written anew."""
        found = os.fstat(self._handle.fileno())
        return found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(frozen=True)
class ChunkOffsets:
    """Where each chunk of rows begins, and in which state of the file; to be sent to other processes with it."""

    offsets: np.ndarray  # (chunks,), bytes
    identity: tuple[int, ...]

    def file(self, path: Path) -> StoredBytes:
        """File that the offsets are of."""
        file = StoredBytes(path)
        if file.identity() != self.identity:
            raise InputError(f"{path}: the file was changed after it was opened; run the command again.")
        return file


def chunk_offsets(path: Path, dataset: Any) -> ChunkOffsets:
    """Places of the chunks of a dataset (N, d) whose chunks are whole rows, neither compressed nor missing."""
    file, needed = StoredBytes(path), -(-dataset.shape[0] // dataset.chunks[0])
    header = _header_address(dataset)
    places = None if header is None else chunk_places(file, header, needed)
    if places is None or len(places[0]) < needed:
        check_storage(path, dataset)
        places = _places_by_library(dataset)
    first, address = places
    number = first[:, 0] // dataset.chunks[0]
    there = (number >= 0) & (number < needed)  # else the index is damaged, and some place stays empty
    offsets = np.full(needed, -1, np.int64)
    offsets[number[there]] = address[there]
    identity = file.identity()
    if offsets.min() < 0 or offsets.max() + math.prod(dataset.chunks) * dataset.dtype.itemsize > identity[1]:
        raise InputError(f"{path}: its chunks lie outside of the file; copy or extract it again.")
    return ChunkOffsets(offsets, identity)


def _header_address(dataset: Any) -> int | None:
    """Where the header of a dataset begins; None where addresses are not of eight bytes."""
    import h5py

    plain = dataset.file.id.get_create_plist().get_sizes() == (8, 8)
    return int(h5py.h5o.get_info(dataset.id).addr) if plain else None


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
        found = np.array([(0, 0, [0] * (rank + 1), root)], entry)
        for level in range(struct.unpack("<5xB", file.read(root, 6))[0], -1, -1):
            found = np.frombuffer(_children(file, found["address"].tolist(), level, entry.itemsize, most), entry)
    except (EOFError, OSError, ValueError, OverflowError, struct.error):
        return None
    return found["first"][:, :rank], found["address"]


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
