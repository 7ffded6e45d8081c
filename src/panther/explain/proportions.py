"""How much of each prototype slides and patients have: read from embeddings or tables, and joined over a patient's slides."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from panther.errors import InputError
from panther.storage.embedding_files.in_memory import is_in_memory, of_memory
from panther.storage.embedding_files.reading import read_weights
from panther.storage.embeddings import EmbeddingTable
from panther.storage.tables import read_csv

if TYPE_CHECKING:
    import anndata
    import pandas as pd

SAME = 1e-6  # proportions that differ by less are the same: one patch in a million


class Proportions(NamedTuple):
    """Prototype proportions of slides, or of patients."""

    samples: list[str]
    pi: np.ndarray  # (n, C)
    patches: np.ndarray | None  # (n,), None: not known


def pooled(pi: np.ndarray, patches: np.ndarray) -> np.ndarray:
    r"""Proportions (C,) of a patient from pi (n, C) and the numbers of patches (n,) of its slides.

    .. math:: \pi_c = \sum_s N_s \pi_{sc} / \sum_s N_s

    That is the pi of all patches together, so it does not matter over how many slides the tissue was cut.
    """
    return (patches / patches.sum()) @ pi


def as_proportions(source: "Path | str | pd.DataFrame | EmbeddingTable | anndata.AnnData") -> Proportions:
    """Proportions of slides.

    Embeddings (a table, AnnData, or their file, .h5ad or .npz), the atlas (pi.csv: slide, patient, n_patches, C0, C1, ...), or a data frame.
    """
    import pandas as pd

    if is_in_memory(source):
        found = of_memory(source)
        if found.weights is None:
            raise InputError("The embeddings have no proportions of prototypes; embed with panther.")
        patches = found.columns.get("n_patches")
        return Proportions(list(found.samples), found.weights, None if patches is None else np.array(patches, float))
    if isinstance(source, pd.DataFrame):
        named = source if "slide" in source.columns else source.rename_axis("slide").reset_index()
        return _from_frame("the proportions", named)
    path = Path(source)  # type: ignore[arg-type]
    if path.suffix.lower() != ".csv":
        samples, pi, columns = read_weights(path, "n_patches")
        return Proportions(samples, pi.astype(np.float64), np.array(columns["n_patches"], float))
    try:
        table = read_csv(path, words=("slide", "patient"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as a table of proportions ({error}).") from error
    return _from_frame(str(path), table)


def _from_frame(source: str, table: "pd.DataFrame") -> Proportions:
    import pandas as pd

    wanted = [f"C{c}" for c in range(sum(bool(re.fullmatch(r"C\d+", str(name))) for name in table.columns))]
    if "slide" not in table.columns or not wanted or not set(wanted) <= set(table.columns):
        raise InputError(
            f"{source}: has the columns {', '.join(map(str, table.columns))}; expected are slide, C0, C1, ... as `panther atlas` writes pi.csv."
        )
    pi = table[wanted].apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
    bad = np.flatnonzero(~np.isfinite(pi).all(1) | (pi < -SAME).any(1) | (pi > 1 + SAME).any(1))
    if len(bad):
        raise InputError(f"{source}: line {bad[0] + 2} holds a proportion that is no number from 0 to 1; mend it.")
    samples = table["slide"].astype(str)
    if samples.duplicated().any():
        raise InputError(
            f"{source}: the slide {samples[samples.duplicated()].iloc[0]} is there more than once; keep one row per slide."
        )
    known = next((name for name in ("n_patches", "patches") if name in table.columns), None)
    return Proportions(samples.tolist(), pi, None if known is None else _patches(source, table[known]))


def _patches(source: str, column: "pd.Series") -> np.ndarray:
    import pandas as pd

    patches = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
    bad = np.flatnonzero(~(np.isfinite(patches) & (patches > 0)))
    if len(bad):
        raise InputError(
            f"{source}: line {bad[0] + 2} has no number of patches above 0 in {column.name}; mend it, or drop the column."
        )
    return patches
