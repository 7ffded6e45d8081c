"""What EM does between two walks, in C: `compiled_mixture.c`, of the same library as the compiled kernel; one bag, on the CPU."""

import torch
from torch import Tensor

from panther.statistics.compiled import Library
from panther.statistics.kernels import compiled_kernel
from panther.statistics.sums import Statistics


def library_for(*tensors: Tensor) -> Library | None:
    """Return the compiled kernel where it can do it: one bag, on the CPU, in float64, without gradients."""
    for t in tensors:
        if (
            t.dim() > 2
            or t.dtype != torch.float64
            or t.device.type != "cpu"
            or (t.requires_grad and torch.is_grad_enabled())
        ):
            return None
    return compiled_kernel()


def factors_compiled(
    library: Library, weights: Tensor, means: Tensor, variances: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Linear factors (d, C), bias (1, C) and quadratic factors (d, C) of a mixture's logits; none where a variance (1, d) is shared."""
    count, dim = means.shape
    linear, bias = torch.empty(dim, count, dtype=dtype), torch.empty(1, count, dtype=dtype)
    quadratic = None if len(variances) == 1 else torch.empty_like(linear)
    given = [t.contiguous() for t in (weights, means, variances)]
    made = (None if t is None else t.data_ptr() for t in (linear, quadratic, bias))
    library.function("factors", dtype)(count, dim, *(t.data_ptr() for t in given), *made)
    return linear, bias, quadratic


def maximise_compiled(
    library: Library, sums: Statistics, centres: Tensor, variance: Tensor, tau: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights (C,), means and variances (C, d) of the sums."""
    count, dim = centres.shape
    made = torch.empty(count, dtype=torch.float64), torch.empty_like(centres), torch.empty_like(centres)
    given = [t.contiguous() for t in (sums.mass, sums.total, sums.square, centres, variance)]
    library.function("maximise", torch.float64)(count, dim, tau, *(t.data_ptr() for t in (*given, *made)))
    return made


def far_out_compiled(library: Library, mass: Tensor, means: Tensor, variances: Tensor, most: float) -> bool:
    """Whether a component of more than one patch lies far from the origin, in units of its variance."""
    given = [t.contiguous() for t in (mass, means, variances)]
    return bool(library.function("far_out", torch.float64)(*means.shape, most, *(t.data_ptr() for t in given)))
