"""Mixtures of a run: how much of each prototype every sample has, and where samples lie among each other."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from panther.aggregators import aggregators, build
from panther.mixture import effective_number
from panther.models.scaling import build_scaler
from panther.report.data import Run
from panther.storage.prototypes import load_prototypes
from panther.study.cache import load_embeddings
from panther.types import Prototypes

WEIGHTS = ("weight", "count")  # statistics that say how much of a prototype there is


@dataclass(frozen=True, eq=False)
class Mixtures:
    """Of one method in one fold, all samples of the study."""

    row: str  # method
    fold: int
    samples: tuple[str, ...]
    weights: np.ndarray | None  # (n, C), rows adding up to 1; None where the method keeps none
    positions: dict[str, tuple[np.ndarray, tuple[str, str]]]  # projection -> (n, 2) and the names of its axes
    prototypes: Prototypes
    file: str  # of the prototypes, in the cache

    @property
    def used(self) -> np.ndarray | None:
        """How many prototypes each sample really uses (n,), 1 to C; None where there are no weights."""
        return None if self.weights is None else effective_number(torch.from_numpy(self.weights)).numpy()


@dataclass(frozen=True, eq=False)
class _Kept:
    """What the cache has of one method in one fold, before the vectors are read."""

    row: str
    fold: int
    vectors: Path
    prototypes: Prototypes
    file: str
    columns: list[tuple[int, str, int]]

    @property
    def weights(self) -> list[int] | None:
        """Columns that hold the share of each prototype; None where they do not."""
        where = {c: i for i, (c, statistic, _) in enumerate(self.columns) if statistic in WEIGHTS}
        count = len(self.prototypes)
        return [where[c] for c in range(count)] if set(where) == set(range(count)) else None


def load_mixtures(run: Run) -> Mixtures | None:
    """Those of the first method that keeps weights, the reference before others; where none does, of the first.

    None where the cache is gone.
    """
    found = None
    for kept in _kept(run):
        if kept.weights is not None:
            return _read(run, kept)
        found = found or kept
    return None if found is None else _read(run, found)


def _kept(run: Run) -> Iterator[_Kept]:
    """The reference first, then as in the study; of each the first fold first."""
    if "embeddings" not in run.trained:
        return
    reference = run.study.reference or run.study.methods[0].title
    entries = run.trained.dropna(subset="embeddings").drop_duplicates("embeddings")  # heads share vectors
    entries = entries.assign(other=entries["method"] != reference)
    for _, entry in entries.sort_values(["other", "fold"], kind="stable").iterrows():
        vectors, file = run.cached(entry["embeddings"]), run.cached(entry["prototypes"])
        if vectors is not None and file is not None and entry["aggregator"] in aggregators.names():
            prototypes = load_prototypes(file)
            columns = build(entry["aggregator"], prototypes, entry["options"]).columns()
            yield _Kept(entry["row"], entry["fold"], vectors, prototypes, file.name, columns)


def _read(run: Run, kept: _Kept) -> Mixtures:
    mapped, samples = load_embeddings(kept.vectors)
    x = np.array(mapped)
    train = set(run.folds[kept.fold]["train"])
    rows = np.array([i for i, name in enumerate(samples) if name in train], np.int64)
    scaler = build_scaler(run.study.scaling.name, run.study.scaling.options).fit(x[rows], kept.columns)
    scaled = scaler(torch.from_numpy(x)).double().numpy()
    positions = {"PCA": principal_components(scaled)}
    if find_spec("umap") is not None and len(samples) > 15:
        positions["UMAP"] = _umap(scaled)
    weights = None if kept.weights is None else _shares(x[:, kept.weights].astype(float))
    return Mixtures(kept.row, kept.fold, tuple(samples), weights, positions, kept.prototypes, kept.file)


def _shares(amounts: np.ndarray) -> np.ndarray:
    """Rows (n, C) that add up to 1."""
    return amounts / np.maximum(amounts.sum(1, keepdims=True), 1e-30)


def principal_components(x: np.ndarray) -> tuple[np.ndarray, tuple[str, str]]:
    r"""First two principal components (n, 2), by the eigenvectors of the Gram matrix :math:`X X^\top`: n is smaller than D here."""
    centred = x - x.mean(0)
    values, vectors = np.linalg.eigh(centred @ centred.T)  # ascending
    values = np.maximum(values[::-1], 0.0)
    if len(values) < 2:
        return np.zeros((len(x), 2)), ("PC 1", "PC 2")
    first = vectors[:, ::-1][:, :2]
    # an eigenvector may point either way: the largest entry is made positive, so that two runs draw the same picture
    sign = np.sign(first[np.abs(first).argmax(0), [0, 1]])
    share = values[:2] / max(values.sum(), 1e-30)
    return first * sign * np.sqrt(values[:2]), (f"PC 1 ({share[0]:.0%})", f"PC 2 ({share[1]:.0%})")


def _umap(x: np.ndarray) -> tuple[np.ndarray, tuple[str, str]]:
    from umap import UMAP  # type: ignore[import-not-found]

    return UMAP(random_state=0, n_jobs=1).fit_transform(x), ("UMAP 1", "UMAP 2")
