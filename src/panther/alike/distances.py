r"""How far two slides are apart, in float64 and in closed form.

Slides are mixtures over the same prototypes, so components are matched by their number. With proportions :math:`\pi, \rho` and
components :math:`P_c, Q_c`, the distance is

.. math:: D^2 = 1 - \sum_c \sqrt{\pi_c \rho_c}\; e^{-J_c / 8d}
          = \tfrac12 \sum_c (\sqrt{\pi_c} - \sqrt{\rho_c})^2 + \sum_c \sqrt{\pi_c \rho_c}\,(1 - e^{-J_c / 8d})

with the symmetric Kullback-Leibler divergence :math:`J_c = KL(P_c \| Q_c) + KL(Q_c \| P_c)` over d dimensions. The first sum is Hellinger's
distance of the proportions, the second what the shared tissue looks different. Both are sums over prototypes of numbers >= 0, which are the
reasons; a component that one slide lacks counts through its proportion only; D lies between 0 and 1, and is 1 where nothing is shared.

:math:`e^{-J/8}` is the Bhattacharyya coefficient of two Gaussians of one covariance, taken per dimension because in a thousand of them it
would be 0 for any two slides. The plain sum :math:`\sum_c \pi_c J_c` is no distance to search by: slides that share no tissue would be nearest.
"""

from typing import NamedTuple

import numpy as np
import torch

from panther.mixture import FLOOR
from panther.types import Rows

# Of the cohort's variance within components: one that owns few patches has hardly any of its own, and would look unlike everything.
SMALLEST_VARIANCE = 0.1
LOOKED_AT = 256  # slides, spread over the cohort, that tell this variance


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
    with np.errstate(over="ignore", invalid="ignore"):  # numbers that are none stay NaN, and are nobody's neighbour
        return 0.5 * ((v - w) ** 2 / (v * w) + apart**2 * (1 / v + 1 / w)).sum(-1)


def parts_of_distance(one: Mixtures, other: Mixtures) -> tuple[np.ndarray, np.ndarray]:
    r"""What each component adds to :math:`D^2`, (..., C) each: by its proportions, and by how it looks."""
    p, q = np.sqrt(one.weights), np.sqrt(other.weights)
    closeness = np.exp(-symmetric_kl(one, other) / (8 * one.means.shape[-1]))
    return 0.5 * (p - q) ** 2, p * q * (1 - closeness)


def hellinger_parts(pi: np.ndarray, rho: np.ndarray) -> np.ndarray:
    r"""What each prototype adds to Hellinger's :math:`H^2 = \frac12 \sum_c (\sqrt{\pi_c} - \sqrt{\rho_c})^2`, (..., C)."""
    return 0.5 * (np.sqrt(pi) - np.sqrt(rho)) ** 2


def as_mixture(rows: np.ndarray, components: int, floor: np.ndarray) -> Mixtures:
    """Mixtures of rows (..., C(1+2d)) in the order [pi_c, mu_c, Sigma_c]: their proportions add up to 1, their variances are floored."""
    tokens = np.asarray(rows, np.float64).reshape(*rows.shape[:-1], components, -1)
    dim = tokens.shape[-1] // 2
    variances = np.maximum(tokens[..., 1 + dim :], floor)
    return Mixtures(as_proportions(tokens[..., 0]), tokens[..., 1 : 1 + dim], variances)


def as_proportions(weights: np.ndarray) -> np.ndarray:
    """Weights (..., C) that add up to 1, whatever half precision left of them; NaN where one is below 0 or none is above."""
    weights = np.asarray(weights, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = weights / weights.sum(-1, keepdims=True)
        return np.where((shares >= 0).all(-1, keepdims=True), shares, np.nan)


def variance_floor(rows: Rows, components: int) -> np.ndarray:
    """Smallest variance (d,) that a component may have: EM's, and in each dimension a tenth of what is usual in the cohort.

    Some hundred slides, spread over the cohort, say what is usual.
    """
    count = int(rows.shape[0])
    chosen = np.unique(np.linspace(0, count - 1, min(count, LOOKED_AT)).astype(int)).tolist()
    taken = torch.stack([rows[row : row + 1][0] for row in chosen]).double().numpy()
    weights, _, variances = as_mixture(taken, components, np.zeros(1))
    sound = np.isfinite(weights).all(-1) & np.isfinite(variances).all((-2, -1))
    total = (weights[sound][..., None] * variances[sound]).sum((0, 1))
    usual = total / max(int(sound.sum()), 1)
    tiny = float(np.finfo(np.float32).tiny)
    return np.maximum(SMALLEST_VARIANCE * usual, max(FLOOR * float(usual.mean()), tiny))
