"""Slide embeddings on disk: AnnData (.h5ad, opens in scanpy) or a plain .npz."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panther.errors import InputError
from panther.storage.names import refuse_collisions
from panther.store import atomic_write, h5_writer, hash_contents
from panther.types import Basis, Prototypes
from panther.version import __version__

if TYPE_CHECKING:
    import anndata
    import pandas as pd


FORMAT = 1
MIXTURES = ".mixtures.npz"  # how the name of a file of plain mixtures ends
STATISTICS = {"weight": "pi", "mean": "mu", "variance": "sigma"}


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

    def __repr__(self) -> str:
        basis = f" on {len(self.prototypes)} prototypes" if isinstance(self.prototypes, Prototypes) else ""
        failed = f"; {len(self.failures)} failed" if self.failures else ""
        shape = f"{len(self.samples)} samples x {len(self.columns)} numbers"
        return f"<EmbeddingTable {shape}, {self.settings.get('method', 'embedded')}{basis}{failed}>"

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
        """Samples whose embeddings should be read with care."""
        effective = self.observations.get("effective_prototypes", [])
        collapsed = [s for s, value in zip(self.samples, effective, strict=False) if value < 1.05]
        counts = {
            name: sum(map(bool, self.observations.get(name, []))) for name in ("absent_prototypes", "inferred_step")
        }
        notes = []
        if collapsed and self.weights is not None and self.weights.shape[1] > 1:
            notes.append(
                f"{len(collapsed)} of {len(effective)} samples collapse into one prototype, e.g. {collapsed[0]}: another site or scanner than the "
                "prototypes'? Try a higher temperature (--set temperature=10) or preset=calibrated"
            )
        if absent := counts["absent_prototypes"]:
            notes.append(
                f"{absent} of {len(self.samples)} samples have less than one patch of some prototype, see absent_prototypes: its mean and variance "
                "are the prototype's"
            )
        if inferred := counts["inferred_step"]:
            notes.append(
                f"{inferred} of {len(self.samples)} files lack the distance of patches; the commonest of their coordinates is used"
            )
        return notes

    def to_anndata(self) -> "anndata.AnnData":
        """AnnData for scanpy: `X`, `obs` (observations, clinical columns), `var` (prototype, statistic, dimension) and `obsm["pi"]`.

        `uns["panther"]` has the settings, and as `failures` who was left out and why: JSON, since not every name may be a key in HDF5.
        """
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
        uns = {"panther": _storable({**self.about(), "failures": json.dumps(dict(self.failures))})}
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
    data = table.to_anndata()
    from anndata.io import write_elem

    data.strings_to_categoricals()  # as `write_h5ad` does, which opens the file itself
    with h5_writer(path) as file:
        write_elem(file, "/", data)
        file.pop("raw", None)  # which `write_h5ad` leaves out where there is none


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


def count_components(columns: Iterable[tuple[int, str, int]]) -> int:
    """Number of components where columns are those of whole mixtures; anything else is refused."""
    found = mixture_components([column_name(*column) for column in columns])
    if not found:
        raise InputError(
            "Only whole mixtures are written as {prob, mean, cov}; embed with `method=panther` and all that it reads out (readout all, no blocks)."
        )
    return found


def mixture_components(names: Sequence[str]) -> int:
    """Number of components where columns are those of whole mixtures, [pi, mu, Sigma] of each; else 0."""
    count = sum(name.endswith(":pi") for name in names)
    dim, rest = divmod(len(names) - count, 2 * count) if count else (0, 1)
    if rest or dim < 1:
        return 0
    statistics = [("weight", -1), *((what, j) for what in ("mean", "variance") for j in range(dim))]
    wanted = [column_name(c, what, j) for c in range(count) for what, j in statistics]
    return count if list(names) == wanted else 0


def write_mixtures(table: "EmbeddingTable", path: Path) -> None:
    """Write `prob` (n, C), `mean` (n, C, d) and `cov` (n, C, d), the diagonal, of `samples` (n,) as a .npz."""
    tokens = np.asarray(table.vectors).reshape(len(table.samples), count_components(table.columns), -1)
    dim = tokens.shape[-1] // 2
    about = {name: value for name, value in table.about().items() if name != "prototypes"}
    arrays: dict[str, Any] = {
        "prob": tokens[..., 0],
        "mean": tokens[..., 1 : 1 + dim],
        "cov": tokens[..., 1 + dim :],
        "samples": np.array(table.samples),
        "panther": np.array(json.dumps(about, default=str, sort_keys=True)),
    }
    with path.open("wb") as handle:
        np.savez(handle, **arrays)
