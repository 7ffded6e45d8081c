r"""K-means on a sample in memory: k-means++ and Lloyd iterations on the streaming kernel.

.. math:: \min_h \sum_n \min_c |z_n - h_c|^2
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor

from panther.errors import InputError, value_of
from panther.execution import Track, untracked
from panther.statistics import Statistics, accumulate, block_rows, nearest, squared_distances

TOLERANCE = 1e-5  # relative gain of inertia below which Lloyd stops
ITERATIONS = 100  # at most


class KMeansRun(NamedTuple):
    """Result of one restart."""

    centroids: Tensor  # (C, d)
    inertia: float


class KMeansProblem(NamedTuple):
    """A sample and how it is to be clustered."""

    x: Tensor  # (m, d)
    n_clusters: int
    seed: int
    restarts: int


Solved = tuple[KMeansRun, list[float]]  # the best run, and the inertia of each


def kmeans(x: Tensor, n_clusters: int, seed: int, restarts: int, track: Track = untracked) -> Solved:
    """Best of several restarts on a sample (m, d), and the inertia of each."""
    (solved,) = kmeans_many([KMeansProblem(x, n_clusters, seed, restarts)], track)
    return value_of(solved)


def kmeans_many(problems: Sequence[KMeansProblem], track: Track = untracked) -> list[Solved | InputError]:
    """Solve several problems: all their restarts side by side, one thread each, so no result depends on the number of cores."""
    refused = [_too_few_different(problem) for problem in problems]
    origins = {id(x): block_mean(x) for x in {id(p.x): p.x for p in problems}.values()}
    jobs = [(i, number) for i, p in enumerate(problems) if refused[i] is None for number in range(p.restarts)]

    @torch.no_grad()
    def restart(job: tuple[int, int]) -> KMeansRun:
        torch.set_num_threads(1)
        problem, origin = problems[job[0]], origins[id(problems[job[0]].x)]
        generator = torch.Generator().manual_seed(problem.seed * 1_000_003 + job[1])
        return lloyd(problem.x, plus_plus(problem.x, problem.n_clusters, origin, generator), origin)

    threads, what = torch.get_num_threads(), "K-means from several starts"
    if any(problem.x.is_cuda for problem in problems):
        found = [restart(job) for job in track(jobs, what, len(jobs))]
    else:
        with ThreadPoolExecutor(max(1, min(len(jobs), os.cpu_count() or 1))) as pool:
            found = list(track(pool.map(restart, jobs), what, len(jobs)))
    torch.set_num_threads(threads)
    runs: list[list[KMeansRun]] = [[] for _ in problems]
    for (i, _), run in zip(jobs, found, strict=True):
        runs[i].append(run)
    return [
        error or (min(mine, key=lambda run: run.inertia), [run.inertia for run in mine])
        for error, mine in zip(refused, runs, strict=True)
    ]


def _too_few_different(problem: KMeansProblem) -> InputError | None:
    x, n_clusters = problem.x, problem.n_clusters
    if len(torch.unique(x[: 100 * n_clusters], dim=0)) >= n_clusters or len(torch.unique(x, dim=0)) >= n_clusters:
        return None
    return InputError(
        f"The sample of {len(x)} patches has fewer than {n_clusters} different ones; ask for fewer with `n_prototypes=`, or give more patches."
    )


def lloyd(x: Tensor, centroids: Tensor, origin: Tensor, max_iterations: int = ITERATIONS) -> KMeansRun:
    """Lloyd iterations until the inertia no longer falls; an empty cluster moves to the patch that is served worst."""
    energy = _energy(x, origin)
    inertia = torch.inf
    for _ in range(max_iterations):
        sums = accumulate(x, nearest(centroids - origin), origin, squares=False).statistics
        before, inertia = inertia, energy - 2 * float(sums.score)
        if before - inertia <= TOLERANCE * abs(inertia):
            break
        centroids = update(sums, centroids, origin)
        empty = (sums.mass == 0).nonzero().flatten()
        if len(empty):
            centroids[empty] = worst_served(x, centroids, origin, len(empty))
    return KMeansRun(centroids, max(inertia, 0.0))


def update(sums: Statistics, centroids: Tensor, origin: Tensor) -> Tensor:
    """New centroids: the means of their patches; an empty one stays."""
    mass = sums.mass.unsqueeze(-1)
    means = sums.total / mass.clamp_min(1) + origin.double()
    return torch.where(mass > 0, means, centroids.double()).to(centroids)


def plus_plus(x: Tensor, n_clusters: int, origin: Tensor, generator: torch.Generator) -> Tensor:
    """k-means++ seeds: each next one drawn with chance ~ squared distance to the nearest so far, best of a few draws."""
    trials = 2 + n_clusters.bit_length()
    energy = squared_distances(x, origin.unsqueeze(0), origin)[:, 0]  # |z|^2, (m,)
    chosen = [int(torch.randint(len(x), (1,), generator=generator))]
    closest = _distances_to(x, chosen, energy, origin)[:, 0]  # (m,)
    while len(chosen) < n_clusters:
        chance = closest.double().cumsum(0)
        draws = torch.rand(trials, generator=generator, dtype=torch.float64).to(x.device) * chance[-1]
        candidates = torch.searchsorted(chance, draws).clamp_max(len(x) - 1).tolist()
        distances = torch.minimum(_distances_to(x, candidates, energy, origin), closest.unsqueeze(-1))
        best = int(distances.sum(0, dtype=torch.float64).argmin())
        closest = distances[:, best]
        chosen.append(candidates[best])
    return x[chosen].clone()


def _distances_to(x: Tensor, rows: list[int], energy: Tensor, origin: Tensor) -> Tensor:
    """(m, k) squared distances to some of the patches, their norms known: |z|^2 - 2 z.p + |p|^2 without a temporary of x's size."""
    p = x[rows] - origin
    cross = x @ p.T - origin @ p.T  # (m, k)
    return (energy.unsqueeze(-1) - 2 * cross + energy[rows]).clamp_min(0)


def worst_served(x: Tensor, centroids: Tensor, origin: Tensor, count: int) -> Tensor:
    """Return the patches farthest from their nearest centroid."""
    return x[squared_distances(x, centroids, origin).amin(-1).topk(count).indices]


def block_mean(x: Tensor) -> Tensor:
    """Mean of the rows, summed in float64 block by block: no wide copy of the sample."""
    step = block_rows(x.shape[1], 4, x.device.type)
    total = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
    for start in range(0, len(x), step):
        total += x[start : start + step].sum(0, dtype=torch.float64)
    return (total / len(x)).to(x)


def _energy(x: Tensor, origin: Tensor) -> float:
    step = block_rows(x.shape[1], 4, x.device.type)
    return float(sum((x[i : i + step] - origin).square().sum(dtype=torch.float64) for i in range(0, len(x), step)))
