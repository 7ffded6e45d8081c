"""Prototypes against K-means of scikit-learn and faiss: time, inertia over all patches, peak memory.

    python benchmarks/kmeans.py

The peers get all patches in memory, and reading them is not on their clock; ours reads the slides from files, with one
worker process a core (started before the clock) and its default settings. Seeds, sides and rounds take turns.
"""

import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from sklearn.cluster import KMeans

from _harness import machine, peak_extra, table, timed, verdict
from panther.execution import open_executor
from panther.prototypes import KMeansSettings, fit_prototypes
from panther.storage.bags import BagRef, list_bags

CLUSTERS, SEEDS = 16, range(5)


@dataclass(frozen=True)
class Cohort:
    """Patches of one cohort, in files and (for the peers) in memory."""

    folder: Path
    slides: int
    patches: int  # a slide
    dim: int

    def __str__(self) -> str:
        return f"{self.slides} slides x {self.patches:,} x {self.dim}"

    @property
    def megabytes(self) -> float:
        return self.slides * self.patches * self.dim * 4 / 2**20

    def write(self) -> None:
        """Overlapping groups of unequal size and shape, in shares that differ by slide, and every slide a little shifted."""
        generator = np.random.default_rng(0)
        groups, rank = 24, 32
        centres = generator.normal(0, 0.6, (groups, self.dim))
        shapes = generator.normal(0, 1 / np.sqrt(rank), (groups, rank, self.dim)).astype(np.float32)
        sizes = generator.dirichlet(np.full(groups, 2.0))
        for number in range(self.slides):
            share = generator.dirichlet(sizes * groups)
            x = np.concatenate(
                [
                    centre + generator.standard_normal((count, rank), np.float32) @ shape
                    for count, centre, shape in zip(
                        generator.multinomial(self.patches, share), centres, shapes, strict=True
                    )
                ]
            )
            x += generator.normal(0, 0.1, self.dim) + generator.standard_normal(x.shape, np.float32) * 0.7
            np.save(self.folder / f"slide_{number:03}.npy", generator.permutation(x).astype(np.float32))

    def refs(self, times: int = 1) -> list[BagRef]:
        """Slides, each listed ``times`` times under another name: a larger cohort without more disk."""
        found = list_bags(self.folder).refs
        return [replace(ref, sample=f"{ref.sample}-{i}") for i in range(times) for ref in found]

    def load(self) -> np.ndarray:
        x = np.empty((self.slides * self.patches, self.dim), np.float32)
        for i, ref in enumerate(self.refs()):
            x[i * self.patches : (i + 1) * self.patches] = np.load(ref.paths[0])
        return x


def by_panther(refs: list[BagRef], pool: Any, seed: int) -> np.ndarray:
    return fit_prototypes(refs, KMeansSettings(CLUSTERS, seed), executor=pool).prototypes.centroids.numpy()


def by_sklearn(x: np.ndarray, seed: int) -> np.ndarray:
    return KMeans(CLUSTERS, n_init=1, random_state=seed).fit(x).cluster_centers_


def by_faiss(x: np.ndarray, seed: int) -> np.ndarray:
    model = faiss.Kmeans(x.shape[1], CLUSTERS, niter=25, seed=seed + 1, max_points_per_centroid=len(x))  # all patches
    model.train(x)
    return model.centroids


PEERS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {"scikit-learn": by_sklearn, "faiss": by_faiss}


def inertia(x: np.ndarray, centroids: np.ndarray) -> float:
    """Sum of squared distances over all patches; in float64, about the centroids' mean."""
    origin = torch.from_numpy(centroids).double().mean(0)
    c = torch.from_numpy(centroids).double() - origin
    total = 0.0
    for start in range(0, len(x), 8192):
        z = torch.from_numpy(x[start : start + 8192]).double() - origin
        total += float((z.square().sum(1, keepdim=True) - 2 * z @ c.T + c.square().sum(1)).amin(1).sum())
    return total


@contextmanager
def panther_call(cohort: Cohort, times: int) -> Iterator[Callable[[], Any]]:
    with open_executor(2) as pool:
        by_panther(cohort.refs()[:4], pool, 0)
        yield partial(by_panther, cohort.refs(times), pool, 0)


@contextmanager
def peer_call(cohort: Cohort, name: str) -> Iterator[Callable[[], Any]]:
    x = cohort.load()
    PEERS[name](x[:1000], 0)
    yield partial(PEERS[name], x, 0)


def compare(cohort: Cohort) -> list[list[str]]:
    """One table for one cohort; returns its rows of the table of targets."""
    cohort.write()
    x = cohort.load()
    seconds: dict[str, list[float]] = {name: [] for name in ("panther", *PEERS)}
    inertias: dict[str, list[float]] = {name: [] for name in seconds}
    with open_executor(len(os.sched_getaffinity(0))) as pool:
        sides: dict[str, Callable[[int], np.ndarray]] = {"panther": partial(by_panther, cohort.refs(), pool)}
        sides |= {name: partial(peer, x) for name, peer in PEERS.items()}
        by_panther(cohort.refs()[:4], pool, 0)
        for peer in PEERS.values():
            peer(x[:1000], 0)
        for seed in SEEDS:
            for name, side in sides.items():
                took, centroids = timed(partial(side, seed))
                seconds[name].append(took)
                inertias[name].append(inertia(x, centroids))
    del x
    memory = {name: peak_extra(peer_call, cohort, name) for name in PEERS}
    memory |= {"panther": peak_extra(panther_call, cohort, 1)}
    time = {name: statistics.median(values) for name, values in seconds.items()}
    found = {name: statistics.median(values) for name, values in inertias.items()}
    best = min(found[name] for name in PEERS)
    rows = [
        [
            name,
            f"{time[name]:.2f}",
            f"{time[name] / time['panther']:.1f}x",
            f"{found[name]:.5g}",
            f"{found[name] / best - 1:+.2%}",
            f"{min(inertias[name]) / best - 1:+.2%} .. {max(inertias[name]) / best - 1:+.2%}",
            f"{memory[name]:.0f}",
            "0" if name == "panther" else f"{cohort.megabytes:.0f}",
        ]
        for name in sides
    ]
    header = "|seconds|time / ours|inertia|above the best peer|over seeds|peak extra MB|patches held in memory MB"
    table(f"K-means, C = {CLUSTERS}, {cohort}, median of {len(SEEDS)} seeds", header.split("|"), rows)
    four = peak_extra(panther_call, cohort, 4)
    return [
        verdict(f"{cohort.dim}-d: time of scikit-learn over ours", time["scikit-learn"] / time["panther"], 1.5),
        verdict(f"{cohort.dim}-d: time of faiss over ours", time["faiss"] / time["panther"], None),
        verdict(
            f"{cohort.dim}-d: inertia above the best peer",
            (found["panther"] / best - 1) * 100,
            0.5,
            at_most=True,
            unit=" %",
        ),
        verdict(f"{cohort.dim}-d: extra memory, 1 x the cohort", memory["panther"], None, unit=" MB"),
        verdict(
            f"{cohort.dim}-d: extra memory, 4 x the cohort", four, memory["panther"] * 1.1, at_most=True, unit=" MB"
        ),
    ]


COHORTS = ((40, 256), (20, 1024))  # slides, dimensions


def memory_by_size() -> None:
    """Our extra memory over the size of the cohort; every cell is one reading, so their spread is part of the answer."""
    times, rows = (1, 2, 4, 8, 16), []
    for slides, dim in COHORTS:
        with tempfile.TemporaryDirectory() as folder:
            cohort = Cohort(Path(folder), slides, 5_000, dim)
            cohort.write()
            rows.append([f"{slides} x 5,000 x {dim}", *(f"{peak_extra(panther_call, cohort, n):.0f}" for n in times)])
    table("Extra MB over the size of the cohort", ["cohort", *(f"{n} x" for n in times)], rows)


def main() -> None:
    print(machine("scikit-learn", "faiss-cpu", "panther-wsi"))
    if "--memory" in sys.argv[1:]:
        memory_by_size()
        return
    targets = []
    for slides, dim in COHORTS:
        with tempfile.TemporaryDirectory() as folder:
            targets += compare(Cohort(Path(folder), slides, 5_000, dim))
    table("Targets", ["what", "target", "measured", ""], targets)


if __name__ == "__main__":
    main()
