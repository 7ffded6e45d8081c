"""Slide embeddings: AnnData (.h5ad or .zarr, opens in scanpy), which all commands read, and .npz as an export for NumPy."""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from panther.errors import InputError, plain, suggestion
from panther.machine import reading
from panther.rows import as_tensor
from panther.storage.files import read_errors
from panther.storage.isolated import call_isolated
from panther.storage.names import refuse_collisions
from panther.storage.readers.base import check_numbers, mapped
from panther.store import atomic_write, h5_writer, hash_contents, is_stored_embeddings
from panther.types import Basis, Prototypes, Rows
from panther.version import __version__

if TYPE_CHECKING:
    import anndata
    import pandas as pd

FORMAT = 1
STATISTICS = {"weight": "pi", "mean": "mu", "variance": "sigma"}
AGAIN = "write the file again with `panther embed`"


@dataclass(frozen=True, repr=False)
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
    weights_se: np.ndarray | None = (
        None  # (n, C), standard errors of the weights, where samples of patches were encoded
    )

    def __repr__(self) -> str:
        basis = f" on {len(self.prototypes)} prototypes" if isinstance(self.prototypes, Prototypes) else ""
        failed = f"; {len(self.failures)} failed" if self.failures else ""
        shape = f"{len(self.samples)} samples x {len(self.columns)} numbers"
        return f"<EmbeddingTable {shape}, {self.settings.get('method', 'embedded')}{basis}{failed}>"

    def about(self) -> dict[str, Any]:
        """Settings and provenance, for the file."""
        p, basis = self.prototypes, {}
        if isinstance(p, Prototypes):
            basis = {"prototypes": p.centroids.numpy(), "prototypes_hash": p.content_hash()}
        return {
            "format": FORMAT,
            "settings": dict(self.settings),
            **basis,
            "parents": hash_contents(self.contents),
            "encoder": p.encoder,
            "patch_spec": p.spec.known(),
            "version": __version__,
            "failures": dict(self.failures),
        }

    def to_lines(self) -> list[str]:
        """Lines for people."""
        return [f"{len(self.samples)} embeddings of {self.vectors.shape[1]:,} numbers ({self.settings.get('method')})"]

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "samples": len(self.samples),
            "dim": int(self.vectors.shape[1]),
            "settings": dict(self.settings),
            "observations": {"sample": self.samples, **self.observations},
        }

    def notes(self) -> list[str]:
        """Notes on embeddings to be interpreted with care."""
        total, notes = len(self.samples), []
        effective = self.observations.get("effective_prototypes", [])
        collapsed = [s for s, value in zip(self.samples, effective, strict=False) if value < 1.05]
        if collapsed and self.weights is not None and self.weights.shape[1] > 1:
            notes.append(
                f"{len(collapsed)} of {len(effective)} samples collapse into one prototype, e.g. {collapsed[0]}: another site or scanner than the "
                "prototypes'? Try a higher temperature (--set temperature=10) or preset=calibrated"
            )
        texts = {
            "absent_prototypes": "samples have less than one patch of some prototype (absent_prototypes): its mean and variance are used",
            "inferred_step": "files lack the distance of patches; the commonest of their coordinates is used",
        }
        if self.weights_se is not None:
            sampled = int((self.weights_se > 0).any(1).sum())
            notes.append(
                f"{sampled} of {total} samples have a sample of their patches encoded: the standard errors of pi (pi_se) are "
                f"at most {self.weights_se.max():.2g}"
            )
        counts = {name: sum(map(bool, self.observations.get(name, []))) for name in texts}
        return notes + [f"{counts[name]} of {total} {text}" for name, text in texts.items() if counts[name]]

    def to_anndata(self) -> "anndata.AnnData":
        """AnnData for scanpy: `X`, `obs` (observations, clinical columns), `var` (prototype, statistic, dimension) and `obsm["pi"]`.

        `obsm["pi_se"]` has the standard errors of pi where samples of the slides' patches were encoded.

        `uns["panther"]` has the settings, and as `failures` the reasons of samples that failed (JSON, since not every name is a valid HDF5 key).
        """
        import anndata
        import pandas as pd

        obs = pd.DataFrame(dict(self.observations), index=pd.Index(self.samples, dtype=object))
        if self.clinical is not None:
            extra = self.clinical.reindex(obs.index)[[c for c in self.clinical.columns if c not in obs.columns]].copy()
            for name in extra.columns:  # AnnData stores text and mixed columns as categories
                if extra[name].dtype.kind not in "fiub":
                    extra[name] = extra[name].map(str, na_action="ignore").astype("category")
            obs = obs.join(extra.rename(columns=_column))
        var = pd.DataFrame(
            {
                "prototype": pd.Categorical([f"C{c}" if c >= 0 else "all" for c, _, _ in self.columns]),
                "statistic": pd.Categorical([STATISTICS.get(s, s) for _, s, _ in self.columns]),
                "dimension": np.array([j for _, _, j in self.columns], np.int32),
            },
            index=pd.Index([column_name(*column) for column in self.columns], dtype=object),
        )
        uns = {"panther": _storable({**self.about(), "failures": json.dumps(dict(self.failures))})}
        data = anndata.AnnData(X=np.asarray(self.vectors), obs=obs, var=var, uns=uns)
        if self.weights is not None:
            data.obsm["pi"] = self.weights.astype(np.float32)
        if self.weights_se is not None:
            data.obsm["pi_se"] = self.weights_se.astype(np.float32)
        return data

    def to_frame(self) -> "pd.DataFrame":
        """Numbers as a DataFrame: one row per slide or patient, columns such as `C3:mu:17`."""
        import pandas as pd

        names = [column_name(*column) for column in self.columns]
        return pd.DataFrame(np.asarray(self.vectors), index=pd.Index(self.samples, dtype=object), columns=names)


def write_embeddings(table: EmbeddingTable, path: Path) -> None:
    """Write embeddings in the format of the ending of ``path``."""
    check_embedding_path(path)
    with atomic_write(path) as temporary:
        WRITERS[path.suffix](table, temporary)


def check_embedding_path(path: Path) -> None:
    """Refuse an unknown ending before the work."""
    if path.suffix not in WRITERS:
        raise InputError(f"{path}: expected an ending {' or '.join(WRITERS)}")


def _write_h5ad(table: EmbeddingTable, path: Path) -> None:
    data = table.to_anndata()
    from anndata.io import write_elem

    data.strings_to_categoricals()  # as `write_h5ad` does, which opens the file itself
    with h5_writer(path) as file:
        write_elem(file, "/", data)
        file.pop("raw", None)  # `write_h5ad` omits an empty one


def _write_zarr(table: EmbeddingTable, path: Path) -> None:
    import zarr
    from anndata.io import write_elem

    data = table.to_anndata()
    data.strings_to_categoricals()
    path.unlink()  # the temporary file becomes a folder
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of zarr, about texts, which other languages may read differently
        write_elem(zarr.open_group(path, mode="w", zarr_format=3), "/", data)


def check_columns(clinical: "pd.DataFrame") -> None:
    """Refuse, before the work, columns that would be stored under the same name."""
    names = [str(name) for name in clinical.columns]
    refuse_collisions("The table", names, [_column(name) for name in names])


def _column(name: Any) -> str:
    """Name that HDF5 and AnnData accept: a slash would be a group, and `_index` is reserved."""
    name = str(name).replace("/", "_")
    return "index" if name == "_index" else name


def _write_npz(table: EmbeddingTable, path: Path) -> None:
    data = table.to_anndata()
    arrays: dict[str, Any] = {
        "X": table.vectors,
        "samples": np.array(table.samples),
        "columns": np.array(data.var_names, dtype=str),
        **{f"obs_{name}": _plain(data.obs[name]) for name in data.obs.columns},
        "panther": np.array(
            json.dumps(
                table.about(), default=lambda x: x.tolist() if isinstance(x, np.ndarray) else str(x), sort_keys=True
            )
        ),
        **data.obsm,
    }
    with path.open("wb") as handle:  # np.savez would append .npz to the temporary name
        np.savez(handle, **arrays)


def _plain(column: "pd.Series") -> np.ndarray:
    """Column of numbers, or as text, so that the file needs no pickle."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "fiub":
        return column.to_numpy()
    return column.astype(object).map(str, na_action="ignore").fillna("").to_numpy(dtype=str)


WRITERS = {".h5ad": _write_h5ad, ".zarr": _write_zarr, ".npz": _write_npz}
READ = (".h5ad", ".zarr")


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


def mixture_components(names: Sequence[str]) -> int:
    """Number of components if columns are [pi, mu, Sigma] of each component, else 0."""
    count = sum(name.endswith(":pi") for name in names)
    dim, rest = divmod(len(names) - count, 2 * count) if count else (0, 1)
    if rest or dim < 1:
        return 0
    statistics = [("weight", -1), *((what, j) for what in ("mean", "variance") for j in range(dim))]
    wanted = [column_name(c, what, j) for c in range(count) for what, j in statistics]
    return count if list(names) == wanted else 0


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Embeddings of a cohort, one row per slide or patient."""

    source: str
    samples: tuple[str, ...]
    rows: Rows  # (n, D)
    weights: np.ndarray | None = None  # (n, C), proportions of the prototypes
    mixtures: int = 0  # C if rows are [pi, mu, Sigma] of C components, else 0
    columns: Mapping[str, list[str]] = field(default_factory=dict)  # clinical ones, as text
    made_with: str | None = None  # hash of the prototypes
    settings: Mapping[str, Any] = field(default_factory=dict)  # method and its settings
    problems: tuple[str, ...] = ()  # reasons for slides that could not be read

    def take(self, samples: Sequence[str]) -> "Embeddings":
        """Rows of these samples, in this order; in memory."""
        row_of = {name: row for row, name in enumerate(self.samples)}
        chosen = [row_of[name] for name in samples]
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


def open_embeddings(path: Path) -> Embeddings:
    """Embeddings of a file of `panther embed` (.h5ad, .zarr); vectors that are stored contiguously are memory-mapped."""
    return _checked(_read(path))


def read_vectors(path: Path) -> tuple[list[str], np.ndarray, str | None]:
    """Samples, vectors (n, D) and the hash of the prototypes (None: not in the file) of an embeddings file; proportions are not checked."""
    embeddings = _checked(replace(_read(path), weights=None))
    return list(embeddings.samples), embeddings.rows[:].numpy(), embeddings.made_with


def read_weights(path: Path, needed: str, *wanted: str) -> tuple[list[str], np.ndarray, dict[str, list[str]]]:
    """Samples, mixture weights (n, C) and columns (as text) of an embeddings file; the ``needed`` column must exist."""
    embeddings = _read(path)
    columns = embeddings.columns
    if embeddings.weights is None:
        raise InputError(f"{path}: holds no proportions (pi); embed with panther, protocounts or h2t")
    _check_weights(embeddings)
    if needed not in columns:
        raise InputError(f"{path}: no column {needed!r} among {', '.join(sorted(columns))}; `table=` adds columns")
    if missing := sum(value in ("", "nan") for value in columns[needed]):
        raise InputError(f"{path}: {missing} samples have no {needed}")
    return list(embeddings.samples), embeddings.weights, {n: columns[n] for n in (needed, *wanted) if n in columns}


def _read(path: Path) -> Embeddings:
    if path.suffix not in READ:
        raise InputError(f"{path}: not an embeddings file, expected {' or '.join(READ)}")
    if not path.exists():
        raise InputError(f"{path}: there is no such file; write embeddings with `panther embed`")
    with read_errors(path, "file of embeddings", AGAIN):
        embeddings: Embeddings = call_isolated(_read_anndata, path)
        if isinstance(embeddings.rows, tuple):
            dtype, offset, shape = embeddings.rows
            check_numbers("X", dtype)
            return replace(embeddings, rows=mapped(path, dtype, offset, shape))
        return embeddings


@contextmanager
def open_anndata(path: Path) -> Iterator[Any]:
    """The groups of an .h5ad file or a .zarr folder; to be used in a process that a damaged file may crash."""
    import h5py

    if not path.is_dir():
        with reading(), h5py.File(path, "r") as file:
            yield file
        return
    if not is_stored_embeddings(path):
        raise InputError(f"{path}: a folder without obs and var, expected AnnData; {AGAIN}")
    import zarr

    with reading():
        yield zarr.open_group(path, mode="r", use_consolidated=False)


def _read_anndata(path: Path) -> Embeddings:
    """Content of AnnData; a contiguous `X` as (dtype, offset, shape), to be mapped by the process that uses it, a sparse one as None."""
    import h5py
    from anndata.io import read_elem

    with open_anndata(path) as store:
        obs, var, uns = read_elem(store["obs"]), read_elem(store["var"]), store.get("uns/panther", {})
        about = {name: read_elem(uns[name]) for name in ("prototypes_hash", "settings") if name in uns}
        weights = read_elem(store["obsm/pi"]) if "obsm/pi" in store else None
        x, rows = store["X"], None
        if isinstance(x, h5py.Dataset):
            if x.is_virtual or x.external:
                raise InputError("X lies in other files")
            offset = x.id.get_offset()  # None where it is in chunks, or was never written
            rows = x[...] if offset is None or not x.dtype.isnative or 0 in x.shape else (x.dtype, offset, x.shape)
        elif hasattr(x, "shape"):
            rows = x[...]
        return _embeddings(str(path), obs, var, weights, about, rows)


def _embeddings(
    source: str, obs: "pd.DataFrame", var: "pd.DataFrame", weights: Any, about: Mapping[str, Any], rows: Any
) -> Embeddings:
    made_with, settings = about.get("prototypes_hash"), plain(about.get("settings", {}))
    return Embeddings(
        source,
        tuple(map(str, obs.index)),
        rows,
        None if weights is None else np.asarray(weights),
        mixture_components([str(name) for name in var.index]),
        {str(name): [str(value) for value in obs[name]] for name in obs.columns},
        None if made_with is None else str(made_with),
        {  # lists were written as JSON text, see `_storable`
            name: json.loads(value) if isinstance(value, str) and value.startswith("[") else value
            for name, value in (settings.items() if isinstance(settings, Mapping) else ())
        },
    )


def _checked(embeddings: Embeddings) -> Embeddings:
    source, samples, weights = embeddings.source, embeddings.samples, embeddings.weights
    if weights is not None:
        _check_weights(embeddings)
        weights = weights.astype(np.float64)
    if embeddings.rows is None:
        raise InputError(f"{source}: X is sparse, expected a dense matrix; {AGAIN}")
    rows = as_tensor(f"{source}: X", embeddings.rows)
    fits = rows.ndim == 2 and rows.is_floating_point() and len(set(samples)) == len(samples) == len(rows)
    if not fits or 0 in rows.shape:
        raise InputError(f"{source}: X is {tuple(rows.shape)} of {rows.dtype} for {len(samples)} samples; {AGAIN}")
    return replace(embeddings, rows=rows, weights=weights)


def _check_weights(embeddings: Embeddings) -> None:
    """Refuse invalid proportions, and samples that repeat."""
    source, samples, weights = embeddings.source, embeddings.samples, np.asarray(embeddings.weights)
    if weights.ndim != 2 or weights.dtype.kind not in "fiu" or len(weights) != len(samples) or 0 in weights.shape:
        raise InputError(f"{source}: pi is {weights.shape} of {weights.dtype} for {len(samples)} samples; {AGAIN}")
    if len(set(samples)) != len(samples):
        raise InputError(f"{source}: a sample is there twice; {AGAIN}")
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~np.isfinite(weights).all(1) | (weights < 0).any(1) | ~(weights.sum(1) > 0))
    if len(bad):
        first = samples[bad[0]]
        raise InputError(f"{source}: proportions of {len(bad)} samples are NaN, negative or all zero, e.g. of {first}")


def matrix_of_anndata(path: Path, key: str | None) -> tuple[list[str], np.ndarray]:
    """Names of the observations, and `X` or `obsm/NAME`."""
    from anndata.io import read_elem

    with open_anndata(path) as store:
        known = (["X"] if "X" in store else []) + [f"obsm/{name}" for name in store.get("obsm", {})]
        wanted = f"obsm/{key}" if f"obsm/{key}" in known else key or "X"
        if wanted not in known:
            raise InputError(f"{path}: there is no {wanted!r}; {suggestion(wanted, known)}")
        return [str(name) for name in read_elem(store["obs"]).index], _dense(read_elem(store[wanted]))


def _dense(matrix: Any) -> np.ndarray:
    return np.asarray(matrix.todense() if hasattr(matrix, "todense") else matrix)


def is_in_memory(value: object) -> bool:
    """Whether a value is a table of embeddings or AnnData (checked without importing anndata)."""
    anndata = all(hasattr(value, name) for name in ("obs_names", "var_names", "obsm", "uns"))
    return anndata or isinstance(value, (EmbeddingTable, Embeddings))


def of_memory(value: Any) -> Embeddings:
    """Embeddings of a value for which :func:`is_in_memory` is true."""
    if isinstance(value, Embeddings):
        return value
    data = value.to_anndata() if isinstance(value, EmbeddingTable) else value
    about, matrix = data.uns.get("panther", {}), None if data.X is None else _dense(data.X)
    return _checked(_embeddings("The embeddings", data.obs, data.var, data.obsm.get("pi"), about, matrix))
