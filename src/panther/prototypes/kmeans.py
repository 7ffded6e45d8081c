"""K-means on samples in memory: k-means++, then Lloyd iterations from several starts; the best counts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from panther.engine import Track, untracked
from panther.errors import InputError, value_of
from panther.machine import cores
from panther.prototypes.lloyd import KMeansRun, lloyd_many
from panther.prototypes.seeding import energies, plus_plus
from panther.statistics import block_rows

# gives patches (m, d); asked when they are needed, so that few samples are held at a time
Sample = Callable[[], Tensor]


class KMeansProblem(NamedTuple):
    """A sample and how it is to be clustered."""

    sample: Sample
    n_clusters: int
    seed: int
    restarts: int

    @classmethod
    def on(cls, x: Tensor, n_clusters: int, seed: int, restarts: int) -> "KMeansProblem":
        """On a sample that is held anyway."""
        return cls(lambda: x, n_clusters, seed, restarts)


Solved = tuple[KMeansRun, list[float]]  # the best run, and the inertia of each


def kmeans(x: Tensor, n_clusters: int, seed: int, restarts: int, track: Track = untracked) -> Solved:
    """Best of several restarts on a sample (m, d), and the inertia of each."""
    (solved,) = kmeans_many([KMeansProblem.on(x, n_clusters, seed, restarts)], track)
    return value_of(solved)


def kmeans_many(problems: Sequence[KMeansProblem], track: Track = untracked) -> list[Solved | InputError]:
    """Solve several problems. Every task runs on one thread and is cut alike everywhere: no result depends on the number of cores."""
    count = len(problems)
    threads = torch.get_num_threads()
    # Threads of `solving` wait; those of `pool` compute. Few samples are in work at a time, which keeps caches and memory small.
    with ThreadPoolExecutor(cores()) as pool, ThreadPoolExecutor(samples_at_work(count)) as solving:
        teams = -(-cores() // max(1, count))  # restarts are spread where cores would be idle
        function = partial(_solve, pool=pool, teams=teams)
        found = list(track(solving.map(function, problems), "K-means on the sample", count))
    torch.set_num_threads(threads)
    return found


def samples_at_work(count: int) -> int:
    """How many of ``count`` samples are held at a time: one more than there are cores, which have something to do when one ends."""
    return max(1, min(count, cores() + 1))


@torch.no_grad()
def _solve(problem: KMeansProblem, pool: Executor, teams: int) -> Solved | InputError:
    torch.set_num_threads(1)
    sample, n_clusters, seed, restarts = problem
    x = sample()
    if _fewer_different(x, n_clusters):
        return InputError(
            f"The sample of {len(x)} patches has fewer than {n_clusters} different ones; ask for fewer with `n_prototypes=`, "
            "or give more patches."
        )
    each = map if x.is_cuda else partial(_on_one_thread, pool)
    origin = block_mean(x)
    energy = energies(x, origin)
    generators = [torch.Generator().manual_seed(seed * 1_000_003 + number) for number in range(restarts)]
    starts = plus_plus(x, n_clusters, origin, energy, generators, each)
    size = restarts if x.is_cuda else -(-restarts // teams)
    groups = [starts[first : first + size] for first in range(0, restarts, size)]
    found = each(lambda group: lloyd_many(x, group, origin, energy), groups)
    runs = [run for group in found for run in group]
    return min(runs, key=lambda run: run.inertia), [run.inertia for run in runs]


def _on_one_thread(pool: Executor, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    @torch.no_grad()
    def run(item: Any) -> Any:
        torch.set_num_threads(1)
        return function(item)

    return pool.map(run, items)


def _fewer_different(x: Tensor, n_clusters: int) -> bool:
    few = x[: 100 * n_clusters]
    return len(torch.unique(few, dim=0)) < n_clusters and len(torch.unique(x, dim=0)) < n_clusters


def block_mean(x: Tensor) -> Tensor:
    """Mean of the rows, summed in float64 block by block: no wide copy of the sample."""
    step = block_rows(x.shape[1], 4, x.device.type)
    total = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
    for start in range(0, len(x), step):
        total += x[start : start + step].sum(0, dtype=torch.float64)
    return (total / len(x)).to(x)
