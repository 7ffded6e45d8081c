"""Sinkhorn's iterations in C: `compiled_sinkhorn.c`, of the same library as the compiled kernel; one bag, on the CPU, in float64."""

import ctypes

import torch
from torch import Tensor

from panther.statistics.compiled import VECTOR_BYTES, Library


class _Transport(ctypes.Structure):
    _fields_ = [
        ("cost", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("rows", "count", "iterations", "check_every")),
        *((name, ctypes.c_double) for name in ("tolerance", "large")),
        *((name, ctypes.c_void_p) for name in ("kernel", "potentials", "scaling", "marginal")),
        ("violation", ctypes.c_double),
    ]


def suits(cost: Tensor) -> bool:
    """Whether C can do it: one bag, on the CPU, in float64, without gradients."""
    plain = not (torch.is_grad_enabled() and cost.requires_grad)
    return cost.dim() == 2 and cost.device.type == "cpu" and cost.dtype == torch.float64 and plain


def sinkhorn_compiled(
    library: Library, cost: Tensor, iterations: int, check_every: int, tolerance: float, large: float
) -> tuple[Tensor, float, int]:
    """Potentials (C,) of costs (N, C), the violation of the uniform marginal that is left, and the iterations made."""
    cost = cost.contiguous()
    rows, count = cost.shape
    lanes = VECTOR_BYTES[library.name] // cost.element_size()
    width = -(-count // lanes) * lanes
    kernel, small = cost.new_empty(rows, width), cost.new_zeros(3, width)
    settings = (rows, count, iterations, check_every, tolerance, large)
    addresses = [kernel.data_ptr(), *(row.data_ptr() for row in small)]
    state = _Transport(cost.data_ptr(), *settings, *addresses, 0.0)
    done = library.function("sinkhorn", cost.dtype)(ctypes.byref(state))
    return small[0, :count].clone(), state.violation, done
