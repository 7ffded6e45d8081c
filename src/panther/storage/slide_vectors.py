"""Vectors of slides or patients from slide encoders (TITAN, PRISM, CHIEF ...), in the layouts of other tools.

One file per slide: TRIDENT's `slide_features_*`, STAMP's slide and patient files, plain arrays or tensors. All slides in one file: AnnData
(.h5ad, .zarr), .npz, or a table with a row per slide.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch

from panther.errors import InputError, listed, suggestion
from panther.machine import reading
from panther.storage.bags import Listing, files_below
from panther.storage.clinical import (
    PATIENT_COLUMNS,
    SLIDE_COLUMNS,
    USUAL,
    Columns,
    called,
    find_column,
    read_clinical,
)
from panther.storage.embeddings import is_in_memory, matrix_of_anndata, of_memory
from panther.storage.files import read_errors
from panther.storage.isolated import call_isolated
from panther.storage.names import as_text, not_text, without_suffix
from panther.storage.readers.h5 import text
from panther.storage.readers.h5_storage import check_storage, local_dataset
from panther.storage.readers.tensors import load_tensor
from panther.storage.tables import as_table, read_parquet
from panther.store import is_stored_embeddings
from panther.types import Bag

NAMES = (*SLIDE_COLUMNS, *PATIENT_COLUMNS, "sample", "id", "ID", "Unnamed: 0", "")  # of the column of names
LEVELS = ("slide", "patient")  # STAMP's `feat_type` of files with one vector


@dataclass(frozen=True, eq=False)
class SlideVectors:
    """One vector per slide or patient, all of the same length."""

    source: str  # file or folder
    names: list[str]
    vectors: np.ndarray  # (n, d) float32
    layout: str  # description for `inspect`
    encoder: str | None = None
    level: Literal["slide", "patient"] | None = None
    problems: Mapping[str, str] = field(default_factory=dict)  # name -> reason why its vector is not used

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return int(self.vectors.shape[1])


def read_slide_vectors(path: Any, key: str | None = None) -> SlideVectors:
    """Vectors of slides or patients with their names.

    Parameters
    ----------
    path : path, EmbeddingTable or AnnData
        Folder with one file per slide (TRIDENT's `slide_features_*`, STAMP's, `.npy`, `.pt`); or one file for all: `.h5ad`, `.zarr`, `.npz`,
        `.csv`, `.tsv` or `.parquet`.
    key : str, optional
        Part of the file: `obsm/X_titan` of AnnData, the array of an `.npz`, the column of names of a table.
    """
    if is_in_memory(path):
        embeddings = of_memory(path)
        return _of_rows(embeddings.source, embeddings.samples, embeddings.rows[:].numpy(), "in memory")
    path = Path(path)
    suffix = path.suffix.lower()
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder of slide vectors")
    if path.is_dir() and not is_stored_embeddings(path):
        if key is not None:
            raise InputError(f"{path}: a folder has no {key!r}; a key belongs to a file such as .h5ad")
        files = [file for file in files_below(path) if file.suffix.lower() in SINGLE]
        if not files:
            raise InputError(f"{path}: no file with the vector of a slide, expected {', '.join(SINGLE)} files")
        return read_files(path, files)
    if suffix in SINGLE:
        return read_files(path, [path])
    if suffix not in WHOLE:
        raise InputError(f"{path}: no known layout of slide vectors, expected a folder, or {', '.join(WHOLE)}")
    with read_errors(path, suffix):
        return WHOLE[suffix](path, key)


def vector_bags(
    source: Path | str, table: object = None, split: str | None = None, columns: Columns = USUAL
) -> Listing:
    """Bags of a file or folder of vectors; a patient's vector is used for each of their slides in the table."""
    vectors = read_slide_vectors(*split_key(source))
    if table is None:
        owners = {name: name for name in vectors.names}
    else:
        who = read_clinical(table, split, columns).who  # type: ignore[arg-type]
        names = set(vectors.names)
        by_slide = {slide: slide for slide in who.slide if slide in names}
        by_patient = {s: p for s, p in zip(who.slide, who.patient, strict=True) if p in names}
        owners = by_patient if len(by_patient) > len(by_slide) or vectors.level == "patient" else by_slide
        if not owners:
            example = f"{vectors.names[0]!r}, the table has {who.slide[0]!r} of {who.patient[0]!r}"
            raise InputError(f"{vectors.source}: no name is a slide or patient of the table, e.g. {example}")
    row = {name: number for number, name in enumerate(vectors.names)}
    numbers = torch.from_numpy(vectors.vectors)
    bags = [Bag(name, numbers[row[owner]][None], format=vectors.layout) for name, owner in owners.items()]
    return Listing(tuple(bags), dict(vectors.problems))


def split_key(source: Path | str) -> tuple[Path, str | None]:
    """Path and key of `titan.h5ad#obsm/X_titan`; embeddings in memory are returned unchanged."""
    if not isinstance(source, (str, Path)):
        return source, None
    path, mark, key = str(source).rpartition("#")
    return (Path(path), key) if mark and path and not Path(source).exists() else (Path(source), None)


def _select(
    source: str,
    names: Sequence[str],
    vectors: Sequence[np.ndarray] | np.ndarray,
    layout: str,
    files: Sequence[str] | None = None,
    problems: Mapping[str, str] | None = None,
    **known: Any,
) -> SlideVectors:
    """Vectors without those that repeat a name, have another length or hold NaN, which become problems."""
    names, problems = [without_suffix(name) for name in names], dict(problems or {})
    times = Counter(names)
    (width, count), *others = Counter(map(len, vectors)).most_common(2)
    if others and others[0][1] == count:  # ambiguous
        raise InputError(
            f"{source}: {count} vectors of {width} numbers, as many of {others[0][0]}; keep those of one slide encoder"
        )
    kept = []
    for row, (name, vector) in enumerate(zip(names, vectors, strict=True)):
        if times[name] > 1:
            problem = f"has {times[name]} vectors; keep one of them"
        elif len(vector) != width:
            problem = f"has {len(vector)} numbers, those of the others {width}"
        elif not np.isfinite(vector).all():
            problem = "holds NaN or an infinite number; encode this slide again"
        else:
            kept.append(row)
            continue
        problems[name] = f"{files[row] if files else source}: {name} {problem}"
    if not kept:
        raise InputError(f"{source}: no vector can be used. {next(iter(problems.values()), '')}".rstrip())
    matrix = np.stack([vectors[row] for row in kept]).astype(np.float32, copy=False)
    return SlideVectors(source, [names[row] for row in kept], matrix, layout, problems=problems, **known)


def _of_rows(source: str, names: Sequence[Any], matrix: np.ndarray, layout: str) -> SlideVectors:
    """Vectors that are the rows of one matrix (n, d)."""
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu" or 0 in matrix.shape:
        raise InputError(f"{source}: {matrix.shape} of {matrix.dtype}, expected numbers (n, d), one row per slide")
    if len(names) != len(matrix):
        raise InputError(f"{source}: has {len(matrix)} rows but {len(names)} names; expected one name for each row")
    texts = [str(name).strip() for name in names]
    if "" in texts:
        raise InputError(f"{source}: row {texts.index('')} has no name")
    with np.errstate(over="ignore"):  # numbers too large for float32 become infinite, and are refused
        return _select(source, texts, matrix.astype(np.float32, copy=False), layout)


def _read_anndata(path: Path, key: str | None) -> SlideVectors:
    """`X` or `obsm/NAME`, with the names of the observations."""
    names, matrix = call_isolated(matrix_of_anndata, path, key)
    return _of_rows(str(path), names, matrix, f"{path.suffix[1:]}, {key or 'X'}")


def _read_npz(path: Path, key: str | None) -> SlideVectors:
    """`X` (or the array ``key``) with the names in `samples`, as `panther embed` writes it."""
    with path.open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
        missing = [name for name in ("samples", key or "X") if name not in arrays.files]
        if missing:
            raise InputError(f"{path}: there is no array {missing[0]!r}; {suggestion(missing[0], arrays.files)}")
        names, matrix = np.asarray(arrays["samples"]).tolist(), np.asarray(arrays[key or "X"])
        return _of_rows(str(path), names, matrix, f"npz, {key or 'X'}")


def _read_table(path: Path, key: str | None) -> SlideVectors:
    """CSV, TSV or parquet; ``key`` is the column of names, if it has no usual name."""
    table = read_parquet(path) if path.suffix == ".parquet" else as_table(path)
    index = [name for name in table.index.names if name is not None and name not in table.columns]
    table = (table.reset_index(level=index) if index else table).rename(columns=str)
    name = find_column(table, key, NAMES, "name")
    if name is None:
        raise InputError(f"{path}: no column of names among {listed(table.columns, 5)} (`FILE#COLUMN`)")
    ids = {name, *called(table.columns, (*SLIDE_COLUMNS, *PATIENT_COLUMNS))}
    values = table[[column for column in table.columns if column not in ids]]
    if values.empty:
        raise InputError(f"{path}: no column of numbers beside {name!r}")
    try:
        matrix = values.replace("", "nan").to_numpy(np.float32)
    except (ValueError, TypeError) as error:
        wrong = [column for column in values.columns if pd.to_numeric(values[column], errors="coerce").isna().any()]
        remedy = f"leave it out, or name the column of names, `{path.name}#COLUMN`"
        raise InputError(f"{path}: the column {wrong[0] if wrong else '?'!r} holds no numbers; {remedy}") from error
    return _of_rows(str(path), list(map(str, table[name])), matrix, path.suffix[1:])


class _Single(NamedTuple):
    """Content of the file of one slide."""

    values: np.ndarray
    layout: str
    encoder: str | None = None
    level: str | None = None


def read_files(source: Path, files: list[Path]) -> SlideVectors:
    """Vectors of these files, named like them."""
    contents: dict[Path, _Single] = {}
    problems: dict[str, str] = {}
    for path in files:
        name = as_text(path.stem)
        try:
            if name is None:
                raise InputError(not_text(path))
            with read_errors(path, "file of a slide's vector", "encode the slide again"), reading():
                content = SINGLE[path.suffix.lower()](path)
                contents[path] = content._replace(values=_vector(content.values))
        except InputError as error:
            problems[name or str(path)] = str(error)
    if not contents:
        raise InputError(next(iter(problems.values())))
    common: dict[str, Any] = {}  # metadata on which all files agree
    for key in ("layout", "encoder", "level"):
        values = {getattr(content, key) for content in contents.values()}
        common[key] = values.pop() if len(values) == 1 else None
    names, vectors = [str(as_text(path.stem)) for path in contents], [content.values for content in contents.values()]
    layout = common.pop("layout") or "several layouts"
    return _select(str(source), names, vectors, layout, list(map(str, contents)), problems, **common)


def _read_h5(path: Path) -> _Single:
    """The dataset `features` (TRIDENT) or `feats` (STAMP)."""
    import h5py

    with reading(), h5py.File(path, "r") as file:
        for name, layout in (("features", "trident slide vector"), ("feats", "stamp slide vector")):
            data = local_dataset(file, name)
            if data is None:
                continue
            check_storage(data)
            if data.ndim > 1 and data.shape[0] != 1:
                raise _not_one_vector(data.shape)
            attributes = {**dict(file.attrs), **dict(data.attrs)}
            level = text(attributes.get("feat_type"))
            return _Single(data[...], layout, text(attributes.get("encoder")), level if level in LEVELS else None)
        raise InputError(f"no dataset `features` or `feats` among {sorted(file)}")


def _vector(values: Any) -> np.ndarray:
    """(d,) from (d,) or (1, d); patches are refused."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise InputError(f"holds {array.dtype}, expected the numbers of one vector")
    if not array.size or array.size != max(array.shape, default=0):
        raise _not_one_vector(array.shape)
    with np.errstate(over="ignore"):
        return array.reshape(-1).astype(np.float32)


def _not_one_vector(shape: tuple[int, ...]) -> InputError:
    return InputError(f"found {shape}, expected one vector (d,); features of patches are `features:` of a study")


WHOLE: dict[str, Callable[[Path, str | None], SlideVectors]] = {
    **dict.fromkeys((".h5ad", ".zarr"), _read_anndata),
    ".npz": _read_npz,
    **dict.fromkeys((".csv", ".tsv", ".parquet"), _read_table),
}
SINGLE: dict[str, Callable[[Path], _Single]] = {
    **dict.fromkeys((".h5", ".hdf5"), lambda path: call_isolated(_read_h5, path)),
    ".npy": lambda path: _Single(np.load(path, mmap_mode="r", allow_pickle=False), "npy slide vector"),
    **dict.fromkeys((".pt", ".pth"), lambda path: _Single(load_tensor(path).float().numpy(), "pt slide vector")),
}
