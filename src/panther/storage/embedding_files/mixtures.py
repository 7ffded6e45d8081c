"""Mixtures of slides as plain arrays: what follow-up work reads, {prob, mean, cov} of every slide."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panther.errors import InputError
from panther.storage.embedding_files.opened import mixture_components

if TYPE_CHECKING:
    from panther.storage.embeddings import EmbeddingTable


def count_components(columns: Iterable[tuple[int, str, int]]) -> int:
    """Number of components where columns are those of whole mixtures; anything else is refused."""
    from panther.storage.embeddings import column_name

    found = mixture_components([column_name(*column) for column in columns])
    if not found:
        raise InputError(
            "Only whole mixtures are written as {prob, mean, cov}; embed with `method=panther` and all that it reads out (readout all, no blocks)."
        )
    return found


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
