r"""The patches that no prototype explains: how many there are, and what they look like. Scores and rows in, numbers out.

A patch counts by its surprise :math:`s_n = -\log p(z_n)`, on a ramp r (0 below 0, 1 above 1, smooth between) that climbs from what is usual to
what is rare among training patches:

.. math:: \text{share} = \frac1N \sum_n r\Big(\frac{s_n - u}{w}\Big), \qquad
          v_n = r\Big(\frac{s_n - u'}{w}\Big), \quad u' = \min(\max(u, s_{(k)}),\ s_{(m)} - w / 20)

The share is counted against the training slides alone: an atypical slide is seen as such. Mean and spread, weighed by v, are those of at most the top
2 % of the slide's own patches (k), and of at least its m most surprising ones, so that they always exist. All of it is continuous in the features.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from panther.statistics.blocks import block_rows, take
from panther.statistics.compiled import KINDS, Library, compiled_kernel
from panther.types import Rows

USUAL, RARE = 0.99, 0.999  # quantiles of the training patches at which the ramp begins and ends
MOST = 0.02  # of a slide's patches, in mean and spread
LEAST = 5  # patches
MARGIN = 0.05  # of the ramp, position of the last of them


class Tail(NamedTuple):
    """The tail of one bag."""

    share: Tensor  # ()
    excess: Tensor  # (), mean position on the ramp; above 1: beyond rare
    nearest: Tensor  # (C,), assignment to the prototypes
    mean: Tensor  # (d,)
    variance: Tensor  # (d,)


def surprise_edges(surprise: Tensor) -> tuple[float, float]:
    """Quantiles of the surprise of training patches: usual and rare."""
    levels = torch.tensor([USUAL, RARE], dtype=torch.float64, device=surprise.device)
    usual, rare = surprise.double().quantile(levels).tolist()
    return usual, max(rare, usual + 1e-5 * max(1.0, abs(usual)))  # a positive width also for equal patches


def ramp(x: Tensor) -> Tensor:
    """Smooth step from 0 to 1."""
    x = x.clamp(0, 1)
    return x * x * (3 - 2 * x)


def own_edge(surprise: Tensor, usual: float, width: float) -> Tensor:
    """Start of the ramp of one bag's mean and spread."""
    n = len(surprise)
    many, few = math.ceil(MOST * n), min(LEAST, n)
    top = surprise.topk(max(many, few)).values
    return torch.minimum(top[many - 1].clamp_min(usual), top[few - 1] - MARGIN * width)


def tail_of(x: Rows, surprise: Tensor, assignment: Tensor, edges: tuple[float, float]) -> Tail:
    """Tail of one bag (N, d) with the surprise (N,) and the assignment (N, C) of its patches.

    Only rows with a weight are read again, in blocks.
    """
    surprise = surprise.double()
    usual, width = edges[0], edges[1] - edges[0]
    edge = own_edge(surprise, usual, width)
    index = (surprise > edge.clamp_max(usual)).nonzero().flatten()  # the others have no weight on either ramp
    few = surprise[index]
    share = ramp((few - usual) / width).sum() / len(surprise)
    weight = ramp((few - edge) / width)
    index, few, weight = (t[weight > 0] for t in (index, few, weight))
    weight = weight / weight.sum()  # (n,)
    mean, variance = weighed_moments(x, index, weight)
    return Tail(
        share,
        weight @ ((few - usual) / width),
        weight @ assignment[index].double(),
        mean,
        variance,
    )


def weighed_moments(x: Rows, index: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance (d,) of rows at sorted indices (n,), with float64 weights (n,) that sum to one.

    Other rows are not read.
    """
    origin = take(x, index[:1])[0].detach().to(weight)  # squares about a distant origin lose digits
    total, square = torch.zeros(2, len(origin), dtype=weight.dtype, device=weight.device)
    library = compiled_kernel() if _suits(x, index, weight) else None
    step = block_rows(int(x.shape[1]), 8, weight.device.type)
    for rows, part in zip(index.split(step), weight.split(step), strict=True):
        if library is None:
            z = take(x, rows).to(part) - origin
            total, square = total + part @ z, square + part @ (z * z)
        elif isinstance(x, Tensor):
            _add_compiled(library, x, rows, part, origin, total, square)
        else:
            _add_compiled(library, take(x, rows), torch.arange(len(rows)), part, origin, total, square)
    return total + origin, (square - total * total).clamp_min(0)


def _suits(x: Rows, *others: Tensor) -> bool:
    """Whether C can do this: on the CPU, contiguous rows, no gradients."""
    tensors = [t for t in (x, *others) if isinstance(t, Tensor)]
    gradient = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    return x.dtype in KINDS and all(t.device.type == "cpu" and t.stride(-1) == 1 for t in tensors) and not gradient


def _add_compiled(
    library: Library, x: Tensor, index: Tensor, weight: Tensor, origin: Tensor, total: Tensor, square: Tensor
) -> None:
    """Add rows to the sums, in place."""
    source = x.data_ptr(), x.stride(0) * x.element_size(), KINDS[x.dtype]
    sums = origin.data_ptr(), total.data_ptr(), square.data_ptr()
    add = library.function("moments", torch.float64)
    add(*source, index.data_ptr(), weight.data_ptr(), len(index), x.shape[1], *sums)
