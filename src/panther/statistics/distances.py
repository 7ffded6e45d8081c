"""Distances of all patches to a few points."""

import torch
from torch import Tensor

from panther.statistics.blocks import Workspace, blocks, check_patches
from panther.types import Rows


def squared_distances(x: Rows, points: Tensor, origin: Tensor, mask: Tensor | None = None) -> Tensor:
    """Squared Euclidean distances (..., N, k) of all patches to a few points; the origin keeps digits, as in the kernel."""
    check_patches(x, mask)
    p = points - origin
    norms = p.square().sum(-1)
    parts = []
    work = Workspace(reuse=not torch.is_grad_enabled())
    for block, real in blocks(x, mask, origin):
        z = work.centred(block, origin, real)
        energy = torch.linalg.vector_norm(z, dim=-1, keepdim=True).square()  # reads once, unlike z.square().sum()
        parts.append((energy - 2 * z @ p.T + norms).clamp_min(0))
    return torch.cat(parts, dim=-2)
