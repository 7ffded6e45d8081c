"""Mean and variance of a few rows, weighed: in C (`compiled_moments.c`) where that can be done, else in torch."""

import torch
from torch import Tensor

from panther.statistics.blocks import block_rows, take
from panther.statistics.compiled import KINDS, Library, compiled_kernel
from panther.types import Rows


def weighed_moments(x: Rows, index: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance (d,) of rows at sorted indices (n,), with float64 weights (n,) that sum to one.

    Other rows are not read, and these a block at a time.
    """
    origin = take(x, index[:1])[0].detach().to(weight)  # squares of numbers far from zero lose digits
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
    """Whether C can do it: all on the CPU, rows and lists without gaps, no gradients."""
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
