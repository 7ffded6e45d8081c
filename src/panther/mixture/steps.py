"""The two steps of EM as free functions of a mixture with means about an origin, in float64."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from panther.mixture.settings import COVARIANCE, FLOOR, WEIGHTS, EMSettings
from panther.statistics import Accumulated, Logits, Statistics
from panther.statistics.compiled import factors_compiled, far_out_compiled, library_for, maximise_compiled
from panther.types import Mixture

ILL_CONDITIONED = 8.0  # squared distance to the origin over variance, above which float32 sums lose the fifth digit


class MixtureFit(NamedTuple):
    """A fitted mixture and diagnostics of the fit; a leading batch dimension is allowed."""

    mixture: Mixture
    mass: Tensor  # (C,), expected number of patches per component, without the prior
    log_likelihood: Tensor  # (steps,), of the parameters that entered each step
    assignment: Tensor | None  # (N, C), the posterior that made the parameters
    scores: Tensor | None = None  # (N,), log p of each patch under the mixture that EM starts from


class Start(NamedTuple):
    """Start of EM, which depends on prototypes, starting variance and temperature, but on no bag."""

    origin: Tensor  # (d,); this and the next two in float64
    centres: Tensor  # (C, d), prototypes about the origin
    variance: Tensor  # (1, d)
    assign: Logits  # of the first E-step, in the type of the arithmetic


class FirstStep(NamedTuple):
    """The first E-step of a bag."""

    start: Start
    sums: Accumulated


def starting_point(prototypes: Tensor, variance: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Origin, centred prototypes (C, d) and starting variance (1, d), shared by the components; all in float64."""
    origin = prototypes.detach().double().mean(0).to(dtype).double()  # rounded once: all subtract the same point
    centres = prototypes.double() - origin
    return origin, centres, variance.double().to(centres.device).expand(1, -1)


def finished(mixture: Mixture, origin: Tensor, dtype: torch.dtype) -> Mixture:
    """Mixture as returned: means in the coordinates of the features."""
    return Mixture(mixture.weights.to(dtype), (mixture.means + origin).to(dtype), mixture.variances.to(dtype))


def uniform(centres: Tensor, start: Tensor) -> Mixture:
    """Mixture at the start of EM."""
    return Mixture(centres.new_full((len(centres),), 1 / len(centres)), centres, start)


def floored(mixture: Mixture, start: Tensor) -> Mixture:
    """Mixture with floored variances, for the next E-step."""
    return mixture._replace(variances=torch.maximum(mixture.variances, FLOOR * start.detach().mean()))


def posterior(
    mixture: Mixture, temperature: float = 1.0, dtype: torch.dtype = torch.float32, *, whole_score: bool = False
) -> Logits:
    r"""E-step: :math:`q_{nc} \propto (\pi_c N(z_n; \mu_c, \Sigma_c))^{1/T}` (paper eq. 3), score :math:`\log p(z_n)`.

    Where the components share one variance (the first step) the term :math:`z^2/\Sigma` is the same for all; it is left
    out of posterior and score and added back in :func:`log_likelihood`, which saves a matrix product. With ``whole_score`` the score
    of every patch includes it.
    """
    weights, means, variances = mixture
    shared = variances.shape[-2] == 1
    common = (-0.5 / variances).squeeze(-2).to(dtype) if shared and whole_score else None
    if library := library_for(*mixture):
        return Logits(*factors_compiled(library, *mixture, dtype), temperature, common=common)
    log_weights = torch.where(weights > 0, weights, 1).log().masked_fill(weights == 0, -torch.inf)
    constant = (means * means / variances + variances.log() + math.log(2 * math.pi)).sum(-1)
    bias = (log_weights - 0.5 * constant).unsqueeze(-2).to(dtype)  # (..., 1, C)
    linear = (means / variances).transpose(-1, -2).to(dtype)  # (..., d, C)
    quadratic = None if shared else (-0.5 / variances).transpose(-1, -2).to(dtype)
    return Logits(linear, bias, quadratic, temperature, common=common)


def maximise(sums: Statistics, centres: Tensor, variance: Tensor, tau: float) -> Mixture:
    r"""M-step (paper eq. 4), or maximum a posteriori with pseudo-count :math:`\tau`.

    .. math:: \pi \propto s_0 + \tau,\quad \mu = \frac{s_1 + \tau m}{s_0 + \tau},\quad
              \Sigma = \frac{s_2 + \tau (V + m^2)}{s_0 + \tau} - \mu^2

    A component without mass keeps its prototype and the starting variance, with weight 0: never NaN.
    """
    if library := library_for(*sums, centres, variance):
        return Mixture(*maximise_compiled(library, sums, centres, variance, tau))
    mass = (sums.mass + tau).unsqueeze(-1)  # (..., C, 1)
    empty = mass == 0
    divisor = mass.masked_fill(empty, 1.0)
    means = torch.where(empty, centres, (sums.total + tau * centres) / divisor)
    second = (sums.square + tau * (variance + centres * centres)) / divisor
    variances = torch.where(empty, variance, (second - means * means).clamp_min(0.0))
    return Mixture((mass / mass.sum(-2, keepdim=True)).squeeze(-1), means, variances)


def constrained(mixture: Mixture, mass: Tensor, settings: EMSettings) -> Mixture:
    """Weights and variances under the constraints of the settings."""
    weights, means, variances = mixture
    return Mixture(WEIGHTS[settings.weights](weights), means, COVARIANCE[settings.covariance](variances, mass))


def log_posterior(log_likelihood: Tensor, mixture: Mixture, prototypes: Tensor, variance: Tensor, tau: float) -> Tensor:
    r"""Return the objective that EM never decreases.

    .. math:: \sum_n \log p(z_n) + \tau \sum_c \Big[\log \pi_c - \tfrac12 \sum_d \Big(\log \Sigma_{cd}
              + \frac{(\mu_{cd} - m_{cd})^2 + V_{cd}}{\Sigma_{cd}}\Big)\Big]
    """
    if tau == 0:
        return log_likelihood
    weights, means, variances = mixture
    pull = (variances.log() + ((means - prototypes) ** 2 + variance) / variances).sum(-1)
    return log_likelihood + tau * (weights.log() - 0.5 * pull).sum(-1)


def effective_number(weights: Tensor) -> Tensor:
    r"""Effective number of prototypes :math:`\exp(-\sum_c \pi_c \log \pi_c)`: 1 for a collapsed slide, C for a uniform one."""
    return torch.special.entr(weights).sum(-1).exp()


def log_likelihood(sums: Statistics, mixture: Mixture, assign: Logits) -> Tensor:
    """Sum of log p of the patches under the mixture that entered the step."""
    if assign.quadratic is not None or assign.common is not None:
        return sums.score
    # posteriors sum to one, so the sum over components is the plain sum of z^2 that posterior() left out
    return sums.score - 0.5 * (sums.square.sum(-2) / mixture.variances.squeeze(-2)).sum(-1)


@torch.no_grad()
def is_ill_conditioned(mass: Tensor, mixture: Mixture) -> Tensor | bool:
    """Whether a component of more than one patch lies so far from the origin that float32 sums lose digits of its variance."""
    if library := library_for(mass, *mixture):
        return far_out_compiled(library, mass, mixture.means, mixture.variances, ILL_CONDITIONED)
    distance, spread = mixture.means.square().mean(-1), mixture.variances.mean(-1)
    return (torch.isfinite(mass) & (mass > 1.5) & (distance > ILL_CONDITIONED * spread)).any()
