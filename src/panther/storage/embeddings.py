"""Slide embeddings on disk: AnnData (.h5ad, opens in scanpy) or a plain .npz."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panther.content import hash_contents
from panther.errors import InputError
from panther.feature_space import Basis
from panther.storage.atomic import atomic_write
from panther.storage.files import DAMAGE
from panther.storage.names import refuse_collisions
from panther.storage.pickles import load_arrays
from panther.types import Prototypes
from panther.version import __version__

if TYPE_CHECKING:
    import anndata
    import pandas as pd

FORMAT = 1
MIXTURES = ".mixtures.npz"  # how the name of a file of plain mixtures ends
STATISTICS = {"weight": "pi", "mean": "mu", "variance": "sigma"}


@dataclass(frozen=True)
class EmbeddingTable:
    """Embeddings of a cohort, one row per slide or patient."""

    samples: list[str]
    vectors: np.ndarray  # (n, out_dim), perhaps a memory map
    observations: Mapping[str, list[Any]]  # one value per row: n_patches, effective_prototypes, ...
    weights: np.ndarray | None  # (n, C), the mixture weights
    columns: list[tuple[int, str, int]]  # (prototype, statistic, dimension) of each number
    prototypes: Basis
    settings: Mapping[str, Any]
    failures: Mapping[str, str] = field(default_factory=dict)
    clinical: "pd.DataFrame | None" = None  # indexed by sample
    contents: Mapping[str, str] = field(default_factory=dict)  # sample -> hash of its features

    def about(self) -> dict[str, Any]:
        """What made these numbers, for the file."""
        p = self.prototypes
        return {
            "format": FORMAT,
            "settings": dict(self.settings),
            **_prototypes(p),
            "parents": hash_contents(self.contents),
            "encoder": p.encoder,
            "patch_spec": p.spec.known(),
            "version": __version__,
        }

    def to_anndata(self) -> "anndata.AnnData":
        """AnnData for scanpy: `X`, `obs` (observations, clinical columns), `var` (prototype, statistic, dimension) and `obsm["pi"]`."""
        try:
            import anndata
        except ImportError as error:
            raise InputError(
                "Writing .h5ad needs anndata (pip install anndata); or give an output that ends in .npz."
            ) from error
        import pandas as pd

        obs = pd.DataFrame(dict(self.observations), index=pd.Index(self.samples, dtype=object))
        if self.clinical is not None:
            obs = obs.join(_clinical_columns(self.clinical, obs))
        var = pd.DataFrame(
            {
                "prototype": pd.Categorical([f"C{c}" if c >= 0 else "all" for c, _, _ in self.columns]),
                "statistic": pd.Categorical([STATISTICS.get(s, s) for _, s, _ in self.columns]),
                "dimension": np.array([j for _, _, j in self.columns], np.int32),
            },
            index=pd.Index([column_name(*column) for column in self.columns], dtype=object),
        )
        uns = {"panther": _storable(self.about())}
        data = anndata.AnnData(X=np.asarray(self.vectors), obs=obs, var=var, uns=uns)
        if self.weights is not None:
            data.obsm["pi"] = self.weights.astype(np.float32)
        return data

    def to_frame(self) -> "pd.DataFrame":
        """Numbers as a DataFrame: one row per slide or patient, columns such as `C3:mu:17`."""
        import pandas as pd

        names = [column_name(*column) for column in self.columns]
        return pd.DataFrame(np.asarray(self.vectors), index=pd.Index(self.samples, dtype=object), columns=names)


def _prototypes(basis: Basis) -> dict[str, Any]:
    """The prototypes, where there are any."""
    if not isinstance(basis, Prototypes):
        return {}
    return {"prototypes": basis.centroids.numpy(), "prototypes_hash": basis.content_hash()}


def write_embeddings(table: EmbeddingTable, path: Path, dtype: str = "float32") -> float:
    """Write embeddings whole or not at all, as the ending of ``path`` says; returns the largest error of ``dtype``.

    The error is relative to each column's largest magnitude; 0 for float32.
    """
    check_embedding_path(path)
    stored, error = _narrowed(table.vectors, dtype)
    with atomic_write(path) as temporary:
        writer_of(path)(replace(table, vectors=stored), temporary)
    return error


def check_embedding_path(path: Path) -> None:
    """Refuse a name that no writer is known for, before the work is done."""
    if path.suffix not in WRITERS:
        raise InputError(
            f"{path}: embeddings are written as {' or '.join(WRITERS)}; give the output one of these endings."
        )


def writer_of(path: Path) -> Callable[["EmbeddingTable", Path], None]:
    """Writer by the name of the file: `x.mixtures.npz` holds mixtures as plain arrays, `x.npz` embeddings."""
    if not path.name.endswith(MIXTURES):
        return WRITERS[path.suffix]
    from panther.storage.embedding_files.mixtures import write_mixtures  # which reads what is written here

    return write_mixtures


def _narrowed(vectors: np.ndarray, dtype: str) -> tuple[np.ndarray, float]:
    if dtype == "float32":
        return vectors, 0.0
    stored = np.empty(vectors.shape, np.float16)
    error, largest = np.zeros(vectors.shape[1]), np.zeros(vectors.shape[1])
    for index, row in enumerate(vectors):
        if np.abs(row).max() > np.finfo(np.float16).max:
            raise InputError(
                f"An embedding holds numbers up to {np.abs(row).max():.3g}, too large for float16; use `dtype=float32`."
            )
        stored[index] = row
        error = np.maximum(error, np.abs(row - stored[index].astype(np.float32)))
        largest = np.maximum(largest, np.abs(row))
    return stored, float((error / np.maximum(largest, np.finfo(np.float32).tiny)).max())


def _write_h5ad(table: EmbeddingTable, path: Path) -> None:
    table.to_anndata().write_h5ad(path)


def _clinical_columns(clinical: "pd.DataFrame", obs: "pd.DataFrame") -> "pd.DataFrame":
    """Columns of the clinical table that AnnData can store: text and mixed columns become categories."""
    extra = clinical.reindex(obs.index)[[c for c in clinical.columns if c not in obs.columns]].copy()
    for name in extra.columns:
        if extra[name].dtype.kind not in "fiub":
            extra[name] = extra[name].map(str, na_action="ignore").astype("category")
    return extra.rename(columns=_column)


def check_columns(clinical: "pd.DataFrame") -> None:
    """Refuse, before the work, columns that would be stored under one name."""
    names = [str(name) for name in clinical.columns]
    refuse_collisions("The table", names, [_column(name) for name in names])


def _column(name: Any) -> str:
    """Name that HDF5 and AnnData accept: a slash would be a folder, and `_index` is theirs."""
    name = str(name).replace("/", "_")
    return "index" if name == "_index" else name


def _write_npz(table: EmbeddingTable, path: Path) -> None:
    arrays: dict[str, Any] = {
        "X": table.vectors,
        "samples": np.array(table.samples),
        "columns": np.array([column_name(*column) for column in table.columns]),
        **{f"obs_{name}": np.array(values) for name, values in table.observations.items()},
        "panther": np.array(json.dumps(table.about(), default=_listed, sort_keys=True)),
    }
    if table.weights is not None:
        arrays["pi"] = table.weights.astype(np.float32)
    if table.clinical is not None:
        rows = table.clinical.reindex(table.samples)
        clinical = {f"obs_{_column(name)}": _plain(rows[name]) for name in rows.columns}
        arrays = clinical | arrays  # what was measured counts, as in .h5ad
    with path.open("wb") as handle:  # np.savez would append .npz to the temporary name
        np.savez(handle, **arrays)


def _plain(column: "pd.Series") -> np.ndarray:
    """Numbers stay numbers, anything else becomes text: nothing in the file needs a pickle."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "fiub":
        return column.to_numpy()
    return column.map(str, na_action="ignore").fillna("").to_numpy(dtype=str)


WRITERS = {".h5ad": _write_h5ad, ".npz": _write_npz}


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


def check_weights(path: Path, samples: list[str], weights: np.ndarray, columns: Mapping[str, list[str]]) -> None:
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


def load_published_embeddings(path: Path) -> dict[str, np.ndarray]:
    """Embeddings of the published PANTHER code: a pickle {split: {X, y}}, X = [pi | mu | Sigma]."""
    content = load_arrays(path)
    if (
        not isinstance(content, dict)
        or not content
        or not all(isinstance(part, dict) and "X" in part for part in content.values())
    ):
        raise InputError(f"{path}: expected a pickle of {{split: {{X, y}}}}, as the published code writes.")
    return {str(split): np.asarray(part["X"], np.float32) for split, part in content.items()}


def from_published_order(x: np.ndarray, n_prototypes: int) -> np.ndarray:
    """Reorder [pi | mu | Sigma] to the paper's [pi_1, mu_1, Sigma_1, ..., pi_C, mu_C, Sigma_C]; x is (n, C(1+2d))."""
    n, width = x.shape
    dim, rest = divmod(width // n_prototypes - 1, 2)
    if width % n_prototypes or rest or dim < 1:
        raise InputError(
            f"{width} numbers are not C(1+2d) for C = {n_prototypes}; give the number of prototypes that was used."
        )
    weights = x[:, :n_prototypes].reshape(n, n_prototypes, 1)
    means, variances = x[:, n_prototypes:].reshape(n, 2, n_prototypes, dim).transpose(1, 0, 2, 3)
    return np.concatenate([weights, means, variances], axis=2).reshape(n, width)


def column_name(prototype: int, statistic: str, dimension: int) -> str:
    """`C3:mu:17`: prototype, statistic, dimension."""
    owner = f"C{prototype}:" if prototype >= 0 else ""
    return owner + STATISTICS.get(statistic, statistic) + (f":{dimension}" if dimension >= 0 else "")


def _storable(value: Any) -> Any:
    """Nested settings as anndata can store them: None and lists as JSON text."""
    if isinstance(value, Mapping):
        return {str(key): _storable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)) or value is None:
        return json.dumps(value)
    return value


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else str(value)
