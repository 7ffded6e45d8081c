r"""Lloyd iterations on a sample in memory, until no patch changes its prototype.

.. math:: \min_h \sum_n \min_c |z_n - h_c|^2

After a few iterations hardly any patch changes, and bounds say which cannot (Elkan 2003): a patch whose own centroid is surely nearer than
any other is not looked at. The late iterations, in which a coarser criterion would have stopped too early, then cost a tenth of the first ones.
The same iterations are one loop in C where there is a compiled kernel, with bounds that also say which centroids a patch is compared with.
A GPU reads all patches in less time than it takes to ask which to read: there the kernel looks at every one of them in each iteration.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from panther.statistics import Statistics, block_rows, compiled_lloyd, nearest, squared_distances
from panther.statistics.compiled import Library
from panther.statistics.kernels import accumulate_many, compiled_kernel, on_triton

ITERATIONS = 300  # at most
SLACK = 1e-3  # of the patches' distance to the origin: rounding of distances in float32 stays far below


class KMeansRun(NamedTuple):
    """Result of one restart."""

    centroids: Tensor  # (C, d)
    inertia: float


def lloyd(x: Tensor, centroids: Tensor, origin: Tensor, energy: Tensor, max_iterations: int = ITERATIONS) -> KMeansRun:
    """Iterate from given centroids, |x - origin|^2 of all patches known; an empty cluster moves to the patch that is served worst."""
    (run,) = lloyd_many(x, [centroids], origin, energy, max_iterations)
    return run


def lloyd_many(
    x: Tensor, starts: Sequence[Tensor], origin: Tensor, energy: Tensor, max_iterations: int = ITERATIONS
) -> list[KMeansRun]:
    """The same from several starts: each ends where it would alone. In C and on a GPU they take their steps together."""
    if on_triton(x.dtype, nearest(starts[0] - origin), origin):
        return _lloyd_on_gpu(x, starts, origin, energy, max_iterations)
    library = compiled_kernel()
    if library is not None and compiled_lloyd.suits(x):
        return _lloyd_compiled(library, x.contiguous(), starts, origin.contiguous(), energy, max_iterations)
    return [_lloyd_in_torch(x, start, origin, energy, max_iterations) for start in starts]


def _lloyd_in_torch(x: Tensor, centroids: Tensor, origin: Tensor, energy: Tensor, max_iterations: int) -> KMeansRun:
    labels = _Labels(x, origin, energy, len(centroids))
    before = centroids
    for _ in range(max_iterations):
        labels.follow(before, centroids)
        before, centroids = centroids, moved(labels.sums, centroids, origin, lambda: x)
        if torch.equal(before, centroids):
            break
    return KMeansRun(centroids, _inertia(labels.sums, before, origin, energy))


def _lloyd_compiled(
    library: Library, x: Tensor, starts: Sequence[Tensor], origin: Tensor, energy: Tensor, max_iterations: int
) -> list[KMeansRun]:
    runs = [compiled_lloyd.CompiledRun(library, x, start, origin, energy, max_iterations) for start in starts]
    stopped = runs
    while stopped:
        compiled_lloyd.iterate(library, stopped, x.dtype)
        stopped = [run for run in stopped if run.empty]
        for run in stopped:
            run.centroids.copy_(moved(run.sums, run.centroids, origin, lambda: x))
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
            own = Statistics(*(t[place] for t in sums))
            if empty:
                after[place] = moved(own, before[place], origin, lambda: x)
            if left == 0 or (same and not empty):
                ended[start] = KMeansRun(after[place].clone(), _inertia(own, before[place], origin, energy))
            else:
                going.append(place)
        if not going:
            break
        running, before = [running[place] for place in going], after[going]
    return [ended[start] for start in range(len(starts))]


def _slack(energy: Tensor) -> float:
    """How much nearer the own centroid must be for a patch not to be looked at."""
    return SLACK * float(energy.mean().sqrt())


def _inertia(sums: Statistics, centroids: Tensor, origin: Tensor, energy: Tensor) -> float:
    """Sum of squared distances to the centroids that were followed last: it follows from the statistics, without looking at a patch."""
    p = (centroids - origin).double()
    about = energy.sum(dtype=torch.float64) - 2 * (p * sums.total).sum() + sums.mass @ p.square().sum(-1)
    return max(float(about), 0.0)


def _means(sums: Statistics, centroids: Tensor, origin: Tensor) -> Tensor:
    """Means of the patches of each centroid."""
    return (sums.total / sums.mass.unsqueeze(-1).clamp_min(1) + origin.double()).to(centroids)


def moved(sums: Statistics, centroids: Tensor, origin: Tensor, sample: Callable[[], Tensor]) -> Tensor:
    """New centroids: the means of their patches; an empty one goes to the patch of the sample that is served worst."""
    means = _means(sums, centroids, origin)
    empty = (sums.mass == 0).nonzero().flatten()
    if len(empty):
        means[empty] = centroids[empty]
        means[empty] = worst_served(sample(), means, origin, len(empty))
    return means


def worst_served(x: Tensor, centroids: Tensor, origin: Tensor, count: int) -> Tensor:
    """Return the patches farthest from their nearest centroid."""
    return x[squared_distances(x, centroids, origin).amin(-1).topk(count).indices]


class _Labels:
    """The nearest centroid of every patch, the statistics of that, and bounds on the distances that make it cheap to keep both true."""

    def __init__(self, x: Tensor, origin: Tensor, energy: Tensor, n_clusters: int) -> None:
        m, d = x.shape
        self._x, self._origin, self._energy = x, origin, energy
        self._slack = _slack(energy)
        self._label = torch.full((m,), n_clusters, device=x.device)  # none yet
        self._upper = x.new_full((m,), torch.inf)  # on the distance to the own centroid
        self._lower = x.new_zeros(n_clusters, m)  # on the distance to each other one; infinite for the own
        self._mass = x.new_zeros(n_clusters + 1, dtype=torch.float64)  # the last one: of patches without a label
        self._total = x.new_zeros(n_clusters, d, dtype=torch.float64)

    @property
    def sums(self) -> Statistics:
        """Mass and sums about the origin."""
        none = self._mass.new_zeros(())
        return Statistics(self._mass[:-1], self._total, none, none, none)

    def follow(self, before: Tensor, centroids: Tensor) -> None:
        """Update everything after the centroids moved; patches that cannot have changed are not looked at."""
        shift = (centroids - before).norm(dim=-1)
        self._lower -= shift.unsqueeze(-1)
        self._upper += torch.cat([shift, shift.new_zeros(1)])[self._label]
        near = self._upper + self._slack >= self._lower.amin(0)
        p = centroids - self._origin
        norms = p.square().sum(-1, keepdim=True)
        step = block_rows(self._x.shape[1], self._x.element_size(), self._x.device.type)
        for rows in near.nonzero().flatten().split(step):
            self._look(rows, p, norms)

    def _look(self, rows: Tensor, p: Tensor, norms: Tensor) -> None:
        """Distances of some patches to all centroids, and what follows from them."""
        z = self._x.index_select(0, rows).sub_(self._origin)
        distance = torch.addmm(norms + self._energy[rows], p, z.T, alpha=-2).clamp_min_(0).sqrt_()  # (C, n)
        least, label = distance.min(0)
        self._upper[rows] = least
        self._lower[:, rows] = distance.scatter_(0, label.unsqueeze(0), torch.inf)
        old = self._label[rows]
        changed = (label != old).nonzero().flatten()
        if len(changed):
            self._change(z.index_select(0, changed), old[changed], label[changed])
            self._label[rows] = label

    def _change(self, z: Tensor, old: Tensor, new: Tensor) -> None:
        """Take patches from their old clusters to new ones: a product with +1 and -1."""
        columns = torch.arange(len(z), device=z.device)
        sign = z.new_zeros(len(self._mass), len(z))
        sign[new, columns] = 1
        sign[old, columns] = -1
        self._mass += sign.sum(-1, dtype=torch.float64)
        self._total += (sign[:-1] @ z).double()
