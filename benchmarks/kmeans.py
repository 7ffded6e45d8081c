"""Prototypes against K-means of scikit-learn and faiss: time, inertia, peak memory.

    python benchmarks/kmeans.py                 # about 4 minutes; --quick to see that it runs
    python benchmarks/kmeans.py --same          # only the same patches in memory, the same restarts, on every side
    python benchmarks/kmeans.py --inertia       # only our inertia beside scikit-learn's, over 24 seeds
    python benchmarks/kmeans.py --memory        # our memory over the size of the cohort
    python benchmarks/kmeans.py --device cuda   # our GPU beside our CPU, from memory and from files; needs no peers

First each as it is used on a cohort: ours reads the slides from files, five restarts on a sample and three passes over all patches; the peers
have all patches in memory, reading them is not on their clock, and start once. Then like for like: the same 20,000 patches in memory, the
same number of restarts, all threads on every side. Seeds and sides take turns.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _harness import machine, peak_extra, table, timed
from panther.engine import Work, open_executor
from panther.prototypes import KMeansSettings, fit_bags
from panther.prototypes.kmeans import kmeans
from panther.storage.bags import BagRef, list_bags

CLUSTERS, SEEDS = 16, range(3)


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
            x[i * self.patches : (i + 1) * self.patches] = np.load(ref.files[0])
        return x


def by_panther(refs: list[BagRef], pool: Any, seed: int, device: str = "cpu") -> np.ndarray:
    return fit_bags(refs, KMeansSettings(CLUSTERS, seed), work=Work(pool, device)).prototypes.centroids.numpy()


def by_sklearn(x: np.ndarray, seed: int, restarts: int = 1) -> np.ndarray:
    from sklearn.cluster import KMeans

    return KMeans(CLUSTERS, n_init=restarts, random_state=seed).fit(x).cluster_centers_


def by_mini_batch(x: np.ndarray, seed: int) -> np.ndarray:
    """scikit-learn's own answer to large cohorts, with its defaults."""
    from sklearn.cluster import MiniBatchKMeans

    return MiniBatchKMeans(CLUSTERS, n_init="auto", random_state=seed).fit(x).cluster_centers_


def by_faiss(x: np.ndarray, seed: int, restarts: int = 1) -> np.ndarray:
    import faiss

    model = faiss.Kmeans(
        x.shape[1], CLUSTERS, niter=25, nredo=restarts, seed=seed + 1, max_points_per_centroid=len(x)
    )  # its default number of iterations, on all patches
    model.train(x)
    return model.centroids


PEERS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "scikit-learn": by_sklearn,
    "scikit-learn, mini-batch": by_mini_batch,
    "faiss": by_faiss,
}


def like_for_like(x: np.ndarray, seeds: Sequence[int], restarts: int = KMeansSettings().restarts) -> list[list[object]]:
    """Rows of one table: the same patches in memory, the same restarts."""
    part = drawn(x)
    tensor = torch.from_numpy(part)
    sides: dict[str, Callable[[int], np.ndarray]] = {
        "panther": lambda seed: kmeans(tensor, CLUSTERS, seed, restarts)[0].centroids.numpy(),
        "scikit-learn": lambda seed: by_sklearn(part, seed, restarts),
        "faiss": lambda seed: by_faiss(part, seed, restarts),
    }
    time, _, found, _ = take_turns(sides, part, seeds)
    best = min(found[name] for name in sides if name != "panther")
    return [
        [
            f"{len(part):,} x {part.shape[1]}",
            name,
            restarts,
            f"{time[name]:.2f}",
            f"{time[name] / time['panther']:.1f}x",
            f"{found[name] / best - 1:+.2%}",
        ]
        for name in sides
    ]


def drawn(x: np.ndarray) -> np.ndarray:
    """As many of the patches as a fit samples."""
    chosen = np.random.default_rng(0).choice(len(x), min(KMeansSettings().sample, len(x)), replace=False)
    return np.ascontiguousarray(x[np.sort(chosen)])


def on_gpu(cohort: Cohort, device: str, seeds: Sequence[int]) -> list[list[object]]:
    """Rows of one table: our GPU beside our CPU."""
    cohort.write()
    x = torch.from_numpy(cohort.load())
    part = torch.from_numpy(drawn(x.numpy()))
    rows = []
    with open_executor(len(os.sched_getaffinity(0))) as pool:
        for what, call in {
            f"sample of {len(part):,} in memory": lambda seed, where: _solved(part, seed, where),
            f"all {len(x):,} in memory": lambda seed, where: _solved(x, seed, where),
            f"{cohort.slides} files": lambda seed, where: by_panther(cohort.refs(), pool, seed, where),
        }.items():
            sides = {where: partial(call, where=where) for where in ("cpu", device)}
            for side in sides.values():
                side(99)  # warm-up
            time, _, found, _ = take_turns(sides, x.numpy(), seeds)
            ratio, above = time["cpu"] / time[device], found[device] / found["cpu"] - 1
            rows.append(
                [cohort.dim, what, f"{time['cpu']:.2f}", f"{time[device]:.3f}", f"{ratio:.1f}x", f"{above:+.2%}"]
            )
    return rows


def _solved(x: torch.Tensor, seed: int, device: str) -> np.ndarray:
    """Five restarts; the copy to the device is on the clock."""
    return kmeans(x.to(device), CLUSTERS, seed, KMeansSettings().restarts)[0].centroids.cpu().numpy()


def take_turns(
    sides: Mapping[str, Callable[[int], np.ndarray]], x: np.ndarray, seeds: Sequence[int]
) -> tuple[dict[str, float], dict[str, list[float]], dict[str, float], dict[str, list[float]]]:
    """Median seconds and median inertia over ``x`` of each side, and all their values."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    inertias: dict[str, list[float]] = {name: [] for name in sides}
    for seed in seeds:
        for name, side in sides.items():
            took, centroids = timed(partial(side, seed))
            seconds[name].append(took)
            inertias[name].append(inertia(x, centroids))
    medians = [{name: statistics.median(v) for name, v in values.items()} for values in (seconds, inertias)]
    return medians[0], seconds, medians[1], inertias


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


def compare(cohort: Cohort, seeds: Sequence[int]) -> list[list[object]]:
    """One table for one cohort; returns the rows of the like-for-like table."""
    cohort.write()
    x = cohort.load()
    with open_executor(len(os.sched_getaffinity(0))) as pool:
        sides: dict[str, Callable[[int], np.ndarray]] = {"panther": partial(by_panther, cohort.refs(), pool)}
        sides |= {name: partial(peer, x) for name, peer in PEERS.items()}
        by_panther(cohort.refs()[:4], pool, 0)
        for peer in PEERS.values():
            peer(x[:1000], 0)
        time, _, found, inertias = take_turns(sides, x, seeds)
    same = like_for_like(x, seeds)
    del x
    memory = {name: peak_extra(peer_call, cohort, name) for name in PEERS}
    memory |= {"panther": peak_extra(panther_call, cohort, 1)}
    best = min(found[name] for name in PEERS)
    work = {"panther": "5 restarts on 20,000 patches, 3 passes over all, from files", "faiss": "1 start, 25 iterations"}
    rows = [
        [
            name,
            work.get(name, "1 start, its defaults"),
            f"{time[name]:.2f}",
            f"{time[name] / time['panther']:.1f}x",
            f"{found[name] / best - 1:+.2%}",
            f"{min(inertias[name]) / best - 1:+.2%} .. {max(inertias[name]) / best - 1:+.2%}",
            f"{memory[name]:.0f}",
            "0" if name == "panther" else f"{cohort.megabytes:.0f}",
        ]
        for name in sides
    ]
    header = "|work|seconds|time / ours|inertia above the best peer|over seeds|peak extra MB|patches held in memory MB"
    table(f"A cohort of {cohort}, C = {CLUSTERS}, median of {len(seeds)} seeds", header.split("|"), rows)
    return same


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


SAME = ["patches in memory", "", "restarts", "seconds", "time / ours", "inertia above the best peer"]


def samples(patches: int) -> Iterator[np.ndarray]:
    """As many patches of each cohort as a fit samples."""
    for slides, dim in COHORTS:
        with tempfile.TemporaryDirectory() as folder:
            cohort = Cohort(Path(folder), slides, patches, dim)
            cohort.write()
            x = drawn(cohort.load())
        yield x


def same_patches(seeds: Sequence[int], patches: int) -> None:
    """Print the like-for-like table alone, with the default number of restarts and with ten."""
    rows = []
    for x in samples(patches):
        rows += [row for restarts in (5, 10) for row in like_for_like(x, seeds, restarts)]
    table(f"The same patches, the same restarts, C = {CLUSTERS}, median of {len(seeds)} seeds", SAME, rows)


def inertia_over_seeds(seeds: Sequence[int], patches: int) -> None:
    """Print how far our inertia lies above scikit-learn's, on the same patches with the same restarts: mean over seeds, standard error."""
    rows = []
    for x in samples(patches):
        tensor = torch.from_numpy(x)
        for restarts in (5, 10):
            ours = [inertia(x, kmeans(tensor, CLUSTERS, seed, restarts)[0].centroids.numpy()) for seed in seeds]
            theirs = [inertia(x, by_sklearn(x, seed, restarts)) for seed in seeds]
            above = np.array(ours) / np.array(theirs) - 1
            error = above.std(ddof=1) / len(above) ** 0.5
            rows.append([f"{len(x):,} x {x.shape[1]}", restarts, f"{above.mean():+.3%}", f"{error:.3%}"])
    header = ["patches in memory", "restarts", "our inertia above scikit-learn's", "standard error"]
    table(f"The same patches, the same restarts, C = {CLUSTERS}, mean of {len(seeds)} seeds", header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--same", action="store_true", help="only the same patches in memory, the same restarts")
    parser.add_argument("--inertia", action="store_true", help="only inertia beside scikit-learn's, over 24 seeds")
    parser.add_argument("--memory", action="store_true", help="our memory over the size of the cohort")
    parser.add_argument("--device", default="cpu", help="a GPU, beside our CPU")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    print(machine("scikit-learn", "faiss-cpu", "panther-wsi"))
    seeds, patches, same = (range(1), 50, []) if options.quick else (SEEDS, 5_000, [])
    if options.memory:
        memory_by_size()
    elif options.inertia:
        inertia_over_seeds(range(2 if options.quick else 24), patches)
    elif options.same:
        same_patches(seeds, patches)
    elif options.device != "cpu":
        rows = []
        for slides, dim in COHORTS:
            with tempfile.TemporaryDirectory() as folder:
                rows += on_gpu(Cohort(Path(folder), slides, patches, dim), options.device, seeds)
        header = ["d", "patches", "CPU s", f"{options.device} s", "ratio", "inertia above the CPU's"]
        table(f"Our GPU beside our CPU, C = {CLUSTERS}, 5 restarts, median of {len(seeds)} seeds", header, rows)
    else:
        for slides, dim in COHORTS:
            with tempfile.TemporaryDirectory() as folder:
                same += compare(Cohort(Path(folder), slides, patches, dim), seeds)
        table(f"The same patches, the same restarts, C = {CLUSTERS}, median of {len(seeds)} seeds", SAME, same)


if __name__ == "__main__":
    main()
