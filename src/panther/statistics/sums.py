"""What the kernel adds up."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


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

    def __reduce__(self) -> tuple[Callable[..., "Statistics"], tuple[Any, ...]]:
        """Travel between processes as arrays: torch packs every single tensor as a file, which takes longer than the sums of a small bag."""
        return _from_arrays, tuple(t.detach().cpu().numpy() for t in self)


def _from_arrays(*arrays: np.ndarray) -> Statistics:
    return Statistics(*map(torch.from_numpy, arrays))


class Accumulated(NamedTuple):
    """Statistics of a whole bag and, when asked for, the assignment that made them and the score of every patch."""

    statistics: Statistics
    assignment: Tensor | None  # (..., N, C)
    scores: Tensor | None = None  # (..., N); their sum is that of the statistics
