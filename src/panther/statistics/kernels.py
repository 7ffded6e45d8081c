"""One interface to all kernels, and the choice between them."""

from torch import Tensor

from panther.statistics.assign import Assign
from panther.statistics.sums import Accumulated
from panther.statistics.torch_kernel import accumulate_in_torch
from panther.types import Rows


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
    return accumulate_in_torch(x, assign, origin, mask, squares=squares, keep_assignment=keep_assignment)
