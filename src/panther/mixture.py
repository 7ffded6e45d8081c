r"""EM for one slide's Gaussian mixture with diagonal covariance (paper section 3.1), as free functions.

The E-step is an assignment for :func:`panther.statistics.accumulate`; the M-step turns the sums into parameters.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from panther.errors import InputError
from panther.limits import check_choice, check_number, check_whole
from panther.statistics import Accumulated, Logits, Statistics, accumulate, compute_dtype
from panther.statistics.compiled_mixture import factors_compiled, far_out_compiled, library_for, maximise_compiled
from panther.statistics.replay import replay
from panther.types import Mixture, Ragged, Rows

FLOOR = 1e-6  # of the mean starting variance: a component that owns one patch must not break the next E-step
STARTING_VARIANCES = (0.1, 1.0, "pooled")  # of the presets: those for which prototypes say what is surprising
ILL_CONDITIONED = 8.0  # squared distance to the origin over variance, above which float32 sums lose the fifth digit


def _tied(variances: Tensor, mass: Tensor) -> Tensor:
    """Average over the components, weighted by their mass."""
    mass = mass.unsqueeze(-1)
    return ((variances * mass).sum(-2, keepdim=True) / mass.sum(-2, keepdim=True)).expand_as(variances)


def _spherical(variances: Tensor, mass: Tensor) -> Tensor:
    """Average over the dimensions."""
    return variances.mean(-1, keepdim=True).expand_as(variances)


# Maximum-likelihood (or posterior) variances under a constraint are averages of the unconstrained ones.
COVARIANCE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "diagonal": lambda variances, mass: variances,
    "tied": _tied,
    "spherical": _spherical,
}
WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {
    "free": lambda weights: weights,
    "uniform": lambda weights: torch.full_like(weights, 1 / weights.shape[-1]),
}


@dataclass(frozen=True)
class EMSettings:
    """How the mixture is fitted."""

    steps: int = 1
    tau: float = 0.0  # pseudo-count of the prior; 0 is maximum likelihood
    variance: float | Literal["pooled"] = 1.0  # Sigma0; "pooled" takes the prototypes' within-cluster variance
    temperature: float = 1.0  # > 1 softens the posteriors, which saturate in many dimensions
    covariance: str = "diagonal"  # or "tied": shared by the components, "spherical": one number per component
    weights: str = "free"  # or "uniform": 1/C for all, the special case close to optimal transport

    def __post_init__(self) -> None:
        for name, known in (("covariance", COVARIANCE), ("weights", WEIGHTS)):
            check_choice(name, getattr(self, name), known)
        check_whole("steps", self.steps, 1, 10_000)
        check_number("tau", self.tau, 0)
        check_number("temperature", self.temperature, 0, above=True)
        if self.variance != "pooled":
            check_number("variance ('pooled', or a number)", self.variance, 0, above=True)


PRESETS = {
    "paper": EMSettings(),
    "published-code": EMSettings(tau=0.001, variance=0.1),
    "calibrated": EMSettings(tau=1.0, variance="pooled"),
}


class MixtureFit(NamedTuple):
    """A fitted mixture and what is worth knowing about the fit; a leading batch dimension is allowed."""

    mixture: Mixture
    mass: Tensor  # (C,), expected number of patches per component, without the prior
    log_likelihood: Tensor  # (steps,), of the parameters that entered each step
    assignment: Tensor | None  # (N, C), the posterior that made the parameters
    scores: Tensor | None = None  # (N,), log p of each patch under the mixture that EM starts from


class FirstStep(NamedTuple):
    """The first E-step of a bag. It depends on the prototypes, the starting variance and the temperature, and on nothing else that is set."""

    assign: Logits
    found: Accumulated


def take_first_step(
    x: Rows,
    prototypes: Tensor,
    variance: Tensor,
    temperature: float = 1.0,
    *,
    keep_assignment: bool = False,
    keep_scores: bool = False,
) -> FirstStep:
    """Take the first E-step, for fits that share it: see :func:`fit_mixture`."""
    dtype = compute_dtype(torch.promote_types(x.dtype, prototypes.dtype))
    origin, centres, start = _start(prototypes, variance, dtype)
    assign = posterior(_uniform(centres, start), temperature, dtype, whole_score=keep_scores)
    found = accumulate(x, assign, origin.to(dtype), keep_assignment=keep_assignment, keep_scores=keep_scores)
    return FirstStep(assign, found)


def fit_mixture(
    x: Rows | Ragged,
    prototypes: Tensor,
    variance: Tensor,
    settings: EMSettings = PRESETS["paper"],
    *,
    mask: Tensor | None = None,
    keep_assignment: bool = False,
    keep_scores: bool = False,
    first_step: FirstStep | None = None,
) -> MixtureFit:
    r"""Fit a mixture to a bag, starting from the prototypes: :math:`\pi=1/C,\ \mu_c=h_c,\ \Sigma=V`.

    Parameters
    ----------
    x : Rows, Tensor or Ragged
        (N, d), (B, N, d) with a mask, or bags one after the other.
    prototypes : Tensor
        (C, d); its device is where the arithmetic is done.
    variance : Tensor
        Starting variance V, (d,); with a prior (tau > 0) also the variance it pulls to.
    first_step : FirstStep, optional
        The first E-step, where somebody has taken it already.

    Notes
    -----
    Float32 sums lose digits of the variance when components lie many standard deviations apart; such a slide is
    noticed and its step repeated in float64, so that accuracy does not depend on the data.
    """
    keep = {"keep_assignment": keep_assignment, "keep_scores": keep_scores}
    if first_step is None and _replayable(x, prototypes, variance, mask):
        fit = _fit_replayed(x, prototypes, variance, settings, **keep)
        if fit is not None:
            return fit
    dtype = precision = compute_dtype(torch.promote_types(x.dtype, prototypes.dtype))
    origin, centres, start = _start(prototypes, variance, dtype)
    mixture = _uniform(centres, start)
    log_likelihood, scores = [], None
    for step in range(settings.steps):
        before = mixture if step == 0 else _floored(mixture, start)
        first, last = step == 0, step == settings.steps - 1
        while True:
            if first_step is not None and first and precision == dtype:
                assign, (sums, assignment, each) = first_step
            else:
                assign = posterior(before, settings.temperature, precision, whole_score=keep_scores and first)
                sums, assignment, each = accumulate(
                    *(x, assign, origin.to(precision)),
                    mask=mask,
                    keep_assignment=keep_assignment and last,
                    keep_scores=keep_scores and first,
                )
            mixture = _constrained(maximise(sums, centres, start, settings.tau), sums.mass + settings.tau, settings)
            if precision == torch.float64 or not _ill_conditioned(sums.mass, mixture):
                break
            if isinstance(x, Ragged):  # most bags of the batch need no repetition
                return _one_by_one(x, prototypes, variance, settings, **keep)
            precision = torch.float64
        scores = each if first else scores
        log_likelihood.append(_log_likelihood(sums, before, assign))
    kept = (
        t.to(dtype) if t is not None and wanted else None
        for t, wanted in ((assignment, keep_assignment), (scores, keep_scores))
    )
    return MixtureFit(_finished(mixture, origin, dtype), sums.mass, torch.stack(log_likelihood, -1), *kept)


def starting_variance(variance: float | str, dim: int, within: Tensor | None) -> Tensor:
    """Variance (d,) that EM starts from, of its name and the prototypes' within-cluster variance."""
    if variance != "pooled":
        return torch.full((dim,), float(variance), dtype=torch.float64)
    if within is None:
        raise InputError(
            "These prototypes carry no within-cluster variance, which `calibrated` starts from; refit them with `panther prototypes`, "
            "or use the preset `paper`."
        )
    pooled = within.double()
    # a constant feature has no variance: a small one keeps it from deciding everything
    return pooled.clamp_min(1e-6 * float(pooled.mean()) or 1e-12)


def surprise_of(x: Rows, prototypes: Tensor, variance: Tensor) -> Tensor:
    """Return -log p of every patch (N,) under the mixture that EM starts from."""
    scores = fit_mixture(x, prototypes, variance, keep_scores=True).scores
    assert scores is not None
    return -scores


def _replayable(x: Rows | Ragged, prototypes: Tensor, variance: Tensor, mask: Tensor | None) -> bool:
    rows = x.rows if isinstance(x, Ragged) else x
    learns = torch.is_grad_enabled() and any(
        isinstance(t, Tensor) and t.requires_grad for t in (rows, prototypes, variance)
    )
    return prototypes.is_cuda and mask is None and x.dtype != torch.float64 and not learns


def _fit_replayed(
    x: Rows | Ragged,
    prototypes: Tensor,
    variance: Tensor,
    settings: EMSettings,
    *,
    keep_assignment: bool,
    keep_scores: bool,
) -> MixtureFit | None:
    """The same mathematics, what is small of a step replayed as one CUDA graph; None where a step wants to be repeated in float64."""
    dtype = compute_dtype(torch.promote_types(x.dtype, prototypes.dtype))

    def begin(prototypes: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
        origin, centres, start = _start(prototypes, variance, dtype)
        assign = posterior(_uniform(centres, start), settings.temperature, dtype, whole_score=True)
        doubtful = torch.zeros((), dtype=torch.bool, device=centres.device)
        assert assign.common is not None
        return (
            *(origin.to(dtype), assign.linear, assign.bias, assign.common),
            *(origin, centres, start.clone(), doubtful),
        )

    def advance(
        mass: Tensor, total: Tensor, square: Tensor, score: Tensor,
        origin: Tensor, centres: Tensor, start: Tensor, doubtful: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        found = Statistics(mass, total, square, score, mass)
        mixture = _constrained(maximise(found, centres, start, settings.tau), mass + settings.tau, settings)
        doubtful |= _ill_conditioned(mass, mixture)
        evidence = score.clone() if step else _log_likelihood(found, _uniform(centres, start), assign)
        if last:
            return evidence, *_finished(mixture, origin, dtype)
        entered = posterior(_floored(mixture, start), settings.temperature, dtype)
        assert entered.quadratic is not None
        return evidence, entered.linear, entered.bias, entered.quadratic

    variance = variance.to(prototypes.device)
    rounded, *entering = replay(begin, (prototypes, variance), ("begin", settings, dtype))
    entering, fixed = entering[:3], entering[3:]
    log_likelihood, scores = [], None
    for step in range(settings.steps):
        first, last = step == 0, step == settings.steps - 1
        common = entering[2] if first and keep_scores else None
        assign = Logits(entering[0], entering[1], None if first else entering[2], settings.temperature, common=common)
        keep: dict[str, Any] = {"keep_assignment": keep_assignment and last, "keep_scores": keep_scores and first}
        sums, assignment, each = accumulate(x, assign, rounded, **keep)
        scores = each if first else scores
        key = "advance", first, last, keep_scores, settings, dtype
        evidence, *entering = replay(advance, sums[:4], key, fixed)
        log_likelihood.append(evidence.clone())
    if bool(fixed[-1]):
        return None
    mixture = Mixture(*(t.clone() for t in entering))
    return MixtureFit(mixture, sums.mass, torch.stack(log_likelihood, -1), assignment, scores)


def _start(prototypes: Tensor, variance: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Origin, centred prototypes (C, d) and starting variance (1, d), shared by the components; all in float64."""
    origin = prototypes.detach().double().mean(0).to(dtype).double()  # rounded once: all subtract the same point
    centres = prototypes.double() - origin
    return origin, centres, variance.double().to(centres.device).expand(1, -1)


def _finished(mixture: Mixture, origin: Tensor, dtype: torch.dtype) -> Mixture:
    return Mixture(mixture.weights.to(dtype), (mixture.means + origin).to(dtype), mixture.variances.to(dtype))


def _uniform(centres: Tensor, start: Tensor) -> Mixture:
    return Mixture(centres.new_full((len(centres),), 1 / len(centres)), centres, start)


def _floored(mixture: Mixture, start: Tensor) -> Mixture:
    """Mixture that can enter an E-step."""
    return mixture._replace(variances=torch.maximum(mixture.variances, FLOOR * start.detach().mean()))


def _one_by_one(x: Ragged, *start: Any, **keep: Any) -> MixtureFit:
    fits = [fit_mixture(bag, *start, **keep) for bag in x.bags()]
    mixture = Mixture(*map(torch.stack, zip(*(fit.mixture for fit in fits), strict=True)))
    kept = [fit.assignment for fit in fits if fit.assignment is not None]
    scores = [fit.scores for fit in fits if fit.scores is not None]
    masses, evidence = (torch.stack(t) for t in zip(*((fit.mass, fit.log_likelihood) for fit in fits), strict=True))
    return MixtureFit(
        mixture, masses, evidence, torch.cat(kept) if kept else None, torch.cat(scores) if scores else None
    )


def posterior(
    mixture: Mixture, temperature: float = 1.0, dtype: torch.dtype = torch.float32, *, whole_score: bool = False
) -> Logits:
    r"""E-step: :math:`q_{nc} \propto (\pi_c N(z_n; \mu_c, \Sigma_c))^{1/T}` (paper eq. 3), score :math:`\log p(z_n)`.

    Where the components share one variance (the first step) the term :math:`z^2/\Sigma` is the same for all; it is left
    out of posterior and score and added back in :func:`_log_likelihood`, which saves a matrix product. With ``whole_score`` the score
    of every patch has it, for those who ask for each.
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


def _constrained(mixture: Mixture, mass: Tensor, settings: EMSettings) -> Mixture:
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


def responsibilities(x: Rows, mixture: Mixture, temperature: float = 1.0) -> Tensor:
    """Posterior (N, C) of a bag under a given mixture, e.g. under the final parameters."""
    dtype = compute_dtype(torch.promote_types(x.dtype, mixture.means.dtype))
    origin = mixture.means.double().mean(-2).to(dtype).double()
    variances = mixture.variances.double()
    variances = variances.clamp_min(FLOOR * float(variances.mean()))
    centred = Mixture(mixture.weights.double(), mixture.means.double() - origin, variances)
    kept = accumulate(x, posterior(centred, temperature, dtype), origin.to(dtype), keep_assignment=True).assignment
    assert kept is not None
    return kept


def effective_number(weights: Tensor) -> Tensor:
    r"""Effective number of prototypes :math:`\exp(-\sum_c \pi_c \log \pi_c)`: 1 for a collapsed slide, C for a uniform one."""
    return torch.special.entr(weights).sum(-1).exp()


def _log_likelihood(sums: Statistics, mixture: Mixture, assign: Logits) -> Tensor:
    if assign.quadratic is not None or assign.common is not None:
        return sums.score
    # posteriors sum to one, so the sum over components is the plain sum of z^2 that posterior() left out
    return sums.score - 0.5 * (sums.square.sum(-2) / mixture.variances.squeeze(-2)).sum(-1)


@torch.no_grad()
def _ill_conditioned(mass: Tensor, mixture: Mixture) -> Tensor | bool:
    if library := library_for(mass, *mixture):
        return far_out_compiled(library, mass, mixture.means, mixture.variances, ILL_CONDITIONED)
    distance, spread = mixture.means.square().mean(-1), mixture.variances.mean(-1)
    return (torch.isfinite(mass) & (mass > 1.5) & (distance > ILL_CONDITIONED * spread)).any()
