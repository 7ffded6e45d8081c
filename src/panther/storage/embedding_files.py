"""Embeddings read back, checked: files of `panther embed` (.h5ad, .npz), tables and AnnData in memory, and what the published code writes."""

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from panther.errors import InputError, suggestion
from panther.machine import reading
from panther.rows import as_tensor
from panther.storage.embeddings import EmbeddingTable, column_name, mixture_components
from panther.storage.files import DAMAGE
from panther.storage.isolated import call_isolated
from panther.storage.readers.base import check_numbers, mapped
from panther.storage.tensors import load_arrays
from panther.types import Rows

if TYPE_CHECKING:
    import anndata

AGAIN = "write the file again with `panther embed`"


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Embeddings of a cohort, one row per slide or patient."""

    source: str
    samples: tuple[str, ...]
    rows: Rows  # (n, D)
    weights: np.ndarray | None = None  # (n, C), proportions of the prototypes
    mixtures: int = 0  # C where rows are [pi, mu, Sigma] of C components, else 0
    columns: Mapping[str, list[str]] = field(default_factory=dict)  # clinical ones, as text
    made_with: str | None = None  # hash of the prototypes
    settings: Mapping[str, Any] = field(default_factory=dict)  # method and its settings
    problems: tuple[str, ...] = ()  # slides that could not be read, a sentence for each

    def position(self, sample: str) -> int:
        """Row of a sample."""
        return self.samples.index(sample)

    def take(self, samples: Sequence[str]) -> "Embeddings":
        """Rows of these samples, in this order; in memory."""
        place = {name: row for row, name in enumerate(self.samples)}
        chosen = [place[name] for name in samples]
        if chosen == list(range(len(self.samples))):
            return self
        return replace(
            self,
            samples=tuple(samples),
            rows=torch.stack([self.rows[row : row + 1][0] for row in chosen]),
            weights=None if self.weights is None else self.weights[chosen],
            columns={name: [values[row] for row in chosen] for name, values in self.columns.items()},
            problems=(),
        )


class Content(NamedTuple):
    """What a file, or AnnData, holds."""

    samples: list[str]
    weights: np.ndarray | None  # (n, C)
    columns: dict[str, list[str]]  # of the observations, as text
    names: list[str]  # of the variables
    about: Mapping[str, Any]  # settings, and the hash of the prototypes
    vectors: (
        Any  # (n, D) array or tensor; of an .h5ad in another process, where its bytes lie in the file; None: sparse
    )


def open_embeddings(path: Path) -> Embeddings:
    """Embeddings of a file of `panther embed` (.h5ad, .npz); the vectors are mapped where their bytes lie in the file as they are."""
    return _checked(path, _read(path))


def read_vectors(path: Path) -> tuple[list[str], np.ndarray, str | None]:
    """Samples, vectors (n, D) and the hash of the prototypes of an embeddings file; None where the file does not say it."""
    embeddings = _checked(path, _read(path)._replace(weights=None))
    return list(embeddings.samples), embeddings.rows[:].numpy(), embeddings.made_with


def read_weights(path: Path, needed: str, *wanted: str) -> tuple[list[str], np.ndarray, dict[str, list[str]]]:
    """Samples, mixture weights (n, C) and columns (as text) of an embeddings file; the ``needed`` column must be there."""
    content = _read(path)
    if content.weights is None:
        raise InputError(f"{path}: holds no proportions (pi); embed with panther, protocounts or h2t")
    check_weights(path, content.samples, content.weights, content.columns)
    if needed not in content.columns:
        raise InputError(
            f"{path}: no column {needed!r} among {', '.join(sorted(content.columns))}; `table=` adds clinical ones"
        )
    if missing := sum(value in ("", "nan") for value in content.columns[needed]):
        raise InputError(f"{path}: {missing} samples have no {needed}")
    return content.samples, content.weights, {n: content.columns[n] for n in (needed, *wanted) if n in content.columns}


def _read(path: Path) -> Content:
    if path.suffix not in READERS:
        raise InputError(f"{path}: not an embeddings file; expected {' or '.join(READERS)}")
    if not path.exists():
        raise InputError(f"{path}: there is no such file; write embeddings with `panther embed`")
    try:
        return READERS[path.suffix](path)
    except InputError:
        raise
    except DAMAGE as error:
        raise InputError(f"{path}: cannot be read as embeddings ({error}); {AGAIN}") from error


def _checked(source: Path | str, content: Content) -> Embeddings:
    samples, weights, vectors = content.samples, content.weights, content.vectors
    if weights is not None:
        check_weights(source, samples, weights, content.columns)
    if vectors is None:
        raise InputError(f"{source}: X is sparse; expected a dense one: {AGAIN}")
    rows = as_tensor(f"{source}: X", vectors)
    fits = rows.ndim == 2 and rows.is_floating_point() and len(set(samples)) == len(samples) == len(rows)
    if not fits or 0 in rows.shape:
        raise InputError(
            f"{source}: X is {tuple(rows.shape)} of {rows.dtype} for {len(samples)} samples; expected a row for each: {AGAIN}"
        )
    made_with, settings = content.about.get("prototypes_hash"), content.about.get("settings", {})
    return Embeddings(
        str(source),
        tuple(samples),
        rows,
        None if weights is None else weights.astype(np.float64),
        mixture_components(content.names),
        content.columns,
        None if made_with is None else str(made_with),
        {name: _setting(value) for name, value in settings.items()} if isinstance(settings, Mapping) else {},
    )


def check_weights(
    source: Path | str, samples: list[str], weights: np.ndarray, columns: Mapping[str, list[str]]
) -> None:
    """Refuse proportions that are none, and tables whose parts are not of one cohort."""
    if weights.ndim != 2 or weights.dtype.kind not in "fiu" or len(weights) != len(samples) or 0 in weights.shape:
        raise InputError(f"{source}: pi is {weights.shape} of {weights.dtype} for {len(samples)} samples; {AGAIN}")
    uneven = [name for name, values in columns.items() if len(values) != len(samples)]
    if uneven or len(set(samples)) != len(samples):
        what = f"the column {uneven[0]!r} has another length" if uneven else "a sample is there twice"
        raise InputError(f"{source}: {what}; {AGAIN}")
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~np.isfinite(weights).all(1) | (weights < 0).any(1) | ~(weights.sum(1) > 0))
    if len(bad):
        raise InputError(
            f"{source}: proportions of {len(bad)} samples are NaN, negative or all zero, e.g. of {samples[bad[0]]}"
        )


def _read_h5ad(path: Path) -> Content:
    content: Content = call_isolated(_h5ad, path)
    if not isinstance(content.vectors, tuple):
        return content
    dtype, offset, shape = content.vectors
    check_numbers(path, "X", dtype)
    return content._replace(vectors=mapped(path, dtype, offset, shape))


def _h5ad(path: Path) -> Content:
    import h5py

    with opened_anndata(path) as table:
        weights = np.asarray(table.obsm["pi"]) if "pi" in table.obsm else None
        samples, names = ([str(name) for name in axis] for axis in (table.obs_names, table.var_names))
        columns = _as_text(table.obs)
    with reading(), h5py.File(path, "r") as h5:
        stored = h5.get("uns/panther", {})
        about: dict[str, Any] = {name: _plain(stored[name]) for name in ("prototypes_hash",) if name in stored}
        about["settings"] = {name: _plain(value) for name, value in stored.get("settings", {}).items()}
        x, vectors = h5["X"], None
        if isinstance(x, h5py.Dataset):
            if x.is_virtual or x.external:
                raise ValueError("X lies in other files")
            offset = x.id.get_offset()  # None where it is in chunks, or was never written
            in_file = offset is not None and x.dtype.isnative and 0 not in x.shape
            vectors = (x.dtype, offset, x.shape) if in_file else x[...]
    return Content(samples, weights, columns, names, about, vectors)


def _as_text(table: Any) -> dict[str, list[str]]:
    """Columns of a DataFrame."""
    return {str(name): [str(value) for value in table[name]] for name in table.columns}


def _plain(value: Any) -> Any:
    """Scalar of HDF5 as Python's own."""
    scalar = value[()]
    return scalar.decode() if isinstance(scalar, bytes) else scalar.item() if hasattr(scalar, "item") else scalar


def _setting(value: Any) -> Any:
    """Setting as it was before `_storable` of storage.embeddings, which makes JSON text of lists."""
    return json.loads(value) if isinstance(value, str) and value.startswith("[") else value


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
            raise InputError(f"{path}: there is no {wanted!r}; {suggestion(wanted, known)}")
        values = table.X[:] if wanted == "X" else table.obsm[wanted.removeprefix("obsm/")]
        matrix = np.asarray(values.todense() if hasattr(values, "todense") else values)
        return [str(name) for name in table.obs_names], matrix


def _read_npz(path: Path) -> Content:
    # opened here, because np.load leaves a file open that turns out to be no archive
    with path.open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
        columns = {n.removeprefix("obs_"): [str(v) for v in arrays[n]] for n in arrays.files if n.startswith("obs_")}
        about = json.loads(str(arrays["panther"])) if "panther" in arrays.files else {}
        names = [str(name) for name in arrays["columns"]] if "columns" in arrays.files else []
        rows = _mapped_member(path, "X.npy")
        vectors = arrays["X"] if rows is None else rows
        weights = arrays["pi"] if "pi" in arrays.files else None
        return Content([str(s) for s in arrays["samples"]], weights, columns, names, about, vectors)


def _mapped_member(path: Path, name: str) -> Rows | None:
    """Array of an .npz over the bytes of the file; None where it is compressed or not in the order of C."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED:
        return None
    with path.open("rb") as handle:
        handle.seek(info.header_offset + 26)  # the local header tells the lengths of the name and of what follows it
        handle.seek(int(np.frombuffer(handle.read(4), "<u2").sum()), 1)
        version = np.lib.format.read_magic(handle)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = header(handle)
        return None if fortran or dtype.kind != "f" else mapped(path, dtype, handle.tell(), shape)


READERS: dict[str, Callable[[Path], Content]] = {".h5ad": _read_h5ad, ".npz": _read_npz}


def is_in_memory(value: object) -> bool:
    """Whether it is a table of embeddings, or AnnData, which is not imported to find out."""
    anndata = all(hasattr(value, name) for name in ("obs_names", "var_names", "obsm", "uns"))
    return anndata or isinstance(value, (EmbeddingTable, Embeddings))


def of_memory(value: Any) -> Embeddings:
    """Embeddings of what :func:`is_in_memory` knows."""
    if isinstance(value, Embeddings):
        return value
    return _checked("The embeddings", _of_table(value) if isinstance(value, EmbeddingTable) else _of_anndata(value))


def _of_table(table: EmbeddingTable) -> Content:
    names = [column_name(*column) for column in table.columns]
    columns = {name: [str(value) for value in values] for name, values in table.observations.items()}
    if table.clinical is not None:
        columns |= _as_text(table.clinical.reindex(table.samples))
    about = {"prototypes_hash": table.prototypes.content_hash(), "settings": table.settings}
    return Content(table.samples, table.weights, columns, names, about, table.vectors)


def _of_anndata(data: Any) -> Content:
    """`X`, `obs`, the proportions in `obsm["pi"]`, and what `panther embed` has noted in `uns`."""
    samples, names = ([str(name) for name in axis] for axis in (data.obs_names, data.var_names))
    weights = np.asarray(data.obsm["pi"], np.float64) if "pi" in data.obsm else None
    matrix = np.asarray(data.X.todense() if hasattr(data.X, "todense") else data.X)
    return Content(samples, weights, _as_text(data.obs), names, data.uns.get("panther", {}), matrix)


def load_published_embeddings(path: Path) -> dict[str, np.ndarray]:
    """Embeddings of the published PANTHER code: a pickle {split: {X, y}}, X = [pi | mu | Sigma]."""
    content = load_arrays(path)
    parts = list(content.values()) if isinstance(content, dict) else []
    if not parts or not all(isinstance(part, dict) and "X" in part for part in parts):
        raise InputError(f"{path}: expected a pickle of {{split: {{X, y}}}}, as the published code writes")
    return {str(split): np.asarray(part["X"], np.float32) for split, part in content.items()}


def from_published_order(x: np.ndarray, n_prototypes: int) -> np.ndarray:
    """Reorder [pi | mu | Sigma] to the paper's [pi_1, mu_1, Sigma_1, ..., pi_C, mu_C, Sigma_C]; x is (n, C(1+2d))."""
    n, width = x.shape
    dim, rest = divmod(width // n_prototypes - 1, 2)
    if width % n_prototypes or rest or dim < 1:
        raise InputError(f"{width} numbers are not C(1+2d) for C = {n_prototypes}")
    weights = x[:, :n_prototypes].reshape(n, n_prototypes, 1)
    means, variances = x[:, n_prototypes:].reshape(n, 2, n_prototypes, dim).transpose(1, 0, 2, 3)
    return np.concatenate([weights, means, variances], axis=2).reshape(n, width)
