"""Proportions and vectors read back from a file of embeddings, checked."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from panther.errors import InputError
from panther.storage.files import DAMAGE

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


def open_anndata(path: Path) -> "anndata.AnnData":
    """AnnData whose matrix stays in the file; a ValueError where it is none, whatever a damaged one makes anndata raise."""
    import anndata

    try:
        return anndata.read_h5ad(path, backed="r")
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise ValueError(str(error)) from error


def _read_h5ad(path: Path) -> tuple[list[str], np.ndarray | None, dict[str, list[str]]]:
    table = open_anndata(path)
    weights = np.asarray(table.obsm["pi"]) if "pi" in table.obsm else None
    columns = {str(name): [str(value) for value in table.obs[name]] for name in table.obs.columns}
    samples = [str(name) for name in table.obs_names]
    table.file.close()
    return samples, weights, columns


def _read_npz(path: Path) -> tuple[list[str], np.ndarray | None, dict[str, list[str]]]:
    # opened here, because np.load leaves a file open that turns out to be no archive
    with path.open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
        columns = {n.removeprefix("obs_"): [str(v) for v in arrays[n]] for n in arrays.files if n.startswith("obs_")}
        return [str(s) for s in arrays["samples"]], arrays["pi"] if "pi" in arrays.files else None, columns


READERS = {".h5ad": _read_h5ad, ".npz": _read_npz}


def _vectors_h5ad(path: Path) -> tuple[list[str], np.ndarray, str | None]:
    table = open_anndata(path)
    try:
        found = table.uns.get("panther", {}).get("prototypes_hash")
        return [str(name) for name in table.obs_names], np.asarray(table.X[:]), None if found is None else str(found)
    finally:
        table.file.close()


def _vectors_npz(path: Path) -> tuple[list[str], np.ndarray, str | None]:
    with path.open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
        about = json.loads(str(arrays["panther"])) if "panther" in arrays.files else {}
        return [str(s) for s in arrays["samples"]], arrays["X"], about.get("prototypes_hash")


VECTORS = {".h5ad": _vectors_h5ad, ".npz": _vectors_npz}
