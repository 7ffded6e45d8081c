"""Neighbouring places in C: `compiled_neighbours.c`, of the same library as the compiled kernel; on the CPU and without gradients."""

import numpy as np
import torch
from torch import Tensor

from panther.statistics.compiled import NAMES, Library

FEW = 16  # prototypes, up to which C is as fast as matrix products whatever the posteriors are
CRISP = 0.25  # share of posteriors that are not zero, up to which it is with more of them: it skips zeros


def suits(rows: Tensor) -> bool:
    """Whether C can do it: on the CPU, in float32 or float64, without gradients."""
    return rows.device.type == "cpu" and rows.dtype in NAMES and not (torch.is_grad_enabled() and rows.requires_grad)


def crisp(rows: Tensor) -> bool:
    """Whether C is at least as fast as matrix products of these posteriors."""
    return rows.shape[1] <= FEW or int(torch.count_nonzero(rows)) <= CRISP * rows.numel()


def touch_compiled(library: Library, rows: Tensor, ahead: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Products (C, C) of each place (P, C) with those ahead of it (P, 2 or 4), and with itself; the mass (C,)."""
    rows, count = rows.contiguous(), rows.shape[1]
    scratch = torch.empty(2 * count * (count + 1), dtype=rows.dtype)
    sums, mass = torch.empty(count, 2 * count, dtype=torch.float64), torch.empty(count, dtype=torch.float64)
    outputs = [t.data_ptr() for t in (scratch, sums, mass)]
    library.function("touch", rows.dtype)(*_inputs(rows, ahead), *outputs)
    return sums[:, :count], sums[:, count:], mass


def regions_compiled(library: Library, rows: Tensor, ahead: np.ndarray) -> tuple[Tensor, Tensor]:
    """Places (C,) whose likeliest prototype it is, and the connected regions (C,) that they form."""
    rows = rows.contiguous()
    label, parent = torch.empty(2, len(rows), dtype=torch.int32)
    likeliest, regions = torch.empty(2, rows.shape[1], dtype=torch.int64)
    outputs = [t.data_ptr() for t in (label, parent, likeliest, regions)]
    library.function("regions", rows.dtype)(*_inputs(rows, ahead), *outputs)
    return likeliest, regions


def _inputs(rows: Tensor, ahead: np.ndarray) -> tuple[int, ...]:
    assert ahead.dtype == np.int32
    assert ahead.flags.c_contiguous
    return rows.data_ptr(), *rows.shape, ahead.ctypes.data, ahead.shape[1]
