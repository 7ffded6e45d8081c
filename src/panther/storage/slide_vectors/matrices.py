"""All slides in one file: AnnData (.h5ad), .npz, or a .npy with the names beside it."""

from pathlib import Path

import numpy as np

from panther.errors import InputError, suggestion
from panther.storage.embedding_files.reading import matrix_of_h5ad
from panther.storage.files import DAMAGE, read_json, read_text
from panther.storage.isolated import call_isolated
from panther.storage.slide_vectors._base import SlideVectors, rows_of

NAME_FILES = (".json", ".txt", ".csv")  # what may lie beside a .npy and name its rows


def read_h5ad(path: Path, key: str | None) -> SlideVectors:
    """`X`, or `obsm/NAME`; the names are those of the observations."""
    try:
        names, matrix = call_isolated(matrix_of_h5ad, path, key)
    except InputError:
        raise
    except DAMAGE as error:
        raise InputError(f"{path}: not a readable .h5ad ({error}).") from error
    return rows_of(str(path), names, matrix, f"h5ad, {key or 'X'}")


def read_npz(path: Path, key: str | None) -> SlideVectors:
    """`X` (or the array called ``key``) with the names in `samples`, as `panther embed` writes it."""
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
            missing = [name for name in ("samples", key or "X") if name not in arrays.files]
            if missing:
                raise InputError(f"{path}: there is no array {missing[0]!r}; {suggestion(missing[0], arrays.files)}.")
            names, matrix = np.asarray(arrays["samples"]).tolist(), np.asarray(arrays[key or "X"])
            return rows_of(str(path), names, matrix, f"npz, {key or 'X'}")
    except DAMAGE as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a readable .npz ({error}).") from error


def read_npy(path: Path, key: str | None) -> SlideVectors:
    """A matrix (n, d); its rows are named by a file of the same name beside it, or by the file ``key``."""
    beside = [path.with_suffix(suffix) for suffix in NAME_FILES] if key is None else [path.parent / key]
    names = next((file for file in beside if file.exists()), None)
    if names is None:
        raise InputError(
            f"{path}: nothing says whose vectors these are; put their names, one per line and in the order of the rows, into "
            f"{beside[0].with_suffix('.txt').name if key is None else beside[0].name} beside it."
        )
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except DAMAGE as error:
        raise InputError(f"{path}: not a readable .npy ({error}).") from error
    return rows_of(f"{path} with {names.name}", _names_in(names), np.asarray(matrix), "npy with names")


def _names_in(path: Path) -> list[str]:
    """Names of rows: a JSON list (or its `samples`), or lines; of a .csv the first column below its header."""
    try:
        if path.suffix == ".json":
            content = read_json(path)
            names = content["samples"] if isinstance(content, dict) else content
            if not isinstance(names, list):
                raise TypeError("it is no list")
            return [str(name) for name in names]
        lines = read_text(path).splitlines()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: no names could be read ({error}); expected one name per line.") from error
    rows = lines[1:] if path.suffix == ".csv" else lines
    return [line.split(",")[0].strip().strip('"') for line in rows if line.strip()]
