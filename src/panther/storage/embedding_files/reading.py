"""Proportions and vectors read back from a file of embeddings, checked."""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from panther.errors import InputError, suggestion
from panther.machine import reading
from panther.storage.files import DAMAGE
from panther.storage.isolated import call_isolated

if TYPE_CHECKING:
    import anndata


def check_embeddings(path: Path, known: Collection[str]) -> None:
    """Refuse a file of another ending than the ``known``, and one that is not there."""
    if path.suffix not in known:
        raise InputError(f"{path}: not an embeddings file; expected {' or '.join(known)}.")
    if not path.exists():
        raise InputError(f"{path}: there is no such file; write embeddings with `panther embed`.")


def read_weights(path: Path, needed: str, *wanted: str) -> tuple[list[str], np.ndarray, dict[str, list[str]]]:
    """Samples, mixture weights (n, C) and columns (as text) of an embeddings file; the ``needed`` column must be there."""
    check_embeddings(path, READERS)
    try:
        samples, weights, columns = READERS[path.suffix](path)
    except InputError:
        raise
    except DAMAGE as error:
        raise InputError(f"{path}: cannot be read as embeddings ({error}); write them with `panther embed`.") from error
    if weights is None:
        raise InputError(f"{path}: holds no proportions (pi); embed with panther, protocounts or h2t.")
    check_weights(path, samples, weights, columns)
    if needed not in columns:
        raise InputError(
            f"{path}: no column {needed!r}; it has {', '.join(sorted(columns))}. Embed with `table=` to add clinical columns."
        )
    missing = sum(value in ("", "nan") for value in columns[needed])
    if missing:
        raise InputError(f"{path}: {missing} samples have no {needed}; fill the column in.")
    return samples, weights, {name: columns[name] for name in (needed, *wanted) if name in columns}


def read_vectors(path: Path) -> tuple[list[str], np.ndarray, str | None]:
    """Samples, vectors (n, D) and the hash of the prototypes of an embeddings file; None where the file does not say it."""
    check_embeddings(path, VECTORS)
    try:
        samples, vectors, made_with = VECTORS[path.suffix](path)
    except InputError:
        raise
    except DAMAGE as error:
        raise InputError(f"{path}: cannot be read as embeddings ({error}); write them with `panther embed`.") from error
    if (
        vectors.ndim != 2
        or vectors.dtype.kind != "f"
        or len(vectors) != len(samples)
        or len(set(samples)) != len(samples)
    ):
        raise InputError(
            f"{path}: holds no row of numbers for each of its samples; write it again with `panther embed`."
        )
    return samples, vectors, made_with


def check_weights(path: Path | str, samples: list[str], weights: np.ndarray, columns: Mapping[str, list[str]]) -> None:
    """Refuse proportions that are none, and tables whose parts are not of one cohort."""
    again = "write the file again with `panther embed`"
    if weights.ndim != 2 or weights.dtype.kind not in "fiu" or len(weights) != len(samples) or 0 in weights.shape:
        raise InputError(
            f"{path}: pi has shape {weights.shape} and type {weights.dtype}; expected one row of numbers for each of the "
            f"{len(samples)} samples: {again}."
        )
    uneven = [name for name, values in columns.items() if len(values) != len(samples)]
    if uneven or len(set(samples)) != len(samples):
        what = f"the column {uneven[0]!r} has another length" if uneven else "a sample is there twice"
        raise InputError(f"{path}: {what}; {again}.")
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~np.isfinite(weights).all(1) | (weights < 0).any(1) | ~(weights.sum(1) > 0))
    if len(bad):
        raise InputError(
            f"{path}: the proportions of {samples[bad[0]]} (and {len(bad) - 1} more) are NaN, negative or all zero; "
            f"embed these samples again."
        )


class H5ad(NamedTuple):
    """What an .h5ad holds."""

    samples: list[str]
    weights: np.ndarray | None  # (n, C)
    columns: dict[str, list[str]]  # of the observations, as text
    names: list[str]  # of the variables
    about: dict[str, Any]  # settings, and the hash of the prototypes
    vectors: (
        np.ndarray | tuple[np.dtype, int, tuple[int, ...]] | None
    )  # X, or where its bytes lie in the file; None: sparse


def read_h5ad(path: Path) -> H5ad:
    """Content of an .h5ad; `X` is mapped where its bytes lie in the file as they are."""
    content = call_isolated(_h5ad, path)
    if isinstance(content.vectors, tuple):
        dtype, offset, shape = content.vectors
        # mode "c": what is written stays in memory, as torch wants it
        return content._replace(vectors=np.memmap(path, dtype, "c", offset, shape))
    return content


def _h5ad(path: Path) -> H5ad:
    import h5py

    with opened_anndata(path) as table:
        weights = np.asarray(table.obsm["pi"]) if "pi" in table.obsm else None
        columns = {str(name): [str(value) for value in table.obs[name]] for name in table.obs.columns}
        samples, names = ([str(name) for name in axis] for axis in (table.obs_names, table.var_names))
    with reading(), h5py.File(path, "r") as h5:
        found = h5.get("uns/panther", {})
        about: dict[str, Any] = {name: _scalar(found[name]) for name in ("prototypes_hash",) if name in found}
        about["settings"] = {name: _scalar(value) for name, value in found.get("settings", {}).items()}
        x, vectors = h5["X"], None
        if isinstance(x, h5py.Dataset):
            if x.is_virtual or x.external:
                raise ValueError("X lies in other files")
            offset = x.id.get_offset()  # None where it is in chunks, or was never written
            plain = offset is not None and x.dtype.isnative and 0 not in x.shape
            vectors = (x.dtype, offset, x.shape) if plain else x[...]
    return H5ad(samples, weights, columns, names, about, vectors)


@contextmanager
def opened_anndata(path: Path) -> "Iterator[anndata.AnnData]":
    """AnnData whose matrix stays in the file; a ValueError where it is none, whatever a damaged one makes anndata raise."""
    import anndata

    try:
        with reading():
            table = anndata.read_h5ad(path, backed="r")
            try:
                yield table
            finally:
                table.file.close()
    except (OSError, MemoryError, InputError):
        raise
    except Exception as error:
        raise ValueError(str(error)) from error


def matrix_of_h5ad(path: Path, key: str | None) -> tuple[list[str], np.ndarray]:
    """Names of the observations, and `X` or `obsm/NAME`."""
    with opened_anndata(path) as table:
        known = (["X"] if table.shape[1] else []) + [f"obsm/{name}" for name in table.obsm]
        wanted = f"obsm/{key}" if f"obsm/{key}" in known else key or "X"
        if wanted not in known:
            raise InputError(f"{path}: there is no {wanted!r}; {suggestion(wanted, known)}.")
        values = table.X[:] if wanted == "X" else table.obsm[wanted.removeprefix("obsm/")]
        matrix = np.asarray(values.todense() if hasattr(values, "todense") else values)
        return [str(name) for name in table.obs_names], matrix


def _scalar(value: Any) -> Any:
    """Setting as it was before `_storable` of storage.embeddings, which makes JSON text of lists."""
    found = value[()]
    if not isinstance(found, bytes):
        return found.item() if hasattr(found, "item") else found
    text = found.decode()
    return json.loads(text) if text.startswith("[") else text


def _read_h5ad(path: Path) -> tuple[list[str], np.ndarray | None, dict[str, list[str]]]:
    return read_h5ad(path)[:3]


def _read_npz(path: Path) -> tuple[list[str], np.ndarray | None, dict[str, list[str]]]:
    # opened here, because np.load leaves a file open that turns out to be no archive
    with path.open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
        columns = {n.removeprefix("obs_"): [str(v) for v in arrays[n]] for n in arrays.files if n.startswith("obs_")}
        return [str(s) for s in arrays["samples"]], arrays["pi"] if "pi" in arrays.files else None, columns


READERS = {".h5ad": _read_h5ad, ".npz": _read_npz}


def _vectors_h5ad(path: Path) -> tuple[list[str], np.ndarray, str | None]:
    content = read_h5ad(path)
    made_with = content.about.get("prototypes_hash")
    return content.samples, np.array(content.vectors), None if made_with is None else str(made_with)


def _vectors_npz(path: Path) -> tuple[list[str], np.ndarray, str | None]:
    with path.open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
        about = json.loads(str(arrays["panther"])) if "panther" in arrays.files else {}
        return [str(s) for s in arrays["samples"]], arrays["X"], about.get("prototypes_hash")


VECTORS = {".h5ad": _vectors_h5ad, ".npz": _vectors_npz}
