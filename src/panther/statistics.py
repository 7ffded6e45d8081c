r"""The one streaming kernel: walk a bag in blocks, assign each patch to prototypes, add up statistics.

Every prototype method is *assign, then accumulate*: an assignment :math:`A` (patches x prototypes) and the sums
:math:`A^T [1, z, z^2]`. Sums of blocks, slides, processes and machines simply add. Nothing of size N x d is ever held.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from panther.errors import InputError
from panther.types import Rows

# (z, z^2), both (..., n, d) and centred -> assignment (..., n, C) and a score per patch (..., n)
Assign = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]]

BLOCK_BYTES = {"cpu": 2 << 20, "cuda": 256 << 20}  # on a CPU a block and its squares stay in cache
NEGLIGIBLE = 1e-30  # smaller posteriors count as zero: products with subnormal numbers are 30 times slower


class Statistics(NamedTuple):
    r"""Sums over patches about an origin: :math:`s_0=\sum_n a_{nc}`, :math:`s_1=\sum_n a_{nc} z_n`, :math:`s_2=\sum_n a_{nc} z_n^2`."""

    mass: Tensor  # (..., C)
    total: Tensor  # (..., C, d)
    square: Tensor  # (..., C, d); zeros where squares were not asked for
    score: Tensor  # (...), sum of the patches' scores
    patches: Tensor  # (...), their number

    def merge(self, other: "Statistics") -> "Statistics":
        """Statistics of two disjoint sets of patches."""
        return Statistics(*(a + b for a, b in zip(self, other, strict=True)))


class Accumulated(NamedTuple):
    """Statistics of a whole bag and, when asked for, the assignment that made them."""

    statistics: Statistics
    assignment: Tensor | None  # (..., N, C)


def accumulate(
    x: Rows,
    assign: Assign,
    origin: Tensor,
    *,
    mask: Tensor | None = None,
    squares: bool = True,
    keep_assignment: bool = False,
) -> Accumulated:
    """Walk ``x`` once and add up the statistics of its assignment, about ``origin`` and in float64.

    Parameters
    ----------
    x : Rows or Tensor
        Features (N, d), lazily read or in memory, or a padded batch (B, N, d).
    assign : Assign
        Gives each centred block its assignment. Differentiable if it is.
    origin : Tensor
        Point (d,) subtracted first; its type is the type of the arithmetic and its device the place of it.
        E[x^2] - mu^2 loses all digits in float32 when |mean| >> std; near the origin it does not.
    mask : Tensor, optional
        (B, N), True for a real patch.
    """
    sums: Statistics | None = None
    kept: list[Tensor] = []
    work = _Workspace(reuse=not torch.is_grad_enabled())
    for block, real in _blocks(x, mask, origin):
        z = work.centred(block, origin, real)  # (..., n, d)
        z2 = work.squared(z) if squares else None
        a, score = assign(z, z2)  # (..., n, C), (..., n)
        if real is not None:
            a, score = a * real.unsqueeze(-1).to(a), score * real.to(score)
        part = _sums(z, z2, a, score, real)
        sums = part if sums is None else sums.merge(part)
        if keep_assignment:
            kept.append(a)
    assert sums is not None
    return Accumulated(sums, torch.cat(kept, dim=-2) if keep_assignment else None)


def _sums(z: Tensor, z2: Tensor | None, a: Tensor, score: Tensor, real: Tensor | None) -> Statistics:
    """Sums of one block: matrix products in the block's type, handed on in float64 so that 1e8 patches add up safely."""
    by_prototype = a.transpose(-1, -2)  # (..., C, n)
    total = (by_prototype @ z).double()
    square = torch.zeros_like(total) if z2 is None else (by_prototype @ z2).double()
    count = score.new_full(score.shape[:-1], score.shape[-1]) if real is None else real.sum(-1)
    return Statistics(a.sum(-2, dtype=torch.float64), total, square, score.sum(-1, dtype=torch.float64), count.double())


def nearest(centroids: Tensor) -> Assign:
    r"""Hard assignment to the nearest centroid, centred like the blocks; score :math:`\max_c z\cdot h_c - |h_c|^2/2`."""
    bias = -0.5 * (centroids * centroids).sum(-1)

    def assign(z: Tensor, z2: Tensor | None) -> tuple[Tensor, Tensor]:
        score, index = (z @ centroids.T + bias).max(-1)
        return torch.nn.functional.one_hot(index, len(centroids)).to(z), score

    return assign


def squared_distances(x: Rows, points: Tensor, origin: Tensor, mask: Tensor | None = None) -> Tensor:
    """Squared Euclidean distances (..., N, k) of all patches to a few points; the origin keeps digits as above."""
    p = points - origin
    norms = p.square().sum(-1)
    parts = []
    work = _Workspace(reuse=not torch.is_grad_enabled())
    for block, real in _blocks(x, mask, origin):
        z = work.centred(block, origin, real)
        energy = torch.linalg.vector_norm(z, dim=-1, keepdim=True).square()  # reads once, unlike z.square().sum()
        parts.append((energy - 2 * z @ p.T + norms).clamp_min(0))
    return torch.cat(parts, dim=-2)


def everything(z: Tensor, z2: Tensor | None) -> tuple[Tensor, Tensor]:
    """Assign every patch to one and the same."""
    return z.new_ones(*z.shape[:-1], 1), z.new_zeros(z.shape[:-1])


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Half-precision features are widened block by block to float32; float64 stays."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def block_rows(dim: int, itemsize: int, device: str, batch: int = 1) -> int:
    """Rows of a block that suit the device."""
    return max(32, BLOCK_BYTES.get(device, BLOCK_BYTES["cuda"]) // (dim * itemsize * batch))


def first_bad_row(x: Rows) -> int | None:
    """Index of the first row with a NaN or an infinite number; None if there is none."""
    step = block_rows(int(x.shape[1]), 4, "cpu")
    for start in range(0, int(x.shape[0]), step):
        bad = ~torch.isfinite(x[start : start + step]).all(-1)
        if bool(bad.any()):
            return start + int(bad.nonzero()[0])
    return None


def _blocks(x: Rows, mask: Tensor | None, origin: Tensor) -> Iterator[tuple[Tensor, Tensor | None]]:
    if x.shape[-2] == 0:
        raise InputError("The bag is empty (0 patches); an embedding needs at least one patch.")
    if mask is not None and not bool(mask.any(-1).all()):
        raise InputError("A bag of the batch is empty (its mask has no real patch); leave it out.")
    batch = int(x.shape[0]) if len(x.shape) == 3 else 1
    step = block_rows(int(x.shape[-1]), origin.element_size(), origin.device.type, batch)
    for start in range(0, int(x.shape[-2]), step):
        rows = slice(start, start + step)
        block = x[rows] if len(x.shape) == 2 else x[:, rows]  # type: ignore[index]
        yield block.to(origin.device), None if mask is None else mask[..., rows].to(origin.device)


class _Workspace:
    """Memory for a block and its squares, taken once and used for all blocks where no gradient needs the old ones.

    Fresh memory for every block costs as much as the arithmetic on it: the system hands it out page by page.
    """

    def __init__(self, *, reuse: bool) -> None:
        self._reuse = reuse
        self._held: dict[str, Tensor] = {}

    def centred(self, block: Tensor, origin: Tensor, real: Tensor | None) -> Tensor:
        """Block minus origin, in the origin's type; zeros where it is padding, which may hold anything, even NaN."""
        if not self._reuse:
            z = block - origin if block.dtype == origin.dtype else block.to(origin.dtype).sub_(origin)
            return z if real is None else z.masked_fill(~real.unsqueeze(-1), 0.0)
        z = self._memory("centred", block.shape, origin)
        if block.dtype == origin.dtype:
            torch.sub(block, origin, out=z)
        else:
            z.copy_(block).sub_(origin)
        return z if real is None else z.masked_fill_(~real.unsqueeze(-1), 0.0)

    def squared(self, z: Tensor) -> Tensor:
        """Squares of a centred block."""
        return torch.mul(z, z, out=self._memory("squared", z.shape, z)) if self._reuse else z * z

    def _memory(self, name: str, shape: torch.Size, like: Tensor) -> Tensor:
        held = self._held.get(name)
        if held is None or held.shape[0] < shape[0] or held.shape[1:] != shape[1:]:
            held = self._held[name] = torch.empty(shape, dtype=like.dtype, device=like.device)
        return held[: shape[0]]
