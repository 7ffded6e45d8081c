r"""A slide's mixture, each prototype weighted by its share: what differs counts by how many patches show it.

A prototype that holds three patches of a slide has a mean and a variance that are noise; in the raw embedding they count as much as those
of three hundred. Here the parameters of a component are weighted by the square root of its share, so that distances are

.. math:: \sum_c \Big(\sqrt{\pi_c} - \sqrt{\pi'_c}\Big)^2,\quad \sum_c \big\|\sqrt{\pi_c} (\mu_c - m_c) - \sqrt{\pi'_c} (\mu'_c - m_c)\big\|^2

and likewise for the variances; m and V are the training slides' usual parameters. The mean of all patches, :math:`\sum_c \pi_c \mu_c`, is kept
beside them: where single tissues are too small to be judged, it is the best that is known. See `docs/decisions/0009`.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from panther.aggregators import mixture_columns

Columns = Sequence[tuple[int, str, int]]  # (prototype, statistic, dimension) of each number, as aggregators name them
SLIDE_MEAN = "slide mean"


class UsualMixture(NamedTuple):
    """What the training slides have in common, each slide counting by its share of the prototype."""

    means: Tensor  # (C, d)
    variances: Tensor  # (C, d)
    parts: Tensor  # (C, d), usual pi_c mu_c: what each prototype adds to a slide's mean


def mixture_shape(columns: Columns | None) -> tuple[int, int] | None:
    """(C, d) where the numbers are all of a mixture, [pi_c, mu_c, Sigma_c] of each prototype; None where they are something else."""
    if columns is None or len(columns) == 0:
        return None
    count = max(1, 1 + columns[-1][0])
    dim = (len(columns) // count - 1) // 2
    return (count, dim) if dim > 0 and tuple(columns) == mixture_columns(tuple(range(count)), dim) else None


def split(x: Tensor, count: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Shares (B, C, 1), means (B, C, d) and variances (B, C, d) of embeddings (B, C (1 + 2 d))."""
    return x.reshape(len(x), count, 1 + 2 * dim).split([1, dim, dim], -1)


def usual_mixture(blocks: Iterable[Tensor], count: int, dim: int) -> UsualMixture:
    """Usual parameters of training embeddings, given in blocks of rows (n, C (1 + 2 d)); a prototype that no slide has keeps their plain mean."""
    weighed = torch.zeros(count, 1 + 2 * dim, dtype=torch.float64)  # sums of pi [1, mu, Sigma]
    plain, rows = torch.zeros_like(weighed), 0
    for x in blocks:
        weights, means, variances = split(x.double(), count, dim)
        one = torch.cat([torch.ones_like(weights), means, variances], -1)
        weighed += (weights * one).sum(0)
        plain += one.sum(0)
        rows += len(x)
    mass, sums = torch.where(weighed[:, :1] > 0, weighed, plain).split([1, 2 * dim], -1)
    means, variances = (sums / mass).split(dim, -1)
    return UsualMixture(means, variances, weighed[:, 1 : 1 + dim] / rows)


def share_weighted_coordinates(x: Tensor, usual: UsualMixture) -> Tensor:
    r"""Embeddings (B, C (1 + 2 d)) -> (B, C (1 + 2 d) + d): one token per prototype as before, then the slide's mean.

    .. math:: \sqrt{\pi_c},\quad \sqrt{\pi_c} (\mu_c - m_c),\quad \sqrt{\pi_c} (\Sigma_c - V_c);\quad \sum_c \pi_c \mu_c
    """
    weights, means, variances = split(x, *usual.means.shape)
    root = weights.clamp_min(0).sqrt()
    tokens = torch.cat([root, root * (means - usual.means), root * (variances - usual.variances)], -1)
    return torch.cat([tokens.flatten(1), (weights * means).sum(1)], 1)


@lru_cache(8)
def share_weighted_columns(count: int, dim: int) -> tuple[tuple[int, str, int], ...]:
    """Prototype (-1: the whole slide), statistic and dimension of each coordinate."""
    return (*mixture_columns(tuple(range(count)), dim), *((-1, SLIDE_MEAN, j) for j in range(dim)))
