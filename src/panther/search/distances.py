r"""Distances between slides, in float64 and in closed form.

Slides are mixtures over the same prototypes, so components are matched by their number. With proportions :math:`\pi, \rho` and
components :math:`P_c, Q_c`, the distance is

.. math:: D^2 = 1 - \sum_c \sqrt{\pi_c \rho_c}\; e^{-J_c / 8d}
          = \tfrac12 \sum_c (\sqrt{\pi_c} - \sqrt{\rho_c})^2 + \sum_c \sqrt{\pi_c \rho_c}\,(1 - e^{-J_c / 8d})

with the symmetric Kullback-Leibler divergence :math:`J_c = KL(P_c \| Q_c) + KL(Q_c \| P_c)` over d dimensions. The first sum is Hellinger's
distance of the proportions, the second the difference in appearance of the shared tissue. Both are sums over prototypes of terms >= 0, which are
the reasons; a component that one slide lacks contributes through its proportion only; D lies between 0 and 1, and is 1 if nothing is shared.

:math:`e^{-J/8}` is the Bhattacharyya coefficient of two Gaussians of one covariance, taken per dimension because in a thousand of them it
would be 0 for any two slides. The plain sum :math:`\sum_c \pi_c J_c` is no distance to search by: slides that share no tissue would be nearest.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from panther.mixture import FLOOR
from panther.types import Rows

# Share of the cohort's variance within components: a component of few patches has hardly any variance and would be far from all others.
SMALLEST_VARIANCE = 0.1
SAMPLED = 256  # slides, spread over the cohort, that this variance is estimated from


class Mixtures(NamedTuple):
    """Mixtures of slides in float64, as arrays."""

    weights: np.ndarray  # (..., C)
    means: np.ndarray  # (..., C, d)
    variances: np.ndarray  # (..., C, d)


def symmetric_kl(one: Mixtures, other: Mixtures) -> np.ndarray:
    r"""Symmetric divergence J (..., C) of components with diagonal covariance, matched by their number.

    .. math:: J_c = \tfrac12 \sum_j \Big[\frac{(v_j - w_j)^2}{v_j w_j} + (\mu_j - \nu_j)^2 \Big(\frac1{v_j} + \frac1{w_j}\Big)\Big]
    """
    v, w, apart = one.variances, other.variances, one.means - other.means
    with np.errstate(over="ignore", invalid="ignore"):  # NaN stays NaN and is no neighbour
        return 0.5 * ((v - w) ** 2 / (v * w) + apart**2 * (1 / v + 1 / w)).sum(-1)


def parts_of_distance(one: Mixtures, other: Mixtures) -> tuple[np.ndarray, np.ndarray]:
    r"""Terms of each component in :math:`D^2`, (..., C) each: of its proportions, and of its appearance."""
    p, q = np.sqrt(one.weights), np.sqrt(other.weights)
    closeness = np.exp(-symmetric_kl(one, other) / (8 * one.means.shape[-1]))
    return 0.5 * (p - q) ** 2, p * q * (1 - closeness)


def hellinger_parts(pi: np.ndarray, rho: np.ndarray) -> np.ndarray:
    r"""Terms of Hellinger's :math:`H^2 = \frac12 \sum_c (\sqrt{\pi_c} - \sqrt{\rho_c})^2`, (..., C)."""
    return 0.5 * (np.sqrt(pi) - np.sqrt(rho)) ** 2


def as_mixture(rows: np.ndarray, components: int, floor: np.ndarray) -> Mixtures:
    """Mixtures of rows (..., C(1+2d)), [pi_c, mu_c, Sigma_c], with normalised proportions and floored variances."""
    tokens = np.asarray(rows, np.float64).reshape(*rows.shape[:-1], components, -1)
    dim = tokens.shape[-1] // 2
    variances = np.maximum(tokens[..., 1 + dim :], floor)
    return Mixtures(as_proportions(tokens[..., 0]), tokens[..., 1 : 1 + dim], variances)


def as_proportions(weights: np.ndarray) -> np.ndarray:
    """Weights (..., C) scaled to a sum of 1; NaN if one is negative or all are 0."""
    weights = np.asarray(weights, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = weights / weights.sum(-1, keepdims=True)
        return np.where((shares >= 0).all(-1, keepdims=True), shares, np.nan)


def variance_floor(rows: Rows, components: int) -> np.ndarray:
    """Smallest variance (d,) of a component: that of EM, and in each dimension a tenth of the cohort's usual variance.

    The usual variance is estimated from `SAMPLED` slides, spread over the cohort.
    """
    count = int(rows.shape[0])
    chosen = np.unique(np.linspace(0, count - 1, min(count, SAMPLED)).astype(int)).tolist()
    taken = torch.stack([rows[row : row + 1][0] for row in chosen]).double().numpy()
    weights, _, variances = as_mixture(taken, components, np.zeros(1))
    finite = np.isfinite(weights).all(-1) & np.isfinite(variances).all((-2, -1))
    total = (weights[finite][..., None] * variances[finite]).sum((0, 1))
    usual = total / max(int(finite.sum()), 1)
    tiny = float(np.finfo(np.float32).tiny)
    return np.maximum(SMALLEST_VARIANCE * usual, max(FLOOR * float(usual.mean()), tiny))


@dataclass(frozen=True)
class Hellinger:
    """Nearness of proportions (minus the squared Hellinger distance); rows are proportions (n, C)."""

    pi: np.ndarray  # (q, C)

    @property
    def queries(self) -> int:
        """Their number."""
        return len(self.pi)

    def quick(self, block: Tensor) -> tuple[Tensor, float]:
        """Sums of products of square roots, less 1, (q, n), and their rounding error."""
        roots = (block / block.sum(1, keepdim=True)).sqrt()  # NaN where a proportion is below 0
        rough = torch.from_numpy(np.sqrt(self.pi)).to(roots.dtype) @ roots.T - 1
        return rough, 8 * self.pi.shape[1] * torch.finfo(roots.dtype).eps

    def exact(self, query: int, rows: np.ndarray) -> np.ndarray:
        """The same in float64, as a sum of squares."""
        return -hellinger_parts(self.pi[query], as_proportions(rows)).sum(-1)


@dataclass(frozen=True)
class MixtureDistance:
    """Nearness of whole mixtures (minus their squared distance); rows are [pi_c, mu_c, Sigma_c] of every component."""

    mixtures: Mixtures  # (q, C, ...), float64
    floor: np.ndarray  # (d,), of the variances

    @property
    def queries(self) -> int:
        """Their number."""
        return len(self.mixtures.weights)

    @cached_property
    def _origin(self) -> np.ndarray:
        """Origin of the means (C, d): large means would cancel in the products; in float32, so that differences to it lose one digit."""
        return self.mixtures.means.mean(0).astype(np.float32).astype(np.float64)

    def _factors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """Two factors of the rows, (C, 2d, q) each, and a constant term, (C, 1, q)."""
        means, v = self.mixtures.means - self._origin, self.mixtures.variances  # (q, C, d)
        positive = np.concatenate([1 / v, v + means**2], -1)
        crossed = np.concatenate([-2 * means, -2 * means / v], -1)
        fixed = (means**2 / v).sum(-1)[..., None]
        first, second, third = (
            torch.from_numpy(a.transpose(1, 2, 0).copy()).to(dtype) for a in (positive, crossed, fixed)
        )
        return first, second, third

    def quick(self, block: Tensor) -> tuple[Tensor, Tensor]:
        """Affinities less 1, (q, n), and bounds of their rounding errors."""
        dtype, eps = block.dtype, torch.finfo(block.dtype).eps
        components, dim = self._origin.shape
        tokens = block.view(len(block), components, -1)
        shares = tokens[..., 0] / tokens[..., 0].sum(1, keepdim=True)
        means = tokens[..., 1 : 1 + dim]
        v = torch.maximum(tokens[..., 1 + dim :], torch.from_numpy(self.floor).to(dtype))  # (n, C, d)
        single = self.queries == 1 and bool((self._origin == self.mixtures.means[0]).all())
        inner, twice = self._of_one(means, v) if single else self._of_several(means, v)
        close = torch.exp(-twice.clamp_min(0) / (16 * dim))
        # a sum of 4d products, with absolute values that add up to less than twice the positive ones
        off = 8 * dim * eps * (2 * inner + 2 * dim) / (16 * dim)
        both = shares.sqrt().T[:, :, None] * torch.from_numpy(np.sqrt(self.mixtures.weights.T)).to(dtype)[:, None]
        rough = (both * close).sum(0).T - 1
        slack = (both * (close * torch.expm1(off)).clamp_max(1)).sum(0).T + 8 * components * eps
        return rough, slack

    def _of_one(self, means: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Sums (C, n, 1) of positive terms, and 2 J, for one query, with few passes over the block."""
        w = torch.from_numpy(self.mixtures.variances[0]).to(v.dtype)  # (C, d)
        apart = (means - torch.from_numpy(self._origin).to(v.dtype)).square_()
        inverse = v.reciprocal()
        inner = torch.einsum("ncd,cd->nc", v.add_(apart), w.reciprocal())
        inner += torch.einsum("ncd,ncd->nc", apart.add_(w), inverse)
        inner = inner.T[..., None]
        return inner, inner - 2 * v.shape[-1]

    def _of_several(self, means: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The same (C, n, q) for many queries, by one matrix product per component."""
        means = (means - torch.from_numpy(self._origin).to(v.dtype)).transpose(0, 1)  # (C, n, d)
        v = v.transpose(0, 1)
        positive, crossed, fixed = self._factors(v.dtype)
        scaled = means / v
        inner = (means * scaled).sum(-1, keepdim=True) + fixed
        inner += torch.cat([v + means * means, 1 / v], -1) @ positive
        return inner, inner + torch.cat([scaled, means], -1) @ crossed - 2 * v.shape[-1]

    def exact(self, query: int, rows: np.ndarray) -> np.ndarray:
        """The same in float64, as a sum of nonnegative numbers."""
        one = Mixtures(*(part[query] for part in self.mixtures))
        weights, looks = parts_of_distance(one, as_mixture(rows, len(self._origin), self.floor))
        return -(weights + looks).sum(-1)
