"""Embeddings opened for searching: names and proportions are read, the vectors stay in the file until they are touched."""

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from panther.errors import InputError
from panther.storage.embedding_files.reading import READERS, check_embeddings, check_weights, read_h5ad
from panther.storage.embeddings import column_name
from panther.storage.files import DAMAGE
from panther.storage.readers._base import check_numbers, mapped
from panther.types import Rows

STORED = 0  # of zip: as it is, not compressed


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
        where = {name: row for row, name in enumerate(self.samples)}
        chosen = [where[name] for name in samples]
        if chosen == list(range(len(self.samples))):
            return self
        taken = torch.stack([self.rows[row : row + 1][0] for row in chosen])
        return Embeddings(
            self.source,
            tuple(samples),
            taken,
            None if self.weights is None else self.weights[chosen],
            self.mixtures,
            {name: [values[row] for row in chosen] for name, values in self.columns.items()},
            self.made_with,
            self.settings,
        )


def open_embeddings(path: Path) -> Embeddings:
    """Embeddings of a file of `panther embed` (.h5ad, .npz); the vectors are mapped where their bytes lie in the file as they are."""
    check_embeddings(path, OPENERS)
    try:
        samples, weights, columns = READERS[path.suffix](path)
        rows, names, about = OPENERS[path.suffix](path)
    except InputError:
        raise
    except DAMAGE as error:
        raise InputError(f"{path}: cannot be read as embeddings ({error}); write them with `panther embed`.") from error
    if weights is not None:
        check_weights(path, samples, weights, columns)
    if len(rows.shape) != 2 or int(rows.shape[0]) != len(samples) or len(set(samples)) != len(samples) or not samples:
        raise InputError(
            f"{path}: {tuple(rows.shape)} numbers for {len(samples)} samples; expected one row for each sample, and each sample once: "
            "write the file again with `panther embed`."
        )
    made_with, settings = about.get("prototypes_hash"), about.get("settings", {})
    return Embeddings(
        str(path),
        tuple(samples),
        rows,
        None if weights is None else weights.astype(np.float64),
        mixture_components(names),
        columns,
        None if made_with is None else str(made_with),
        settings if isinstance(settings, Mapping) else {},
    )


def mixture_components(names: Sequence[str]) -> int:
    """Number of components where columns are those of whole mixtures, [pi, mu, Sigma] of each; else 0."""
    count = sum(name.endswith(":pi") for name in names)
    dim, rest = divmod(len(names) - count, 2 * count) if count else (0, 1)
    if rest or dim < 1:
        return 0
    statistics = [("weight", -1), *((what, j) for what in ("mean", "variance") for j in range(dim))]
    wanted = [column_name(c, what, j) for c in range(count) for what, j in statistics]
    return count if list(names) == wanted else 0


def _open_h5ad(path: Path) -> tuple[Rows, list[str], dict[str, Any]]:
    content = read_h5ad(path)
    if not isinstance(content.vectors, np.ndarray):
        raise InputError(f"{path}: X is sparse; embeddings are dense: write the file again with `panther embed`.")
    check_numbers(path, "X", content.vectors.dtype)
    return torch.from_numpy(content.vectors), content.names, content.about


def _open_npz(path: Path) -> tuple[Rows, list[str], dict[str, Any]]:
    with path.open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
        about = json.loads(str(arrays["panther"])) if "panther" in arrays.files else {}
        names = [str(name) for name in arrays["columns"]] if "columns" in arrays.files else []
        mapped_rows = _mapped_member(path, "X.npy")
        return mapped_rows if mapped_rows is not None else torch.from_numpy(arrays["X"]), names, about


def _mapped_member(path: Path, name: str) -> Rows | None:
    """Array of an .npz over the bytes of the file; None where it is compressed or not in the order of C."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
    if info.compress_type != STORED:
        return None
    with path.open("rb") as handle:
        handle.seek(info.header_offset + 26)  # the local header tells the lengths of the name and of what follows it
        lengths = np.frombuffer(handle.read(4), "<u2")
        handle.seek(int(lengths.sum()), 1)
        version = np.lib.format.read_magic(handle)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = header(handle)
        return None if fortran or dtype.kind != "f" else mapped(path, dtype, handle.tell(), shape)


OPENERS: dict[str, Callable[[Path], tuple[Rows, list[str], dict[str, Any]]]] = {".h5ad": _open_h5ad, ".npz": _open_npz}
