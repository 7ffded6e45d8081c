"""Assignments of patches to prototypes, and their statistics. A fast kernel needs a value, :class:`Logits`; torch takes any callable
the torch kernel.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

# (z, z^2), both (..., n, d) and centred -> assignment (..., n, C) and a score per patch (..., n)
Assign = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]]

NEGLIGIBLE = 1e-30  # smaller posteriors count as zero: products with subnormal numbers are 30 times slower


@dataclass(frozen=True)
class Logits:
    r"""Assignment by scores that are linear in :math:`[1, z, z^2]`: their softmax, or the highest.

    .. math:: \ell_n = z_n L + z_n^2 Q + b,\quad a_n = \mathrm{softmax}(\ell_n / T),\quad \text{score}_n = \log \sum_c \exp \ell_{nc}

    and with ``hard`` the one-hot vector of the largest (the first of equals), whose value is the score. What is the same for all prototypes,
    :math:`z_n^2 k`, is left out of :math:`\ell` and belongs to the score alone. Calling it is the reference that every kernel is compared with.
    """

    linear: Tensor  # (..., d, C)
    bias: Tensor  # (..., 1, C); -inf for a component without weight
    quadratic: Tensor | None = None  # (..., d, C)
    temperature: float = 1.0
    hard: bool = False
    common: Tensor | None = None  # (d,), k
    parts: tuple[Tensor, ...] = ()  # factors as the Triton kernel reads them, if computed already

    def __call__(self, z: Tensor, z2: Tensor | None) -> tuple[Tensor, Tensor]:
        """Assignment and score of a centred block and its squares."""
        joint = z @ self.linear + self.bias
        if self.quadratic is not None:
            assert z2 is not None
            joint = joint + z2 @ self.quadratic
        if self.hard:
            score, index = joint.max(-1)
            return torch.nn.functional.one_hot(index, joint.shape[-1]).to(z), self._whole(score, z, z2)
        q, evidence = _softmax(joint)
        if self.temperature != 1.0:
            q, _ = _softmax(joint / self.temperature)
        return q, self._whole(evidence, z, z2)

    def _whole(self, score: Tensor, z: Tensor, z2: Tensor | None) -> Tensor:
        """Score including the term that all prototypes share."""
        return score if self.common is None else score + (z * z if z2 is None else z2) @ self.common


def nearest(centroids: Tensor) -> Logits:
    r"""Hard assignment to the nearest centroid, centred like the blocks; score :math:`\max_c z\cdot h_c - |h_c|^2/2`."""
    return Logits(centroids.mT, -0.5 * (centroids * centroids).sum(-1).unsqueeze(-2), hard=True)


def everything(z: Tensor, z2: Tensor | None) -> tuple[Tensor, Tensor]:
    """Assign every patch to a single prototype."""
    return z.new_ones(*z.shape[:-1], 1), z.new_zeros(z.shape[:-1])


def _softmax(joint: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax with negligible values set to zero, and the log of the sum, from one exponential.

    Exponents are cut where the result counts as zero anyway: exp() of what underflows is slow, and so are subnormal numbers.
    """
    top = joint.detach().amax(-1, keepdim=True)
    e = (joint - top).clamp_min(math.log(NEGLIGIBLE) - 1).exp()
    total = e.sum(-1, keepdim=True)
    return torch.nn.functional.threshold(e / total, NEGLIGIBLE, 0.0), (top + total.log()).squeeze(-1)


class Statistics(NamedTuple):
    r"""Sums over patches about an origin: :math:`s_0=\sum_n a_{nc}`, :math:`s_1=\sum_n a_{nc} z_n`, :math:`s_2=\sum_n a_{nc} z_n^2`."""

    mass: Tensor  # (..., C)
    total: Tensor  # (..., C, d)
    square: Tensor  # (..., C, d); zeros without squares
    score: Tensor  # (...), sum of the patches' scores
    patches: Tensor  # (...), their number

    def merge(self, other: "Statistics") -> "Statistics":
        """Statistics of two disjoint sets of patches."""
        return Statistics(*(a + b for a, b in zip(self, other, strict=True)))

    def __reduce__(self) -> tuple[Callable[..., "Statistics"], tuple[Any, ...]]:
        """Pickle as arrays: torch's pickling of tensors takes longer than the sums of a small bag."""
        return _from_arrays, tuple(t.detach().cpu().numpy() for t in self)


def _from_arrays(*arrays: np.ndarray) -> Statistics:
    return Statistics(*map(torch.from_numpy, arrays))


class Accumulated(NamedTuple):
    """Statistics of a whole bag and, if requested, the assignment and the score of every patch."""

    statistics: Statistics
    assignment: Tensor | None  # (..., N, C)
    scores: Tensor | None = None  # (..., N); their sum is that of the statistics
