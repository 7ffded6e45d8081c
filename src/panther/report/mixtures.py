"""Mixtures of a run: how much of each prototype every sample has, and where samples lie among each other."""

import json
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch

from panther.aggregators import aggregators, build
from panther.learning.scaling import build_scaler
from panther.report.data import Run
from panther.storage.prototypes import load_prototypes
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


def load_mixtures(run: Run) -> Mixtures | None:
    """Those of the reference method if it keeps weights, else of PANTHER, else of any; None where the cache is gone."""
    entries = run.trained[run.trained["embeddings"].notna()] if "embeddings" in run.trained else run.trained[:0]
    reference = run.study.reference or run.study.methods[0].title
    keeps = entries["aggregator"].map(lambda name: 2 if name == "panther" else 1 if name == "protocounts" else 0)
    order = entries.assign(keeps=keeps, first=entries["method"] != reference)
    for _, entry in order.sort_values(
        ["keeps", "first", "fold"], ascending=[False, True, True], kind="stable"
    ).iterrows():
        found = _load(run, entry.to_dict())
        if found is not None:
            return found
    return None


def _load(run: Run, entry: dict) -> Mixtures | None:
    vectors, prototypes = run.cached(entry["embeddings"]), run.cached(entry["prototypes"])
    if vectors is None or prototypes is None or entry["aggregator"] not in aggregators.names():
        return None
    x = np.load(vectors, mmap_mode="r")
    samples = json.loads(vectors.with_suffix(".json").read_text())["samples"]
    centroids = load_prototypes(prototypes)
    columns = build(entry["aggregator"], centroids, entry["options"]).columns()
    train = set(run.folds[entry["fold"]]["train"])
    rows = np.array([i for i, name in enumerate(samples) if name in train], np.int64)
    scaler = build_scaler(run.study.scaling.name, run.study.scaling.options).fit(x[rows], columns)
    scaled = scaler(torch.from_numpy(np.array(x))).double().numpy()
    positions = {"PCA": principal_components(scaled)}
    if find_spec("umap") is not None and len(samples) > 15:
        positions["UMAP"] = _umap(scaled)
    weights = _weights(np.asarray(x), columns, len(centroids))
    return Mixtures(entry["row"], entry["fold"], tuple(samples), weights, positions, centroids, entry["prototypes"])


def _weights(x: np.ndarray, columns: list[tuple[int, str, int]], count: int) -> np.ndarray | None:
    where = {c: i for i, (c, statistic, _) in enumerate(columns) if statistic in WEIGHTS}
    if set(where) != set(range(count)):
        return None
    found = x[:, [where[c] for c in range(count)]].astype(float)
    return found / np.maximum(found.sum(1, keepdims=True), 1e-30)


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


def effective_number(weights: np.ndarray) -> np.ndarray:
    r"""How many prototypes a sample really uses, :math:`\exp(-\sum_c \pi_c \log \pi_c)`: 1 to C."""
    safe = np.where(weights > 0, weights, 1.0)
    return np.exp(-(weights * np.log(safe)).sum(1))
