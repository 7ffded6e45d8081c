"""The one door to vectors of slides: a folder, or a file of any known layout."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from panther.errors import InputError
from panther.storage.embedding_files.in_memory import is_in_memory, of_memory
from panther.storage.slide_vectors._base import SlideVectors, rows_of
from panther.storage.slide_vectors.matrices import read_h5ad, read_npy, read_npz
from panther.storage.slide_vectors.single import SINGLE, read_files, read_folder
from panther.storage.slide_vectors.tables import read_parquet_table, read_table

WHOLE: dict[str, Callable[[Path, str | None], SlideVectors]] = {
    ".h5ad": read_h5ad,
    ".npz": read_npz,
    ".npy": read_npy,
    ".csv": read_table,
    ".tsv": read_table,
    ".parquet": read_parquet_table,
}
VECTOR_SUFFIXES = tuple(WHOLE)


def read_slide_vectors(path: Any, key: str | None = None) -> SlideVectors:
    """Vectors of slides or patients, named.

    Parameters
    ----------
    path : path, EmbeddingTable or AnnData
        Folder with one file per slide (TRIDENT's `slide_features_*`, STAMP's, `.npy`, `.pt`); or one file for all: `.h5ad`, `.npz`, `.npy`
        with the names beside it, `.csv`, `.tsv` or `.parquet`.
    key : str, optional
        Where in the file: `obsm/X_titan` of an `.h5ad`, the array of an `.npz`, the column of names of a table, the file with the names of a
        `.npy`.
    """
    if is_in_memory(path):
        found = of_memory(path)
        return rows_of(found.source, found.samples, found.rows[:].numpy(), "in memory")
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder of slide vectors.")
    if path.is_dir():
        if key is not None:
            raise InputError(f"{path}: a folder has no {key!r}; a key belongs to a file such as .h5ad.")
        return read_folder(path)
    suffix = path.suffix.lower()
    if suffix in WHOLE:
        return WHOLE[suffix](path, key)
    if suffix in SINGLE:
        return read_files(path, [path])
    raise InputError(f"{path}: no known layout of slide vectors; expected a folder, or {', '.join(WHOLE)}.")
