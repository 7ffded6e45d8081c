"""One file per slide: TRIDENT's `slide_features_*`, STAMP's slide and patient files, and plain arrays or tensors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from panther.errors import InputError
from panther.machine import reading
from panther.storage.bags import files_below
from panther.storage.isolated import call_isolated
from panther.storage.names import as_text, not_text
from panther.storage.readers._base import first_sentence
from panther.storage.readers._h5 import text
from panther.storage.readers._h5_storage import check_storage, own_dataset
from panther.storage.readers.torch_file import load_tensor
from panther.storage.slide_vectors._base import Named, SlideVectors, checked

LEVELS = ("slide", "patient")  # STAMP's `feat_type` of files with one vector


class _One(NamedTuple):
    """What one file holds."""

    values: np.ndarray
    layout: str
    encoder: str | None = None
    level: str | None = None


def read_folder(folder: Path) -> SlideVectors:
    """Vectors of all files below a folder; those that hold something else are told."""
    files = [path for path in files_below(folder) if path.suffix.lower() in SINGLE]
    if not files:
        raise InputError(f"{folder}: no file with the vector of a slide; expected {', '.join(SINGLE)} files.")
    return read_files(folder, files)


def read_files(source: Path, files: list[Path]) -> SlideVectors:
    """Vectors of these files, each named like its file."""
    found, about, problems = [], [], {}
    for path in files:
        name = as_text(path.stem)
        try:
            if name is None:
                raise InputError(not_text(path))
            one = read_single(path)
            found.append(Named(name, _vector(path, one.values), str(path)))
            about.append(one)
        except InputError as error:
            problems[name or str(path)] = str(error)
    if not found:
        raise InputError(next(iter(problems.values())))
    return checked(
        str(source),
        found,
        _common([one.layout for one in about]) or "several layouts",
        problems,
        encoder=_common([one.encoder for one in about]),
        level=_common([one.level for one in about]),
    )


def read_single(path: Path) -> _One:
    """Content of one file."""
    try:
        with reading():
            return SINGLE[path.suffix.lower()](path)
    except (InputError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file.") from error
    except Exception as error:  # a broken file may raise anything
        raise InputError(f"{path}: the file is damaged ({first_sentence(error)}); encode the slide again.") from error


def _h5(path: Path) -> _One:
    return call_isolated(_read_h5, path)


def _read_h5(path: Path) -> _One:
    """TRIDENT calls it `features`, STAMP `feats`."""
    import h5py

    with reading(), h5py.File(path, "r") as file:
        for name, layout in (("features", "trident slide vector"), ("feats", "stamp slide vector")):
            data = own_dataset(file, name)
            if data is None:
                continue
            check_storage(path, data)
            if data.ndim > 1 and data.shape[0] != 1:
                raise _patches(path, tuple(data.shape))
            about = {**dict(file.attrs), **dict(data.attrs)}
            level = text(about.get("feat_type"))
            return _One(data[...], layout, text(about.get("encoder")), level if level in LEVELS else None)
        raise InputError(f"{path}: no dataset `features` or `feats` among {sorted(file)}; encode the slide again.")


def _npy(path: Path) -> _One:
    return _One(np.load(path, mmap_mode="r", allow_pickle=False), "npy slide vector")


def _torch(path: Path) -> _One:
    return _One(load_tensor(path).float().numpy(), "pt slide vector")


def _vector(path: Path, values: Any) -> np.ndarray:
    """(d,) from (d,) or (1, d); patches are refused."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise InputError(f"{path}: holds {array.dtype}; expected the numbers of one vector.")
    squeezed = array.reshape(-1) if array.ndim and max(array.shape, default=0) == array.size else array
    if squeezed.ndim != 1 or not squeezed.size:
        raise _patches(path, array.shape)
    with np.errstate(over="ignore"):
        return squeezed.astype(np.float32)


def _patches(path: Path, shape: tuple[int, ...]) -> InputError:
    return InputError(
        f"{path}: holds an array {shape}; expected one vector (d,) or (1, d) of a slide. Features of patches belong to `features:` of a study."
    )


def _common(values: list[str | None]) -> str | None:
    """What all say, or None."""
    return values[0] if len(set(values)) == 1 else None


SINGLE: dict[str, Callable[[Path], _One]] = {".h5": _h5, ".hdf5": _h5, ".npy": _npy, ".pt": _torch, ".pth": _torch}
