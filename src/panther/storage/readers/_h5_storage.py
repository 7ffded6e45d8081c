"""Where the numbers of an HDF5 dataset lie: in the file itself, all of them written, and no more than the file can hold.

HDF5 gives zeros for what was never written and for sources that are missing, and follows links into any file of the machine. Neither is
features.
"""

import math
from collections import Counter
from pathlib import Path
from typing import Any

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
