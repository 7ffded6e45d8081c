r"""K-means on samples in memory: greedy k-means++, then Lloyd iterations from several starts until no patch changes its prototype; the best counts.

.. math:: \min_h \sum_n \min_c |z_n - h_c|^2

Each next seed is drawn with chance :math:`\propto \min_c |z - h_c|^2`; of a few draws the one counts that lowers the sum of these most
(Arthur and Vassilvitskii 2007), all restarts from one walk over the sample for each next seed.

With a compiled kernel all iterations are one loop in C. After a few of them hardly any patch changes, and bounds say which cannot (Elkan 2003):
late iterations cost a tenth of the first ones. A GPU reads all patches in less time than it takes to ask which to read. Torch is the reference.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, cast

import torch
from pydantic import Field
from torch import Tensor

from panther.engine import Track, untracked
from panther.errors import LARGEST_SEED, InputError, check_fields
from panther.machine import cores
from panther.statistics import Statistics, accumulate, block_rows, nearest, squared_distances
from panther.statistics.compiled import CompiledRun, Library, compiled_kernel, iterate, suits_tensor
from panther.statistics.kernels import accumulate_many, on_triton

ITERATIONS = 300  # at most

# gives patches (m, d); asked when they are needed, so that few samples are held at a time
Sample = Callable[[], Tensor]
Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]  # the built-in, or that of a pool of threads


@dataclass(frozen=True)
class KMeansSettings:
    """How prototypes are fitted; all of it is saved with them."""

    n_prototypes: Annotated[int, Field(ge=1, le=100_000)] = 16
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] = 0
    sample: Annotated[int, Field(ge=1, le=10**9)] = 20_000  # patches for k-means++ and its restarts
    share: Literal["proportional", "equal"] = "proportional"  # of the sample, over slides
    restarts: Annotated[int, Field(ge=1, le=1000)] = 5
    passes: Annotated[int, Field(ge=0, le=1000)] = 3  # Lloyd passes over all patches of the cohort afterwards
    normalise: bool = False  # L2
    pca: Annotated[int, Field(ge=1)] | None = None  # dimensions
    memory_gb: Annotated[float, Field(gt=0, allow_inf_nan=False)] = (
        4.0  # cap on what the sample may take, or the samples of fits that walk together
    )
    centre: Literal["slide", "site"] | None = None  # whose mean is taken from the patches first

    def __post_init__(self) -> None:
        check_fields(self)
        if self.sample < self.n_prototypes:
            raise InputError(f"sample: found {self.sample}, expected at least n_prototypes ({self.n_prototypes})")

    @property
    def projects(self) -> bool:
        """Whether features are changed one by one before they meet prototypes."""
        return self.normalise or self.pca is not None


class KMeansRun(NamedTuple):
    """Result of one restart."""

    centroids: Tensor  # (C, d)
    inertia: float


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


def kmeans(x: Tensor, n_clusters: int, seed: int, restarts: int) -> Solved:
    """Best of several restarts on a sample (m, d), and the inertia of each."""
    return solve_all([KMeansProblem.on(x, n_clusters, seed, restarts)])[0]


def solve_all(problems: Sequence[KMeansProblem]) -> list[Solved]:
    """Solve several problems; the first error is raised."""
    solved = kmeans_many(problems)
    for run in solved:
        if isinstance(run, InputError):
            raise run
    return cast(list[Solved], solved)


def kmeans_many(problems: Sequence[KMeansProblem], track: Track = untracked) -> list[Solved | InputError]:
    """Solve several problems. Every task runs on one thread and is cut alike everywhere: no result depends on the number of cores."""
    count = len(problems)
    threads = torch.get_num_threads()
    # Threads of `solving` wait; those of `pool` compute. Few samples are in work at a time, which keeps caches and memory small.
    with ThreadPoolExecutor(cores()) as pool, ThreadPoolExecutor(samples_at_work(count)) as solving:
        teams = -(-cores() // max(1, count))  # restarts are spread where cores would be idle
        function = partial(_solve, pool=pool, teams=teams)
        solved = list(track(solving.map(function, problems), "K-means on the sample", count))
    torch.set_num_threads(threads)
    return solved


def samples_at_work(count: int) -> int:
    """How many of ``count`` samples are held at a time: one more than there are cores, which have something to do when one ends."""
    return max(1, min(count, cores() + 1))


@torch.no_grad()
def _solve(problem: KMeansProblem, pool: Executor, teams: int) -> Solved | InputError:
    torch.set_num_threads(1)
    sample, n_clusters, seed, restarts = problem
    x = sample()
    if all(len(torch.unique(rows, dim=0)) < n_clusters for rows in (x[: 100 * n_clusters], x)):
        return InputError(f"n_prototypes: {n_clusters} are more than the different ones of {len(x)} patches")
    each = map if x.is_cuda else partial(_on_one_thread, pool)
    origin = block_mean(x)
    energy = energies(x, origin)
    generators = [torch.Generator().manual_seed(seed * 1_000_003 + number) for number in range(restarts)]
    starts = plus_plus(x, n_clusters, origin, energy, generators, each)
    size = restarts if x.is_cuda else -(-restarts // teams)
    groups = [starts[first : first + size] for first in range(0, restarts, size)]
    groups_of_runs = each(lambda group: lloyd(x, group, origin, energy), groups)
    runs = [run for group in groups_of_runs for run in group]
    return min(runs, key=lambda run: run.inertia), [run.inertia for run in runs]


def _on_one_thread(pool: Executor, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    @torch.no_grad()
    def run(item: Any) -> Any:
        torch.set_num_threads(1)
        return function(item)

    return pool.map(run, items)


def block_mean(x: Tensor) -> Tensor:
    """Mean of the rows, summed in float64 block by block: no wide copy of the sample."""
    step = block_rows(x.shape[1], 4, x.device.type)
    total = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
    for start in range(0, len(x), step):
        total += x[start : start + step].sum(0, dtype=torch.float64)
    return (total / len(x)).to(x)


def plus_plus(
    x: Tensor, n_clusters: int, origin: Tensor, energy: Tensor, generators: Sequence[torch.Generator], each: Map = map
) -> list[Tensor]:
    """Seeds (C, d) of every restart, given |x - origin|^2 of all patches; ``each`` maps over blocks of rows."""
    draws = 2 + int(math.log(n_clusters))
    chosen = [[int(torch.randint(len(x), (1,), generator=g))] for g in generators]
    closest = _distances(x, [rows[0] for rows in chosen], origin, energy, each)  # (restarts, m)
    for _ in range(n_clusters - 1):
        chance = closest.cumsum(-1, dtype=torch.float64)  # (restarts, m)
        points = torch.stack([torch.rand(draws, generator=g, dtype=torch.float64) for g in generators]).to(chance)
        candidates = torch.searchsorted(chance, points * chance[:, -1:]).clamp_max_(len(x) - 1)  # (restarts, draws)
        tried = _distances(x, candidates.flatten().tolist(), origin, energy, each).view(*candidates.shape, -1)
        torch.minimum(tried, closest.unsqueeze(1), out=tried)
        best = tried.sum(-1, dtype=torch.float64).argmin(-1)  # (restarts,)
        closest = tried.take_along_dim(best.view(-1, 1, 1), 1).squeeze(1)
        for rows, row in zip(chosen, candidates.gather(1, best.unsqueeze(1)).flatten().tolist(), strict=True):
            rows.append(row)
    return [x[rows].clone() for rows in chosen]


def energies(x: Tensor, origin: Tensor) -> Tensor:
    """|x - origin|^2 of all patches, (m,)."""
    return torch.cat([(rows - origin).square_().sum(-1) for rows in x.split(_step(x))])


def _distances(x: Tensor, rows: list[int], origin: Tensor, energy: Tensor, each: Map) -> Tensor:
    """(k, m) squared distances to some of the patches, their norms known: |z|^2 - 2 z.p + |p|^2."""
    p = x[rows] - origin
    squared = x.new_empty(len(rows), len(x))
    norms = energy[rows].unsqueeze(-1)

    def fill(start: int) -> None:
        part = slice(start, start + step)
        cross = p @ (x[part] - origin).T
        torch.add(energy[part] + norms, cross, alpha=-2, out=squared[:, part]).clamp_min_(0)

    step = _step(x)
    for _ in each(fill, range(0, len(x), step)):
        pass
    return squared


def _step(x: Tensor) -> int:
    return block_rows(x.shape[1], x.element_size(), x.device.type)


def lloyd(
    x: Tensor, starts: Sequence[Tensor], origin: Tensor, energy: Tensor, max_iterations: int = ITERATIONS
) -> list[KMeansRun]:
    """Iterate from each start (C, d), given |x - origin|^2 of all patches; an empty cluster moves to the patch that is served worst.

    Each start ends where it would alone. In C and on a GPU they take their steps together.
    """
    if on_triton(x.dtype, nearest(starts[0] - origin), origin):
        return _lloyd_on_gpu(x, starts, origin, energy, max_iterations)
    library = compiled_kernel()
    if library is not None and suits_tensor(x):
        return _lloyd_compiled(library, x.contiguous(), starts, origin.contiguous(), energy, max_iterations)
    return [_lloyd_in_torch(x, start, origin, energy, max_iterations) for start in starts]


def _lloyd_in_torch(x: Tensor, centroids: Tensor, origin: Tensor, energy: Tensor, max_iterations: int) -> KMeansRun:
    for _ in range(max_iterations):
        before = centroids
        sums = accumulate(x, nearest(before - origin), origin, squares=False).statistics
        centroids = update_centroids(sums, before, origin, lambda: x)
        if torch.equal(before, centroids):
            break
    return KMeansRun(centroids, _inertia(sums, before, origin, energy))


def _lloyd_compiled(
    library: Library, x: Tensor, starts: Sequence[Tensor], origin: Tensor, energy: Tensor, max_iterations: int
) -> list[KMeansRun]:
    runs = [CompiledRun(library, x, start, origin, energy, max_iterations) for start in starts]
    stopped = runs
    while stopped:
        iterate(library, stopped, x.dtype)
        stopped = [run for run in stopped if run.empty]
        for run in stopped:
            run.centroids.copy_(update_centroids(run.sums, run.centroids, origin, lambda: x))
            run.go_on()
    return [KMeansRun(run.centroids, _inertia(run.sums, run.before, origin, energy)) for run in runs]


def _lloyd_on_gpu(
    x: Tensor, starts: Sequence[Tensor], origin: Tensor, energy: Tensor, max_iterations: int
) -> list[KMeansRun]:
    """All starts take a step, then one wait says which of them have settled: labels that stay give the same sums, to the last bit."""
    ended: dict[int, KMeansRun] = {}
    running, before = list(range(len(starts))), torch.stack(list(starts))  # (starts, C, d)
    for left in reversed(range(max_iterations)):
        sums = accumulate_many(x, nearest(before - origin), origin)
        after = _means(sums, before, origin)
        looks = torch.stack([(sums.mass == 0).any(-1), (after == before).flatten(1).all(-1)]).tolist()
        going = []
        for place, (start, empty, same) in enumerate(zip(running, *looks, strict=True)):
            statistics = Statistics(*(t[place] for t in sums))
            if empty:
                after[place] = update_centroids(statistics, before[place], origin, lambda: x)
            if left == 0 or (same and not empty):
                ended[start] = KMeansRun(after[place].clone(), _inertia(statistics, before[place], origin, energy))
            else:
                going.append(place)
        if not going:
            break
        running, before = [running[place] for place in going], after[going]
    return [ended[start] for start in range(len(starts))]


def _inertia(sums: Statistics, centroids: Tensor, origin: Tensor, energy: Tensor) -> float:
    """Sum of squared distances to the centroids that were followed last: it follows from the statistics, without looking at a patch."""
    p = (centroids - origin).double()
    inertia = energy.sum(dtype=torch.float64) - 2 * (p * sums.total).sum() + sums.mass @ p.square().sum(-1)
    return max(float(inertia), 0.0)


def _means(sums: Statistics, centroids: Tensor, origin: Tensor) -> Tensor:
    """Means of the patches of each centroid."""
    return (sums.total / sums.mass.unsqueeze(-1).clamp_min(1) + origin.double()).to(centroids)


def update_centroids(sums: Statistics, centroids: Tensor, origin: Tensor, sample: Callable[[], Tensor]) -> Tensor:
    """New centroids: the means of their patches; an empty one goes to the patch of the sample that is served worst."""
    means = _means(sums, centroids, origin)
    empty = (sums.mass == 0).nonzero().flatten()
    if len(empty):
        means[empty] = centroids[empty]
        x = sample()
        means[empty] = x[squared_distances(x, means, origin).amin(-1).topk(len(empty)).indices]
    return means
