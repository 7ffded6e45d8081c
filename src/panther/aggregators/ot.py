r"""OT: entropic optimal transport of the patches to the prototypes with uniform marginals, C d numbers.

.. math:: \min_P \sum_{nc} P_{nc} |z_n - h_c|^2 + \epsilon \sum_{nc} P_{nc} \log P_{nc},\quad
          P 1 = 1/N,\ P^T 1 = 1/C

The solution is a softmax, :math:`P_{nc} = \frac1N \mathrm{softmax}_c((g_c - |z_n - h_c|^2)/\epsilon)`: a mixture's posterior whose
weights are replaced by potentials g that make every prototype equally heavy.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from panther.aggregators._base import aggregators, per_prototype_means
from panther.errors import check_choice, check_number, check_whole
from panther.statistics import NEGLIGIBLE, Assign, Logits, accumulate, compute_dtype, distances_to_prototypes
from panther.statistics.compiled import compiled_kernel, sinkhorn_compiled, suits_tensor
from panther.types import Aggregator, Prototypes, Rows, SlideEmbedding

LARGE = math.exp(50)  # scalings beyond it, or its inverse, are absorbed into the potentials to avoid overflow
CHECK_EVERY = 10  # iterations between checks of convergence


class Transport(NamedTuple):
    """Result of Sinkhorn's iterations; a leading batch dimension is allowed."""

    potentials: Tensor  # (..., C), g / epsilon
    violation: Tensor  # (...), total variation between the plan's prototype marginal and the uniform one
    iterations: int


def sinkhorn(cost: Tensor, real: Tensor, iterations: int, tolerance: float) -> Transport:
    r"""Row-stabilised Sinkhorn on costs (..., N, C) already divided by epsilon; ``real`` (..., N) marks patches.

    Each row of the kernel :math:`\exp(g - cost)` is divided by its largest entry, so that no row vanishes however small
    epsilon is; scalings of the columns are absorbed into g before they overflow, and the kernel is made anew.
    """
    library = compiled_kernel()
    if library is not None and cost.dim() == 2 and suits_tensor(cost, torch.float64) and bool(real.all()):
        plan, violation, done = sinkhorn_compiled(library, cost, iterations, CHECK_EVERY, tolerance, LARGE)
        return Transport(plan, cost.new_tensor(violation), done)
    rows = real.to(cost) / real.sum(-1, keepdim=True)  # a
    column = 1.0 / cost.shape[-1]  # b
    potentials = cost.new_zeros(*cost.shape[:-2], cost.shape[-1])
    kernel, scaling = _kernel(cost, potentials, real), torch.ones_like(potentials)
    tiny = torch.finfo(cost.dtype).tiny
    for done in range(1, iterations + 1):
        u = rows / _product(kernel, scaling)
        marginal = scaling * _product(kernel.transpose(-1, -2), u)  # of the plan with exact rows
        if done % CHECK_EVERY == 0 and float((0.5 * (marginal - column).abs().sum(-1)).max()) < tolerance:
            break
        scaling = scaling * column / marginal.clamp_min(tiny)
        low, high = scaling.aminmax()
        if float(low) < 1 / LARGE or float(high) > LARGE:
            potentials, scaling = potentials + scaling.log().clamp(-500, 500), torch.ones_like(scaling)
            kernel = _kernel(cost, potentials, real)
    potentials = potentials + scaling.log()
    plan = _kernel(cost, potentials, real)
    plan = plan * (rows / plan.sum(-1)).unsqueeze(-1)
    return Transport(potentials, 0.5 * (plan.sum(-2) - column).abs().sum(-1), done)


def plan_rows(centroids: Tensor, transport: Transport, epsilon: Tensor) -> Assign:
    """Give each patch its row of the plan, times N, from the potentials alone."""
    scale = epsilon[..., None, None]
    linear = (2 * centroids.T / scale).to(centroids)  # (..., d, C)
    bias = (
        (transport.potentials - centroids.double().square().sum(-1) / epsilon.unsqueeze(-1)).unsqueeze(-2).to(centroids)
    )

    return Logits(linear, bias)


def plan_rows_by_distance(centroids: Tensor, transport: Transport, epsilon: Tensor) -> Assign:
    """Rows of the plan where the cost is the distance instead of its square."""
    norms = centroids.square().sum(-1)
    potentials = transport.potentials.unsqueeze(-2).to(centroids)

    def assign(z: Tensor, z2: Tensor | None) -> tuple[Tensor, Tensor]:
        energy = torch.linalg.vector_norm(z, dim=-1, keepdim=True).square()
        distance = (energy - 2 * z @ centroids.T + norms).clamp_min(0).sqrt()
        joint = potentials - distance / epsilon[..., None, None].to(distance)
        return torch.nn.functional.threshold(joint.softmax(-1), NEGLIGIBLE, 0.0), joint.logsumexp(-1)

    return assign


COST = {"squared": (lambda squared: squared, plan_rows), "euclidean": (torch.sqrt, plan_rows_by_distance)}


@aggregators.register(
    "ot",
    title="OT",
    permutation_invariant=True,
    duplication_invariant=True,
    differentiable=False,
    options=("epsilon", "iterations", "tolerance", "cost", "relative"),
    variants=({}, {"epsilon": 1.0}, {"cost": "euclidean", "relative": False, "epsilon": 2.0}),
    tokens=lambda options: True,
)
class OT(Aggregator):
    r"""Return :math:`C \sum_n P_{nc} z_n`, the mean of what is transported to each prototype.

    Parameters
    ----------
    prototypes : Prototypes
        Centroids.
    epsilon : float
        Regularisation, relative to the mean cost of the slide or, with ``relative=False``, as it is.
    iterations : int
        At most that many of Sinkhorn's.
    tolerance : float
        Violation of the uniform marginal at which to stop; the one reached is in `aux`.
    cost : str
        `squared` distance, or `euclidean` distance.
    """

    def __init__(
        self,
        prototypes: Prototypes,
        epsilon: float = 0.1,
        iterations: int = 100,
        tolerance: float = 1e-7,
        cost: str = "squared",
        relative: bool = True,
    ) -> None:
        super().__init__()
        check_number("epsilon", epsilon, 0, above=True)
        check_whole("iterations", iterations, 1, 1_000_000)
        check_number("tolerance", tolerance, 0)
        check_choice("cost", cost, COST)
        self.epsilon, self.iterations, self.tolerance = epsilon, iterations, tolerance
        self.cost, self.relative = cost, relative
        self.register_buffer("centroids", prototypes.centroids.clone())
        self.out_dim = prototypes.centroids.numel()

    @torch.no_grad()
    def forward(self, x: Rows, mask: Tensor | None = None, *, with_assignment: bool = False) -> SlideEmbedding:
        """Find the potentials on the (N, C) costs, then pass over the patches once more with their plan."""
        distances = distances_to_prototypes(x, self.get_buffer("centroids"), mask)
        return self.read(x, distances, mask, with_assignment=with_assignment)

    @torch.no_grad()
    def read(
        self, x: Rows, distances: Tensor, mask: Tensor | None = None, *, with_assignment: bool = False
    ) -> SlideEmbedding:
        """Embed with known squared distances (..., N, C)."""
        centroids = self.get_buffer("centroids").to(compute_dtype(x.dtype))
        origin = centroids.mean(0)
        of_square, rows_of = COST[self.cost]
        cost = of_square(distances.double())
        real = (
            torch.ones(cost.shape[:-1], dtype=torch.bool, device=cost.device) if mask is None else mask.to(cost.device)
        )
        count = real.sum(-1).clamp_min(1)
        mean_cost = (cost * real.unsqueeze(-1)).sum((-1, -2)) / (count * cost.shape[-1])
        unit = mean_cost if self.relative else torch.ones_like(mean_cost)
        epsilon = (self.epsilon * unit).clamp_min(torch.finfo(torch.float64).tiny)
        transport = sinkhorn(cost / epsilon[..., None, None], real, self.iterations, self.tolerance)
        assign = rows_of(centroids - origin, transport, epsilon)
        sums, assignment, _ = accumulate(x, assign, origin, mask=mask, squares=False, keep_assignment=with_assignment)
        means = (
            sums.total * len(centroids) / count[..., None, None]
            + origin * sums.mass.unsqueeze(-1) * len(centroids) / count[..., None, None]
        )
        means = means.to(origin.dtype)
        aux = {"mass": sums.mass, "marginal_violation": transport.violation, "iterations": transport.iterations}
        plan = None if assignment is None else assignment / count[..., None, None].to(assignment)
        return SlideEmbedding(means.flatten(-2), means, plan, aux)

    def columns(self) -> list[tuple[int, str, int]]:
        """Each number is one dimension of a prototype's transported mean."""
        return list(per_prototype_means(*self.get_buffer("centroids").shape))


def _kernel(cost: Tensor, potentials: Tensor, real: Tensor) -> Tensor:
    exponent = potentials.unsqueeze(-2) - cost
    return (exponent - exponent.amax(-1, keepdim=True)).exp() * real.unsqueeze(-1) + (~real).unsqueeze(-1).to(cost)


def _product(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)
