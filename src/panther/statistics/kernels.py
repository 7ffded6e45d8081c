"""One interface to all kernels, and the choice between them."""

from collections.abc import Callable

import torch
from torch import Tensor

from panther.statistics import gpu
from panther.statistics.assign import Assign, Logits
from panther.statistics.blocks import check_patches
from panther.statistics.sums import Accumulated
from panther.statistics.torch_kernel import accumulate_bags_in_torch, accumulate_in_torch
from panther.types import Ragged, Rows


def accumulate(
    x: Rows | Ragged,
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
    x : Rows, Tensor or Ragged
        Features (N, d), lazily read or in memory, a padded batch (B, N, d), or bags one after the other.
    assign : Assign
        Gives each centred block its assignment. Differentiable if it is.
    origin : Tensor
        Point (d,) subtracted first; its type is the type of the arithmetic and its device the place of it.
        E[x^2] - mu^2 loses all digits in float32 when |mean| >> std; near the origin it does not.
    mask : Tensor, optional
        (B, N), True for a real patch.
    """
    check_patches(x, mask)
    if isinstance(assign, Logits) and mask is None and not _needs_gradient(x, assign, origin):
        fast = _fast_kernel(x, assign, origin)
        if fast is not None:
            return fast(x, assign, origin, squares=squares, keep_assignment=keep_assignment)
    if isinstance(x, Ragged):
        return accumulate_bags_in_torch(x, assign, origin, squares=squares, keep_assignment=keep_assignment)
    return accumulate_in_torch(x, assign, origin, mask, squares=squares, keep_assignment=keep_assignment)


def _fast_kernel(x: Rows | Ragged, assign: Logits, origin: Tensor) -> Callable[..., Accumulated] | None:
    """The kernel that can do this faster than torch, if there is one."""
    return gpu.accumulate_on_gpu if gpu.suits(x.dtype, assign, origin) else None


def _needs_gradient(x: Rows | Ragged, assign: Logits, origin: Tensor) -> bool:
    rows = x.rows if isinstance(x, Ragged) else x
    tensors = (rows, origin, assign.linear, assign.bias, assign.quadratic)
    return torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in tensors)
