"""Fitting: E-step and M-step in turn, in float64 where float32 is not sufficient."""

from typing import Any

import torch
from torch import Tensor

from panther.mixture.replayed import can_replay, launch_replayed
from panther.mixture.settings import FLOOR, PRESETS, EMSettings
from panther.mixture.steps import (
    FirstStep,
    MixtureFit,
    Start,
    constrained,
    finished,
    floored,
    is_ill_conditioned,
    log_likelihood,
    maximise,
    posterior,
    starting_point,
    uniform,
)
from panther.statistics import accumulate, compute_dtype
from panther.types import Mixture, Ragged, Rows


def start_of(
    prototypes: Tensor, variance: Tensor, dtype: torch.dtype, temperature: float = 1.0, *, whole_score: bool = False
) -> Start:
    """Return the start of EM, for arithmetic in ``dtype``."""
    origin, centres, first = starting_point(prototypes, variance, dtype)
    return Start(
        origin, centres, first, posterior(uniform(centres, first), temperature, dtype, whole_score=whole_score)
    )


def take_first_step(x: Rows, start: Start, *, keep_assignment: bool = False, keep_scores: bool = False) -> FirstStep:
    """Take the first E-step, for fits that share it: see :func:`fit_mixture`."""
    origin = start.origin.to(start.assign.linear.dtype)
    sums = accumulate(x, start.assign, origin, keep_assignment=keep_assignment, keep_scores=keep_scores)
    return FirstStep(start, sums)


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
    to_host: bool = False,
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
        The first E-step, if it was taken already.
    to_host : bool, default=False
        Copy the mixture from a GPU together with the float64 check.

    Notes
    -----
    Float32 sums lose digits of the variance when components lie many standard deviations apart; such a slide is
    detected and its step repeated in float64, so that accuracy does not depend on the data.
    """
    keep = {"keep_assignment": keep_assignment, "keep_scores": keep_scores}
    if first_step is None and can_replay(x, prototypes, variance, mask):
        fit = launch_replayed(x, prototypes, variance, settings, **keep, to_host=to_host)()
        if fit is not None:
            return fit
    dtype = precision = compute_dtype(torch.promote_types(x.dtype, prototypes.dtype))
    origin, centres, start = first_step.start[:3] if first_step else starting_point(prototypes, variance, dtype)
    mixture = uniform(centres, start)
    evidence, scores = [], None
    for step in range(settings.steps):
        before = mixture if step == 0 else floored(mixture, start)
        first, last = step == 0, step == settings.steps - 1
        while True:
            if first_step is not None and first and precision == dtype:
                assign, (sums, assignment, each) = first_step.start.assign, first_step.sums
            else:
                assign = posterior(before, settings.temperature, precision, whole_score=keep_scores and first)
                sums, assignment, each = accumulate(
                    *(x, assign, origin.to(precision)),
                    mask=mask,
                    keep_assignment=keep_assignment and last,
                    keep_scores=keep_scores and first,
                )
            mixture = constrained(maximise(sums, centres, start, settings.tau), sums.mass + settings.tau, settings)
            if precision == torch.float64 or not is_ill_conditioned(sums.mass, mixture):
                break
            if isinstance(x, Ragged):  # only some bags of the batch need the repetition
                return _one_by_one(x, prototypes, variance, settings, **keep)
            precision = torch.float64
        scores = each if first else scores
        evidence.append(log_likelihood(sums, before, assign))
    kept = (
        t.to(dtype) if t is not None and wanted else None
        for t, wanted in ((assignment, keep_assignment), (scores, keep_scores))
    )
    return MixtureFit(finished(mixture, origin, dtype), sums.mass, torch.stack(evidence, -1), *kept)


def surprise_of(x: Rows, prototypes: Tensor, variance: Tensor) -> Tensor:
    """Return -log p of every patch (N,) under the mixture at the start of EM."""
    scores = fit_mixture(x, prototypes, variance, keep_scores=True).scores
    assert scores is not None
    return -scores


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


def _one_by_one(x: Ragged, *start: Any, **keep: Any) -> MixtureFit:
    fits = [fit_mixture(bag, *start, **keep) for bag in x.bags()]
    mixture = Mixture(*map(torch.stack, zip(*(fit.mixture for fit in fits), strict=True)))
    kept = [fit.assignment for fit in fits if fit.assignment is not None]
    scores = [fit.scores for fit in fits if fit.scores is not None]
    masses, evidence = (torch.stack(t) for t in zip(*((fit.mass, fit.log_likelihood) for fit in fits), strict=True))
    return MixtureFit(
        mixture, masses, evidence, torch.cat(kept) if kept else None, torch.cat(scores) if scores else None
    )
