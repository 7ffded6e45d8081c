"""Where the numbers of an HDF5 dataset lie: in the file itself, all of them written, and no more than the file can hold.

HDF5 returns zeros for rows that were never written, and follows links into any other file. Neither is accepted as features.

Through h5py each chunk costs a Python call. For 15,000 x 1024 float32 in chunks of one row, as CLAM and TRIDENT write them, opening and reading
with `chunk_iter` takes 1.57 times the CPU time (34.6 against 22.0 ms, medians of 30, interleaved), embedding the slide 1.42 times (43.2 against
30.4 ms), so the nodes of the index are read as arrays. Only the index of such files is known (HDF5 File Format Specification, version 1
B-trees); others are left to the library.
"""

import math
import os
import struct
import weakref
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
    """Refuse a dataset with numbers that are not written in its file, or that declares more than the file can hold."""
    name = data.name.rpartition("/")[2]
    if data.external or data.is_virtual:
        raise _elsewhere(name, data.external[0][0] if data.external else "a virtual dataset")
    if 0 in data.shape:
        return
    if data.chunks is None:
        if data.id.get_storage_size() == 0:
            raise InputError(f"{name} was never written; the extraction broke off: run it again")
        return
    needed = math.prod(-(-n // c) for n, c in zip(data.shape, data.chunks, strict=True))
    if missing := needed - data.id.get_num_chunks():
        raise InputError(f"{missing:,} of {needed:,} chunks of {name} were never written; run the extraction again")
    size, itemsize = Path(data.file.filename).stat().st_size, data.dtype.itemsize
    declared, chunk = math.prod(data.shape) * itemsize, math.prod(data.chunks) * itemsize
    if declared > max(MOST_TIMES * size, SMALL) or chunk > max(psutil.virtual_memory().available // 2, SMALL):
        raise InputError(f"{name} declares {declared:,} bytes in chunks of {chunk:,}, but the file has {size:,}")


def _elsewhere(name: str, other: str) -> InputError:
    return InputError(f"{name} lies in another file ({other}), expected its numbers in this one")


LAYOUT_MESSAGE, CHUNKED = 8, 2
NODE = 64  # entries that a node has room for, unless the writer has chosen another number


class StoredBytes:
    """A file for positioned reads, by several threads if need be. (A memory map would cost a page fault for every 16 chunks.)"""

    def __init__(self, path: Path) -> None:
        self._handle = path.open("rb", buffering=0)
        weakref.finalize(self, self._handle.close)

    def read_into(self, memory: Any, offset: int) -> None:
        """Fill a buffer with the bytes at an offset."""
        view, done = memoryview(memory).cast("B"), 0
        while done < len(view):
            count = os.preadv(self._handle.fileno(), [view[done:]], offset + done)
            if not count:
                raise EOFError(f"it ends before byte {offset + len(view):,}")
            done += count

    def read(self, offset: int, size: int) -> bytes:
        """Bytes at an offset."""
        data = os.pread(self._handle.fileno(), size, offset)
        if len(data) < size:
            raise EOFError(f"it ends before byte {offset + size:,}")
        return data

    def identity(self) -> tuple[int, ...]:
        """Inode, size and time: another file of this name, or a changed one, has others."""
        status = os.fstat(self._handle.fileno())
        return status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(frozen=True)
class ChunkOffsets:
    """Where each chunk of rows begins, and the state of the file that this is true of."""

    offsets: np.ndarray  # (chunks,), bytes
    identity: tuple[int, ...]

    def file(self, path: Path) -> StoredBytes:
        """Open the file; refused where it was changed since."""
        file = StoredBytes(path)
        if file.identity() != self.identity:
            raise InputError(f"{path}: the file was changed after it was opened; run the command again")
        return file


def chunk_offsets(path: Path, dataset: Any) -> ChunkOffsets:
    """Offsets of the chunks of a dataset (N, d), each of whole rows and uncompressed."""
    import h5py

    file, needed = StoredBytes(path), -(-dataset.shape[0] // dataset.chunks[0])
    index = None
    if dataset.file.id.get_create_plist().get_sizes() == (8, 8):  # bytes of an address and of a length
        index = read_chunk_index(file, int(h5py.h5o.get_info(dataset.id).addr), needed)
    if index is None or len(index[0]) < needed:
        check_storage(dataset)
        infos: list[Any] = []
        dataset.id.chunk_iter(infos.append)
        index = np.array([info.chunk_offset for info in infos]), np.array([info.byte_offset for info in infos])
    first, address = index
    number = first[:, 0] // dataset.chunks[0]
    is_valid = (number >= 0) & (number < needed)  # else the index is damaged, and an offset stays -1
    offsets = np.full(needed, -1, np.int64)
    offsets[number[is_valid]] = address[is_valid]
    identity = file.identity()
    if offsets.min() < 0 or offsets.max() + math.prod(dataset.chunks) * dataset.dtype.itemsize > identity[1]:
        raise InputError("its chunks lie outside of the file; copy or extract it again")
    return ChunkOffsets(offsets, identity)


def read_chunk_index(file: StoredBytes, header: int, most: int) -> tuple[np.ndarray, np.ndarray] | None:
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
