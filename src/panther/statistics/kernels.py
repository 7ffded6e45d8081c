"""One interface to all kernels, and the choice between them."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from panther.statistics import compiled, gpu
from panther.statistics.assign import Accumulated, Assign, Logits, Statistics
from panther.statistics.blocks import Workspace, blocks, check_patches, compute_dtype
from panther.statistics.compiled import compiled_kernel, distances_compiled, wanted_kernel
from panther.statistics.torch_kernel import accumulate_bags_in_torch, accumulate_in_torch
from panther.types import Ragged, Rows


def kernel_name(device: str = "cpu") -> str:
    """Name of the kernel that computes on a device of this machine: `torch`, `triton`, or `compiled` and the instruction set."""
    if torch.device(device).type == "cuda":
        return "triton" if wanted_kernel() != "torch" and gpu.can_compute(torch.device(device)) else "torch"
    library = compiled_kernel()
    return "torch" if library is None else f"compiled ({library.name})"


def accumulate(
    x: Rows | Ragged,
    assign: Assign,
    origin: Tensor,
    *,
    mask: Tensor | None = None,
    squares: bool = True,
    keep_assignment: bool = False,
    keep_scores: bool = False,
) -> Accumulated:
    """Walk ``x`` once and add up the statistics of its assignment, about ``origin`` and in float64.

    Parameters
    ----------
    x : Rows, Tensor or Ragged
        Features (N, d), lazily read or in memory, a padded batch (B, N, d), or bags one after the other.
    assign : Assign
        Gives each centred block its assignment. Differentiable if it is.
    origin : Tensor
        Point (d,) subtracted first; its type and device are those of the arithmetic.
        E[x^2] - mu^2 loses all digits in float32 when |mean| >> std; near the origin it does not.
    mask : Tensor, optional
        (B, N), True for a real patch.
    keep_assignment, keep_scores : bool, default=False
        Whether to return the assignment and the score of each patch, the only results that grow with the bag.
    """
    check_patches(x, mask)
    keep = {"keep_assignment": keep_assignment, "keep_scores": keep_scores}
    if isinstance(assign, Logits) and mask is None and not needs_gradient(x, assign, origin):
        fast = _fast_kernel(x, assign, origin)
        if fast is not None:
            return fast(x, assign, origin, squares=squares, **keep)
    if isinstance(x, Ragged):
        return accumulate_bags_in_torch(x, assign, origin, squares=squares, **keep)
    return accumulate_in_torch(x, assign, origin, mask, squares=squares, **keep)


def accumulate_many(x: Tensor, assign: Logits, origin: Tensor) -> Statistics:
    """Statistics, without squares, of the same rows (N, d) under each of several sets of factors (R, d, C): as computed for each set separately."""
    if on_triton(x.dtype, assign, origin):
        return gpu.accumulate_many(x, assign, origin)
    each = zip(assign.linear, assign.bias, strict=True)
    sums = [accumulate(x, Logits(a, b, hard=assign.hard), origin, squares=False).statistics for a, b in each]
    return Statistics(*(torch.stack(t) for t in zip(*sums, strict=True)))


def _fast_kernel(x: Rows | Ragged, assign: Logits, origin: Tensor) -> Callable[..., Accumulated] | None:
    """Kernel that is faster than torch here, if there is one and it is enabled."""
    if on_triton(x.dtype, assign, origin):
        return gpu.accumulate_on_gpu
    library = compiled_kernel()
    if library is not None and compiled.suits(x, assign, origin):
        return partial(compiled.accumulate_compiled, library)
    return None


def parts_of(assign: Logits) -> tuple[Tensor, ...]:
    """Parts of the factors as the Triton kernel reads them; empty without that kernel."""
    return gpu.parts_of(assign) if on_triton(assign.linear.dtype, assign, assign.linear) else ()


def on_triton(dtype: torch.dtype, assign: Logits, origin: Tensor) -> bool:
    """Whether the Triton kernel computes this, for features of ``dtype`` on the device of the origin."""
    return wanted_kernel() != "torch" and gpu.suits(dtype, assign, origin)


def needs_gradient(x: Rows | Ragged, assign: Logits, origin: Tensor) -> bool:
    """Whether gradients must flow through this, which only torch can do."""
    rows = x.rows if isinstance(x, Ragged) else x
    tensors = (rows, origin, assign.linear, assign.bias, assign.quadratic, assign.common)
    return torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in tensors)


def squared_distances(x: Rows, points: Tensor, origin: Tensor, mask: Tensor | None = None) -> Tensor:
    """Squared Euclidean distances (..., N, k) of all patches to a few points; the origin keeps digits, as in the kernel."""
    check_patches(x, mask)
    p = points - origin
    norms = p.square().sum(-1)
    linear = Logits(-2 * p.mT, norms)
    library = compiled_kernel()
    if (
        library is not None
        and mask is None
        and compiled.suits(x, linear, origin)
        and not needs_gradient(x, linear, origin)
    ):
        return distances_compiled(library, x, linear, origin)
    parts = []
    work = Workspace(reuse=not torch.is_grad_enabled())
    for block, real in blocks(x, mask, origin):
        z = work.centred(block, origin, real)
        energy = torch.linalg.vector_norm(z, dim=-1, keepdim=True).square()  # reads once, unlike z.square().sum()
        parts.append((energy - 2 * z @ p.T + norms).clamp_min(0))
    return torch.cat(parts, dim=-2)


def distances_to_prototypes(x: Rows, centroids: Tensor, mask: Tensor | None = None) -> Tensor:
    """The same (..., N, C) to prototypes, about their mean, in the type in which features are computed with."""
    points = centroids.to(compute_dtype(x.dtype))
    return squared_distances(x, points, points.mean(0), mask)
