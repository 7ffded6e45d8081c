"""Distances of all patches to a few points."""

import torch
from torch import Tensor

from panther.statistics.assign import Logits
from panther.statistics.blocks import Workspace, blocks, check_patches, compute_dtype
from panther.statistics.compiled import distances_compiled, suits
from panther.statistics.kernels import compiled_kernel, needs_gradient
from panther.types import Rows


def squared_distances(x: Rows, points: Tensor, origin: Tensor, mask: Tensor | None = None) -> Tensor:
    """Squared Euclidean distances (..., N, k) of all patches to a few points; the origin keeps digits, as in the kernel."""
    check_patches(x, mask)
    p = points - origin
    norms = p.square().sum(-1)
    linear = Logits(-2 * p.mT, norms)
    library = compiled_kernel()
    if library is not None and mask is None and suits(x, linear, origin) and not needs_gradient(x, linear, origin):
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
